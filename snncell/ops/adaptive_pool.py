"""Pooling to a given size: windows that cover the image evenly, whatever its size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from snncell.base.arguments.kinds import Count, Numbers
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_float
from snncell.ops.pool import avg_pool, max_pool
from snncell.ops.shape import concat, reshape
from snncell.tape.tensor import Tensor

Sizes = Count | Sequence[Count | None]


def _windows(length: int, size: int) -> list[tuple[int, int]]:
    """Beginning and end of each window: i L / size, rounded down, and (i + 1) L / size, rounded up."""
    return [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]


def _adaptive(pool: Callable[..., Tensor], x: Any, count: int, output_size: Any, name: str) -> Tensor:
    """(N, C, *S) or (C, *S) pooled to `output_size`."""
    tensor = as_float(x, name)
    if tensor.ndim not in (count + 1, count + 2) or 0 in tensor.shape[-count:]:
        raise ShapeError(
            f"{name}: takes (N, C, ...) or (C, ...) with {count} more axes, none of them empty, not {tensor.shape}."
        )
    given = (output_size,) * count if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) != count:
        raise ArgumentError(
            f"{name}: output_size is an int or {count} of them, one for each axis, not {output_size!r}."
        )
    image = reshape(tensor, (math.prod(tensor.shape[: -count - 1]), *tensor.shape[-count - 1 :]))
    sizes = [length if size is None else size for size, length in zip(given, image.shape[2:], strict=True)]
    kernel = tuple(length // size for size, length in zip(sizes, image.shape[2:], strict=True))
    if all(size * k == length for size, k, length in zip(sizes, kernel, image.shape[2:], strict=True)):
        pooled = pool(image, count, kernel)
    else:
        pooled = _window_by_window(pool, image, sizes)
    return reshape(pooled, (*tensor.shape[:-count], *sizes))


def _window_by_window(pool: Callable[..., Tensor], image: Tensor, sizes: Sequence[int]) -> Tensor:
    """Windows of different sizes, each pooled by itself."""
    axes = [_windows(length, size) for length, size in zip(image.shape[2:], sizes, strict=True)]
    pooled = []
    for bounds in itertools.product(*axes):
        part = image[(slice(None), slice(None), *(slice(low, high) for low, high in bounds))]
        pooled.append(pool(part, len(sizes), tuple(high - low for low, high in bounds)))
    flat = [reshape(one, (*image.shape[:2], 1)) for one in pooled]
    return reshape(concat(flat, -1), (*image.shape[:2], *sizes))


def adaptive_avg_pool1d(x: Numbers, output_size: Count) -> Tensor:
    """The means of `output_size` windows over the last axis of (N, C, L); see `adaptive_avg_pool2d`."""
    return _adaptive(avg_pool, x, 1, output_size, "adaptive_avg_pool1d")


def adaptive_avg_pool2d(x: Numbers, output_size: Sizes | None) -> Tensor:
    """The means of windows that cover an image evenly: (N, C, H, W) -> (N, C, *output_size).

    The i-th window of an axis goes from i L / size, rounded down, to (i + 1) L / size, rounded up.

    Args:
        x: (N, C, H, W) or (C, H, W).
        output_size: an int or a pair; None in it leaves an axis as it is.

    Raises:
        ShapeError: for another number of axes.
    """
    return _adaptive(avg_pool, x, 2, output_size, "adaptive_avg_pool2d")


def adaptive_max_pool1d(x: Numbers, output_size: Count) -> Tensor:
    """The largest elements of `output_size` windows over the last axis; see `adaptive_avg_pool2d`."""
    return _adaptive(max_pool, x, 1, output_size, "adaptive_max_pool1d")


def adaptive_max_pool2d(x: Numbers, output_size: Sizes | None) -> Tensor:
    """The largest elements of windows that cover an image evenly; see `adaptive_avg_pool2d`."""
    return _adaptive(max_pool, x, 2, output_size, "adaptive_max_pool2d")
