"""The arguments of a compiled kernel, in one row of 8-byte slots, so that all kernels have one signature.

A slot holds an integer, the bits of a double, or the address of a NumPy array, an object of which the kernel reads
where its elements begin and how long its axes are (`PyArrayObject` in NumPy's C API). A complex number takes two.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from snncell.kernels.intrinsics.builtins import LazyModule, declare_type, int_constant, ir, lowers, types

cgutils: Any = LazyModule("numba.core.cgutils")
array_types: Any = LazyModule("snncell.kernels.intrinsics.array_types")
extending: Any = LazyModule("numba.extending")
numpy_support: Any = LazyModule("numba.np.numpy_support")

HEAD = object.__basicsize__  # of every Python object: PyObject_HEAD
DATA, AXES = HEAD, HEAD + 16  # char *data; int nd; npy_intp *dimensions


def arguments(kinds: str) -> Any:
    """A function for kernels: all arguments, in one tuple, from the address of the slots.

    `kinds` has the dtype of each, with the number of axes if it is an array: "int64 float32 float32[2]".
    """
    every = [_kind_of(kind) for kind in kinds.split()]
    result = types.Tuple(every)

    def arguments_of(typing: Any, slots: Any) -> Any:
        return result(slots), lower

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        place, values = 0, []
        for kind in every:
            take = _array_in if isinstance(kind, array_types.Elements) else _number_in
            values.append(take(context, builder, kind, builder.gep(operands[0], [int_constant(place)])))
            place += 2 if isinstance(kind, types.Complex) else 1
        return context.make_tuple(builder, result, values)

    return extending.intrinsic(prefer_literal=True)(arguments_of)


def _kind_of(text: str) -> Any:
    name, _, ndim = text.rstrip("]").partition("[")
    dtype = numpy_support.from_dtype(np.dtype(name))
    return array_types.Elements(dtype, int(ndim)) if ndim else dtype


def _array_in(context: Any, builder: Any, kind: Any, slot: Any) -> Any:
    """The C-contiguous array whose object's address is in a slot."""
    word = ir.IntType(64)

    def at(address: Any, offset: int) -> Any:
        pointer = builder.inttoptr(builder.add(address, ir.Constant(word, offset)), word.as_pointer())
        return builder.load(pointer)

    owner = builder.load(slot)
    axes = at(owner, AXES)
    elements = cgutils.create_struct_proxy(kind)(context, builder)
    elements.data = builder.inttoptr(at(owner, DATA), context.get_data_type(kind.dtype).as_pointer())
    elements.shape = cgutils.pack_array(builder, [at(axes, 8 * axis) for axis in range(kind.ndim)], ty=word)
    return elements._getvalue()


def _number_in(context: Any, builder: Any, kind: Any, slot: Any) -> Any:
    """The number in a slot: an integer as it is, of floats the double's bits, of complex numbers two of them."""

    def real(offset: int) -> Any:
        word = builder.load(builder.gep(slot, [int_constant(offset)]))
        return builder.bitcast(word, ir.DoubleType())

    if isinstance(kind, types.Float):
        return context.cast(builder, real(0), types.float64, kind)
    if isinstance(kind, types.Complex):
        parts = context.make_complex(builder, types.complex128)
        parts.real, parts.imag = real(0), real(1)
        return context.cast(builder, parts._getvalue(), types.complex128, kind)
    return context.cast(builder, builder.load(slot), types.int64, kind)


_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)


def call(function: int, first: int, stop: int, slots: int) -> int:
    """Call the kernel at an address for the units from `first` to `stop`; 0 if it raised nothing."""
    places = (ctypes.c_void_p * 2)()  # where it puts what it returns and raises
    address = ctypes.addressof(places)
    return int(_KERNEL(function)(address, address + ctypes.sizeof(ctypes.c_void_p), first, stop, slots))


declare_type(call, lambda function, first, stop, slots: types.int64)


@lowers(call, *["Integer"] * 4)
def _lower_call(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    arguments = [byte.as_pointer(), byte.as_pointer(), word, word, word.as_pointer()]
    kernel = builder.inttoptr(operands[0], ir.FunctionType(ir.IntType(32), arguments).as_pointer())
    result, raised = cgutils.alloca_once(builder, byte), cgutils.alloca_once(builder, byte)
    status = builder.call(
        kernel, [result, raised, operands[1], operands[2], builder.inttoptr(operands[3], word.as_pointer())]
    )
    return builder.zext(status, word)


def word_at(address: int) -> int:
    """The integer at an address."""
    return ctypes.c_int64.from_address(address).value


declare_type(word_at, lambda address: types.int64)


@lowers(word_at, "Integer")
def _lower_word_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.load(builder.inttoptr(operands[0], ir.IntType(64).as_pointer()))


def words_at(address: Any) -> Any:
    """The elements of an array as words of eight bytes, from the address of its object, which somebody else keeps."""
    return np.asarray(ctypes.cast(int(address), ctypes.py_object).value).view(np.int64)


declare_type(words_at, lambda address: array_types.ArrayPart(types.int64))


@lowers(words_at, "Integer")
def _lower_words_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    field = builder.add(operands[0], int_constant(DATA))
    return builder.load(builder.inttoptr(field, ir.IntType(64).as_pointer().as_pointer()))
