"""Activation functions that are of one form below a point and of another above it, element by element.

Where two forms meet in a kink, the derivative there is that of the flat one, as relu'(0) = 0; a NaN passes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.base.arguments.kinds import NotNegative, Numbers
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.activation import leaky_relu
from snncell.ops.base import as_float, as_tensor, elementwise
from snncell.ops.elementwise import abs, exp, expm1, minimum, mul, sign
from snncell.ops.logic import logical_and, where
from snncell.ops.shape import reshape
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # of a fixed point with mean 0 and variance 1

# --- exponential below 0 ----------------------------------------------------------------------------------------------


@elementwise("float")
def _elu(x: Any, alpha: Any) -> Any:
    return where(x > 0, x, alpha * expm1(minimum(x, 0)))


@_elu.def_bprop
def _(x: Tensor, alpha: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    low = minimum(x, 0.0)
    return lambda: where(x > 0, dout, dout * alpha * exp(low)), lambda: where(x > 0, 0.0, dout * expm1(low))


def elu(x: Numbers, alpha: Numbers = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1); `alpha` may be a Tensor and gets a gradient too.

    Source: Clevert, Unterthiner and Hochreiter, "Fast and Accurate Deep Network Learning by Exponential Linear Units",
    ICLR 2016.
    """
    return _elu(x, alpha)


def selu(x: Numbers) -> Tensor:
    """1.0507 elu(x, 1.67326): activations tend to mean 0 and variance 1.

    Source: Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", NeurIPS 2017.
    """
    return mul(_elu(as_float(x, "selu"), SELU_ALPHA), SELU_SCALE)


def celu(x: Numbers, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x / alpha) - 1), which has slope 1 at 0 for any alpha.

    Raises:
        ArgumentError: for alpha = 0.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha is a number other than 0, by which x is divided.")
    tensor = as_float(x, "celu")
    positive = tensor > 0
    low = where(positive, 0.0, tensor)  # not the minimum, whose gradient at 0 is shared: the slope there is 1
    return where(positive, tensor, mul(expm1(low / alpha), alpha))


# --- straight ---------------------------------------------------------------------------------------------------------


@elementwise("same")
def _hardtanh(x: Any, low: Any, high: Any) -> Any:
    return where(x <= low, low, where(x >= high, high, x))


@_hardtanh.def_bprop
def _(x: Tensor, low: Tensor, high: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    inside = logical_and(x > low, x < high)
    return lambda: where(inside, dout, 0.0), lambda: where(x <= low, dout, 0.0), lambda: where(x >= high, dout, 0.0)


def hardtanh(x: Numbers, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`x` limited to [min_val, max_val]; unlike that of `clip`, the derivative on the bounds is 0.

    Raises:
        ArgumentError: if min_val is not below max_val.
    """
    if not min_val < max_val:
        raise ArgumentError(f"hardtanh: min_val={min_val!r} must be below max_val={max_val!r}.")
    return _hardtanh(x, min_val, max_val)


@elementwise("float")
def hardsigmoid(x: Any) -> Any:
    """(x + 3) / 6, limited to [0, 1]."""
    return where(x <= -3, 0, where(x >= 3, 1, x / 6 + 0.5))


@hardsigmoid.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (where(abs(x) < 3, dout / 6.0, 0.0),)


@elementwise("float")
def hardswish(x: Any) -> Any:
    """x hardsigmoid(x): 0 below -3, x above 3, and x (x + 3) / 6 between.

    Source: Howard and others, "Searching for MobileNetV3", ICCV 2019.
    """
    return where(x <= -3, 0, where(x >= 3, x, x * (x / 6 + 0.5)))


@hardswish.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (where(x <= -3, 0.0, where(x >= 3, dout, dout * (x / 3.0 + 0.5))),)


@elementwise("float")
def _hardshrink(x: Any, width: Any) -> Any:
    return where(abs(x) <= width, 0, x)


@_hardshrink.def_bprop
def _(x: Tensor, width: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: where(abs(x) <= width, 0.0, dout), None


def hardshrink(x: Numbers, lambd: NotNegative = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return _hardshrink(x, lambd)


@elementwise("float")
def _softshrink(x: Any, width: Any) -> Any:
    return where(abs(x) <= width, 0, x - width * sign(x))


@_softshrink.def_bprop
def _(x: Tensor, width: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    inside = abs(x) <= width
    return lambda: where(inside, 0.0, dout), lambda: where(inside, 0.0, -dout * sign(x))


def softshrink(x: Numbers, lambd: NotNegative = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""
    return _softshrink(x, lambd)


# --- with learned slopes ----------------------------------------------------------------------------------------------


def prelu(x: Numbers, weight: Numbers) -> Tensor:
    """x where x > 0, else weight x, with one weight or one for each channel.

    Args:
        x: any shape; with several weights (N, C, ...).
        weight: (1,) or (C,), of numbers or a Tensor, which gets a gradient.

    Raises:
        ShapeError: for another number of weights.

    Source: He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", ICCV 2015.
    """
    tensor, slopes = as_float(x, "prelu"), as_tensor(weight, "prelu", "weight")
    if slopes.size != 1 and (slopes.ndim != 1 or tensor.ndim < 2 or slopes.shape[0] != tensor.shape[1]):
        raise ShapeError(
            f"prelu: weight has shape {slopes.shape} for x of shape {tensor.shape}; it is one number, or one for each "
            f"place on axis 1."
        )
    if slopes.size == 1:
        return leaky_relu(tensor, reshape(slopes, ()))
    return leaky_relu(tensor, reshape(slopes, (slopes.size, *(1,) * (tensor.ndim - 2))))
