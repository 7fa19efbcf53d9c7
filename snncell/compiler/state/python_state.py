"""Comparison of the Python values that a trace reads: before and after the trace, and at each later call.

A trace keeps these values as constants. A call compares them; if one has changed, the function is traced again.
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

LARGE = 1 << 24  # bytes of an array, above which its comparison at each call is worth a warning


class PythonState(ReachableValues):
    """The Python values that functions can read, as they are when this is made."""

    def guard(self, versioned: Iterable[Any]) -> Callable[[], bool]:
        """A function that tells whether the values are what they were, but for attributes of `versioned` Cells."""
        counted = set(map(id, versioned))
        holders = [h for h in self._holders.values() if h.values and id(h.owner) not in counted]
        present = [found for h in holders if (found := h.present()) is not None]
        absent = [(h.mapping, names) for h in holders if (names := h.absent())]
        variables, slots = self._variables, list(self._slots.values())
        containers, arrays = self._containers, self._arrays

        def unchanged() -> bool:  # at each call of what was traced: loops, which cost less than generators and methods
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
        """The values that have changed, by the place where they are."""
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
                words = f"a {type(container).__name__}{self._called(container)}"
                found[id(container), ""] = Change(words, tuple(there))
        for array, before in self._arrays:
            if (now := freeze_array(array)) != before:
                found[id(array), ""] = Change(f"an array{self._called(array)}", now)
        return found

    def _called(self, value: Any) -> str:
        """The name under which a container or array was found, in brackets."""
        names = (name for name, held in self._named() if held is value)
        name = next(names, None)
        return "" if name is None else f" ({name})"

    def _named(self) -> Iterator[tuple[str, Any]]:
        """The variables and the values of holders, with their names."""
        yield from ((name, x) for _, name, x in self._variables)
        for holder in self._holders.values():
            yield from ((f"{holder.words}{name}", x) for name, x in holder.values.items())

    def refuse_iterators(self, who: str) -> None:
        """Raise for an iterator among the variables: a trace would take the same items at each call."""
        for name, value in self._named():
            if any(value is iterator for iterator in self._iterators):
                raise TraceError(
                    f"{who}: reads {name}, which is an iterator ({type(value).__name__}): the function is traced once, "
                    f"so each call would use the same items. Take the item outside, next({name}), and pass it as an "
                    f"argument."
                )

    def warn_of_steps(self, who: str) -> None:
        """Warn of clocks and files that the code reads, and of numbers that it assigns: a trace does so once."""
        for name in sorted(self.outside):
            warn_of(
                f"{who}: {name} is called inside a function that is traced: that happens once, not at each call or "
                f"step, so its result never changes. Call it outside, and pass the result as an argument.",
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
                f"{name} is changed inside a function that is traced: that happens once, not at each call or step. "
                f"Return it as a state, or make it a Parameter (requires_grad=False) that ops.assign writes to.",
                RuntimeWarning,
            )

    def warn_of_arrays(self, who: str) -> None:
        """Warn of large arrays: each call compares all elements, because any may have changed."""
        for array, (_, _, content) in self._arrays:
            if len(content) > LARGE:
                warn_of(
                    f"{who}: reads an array of {len(content) >> 20} MB{self._called(array)}. Each call compares it "
                    f"with a copy, because it may change. Make it a Tensor once, outside of the function, or pass it "
                    f"as an argument.",
                    RuntimeWarning,
                )

    def refuse_leaks(self, trace: Trace | None, who: str) -> None:
        """Raise if an object, variable or container holds a Tensor of this trace: it has no value later."""
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
        """Raise if an attribute or a global is such a Tensor, and put back what was there."""
        for name, now in list(own.items() if owner is not None else [(n, own.get(n)) for n in values]):
            old = values.get(name, MISSING)
            known = old is not MISSING and old is not now
            # A container that was there before is looked into below, unless the code only appends to it.
            if not (known or isinstance(now, Tensor)) or not holds_traced_tensor(now, trace):
                continue
            if owner is None:
                own[name] = old if known else None
            elif known:
                setattr(owner, name, old)
            else:
                object.__delattr__(owner, name)
            place = name if owner is None else f"{name_of(owner)}.{name}"
            raise _leak(who, place, name if owner is None else f"self.{name}")


def _purge(container: Any, trace: Trace | None) -> None:
    """Take the Tensors of a trace out of a container."""
    if isinstance(container, dict):
        for key in [key for key, x in container.items() if holds_traced_tensor(x, trace)]:
            del container[key]
    else:
        kept = [x for x in container if not holds_traced_tensor(x, trace)]
        container.clear()
        container.update(kept) if isinstance(container, set) else container.extend(kept)


def _leak(who: str, place: str, target: str) -> TraceError:
    return TraceError(
        f"{who}: {place} is set to a Tensor inside a function that is traced; it would never change again. Return it "
        f"as a result or a state, or make {target} a Parameter (requires_grad=False) and write to it by ops.assign."
    )


def holds_traced_tensor(value: Any, trace: Trace | None, depth: int = 3) -> bool:
    """True if a value is, or holds, a Tensor of a trace; of any trace where `trace` is None."""
    kind = type(value)  # `isinstance` would ask the object behind a weakref.proxy, which may be gone
    if issubclass(kind, Tensor):
        return isinstance(value._data, Value) and (trace is None or value._data.trace is trace)
    if depth and issubclass(kind, CONTAINERS):
        return any(holds_traced_tensor(x, trace, depth - 1) for x in items(value))
    return False


# --- random draws -----------------------------------------------------------------------------------------------------


_NAMES = {id(NUMPYS): "np.random", id(PYTHONS): "Python's random"}
_PATIENCE = 2.0  # seconds that a trace waits for each thread that loads data to end the sample it is at
_LOOK = 0.005  # seconds in which a thread that draws all the time is noticed

# For each thread that loads data, by its identifier, the lock that it holds while it runs the user's transforms.
LOADING: dict[int, Any] = {}
after_fork(LOADING.clear)  # a child has none of these threads


@contextmanager
def pause_loading() -> Iterator[bool]:
    """Pause the threads that load data, which may draw from the generators that all threads share.

    Yields True if all of them pause. A thread that loads data itself pauses no other one, because two of them could
    wait for each other.
    """
    loads = threading.get_ident() in LOADING
    # A trace within a trace finds the locks owned, and leaves them to the outer one.
    locks = [] if loads else [lock for lock in list(LOADING.values()) if not lock._is_owned()]
    try:
        yield all(lock.acquire(timeout=_PATIENCE) for lock in locks) and not loads
    finally:  # by ownership, because Ctrl-C may come directly after an acquisition
        for lock in locks:
            if lock._is_owned():
                lock.release()


class RandomStates:
    """The states of random generators before a trace: NumPy's and Python's own, and those that the function reads.

    A trace runs Python code once, so a number that they draw in it would be a constant of the compiled function.
    """

    def __init__(self, state: PythonState, alone: bool) -> None:
        self.state, self.alone = state, alone  # whether no thread that loads data runs meanwhile
        of_all = state_of if state.draws else _position_of
        self.before = [(x, of_all, of_all(x)) for x in (NUMPYS, PYTHONS)]
        self.before += [(x, state_of, state_of(x)) for x in state.generators if id(x) not in _NAMES]
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
            self.before.append((torch.default_generator, _of_torch, _of_torch(torch.default_generator)))

    def refuse_draws(self, who: str, every: str = "each call") -> None:
        """Raise if one of them has been advanced since."""
        for name in sorted(self.state.unseeded):
            raise _draw_error(who, f"{name}(), which gets no seed,", every)
        for generator, of, before in self.before:
            if of(generator) == before:
                continue
            named = id(generator) in _NAMES and self.state.draws  # by the code of the function itself
            shared = id(generator) in _NAMES or of is _of_torch
            if shared and not named and self._drawn_by_others(generator, of):
                continue
            name = _NAMES.get(id(generator), f"a {type(generator).__name__}")
            raise _draw_error(who, "PyTorch's random numbers" if of is _of_torch else name, every)

    def _drawn_by_others(self, generator: Any, of: Any) -> bool:
        """True if another thread may have drawn: one that loads data, or one that goes on drawing now."""
        if not self.alone or threading.active_count() == 1:
            return not self.alone
        present = of(generator)
        time.sleep(_LOOK)
        return bool(of(generator) != present)


def _draw_error(who: str, name: str, every: str) -> TraceError:
    return TraceError(
        f"{who}: draws from {name} while it is traced. That happens once, so {every} would have the same numbers. Draw "
        f"with ops.normal(x.shape, 0.0, 1.0) or ops.uniform(x.shape), which give new numbers each time; or pass the "
        f"noise as an argument."
    )


def _position_of(generator: Any) -> Any:
    """The position of NumPy's or Python's own generator: it changes by a draw, and takes 10 us, not 200, to read."""
    if generator is PYTHONS:
        _, words, following = generator.getstate()
        return words[0], words[-1], following
    bits = generator._bit_generator
    if type(bits) is not np.random.MT19937:
        return state_of(generator)
    # The fields of the object after its reference count: one of them is a normal number that is kept for the next draw.
    fields, header = type(generator).__basicsize__, object.__basicsize__
    kept = ctypes.string_at(id(generator) + header, fields - header)
    return ctypes.string_at(bits.ctypes.state_address, 2500) + kept


def _of_torch(generator: Any) -> Any:
    return bytes(generator.get_state().numpy())


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


# --- dependencies -----------------------------------------------------------------------------------------------------


class Dependencies:
    """The state that a finished trace depends on: the values that the traced functions read, Cells and Parameters.

    A Cell counts the changes of its attributes (`version`), so a call compares numbers.
    """

    def __init__(self, trace: Trace, state: PythonState) -> None:
        state.include(trace.cells)
        self.state = state
        self.versions = [(cell, cell.version) for cell in {**trace.cells, **state.cells}]
        # A target may be read as an argument alone, and a setting without the value.
        parameters = {**trace.parameters, **trace.gradient_targets, **state.parameters}
        self.parameters = [(p, p.requires_grad, p.limits, numbers(p._entry)) for p in parameters]
        self._values_unchanged = state.guard(trace.cells)

    def unchanged(self) -> bool:
        """True if no Cell, no setting of a Parameter and no value that was read has been changed since."""
        for cell, version in self.versions:  # at each call of what was traced: loops, which cost less than generators
            if cell.version != version:
                return False
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained or parameter.limits != limits or hooks != numbers(parameter._entry):
                return False
        return self._values_unchanged()

    def changed(self) -> str:
        """The change, for a report."""
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
    """The Python state that functions can read, around their trace; random numbers that are drawn in it are refused.

    `roots` are the functions and objects that they are given; `every` is the unit that would have the same numbers.
    """
    state = PythonState(roots)
    state.refuse_iterators(who)
    if not state.complete:
        warnings.warn(
            f"{who}: the function can read more than {MOST:,} Python objects; changes of the others are not noticed. "
            f"Pass what it reads as an argument, or keep it in arrays or Tensors.",
            RuntimeWarning,
            stacklevel=2,
        )
    with pause_loading() as alone:
        states = RandomStates(state, alone)
        try:
            yield state
        except TraceError:
            raise
        except SnncellError:  # for example for the dtype of NumPy's noise, which is not to be drawn at all
            try:
                states.refuse_draws(who, every)
            except TraceError as draw:
                raise draw from None
            raise
        states.refuse_draws(who, every)


def find_cells(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the fixed arguments, the one that `fn` is a method of, and all below them."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    trees = [owner for owner in owners if hasattr(owner, "cells_and_names") and not isinstance(owner, type)]
    return {cell: None for tree in trees for _, cell in tree.cells_and_names()}
