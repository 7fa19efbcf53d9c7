"""Arrays in compiled kernels: those that are arguments, parts of them, and small ones on the kernel's own stack.

With Numba's own type for arrays a kernel takes a third longer to compile: references to their memory are counted, an
index may be negative, and a slice is an array of its own. These are pointers, and what is inside their bounds the
planner has seen to. From Python, each function here does the same to NumPy's arrays.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.kernels.cpu.builtins import declare_type, least, lowers
from snncell.kernels.cpu.loops import BLOCK, LANES
from snncell.kernels.policy import inline

ir: Any = import_once("llvmlite.ir")
types: Any = import_once("numba.core.types")
cgutils: Any = import_once("numba.core.cgutils")
extending: Any = import_once("numba.extending")
templates: Any = import_once("numba.core.typing.templates")


class Elements(types.Type):  # type: ignore[misc]
    """The type of a C-contiguous array that somebody else keeps: where its elements begin, and its shape."""

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim
        super().__init__(f"Elements({dtype}, {ndim})")


class ArrayPart(types.Type):  # type: ignore[misc]
    """The type of some of the elements of an array: where they begin. Where they end, the kernel knows."""

    ndim = 1

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Part({dtype})")


extending.register_model(ArrayPart)(extending.models.PointerModel)


@extending.register_model(Elements)
class _Model(extending.models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        members = [("data", types.CPointer(kind.dtype)), ("shape", types.UniTuple(types.int64, kind.ndim))]
        super().__init__(manager, kind, members)


extending.make_attribute_wrapper(Elements, "shape", "shape")
declare_type(len, lambda x: types.int64 if isinstance(x, Elements) else None)


@lowers(len, Elements)
def _lower_len(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.extract_value(_open_array(context, builder, signature, operands).shape, 0)


@templates.infer_global(operator.getitem)
class _GetItem(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, arguments: Any, named: Any) -> Any:
        x, _ = arguments
        return x.dtype(x, _index_of(x)) if isinstance(x, Elements | ArrayPart) else None


@templates.infer_global(operator.setitem)
class _SetItem(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, arguments: Any, named: Any) -> Any:
        x, _, _ = arguments
        return types.none(x, _index_of(x), x.dtype) if isinstance(x, Elements | ArrayPart) else None


@lowers(operator.getitem, ArrayPart, types.Any)
@lowers(operator.getitem, Elements, types.Any)
def _lower_getitem(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    pointer = _element(context, builder, signature, operands)
    return context.unpack_value(builder, signature.args[0].dtype, pointer)


@lowers(operator.setitem, ArrayPart, types.Any, types.Any)
@lowers(operator.setitem, Elements, types.Any, types.Any)
def _lower_setitem(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    context.pack_value(builder, signature.args[0].dtype, operands[2], _element(context, builder, signature, operands))


def _index_of(x: Any) -> Any:
    return types.int64 if x.ndim == 1 else types.UniTuple(types.int64, x.ndim)


def _open_array(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """The fields of the first argument."""
    return cgutils.create_struct_proxy(signature.args[0])(context, builder, value=operands[0])


def _element(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """A pointer to the element at an index, which is not negative."""
    place = operands[1]
    if isinstance(signature.args[0], ArrayPart):
        return builder.gep(operands[0], [place], inbounds=True)
    x = _open_array(context, builder, signature, operands)
    if signature.args[0].ndim > 1:
        lengths, (place, *others) = (cgutils.unpack_tuple(builder, pair) for pair in (x.shape, place))
        for length, other in zip(lengths[1:], others, strict=True):
            place = builder.add(builder.mul(place, length, flags=["nsw"]), other, flags=["nsw"])
    return builder.gep(x.data, [place], inbounds=True)


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


declare_type(prefetch, lambda x: types.none if isinstance(x, ArrayPart) else None)
declare_type(row, lambda x, place: ArrayPart(x.dtype))
declare_type(tail, lambda x, first: ArrayPart(x.dtype))
declare_type(flat, lambda x: ArrayPart(x.dtype))
declare_type(words_of, lambda x: ArrayPart(types.uint64))
declare_type(line_of, lambda x: types.int64)
declare_type(scalar, lambda index: types.int64)
declare_type(copy, lambda target, source, count: types.none if target == source else None)


@lowers(scalar, types.Integer)
def _lower_scalar(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _opaque(context, builder, operands[0], signature.args[0])


@lowers(prefetch, ArrayPart)
def _lower_prefetch(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    arguments = [ir.Constant(word, number) for number in (0, 3, 1)]  # for a load, into all caches, data
    builder.call(function, [builder.bitcast(operands[0], byte), *arguments])
    return context.get_dummy_value()


@lowers(words_of, ArrayPart)
def _lower_words(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], ir.IntType(64).as_pointer())


@lowers(line_of, ArrayPart)
def _lower_line(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return ir.Constant(ir.IntType(64), 512 // signature.args[0].dtype.bitwidth)


@lowers(flat, Elements)
def _lower_flat(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _open_array(context, builder, signature, operands).data


@lowers(tail, ArrayPart, types.Integer)
def _lower_tail_of_part(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.gep(operands[0], [operands[1]], inbounds=True)


@lowers(tail, types.Array, types.Integer)
@lowers(tail, Elements, types.Integer)
def _lower_tail(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.gep(_open_array(context, builder, signature, operands).data, [operands[1]], inbounds=True)


@lowers(row, types.Array, types.Integer)
@lowers(row, Elements, types.Integer)
def _lower_row(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    x = _open_array(context, builder, signature, operands)
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


@lowers(copy, ArrayPart, ArrayPart, types.Integer)
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


declare_type(lanes, lambda start: ArrayPart(start))
declare_type(strip, lambda count, kind: ArrayPart(kind.dtype))


@lowers(lanes, types.Any)
def _lower_lanes(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    kind = signature.args[0]
    data = _on_stack(builder, context.get_data_type(kind), LANES)
    for lane in range(LANES):
        context.pack_value(builder, kind, operands[0], builder.gep(data, [ir.Constant(ir.IntType(64), lane)]))
    return data


@lowers(strip, types.Integer, types.Any)
def _lower_strip(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _on_stack(builder, context.get_data_type(signature.return_type.dtype), BLOCK)


def _on_stack(builder: Any, element: Any, count: int) -> Any:
    """Room for so many elements, made when the kernel begins: what asks for it in a loop gets the same again."""
    return cgutils.alloca_once(builder, element, size=ir.Constant(ir.IntType(32), count))
