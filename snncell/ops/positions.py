"""Elements at positions that Tensors hold: taken, written, added up, by their positions in the flattened Tensor.

A position out of range is an error of the eager call, in words. A Program finds it when it runs, where the CPU looks
it up; on a GPU it reads NaN (see `gather`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.ops import creation as new, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_tensor, astype, same_dtype
from snncell.ops.indexing import gather, scatter_add_primitive
from snncell.ops.masks import masked_fill
from snncell.ops.position_primitives import like, write_positions
from snncell.ops.rearrange import ravel
from snncell.tape.tensor import Tensor, beside
from snncell.tape.value import Value

Grads = Sequence[Any]

# --- writing to positions ---------------------------------------------------------------------------------------------


def _write(
    x: Tensor, positions: Tensor, values: Any, name: str, accumulate: bool = False, values_are: str = "src"
) -> Tensor:
    """`x` with `values`, stretched to the shape of `positions`, written or added at flat positions."""
    same = same_dtype([x, as_tensor(values, name, values_are)], name)
    if same[0].dtype is not x.dtype:
        raise DTypeError(
            f"{name}: values of dtype {same[1].dtype} do not fit a Tensor of dtype {x.dtype}. Convert one of them: "
            f"values.astype({x.dtype.name!r})."
        )
    try:
        spread = sh.broadcast_to(same[1], positions.shape)
    except ShapeError:
        raise ShapeError(f"{name}: values of shape {same[1].shape} for positions of shape {positions.shape}.") from None
    flat, places, numbers = ravel(x), ravel(positions), ravel(spread)
    if accumulate:
        new_flat: Tensor = flat + scatter_add_primitive.bind(numbers, places, axis=0, shape=(x.size,))
    else:
        new_flat = write_positions.bind(flat, places, numbers)
    return sh.reshape(new_flat, x.shape)


# --- positions --------------------------------------------------------------------------------------------------------


def _whole(x: Tensor, indices: Any, name: str, argument: str = "index") -> Tensor:
    with beside(x):
        tensor = as_tensor(indices, name, argument)
    if not tensor.size and not isinstance(indices, Tensor):
        tensor = astype(tensor, dtypes.int64)
    if tensor.dtype.category != 1:
        raise DTypeError(f"{name}: {argument} holds integers, not {tensor.dtype}. Convert it: .astype('int64').")
    return astype(tensor, dtypes.int64)


def _count_from_zero(index: Tensor, length: int, beyond: int, name: str) -> Tensor:
    """Positions along an axis, counted from 0; those out of range are refused, in a trace made `beyond`."""
    if isinstance(index._data, np.ndarray) and index.size:
        numbers = index._data
        wrong = numbers.min() if numbers.min() < -length else numbers.max()
        if not -length <= wrong < length:
            raise TensorIndexError(f"{name}: index {wrong} is out of range; it must lie in [{-length}, {length}).")
    positive = lg.where(index < 0, index + length, index)
    if not isinstance(index._data, Value):
        return positive
    inside = lg.logical_and(positive >= 0, positive < length)
    result: Tensor = lg.where(inside, positive, beyond)
    return result


def _along(x: Tensor, axis: int, index: Tensor, name: str) -> Tensor:
    """The flat positions of x[i, ..., index[i, j, ...], ...]: along `axis` by the index, else its own."""
    if index.ndim != x.ndim or any(
        n > m for a, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if a != axis
    ):
        raise ShapeError(
            f"{name}: the index has shape {index.shape}, x {x.shape}; they have as many axes, of which only "
            f"axis {axis} may be longer in the index."
        )
    strides = [math.prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    own = np.zeros(index.shape, np.int64)
    for a, n in enumerate(index.shape):
        if a != axis:
            own += (np.arange(n) * strides[a]).reshape([n if b == a else 1 for b in range(x.ndim)])
    counted = _count_from_zero(index, x.shape[axis], x.size, name)
    result: Tensor = counted * strides[axis] + like(own, index)
    return result


def _at(shape: tuple[int, ...], indices: Sequence[Tensor], name: str) -> Tensor:
    """The flat positions of slices at `indices`, one Tensor for each leading axis, broadcast, in units of a slice."""
    total = math.prod(shape[: len(indices)])
    flat: Any = 0
    for length, index in zip(shape, indices, strict=False):
        flat = flat * length + _count_from_zero(index, length, total, name)
    result: Tensor = flat
    return result


# --- taking -----------------------------------------------------------------------------------------------------------


def gather_elements(x: Numbers, dim: int, index: Numbers) -> Tensor:
    """Elements along an axis: out[i, j] = x[index[i, j], j] for dim = 0, x[i, index[i, j]] for dim = 1.

    Args:
        x: any shape.
        dim: the axis.
        index: integers; as many axes, of which all but `dim` are no longer than those of x. The result has its shape.

    Raises:
        ShapeError: for another number of axes, or longer ones.
        TensorIndexError: for a position out of range.
    """
    tensor = as_tensor(x, "gather_elements")
    places = _whole(tensor, index, "gather_elements")
    axis = as_axis(dim, tensor.ndim, "gather_elements", "dim")
    return gather(ravel(tensor), _along(tensor, axis, places, "gather_elements"))


def gather_nd(x: Numbers, indices: Numbers) -> Tensor:
    """Slices at points: the last axis of `indices` (..., k) has the positions along the first k axes of x.

    Raises:
        ShapeError: if k is not among the numbers of axes of x.
        TensorIndexError: for a position out of range.

    Example:
        >>> ops.gather_nd(Tensor([[1.0, 2.0], [3.0, 4.0]]), [[0, 1], [1, 0]]).tolist()
        [2.0, 3.0]
    """
    tensor = as_tensor(x, "gather_nd")
    points = _whole(tensor, indices, "gather_nd", "indices")
    if not points.ndim or not 1 <= points.shape[-1] <= tensor.ndim:
        raise ShapeError(
            f"gather_nd: indices have shape {points.shape}; the last axis names positions along 1 to {tensor.ndim} "
            f"axes of x."
        )
    return take_points(tensor, sh.unstack(points, -1), "gather_nd")


def take_points(x: Tensor, indices: Sequence[Tensor], name: str) -> Tensor:
    """The slices of `x` at positions along its first axes, one Tensor of integers for each."""
    count = len(indices)
    slices = sh.reshape(x, (math.prod(x.shape[:count]), *x.shape[count:]))
    return gather(slices, _at(x.shape, indices, name))


def index_select(x: Numbers, axis: int, index: Numbers) -> Tensor:
    """The slices along an axis at the positions of a vector.

    Raises:
        ShapeError: for an index that is no vector.
        TensorIndexError: for a position out of range.
    """
    tensor = as_tensor(x, "index_select")
    places = _whole(tensor, index, "index_select")
    if places.ndim > 1:
        raise ShapeError(f"index_select: index is a vector, not of shape {places.shape}.")
    return gather(tensor, places, axis)


# --- writing ----------------------------------------------------------------------------------------------------------


def scatter(x: Numbers, axis: int, index: Numbers, src: Numbers) -> Tensor:
    """`x` with the elements of `src` written along an axis: out[index[i, j], j] = src[i, j] for axis 0.

    Args:
        x: any shape; it stays as it is.
        axis: the axis.
        index: integers, as in `gather_elements`. Of several values for one place the last one counts, and gets the
            gradient.
        src: numbers of the shape of the index, or one that broadcasts to it.

    Raises:
        ShapeError, DTypeError: for an index or values that do not fit.
        TensorIndexError: for a position out of range.
    """
    tensor = as_tensor(x, "scatter")
    places = _whole(tensor, index, "scatter")
    number = as_axis(axis, tensor.ndim, "scatter")
    return _write(tensor, _along(tensor, number, places, "scatter"), src, "scatter")


def tensor_scatter_elements(
    x: Numbers, indices: Numbers, updates: Numbers, axis: int = 0, reduction: Literal["none", "add"] = "none"
) -> Tensor:
    """`scatter` with the axis last, or with reduction="add" `scatter_add`."""
    return (scatter_add if reduction == "add" else scatter)(x, axis, indices, updates)


def scatter_add(x: Numbers, axis: int, index: Numbers, src: Numbers) -> Tensor:
    """`x` with the elements of `src` added along an axis, where `scatter` writes them; all for one place count."""
    tensor = as_tensor(x, "scatter_add")
    places = _whole(tensor, index, "scatter_add")
    number = as_axis(axis, tensor.ndim, "scatter_add")
    return _write(tensor, _along(tensor, number, places, "scatter_add"), src, "scatter_add", True)


def tensor_scatter_add(x: Numbers, indices: Numbers, updates: Numbers) -> Tensor:
    """`x` with slices added at points, the last axis of `indices` having the positions along the first axes of x."""
    tensor = as_tensor(x, "tensor_scatter_add")
    points = _whole(tensor, indices, "tensor_scatter_add", "indices")
    if not points.ndim or not 1 <= points.shape[-1] <= tensor.ndim:
        raise ShapeError(
            f"tensor_scatter_add: indices have shape {points.shape}; the last axis names positions along 1 to "
            f"{tensor.ndim} axes of x."
        )
    return index_put(tensor, sh.unstack(points, -1), updates, True)


def index_put(x: Numbers, indices: Any, values: Numbers, accumulate: bool = False) -> Tensor:
    """`x` with `values` written, or added, at x[indices[0], indices[1], ...].

    Args:
        x: any shape; it stays as it is.
        indices: a Tensor of integers for each of the first axes of x, broadcast to one shape.
        values: numbers that broadcast to the shape of x[indices].
        accumulate: add them, all of those for one place; else the last one counts.

    Raises:
        ArgumentError: for no indices, or more than x has axes.
        ShapeError, DTypeError: for values that do not fit.
        TensorIndexError: for a position out of range.
    """
    tensor = as_tensor(x, "index_put")
    if not isinstance(indices, (tuple, list)) or not 1 <= len(indices) <= tensor.ndim:
        raise ArgumentError(f"index_put: indices is a tuple of 1 to {tensor.ndim} Tensors, one for each axis of x.")
    named = [_whole(tensor, index, "index_put", f"indices[{i}]") for i, index in enumerate(indices)]
    points = _at(tensor.shape, named, "index_put")
    inner = math.prod(tensor.shape[len(named) :])
    rest = tensor.shape[len(named) :]
    places = sh.reshape(points, (*points.shape, *(1,) * len(rest))) * inner + like(
        np.arange(inner).reshape(rest), points
    )
    return _write(tensor, places, values, "index_put", accumulate, "values")


def index_fill(x: Numbers, axis: int, index: Numbers, value: Numbers) -> Tensor:
    """`x` with `value` in the slices along an axis at the positions of a vector."""
    tensor = as_tensor(x, "index_fill")
    places = _whole(tensor, index, "index_fill")
    number = as_axis(axis, tensor.ndim, "index_fill")
    length = tensor.shape[number]
    counted = _count_from_zero(ravel(places), length, length, "index_fill")
    hits = scatter_add_primitive.bind(new.ones_like(counted), counted, axis=0, shape=(length,))
    filled = sh.reshape(hits > 0, tuple(length if a == number else 1 for a in range(tensor.ndim)))
    return masked_fill(tensor, filled, value)
