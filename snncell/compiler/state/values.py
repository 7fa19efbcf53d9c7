"""Comparison of the values that a trace reads: attributes and globals by `Holder`, single values by `same`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from operator import itemgetter
from types import CellType, ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

MISSING: Any = object()
BUFFERS: Any = (
    memoryview,
    np.void,
    ctypes.Array,
    ctypes.Structure,
    ctypes.c_double.__base__,
)  # memory that is no array
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)

Spot = tuple[int, Any]  # the id of the holder of a value, and its name or place there


class Change(NamedTuple):
    """A value that has changed: its name in an error, and the value now, or its contents."""

    words: str
    now: Any


class Holder:
    """Values that a trace reads in one mapping: the globals of a module, or the attributes of an object.

    Args:
        mapping: where they are.
        owner: the object, class or module whose attributes they are, if the code does not read them as globals.
    """

    def __init__(self, mapping: Mapping[str, Any], owner: Any) -> None:
        self.mapping, self.owner = mapping, owner
        self.id = id_of(mapping, owner)
        self.words = "" if owner is None else f"{name_of(owner)}."
        self.values: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}  # numbers that the code assigns, and need not read

    def present(self) -> tuple[Callable[[Any], tuple[Any, ...]], Mapping[str, Any], tuple[Any, ...]] | None:
        """A function that takes the values out of the mapping, the mapping, and what it should give."""
        names = [name for name, value in self.values.items() if value is not MISSING]
        names += names[:1]  # at least two, so that it gives a tuple
        return (itemgetter(*names), self.mapping, tuple(self.values[name] for name in names)) if names else None

    def absent(self) -> frozenset[str]:
        """The names that had no value; a set, which `keys().isdisjoint` compares by the shorter of the two."""
        return frozenset(name for name, value in self.values.items() if value is MISSING)

    def changes(self) -> Iterator[tuple[Spot, Change]]:
        """The values that changed, by the place where they are."""
        for name, value in self.values.items():
            if not same_value(now := self.mapping.get(name, MISSING), value):
                yield (self.id, name), Change(f"{self.words}{name}", now)


def same_value(now: Any, then: Any) -> bool:
    """True if a trace with one value is right for the other: identical, or equal numbers or strings."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, _SIMPLE):  # by repr: 0.0 is not -0.0, and NaN is NaN
        return repr(now) == repr(then)
    return isinstance(now, tuple) and len(now) == len(then) and all(map(same_value, now, then))


def items(container: Any) -> list[Any]:
    """The items of a container, keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def array_on_host(array: Any) -> np.ndarray[Any, Any]:
    """The elements of an array, of another library's too; shared with it where that is possible."""
    if isinstance(array, np.ndarray):
        return array
    array = array.detach() if hasattr(array, "detach") else array  # PyTorch's, which may have a gradient
    try:
        return np.asarray(array)
    except TypeError:  # bfloat16, which NumPy does not have
        return np.asarray(array.float())


def freeze_array(array: Any) -> tuple[Any, ...]:
    """The shape, the dtype and a copy of the elements of an array; of other memory its bytes."""
    if isinstance(array, BUFFERS):
        return (), None, memoryview(cast(Any, array)).tobytes()
    here = array_on_host(array)
    return here.shape, here.dtype, here.tobytes()


def cell_value(cell: CellType | ContextVar[Any]) -> Any:
    """The value of a closure's variable, or of a ContextVar, which may have none yet."""
    if isinstance(cell, ContextVar):
        return cell.get(MISSING)
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def id_of(mapping: Mapping[str, Any], owner: Any) -> int:
    """The identity of a mapping that a Holder is made of."""
    return id(owner) if isinstance(owner, type) else id(mapping)  # `vars` of a class is a new object each time


def name_of(owner: Any) -> str:
    """The name of a module or class, or of the class of an object."""
    return owner.__name__ if isinstance(owner, (ModuleType, type)) else type(owner).__name__


def attributes_of(one: Any) -> dict[str, Any]:
    """The attributes of an object, without its `__getattr__`."""
    if isinstance(one, threading.local):  # whose attributes are those of this thread
        return one.__dict__
    try:
        attributes: dict[str, Any] = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return attributes


def in_slot(one: Any, name: str) -> Any:
    """The value of an attribute in `__slots__`, which may have none yet."""
    try:
        return object.__getattribute__(one, name)
    except AttributeError:
        return MISSING
