"""Comparison of the values that a trace reads: attributes and globals by `Holder`, single values by `same`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import is_, itemgetter
from types import CellType
from typing import Any

import numpy as np

LARGE = 1 << 24  # bytes of an array, above which a part of its elements is compared
MISSING: Any = object()
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)

Spot = tuple[int, Any]  # the id of what holds a value, and the name or place of it there


class Holder:
    """Values that a trace reads in one mapping: the globals of a module, or the attributes of an object.

    Args:
        mapping: where they are.
        owner: the object, class or module whose attributes they are, if the code does not read them as globals.
    """

    def __init__(self, mapping: Mapping[str, Any], owner: Any) -> None:
        self.mapping, self.owner = mapping, owner
        self.id = id_of(mapping, owner)
        self.words = "" if owner is None else f"{getattr(owner, '__name__', type(owner).__name__)}."
        self.values: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}  # numbers that the code assigns, and need not read
        self._getter: Callable[[Any], tuple[Any, ...]] | None = None
        self._expected: tuple[Any, ...] = ()
        self._absent: list[str] = []

    def finish(self) -> None:
        """Prepare `unchanged`, when all names are known."""
        present = [name for name, value in self.values.items() if value is not MISSING]
        self._getter = itemgetter(*present, *present[:1]) if present else None  # at least two names: gives a tuple
        self._expected = tuple(self.values[name] for name in (*present, *present[:1]))
        self._absent = [name for name, value in self.values.items() if value is MISSING]

    def unchanged(self) -> bool:
        """True if all values are what they were."""
        mapping = self.mapping
        if self._getter is not None:
            try:
                now = self._getter(mapping)
            except KeyError:
                return False
            if not all(map(is_, now, self._expected)) and not all(map(same, now, self._expected)):
                return False
        return not self._absent or not any(name in mapping for name in self._absent)

    def changes(self) -> Iterator[tuple[Spot, str]]:
        """The values that changed: where they are, and what to call them."""
        for name, value in self.values.items():
            if not same(self.mapping.get(name, MISSING), value):
                yield (self.id, name), f"{self.words}{name}"


def same(now: Any, then: Any) -> bool:
    """True if a trace with one value is right for the other: identical, or equal numbers or strings."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, _SIMPLE):  # by repr: 0.0 is not -0.0, and NaN is NaN
        return repr(now) == repr(then)
    return isinstance(now, tuple) and len(now) == len(then) and all(map(same, now, then))


def items(container: Any) -> list[Any]:
    """The items of a container, keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def contents(array: np.ndarray[Any, Any]) -> bytes:
    """The elements of an array; of one above 16 MB, 65,536 of them."""
    if array.nbytes <= LARGE:
        return array.tobytes()
    return array.flat[:: -(-array.size // 65536)].tobytes()


def of_cell(cell: CellType) -> Any:
    """The value of a closure's variable, which may have none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def id_of(mapping: Mapping[str, Any], owner: Any) -> int:
    """The identity of a mapping that a Holder is made of."""
    return id(owner) if isinstance(owner, type) else id(mapping)  # `vars` of a class is a new object each time
