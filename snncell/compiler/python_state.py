"""Python values that a traced function can read: globals, closures, attributes, containers, arrays, random generators.

    gain = 2.0                            a trace of `scale` depends on `gain`, on `settings.shift`,
    def scale(x):                         and on whatever the functions read that it calls
        return x * gain + settings.shift

A trace keeps these values as constants. `PythonState` finds them before the trace by following the names in the
bytecode, so that a later call can compare them. Library code (Python's, NumPy's, snncell's) is not followed.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property, partial
from operator import is_, itemgetter
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from snncell.compiler.names_read import Names, names_in
from snncell.errors import TraceError
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace, Value

LIBRARIES = frozenset(sys.stdlib_module_names) | {
    *("snncell", "numpy", "scipy", "numba", "llvmlite", "matplotlib", "tqdm", "pytest", "pandas", "sklearn"),
    *("torch", "jax", "h5py", "nir", "tensorboardX"),
}
LARGE = 1 << 24  # bytes of an array, above which a part of its elements is compared
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_ATOMS = frozenset([bool, int, float, complex, str, bytes, type(None), type(...), range, slice, np.dtype])
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
_DESCRIPTORS = (FunctionType, property, cached_property, staticmethod, classmethod, MemberDescriptorType)
_NUMBERS = (bool, int, float)
_MISSING = object()
# Methods that run when an instance is called or used in an expression; the others are followed where they are named.
_NOT_CALLED = frozenset(
    [
        *("__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__repr__", "__str__"),
        *("__del__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__"),
        *("__setattr__", "__delattr__", "__dir__", "__sizeof__"),
    ]
)
_MADE = ("__init__", "__new__", "__post_init__")
_OF_CELLS = frozenset(["construct", "bprop", "primitive", "init_state"])
# Attributes of a Cell that are snncell's own.
_INTERNAL = frozenset(
    [
        *("version", "_graph", "_loop", "_naming", "_checked_counts", "_inputs_set", "_memory", "_hooks", "_pre_hooks"),
        *("_backward_hooks", "_backward_pre_hooks", "_state_hooks", "_state_pre_hooks", "_load_hooks"),
        "_load_pre_hooks",
    ]
)
_HOOKS = ("_hooks", "_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Spot = tuple[int, Any]  # the id of what holds a value, and the name or place of it there


class Holder:
    """Values that a trace reads in one mapping: the globals of a module, or the attributes of an object.

    Args:
        mapping: where they are.
        owner: the object, class or module whose attributes they are, if the code does not read them as globals.
    """

    def __init__(self, mapping: Mapping[str, Any], owner: Any) -> None:
        self.mapping, self.owner = mapping, owner
        self.id = _id_of(mapping, owner)
        self.words = "" if owner is None else f"{getattr(owner, '__name__', type(owner).__name__)}."
        self.values: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}  # numbers that the code assigns, and need not read
        self._getter: Callable[[Any], tuple[Any, ...]] | None = None
        self._expected: tuple[Any, ...] = ()
        self._absent: list[str] = []

    def finish(self) -> None:
        """Prepare `unchanged`, when all names are known."""
        present = [name for name, value in self.values.items() if value is not _MISSING]
        self._getter = itemgetter(*present, *present[:1]) if present else None  # at least two names: gives a tuple
        self._expected = tuple(self.values[name] for name in (*present, *present[:1]))
        self._absent = [name for name, value in self.values.items() if value is _MISSING]

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
            if not same(self.mapping.get(name, _MISSING), value):
                yield (self.id, name), f"{self.words}{name}"


class PythonState:
    """The Python values that functions can read, as they are when this is made.

    Args:
        roots: functions, and objects that they are given.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.names: set[str] = set(_OF_CELLS)  # of attributes that the code reads
        self.appended: set[str] = set()  # of those that it only appends to
        self.stored: set[str] = set()  # of those that it may set
        self.open = False  # whether it may read attributes of any name
        self.draws = False  # whether the code names NumPy's or Python's global generator
        self.cells: dict[Any, None] = {}
        self.objects: list[Any] = []
        self._seen: dict[int, Any] = {}  # by id; the objects are kept, so that ids stay unique
        self._waiting: list[Any] = []
        self._holders: dict[int, Holder] = {}
        self._slots: list[tuple[Any, str, Any]] = []
        self._variables: list[tuple[CellType, str, Any]] = []
        self._containers: list[tuple[Any, list[int], list[Any]]] = []
        self._arrays: list[tuple[np.ndarray[Any, Any], Any, bytes]] = []
        self._tensors: list[tuple[Tensor, Any]] = []
        self._iterators: list[Any] = []
        self.generators: list[Any] = []
        self._scanned: dict[int, int] = {}
        self.include(roots)

    def include(self, roots: Iterable[Any]) -> None:
        """Add what further functions and objects can read."""
        self._waiting += roots
        self._visit_all()
        number = 0
        while number < len(self.objects):  # classes stand before their instances
            one, known = self.objects[number], self._known()
            number += 1
            if self._scanned.get(id(one)) != known:
                self._scanned[id(one)] = known
                self._read_attributes(one)
                self._visit_all()
                if self._known() != known:  # a method has been found that names more attributes
                    number = 0
        for holder in self._holders.values():
            holder.finish()

    def _visit_all(self) -> None:
        while self._waiting:
            self._visit(self._waiting.pop())

    def _known(self) -> int:
        """The number of names that are known: when it grows, objects are looked at again."""
        return len(self.names) + len(self.appended) + len(self.stored) + self.open

    # --- finding values -----------------------------------------------------------------------------------------------

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            if kind is Tensor:  # a Parameter is read anew by each run
                self._tensors.append((value, value._data))
        elif isinstance(value, np.ndarray):
            self._arrays.append((value, (value.shape, value.dtype), contents(value)))
        elif isinstance(value, _GENERATORS):
            self.generators.append(value)
            self.draws = self.draws or value is _NUMPY or value is _PYTHON
        elif isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, partial)):
            self._visit_function(value)
        elif isinstance(value, (list, tuple, dict, set, frozenset, deque)):
            inside = items(value)
            if not isinstance(value, (tuple, frozenset)):
                self._containers.append((value, list(map(id, inside)), inside))
            self._waiting += [x for x in inside if type(x) not in _ATOMS]
        elif isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            self._iterators.append(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self._waiting.append(value.__func__)
        elif isinstance(value, property):
            self._waiting += [value.fget] if value.fget else []
        elif isinstance(value, cached_property):
            self._waiting.append(value.func)
        elif isinstance(value, (ModuleType, type)):
            self.draws = self.draws or value is np.random or value is random
            if not library(value.__name__ if isinstance(value, ModuleType) else value.__module__):
                self.objects.append(value)
                self._waiting += [f for name in _MADE if isinstance(f := vars(value).get(name), FunctionType)]
            elif value is np:
                self.objects.append(value)
        elif hasattr(kind, "cells_and_names"):
            self._visit_cell(value)
        elif kind.__module__.partition(".")[0] in ("snncell", "numpy", "numba"):
            self._waiting += [x for x in vars(value).values() if _followed(x)] if hasattr(value, "__dict__") else []
        elif not isinstance(value, Enum):
            self._visit_class(kind)
            self.objects.append(value)

    def _visit_function(self, value: Any) -> None:
        if isinstance(value, partial):
            self._waiting += [value.func, value.args, value.keywords]
        elif isinstance(value, MethodType):
            self._waiting += [value.__func__, value.__self__]
        elif isinstance(value, BuiltinFunctionType):
            self._waiting += [] if isinstance(value.__self__, ModuleType) else [value.__self__]
        elif library(value.__globals__.get("__name__")):
            # Of a library, the functions and objects that it was given: `grad(fn)`, the loss of a training step.
            self._waiting += [x for cell in value.__closure__ or () if _followed(x := of_cell(cell))]
        else:
            self._read_code(value)

    def _visit_cell(self, cell: Any) -> None:
        self.cells[cell] = None
        own = vars(cell)
        self._waiting += [hook.function for kind in _HOOKS for hook in own.get(kind, {}).values()]
        if library(type(cell).__module__):
            self._waiting += [x for name, x in own.items() if name not in _INTERNAL and type(x) not in _ATOMS]
        else:
            self._visit_class(type(cell))
            self.objects.append(cell)

    def _visit_class(self, kind: type) -> None:
        """Follow the methods that run without being named, such as `__call__`."""
        for base in kind.__mro__:
            if not library(base.__module__) and id(base) not in self._seen:
                self._seen[id(base)] = base
                self.objects.append(base)
                for name, value in list(vars(base).items()):
                    if name.startswith("__") and name not in _NOT_CALLED and isinstance(value, FunctionType):
                        self._waiting.append(value)

    def _read_code(self, function: FunctionType) -> None:
        code: CodeType = function.__code__
        names = names_in(code)
        self._add_names(names)
        self._waiting += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            value = of_cell(cell)
            if name in names.variables or name in names.stored:
                self._variables.append((cell, name, value))
            self._follow(name, value, names)
        there = function.__globals__
        holder = self._holder(there, None)
        for name in names.variables | names.appended | names.stored:
            value = there.get(name, _MISSING)
            if name in names.stored and type(value) in _NUMBERS:
                holder.numbers[name] = value
            if isinstance(value, ModuleType):
                self._waiting.append(value)
                continue
            if value is _MISSING and name not in names.stored:
                continue  # a built-in function
            if name in names.variables or not isinstance(value, (list, dict, set, deque)):
                holder.values.setdefault(name, value)
            self._follow(name, value, names)
        package = there.get("__package__") or ""
        known = [sys.modules.get(x) for name in names.modules for x in (name, f"{package}.{name}")]
        self._waiting += [module for module in known if module is not None]

    def _follow(self, name: str, value: Any, names: Names) -> None:
        """Follow the value of a variable, unless the code only appends to it."""
        if name in names.variables or (name in names.appended and not isinstance(value, (list, dict, set, deque))):
            self._waiting.append(value)

    def _add_names(self, names: Names) -> None:
        self.names |= names.attributes
        self.appended |= names.appended
        self.stored |= names.stored
        self.open = self.open or names.open

    def _read_attributes(self, one: Any) -> None:
        """Add those attributes of an object, class or module that the code names."""
        if one is np:  # whose `random` has a generator that all share
            self.draws = self.draws or "random" in self.names
            return
        instance = not isinstance(one, (ModuleType, type))
        own = getattr(one, "__dict__", {}) if instance else vars(one)
        is_cell = hasattr(type(one), "cells_and_names")
        holder = self._holder(own, one)
        whole = instance and (self.open or is_cell)  # snncell itself reads attributes of Cells too
        for name in list(own) if whole else (self.names | self.appended).intersection(own):
            if name in holder.values or (is_cell and name in _INTERNAL):
                continue
            value, read = own[name], name in self.names or (self.open and instance)
            if not read and name in self.appended and isinstance(value, (list, dict, set, deque)):
                continue
            if read or not is_cell:
                holder.values[name] = value
            self._waiting.append(value)
        for name in self.stored.intersection(own):
            if type(own[name]) in _NUMBERS and not (is_cell and name in _INTERNAL):
                holder.numbers.setdefault(name, own[name])
        if not instance:
            return
        # Names that an attribute may get later, where there is none or one of the class.
        absent = self.names & self.stored
        for base in type(one).__mro__:
            if not library(base.__module__):
                of_class = vars(base)
                slots = of_class.get("__slots__", ())
                self._read_slots(one, self.names.intersection([slots] if isinstance(slots, str) else slots))
                absent |= {n for n in self.names.intersection(of_class) if not isinstance(of_class[n], _DESCRIPTORS)}
        for name in absent.difference(own):
            holder.values.setdefault(name, _MISSING)

    def _read_slots(self, one: Any, names: Iterable[str]) -> None:
        for name in names:
            if not any(known is one and other == name for known, other, _ in self._slots):
                self._slots.append((one, name, value := getattr(one, name, _MISSING)))
                self._waiting.append(value)

    def _holder(self, mapping: Mapping[str, Any], owner: Any) -> Holder:
        key = _id_of(mapping, owner)
        if key not in self._holders:
            self._holders[key] = Holder(mapping, owner)
        return self._holders[key]

    # --- comparing them -----------------------------------------------------------------------------------------------

    def guard(self, versioned: Iterable[Any]) -> Callable[[], bool]:
        """A function that tells whether the values are what they were; attributes of Cells that count them are not
        compared again.
        """
        counted = set(map(id, versioned))
        holders = [h for h in self._holders.values() if h.values and id(h.owner) not in counted]
        variables, slots, containers = self._variables, self._slots, self._containers
        arrays, tensors = self._arrays, self._tensors

        def unchanged() -> bool:  # at each call of what was traced: loops, which cost less than generators
            for holder in holders:
                if not holder.unchanged():
                    return False
            for cell, _, value in variables:
                if of_cell(cell) is not value and not same(of_cell(cell), value):
                    return False
            for tensor, data in tensors:
                if tensor._data is not data:
                    return False
            for container, ids, inside in containers:
                now = items(container)
                if list(map(id, now)) != ids and not (len(now) == len(ids) and all(map(same, now, inside))):
                    return False
            for array, spec, content in arrays:
                if (array.shape, array.dtype) != spec or contents(array) != content:
                    return False
            return all(same(getattr(one, name, _MISSING), value) for one, name, value in slots)

        return unchanged

    def changes(self) -> dict[Spot, str]:
        """The values that are not what they were: where they are, and what to call them."""
        found: dict[Spot, str] = {}
        for holder in self._holders.values():
            found |= holder.changes()
        for cell, name, value in self._variables:
            if not same(of_cell(cell), value):
                found[id(cell), ""] = name
        for one, name, value in self._slots:
            if not same(getattr(one, name, _MISSING), value):
                found[id(one), name] = f"{type(one).__name__}.{name}"
        for container, _, inside in self._containers:
            now = items(container)
            if len(now) != len(inside) or not all(map(same, now, inside)):
                found[id(container), ""] = f"a {type(container).__name__}{self._called(container)}"
        for array, spec, content in self._arrays:
            if (array.shape, array.dtype) != spec or contents(array) != content:
                found[id(array), ""] = f"an array{self._called(array)}"
        for tensor, data in self._tensors:
            if tensor._data is not data:
                found[id(tensor), ""] = f"a Tensor{self._called(tensor)}"
        return found

    def _called(self, value: Any) -> str:
        """The name under which a container or array was found, in brackets."""
        names = [name for _, name, held in self._variables if held is value]
        names += [
            f"{h.words}{name}" for h in self._holders.values() for name, held in h.values.items() if held is value
        ]
        return f" ({names[0]})" if names else ""

    # --- what a trace must not do to them -----------------------------------------------------------------------------

    def refuse_iterators(self, who: str) -> None:
        """Raise for an iterator among the variables: a trace would take the same items at each call."""
        held = [(name, x) for _, name, x in self._variables]
        held += [(f"{h.words}{name}", x) for h in self._holders.values() for name, x in h.values.items()]
        for name, value in held:
            if any(value is iterator for iterator in self._iterators):
                raise TraceError(
                    f"{who}: reads {name}, which is an iterator ({type(value).__name__}): the function is traced once, "
                    f"so each call would use the same items. Take the item outside, next({name}), and pass it as an "
                    f"argument."
                )

    def warn_of_numbers(self) -> None:
        """Warn of a number that the code assigns: a trace does so once."""
        changed = [
            f"{holder.words}{name}"
            for holder in self._holders.values()
            for name, value in holder.numbers.items()
            if type(now := holder.mapping.get(name)) in _NUMBERS and not same(now, value)
        ]
        for name in changed:
            warnings.warn(
                f"{name} is changed inside a function that is traced: that happens once, not at each call or step. "
                f"Return it as a state, or make it a Parameter (requires_grad=False) that ops.assign writes to.",
                RuntimeWarning,
                stacklevel=2,
            )

    def refuse_leaks(self, trace: Trace | None, who: str) -> None:
        """Raise if an object, variable or container holds a Tensor of this trace: it has no value later."""
        for cell, name, value in self._variables:
            if leaked(of_cell(cell), trace):
                cell.cell_contents = None if value is _MISSING else value
                raise _leak(who, f"the variable {name}", name)
        for cell in self.cells:
            self._refuse_leak(vars(cell), cell, {}, trace, who)
        for holder in self._holders.values():
            self._refuse_leak(holder.mapping, holder.owner, holder.values, trace, who)
        for container, _, _ in self._containers:
            if leaked(container, trace):
                _purge(container, trace)
                raise _leak(who, f"an item of a {type(container).__name__} outside of the function", "it")

    def _refuse_leak(self, own: Any, owner: Any, values: dict[str, Any], trace: Trace | None, who: str) -> None:
        """Raise if an attribute or a global is such a Tensor, and put back what was there."""
        for name, now in list(own.items() if owner is not None else [(n, own.get(n)) for n in values]):
            old = values.get(name, _MISSING)
            known = old is not _MISSING and old is not now
            # A container that was there before is looked into below, unless the code only appends to it.
            if not (known or isinstance(now, Tensor)) or not leaked(now, trace):
                continue
            if owner is None:
                own[name] = old if known else None
            elif known:
                setattr(owner, name, old)
            else:
                object.__delattr__(owner, name)
            words = "" if owner is None else f"{getattr(owner, '__name__', type(owner).__name__)}."
            raise _leak(who, f"{words}{name}", name if owner is None else f"self.{name}")


def _purge(container: Any, trace: Trace | None) -> None:
    """Take the Tensors of a trace out of a container."""
    if isinstance(container, dict):
        for key in [key for key, x in container.items() if leaked(x, trace)]:
            del container[key]
    else:
        kept = [x for x in container if not leaked(x, trace)]
        container.clear()
        container.update(kept) if isinstance(container, set) else container.extend(kept)


def _id_of(mapping: Mapping[str, Any], owner: Any) -> int:
    return id(owner) if isinstance(owner, type) else id(mapping)  # `vars` of a class is a new object each time


def _leak(who: str, place: str, target: str) -> TraceError:
    return TraceError(
        f"{who}: {place} is set to a Tensor inside a function that is traced; it would never change again. Return it "
        f"as a result or a state, or make {target} a Parameter (requires_grad=False) and write to it by ops.assign."
    )


def leaked(value: Any, trace: Trace | None, depth: int = 3) -> bool:
    """True if a value is, or holds, a Tensor of a trace; of any trace where `trace` is None."""
    if isinstance(value, Tensor):
        return isinstance(value._data, Value) and (trace is None or value._data.trace is trace)
    if depth and isinstance(value, (list, tuple, dict, set, frozenset, deque)):
        return any(leaked(x, trace, depth - 1) for x in items(value))
    return False


def _followed(value: Any) -> bool:
    """True if a value that a library holds may lead to a user's code."""
    return callable(value) or (not library(type(value).__module__) and not isinstance(value, Tensor))


def library(module: str | None) -> bool:
    """True if a module's code is not followed."""
    return (module or "builtins").partition(".")[0] in LIBRARIES


def of_cell(cell: CellType) -> Any:
    """The value of a closure's variable, which may have none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


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


# --- random numbers ---------------------------------------------------------------------------------------------------

_NUMPY: Any = np.random.mtrand._rand  # the generator of np.random.normal, ...
_PYTHON: Any = random._inst  # type: ignore[attr-defined]  # that of random.random, ...
_NAMES = {id(_NUMPY): "np.random", id(_PYTHON): "Python's random"}


class RandomStates:
    """The states of random generators before a trace: NumPy's and Python's own, and those that the function reads."""

    def __init__(self, state: PythonState) -> None:
        self.state = state
        of_all = state_of if state.draws else _position_of
        self.before = [(x, of_all, of_all(x)) for x in (_NUMPY, _PYTHON)]
        self.before += [(x, state_of, state_of(x)) for x in state.generators if id(x) not in _NAMES]

    def refuse_draws(self, who: str, every: str = "each call") -> None:
        """Raise if one of them has been advanced since: the numbers would be constants of the trace."""
        for generator, of, before in self.before:
            if of(generator) == before:
                continue
            shared = id(generator) in _NAMES
            # Another thread, which loads data, may have drawn from the generator that all share.
            if shared and threading.active_count() > 1 and not self.state.draws:
                continue
            name = _NAMES.get(id(generator), f"a {type(generator).__name__}")
            raise TraceError(
                f"{who}: draws from {name} while it is traced. That happens once, so {every} would have the same "
                f"numbers. Draw with ops.normal(x.shape, 0.0, 1.0) or ops.uniform(x.shape), which give new numbers "
                f"each time; or pass the noise as an argument."
            )


def _position_of(generator: Any) -> Any:
    """The position of NumPy's or Python's own generator: it changes by a draw, and takes 10 us, not 200, to read."""
    if generator is _PYTHON:
        _, words, following = generator.getstate()
        return words[0], words[-1], following
    bits = generator._bit_generator
    return ctypes.string_at(bits.ctypes.state_address, 2500) if type(bits) is np.random.MT19937 else state_of(generator)


def state_of(generator: Any) -> Any:
    """The state of a random generator, as values that can be compared."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _frozen(generator.get_state(legacy=False))
    return _frozen(generator.state if isinstance(generator, np.random.BitGenerator) else generator.bit_generator.state)


def _frozen(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple((key, _frozen(value)) for key, value in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else state
