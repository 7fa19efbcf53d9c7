"""Measures of the elements along axes, made of reductions and of sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype, Numbers
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import logic as lg, reduce, shape as sh, sorting
from snncell.ops.base import as_axis, as_float, as_int, as_tensor, astype
from snncell.ops.positions import gather_elements
from snncell.ops.rearrange import narrow, ravel
from snncell.tape.tensor import Tensor

Axis = int | tuple[int, ...] | None

# --- extremes ---------------------------------------------------------------------------------------------------------


def amax(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes, `max` under its other name; those that are equal share the gradient."""
    return reduce.max(x, axis, keepdims)


def amin(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes, `min` under its other name; those that are equal share the gradient."""
    return reduce.min(x, axis, keepdims)


def argmax_with_value(x: Numbers, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """The position of the first largest element along an axis, and the element, in this order."""
    return reduce.argmax(x, axis, keep_dims), reduce.max(x, axis, keep_dims)


def argmin_with_value(x: Numbers, axis: int = 0, keep_dims: bool = False) -> tuple[Tensor, Tensor]:
    """The position of the first smallest element along an axis, and the element, in this order."""
    return reduce.argmin(x, axis, keep_dims), reduce.min(x, axis, keep_dims)


def top_k(x: Numbers, k: Count, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along the last axis, and their positions: `topk` in its shorter form."""
    return topk(x, k, None, True, sorted)


def topk(
    x: Numbers, k: Count, dim: int | None = None, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest, or smallest, elements along an axis, the last by default, and their positions.

    Args:
        x: any shape.
        k: how many, at most as many as there are.
        dim: the axis.
        largest: False for the smallest.
        sorted: they come in order in any case, the best first; equal ones in the order that they have.

    Raises:
        ShapeError: if the axis is shorter.

    Example:
        >>> values, positions = ops.topk(Tensor([1.0, 5.0, 3.0]), 2)
        >>> values.tolist(), positions.tolist()
        ([5.0, 3.0], [1, 2])
    """
    tensor = as_tensor(x, "topk")
    number = as_axis(-1 if dim is None else dim, tensor.ndim, "topk", "dim")
    count = as_int(k, "topk", "k")
    if not 0 <= count <= tensor.shape[number]:
        raise ShapeError(f"topk: k={count} of axis {number} of x, of shape {tensor.shape}.")
    places = narrow(sorting.argsort(tensor, number, largest), number, 0, count)
    return gather_elements(tensor, number, places), places


# --- counts and means -------------------------------------------------------------------------------------------------


def count_nonzero(x: Numbers, axis: Axis = None, keep_dims: bool = False, dtype: Dtype = dtypes.int32) -> Tensor:
    """The number of elements that are not 0, as int32 unless another dtype is given."""
    truths: Tensor = lg.not_equal(as_tensor(x, "count_nonzero"), 0)
    return astype(reduce.sum(truths, axis, keep_dims), dtype)


def nansum(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum of what is not NaN."""
    tensor = as_tensor(x, "nansum")
    return reduce.sum(_without_nan(tensor) if tensor.dtype.is_float else tensor, axis, keepdims)


def nanmean(x: Numbers, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean of what is not NaN; NaN where all are."""
    tensor = as_float(x, "nanmean")
    count = reduce.sum(lg.logical_not(lg.isnan(tensor)), axis, keepdims)
    wide = astype(_without_nan(tensor), dtypes.compute_dtype(tensor.dtype.dtype))  # float16 ends at 65504
    return astype(reduce.sum(wide, axis, keepdims) / astype(count, wide.dtype), tensor.dtype)


def _without_nan(x: Tensor) -> Tensor:
    result: Tensor = lg.where(lg.isnan(x), 0.0, x)
    return result


# --- in the middle ----------------------------------------------------------------------------------------------------


def median(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Any:
    """The element in the middle of the order; of an even number of them the lower one of the two.

    Args:
        x: any shape.
        axis: with it, the result is a pair: the medians along it, and their positions.
        keepdims: leave the axis, with length 1.

    Returns:
        A Tensor without axes, or with an axis the pair. NaN if an element is.

    Raises:
        ShapeError: if there is nothing.
    """
    tensor = as_tensor(x, "median")
    line, number = (ravel(tensor), 0) if axis is None else (tensor, as_axis(axis, tensor.ndim, "median"))
    if not line.shape[number]:
        raise ShapeError(f"median: there is nothing along axis {axis} of a Tensor of shape {tensor.shape}.")
    order = sorting.argsort(line, number)
    middle, last = ((line.shape[number] - 1) // 2, line.shape[number] - 1)
    places = narrow(order, number, middle, 1)
    if tensor.dtype.is_float:  # NaN comes last
        final = narrow(order, number, last, 1)
        places = lg.where(lg.isnan(gather_elements(line, number, final)), final, places)
    values = gather_elements(line, number, places)
    if axis is None:
        return sh.reshape(values, (1,) * tensor.ndim if keepdims else ())
    return (values, places) if keepdims else (sh.squeeze(values, number), sh.squeeze(places, number))


def _numbers(q: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(q)
    except ValueError:  # ragged
        return np.asarray("")


def quantile(x: Numbers, q: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The value below which a share q of the elements lies, between two of them in proportion.

    Args:
        x: any shape.
        q: a number in [0, 1], or several, which become the first axis of the result.
        axis: without it, of the flattened elements.
        keepdims: leave the axis, with length 1.

    Returns:
        NaN where an element is.

    Raises:
        ArgumentError: for a share outside of [0, 1].
        ShapeError: if there is nothing.
    """
    tensor, shares = as_float(x, "quantile"), q.asnumpy() if isinstance(q, Tensor) else _numbers(q)
    if shares.ndim > 1 or shares.dtype.kind not in "biuf" or not ((shares >= 0) & (shares <= 1)).all():
        raise ArgumentError(f"quantile: q is a number in [0, 1], or a list of them, not {show(q)}.")
    line, number = (ravel(tensor), 0) if axis is None else (tensor, as_axis(axis, tensor.ndim, "quantile"))
    n = line.shape[number]
    if not n:
        raise ShapeError(f"quantile: there is nothing along axis {axis} of a Tensor of shape {tensor.shape}.")
    rows = sorting.sort(sh.swapaxes(line, number, -1))[0]
    rows = lg.where(lg.isnan(rows[..., n - 1 :]), math.nan, rows)
    results = []
    for share in shares.reshape(-1).astype(np.float64):
        below = min(int(share * (n - 1)), max(n - 2, 0))
        weight = float(share * (n - 1) - below)
        low, high = rows[..., below : below + 1], rows[..., min(below + 1, n - 1) : min(below + 1, n - 1) + 1]
        value = low if not weight else high if weight == 1 else low + (high - low) * weight
        kept = sh.swapaxes(value, number, -1)
        whole = kept if keepdims else sh.squeeze(kept, number)
        results.append(sh.reshape(whole, (1,) * tensor.ndim) if axis is None and keepdims else whole)
    return sh.stack(results) if shares.ndim else results[0]
