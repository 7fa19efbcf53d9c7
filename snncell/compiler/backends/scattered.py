"""Gradients of matrices that the kernel of a loop adds up: products of a sequence with few events and a result of it.

    for each strip of neurons:
        for each sample:
            for t in range(steps):
                for i in strip: ...  near[t] = the result, which is not written
            rows.scatter_rows(...): what is near is added to the rows of the strip's sums that the events belong to
        rows.put_strip(...): the sums are columns of the gradient, or rows of it where its transpose is wanted

A strip of the gradient belongs to one thread, which goes through all samples in order. Where there are many events the
same kernel writes its result, and the product is carried out behind the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import kind_of
from snncell.compiler.ir.product import as_rows, is_turned
from snncell.kernels.arrays import empty
from snncell.kernels.gathers import SortedEvents, sort_events
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

# Where nothing is added up, all elements are one sample, of which strips are blocks.
HEAD = ("column = part * block", "wide = least(block, width - column)", "samples = n // width")
BOUNDS = ("low = sample * width + column", "high = low + wide")
AHEAD, LINE = 4, 64  # steps that rows are fetched ahead; bytes that are fetched at once
STRIPS = 8  # at least so many, but the strips have LEAST columns
LEAST, MOST = 64, 128  # columns of a strip: with as many rows as are near, a quarter of a second-level cache


def events_by_column(instruction: Instruction, known: dict[Value, Any], steps: int) -> SortedEvents | None:
    """The events of a product that a loop may add up, where they are few."""
    x, *lists, _ = instruction.inputs
    width = instruction.inputs[-1].shape[-1]
    return sort_events(as_rows(known[x]), [known[value] for value in lists], instruction.outputs[0].dtype, width, steps)


class Scattered:
    """The products that a kernel may add up itself.

    Args:
        terms: their steps.
        sequences: the results of the loop, in order; the last operand of each term is among them.
    """

    def __init__(self, terms: list[Instruction], sequences: list[Value]) -> None:
        self.terms = [(instruction, sequences.index(instruction.inputs[-1])) for instruction in terms]

    def __contains__(self, step: object) -> bool:
        return any(step is own for own, _ in self.terms)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def around(self) -> list[str]:
        """The statements that a strip begins with, up to the loop over its samples."""
        if not self.terms:
            return []
        lines = list(HEAD)
        for n in range(len(self.terms)):
            lines += [
                f"for k in range(inner{n}):",
                f"    total = tail(row(sums{n}, part), k * wide)",
                "    for i in range(wide):",
                "        total[i] = 0",
            ]
        return [*lines, "for sample in range(samples):"]

    def fetches(self, rows: Sequence[Value], shape: tuple[int, ...], backwards: bool) -> list[str]:
        """The statements that a step begins with: they ask for the rows of the sequences that come `AHEAD` steps later.

        A strip of a row is short, and the next row far away: the processor does not foresee it.
        """
        lines = []
        for n, value in enumerate(rows):
            if self.terms and value.shape == shape:
                later = f"t - least(t, {AHEAD})" if backwards else f"least(t + {AHEAD}, steps - 1)"
                lines += [f"later{n} = tail(row(x{n}, ({later}) * h{n}), low0)"]
                line = LINE // kind_of(value).dtype.itemsize
                lines += [f"for line in range(0, count0, {line}):", f"    prefetch(tail(later{n}, line))"]
        return lines

    def near(self) -> dict[Value, list[str]]:
        """For the results that are multiplied, the statements that set where a step's row of them is stored."""
        found = {}
        for n, (instruction, row) in enumerate(self.terms):
            place = f"part, (sample % group{n} * held{n} + t % held{n}) * wide"
            # Chosen among numbers: of a choice among two arrays LLVM would ask about both whether they overlap others.
            choice = [f"if inner{n} >= 0:", f"    at{n}, from{n} = {place}", "else:", f"    at{n}, from{n} = t, low0"]
            found[instruction.inputs[-1]] = [*choice, f"g{row} = tail(row(o{row}, at{n}), from{n})"]
        return found

    def step(self, backwards: bool) -> list[str]:
        """The statements that a step ends with: when all rows of a block are near, they are added up."""
        lines = []
        for n, (_, row) in enumerate(self.terms):
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
        """The statements that a strip ends with, behind the loop over its samples: its sums are put into the result."""
        lines = []
        for n, (step, _) in enumerate(self.terms):
            arguments = f"tail(row(sums{n}, part), 0), grad{n}, {int(is_turned(step))}, inner{n}, column, wide, wide"
            lines += [f"if inner{n} >= 0:", f"    rows.put_strip({arguments})"]
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names of the kernel's further arguments, with their kinds."""
        arguments: list[tuple[str, Any]] = [("width", dtypes.int64)] if self.terms else []
        for n, (instruction, _) in enumerate(self.terms):
            kind = kind_of(instruction.outputs[0])
            arguments += [(f"{name}{n}", dtypes.int64) for name in ("inner", "held", "group", "graded")]
            arguments += [(f"firsts{n}", (dtypes.int64, 2, False)), (f"rows{n}", (dtypes.int16, 1, False))]
            arguments += [(f"amounts{n}", (kind, 1, False))]
            arguments += [(f"{name}{n}", (kind, 2, True)) for name in ("sums", "grad")]
        return arguments

    def events(self, known: dict[Value, Any]) -> dict[Instruction, SortedEvents]:
        """The events of the products that are added up now."""
        return {
            instruction: known[instruction.outputs[0]]
            for instruction, _ in self.terms
            if instruction.outputs[0] in known
        }

    def block(self, known: dict[Value, Any], units: int, block: int) -> tuple[int, int, int]:
        """The columns of a strip, those of a row, and 1: a strip is one of each row."""
        if not self.events(known):
            return block, max(1, units), 1
        width = self.terms[0][0].inputs[-1].shape[-1]
        strip = -(-width // STRIPS // LEAST) * LEAST
        return min(width, MOST, max(LEAST, strip)), width, 1

    def blocks(self, block: tuple[int, int, int], units: int) -> int:
        """The number of strips."""
        return -(-block[1] // block[0])

    def room(self, instruction: Instruction, known: dict[Value, Any], block: tuple[int, int, int]) -> Any:
        """An array for the rows that are near, in place of the sequence: a row for each strip."""
        events = known[instruction.outputs[0]]
        return empty(
            (self.blocks(block, 0), events.held * events.group * block[0]), kind_of(instruction.outputs[0]).dtype
        )

    def operands(self, known: dict[Value, Any], block: tuple[int, int, int]) -> tuple[list[Any], dict[Value, Any]]:
        """Arrays and numbers for `arguments`, and the gradients that are filled."""
        operands: list[Any] = [block[1]] if self.terms else []
        grads, found = {}, self.events(known)
        for instruction, _ in self.terms:
            (out,) = instruction.outputs
            dtype, events = kind_of(out).dtype, found.get(instruction)
            if events is None:
                operands += [-1, 1, 1, 0, np.zeros((1, 1), np.int64), np.zeros(1, np.int16), np.zeros(1, dtype)]
                operands += [np.zeros((1, 1), dtype)] * 2
                continue
            grads[out] = empty(out.shape, dtype)
            operands += [events.inner, events.held, events.group, int(events.values.size > 1)]
            operands += [events.firsts, events.rows, events.values]
            operands += [empty((self.blocks(block, 0), events.inner * block[0]), dtype), grads[out]]
        return operands, grads

    def additions(self, known: dict[Value, Any]) -> int:
        """The number of elements that are added up."""
        return sum(
            events.total * instruction.inputs[-1].shape[-1] for instruction, events in self.events(known).items()
        )
