"""Max, average and sum pooling, over sliding windows or to a given size.

There are six operations on windows over the last axes of (N, C, *S):

    max_pool    the largest element of each window, and its place there
    unpool      write elements to their windows' places; the gradient of max_pool and pick
    pick        read the elements at the windows' places; the gradient of unpool
    largest     the largest element only, when no gradient is needed
    sum_pool    the sum of each window, divided by a number; the gradient of spread
    spread      copy the element of each window to all places of the window; the gradient of sum_pool

For fixed places all of them are linear, so gradients of any order exist.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode
from snncell.compiler.ir.windows import WindowOperation
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels import pooling
from snncell.kernels.conv import im2col
from snncell.kernels.cuda import functions, indexing
from snncell.kernels.space import DEVICE
from snncell.kernels.windows import (
    Windows,
    largest_source,
    max_source,
    place_dtype,
    spread_source,
    sum_source,
    unpool_source,
)
from snncell.ops import arithmetic, base as new
from snncell.ops.base import Grads, as_float, as_int, astype, to_compute_dtype
from snncell.ops.conv import padding_widths, refuse_reach, tuple_of
from snncell.ops.shape import concat, reshape
from snncell.tape.primitive import repeat_over_time, steps_of
from snncell.tape.tensor import Tensor, on_device_of

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "max_pool1d", "max_pool2d", "sum_pool1d", "sum_pool2d",
]  # fmt: skip

Ints = tuple[int, ...]

# --- Operations -------------------------------------------------------------------------------------------------------


class Pooling(WindowOperation):
    """An operation on each plane of images separately."""

    def __init__(self, evaluate: Callable[..., Any], shape_of: Callable[..., Ints], *, multiple: bool = False) -> None:
        super().__init__(evaluate.__name__, evaluate, multiple=multiple)
        self.shape_of = shape_of  # computes the result's shape from the inputs and attributes

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        outputs = [(self.shape_of(*inputs, **attrs), inputs[0].dtype)]
        return [*outputs, (outputs[0][0], place_dtype(attrs["windows"]))] if self.multiple else outputs

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Treat the images of all steps as one batch."""
        every, steps = repeat_over_time(arrays, varying), steps_of(arrays, varying)
        joined = [x.reshape(steps * x.shape[1], *x.shape[2:]) for x in every]
        out = self.run_here(joined, joined, attrs)
        parts = [x.reshape(steps, every[0].shape[1], *x.shape[1:]) for x in (out if self.multiple else (out,))]
        return tuple(parts) if self.multiple else parts[0]


def _pool_windows(x: Any, windows: Windows, **_: Any) -> Ints:
    return pooling.shape_after_pooling(x.shape, windows)


def _image(x: Any, *_: Any, lengths: Ints, **__: Any) -> Ints:
    return (*x.shape[:2], *lengths)


_max_pool = Pooling(pooling.max_pool, _pool_windows, multiple=True)
_unpool = Pooling(pooling.unpool, _image)
_pick = Pooling(pooling.pick, lambda _, places, windows: places.shape)
_largest = Pooling(pooling.largest, _pool_windows)
_sum_pool = Pooling(pooling.sum_pool, _pool_windows)
_spread = Pooling(pooling.spread, _image)
_max_pool.selects = _largest.selects = True
_sum_pool.additive = _spread.additive = True
_max_pool.reduces, _largest.reduces, _sum_pool.reduces = max_source, largest_source, sum_source
_unpool.spreads, _spread.spreads = unpool_source, spread_source
_unpool.proportional = _pick.proportional = lambda inputs, varying: not varying[1]


@_max_pool.def_bprop
def _(_x: Tensor, out: tuple[Tensor, Tensor], dout: tuple[Tensor, Tensor], *, windows: Windows) -> Grads:
    return (_unpool.bind(dout[0], out[1], windows=windows, lengths=_x.shape[2:]),)


@_largest.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows) -> Grads:
    return (_unpool.bind(dout, _max_pool.bind_all(x, windows=windows)[1], windows=windows, lengths=x.shape[2:]),)


@_unpool.def_bprop
def _(_x: Tensor, places: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, lengths: Ints) -> Grads:
    return lambda: _pick.bind(dout, places, windows=windows), None


@_pick.def_bprop
def _(_x: Tensor, places: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows) -> Grads:
    return lambda: _unpool.bind(dout, places, windows=windows, lengths=_x.shape[2:]), None


@_sum_pool.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, divisor: int) -> Grads:
    return (_spread.bind(dout, windows=windows, divisor=divisor, lengths=_x.shape[2:]),)


@_spread.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, divisor: int, lengths: Ints) -> Grads:
    return (_sum_pool.bind(dout, windows=windows, divisor=divisor),)


# --- On the device: windows as a view, and its adjoint ----------------------------------------------------------------


@_max_pool.def_on_gpu
def _(x: Any, windows: Windows) -> Any:
    view = _view_windows(x, windows, -math.inf)
    places = functions.argmax(view, view.ndim - 1)
    return indexing.pick(view, places), DEVICE.cast(places, place_dtype(windows))


@_largest.def_on_gpu
def _(x: Any, windows: Windows) -> Any:
    view = _view_windows(x, windows, -math.inf)
    return indexing.pick(view, functions.argmax(view, view.ndim - 1))


@_unpool.def_on_gpu
def _(x: Any, places: Any, windows: Windows, lengths: Ints) -> Any:
    return _fold_windows(indexing.place(x, places, windows.elements), windows, lengths)


@_pick.def_on_gpu
def _(x: Any, places: Any, windows: Windows) -> Any:
    return indexing.pick(_view_windows(x, windows, 0.0), places)


@_sum_pool.def_on_gpu
def _(x: Any, windows: Windows, divisor: int) -> Any:
    view = _view_windows(x, windows, 0.0)
    total = DEVICE.sum(view, (view.ndim - 1,))
    return total if divisor == 1 else arithmetic.div.on_device([total, divisor], {})


@_spread.def_on_gpu
def _(x: Any, windows: Windows, divisor: int, lengths: Ints) -> Any:
    share = x if divisor == 1 else arithmetic.div.on_device([x, divisor], {})
    return _fold_windows(share.reshape(*x.shape, 1).broadcast_to((*x.shape, windows.elements)), windows, lengths)


def _view_windows(x: Any, windows: Windows, value: float) -> Any:
    """(N, C, *S) -> (N, C, *O, elements of a window)."""
    padded: Any = np.pad(x, ((0, 0), (0, 0), *windows.padding), constant_values=value) if windows.padded else x
    view = im2col.device_windows(padded, windows.size, windows.stride, windows.dilation)
    return view.reshape(*view.shape[: x.ndim], windows.elements)


def _fold_windows(x: Any, windows: Windows, lengths: Ints) -> Any:
    """(N, C, *O, elements of a window) -> (N, C, *lengths), without padding."""
    whole = [n + before + after for n, (before, after) in zip(lengths, windows.padding, strict=True)]
    parts = x.reshape(*x.shape[:-1], *windows.size)
    image = im2col.device_fold(parts, (*x.shape[:2], *whole), windows.size, windows.stride, windows.dilation)
    inner = zip(windows.padding, lengths, strict=True)
    return image[(..., *(slice(before, before + n) for (before, _), n in inner))]


Pairs = tuple[tuple[int, int], ...]


def _hint(x: Tensor, count: int) -> str:
    return " For sequences (T, B, ...), use a layer in nn.TimeDistributed(...)." if x.ndim == count + 3 else ""


def _prepare_pool(
    name: str,
    x: Any,
    count: int,
    kernel_size: Any,
    stride: Any,
    pad_mode: str = "valid",
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    padding_alone: bool = False,
) -> tuple[Tensor, Windows, Pairs]:
    """Check the arguments of a pool; return its float image (N, C, *S), its windows, and the requested padding. With
    `ceil_mode`, windows extend beyond it. Each must contain an element of the image, unless `padding_alone`.
    """
    tensor = as_float(x, name)
    if tensor.ndim != count + 2:
        raise ShapeError(f"{name}: takes (N, C, ...) with {count} more axes, not {tensor.shape}.{_hint(tensor, count)}")
    sizes = tuple_of(kernel_size, count, name, "kernel_size", 1)
    steps = tuple_of(sizes if stride is None else stride, count, name, "stride", 1)
    spread = tuple_of(dilation, count, name, "dilation", 1)
    if ceil_mode and pad_mode == "same":
        raise ArgumentError(f'{name}: ceil_mode=True needs pad_mode "valid" or "pad"; "same" sets the output size.')
    pairs = padding_widths(tensor.shape[2:], sizes, steps, spread, pad_mode, padding, name)
    windows = Windows(sizes, steps, spread, pairs)
    if ceil_mode:
        windows = windows.with_last_part(tensor.shape[2:])
    lengths = [n + sum(pair) for n, pair in zip(tensor.shape[2:], windows.padding, strict=True)]
    refuse_reach((*tensor.shape[:2], *lengths), sizes, spread, name)
    axis = windows.axis_of_padding_alone(tensor.shape[2:])
    if axis is not None and not padding_alone:
        k, _, d, pair = (of[axis] for of in windows)
        raise ArgumentError(
            f"{name}: a window of {k} elements with dilation {d} lies wholly in the padding {pair} of axis {axis + 2}, "
            f"which has length {tensor.shape[axis + 2]}, so it has no element to pool. Pad by at most half of the "
            f"window, or use a larger kernel_size."
        )
    return tensor, windows, pairs


class Padding(TypedDict, total=False):
    """Options for padding: pad_mode "valid", "same" or "pad", and the widths for "pad"."""

    pad_mode: PadMode
    padding: Lengths


class Spread(Padding, total=False):
    """Options for padding, for the dilation of windows, and for partial windows at the end."""

    dilation: Lengths
    ceil_mode: bool


class Averaging(Padding, total=False):
    """Options for padding, its part in the mean, and partial windows at the end."""

    count_include_pad: bool
    ceil_mode: bool


class AveragingBy(Averaging, total=False):
    """The options of `Averaging`, and a number to divide by."""

    divisor_override: Count | None


def max_pool(x: Numbers, count: int, kernel_size: Any, stride: Any = None, **options: Unpack[Spread]) -> Tensor:
    """Max pooling over `count` axes: the largest element of each window. Its first occurrence gets the gradient. With
    `ceil_mode`, a partial window at the end counts if it begins before the padding at the end.
    """
    tensor, windows, _ = _prepare_pool(f"max_pool{count}d", x, count, kernel_size, stride, **options)
    if tensor._entry is None:  # without a gradient, the places need not be saved
        return _largest.bind(tensor, windows=windows)
    return _max_pool.bind_all(tensor, windows=windows)[0]


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
    """Average pooling over `count` axes: the mean of each window. Padding does not count in the mean with pad_mode
    "same" or count_include_pad=False. With `ceil_mode`, a partial window at the end counts if it begins before the
    padding at the end, without elements beyond the padding. `divisor_override` replaces the number of elements.
    """
    name = f"avg_pool{count}d"
    tensor, windows, asked = _prepare_pool(name, x, count, kernel_size, stride, pad_mode, padding, 1, ceil_mode)
    if divisor_override is not None and as_int(divisor_override, name, "divisor_override") < 1:
        raise ArgumentError(f"{name}: divisor_override must be at least 1, not {divisor_override}.")
    included = pad_mode == "pad" and count_include_pad
    if divisor_override or not windows.padded or (included and windows.padding == asked):
        return _sum_pool.bind(tensor, windows=windows, divisor=divisor_override or windows.elements)
    # Fewer elements count in windows at the border. Sum pooling of ones gives their number.
    wide = to_compute_dtype(tensor)
    lengths, beyond = tensor.shape[2:], windows.padding
    if included:
        pairs = list(zip(beyond, asked, strict=True))
        lengths = tuple(n + sum(pair) for n, (_, pair) in zip(lengths, pairs, strict=True))
        beyond = tuple((0, after - own) for (_, after), (_, own) in pairs)
    with on_device_of(tensor):
        ones = new.ones((1, 1, *lengths), wide.dtype)
    total = _sum_pool.bind(wide, windows=windows, divisor=1)
    inside = _sum_pool.bind(ones, windows=windows._replace(padding=beyond), divisor=1)
    return astype(total / inside, tensor.dtype)


def sum_pool(x: Numbers, count: int, kernel_size: Any, stride: Any = None, **options: Unpack[Padding]) -> Tensor:
    """Sum pooling over `count` axes: the sum of each window. Padding adds 0."""
    image, windows, _ = _prepare_pool(f"sum_pool{count}d", x, count, kernel_size, stride, padding_alone=True, **options)
    return _sum_pool.bind(image, windows=windows, divisor=1)


def max_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Spread]) -> Tensor:
    """Max pooling over one axis, (N, C, L); see `max_pool`."""
    return max_pool(x, 1, kernel_size, stride, **options)


def max_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Spread]) -> Tensor:
    """Max pooling over two axes, (N, C, H, W); see `max_pool`."""
    return max_pool(x, 2, kernel_size, stride, **options)


def avg_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Averaging]) -> Tensor:
    """Average pooling over one axis, (N, C, L); see `avg_pool`."""
    return avg_pool(x, 1, kernel_size, stride, **options)


def avg_pool2d(
    x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[AveragingBy]
) -> Tensor:
    """Average pooling over two axes, (N, C, H, W); see `avg_pool`."""
    return avg_pool(x, 2, kernel_size, stride, **options)


def sum_pool1d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """Sum pooling over one axis, (N, C, L); see `sum_pool`."""
    return sum_pool(x, 1, kernel_size, stride, **options)


def sum_pool2d(x: Numbers, kernel_size: Lengths, stride: Lengths | None = None, **options: Unpack[Padding]) -> Tensor:
    """Sum pooling over two axes, (N, C, H, W); see `sum_pool`."""
    return sum_pool(x, 2, kernel_size, stride, **options)


# --- Adaptive pooling -------------------------------------------------------------------------------------------------

Sizes = Count | Sequence[Count | None]


def _adaptive(pool: Callable[..., Tensor], x: Any, count: int, output_size: Any, name: str) -> Tensor:
    """Pool (N, C, *S) or (C, *S) to `output_size`."""
    tensor = as_float(x, name)
    if tensor.ndim not in (count + 1, count + 2) or 0 in tensor.shape[-count:]:
        raise ShapeError(
            f"{name}: takes (N, C, ...) or (C, ...) with {count} more axes, none of them empty, not {tensor.shape}."
            f"{_hint(tensor, count)}"
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
    """Pool windows of different sizes one by one."""
    axes = [
        [slice(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        for length, size in zip(image.shape[2:], sizes, strict=True)
    ]
    pooled = []
    for window in itertools.product(*axes):
        part = image[(..., *window)]
        pooled.append(reshape(pool(part, len(sizes), part.shape[2:]), (*image.shape[:2], 1)))
    return reshape(concat(pooled, -1), (*image.shape[:2], *sizes))


def adaptive_avg_pool1d(x: Numbers, output_size: Count) -> Tensor:
    """Average pooling to a given length, over the last axis of (N, C, L); see `adaptive_avg_pool2d`."""
    return _adaptive(avg_pool, x, 1, output_size, "adaptive_avg_pool1d")


def adaptive_avg_pool2d(x: Numbers, output_size: Sizes | None) -> Tensor:
    """Average pooling to a given size, with windows that cover the image evenly: (N, C, H, W) -> (N, C, *output_size).

    Window i of an axis extends from floor(i L / size) to ceil((i + 1) L / size).

    Args:
        x: (N, C, H, W) or (C, H, W).
        output_size: an int or a pair; None keeps the length of an axis.
    """
    return _adaptive(avg_pool, x, 2, output_size, "adaptive_avg_pool2d")


def adaptive_max_pool1d(x: Numbers, output_size: Count) -> Tensor:
    """Max pooling to a given length, over the last axis; see `adaptive_avg_pool2d` for the windows."""
    return _adaptive(max_pool, x, 1, output_size, "adaptive_max_pool1d")


def adaptive_max_pool2d(x: Numbers, output_size: Sizes | None) -> Tensor:
    """Max pooling to a given size; see `adaptive_avg_pool2d` for the windows."""
    return _adaptive(max_pool, x, 2, output_size, "adaptive_max_pool2d")
