"""Comparison, logic and selection, element by element. Only selection has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.ops.base import elementwise
from snncell.tape.tensor import Tensor


@elementwise("compare", complex_numbers=True)
def equal(x: Any, y: Any) -> Any:
    """x == y."""
    return x == y


@elementwise("compare", complex_numbers=True)
def not_equal(x: Any, y: Any) -> Any:
    """x != y."""
    return x != y


@elementwise("compare")
def less(x: Any, y: Any) -> Any:
    """x < y."""
    return x < y


@elementwise("compare")
def less_equal(x: Any, y: Any) -> Any:
    """x <= y."""
    return x <= y


@elementwise("compare")
def greater(x: Any, y: Any) -> Any:
    """x > y."""
    return x > y


@elementwise("compare")
def greater_equal(x: Any, y: Any) -> Any:
    """x >= y."""
    return x >= y


@elementwise("test")
def isnan(x: Any) -> Any:
    """True where x is not a number."""
    return x != x


@elementwise("test")
def isfinite(x: Any) -> Any:
    """True where x is neither infinite nor NaN."""
    return x - x == 0


@elementwise("logical")
def logical_and(x: Any, y: Any) -> Any:
    """True where both are true."""
    return x & y


@elementwise("logical")
def logical_or(x: Any, y: Any) -> Any:
    """True where one is true."""
    return x | y


@elementwise("logical")
def logical_xor(x: Any, y: Any) -> Any:
    """True where exactly one is true."""
    return x ^ y


@elementwise("logical")
def logical_not(x: Any) -> Any:
    """True where x is false."""
    return logical_not(x)


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_and(x: Any, y: Any) -> Any:
    """The bits that both have."""
    return x & y


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_or(x: Any, y: Any) -> Any:
    """The bits that one has."""
    return x | y


@elementwise("same", booleans=True, whole_numbers=True)
def bitwise_xor(x: Any, y: Any) -> Any:
    """The bits that exactly one has."""
    return x ^ y


for _discrete in (
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    isnan,
    isfinite,
    logical_and,
    logical_or,
    logical_xor,
    logical_not,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
):
    _discrete.no_gradient()


@elementwise("select", complex_numbers=True)
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    return where(condition, x, y)


@where.def_bprop
def _(condition: Tensor, _x: Tensor, _y: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    return None, lambda: where(condition, dout, 0.0), lambda: where(condition, 0.0, dout)


where.proportional = lambda inputs, varying: (
    not varying[0]
    and all(varies or (type(x) in (int, float) and x == 0) for x, varies in zip(inputs[1:], varying[1:], strict=True))
)
select = where
gt, ge, lt, le, eq, ne = greater, greater_equal, less, less_equal, equal, not_equal
