"""Kinds of arguments: for each annotation, the valid values, and their description in errors.

`float` is a finite number, `int` a 64-bit integer, and neither accepts a bool; NumPy numbers become Python numbers. For
example, `Annotated[int, Within(1)]` is an integer of at least 1. `Any` accepts anything.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.shown import show, suggest_instance
from snncell.dtype import NUMBERS
from snncell.errors import ArgumentError, DTypeError

LARGEST = 2**63  # integers must be smaller
MOST = 2**31 - 1  # the largest count of steps, channels or neurons

REFUSED, UNFIT = object(), object()  # results of `take` for a wrong type, and for an invalid value


class Kind:
    """The valid values of an argument, described by `words` in errors. `take` converts a value for the callable, or
    returns REFUSED or UNFIT. Values of `types` are always valid. If only the type decides (`by_type`), the type of each
    value that `take` accepts is added to `types`.
    """

    __slots__ = ("by_type", "take", "types", "words")

    def __init__(self, words: str, take: Callable[[Any], Any], types: set[type], by_type: bool = False) -> None:
        self.words, self.take, self.types, self.by_type = words, take, types, by_type


class Within(NamedTuple):
    """Bounds of a number, for `Annotated`; `open_low` and `open_high` exclude the bounds themselves."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def holds(self, value: float) -> bool:
        """True if a number is within the bounds."""
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    def text(self) -> str:
        """The words for the bounds, after those for the number."""
        if self.high == math.inf or self.high == MOST:
            return f" above {self.low:g}" if self.open_low else f" of at least {self.low:g}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f" in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)  # named tuples without a field would be equal
class Endless:
    """For `Annotated[float, Endless()]`: infinity is valid, too."""


@dataclass(frozen=True)
class Own:
    """For `Annotated[Parameter, Own()]`: the callable checks this argument itself, with more helpful errors."""


Count = Annotated[int, Within(1, MOST)]
Size = Annotated[int, Within(0, MOST)]
AtLeastOne = Annotated[int, Within(1)]  # also sys.maxsize, for everything
Positive = Annotated[float, Within(0.0, open_low=True)]
NotNegative = Annotated[float, Within(0.0)]
Probability = Annotated[float, Within(0.0, 1.0)]
ExtendedReal = Annotated[float, Endless()]


def anything() -> Kind:
    """The kind that accepts any value."""
    return Kind("anything", lambda value: value, set(), True)


def kind_of(annotation: Any) -> Kind:
    """The kind for a resolved annotation."""
    if annotation is Any or isinstance(annotation, (str, typing.TypeVar)):
        return anything()
    if annotation is None or annotation is type(None):
        return Kind("None", lambda value: value if value is None else REFUSED, {type(None)})
    if annotation in _PLAIN:
        words, take, at_once = _PLAIN[annotation]
        return Kind(words, take, set(at_once))
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _kind_of_annotation(inside[0], inside[1:])
    if origin is Literal:
        return _one_of(inside)
    if origin in (typing.Union, types.UnionType):
        return _union([kind_of(one) for one in inside])
    if origin is tuple:
        return _tuple(inside)
    if origin in _SEVERAL:
        return _several(origin, kind_of(inside[0]) if inside else anything())
    if origin in (dict, abc.Mapping):
        return _instance(abc.Mapping, "a dict")
    if origin is abc.Callable or annotation is abc.Callable:
        # Refuse classes, because calling one would create an object from the data.
        return Kind("a function", lambda x: x if callable(x) and not isinstance(x, type) else REFUSED, set())
    kind = origin if isinstance(origin, type) else annotation
    if not isinstance(kind, type):
        return anything()
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return _instance(kind, f"{article} {kind.__name__}{getattr(kind, '_example', '')}")


# --- numbers ----------------------------------------------------------------------------------------------------------


def _int(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return REFUSED
    return (value if isinstance(value, int) else int(value)) if -LARGEST <= value < LARGEST else UNFIT


def _number(value: Any) -> Any:
    """A Python number, which may be NaN or infinite, or REFUSED."""
    if isinstance(value, (bool, np.bool_, complex, np.complexfloating)):
        return REFUSED
    if isinstance(value, (int, float)):
        return value
    return value.item() if isinstance(value, NUMBERS) else REFUSED


def _float(value: Any) -> Any:
    number = _number(value)
    return number if number is REFUSED or abs(number) <= sys.float_info.max else UNFIT


def _endless(value: Any) -> Any:
    number = _number(value)
    return number if number is REFUSED or number in (math.inf, -math.inf) else _float(number)


_PLAIN: dict[Any, tuple[str, Callable[[Any], Any], set[type]]] = {
    bool: ("True or False", lambda value: bool(value) if isinstance(value, (bool, np.bool_)) else REFUSED, {bool}),
    int: ("an integer", _int, set()),
    float: ("a finite number", _float, set()),
    str: ("a str", lambda value: value if isinstance(value, str) else REFUSED, {str}),
}


def _kind_of_annotation(annotation: Any, marks: tuple[Any, ...]) -> Kind:
    kind = kind_of(annotation)
    words, take = kind.words, kind.take
    if any(isinstance(mark, Own) for mark in marks):
        return anything()
    if any(isinstance(mark, Endless) for mark in marks):
        words, take = "a number", _endless
    bounds = next((mark for mark in marks if isinstance(mark, Within)), None)
    if bounds is None:
        own = next((mark for mark in marks if isinstance(mark, Kind)), None)
        return own or Kind(words, take, kind.types, kind.by_type)

    def bounded(value: Any) -> Any:
        taken = take(value)
        return taken if taken is REFUSED or taken is UNFIT or bounds.holds(taken) else UNFIT

    return Kind(words + bounds.text(), bounded, set())


def join_words(words: Sequence[str], last: str = "or") -> str:
    """Join words as "a, b or c"."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _one_of(values: tuple[Any, ...]) -> Kind:
    words = [f'"{value}"' if isinstance(value, str) else repr(value) for value in values]

    def take(value: Any) -> Any:
        if not any(type(value) is type(one) for one in values):
            return REFUSED
        return value if value in values else UNFIT

    return Kind(join_words(words), take, set())


def _union(kinds: list[Kind]) -> Kind:
    def take(value: Any) -> Any:
        answer = REFUSED
        for kind in kinds:
            taken = kind.take(value)
            if taken is not REFUSED and taken is not UNFIT:
                return taken
            answer = UNFIT if UNFIT in (answer, taken) else REFUSED
        return answer

    at_once = set().union(*(kind.types for kind in kinds))
    return Kind(join_words([kind.words for kind in kinds]), take, at_once, all(kind.by_type for kind in kinds))


def _items(value: Any, kinds: abc.Iterable[Kind], make: Callable[[list[Any]], Any]) -> Any:
    """Check the items; returns the container itself if no item changes."""
    taken = [kind.take(item) for kind, item in zip(kinds, value, strict=False)]
    if any(one is REFUSED or one is UNFIT for one in taken):
        return REFUSED if any(one is REFUSED for one in taken) else UNFIT
    return value if all(a is b for a, b in zip(taken, value, strict=True)) else make(taken)


def _tuple(inside: tuple[Any, ...]) -> Kind:
    if len(inside) == 2 and inside[1] is ...:
        return _several(abc.Sequence, kind_of(inside[0]))
    kinds = [kind_of(one) for one in inside]

    def take(value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            return REFUSED
        return _items(value, kinds, tuple) if len(value) == len(kinds) else UNFIT

    return Kind(f"({', '.join(kind.words for kind in kinds)})", take, set())


_SEVERAL = (list, abc.Sequence, abc.Iterable, abc.Collection)


def _several(origin: Any, item: Kind) -> Kind:
    """A list, tuple or NumPy array of one kind; for an Iterable, any iterable."""
    once = origin is abc.Iterable

    def take(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if isinstance(value, range) or (once and isinstance(value, abc.Iterator)):
            value = list(value)
        if isinstance(value, (list, tuple)):
            return _items(value, [item] * len(value), type(value) if type(value) in (list, tuple) else tuple)
        passable = isinstance(value, abc.Iterable) and not isinstance(value, (str, bytes, abc.Mapping, abc.Set))
        return value if once and passable and not hasattr(value, "shape") else REFUSED

    return Kind(f"a list{_in_plural(item.words)}", take, set())


def _in_plural(words: str) -> str:
    """Turn "an integer of at least 1" into " of integers of at least 1", and "anything" into ""."""
    if words.startswith("anything"):
        return ""
    if " or " in words:
        return f" of which each element is {words}"
    article, _, rest = words.partition(" ")
    if article not in ("a", "an"):
        return f", of {words} each"
    end = next((mark for mark in (" of ", " above ", " in ") if mark in rest), None)
    head, mark, tail = rest.partition(end) if end else (rest, "", "")
    return f" of {head}s{mark}{tail}"


def _instance(kind: type, words: str) -> Kind:
    return Kind(words, lambda value: value if isinstance(value, kind) else REFUSED, set(), True)


def refusal(who: str, name: str, kind: Kind, value: Any, default: Any) -> str:
    """The error message for an invalid value."""
    words, hint = kind.words, ""
    if type(default) in (int, float, str, bool):
        hint = f"; leave it out for {default!r}"
    elif default is None:
        words, hint = without_none(words), "; omit it for None"
    return f"{who}: {name} is {words}, not {show(value)}{suggest_instance(value) or hint}."


def without_none(words: str) -> str:
    """Turn "a, b or None" into "a or b"."""
    if not words.endswith(" or None"):
        return words
    rest = words.removesuffix(" or None")
    open_brackets = [sum(map(rest[:i].count, "[(")) - sum(map(rest[:i].count, "])")) for i in range(len(rest))]
    commas = [i for i, depth in enumerate(open_brackets) if not depth and rest.startswith(", ", i)]
    return f"{rest[: commas[-1]]} or {rest[commas[-1] + 2 :].removeprefix('or ')}" if commas else rest


# --- dtypes, data, initial values, lengths along axes -----------------------------------------------------------------

_NUMERIC = "biufc"
ON_HOST = ("__dlpack__", "__array__", "__array_interface__")  # protocols of other libraries' arrays
ARRAYS = (*ON_HOST, "__cuda_array_interface__")  # protocols of arrays on any device
_DTYPES = ", ".join(one.name for one in dtypes.ALL)
_NAMES: set[str] = set()  # valid names of dtypes that have been used
_GIVEN: set[type] = {bool, float, complex}  # valid types of data; array types are added when they are first met


def _dtype(value: Any) -> Any:
    """A dtype unchanged; refuses None and other values that NumPy would treat as float64."""
    if type(value) is str and value in _NAMES:
        return value
    plain = isinstance(value, (str, np.dtype, dtypes.DType)) or (isinstance(value, type) and value is not type(None))
    try:
        if not plain or not dtypes.as_dtype(value):
            return REFUSED
    except DTypeError:
        return REFUSED
    if type(value) is str:
        _NAMES.add(value)
    return value


def _float_dtype(value: Any) -> Any:
    taken = _dtype(value)
    return taken if taken is REFUSED or dtypes.as_dtype(taken).category == 2 else UNFIT


def _numbers(value: Any) -> Any:
    """Data unchanged: numbers, arrays of numbers, objects that export an array, and lists of these."""
    if isinstance(value, (bool, float, complex, *dtypes.NUMBERS)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else UNFIT
    if isinstance(value, (list, tuple)):
        taken = map(_numbers, value)
        return REFUSED if any(one is REFUSED or one is UNFIT for one in taken) else value
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in _NUMERIC or value.dtype in dtypes.BY_NUMPY else REFUSED
    if isinstance(value, type) or not any(hasattr(value, protocol) for protocol in ARRAYS):
        return REFUSED
    _GIVEN.add(type(value))
    return value


def _constant(value: Any) -> Any:
    """A real number, or an array or Tensor of real numbers; a list becomes an array."""
    if isinstance(value, (bool, complex, str, bytes)):
        return REFUSED
    if isinstance(value, int):
        return value if abs(value) <= sys.float_info.max else UNFIT
    if isinstance(value, dtypes.NUMBERS):
        value = value.item()
        return REFUSED if isinstance(value, (bool, complex)) else value
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:  # ragged
            return REFUSED
    dtype = getattr(value, "dtype", None)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iuf":
        dtype = dtypes.BY_NUMPY.get(value.dtype)  # bfloat16 has a separate kind
    real = isinstance(dtype, np.dtype) or getattr(dtype, "category", None) in (1, 2)
    return REFUSED if not real else value if value.size else UNFIT


CONSTANT = Kind("a number, a Tensor, a Parameter, or an array of numbers", _constant, {float})
Constant = Annotated[Any, CONSTANT]
Dtype = Annotated[Any, Kind(f"a dtype ({_DTYPES})", _dtype, {dtypes.DType})]
FloatDtype = Annotated[Any, Kind("a dtype of floats, such as snncell.float32", _float_dtype, set())]
Numbers = Annotated[Any, Kind("a Tensor, an array, or numbers", _numbers, _GIVEN)]
Share = Annotated[float, Within(0.0, 1.0, open_high=True)]
Lengths = int | Sequence[int]
Path = str | os.PathLike[str]
PadMode = Literal["same", "valid", "pad"]
Reduction = Literal["mean", "sum", "none"]


def misfit(function: Callable[..., Any], takes: Sequence[Any]) -> str:
    """The reason why a function cannot take these arguments; "" if it can, or has no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a C function
        return ""
    try:
        signature.bind(*takes)
    except TypeError as error:
        return str(error)
    return ""


def check_interval(value: Any, low: float, high: float, who: str, name: str) -> float:
    """Check a number in [low, high), and convert it to float."""
    value = value.item() if isinstance(value, np.number) else value
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high
    if not fits or abs(value) > sys.float_info.max:  # a larger int cannot become a float
        raise ArgumentError(f"{who}: {name} is a number in [{low}, {high}), not {show(value)}.")
    return float(value)
