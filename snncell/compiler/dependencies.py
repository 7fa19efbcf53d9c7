"""The Python state that a trace depends on: the Cells that were called, and the lists, dicts and sets in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snncell.errors import TraceError
from snncell.tape import structure
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace, Value


def cells_in(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the fixed arguments, the one that `fn` is a method of, and all below them."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    return {cell: None for owner in owners if hasattr(owner, "cells_and_names") for _, cell in owner.cells_and_names()}


def refuse_leaks(trace: Trace) -> None:
    """Raise if a Cell keeps a traced Tensor: in the next run it would not be what that run computes."""
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
    found: dict[int, Any] = {}
    waiting = [value for cell in cells for name, value in vars(cell).items() if name not in _INTERNAL]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, dict, set, tuple)) and id(value) not in found:
            waiting += items(value)
            if not isinstance(value, tuple):
                found[id(value)] = value
    return list(found.values())


_INTERNAL = ("_pre_hooks", "_hooks", "_checked_counts")  # of a Cell itself


def items(container: Any) -> list[Any]:
    """The items of a container, keys and values of a dict."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)
