"""Arrays in kernels: arguments, rows and parts of arrays, and small arrays on the stack.

Compiled, arrays are pointers (`array_types`). In Python, each function does the same with NumPy arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.kernels.intrinsics.builtins import (
    LazyModule,
    Vectors,
    array_types,
    cgutils,
    declare_type,
    inline,
    int_constant,
    ir,
    least,
    lowers,
    same_parts,
    types,
)
from snncell.kernels.loops import BLOCK, LANES, SLACK

extending: Any = LazyModule("numba.extending")
numpy_support: Any = LazyModule("numba.np.numpy_support")


# --- Parts of arrays, as pointers ------------------------------------------------------------------------------------


def tail(x: Any, first: Any) -> Any:
    """The elements from `first` on, of an array with one axis or a part; the result has no length."""
    return x[first:]


def row(x: Any, place: Any) -> Any:
    """A row of an array with two axes."""
    return x[place]


def words_of(x: Any) -> Any:
    """View a part of an array of bytes as words of eight bytes."""
    return x.view(np.uint64)


def line_of(x: Any) -> Any:
    """The number of elements in 64 bytes, a cache line or a vector."""
    return 64 // x.dtype.itemsize


def flat(x: Any) -> Any:
    """All elements of an array with two axes, row by row."""
    return x.reshape(-1)


def copy(target: Any, source: Any, count: Any) -> Any:
    """Copy the first `count` elements of a part to another one that does not overlap."""
    target[:count] = source[:count]


def prefetch(x: Any) -> None:
    """Prefetch the cache line at the start of a part. In Python, it does nothing."""


declare_type(row, lambda x, place: array_types.ArrayPart(x.dtype))
declare_type(tail, lambda x, first: array_types.ArrayPart(x.dtype))


@lowers(prefetch, "ArrayPart", result="none")
def _lower_prefetch(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    arguments = [ir.Constant(word, number) for number in (0, 3, 1)]  # read, high locality, data cache
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


@lowers(tail, "Elements", "Integer")
def _lower_tail(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.gep(array_types.open_array(context, builder, signature, operands).data, [operands[1]], inbounds=True)


@lowers(row, "Elements", "Integer")
def _lower_row(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    x = array_types.open_array(context, builder, signature, operands)
    # Hide the row number from LLVM. Otherwise, for consecutive rows in an outer loop, it would check for aliasing once
    # for all rows together. This check fails if the loop runs backwards, or if each row depends on the previous one,
    # and the loop over the elements would not be vectorised. With a hidden number, LLVM checks each row.
    place = builder.mul(
        _opaque(context, builder, operands[1], signature.args[1]), builder.extract_value(x.shape, 1), flags=["nsw"]
    )
    return builder.gep(x.data, [place], inbounds=True)


def _opaque(context: Any, builder: Any, number: Any, kind: Any) -> Any:
    """Pass an integer through an empty piece of inline assembly, which LLVM's optimiser cannot see through."""
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
    """Copy `count` elements from `first` on if `step` is 1; otherwise repeat the single element `count` times."""
    if step == 1:
        copy(target, tail(source, first), count)
    elif count > 0:
        target[0] = source[0]
        done = 1
        while done < count:  # double the filled part: a loop over elements would take longer to compile
            more = least(done, count - done)
            copy(tail(target, done), tail(target, 0), more)
            done += more


# --- Stack arrays: a kernel without heap arrays links without Numba's runtime ----------------------------------------


def lanes(start: Any) -> Any:
    """A stack array of LANES elements with value `start`."""
    return np.full(LANES, start)


def strip(count: int, kind: Any) -> Any:
    """An uninitialised stack array of `count` elements, at most BLOCK; compiled, it has room for BLOCK + SLACK."""
    return np.empty(count, kind.dtype if isinstance(kind, np.ndarray) else kind)


@lowers(lanes, "Any", result=lambda start: array_types.ArrayPart(start))
def _lower_lanes(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    kind = signature.args[0]
    data = _on_stack(builder, context.get_data_type(kind), LANES)
    if operands[0].type == data.type.pointee and not isinstance(kind, types.Complex):
        vectors = Vectors(builder, data, LANES * context.get_abi_sizeof(operands[0].type))
        vectors.store(vectors.spread(operands[0]), data)
        return data
    for lane in range(LANES):
        context.pack_value(builder, kind, operands[0], builder.gep(data, [int_constant(lane)]))
    return data


@lowers(strip, "Integer", "Any", result=lambda count, kind: array_types.ArrayPart(kind.dtype))
def _lower_strip(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _on_stack(builder, context.get_data_type(signature.return_type.dtype), BLOCK + SLACK)


def _on_stack(builder: Any, element: Any, count: int) -> Any:
    """Allocate a stack array in the entry block, so that a call inside of a loop returns the same memory each time."""
    with builder.goto_entry_block():
        return builder.alloca(element, size=ir.Constant(ir.IntType(32), count))


# --- The arguments of a compiled kernel, in one row of 8-byte slots, so that all kernels have one signature -----------

# A slot holds an integer, the bits of a double, or the address of a NumPy array object. From this object the kernel
# reads the shape and the address of the elements (`PyArrayObject` in NumPy's C API). A complex number takes two slots.

HEAD = object.__basicsize__  # of every Python object: PyObject_HEAD
DATA, AXES = HEAD, HEAD + 16  # char *data; int nd; npy_intp *dimensions


def arguments(kinds: str) -> Any:
    """A kernel function that unpacks all arguments from the address of the slots, as a tuple. `kinds` has the dtype of
    each argument, and the number of axes of each array: for example, "int64 float32[2]".
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
    data = builder.inttoptr(at(owner, DATA), context.get_data_type(kind.dtype).as_pointer())
    shape = cgutils.pack_array(builder, [at(axes, 8 * axis) for axis in range(kind.ndim)], ty=word)
    elements = ir.Constant(context.get_value_type(kind), ir.Undefined)
    return builder.insert_value(builder.insert_value(elements, data, 0), shape, 1)


def _number_in(context: Any, builder: Any, kind: Any, slot: Any) -> Any:
    """The number in a slot: an integer, the bits of a double, or for complex numbers the bits of two doubles."""

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
    """Call the kernel at an address for the units from `first` to `stop`; return 0 if it does not raise."""
    places = (ctypes.c_void_p * 2)()  # for the return value and the exception; both are ignored
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
    """The elements of an array as 8-byte words, given the address of its object, which the caller keeps alive."""
    return np.asarray(ctypes.cast(int(address), ctypes.py_object).value).view(np.int64)


@lowers(words_at, "Integer", result=lambda address: array_types.ArrayPart(types.int64))
def _lower_words_at(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    field = builder.add(operands[0], int_constant(DATA))
    return builder.load(builder.inttoptr(field, ir.IntType(64).as_pointer().as_pointer()))


# --- Copies, a vector at a time ---------------------------------------------------------------------------------------


def _vector_by_vector(
    function: Callable[..., Any], *kinds: str, result: Any = same_parts
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `one(vectors, first, *operands)`, which emits the copy of the vector from element `first` on."""

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


def _count_vectors(context: Any, builder: Any, signature: Any, operands: Any) -> tuple[Vectors, Any, Any]:
    """For a call (target, source, count): the vectors of the target, the count, and the elements in whole vectors."""
    target, _, count = operands
    vectors = Vectors(builder, target)
    count = context.cast(builder, count, signature.args[2], types.int64)
    return vectors, count, builder.and_(count, int_constant(-vectors.lanes))


def move(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and pad with zeros to the end of a vector."""
    target[:count] = source[:count]


@lowers(move, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_move(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, _ = operands
    vectors, count, whole = _count_vectors(context, builder, signature, operands)

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(vectors.load(vectors.at(source, first)), vectors.at(target, first))
        return []

    vectors.loop(whole, vectors.lanes, [], one, maybe_none=True)
    with builder.if_then(builder.icmp_signed("<", whole, count)):  # only the last vector needs a mask
        mask = vectors.below(builder.sub(count, whole))
        vectors.store(vectors.load_masked(vectors.at(source, whole), mask), vectors.at(target, whole))
    return context.get_dummy_value()


def move_between(target: Any, source: Any, first: int, low: int, high: int, count: int) -> None:
    """Copy `source[first + i]` to `target[i]` for i from `low` to `high`; `first` may be negative.
    All other elements up to `count`, rounded up to whole vectors, become zeros.
    """
    target[:count] = 0
    target[low:high] = source[first + low : first + high]


@lowers(move_between, "ArrayPart", "ArrayPart", *["Integer"] * 4, result=same_parts)
def _lower_move_between(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, begin, low, high, count = operands
    vectors = Vectors(builder, target)
    wide = builder.sub(high, low)

    def one(first: Any, _: list[Any]) -> list[Any]:
        mask = vectors.between(builder.sub(first, low), wide)
        vectors.store(
            vectors.load_masked(builder.gep(source, [builder.add(begin, first)]), mask), vectors.at(target, first)
        )
        return []

    vectors.loop(count, vectors.lanes, [], one)
    return context.get_dummy_value()


def convert(target: Any, source: Any, count: int) -> Any:
    """Convert `count` bytes to the dtype of `target`, and return `target`; return `source` if it has that dtype."""
    if source.dtype == target.dtype:
        return source
    target[:count] = source[:count]
    return target


@lowers(convert, "ArrayPart", "ArrayPart", "Integer", result=lambda target, source, count: target)
def _lower_convert(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, _ = operands
    if signature.args[0] == signature.args[1]:
        return source
    vectors, count, whole = _count_vectors(context, builder, signature, operands)

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(vectors.load_bytes(vectors.at(source, first)), vectors.at(target, first))
        return []

    def last(n: Any, _: list[Any]) -> list[Any]:
        place = builder.add(whole, n)
        number = builder.uitofp(builder.load(vectors.at(source, place)), vectors.element)
        builder.store(number, vectors.at(target, place))
        return []

    vectors.loop(whole, vectors.lanes, [], one, maybe_none=True)
    vectors.loop(builder.sub(count, whole), 1, [], last, maybe_none=True)
    return target


def move_every_second(target: Any, source: Any, count: int) -> None:
    """`move` for elements 0, 2, 4, ... of the source."""
    target[:count] = source[: 2 * count : 2]


@_vector_by_vector(move_every_second, "ArrayPart", "ArrayPart", "Integer")
def _move_every_second_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    builder = vectors.builder
    left = builder.mul(builder.sub(count, first), int_constant(2))
    left = builder.sub(left, int_constant(1))  # do not read past the last element that is used
    near = vectors.at(source, builder.mul(first, int_constant(2)))
    a, b = (
        vectors.load_masked(vectors.at(near, n), vectors.below(builder.sub(left, int_constant(n))))
        for n in (0, vectors.lanes)
    )
    vectors.store(vectors.shuffled(a, b, range(0, 2 * vectors.lanes, 2)), vectors.at(target, first))


def repeat(target: Any, source: Any, count: int) -> None:
    """Fill `count` elements, rounded up to whole vectors, with the first element of the source."""
    target[:count] = source[0]


@lowers(repeat, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_repeat(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)
    numbers = vectors.spread(builder.load(source))

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(numbers, vectors.at(target, first))
        return []

    vectors.loop(context.cast(builder, count, signature.args[2], types.int64), vectors.lanes, [], one, maybe_none=True)
    return context.get_dummy_value()


def zero(target: Any, count: int) -> None:
    """Store zeros in `count` elements, rounded up to whole vectors."""
    target[:count] = 0


@_vector_by_vector(zero, "ArrayPart", "Integer", result="none")
def _zero_vector(vectors: Vectors, first: Any, target: Any, count: Any) -> None:
    vectors.store(vectors.zero, vectors.at(target, first))


def put(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and write nothing after them; the source may be read up to the end of a vector."""
    target[:count] = source[:count]


@_vector_by_vector(put, "ArrayPart", "ArrayPart", "Integer")
def _put_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    mask = vectors.below(vectors.builder.sub(count, first))
    vectors.store_masked(vectors.load(vectors.at(source, first)), vectors.at(target, first), mask)


def clear(target: Any, count: int) -> None:
    """Store `count` zeros, and write nothing after them."""
    target[:count] = 0


@lowers(clear, "ArrayPart", "Integer", result="none")
def _lower_clear(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    size = int_constant(context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    count = context.cast(builder, operands[1], signature.args[1], types.int64)
    cgutils.memset(builder, operands[0], builder.mul(count, size), 0)
    return context.get_dummy_value()


def move_added(target: Any, source: Any, count: int, term: int) -> None:
    """Copy `count` integers plus `term`; the rest of the last vector is garbage, and at least one vector is written."""
    target[:count] = source[:count] + term


@lowers(move_added, "ArrayPart", "ArrayPart", "Integer", "Integer", result=same_parts)
def _lower_move_added(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count, term = operands
    vectors = Vectors(builder, target)
    terms = vectors.spread(context.cast(builder, term, signature.args[3], signature.args[0].dtype))

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(builder.add(vectors.load(vectors.at(source, first)), terms), vectors.at(target, first))
        return []

    vectors.loop(count, vectors.lanes, [], one)  # no branch for a count of 0, because most counts are small
    return context.get_dummy_value()
