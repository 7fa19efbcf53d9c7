"""Shape operations: they move elements, or views of them, and compute nothing. Each reverse moves them back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from snncell.base.arguments.kinds import Lengths, Numbers
from snncell.base.arguments.shown import show
from snncell.compiler.ir.views import Broadcast, Reshape, Transpose
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_axes, as_axis, as_int, as_ints, as_shape, as_tensor, same_dtype
from snncell.tape.event_lists import EventLists
from snncell.tape.primitive import EVERYWHERE, Primitive, axis_behind_steps, moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

Grads = Sequence[Any]

# --- views ------------------------------------------------------------------------------------------------------------


_reshape = Reshape()


@_reshape.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, shape: Any) -> Grads:
    return (reshape_unchecked(dout, _x.shape),)


def reshape_unchecked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` in a shape that is known to hold its elements, unless it has that."""
    if shape == x._data.shape:
        return snapshot(x)
    result: Tensor = _reshape.bind(x, shape=shape)
    return result


@overload
def reshape(x: EventLists, *shape: Any) -> EventLists: ...
@overload
def reshape(x: Numbers, *shape: Any) -> Tensor: ...
def reshape(x: Numbers | EventLists, *shape: Any) -> Tensor | EventLists:
    """The same elements in the same order as another shape; one length may be -1. Event lists keep their rows.

    Raises:
        ShapeError: if the number of elements differs, or rows of event lists would be cut or joined.
    """
    if isinstance(x, EventLists):
        return x.reshape(*shape)
    tensor = as_tensor(x, "reshape")
    lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    sizes = tuple(as_int(n, "reshape", "shape") for n in lengths)
    if sizes == tensor.shape:
        return snapshot(tensor)
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and known and tensor.size % known == 0:  # beside a length of 0, -1 could be anything
        sizes = tuple(tensor.size // known if n == -1 else n for n in sizes)
    if -1 in sizes or any(n < 0 for n in sizes) or math.prod(sizes) != tensor.size:
        raise ShapeError(f"reshape: {tensor.size} elements of shape {tensor.shape} do not fill shape {tuple(lengths)}.")
    return reshape_unchecked(tensor, sizes)


@overload
def flatten(x: EventLists, start_dim: int = 1, end_dim: int = -1) -> EventLists: ...
@overload
def flatten(x: Numbers, start_dim: int = 1, end_dim: int = -1) -> Tensor: ...
def flatten(x: Numbers | EventLists, start_dim: int = 1, end_dim: int = -1) -> Tensor | EventLists:
    """`x` with the axes from `start_dim` to `end_dim` as one; by default all but the first, the batch."""
    tensor = x if isinstance(x, EventLists) else as_tensor(x, "flatten")
    if tensor.ndim < 2:
        return reshape(tensor, (-1,))
    first, last = as_axis(start_dim, tensor.ndim, "flatten"), as_axis(end_dim, tensor.ndim, "flatten")
    if first > last:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}.")
    middle = math.prod(tensor.shape[first : last + 1])
    return reshape(tensor, (*tensor.shape[:first], middle, *tensor.shape[last + 1 :]))


_transpose = Transpose()


@_transpose.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, axes: tuple[int, ...]) -> Grads:
    return (transpose(dout, tuple(int(a) for a in np.argsort(axes))),)  # argsort inverts a permutation


def transpose(x: Numbers, *axes: Any) -> Tensor:
    """The axes in another order; without one, reversed.

    Raises:
        ShapeError: if `axes` is no permutation.
    """
    tensor = as_tensor(x, "transpose")
    positions = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    order = tuple(as_axis(a, tensor.ndim, "transpose", "axes") for a in positions) or tuple(range(tensor.ndim))[::-1]
    if sorted(order) != list(range(tensor.ndim)):
        swap = f" To swap two axes: x.swapaxes{order}." if len(order) == 2 else ""
        raise ShapeError(f"transpose: {tuple(positions)} is no permutation of the {tensor.ndim} axes.{swap}")
    if order == tuple(range(tensor.ndim)):
        return snapshot(tensor)
    result: Tensor = _transpose.bind(tensor, axes=order)
    return result


def swapaxes(x: Numbers, axis0: int, axis1: int) -> Tensor:
    """`x` with two axes exchanged."""
    tensor = as_tensor(x, "swapaxes")
    order = list(range(tensor.ndim))
    a, b = as_axis(axis0, tensor.ndim, "swapaxes"), as_axis(axis1, tensor.ndim, "swapaxes")
    order[a], order[b] = b, a
    return transpose(tensor, tuple(order))


def expand_dims(x: Numbers, axis: int | tuple[int, ...]) -> Tensor:
    """`x` with axes of length 1 put in, at positions counted in the result."""
    tensor = as_tensor(x, "expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = as_axes(axis, tensor.ndim + count, "expand_dims") if count else ()
    rest = iter(tensor.shape)
    return reshape_unchecked(tensor, tuple([1 if a in axes else next(rest) for a in range(tensor.ndim + count)]))


def squeeze(x: Numbers, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """`x` without axes of length 1: the given ones, or all.

    Raises:
        ShapeError: if a given axis is longer.
    """
    tensor = as_tensor(x, "squeeze")
    if axis is None:
        return reshape(tensor, tuple(n for n in tensor.shape if n != 1))
    axes = as_axes(axis, tensor.ndim, "squeeze")
    for a in axes:
        if tensor.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of a Tensor of shape {tensor.shape} has length {tensor.shape[a]}.")
    return reshape_unchecked(tensor, tuple([n for a, n in enumerate(tensor.shape) if a not in axes]))


_broadcast_to = Broadcast()


@_broadcast_to.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, shape: Any) -> Grads:
    return (dout,)  # the tape sums it


def broadcast_unchecked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` stretched to a shape that it is known to broadcast to, unless it has that."""
    if shape == x._data.shape:
        return snapshot(x)
    result: Tensor = _broadcast_to.bind(x, shape=shape)
    return result


def broadcast_to(x: Numbers, shape: Lengths) -> Tensor:
    """`x` stretched along axes of length 1 and new leading axes; -1 keeps a length.

    Raises:
        ShapeError: if it does not fit.
    """
    tensor = as_tensor(x, "broadcast_to")
    target = as_ints(shape, "broadcast_to", "shape")
    extra = len(target) - tensor.ndim
    own = (1,) * extra + tensor.shape
    if extra < 0 or any(have not in (1, want) and want != -1 for have, want in zip(own, target, strict=True)):
        raise ShapeError(f"broadcast_to: shape {tensor.shape} does not broadcast to {target}.")
    return broadcast_unchecked(
        tensor, tuple(have if want == -1 else want for have, want in zip(own, target, strict=True))
    )


@moving
def _flip(x: Any, axes: tuple[int, ...]) -> Any:
    return np.flip(x, axes)


with_axis_of_steps(_flip, lambda attrs, steps: {"axes": tuple(axis + 1 for axis in attrs["axes"])})


@_flip.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, axes: tuple[int, ...]) -> Grads:
    return (_flip.bind(dout, axes=axes),)


def flip(x: Numbers, dims: int | tuple[int, ...]) -> Tensor:
    """`x` in reverse order along the given axes."""
    tensor = as_tensor(x, "flip")
    result: Tensor = _flip.bind(tensor, axes=as_axes(dims, tensor.ndim, "flip"))
    return result


# --- joining and splitting --------------------------------------------------------------------------------------------


@moving
def _concat(*arrays: Any, axis: int, sizes: tuple[int, ...]) -> Any:
    return np.concatenate(arrays, axis)


with_axis_of_steps(_concat, axis_behind_steps)


@_concat.def_bprop
def _(*_inputs: Any, axis: int, sizes: tuple[int, ...]) -> Grads:
    return _split(_inputs[-1], sizes, axis)  # the last one is dout


def _join_tensors(tensors: Any, name: str) -> list[Tensor]:
    items = list(tensors) if isinstance(tensors, (tuple, list)) else []
    if not items:
        raise ArgumentError(f"{name}: tensors is a tuple or list of at least one Tensor, not {show(tensors)}.")
    return same_dtype([as_tensor(x, name, f"tensors[{i}]") for i, x in enumerate(items)], name)


def concat(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis they have; the other lengths must agree.

    Raises:
        ShapeError: naming the Tensor that does not fit.
    """
    parts = _join_tensors(tensors, "concat")
    number = as_axis(axis, parts[0].ndim, "concat")
    for position, part in enumerate(parts):
        if part.ndim != parts[0].ndim or any(
            a != b for i, (a, b) in enumerate(zip(part.shape, parts[0].shape, strict=True)) if i != number
        ):
            raise ShapeError(
                f"concat: Tensor {position} has shape {part.shape}, Tensor 0 {parts[0].shape}; they may differ along "
                f"axis {number} only."
            )
    if len(parts) == 1:
        return snapshot(parts[0])
    result: Tensor = _concat.bind(*parts, axis=number, sizes=tuple(part.shape[number] for part in parts))
    return result


def stack(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors of one shape side by side along a new axis.

    Raises:
        ShapeError: naming the Tensor whose shape differs.
    """
    parts = _join_tensors(tensors, "stack")
    for position, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise ShapeError(f"stack: Tensor {position} has shape {part.shape}, Tensor 0 {parts[0].shape}.")
    number = as_axis(axis, parts[0].ndim + 1, "stack")
    return concat([expand_dims(part, number) for part in parts], number)


def _pieces(x: Any, bounds: tuple[int, ...], axis: int) -> Any:
    return tuple(np.split(x, bounds, axis))


_pieces_op = Primitive("split", _pieces, multiple=True)
_pieces_op.as_stored = EVERYWHERE
with_axis_of_steps(_pieces_op, axis_behind_steps)
_flip.additive = _concat.additive = _pieces_op.additive = True


@_pieces_op.def_there
def _(x: Any, bounds: tuple[int, ...], axis: int) -> Any:
    ends = zip((0, *bounds), (*bounds, x.shape[axis]), strict=True)
    return tuple(x[(slice(None),) * axis + (slice(first, last),)] for first, last in ends)


@_pieces_op.def_bprop
def _(_x: Tensor, _out: Any, dout: Any, *, bounds: Any, axis: int) -> Grads:
    return (concat(dout, axis),)


def _split(x: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    bounds = tuple(int(n) for n in np.cumsum(sizes)[:-1])
    parts: tuple[Tensor, ...] = _pieces_op.bind(x, bounds=bounds, axis=axis)
    return parts


def split(x: Numbers, split_size_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along an axis: into pieces of a length (the last may be shorter), or of the lengths given.

    Raises:
        ShapeError: if the lengths do not add up to the axis.
    """
    tensor = as_tensor(x, "split")
    number = as_axis(axis, tensor.ndim, "split")
    length = tensor.shape[number]
    if isinstance(split_size_or_sections, (tuple, list)):
        sizes = [as_int(n, "split", "a section") for n in split_size_or_sections]
    else:
        size = as_int(split_size_or_sections, "split", "split_size_or_sections")
        if size < 1:
            raise ArgumentError(f"split: pieces have a length of at least 1, not {size}.")
        sizes = [min(size, length - start) for start in range(0, length, size)] or [0]
    if sum(sizes) != length or any(n < 0 for n in sizes):
        raise ShapeError(f"split: sections {sizes} do not add up to {length}, the length of axis {number}.")
    return _split(tensor, sizes, number)


def unstack(x: Numbers, axis: int = 0) -> tuple[Tensor, ...]:
    """The Tensors along an axis, without it: the reverse of `stack`."""
    tensor = as_tensor(x, "unstack")
    number = as_axis(axis, tensor.ndim, "unstack")
    if not tensor.shape[number]:
        return ()
    return tuple(squeeze(part, number) for part in _split(tensor, (1,) * tensor.shape[number], number))


def tile(x: Numbers, reps: Lengths) -> Tensor:
    """`x` repeated along each axis."""
    tensor = as_tensor(x, "tile")
    counts = as_shape(reps, "tile")
    own = (1,) * (len(counts) - tensor.ndim) + tensor.shape
    counts = (1,) * (len(own) - len(counts)) + counts
    # Each axis n as (1, n), stretched to (count, n), joined again: one copy, and broadcast_to has the reverse.
    spread = tuple(n for pair in zip(counts, own, strict=True) for n in pair)
    single = tuple(n for length in own for n in (1, length))
    total = tuple(c * n for c, n in zip(counts, own, strict=True))
    return reshape(broadcast_to(reshape(tensor, single), spread), total)


cat, swapdims, unbind = concat, swapaxes, unstack
