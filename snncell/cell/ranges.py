"""Ranges of constants: valid values, error messages, and how learned constants stay valid.

A constant of a neuron or spike function is checked whenever it is set. A learned constant is a Parameter, and every
write to it, for example by an optimiser, is projected into its range (projected gradient method). So the Parameter
always has the value that is in use, in its own units. Its gradient follows the equations even at the ends of the range,
and compiled loops need no extra code.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, Literal, Never

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import CONSTANT, Constant, join_words
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor

_FINITE = "is a finite number"
_LEAST = 2.0**-20  # relative distance from an end of a range that float32 can represent
_SHARE = 2.0**-10  # learned constants keep this share of their initial distance from an open end


def numbers_of(value: Any) -> np.ndarray[Any, Any]:
    """The values of a constant as float64."""
    with recording_on(None):
        numbers = value.asnumpy() if isinstance(value, Tensor) else value
    try:
        return np.asarray(numbers, np.float64)
    except OverflowError:  # an integer larger than any float64
        return np.full(np.shape(numbers), np.inf)


def is_traced(value: Any) -> bool:
    """True for a Tensor without a value, because it is being traced."""
    return isinstance(value, Tensor) and TRACING.trace is not None


def quote_value(value: Any) -> str:
    """The repr of a value for an error, cut after 200 characters."""
    if isinstance(value, int):
        return show(value)
    text = repr(value.asnumpy().tolist() if isinstance(value, Tensor) and not is_traced(value) else value)
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True)
class Range:
    """The interval from `low` to `high`. NaN is never in it.

    Attributes:
        low, high: the ends: numbers, or an array, a Tensor or a Parameter that broadcasts to the constant.
        closed: the ends that belong to the range: "", "low", "high" or "both".
        text: the words after the constant's name in errors, such as "is positive". Default: made from the ends.
        whole: whether the constant must be an int.
    """

    low: Constant = -math.inf
    high: Constant = math.inf
    closed: Literal["", "low", "high", "both"] = ""
    text: str = ""
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """True if all elements of a value are in the range."""
        numbers, low, high = numbers_of(value), numbers_of(self.low), numbers_of(self.high)
        above = numbers >= low if self.closed in ("low", "both") else numbers > low
        below = numbers <= high if self.closed in ("high", "both") else numbers < high
        return bool(np.all(above & below))

    def check(self, value: Any, who: str, name: str) -> Any:
        """Return a value after checking that it is in the range; values that are being traced are not checked."""
        if self.whole and (isinstance(value, bool) or not isinstance(value, int)):
            raise ArgumentError(f"{who}: {name} {self.words()}, not {quote_value(value)}.")
        if any(is_traced(x) for x in (value, self.low, self.high)) or self.holds(value):
            return value
        text = self.words()
        if self.whole and value > self.high:
            text += f", and at most {self.high}"
        elif "finite" not in text and not np.all(np.isfinite(numbers_of(value))):
            text = _FINITE
        raise ArgumentError(f"{who}: {name} {text}, not {quote_value(value)}.")

    @property
    def bounded(self) -> bool:
        """True if an end is finite."""
        return _is_finite(self.low) or _is_finite(self.high)

    def words(self) -> str:
        """The words of an error about a value out of range."""
        low = "from" if self.closed in ("low", "both") else "above"
        high = "up to" if self.closed in ("high", "both") else "below"
        ends = [f" {word} {end}" for word, end in ((low, self.low), (high, self.high)) if _is_finite(end)]
        link = "" if self.closed == "both" else " and"
        return self.text or (f"is a number{link.join(ends)}" if ends else _FINITE)

    def gaps(self, value: Any) -> tuple[Any, Any]:
        """The smallest distances from both ends that a learned constant with the initial value `value` keeps."""
        if is_traced(value) or is_traced(self.low) or is_traced(self.high):
            return 0.0, 0.0
        ends = (numbers_of(self.low), -1.0, "low"), (numbers_of(self.high), 1.0, "high")
        return tuple(self._gap(numbers_of(value), *end) for end in ends)

    def _gap(self, value: Any, end: Any, sign: float, side: str) -> Any:
        if self.closed in (side, "both") or not np.all(np.isfinite(end)):
            return 0.0
        least = np.max(np.abs(end)) * _LEAST
        return float(np.maximum(np.min((end - value) * sign) * _SHARE, least))

    def project(self, value: Tensor, gaps: tuple[Any, Any]) -> Tensor:
        """The nearest value in the range, at least `gaps` away from open ends; NaN stays NaN."""
        # Where the range has no end, use the largest float32, so that inf from a diverging optimiser is projected, too.
        largest = float(np.finfo(np.float32).max)
        low = _end(self.low, value, gaps[0], ops.max) if _is_finite(self.low) else -largest
        high = _end(self.high, value, -gaps[1], ops.min) if _is_finite(self.high) else largest
        nearest: Tensor = ops.clip(value, low, high)
        return nearest.astype(value.dtype)


def _is_finite(end: Any) -> bool:
    return isinstance(end, Tensor) or bool(np.all(np.isfinite(numbers_of(end))))


def _end(end: Any, value: Tensor, gap: Any, most: Any) -> Any:
    """An end of the range for a learned constant: elementwise, or the tightest end if shapes differ."""
    if not isinstance(end, Tensor):
        return float(end) + gap
    end = end.astype(value.dtype)
    end = end if end.shape == value.shape or end.size == 1 else most(end)
    # The end may have grown since `gap` was computed.
    return end + ops.maximum(ops.abs(end) * _LEAST, abs(gap)) * (1.0 if gap > 0.0 else -1.0)


FINITE = Range()
POSITIVE = Range(0.0, text="is positive")
NOT_NEGATIVE = Range(0.0, closed="low", text="is not negative and finite")
NEGATIVE = Range(high=0.0, text="is negative")
TAU = Range(1.0, text="is a number of steps above 1 (for seconds: nn.steps_from_seconds(tau, dt))")
DECAY = Range(0.0, 1.0, "both", "is a number from 0 to 1 (for a time constant: nn.decay_from_tau(tau, dt))")
GATE = Range(0.0, 1.0, text="is the sigmoid of a Parameter, between 0 and 1")
LOGIT = Range(-80.0, 16.0, "both", "is a logit from -80 to 16, whose sigmoid is between 0 and 1 in float32, too")


def check_constant(value: Any, who: str, name: str) -> Any:
    """Check that a constant is a number, a Tensor or a Parameter of real numbers; convert an array to a Tensor."""
    if isinstance(value, (np.ndarray, list, tuple)):
        try:
            array = np.asarray(value)
            value = Tensor(array if array.dtype.kind == "c" or array.dtype == np.float32 else array.astype(np.float64))
        except (SnncellError, TypeError, ValueError, OverflowError):
            raise ArgumentError(f"{who}: {name} is an array of numbers, not {quote_value(value)}.") from None
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, Tensor)):
        raise ArgumentError(f"{who}: {name} is a number, a Tensor or a Parameter, not {quote_value(value)}.")
    if isinstance(value, Tensor) and value.dtype.category not in (1, 2):
        raise ArgumentError(f"{who}: {name} is made of real numbers, not of {value.dtype!r}.")
    if isinstance(value, Tensor) and not value.size:
        raise ArgumentError(f"{who}: {name} is a number, or an array of them, not one of shape {value.shape}.")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ArgumentError(f"{who}: {name} is a finite number, not one of {len(hex(value)) - 2} hexadecimal digits.")
    return value.item() if isinstance(value, (np.integer, np.floating)) else value


def one_of(value: Any, allowed: Sequence[Any], who: str, name: str) -> Any:
    """Check that an option is one of the allowed values, and return it."""
    try:
        is_allowed = value in allowed
    except Exception:  # an array or a traced Tensor, because its comparison has no truth value
        is_allowed = False
    if not is_allowed:
        choices = join_words([f'"{word}"' if isinstance(word, str) else repr(word) for word in allowed])
        raise ArgumentError(f"{who}: {name} is {choices}, not {quote_value(value)}.")
    return value


def _less(subtrahend: Any, minuend: Any) -> Any:
    return minuend - subtrahend


def _over(divisor: Any, dividend: Any) -> Any:
    return dividend / divisor


class Derived:
    """A constant computed from Parameters, `function(*parts)`; operations evaluate it at each use. Arithmetic with a
    Derived gives another Derived, so you can pass Parameters to conversions of time constants. For example, `1.0 -
    decay_from_tau(tau)` is learned if `tau` is a Parameter. A comparison raises an error, because it would need the
    value now. Parts are Parameters, numbers and Derived constants. The function must be defined in a module, so that it
    can be pickled. Error messages contain `name`, the user's name for the constant.
    """

    __array_ufunc__ = None  # so that NumPy arrays leave arithmetic to this class

    def __init__(self, function: Callable[..., Any], *parts: Any, name: str) -> None:
        self.function = function
        self.parts = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in parts)
        self.name = name
        self.domain = FINITE  # the valid values of a plain Parameter in the function that uses it

    @classmethod
    def of(cls, parameter: Parameter, name: str) -> Derived:
        """Wrap a Parameter."""
        return cls(operator.pos, parameter, name=name)

    @property
    def parameter(self) -> Parameter | None:
        """The Parameter, if this is a plain Parameter, else None."""
        (only, *others) = self.parts
        return only if not others and isinstance(only, Parameter) else None

    def value(self) -> Tensor:
        """The present value, computed by operations on the Parameters."""
        if self.parameter is not None:
            return self.parameter
        result: Tensor = self.function(*[part.value() if type(part) is Derived else part for part in self.parts])
        return result

    def sources(self) -> Iterator[Derived]:
        """The Parameters that it is computed from, each as a Derived."""
        if self.parameter is not None:
            yield self
        for part in self.parts:
            if type(part) is Derived:
                yield from part.sources()

    def restrict(self, domain: Range) -> Derived:
        """Restrict a plain Parameter to a range. Returns self."""
        if self.parameter is not None:
            self.domain = domain
        return self

    def apply(self, function: Callable[..., Any], *others: Any) -> Derived:
        """Apply a function to this and to further parts."""
        return Derived(function, self, *others, name=self.name)

    __add__ = __radd__ = partialmethod(apply, operator.add)
    __mul__ = __rmul__ = partialmethod(apply, operator.mul)
    __sub__, __rsub__ = partialmethod(apply, operator.sub), partialmethod(apply, _less)
    __truediv__, __rtruediv__ = partialmethod(apply, operator.truediv), partialmethod(apply, _over)
    __neg__ = partialmethod(apply, operator.neg)

    def _refuse(self, *_: Any) -> Never:
        raise ArgumentError(f"{self.name} is a Parameter, but cannot be learned here; pass a number.")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __pow__ = __rpow__ = __array__ = _refuse

    def __repr__(self) -> str:
        return f"<of Parameter {self.name}>"


CONSTANT.types.add(Derived)  # arguments annotated as Constant accept it
