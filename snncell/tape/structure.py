"""Nested tuples, lists, dicts and dataclasses of Tensors: taken apart into a flat list, and put together again."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from snncell.dtype import NUMBERS
from snncell.errors import TraceError
from snncell.tape.tensor import Tensor


class Leaf(NamedTuple):
    """The place of a Tensor in a structure."""


class Static:
    """Anything that is no Tensor and no container.

    Equal only to the same value of the same type: 1 is neither True nor 1.0, and -0.0 is not 0.0.
    """

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        # Floats by their text, so that -0.0 is not 0.0 and NaN is NaN.
        self.key = (type(value), repr(value) if isinstance(value, (float, complex, *NUMBERS)) else value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Branch(NamedTuple):
    """A container: its class, the keys of a dict or the fields of a dataclass, and its items."""

    kind: type
    keys: tuple[Any, ...] | None
    children: tuple[Any, ...]


# The views of a dict, and what makes one.
_VIEWS: dict[Any, Any] = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
LEAF = Leaf()
NOTHING = Static(None)


def flatten(tree: Any) -> tuple[list[Tensor], Any]:
    """The Tensors in `tree`, in order, and the structure around them."""
    leaves: list[Tensor] = []  # at each call of a jitted function: lists below, which cost less than generators
    return leaves, _walk(tree, leaves)


def _walk(tree: Any, leaves: list[Tensor]) -> Any:
    if isinstance(tree, Tensor):
        leaves.append(tree)
        return LEAF
    if isinstance(tree, (tuple, list)):
        return Branch(type(tree), None, tuple([_walk(child, leaves) for child in tree]))
    if isinstance(tree, dict):
        return Branch(type(tree), tuple(map(Static, tree)), tuple([_walk(child, leaves) for child in tree.values()]))
    if hasattr(type(tree), "__dataclass_fields__") and not hasattr(type(tree), "cells_and_names"):
        return _walk_dataclass(tree, leaves)
    if type(tree) in _VIEWS:  # `mapping` is the dict that it shows
        return Branch(type(tree), *_walk(dict(tree.mapping), leaves)[1:])
    return NOTHING if tree is None else Static(tree)


def _walk_dataclass(tree: Any, leaves: list[Tensor]) -> Any:
    """A dataclass with Tensors in it, or that could be changed, by its fields; others are what they are."""
    names = [name for name in type(tree).__dataclass_fields__ if hasattr(tree, name)]
    fields = {name: getattr(tree, name) for name in names} | getattr(tree, "__dict__", {})
    inside: list[Tensor] = []
    children = tuple([_walk(child, inside) for child in fields.values()])
    if not inside and type(tree).__hash__ is not None:
        return Static(tree)
    leaves += inside
    return Branch(type(tree), tuple(map(Static, fields)), children)


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The reverse of `flatten`, with `leaves` in the places of the Tensors."""
    return _build(structure, iter(leaves))


def _build(structure: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(structure, Leaf):
        return next(leaves)
    if isinstance(structure, Static):
        return structure.value
    children = [_build(child, leaves) for child in structure.children]
    if structure.keys is not None:
        kind, pairs = structure.kind, zip((key.value for key in structure.keys), children, strict=True)
        if hasattr(kind, "__dataclass_fields__"):
            return _dataclass(kind, pairs)
        if kind in _VIEWS:
            return _VIEWS[kind](dict(pairs))
        return kind(pairs) if kind is OrderedDict else dict(pairs)
    if hasattr(structure.kind, "_fields"):  # a named tuple takes its fields one by one
        return structure.kind(*children)
    return structure.kind(children)


def _dataclass(kind: type, fields: Iterable[tuple[str, Any]]) -> Any:
    """A dataclass with these fields, which are not checked or computed again."""
    made: Any = object.__new__(kind)
    for name, value in fields:
        object.__setattr__(made, name, value)  # also of a frozen one
    return made


def mapped(function: Any, tree: Any) -> Any:
    """`tree` with `function` of each Tensor in its place."""
    leaves, structure = flatten(tree)
    return unflatten(structure, map(function, leaves))


def refuse_results(structure: Any, who: str) -> None:
    """Raise for results of a traced function that would be those of the trace at each call: iterators, and objects
    with Tensors inside.
    """
    for value in statics(structure):
        if isinstance(value, Iterator):
            kind, mend = "is used up once", "Return list(...) or tuple(...) of it"
        elif _holds_tensor(value):
            kind, mend = "holds Tensors of the trace", "Return the Tensors in a tuple, list, dict or dataclass"
        else:
            continue
        raise TraceError(
            f"{who}: returned a {type(value).__name__}, which {kind}: every call would give the object of the first. "
            f"{mend}."
        )


def _holds_tensor(value: Any, depth: int = 4) -> bool:
    """True if there is a Tensor inside an object: in its attributes, its items, or what a function has captured."""
    if isinstance(value, Tensor):
        return True
    if not depth or isinstance(value, (str, bytes, type, ModuleType)) or hasattr(type(value), "cells_and_names"):
        return False
    inside: list[Any] = []
    if isinstance(value, (tuple, list, set, frozenset, deque)):
        inside += value
    elif isinstance(value, dict):
        inside += value.values()
    elif isinstance(value, FunctionType):
        inside += [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
    elif isinstance(value, (MethodType, BuiltinFunctionType)):
        inside.append(value.__self__)
    elif isinstance(value, partial):
        inside += [*value.args, *value.keywords.values()]
    else:
        for base in type(value).__mro__:  # without a `__getattr__` of the user's
            slots = base.__dict__.get("__slots__", ())
            for name in ([slots] if isinstance(slots, str) else slots) if slots else ("__dict__",):
                with suppress(AttributeError):
                    inside.append(object.__getattribute__(value, name))
    return any(_holds_tensor(x, depth - 1) for x in inside)


def statics(structure: Any) -> list[Any]:
    """The values in a structure that are no Tensors."""
    if isinstance(structure, Static):
        return [structure.value]
    if isinstance(structure, Branch):
        return [value for child in structure.children for value in statics(child)]
    return []


def paths(structure: Any) -> list[str]:
    """The names that a caller would give to the Tensors of (args, kwargs): "argument 1['x']"."""
    args, kwargs = structure.children
    of_args = [path for n, child in enumerate(args.children) for path in _paths(child, f"argument {n}")]
    names = [key.value for key in kwargs.keys or ()]
    return of_args + [path for key, child in zip(names, kwargs.children, strict=True) for path in _paths(child, key)]


def _paths(structure: Any, name: str) -> list[str]:
    if isinstance(structure, Leaf):
        return [name]
    if isinstance(structure, Static):
        return []
    keys = range(len(structure.children)) if structure.keys is None else [key.value for key in structure.keys]
    return [
        path for key, child in zip(keys, structure.children, strict=True) for path in _paths(child, f"{name}[{key!r}]")
    ]
