"""Pooling over one or two axes (or more), each way in one pass: `ops/pool_primitives.py`."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from snncell import dtype as dtypes
from snncell.arguments.vocabulary import Lengths, Numbers, PadMode
from snncell.errors import ShapeError
from snncell.kernels.cpu.windows import Windows
from snncell.ops import creation as new, pool_primitives as primitives
from snncell.ops.base import as_float, astype
from snncell.ops.conv import padding_of, refuse_reach, tuple_of
from snncell.tape.tensor import Tensor, beside


def _prepared(
    x: Any, count: int, size: Any, stride: Any, mode: str, padding: Any, dilation: Any, name: str
) -> tuple[Tensor, Windows]:
    """(N, C, *S) as a Tensor of floats, and the windows over it."""
    tensor = as_float(x, name)
    if tensor.ndim != count + 2:
        raise ShapeError(f"{name}: takes (N, C, ...) with {count} more axes, not {tensor.shape}.")
    sizes = tuple_of(size, count, name, "kernel_size", 1)
    steps = tuple_of(sizes if stride is None else stride, count, name, "stride", 1)
    spread = tuple_of(dilation, count, name, "dilation", 1)
    widths = padding_of(tensor.shape[2:], sizes, steps, spread, mode, padding, name)
    pairs = tuple(zip(widths[::2], widths[1::2], strict=True))[::-1]
    lengths = [n + before + after for n, (before, after) in zip(tensor.shape[2:], pairs, strict=True)]
    refuse_reach((*tensor.shape[:2], *lengths), sizes, spread, name)
    return tensor, Windows(sizes, steps, spread, pairs)


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
    tensor, windows = _prepared(x, count, kernel_size, stride, pad_mode, padding, dilation, f"max_pool{count}d")
    if tensor._entry is None:  # no gradient is wanted, and where it would go is not kept
        values: Tensor = primitives.largest.bind(tensor, windows=windows)
    else:
        values, _ = primitives.max_pool.bind(tensor, windows=windows)
    return values


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
    tensor, windows = _prepared(x, count, kernel_size, stride, pad_mode, padding, 1, f"avg_pool{count}d")
    if not windows.padded or (pad_mode == "pad" and count_include_pad):
        mean: Tensor = primitives.sum_pool.bind(tensor, windows=windows, divisor=windows.elements)
        return mean
    # Windows at the border have fewer elements that count; how many, pooling says of an image of ones.
    wide = astype(tensor, dtypes.computed(tensor.dtype.dtype))
    with beside(tensor):
        ones = new.ones((1, 1, *tensor.shape[2:]), wide.dtype)
    total, inside = (primitives.sum_pool.bind(image, windows=windows, divisor=1) for image in (wide, ones))
    return astype(total / inside, tensor.dtype)


def sum_pool(
    x: Numbers,
    count: int,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    pad_mode: str = "valid",
    padding: Any = 0,
) -> Tensor:
    """The sum of each window over `count` axes; padding adds nothing to it."""
    tensor, windows = _prepared(x, count, kernel_size, stride, pad_mode, padding, 1, f"sum_pool{count}d")
    total: Tensor = primitives.sum_pool.bind(tensor, windows=windows, divisor=1)
    return total


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
