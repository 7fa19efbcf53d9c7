"""Comparison of the Python values that a trace reads: before and after the trace, and at each later call.

A trace keeps these values as constants. A call compares them; if one has changed, the function is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from operator import is_
from typing import Any

from snncell.base.arguments.guard import warn_of
from snncell.compiler.state.reach import CONTAINERS, NUMBERS, ReachableValues
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
from snncell.errors import TraceError
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace
from snncell.tape.value import Value

LARGE = 1 << 24  # bytes of an array, above which its comparison at each call is worth a warning


class PythonState(ReachableValues):
    """The Python values that functions can read, as they are when this is made.

    Args:
        roots: functions, and objects that they are given.
    """

    def guard(self, versioned: Iterable[Any]) -> Callable[[], bool]:
        """A function that tells whether the values are what they were; attributes of Cells that count them are not
        compared again.
        """
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
        names = [name for _, name, held in self._variables if held is value]
        names += [
            f"{h.words}{name}" for h in self._holders.values() for name, held in h.values.items() if held is value
        ]
        return f" ({names[0]})" if names else ""

    # --- effects that are refused -----------------------------------------------------------------------------

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
