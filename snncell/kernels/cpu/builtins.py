"""The lesser of two integers, and the bits of a number: Numba has both, but compiles a function of its own for each."""

from __future__ import annotations

from typing import Any

from snncell.interrupts import imported

types: Any = imported("numba.core.types")
extending: Any = imported("numba.extending")


def least(a: Any, b: Any) -> Any:
    """The lesser of two integers."""
    return min(a, b)


def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of a number of NumPy as another dtype of the same size."""
    return x.view(dtype)


@extending.type_callable(least)  # type: ignore[untyped-decorator]
def _type_least(context: Any) -> Any:
    return lambda a, b: types.int64


@extending.lower_builtin(least, types.Integer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_least(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    a, b = (context.cast(builder, x, kind, types.int64) for x, kind in zip(operands, signature.args, strict=True))
    return builder.select(builder.icmp_signed("<", b, a), b, a)


@extending.type_callable(bitcast)  # type: ignore[untyped-decorator]
def _type_bitcast(context: Any) -> Any:
    return lambda x, dtype: dtype.dtype


@extending.lower_builtin(bitcast, types.Number, types.Any)  # type: ignore[untyped-decorator]
def _lower_bitcast(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], context.get_data_type(signature.return_type))
