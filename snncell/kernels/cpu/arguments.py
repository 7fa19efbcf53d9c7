"""The arguments of a compiled kernel, in one row of 8-byte slots, so that all kernels have one signature.

A slot holds an integer, the bits of a double, or the address of a NumPy array, an object of which the kernel reads
where its elements begin and how long its axes are (`PyArrayObject` in NumPy's C API). A complex number takes two.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.kernels.cpu.builtins import declare_type, lowers
from snncell.kernels.cpu.elements import ArrayPart, Elements
from snncell.kernels.policy import intrinsic

ir: Any = import_once("llvmlite.ir")
types: Any = import_once("numba.core.types")
cgutils: Any = import_once("numba.core.cgutils")
from_dtype: Any = import_once("numba.np.numpy_support").from_dtype

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
            take = _array_in if isinstance(kind, Elements) else _number_in
            values.append(take(context, builder, kind, builder.gep(operands[0], [ir.Constant(ir.IntType(64), place)])))
            place += 2 if isinstance(kind, types.Complex) else 1
        return context.make_tuple(builder, result, values)

    return intrinsic(arguments_of)


def _kind_of(text: str) -> Any:
    name, _, ndim = text.rstrip("]").partition("[")
    dtype = from_dtype(np.dtype(name))
    return Elements(dtype, int(ndim)) if ndim else dtype


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
        word = builder.load(builder.gep(slot, [ir.Constant(ir.IntType(64), offset)]))
        return builder.bitcast(word, ir.DoubleType())

    if isinstance(kind, types.Float):
        return context.cast(builder, real(0), types.float64, kind)
    if isinstance(kind, types.Complex):
        parts = context.make_complex(builder, types.complex128)
        parts.real, parts.imag = real(0), real(1)
        return context.cast(builder, parts._getvalue(), types.complex128, kind)
    return context.cast(builder, builder.load(slot), types.int64, kind)


@intrinsic
def call(typing: Any, function: Any, first: Any, stop: Any, slots: Any) -> Any:
    """Call the kernel at an address for the blocks from `first` to `stop`; 0 if it raised nothing."""

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
        arguments = [byte.as_pointer(), byte.as_pointer(), word, word, word.as_pointer()]
        kernel = builder.inttoptr(operands[0], ir.FunctionType(ir.IntType(32), arguments).as_pointer())
        result, raised = cgutils.alloca_once(builder, byte), cgutils.alloca_once(builder, byte)
        status = builder.call(
            kernel, [result, raised, operands[1], operands[2], builder.inttoptr(operands[3], word.as_pointer())]
        )
        return builder.zext(status, word)

    return types.int64(function, first, stop, slots), lower


@intrinsic
def word_at(typing: Any, address: Any) -> Any:
    """The integer at an address."""

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        return builder.load(builder.inttoptr(operands[0], ir.IntType(64).as_pointer()))

    return types.int64(types.int64), lower


def words_at(address: Any) -> Any:
    """The elements of an array as words of eight bytes, from the address of its object, which somebody else keeps."""
    return np.asarray(ctypes.cast(int(address), ctypes.py_object).value).view(np.int64)


declare_type(words_at, lambda address: ArrayPart(types.int64))


@lowers(words_at, types.Integer)
def _lower_words_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    field = builder.add(operands[0], ir.Constant(ir.IntType(64), DATA))
    return builder.load(builder.inttoptr(field, ir.IntType(64).as_pointer().as_pointer()))
