"""Guards on Python state: detect changes of the values that a trace treats as constants.

The values are compared directly after the trace, because the traced function itself may change them, and at each later
call.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import is_
from typing import Any

import numpy as np

from snncell.base.arguments.guard import warn_of
from snncell.base.signals import after_fork
from snncell.compiler.state.reach import CONTAINERS, MOST, NUMBERS, NUMPYS, PYTHONS, ReachableValues
from snncell.compiler.state.values import (
    MISSING,
    Change,
    Spot,
    cell_value,
    freeze_array,
    in_slot,
    items,
    name_of,
    same_value,
)
from snncell.errors import SnncellError, TraceError
from snncell.tape import structure
from snncell.tape.hooks import numbers
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace

LARGE = 1 << 24  # bytes: comparing a larger array at each call causes a warning


class PythonState(ReachableValues):
    """A snapshot of the Python values that functions can read."""

    def guard(self, versioned: Iterable[Any]) -> Callable[[], bool]:
        """Make a function that returns True if the values are unchanged, except for attributes of `versioned` Cells."""
        counted = set(map(id, versioned))
        holders = [h for h in self._holders.values() if h.values and id(h.owner) not in counted]
        present = [found for h in holders if (found := h.present()) is not None]
        absent = [(h.mapping, names) for h in holders if (names := h.absent())]
        variables, slots = self._variables, list(self._slots.values())
        containers, arrays = self._containers, self._arrays

        # This runs at each call, so it consists of `for` loops, which are faster than generators and methods.
        def unchanged() -> bool:
            try:
                for take, mapping, values in present:
                    now = take(mapping)
                    if not all(map(is_, now, values)) and not all(map(same_value, now, values)):
                        return False
            except KeyError:
                return False
            for mapping, names in absent:
                if not mapping.keys().isdisjoint(names):
                    return False
            for cell, _, value in variables:
                if cell_value(cell) is not value and not same_value(cell_value(cell), value):
                    return False
            for container, ids, inside in containers:
                there = items(container)
                if list(map(id, there)) != ids and not (len(there) == len(ids) and all(map(same_value, there, inside))):
                    return False
            for array, before in arrays:
                if freeze_array(array) != before:
                    return False
            return all(same_value(in_slot(one, name), value) for one, name, value in slots)

        return unchanged

    def changes(self) -> dict[Spot, Change]:
        """The values that have changed, by their location."""
        found: dict[Spot, Change] = {}
        for holder in self._holders.values():
            found |= holder.changes()
        for cell, name, value in self._variables:
            if not same_value(now := cell_value(cell), value):
                found[id(cell), ""] = Change(name, now)
        for one, name, value in self._slots.values():
            if not same_value(now := in_slot(one, name), value):
                found[id(one), name] = Change(f"{type(one).__name__}.{name}", now)
        for container, _, inside in self._containers:
            there = items(container)
            if len(there) != len(inside) or not all(map(same_value, there, inside)):
                words = f"a {type(container).__name__}{self._quote_name(container)}"
                found[id(container), ""] = Change(words, tuple(there))
        for array, before in self._arrays:
            if (now := freeze_array(array)) != before:
                found[id(array), ""] = Change(f"an array{self._quote_name(array)}", now)
        return found

    def _quote_name(self, value: Any) -> str:
        name = next((name for name, held in self._named() if held is value), None)
        return "" if name is None else f" ({name})"

    def _named(self) -> Iterator[tuple[str, Any]]:
        yield from ((name, x) for _, name, x in self._variables)
        for holder in self._holders.values():
            yield from ((f"{holder.words}{name}", x) for name, x in holder.values.items())

    def refuse_iterators(self, who: str) -> None:
        """Raise for an iterator among the variables, because each call would use the items of the traced call."""
        for name, value in self._named():
            if any(value is iterator for iterator in self._iterators):
                raise TraceError(
                    f"{who} reads {name}, which is an iterator ({type(value).__name__}). The function is traced only "
                    f"once, so each call would use the same items. Take the item outside of the function by "
                    f"next({name}), and pass it as an argument."
                )

    def warn_of_steps(self, who: str) -> None:
        """Warn if the code reads a clock or a file, or assigns a number, because a trace does this only once."""
        for name in sorted(self.outside):
            warn_of(
                f"{who}: {name} is called inside a function that is traced. This happens only once, not at each call "
                f"or step, so its result never changes. Call it outside, and pass the result as an argument.",
                RuntimeWarning,
            )
        changed = [
            f"{holder.words}{name}"
            for holder in self._holders.values()
            for name, value in holder.numbers.items()
            if type(now := holder.mapping.get(name)) in NUMBERS and not same_value(now, value)
        ]
        for name in changed:
            warn_of(
                f"{name} is changed inside a function that is traced. This happens only once, not at each call or "
                f"step. Return it as a state, or make it a Parameter (requires_grad=False) that ops.assign writes to.",
                RuntimeWarning,
            )

    def warn_of_arrays(self, who: str) -> None:
        """Warn of large arrays, because each call compares all elements."""
        for array, (_, _, content) in self._arrays:
            if len(content) > LARGE:
                warn_of(
                    f"{who} reads an array of {len(content) >> 20} MB{self._quote_name(array)}. Each call compares it "
                    f"with a copy, because it may change. Convert it to a Tensor once, outside of the function, or "
                    f"pass it as an argument.",
                    RuntimeWarning,
                )

    def refuse_leaks(self, trace: Trace | None, who: str) -> None:
        """Raise if an object, variable or container holds a Tensor of this trace: it has no value after the trace."""
        for cell, name, value in self._variables:
            if holds_traced_tensor(cell_value(cell), trace):
                if isinstance(cell, ContextVar):
                    cell.set(None if value is MISSING else value)
                else:
                    cell.cell_contents = None if value is MISSING else value
                raise _leak(who, f"the variable {name}", name)
        for one, name, value in self._slots.values():
            if holds_traced_tensor(in_slot(one, name), trace):
                delattr(one, name) if value is MISSING else setattr(one, name, value)
                raise _leak(who, f"{type(one).__name__}.{name}", f"self.{name}")
        for cell in self.cells:
            self._refuse_leak(vars(cell), cell, {}, trace, who)
        for holder in self._holders.values():
            self._refuse_leak(holder.mapping, holder.owner, holder.values, trace, who)
        for container, _, _ in self._containers:
            if holds_traced_tensor(container, trace):
                _purge(container, trace)
                raise _leak(who, f"an item of a {type(container).__name__} outside of the function", "it")

    def _refuse_leak(self, own: Any, owner: Any, values: dict[str, Any], trace: Trace | None, who: str) -> None:
        """Raise, with the old value restored, if an attribute or a global has become or got a Tensor of this trace."""
        for name, now in list(own.items() if owner is not None else [(n, own.get(n)) for n in values]):
            old = values.get(name, MISSING)
            known = old is not MISSING and old is not now
            # Skip a container that has not replaced another value. If the code reads it, `refuse_leaks` searches it. If
            # the code only appends to it, its items cannot change a result.
            if not (known or isinstance(now, Tensor)) or not holds_traced_tensor(now, trace):
                continue
            if owner is None:
                own[name] = old if known else None
            elif known:
                setattr(owner, name, old)
            else:
                (type if isinstance(owner, type) else object).__delattr__(owner, name)
            place = name if owner is None else f"{name_of(owner)}.{name}"
            raise _leak(who, place, name if owner is None else f"self.{name}")


def _purge(container: Any, trace: Trace | None) -> None:
    if isinstance(container, dict):
        for key in [key for key, x in container.items() if holds_traced_tensor(x, trace)]:
            del container[key]
    else:
        kept = [x for x in container if not holds_traced_tensor(x, trace)]
        container.clear()
        container.update(kept) if isinstance(container, set) else container.extend(kept)


def _leak(who: str, place: str, target: str) -> TraceError:
    return TraceError(
        f"{who}: {place} is set to a Tensor inside a function that is traced. This happens only once, so it would not "
        f"change again. Return it as a result or a state, or make {target} a Parameter (requires_grad=False) and write "
        f"to it by ops.assign."
    )


def holds_traced_tensor(value: Any, trace: Trace | None, depth: int = 3) -> bool:
    """True if a value is, or contains, a Tensor of a trace; of any trace if `trace` is None."""
    kind = type(value)  # `isinstance` would access the object of a weakref.proxy, which may be dead
    if issubclass(kind, Tensor):
        return isinstance(value._data, Value) and (trace is None or value._data.trace is trace)
    if depth and issubclass(kind, CONTAINERS):
        return any(holds_traced_tensor(x, trace, depth - 1) for x in items(value))
    return False


# --- Random draws -----------------------------------------------------------------------------------------------------


_NAMES = {id(NUMPYS): "np.random", id(PYTHONS): "Python's random"}
_PATIENCE = 2.0  # seconds that a trace waits for each loading thread to finish its current sample
_LOOK, _LOOKS = 0.005, 40  # seconds between two looks at the draws of another thread, and the most looks

# The lock of each loading thread, by its identifier; the thread holds it while it runs the user's transforms.
LOADING: dict[int, Any] = {}
after_fork(LOADING.clear)  # a forked child does not have these threads


@contextmanager
def pause_loading() -> Iterator[bool]:
    """Context manager: pause the threads that load data, because they may draw from the global random generators. It
    gives True if all have paused. A loading thread pauses no others, because two could wait for each other.
    """
    loads = threading.get_ident() in LOADING
    # In a nested trace, the outer trace already owns the locks.
    locks = [] if loads else [lock for lock in list(LOADING.values()) if not lock._is_owned()]
    try:
        yield all(lock.acquire(timeout=_PATIENCE) for lock in locks) and not loads
    finally:
        # Ask each lock whether this thread owns it, instead of noting acquisitions: Ctrl-C may come directly after one.
        for lock in locks:
            if lock._is_owned():
                lock.release()


class RandomStates:
    """The states, before a trace, of all random generators that the traced function may use. If a state changes, the
    function has drawn random numbers, which would be constants of its Program.
    """

    def __init__(self, state: PythonState, alone: bool) -> None:
        self.state, self.alone = state, alone  # `alone`: no loading thread runs during the trace
        of_all = state_of if state.draws else _position_of
        self.before = [(x, of_all, of_all(x)) for x in (NUMPYS, PYTHONS)]
        self.before += [(x, state_of, state_of(x)) for x in state.generators if id(x) not in _NAMES]
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
            self.before.append((torch.default_generator, _of_torch, _of_torch(torch.default_generator)))

    def refuse_draws(self, who: str, every: str = "each call") -> None:
        """Raise if a generator has advanced since the trace began."""
        for name in sorted(self.state.unseeded):
            raise _draw_error(who, f"{name}(), which has no seed,", every)
        for generator, of, before in self.before:
            if of(generator) == before:
                continue
            named = id(generator) in _NAMES and self.state.draws  # the function's code draws from this generator
            shared = id(generator) in _NAMES or of is _of_torch
            if shared and not named and self._drawn_by_others(generator, of):
                continue
            name = _NAMES.get(id(generator), f"a {type(generator).__name__}")
            raise _draw_error(who, "PyTorch's random numbers" if of is _of_torch else name, every)

    def _drawn_by_others(self, generator: Any, of: Any) -> bool:
        """True if another thread may have drawn: a loading thread, or a thread that draws now, while we wait."""
        if not self.alone or threading.active_count() == 1:
            return not self.alone
        present = of(generator)
        for _ in range(_LOOKS):  # on a busy machine, a thread may get no time for long
            time.sleep(_LOOK)
            if of(generator) != present:
                return True
        return False


def _draw_error(who: str, name: str, every: str) -> TraceError:
    return TraceError(
        f"{who} draws from {name} while it is traced. This happens only once, so {every} would have the same numbers. "
        f"Use ops.normal(x.shape, 0.0, 1.0) or ops.uniform(x.shape), which give new numbers each time; or pass the "
        f"noise as an argument."
    )


def _position_of(generator: Any) -> Any:
    """The position of a global generator, which each draw changes; its full state takes 20 times as long to read."""
    if generator is PYTHONS:
        _, words, following = generator.getstate()
        return words[0], words[-1], following
    bits = generator._bit_generator
    if type(bits) is not np.random.MT19937:
        return state_of(generator)
    # NumPy draws Gaussian numbers in pairs, and keeps the second one in a field of the generator for the next draw.
    # Therefore compare all fields after the object's header.
    fields, header = type(generator).__basicsize__, object.__basicsize__
    kept = ctypes.string_at(id(generator) + header, fields - header)
    return ctypes.string_at(bits.ctypes.state_address, 2500) + kept


def _of_torch(generator: Any) -> Any:
    return bytes(generator.get_state().numpy())


def state_of(generator: Any) -> Any:
    """The state of a random generator, as comparable values."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _freeze_state(generator.get_state(legacy=False))
    bits = generator if isinstance(generator, np.random.BitGenerator) else generator.bit_generator
    return _freeze_state(bits.state)


def _freeze_state(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple((key, _freeze_state(value)) for key, value in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else state


# --- Dependencies -----------------------------------------------------------------------------------------------------


class Dependencies:
    """The state that a finished trace depends on: Python values, Parameters, and Cells, which count their changes."""

    def __init__(self, trace: Trace, state: PythonState) -> None:
        state.include(trace.cells)
        self.state = state
        self.versions = [(cell, cell.version) for cell in {**trace.cells, **state.cells}]
        # A trace may depend on settings of a Parameter, such as requires_grad, without reading its value. So include
        # the targets of gradients, and Parameters that only the Python code reads.
        parameters = {**trace.parameters, **trace.gradient_targets, **state.parameters}
        self.parameters = [(p, p.requires_grad, p.limits, numbers(p._entry)) for p in parameters]
        self._values_unchanged = state.guard(trace.cells)

    def is_current(self) -> bool:
        """True if no Cell, no setting of a Parameter and no other value has changed since the trace."""
        for cell, version in self.versions:  # at each call; loops are faster here than generators
            if cell.version != version:
                return False
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained or parameter.limits != limits or hooks != numbers(parameter._entry):
                return False
        return self._values_unchanged()

    def describe_change(self) -> str:
        """Describe the change for a report."""
        for cell, version in self.versions:
            if cell.version != version:
                return f"an attribute of {type(cell).__name__}"
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained:
                return f"requires_grad of Parameter {parameter.name!r}"
            if hooks != numbers(parameter._entry):
                return f"a hook on Parameter {parameter.name!r}"
            if parameter.limits != limits:
                return f"the range of Parameter {parameter.name!r}"
        return next((change.words for change in self.state.changes().values()), "a value that it reads")


@contextmanager
def state_read_by(roots: Iterable[Any], who: str, every: str = "each call") -> Iterator[PythonState]:
    """Context manager for a trace of `roots`, functions and objects. It gives the Python state that they can read, and
    raises an error if they draw random numbers. `every` is a part of its messages, for example "each step".
    """
    state = PythonState(roots)
    state.refuse_iterators(who)
    if not state.complete:
        warnings.warn(
            f"{who}: the function can read more than {MOST:,} Python objects, so changes of some objects are not "
            f"detected. Pass the values that it reads as arguments, or store them in arrays or Tensors.",
            RuntimeWarning,
            stacklevel=2,
        )
    with pause_loading() as alone:
        states = RandomStates(state, alone)
        try:
            yield state
        except TraceError:
            raise
        except SnncellError:  # the cause may be a random draw, for example if noise of NumPy has an invalid dtype
            try:
                states.refuse_draws(who, every)
            except TraceError as draw:
                raise draw from None
            raise
        states.refuse_draws(who, every)


def find_cells(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the non-Tensor arguments, the Cell whose method `fn` is, and all their children."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    trees = [owner for owner in owners if hasattr(owner, "cells_and_names") and not isinstance(owner, type)]
    return {cell: None for tree in trees for _, cell in tree.cells_and_names()}
