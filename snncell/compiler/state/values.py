"""Values that a trace reads: their comparison, and the names that Python bytecode reads."""

from __future__ import annotations

import ctypes
import dis
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from types import CellType, CodeType, ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

MISSING: Any = object()
# Memory buffers that are not arrays.
BUFFERS: Any = (memoryview, np.void, ctypes.Array, ctypes.Structure, ctypes.c_double.__base__)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)

Spot = tuple[int, Any]  # the location of a value: the id of its holder, and its name there


class Change(NamedTuple):
    """A changed value: its name in an error, and its value or contents now."""

    words: str
    now: Any


class Holder:
    """Values that a trace reads in one mapping: the globals of a module, or the attributes of `owner`."""

    def __init__(self, mapping: Mapping[str, Any], owner: Any) -> None:
        self.mapping, self.owner = mapping, owner
        self.id = id_of(mapping, owner)
        self.words = "" if owner is None else f"{name_of(owner)}."  # the prefix of names in errors
        self.values: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}  # numbers that the code assigns, whether it reads them or not

    def present(self) -> tuple[Callable[[Any], tuple[Any, ...]], Mapping[str, Any], tuple[Any, ...]] | None:
        """A function that gets the values from the mapping, the mapping, and the expected values."""
        names = [name for name, value in self.values.items() if value is not MISSING]
        names += names[:1]  # at least two names, so that `itemgetter` returns a tuple
        return (itemgetter(*names), self.mapping, tuple(self.values[name] for name in names)) if names else None

    def absent(self) -> frozenset[str]:
        """The names without a value, as a set, so that `keys().isdisjoint` iterates over the shorter of the two."""
        return frozenset(name for name, value in self.values.items() if value is MISSING)

    def changes(self) -> Iterator[tuple[Spot, Change]]:
        """The values that have changed, by their location."""
        for name, value in self.values.items():
            if not same_value(now := self.mapping.get(name, MISSING), value):
                yield (self.id, name), Change(f"{self.words}{name}", now)


def same_value(now: Any, then: Any) -> bool:
    """True if a trace with one value is valid for the other: the same object, or equal numbers, strings or tuples."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, _SIMPLE):  # compare by repr, because 0.0 differs from -0.0, and NaN equals NaN
        return repr(now) == repr(then)
    return isinstance(now, tuple) and len(now) == len(then) and all(map(same_value, now, then))


def items(container: Any) -> list[Any]:
    """The items of a container; keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def array_on_host(array: Any) -> np.ndarray[Any, Any]:
    """A NumPy array with the elements of an array of any library, shared if possible."""
    if isinstance(array, np.ndarray):
        return array
    array = array.detach() if hasattr(array, "detach") else array  # a PyTorch tensor may require a gradient
    try:
        return np.asarray(array)
    except TypeError:  # NumPy has no bfloat16
        return np.asarray(array.float())


def freeze_array(array: Any) -> tuple[Any, ...]:
    """The shape, the dtype and a copy of the elements of an array; for other buffers, a copy of the bytes."""
    if isinstance(array, BUFFERS):
        return (), None, memoryview(cast(Any, array)).tobytes()
    here = array_on_host(array)
    return here.shape, here.dtype, here.tobytes()


def cell_value(cell: CellType | ContextVar[Any]) -> Any:
    """The value of a closure variable or a ContextVar, or MISSING."""
    if isinstance(cell, ContextVar):
        return cell.get(MISSING)
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def id_of(mapping: Mapping[str, Any], owner: Any) -> int:
    """The id of a Holder's mapping."""
    return id(owner) if isinstance(owner, type) else id(mapping)  # `vars` of a class is a new object each time


def name_of(owner: Any) -> str:
    """The name of a module or class, or of an object's class."""
    return owner.__name__ if isinstance(owner, (ModuleType, type)) else type(owner).__name__


def attributes_of(one: Any) -> dict[str, Any]:
    """The attributes of an object, without its `__getattr__`."""
    if isinstance(one, threading.local):  # its `__dict__` has the attributes of this thread
        return one.__dict__
    try:
        attributes: dict[str, Any] = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return attributes


def in_slot(one: Any, name: str) -> Any:
    """The value of an attribute in `__slots__`, or MISSING."""
    try:
        return object.__getattribute__(one, name)
    except AttributeError:
        return MISSING


# --- Names in bytecode ------------------------------------------------------------------------------------------------


# Methods that only change a builtin container: `log.append(x)` does not read `log`.
APPENDING = frozenset(["add", "append", "appendleft", "extend", "insert"])
# Functions that can read attributes with names that are not in the code.
_BY_ANY_NAME = frozenset(["__dict__", "asdict", "astuple", "attrgetter", "getattr", "vars"])
_ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"])
# Classes and functions that create a random generator, with a different state each time if they get no seed.
_SEEDED = frozenset(
    ["default_rng", "RandomState", "Random", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence"]
)


@dataclass
class Names:
    """The names in a piece of code and in its inner functions."""

    globals: set[str] = field(default_factory=set)  # globals that it reads
    free: set[str] = field(default_factory=set)  # variables of enclosing functions that it reads
    attributes: set[str] = field(default_factory=set)  # attributes that it reads, and its strings, for `getattr`
    appended: set[str] = field(default_factory=set)  # variables and attributes that it only adds items to
    stored: set[str] = field(default_factory=set)  # names that it assigns, and its strings, for `setattr`
    modules: set[str] = field(default_factory=set)  # modules that it imports
    of_globals: set[tuple[str, str]] = field(default_factory=set)  # pairs that it reads: ("time", "perf_counter")
    unseeded: set[str] = field(default_factory=set)  # random generators that it creates without a seed
    open: bool = False  # True if it may read attributes of any name, as `vars(x)` does


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> Names:
    """The names that a piece of code reads."""
    names = Names()
    instructions = list(dis.get_instructions(code))
    kinds = {
        **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), names.globals),
        **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), names.free),
        **dict.fromkeys(_ATTRIBUTES, names.attributes),
        **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"), names.stored),
        "IMPORT_NAME": names.modules,
    }
    for number, instruction in enumerate(instructions):
        name, found = instruction.argval, kinds.get(instruction.opname)
        if found is None:
            continue
        following = instructions[number + 1 : number + 4]
        reads = found is not names.stored and found is not names.modules
        (names.appended if reads and _only_adds(following) else found).add(name)
        if found is names.globals and following and following[0].opname in _ATTRIBUTES:
            names.of_globals.add((name, following[0].argval))
        if reads and name in _SEEDED and _calls_without_arguments(following):
            names.unseeded.add(name)
    strings = {x for x in code.co_consts if isinstance(x, str) and x.isidentifier()}
    names.open = not _BY_ANY_NAME.isdisjoint(names.globals | names.attributes)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            for key, more in vars(names_in(inner)).items():
                setattr(names, key, getattr(names, key) | more)
    names.attributes |= strings
    names.stored |= strings
    names.appended -= names.globals | names.free | names.attributes
    return names


def _only_adds(following: Sequence[dis.Instruction]) -> bool:
    """True if a loaded value is used only as in `x.append(...)` or `x[i] = ...`."""
    if not following:
        return False
    if following[0].opname in _ATTRIBUTES and following[0].argval in APPENDING:
        return True
    return len(following) > 1 and following[0].opname.startswith("LOAD_") and following[1].opname == "STORE_SUBSCR"


def _calls_without_arguments(following: Sequence[dis.Instruction]) -> bool:
    """True if a loaded value is called next, without arguments."""
    calls = [x for x in following if x.opname not in ("PUSH_NULL", "PRECALL")]
    return bool(calls) and calls[0].opname == "CALL" and calls[0].arg == 0
