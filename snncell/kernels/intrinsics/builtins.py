"""Intrinsics: functions with a Python body, and a type and LLVM instructions of their own in compiled kernels.

Nothing here imports Numba. A registration is kept in `PENDING` until a kernel is compiled, because the source of a
kernel imports the functions that it calls, and a kernel that is loaded from the disk needs neither Numba nor LLVM.

`least` and `bitcast` stand for `min` and `view`, of which Numba compiles a function for each call: here they are an
instruction or two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from snncell.interrupts import import_once

_F = TypeVar("_F", bound=Callable[..., Any])


class LazyModule:
    """A module that is imported when an attribute of it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_once(self._name), name)


types: Any = LazyModule("numba.core.types")
ir: Any = LazyModule("llvmlite.ir")

# Registrations that `numba.passes.register_pending` passes on to Numba before it compiles a kernel, in their order.
PENDING: list[tuple[Any, ...]] = []


def declare_type(function: Callable[..., Any], result: Callable[..., Any]) -> None:
    """Register the type of a call: `result` of the types of its arguments, or None if it does not take them."""
    PENDING.append(("declare_type", function, result))


def lowers(function: Callable[..., Any], *kinds: str) -> Callable[[_F], _F]:
    """Decorate the function that writes LLVM's instructions for a call with arguments of these kinds.

    A kind is the name of a type of Numba, such as "Integer", or of `array_types`.
    """

    def register(write: _F) -> _F:
        PENDING.append(("lower", function, kinds, write))
        return write

    return register


def inline(function: _F) -> _F:
    """Decorate a function that kernels call, and that becomes part of them where it is called.

    Python calls it as it stands; so do kernels with NUMBA_DISABLE_JIT=1.
    """
    PENDING.append(("inline", function))
    return function


def call_once(function: _F) -> _F:
    """Decorate a long function that kernels call: a kernel has its code once, however often it calls it."""
    PENDING.append(("call_once", function))
    return function


def int_constant(number: int) -> Any:
    """A constant of 64 bits, in LLVM's instructions."""
    return ir.Constant(ir.IntType(64), number)


def least(a: Any, b: Any) -> Any:
    """The lesser of two integers."""
    return min(a, b)


def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of a number of NumPy as another dtype of the same size."""
    return x.view(dtype)


declare_type(least, lambda a, b: types.int64)
declare_type(bitcast, lambda x, dtype: dtype.dtype)


@lowers(least, "Integer", "Integer")
def _lower_least(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    a, b = (context.cast(builder, x, kind, types.int64) for x, kind in zip(operands, signature.args, strict=True))
    return builder.select(builder.icmp_signed("<", b, a), b, a)


@lowers(bitcast, "Number", "Any")
def _lower_bitcast(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], context.get_data_type(signature.return_type))
