"""Pooling on the CPU: kernels for windows of constant size, whose units are planes."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.numba.build import build
from snncell.kernels.numba.launcher import grain_of
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.pooling import loops, loops as reverses
from snncell.kernels.pooling.windows import HEAD, Windows

Ints = tuple[int, ...]


def place_dtype(windows: Windows) -> Any:
    """The dtype of a place in a window: a byte, unless there are more than that has."""
    return np.dtype(np.uint8 if windows.elements <= 256 else np.int32)


def shape_after_pooling(shape: Sequence[int], windows: Windows) -> Ints:
    """The shape of what pooling makes of images."""
    return (*shape[:2], *windows.counts(shape[2:]))


def max_pool(x: Any, windows: Windows) -> tuple[Any, Any]:
    """The largest element of each window, and its place there: the first one of several; padding counts as -inf."""
    shape = shape_after_pooling(x.shape, windows)
    out, places = empty(shape, x.dtype), empty(shape, place_dtype(windows))
    _reduce("max_pool", x, windows, -math.inf, (out, places))
    return out, places


def largest(x: Any, windows: Windows) -> Any:
    """The largest element of each window alone, in half the time."""
    out = empty(shape_after_pooling(x.shape, windows), x.dtype)
    _reduce("largest", x, windows, -math.inf, (out,))
    return out


def sum_pool(x: Any, windows: Windows, divisor: int) -> Any:
    """The sum of each window over a number; padding counts as 0."""
    out = empty(shape_after_pooling(x.shape, windows), x.dtype)
    _reduce("sum_pool", x, windows, 0.0, (out,), divisor)
    return out


def unpool(x: Any, places: Any, windows: Windows, lengths: Ints) -> Any:
    """An image with the element of each window at its place there, added up where windows overlap, and 0 elsewhere."""
    out = empty((*x.shape[:2], *lengths), x.dtype)
    _put("unpool", windows, (x, places), out)
    return out


def spread(x: Any, windows: Windows, divisor: int, lengths: Ints) -> Any:
    """An image each of whose elements is the sum over its windows of what they have, over a number."""
    out = empty((*x.shape[:2], *lengths), x.dtype)
    _put("spread", windows, (x,), out, divisor)
    return out


def pick(x: Any, places: Any, windows: Windows) -> Any:
    """For each window the element of the image at its place there, 0 for one of padding."""
    out = empty(places.shape, x.dtype)
    _run(_kernel("pick", windows, x.dtype, 0, 1), windows, x.shape, (), (x, places, out))
    return out


def _reduce(name: str, x: Any, windows: Windows, nothing: float, results: tuple[Any, ...], divisor: int = 1) -> None:
    low, high, lanes = _lanes(windows, x.shape[-1], windows.elements, x.dtype)
    padded = lanes and any(map(any, windows.padding[:-1]))
    row = np.full(x.shape[-1] if padded else 1, nothing, x.dtype)
    kernel = _kernel(name, windows, x.dtype, lanes, divisor)
    _run(kernel, windows, x.shape, (low, high), (x, *results), row)


def _put(name: str, windows: Windows, given: tuple[Any, ...], out: Any, divisor: int = 1) -> None:
    if windows.tiles:
        low, high, lanes = _lanes(windows, out.shape[-1], windows.size[-1], out.dtype)
        kernel = _kernel(f"{name}_tiles", windows, out.dtype, lanes, divisor)
        _run(kernel, windows, out.shape, (low, high), (*given, out))
    else:
        _run(_kernel(name, windows, out.dtype, 0, divisor), windows, out.shape, (), (*given, out))


def _lanes(windows: Windows, length: int, elements: int, dtype: Any) -> tuple[int, int, int]:
    """The windows of a row that lie inside, from the first up to the last, and how many of them are taken together."""
    low, high = windows.inside(length)
    if elements <= loops.UNROLLED and dtype.kind != "c":
        for lanes in loops.LANES:
            if lanes <= high - low:
                return low, high, lanes
    return low, low, 0


def _run(
    kernel: Any, windows: Windows, shape: Ints, numbers: Ints, arrays: tuple[Any, ...], row: Any | None = None
) -> None:
    """Call a kernel for the planes of images of a shape."""
    planes, counts = math.prod(shape[:2]), windows.counts(shape[2:])
    flat = [np.ascontiguousarray(x).reshape(planes, math.prod(x.shape[2:])) for x in arrays]
    if row is not None:
        flat.insert(1, row)
    shared = planes * math.prod(counts) * windows.elements >= PARALLEL_SIZE
    kernel(planes, grain_of(planes) if shared else 0, *shape[2:], *counts, *numbers, *flat)


@functools.cache
def _kernel(name: str, windows: Windows, dtype: Any, lanes: int, divisor: int) -> Any:
    """A kernel for windows and images of a dtype."""
    of = dtypes.BY_NUMPY[dtype]
    image, result, places = (of, 2, False), (of, 2, True), dtypes.BY_NUMPY[place_dtype(windows)]
    numbers = [dtypes.int64] * 2 * len(windows.size)
    ends, found = [dtypes.int64] * 2, (places, 2, False)
    joined = loops.COMPLEX_MAX if dtype.kind == "c" else loops.MAX
    if name == "largest":
        source = loops.pool(name, windows, loops.without_places(joined), lanes)
        signature = [*numbers, *ends, image, (of, 1, False), result]
    elif name == "max_pool":
        source = loops.pool(name, windows, joined, lanes)
        signature = [*numbers, *ends, image, (of, 1, False), result, (places, 2, True)]
    elif name == "sum_pool":
        source = loops.pool(name, windows, loops.sums(divisor), lanes)
        signature = [*numbers, *ends, image, (of, 1, False), result]
    elif name == "unpool_tiles":
        source, signature = reverses.tile_windows(name, windows, None, lanes), [*numbers, *ends, image, found, result]
    elif name == "spread_tiles":
        source, signature = reverses.tile_windows(name, windows, divisor, lanes), [*numbers, *ends, image, result]
    elif name == "unpool":
        source, signature = reverses.scatter_windows(name, windows), [*numbers, image, found, result]
    elif name == "spread":
        source, signature = reverses.spread(name, windows, divisor), [*numbers, image, result]
    else:
        source, signature = reverses.pick_elements(name, windows), [*numbers, image, found, result]
    head = HEAD.format(name=name, windows=windows, value=of.dtype.name, place=places.dtype.name)
    return build(name, head + source, signature)
