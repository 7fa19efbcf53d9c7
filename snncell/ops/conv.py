"""Convolution over one or more axes, transposed convolution, and image patches (unfold, fold).

A convolution and the gradients of its input and weight are three operations. The gradients of each operation are the
other two operations.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Lengths, Numbers, PadMode, Size
from snncell.compiler.ir.product import Convolution, ConvolutionBack, ConvolutionWeight
from snncell.errors import ArgumentError, ShapeError
from snncell.ops import shape as sh
from snncell.ops.arithmetic import add, conj
from snncell.ops.base import Grads, as_float, as_int, as_tensor, astype, same_dtype
from snncell.ops.event_lists import convolve_lists
from snncell.ops.indexing import put_primitive
from snncell.ops.padding import pad
from snncell.ops.reduce import sum_primitive
from snncell.tape.event_lists import EventLists
from snncell.tape.tensor import Tensor

__all__ = ["conv", "conv1d", "conv2d", "conv_transpose2d", "fold", "unfold"]
Ints = tuple[int, ...]
_conv, _conv_back, _conv_weight = Convolution(), ConvolutionBack(), ConvolutionWeight()
_conv_weight.total = sum_primitive


@_conv.def_bprop
def _(x: Tensor, weight: Tensor, _out: Tensor, dout: Tensor, *, count: Ints, **options: Any) -> Grads:
    return (
        lambda: _conv_back.bind(dout, conj(weight), lengths=x.shape[2:], **options),
        lambda: _conv_weight.bind(conj(x), dout, size=weight.shape[2:], **options),
    )


@_conv_back.def_bprop
def _(x: Tensor, weight: Tensor, _out: Tensor, dout: Tensor, *, lengths: Ints, **options: Any) -> Grads:
    return (
        lambda: _conv.bind(dout, conj(weight), count=x.shape[2:], **options),
        lambda: _conv_weight.bind(dout, conj(x), size=weight.shape[2:], **options),
    )


@_conv_weight.def_bprop
def _(x: Tensor, y: Tensor, _out: Tensor, dout: Tensor, *, size: Ints, **options: Any) -> Grads:
    return (
        lambda: _conv_back.bind(conj(y), dout, lengths=x.shape[2:], **options),
        lambda: _conv.bind(conj(x), dout, count=y.shape[2:], **options),
    )


def refuse_reach(shape: Ints, size: Ints, dilation: Ints, name: str) -> None:
    """Raise a ShapeError if a window does not fit into padded images (N, C, *S)."""
    for length, k, d in zip(shape[2:], size, dilation, strict=True):
        if (k - 1) * d + 1 > length:
            raise ShapeError(
                f"{name}: a window of {k} elements with dilation {d} reaches over {(k - 1) * d + 1}, but the padded "
                f"input has length {length} (input shape {shape} after padding). Pad more, or use a smaller window."
            )


# --- Padding ----------------------------------------------------------------------------------------------------------


def tuple_of(value: Any, count: int, name: str, argument: str, least: int) -> Ints:
    """Expand an int, or one int per axis, to a tuple."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    numbers = tuple(as_int(n, name, argument) for n in values)
    if len(numbers) != count or any(n < least for n in numbers):
        raise ArgumentError(f"{name}: {argument} is an int or {count} ints, each at least {least}, not {value!r}.")
    return numbers


def padding_widths(
    lengths: Ints, size: Ints, stride: Ints, dilation: Ints, mode: str, padding: Any, name: str
) -> tuple[tuple[int, int], ...]:
    """The number of elements to add before and after each axis, as `conv` describes them for each `mode`."""
    count = len(lengths)
    if mode not in ("same", "valid", "pad"):
        raise ArgumentError(f'{name}: pad_mode is "same", "valid" or "pad", not {mode!r}.')
    if mode != "pad" and padding not in (0, (0,) * count, (0,) * 2 * count):
        raise ArgumentError(
            f'{name}: padding={padding!r} needs pad_mode="pad"; with {mode!r} it must be 0. Write pad_mode="pad", '
            f'padding={padding!r}. Note that "same" chooses the padding for an output of length ceil(S / stride).'
        )
    pairs = [(0, 0)] * count
    if mode == "same":
        for axis, (length, k, s, d) in enumerate(zip(lengths, size, stride, dilation, strict=True)):
            total = max((math.ceil(length / s) - 1) * s + (k - 1) * d + 1 - length, 0)
            pairs[axis] = (total // 2, total - total // 2)
    elif mode == "pad" and isinstance(padding, (tuple, list)) and len(padding) == 2 * count and count > 1:
        flat = tuple_of(padding, 2 * count, name, "padding", 0)
        pairs = [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]
    elif mode == "pad":
        pairs = [(n, n) for n in tuple_of(padding, count, name, "padding", 0)]
    return tuple(pairs)


# --- Convolution ------------------------------------------------------------------------------------------------------


def conv(
    x: Numbers | EventLists,
    weight: Numbers,
    *,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
    name: str = "conv",
) -> Tensor:
    """Convolution (cross-correlation) of `x` with `weight` over all axes after the channels.

    y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation] * weight[o, c, k]

    Args:
        x: (N, C, *S), a Tensor or event lists with one row per n.
        weight: (O, C // groups, *K).
        stride, dilation: an int, or one per axis.
        pad_mode: "valid" adds no padding. "same" adds as many zeros as an output of length ceil(S / stride) needs; if
            their number is odd, one more at the end than at the beginning. "pad" adds `padding`.
        padding: for pad_mode "pad", the number of zeros: an int for all sides, one per axis for both of its sides, or
            two per axis, (before, after, before, after, ...).
        groups: split the channels into that many groups. Each output channel depends on one group.
        name: the name of the operation in error messages.
    Returns: (N, O, *P).
    """
    if isinstance(x, EventLists):
        weight = as_float(weight, name)
        weight = astype(weight, dtypes.promote(x.dtype if x.dtype.is_float else dtypes.float32, weight.dtype))
    else:
        x, weight = same_dtype([as_float(x, name), as_float(weight, name)], name)
    count = weight.ndim - 2
    if x.ndim != weight.ndim or count < 1:
        raise ShapeError(f"{name}: x {x.shape} and weight {weight.shape} need (N, C, ...) and (O, C, ...) axes.")
    parts = as_int(groups, name, "groups")
    out_channels, per_group = weight.shape[:2]
    if parts < 1 or x.shape[1] != per_group * parts or out_channels % parts:
        raise ShapeError(
            f"{name}: an input of shape {x.shape} has {x.shape[1]} channels; the weight of shape {weight.shape} with "
            f"groups={groups} takes {per_group * parts}, and groups must divide its {out_channels} output channels."
        )
    size = _lengths_of(weight, "a weight", name)
    steps = tuple_of(stride, count, name, "stride", 1)
    spread = tuple_of(dilation, count, name, "dilation", 1)
    widths = padding_widths(x.shape[2:], size, steps, spread, pad_mode, padding, name)
    lengths = tuple(n + sum(pair) for n, pair in zip(x.shape[2:], widths, strict=True))
    refuse_reach((*x.shape[:2], *lengths), size, spread, name)
    reach = [(k - 1) * d + 1 for k, d in zip(size, spread, strict=True)]
    places = tuple((n - own) // step + 1 for n, own, step in zip(lengths, reach, steps, strict=True))
    options = {"stride": steps, "before": tuple(low for low, _ in widths), "dilation": spread, "groups": parts}
    if isinstance(x, EventLists):
        return convolve_lists(x, weight, name, count=places, **options)
    return _conv.bind(x, weight, count=places, **options)


def conv1d(
    x: Numbers | EventLists,
    weight: Numbers,
    bias: Numbers | None = None,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
) -> Tensor:
    """Convolution over one axis: x (N, C, L), weight (O, C // groups, K), bias (O,); see `conv`."""
    return _with_bias(
        x, weight, bias, 1, stride=stride, pad_mode=pad_mode, padding=padding, dilation=dilation, groups=groups
    )


def conv2d(
    x: Numbers | EventLists,
    weight: Numbers,
    bias: Numbers | None = None,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
) -> Tensor:
    """Convolution over two axes: x (N, C, H, W), weight (O, C // groups, KH, KW), bias (O,); see `conv`."""
    return _with_bias(
        x, weight, bias, 2, stride=stride, pad_mode=pad_mode, padding=padding, dilation=dilation, groups=groups
    )


def _lengths_of(x: Tensor, what: str, name: str) -> Ints:
    lengths = x.shape[2:]
    if 0 in lengths:
        raise ShapeError(f"{name}: {what} of shape {x.shape} has lengths {lengths}; each must be at least 1.")
    return lengths


def _with_bias(x: Any, weight: Any, bias: Any, count: int, **options: Any) -> Tensor:
    name = f"conv{count}d"
    x, weight = x if isinstance(x, EventLists) else as_tensor(x, name), as_tensor(weight, name)
    if weight.ndim != count + 2:
        raise ShapeError(f"{name}: the weight needs {count + 2} axes, but its shape is {weight.shape}.")
    out = conv(x, weight, name=name, **options)
    return out if bias is None else out + _bias_of(bias, weight.shape[0], count, name)


def _bias_of(bias: Any, channels: int, count: int, name: str) -> Tensor:
    """Reshape a bias (channels,) so that it broadcasts along `count` axes after the channels."""
    tensor = as_tensor(bias, name)
    if tensor.shape != (channels,):
        raise ShapeError(f"{name}: the bias has shape {tensor.shape}; it needs {(channels,)}.")
    return sh.reshape(tensor, (-1,) + (1,) * count)


def conv_transpose2d(
    x: Numbers,
    weight: Numbers,
    bias: Numbers | None = None,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    output_padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
) -> Tensor:
    """Transposed convolution (deconvolution), which enlarges images: the adjoint of `conv2d` with respect to its input.

    Args:
        x: (N, C, H, W).
        weight: (C, O // groups, KH, KW).
        bias: (O,).
        stride, dilation: an int, or a pair.
        pad_mode: "valid" gives length (H - 1) stride + (KH - 1) dilation + 1, and "same" gives H stride. "pad" removes
            `padding` from both sides of the "valid" result and adds `output_padding` at the end.
        padding: for pad_mode "pad", as for `conv`.
        output_padding: the number of elements to add at the end of each axis: an int, or a pair.
        groups: split the channels into that many groups.
    """
    name = "conv_transpose2d"
    x, weight = same_dtype([as_float(x, name), as_float(weight, name)], name)
    parts = as_int(groups, name, "groups")
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[0] or parts < 1 or x.shape[1] % parts:
        raise ShapeError(
            f"{name}: takes (N, C, H, W) and a weight (C, O // groups, KH, KW) with groups dividing C, not {x.shape} "
            f"and {weight.shape} with groups={groups}."
        )
    lengths, size = _lengths_of(x, "an input", name), _lengths_of(weight, "a weight", name)
    steps, spread = tuple_of(stride, 2, name, "stride", 1), tuple_of(dilation, 2, name, "dilation", 1)
    whole = [(s - 1) * step + (k - 1) * d + 1 for s, step, k, d in zip(lengths, steps, size, spread, strict=True)]
    cut = _result_bounds(
        whole, [s * step for s, step in zip(lengths, steps, strict=True)], pad_mode, padding, output_padding
    )
    options = {"stride": steps, "before": tuple(low for low, _ in cut), "dilation": spread, "groups": parts}
    lengths = tuple(max(0, length + high - low) for length, (low, high) in zip(whole, cut, strict=True))
    out: Tensor = _conv_back.bind(x, weight, lengths=lengths, **options)
    return out if bias is None else out + _bias_of(bias, out.shape[1], 2, name)


def _result_bounds(
    whole: list[int], same: list[int], mode: str, padding: Any, output_padding: Any
) -> list[tuple[int, int]]:
    """For each axis, the start of the result in the "valid" output, and its end relative to that output's end."""
    name = "conv_transpose2d"
    if mode == "same":  # cut both sides, and one more element at the end if the number is odd; or extend the end
        return [(max(w - s, 0) // 2, s - w + max(w - s, 0) // 2) for w, s in zip(whole, same, strict=True)]
    pairs = padding_widths((1, 1), (1, 1), (1, 1), (1, 1), mode, padding, name)
    extra = tuple_of(output_padding, 2, name, "output_padding", 0)
    return [(low, more - high) for (low, high), more in zip(pairs, extra, strict=True)]


# --- Patches of images as columns, and back ---------------------------------------------------------------------------

Pair = Count | tuple[Count, Count]
PaddingSize = Size | tuple[Size, Size]


class _Places:
    """The sliding windows of an image. `slices[k]` selects element k of every window from the padded image."""

    def __init__(self, name: str, image: Ints, kernel: Pair, dilation: Pair, padding: PaddingSize, stride: Pair):
        self.kernel = tuple_of(kernel, 2, name, "kernel_size", 1)
        apart, step = tuple_of(dilation, 2, name, "dilation", 1), tuple_of(stride, 2, name, "stride", 1)
        self.padding = tuple_of(padding, 2, name, "padding", 0)
        self.padded = tuple(n + 2 * p for n, p in zip(image, self.padding, strict=True))
        spans = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, apart, strict=True))
        if any(span > n for span, n in zip(spans, self.padded, strict=True)):
            raise ShapeError(f"{name}: windows of {spans} do not fit an image of {self.padded}, padding included.")
        self.windows = tuple((n - s) // t + 1 for n, s, t in zip(self.padded, spans, step, strict=True))
        self.slices = [
            tuple(
                slice(place * d, place * d + (count - 1) * t + 1, t)
                for place, d, count, t in zip((i, j), apart, self.windows, step, strict=True)
            )
            for i in range(self.kernel[0])
            for j in range(self.kernel[1])
        ]


def unfold(x: Numbers, kernel_size: Pair, dilation: Pair = 1, padding: PaddingSize = 0, stride: Pair = 1) -> Tensor:
    """Extract sliding windows as columns (im2col): (N, C, H, W) -> (N, C * kh * kw, L) for L windows.

    Args:
        x: (N, C, H, W).
        kernel_size, dilation, padding, stride: of the windows, as in a convolution; one integer or (height, width).
    Note: A convolution with weights (out, C, kh, kw) is the matrix product of weights.reshape(out, -1) and the columns.
    """
    tensor = as_tensor(x, "unfold")
    if tensor.ndim != 4:
        raise ShapeError(f"unfold: takes images (N, C, H, W), but the shape is {tensor.shape}.")
    places = _Places("unfold", tensor.shape[2:], kernel_size, dilation, padding, stride)
    (above, left), (n, channels) = places.padding, tensor.shape[:2]
    padded = pad(tensor, (left, left, above, above))
    windows = sh.stack([padded[:, :, rows, columns] for rows, columns in places.slices], 2)
    size, count = len(places.slices), places.windows[0] * places.windows[1]
    return sh.reshape(windows, (n, channels * size, count))


def fold(
    x: Numbers, output_size: Pair, kernel_size: Pair, dilation: Pair = 1, padding: PaddingSize = 0, stride: Pair = 1
) -> Tensor:
    """Sum columns back into an image, the adjoint of `unfold`: (N, C * kh * kw, L) -> (N, C, H, W). Overlaps add up.

    Args:
        x: (N, C * kh * kw, L).
        output_size: (H, W), or one integer for both.
        kernel_size, dilation, padding, stride: as in `unfold`.
    """
    tensor, image = as_tensor(x, "fold"), tuple_of(output_size, 2, "fold", "output_size", 1)
    places = _Places("fold", image, kernel_size, dilation, padding, stride)
    size, count = len(places.slices), places.windows[0] * places.windows[1]
    if tensor.ndim != 3 or tensor.shape[1] % size or tensor.shape[2] != count:
        raise ShapeError(f"fold: takes columns (N, C * {size}, {count}) for these windows, not {tensor.shape}.")
    n, channels = tensor.shape[0], tensor.shape[1] // size
    windows = sh.reshape(tensor, (n, channels, size, *places.windows))
    shape = (n, channels, *places.padded)
    placed = [
        put_primitive.bind(windows[:, :, position], index=(slice(None), slice(None), *place), shape=shape)
        for position, place in enumerate(places.slices)
    ]
    total = functools.reduce(add, placed)
    (above, left), (height, width) = places.padding, image
    return total[:, :, above : above + height, left : left + width]
