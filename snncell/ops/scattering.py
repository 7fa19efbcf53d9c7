"""Scatter: write, or add, elements at positions that Tensors hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.cuda import scatter as scatters
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.ops import creation as new, joining, logic as lg, shape as sh
from snncell.ops.base import as_axis, as_tensor, same_dtype
from snncell.ops.gathering import (
    as_positions,
    count_from_zero,
    gather,
    positions_along,
    positions_of_slices,
    scatter_add_primitive,
)
from snncell.ops.indexing import masked_fill
from snncell.tape.primitive import moving, one_after_another, repeat_over_time
from snncell.tape.tensor import Tensor

__all__ = ["index_fill", "index_put", "scatter", "scatter_add", "tensor_scatter_add", "tensor_scatter_elements"]

Grads = Sequence[Any]

# --- writing to a flat array ------------------------------------------------------------------------------------------


@moving
def write_positions(x: Any, positions: Any, values: Any) -> Any:
    """A copy of x (N,) with `values` (K,) at `positions` (K,); of several values for one position the last one."""
    out = np.array(x)
    out[positions] = values
    return out


write_positions.name = "scatter"


@write_positions.def_there
def _(x: Any, positions: Any, values: Any) -> Any:
    return scatters.put(x, positions, values)


def _write_over_time(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if any(isinstance(x, DeviceArray) for x in arrays):
        return one_after_another(scatters.put, arrays, varying, attrs)
    x, positions, values = repeat_over_time(arrays, varying)
    out = np.array(x)
    out[np.arange(len(x))[:, None], positions] = values
    return out


write_positions.over_time = _write_over_time


@write_positions.def_bprop
def _(_x: Tensor, positions: Tensor, _values: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    def of_values() -> Tensor:
        # The value that is in the result is the last one for its position; those before it get nothing.
        numbers = new.array_beside(np.arange(positions.size), positions)
        last = gather(
            write_positions.bind(new.array_beside(np.zeros(dout.size, np.int64), positions), positions, numbers),
            positions,
        )
        taken: Tensor = lg.where(lg.equal(last, numbers), gather(dout, positions), 0.0)
        return taken

    return lambda: write_positions.bind(dout, positions, new.zeros_like(positions, dout.dtype)), None, of_values


# --- positions along axes ---------------------------------------------------------------------------------------------


def _write_at(
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
    flat, places, numbers = sh.ravel(x), sh.ravel(positions), sh.ravel(spread)
    if accumulate:
        new_flat: Tensor = flat + scatter_add_primitive.bind(numbers, places, axis=0, shape=(x.size,))
    else:
        new_flat = write_positions.bind(flat, places, numbers)
    return sh.reshape(new_flat, x.shape)


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
    places = as_positions(tensor, index, "scatter")
    number = as_axis(axis, tensor.ndim, "scatter")
    return _write_at(tensor, positions_along(tensor, number, places, "scatter"), src, "scatter")


def tensor_scatter_elements(
    x: Numbers, indices: Numbers, updates: Numbers, axis: int = 0, reduction: Literal["none", "add"] = "none"
) -> Tensor:
    """`scatter` with the axis last, or with reduction="add" `scatter_add`."""
    return (scatter_add if reduction == "add" else scatter)(x, axis, indices, updates)


def scatter_add(x: Numbers, axis: int, index: Numbers, src: Numbers) -> Tensor:
    """`x` with the elements of `src` added along an axis, where `scatter` writes them; all for one place count."""
    tensor = as_tensor(x, "scatter_add")
    places = as_positions(tensor, index, "scatter_add")
    number = as_axis(axis, tensor.ndim, "scatter_add")
    return _write_at(tensor, positions_along(tensor, number, places, "scatter_add"), src, "scatter_add", True)


def tensor_scatter_add(x: Numbers, indices: Numbers, updates: Numbers) -> Tensor:
    """`x` with slices added at points, the last axis of `indices` having the positions along the first axes of x."""
    tensor = as_tensor(x, "tensor_scatter_add")
    points = as_positions(tensor, indices, "tensor_scatter_add", "indices")
    if not points.ndim or not 1 <= points.shape[-1] <= tensor.ndim:
        raise ShapeError(
            f"tensor_scatter_add: indices have shape {points.shape}; the last axis names positions along 1 to "
            f"{tensor.ndim} axes of x."
        )
    return index_put(tensor, joining.unstack(points, -1), updates, True)


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
    named = [as_positions(tensor, index, "index_put", f"indices[{i}]") for i, index in enumerate(indices)]
    points = positions_of_slices(tensor.shape, named, "index_put")
    inner = math.prod(tensor.shape[len(named) :])
    rest = tensor.shape[len(named) :]
    places = sh.reshape(points, (*points.shape, *(1,) * len(rest))) * inner + new.array_beside(
        np.arange(inner).reshape(rest), points
    )
    return _write_at(tensor, places, values, "index_put", accumulate, "values")


def index_fill(x: Numbers, axis: int, index: Numbers, value: Numbers) -> Tensor:
    """`x` with `value` in the slices along an axis at the positions of a vector."""
    tensor = as_tensor(x, "index_fill")
    places = as_positions(tensor, index, "index_fill")
    number = as_axis(axis, tensor.ndim, "index_fill")
    length = tensor.shape[number]
    counted = count_from_zero(sh.ravel(places), length, length, "index_fill")
    hits = scatter_add_primitive.bind(new.ones_like(counted), counted, axis=0, shape=(length,))
    filled = sh.reshape(hits > 0, tuple(length if a == number else 1 for a in range(tensor.ndim)))
    return masked_fill(tensor, filled, value)
