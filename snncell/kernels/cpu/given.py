"""The arguments of a compiled kernel, in one row of 8-byte slots, so that all kernels have one signature.

A slot holds an integer, the bits of a double, or the address of a NumPy array, an object of which the kernel reads
where its elements begin and how long its axes are (`PyArrayObject` in NumPy's C API). A complex number takes two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.interrupts import imported
from snncell.kernels.cpu.loops import BLOCK, LANES
from snncell.kernels.policy import intrinsic

ir: Any = imported("llvmlite.ir")
types: Any = imported("numba.core.types")
cgutils: Any = imported("numba.core.cgutils")
populate_array: Any = imported("numba.np.arrayobj").populate_array
extending: Any = imported("numba.extending")

HEAD = object.__basicsize__  # of every Python object: PyObject_HEAD
DATA, AXES = HEAD, HEAD + 16  # char *data; int nd; npy_intp *dimensions


def _array(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any], strides: list[Any]) -> Any:
    """Numba's array of elements that somebody else keeps."""
    made, word = context.make_array(kind)(context, builder), ir.IntType(64)
    lengths, steps = (cgutils.pack_array(builder, values, ty=word) for values in (shape, strides))
    populate_array(made, data, lengths, steps, strides[-1], None)
    return made._getvalue()


@intrinsic
def array(typing: Any, slots: Any, place: Any, dtype: Any, ndim: Any) -> Any:
    """The C-contiguous array whose object's address is in a slot."""
    kind = types.Array(dtype.dtype, ndim.literal_value, "C")

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word = ir.IntType(64)

        def at(address: Any, offset: int) -> Any:
            pointer = builder.inttoptr(builder.add(address, ir.Constant(word, offset)), word.as_pointer())
            return builder.load(pointer)

        owner = builder.load(builder.gep(given[0], [ir.Constant(word, place.literal_value)]))
        axes = at(owner, AXES)
        shape = [at(axes, 8 * axis) for axis in range(kind.ndim)]
        size = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides = [size]
        for length in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length))
        elements = context.get_data_type(kind.dtype).as_pointer()
        return _array(context, builder, kind, builder.inttoptr(at(owner, DATA), elements), shape, strides)

    return kind(slots, place, dtype, ndim), lower


@intrinsic
def number(typing: Any, slots: Any, place: Any, dtype: Any) -> Any:
    """The number in a slot: an integer as it is, of floats the double's bits, of complex numbers two of them."""
    kind = dtype.dtype

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word = ir.IntType(64)

        def at(offset: int) -> Any:
            return builder.load(builder.gep(given[0], [ir.Constant(word, place.literal_value + offset)]))

        def real(offset: int) -> Any:
            return builder.bitcast(at(offset), ir.DoubleType())

        if isinstance(kind, types.Float):
            return context.cast(builder, real(0), types.float64, kind)
        if isinstance(kind, types.Complex):
            parts = context.make_complex(builder, types.complex128)
            parts.real, parts.imag = real(0), real(1)
            return context.cast(builder, parts._getvalue(), types.complex128, kind)
        return context.cast(builder, at(0), types.int64, kind)

    return kind(slots, place, dtype), lower


@intrinsic
def call(typing: Any, function: Any, first: Any, stop: Any, slots: Any) -> Any:
    """Call the kernel at an address for the blocks from `first` to `stop`; 0 if it raised nothing."""

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
        arguments = [byte.as_pointer(), byte.as_pointer(), word, word, word.as_pointer()]
        kernel = builder.inttoptr(given[0], ir.FunctionType(ir.IntType(32), arguments).as_pointer())
        result, raised = cgutils.alloca_once(builder, byte), cgutils.alloca_once(builder, byte)
        status = builder.call(
            kernel, [result, raised, given[1], given[2], builder.inttoptr(given[3], word.as_pointer())]
        )
        return builder.zext(status, word)

    return types.int64(function, first, stop, slots), lower


# --- what Numba has too, but compiles a function of its own for ------------------------------------------------------


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
def _lower_least(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    a, b = (context.cast(builder, x, kind, types.int64) for x, kind in zip(given, signature.args, strict=True))
    return builder.select(builder.icmp_signed("<", b, a), b, a)


@extending.type_callable(bitcast)  # type: ignore[untyped-decorator]
def _type_bitcast(context: Any) -> Any:
    return lambda x, dtype: dtype.dtype


@extending.lower_builtin(bitcast, types.Number, types.Any)  # type: ignore[untyped-decorator]
def _lower_bitcast(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    return builder.bitcast(given[0], context.get_data_type(signature.return_type))


# --- parts of arrays, as pointers: with slices, compilation takes twice as long --------------------------------------


def tail(x: Any, first: Any) -> Any:
    """The elements from `first` on of an array with one axis, or of such a part. It does not know where it ends."""
    return x[first:]


def row(x: Any, place: Any) -> Any:
    """A row of an array with two axes."""
    return x[place]


def words_of(x: Any) -> Any:
    """An array of bytes as words of eight of them."""
    return x.view(np.uint64)


def flat(x: Any) -> Any:
    """All elements of an array with two axes, row by row."""
    return x.reshape(-1)


@extending.type_callable(tail)  # type: ignore[untyped-decorator]
def _type_tail(context: Any) -> Any:
    return lambda x, first: types.CPointer(x.dtype)


@extending.type_callable(row)  # type: ignore[untyped-decorator]
def _type_row(context: Any) -> Any:
    return lambda x, place: types.CPointer(x.dtype)


@extending.type_callable(flat)  # type: ignore[untyped-decorator]
def _type_flat(context: Any) -> Any:
    return lambda x: types.CPointer(x.dtype)


@extending.type_callable(words_of)  # type: ignore[untyped-decorator]
def _type_words(context: Any) -> Any:
    return lambda x: types.CPointer(types.uint64)


@extending.lower_builtin(words_of, types.CPointer)  # type: ignore[untyped-decorator]
def _lower_words(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    return builder.bitcast(given[0], ir.IntType(64).as_pointer())


@extending.lower_builtin(flat, types.Array)  # type: ignore[untyped-decorator]
def _lower_flat(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    return context.make_array(signature.args[0])(context, builder, given[0]).data


@extending.lower_builtin(tail, types.CPointer, types.Integer)  # type: ignore[untyped-decorator]
def _lower_tail_of_part(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    return builder.gep(given[0], [given[1]])


@extending.lower_builtin(tail, types.Array, types.Integer)  # type: ignore[untyped-decorator]
def _lower_tail(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    whole = context.make_array(signature.args[0])(context, builder, given[0])
    return builder.gep(whole.data, [given[1]])


@extending.lower_builtin(row, types.Array, types.Integer)  # type: ignore[untyped-decorator]
def _lower_row(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    whole = context.make_array(signature.args[0])(context, builder, given[0])
    width = cgutils.unpack_tuple(builder, whole.shape)[1]
    return builder.gep(whole.data, [builder.mul(given[1], width)])


# --- arrays of a kernel's own, on its stack: code that has no others links without Numba's runtime -------------------


def lanes(start: Any) -> Any:
    """An array of LANES elements that are `start`."""
    return np.full(LANES, start)


def strip(count: int, dtype: Any) -> Any:
    """An array for `count` elements, at most BLOCK."""
    return np.empty(count, dtype)


@extending.type_callable(lanes)  # type: ignore[untyped-decorator]
def _type_lanes(context: Any) -> Any:
    return lambda start: types.Array(start, 1, "C")


@extending.lower_builtin(lanes, types.Any)  # type: ignore[untyped-decorator]
def _lower_lanes(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    kind, word = signature.return_type, ir.IntType(64)
    element = context.get_data_type(kind.dtype)
    data = _on_stack(builder, element, LANES)
    start = context.get_value_as_data(builder, kind.dtype, given[0])
    for lane in range(LANES):
        builder.store(start, builder.gep(data, [ir.Constant(word, lane)]))
    size = ir.Constant(word, context.get_abi_sizeof(element))
    return _array(context, builder, kind, data, [ir.Constant(word, LANES)], [size])


@extending.type_callable(strip)  # type: ignore[untyped-decorator]
def _type_strip(context: Any) -> Any:
    return lambda count, dtype: types.Array(dtype.dtype, 1, "C")


@extending.lower_builtin(strip, types.Integer, types.Any)  # type: ignore[untyped-decorator]
def _lower_strip(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    kind = signature.return_type
    element = context.get_data_type(kind.dtype)
    size = ir.Constant(ir.IntType(64), context.get_abi_sizeof(element))
    return _array(context, builder, kind, _on_stack(builder, element, BLOCK), [given[0]], [size])


def _on_stack(builder: Any, element: Any, count: int) -> Any:
    """Room for so many elements, made when the kernel begins: what asks for it in a loop gets the same again."""
    return cgutils.alloca_once(builder, element, size=ir.Constant(ir.IntType(32), count))
