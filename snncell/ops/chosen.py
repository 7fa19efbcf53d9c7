"""Elements chosen by their values: how many there are depends on the values, so that no Program can hold them.

Outside of traced functions they are computed at once, with gradients for what is taken. Inside, `ops.where` chooses
element by element, and keeps the shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Numbers
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.cuda import sort as order
from snncell.ops import shape as sh
from snncell.ops.base import as_axis, as_tensor, primitive, same_dtype
from snncell.ops.indexing import gather
from snncell.ops.positions import gather_elements
from snncell.ops.rearrange import ravel
from snncell.tape.primitive import repeat_over_time
from snncell.tape.tensor import Tensor, beside


def nonzero(x: Numbers, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The positions of the elements that are not 0, in order, as int64.

    Args:
        x: any shape with n axes.
        as_tuple: give n Tensors (K,), one for each axis, instead of one (K, n).

    Raises:
        TraceError: inside of a traced function, for the number of positions depends on values.
    """
    tensor = as_tensor(x, "nonzero")
    found = np.argwhere(tensor._concrete("nonzero()"))
    with beside(tensor):
        return tuple(Tensor(places) for places in found.T) if as_tuple else Tensor(found)


def argwhere(x: Numbers) -> Tensor:
    """The positions of the elements that are not 0, (K, n), as `nonzero` gives them."""
    found = nonzero(x)
    assert isinstance(found, Tensor)
    return found


def masked_select(x: Numbers, mask: Numbers) -> Tensor:
    """The elements for which the mask is true, in order, as one axis; both are broadcast first.

    Raises:
        DTypeError: for a mask that is not of booleans.
        TraceError: inside of a traced function, for their number depends on values.
    """
    tensor, chosen = as_tensor(x, "masked_select"), as_tensor(mask, "masked_select", "mask")
    if chosen.dtype.category:
        raise DTypeError(f"masked_select: mask is of booleans, not {chosen.dtype}; compare first: mask > 0.")
    try:
        shape = np.broadcast_shapes(tensor.shape, chosen.shape)
    except ValueError:
        raise ShapeError(f"masked_select: shapes {tensor.shape} and {chosen.shape} do not broadcast.") from None
    found = np.flatnonzero(np.broadcast_to(chosen._concrete("masked_select()"), shape))
    with beside(tensor):
        places = Tensor(found)
    return gather(ravel(sh.broadcast_to(tensor, shape)), places)


def unique_consecutive(
    x: Numbers, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal elements.

    Args:
        x: any shape.
        return_inverse: give also which run each element is in.
        return_counts: give also the lengths of the runs.
        dim: the axis whose slices are compared; without one the flattened elements are.

    Raises:
        TraceError: inside of a traced function, for the number of runs depends on values.

    Example:
        >>> ops.unique_consecutive(Tensor([1, 1, 2, 2, 2, 1])).tolist()
        [1, 2, 1]
    """
    tensor = as_tensor(x, "unique_consecutive")
    flat = ravel(tensor) if dim is None else tensor
    axis = as_axis(0 if dim is None else dim, flat.ndim, "unique_consecutive", "dim")
    rows = np.moveaxis(flat._concrete("unique_consecutive()"), axis, 0)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows[1:] != rows[:-1]).any(1)
    firsts = np.flatnonzero(begins)
    with beside(tensor):
        values = gather(flat, Tensor(firsts), axis)
        inverse = Tensor(np.cumsum(begins) - 1)
        counts = Tensor(np.diff(np.append(firsts, len(rows))))
    if dim is None:
        inverse = inverse.reshape(tensor.shape)
    results = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return results if len(results) > 1 else values


# --- places in an order -----------------------------------------------------------------------------------------------


@primitive
def _places(ordered: Any, v: Any, right: bool) -> Any:
    side: Any = "right" if right else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, v, side)
    rows = zip(ordered.reshape(-1, ordered.shape[-1]), v.reshape(-1, v.shape[-1]), strict=True)
    found = [np.searchsorted(row, values, side) for row, values in rows]
    return np.array(found, np.int64).reshape(v.shape)


def _places_of_steps(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if arrays[0].ndim == 1:  # one row for all
        return _places.run_here(arrays, arrays, attrs)
    ordered, v = repeat_over_time(arrays, varying)
    values = v.reshape(len(v), math.prod(v.shape[1:])) if ordered.ndim == 2 else v
    return _places.run_here([ordered, values], arrays, attrs).reshape(v.shape)


_places.name = "searchsorted"
_places.over_time = _places_of_steps


@_places.def_there
def _(ordered: Any, v: Any, right: bool) -> Any:
    return order.places(ordered, v, right)


_places.no_gradient()


def searchsorted(
    x: Numbers, v: Numbers, side: Literal["left", "right"] = "left", sorter: Numbers | None = None
) -> Tensor:
    """Where the elements of `v` would be put into the ordered x, so that it stays in order, as int64.

    Args:
        x: (N,), or (..., N): rows in ascending order.
        v: any shape, or for rows (..., K).
        side: "left" before elements that are equal, "right" behind them.
        sorter: the positions that put x into order, as `argsort` gives them.

    Raises:
        ShapeError: if rows of `x` and `v` differ in their leading axes.
    """
    rows, values = same_dtype([as_tensor(x, "searchsorted"), as_tensor(v, "searchsorted", "v")], "searchsorted")
    if side not in ("left", "right"):
        raise ArgumentError(f'searchsorted: side is "left" or "right", not {side!r}.')
    if not rows.ndim or (rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]):
        raise ShapeError(f"searchsorted: rows of shape {rows.shape} and values of shape {values.shape} do not fit.")
    if sorter is not None:
        rows = gather_elements(rows, -1, sorter)
    found: Tensor = _places.bind(rows, values, right=side == "right")
    return found
