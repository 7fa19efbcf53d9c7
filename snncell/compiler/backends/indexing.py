"""Operands of the kernel of a loop over time: rows of sequences, and constants.

    all    an element for each of the kernel's    r0_0[i]              a row, from the block's first element on
    some   one for each neuron of a batch, ...    r0_0[j0_0[i]]        by a table of indices
    one    a single one for all                   r0_0                 a number

The kernel runs over one axis of elements, so an operand that is broadcast has to be looked up by the element's
coordinates. Those cost divisions: constants are gathered once for a block, and for sequences a table of indices is made
once for a block, which serves all steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.compiler.backends.expressions import Statements, kind_of
from snncell.compiler.backends.index_space import IndexSpace
from snncell.kernels.cpu import loops
from snncell.tape.value import Value


class Scratch:
    """Allocations of a block's arrays, as text: on the stack as long as there is room, else in Numba's memory.

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
    """The operands of a phase that come from outside of the kernel: rows of sequences, and constants.

    Args:
        space: the number of the phase's shape: its elements in a block are those from `low<space>` to `high<space>`.
        shape: that shape.
        rows, fixed: the numbers of sequences and constants among the kernel's arguments.
        used: the Values that the phase uses.
        scratch: for tables of its own.
    """

    def __init__(
        self,
        space: int,
        shape: tuple[int, ...],
        rows: dict[Value, int],
        fixed: dict[Value, int],
        used: list[Value],
        scratch: Scratch,
    ) -> None:
        self.space = space
        self._scratch = scratch
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

    def _indices(self, name: str, dtype: np.dtype[Any], value: Value, element_at: str) -> list[str]:
        """The statements that fill an array with `element_at` the index of each of the block's elements."""
        element, lengths = f"(low{self.space} + i)", [f"n{self.space}_{axis}" for axis in range(len(self.index.sizes))]
        coordinates = []
        for axis, length in enumerate(lengths):
            inner = " * ".join(lengths[axis + 1 :])
            coordinates.append(f"({element} // ({inner})) % {length}" if inner else f"{element} % {length}")
        index = self.index.place(value, coordinates, lengths)
        return [
            f"{name} = {self._scratch.array(f'count{self.space}', dtype)}",
            f"for i in range(count{self.space}):",
            f"    {name}[i] = {element_at.format(f'scalar({index})')}",
        ]

    def load(self, statements: Statements, values: list[Value]) -> list[str]:
        """Give each of `values` a name in the body, and return the statements that a step begins with for it."""
        rows = []
        for value in values:  # h is 0 where one row stands for all steps: then t * h is always that row
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
