"""Convolution over one or two axes (or more), from one pair of operations: windows, and their adjoint fold.

A convolution is a matrix product with the windows of its input, a transposed one the folded product. So all gradients,
to any order, come from those of `windows`, `fold`, `pad` and the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.arguments.kinds import Count
from snncell.arguments.vocabulary import Lengths, Numbers, PadMode
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.cuda import im2col as on_device
from snncell.ops import linalg, shape as sh
from snncell.ops.base import as_float, as_int, as_tensor, primitive, same_dtype
from snncell.tape.primitive import moving
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]
Ints = tuple[int, ...]


@moving
def _windows(x: Any, size: Ints, stride: Ints, dilation: Ints) -> Any:
    """(N, C, *S) -> (N, C, *O, *size), a view."""
    count = len(size)
    reach = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + count)))
    steps = (*stride, *dilation)
    return view[(slice(None), slice(None), *(slice(None, None, step) for step in steps))]


@primitive
def _fold(x: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    """(N, C, *O, *size) -> (N, C, *S): each element of a window is added where it came from."""
    out = np.zeros(shape, x.dtype)
    counts = x.shape[2 : 2 + len(size)]
    # An offset within the window at a time: for each, windows do not overlap, and one slice takes all of them.
    for offset in itertools.product(*(range(k) for k in size)):
        spans = [slice(o * d, o * d + n * s, s) for o, d, n, s in zip(offset, dilation, counts, stride, strict=True)]
        out[(slice(None), slice(None), *spans)] += x[(..., *offset)]
    return out


@_windows.def_there
def _(x: Any, size: Ints, stride: Ints, dilation: Ints) -> Any:
    return on_device.windows(x, size, stride, dilation)


@_fold.def_there
def _(x: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    return on_device.fold(x, shape, size, stride, dilation)


@_windows.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, size: Ints, stride: Ints, dilation: Ints) -> Grads:
    return (_fold.bind(dout, shape=_x.shape, size=size, stride=stride, dilation=dilation),)


@_fold.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, shape: Ints, size: Ints, stride: Ints, dilation: Ints) -> Grads:
    grad = _windows.bind(dout, size=size, stride=stride, dilation=dilation)
    if grad.shape != _x.shape:  # the image is so much longer than what was folded that further windows fit into it
        grad = grad[(slice(None), slice(None), *(slice(n) for n in _x.shape[2 : 2 + len(size)]))]
    return (grad,)


def refuse_reach(shape: Ints, size: Ints, dilation: Ints, name: str) -> None:
    """Raise a ShapeError if a window does not fit into padded images (N, C, *S)."""
    for length, k, d in zip(shape[2:], size, dilation, strict=True):
        if (k - 1) * d + 1 > length:
            raise ShapeError(
                f"{name}: a window of {k} elements with dilation {d} reaches over {(k - 1) * d + 1}, but the padded "
                f"input has length {length} (input shape {shape} after padding). Pad more, or use a smaller window."
            )


def windows(x: Tensor, size: Ints, stride: Ints, dilation: Ints, name: str) -> Tensor:
    """The windows of `x`, `(N, C, *S) -> (N, C, *O, *size)` with O = (S - (size - 1) dilation - 1) // stride + 1.

    Raises:
        ShapeError: if a window does not fit.
    """
    refuse_reach(x.shape, size, dilation, name)
    result: Tensor = _windows.bind(x, size=size, stride=stride, dilation=dilation)
    return result


# --- padding ----------------------------------------------------------------------------------------------------------


def tuple_of(value: Any, count: int, name: str, argument: str, least: int) -> Ints:
    """An int for every axis, or one for each.

    Raises:
        ArgumentError: for another count, or a value below `least`.
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    numbers = tuple(as_int(n, name, argument) for n in values)
    if len(numbers) != count or any(n < least for n in numbers):
        raise ArgumentError(f"{name}: {argument} is an int or {count} ints, each at least {least}, not {value!r}.")
    return numbers


def padding_of(lengths: Ints, size: Ints, stride: Ints, dilation: Ints, mode: str, padding: Any, name: str) -> Ints:
    """Elements to add, as pairs from the last axis on.

    "valid" adds none; "same" so many that the output has length ceil(S / stride), the odd one at the end; "pad" adds
    `padding`: one int, one for each axis (both sides), or a pair for each axis.
    """
    count = len(lengths)
    if mode not in ("same", "valid", "pad"):
        raise ArgumentError(f'{name}: pad_mode is "same", "valid" or "pad", not {mode!r}.')
    if mode != "pad" and padding not in (0, (0,) * count, (0,) * 2 * count):
        raise ArgumentError(f'{name}: padding={padding!r} needs pad_mode="pad"; with {mode!r} it must be 0.')
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
    return tuple(n for pair in reversed(pairs) for n in pair)


# --- convolution ------------------------------------------------------------------------------------------------------


def conv(
    x: Numbers,
    weight: Numbers,
    *,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
    name: str = "conv",
) -> Tensor:
    """The cross-correlation of `x` with `weight` over all axes after the channels.

    y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation] * weight[o, c, k]

    Args:
        x: (N, C, *S).
        weight: (O, C // groups, *K).
        stride, dilation: an int, or one for each axis.
        pad_mode, padding: see `padding_of`.
        groups: into how many parts the channels are divided; each output channel sees one part.
        name: for errors.

    Returns:
        (N, O, *P).

    Raises:
        ShapeError: for shapes that do not fit.
        ArgumentError: for options that do not.
    """
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
    x = sh.pad(x, padding_of(x.shape[2:], size, steps, spread, pad_mode, padding, name))
    view = windows(x, size, steps, spread, name)  # (N, C, *P, *K)
    n, places = x.shape[0], view.shape[2 : 2 + count]
    view = sh.reshape(view, (n, parts, per_group, *places, *size))
    # (N, groups, C, *P, *K) -> (groups, N, *P, C, *K), of which each patch is a row: (groups, N * P, C * K)
    order = (1, 0, *range(3, 3 + count), 2, *range(3 + count, 3 + 2 * count))
    patch = per_group * math.prod(size)
    columns = sh.reshape(sh.transpose(view, order), (parts, n * math.prod(places), patch))
    kernels = sh.transpose(sh.reshape(weight, (parts, out_channels // parts, patch)), (0, 2, 1))
    if parts == 1:  # rows times one matrix: a `Dot`, which may take spikes as events
        product = linalg.matmul(columns[0], kernels[0])
    else:
        product = sh.transpose(linalg.matmul(columns, kernels), (1, 0, 2))
    result = sh.reshape(product, (n, *places, out_channels))
    return sh.transpose(result, (0, count + 1, *range(1, count + 1)))


def conv1d(
    x: Numbers,
    weight: Numbers,
    bias: Numbers | None = None,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
) -> Tensor:
    """`conv` over one axis: x (N, C, L), weight (O, C // groups, K), bias (O,)."""
    return _with_bias(
        x, weight, bias, 1, stride=stride, pad_mode=pad_mode, padding=padding, dilation=dilation, groups=groups
    )


def conv2d(
    x: Numbers,
    weight: Numbers,
    bias: Numbers | None = None,
    stride: Lengths = 1,
    pad_mode: PadMode = "valid",
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: Count = 1,
) -> Tensor:
    """`conv` over two axes: x (N, C, H, W), weight (O, C // groups, KH, KW), bias (O,)."""
    return _with_bias(
        x, weight, bias, 2, stride=stride, pad_mode=pad_mode, padding=padding, dilation=dilation, groups=groups
    )


def _lengths_of(x: Tensor, what: str, name: str) -> Ints:
    """The lengths of an input or a weight (., ., *lengths), none of them 0."""
    lengths = x.shape[2:]
    if 0 in lengths:
        raise ShapeError(f"{name}: {what} of shape {x.shape} has places {lengths}; each length is at least 1.")
    return lengths


def _with_bias(x: Any, weight: Any, bias: Any, count: int, **options: Any) -> Tensor:
    name = f"conv{count}d"
    x, weight = as_tensor(x, name), as_tensor(weight, name)
    if weight.ndim != count + 2:
        raise ShapeError(f"{name}: the weight needs {count + 2} axes, its shape is {weight.shape}.")
    out = conv(x, weight, name=name, **options)
    return out if bias is None else out + _bias_of(bias, weight.shape[0], count, name)


def _bias_of(bias: Any, channels: int, count: int, name: str) -> Tensor:
    """A bias (channels,) in a shape that broadcasts along `count` axes behind the channels."""
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
    """The adjoint of `conv2d` with respect to its input, as an operation of its own: it enlarges images.

    Args:
        x: (N, C, H, W).
        weight: (C, O // groups, KH, KW).
        bias: (O,).
        stride, dilation: an int, or a pair.
        pad_mode: "valid" gives length (H - 1) stride + (KH - 1) dilation + 1; "same" gives H stride; "pad" takes
            `padding` off both sides of the former and adds `output_padding` at the end.
        padding, output_padding: for "pad".
        groups: into how many parts the channels are divided.

    Raises:
        ShapeError: for shapes that do not fit.
        ArgumentError: for options that do not.
    """
    name = "conv_transpose2d"
    x, weight = same_dtype([as_float(x, name), as_float(weight, name)], name)
    parts = as_int(groups, name, "groups")
    if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[0] or parts < 1 or x.shape[1] % parts:
        raise ShapeError(
            f"{name}: takes (N, C, H, W) and a weight (C, O // groups, KH, KW) with groups dividing C, not {x.shape} "
            f"and {weight.shape} with groups={groups}."
        )
    n, channels = x.shape[:2]
    per_group, lengths, size = weight.shape[1], _lengths_of(x, "an input", name), _lengths_of(weight, "a weight", name)
    steps, spread = tuple_of(stride, 2, name, "stride", 1), tuple_of(dilation, 2, name, "dilation", 1)
    whole = [(s - 1) * step + (k - 1) * d + 1 for s, step, k, d in zip(lengths, steps, size, spread, strict=True)]
    cut = _cut_of(whole, [s * step for s, step in zip(lengths, steps, strict=True)], pad_mode, padding, output_padding)
    # Each element of the input times the kernels is a patch of the output; the fold adds patches up where they overlap.
    rows = sh.transpose(sh.reshape(x, (n, parts, channels // parts, math.prod(lengths))), (1, 0, 3, 2))
    kernels = sh.reshape(weight, (parts, 1, channels // parts, per_group * math.prod(size)))
    patches = sh.reshape(linalg.matmul(rows, kernels), (parts, n, *lengths, per_group, *size))
    patches = sh.reshape(sh.transpose(patches, (1, 0, 4, 2, 3, 5, 6)), (n, parts * per_group, *lengths, *size))
    grown = tuple(length + max(high, 0) for length, (_, high) in zip(whole, cut, strict=True))  # output_padding: zeros
    folded = _fold.bind(patches, shape=(n, parts * per_group, *grown), size=size, stride=steps, dilation=spread)
    spans = (slice(low, length + high) for (low, high), length in zip(cut, whole, strict=True))
    out: Tensor = folded[(slice(None), slice(None), *spans)]
    return out if bias is None else out + _bias_of(bias, out.shape[1], 2, name)


def _cut_of(whole: list[int], same: list[int], mode: str, padding: Any, output_padding: Any) -> list[tuple[int, int]]:
    """For each axis, where the result begins in the whole, and how far behind its end (negative: before it) it ends."""
    name = "conv_transpose2d"
    if mode == "same":  # cut from both sides, the odd one at the end, or lengthened at the end
        return [(max(w - s, 0) // 2, s - w + max(w - s, 0) // 2) for w, s in zip(whole, same, strict=True)]
    pairs = padding_of((1, 1), (1, 1), (1, 1), (1, 1), mode, padding, name)
    extra = tuple_of(output_padding, 2, name, "output_padding", 0)
    return [(pairs[2], extra[0] - pairs[3]), (pairs[0], extra[1] - pairs[1])]
