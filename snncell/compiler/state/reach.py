"""Reachability: the Python values that a traced function can read, found by following the names in its bytecode.

    gain = 2.0                            a trace of `scale` depends on `gain`, on `settings.shift`,
    def scale(x):                         and on all values that the functions it calls can read
        return x * gain + settings.shift

These are globals, closures, attributes, containers, arrays and random generators, without those of library code.
"""

from __future__ import annotations

import datetime
import gc
import os
import random
import sys
from array import array
from collections import ChainMap, UserDict, UserList, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum
from functools import cached_property, lru_cache, partial, partialmethod
from itertools import product
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ProxyTypes, ReferenceType

import numpy as np

from snncell.base.arguments.kinds import ON_HOST
from snncell.compiler.state.values import (
    BUFFERS,
    MISSING,
    Holder,
    Spot,
    attributes_of,
    cell_value,
    freeze_array,
    id_of,
    in_slot,
    items,
    names_in,
)
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

_STANDARD = os.path.dirname(os.__file__)
LIBRARIES = frozenset(sys.stdlib_module_names) | {
    *("snncell", "numpy", "scipy", "numba", "llvmlite", "matplotlib", "tqdm", "pandas", "sklearn"),
    *("torch", "jax", "h5py", "nir", "tensorboardX"),
}
MOST = 100_000  # the maximum number of values that are followed
_ATOMS = frozenset([bool, int, float, complex, str, bytes, type(None), type(...), range, slice, np.dtype])
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
NUMPYS: Any = np.random.mtrand._rand  # the generator of np.random.normal and others
PYTHONS: Any = random._inst  # the generator of random.random and others
# Class attributes that no later instance attribute hides: a cached_property creates its instance attribute itself.
_DESCRIPTORS = (property, cached_property, MemberDescriptorType)
NUMBERS = (bool, int, float)
_APPENDABLE = (list, dict, set, deque)
CONTAINERS = (*_APPENDABLE, tuple, frozenset)
_DATA = (bool, int, float, complex, str, bytes, *CONTAINERS, np.ndarray, np.generic)
_OF_NUMBERS = (array, bytearray)
_VIEWS = tuple(map(type, ({}.keys(), {}.values(), {}.items())))
# Python's containers that store their items in a list or dict, and how to get it.
_WRAPPERS: dict[type, Any] = {
    UserDict: lambda x: x.data,
    UserList: lambda x: x.data,
    ChainMap: lambda x: x.maps,
    type(os.environ): lambda x: x._data,
    MappingProxyType: lambda x: gc.get_referents(x)[0],
}
# Functions with results from outside of Python: clocks and files, and random numbers that cannot be seeded.
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")
_CALENDARS = ("gmtime", "localtime", "strftime", "ctime", "asctime")
_OUTSIDE = frozenset(
    [
        *(f"time.{clock}{unit}" for clock in _CLOCKS for unit in ("", "_ns")),
        *(f"time.{name}" for name in _CALENDARS),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        *("open", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile"),
    ]
)
_ENTROPY = frozenset(
    [
        *("os.urandom", "uuid.uuid1", "uuid.uuid4"),
        *(f"secrets.{name}" for name in ("choice", "randbelow", "randbits")),
        *(f"secrets.token_{kind}" for kind in ("bytes", "hex", "urlsafe")),
        *(f"torch.{name}" for name in ("rand", "rand_like", "randn", "randn_like", "randint", "randperm", "normal")),
        *(f"torch.{name}" for name in ("bernoulli", "multinomial", "poisson")),
    ]
)
# Special methods that do not run when an instance is called or used in an expression. All others are followed.
_NOT_CALLED = frozenset(
    [
        *("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__repr__", "__str__"),
        *("__del__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__"),
        *("__setattr__", "__delattr__", "__dir__", "__sizeof__"),
    ]
)
_MADE = ("__init__", "__new__", "__post_init__")
_OF_CELLS = frozenset(["construct", "bprop", "primitive", "init_state"])
# Internal attributes of a Cell.
_INTERNAL = frozenset(
    [
        *("version", "_graph", "_loop", "_naming", "_checked_counts", "_inputs_set", "_memory", "_hooks", "_pre_hooks"),
        *("_backward_hooks", "_backward_pre_hooks", "_state_hooks", "_state_pre_hooks", "_load_hooks"),
        "_load_pre_hooks",
    ]
)
_HOOKS = ("_hooks", "_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ReachableValues:
    """The Python values that functions can read, starting from `roots`, these functions and objects."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.names: set[str] = set(_OF_CELLS)  # names of attributes that the code reads
        self.appended: set[str] = set()  # names that it only appends to
        self.stored: set[str] = set()  # names that it may set
        self.open = False  # True if it may read attributes of any name
        self.catches = False  # True if it handles missing attributes
        self.unseeded: set[str] = set()  # random generators that it creates without a seed
        self.outside: set[str] = set()  # clocks and files that it reads
        self.draws = False  # True if the code names NumPy's or Python's global generator
        self.complete = True  # False if there are more than MOST values
        self.cells: dict[Any, None] = {}
        self.parameters: dict[Any, None] = {}
        self.objects: list[Any] = []
        self._seen: dict[int, Any] = {}  # by id, with the objects, so that they live and ids stay unique
        self._waiting: list[Any] = []
        self._holders: dict[int, Holder] = {}
        self._slots: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._variables: list[tuple[CellType | ContextVar[Any], str, Any]] = []
        self._containers: list[tuple[Any, list[int], list[Any]]] = []
        self._arrays: list[tuple[Any, tuple[Any, ...]]] = []
        self._iterators: list[Any] = []
        self.of_layers: set[Spot] = set()  # containers of snncell's own Cells, which they fill in their first call
        self.generators: list[Any] = []
        self._scanned: dict[int, int] = {}  # by id: the number of known names when the attributes were last read
        self.include(roots)

    def include(self, roots: Iterable[Any]) -> None:
        """Add the values that further functions and objects can read."""
        self._waiting += roots
        self._visit_all()
        number = 0
        while number < len(self.objects):  # classes come before their instances
            one, known = self.objects[number], self._count_names()
            number += 1
            if self._scanned.get(id(one)) != known:
                self._scanned[id(one)] = known
                self._read_attributes(one)
                self._visit_all()
                if self._count_names() != known:  # a newly found method names more attributes
                    number = 0

    def _visit_all(self) -> None:
        while self._waiting:
            self._visit(self._waiting.pop())

    def _count_names(self) -> int:
        """Count the known names. After the number has grown, objects are searched again."""
        return len(self.names) + len(self.appended) + len(self.stored) + self.open + self.catches

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        if len(self._seen) >= MOST:
            self.complete = False
            return
        self._seen[id(value)] = value
        if kind in ProxyTypes:  # first, because `isinstance` accesses the object of a proxy, which may be dead
            with suppress(ReferenceError):
                self._waiting.append(value.__repr__.__self__)
        elif isinstance(value, Tensor):  # a Tensor never changes, and each run reads a Parameter again
            self.parameters |= {value: None} if isinstance(value, Parameter) else {}
            self._waiting += (value._entry.hooks or {}).values() if value._entry is not None else []
        elif isinstance(value, (np.ndarray, *BUFFERS)):
            self._arrays.append((value, freeze_array(value)))
            self._waiting += value.ravel().tolist() if isinstance(value, np.ndarray) and value.dtype.hasobject else []
            self._visit_subclass(value, kind)
        elif isinstance(value, random.SystemRandom):
            self.unseeded.add("random.SystemRandom")
        elif isinstance(value, _GENERATORS):
            self.generators.append(value)
            self.draws = self.draws or value is NUMPYS or value is PYTHONS
        elif isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, partial, partialmethod)):
            self._visit_function(value)
        elif isinstance(value, (*CONTAINERS, *_OF_NUMBERS)):
            inside = items(value)
            if not isinstance(value, (tuple, frozenset)):
                self._containers.append((value, list(map(id, inside)), inside))
            self._waiting += [x for x in inside if type(x) not in _ATOMS]
            self._waiting += [value.default_factory] if isinstance(value, defaultdict) else []
            self._visit_subclass(value, kind)
        elif isinstance(value, ContextVar):
            self._variables.append((value, value.name, cell_value(value)))
            self._waiting.append(cell_value(value))
        elif isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            self._iterators.append(value)
        elif isinstance(value, (staticmethod, classmethod, property, cached_property)):
            functions = [getattr(value, name, None) for name in ("__func__", "fget", "func")]
            self._waiting += [function for function in functions if function is not None]
        elif isinstance(value, (ModuleType, type)):
            self._visit_namespace(value)
        else:
            self._visit_object(value, kind)

    def _visit_object(self, value: Any, kind: type) -> None:
        if hasattr(kind, "cells_and_names"):
            self._visit_cell(value)
        elif kind.__module__.partition(".")[0] in ("snncell", "numpy", "numba"):
            own = attributes_of(value)  # `fn` is the function of a jitted function
            self._waiting += [own["fn"]] if "fn" in own else _values_to_follow(own.values())
        elif library(kind.__module__) and any(hasattr(kind, name) for name in ON_HOST):
            self._arrays.append((value, freeze_array(value)))
        else:
            self._waiting += [value._value_] if isinstance(value, Enum) else []
            self._waiting += [value()] if isinstance(value, ReferenceType) else []
            self._waiting += [value.mapping] if kind in _VIEWS else []
            self._visit_instance(value, kind)

    def _visit_subclass(self, value: Any, kind: type) -> None:
        if not library(kind.__module__):
            self._visit_instance(value, kind)

    def _visit_namespace(self, value: Any) -> None:
        self.draws = self.draws or value is np.random or value is random
        if not library(value.__name__ if isinstance(value, ModuleType) else value.__module__):
            self.objects.append(value)
            if isinstance(value, type):  # the code may create an instance of it
                self._visit_methods(value)
            for name in _MADE:
                if isinstance(made := vars(value).get(name), FunctionType):
                    self._read_code(made, runs=False)
        elif value in (np, os, sys):
            self.objects.append(value)

    def _visit_instance(self, value: Any, kind: type) -> None:
        own = attributes_of(value)
        if kind.__module__.startswith("scipy.sparse"):  # its methods read and replace its arrays
            self._holder(own, value).values.update(own)
            self._waiting += own.values()
        elif hasattr(kind, "named_buffers"):  # a Module of PyTorch
            self._waiting += [*value.parameters(), *value.buffers()]
        self._waiting += [inside(value) for base, inside in _WRAPPERS.items() if isinstance(value, base)]
        self._waiting += [own["__wrapped__"]] if "__wrapped__" in own else []  # the function of functools.lru_cache
        self._visit_class(kind)
        self.objects.append(value)

    def _visit_function(self, value: Any) -> None:
        self._note(f"{value.__module__}.{value.__name__}" if hasattr(value, "__name__") else "")
        if isinstance(value, (partial, partialmethod)):
            self._waiting += [value.func, value.args, value.keywords]
        elif isinstance(value, MethodType):
            self._waiting += [value.__func__, value.__self__]
        elif isinstance(value, BuiltinFunctionType):
            self._waiting += [] if isinstance(value.__self__, ModuleType) else [value.__self__]
        elif value is os.getenv:
            self._waiting.append(os.environ)
        elif "__name__" in value.__globals__ and library(value.__globals__["__name__"]):
            # For library code, follow the functions and objects in its closure: `fn` of `grad(fn)`, for example.
            self._waiting += _values_to_follow(map(cell_value, value.__closure__ or ()))
        else:
            self._read_code(value)
            if value.__dict__:  # attributes of a function, such as `loss.weight`
                self.objects.append(value)

    def _visit_cell(self, cell: Any) -> None:
        self.cells[cell] = None
        self.names |= getattr(type(cell), "_called_methods", set())
        own = vars(cell)
        self._waiting += [hook.function for kind in _HOOKS for hook in own.get(kind, {}).values()]
        if library(type(cell).__module__):
            inside = [x for name, x in own.items() if name not in _INTERNAL and type(x) not in _ATOMS]
            self.of_layers |= {(id(x), "") for x in inside if isinstance(x, CONTAINERS)}
            self._waiting += inside
        else:
            self._visit_class(type(cell))
            self.objects.append(cell)

    def _visit_class(self, kind: type) -> None:
        """Follow the methods that run without being named, such as `__call__`."""
        for base in kind.__mro__:
            if not library(base.__module__) and id(base) not in self._seen:
                self._seen[id(base)] = base
                self.objects.append(base)
                self._visit_methods(base)

    def _visit_methods(self, kind: type) -> None:
        for name, value in list(vars(kind).items()):
            if name.startswith("__") and name not in _NOT_CALLED and isinstance(value, FunctionType):
                self._waiting.append(value)

    def _read_code(self, function: FunctionType, runs: bool = True) -> None:
        """Add the values that a function reads; `runs` is False for a class that may not be called."""
        code: CodeType = function.__code__
        names = names_in(code)
        self.names |= names.attributes
        self.appended |= names.appended
        self.stored |= names.stored
        self.open = self.open or names.open
        self.catches = self.catches or "AttributeError" in names.globals
        self.unseeded |= names.unseeded if runs else set()
        defaults = [name for name in ("__defaults__", "__kwdefaults__") if getattr(function, name)]
        self._read_slots(function, defaults)  # the attributes themselves too, because they may be replaced
        self._waiting += function.__defaults__ or ()
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            value = cell_value(cell)
            if name in names.free or name in names.stored:
                self._variables.append((cell, name, value))
            if name in names.free or (name in names.appended and not isinstance(value, _APPENDABLE)):
                self._waiting.append(value)
        there = function.__globals__
        holder = self._holder(there, None)
        inner = {*code.co_freevars, *code.co_cellvars}
        if "globals" in names.globals and "globals" not in there:
            holder.values |= {name: x for name, x in there.items() if isinstance(x, _DATA) and name[:2] != "__"}
        for name in names.globals | (names.appended | names.stored).difference(inner):
            value = there.get(name, MISSING)
            if name in names.stored and type(value) in NUMBERS:
                holder.numbers[name] = value
            if name in names.globals or (name in names.appended and not isinstance(value, _APPENDABLE)):
                self._waiting += [] if value is MISSING else [value]
                # A name without a value is a built-in function, unless the code assigns to it.
                if not issubclass(type(value), ModuleType) and (value is not MISSING or name in names.stored):
                    holder.values.setdefault(name, value)
        package = there.get("__package__") or ""
        known = [sys.modules.get(x) for name in names.modules for x in (name, f"{package}.{name}")]
        modules = [module for module in known if module is not None]
        self._waiting += modules
        free = [cell_value(cell) for cell in function.__closure__ or ()]
        modules += [x for x in free if issubclass(type(x), ModuleType)]  # modules that an enclosing function imports
        pairs = [(there.get(name), attribute) for name, attribute in names.of_globals]
        for owner, attribute in [*pairs, *product(modules, names.attributes)]:
            if isinstance(owner, ModuleType):
                self._note(f"{owner.__name__}.{attribute}")
                owner = vars(owner).get(attribute)  # may be a class, as in datetime.datetime.now()
            if owner is datetime.datetime or owner is datetime.date:
                for name in names.attributes:
                    self._note(f"datetime.{owner.__name__}.{name}")
        if "open" in names.globals and "open" not in there:
            self._note("open")

    def _note(self, name: str) -> None:
        """Note a library function with a result that a trace would keep."""
        if name in _OUTSIDE:
            self.outside.add(f"{name}()")
        elif name in _ENTROPY:
            self.unseeded.add(name)

    def _read_attributes(self, one: Any) -> None:
        """Add the attributes of an object, class or module that the code names."""
        if one is np:  # np.random uses a global generator
            self.draws = self.draws or "random" in self.names
            return
        if one is sys or one is os:
            self._waiting += [sys.argv] if one is sys and "argv" in self.names else []
            self._waiting += [os.environ] if one is os and not self.names.isdisjoint(("environ", "getenv")) else []
            return
        instance = not isinstance(one, (ModuleType, type))
        own: Any = attributes_of(one) if instance else vars(one)
        is_cell = hasattr(type(one), "cells_and_names")
        holder = self._holder(own, one)
        if isinstance(one, type):  # the class may later get an attribute with the name of a base class's attribute
            metaclass: Any = type(one)
            bases = [base for base in (*one.__mro__[1:], *metaclass.__mro__) if not library(base.__module__)]
            self._waiting += bases
            for name in self.names.intersection(set().union(*map(vars, bases))).difference(own):
                holder.values.setdefault(name, MISSING)
        whole = instance and (self.open or is_cell)  # all attributes of Cells, because snncell itself reads them too
        names = set(own) if whole else (self.names | self.appended).intersection(own)
        if self.open and not instance:  # `getattr(settings, f"gain_{n}")`
            names |= {name for name, x in list(own.items()) if isinstance(x, _DATA) and not name.startswith("__")}
        for name in names:
            if name in holder.values or (is_cell and name in _INTERNAL):
                continue
            value, read = own[name], name in self.names or self.open
            if not read and name in self.appended and isinstance(value, _APPENDABLE):
                continue
            if read or not is_cell:
                holder.values[name] = value
            self._waiting.append(value)
        for name in self.stored.intersection(own):
            if type(own[name]) in NUMBERS and not (is_cell and name in _INTERNAL):
                holder.numbers.setdefault(name, own[name])
        # Names of attributes that are missing, or only in the class, and that may be added later.
        absent = set(self.names if self.catches else self.names & self.stored)
        if instance and self.open and not is_cell:  # `vars(one)` also shows attributes that are added later
            self._waiting.append(own)
        for base in type(one).__mro__ if instance else ():
            if not library(base.__module__):
                of_class = vars(base)
                slots = of_class.get("__slots__", ())
                slots = [_mangle(base, slot) for slot in ([slots] if isinstance(slots, str) else slots)]
                self._read_slots(one, slots if self.open else self.names.intersection(slots))
                absent |= {n for n in self.names.intersection(of_class) if not isinstance(of_class[n], _DESCRIPTORS)}
        for name in absent.difference(own):
            holder.values.setdefault(name, MISSING)

    def _read_slots(self, one: Any, names: Iterable[str]) -> None:
        for name in names:
            if (id(one), name) not in self._slots:
                self._slots[id(one), name] = one, name, (value := in_slot(one, name))
                self._waiting.append(value)

    def _holder(self, mapping: Mapping[str, Any], owner: Any) -> Holder:
        key = id_of(mapping, owner)
        if key not in self._holders:
            self._holders[key] = Holder(mapping, owner)
        return self._holders[key]


def _mangle(kind: type, name: str) -> str:
    """The name under which Python stores an attribute: `__gain` of a class A is `_A__gain`."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _values_to_follow(values: Iterable[Any]) -> list[Any]:
    """The values held by library code, also inside of containers, that may lead to a user's code."""
    every = [x for value in values for x in (items(value) if isinstance(value, CONTAINERS) else [value])]
    return [x for x in every if callable(x) or not (library(type(x).__module__) or isinstance(x, Tensor))]


def library(module: Any) -> bool:
    """True if a module's code is not followed; classes written in C may have no module name."""
    return _is_library((module if module and isinstance(module, str) else "builtins").partition(".")[0])


@lru_cache(maxsize=4096)
def _is_library(package: str) -> bool:
    """True for Python's and NumPy's packages, and for installed packages that do not import snncell."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    if package in sys.stdlib_module_names:  # unless a user's file has this name
        return not file or "site-packages" in file or file.startswith(_STANDARD)
    if package in LIBRARIES:
        return True
    if "site-packages" not in file and "dist-packages" not in file:
        return False
    modules = [one for name, one in list(sys.modules.items()) if name.partition(".")[0] == package]
    values = [x for one in modules for x in vars(one).values() if isinstance(x, (ModuleType, FunctionType, type))]
    names = [x.__name__ if isinstance(x, ModuleType) else x.__module__ for x in values]
    return not any((name or "").partition(".")[0] == "snncell" for name in names)
