"""Comparison, logic and selection, element by element. Only selection has a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.base.arguments.kinds import Numbers
from snncell.dtype import DType, uint8
from snncell.errors import DTypeError
from snncell.ops.base import Function, Grads, as_tensor, elementwise
from snncell.tape.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "eq", "equal", "ge", "greater", "greater_equal", "gt",
    "isfinite", "isinf", "isnan", "le", "less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor",
    "lt", "ne", "not_equal", "select", "where",
]  # fmt: skip


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


def _all_bits(dtype: DType) -> int:
    """The integer of which all bits are 1."""
    return 255 if dtype is uint8 else -1


def bitwise_not(x: Numbers) -> Tensor:
    """The bits turned over; of booleans logical not."""
    tensor = as_tensor(x, "bitwise_not")
    if tensor.dtype.category > 1:
        raise DTypeError(f"bitwise_not: takes integers or booleans, not {tensor.dtype}. Compare first: x > 0.")
    return bitwise_xor(tensor, True if tensor.dtype.category == 0 else _all_bits(tensor.dtype))


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
