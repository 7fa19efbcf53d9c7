"""Functions that kernels call and Numba knows nothing of: how it is told. And two that it knows, but compiles slowly.

Numba makes a function of its own of each `min` and `view`: `least` and `bitcast` are an instruction or two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from snncell.base.signals import import_once

types: Any = import_once("numba.core.types")
extending: Any = import_once("numba.extending")

_F = TypeVar("_F", bound=Callable[..., Any])


def declare_type(function: Callable[..., Any], result: Callable[..., Any]) -> None:
    """Tell Numba the type of a call: `result` of its arguments' types; None for those that it does not take."""
    extending.type_callable(function)(lambda context: result)


def lowers(function: Callable[..., Any], *kinds: Any) -> Callable[[_F], _F]:
    """Decorate what writes LLVM's instructions for a call with arguments of these kinds."""
    decorate: Callable[[_F], _F] = extending.lower_builtin(function, *kinds)
    return decorate


def least(a: Any, b: Any) -> Any:
    """The lesser of two integers."""
    return min(a, b)


def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of a number of NumPy as another dtype of the same size."""
    return x.view(dtype)


declare_type(least, lambda a, b: types.int64)
declare_type(bitcast, lambda x, dtype: dtype.dtype)


@lowers(least, types.Integer, types.Integer)
def _lower_least(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    a, b = (context.cast(builder, x, kind, types.int64) for x, kind in zip(operands, signature.args, strict=True))
    return builder.select(builder.icmp_signed("<", b, a), b, a)


@lowers(bitcast, types.Number, types.Any)
def _lower_bitcast(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], context.get_data_type(signature.return_type))
