"""Arithmetic, comparison and logic, element by element.

Each operation is a formula, with its bprop in the decorator or right below it. In a formula, names such as `exp` or
`where` are scalar functions (`kernels/scalar.py`); in a bprop they are operations of this package.

Conventions where no derivative exists: abs'(0) = 0; equal operands of maximum or minimum get half of the gradient each;
clip has derivative 0 outside of its bounds and 1 on them. NaN passes through every operation.

A bprop ignores broadcasting, because the tape sums each gradient to the shape of its input. If a gradient is expensive,
the bprop returns it as a function, so that the tape computes it only when it is needed.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import NotNegative, Numbers
from snncell.compiler.ir.operations import Elementwise
from snncell.errors import ArgumentError, DTypeError
from snncell.ops.base import Grads, as_float, as_tensor, astype, elementwise, is_number, number_or_tensor, same_dtype
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "abs", "add", "addcdiv", "addcmul", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp",
    "clip", "conj", "copysign", "div", "divide", "eq", "equal", "floor", "floor_div", "floor_divide", "fmax", "fmin",
    "fmod", "frac", "ge", "greater", "greater_equal", "gt", "heaviside", "isclose", "isfinite", "isinf", "isnan", "le",
    "lerp", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum",
    "mod", "mul", "multiply", "ne", "neg", "negative", "not_equal", "reciprocal", "remainder", "round", "select", "sgn",
    "sign", "signbit", "sub", "subtract", "true_divide", "trunc", "where",
]  # fmt: skip

# --- Comparison, logic and selection: only selection has a gradient ---------------------------------------------------


@elementwise("compare", complex_numbers=True)
def equal(x: Any, y: Any) -> Any:
    """Elementwise comparison x == y."""
    return x == y


@elementwise("compare", complex_numbers=True)
def not_equal(x: Any, y: Any) -> Any:
    """Elementwise comparison x != y."""
    return x != y


@elementwise("compare")
def less(x: Any, y: Any) -> Any:
    """Elementwise comparison x < y."""
    return x < y


@elementwise("compare")
def less_equal(x: Any, y: Any) -> Any:
    """Elementwise comparison x <= y."""
    return x <= y


@elementwise("compare")
def greater(x: Any, y: Any) -> Any:
    """Elementwise comparison x > y."""
    return x > y


@elementwise("compare")
def greater_equal(x: Any, y: Any) -> Any:
    """Elementwise comparison x >= y."""
    return x >= y


@elementwise("test")
def isnan(x: Any) -> Any:
    """True where x is NaN."""
    return x != x


@elementwise("test", complex_numbers=True)
def isfinite(x: Any) -> Any:
    """True where x is neither infinite nor NaN."""
    return x - x == 0


@elementwise("test")
def isinf(x: Any) -> Any:
    """True where x is infinite, of either sign."""
    return (x == x) & (x - x != 0)


@elementwise("logical")
def logical_and(x: Any, y: Any) -> Any:
    """Logical and: true where both operands are true."""
    return x & y


@elementwise("logical")
def logical_or(x: Any, y: Any) -> Any:
    """Logical or: true where at least one operand is true."""
    return x | y


@elementwise("logical")
def logical_xor(x: Any, y: Any) -> Any:
    """Logical exclusive or: true where exactly one operand is true."""
    return x ^ y


@elementwise("logical")
def logical_not(x: Any) -> Any:
    """Logical not: true where x is false."""
    return logical_not(x)


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_and(x: Any, y: Any) -> Any:
    """Bitwise and of integers or booleans."""
    return x & y


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_or(x: Any, y: Any) -> Any:
    """Bitwise or of integers or booleans."""
    return x | y


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_xor(x: Any, y: Any) -> Any:
    """Bitwise exclusive or of integers or booleans."""
    return x ^ y


def bitwise_not(x: Numbers) -> Tensor:
    """Invert all bits of integers; logical not of booleans."""
    tensor = as_tensor(x, "bitwise_not")
    if tensor.dtype.category > 1:
        raise DTypeError(f"bitwise_not: takes integers or booleans, not {tensor.dtype}. Compare first: x > 0.")
    ones = True if tensor.dtype.category == 0 else 255 if tensor.dtype is dtypes.uint8 else -1  # all bits are 1
    return bitwise_xor(tensor, ones)


@elementwise("select", complex_numbers=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    """Elementwise selection: x where the condition is true, else y."""
    return where(condition, x, y)


# Select instead of multiplying by a mask, because 0 times an infinite gradient is NaN.
@where.def_bprop
def _(condition: Tensor, _x: Tensor, _y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return None, lambda: where(condition, dout, 0.0), lambda: where(condition, 0.0, dout)


# The result is proportional to the branches that vary, if the condition is fixed and a fixed branch is 0.
where.proportional = lambda inputs, varying: (
    not varying[0] and all(varies or is_number(x, 0) for x, varies in zip(inputs[1:], varying[1:], strict=True))
)

where.upper_bound = max

select = where
gt, ge, lt, le, eq, ne = greater, greater_equal, less, less_equal, equal, not_equal


# --- Sums, products, quotients ----------------------------------------------------------------------------------------


@elementwise("same", complex_numbers=True, booleans=True, bprop=lambda _x, _y, _out, dout: (dout, dout))
def add(x: Any, y: Any) -> Any:
    """Elementwise sum x + y."""
    return x + y


@elementwise("same", complex_numbers=True, bprop=lambda _x, _y, _out, dout: (dout, lambda: -dout))
def sub(x: Any, y: Any) -> Any:
    """Elementwise difference x - y."""
    return x - y


@elementwise("same", complex_numbers=True, booleans=True)
def mul(x: Any, y: Any) -> Any:
    """Elementwise product x * y."""
    return x * y


mul.def_bprop(lambda x, y, _out, dout: (lambda: dout * conj(y), lambda: dout * conj(x)))


@elementwise("float", complex_numbers=True)
def div(x: Any, y: Any) -> Any:
    """Elementwise quotient x / y; integers are divided as float32."""
    return x / y


def _quotient(x: Any, y: Any) -> Any:
    """Complex quotient. Division by 0 gives infinities or NaN, whereas Numba would raise an error in a kernel."""
    return where(y == 0, x * 1e308 * 1e308, x / y)


div.of_complex = Elementwise(_quotient, "float")
div.of_complex.name = "div"


# -x / y^2 is computed as -out / y, because y^2 may overflow where the gradient does not, and x need not be saved.
div.def_bprop(lambda _x, y, out, dout: (lambda: dout / conj(y), lambda: -dout * conj(out / y)))


@elementwise("same", bprop=lambda _x, _y, _out, _dout: (None, None))
def floor_div(x: Any, y: Any) -> Any:
    """Floor division: the largest integer not above x / y. Its gradient is 0, because it is piecewise constant."""
    return x // y


# The gradient is the derivative between the jumps.
@elementwise("same", bprop=lambda x, y, _out, dout: (dout, lambda: -dout * floor_div(x, y)))
def mod(x: Any, y: Any) -> Any:
    """Remainder x - y * floor(x / y), which has the sign of y."""
    return x % y


@elementwise("same", complex_numbers=True, bprop=lambda _x, _out, dout: (-dout,))
def neg(x: Any) -> Any:
    """Negative: -x."""
    return -x


add.additive = sub.additive = neg.additive = True
mul.proportional = lambda inputs, varying: sum(varying) == 1
div.proportional = lambda inputs, varying: list(varying) == [True, False]
add.upper_bound, mul.upper_bound = operator.add, operator.mul
subtract, multiply, divide, true_divide = sub, mul, div, div
floor_divide, remainder, negative = floor_div, mod, neg


def reciprocal(x: Numbers) -> Tensor:
    """Reciprocal: 1 / x."""
    return div(1, as_tensor(x, "reciprocal"))


def lerp(x: Numbers, end: Numbers, weight: Numbers) -> Tensor:
    """Linear interpolation x + weight * (end - x): x at weight 0, `end` at weight 1."""
    start = as_float(x, "lerp")
    return add(start, (number_or_tensor(end, "lerp", "end") - start) * number_or_tensor(weight, "lerp", "weight"))


def addcmul(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 * tensor2."""
    product = mul(as_tensor(tensor1, "addcmul", "tensor1"), tensor2)
    return as_tensor(x, "addcmul") + (product if is_number(value, 1) else product * value)


def addcdiv(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 / tensor2."""
    quotient = div(as_tensor(tensor1, "addcdiv", "tensor1"), tensor2)
    return as_tensor(x, "addcdiv") + (quotient if is_number(value, 1) else quotient * value)


# --- Signs and complex numbers ----------------------------------------------------------------------------------------


def conj(x: Numbers) -> Any:
    """Complex conjugate; a real Tensor is returned unchanged.

    Note: the gradient of a real loss with respect to z = a + ib is dL/da + i dL/db. The gradient of a product with y is
    therefore a product with the conjugate of y.
    """
    if isinstance(x, (bool, int, float, complex)):
        return x.conjugate()  # a number stays a number, so that it takes the other operand's precision
    tensor = as_tensor(x, "conj")
    return _conj(tensor) if tensor.dtype.category == 3 else snapshot(tensor)


@elementwise("same", complex_numbers=True, bprop=lambda _x, _out, dout: (conj(dout),))
def _conj(x: Any) -> Any:
    return conj(x)


@elementwise("same", complex_numbers=True)
def abs(x: Any) -> Any:
    """Absolute value: |x|."""
    return abs(x)


@abs.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    if x.dtype.category == 3:
        # x / |x|, and 0 at 0 as for real numbers; the inner where avoids 0 / 0.
        return (dout * x / where(equal(out, 0.0), 1.0, out),)
    return (dout * sign(x),)


@elementwise("same", bprop=lambda _x, _out, _dout: (None,))
def sign(x: Any) -> Any:
    """Sign of x: -1, 0 or 1."""
    return sign(x)


@elementwise("test")
def signbit(x: Any) -> Any:
    """True where x is negative, including -0.0."""
    return (x < 0) | (1.0 / x < 0)


@elementwise(
    "float", name="copysign", bprop=lambda x, y, _out, dout: (dout * where(signbit(y), -1.0, 1.0) * sign(x), None)
)
def _copysign(x: Any, y: Any) -> Any:
    return where((y < 0) | (1.0 / y < 0), -abs(x), abs(x))


def copysign(x: Numbers, y: Numbers) -> Tensor:
    """The absolute value |x| with the sign of y, including the sign of -0.0."""
    return _copysign(*_same_dtype_tensors(x, y, "copysign"))


def sgn(x: Numbers) -> Tensor:
    """Sign of x; for complex numbers x / |x|, and 0 at 0."""
    tensor = as_tensor(x, "sgn")
    if tensor.dtype.category != 3:
        return sign(tensor)
    length = abs(tensor)
    return tensor / where(equal(length, 0.0), 1.0, length)


# Constant on each side of 0, so x gets no gradient.
@elementwise(
    "same", name="heaviside", bprop=lambda x, _values, _out, dout: (None, lambda: where(equal(x, 0), dout, 0.0))
)
def _heaviside(x: Any, values: Any) -> Any:
    return where(x > 0, 1, where(x == 0, values, where(x < 0, 0, x)))


def heaviside(x: Numbers, values: Numbers) -> Tensor:
    """Heaviside step function: 0 if x < 0, 1 if x > 0, and `values` if x is 0."""
    return _heaviside(*_same_dtype_tensors(x, values, "heaviside"))


def _same_dtype_tensors(x: Any, y: Any, name: str) -> list[Tensor]:
    """Convert both operands to Tensors of one dtype; a number takes the other operand's precision."""
    operands = same_dtype([number_or_tensor(x, name), number_or_tensor(y, name, "y")], name)
    dtype = next(operand.dtype for operand in operands if isinstance(operand, Tensor))
    return [operand if isinstance(operand, Tensor) else Tensor(operand, dtype) for operand in operands]


# --- Extremes and bounds ----------------------------------------------------------------------------------------------


@elementwise("same", booleans=True)
def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum of x and y. Equal elements get half of the gradient each."""
    return maximum(x, y)


@elementwise("same", booleans=True)
def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of x and y. Equal elements get half of the gradient each."""
    return minimum(x, y)


def _larger(x: Any, y: Any) -> Tensor:
    """The share of x in the gradient of the maximum: 1 if x > y, 0.5 if x == y, 0 elsewhere and next to NaN."""
    return where(greater(x, y), 1.0, where(equal(x, y), 0.5, 0.0))


maximum.def_bprop(lambda x, y, _out, dout: (lambda: dout * _larger(x, y), lambda: dout * _larger(y, x)))
minimum.def_bprop(lambda x, y, _out, dout: (lambda: dout * _larger(y, x), lambda: dout * _larger(x, y)))
maximum.upper_bound = minimum.upper_bound = max


def clip(x: Numbers, min: Numbers | None = None, max: Numbers | None = None) -> Tensor:
    """Limit x to [min, max], with gradient 0 outside. No bounds, or min > max, raise an ArgumentError."""
    if min is None and max is None:
        raise ArgumentError("clip: give min, max, or both.")
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and min > max:
        raise ArgumentError(f"clip: min={min} is above max={max}.")
    x = as_tensor(x, "clip")
    if x.dtype.category == 1:  # bounds outside of the dtype's range have no effect
        limits = np.iinfo(x.dtype.dtype)
        min = None if type(min) is int and min <= limits.min else min
        max = None if type(max) is int and max >= limits.max else max
    # Comparisons instead of maximum and minimum, so that x on a bound keeps its whole gradient, and NaN stays NaN.
    low: Tensor = x if min is None else where(_is_beyond(less, x, min), min, x)
    return low if max is None else where(_is_beyond(greater, low, max), max, low)


def _is_beyond(compare: Any, x: Tensor, bound: Any) -> Tensor:
    """True where the bound replaces x: where x is beyond it, and where the bound is NaN."""
    beyond: Tensor = compare(x, bound)
    number = isinstance(bound, (int, float)) and bound == bound
    return beyond if number else logical_or(beyond, isnan(bound))


clamp = clip


def fmax(x: Numbers, y: Numbers) -> Tensor:
    """Elementwise maximum; if one operand is NaN, the other operand. Equal elements share the gradient."""
    return _ignore_nan(maximum, x, y, "fmax")


def fmin(x: Numbers, y: Numbers) -> Tensor:
    """Elementwise minimum; if one operand is NaN, the other operand. Equal elements share the gradient."""
    return _ignore_nan(minimum, x, y, "fmin")


def _ignore_nan(function: Any, x: Any, y: Any, name: str) -> Tensor:
    a, b = _same_dtype_tensors(x, y, name)
    return where(isnan(a), b, where(isnan(b), a, function(a, b)))


def isclose(
    x: Numbers, x2: Numbers, rtol: NotNegative = 1e-05, atol: NotNegative = 1e-08, equal_nan: bool = False
) -> Tensor:
    """True where |x - x2| <= atol + rtol |x2|, or both are the same infinity, or both are NaN with `equal_nan`."""
    given = (as_tensor(x, "isclose"), as_tensor(x2, "isclose", "x2"))
    # float64, because float32 represents integers of 24 bits only.
    a, b = (number if number.dtype.category > 1 else astype(number, dtypes.float64) for number in given)
    finite = logical_not(logical_or(isinf(a), isinf(b)))
    near = logical_and(less_equal(abs(a - b), abs(b) * rtol + atol), finite)
    result: Tensor = logical_or(equal(a, b), near)
    return logical_or(result, logical_and(isnan(a), isnan(b))) if equal_nan else result


# --- Rounding: piecewise constant, so the gradient is 0 ---------------------------------------------------------------


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def floor(x: Any) -> Any:
    """Round down: the largest integer not above x; no gradient."""
    return floor(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def ceil(x: Any) -> Any:
    """Round up: the smallest integer not below x; no gradient."""
    return ceil(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def round(x: Any) -> Any:
    """Round to the nearest integer, halves to the even one; no gradient."""
    return round(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def trunc(x: Any) -> Any:
    """Round towards 0; no gradient."""
    return where(x < 0, ceil(x), floor(x))


def frac(x: Numbers) -> Tensor:
    """Fractional part: x - trunc(x), with the sign of x; 0 for integers."""
    tensor = as_tensor(x, "frac")
    return tensor - trunc(tensor)


# The gradient is the derivative between the jumps.
@elementwise("same", bprop=lambda x, y, _out, dout: (dout, lambda: -dout * trunc(x / y)))
def fmod(x: Any, y: Any) -> Any:
    """Remainder x - y * trunc(x / y), which has the sign of x; `mod` has the sign of y."""
    # `%` of operands with equal signs does not round, and never negates an int8 of -128, which has no negative.
    # `x - x - y` is -y, because NumPy refuses a negative Python number for an unsigned x. An infinite x gives NaN.
    return where((x < 0) == (y < 0), x % y, where(x < 0, x % (x - x - y), -(-x % y)))
