"""Activation functions, element by element. relu'(0) = 0, and a NaN passes through all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from snncell.base.arguments.kinds import Numbers, Positive
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_axis, as_float, elementwise
from snncell.ops.elementwise import abs, erf, exp, log1p, maximum, minimum, mul, square, sub, tanh
from snncell.ops.logic import logical_and, where
from snncell.ops.reduce import softmax
from snncell.ops.shape import split
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


def gelu(x: Numbers, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """x * Phi(x), with Phi the normal distribution function.

    Args:
        x: any shape.
        approximate: "none" for the exact function, "tanh" for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    """
    x = as_float(x, "gelu")
    if approximate == "none":
        return mul(x * 0.5, erf(x * math.sqrt(0.5)) + 1.0)
    if approximate != "tanh":
        raise ArgumentError(f'gelu: approximate is "none" or "tanh", not {approximate!r}.')
    return mul(x * 0.5, tanh((x + x * square(x) * 0.044715) * math.sqrt(2.0 / math.pi)) + 1.0)


@elementwise("float")
def _softplus(x: Any) -> Any:
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


@_softplus.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * sigmoid(x),)


def softplus(x: Numbers, beta: Positive = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow.

    Args:
        x: any shape.
        beta: how sharp its bend is.
        threshold: the result is x where beta x is above it; None, the default, for the formula everywhere. MindSpore
            and PyTorch go over to x at 20, where the two differ by 2e-9.
    """
    result: Tensor = _softplus(x) if beta == 1.0 else _softplus(mul(x, beta)) / beta
    return result if threshold is None else where(mul(x, beta) > threshold, x, result)


@elementwise("float")
def logsigmoid(x: Any) -> Any:
    """log(1 / (1 + exp(-x))), exact where the sigmoid underflows."""
    return minimum(x, 0.0) - log1p(exp(-abs(x)))


@logsigmoid.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * sigmoid(-x),)


@elementwise("float")
def silu(x: Any) -> Any:
    """x / (1 + exp(-x)), also known as swish."""
    return x * sigmoid(x)


@silu.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    s = sigmoid(x)
    return (dout * (s + out * (1.0 - s)),)


@elementwise("float")
def mish(x: Any) -> Any:
    """x tanh(log(1 + exp(x))): Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019."""
    return x * tanh(maximum(x, 0.0) + log1p(exp(-abs(x))))


@mish.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    t = tanh(_softplus(x))
    return (dout * (t + x * (1.0 - square(t)) * sigmoid(x)),)


@elementwise("float")
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (1.0 + abs(x))


@softsign.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout / square(abs(x) + 1.0),)


def tanhshrink(x: Numbers) -> Tensor:
    """x - tanh(x)."""
    x = as_float(x, "tanhshrink")
    return sub(x, tanh(x))


def softmin(x: Numbers, axis: int = -1) -> Tensor:
    """exp(-x) / sum(exp(-x)) along `axis`, without overflow."""
    return softmax(-as_float(x, "softmin"), axis)


def glu(x: Numbers, axis: int = -1) -> Tensor:
    """a / (1 + exp(-b)), where a and b are the first and the second half of `x` along `axis`.

    Raises:
        ShapeError: for an axis of odd length.

    Source: Dauphin, Fan, Auli and Grangier, "Language Modeling with Gated Convolutional Networks", ICML 2017.
    """
    tensor = as_float(x, "glu")
    place = as_axis(axis, tensor.ndim, "glu")
    if tensor.shape[place] % 2:
        raise ShapeError(
            f"glu: axis {axis} of a Tensor of shape {tensor.shape} has length {tensor.shape[place]}; it is cut into "
            f"two halves, so it must be even."
        )
    a, b = split(tensor, [tensor.shape[place] // 2] * 2, place)
    return mul(a, sigmoid(b))
