"""Shapes and axes: reshape, transpose, broadcast, flip, concatenate, split, repeat and roll.

Apart from `diff`, these operations only move or copy elements, or create views. Each bprop moves the gradient back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from snncell.base.arguments.kinds import Count, Lengths, Numbers
from snncell.base.arguments.shown import show
from snncell.compiler.ir.operations import Broadcast, Reshape, Transpose
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_axes, as_axis, as_int, as_ints, as_shape, as_tensor, same_dtype
from snncell.tape.event_lists import EventLists
from snncell.tape.primitive import EVERYWHERE, Primitive, axis_after_steps, moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "broadcast_to", "cat", "chunk", "concat", "diagonal", "diff", "expand", "expand_dims", "flatten", "flip", "hstack",
    "meshgrid", "moveaxis", "movedim", "narrow", "permute", "ravel", "repeat_interleave", "reshape", "roll", "split",
    "squeeze", "stack", "swapaxes", "swapdims", "tile", "transpose", "unbind", "unstack", "vstack",
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
    """Change the shape without changing the order of elements. One length may be -1; the others then determine it.

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
            raise ShapeError(
                f"squeeze: axis {a} of a Tensor of shape {tensor.shape} has length {tensor.shape[a]}, not 1."
            )
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
    """Move the axes `source` to the positions `destination`; the others keep their order. An axis named twice, or
    different numbers of axes, raise a ShapeError.
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


# --- Joining and splitting --------------------------------------------------------------------------------------------


@moving
def _concat(*arrays: Any, axis: int, sizes: tuple[int, ...]) -> Any:
    return np.concatenate(arrays, axis)


with_axis_of_steps(_concat, axis_after_steps)
_concat.additive = _concat.selects = True
_concat.def_bprop(lambda *_inputs, axis, sizes: _split_unchecked(_inputs[-1], sizes, axis))  # the last one is dout


def _join_tensors(tensors: Any, name: str) -> list[Tensor]:
    items = list(tensors) if isinstance(tensors, (tuple, list)) else []
    if not items:
        raise ArgumentError(f"{name}: tensors is a tuple or list of at least one Tensor, not {show(tensors)}.")
    return same_dtype([as_tensor(x, name, f"tensors[{i}]") for i, x in enumerate(items)], name)


def concat(tensors: Any, axis: int = 0) -> Tensor:
    """Concatenate Tensors along an existing axis. Different lengths of another axis raise a ShapeError."""
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
    return _concat.bind(*parts, axis=number, sizes=tuple(part.shape[number] for part in parts))


def stack(tensors: Any, axis: int = 0) -> Tensor:
    """Stack Tensors of equal shape along a new axis. Different shapes raise a ShapeError."""
    parts = _join_tensors(tensors, "stack")
    for position, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise ShapeError(
                f"stack: Tensor {position} has shape {part.shape}, Tensor 0 {parts[0].shape}; they must be equal."
            )
    number = as_axis(axis, parts[0].ndim + 1, "stack")
    return concat([expand_dims(part, number) for part in parts], number)


_pieces_op = Primitive("split", lambda x, bounds, axis: tuple(np.split(x, bounds, axis)), multiple=True)
_pieces_op.as_stored = EVERYWHERE
with_axis_of_steps(_pieces_op, axis_after_steps)
_pieces_op.additive = True


@_pieces_op.def_on_gpu
def _(x: Any, bounds: tuple[int, ...], axis: int) -> Any:
    ends = zip((0, *bounds), (*bounds, x.shape[axis]), strict=True)
    return tuple(x[(slice(None),) * axis + (slice(first, last),)] for first, last in ends)


_pieces_op.def_bprop(lambda _x, _out, dout, *, bounds, axis: (concat(dout, axis),))


def _split_unchecked(x: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    bounds = tuple(int(n) for n in np.cumsum(sizes)[:-1])
    return _pieces_op.bind_all(x, bounds=bounds, axis=axis)


def split(x: Numbers, split_size_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along an axis: into pieces of one length (the last may be shorter), or of the given lengths.

    The sum of the given lengths must be the length of the axis; otherwise a ShapeError is raised.
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
    return _split_unchecked(tensor, sizes, number)


def unstack(x: Numbers, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` into its slices along an axis, without that axis: the inverse of `stack`."""
    tensor = as_tensor(x, "unstack")
    number = as_axis(axis, tensor.ndim, "unstack")
    if not tensor.shape[number]:
        return ()
    return tuple(squeeze(part, number) for part in _split_unchecked(tensor, (1,) * tensor.shape[number], number))


cat, unbind = concat, unstack


def hstack(tensors: Any) -> Tensor:
    """Concatenate Tensors along the second axis, and vectors along their only axis."""
    parts = _with_leading_axes(tensors, 1, "hstack")
    return concat(parts, 0 if parts and parts[0].ndim == 1 else 1)


def vstack(tensors: Any) -> Tensor:
    """Concatenate Tensors along the first axis; each vector becomes a row."""
    return concat(_with_leading_axes(tensors, 2, "vstack"), 0)


def _with_leading_axes(tensors: Any, least: int, name: str) -> list[Tensor]:
    if not isinstance(tensors, (tuple, list)):
        raise ArgumentError(f"{name}: tensors is a tuple or list of Tensors, not a {type(tensors).__name__}.")
    parts = [as_tensor(x, name, "tensors") for x in tensors]
    return [reshape(x, (1,) * (least - x.ndim) + x.shape) for x in parts]


def narrow(x: Numbers, axis: int, start: int, length: int) -> Tensor:
    """Select `length` slices of an axis from `start` on, which may be negative; a ShapeError beyond the end."""
    tensor = as_tensor(x, "narrow")
    number = as_axis(axis, tensor.ndim, "narrow")
    first, count, n = as_int(start, "narrow", "start"), as_int(length, "narrow", "length"), tensor.shape[number]
    begin = first + n if first < 0 else first
    if begin < 0 or count < 0 or begin + count > n:
        raise ShapeError(f"narrow: {count} slices from {first} on do not fit axis {number} of x, of length {n}.")
    return tensor[(slice(None),) * number + (slice(begin, begin + count),)]


def chunk(x: Numbers, chunks: Count, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along an axis into `chunks` equal parts. If they do not fit, the last ones are shorter or missing."""
    tensor = as_tensor(x, "chunk")
    length, count = tensor.shape[as_axis(axis, tensor.ndim, "chunk")], as_int(chunks, "chunk", "chunks")
    return split(tensor, -(-length // count) if length else [0] * count, axis)


def diff(x: Numbers, n: int = 1, axis: int = -1) -> Tensor:
    """Differences x[i + 1] - x[i] of neighbours along an axis, applied n >= 0 times."""
    tensor = as_tensor(x, "diff")
    number, times = as_axis(axis, tensor.ndim, "diff"), as_int(n, "diff", "n")
    if times < 0:
        raise ArgumentError(f"diff: n is at least 0, not {times}.")
    for _ in range(times):
        if not tensor.shape[number]:
            break
        last = tensor.shape[number] - 1
        ends, starts = narrow(tensor, number, 1, last), narrow(tensor, number, 0, last)
        # For booleans the difference is exclusive or, as in NumPy.
        tensor = ends ^ starts if tensor.dtype.category == 0 else ends - starts
    return snapshot(tensor)


# --- Repeating --------------------------------------------------------------------------------------------------------


def tile(x: Numbers, reps: Lengths) -> Tensor:
    """Repeat `x` along each axis."""
    tensor = as_tensor(x, "tile")
    counts = as_shape(reps, "tile")
    own = (1,) * (len(counts) - tensor.ndim) + tensor.shape
    counts = (1,) * (len(own) - len(counts)) + counts
    # Broadcast each axis (1, n) to (count, n), then join both: a single copy, and broadcast_to defines the gradient.
    spread = tuple(n for pair in zip(counts, own, strict=True) for n in pair)
    single = tuple(n for length in own for n in (1, length))
    total = tuple(c * n for c, n in zip(counts, own, strict=True))
    return reshape(broadcast_to(reshape(tensor, single), spread), total)


def repeat_interleave(x: Numbers, repeats: Count, axis: int | None = None) -> Tensor:
    """Repeat each slice along `axis` (by default each element) `repeats` times: [1, 2] becomes [1, 1, 2, 2]."""
    tensor = ravel(x) if axis is None else as_tensor(x, "repeat_interleave")
    count = as_int(repeats, "repeat_interleave", "repeats")
    number = as_axis(0 if axis is None else axis, tensor.ndim, "repeat_interleave")
    left, right = tensor.shape[: number + 1], tensor.shape[number + 1 :]
    copies = broadcast_to(reshape(tensor, (*left, 1, *right)), (*left, count, *right))
    return reshape(copies, (*left[:-1], left[-1] * count, *right))


def roll(x: Numbers, shifts: Axes, dims: Axes | None = None) -> Tensor:
    """Shift elements along the axes `dims`, by `shifts` positions for each; elements that leave at one end enter at the
    other. By default the flattened elements are shifted.
    """
    tensor = as_tensor(x, "roll")
    if dims is None:
        return reshape(roll(ravel(tensor), shifts, 0), tensor.shape)
    places, axes = as_ints(shifts, "roll", "shifts"), as_ints(dims, "roll", "dims")
    if len(places) != len(axes):
        raise ShapeError(f"roll: {len(places)} shift(s) for {len(axes)} axes; give one for each.")
    for places_on, axis in zip(places, axes, strict=True):
        number = as_axis(axis, tensor.ndim, "roll", "dims")
        if offset := places_on % tensor.shape[number] if tensor.shape[number] else 0:
            front, back = split(tensor, [tensor.shape[number] - offset, offset], number)
            tensor = concat([back, front], number)
    return snapshot(tensor)


def meshgrid(*inputs: Numbers, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate grids: n vectors become n Tensors with n axes. Each Tensor varies along one axis only.

    Args:
        inputs: vectors (N,) with the coordinates of each axis.
        indexing: "ij" puts vector n along axis n; "xy" does so too, but swaps the first two axes.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}.')
    vectors = [ravel(as_tensor(x, "meshgrid", f"inputs[{i}]")) for i, x in enumerate(inputs)]
    swapped = indexing == "xy" and len(vectors) > 1
    order = [1, 0, *range(2, len(vectors))] if swapped else list(range(len(vectors)))
    lengths = tuple(vectors[a].size for a in order)
    return tuple(
        broadcast_to(reshape(v, tuple(v.size if a == i else 1 for a in order)), lengths) for i, v in enumerate(vectors)
    )
