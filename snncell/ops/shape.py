"""Shapes and axes: reshape, transpose, broadcast, flip.

These operations move elements or create views, without arithmetic. Each bprop moves the gradient back.
"""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np

from snncell.base.arguments.kinds import Lengths, Numbers
from snncell.base.arguments.shown import show
from snncell.compiler.ir.operations import Broadcast, Reshape, Transpose
from snncell.errors import ShapeError
from snncell.ops.base import as_axes, as_axis, as_int, as_ints, as_tensor
from snncell.tape.event_lists import EventLists
from snncell.tape.primitive import moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "broadcast_to", "diagonal", "expand", "expand_dims", "flatten", "flip", "moveaxis", "movedim", "permute", "ravel",
    "reshape", "squeeze", "swapaxes", "swapdims", "transpose",
]  # fmt: skip

Axes = int | tuple[int, ...]


def as_lengths(lengths: tuple[Any, ...]) -> Any:
    """The lengths in a call f(2, 3) or f((2, 3))."""
    return lengths[0] if len(lengths) == 1 and isinstance(lengths[0], (tuple, list)) else lengths


# --- Views ------------------------------------------------------------------------------------------------------------

_reshape = Reshape()
_reshape.def_bprop(lambda _x, _out, dout, *, shape: (reshape_unchecked(dout, _x.shape),))


def reshape_unchecked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshape to a shape that is known to fit."""
    if shape == x._data.shape:
        return snapshot(x)
    return _reshape.bind(x, shape=shape)


@overload
def reshape(x: EventLists, *shape: Any) -> EventLists: ...


@overload
def reshape(x: Numbers, *shape: Any) -> Tensor: ...


def reshape(x: Numbers | EventLists, *shape: Any) -> Tensor | EventLists:
    """Change the shape without changing the order of elements. One length may be -1, which is computed.

    You can also reshape event lists, as long as their rows stay whole. Other shapes raise a ShapeError.
    """
    if isinstance(x, EventLists):
        return x.reshape(*shape)
    tensor = as_tensor(x, "reshape")
    lengths = as_lengths(shape)
    sizes = tuple(as_int(n, "reshape", "shape") for n in lengths)
    if sizes == tensor.shape:
        return snapshot(tensor)
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) == 1 and known and tensor.size % known == 0:  # next to a length of 0, -1 is ambiguous
        sizes = tuple(tensor.size // known if n == -1 else n for n in sizes)
    if -1 in sizes or any(n < 0 for n in sizes) or math.prod(sizes) != tensor.size:
        raise ShapeError(f"reshape: {tensor.size} elements of shape {tensor.shape} do not fill shape {tuple(lengths)}.")
    return reshape_unchecked(tensor, sizes)


@overload
def flatten(x: EventLists, start_dim: int = 1, end_dim: int = -1) -> EventLists: ...


@overload
def flatten(x: Numbers, start_dim: int = 1, end_dim: int = -1) -> Tensor: ...


def flatten(x: Numbers | EventLists, start_dim: int = 1, end_dim: int = -1) -> Tensor | EventLists:
    """Flatten the axes from `start_dim` to `end_dim` into one; by default all but the first axis, the batch."""
    tensor = x if isinstance(x, EventLists) else as_tensor(x, "flatten")
    if tensor.ndim < 2:
        return reshape(tensor, (-1,))
    first, last = as_axis(start_dim, tensor.ndim, "flatten"), as_axis(end_dim, tensor.ndim, "flatten")
    if first > last:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}.")
    middle = math.prod(tensor.shape[first : last + 1])
    return reshape(tensor, (*tensor.shape[:first], middle, *tensor.shape[last + 1 :]))


def ravel(x: Numbers) -> Tensor:
    """Flatten all axes into one."""
    tensor = as_tensor(x, "ravel")
    return reshape(tensor, (tensor.size,))


def expand_dims(x: Numbers, axis: int | tuple[int, ...]) -> Tensor:
    """Insert axes of length 1, at positions counted in the result."""
    tensor = as_tensor(x, "expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = as_axes(axis, tensor.ndim + count, "expand_dims") if count else ()
    rest = iter(tensor.shape)
    return reshape_unchecked(tensor, tuple([1 if a in axes else next(rest) for a in range(tensor.ndim + count)]))


def squeeze(x: Numbers, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Remove axes of length 1: those in `axis`, by default all. A longer axis in `axis` raises a ShapeError."""
    tensor = as_tensor(x, "squeeze")
    if axis is None:
        return reshape(tensor, tuple(n for n in tensor.shape if n != 1))
    axes = as_axes(axis, tensor.ndim, "squeeze")
    for a in axes:
        if tensor.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of a Tensor of shape {tensor.shape} has length {tensor.shape[a]}.")
    return reshape_unchecked(tensor, tuple([n for a, n in enumerate(tensor.shape) if a not in axes]))


# --- Axes -------------------------------------------------------------------------------------------------------------

_transpose = Transpose()


# argsort inverts a permutation
_transpose.def_bprop(lambda _x, _out, dout, *, axes: (transpose(dout, tuple(int(a) for a in np.argsort(axes))),))


def transpose(x: Numbers, *axes: Any) -> Tensor:
    """Permute the axes; without `axes`, reverse their order. An invalid permutation raises a ShapeError."""
    tensor = as_tensor(x, "transpose")
    positions = as_lengths(axes)
    order = tuple(as_axis(a, tensor.ndim, "transpose", "axes") for a in positions) or tuple(range(tensor.ndim))[::-1]
    if sorted(order) != list(range(tensor.ndim)):
        swap = f" To swap two axes: x.swapaxes{order}." if len(order) == 2 else ""
        raise ShapeError(f"transpose: {tuple(positions)} is not a permutation of the {tensor.ndim} axes.{swap}")
    if order == tuple(range(tensor.ndim)):
        return snapshot(tensor)
    return _transpose.bind(tensor, axes=order)


def swapaxes(x: Numbers, axis0: int, axis1: int) -> Tensor:
    """Swap two axes."""
    tensor = as_tensor(x, "swapaxes")
    order = list(range(tensor.ndim))
    a, b = as_axis(axis0, tensor.ndim, "swapaxes"), as_axis(axis1, tensor.ndim, "swapaxes")
    order[a], order[b] = b, a
    return transpose(tensor, tuple(order))


def permute(x: Numbers, *axis: Any) -> Tensor:
    """Permute the axes. An invalid permutation raises a ShapeError."""
    tensor, order = as_tensor(x, "permute"), tuple(as_lengths(axis))
    if len(order) != tensor.ndim:
        raise ShapeError(f"permute: {show(order)} is not a permutation of the {tensor.ndim} axes of {tensor.shape}.")
    return transpose(tensor, order) if order else snapshot(tensor)


def moveaxis(x: Numbers, source: Axes, destination: Axes) -> Tensor:
    """Move the axes `source` to the positions `destination`; the other axes keep their order.

    Different numbers of axes, or an axis given twice, raise a ShapeError.
    """
    tensor = as_tensor(x, "moveaxis")
    moved = [as_axis(a, tensor.ndim, "moveaxis", "source") for a in as_ints(source, "moveaxis", "source")]
    places = [as_axis(a, tensor.ndim, "moveaxis", "destination") for a in as_ints(destination, "moveaxis", "axis")]
    if len(moved) != len(places) or len(set(moved)) != len(moved) or len(set(places)) != len(places):
        raise ShapeError(
            f"moveaxis: source {source} and destination {destination} must have equally many axes, none given twice."
        )
    rest = iter(a for a in range(tensor.ndim) if a not in moved)
    goes = dict(zip(places, moved, strict=True))
    return permute(tensor, tuple(goes[a] if a in goes else next(rest) for a in range(tensor.ndim)))


swapdims, movedim = swapaxes, moveaxis


def diagonal(x: Numbers, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Diagonals of the matrices with rows along `axis1` and columns along `axis2`, as the last axis. A positive
    `offset` is above the main diagonal.
    """
    tensor = as_tensor(x, "diagonal")
    first, second = (as_axis(a, tensor.ndim, "diagonal", "axis") for a in (axis1, axis2))
    if first == second:
        raise ShapeError(f"diagonal: axis1 and axis2 must be different axes, not {axis1} twice.")
    turned = moveaxis(tensor, (first, second), (-2, -1))
    *batch, rows, columns = turned.shape
    shift = as_int(offset, "diagonal", "offset")
    start = shift if shift >= 0 else -shift * columns
    count = max(0, min(rows + min(shift, 0), columns - max(shift, 0)))
    flat = reshape(turned, (*batch, rows * columns))
    # In the flattened matrix, neighbours on a diagonal are columns + 1 elements apart.
    places: Tensor = flat[..., start : start + count * (columns + 1) : columns + 1] if count else flat[..., :0]
    return places[..., :count]


_broadcast_to = Broadcast()
_broadcast_to.def_bprop(lambda _x, _out, dout, *, shape: (dout,))  # the tape sums it to the shape of x


def broadcast_unchecked(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast to a shape that is known to fit."""
    if shape == x._data.shape:
        return snapshot(x)
    return _broadcast_to.bind(x, shape=shape)


def broadcast_to(x: Numbers, shape: Lengths) -> Tensor:
    """Broadcast `x` to `shape` along axes of length 1 and new leading axes. A length of -1 keeps the length of x."""
    tensor = as_tensor(x, "broadcast_to")
    target = as_ints(shape, "broadcast_to", "shape")
    extra = len(target) - tensor.ndim
    own = (1,) * extra + tensor.shape
    if extra < 0 or any(have not in (1, want) and want != -1 for have, want in zip(own, target, strict=True)):
        raise ShapeError(f"broadcast_to: shape {tensor.shape} does not broadcast to {target}.")
    return broadcast_unchecked(tensor, tuple(n if m == -1 else m for n, m in zip(own, target, strict=True)))


def expand(x: Numbers, *size: Any) -> Tensor:
    """Broadcast like `broadcast_to`, with the lengths as separate arguments or in one tuple."""
    return broadcast_to(x, as_ints(as_lengths(size), "expand", "size"))


@moving
def _flip(x: Any, axes: tuple[int, ...]) -> Any:
    return np.flip(x, axes)


with_axis_of_steps(_flip, lambda attrs, steps: {"axes": tuple(axis + 1 for axis in attrs["axes"])})
_flip.additive = _flip.selects = True
_flip.def_bprop(lambda _x, _out, dout, *, axes: (_flip.bind(dout, axes=axes),))


def flip(x: Numbers, dims: int | tuple[int, ...]) -> Tensor:
    """Reverse the order of elements along the given axes."""
    tensor = as_tensor(x, "flip")
    return _flip.bind(tensor, axes=as_axes(dims, tensor.ndim, "flip"))
