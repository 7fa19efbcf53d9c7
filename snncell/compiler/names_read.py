"""Names that Python code reads: globals, variables of enclosing functions, and attributes, from its bytecode."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

# Methods that change a builtin container and whose result nobody uses: `log.append(x)` does not read `log`.
APPENDING = frozenset(["add", "append", "appendleft", "extend", "insert"])
# Functions that reach attributes whose names are not in the code.
_BY_ANY_NAME = frozenset(["__dict__", "asdict", "astuple", "attrgetter", "getattr", "vars"])
_GLOBALS = frozenset(["LOAD_GLOBAL", "LOAD_NAME"])
_FREE = frozenset(["LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"])
_ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"])


class Names(NamedTuple):
    """Names in a piece of code and in the functions that are written inside of it.

    Attributes:
        globals: globals that it reads.
        free: variables of enclosing functions that it reads.
        attributes: attributes that it reads, and its strings, which may be names for `getattr`.
        appended: variables and attributes that it loads only to append to them.
        stored: variables and attributes that it assigns, and its strings, which may be names for `setattr`.
        modules: modules that it imports.
        open: whether it may read attributes of any name, as `vars(x)` does.
    """

    globals: frozenset[str]
    free: frozenset[str]
    attributes: frozenset[str]
    appended: frozenset[str]
    stored: frozenset[str]
    modules: frozenset[str]
    open: bool


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> Names:
    """The names that a piece of code reads."""
    of_module, free, attributes, appended, stored, modules = (set[str]() for _ in range(6))
    pending: tuple[set[str], str] | None = None  # the last load, until the next instruction says what it is for
    for instruction in dis.get_instructions(code):
        name, kind = instruction.argval, instruction.opname
        if pending is not None:
            (appended if kind in _ATTRIBUTES and name in APPENDING else pending[0]).add(pending[1])
            pending = None
        if kind in _GLOBALS:
            pending = of_module, name
        elif kind in _FREE:
            pending = free, name
        elif kind in _ATTRIBUTES:
            pending = attributes, name
        elif kind in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"):
            stored.add(name)
        elif kind == "IMPORT_NAME":
            modules.add(name)
    strings = {x for x in code.co_consts if isinstance(x, str) and x.isidentifier()}
    is_open = not _BY_ANY_NAME.isdisjoint(of_module | attributes)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names = names_in(inner)
            of_module |= names.globals
            free |= names.free
            attributes |= names.attributes
            appended |= names.appended
            stored |= names.stored
            modules |= names.modules
            is_open = is_open or names.open
    attributes |= strings
    stored |= strings
    appended -= of_module | free | attributes
    return Names(
        frozenset(of_module),
        frozenset(free),
        frozenset(attributes),
        frozenset(appended),
        frozenset(stored),
        frozenset(modules),
        is_open,
    )
