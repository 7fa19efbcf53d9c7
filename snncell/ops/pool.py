"""Pooling over one or two axes (or more), each way in one pass: `ops/pool_primitives.py`."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, Unpack

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.cpu.windows import Windows
from snncell.ops import creation as new, pool_primitives as primitives
from snncell.ops.base import as_float, as_int, astype
from snncell.ops.conv import padding_of, refuse_reach, tuple_of
from snncell.tape.tensor import Tensor, beside


class _Prepared(NamedTuple):
    """The operand of a pool.

    Attributes:
        x: (N, C, *S), floats.
        windows: over it. With ceil_mode they reach further than the padding.
        padding: the padding that was asked for.
    """

    x: Tensor
    windows: Windows
    padding: tuple[tuple[int, int], ...]


def _prepare_pool(
    x: Any,
    count: int,
    size: Any,
    stride: Any,
    mode: str,
    padding: Any,
    dilation: Any,
    name: str,
    ceil_mode: bool = False,
) -> _Prepared:
    """Check the arguments of a pool."""
    tensor = as_float(x, name)
    if tensor.ndim != count + 2:
        raise ShapeError(f"{name}: takes (N, C, ...) with {count} more axes, not {tensor.shape}.")
    sizes = tuple_of(size, count, name, "kernel_size", 1)
    steps = tuple_of(sizes if stride is None else stride, count, name, "stride", 1)
    spread = tuple_of(dilation, count, name, "dilation", 1)
    if ceil_mode and mode == "same":
        raise ArgumentError(f'{name}: ceil_mode=True needs pad_mode "valid" or "pad"; "same" sets the output size.')
    widths = padding_of(tensor.shape[2:], sizes, steps, spread, mode, padding, name)
    pairs = tuple(zip(widths[::2], widths[1::2], strict=True))[::-1]
    windows = Windows(sizes, steps, spread, pairs)
    if ceil_mode:
        windows = windows.with_last_part(tensor.shape[2:])
    lengths = [n + sum(pair) for n, pair in zip(tensor.shape[2:], windows.padding, strict=True)]
    refuse_reach((*tensor.shape[:2], *lengths), sizes, spread, name)
    return _Prepared(tensor, windows, pairs)


def _refuse_padding_alone(prepared: _Prepared, name: str) -> None:
    """Raise for a window without an element of the image: it has no largest element, and no mean."""
    axis = prepared.windows.axis_of_padding_alone(prepared.x.shape[2:])
    if axis is not None:
        k, _, d, pair = (of[axis] for of in prepared.windows)
        raise ArgumentError(
            f"{name}: a window of {k} elements with dilation {d} lies wholly in the padding {pair} of axis {axis + 2}, "
            f"which has length {prepared.x.shape[axis + 2]}: it has no element to pool. Pad by at most half of the "
            f"window, or use a larger kernel_size."
        )


class Padding(TypedDict, total=False):
    """Padding of the image: pad_mode "valid", "same" or "pad", and with "pad" by how much."""

    pad_mode: PadMode
    padding: Lengths


class Spread(Padding, total=False):
    """Padding, how far apart the elements of a window are, and whether a part of a window at the end counts."""

    dilation: Lengths
    ceil_mode: bool


class Averaging(Padding, total=False):
    """Padding, whether it counts in the mean, and whether a part of a window at the end counts."""

    count_include_pad: bool
    ceil_mode: bool


class AveragingBy(Averaging, total=False):
    """The same, and a number to divide by."""

    divisor_override: Count | None


def max_pool(
    x: Numbers,
    count: int,
    kernel_size: Any,
    stride: Any = None,
    pad_mode: str = "valid",
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window over `count` axes; the gradient goes to the first one that is largest.

    With ceil_mode a window that reaches beyond the end counts, if it begins before the padding at the end.
    """
    name = f"max_pool{count}d"
    prepared = _prepare_pool(x, count, kernel_size, stride, pad_mode, padding, dilation, name, ceil_mode)
    _refuse_padding_alone(prepared, name)
    if prepared.x._entry is None:  # no gradient is wanted, and where it would go is not kept
        values: Tensor = primitives.largest.bind(prepared.x, windows=prepared.windows)
    else:
        values, _ = primitives.max_pool.bind(prepared.x, windows=prepared.windows)
    return values


def avg_pool(
    x: Numbers,
    count: int,
    kernel_size: Any,
    stride: Any = None,
    pad_mode: str = "valid",
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window over `count` axes; with pad_mode "same", or without `count_include_pad`, of its elements
    that are not padding.

    With ceil_mode a window that reaches beyond the end counts, if it begins before the padding at the end; what is
    beyond the padding does not count in the mean. With `divisor_override` it is the sum over that number.
    """
    name = f"avg_pool{count}d"
    prepared = _prepare_pool(x, count, kernel_size, stride, pad_mode, padding, 1, name, ceil_mode)
    _refuse_padding_alone(prepared, name)
    tensor, windows = prepared.x, prepared.windows
    if divisor_override is not None and as_int(divisor_override, name, "divisor_override") < 1:
        raise ArgumentError(f"{name}: divisor_override is a number of elements, at least 1, not {divisor_override}.")
    included = pad_mode == "pad" and count_include_pad
    if divisor_override or not windows.padded or (included and windows.padding == prepared.padding):
        mean: Tensor = primitives.sum_pool.bind(tensor, windows=windows, divisor=divisor_override or windows.elements)
        return mean
    # Windows at the border have fewer elements that count; how many, pooling says of an image of ones.
    wide = astype(tensor, dtypes.compute_dtype(tensor.dtype.dtype))
    lengths, beyond = tensor.shape[2:], windows.padding
    if included:
        pairs = list(zip(beyond, prepared.padding, strict=True))
        lengths = tuple(n + sum(pair) for n, (_, pair) in zip(lengths, pairs, strict=True))
        beyond = tuple((0, after - own) for (_, after), (_, own) in pairs)
    with beside(tensor):
        ones = new.ones((1, 1, *lengths), wide.dtype)
    total = primitives.sum_pool.bind(wide, windows=windows, divisor=1)
    inside = primitives.sum_pool.bind(ones, windows=windows._replace(padding=beyond), divisor=1)
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
    prepared = _prepare_pool(x, count, kernel_size, stride, pad_mode, padding, 1, f"sum_pool{count}d")
    total: Tensor = primitives.sum_pool.bind(prepared.x, windows=prepared.windows, divisor=1)
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


def avg_pool2d(
    x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[AveragingBy]
) -> Tensor:
    """`avg_pool` over two axes: (N, C, H, W)."""
    return avg_pool(x, 2, kernel_size, stride, **options)


def sum_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """`sum_pool` over one axis: (N, C, L)."""
    return sum_pool(x, 1, kernel_size, stride, **options)


def sum_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """`sum_pool` over two axes: (N, C, H, W)."""
    return sum_pool(x, 2, kernel_size, stride, **options)
