"""Shapes in NumPy's and PyTorch's words, made of the shape operations: nothing here has a reverse of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.base.arguments.kinds import Count, Numbers
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import shape as sh
from snncell.ops.base import as_axis, as_int, as_ints, as_tensor
from snncell.tape.tensor import Tensor, snapshot

Axes = int | tuple[int, ...]


def spread(lengths: tuple[Any, ...]) -> Any:
    """The lengths of a call, f(2, 3) or f((2, 3))."""
    return lengths[0] if len(lengths) == 1 and isinstance(lengths[0], (tuple, list)) else lengths


# --- axes -------------------------------------------------------------------------------------------------------------


def ravel(x: Numbers) -> Tensor:
    """All elements as one axis, in their order."""
    tensor = as_tensor(x, "ravel")
    return sh.reshape(tensor, (tensor.size,))


def permute(x: Numbers, *axis: Any) -> Tensor:
    """The axes in the order given.

    Raises:
        ShapeError: if that is no permutation of all of them.
    """
    tensor, order = as_tensor(x, "permute"), spread(axis)
    if len(order) != tensor.ndim:
        raise ShapeError(
            f"permute: {show(tuple(order))} is no permutation of the {tensor.ndim} axes of {tensor.shape}."
        )
    return sh.transpose(tensor, tuple(order)) if order else snapshot(tensor)


def moveaxis(x: Numbers, source: Axes, destination: Axes) -> Tensor:
    """`x` with the axes of `source` at the places `destination`, the others in their order.

    Raises:
        ShapeError: if the two differ in number, or name an axis twice.
    """
    tensor = as_tensor(x, "moveaxis")
    moved = [as_axis(a, tensor.ndim, "moveaxis", "source") for a in as_ints(source, "moveaxis", "source")]
    places = [as_axis(a, tensor.ndim, "moveaxis", "destination") for a in as_ints(destination, "moveaxis", "axis")]
    if len(moved) != len(places) or len(set(moved)) != len(moved) or len(set(places)) != len(places):
        raise ShapeError(f"moveaxis: source {source} and destination {destination} are as many axes, none named twice.")
    rest = iter(a for a in range(tensor.ndim) if a not in moved)
    goes = dict(zip(places, moved, strict=True))
    return permute(tensor, tuple(goes[a] if a in goes else next(rest) for a in range(tensor.ndim)))


def diagonal(x: Numbers, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals of the matrices along two axes, as the last axis.

    Args:
        x: at least two axes.
        offset: of which diagonal; above the main one if it is positive.
        axis1, axis2: rows and columns.

    Raises:
        ShapeError: for fewer axes, or the same one twice.
    """
    tensor = as_tensor(x, "diagonal")
    first, second = (as_axis(a, tensor.ndim, "diagonal", "axis") for a in (axis1, axis2))
    if first == second:
        raise ShapeError(f"diagonal: axis1 and axis2 are two axes, not {axis1} twice.")
    turned = moveaxis(tensor, (first, second), (-2, -1))
    *batch, rows, columns = turned.shape
    shift = as_int(offset, "diagonal", "offset")
    start = shift if shift >= 0 else -shift * columns
    count = max(0, min(rows + min(shift, 0), columns - max(shift, 0)))
    flat = sh.reshape(turned, (*batch, rows * columns))
    # From one element of a diagonal to the next is a row and a column.
    places: Tensor = flat[..., start : start + count * (columns + 1) : columns + 1] if count else flat[..., :0]
    return places[..., :count]


# --- repeating, rolling -----------------------------------------------------------------------------------------------


def expand(x: Numbers, *size: Any) -> Tensor:
    """`x` stretched along axes of length 1 and new leading axes; -1 keeps a length.

    Raises:
        ShapeError: if it does not fit.
    """
    return sh.broadcast_to(x, as_ints(spread(size), "expand", "size"))


def repeat_interleave(x: Numbers, repeats: Count, axis: int | None = None) -> Tensor:
    """Each slice along `axis` (without one, each element) `repeats` times in a row: [1, 2] gives [1, 1, 2, 2]."""
    tensor = ravel(x) if axis is None else as_tensor(x, "repeat_interleave")
    count = as_int(repeats, "repeat_interleave", "repeats")
    number = as_axis(0 if axis is None else axis, tensor.ndim, "repeat_interleave")
    left, right = tensor.shape[: number + 1], tensor.shape[number + 1 :]
    copies = sh.broadcast_to(sh.reshape(tensor, (*left, 1, *right)), (*left, count, *right))
    return sh.reshape(copies, (*left[:-1], left[-1] * count, *right))


def roll(x: Numbers, shifts: Axes, dims: Axes | None = None) -> Tensor:
    """`x` moved along axes by `shifts` places, what leaves at an end coming in at the other.

    Args:
        x: any shape.
        shifts: places, for each of `dims`.
        dims: axes; without them the flattened elements are moved.

    Raises:
        ShapeError: if the two differ in number.
    """
    tensor = as_tensor(x, "roll")
    if dims is None:
        return sh.reshape(roll(ravel(tensor), shifts, 0), tensor.shape)
    places, axes = as_ints(shifts, "roll", "shifts"), as_ints(dims, "roll", "dims")
    if len(places) != len(axes):
        raise ShapeError(f"roll: {len(places)} shift(s) for {len(axes)} axes; give one for each.")
    for places_on, axis in zip(places, axes, strict=True):
        number = as_axis(axis, tensor.ndim, "roll", "dims")
        if offset := places_on % tensor.shape[number] if tensor.shape[number] else 0:
            front, back = sh.split(tensor, [tensor.shape[number] - offset, offset], number)
            tensor = sh.concat([back, front], number)
    return snapshot(tensor)


# --- parts ------------------------------------------------------------------------------------------------------------


def narrow(x: Numbers, axis: int, start: int, length: int) -> Tensor:
    """The part of `length` slices along an axis from `start` on, which may be counted from the end.

    Raises:
        ShapeError: if it reaches beyond the axis.
    """
    tensor = as_tensor(x, "narrow")
    number = as_axis(axis, tensor.ndim, "narrow")
    first, count, n = as_int(start, "narrow", "start"), as_int(length, "narrow", "length"), tensor.shape[number]
    begin = first + n if first < 0 else first
    if begin < 0 or count < 0 or begin + count > n:
        raise ShapeError(f"narrow: {count} from {first} on do not lie in axis {number} of x, of length {n}.")
    part: Tensor = tensor[(slice(None),) * number + (slice(begin, begin + count),)]
    return part


def chunk(x: Numbers, chunks: Count, axis: int = 0) -> tuple[Tensor, ...]:
    """`x` cut along an axis into that many parts of one length, the last of which may be shorter or missing."""
    tensor = as_tensor(x, "chunk")
    length, count = tensor.shape[as_axis(axis, tensor.ndim, "chunk")], as_int(chunks, "chunk", "chunks")
    return sh.split(tensor, -(-length // count) if length else [0] * count, axis)


def diff(x: Numbers, n: int = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours along an axis, x[i + 1] - x[i], taken `n` times.

    Raises:
        ArgumentError: for a negative n.
    """
    tensor = as_tensor(x, "diff")
    number, times = as_axis(axis, tensor.ndim, "diff"), as_int(n, "diff", "n")
    if times < 0:
        raise ArgumentError(f"diff: n is at least 0, not {times}.")
    for _ in range(times):
        if not tensor.shape[number]:
            break
        last = tensor.shape[number] - 1
        ends, starts = narrow(tensor, number, 1, last), narrow(tensor, number, 0, last)
        # Of truths a difference is that they differ, as NumPy has it.
        tensor = ends ^ starts if tensor.dtype.category == 0 else ends - starts
    return snapshot(tensor)


def meshgrid(*inputs: Numbers, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: of n vectors n Tensors with n axes, each the same along all axes but its own.

    Args:
        inputs: Tensors (N,), of the coordinates along each axis.
        indexing: "xy" for the second vector along the first axis, "ij" for each along its own.

    Raises:
        ArgumentError: for another indexing.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid: indexing is "xy" or "ij", not {indexing!r}.')
    vectors = [ravel(as_tensor(x, "meshgrid", f"inputs[{i}]")) for i, x in enumerate(inputs)]
    swapped = indexing == "xy" and len(vectors) > 1
    order = [1, 0, *range(2, len(vectors))] if swapped else list(range(len(vectors)))
    lengths = tuple(vectors[a].size for a in order)
    return tuple(
        sh.broadcast_to(sh.reshape(v, tuple(v.size if a == i else 1 for a in order)), lengths)
        for i, v in enumerate(vectors)
    )


# --- joining ----------------------------------------------------------------------------------------------------------


def hstack(tensors: Any) -> Tensor:
    """Tensors one after the other along the second axis; vectors along their only one."""
    parts = [_with_axes(x, 1, "hstack") for x in _several(tensors, "hstack")]
    return sh.concat(parts, 0 if parts and parts[0].ndim == 1 else 1)


def vstack(tensors: Any) -> Tensor:
    """Tensors one after the other along the first axis; a vector is a row."""
    return sh.concat([_with_axes(x, 2, "vstack") for x in _several(tensors, "vstack")], 0)


def _several(tensors: Any, name: str) -> Sequence[Any]:
    if not isinstance(tensors, (tuple, list)):
        raise ArgumentError(f"{name}: tensors is a tuple or list of Tensors, not a {type(tensors).__name__}.")
    return tensors


def _with_axes(x: Any, least: int, name: str) -> Tensor:
    tensor = as_tensor(x, name, "tensors")
    return sh.reshape(tensor, (1,) * (least - tensor.ndim) + tensor.shape)


movedim = moveaxis
