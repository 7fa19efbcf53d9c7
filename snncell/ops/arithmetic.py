"""Arithmetic, comparison and logic, element by element.

An operation is its formula, with its bprop in the decorator or right under it.

In a formula, names such as `exp` or `where` mean scalar functions (`kernels/scalar.py`); in a bprop they are
the operations of this package. Conventions where a derivative does not exist: abs'(0) = 0, a tie of maximum or minimum
splits 0.5 / 0.5, clip's is 0 outside and 1 on its bounds. NaN passes through everything.

A bprop ignores broadcasting, because the tape sums a gradient to the shape of its input. Where a gradient is expensive
and another operand may be the only one that needs one, it is a function, called if it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import NotNegative, Numbers
from snncell.compiler.ir.operations import Elementwise
from snncell.errors import ArgumentError, DTypeError
from snncell.ops.base import Function, Grads, as_float, as_tensor, astype, elementwise, number_or_tensor, same_dtype
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "abs", "add", "addcdiv", "addcmul", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp",
    "clip", "conj", "copysign", "div", "divide", "eq", "equal", "floor", "floor_div", "floor_divide", "fmax", "fmin",
    "fmod", "frac", "ge", "greater", "greater_equal", "gt", "heaviside", "isclose", "isfinite", "isinf", "isnan", "le",
    "lerp", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum",
    "mod", "mul", "multiply", "ne", "neg", "negative", "not_equal", "reciprocal", "remainder", "round", "select", "sgn",
    "sign", "signbit", "sub", "subtract", "true_divide", "trunc", "where",
]  # fmt: skip

# --- comparison, logic and selection: only selection has a gradient ---------------------------------------------------


def _discrete(rule: str, **options: Any) -> Callable[[Callable[..., Any]], Function]:
    """Declare an elementwise operation through which no gradient flows: its results are steps."""

    def declare(formula: Callable[..., Any]) -> Function:
        operation = elementwise(rule, **options)(formula)
        operation.no_gradient()
        return operation

    return declare


@_discrete("compare", complex_numbers=True)
def equal(x: Any, y: Any) -> Any:
    """x == y."""
    return x == y


@_discrete("compare", complex_numbers=True)
def not_equal(x: Any, y: Any) -> Any:
    """x != y."""
    return x != y


@_discrete("compare")
def less(x: Any, y: Any) -> Any:
    """x < y."""
    return x < y


@_discrete("compare")
def less_equal(x: Any, y: Any) -> Any:
    """x <= y."""
    return x <= y


@_discrete("compare")
def greater(x: Any, y: Any) -> Any:
    """x > y."""
    return x > y


@_discrete("compare")
def greater_equal(x: Any, y: Any) -> Any:
    """x >= y."""
    return x >= y


@_discrete("test")
def isnan(x: Any) -> Any:
    """True where x is not a number."""
    return x != x


@_discrete("test")
def isfinite(x: Any) -> Any:
    """True where x is neither infinite nor NaN."""
    return x - x == 0


@_discrete("test")
def isinf(x: Any) -> Any:
    """True where x is infinite, of either sign."""
    return (x == x) & (x - x != 0)


@_discrete("logical")
def logical_and(x: Any, y: Any) -> Any:
    """True where both are true."""
    return x & y


@_discrete("logical")
def logical_or(x: Any, y: Any) -> Any:
    """True where one is true."""
    return x | y


@_discrete("logical")
def logical_xor(x: Any, y: Any) -> Any:
    """True where exactly one is true."""
    return x ^ y


@_discrete("logical")
def logical_not(x: Any) -> Any:
    """True where x is false."""
    return logical_not(x)


@_discrete("same", booleans=True, whole_numbers=True)
def bitwise_and(x: Any, y: Any) -> Any:
    """The bits that both have."""
    return x & y


@_discrete("same", booleans=True, whole_numbers=True)
def bitwise_or(x: Any, y: Any) -> Any:
    """The bits that one has."""
    return x | y


@_discrete("same", booleans=True, whole_numbers=True)
def bitwise_xor(x: Any, y: Any) -> Any:
    """The bits that exactly one has."""
    return x ^ y


def bitwise_not(x: Numbers) -> Tensor:
    """The bits turned over; of booleans logical not."""
    tensor = as_tensor(x, "bitwise_not")
    if tensor.dtype.category > 1:
        raise DTypeError(f"bitwise_not: takes integers or booleans, not {tensor.dtype}. Compare first: x > 0.")
    ones = True if tensor.dtype.category == 0 else 255 if tensor.dtype is dtypes.uint8 else -1  # all bits are 1
    return bitwise_xor(tensor, ones)


@elementwise("select", complex_numbers=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    return where(condition, x, y)


# Choices, not products with a mask: 0 times a gradient that is inf would be NaN.
@where.def_bprop
def _(condition: Tensor, _x: Tensor, _y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return None, lambda: where(condition, dout, 0.0), lambda: where(condition, 0.0, dout)


# In proportion to the sides that move, if which one is taken is fixed and a side that does not move is 0.
where.proportional = lambda inputs, varying: (
    not varying[0]
    and all(varies or (type(x) in (int, float) and x == 0) for x, varies in zip(inputs[1:], varying[1:], strict=True))
)

select = where
gt, ge, lt, le, eq, ne = greater, greater_equal, less, less_equal, equal, not_equal


# --- sums, products, quotients ----------------------------------------------------------------------------------------


@elementwise("same", complex_numbers=True, booleans=True, bprop=lambda _x, _y, _out, dout: (dout, dout))
def add(x: Any, y: Any) -> Any:
    """x + y."""
    return x + y


@elementwise("same", complex_numbers=True, bprop=lambda _x, _y, _out, dout: (dout, lambda: -dout))
def sub(x: Any, y: Any) -> Any:
    """x - y."""
    return x - y


@elementwise("same", complex_numbers=True, booleans=True)
def mul(x: Any, y: Any) -> Any:
    """x * y."""
    return x * y


mul.def_bprop(lambda x, y, _out, dout: (lambda: dout * conj(y), lambda: dout * conj(x)))


@elementwise("float", complex_numbers=True)
def div(x: Any, y: Any) -> Any:
    """x / y; integers are divided as float32."""
    return x / y


def _quotient(x: Any, y: Any) -> Any:
    """Of complex numbers, where Numba's kernels would end at a division by 0: it gives infinities or NaN."""
    return where(y == 0, x * 1e308 * 1e308, x / y)


div.of_complex = Elementwise(_quotient, "float")
div.of_complex.name = "div"


# -x / y^2 is written with the quotient: y^2 overflows where the gradient does not, and x need not be kept.
div.def_bprop(lambda _x, y, out, dout: (lambda: dout / conj(y), lambda: -dout * conj(out / y)))


@elementwise("same", bprop=lambda _x, _y, _out, _dout: (None, None))
def floor_div(x: Any, y: Any) -> Any:
    """The largest integer not above x / y; constant between its jumps, so no gradient."""
    return x // y


# The derivatives between the jumps, at which there are none.
@elementwise("same", bprop=lambda x, y, _out, dout: (dout, lambda: -dout * floor_div(x, y)))
def mod(x: Any, y: Any) -> Any:
    """x - y * floor(x / y): the remainder has the sign of y."""
    return x % y


@elementwise("same", complex_numbers=True, bprop=lambda _x, _out, dout: (-dout,))
def neg(x: Any) -> Any:
    """-x."""
    return -x


add.additive = sub.additive = neg.additive = True
mul.proportional = lambda inputs, varying: sum(varying) == 1
div.proportional = lambda inputs, varying: list(varying) == [True, False]
subtract, multiply, divide, true_divide = sub, mul, div, div
floor_divide, remainder, negative = floor_div, mod, neg


def reciprocal(x: Numbers) -> Tensor:
    """1 / x."""
    return div(1, as_tensor(x, "reciprocal"))


def lerp(x: Numbers, end: Numbers, weight: Numbers) -> Tensor:
    """x + weight * (end - x): from x, at weight 0, to `end`, at 1."""
    start = as_float(x, "lerp")
    return add(start, (number_or_tensor(end, "lerp", "end") - start) * number_or_tensor(weight, "lerp", "weight"))


def addcmul(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 * tensor2."""
    product = mul(as_tensor(tensor1, "addcmul", "tensor1"), tensor2)
    return as_tensor(x, "addcmul") + (product if _is_one(value) else product * value)


def addcdiv(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 / tensor2."""
    quotient = div(as_tensor(tensor1, "addcdiv", "tensor1"), tensor2)
    return as_tensor(x, "addcdiv") + (quotient if _is_one(value) else quotient * value)


def _is_one(value: Any) -> bool:
    return type(value) in (int, float) and value == 1


# --- signs and complex numbers ----------------------------------------------------------------------------------------


def conj(x: Numbers) -> Any:
    """The complex conjugate; a real Tensor as it is.

    Note:
        The gradient of a real loss with respect to z = a + ib is dL/da + i dL/db, so the reverse of a product with y
        is a product with the conjugate of y.
    """
    if isinstance(x, (bool, int, float, complex)):
        return x.conjugate()  # a number stays one: it takes the precision of the other operand
    tensor = as_tensor(x, "conj")
    return _conj(tensor) if tensor.dtype.category == 3 else snapshot(tensor)


@elementwise("same", complex_numbers=True, bprop=lambda _x, _out, dout: (conj(dout),))
def _conj(x: Any) -> Any:
    return conj(x)


@elementwise("same", complex_numbers=True)
def abs(x: Any) -> Any:
    """|x|."""
    return abs(x)


@abs.def_bprop
def _(x: Tensor, out: Tensor, dout: Tensor) -> Grads:
    if x.dtype.category == 3:
        # x / |x|; at 0 it is 0, as for real numbers, and the inner where avoids 0 / 0.
        return (dout * x / where(equal(out, 0.0), 1.0, out),)
    return (dout * sign(x),)


@elementwise("same", bprop=lambda _x, _out, _dout: (None,))
def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    return sign(x)


@elementwise("test")
def signbit(x: Any) -> Any:
    """True where x is below 0, or the zero with a minus, -0.0."""
    return (x < 0) | (1.0 / x < 0)


signbit.no_gradient()


@elementwise(
    "float", name="copysign", bprop=lambda x, y, _out, dout: (dout * where(signbit(y), -1.0, 1.0) * sign(x), None)
)
def _copysign(x: Any, y: Any) -> Any:
    return where((y < 0) | (1.0 / y < 0), -abs(x), abs(x))


def copysign(x: Numbers, y: Numbers) -> Tensor:
    """|x| with the sign of y, that of -0.0 too."""
    return _copysign(*_same_dtype_tensors(x, y, "copysign"))


def sgn(x: Numbers) -> Tensor:
    """The sign of x; of a complex number its direction, x / |x|, and 0 of 0."""
    tensor = as_tensor(x, "sgn")
    if tensor.dtype.category != 3:
        return sign(tensor)
    length = abs(tensor)
    return tensor / where(equal(length, 0.0), 1.0, length)


# Constant on both sides of its jump.
@elementwise(
    "same", name="heaviside", bprop=lambda x, _values, _out, dout: (None, lambda: where(equal(x, 0), dout, 0.0))
)
def _heaviside(x: Any, values: Any) -> Any:
    return where(x > 0, 1, where(x == 0, values, where(x < 0, 0, x)))


def heaviside(x: Numbers, values: Numbers) -> Tensor:
    """0 where x < 0, 1 where x > 0, and `values` where it is 0."""
    return _heaviside(*_same_dtype_tensors(x, values, "heaviside"))


def _same_dtype_tensors(x: Any, y: Any, name: str) -> list[Tensor]:
    """Both as Tensors of one dtype, a number in the precision of the other operand."""
    operands = same_dtype([number_or_tensor(x, name), number_or_tensor(y, name, "y")], name)
    dtype = next(operand.dtype for operand in operands if isinstance(operand, Tensor))
    return [operand if isinstance(operand, Tensor) else Tensor(operand, dtype) for operand in operands]


# --- extremes and bounds ----------------------------------------------------------------------------------------------


@elementwise("same", booleans=True)
def maximum(x: Any, y: Any) -> Any:
    """The larger of x and y; a tie's gradient is split in halves."""
    return maximum(x, y)


@maximum.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout * _share(greater(x, y), equal(x, y)), lambda: dout * _share(less(x, y), equal(x, y))


@elementwise("same", booleans=True)
def minimum(x: Any, y: Any) -> Any:
    """The smaller of x and y; a tie's gradient is split in halves."""
    return minimum(x, y)


@minimum.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return lambda: dout * _share(less(x, y), equal(x, y)), lambda: dout * _share(greater(x, y), equal(x, y))


def _share(wins: Tensor, ties: Tensor) -> Tensor:
    """1 where an operand wins, 0.5 in a tie, else 0; next to NaN neither wins nor ties."""
    return where(wins, 1.0, where(ties, 0.5, 0.0))


def clip(x: Numbers, min: Numbers | None = None, max: Numbers | None = None) -> Tensor:
    """x limited to [min, max]; the gradient is 0 outside. No bound, or min > max, raises an ArgumentError."""
    if min is None and max is None:
        raise ArgumentError("clip: give min, max, or both.")
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and min > max:
        raise ArgumentError(f"clip: min={min} is above max={max}.")
    x = as_tensor(x, "clip")
    if x.dtype.category == 1:  # a bound outside the range of the dtype is no bound
        limits = np.iinfo(x.dtype.dtype)
        min = None if type(min) is int and min <= limits.min else min
        max = None if type(max) is int and max >= limits.max else max
    # Comparisons, not maximum and minimum: on a bound x itself is taken, with its whole gradient, and NaN stays.
    low: Tensor = x if min is None else where(_past(less, x, min), min, x)
    return low if max is None else where(_past(greater, low, max), max, low)


def _past(compare: Any, x: Tensor, bound: Any) -> Tensor:
    """Where a bound takes the place of x: where x is beyond it, and where it is NaN, which compares with nothing."""
    beyond: Tensor = compare(x, bound)
    number = isinstance(bound, (int, float)) and bound == bound
    return beyond if number else logical_or(beyond, isnan(bound))


clamp = clip


def fmax(x: Numbers, y: Numbers) -> Tensor:
    """The larger of x and y; if one is NaN, the other one. A tie's gradient is split in halves."""
    return _ignore_nan(maximum, x, y, "fmax")


def fmin(x: Numbers, y: Numbers) -> Tensor:
    """The smaller of x and y; if one is NaN, the other one. A tie's gradient is split in halves."""
    return _ignore_nan(minimum, x, y, "fmin")


def _ignore_nan(function: Any, x: Any, y: Any, name: str) -> Tensor:
    a, b = _same_dtype_tensors(x, y, name)
    return where(isnan(a), b, where(isnan(b), a, function(a, b)))


def isclose(
    x: Numbers, x2: Numbers, rtol: NotNegative = 1e-05, atol: NotNegative = 1e-08, equal_nan: bool = False
) -> Tensor:
    """True where |x - x2| <= atol + rtol |x2|, or both are one infinity, or with `equal_nan` both NaN."""
    given = (as_tensor(x, "isclose"), as_tensor(x2, "isclose", "x2"))
    # Of integers float32 has no more than 24 bits.
    a, b = (number if number.dtype.category > 1 else astype(number, dtypes.float64) for number in given)
    finite = logical_not(logical_or(isinf(a), isinf(b)))
    near = logical_and(less_equal(abs(a - b), abs(b) * rtol + atol), finite)
    result: Tensor = logical_or(equal(a, b), near)
    return logical_or(result, logical_and(isnan(a), isnan(b))) if equal_nan else result


# --- rounding: constant between its jumps, so its gradient is 0 -------------------------------------------------------


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def floor(x: Any) -> Any:
    """The largest integer not above x; no gradient."""
    return floor(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def ceil(x: Any) -> Any:
    """The smallest integer not below x; no gradient."""
    return ceil(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def round(x: Any) -> Any:
    """The nearest integer, halves to even; no gradient."""
    return round(x)


@elementwise("whole", bprop=lambda _x, _out, _dout: (None,))
def trunc(x: Any) -> Any:
    """The integer next to x towards 0; no gradient."""
    return where(x < 0, ceil(x), floor(x))


def frac(x: Numbers) -> Tensor:
    """The fractional part, x - trunc(x), with the sign of x; 0 for integers."""
    tensor = as_tensor(x, "frac")
    return tensor - trunc(tensor)


# The derivatives between the jumps, at which there are none.
@elementwise("same", bprop=lambda x, y, _out, dout: (dout, lambda: -dout * trunc(x / y)))
def fmod(x: Any, y: Any) -> Any:
    """x - y * trunc(x / y): the remainder has the sign of x; `mod` has that of y."""
    # Numbers of one sign: `%` rounds nothing, and neither operand is negated that has no counterpart, as -128 has none.
    # `x - x - y` is -y: NumPy refuses a negative Python number for an unsigned x. An infinite x gives NaN anyway.
    return where((x < 0) == (y < 0), x % y, where(x < 0, x % (x - x - y), -(-x % y)))
