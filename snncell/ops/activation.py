"""Activation functions, element by element. relu'(0) = 0, and a NaN passes through all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from snncell.arguments.vocabulary import Numbers
from snncell.errors import ArgumentError
from snncell.ops.base import as_float, elementwise
from snncell.ops.elementwise import abs, erf, exp, log1p, maximum, mul, square, tanh
from snncell.ops.logic import logical_and, where
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]


@elementwise("float")
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return sigmoid(x)


@sigmoid.def_bprop
def _(_x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    return (dout * out * (1.0 - out),)


@elementwise("same")
def relu(x: Any) -> Any:
    """x where x > 0, else 0."""
    return where(x <= 0, 0, x)  # in this order, a NaN stays


@relu.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (where(x > 0, dout, 0.0),)


@elementwise("same")
def relu6(x: Any) -> Any:
    """x limited to [0, 6]."""
    return where(x <= 0, 0, where(x >= 6, 6, x))


# 0 at both corners, as relu has it at 0.
@relu6.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (where(logical_and(x > 0, x < 6), dout, 0.0),)


@elementwise("float")
def _leaky_relu(x: Any, alpha: Any) -> Any:
    return where(x <= 0, alpha * x, x)


# At 0 the slope is alpha, as relu's is 0.
@_leaky_relu.def_bprop
def _(x: Tensor, alpha: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: where(x > 0, dout, dout * alpha), lambda: where(x > 0, 0.0, dout * x)


def leaky_relu(x: Numbers, alpha: Numbers = 0.2) -> Tensor:
    """x where x > 0, else alpha * x; `alpha` may be a Tensor and gets a gradient too."""
    return _leaky_relu(x, alpha)


def gelu(x: Numbers, approximate: Literal["tanh", "none"] = "tanh") -> Tensor:
    """x * Phi(x), with Phi the normal distribution function.

    Args:
        x: any shape.
        approximate: "tanh" for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), "none" for the exact function.
    """
    x = as_float(x, "gelu")
    if approximate == "none":
        return mul(x * 0.5, erf(x * math.sqrt(0.5)) + 1.0)
    if approximate != "tanh":
        raise ArgumentError(f'gelu: approximate is "tanh" or "none", not {approximate!r}.')
    return mul(x * 0.5, tanh((x + x * square(x) * 0.044715) * math.sqrt(2.0 / math.pi)) + 1.0)


@elementwise("float")
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


@softplus.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * sigmoid(x),)
