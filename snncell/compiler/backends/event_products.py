"""Fusion of event-driven products into the kernel of a loop: as inputs (gather), and as sums over time (scatter).

The number of events is known only at run time. If there are many, the same kernel reads the product as a sequence that
was computed before the loop (gather), or writes a sequence for a product after the loop (scatter).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import kind_of
from snncell.compiler.backends.tile import Scratch
from snncell.compiler.ir.product import as_rows, is_turned
from snncell.kernels import loops
from snncell.kernels.arrays import empty
from snncell.kernels.numba.policy import number_of_threads
from snncell.kernels.products.gathers import (
    CACHED,
    RowsOfEvents,
    SortedEvents,
    pack_strips,
    rows_of_events as gather_events,
    sort_events,
)
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

Arrays = dict[Value, Any]

# The rows and columns of a block of a kernel over elements: a block is several rows, or a part of one.
GATHER_HEAD = (
    "samples = n // width",
    "groups = (samples + each - 1) // each",
    "sample, column = part % groups * each, part // groups * block",
    "many, wide = least(each, samples - sample), least(block, width - column)",
    "low = sample * width + column",
    "high = low + (many - 1) * width + wide",
)
LEAST_BLOCKS, NARROW = 16, 128  # the minimum number of blocks, as long as their strips have at least NARROW columns
LEAST_ELEMENTS = 512


def gather_rows(instruction: Instruction, known: dict[Value, Any]) -> RowsOfEvents | None:
    """The operands of a product before a loop, for a loop that gathers it; None if it has too many events."""
    x, *lists, matrix = (known[value] for value in instruction.inputs)
    return gather_events(as_rows(x), lists, matrix)


class EventGather:
    """Gather: add the matrix rows of a step's events where the loop would load its input.

        for each block of neurons:
            for t in range(steps):
                if inner0 >= 0:  rows.gather_rows(...): y0 = sum of the rows of step t's events
                else:            y0 = row of the sequence that was computed before the loop
                for i in block: ...

    A block is some columns of one row of the product, or several whole rows.
    """

    def __init__(self, values: dict[Value, tuple[int, int]], by_rows: bool) -> None:
        self.values = values  # for each result, the number of its sequence in the kernel, and of its space
        self.by_rows = by_rows  # True if the kernel's units are rows

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def array_of(self) -> dict[Value, str]:
        """The names of the arrays with the gathered rows."""
        return {value: f"y{n}" for n, value in enumerate(self.values)}

    def begin(self, prepare: list[str], scratch: Scratch) -> list[str]:
        """The statements at the start of a block: its bounds, `prepare`, and scratch arrays for gathered rows."""
        if not self.values or self.by_rows:
            arrays = [scratch.array(f"count{space}", kind_of(value).dtype) for value, (_, space) in self.values.items()]
            return [*loops.BLOCKS, *prepare, *(f"near{n} = {array}" for n, array in enumerate(arrays))]
        arrays = [scratch.array(str(loops.BLOCK), kind_of(value).dtype) for value in self.values]
        held = f"held = {loops.BLOCK} // count0"  # there is only one space
        return [*GATHER_HEAD, *prepare, held, *(f"near{n} = {array}" for n, array in enumerate(arrays))]

    def step(self, backwards: bool) -> list[str]:
        """The statements at the start of a step."""
        lines = []
        for n, (row, space) in enumerate(self.values.values()):
            lists = f"tail(places{n}, 0), tail(amounts{n}, 0), graded{n}, tail(starts{n}, 0), tail(counts{n}, 0)"
            near = f"tail(near{n}, 0)"
            if self.by_rows:
                arguments = f"{lists}, t * n + low, high - low, tail(matrix{n}, 0), {near}, per{space}, 0, 1"
                gather, place = [f"    rows.gather_rows({arguments})"], "0"
            else:
                # Gather several steps at a time, so that stores of a step's results do not delay stores of the sums.
                matrix = f"tail(matrix{n}, column * inner{n})"
                arguments = f"{lists}, t * samples + sample, many, {matrix}, {near}, wide"
                arguments += f", {'-' if backwards else ''}samples, least(held, steps - turn)"
                gather = ["    if turn % held == 0:", f"        rows.gather_rows({arguments})"]
                place = f"turn % held * count{space}"
            # Copy a row that was computed before the loop, within the cache, instead of selecting one of two arrays:
            # LLVM would check both for aliasing, and it gives up with too many arrays to check.
            lines += [f"if inner{n} >= 0:", *gather, "else:"]
            lines += [f"    copy(tail(near{n}, {place}), tail(row(x{row}, t * h{row}), low{space}), count{space})"]
            lines += [f"y{n} = tail(near{n}, {place})"]
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names and types of the kernel's additional arguments."""
        sizes = ("width", "each") if self.values and not self.by_rows else ()
        arguments: list[tuple[str, Any]] = [(name, dtypes.int64) for name in sizes]
        for n, value in enumerate(self.values):
            kind, number = kind_of(value), dtypes.int64
            lists = {"places": dtypes.int16, "amounts": kind, "starts": number, "counts": dtypes.int32, "matrix": kind}
            arguments += [(f"inner{n}", number), (f"graded{n}", number)]
            arguments += [(f"{name}{n}", (dtype, 1, False)) for name, dtype in lists.items()]
        return arguments

    def block(self, known: dict[Value, Any], units: int, block: int, by_threads: bool) -> tuple[int, int, int]:
        """The columns of a block, the columns of a row, and the rows of a block. Without events, there is one row. The
        block may depend on the number of threads if `by_threads`.
        """
        rows = self._gathered(known)
        if self.by_rows or not rows:
            return block, max(1, units), 1
        width = rows[0].matrix.shape[1]
        # A small batch gets narrower strips, so that there are enough for all threads.
        strip = min(*(product.strip for product in rows), max(NARROW, units // LEAST_BLOCKS // NARROW * NARROW))
        return strip, width, max(1, LEAST_ELEMENTS // width) if strip == width else 1

    def operands(self, known: dict[Value, Any], block: tuple[int, int, int]) -> tuple[list[Any], Arrays, Arrays]:
        """The values of `arguments`, and two empty results, because only `EventScatter` has them."""
        strip, *sizes = block
        operands: list[Any] = [] if self.by_rows else sizes
        for value in self.values:
            product, dtype = known[value], kind_of(value).dtype
            if isinstance(product, RowsOfEvents):
                inner, columns = product.matrix.shape
                matrix = pack_strips(product.matrix, columns if self.by_rows else strip)
                operands += [inner, int(product.events[1].size > 1), *product.events, matrix]
            else:
                nothing = [np.zeros(1, kind) for kind in (np.int16, dtype, np.int64, np.int32, dtype)]
                operands += [-1, 0, *nothing]
        return operands, {}, {}

    def blocks(self, block: tuple[int, int, int], units: int) -> int:
        """The number of blocks."""
        strip, width, each = block
        return -(-(units // width) // each) * -(-width // strip)

    def additions(self, known: dict[Value, Any]) -> int:
        """The number of matrix elements that are added."""
        return sum(product.total * product.matrix.shape[1] for product in self._gathered(known))

    def _gathered(self, known: dict[Value, Any]) -> list[RowsOfEvents]:
        return [known[value] for value in self.values if isinstance(known[value], RowsOfEvents)]


# --- Scatter ----------------------------------------------------------------------------------------------------------

# If a run scatters no product, all elements form one sample, and strips are blocks of it.
SCATTER_HEAD = ("column = part * block", "wide = least(block, width - column)", "samples = n // width")
BOUNDS = ("low = sample * width + column", "high = low + wide")
AHEAD, LINE = 4, 64  # the prefetch distance in steps; bytes of a cache line
STRIPS = 8  # the minimum number of strips, as long as they have at least LEAST columns
LEAST = 64  # columns of a strip; it has more as long as the rows of a block and the sums stay in the L2 cache


def events_by_column(instruction: Instruction, known: dict[Value, Any], steps: int) -> SortedEvents | None:
    """The sorted events of a product that a loop may scatter, or None if there are too many."""
    x, *lists, _ = instruction.inputs
    width = instruction.inputs[-1].shape[-1]
    return sort_events(as_rows(known[x]), [known[value] for value in lists], instruction.outputs[0].dtype, width, steps)


class EventScatter:
    """Scatter: compute the gradient of a matrix in the loop, from a sequence with few events and a result of the loop.

        for each strip of neurons:
            for each sample:
                for t in range(steps):
                    for i in strip: ...  near[t] = the result, which is not written to memory
                rows.scatter_rows(...): add `near` to the rows of the strip's sums that belong to the events
            rows.put_strip(...): the sums are columns of the gradient, or rows of its transpose

    A strip is some columns of the gradient. One thread processes all samples of a strip, in order. The last operand of
    each product is one of the `sequences` that the loop computes.
    """

    def __init__(self, products: list[Instruction], sequences: list[Value]) -> None:
        self.products = [(instruction, sequences.index(instruction.inputs[-1])) for instruction in products]

    def __contains__(self, instruction: object) -> bool:
        return any(instruction is own for own, _ in self.products)

    def __bool__(self) -> bool:
        return bool(self.products)

    def around(self) -> list[str]:
        """The statements at the start of a strip, up to the loop over its samples."""
        if not self.products:
            return []
        lines = list(SCATTER_HEAD)
        for n in range(len(self.products)):
            lines += [
                f"for k in range(inner{n}):",
                f"    total = tail(row(sums{n}, part), k * wide)",
                "    for i in range(wide):",
                "        total[i] = 0",
            ]
        return [*lines, "for sample in range(samples):"]

    def fetches(self, sequences: Sequence[Value], shape: tuple[int, ...], backwards: bool) -> list[str]:
        """The statements at the start of a step that prefetch the slices of input sequences for `AHEAD` steps later.
        The hardware does not prefetch them, because a strip is a short part of a slice, and the next slice is far away.
        """
        lines = []
        for n, value in enumerate(sequences):
            if self.products and value.shape == shape:
                later = f"t - least(t, {AHEAD})" if backwards else f"least(t + {AHEAD}, steps - 1)"
                lines += [f"later{n} = tail(row(x{n}, ({later}) * h{n}), low0)"]
                line = LINE // kind_of(value).dtype.itemsize
                lines += [f"for line in range(0, count0, {line}):", f"    prefetch(tail(later{n}, line))"]
        return lines

    def near(self) -> dict[Value, list[str]]:
        """The statements that choose the array to which a step stores each result that is scattered."""
        found = {}
        for n, (instruction, row) in enumerate(self.products):
            place = f"part, (sample % group{n} * held{n} + t % held{n}) * wide"
            # Select among offsets, not among arrays, because LLVM would check both arrays for aliasing.
            choice = [f"if inner{n} >= 0:", f"    at{n}, from{n} = {place}", "else:", f"    at{n}, from{n} = t, low0"]
            found[instruction.inputs[-1]] = [*choice, f"g{row} = tail(row(o{row}, at{n}), from{n})"]
        return found

    def step(self, backwards: bool) -> list[str]:
        """The statements at the end of a step: scatter when all rows of a block are complete."""
        lines = []
        for n, (_, row) in enumerate(self.products):
            last = f"t % held{n} == 0" if backwards else f"(t % held{n} == held{n} - 1 or t == steps - 1)"
            lists = f"tail(row(firsts{n}, block{n}), 0), tail(rows{n}, 0), tail(amounts{n}, 0), graded{n}"
            arrays = f"tail(row(o{row}, part), 0), tail(row(sums{n}, part), 0)"
            lines += [
                f"if inner{n} >= 0 and {last} and (sample % group{n} == group{n} - 1 or sample == samples - 1):",
                f"    block{n} = sample // group{n} * ((steps + held{n} - 1) // held{n}) + t // held{n}",
                f"    rows.scatter_rows({lists}, inner{n}, {arrays}, wide, wide)",
            ]
        return lines

    def after(self) -> list[str]:
        """The statements at the end of a strip, after the loop over its samples: store its sums in the result."""
        lines = []
        for n, (product, _) in enumerate(self.products):
            arguments = f"tail(row(sums{n}, part), 0), grad{n}, {int(is_turned(product))}, inner{n}, column, wide, wide"
            lines += [f"if inner{n} >= 0:", f"    rows.put_strip({arguments})"]
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names and types of the kernel's additional arguments."""
        arguments: list[tuple[str, Any]] = [("width", dtypes.int64)] if self.products else []
        for n, (instruction, _) in enumerate(self.products):
            kind = kind_of(instruction.outputs[0])
            arguments += [(f"{name}{n}", dtypes.int64) for name in ("inner", "held", "group", "graded")]
            arguments += [(f"firsts{n}", (dtypes.int64, 2, False)), (f"rows{n}", (dtypes.int16, 1, False))]
            arguments += [(f"amounts{n}", (kind, 1, False))]
            arguments += [(f"{name}{n}", (kind, 2, True)) for name in ("sums", "grad")]
        return arguments

    def events(self, known: dict[Value, Any]) -> dict[Instruction, SortedEvents]:
        """The events of the products that are scattered in this run."""
        pairs = ((instruction, known.get(instruction.outputs[0])) for instruction, _ in self.products)
        return {instruction: events for instruction, events in pairs if events is not None}

    def block(self, known: dict[Value, Any], units: int, block: int, by_threads: bool) -> tuple[int, int, int]:
        """The columns of a strip, the columns of a row, and 1, because a strip belongs to one row. For each column of a
        matrix with events, a strip reads and writes its sums, so a few wide strips are faster than many narrow ones.
        """
        if not (found := self.events(known)):
            return block, max(1, units), 1
        width = self.products[0][0].inputs[-1].shape[-1]
        strips = number_of_threads() if by_threads else STRIPS
        rows = max(events.inner + events.held * events.group for events in found.values())
        size = max(kind_of(instruction.outputs[0]).dtype.itemsize for instruction in found)
        most = max(LEAST, CACHED // (rows * size) // LEAST * LEAST)
        return min(width, most, -(-width // strips // LEAST) * LEAST), width, 1

    def blocks(self, block: tuple[int, int, int], units: int) -> int:
        """The number of strips."""
        return -(-block[1] // block[0])

    def operands(self, known: dict[Value, Any], block: tuple[int, int, int]) -> tuple[list[Any], Arrays, Arrays]:
        """The values of `arguments`, the gradients that the kernel fills, and the scratch arrays that it fills instead
        of sequences: each has a row per strip, for the rows of a block.
        """
        operands: list[Any] = [block[1]]
        grads, near, found = Arrays(), Arrays(), self.events(known)
        strips = self.blocks(block, 0)
        for instruction, _ in self.products:
            (out,) = instruction.outputs
            dtype, events = kind_of(out).dtype, found.get(instruction)
            if events is None:
                operands += [-1, 1, 1, 0, np.zeros((1, 1), np.int64), np.zeros(1, np.int16), np.zeros(1, dtype)]
                operands += [np.zeros((1, 1), dtype)] * 2
                continue
            grads[out] = empty(out.shape, dtype)
            operands += [events.inner, events.held, events.group, int(events.values.size > 1)]
            operands += [events.firsts, events.rows, events.values]
            operands += [empty((strips, events.inner * block[0]), dtype), grads[out]]
            near[instruction.inputs[-1]] = empty((strips, events.held * events.group * block[0]), dtype)
        return operands, grads, near

    def additions(self, known: dict[Value, Any]) -> int:
        """The number of elements that are added."""
        return sum(events.total * product.inputs[-1].shape[-1] for product, events in self.events(known).items())
