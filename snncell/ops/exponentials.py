"""Powers, roots, exponentials, logarithms, the sigmoid and the error function: each formula, then its bprop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers, Share
from snncell.base.signals import import_once
from snncell.kernels.cuda import functions
from snncell.ops.arithmetic import abs, clip, conj, div, maximum
from snncell.ops.base import as_float, astype, elementwise, number_or_tensor, primitive
from snncell.ops.logic import equal, greater, isinf, logical_and, where
from snncell.tape.primitive import with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "float_power", "log", "log1p", "log2", "log10", "logaddexp",
    "logit", "pow", "rsqrt", "sigmoid", "sqrt", "square",
]  # fmt: skip

Grads = Sequence[Any]

# --- powers and roots -------------------------------------------------------------------------------------------------


@elementwise("same", complex_numbers=True, bprop=lambda x, _out, dout: (dout * conj(x) * 2,))
def square(x: Any) -> Any:
    """x * x."""
    return x * x


@elementwise("same", integer_loops=False)
def power(x: Any, y: Any) -> Any:
    """x ** y."""
    return x**y


@power.def_bprop
def _(x: Any, y: Any, out: Tensor, dout: Tensor) -> Grads:
    if type(y) in (int, float) and y == 0:
        return None, None  # constant, to every order
    if not isinstance(x, Tensor):
        return None, (lambda: dout * out * math.log(x)) if x > 0 else None
    positive = greater(x, 0)
    # x ** (y - 1) rather than out / x, which is 0 / 0 at x = 0; where y is 0 it is constant, and 0 * x ** -1 NaN at 0.
    # Of x <= 0 the result may be infinite or NaN, and 0 times that is NaN.
    return (
        lambda: dout * where(equal(y, 0), 0.0, y * pow(x, y - 1)),
        lambda: dout * where(positive, out, 0.0) * log(where(positive, x, 1.0)),
    )


def pow(x: Numbers, y: Numbers) -> Tensor:
    """x ** y. Small whole exponents, 0.5 and -1 are products, a root and a quotient instead of a call of pow.

    Note:
        The gradient with respect to y is that of x ** y = exp(y log x) for x > 0, and 0 for x <= 0.
    """
    if type(y) in (int, float) and isinstance(x, Tensor):
        if y == 1:
            return snapshot(x)
        if y == 2:
            return square(x)
        if y == 3:
            return x * square(x)
        if y == 0.5:
            return sqrt(x)
        if y == -1:
            return div(1, x)
        if y < 0 and not x.dtype.is_float:
            x = as_float(x, "pow")  # an integer to a negative power is a fraction
    return power(x, y)


def float_power(x: Numbers, exponent: Numbers) -> Tensor:
    """x ** exponent, computed and given in float64."""
    return pow(_double(x, "x"), _double(exponent, "exponent"))


def _double(x: Any, argument: str) -> Any:
    given = number_or_tensor(x, "float_power", argument)
    return astype(given, dtypes.float64)


# Infinite at 0, as the derivative is; `root` has a finite gradient there.
@elementwise("float", bprop=lambda _x, out, dout: (dout * 0.5 / out,))
def sqrt(x: Any) -> Any:
    """The square root."""
    return sqrt(x)


@elementwise("float")
def root(x: Any) -> Any:
    """The square root of a sum of squares: where they are all 0, its gradient is 0, as that of abs is."""
    return sqrt(x)


# Both branches of a where are computed: the inner one divides by 1 where the outer one takes 0.
@root.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (where(equal(out, 0.0), 0.0, dout * 0.5 / where(equal(out, 0.0), 1.0, out)),)


@elementwise("float", bprop=lambda x, out, dout: (dout * -0.5 * out / x,))
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


# --- exponentials -----------------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda _x, out, dout: (dout * out,))
def exp(x: Any) -> Any:
    """e ** x."""
    return exp(x)


# the peak is a constant to its callers
@elementwise("float", bprop=lambda _x, _peak, out, dout: (dout * out, None))
def exp_below(x: Any, peak: Any) -> Any:
    """exp(x - peak), and 1 where x is the peak, of which the infinite ones have no difference."""
    return where(x == peak, 1.0, exp(x - peak))


# e ** x from the output, to the rounding of 1: far below 0 it is 0.
@elementwise("float", bprop=lambda _x, out, dout: (dout * (out + 1.0),))
def expm1(x: Any) -> Any:
    """e ** x - 1, exact near 0."""
    return expm1(x)


@elementwise("float", bprop=lambda _x, out, dout: (dout * out * math.log(2.0),))
def exp2(x: Any) -> Any:
    """2 ** x."""
    return 2.0**x


@elementwise("float", bprop=lambda _x, out, dout: (dout * out * (1.0 - out),))
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return sigmoid(x)


# --- logarithms -------------------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda x, _out, dout: (dout / x,))
def log(x: Any) -> Any:
    """The natural logarithm."""
    return log(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x + 1.0),))
def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return log1p(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x * math.log(2.0)),))
def log2(x: Any) -> Any:
    """The logarithm to the base 2."""
    return log(x) / 0.6931471805599453


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x * math.log(10.0)),))
def log10(x: Any) -> Any:
    """The logarithm to the base 10."""
    return log(x) / 2.302585092994046


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x * (1.0 - x)),))
def _logit(x: Any) -> Any:
    return log(x) - log1p(-x)


_logit.name = "logit"


def logit(x: Numbers, eps: Share | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`.

    Args:
        x: numbers in (0, 1).
        eps: if it is given, x is brought into [eps, 1 - eps] first.
    """
    tensor = as_float(x, "logit")
    if eps is not None:
        tensor = clip(tensor, eps, 1.0 - eps)
    result: Tensor = _logit(tensor)
    return result


def logaddexp(x: Numbers, y: Numbers) -> Tensor:
    """log(exp(x) + exp(y)), without overflow; equal infinities share the gradient evenly."""
    result: Tensor = log_join(x, y, 0.5)
    return result


@elementwise("float")
def log_join(x: Any, y: Any, share: Any) -> Any:
    """log(exp(x) + exp(y)); if both are the same infinity, x gets `share` of the gradient."""
    return where(x == y, x + 0.6931471805599453, maximum(x, y) + log1p(exp(-abs(x - y))))


log_join.name = "logaddexp"


@log_join.def_bprop
def _(x: Tensor, y: Tensor, share: Any, _out: Tensor, dout: Tensor) -> Grads:
    # Only of equal infinities the difference is no number; elsewhere it stays, for the derivatives of higher orders.
    tied = logical_and(equal(x, y), isinf(x))
    own = where(tied, share, sigmoid(where(tied, 0.0, x - y)))
    return lambda: dout * own, lambda: dout * (1.0 - own), None


# --- the error function, its complement and inverse -------------------------------------------------------------------


@elementwise("float", bprop=lambda x, _out, dout: (dout * exp(-square(x)) * (2.0 / math.sqrt(math.pi)),))
def erf(x: Any) -> Any:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    return erf(x)


def _special(name: str, x: Any) -> Any:
    result = getattr(import_once("scipy.special"), name)(x)  # on first use: importing it takes a tenth of a second
    return result.astype(x.dtype, copy=False)


@primitive
def _erfc(x: Any) -> Any:
    return _special("erfc", x)


@_erfc.def_there
def _(x: Any) -> Any:
    return functions.erfc(x)


@_erfc.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * exp(-square(x)) * (-2.0 / math.sqrt(math.pi)),)


def erfc(x: Numbers) -> Tensor:
    """1 - erf(x), exact where erf is close to 1."""
    result: Tensor = _erfc.bind(as_float(x, "erfc"))
    return result


@primitive
def _erfinv(x: Any) -> Any:
    return _special("erfinv", x)


@_erfinv.def_there
def _(x: Any) -> Any:
    return functions.erfinv(x)


@_erfinv.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * exp(square(out)) * (math.sqrt(math.pi) / 2.0),)


for _op in (_erfc, _erfinv):
    with_axis_of_steps(_op)


def erfinv(x: Numbers) -> Tensor:
    """The inverse of erf on (-1, 1); infinite at its ends, NaN beyond."""
    result: Tensor = _erfinv.bind(as_float(x, "erfinv"))
    return result
