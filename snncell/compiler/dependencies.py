"""The Python state that a trace depends on: the Cells that were called, and the lists, dicts and sets in them.

A Cell counts the changes of its attributes (`version`), so a call compares numbers. A list cannot tell of changes: its
items are compared by identity, and are held meanwhile, so that no other object gets the id of one that has gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snncell.errors import TraceError
from snncell.tape import structure
from snncell.tape.hooks import numbers
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace, Value


class Dependencies:
    """The state that a trace depends on, as it is when this is made."""

    def __init__(self, trace: Trace) -> None:
        self.versions = [(cell, cell.version) for cell in trace.cells]
        self.containers = [(x, list(map(id, items(x))), items(x)) for x in containers(trace.cells)]
        parameters = {**trace.parameters, **trace.gradient_targets}  # a target may be read as an argument alone
        self.parameters = [(p, p.requires_grad, p.limits, numbers(p._entry)) for p in parameters]

    def unchanged(self) -> bool:
        """True if no Cell, no list or dict that one holds, and no setting of a Parameter has been changed since."""
        for cell, version in self.versions:  # at each call of what was traced: loops, which cost less than generators
            if cell.version != version:
                return False
        for parameter, trained, limits, hooks in self.parameters:
            if parameter.requires_grad != trained or parameter.limits != limits or hooks != numbers(parameter._entry):
                return False
        return not self.containers or all(list(map(id, items(x))) == ids for x, ids, _ in self.containers)

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
        return "a list or dict of a Cell"


def cells_in(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the fixed arguments, the one that `fn` is a method of, and all below them."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    trees = [owner for owner in owners if hasattr(owner, "cells_and_names") and not isinstance(owner, type)]
    return {cell: None for tree in trees for _, cell in tree.cells_and_names()}


def refuse_leaks(trace: Trace) -> None:
    """Raise if a Cell holds a traced Tensor: it would go on to stand for the first run."""
    for cell in trace.cells:
        for name, value in vars(cell).items():
            if isinstance(value, Tensor) and isinstance(value._data, Value):
                object.__delattr__(cell, name)
                raise TraceError(
                    f"{type(cell).__name__}.{name} is set to a Tensor inside a function that is traced; it "
                    f"would never change again. Return it as a state, or make self.{name} a Parameter "
                    f"(requires_grad=False) and write to it by ops.assign."
                )


def containers(cells: Iterable[Any]) -> list[Any]:
    """The lists, dicts and sets that are attributes of Cells, and those inside of them."""
    mutable: dict[int, Any] = {}
    waiting = [value for cell in cells for name, value in vars(cell).items() if name not in _INTERNAL]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, dict, set, tuple)) and id(value) not in mutable:
            waiting += items(value)
            if not isinstance(value, tuple):
                mutable[id(value)] = value
    return list(mutable.values())


_INTERNAL = ("_pre_hooks", "_hooks", "_backward_hooks", "_backward_pre_hooks", "_checked_counts")  # of a Cell itself


def items(container: Any) -> list[Any]:
    """The items of a container, keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)
