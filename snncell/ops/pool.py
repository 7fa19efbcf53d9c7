"""Pooling over one or two axes (or more): reductions over the windows of `ops/conv.py`."""

from __future__ import annotations

import math
from typing import Any, TypedDict, Unpack

import numpy as np

from snncell.arguments.vocabulary import Lengths, Numbers, PadMode
from snncell.errors import ShapeError
from snncell.kernels.cuda import scan as lines
from snncell.ops import creation as new, reduce, shape as sh
from snncell.ops.base import as_float, primitive
from snncell.ops.conv import padding_of, tuple_of, windows
from snncell.ops.indexing import pick
from snncell.tape.tensor import Tensor, beside


def _pool_windows(
    x: Any, count: int, size: Any, stride: Any, mode: str, padding: Any, dilation: Any, value: float, name: str
) -> Tensor:
    """(N, C, *S) -> (N, C, *O, elements of a window)."""
    tensor = as_float(x, name)
    if tensor.ndim != count + 2:
        raise ShapeError(f"{name}: takes (N, C, ...) with {count} more axes, not {tensor.shape}.")
    sizes = tuple_of(size, count, name, "kernel_size", 1)
    steps = tuple_of(sizes if stride is None else stride, count, name, "stride", 1)
    spread = tuple_of(dilation, count, name, "dilation", 1)
    widths = padding_of(tensor.shape[2:], sizes, steps, spread, mode, padding, name)
    view = windows(sh.pad(tensor, widths, value=value), sizes, steps, spread, name)
    return sh.reshape(view, (*view.shape[: 2 + count], math.prod(sizes)))


class Padding(TypedDict, total=False):
    """Padding of the image: pad_mode "valid", "same" or "pad", and with "pad" by how much."""

    pad_mode: PadMode
    padding: Lengths


class Spread(Padding, total=False):
    """Padding, and how far apart the elements of a window are."""

    dilation: Lengths


class Averaging(Padding, total=False):
    """Padding, and whether it counts in the mean."""

    count_include_pad: bool


def max_pool(
    x: Numbers,
    count: int,
    kernel_size: Any,
    stride: Any = None,
    pad_mode: str = "valid",
    padding: Any = 0,
    dilation: Any = 1,
) -> Tensor:
    """The largest element of each window over `count` axes; the gradient goes to the first one that is largest."""
    name = f"max_pool{count}d"
    view = _pool_windows(x, count, kernel_size, stride, pad_mode, padding, dilation, -math.inf, name)
    return pick(view, _first_largest.bind(view), known=True)


@primitive
def _first_largest(x: Any) -> Any:
    """argmax of the last axis, one window place after the other: the axis is short, the others are long."""
    best, positions = x[..., 0].copy(), np.zeros(x.shape[:-1], np.int64)
    for place in range(1, x.shape[-1]):
        # A NaN is larger than everything, so that it comes through; of several the first one counts, as in argmax.
        better = ~(x[..., place] <= best) & (best == best)
        np.copyto(best, x[..., place], where=better)
        positions[better] = place
    return positions


_first_largest.no_gradient()


@_first_largest.def_there
def _(x: Any) -> Any:
    return lines.argmax(x, x.ndim - 1)


def avg_pool(
    x: Numbers,
    count: int,
    kernel_size: Any,
    stride: Any = None,
    pad_mode: str = "valid",
    padding: Any = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window over `count` axes; with pad_mode "same", or without `count_include_pad`, of its elements
    that are not padding."""
    name = f"avg_pool{count}d"
    tensor = as_float(x, name)
    view = _pool_windows(tensor, count, kernel_size, stride, pad_mode, padding, 1, 0.0, name)
    if pad_mode == "valid" or (pad_mode == "pad" and count_include_pad):
        return reduce.mean(view, -1)
    # Windows at the border have fewer elements that count; how many, pooling says of an image of ones.
    with beside(tensor):
        ones = new.ones((1, 1, *tensor.shape[2:]), tensor.dtype)
    inside = _pool_windows(ones, count, kernel_size, stride, pad_mode, padding, 1, 0.0, name)
    return reduce.sum(view, -1) / reduce.sum(inside, -1)


def sum_pool(
    x: Numbers,
    count: int,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    pad_mode: str = "valid",
    padding: Any = 0,
) -> Tensor:
    """The sum of each window over `count` axes; padding adds nothing to it."""
    return reduce.sum(_pool_windows(x, count, kernel_size, stride, pad_mode, padding, 1, 0.0, f"sum_pool{count}d"), -1)


def max_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Spread]) -> Tensor:
    """`max_pool` over one axis: (N, C, L)."""
    return max_pool(x, 1, kernel_size, stride, **options)


def max_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Spread]) -> Tensor:
    """`max_pool` over two axes: (N, C, H, W)."""
    return max_pool(x, 2, kernel_size, stride, **options)


def avg_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Averaging]) -> Tensor:
    """`avg_pool` over one axis: (N, C, L)."""
    return avg_pool(x, 1, kernel_size, stride, **options)


def avg_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Averaging]) -> Tensor:
    """`avg_pool` over two axes: (N, C, H, W)."""
    return avg_pool(x, 2, kernel_size, stride, **options)


def sum_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """`sum_pool` over one axis: (N, C, L)."""
    return sum_pool(x, 1, kernel_size, stride, **options)


def sum_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """`sum_pool` over two axes: (N, C, H, W)."""
    return sum_pool(x, 2, kernel_size, stride, **options)
