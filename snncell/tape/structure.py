"""Nested tuples, lists, dicts and dataclasses of Tensors (pytrees): flatten, rebuild, match, and convert arrays."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import ARRAYS
from snncell.base.arguments.shown import came, show
from snncell.dtype import NUMBERS
from snncell.errors import GradientError, MissingNameError, SnncellError, TraceError, cut
from snncell.tape.tensor import Tensor


class Leaf(NamedTuple):
    """The place of a Tensor in a structure."""


class Static:
    """Any value that is not a Tensor or a container. It differs from equal values of other types (1, True, 1.0)."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        # Compare floats by their text, so that -0.0 differs from 0.0 and NaN equals NaN. Compare frozen dataclasses and
        # sets by their contents, because == may skip fields of a dataclass, and {1} == {True}.
        inside: Any = value
        if isinstance(value, (float, complex, *NUMBERS)):
            inside = repr(value)
        elif isinstance(value, frozenset):
            inside = frozenset(map(Static, value))
        elif hasattr(type(value), "__dataclass_fields__") and not isinstance(value, type):
            fields = [(name, getattr(value, name, None)) for name in type(value).__dataclass_fields__]
            inside = tuple([(name, _as_key(x)) for name, x in fields])
        self.key = (type(value), inside)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _as_key(field: Any) -> Any:
    """A hashable key of a frozen dataclass's field: containers by their contents, unhashable values by identity."""
    key = _walk(field, [])
    try:
        hash(key)
    except TypeError:  # for example an array in a field with compare=False
        return id(field)
    return key


class Branch(NamedTuple):
    """A container: its class, the keys of a dict or the fields of a dataclass, and its items."""

    kind: type
    keys: tuple[Any, ...] | None
    children: tuple[Any, ...]


# Classes of dict views, and the methods that make them.
_VIEWS: dict[Any, Any] = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
LEAF = Leaf()
NOTHING = Static(None)


def flatten(tree: Any) -> tuple[list[Tensor], Any]:
    """The Tensors in `tree`, in order, and the structure that contains them."""
    leaves: list[Tensor] = []  # lists are faster than generators, and every call of a jitted function runs this
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
    if type(tree) in _VIEWS:
        return Branch(type(tree), *_walk(_by_key(tree), leaves)[1:])
    return NOTHING if tree is None else Static(tree)


def _walk_dataclass(tree: Any, leaves: list[Tensor]) -> Any:
    """A Branch for a dataclass that is mutable or contains Tensors, else a Static."""
    fields = _by_key(tree)
    inside: list[Tensor] = []
    children = tuple([_walk(child, inside) for child in fields.values()])
    if not inside and type(tree).__hash__ is not None:
        return Static(tree)
    leaves += inside
    return Branch(type(tree), tuple(map(Static, fields)), children)


def _by_key(tree: Any) -> dict[Any, Any]:
    """The items of a dict, a dict view, or a dataclass, by key or field."""
    if isinstance(tree, dict):
        return tree
    if type(tree) in _VIEWS:
        return dict(tree.mapping)
    names = [name for name in type(tree).__dataclass_fields__ if hasattr(tree, name)]
    return {name: getattr(tree, name) for name in names} | getattr(tree, "__dict__", {})


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    """The inverse of `flatten`; `leaves` replace the Tensors."""
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
            made = object.__new__(kind)  # do not run __init__, which may check or compute fields
            for name, value in pairs:
                object.__setattr__(made, name, value)  # works for frozen dataclasses, too
            return made
        if kind in _VIEWS:
            return _VIEWS[kind](dict(pairs))
        return kind(pairs) if kind is OrderedDict else dict(pairs)
    return _sequence(structure.kind, children)


def _sequence(kind: Any, items: list[Any]) -> Any:
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def map_leaves(function: Any, tree: Any) -> Any:
    """Replace each Tensor in `tree` by `function` of it."""
    leaves, structure = flatten(tree)
    return unflatten(structure, map(function, leaves))


def match_tensors(structure: Any, tree: Any, what: str) -> list[Tensor]:
    """The Tensors of `tree` in the order of a structure: matched by key in a dict, by position in a tuple or list. A
    flat tuple or list with one Tensor for each leaf also matches a structure without dicts. Any other structure is a
    GradientError about `what`, with the position, the expected container and the value.
    """
    flat = isinstance(tree, (tuple, list)) and all(isinstance(x, Tensor) for x in tree)
    return list(tree) if flat and _count_places(structure) == len(tree) else _match(structure, tree, what)


def _count_places(structure: Any) -> int | None:
    """The number of Tensors in a structure; None if it contains a dict, whose order has no meaning."""
    if isinstance(structure, (Leaf, Static)):
        return int(isinstance(structure, Leaf))
    counts = [_count_places(child) for child in structure.children]
    return None if structure.keys is not None or None in counts else sum(n for n in counts if n is not None)


def _match(structure: Any, tree: Any, what: str) -> list[Tensor]:
    if isinstance(structure, Static):
        if flatten(tree)[0]:
            raise GradientError(f"{what} is {came(tree)}, but the output has no Tensor in this position. Leave it out.")
        return []
    if isinstance(structure, Leaf):
        if not isinstance(tree, Tensor):
            raise GradientError(f"{what} is {_outline(tree)}, but belongs to a Tensor. Give a Tensor.")
        return [tree]
    if structure.keys is None:
        if not isinstance(tree, (tuple, list)) or len(tree) != len(structure.children):
            raise GradientError(
                f"{what} is {_outline(tree)}, but belongs to a {structure.kind.__name__} of {len(structure.children)}. "
                f"Give one Tensor, or container of Tensors, for each item."
            )
        pairs = [(f"[{n}]", child, item) for n, (child, item) in enumerate(zip(structure.children, tree, strict=True))]
    else:
        children = {key.value: child for key, child in zip(structure.keys, structure.children, strict=True)}
        needed = {key for key, child in children.items() if not isinstance(child, Static)}
        items = _by_key(tree) if isinstance(tree, (dict, structure.kind)) else {}
        if not needed <= items.keys() <= children.keys():
            raise GradientError(
                f"{what} is {_outline(tree)}, but belongs to a {structure.kind.__name__} with the keys "
                f"{cut(show(list(children)), 60)}. Give a dict with these keys, in any order."
            )
        pairs = [(f"[{key!r}]", child, items.get(key)) for key, child in children.items()]
    return [x for place, child, item in pairs for x in _match(child, item, f"{what}{place}")]


def _outline(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dict with the keys {cut(show(list(tree)), 60)}"
    return f"a {type(tree).__name__} of {len(tree)}" if isinstance(tree, (tuple, list)) else str(came(tree))


def refuse_results(structure: Any, who: str) -> None:
    """Raise a TraceError for results that all calls of a traced function would share, such as an iterator."""
    for value in statics(structure):
        if isinstance(value, Iterator):
            kind, fix = "is used up once", "Return list(...) or tuple(...) of it"
        elif _holds_tensor(value):
            kind, fix = "holds Tensors of the trace", "Return the Tensors in a tuple, list, dict or dataclass"
        else:
            continue
        raise TraceError(
            f"{who}: returned a {type(value).__name__}, which {kind}: every call would return the same object. {fix}."
        )


def _holds_tensor(value: Any, depth: int = 4) -> bool:
    """True if a Tensor is in an object's attributes or items, or in a function's captured variables."""
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
        for base in type(value).__mro__:  # read attributes without calling a user's `__getattr__`
            slots = base.__dict__.get("__slots__", ())
            for name in ([slots] if isinstance(slots, str) else slots) if slots else ("__dict__",):
                with suppress(AttributeError):
                    inside.append(object.__getattribute__(value, name))
    return any(_holds_tensor(x, depth - 1) for x in inside)


_MUTABLE = (array, bytearray, deque, np.ndarray, set)  # results of traced functions that a caller may change


def has_mutable(structure: Any) -> bool:
    """True if a structure contains a value that a caller may change in place."""
    return any(isinstance(value, _MUTABLE) for value in statics(structure))


def with_copies(structure: Any) -> Any:
    """A structure with copies of the values that a caller may change in place."""
    if isinstance(structure, Branch):
        return structure._replace(children=tuple(map(with_copies, structure.children)))
    value = structure.value if isinstance(structure, Static) else None
    return Static(copy(value)) if isinstance(value, _MUTABLE) else structure


def classes_in(structure: Any) -> list[type]:
    """The classes of all containers in a structure, such as dataclasses."""
    if not isinstance(structure, Branch):
        return []
    return [structure.kind, *(kind for child in structure.children for kind in classes_in(child))]


def statics(structure: Any) -> list[Any]:
    """The values in a structure that are not Tensors."""
    if isinstance(structure, Static):
        return [structure.value]
    if isinstance(structure, Branch):
        return [value for child in structure.children for value in statics(child)]
    return []


def paths(structure: Any) -> list[str]:
    """The paths of the Tensors in (args, kwargs), such as "argument 1['x']"."""
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
    pairs = zip(keys, structure.children, strict=True)
    return [path for key, child in pairs for path in _paths(child, f"{name}[{key!r}]")]


# --- converting arrays and numbers to Tensors -------------------------------------------------------------------------

Array = np.ndarray[Any, Any]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, type, np.generic, Tensor)
_NUMBERS = (bool, int, float, complex, np.generic)


def is_array(x: Any) -> bool:
    """True for an array of NumPy or another library; False for a number, a list or a Tensor."""
    if isinstance(x, np.ndarray):
        return True
    return not isinstance(x, _PLAIN) and any(hasattr(type(x), name) for name in ARRAYS)


def with_tensors(tree: Any, numbers: bool = False) -> Any:
    """Convert the arrays in `tree`, a structure of tuples, lists and dicts, to Tensors. With `numbers`, also convert
    numbers and lists of numbers: [[0, 1], [2, 3]] becomes one Tensor, but [Tensor, Tensor] stays a list.
    """
    if numbers and (isinstance(tree, _NUMBERS) or (isinstance(tree, (tuple, list)) and tree and _of_numbers(tree))):
        return Tensor(tree)
    if is_array(tree):
        return Tensor(tree)
    if isinstance(tree, dict):
        return {key: with_tensors(value, numbers) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        numbers = numbers and not hasattr(type(tree), "to_dense")  # the shape of event lists stays a tuple
        return _sequence(type(tree), [with_tensors(item, numbers) for item in tree])
    return tree


def as_data(tree: Any) -> Any:
    """`with_tensors(tree, numbers=True)`."""
    return with_tensors(tree, numbers=True)


def on_host(x: Any) -> Array:
    """The elements of `Tensor(x)` as a NumPy array; a NumPy array is returned unchanged."""
    return x if isinstance(x, np.ndarray) else (x if isinstance(x, Tensor) else Tensor(x)).asnumpy()


def _of_numbers(tree: Any) -> bool:
    if isinstance(tree, (tuple, list)):
        return all(map(_of_numbers, tree))
    return isinstance(tree, _NUMBERS)


class Signal:
    """A symbolic Tensor for exporters: the sum of the outputs of the Cells in `sources` (see `nn/dataflow.py`). You can
    add Signals and pass them to Cells. Any other use raises, because an exporter could not represent it.
    """

    __slots__ = ("sources",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sources: tuple[Any, ...]) -> None:
        self.sources = sources

    def __add__(self, other: Any) -> Signal:
        if isinstance(other, Signal):
            return Signal((*self.sources, *other.sources))
        if type(other) is int and other == 0:  # the start value of `sum`
            return self
        raise SnncellError(f"a signal plus {came(other)}")

    __radd__ = __iadd__ = __add__

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError(f"{name!r} of a signal")

    def _refuse_arithmetic(self, *_: Any) -> Any:
        raise SnncellError("arithmetic other than the sum of signals")

    def _refuse_value(self, *_: Any) -> Any:
        raise SnncellError("a decision that depends on the value or type of a signal")

    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse_arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse_arithmetic
    __neg__ = __pos__ = __abs__ = __getitem__ = __setitem__ = _refuse_arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refuse_arithmetic
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_value
    __bool__ = __len__ = __iter__ = __contains__ = __float__ = __int__ = __index__ = _refuse_value


TENSORS = frozenset([Tensor, Signal])  # types of arguments that need no conversion
