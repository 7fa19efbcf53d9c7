"""Cells made of Cells."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.tape import structure
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor


def _named(cells: tuple[Any, ...], who: str) -> list[tuple[str, Cell]]:
    """Cells with their names: of an OrderedDict its own, else their positions."""
    if len(cells) == 1 and isinstance(cells[0], (OrderedDict, dict)):
        named = list(cells[0].items())
    else:
        flat = list(cells[0]) if len(cells) == 1 and isinstance(cells[0], (list, tuple)) else list(cells)
        named = [(str(position), cell) for position, cell in enumerate(flat)]
    for name, cell in named:
        if not isinstance(cell, Cell):
            raise ArgumentError(f"{who}: element {name} of cells is a Cell, not {came(cell)}.")
    return named


class _Container(Cell):
    """Cells as numbered (or named) attributes."""

    def __init__(self, *cells: Any) -> None:
        super().__init__()
        for name, cell in _named(cells, type(self).__name__):
            setattr(self, name, cell)

    @property
    def _children(self) -> list[Cell]:
        return [value for value in self.__dict__.values() if isinstance(value, Cell)]

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._children)

    def __getitem__(self, index: int | slice) -> Any:
        chosen = self._children[index]
        return type(self)(*chosen) if isinstance(chosen, list) else chosen

    def append(self, cell: Cell) -> Any:
        """Put a Cell at the end."""
        ((_, checked),) = _named((cell,), type(self).__name__)
        setattr(self, str(len(self)), checked)
        return self


class SequentialCell(_Container):
    """Cells called one after the other: `SequentialCell(a, b)(x)` is `b(a(x))`.

    Takes Cells, a list of them, or an OrderedDict that names them.

    Raises:
        ArgumentError: for an element that is no Cell.
    """

    def construct(self, x: Any) -> Any:
        for cell in self._children:
            x = cell(x)
        return x


class CellList(_Container):
    """A list of Cells whose Parameters belong to the network; calling them is up to `construct`.

    Raises:
        ArgumentError: for an element that is no Cell.
    """

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        super().__init__(list(cells))

    def extend(self, cells: Iterable[Cell]) -> CellList:
        """Put several Cells at the end."""
        for cell in cells:
            self.append(cell)
        return self

    def __getitem__(self, index: int | slice) -> Any:
        chosen = self._children[index]
        return CellList(chosen) if isinstance(chosen, list) else chosen


class TimeDistributed(Cell):
    """Runs a Cell without memory on all time steps at once: (T, B, ...) goes in as (T B, ...) and comes out again.

    One large product instead of T small ones; BatchNorm inside sees the statistics over time and batch.

    Args:
        cell: any Cell whose outputs keep the first axis.

    Raises:
        ShapeError: for an input without time and batch axes, or a Cell that does not keep the first axis.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def construct(self, x: Tensor | EventLists) -> Any:
        if x.ndim < 2:
            raise ShapeError(f"TimeDistributed: takes (T, B, ...), the shape is {x.shape}.")
        steps, batch = x.shape[:2]
        out = self.cell(x.reshape((steps * batch, *x.shape[2:])))
        if isinstance(out, EventLists) and out.shape[:1] == (steps * batch,):
            return out.reshape(steps, batch, *out.shape[1:])
        leaves, tree = structure.flatten(out)
        for leaf in leaves:
            if leaf.shape[:1] != (steps * batch,):
                raise ShapeError(
                    f"TimeDistributed: {type(self.cell).__name__} gave shape {leaf.shape} for {steps} steps of a batch "
                    f"of {batch}; its first axis must stay {steps * batch}."
                )
        return structure.unflatten(tree, [leaf.reshape((steps, batch, *leaf.shape[1:])) for leaf in leaves])
