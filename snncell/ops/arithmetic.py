"""More arithmetic, element by element: parts and signs of numbers, logarithms to other bases, what joins two or three.

Functions whose derivative is made of themselves have a formula and a reverse; the others are made of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import NotNegative, Numbers
from snncell.ops.base import as_float, as_tensor, astype, elementwise, number_or_tensor, same_dtype
from snncell.ops.elementwise import (
    abs,
    ceil,
    div,
    floor,
    maximum,
    minimum,
    mul,
    pow,
    sign,
)
from snncell.ops.logic import equal, isnan, less_equal, logical_and, logical_not, logical_or, where
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]

# --- parts of a number, remainders ------------------------------------------------------------------------------------


@elementwise("whole")
def trunc(x: Any) -> Any:
    """The integer next to x towards 0; no gradient."""
    return where(x < 0, ceil(x), floor(x))


@trunc.def_bprop
def _(_x: Tensor, _out: Tensor, _dout: Tensor) -> Grads:
    return (None,)  # constant between its jumps


def frac(x: Numbers) -> Tensor:
    """The part of x behind the point, x - trunc(x), with the sign of x; of integers 0."""
    tensor = as_tensor(x, "frac")
    rest: Tensor = tensor - trunc(tensor)
    return rest


@elementwise("same")
def fmod(x: Any, y: Any) -> Any:
    """x - y * trunc(x / y): the remainder has the sign of x; `mod` has that of y."""
    # Numbers of one sign: `%` rounds nothing, and neither operand is negated that has no counterpart, as -128 has none.
    # `x - x - y` is -y: NumPy refuses a negative Python number for an unsigned x. An infinite x gives NaN anyway.
    return where((x < 0) == (y < 0), x % y, where(x < 0, x % (x - x - y), -(-x % y)))


# The derivatives between the jumps, at which there are none.
@fmod.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return dout, lambda: -dout * trunc(x / y)


def reciprocal(x: Numbers) -> Tensor:
    """1 / x."""
    quotient: Tensor = div(1, as_tensor(x, "reciprocal"))
    return quotient


# --- signs ------------------------------------------------------------------------------------------------------------


@elementwise("test")
def signbit(x: Any) -> Any:
    """True where x is below 0, or the zero with a minus, -0.0."""
    return (x < 0) | (1.0 / x < 0)


signbit.no_gradient()


@elementwise("float")
def _copysign(x: Any, y: Any) -> Any:
    return where((y < 0) | (1.0 / y < 0), -abs(x), abs(x))


_copysign.name = "copysign"


@_copysign.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return dout * where(signbit(y), -1.0, 1.0) * sign(x), None


def sgn(x: Numbers) -> Tensor:
    """The sign of x; of a complex number its direction, x / |x|, and 0 of 0."""
    tensor = as_tensor(x, "sgn")
    if tensor.dtype.category != 3:
        signs: Tensor = sign(tensor)
        return signs
    length = abs(tensor)
    direction: Tensor = tensor / where(equal(length, 0.0), 1.0, length)
    return direction


def copysign(x: Numbers, y: Numbers) -> Tensor:
    """|x| with the sign of y, that of -0.0 too."""
    result: Tensor = _copysign(*_as_tensors(x, y, "copysign"))
    return result


@elementwise("same")
def _heaviside(x: Any, values: Any) -> Any:
    return where(x > 0, 1, where(x == 0, values, where(x < 0, 0, x)))


_heaviside.name = "heaviside"


@_heaviside.def_bprop
def _(x: Tensor, _values: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    return None, lambda: where(equal(x, 0), dout, 0.0)  # constant on both sides of its jump


def heaviside(x: Numbers, values: Numbers) -> Tensor:
    """0 where x < 0, 1 where x > 0, and `values` where it is 0."""
    result: Tensor = _heaviside(*_as_tensors(x, values, "heaviside"))
    return result


def _as_tensors(x: Any, y: Any, name: str) -> list[Tensor]:
    """Both as Tensors of one dtype, a number in the precision of what it meets."""
    operands = same_dtype([number_or_tensor(x, name), number_or_tensor(y, name, "y")], name)
    dtype = next(operand.dtype for operand in operands if isinstance(operand, Tensor))
    return [operand if isinstance(operand, Tensor) else Tensor(operand, dtype) for operand in operands]


@elementwise("test")
def isinf(x: Any) -> Any:
    """True where x is infinite, of either sign."""
    return (x == x) & (x - x != 0)


isinf.no_gradient()

# --- of two and three -------------------------------------------------------------------------------------------------


def float_power(x: Numbers, exponent: Numbers) -> Tensor:
    """x ** exponent, computed and given in float64."""
    return pow(_double(x, "x"), _double(exponent, "exponent"))


def _double(x: Any, argument: str) -> Any:
    given = number_or_tensor(x, "float_power", argument)
    return astype(given, dtypes.float64)


def fmax(x: Numbers, y: Numbers) -> Tensor:
    """The larger of x and y; beside NaN, the other one. A tie's gradient is split in halves."""
    return _without_nan(maximum, x, y, "fmax")


def fmin(x: Numbers, y: Numbers) -> Tensor:
    """The smaller of x and y; beside NaN, the other one. A tie's gradient is split in halves."""
    return _without_nan(minimum, x, y, "fmin")


def _without_nan(function: Any, x: Any, y: Any, name: str) -> Tensor:
    a, b = _as_tensors(x, y, name)
    result: Tensor = where(isnan(a), b, where(isnan(b), a, function(a, b)))
    return result


def lerp(x: Numbers, end: Numbers, weight: Numbers) -> Tensor:
    """x + weight * (end - x): from x, at weight 0, to `end`, at 1."""
    start = as_float(x, "lerp")
    result: Tensor = start + (number_or_tensor(end, "lerp", "end") - start) * number_or_tensor(weight, "lerp", "weight")
    return result


def addcmul(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 * tensor2."""
    product = mul(as_tensor(tensor1, "addcmul", "tensor1"), tensor2)
    result: Tensor = as_tensor(x, "addcmul") + (product if _is_one(value) else product * value)
    return result


def addcdiv(x: Numbers, tensor1: Numbers, tensor2: Numbers, value: Numbers = 1) -> Tensor:
    """x + value * tensor1 / tensor2."""
    quotient = div(as_tensor(tensor1, "addcdiv", "tensor1"), tensor2)
    result: Tensor = as_tensor(x, "addcdiv") + (quotient if _is_one(value) else quotient * value)
    return result


def _is_one(value: Any) -> bool:
    return type(value) in (int, float) and value == 1


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
