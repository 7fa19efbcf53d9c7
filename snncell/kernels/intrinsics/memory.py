"""Arrays on the heap, in kernels whose arrays do not fit on the stack.

A compiled kernel frees them when it returns, and before it allocates the array of the same place again. If memory runs
out, it returns an error code. Only kernels themselves, not functions that they call, can allocate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.kernels.intrinsics.builtins import LazyModule, int_constant, ir, lowers, types

cgutils: Any = LazyModule("numba.core.cgutils")
array_types: Any = LazyModule("snncell.kernels.intrinsics.array_types")

ALIGNMENT = 64  # bytes, a cache line


def heap(count: int, kind: Any) -> Any:
    """An uninitialised array of `count` elements."""
    return np.empty(count, kind)


def heap_rows(rows: int, count: int, kind: Any) -> Any:
    """An uninitialised array with two axes."""
    return np.empty((rows, count), kind)


@lowers(heap, "Integer", "Any", result=lambda count, kind: array_types.ArrayPart(kind.dtype))
def _lower_heap(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _allocated(context, builder, signature.return_type.dtype, _counts(context, builder, signature, operands)[0])


@lowers(heap_rows, "Integer", "Integer", "Any", result=lambda rows, count, kind: array_types.Elements(kind.dtype, 2))
def _lower_heap_rows(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    shape = _counts(context, builder, signature, operands)
    data = _allocated(context, builder, signature.return_type.dtype, builder.mul(*shape))
    elements = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
    return builder.insert_value(builder.insert_value(elements, data, 0), cgutils.pack_array(builder, shape), 1)


def _counts(context: Any, builder: Any, signature: Any, operands: Any) -> list[Any]:
    pairs = zip(operands[:-1], signature.args, strict=False)
    return [context.cast(builder, count, kind, types.int64) for count, kind in pairs]


def _allocated(context: Any, builder: Any, kind: Any, count: Any) -> Any:
    byte, word, element = ir.IntType(8).as_pointer(), ir.IntType(64), context.get_data_type(kind)
    malloc = cgutils.get_or_insert_function(builder.module, ir.FunctionType(byte, [word]), "malloc")
    with builder.goto_entry_block():
        place = builder.alloca(byte)
        builder.store(byte(None), place)
    builder.heap.append(place)
    free(builder, place)
    size = builder.mul(count, int_constant(context.get_abi_sizeof(element)))
    memory = builder.call(malloc, [builder.add(size, int_constant(ALIGNMENT))])
    builder.store(memory, place)
    with builder.if_then(builder.icmp_unsigned("==", memory, byte(None)), likely=False):
        builder.ret(ir.Constant(ir.IntType(32), -1))
    address = builder.add(builder.ptrtoint(memory, word), int_constant(ALIGNMENT - 1))
    return builder.inttoptr(builder.and_(address, int_constant(-ALIGNMENT)), element.as_pointer())


def free(builder: Any, place: Any) -> None:
    """Emit code that frees the memory whose address is stored at `place`."""
    byte = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [byte]), "free")
    builder.call(function, [builder.load(place)])
