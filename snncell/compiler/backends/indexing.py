"""Where the kernel of a loop over time finds what comes from outside of it: rows of sequences, and constants.

The kernel runs over one axis of elements. What is not there for each of them (one number for all, one for each neuron
of a batch, one for each channel) is looked up by the element's place along the axes: constants once for a block,
sequences by a table of indices that is made once for a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.compiler.backends.expressions import Statements, kind_of
from snncell.compiler.backends.index_space import IndexSpace
from snncell.kernels.cpu import loops
from snncell.tape.tracing import Value


class Scratch:
    """Arrays of a block, as text: on the stack as long as there is room, else in Numba's memory.

    Args:
        stack: bytes; threads of some systems have no more than 512 kB.
    """

    def __init__(self, stack: int) -> None:
        self._left = stack

    def array(self, count: str, dtype: np.dtype[Any]) -> str:
        """The call that makes an array of so many elements."""
        self._left -= loops.BLOCK * dtype.itemsize
        return f"{'strip' if self._left >= 0 else 'np.empty'}({count}, np.{dtype.type.__name__})"


class PhaseOperands:
    """Where a phase of a kernel finds what comes from outside: rows of sequences, and constants.

    Args:
        space: the number of the phase's shape: its elements in a block are those from `low<space>` to `high<space>`.
        shape: that shape.
        rows, fixed: the numbers of sequences and constants among the kernel's arguments.
        used: those that the phase uses.
        room: for arrays of its own.
    """

    def __init__(
        self,
        space: int,
        shape: tuple[int, ...],
        rows: dict[Value, int],
        fixed: dict[Value, int],
        used: list[Value],
        room: Scratch,
    ) -> None:
        self.space = space
        self._room = room
        self.index = IndexSpace(shape, [value for value in used if value in rows or value in fixed])
        self.rows = rows
        self.prepare: list[str] = []
        self.elements: dict[Value, str] = {}
        for value in self.index.present:
            if value in fixed:
                self._constant(fixed[value], value)
            elif self.index.coverage(value) == "some":
                self.prepare += self._indices(f"j{space}_{rows[value]}", np.dtype(np.int64), value, "{0}")

    def _constant(self, n: int, value: Value) -> None:
        kind, name = self.index.coverage(value), f"d{self.space}_{n}"
        self.elements[value] = name if kind == "one" else f"{name}[i]"
        if kind == "some":
            self.prepare += self._indices(name, kind_of(value).dtype, value, f"a{n}[{{0}}]")
        else:
            self.prepare.append(f"{name} = a{n}[0]" if kind == "one" else f"{name} = tail(a{n}, low{self.space})")

    def _indices(self, name: str, dtype: np.dtype[Any], value: Value, found: str) -> list[str]:
        """Fill an array of the block with what belongs to each element, by its place along the axes."""
        element, lengths = f"(low{self.space} + i)", [f"n{self.space}_{axis}" for axis in range(len(self.index.sizes))]
        coordinates = []
        for axis, length in enumerate(lengths):
            inner = " * ".join(lengths[axis + 1 :])
            coordinates.append(f"({element} // ({inner})) % {length}" if inner else f"{element} % {length}")
        index = self.index.place(value, coordinates, lengths)
        return [
            f"{name} = {self._room.array(f'count{self.space}', dtype)}",
            f"for i in range(count{self.space}):",
            f"    {name}[i] = {found.format(f'scalar({index})')}",
        ]

    def load(self, statements: Statements, values: list[Value]) -> list[str]:
        """Give each of `values` a name in the body; the statements that a step needs for it."""
        rows = []
        for value in values:
            if value in self.elements:
                statements.load(value, self.elements[value])
            elif value in self.index.present:
                n, kind, row = self.rows[value], self.index.coverage(value), f"r{self.space}_{self.rows[value]}"
                whole = f"row(x{n}, t * h{n})"
                part = {"all": f"tail({whole}, low{self.space})", "some": whole, "one": f"x{n}[t * h{n}, 0]"}[kind]
                rows.append(f"{row} = {part}")
                element = {"all": f"{row}[i]", "some": f"{row}[j{self.space}_{n}[i]]", "one": row}[kind]
                statements.load(value, element)
        return rows
