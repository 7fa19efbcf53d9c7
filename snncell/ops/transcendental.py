"""Powers, exponentials, logarithms, error function, trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers, Share
from snncell.base.signals import import_once
from snncell.kernels.cuda import functions
from snncell.ops.arithmetic import abs, clip, conj, div, equal, isinf, logical_and, maximum, minimum, mul, sign, where
from snncell.ops.base import Grads, as_float, astype, elementwise, is_number, number_or_tensor
from snncell.tape.primitive import Primitive, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan",
    "atan2", "atanh", "cos", "cosh", "deg2rad", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "float_power", "hypot",
    "log", "log1p", "log2", "log10", "logaddexp", "logit", "pow", "rad2deg", "rsqrt", "sigmoid", "sin", "sinh", "sqrt",
    "square", "tan", "tanh",
]  # fmt: skip

# --- Powers and roots -------------------------------------------------------------------------------------------------


@elementwise("same", complex_numbers=True, bprop=lambda x, _out, dout: (dout * conj(x) * 2,))
def square(x: Any) -> Any:
    """Square: x * x."""
    return x * x


@elementwise("same", integer_loops=False)
def power(x: Any, y: Any) -> Any:
    """Power x ** y, without the special cases of `pow`."""
    return x**y


@power.def_bprop
def _(x: Any, y: Any, out: Tensor, dout: Tensor) -> Grads:
    if is_number(y, 0):
        return None, None  # x ** 0 is constant
    if not isinstance(x, Tensor):
        return None, (lambda: dout * out * math.log(x)) if x > 0 else None
    positive = x > 0
    # Use x ** (y - 1) instead of out / x, because out / x is 0 / 0 at x = 0. y = 0 needs a separate case, because 0 * x
    # ** -1 is NaN at x = 0. For x <= 0 the gradient of y is 0, but `out` may be infinite or NaN, so 0 replaces it.
    return (
        lambda: dout * where(equal(y, 0), 0.0, y * pow(x, y - 1)),
        lambda: dout * where(positive, out, 0.0) * log(where(positive, x, 1.0)),
    )


def pow(x: Numbers, y: Numbers) -> Tensor:
    """Power: x ** y. Exponents 1, 2, 3, 0.5 and -1 use products, a root and a quotient, which are faster.

    Note: The gradient with respect to y is the derivative of exp(y log x) for x > 0, and 0 for x <= 0.
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
            x = as_float(x, "pow")  # a negative power of an integer is a fraction
    return power(x, y)


def float_power(x: Numbers, exponent: Numbers) -> Tensor:
    """Power in float64: x ** exponent, computed and returned as float64."""
    operands = (number_or_tensor(x, "float_power"), number_or_tensor(exponent, "float_power", "exponent"))
    return pow(*(astype(operand, dtypes.float64) for operand in operands))


# The gradient is infinite at 0, like the derivative; `root` has a finite gradient there.
@elementwise("float", bprop=lambda _x, out, dout: (dout * 0.5 / out,))
def sqrt(x: Any) -> Any:
    """Square root."""
    return sqrt(x)


@elementwise("float")
def root(x: Any) -> Any:
    """Square root of a sum of squares. Its gradient at 0 is 0, as for `abs`."""
    return sqrt(x)


# The inner where avoids a division by 0, because both branches of the outer one are computed.
root.def_bprop(lambda _x, out, dout: (where(equal(out, 0.0), 0.0, dout * 0.5 / where(equal(out, 0.0), 1.0, out)),))


@elementwise("float", bprop=lambda x, out, dout: (dout * -0.5 * out / x,))
def rsqrt(x: Any) -> Any:
    """Reciprocal square root: 1 / sqrt(x)."""
    return 1.0 / sqrt(x)


# --- Exponentials -----------------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda _x, out, dout: (dout * out,))
def exp(x: Any) -> Any:
    """Exponential function: e ** x."""
    return exp(x)


# no gradient for the peak, because callers use it as a constant
@elementwise("float", bprop=lambda _x, _peak, out, dout: (dout * out, None))
def exp_below(x: Any, peak: Any) -> Any:
    """exp(x - peak), and 1 where x equals the peak, because the difference of infinities is NaN."""
    return where(x == peak, 1.0, exp(x - peak))


# The derivative e ** x is out + 1. For very negative x this is 0, because -1 + e ** x rounds to -1.
@elementwise("float", bprop=lambda _x, out, dout: (dout * (out + 1.0),))
def expm1(x: Any) -> Any:
    """Exponential minus 1: e ** x - 1, exact near 0."""
    return expm1(x)


@elementwise("float", bprop=lambda _x, out, dout: (dout * out * math.log(2.0),))
def exp2(x: Any) -> Any:
    """Power of 2: 2 ** x."""
    return 2.0**x


@elementwise("float", bprop=lambda _x, out, dout: (dout * out * (1.0 - out),))
def sigmoid(x: Any) -> Any:
    """Logistic sigmoid: 1 / (1 + exp(-x))."""
    return sigmoid(x)


# --- Logarithms -------------------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda x, _out, dout: (dout / x,))
def log(x: Any) -> Any:
    """Natural logarithm."""
    return log(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x + 1.0),))
def log1p(x: Any) -> Any:
    """Logarithm of 1 + x, exact near 0."""
    return log1p(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x * math.log(2.0)),))
def log2(x: Any) -> Any:
    """Logarithm to base 2."""
    return log(x) / 0.6931471805599453


@elementwise("float", bprop=lambda x, _out, dout: (dout / (x * math.log(10.0)),))
def log10(x: Any) -> Any:
    """Logarithm to base 10."""
    return log(x) / 2.302585092994046


@elementwise("float", name="logit", bprop=lambda x, _out, dout: (dout / (x * (1.0 - x)),))
def _logit(x: Any) -> Any:
    return log(x) - log1p(-x)


def logit(x: Numbers, eps: Share | None = None) -> Tensor:
    """Logit: log(x / (1 - x)) for x in (0, 1), the inverse of `sigmoid`. With `eps`, x is first limited to [eps, 1 -
    eps], which keeps the result finite.
    """
    tensor = as_float(x, "logit")
    if eps is not None:
        tensor = clip(tensor, eps, 1.0 - eps)
    return _logit(tensor)


def logaddexp(x: Numbers, y: Numbers) -> Tensor:
    """log(exp(x) + exp(y)) without overflow; equal infinities share the gradient evenly."""
    return log_join(x, y, 0.5)


@elementwise("float", name="logaddexp")
def log_join(x: Any, y: Any, share: Any) -> Any:
    """log(exp(x) + exp(y)); if both are the same infinity, x gets the fraction `share` of the gradient."""
    return where(x == y, x + 0.6931471805599453, maximum(x, y) + log1p(exp(-abs(x - y))))


@log_join.def_bprop
def _(x: Tensor, y: Tensor, share: Any, _out: Tensor, dout: Tensor) -> Grads:
    # Replace x - y only for equal infinities, where it is NaN, so that higher derivatives stay correct elsewhere.
    tied = logical_and(equal(x, y), isinf(x))
    own = where(tied, share, sigmoid(where(tied, 0.0, x - y)))
    return lambda: dout * own, lambda: dout * (1.0 - own), None


# --- Error function, its complement and inverse -----------------------------------------------------------------------


@elementwise("float", bprop=lambda x, _out, dout: (dout * exp(-square(x)) * (2.0 / math.sqrt(math.pi)),))
def erf(x: Any) -> Any:
    """Error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    return erf(x)


def _special(name: str, there: Callable[..., Any], bprop: Callable[..., Sequence[Any]]) -> Primitive:
    """An operation from `scipy.special`, imported on first use because the import takes 0.1 s."""
    op = Primitive(name, lambda x: getattr(import_once("scipy.special"), name)(x).astype(x.dtype, copy=False))
    op.def_on_gpu(there)
    op.def_bprop(bprop)
    with_axis_of_steps(op)
    return op


_erfc = _special("erfc", functions.erfc, lambda x, _out, dout: (dout * exp(-square(x)) * (-2.0 / math.sqrt(math.pi)),))
_erfinv = _special(
    "erfinv", functions.erfinv, lambda _x, out, dout: (dout * exp(square(out)) * (math.sqrt(math.pi) / 2.0),)
)


def erfc(x: Numbers) -> Tensor:
    """Complementary error function: 1 - erf(x), exact where erf is close to 1."""
    return _erfc.bind(as_float(x, "erfc"))


def erfinv(x: Numbers) -> Tensor:
    """Inverse error function on (-1, 1); infinite at -1 and 1, NaN outside."""
    return _erfinv.bind(as_float(x, "erfinv"))


# --- Trigonometric functions ------------------------------------------------------------------------------------------


@elementwise("float")
def sin(x: Any) -> Any:
    """Sine of an angle in radians."""
    return sin(x)


@sin.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * cos(x),)


@elementwise("float", bprop=lambda x, _out, dout: (-dout * sin(x),))
def cos(x: Any) -> Any:
    """Cosine of an angle in radians."""
    return cos(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout / (square(x) + 1.0),))
def atan(x: Any) -> Any:
    """Arc tangent in radians."""
    return atan(x)


@elementwise("float", bprop=lambda _x, out, dout: (dout * (square(out) + 1.0),))
def tan(x: Any) -> Any:
    """Tangent of an angle in radians."""
    return sin(x) / cos(x)


@elementwise("float", bprop=lambda x, _out, dout: (dout * rsqrt((1.0 - x) * (x + 1.0)),))
def asin(x: Any) -> Any:
    """Arc sine in radians, in [-pi/2, pi/2]; NaN outside of [-1, 1]."""
    return atan(x / sqrt((1.0 - x) * (1.0 + x)))


@elementwise("float", bprop=lambda x, _out, dout: (-dout * rsqrt((1.0 - x) * (x + 1.0)),))
def acos(x: Any) -> Any:
    """Arc cosine in radians, in [0, pi]; NaN outside of [-1, 1]."""
    return 2.0 * atan(sqrt((1.0 - x) / (1.0 + x)))


# Divide the smaller by the larger coordinate, which cannot overflow, then add the angle of the octant. Equal lengths,
# even infinite ones, have known angles. For x < 0, the angle is pi if y is 0.0, and -pi if y is -0.0.
@elementwise("float")
def atan2(y: Any, x: Any) -> Any:
    """Angle of the point (x, y) in radians, in [-pi, pi]. At the origin the angle and its gradient are 0."""
    return where(
        abs(x) >= abs(y),
        where(
            x < 0.0,
            where(
                (y < 0.0) | (1.0 / y < 0.0),
                where(x == y, -2.356194490192345, atan(y / x) - 3.141592653589793),
                where(x == -y, 2.356194490192345, atan(y / x) + 3.141592653589793),
            ),
            where(y == 0.0, y, where(x == y, 0.7853981633974483, where(x == -y, -0.7853981633974483, atan(y / x)))),
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


# A number equals its own half only if it is 0 or infinite. As in IEEE 754, an infinite side outweighs a NaN.
@elementwise("float")
def hypot(x: Any, y: Any) -> Any:
    """Length of the vector (x, y): sqrt(x^2 + y^2), without overflow. The gradient at (0, 0) is 0."""
    return where(
        (y == 0.0) | (x != 0.0) & (0.5 * x == x),
        abs(x),
        where(
            (x == 0.0) | (0.5 * y == y),
            abs(y),
            maximum(abs(x), abs(y)) * sqrt(1.0 + (minimum(abs(x), abs(y)) / maximum(abs(x), abs(y))) ** 2),
        ),
    )


@hypot.def_bprop
def _(x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> Grads:
    length = where(equal(out, 0.0), 1.0, out)
    return lambda: dout * (x / length), lambda: dout * (y / length)


def deg2rad(x: Numbers) -> Tensor:
    """Convert degrees to radians: x pi / 180."""
    return mul(as_float(x, "deg2rad"), 0.017453292519943295)


def rad2deg(x: Numbers) -> Tensor:
    """Convert radians to degrees: x 180 / pi."""
    return mul(as_float(x, "rad2deg"), 57.29577951308232)


# --- Hyperbolic functions ---------------------------------------------------------------------------------------------


@elementwise("float", bprop=lambda _x, out, dout: (dout * (1.0 - square(out)),))
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return tanh(x)


@elementwise("float")
def sinh(x: Any) -> Any:
    """Hyperbolic sine: (e^x - e^-x) / 2, exact near 0."""
    return 0.5 * (expm1(x) - expm1(-x))


@sinh.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return (dout * cosh(x),)


@elementwise("float", bprop=lambda x, _out, dout: (dout * sinh(x),))
def cosh(x: Any) -> Any:
    """Hyperbolic cosine: (e^x + e^-x) / 2."""
    return 0.5 * (exp(x) + exp(-x))


# Above 10^9, x^2 + 1 rounds to x^2, and log(2 |x|) cannot overflow.
@elementwise("float", bprop=lambda x, _out, dout: (dout / hypot(x, 1.0),))
def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine: log(x + sqrt(x^2 + 1)), exact near 0."""
    return sign(x) * where(
        abs(x) > 1e9, log(abs(x)) + 0.6931471805599453, log1p(abs(x) + x * x / (1.0 + sqrt(x * x + 1.0)))
    )


@elementwise("float", bprop=lambda x, _out, dout: (dout * rsqrt(x - 1.0) * rsqrt(x + 1.0),))
def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine: log(x + sqrt(x^2 - 1)), exact near 1; NaN below 1."""
    return where(x > 1e9, log(x) + 0.6931471805599453, log1p(x - 1.0 + sqrt(x - 1.0) * sqrt(x + 1.0)))


@elementwise("float", bprop=lambda x, _out, dout: (dout / ((1.0 - x) * (x + 1.0)),))
def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent: log((1 + x) / (1 - x)) / 2, exact near 0; NaN outside of [-1, 1]."""
    return sign(x) * 0.5 * log1p(2.0 * abs(x) / (1.0 - abs(x)))


arctan, arccos, arcsin, arccosh, arcsinh, arctanh, arctan2 = atan, acos, asin, acosh, asinh, atanh, atan2
