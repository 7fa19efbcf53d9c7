"""Sorting, order statistics (topk, median, quantile), searchsorted, and unique elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Numbers
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.cuda import indexing as rows
from snncell.ops import arithmetic as ar, shape as sh
from snncell.ops.base import as_axis, as_float, as_int, as_tensor, not_empty, primitive, same_dtype
from snncell.ops.gathering import gather, gather_elements
from snncell.tape.primitive import repeat_over_time, with_axis_of_steps
from snncell.tape.tensor import Tensor, on_device_of

__all__ = ["argsort", "median", "quantile", "searchsorted", "sort", "top_k", "topk", "unique_consecutive"]


@primitive
def _argsort(x: Any) -> Any:
    return np.argsort(x, axis=-1, kind="stable")


_argsort.def_on_gpu(rows.argsort)
_argsort.no_gradient()


@primitive
def _along(x: Any, order: Any) -> Any:
    return np.take_along_axis(x, order, -1)


@primitive
def _back(x: Any, order: Any) -> Any:
    # np.empty suffices, because an order is a permutation and writes every element.
    out = np.empty_like(x)
    np.put_along_axis(out, order, x, -1)
    return out


for _op in (_argsort, _along, _back):
    with_axis_of_steps(_op)  # they use the last axis


_along.def_on_gpu(rows.along)
_back.def_on_gpu(rows.back)
_along.def_bprop(lambda _x, order, _out, dout: (_back.bind(dout, order), None))
_back.def_bprop(lambda _x, order, _out, dout: (_along.bind(dout, order), None))


def _order(turned: Tensor, descending: bool) -> Tensor:
    """The positions that sort each row; equal elements keep their order in both directions."""
    if not descending:
        return _argsort.bind(turned)
    # Sort the reversed rows, then reverse that order, so that equal elements keep their order.
    backwards: Tensor = sh.flip(_argsort.bind(sh.flip(turned, -1)), -1)
    return (turned.shape[-1] - 1) - backwards


def argsort(x: Numbers, axis: int = -1, descending: bool = False) -> Tensor:
    """The positions that sort the elements along `axis`, as int64; no gradient.

    Equal elements keep their order, -0.0 equals 0.0, and NaN counts as the largest. Complex numbers raise a DTypeError.
    """
    tensor, number = _sortable(x, axis, "argsort")
    return sh.swapaxes(_order(sh.swapaxes(tensor, number, -1), descending), number, -1)


def sort(x: Numbers, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sort along `axis`: the sorted elements, and their positions in `x`.

    Equal elements keep their order, and NaN counts as the largest. Complex numbers raise a DTypeError.
    """
    tensor, number = _sortable(x, axis, "sort")
    turned = sh.swapaxes(tensor, number, -1)
    order = _order(turned, descending)
    return sh.swapaxes(_along.bind(turned, order), number, -1), sh.swapaxes(order, number, -1)


def _sortable(x: Any, axis: int, name: str) -> tuple[Tensor, int]:
    tensor = as_tensor(x, name)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{name}: complex numbers have no order. Sort ops.real(x), ops.imag(x) or ops.abs(x).")
    return tensor, as_axis(axis, tensor.ndim, name)


# --- Order statistics -------------------------------------------------------------------------------------------------


def top_k(x: Numbers, k: Count, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along the last axis, and their positions; a short form of `topk`."""
    return topk(x, k, None, True, sorted)


def topk(
    x: Numbers, k: Count, dim: int | None = None, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest, or smallest, elements along an axis, and their positions.

    Args:
        k: the number of elements, at most the length of the axis.
        dim: the axis, by default the last.
        largest: False for the smallest elements.
        sorted: accepted for compatibility. The elements are always sorted, best first; equal ones keep their order.
    Example:
        >>> values, positions = ops.topk(Tensor([1.0, 5.0, 3.0]), 2)
        >>> values.tolist(), positions.tolist()
        ([5.0, 3.0], [1, 2])
    """
    tensor = as_tensor(x, "topk")
    number = as_axis(-1 if dim is None else dim, tensor.ndim, "topk", "dim")
    count = as_int(k, "topk", "k")
    if not 0 <= count <= tensor.shape[number]:
        raise ShapeError(f"topk: k={count} does not fit axis {number} of x, of shape {tensor.shape}.")
    places = sh.narrow(argsort(tensor, number, largest), number, 0, count)
    return gather_elements(tensor, number, places), places


def median(x: Numbers, axis: int | None = None, keepdims: bool = False) -> Any:
    """Median: the middle element in sorted order; for an even number of elements the lower one of the two.

    Args:
        axis: if given, the result is a pair: the medians along this axis, and their positions.
        keepdims: keep the axis with length 1.
    Returns: A Tensor without axes, or the pair if `axis` is given. NaN if there is a NaN.
    """
    tensor = not_empty(x, axis, "median")
    line, number = (sh.ravel(tensor), 0) if axis is None else (tensor, as_axis(axis, tensor.ndim, "median"))
    order, last = argsort(line, number), line.shape[number] - 1
    places = sh.narrow(order, number, last // 2, 1)
    if tensor.dtype.is_float:  # NaN comes last
        final = sh.narrow(order, number, last, 1)
        places = ar.where(ar.isnan(gather_elements(line, number, final)), final, places)
    values = gather_elements(line, number, places)
    if axis is None:
        return sh.reshape(values, (1,) * tensor.ndim if keepdims else ())
    return (values, places) if keepdims else (sh.squeeze(values, number), sh.squeeze(places, number))


def quantile(x: Numbers, q: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Quantile: the value below which a fraction q of the elements lies, with linear interpolation.

    Args:
        q: a number in [0, 1], or several, which become the first axis of the result.
        axis: by default the flattened elements are used.
        keepdims: keep the axis with length 1.
    Returns: The quantiles along the axis. A quantile of elements that contain a NaN is NaN.
    """
    tensor = as_float(not_empty(x, axis, "quantile"), "quantile")
    try:
        shares = q.asnumpy() if isinstance(q, Tensor) else np.asarray(q)
    except ValueError:  # ragged
        shares = np.asarray("")
    if shares.ndim > 1 or shares.dtype.kind not in "biuf" or not ((shares >= 0) & (shares <= 1)).all():
        raise ArgumentError(f"quantile: q is a number in [0, 1], or a list of them, not {show(q)}.")
    line, number = (sh.ravel(tensor), 0) if axis is None else (tensor, as_axis(axis, tensor.ndim, "quantile"))
    n = line.shape[number]
    rows = sort(sh.swapaxes(line, number, -1))[0]
    rows = ar.where(ar.isnan(rows[..., n - 1 :]), math.nan, rows)
    results = []
    for share in shares.reshape(-1).astype(np.float64):
        below = min(int(share * (n - 1)), max(n - 2, 0))
        weight = float(share * (n - 1) - below)
        low, high = (rows[..., place : place + 1] for place in (below, min(below + 1, n - 1)))
        value = low if not weight else high if weight == 1 else low + (high - low) * weight
        kept = sh.swapaxes(value, number, -1)
        whole = kept if keepdims else sh.squeeze(kept, number)
        results.append(sh.reshape(whole, (1,) * tensor.ndim) if axis is None and keepdims else whole)
    return sh.stack(results) if shares.ndim else results[0]


# --- Search and unique elements ---------------------------------------------------------------------------------------


@primitive
def _searchsorted(ordered: Any, v: Any, right: bool) -> Any:
    side: Any = "right" if right else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, v, side)
    rows = zip(ordered.reshape(-1, ordered.shape[-1]), v.reshape(-1, v.shape[-1]), strict=True)
    found = [np.searchsorted(row, values, side) for row, values in rows]
    return np.array(found, np.int64).reshape(v.shape)


def _searchsorted_over_time(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if arrays[0].ndim == 1:  # one row for all
        return _searchsorted.run_here(arrays, arrays, attrs)
    ordered, v = repeat_over_time(arrays, varying)
    values = v.reshape(len(v), math.prod(v.shape[1:])) if ordered.ndim == 2 else v
    return _searchsorted.run_here([ordered, values], arrays, attrs).reshape(v.shape)


_searchsorted.name = "searchsorted"
_searchsorted.over_time = _searchsorted_over_time
_searchsorted.def_on_gpu(rows.places)
_searchsorted.no_gradient()


def searchsorted(
    x: Numbers, v: Numbers, side: Literal["left", "right"] = "left", sorter: Numbers | None = None
) -> Tensor:
    """Binary search: the positions at which to insert `v` into sorted x to keep it sorted, as int64.

    Args:
        x: (N,), or (..., N) with rows in ascending order.
        v: any shape, or (..., K) for rows.
        side: "left" inserts before equal elements, "right" after them.
        sorter: the positions that sort x, as returned by `argsort`.
    """
    rows, values = same_dtype([as_tensor(x, "searchsorted"), as_tensor(v, "searchsorted", "v")], "searchsorted")
    if not rows.ndim or (rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]):
        raise ShapeError(f"searchsorted: rows of shape {rows.shape} and values of shape {values.shape} do not fit.")
    if sorter is not None:
        rows = gather_elements(rows, -1, sorter)
    return _searchsorted.bind(rows, values, right=side == "right")


def unique_consecutive(
    x: Numbers, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Remove repetitions: the first element of each run of equal elements.

    A traced function raises a TraceError, because the number of elements depends on values.

    Args:
        return_inverse: also return the index of the run of each element.
        return_counts: also return the lengths of the runs.
        dim: the axis whose slices are compared. By default the flattened elements are compared.
    Example:
        >>> ops.unique_consecutive(Tensor([1, 1, 2, 2, 2, 1])).tolist()
        [1, 2, 1]
    """
    tensor = as_tensor(x, "unique_consecutive")
    flat = sh.ravel(tensor) if dim is None else tensor
    axis = as_axis(0 if dim is None else dim, flat.ndim, "unique_consecutive", "dim")
    rows = np.moveaxis(flat._concrete("unique_consecutive()"), axis, 0)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows[1:] != rows[:-1]).any(1)
    firsts = np.flatnonzero(begins)
    with on_device_of(tensor):
        values = gather(flat, Tensor(firsts), axis)
        inverse = Tensor(np.cumsum(begins) - 1)
        counts = Tensor(np.diff(np.append(firsts, len(rows))))
    if dim is None:
        inverse = inverse.reshape(tensor.shape)
    results = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return results if len(results) > 1 else values
