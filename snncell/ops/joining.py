"""Concatenate, stack, split, repeat and roll Tensors along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count, Lengths, Numbers
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import shape as sh
from snncell.ops.base import as_axis, as_int, as_ints, as_shape, as_tensor, same_dtype
from snncell.tape.primitive import EVERYWHERE, Primitive, axis_behind_steps, moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "cat", "chunk", "concat", "diff", "hstack", "meshgrid", "narrow", "repeat_interleave", "roll", "split", "stack",
    "tile", "unbind", "unstack", "vstack",
]  # fmt: skip


# --- Joining and splitting --------------------------------------------------------------------------------------------


@moving
def _concat(*arrays: Any, axis: int, sizes: tuple[int, ...]) -> Any:
    return np.concatenate(arrays, axis)


with_axis_of_steps(_concat, axis_behind_steps)
_concat.additive = _concat.selects = True
_concat.def_bprop(lambda *_inputs, axis, sizes: _split_unchecked(_inputs[-1], sizes, axis))  # the last one is dout


def _join_tensors(tensors: Any, name: str) -> list[Tensor]:
    items = list(tensors) if isinstance(tensors, (tuple, list)) else []
    if not items:
        raise ArgumentError(f"{name}: tensors is a tuple or list of at least one Tensor, not {show(tensors)}.")
    return same_dtype([as_tensor(x, name, f"tensors[{i}]") for i, x in enumerate(items)], name)


def concat(tensors: Any, axis: int = 0) -> Tensor:
    """Concatenate Tensors along an existing axis. Other lengths must be equal, or a ShapeError is raised."""
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
            raise ShapeError(f"stack: Tensor {position} has shape {part.shape}, Tensor 0 {parts[0].shape}.")
    number = as_axis(axis, parts[0].ndim + 1, "stack")
    return concat([sh.expand_dims(part, number) for part in parts], number)


_pieces_op = Primitive("split", lambda x, bounds, axis: tuple(np.split(x, bounds, axis)), multiple=True)
_pieces_op.as_stored = EVERYWHERE
with_axis_of_steps(_pieces_op, axis_behind_steps)
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
    return tuple(sh.squeeze(part, number) for part in _split_unchecked(tensor, (1,) * tensor.shape[number], number))


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
    return [sh.reshape(x, (1,) * (least - x.ndim) + x.shape) for x in parts]


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
    """Split `x` along an axis into `chunks` equal parts. If they do not fit, the last one is shorter or missing."""
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
    return sh.reshape(sh.broadcast_to(sh.reshape(tensor, single), spread), total)


def repeat_interleave(x: Numbers, repeats: Count, axis: int | None = None) -> Tensor:
    """Repeat each slice along `axis` (by default each element) `repeats` times: [1, 2] becomes [1, 1, 2, 2]."""
    tensor = sh.ravel(x) if axis is None else as_tensor(x, "repeat_interleave")
    count = as_int(repeats, "repeat_interleave", "repeats")
    number = as_axis(0 if axis is None else axis, tensor.ndim, "repeat_interleave")
    left, right = tensor.shape[: number + 1], tensor.shape[number + 1 :]
    copies = sh.broadcast_to(sh.reshape(tensor, (*left, 1, *right)), (*left, count, *right))
    return sh.reshape(copies, (*left[:-1], left[-1] * count, *right))


def roll(x: Numbers, shifts: sh.Axes, dims: sh.Axes | None = None) -> Tensor:
    """Shift elements along the axes `dims`, by `shifts` positions for each; elements that leave at one end enter at the
    other. By default the flattened elements are shifted.
    """
    tensor = as_tensor(x, "roll")
    if dims is None:
        return sh.reshape(roll(sh.ravel(tensor), shifts, 0), tensor.shape)
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
        indexing: "xy" puts the second vector along the first axis, "ij" each vector along its own axis.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}.')
    vectors = [sh.ravel(as_tensor(x, "meshgrid", f"inputs[{i}]")) for i, x in enumerate(inputs)]
    swapped = indexing == "xy" and len(vectors) > 1
    order = [1, 0, *range(2, len(vectors))] if swapped else list(range(len(vectors)))
    lengths = tuple(vectors[a].size for a in order)
    return tuple(
        sh.broadcast_to(sh.reshape(v, tuple(v.size if a == i else 1 for a in order)), lengths)
        for i, v in enumerate(vectors)
    )
