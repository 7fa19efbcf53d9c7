"""Containers: Cells in sequence, in a list, in a dict."""

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
    """Cells with their names: of an OrderedDict its own, else their positions."""
    if len(cells) == 1 and isinstance(cells[0], (OrderedDict, dict)):
        named = list(cells[0].items())
    else:
        one = len(cells) == 1 and isinstance(cells[0], Iterable) and not isinstance(cells[0], Cell)
        named = [(str(position), cell) for position, cell in enumerate(cells[0] if one else cells)]
    for name, cell in named:
        if not isinstance(cell, Cell):
            raise ArgumentTypeError(f"{who}: element {name} of cells is a Cell, not {came(cell)}.")
    return named


class _Container(Cell):
    """Cells as attributes, in their order."""

    @property
    def _named_children(self) -> dict[str, Cell]:
        return {name: value for name, value in self.__dict__.items() if isinstance(value, Cell)}

    @property
    def _children(self) -> list[Cell]:
        return list(self._named_children.values())

    def __len__(self) -> int:
        return len(self._named_children)

    def __bool__(self) -> bool:
        return True  # as any other Cell, though it may be empty


class _Sequence(_Container):
    """Cells as attributes that are numbered, or have names from an OrderedDict."""

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
            return self._children[self._place_of(index)]
        chosen = list(self._named_children.items())[index]
        return type(self)(OrderedDict(self._numbered(chosen)))

    def __setitem__(self, index: int, cell: Cell) -> None:
        name = list(self._named_children)[self._place_of(index)]
        setattr(self, name, self._checked(cell))

    def __delitem__(self, index: int | slice) -> None:
        items = list(self._named_children.items())
        if isinstance(index, slice):
            del items[index]
        else:
            del items[self._place_of(index)]
        self._become(items)

    def append(self, cell: Cell) -> Self:
        """Put a Cell at the end."""
        self._become([*self._named_children.items(), (None, self._checked(cell))])
        return self

    def insert(self, index: int, cell: Cell) -> Self:
        """Put a Cell before the one at an index; the names of later Cells, if they are numbers, increase by one."""
        items: list[tuple[str | None, Cell]] = list(self._named_children.items())
        items.insert(self._place_of(index, len(self)), (None, self._checked(cell)))
        self._become(items)
        return self

    def extend(self, cells: Iterable[Cell]) -> Self:
        """Put several Cells at the end."""
        several = [(None, cell) for _, cell in _name_cells((list(cells),), type(self).__name__)]
        self._become([*self._named_children.items(), *several])
        return self

    __iadd__ = extend

    def _checked(self, cell: Any) -> Cell:
        ((_, checked),) = _name_cells(([cell],), type(self).__name__)
        return checked

    def _place_of(self, index: Any, last: int | None = None) -> int:
        """An index from the front, for one of either end."""
        who, count = type(self).__name__, len(self)
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise ArgumentTypeError(f"{who}: an index is an int or a slice, not {came(index)}.")
        place: int = index.__index__()
        if not -count <= place < count + (last is not None):
            raise TensorIndexError(f"{who}: there are {count} Cells, and none at index {place}.")
        return place + count if place < 0 else place

    @staticmethod
    def _numbered(items: Sequence[tuple[str | None, Cell]]) -> dict[str, Cell]:
        """Cells by name: those that an OrderedDict named by that, the others by their places."""
        return {
            name if name is not None and not name.isdigit() else str(place): cell
            for place, (name, cell) in enumerate(items)
        }

    def _become(self, items: Sequence[tuple[str | None, Cell]]) -> None:
        """Have these Cells in this order; those without a name of their own have their place as name."""
        named = self._numbered(items)
        before, state = self._named_children, self.__dict__
        for name in before:
            del state[name]
        state |= named
        state["version"] += 2
        rearrange(self, list(before.values()), named)


class SequentialCell(_Sequence):
    """Cells called one after the other: `SequentialCell(a, b)(x)` is `b(a(x))`.

    It takes Cells, a list of them, or an OrderedDict that names them. A slice is a SequentialCell of the same Cells,
    which keep their names; its own paths begin at 0, but for names that an OrderedDict gave.

    Raises:
        ArgumentTypeError: for an element that is no Cell.

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
    """A list of Cells whose Parameters belong to the network; calling them is up to `construct`.

    It takes Cells, or a list of them, and raises an ArgumentTypeError for an element that is no Cell.
    """


class CellDict(_Container):
    """A dict of Cells whose Parameters belong to the network; calling them is up to `construct`.

    Args:
        cells: a dict, a CellDict, or pairs (name, cell), in their order.

    Raises:
        ArgumentTypeError: for a value that is no Cell.
        NameClashError: for a key that is empty, contains a dot, or is a name that Cells have already, like "keys".

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
            raise MissingCellError(f"CellDict: has no Cell {key!r}; there are {', '.join(self.keys()) or 'none'}.")
        return self._named_children[key]

    def __setitem__(self, key: str, cell: Cell) -> None:
        self.update({key: cell})

    def __delitem__(self, key: str) -> None:
        self[key]  # which says what there is
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
        """Take a Cell out, and return it."""
        cell = self[key]
        delattr(self, key)
        return cell

    def clear(self) -> None:
        """Take all Cells out."""
        for name in self._named_children:
            delattr(self, name)

    def update(self, cells: Any) -> None:
        """Put Cells in, a dict or pairs: in the place of those that have their names, the others at the end."""
        given = cells.items() if hasattr(cells, "items") else cells
        try:
            pairs = [(name, cell) for name, cell in given]
        except (TypeError, ValueError):
            raise ArgumentTypeError(f"CellDict: cells is a dict, or pairs (name, cell), not {came(cells)}.") from None
        for name, cell in pairs:
            if not isinstance(cell, Cell):
                raise ArgumentTypeError(f"CellDict: element {name!r} of cells is a Cell, not {came(cell)}.")
        for name, cell in pairs:
            self.insert_child_to_cell(name, cell)
