"""Arrays and numbers that are passed in place of Tensors, alone and in containers, or in place of Parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.base.arguments.kinds import ARRAYS
from snncell.errors import AssignError
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor
from snncell.tape.value import Signal

Array = np.ndarray[Any, Any]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, type, np.generic, Tensor)
TENSORS = frozenset([Tensor, Signal])  # the types of arguments that need no conversion
_NUMBERS = (bool, int, float, complex, np.generic)


def is_array(x: Any) -> bool:
    """True if x is an array, of NumPy or of another library; a number, a list or a Tensor is none."""
    if isinstance(x, np.ndarray):
        return True
    return not isinstance(x, _PLAIN) and any(hasattr(type(x), name) for name in ARRAYS)


def with_tensors(tree: Any) -> Any:
    """`tree` with a Tensor in the place of each array in it, through tuples, lists and dicts."""
    if is_array(tree):
        return Tensor(tree)
    if isinstance(tree, dict):
        return {key: with_tensors(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return _like(tree, [with_tensors(item) for item in tree])
    return tree


def as_data(tree: Any) -> Any:
    """`with_tensors`, for what can only be data: numbers, and lists and tuples of nothing but numbers, count too.

    [[0, 1], [2, 3]] becomes one Tensor; [Tensor, Tensor] stays a list.
    """
    if isinstance(tree, _NUMBERS) or (isinstance(tree, (tuple, list)) and tree and _of_numbers(tree)):
        return Tensor(tree)
    if isinstance(tree, EventLists):
        return with_tensors(tree)  # its shape is no data
    if isinstance(tree, dict):
        return {key: as_data(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return _like(tree, [as_data(item) for item in tree])
    return with_tensors(tree)


def on_host(x: Any) -> Array:
    """The elements of `Tensor(x)` as a NumPy array; an array of NumPy is returned as it is."""
    return x if isinstance(x, np.ndarray) else (x if isinstance(x, Tensor) else Tensor(x)).asnumpy()


def _like(container: Any, items: list[Any]) -> Any:
    """A tuple or list of these items, of the class of the other one."""
    kind = type(container)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)  # a named tuple takes its fields one by one


def _of_numbers(tree: Any) -> bool:
    if isinstance(tree, (tuple, list)):
        return all(map(_of_numbers, tree))
    return isinstance(tree, _NUMBERS)


def refuse_for_parameter(cell: Any, name: str, value: Any) -> None:
    """Raise an AssignError for an attribute of a Cell that is a Parameter and is set to something else."""
    kind = "None" if value is None else f"a {type(value).__name__}"
    mend = f"Write to it by self.{name}.set_data(value), or delete it first."
    if value is None and hasattr(cell, f"has_{name}"):
        mend = f"A layer without it is made so: {type(cell).__name__}(..., has_{name}=False)."
    elif value is None:
        mend = f"To do without it, delete it first: del self.{name}."
    raise AssignError(f"{type(cell).__name__}.{name} is a Parameter; {kind} in its place would not be trained. {mend}")
