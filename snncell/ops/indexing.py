"""NumPy indexing `x[...]`, boolean masks, and scatter.

The number of elements that a mask selects depends on values, so it has no fixed shape in a Program. Outside of traced
functions, masks are evaluated immediately and have gradients. Inside, use `ops.where`, which keeps the shape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError, TensorIndexError
from snncell.kernels.cuda import indexing as scatters
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import space_of
from snncell.ops import arithmetic as ar, base as new, shape as sh
from snncell.ops.base import Grads, as_axis, as_int, as_tensor, same_dtype
from snncell.ops.gathering import (
    as_points,
    as_positions,
    count_from_zero,
    gather,
    positions_along,
    positions_of_slices,
    scatter_add_primitive,
    take_points,
)
from snncell.ops.reduce import cumsum
from snncell.tape.primitive import moving, one_after_another, repeat_over_time, with_axis_of_steps
from snncell.tape.tensor import Tensor, on_device_of, snapshot

__all__ = [
    "argwhere", "index_fill", "index_put", "masked_fill", "masked_scatter", "masked_select", "nonzero", "scatter",
    "scatter_add", "sequence_mask", "tensor_scatter_add", "tensor_scatter_elements",
]  # fmt: skip


# --- Slices, integers, positions: x[...] ------------------------------------------------------------------------------


@moving
def _getitem(x: Any, index: Any) -> Any:
    return x[index]


getitem_primitive = _getitem


@moving
def _put(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `x` at `index`."""
    # Basic indices select each element at most once, so an assignment suffices instead of an addition.
    out = space_of(x).zeros(shape, x.dtype)
    out[index] = x
    return out


_getitem.def_bprop(lambda _x, _out, dout, *, index: (_put.bind(dout, index=index, shape=_x.shape),))
_put.def_bprop(lambda _x, _out, dout, *, index, shape: (_getitem.bind(dout, index=index),))
put_primitive = _put


def _index_behind_steps(attrs: dict[str, Any], steps: int) -> dict[str, Any]:
    index = attrs["index"] if isinstance(attrs["index"], tuple) else (attrs["index"],)
    moved = {"index": (slice(None), *index)}
    return {**moved, "shape": (steps, *attrs["shape"])} if "shape" in attrs else moved


for _op in (_getitem, _put):
    with_axis_of_steps(_op, _index_behind_steps)
    _op.additive = True
_getitem.selects = True


def getitem(x: Tensor, index: Any) -> Tensor:
    """Index by NumPy's rules: `x[index]`. Positions in lists, arrays or Tensors, and boolean masks, give copies. A
    traced function refuses a mask that is computed inside of it, because the number of elements would depend on values.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(_is_array_index(part) for part in parts):
        return getitem_primitive.bind(x, index=tuple([_as_basic_index(part) for part in parts]))
    with on_device_of(x):
        given = [_as_index_tensor(part) if _is_array_index(part) else part for part in parts]
    if all(isinstance(part, Tensor) and part.dtype.category == 1 for part in given) and len(given) <= x.ndim:
        return gather(x, given[0], 0) if len(given) == 1 else take_points(x, given, "x[...]")
    if len(given) == 1:
        return _select_by_mask(x, given[0])
    plain = tuple(part._concrete("x[mask]") if isinstance(part, Tensor) else _as_basic_index(part) for part in given)
    try:
        places = np.arange(x.size).reshape(x.shape)[plain]
    except IndexError as error:
        raise TensorIndexError(f"A Tensor of shape {x.shape}: {error}.") from None
    return gather(sh.ravel(x), new.array_beside(places, x))


def _is_array_index(part: Any) -> bool:
    return isinstance(part, (list, np.ndarray)) or (isinstance(part, Tensor) and part.ndim > 0)


def _as_index_tensor(part: Any) -> Tensor:
    index = part if isinstance(part, Tensor) else Tensor(part, "int64" if np.size(part) == 0 else None)
    if index.dtype.category > 1:
        raise TensorIndexError(
            f"A Tensor cannot be indexed by a Tensor of dtype {index.dtype}: positions are integers, "
            f"x.astype('int64'), and masks booleans, x > 0."
        )
    return index


def _select_by_mask(x: Tensor, mask: Tensor) -> Tensor:
    """The elements, or slices, for which a mask over the first axes is true."""
    if mask.shape != x.shape[: mask.ndim]:
        raise TensorIndexError(
            f"A mask of shape {mask.shape} does not match the first axes of a Tensor of shape {x.shape}."
        )
    chosen = np.flatnonzero(mask._concrete("x[mask]"))
    slices = sh.reshape(x, (math.prod(mask.shape), *x.shape[mask.ndim :]))
    return gather(slices, new.array_beside(chosen, x), 0)


def _as_basic_index(part: Any) -> Any:
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        bounds = [None if bound is None else _as_index(bound) for bound in (part.start, part.stop, part.step)]
        if bounds[2] == 0:
            raise TensorIndexError("A slice of a Tensor has step 0.")
        return slice(*bounds)
    return _as_index(part)


def _as_index(part: Any) -> int:
    try:
        if not isinstance(part, (bool, np.bool_)):  # integers to operator.index, but masks to NumPy
            return operator.index(part)
    except TypeError:
        pass
    raise TensorIndexError(
        f"A Tensor index may contain integers, slices, None, ..., positions and masks, not {part!r}. Use "
        f"ops.gather for positions along an axis, and ops.where(mask, x, 0) to keep the shape."
    )


# --- Masks ------------------------------------------------------------------------------------------------------------


def sequence_mask(lengths: Numbers, maxlen: int, axis: int = -1) -> Tensor:
    """Mask of valid steps from sequence lengths, to leave padding out of a loss: i < lengths for i in range(maxlen).

    Args:
        lengths: integers, any shape. Lengths above maxlen count as maxlen.
        maxlen: the length of the new axis.
        axis: the position of the new axis. With axis=0, lengths (B,) give a mask (T, B) for sequences with time first.
    Source: sequence_mask of MindSpore, extended by `axis`.
    Example:
        >>> snncell.ops.sequence_mask([1, 3], 3).tolist()
        [[True, False, False], [True, True, True]]
    """
    tensor = as_tensor(lengths, "sequence_mask")
    if tensor.dtype.category != 1:
        raise DTypeError(f"sequence_mask: lengths are integers, not {tensor.dtype}: lengths.astype('int64').")
    if (count := as_int(maxlen, "sequence_mask", "maxlen")) < 0:
        raise ArgumentError(f"sequence_mask: maxlen must be at least 0, not {count}.")
    number = as_axis(axis, tensor.ndim + 1, "sequence_mask")
    steps = new.array_beside(np.arange(count, dtype=np.int64), tensor)
    return ar.less(steps.reshape((count, *(1,) * (tensor.ndim - number))), tensor.expand_dims(number))


def masked_fill(x: Numbers, mask: Numbers, value: Numbers) -> Tensor:
    """`value` where the mask is true, else x. The mask must be boolean, or a DTypeError is raised."""
    tensor = as_tensor(x, "masked_fill")
    return ar.where(_mask(mask, "masked_fill"), value, tensor)


def masked_scatter(x: Numbers, mask: Numbers, source: Numbers) -> Tensor:
    """Replace the elements where the mask is true by consecutive elements of `source`; the mask broadcasts to `x`."""
    tensor, taken = as_tensor(x, "masked_scatter"), sh.ravel(as_tensor(source, "masked_scatter", "source"))
    chosen = sh.broadcast_to(_mask(mask, "masked_scatter"), tensor.shape)
    wanted = int(chosen._data.sum()) if isinstance(chosen._data, np.ndarray) else 0
    if wanted > taken.size:
        raise ShapeError(f"masked_scatter: source has {taken.size} element(s), but the mask selects {wanted}.")
    if not taken.size:
        return snapshot(tensor)
    numbers = sh.reshape(cumsum(sh.ravel(chosen), 0) - 1, tensor.shape)
    return ar.where(chosen, gather(taken, ar.clip(numbers, 0, taken.size - 1)), tensor)


def masked_select(x: Numbers, mask: Numbers) -> Tensor:
    """The elements where the mask is true, in order, as one axis; `x` and `mask` are broadcast first.

    A traced function raises a TraceError, because the number of elements depends on values.
    """
    tensor, chosen = as_tensor(x, "masked_select"), _mask(mask, "masked_select")
    try:
        shape = np.broadcast_shapes(tensor.shape, chosen.shape)
    except ValueError:
        raise ShapeError(f"masked_select: shapes {tensor.shape} and {chosen.shape} do not broadcast.") from None
    found = np.flatnonzero(np.broadcast_to(chosen._concrete("masked_select()"), shape))
    return gather(sh.ravel(sh.broadcast_to(tensor, shape)), new.array_beside(found, tensor))


def _mask(mask: Any, name: str) -> Tensor:
    tensor = as_tensor(mask, name, "mask")
    if tensor.dtype.category:
        raise DTypeError(f"{name}: mask must be boolean, not {tensor.dtype}; compare first: mask > 0.")
    return tensor


def nonzero(x: Numbers, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The positions of nonzero elements, in order, as int64.

    A traced function raises a TraceError, because the number of elements depends on values.

    Args:
        x: any shape with n axes.
        as_tuple: return n Tensors (K,), one per axis, instead of one (K, n).
    """
    tensor = as_tensor(x, "nonzero")
    found = np.argwhere(tensor._concrete("nonzero()"))
    with on_device_of(tensor):
        return tuple(Tensor(places) for places in found.T) if as_tuple else Tensor(found)


def argwhere(x: Numbers) -> Tensor:
    """The positions of nonzero elements, (K, n), like `nonzero`."""
    found = nonzero(x)
    assert isinstance(found, Tensor)
    return found


# --- Scatter: write or add elements at positions in Tensors -----------------------------------------------------------


@moving
def write_positions(x: Any, positions: Any, values: Any) -> Any:
    """A copy of x (N,) with `values` (K,) at `positions` (K,). For a repeated position, the last value counts."""
    out = np.array(x)
    out[positions] = values
    return out


write_positions.name = "scatter"
write_positions.def_on_gpu(scatters.put)


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
        # Only the last value for a position is in the result, so earlier ones get no gradient.
        numbers = new.array_beside(np.arange(positions.size), positions)
        zeros = new.array_beside(np.zeros(dout.size, np.int64), positions)
        last = gather(write_positions.bind(zeros, positions, numbers), positions)
        return ar.where(ar.equal(last, numbers), gather(dout, positions), 0.0)

    return lambda: write_positions.bind(dout, positions, new.zeros_like(positions, dout.dtype)), None, of_values


def _write_at(x: Tensor, positions: Tensor, values: Any, name: str, accumulate: bool, argument: str = "src") -> Tensor:
    """Write or add `values`, broadcast to the shape of `positions`, at flat positions of `x`."""
    same = same_dtype([x, as_tensor(values, name, argument)], name)
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


def scatter(x: Numbers, axis: int, index: Numbers, src: Numbers) -> Tensor:
    """Write elements of `src` to positions along an axis: out[index[i, j], j] = src[i, j] for axis 0.

    Args:
        x: any shape. It is not modified.
        index: integers, as in `gather_elements`. For a repeated position, the last value counts and gets the gradient.
        src: numbers that broadcast to the shape of `index`.
    """
    return _scatter(x, axis, index, src, "scatter", False)


def tensor_scatter_elements(
    x: Numbers, indices: Numbers, updates: Numbers, axis: int = 0, reduction: Literal["none", "add"] = "none"
) -> Tensor:
    """`scatter`, or with reduction="add" `scatter_add`, with `axis` as the last argument (MindSpore's order)."""
    return (scatter_add if reduction == "add" else scatter)(x, axis, indices, updates)


def scatter_add(x: Numbers, axis: int, index: Numbers, src: Numbers) -> Tensor:
    """Add elements of `src` to positions along an axis: out[index[i, j], j] += src[i, j] for axis 0; see `scatter`."""
    return _scatter(x, axis, index, src, "scatter_add", True)


def _scatter(x: Numbers, axis: int, index: Numbers, src: Numbers, name: str, accumulate: bool) -> Tensor:
    tensor = as_tensor(x, name)
    places = as_positions(tensor, index, name)
    number = as_axis(axis, tensor.ndim, name)
    return _write_at(tensor, positions_along(tensor, number, places, name), src, name, accumulate)


def tensor_scatter_add(x: Numbers, indices: Numbers, updates: Numbers) -> Tensor:
    """Add slices at points: the last axis of `indices` holds positions along the first axes of x."""
    tensor = as_tensor(x, "tensor_scatter_add")
    return index_put(tensor, as_points(tensor, indices, "tensor_scatter_add"), updates, True)


def index_put(x: Numbers, indices: Any, values: Numbers, accumulate: bool = False) -> Tensor:
    """Write or add `values` at x[indices[0], indices[1], ...].

    Args:
        x: any shape. It is not modified.
        indices: integer Tensors for the first axes of x, broadcast to one shape.
        values: numbers that broadcast to the shape of x[indices].
        accumulate: add the values, so that repeated positions add up. By default the last value counts.
    """
    tensor = as_tensor(x, "index_put")
    if not isinstance(indices, (tuple, list)) or not 1 <= len(indices) <= tensor.ndim:
        raise ArgumentError(f"index_put: indices must be a tuple of 1 to {tensor.ndim} Tensors, one per axis of x.")
    named = [as_positions(tensor, index, "index_put", f"indices[{i}]") for i, index in enumerate(indices)]
    points = positions_of_slices(tensor.shape, named, "index_put")
    rest = tensor.shape[len(named) :]
    inner = math.prod(rest)
    own = new.array_beside(np.arange(inner).reshape(rest), points)
    places = sh.reshape(points, (*points.shape, *(1,) * len(rest))) * inner + own
    return _write_at(tensor, places, values, "index_put", accumulate, "values")


def index_fill(x: Numbers, axis: int, index: Numbers, value: Numbers) -> Tensor:
    """Fill the slices along an axis at the positions in a vector with `value`."""
    tensor = as_tensor(x, "index_fill")
    places = as_positions(tensor, index, "index_fill")
    number = as_axis(axis, tensor.ndim, "index_fill")
    length = tensor.shape[number]
    counted = count_from_zero(sh.ravel(places), length, length, "index_fill")
    hits = scatter_add_primitive.bind(new.ones_like(counted), counted, axis=0, shape=(length,))
    filled = sh.reshape(hits > 0, tuple(length if a == number else 1 for a in range(tensor.ndim)))
    return masked_fill(tensor, filled, value)
