"""Activation functions, element by element. NaN passes through all of them.

`sigmoid` is in `transcendental`, next to its inverse `logit`, and `softmax` is in `reduce`. At a kink, the derivative
is the derivative on the flat side, for example relu'(0) = 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from snncell.base.arguments.kinds import NotNegative, Numbers, Positive
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.arithmetic import abs, logical_and, maximum, minimum, mul, sign, sub, where
from snncell.ops.base import Grads, as_axis, as_float, as_tensor, elementwise
from snncell.ops.reduce import softmax
from snncell.ops.shape import reshape, split
from snncell.ops.transcendental import erf, exp, expm1, log1p, sigmoid, square, tanh
from snncell.tape.tensor import Tensor

__all__ = [
    "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid",
    "mish", "prelu", "relu", "relu6", "selu", "silu", "softmin", "softplus", "softshrink", "softsign", "tanhshrink",
]  # fmt: skip


# --- Smooth -----------------------------------------------------------------------------------------------------------


def gelu(x: Numbers, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Gaussian error linear unit (GELU): x * Phi(x), with Phi the standard normal distribution function. The
    approximation "tanh" is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    """
    x = as_float(x, "gelu")
    if approximate == "none":
        return mul(x * 0.5, erf(x * math.sqrt(0.5)) + 1.0)
    return mul(x * 0.5, tanh((x + x * square(x) * 0.044715) * math.sqrt(2.0 / math.pi)) + 1.0)


@elementwise("float", bprop=lambda x, _out, dout: (dout * sigmoid(x),))
def _softplus(x: Any) -> Any:
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


def softplus(x: Numbers, beta: Positive = 1.0, threshold: float | None = None) -> Tensor:
    """Softplus: log(1 + exp(beta x)) / beta, without overflow.

    Args:
        beta: sharpness of the bend.
        threshold: return x where beta x exceeds this number. By default the formula is used everywhere. MindSpore and
            PyTorch use 20, where both differ by 2e-9.
    """
    result: Tensor = _softplus(x) if beta == 1.0 else _softplus(mul(x, beta)) / beta
    return result if threshold is None else where(mul(x, beta) > threshold, x, result)


@elementwise("float", bprop=lambda x, _out, dout: (dout * sigmoid(-x),))
def logsigmoid(x: Any) -> Any:
    """Logarithm of the sigmoid: log(1 / (1 + exp(-x))), exact even where the sigmoid underflows."""
    return minimum(x, 0.0) - log1p(exp(-abs(x)))


@elementwise("float")
def silu(x: Any) -> Any:
    """SiLU, also known as swish: x / (1 + exp(-x))."""
    return x * sigmoid(x)


@silu.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    s = sigmoid(x)
    return (dout * (s + out * (1.0 - s)),)


@elementwise("float")
def mish(x: Any) -> Any:
    """Mish: x tanh(log(1 + exp(x))). Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019."""
    return x * tanh(maximum(x, 0.0) + log1p(exp(-abs(x))))


@mish.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    t = tanh(_softplus(x))
    return (dout * (t + x * (1.0 - square(t)) * sigmoid(x)),)


@elementwise("float", bprop=lambda x, _out, dout: (dout / square(abs(x) + 1.0),))
def softsign(x: Any) -> Any:
    """Softsign: x / (1 + |x|)."""
    return x / (1.0 + abs(x))


def tanhshrink(x: Numbers) -> Tensor:
    """Tanh shrinkage: x - tanh(x)."""
    x = as_float(x, "tanhshrink")
    return sub(x, tanh(x))


def softmin(x: Numbers, axis: int = -1) -> Tensor:
    """Softmin: exp(-x) / sum(exp(-x)) along `axis`, without overflow."""
    return softmax(-as_float(x, "softmin"), axis)


def glu(x: Numbers, axis: int = -1) -> Tensor:
    """Gated linear unit: a / (1 + exp(-b)), with a and b the halves of `x` along `axis`, which has an even length.

    Source: Dauphin, Fan, Auli and Grangier, "Language Modeling with Gated Convolutional Networks", ICML 2017.
    """
    tensor = as_float(x, "glu")
    place = as_axis(axis, tensor.ndim, "glu")
    if tensor.shape[place] % 2:
        raise ShapeError(
            f"glu: axis {axis} of a Tensor of shape {tensor.shape} has length {tensor.shape[place]}; it must be even, "
            f"because glu splits it into two halves."
        )
    a, b = split(tensor, [tensor.shape[place] // 2] * 2, place)
    return mul(a, sigmoid(b))


# --- Piecewise linear -------------------------------------------------------------------------------------------------


@elementwise("same", bprop=lambda x, _out, dout: (where(x > 0, dout, 0.0),))
def relu(x: Any) -> Any:
    """Rectified linear unit: x if x > 0, else 0."""
    return where(x <= 0, 0, x)  # not x > 0, so that NaN passes through


@elementwise("same", bprop=lambda x, _out, dout: (where(logical_and(x > 0, x < 6), dout, 0.0),))
def relu6(x: Any) -> Any:
    """ReLU limited to [0, 6]."""
    return where(x <= 0, 0, where(x >= 6, 6, x))


@elementwise("float")
def _leaky_relu(x: Any, alpha: Any) -> Any:
    return where(x <= 0, alpha * x, x)


# The slope at 0 is alpha, as relu's is 0.
@_leaky_relu.def_bprop
def _(x: Tensor, alpha: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: where(x > 0, dout, dout * alpha), lambda: where(x > 0, 0.0, dout * x)


def leaky_relu(x: Numbers, alpha: Numbers = 0.2) -> Tensor:
    """Leaky ReLU: x if x > 0, else alpha * x. `alpha` may be a Tensor and gets a gradient too."""
    return _leaky_relu(x, alpha)


def prelu(x: Numbers, weight: Numbers) -> Tensor:
    """Parametric ReLU: x if x > 0, else weight * x, with one weight or one per channel.

    Args:
        x: any shape, or (N, C, ...) if there are several weights.
        weight: (1,) or (C,). A Tensor gets a gradient.
    Source: He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", ICCV 2015.
    """
    tensor, slopes = as_float(x, "prelu"), as_tensor(weight, "prelu", "weight")
    if slopes.size != 1 and (slopes.ndim != 1 or tensor.ndim < 2 or slopes.shape[0] != tensor.shape[1]):
        raise ShapeError(
            f"prelu: weight has shape {slopes.shape} for x of shape {tensor.shape}; it must be one number, or one for "
            f"each channel (axis 1)."
        )
    shape = () if slopes.size == 1 else (slopes.size, *(1,) * (tensor.ndim - 2))
    return leaky_relu(tensor, reshape(slopes, shape))


@elementwise("same")
def _hardtanh(x: Any, low: Any, high: Any) -> Any:
    return where(x <= low, low, where(x >= high, high, x))


@_hardtanh.def_bprop
def _(x: Tensor, low: Tensor, high: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    inside = logical_and(x > low, x < high)
    return lambda: where(inside, dout, 0.0), lambda: where(x <= low, dout, 0.0), lambda: where(x >= high, dout, 0.0)


def hardtanh(x: Numbers, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Limit `x` to [min_val, max_val], min_val < max_val. The derivative on the bounds is 0; for `clip` it is 1."""
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val={min_val!r} must be below max_val={max_val!r}.")
    return _hardtanh(x, min_val, max_val)


@elementwise("float", bprop=lambda x, _out, dout: (where(abs(x) < 3, dout / 6.0, 0.0),))
def hardsigmoid(x: Any) -> Any:
    """Piecewise linear sigmoid: (x + 3) / 6, limited to [0, 1]."""
    return where(x <= -3, 0, where(x >= 3, 1, x / 6 + 0.5))


@elementwise("float", bprop=lambda x, _out, dout: (where(x <= -3, 0.0, where(x >= 3, dout, dout * (x / 3.0 + 0.5))),))
def hardswish(x: Any) -> Any:
    """Hard swish: x hardsigmoid(x), which is 0 below -3, x above 3, and x (x + 3) / 6 between.

    Source: Howard and others, "Searching for MobileNetV3", ICCV 2019.
    """
    return where(x <= -3, 0, where(x >= 3, x, x * (x / 6 + 0.5)))


@elementwise("float", bprop=lambda x, width, _out, dout: (lambda: where(abs(x) <= width, 0.0, dout), None))
def _hardshrink(x: Any, width: Any) -> Any:
    return where(abs(x) <= width, 0, x)


def hardshrink(x: Numbers, lambd: NotNegative = 0.5) -> Tensor:
    """Hard shrinkage: x if |x| > lambd, else 0."""
    return _hardshrink(x, lambd)


@elementwise("float")
def _softshrink(x: Any, width: Any) -> Any:
    return where(abs(x) <= width, 0, x - width * sign(x))


@_softshrink.def_bprop
def _(x: Tensor, width: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    inside = abs(x) <= width
    return lambda: where(inside, 0.0, dout), lambda: where(inside, 0.0, -dout * sign(x))


def softshrink(x: Numbers, lambd: NotNegative = 0.5) -> Tensor:
    """Soft shrinkage: move x towards 0 by lambd; 0 if |x| <= lambd."""
    return _softshrink(x, lambd)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # they make mean 0 and variance 1 a fixed point

# --- Exponential below 0 ----------------------------------------------------------------------------------------------


@elementwise("float")
def _elu(x: Any, alpha: Any) -> Any:
    return where(x > 0, x, alpha * expm1(minimum(x, 0)))


@_elu.def_bprop
def _(x: Tensor, alpha: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    low = minimum(x, 0.0)
    return lambda: where(x > 0, dout, dout * alpha * exp(low)), lambda: where(x > 0, 0.0, dout * expm1(low))


def elu(x: Numbers, alpha: Numbers = 1.0) -> Tensor:
    """Exponential linear unit: x if x > 0, else alpha (exp(x) - 1). `alpha` may be a Tensor and gets a gradient too.

    Source: Clevert and others, "Fast and Accurate Deep Network Learning by Exponential Linear Units", ICLR 2016.
    """
    return _elu(x, alpha)


def selu(x: Numbers) -> Tensor:
    """Self-normalising activation: 1.0507 elu(x, 1.67326), which drives activations to mean 0 and variance 1.

    Source: Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", NeurIPS 2017.
    """
    return mul(_elu(as_float(x, "selu"), SELU_ALPHA), SELU_SCALE)


def celu(x: Numbers, alpha: float = 1.0) -> Tensor:
    """Continuously differentiable ELU: x if x > 0, else alpha (exp(x / alpha) - 1), alpha != 0, with slope 1 at 0.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0, because x is divided by it.")
    tensor = as_float(x, "celu")
    positive = tensor > 0
    low = where(positive, 0.0, tensor)  # not minimum, which would halve the slope of 1 at 0
    return where(positive, tensor, mul(expm1(low / alpha), alpha))
