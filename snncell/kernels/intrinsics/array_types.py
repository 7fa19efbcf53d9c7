"""Numba types of arrays in kernels: a whole array (`Elements`), and a pointer into one (`ArrayPart`).

A kernel with Numba's array type takes a third longer to compile, because this type counts references, allows negative
indices, and makes each slice an array. The types here do not check bounds; the planner has checked them.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import declare_type, lowers

types: Any = import_once("numba.core.types")
cgutils: Any = import_once("numba.core.cgutils")
extending: Any = import_once("numba.extending")
templates: Any = import_once("numba.core.typing.templates")


class Elements(types.Type):  # type: ignore[misc]
    """A C-contiguous array that the caller keeps alive: the address of its elements, and its shape."""

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.dtype, self.ndim = dtype, ndim
        super().__init__(f"Elements({dtype}, {ndim})")


class ArrayPart(types.Type):  # type: ignore[misc]
    """A pointer to elements of an array. It has no length; the kernel knows where they end."""

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


@extending.infer_getattr
class _Attributes(templates.AttributeTemplate):  # type: ignore[misc]
    key = Elements

    def resolve_shape(self, x: Any) -> Any:
        return types.UniTuple(types.int64, x.ndim)


@extending.lower_getattr(Elements, "shape")  # type: ignore[untyped-decorator]
def _lower_shape(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return builder.extract_value(value, 1)


declare_type(len, lambda x: types.int64 if isinstance(x, Elements) else None)


@lowers(len, "Elements")
def _lower_len(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.extract_value(open_array(context, builder, signature, operands).shape, 0)


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


@lowers(operator.getitem, "ArrayPart", "Any")
@lowers(operator.getitem, "Elements", "Any")
def _lower_getitem(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    pointer, kind = _element(context, builder, signature, operands), signature.args[0].dtype
    if kind == types.boolean:  # Numba's own code for this has a branch
        byte = builder.load(pointer)
        return builder.icmp_unsigned("!=", byte, byte.type(0))
    return context.unpack_value(builder, kind, pointer)


@lowers(operator.setitem, "ArrayPart", "Any", "Any")
@lowers(operator.setitem, "Elements", "Any", "Any")
def _lower_setitem(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    context.pack_value(builder, signature.args[0].dtype, operands[2], _element(context, builder, signature, operands))


def _index_of(x: Any) -> Any:
    return types.int64 if x.ndim == 1 else types.UniTuple(types.int64, x.ndim)


class ArrayFields(NamedTuple):
    """The fields of `Elements`, in LLVM IR."""

    data: Any
    shape: Any


def open_array(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """The fields of the first argument of a call."""
    return ArrayFields(*(builder.extract_value(operands[0], place) for place in range(2)))


def _element(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """A pointer to the element at an index, which must not be negative."""
    place = operands[1]
    if isinstance(signature.args[0], ArrayPart):
        return builder.gep(operands[0], [place], inbounds=True)
    x = open_array(context, builder, signature, operands)
    if signature.args[0].ndim > 1:
        lengths, (place, *others) = (cgutils.unpack_tuple(builder, pair) for pair in (x.shape, place))
        for length, other in zip(lengths[1:], others, strict=True):
            place = builder.add(builder.mul(place, length, flags=["nsw"]), other, flags=["nsw"])
    return builder.gep(x.data, [place], inbounds=True)
