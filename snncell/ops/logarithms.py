"""Exponentials and logarithms to other bases and of sums, and the error function's complement and inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from snncell.base.arguments.kinds import Numbers, Share
from snncell.base.signals import import_once
from snncell.kernels.cuda import special
from snncell.ops.activation import sigmoid
from snncell.ops.arithmetic import isinf
from snncell.ops.base import as_float, elementwise, primitive
from snncell.ops.elementwise import abs, clip, exp, log, log1p, maximum, square
from snncell.ops.logic import equal, logical_and, where
from snncell.tape.primitive import with_axis_of_steps
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]

# --- exponentials and logarithms --------------------------------------------------------------------------------------


@elementwise("float")
def exp2(x: Any) -> Any:
    """2 ** x."""
    return 2.0**x


@exp2.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * out * math.log(2.0),)


@elementwise("float")
def log2(x: Any) -> Any:
    """The logarithm to the base 2."""
    return log(x) / 0.6931471805599453


@elementwise("float")
def log10(x: Any) -> Any:
    """The logarithm to the base 10."""
    return log(x) / 2.302585092994046


@log2.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / (x * math.log(2.0)),)


@log10.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / (x * math.log(10.0)),)


@elementwise("float")
def _logit(x: Any) -> Any:
    return log(x) - log1p(-x)


_logit.name = "logit"


@_logit.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / (x * (1.0 - x)),)


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


# --- the error function's complement and inverse ----------------------------------------------------------------------


def _special(name: str, x: Any) -> Any:
    result = getattr(import_once("scipy.special"), name)(x)  # on first use: importing it takes a tenth of a second
    return result.astype(x.dtype, copy=False)


@primitive
def _erfc(x: Any) -> Any:
    return _special("erfc", x)


@_erfc.def_there
def _(x: Any) -> Any:
    return special.erfc(x)


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
    return special.erfinv(x)


@_erfinv.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * exp(square(out)) * (math.sqrt(math.pi) / 2.0),)


for _op in (_erfc, _erfinv):
    with_axis_of_steps(_op)


def erfinv(x: Numbers) -> Tensor:
    """The inverse of erf on (-1, 1); infinite at its ends, NaN beyond."""
    result: Tensor = _erfinv.bind(as_float(x, "erfinv"))
    return result
