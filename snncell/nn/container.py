"""Containers of Cells: SequentialCell, CellList and CellDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Sequence, ValuesView
from typing import Any, Self

from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.tree import rearrange
from snncell.errors import ArgumentTypeError, MissingCellError, TensorIndexError

__all__ = ["CellDict", "CellList", "SequentialCell"]


def _name_cells(cells: tuple[Any, ...], who: str) -> list[tuple[str, Cell]]:
    """Pairs of names and Cells: the keys of a dict, else positions."""
    if len(cells) == 1 and isinstance(cells[0], (OrderedDict, dict)):
        named = list(cells[0].items())
    else:
        one = len(cells) == 1 and isinstance(cells[0], Iterable) and not isinstance(cells[0], Cell)
        named = [(str(position), cell) for position, cell in enumerate(cells[0] if one else cells)]
    for name, cell in named:
        if not isinstance(cell, Cell):
            raise ArgumentTypeError(f"{who}: element {name} of cells must be a Cell, not {came(cell)}.")
    return named


class _Container(Cell):
    """Base of containers, which hold their Cells as attributes in order."""

    @property
    def _named_children(self) -> dict[str, Cell]:
        return {name: value for name, value in self.__dict__.items() if isinstance(value, Cell)}

    @property
    def _children(self) -> list[Cell]:
        return list(self._named_children.values())

    def __len__(self) -> int:
        return len(self._named_children)

    def __bool__(self) -> bool:
        return True  # even if it is empty, like any other Cell


class _Sequence(_Container):
    """Base of containers whose Cells have numbers as names, or names from an OrderedDict."""

    def __init__(self, *cells: Any) -> None:
        super().__init__()
        for name, cell in _name_cells(cells, type(self).__name__):
            self.insert_child_to_cell(name, cell)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._children)

    def __contains__(self, cell: object) -> bool:
        return any(child is cell for child in self._children)

    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            return self._children[self._position_of(index)]
        chosen = list(self._named_children.items())[index]
        return type(self)(OrderedDict(self._renumber(chosen)))

    def __setitem__(self, index: int, cell: Cell) -> None:
        name = list(self._named_children)[self._position_of(index)]
        setattr(self, name, self._checked(cell))

    def __delitem__(self, index: int | slice) -> None:
        items = list(self._named_children.items())
        if isinstance(index, slice):
            del items[index]
        else:
            del items[self._position_of(index)]
        self._replace_all(items)

    def append(self, cell: Cell) -> Self:
        """Append a Cell."""
        self._replace_all([*self._named_children.items(), (None, self._checked(cell))])
        return self

    def insert(self, index: int, cell: Cell) -> Self:
        """Insert a Cell before an index. Later Cells whose names are numbers get the next number."""
        items: list[tuple[str | None, Cell]] = list(self._named_children.items())
        items.insert(self._position_of(index, ends=1), (None, self._checked(cell)))
        self._replace_all(items)
        return self

    def extend(self, cells: Iterable[Cell]) -> Self:
        """Append several Cells."""
        several = [(None, cell) for _, cell in _name_cells((list(cells),), type(self).__name__)]
        self._replace_all([*self._named_children.items(), *several])
        return self

    __iadd__ = extend

    def _checked(self, cell: Any) -> Cell:
        ((_, checked),) = _name_cells(([cell],), type(self).__name__)
        return checked

    def _position_of(self, index: Any, ends: int = 0) -> int:
        """Convert an index from either end to a position, after checking it; ends=1 allows the position len(self)."""
        who, count = type(self).__name__, len(self)
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise ArgumentTypeError(f"{who}: an index must be an int or a slice, not {came(index)}.")
        place: int = index.__index__()
        if not -count <= place < count + ends:
            raise TensorIndexError(f"{who}: index {place} is out of range for {count} Cells.")
        return place + count if place < 0 else place

    @staticmethod
    def _renumber(items: Sequence[tuple[str | None, Cell]]) -> dict[str, Cell]:
        """Map names to Cells; numbers become the current positions."""
        return {str(i) if name is None or name.isdigit() else name: cell for i, (name, cell) in enumerate(items)}

    def _replace_all(self, items: Sequence[tuple[str | None, Cell]]) -> None:
        named = self._renumber(items)
        before, state = self._named_children, self.__dict__
        for name in before:
            del state[name]
        state |= named
        state["version"] += 2
        rearrange(self, list(before.values()), named)


class SequentialCell(_Sequence):
    """Sequential container: `SequentialCell(a, b)(x)` is `b(a(x))`.

    Pass Cells, a list of Cells, or an OrderedDict that names them. For networks with skip connections, write a Cell or
    use `nn.SEWBlock`. A slice such as `net[:2]` shares the Cells and keeps the names of their Parameters.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.Dense(4, 1)).insert(1, nn.ReLU())
        >>> [p.name for p in net.trainable_params()]
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def construct(self, x: Any) -> Any:
        for cell in self._children:
            x = cell(x)
        return x


class CellList(_Sequence):
    """List of Cells, for your own loop over layers. Pass Cells, or a list of them.

    A plain list as an attribute works too, unless it contains other lists.
    Example:
        >>> layers = nn.CellList([nn.Dense(3, 4, has_bias=False), nn.Dense(4, 1)])
        >>> [p.name for p in layers.trainable_params()]
        ['0.weight', '1.weight', '1.bias']
    """


class CellDict(_Container):
    """Dictionary of Cells, for named branches of a network. Your `construct` calls them.

    Args:
        cells: a dict, a CellDict, or pairs (name, cell). The order is kept.
    Example:
        >>> branches = nn.CellDict({"fine": nn.Dense(3, 4), "coarse": nn.Dense(3, 2)})
        >>> list(branches), branches.pop("fine").weight.shape, [p.name for p in branches.trainable_params()]
        (['fine', 'coarse'], (4, 3), ['coarse.weight', 'coarse.bias'])
    """

    def __init__(self, cells: Any = ()) -> None:
        super().__init__()
        self.update(cells)

    def __getitem__(self, key: str) -> Cell:
        if key not in self:
            raise MissingCellError(f"CellDict has no Cell {key!r}; its keys are {', '.join(self.keys()) or 'none'}.")
        return self._named_children[key]

    def __setitem__(self, key: str, cell: Cell) -> None:
        self.update({key: cell})

    def __delitem__(self, key: str) -> None:
        self[key]  # raises an error that lists the keys
        delattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._named_children)

    def __contains__(self, key: object) -> bool:
        return key in self._named_children

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._named_children.keys()

    def values(self) -> ValuesView[Cell]:
        """The Cells."""
        return self._named_children.values()

    def items(self) -> ItemsView[str, Cell]:
        """The names with their Cells."""
        return self._named_children.items()

    def pop(self, key: str) -> Cell:
        """Remove a Cell and return it."""
        cell = self[key]
        delattr(self, key)
        return cell

    def clear(self) -> None:
        """Remove all Cells."""
        for name in self._named_children:
            delattr(self, name)

    def update(self, cells: Any) -> None:
        """Add Cells from a dict or pairs; a Cell with an existing name replaces the old one in its place."""
        try:
            named = dict(cells.items() if hasattr(cells, "items") else cells)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"CellDict: cells must be a dict, or pairs (name, cell), not {came(cells)}."
            ) from None
        for name, cell in _name_cells((named,), "CellDict"):
            self.insert_child_to_cell(name, cell)
