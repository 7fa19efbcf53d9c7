"""Constants with a range: what a number must be, how an error says so, and how a learned one is kept there.

The policy, the same for neurons and spike functions: a constant is checked where it is made and wherever it is set; one
that is learned, a Parameter, is brought back into its range by every write to it, an optimiser's step among them (the
projected gradient method). So what is read from it is what is used, in its own units, its gradient is that of the
equations, at the end of the range too, and compiled loops know nothing of it.
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
from snncell.base.arguments.kinds import CONSTANT, Constant, join_with_or
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor

_FINITE = "is a finite number"
_LEAST = 2.0**-20  # of an end: a distance from it that a float32 can tell
_SHARE = 2.0**-10  # of its first distance from an open end: a learned constant comes no nearer


def numbers_of(value: Any) -> np.ndarray[Any, Any]:
    """The numbers of a constant, as float64."""
    with recording_on(None):
        numbers = value.asnumpy() if isinstance(value, Tensor) else value
    try:
        return np.asarray(numbers, np.float64)
    except OverflowError:  # an integer beyond all of them
        return np.full(np.shape(numbers), np.inf)


def unknown(value: Any) -> bool:
    """True if it is a Tensor without values, because it is being traced."""
    return isinstance(value, Tensor) and TRACING.trace is not None


def quote_value(value: Any) -> str:
    """A value for an error: its repr, cut after 200 characters."""
    if isinstance(value, int):
        return show(value)
    text = repr(value.asnumpy().tolist() if isinstance(value, Tensor) and not unknown(value) else value)
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, without the ends unless they are closed; never NaN.

    Attributes:
        low, high: the ends; numbers, or an array, a Tensor or a Parameter that broadcasts to the constant.
        closed: the ends that belong to it: "", "low", "high" or "both".
        text: the words of an error after the constant's name, "is positive"; by default made from the ends.
        whole: whether it must be an int.
    """

    low: Constant = -math.inf
    high: Constant = math.inf
    closed: Literal["", "low", "high", "both"] = ""
    text: str = ""
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """True if all of a value is in the range."""
        numbers, low, high = numbers_of(value), numbers_of(self.low), numbers_of(self.high)
        above = numbers >= low if self.closed in ("low", "both") else numbers > low
        below = numbers <= high if self.closed in ("high", "both") else numbers < high
        return bool(np.all(above & below))

    def check(self, value: Any, who: str, name: str) -> Any:
        """A value as it is, after checking that it is in the range, unless it is traced."""
        if self.whole and (isinstance(value, bool) or not isinstance(value, int)):
            raise ArgumentError(f"{who}: {name} {self.words()}, not {quote_value(value)}.")
        if any(unknown(x) for x in (value, self.low, self.high)) or self.holds(value):
            return value
        text = self.words()
        if self.whole and value > self.high:
            text += f", and at most {self.high}"
        elif "finite" not in text and not np.all(np.isfinite(numbers_of(value))):
            text = _FINITE
        raise ArgumentError(f"{who}: {name} {text}, not {quote_value(value)}.")

    @property
    def bounded(self) -> bool:
        """True if there is any finite end."""
        return _is_finite(self.low) or _is_finite(self.high)

    def words(self) -> str:
        """The words of an error for what a constant must be."""
        low = f" {'from' if self.closed in ('low', 'both') else 'above'} {self.low}" if _is_finite(self.low) else ""
        high = (
            f" {'up to' if self.closed in ('high', 'both') else 'below'} {self.high}" if _is_finite(self.high) else ""
        )
        return self.text or (f"is a number{low}{high}" if low or high else _FINITE)

    def gaps(self, value: Any) -> tuple[Any, Any]:
        """The gaps that a learned constant that begins at `value` keeps to the low and to the high end."""
        if unknown(value) or unknown(self.low) or unknown(self.high):
            return 0.0, 0.0
        ends = (numbers_of(self.low), -1.0, "low"), (numbers_of(self.high), 1.0, "high")
        return tuple(self._gap(numbers_of(value), *end) for end in ends)

    def _gap(self, value: Any, end: Any, sign: float, side: str) -> Any:
        if self.closed in (side, "both") or not np.all(np.isfinite(end)):
            return 0.0
        least = np.max(np.abs(end)) * _LEAST
        return float(np.maximum(np.min((end - value) * sign) * _SHARE, least))

    def project(self, value: Tensor, gaps: tuple[Any, Any]) -> Tensor:
        """The nearest value that is in the range and no nearer to an open end than `gaps`; NaN stays NaN."""
        # An infinite step of an optimiser is brought back too, where the range has no end.
        largest = float(np.finfo(np.float32).max)
        low = _end(self.low, value, gaps[0], ops.max) if _is_finite(self.low) else -largest
        high = _end(self.high, value, -gaps[1], ops.min) if _is_finite(self.high) else largest
        nearest: Tensor = ops.clip(value, low, high)
        return nearest.astype(value.dtype)


def _is_finite(end: Any) -> bool:
    return isinstance(end, Tensor) or bool(np.all(np.isfinite(numbers_of(end))))


def _end(end: Any, value: Tensor, gap: Any, most: Any) -> Any:
    """An end of the range for a learned constant: one for each of its elements, or the tightest of all."""
    if not isinstance(end, Tensor):
        return float(end) + gap
    end = end.astype(value.dtype)
    end = end if end.shape == value.shape or end.size == 1 else most(end)
    return end + ops.maximum(ops.abs(end) * _LEAST, abs(gap)) * (1.0 if gap > 0.0 else -1.0)  # it may have grown


FINITE = Range()
POSITIVE = Range(0.0, text="is positive")
NEGATIVE = Range(high=0.0, text="is negative")
TAU = Range(1.0, text="is a number of steps above 1 (tau seconds are tau / dt steps: nn.steps_from_seconds(tau, dt))")
DECAY = Range(0.0, 1.0, "both", "is what a step keeps, from 0 to 1 (of a time constant: nn.decay_from_tau(tau, dt))")
GATE = Range(0.0, 1.0, text="is the sigmoid of a Parameter, between 0 and 1")
LOGIT = Range(-80.0, 16.0, "both", "is a logit from -80 to 16, whose sigmoid is between 0 and 1 in float32, too")


def check_constant(value: Any, who: str, name: str) -> Any:
    """A constant: a number, a Tensor or a Parameter; an array becomes a Tensor."""
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
    """An option as it is, after checking that it is one of a few."""
    try:
        is_allowed = value in allowed
    except Exception:  # an array, or a traced Tensor: the comparison has no truth value, so it is refused below
        is_allowed = False
    if not is_allowed:
        choices = join_with_or([f'"{word}"' if isinstance(word, str) else repr(word) for word in allowed])
        raise ArgumentError(f"{who}: {name} is {choices}, not {quote_value(value)}.")
    return value


# --- constants that are computed from Parameters ----------------------------------------------------------------------


def _less(subtrahend: Any, minuend: Any) -> Any:
    return minuend - subtrahend


def _over(divisor: Any, dividend: Any) -> Any:
    return dividend / divisor


class Derived:
    """A function of Parameters and numbers that operations evaluate each time it is used.

    Arithmetic with one gives another one, so conversions of time constants take Parameters and numbers:
    `1.0 - decay_from_tau(tau)` is learned as `tau` is. A comparison, which needs a number now, raises an error.

    Args:
        function: a function of the present values of `parts`; of a module, so that it can be pickled.
        parts: Parameters, numbers, and others of these.
        name: the user's name for it, for errors.
    """

    __array_ufunc__ = None  # NumPy's arrays leave arithmetic to it

    def __init__(self, function: Callable[..., Any], *parts: Any, name: str) -> None:
        self.function = function
        self.parts = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in parts)
        self.name = name
        self.domain = FINITE  # of a Parameter itself: the values for which the function makes sense

    @classmethod
    def of(cls, parameter: Parameter, name: str) -> Derived:
        """A Parameter itself."""
        return cls(operator.pos, parameter, name=name)

    @property
    def itself(self) -> Parameter | None:
        """The Parameter, if it is nothing else."""
        (only, *others) = self.parts
        return only if not others and isinstance(only, Parameter) else None

    def value(self) -> Tensor:
        """Its present value, by operations on the Parameters."""
        if self.itself is not None:
            return self.itself
        result: Tensor = self.function(*[part.value() if type(part) is Derived else part for part in self.parts])
        return result

    def sources(self) -> Iterator[Derived]:
        """The Parameters that it is computed from, each as one of these."""
        if self.itself is not None:
            yield self
        for part in self.parts:
            if type(part) is Derived:
                yield from part.sources()

    def staying(self, domain: Range) -> Derived:
        """Itself; if it is a Parameter, that must stay in this range."""
        if self.itself is not None:
            self.domain = domain
        return self

    def through(self, function: Callable[..., Any], *others: Any) -> Derived:
        """A function of it, and of further parts."""
        return Derived(function, self, *others, name=self.name)

    __add__ = __radd__ = partialmethod(through, operator.add)
    __mul__ = __rmul__ = partialmethod(through, operator.mul)
    __sub__, __rsub__ = partialmethod(through, operator.sub), partialmethod(through, _less)
    __truediv__, __rtruediv__ = partialmethod(through, operator.truediv), partialmethod(through, _over)
    __neg__ = partialmethod(through, operator.neg)

    def _refuse(self, *_: Any) -> Never:
        raise ArgumentError(f"{self.name} is a Parameter, but cannot be learned here; give its value.")

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __pow__ = __rpow__ = __array__ = _refuse

    def __repr__(self) -> str:
        return f"<of Parameter {self.name}>"


CONSTANT.types.add(Derived)  # what takes a constant takes it
