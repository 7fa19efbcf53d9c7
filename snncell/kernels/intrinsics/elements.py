"""Arrays in kernels: arguments, rows and parts of them, and small arrays on the stack of the kernel.

Compiled, they are pointers (`array_types`). In Python each function does the same to NumPy's arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.kernels.intrinsics.builtins import (
    LazyModule,
    Vectors,
    declare_type,
    inline,
    int_constant,
    ir,
    least,
    lowers,
    same_parts,
    types,
)
from snncell.kernels.loops import BLOCK, LANES

cgutils: Any = LazyModule("numba.core.cgutils")
array_types: Any = LazyModule("snncell.kernels.intrinsics.array_types")
extending: Any = LazyModule("numba.extending")
numpy_support: Any = LazyModule("numba.np.numpy_support")


# --- parts of arrays, as pointers ------------------------------------------------------------------------------------


def tail(x: Any, first: Any) -> Any:
    """The elements from `first` on of an array with one axis, or of such a part. It does not know where it ends."""
    return x[first:]


def row(x: Any, place: Any) -> Any:
    """A row of an array with two axes."""
    return x[place]


def words_of(x: Any) -> Any:
    """A part of an array of bytes, as words of eight of them."""
    return x.view(np.uint64)


def line_of(x: Any) -> Any:
    """The number of elements in 64 bytes: a line of the cache, or a vector."""
    return 64 // x.dtype.itemsize


def scalar(index: Any) -> Any:
    """The same index, of which LLVM knows nothing. A loop in which there is such does not run on vectors."""
    # For loops that divide integers: on vectors they are no faster, and take three times as long to compile.
    return index


def flat(x: Any) -> Any:
    """All elements of an array with two axes, row by row."""
    return x.reshape(-1)


def copy(target: Any, source: Any, count: Any) -> Any:
    """Copy the first `count` elements of a part to another that does not overlap."""
    target[:count] = source[:count]


def prefetch(x: Any) -> None:
    """Begin to load the line of memory that a part begins in: it is read soon. From Python, nothing."""


declare_type(row, lambda x, place: array_types.ArrayPart(x.dtype))
declare_type(tail, lambda x, first: array_types.ArrayPart(x.dtype))


@lowers(scalar, "Integer", result="int64")
def _lower_scalar(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _opaque(context, builder, operands[0], signature.args[0])


@lowers(prefetch, "ArrayPart", result="none")
def _lower_prefetch(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    arguments = [ir.Constant(word, number) for number in (0, 3, 1)]  # for a load, into all caches, data
    builder.call(function, [builder.bitcast(operands[0], byte), *arguments])
    return context.get_dummy_value()


@lowers(words_of, "ArrayPart", result=lambda x: array_types.ArrayPart(types.uint64))
def _lower_words(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], ir.IntType(64).as_pointer())


@lowers(line_of, "ArrayPart", result="int64")
def _lower_line(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return int_constant(512 // signature.args[0].dtype.bitwidth)


@lowers(flat, "Elements", result=lambda x: array_types.ArrayPart(x.dtype))
def _lower_flat(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return array_types.open_array(context, builder, signature, operands).data


@lowers(tail, "ArrayPart", "Integer")
def _lower_tail_of_part(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.gep(operands[0], [operands[1]], inbounds=True)


@lowers(tail, "Array", "Integer")
@lowers(tail, "Elements", "Integer")
def _lower_tail(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.gep(array_types.open_array(context, builder, signature, operands).data, [operands[1]], inbounds=True)


@lowers(row, "Array", "Integer")
@lowers(row, "Elements", "Integer")
def _lower_row(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    x = array_types.open_array(context, builder, signature, operands)
    # Which row it is, LLVM is not to know: for rows that follow each other in an outer loop it would ask before that
    # whether they overlap what other rows there are, as a whole. They do where it runs backwards, or one row is made
    # from the one before, and the loop over the elements would not run on vectors. So it asks for each row.
    place = builder.mul(
        _opaque(context, builder, operands[1], signature.args[1]), builder.extract_value(x.shape, 1), flags=["nsw"]
    )
    return builder.gep(x.data, [place], inbounds=True)


def _opaque(context: Any, builder: Any, number: Any, kind: Any) -> Any:
    """The same integer, through an empty piece of inline assembly, which LLVM does not look into."""
    word = ir.IntType(64)
    number = context.cast(builder, number, kind, types.int64)
    return builder.asm(ir.FunctionType(word, [word]), "", "=r,0", [number], False)


@lowers(copy, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_copy(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
    cgutils.raw_memcpy(builder, operands[0], operands[1], operands[2], size)
    return context.get_dummy_value()


@inline
def fill(target: Any, source: Any, first: Any, step: Any, count: Any) -> None:
    """The `count` elements from `first` on, if `step` is 1; else `count` times the one element there is."""
    if step == 1:
        copy(target, tail(source, first), count)
    elif count > 0:
        target[0] = source[0]
        done = 1
        while done < count:  # twice as many each time: a loop over elements takes longer to compile
            more = least(done, count - done)
            copy(tail(target, done), tail(target, 0), more)
            done += more


# --- arrays of a kernel's own, on its stack: code that has no others links without Numba's runtime -------------------


def lanes(start: Any) -> Any:
    """LANES elements that are `start`."""
    return np.full(LANES, start)


def strip(count: int, kind: Any) -> Any:
    """Room for `count` elements, at most BLOCK, of a dtype or of that of an array."""
    return np.empty(count, kind.dtype if isinstance(kind, np.ndarray) else kind)


@lowers(lanes, "Any", result=lambda start: array_types.ArrayPart(start))
def _lower_lanes(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    kind = signature.args[0]
    data = _on_stack(builder, context.get_data_type(kind), LANES)
    for lane in range(LANES):
        context.pack_value(builder, kind, operands[0], builder.gep(data, [int_constant(lane)]))
    return data


@lowers(strip, "Integer", "Any", result=lambda count, kind: array_types.ArrayPart(kind.dtype))
def _lower_strip(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _on_stack(builder, context.get_data_type(signature.return_type.dtype), BLOCK)


def _on_stack(builder: Any, element: Any, count: int) -> Any:
    """Room for so many elements, made when the kernel begins: what asks for it in a loop gets the same again."""
    return cgutils.alloca_once(builder, element, size=ir.Constant(ir.IntType(32), count))


# --- the arguments of a compiled kernel, in one row of 8-byte slots, so that all kernels have one signature -----------

# A slot holds an integer, the bits of a double, or the address of a NumPy array, an object of which the kernel reads
# where its elements begin and how long its axes are (`PyArrayObject` in NumPy's C API). A complex number takes two.

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


@lowers(call, *["Integer"] * 4, result="int64")
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


@lowers(word_at, "Integer", result="int64")
def _lower_word_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.load(builder.inttoptr(operands[0], ir.IntType(64).as_pointer()))


def words_at(address: Any) -> Any:
    """The elements of an array as words of eight bytes, from the address of its object, which somebody else keeps."""
    return np.asarray(ctypes.cast(int(address), ctypes.py_object).value).view(np.int64)


@lowers(words_at, "Integer", result=lambda address: array_types.ArrayPart(types.int64))
def _lower_words_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    field = builder.add(operands[0], int_constant(DATA))
    return builder.load(builder.inttoptr(field, ir.IntType(64).as_pointer().as_pointer()))


# --- copies a vector at a time ----------------------------------------------------------------------------------------


def _vector_by_vector(
    function: Callable[..., Any], *kinds: str, result: Any = same_parts
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `one(vectors, first, *operands)`, the instructions of a copy for the vector of elements from `first` on.

    The last operand is the number of elements.
    """

    def register(one: Callable[..., None]) -> Callable[..., None]:
        @lowers(function, *kinds, result=result)
        def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            vectors = Vectors(builder, operands[0])

            def body(first: Any, _: list[Any]) -> list[Any]:
                one(vectors, first, *operands)
                return []

            vectors.loop(operands[-1], vectors.lanes, [], body, maybe_none=True)
            return context.get_dummy_value()

        return one

    return register


def move(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and put zeros after them, to the end of a vector."""
    target[:count] = source[:count]


@_vector_by_vector(move, "ArrayPart", "ArrayPart", "Integer")
def _move_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    mask = vectors.below(vectors.builder.sub(count, first))
    vectors.store(vectors.load_masked(vectors.at(source, first), mask), vectors.at(target, first))


def move_every_second(target: Any, source: Any, count: int) -> None:
    """As `move`, of the elements 0, 2, 4 ... of the source."""
    target[:count] = source[: 2 * count : 2]


@_vector_by_vector(move_every_second, "ArrayPart", "ArrayPart", "Integer")
def _move_every_second_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    builder = vectors.builder
    left = builder.mul(builder.sub(count, first), int_constant(2))
    left = builder.sub(left, int_constant(1))  # after the last there may be nothing
    near = vectors.at(source, builder.mul(first, int_constant(2)))
    a, b = (
        vectors.load_masked(vectors.at(near, n), vectors.below(builder.sub(left, int_constant(n))))
        for n in (0, vectors.lanes)
    )
    vectors.store(vectors.shuffled(a, b, range(0, 2 * vectors.lanes, 2)), vectors.at(target, first))


def zero(target: Any, count: int) -> None:
    """Put `count` zeros, and more to the end of a vector."""
    target[:count] = 0


@_vector_by_vector(zero, "ArrayPart", "Integer", result="none")
def _zero_vector(vectors: Vectors, first: Any, target: Any, count: Any) -> None:
    vectors.store(vectors.zero, vectors.at(target, first))


def put(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements and touch nothing after them; there may be garbage after the source's."""
    target[:count] = source[:count]


@_vector_by_vector(put, "ArrayPart", "ArrayPart", "Integer")
def _put_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    mask = vectors.below(vectors.builder.sub(count, first))
    vectors.store_masked(vectors.load(vectors.at(source, first)), vectors.at(target, first), mask)


def clear(target: Any, count: int) -> None:
    """Put `count` zeros, and touch nothing after them."""
    target[:count] = 0


@lowers(clear, "ArrayPart", "Integer", result="none")
def _lower_clear(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    size = int_constant(context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    count = context.cast(builder, operands[1], signature.args[1], types.int64)
    cgutils.memset(builder, operands[0], builder.mul(count, size), 0)
    return context.get_dummy_value()


def move_added(target: Any, source: Any, count: int, term: int) -> None:
    """Copy `count` integers, each with `term` added; what is after them in the last vector, of one or more, is any."""
    target[:count] = source[:count] + term


@lowers(move_added, "ArrayPart", "ArrayPart", "Integer", "Integer", result=same_parts)
def _lower_move_added(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count, term = operands
    vectors = Vectors(builder, target)
    terms = vectors.spread(context.cast(builder, term, signature.args[3], signature.args[0].dtype))

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(builder.add(vectors.load(vectors.at(source, first)), terms), vectors.at(target, first))
        return []

    vectors.loop(count, vectors.lanes, [], one)  # without a branch, where there are few
    return context.get_dummy_value()
