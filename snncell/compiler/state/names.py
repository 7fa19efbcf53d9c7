"""Names that Python code reads: globals, variables of enclosing functions, and attributes, from its bytecode."""

from __future__ import annotations

import dis
from collections.abc import Sequence
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
# Classes and functions that make a random generator, another one each time if they get no seed.
_SEEDED = frozenset(
    ["default_rng", "RandomState", "Random", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence"]
)


class Names(NamedTuple):
    """Names in a piece of code and in the functions that are written inside of it.

    Attributes:
        globals: globals that it reads.
        free: variables of enclosing functions that it reads.
        attributes: attributes that it reads, and its strings, which may be names for `getattr`.
        appended: variables and attributes that it loads only to add items to them.
        stored: variables and attributes that it assigns, and its strings, which may be names for `setattr`.
        modules: modules that it imports.
        of_globals: pairs of a global and an attribute of it that it reads, such as ("time", "perf_counter").
        unseeded: random generators that it makes without a seed.
        open: whether it may read attributes of any name, as `vars(x)` does.
    """

    globals: frozenset[str]
    free: frozenset[str]
    attributes: frozenset[str]
    appended: frozenset[str]
    stored: frozenset[str]
    modules: frozenset[str]
    of_globals: frozenset[tuple[str, str]]
    unseeded: frozenset[str]
    open: bool


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> Names:
    """The names that a piece of code reads."""
    of_module, free, attributes, appended, stored, modules, unseeded = (set[str]() for _ in range(7))
    of_globals = set[tuple[str, str]]()
    instructions = list(dis.get_instructions(code))
    for number, instruction in enumerate(instructions):
        name, kind = instruction.argval, instruction.opname
        reads = (
            of_module if kind in _GLOBALS else free if kind in _FREE else attributes if kind in _ATTRIBUTES else None
        )
        if reads is not None:
            following = instructions[number + 1 : number + 4]
            (appended if _only_adds(following) else reads).add(name)
            if reads is of_module and following and following[0].opname in _ATTRIBUTES:
                of_globals.add((name, following[0].argval))
            if name in _SEEDED and _calls_without_arguments(following):
                unseeded.add(name)
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
            of_globals |= names.of_globals
            unseeded |= names.unseeded
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
        frozenset(of_globals),
        frozenset(unseeded),
        is_open,
    )


def _only_adds(following: Sequence[dis.Instruction]) -> bool:
    """True if what was loaded is used as in `x.append(...)` or `x[i] = ...`."""
    if not following:
        return False
    if following[0].opname in _ATTRIBUTES and following[0].argval in APPENDING:
        return True
    return len(following) > 1 and following[0].opname.startswith("LOAD_") and following[1].opname == "STORE_SUBSCR"


def _calls_without_arguments(following: Sequence[dis.Instruction]) -> bool:
    """True if what was loaded is called next, with nothing."""
    calls = [x for x in following if x.opname not in ("PUSH_NULL", "PRECALL")]
    return bool(calls) and calls[0].opname == "CALL" and calls[0].arg == 0
