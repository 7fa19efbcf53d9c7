"""Gather: slices and elements at integer positions, embedding rows, one-hot vectors.

A position out of range raises an error, but a Program on a GPU reads NaN instead (see `_Lookup`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers, Size
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.kernels.arrays import add_to_rows, take_from_rows
from snncell.kernels.cuda import indexing
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import DEVICE, IN_USE, space_of
from snncell.ops import arithmetic as ar, shape as sh
from snncell.ops.base import Grads, array_beside, as_axis, as_int, as_tensor, astype, primitive
from snncell.tape.primitive import (
    EVERYWHERE,
    Primitive,
    axis_after_steps,
    one_after_another,
    repeat_over_time,
    with_axis_of_steps,
)
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, on_device_of

__all__ = ["gather", "gather_elements", "gather_nd", "index_select", "one_hot"]


# --- Slices along an axis ---------------------------------------------------------------------------------------------


class _Lookup(Primitive):
    """An operation that checks integer positions.

    On the CPU, `evaluate` checks them. On a GPU, only eager calls check them, because the check waits for the device. A
    compiled Program on a GPU reads NaN for a position out of range (-1 for integers, False for booleans), and adds
    nothing to a sum. Input number `of` has the positions; `check(lowest, highest, arrays, attrs)` raises the error.
    """

    def __init__(self, name: str, evaluate: Callable[..., Any], check: Callable[..., None], of: int) -> None:
        super().__init__(name, evaluate)
        self.check, self.of = check, of
        self.as_stored = EVERYWHERE

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        indices = arrays[self.of]
        if IN_USE and isinstance(indices, DeviceArray) and indices.size:
            # Check the extremes only, because each is a single number to copy from the device.
            every = {"axis": tuple(range(indices.ndim)), "keepdims": False}
            ends = [indices]
            if indices.ndim:
                ends = [DEVICE.arithmetic[name].on_device([indices], every) for name in ("min", "max")]
            self.check(int(ends[0].host()), int(ends[-1].host()), arrays, attrs)
        return super().run(arrays, inputs, attrs)


def _refuse_positions(
    lowest: int, highest: int, least: int, length: int, name: str, kind: Any = TensorIndexError, more: str = ""
) -> None:
    """Raise unless positions from `lowest` to `highest` lie in [least, length)."""
    if lowest < least or highest >= length:
        wrong = lowest if lowest < least else highest
        raise kind(f"{name} {wrong} is out of range{more}; it must lie in [{least}, {length}).")


# `only_within` is the name of an index in errors. If it is None, negative positions count from the end; otherwise they
# are errors.
def _check_gather(lowest: int, highest: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> None:
    within, length = attrs["only_within"], arrays[0].shape[attrs["axis"]]
    _refuse_positions(lowest, highest, -length if within is None else 0, length, within or "gather: index")


def _gather_slices(x: Any, indices: Any, axis: int, only_within: str | None) -> Any:
    if only_within is not None and indices.size:
        _refuse_positions(indices.min(), indices.max(), 0, x.shape[axis], only_within)
    return np.take(x, indices, axis)


_gather = _Lookup("gather", _gather_slices, _check_gather, 1)


@primitive
def _scatter_add(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Add the slices of `x` to zeros of `shape`, at `indices` along `axis`, in order."""
    out = np.zeros(shape, x.dtype)
    # Not `out[...] += x`, which adds only once for a repeated index.
    np.add.at(out, (*(slice(None),) * axis, indices), x)
    return out


_scatter_add.def_on_gpu(indexing.scatter_add)
_scatter_add.def_bprop(lambda _x, indices, _out, dout, *, axis, shape: (gather(dout, indices, axis), None))


def _gather_over_time(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    (x, indices), axis = arrays, attrs["axis"]
    if not varying[1]:
        return _gather.run_here(arrays, arrays, axis_after_steps(attrs, len(x)))
    if not varying[0]:
        return np.moveaxis(_gather.run_here(arrays, arrays, attrs), axis, 0)
    if isinstance(x, DeviceArray):
        return one_after_another(indexing.take, arrays, varying, {"axis": axis})
    if indices.size:
        _check_gather(indices.min(), indices.max(), [x[0]], attrs)
    return take_from_rows(x, indices, axis)


def _scatter_over_time(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if not varying[1]:
        further = {"axis": attrs["axis"] + 1, "shape": (len(arrays[0]), *attrs["shape"])}
        return _scatter_add.run_here(arrays, arrays, further)
    if isinstance(arrays[0], DeviceArray):
        return one_after_another(indexing.scatter_add, arrays, varying, attrs)
    return add_to_rows(*repeat_over_time(arrays, varying), **attrs)


def _scatter_of_sum(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    """The sum of the results of all steps, as one scatter_add with the positions of all steps."""
    x, indices = arrays
    if not varying[1]:
        return _scatter_add.run_here([space_of(x).sum(x), indices], arrays, attrs)
    x, indices = repeat_over_time(arrays, varying)
    return _scatter_add.run_here([np.moveaxis(x, 0, attrs["axis"]), indices], arrays, attrs)


_gather.over_time = _gather_over_time
_gather.proportional = lambda inputs, varying: list(varying) == [True, False]
_scatter_add.over_time, _scatter_add.summed = _scatter_over_time, _scatter_of_sum
scatter_add_primitive = _scatter_add


_gather.def_on_gpu(lambda x, indices, axis, only_within: indexing.take(x, indices, axis))


@_gather.def_bprop
def _(_x: Tensor, indices: Tensor, _out: Tensor, dout: Tensor, *, axis: int, only_within: str | None) -> Grads:
    return _scatter_add.bind(dout, indices, axis=axis, shape=_x.shape), None


def gather(x: Numbers, indices: Numbers, axis: int = 0) -> Tensor:
    """Select slices of `x` at integer positions along an axis; the axes of `indices` replace this axis. A position out
    of range raises a TensorIndexError.
    """
    tensor, where = as_tensor(x, "gather"), as_tensor(indices, "gather", "indices")
    if where.dtype.category != 1:
        raise TensorIndexError(
            f"A Tensor cannot be indexed by a Tensor of dtype {where.dtype}: the result's shape would depend on "
            f"values. Use ops.select(mask, x, 0), or ops.gather with integers."
        )
    return _gather.bind(tensor, where, axis=as_axis(axis, tensor.ndim, "gather"), only_within=None)


def take_slices(x: Tensor, places: Any, axis: int) -> Tensor:
    """`gather` at known positions, given as a NumPy array of integers."""
    return _gather.bind(x, array_beside(np.asarray(places, np.int64), x), axis=axis, only_within=None)


def lookup(table: Tensor, indices: Any, name: str) -> Tensor:
    """Rows of `table` at non-negative `indices`; `name` is the name of the indices in errors."""
    where = as_tensor(indices, name)
    if where.dtype.category != 1:
        raise DTypeError(f"{name}: indices are integers, not {where.dtype}. Convert them: x.astype('int64').")
    return _gather.bind(table, where, axis=0, only_within=name)


def _check_hot(lowest: int, highest: int, _: Any, attrs: dict[str, Any]) -> None:
    depth, name = attrs["depth"], attrs["name"]
    words = name if isinstance(name, str) else name[int(lowest >= 0)]
    more = f" for depth {depth}" if words.startswith("one_hot") else ""  # other callers speak of classes
    _refuse_positions(lowest, highest, 0, depth, words, ArgumentError, more)


def _ones_at(indices: Any, depth: int, axis: int, dtype: Any, name: str | tuple[str, str]) -> Any:
    if indices.size:
        _check_hot(indices.min(), indices.max(), (), {"depth": depth, "name": name})
    out = np.zeros((*indices.shape, depth), dtype)
    np.put_along_axis(out, indices[..., None], 1, -1)
    return np.moveaxis(out, -1, axis)


_one_hot = _Lookup("one_hot", _ones_at, _check_hot, 0)
_one_hot.no_gradient()
with_axis_of_steps(_one_hot, axis_after_steps)


@_one_hot.def_on_gpu
def _(indices: Any, depth: int, axis: int, dtype: Any, name: str | tuple[str, str]) -> Any:
    order = list(range(indices.ndim))
    order.insert(axis, indices.ndim)
    return indexing.one_hot(indices, depth, dtype).transpose(order)


def one_hot(
    indices: Numbers, depth: Size, on_value: float | Tensor = 1.0, off_value: float | Tensor = 0.0, axis: int = -1
) -> Tensor:
    """One-hot encoding: `on_value` at each index along a new axis of length `depth`, `off_value` elsewhere. An index
    outside of [0, depth) raises an ArgumentError.
    """
    tensor = as_tensor(indices, "one_hot", "indices")
    if tensor.dtype.category != 1:
        raise DTypeError(f"one_hot: takes integers, not {tensor.dtype}. Convert them: indices.astype('int64').")
    ones = hot(tensor, as_int(depth, "one_hot", "depth"), axis, "one_hot: index")
    plain = not isinstance(on_value, Tensor) and not isinstance(off_value, Tensor)
    return ones if plain and (on_value, off_value) == (1.0, 0.0) else ones * (on_value - off_value) + off_value


def label_words(who: str, classes: int, ignores: bool) -> tuple[str, str]:
    """The names that `hot` needs for labels; `ignores` says whether the caller has an ignore_index."""
    begin, ignored = (f"{who}: the outputs have {classes} class(es), numbered from 0;", "mark labels to ignore")
    wider, named = "make the last layer as wide as there are classes", f"{ignored} by ignore_index" if ignores else ""
    low = named or "remove samples without a label"
    return f"{begin} {low}. Label", f"{begin} {wider}{named and ', or '}{named}. Label"


def hot(indices: Tensor, depth: int, axis: int, name: str | tuple[str, str]) -> Tensor:
    """One-hot encoding in float32. Errors begin with `name`: one text, or a pair for indices below 0 and too high."""
    number = as_axis(axis, indices.ndim + 1, "one_hot")
    return _one_hot.bind(indices, depth=depth, axis=number, dtype=np.dtype(np.float32), name=name)


# --- Elements at positions --------------------------------------------------------------------------------------------


def as_positions(x: Tensor, indices: Any, name: str, argument: str = "index") -> Tensor:
    """Convert `indices` to an int64 Tensor on the device of `x`."""
    with on_device_of(x):
        tensor = as_tensor(indices, name, argument)
    if not tensor.size and not isinstance(indices, Tensor):
        tensor = astype(tensor, dtypes.int64)
    if tensor.dtype.category != 1:
        raise DTypeError(f"{name}: {argument} holds integers, not {tensor.dtype}. Convert it: .astype('int64').")
    return astype(tensor, dtypes.int64)


def count_from_zero(index: Tensor, length: int, beyond: int, name: str) -> Tensor:
    """Count positions along an axis from 0. Positions out of range raise an error, or in a trace become `beyond`."""
    if isinstance(index._data, np.ndarray) and index.size:
        _refuse_positions(index._data.min(), index._data.max(), -length, length, f"{name}: index")
    positive = ar.where(index < 0, index + length, index)
    if not isinstance(index._data, Value):
        return positive
    inside = ar.logical_and(positive >= 0, positive < length)
    return ar.where(inside, positive, beyond)


def positions_along(x: Tensor, axis: int, index: Tensor, name: str) -> Tensor:
    """The flat positions of x[i, ..., index[i, j, ...], ...], in which only the one along `axis` comes from `index`."""
    lengths = enumerate(zip(index.shape, x.shape, strict=False))
    if index.ndim != x.ndim or any(n > m for a, (n, m) in lengths if a != axis):
        raise ShapeError(
            f"{name}: the index has shape {index.shape}, x {x.shape}; they must have equally many axes, and only axis "
            f"{axis} may be longer in the index."
        )
    strides = [math.prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    grid = np.indices(index.shape, np.int64, sparse=True)
    others: Any = sum(grid[a] * strides[a] for a in range(x.ndim) if a != axis)
    counted = count_from_zero(index, x.shape[axis], x.size, name)
    return counted * strides[axis] + array_beside(others, index) if x.ndim > 1 else counted


def positions_of_slices(shape: tuple[int, ...], indices: Sequence[Tensor], name: str) -> Tensor:
    """The flat positions, in units of a slice, of slices at broadcast `indices`, one Tensor per leading axis."""
    total = math.prod(shape[: len(indices)])
    flat: Any = 0
    for length, index in zip(shape, indices, strict=False):
        flat = flat * length + count_from_zero(index, length, total, name)
    result: Tensor = flat
    return result


def gather_elements(x: Numbers, dim: int, index: Numbers) -> Tensor:
    """Select elements along an axis: out[i, j] = x[index[i, j], j] for dim = 0, x[i, index[i, j]] for dim = 1.

    Args:
        dim: the axis.
        index: integers with as many axes as x, none longer than in x except `dim`. The result has the shape of `index`.
    """
    tensor = as_tensor(x, "gather_elements")
    places = as_positions(tensor, index, "gather_elements")
    axis = as_axis(dim, tensor.ndim, "gather_elements", "dim")
    return gather(sh.ravel(tensor), positions_along(tensor, axis, places, "gather_elements"))


def gather_nd(x: Numbers, indices: Numbers) -> Tensor:
    """Select slices at points: the last axis of `indices` (..., k) holds positions along the first k axes of x.

    A position out of range raises a TensorIndexError.

    Example:
        >>> ops.gather_nd(Tensor([[1.0, 2.0], [3.0, 4.0]]), [[0, 1], [1, 0]]).tolist()
        [2.0, 3.0]
    """
    tensor = as_tensor(x, "gather_nd")
    return take_points(tensor, as_points(tensor, indices, "gather_nd"), "gather_nd")


def as_points(x: Tensor, indices: Any, name: str) -> tuple[Tensor, ...]:
    """The positions in the last axis of `indices`, one Tensor for each of the first axes of `x`."""
    points = as_positions(x, indices, name, "indices")
    if not points.ndim or not 1 <= points.shape[-1] <= x.ndim:
        raise ShapeError(
            f"{name}: indices have shape {points.shape}; the last axis names positions along 1 to {x.ndim} axes of x."
        )
    return sh.unstack(points, -1)


def take_points(x: Tensor, indices: Sequence[Tensor], name: str) -> Tensor:
    """The slices of `x` at positions along its first axes, one integer Tensor per axis."""
    count = len(indices)
    slices = sh.reshape(x, (math.prod(x.shape[:count]), *x.shape[count:]))
    return gather(slices, positions_of_slices(x.shape, indices, name))


def index_select(x: Numbers, axis: int, index: Numbers) -> Tensor:
    """Select slices along an axis at the positions in a vector; one out of range raises a TensorIndexError."""
    tensor = as_tensor(x, "index_select")
    places = as_positions(tensor, index, "index_select")
    if places.ndim > 1:
        raise ShapeError(f"index_select: index is a vector, not of shape {places.shape}.")
    return gather(tensor, places, axis)
