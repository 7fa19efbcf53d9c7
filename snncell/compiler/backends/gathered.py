"""Sequences that the kernel of a loop need not read: products with few events, whose rows it adds up itself.

    for each block of neurons:
        for t in range(steps):
            if gathers0:  rows.gather_rows(...): y0 = sum of the rows of the matrix that step t's events belong to
            else:         y0 = the row of the sequence, which was computed before the loop
            for i in block: ...

Both are one kernel, for there may be more events in the next batch. A block is of some columns of one row of the
product, or of several whole rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import kind_of
from snncell.compiler.backends.indexing import Scratch
from snncell.compiler.ir.product import as_rows
from snncell.kernels.cpu import loops
from snncell.kernels.gathers import RowsOfEvents, rows_of_events as found
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

# What a kernel over elements does with a unit: its rows and columns, of a block that is many rows or a part of one.
HEAD = (
    "samples = n // width",
    "groups = (samples + each - 1) // each",
    "sample, column = part % groups * each, part // groups * block",
    "many, wide = least(each, samples - sample), least(block, width - column)",
    "low = sample * width + column",
    "high = low + (many - 1) * width + wide",
)
LEAST_BLOCKS, NARROW = 16, 128  # so many blocks at least, if their strips have NARROW columns
LEAST_ELEMENTS = 512


def rows_of_events(instruction: Instruction, known: dict[Value, Any]) -> RowsOfEvents | None:
    """A product before a loop as rows that the loop adds up, where it has few events."""
    x, *lists, matrix = (known[value] for value in instruction.inputs)
    return found(as_rows(x), lists, matrix)


class Gathered:
    """The products whose rows a kernel may add up itself.

    Args:
        values: their results, each with its number among the sequences of the kernel, and the number of its space.
        by_rows: whether the kernel's units are rows.
    """

    def __init__(self, values: dict[Value, tuple[int, int]], by_rows: bool) -> None:
        self.values = values
        self.by_rows = by_rows

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def array_of(self) -> dict[Value, str]:
        """The names of the arrays that their rows are in."""
        return {value: f"y{n}" for n, value in enumerate(self.values)}

    def begin(self, prepare: list[str], scratch: Scratch) -> list[str]:
        """The statements that a block begins with: its bounds, `prepare`, and room for the rows that are added up."""
        if not self.values or self.by_rows:
            rooms = [scratch.array(f"count{space}", kind_of(value).dtype) for value, (_, space) in self.values.items()]
            return [*loops.BLOCKS, *prepare, *(f"near{n} = {room}" for n, room in enumerate(rooms))]
        rooms = [scratch.array(str(loops.BLOCK), kind_of(value).dtype) for value in self.values]
        held = f"held = {loops.BLOCK} // count0"  # all elements are of one space
        return [*HEAD, *prepare, held, *(f"near{n} = {room}" for n, room in enumerate(rooms))]

    def step(self, backwards: bool) -> list[str]:
        """The statements that a step begins with."""
        lines = []
        for n, (row, space) in enumerate(self.values.values()):
            lists = f"tail(places{n}, 0), tail(amounts{n}, 0), graded{n}, tail(starts{n}, 0), tail(counts{n}, 0)"
            near = f"tail(near{n}, 0)"
            if self.by_rows:
                arguments = f"{lists}, t * n + low, high - low, tail(matrix{n}, 0), {near}, per{space}, 0, 1"
                gather, place = [f"    rows.gather_rows({arguments})"], "0"
            else:
                # Some steps at a time: a store of a result to memory would hold up those of the sums behind it.
                matrix = f"tail(matrix{n}, column * inner{n})"
                arguments = f"{lists}, t * samples + sample, many, {matrix}, {near}, wide"
                arguments += f", {'-' if backwards else ''}samples, least(held, steps - turn)"
                gather = ["    if turn % held == 0:", f"        rows.gather_rows({arguments})"]
                place = f"turn % held * count{space}"
            # What was computed before the loop is copied, within the cache: of a choice among two arrays LLVM would ask
            # about both whether they overlap others, which it does for few arrays only.
            lines += [f"if inner{n} >= 0:", *gather, "else:"]
            lines += [f"    copy(tail(near{n}, {place}), tail(row(x{row}, t * h{row}), low{space}), count{space})"]
            lines += [f"y{n} = tail(near{n}, {place})"]
        return lines

    def arguments(self) -> list[tuple[str, Any]]:
        """The names of the kernel's further arguments, with their kinds."""
        sizes = ("width", "each") if self.values and not self.by_rows else ()
        arguments: list[tuple[str, Any]] = [(name, dtypes.int64) for name in sizes]
        for n, value in enumerate(self.values):
            kind, number = kind_of(value), dtypes.int64
            lists = (dtypes.int16, kind, dtypes.int64, dtypes.int32, kind)
            names = ("places", "amounts", "starts", "counts", "matrix")
            arguments += [
                (f"inner{n}", number),
                (f"graded{n}", number),
                *((f"{a}{n}", (b, 1, False)) for a, b in zip(names, lists, strict=True)),
            ]
        return arguments

    def block(self, known: dict[Value, Any], units: int, block: int) -> tuple[int, int, int]:
        """The columns of a block, those of a row, and the rows of a block.

        Where nothing is gathered, all elements are one row, of which blocks are parts.
        """
        rows = [known[value] for value in self.values if isinstance(known[value], RowsOfEvents)]
        if self.by_rows or not rows:
            return block, max(1, units), 1
        width = rows[0].matrix.shape[1]
        # Of a small batch strips are narrower, so that there are some for all threads.
        strip = min(*(product.strip for product in rows), max(NARROW, units // LEAST_BLOCKS // NARROW * NARROW))
        return strip, width, max(1, LEAST_ELEMENTS // width) if strip == width else 1

    def operands(self, known: dict[Value, Any], block: tuple[int, int, int]) -> list[Any]:
        """Arrays and numbers for `arguments`."""
        strip, *sizes = block
        operands: list[Any] = sizes if self.values and not self.by_rows else []
        for value in self.values:
            product, dtype = known[value], kind_of(value).dtype
            if isinstance(product, RowsOfEvents):
                inner, columns = product.matrix.shape
                matrix = product.in_strips(columns if self.by_rows else strip)
                places, values, starts, counts = product.events
                graded = int(values.size > 1)
                operands += [inner, graded, places, values, starts, counts, matrix]
            else:
                nothing = [np.zeros(1, kind) for kind in (np.int16, dtype, np.int64, np.int32, dtype)]
                operands += [-1, 0, *nothing]
        return operands

    def blocks(self, block: tuple[int, int, int], units: int) -> int:
        """The number of blocks."""
        strip, width, each = block
        return -(-(units // width) // each) * -(-width // strip)

    def additions(self, known: dict[Value, Any]) -> int:
        """The number of elements of matrices that are added up."""
        products = [known[value] for value in self.values if isinstance(known[value], RowsOfEvents)]
        return sum(product.total * product.matrix.shape[1] for product in products)
