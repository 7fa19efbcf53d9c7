"""Angles, trigonometric and hyperbolic functions: each formula, then its bprop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.base.arguments.kinds import Numbers
from snncell.ops.arithmetic import abs, maximum, minimum, mul, sign
from snncell.ops.base import as_float, elementwise
from snncell.ops.exponentials import exp, expm1, log, log1p, rsqrt, sqrt, square
from snncell.ops.logic import equal, where
from snncell.tape.tensor import Tensor

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan",
    "atan2", "atanh", "cos", "cosh", "deg2rad", "hypot", "rad2deg", "sin", "sinh", "tan", "tanh",
]  # fmt: skip

Grads = Sequence[Any]

# --- angles -----------------------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda x, _out, dout: (dout * cos(x),))
def sin(x: Any) -> Any:
    """The sine of an angle in radians."""
    return sin(x)


@elementwise("float", bprop=lambda x, _out, dout: (-dout * sin(x),))
def cos(x: Any) -> Any:
    """The cosine of an angle in radians."""
    return cos(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (square(x) + 1.0),))
def atan(x: Any) -> Any:
    """The arc tangent in radians."""
    return atan(x)


@elementwise("float", bprop=lambda _x, out, dout: (dout * (square(out) + 1.0),))
def tan(x: Any) -> Any:
    """The tangent of an angle in radians."""
    return sin(x) / cos(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout * rsqrt((1.0 - x) * (x + 1.0)),))
def asin(x: Any) -> Any:
    """The arc sine in radians, in [-pi/2, pi/2]; NaN outside of [-1, 1]."""
    return atan(x / sqrt((1.0 - x) * (1.0 + x)))


@elementwise("float", bprop=lambda x, _out, dout: (-dout * rsqrt((1.0 - x) * (x + 1.0)),))
def acos(x: Any) -> Any:
    """The arc cosine in radians, in [0, pi]; NaN outside of [-1, 1]."""
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))


# The quotient of the smaller by the larger does not overflow; from there on to the right part of the circle. Of equal
# lengths, infinite ones too, the angle is known. Left of the origin -0.0 is below the cut.
@elementwise("float")
def atan2(y: Any, x: Any) -> Any:
    """The angle in radians of the point (x, y), in [-pi, pi]; at the origin 0, and so is the gradient."""
    return where(
        abs(x) >= abs(y),
        where(
            x < 0.0,
            where(
                (y < 0.0) | (1.0 / y < 0.0),
                where(x == y, -2.356194490192345, atan(y / x) - 3.141592653589793),
                where(x == -y, 2.356194490192345, atan(y / x) + 3.141592653589793),
            ),
            where(
                y == 0.0,
                y,
                where(x == y, 0.7853981633974483, where(x == -y, -0.7853981633974483, atan(y / x))),
            ),
        ),
        where(y < 0.0, -1.5707963267948966 - atan(x / y), 1.5707963267948966 - atan(x / y)),
    )


@atan2.def_bprop
def _(y: Tensor, x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    longest = maximum(abs(x), abs(y))  # x^2 + y^2 would overflow
    scale = where(equal(longest, 0.0), 1.0, longest)
    across, along = y / scale, x / scale
    share = dout / (scale * where(equal(longest, 0.0), 1.0, square(along) + square(across)))
    return lambda: share * along, lambda: -share * across


# What is its own half is 0 or infinite.
@elementwise("float")
def hypot(x: Any, y: Any) -> Any:
    """The length of the vector (x, y), sqrt(x^2 + y^2), without overflow; its gradient at (0, 0) is 0."""
    return where(
        (minimum(abs(x), abs(y)) == 0.0) | (0.5 * maximum(abs(x), abs(y)) == maximum(abs(x), abs(y))),
        maximum(abs(x), abs(y)),
        maximum(abs(x), abs(y)) * sqrt(1.0 + (minimum(abs(x), abs(y)) / maximum(abs(x), abs(y))) ** 2),
    )


@hypot.def_bprop
def _(x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> Grads:
    length = where(equal(out, 0.0), 1.0, out)
    return lambda: dout * (x / length), lambda: dout * (y / length)


def deg2rad(x: Numbers) -> Tensor:
    """Degrees as radians: x pi / 180."""
    return mul(as_float(x, "deg2rad"), 0.017453292519943295)


def rad2deg(x: Numbers) -> Tensor:
    """Radians as degrees: x 180 / pi."""
    return mul(as_float(x, "rad2deg"), 57.29577951308232)


# --- hyperbolic functions ---------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda _x, out, dout: (dout * (1.0 - square(out)),))
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return tanh(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout * cosh(x),))
def sinh(x: Any) -> Any:
    """The hyperbolic sine, (e^x - e^-x) / 2, exact near 0."""
    return 0.5 * (expm1(x) - expm1(-x))


@elementwise("float", bprop=lambda x, _out, dout: (dout * sinh(x),))
def cosh(x: Any) -> Any:
    """The hyperbolic cosine, (e^x + e^-x) / 2."""
    return 0.5 * (exp(x) + exp(-x))


# From 10^9 on x^2 + 1 is x^2, and would overflow further on.
@elementwise("float", bprop=lambda x, _out, dout: (dout / hypot(x, 1.0),))
def asinh(x: Any) -> Any:
    """The inverse of sinh, log(x + sqrt(x^2 + 1)), exact near 0."""
    return sign(x) * where(
        abs(x) > 1e9, log(abs(x)) + 0.6931471805599453, log1p(abs(x) + x * x / (1.0 + sqrt(x * x + 1.0)))
    )


@elementwise("float", bprop=lambda x, _out, dout: (dout * rsqrt(x - 1.0) * rsqrt(x + 1.0),))
def acosh(x: Any) -> Any:
    """The inverse of cosh, log(x + sqrt(x^2 - 1)), exact near 1; NaN below 1."""
    return where(x > 1e9, log(x) + 0.6931471805599453, log1p(x - 1.0 + sqrt(x - 1.0) * sqrt(x + 1.0)))


@elementwise("float", bprop=lambda x, _out, dout: (dout / ((1.0 - x) * (x + 1.0)),))
def atanh(x: Any) -> Any:
    """The inverse of tanh, log((1 + x) / (1 - x)) / 2, exact near 0; NaN outside of [-1, 1]."""
    return sign(x) * 0.5 * log1p(2.0 * abs(x) / (1.0 - abs(x)))


arctan, arccos, arcsin, arccosh, arcsinh, arctanh, arctan2 = atan, acos, asin, acosh, asinh, atanh, atan2
