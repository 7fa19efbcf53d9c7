"""Scales of a uniform grid, from the values that are to be rounded: their maximum, a percentile, the least error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from snncell import dtype as dtypes, ops
from snncell.tape.tensor import Tensor, beside

# Of the maximum, that the search for the least error tries: of equal ones the first, which clips nothing.
SHARES = tuple(1.0 - 0.05 * i for i in range(17))


def over(x: Tensor, axis: int | None) -> tuple[int, ...]:
    """The axes that share a scale: all, or all but one."""
    return tuple(a for a in range(x.ndim) if axis is None or a != axis % x.ndim)


def mean(x: Tensor, axis: int | None) -> Any:
    """The mean, as `largest`; added up in float64, so that the order of the sum does not show in a short scale."""
    axes = over(x, axis)
    return ops.mean(x.astype(dtypes.float64), axes, keepdims=True).astype(x.dtype) if axes else x


def largest(x: Tensor, axis: int | None) -> Tensor:
    """The largest magnitude, with axes of length 1 where it was taken over them."""
    axes = over(x, axis)
    return ops.max(ops.abs(x), axes, keepdims=True) if axes else ops.abs(x)


def ends(x: Tensor, axis: int | None) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value, with 0 between them."""
    axes = over(x, axis)
    low, high = (ops.min(x, axes, keepdims=True), ops.max(x, axes, keepdims=True)) if axes else (x, x)
    return ops.minimum(low, 0.0), ops.maximum(high, 0.0)


def percentile_of(x: Tensor, axis: int | None, percent: float) -> Tensor:
    """The magnitude that so many percent of the values do not exceed (the nearest of them, from above)."""
    axes = over(x, axis)
    kept = [a for a in range(x.ndim) if a not in axes]
    rows = ops.transpose(ops.abs(x), (*kept, *axes)).reshape((-1, math.prod(x.shape[a] for a in axes)))
    count = rows.shape[1]
    place = min(max(math.ceil(percent / 100.0 * count) - 1, 0), count - 1)
    found: Tensor = ops.sort(rows, axis=1)[0][:, place]
    return found.reshape(tuple(1 if a in axes else n for a, n in enumerate(x.shape)))


def least_error(x: Tensor, axis: int | None, rounded: Callable[[Tensor, Tensor], Any]) -> Any:
    """Of shares of the maximum the one with the least squared error: `rounded(x, magnitude)` is what x becomes."""
    axes, top = over(x, axis), largest(x, axis)
    with beside(x):
        shares = Tensor(SHARES, x.dtype)
    each = top * shares.reshape((-1, *(1,) * x.ndim))  # all of them at once, on an axis in front
    errors = ops.square(rounded(x, each) - x).astype(dtypes.float64)
    places = tuple(a + 1 for a in axes)
    errors = ops.sum(errors, places, keepdims=True) if places else errors
    return top * ops.gather(shares, ops.argmin(errors, 0), 0)
