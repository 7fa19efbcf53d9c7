"""Padding, interpolation of images, and pixel shuffle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, ExtendedReal, Numbers, Positive
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import Grads, array_beside, as_float, as_ints, as_tensor
from snncell.ops.gathering import take_slices
from snncell.ops.shape import reshape, transpose
from snncell.tape.primitive import moving, with_axis_of_steps
from snncell.tape.tensor import Tensor, snapshot

__all__ = ["interpolate", "pad", "pixel_shuffle", "pixel_unshuffle"]
Mode = Literal["constant", "reflect", "symmetric", "replicate", "circular"]

# NumPy's name of a mode, and how many elements of an axis its padding cannot use; None means no limit.
_FROM_X: dict[str, tuple[Any, int | None]] = {
    "reflect": ("reflect", 1), "symmetric": ("symmetric", 0), "replicate": ("edge", None), "circular": ("wrap", 0),
}  # fmt: skip


@moving
def _pad(x: Any, widths: tuple[tuple[int, int], ...], value: float) -> Any:
    return np.pad(x, widths, constant_values=value)


with_axis_of_steps(_pad, lambda attrs, steps: {**attrs, "widths": ((0, 0), *attrs["widths"])})


@_pad.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, widths: tuple[tuple[int, int], ...], value: float) -> Grads:
    inner = zip(widths, dout.shape, strict=True)
    return (dout[tuple(slice(low, n - high) for (low, high), n in inner)],)


def pad(
    x: Numbers, padding: Sequence[int | Sequence[int]], mode: Mode = "constant", value: ExtendedReal | bool = 0
) -> Tensor:
    """Pad `x` with a constant, or with its own elements.

    Args:
        padding: numbers before and after the last axis, then before and after the last but one, and so on (PyTorch's
            order), for example (1, 2, 0, 1). Or pairs (before, after), one per axis from the first on, or one for all
            axes (NumPy's order), for example ((0, 1), (1, 2)).
        mode: "constant"; or elements of x itself. For a, b, c these are "reflect" (c b | a b c | b a), "symmetric" (b a
            | a b c | c b), "replicate" (a a | a b c | c c) and "circular" (b c | a b c | a b).
        value: the number to pad with in mode "constant".
    """
    tensor = as_tensor(x, "pad")
    if padding and all(isinstance(pair, (tuple, list)) for pair in padding):
        padding = _from_the_last(padding, tensor)
    amounts = as_ints(padding, "pad", "padding")
    if len(amounts) % 2 or len(amounts) > 2 * tensor.ndim or min(amounts, default=0) < 0:
        raise ShapeError(
            f"pad: padding {amounts} for a Tensor with {tensor.ndim} axes; give non-negative numbers before and after "
            f"the last axis, the last but one, ..., or pairs ((before, after), ...) from the first axis on."
        )
    pairs = [(amounts[i], amounts[i + 1]) for i in range(0, len(amounts), 2)][::-1]
    widths = ((0, 0),) * (tensor.ndim - len(pairs)) + tuple(pairs)
    if not any(map(any, widths)):
        return snapshot(tensor)
    if mode != "constant":
        return _pad_by_copies(tensor, widths, mode)
    return _pad.bind(tensor, widths=widths, value=value)


def _from_the_last(pairs: Sequence[Any], tensor: Tensor) -> list[int]:
    if any(len(pair) != 2 for pair in pairs) or len(pairs) not in (1, tensor.ndim):
        raise ShapeError(
            f"pad: padding {show(pairs)} for a Tensor with {tensor.ndim} axes; give a pair (before, after) for each "
            f"axis, or one for all."
        )
    each = list(pairs) * tensor.ndim if len(pairs) == 1 else pairs
    return [number for pair in each[::-1] for number in pair]


def _pad_by_copies(x: Tensor, widths: tuple[tuple[int, int], ...], mode: str) -> Tensor:
    numpys, least = _FROM_X[mode]
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        length = x.shape[axis]
        most = 0 if not length else math.inf if least is None else length - least
        if max(before, after) > most:
            raise ShapeError(
                f"pad: axis {axis} of a Tensor of shape {x.shape} is padded by {(before, after)}; mode {mode!r} allows "
                f"at most {most} elements on a side."
            )
        x = take_slices(x, np.pad(np.arange(length), (before, after), numpys), axis)
    return x


# --- Images of other sizes --------------------------------------------------------------------------------------------

Interpolation = Literal["nearest", "linear", "bilinear"]
_AXES = {"linear": 1, "bilinear": 2}


def interpolate(
    x: Numbers,
    size: Count | Sequence[Count] | None = None,
    scale_factor: Positive | Sequence[Positive] | None = None,
    mode: Interpolation = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize `x` (N, C, *S) by nearest, linear or bilinear interpolation.

    With "nearest", pixel i of L is pixel floor(i S / L) of x. The other modes interpolate between neighbouring pixels.

    Args:
        x: (N, C, L), (N, C, H, W) or with more axes.
        size: the new lengths of the axes after the channels: an int, or one per axis. Give this or `scale_factor`.
        scale_factor: instead of `size`, the factors by which lengths grow. Lengths are rounded down.
        mode: "nearest", "linear" for (N, C, L), or "bilinear" for (N, C, H, W).
        align_corners: for "linear" and "bilinear". True keeps the centres of the outermost pixels in place; False and
            None keep the corners of the image in place.
    Raises: ArgumentError unless exactly one of `size` and `scale_factor` is given, and for options that do not fit;
        ShapeError for another number of axes.
    """
    tensor = as_float(x, "interpolate") if mode != "nearest" else as_tensor(x, "interpolate")
    axes = tensor.ndim - 2
    if axes < 1 or _AXES.get(mode, axes) != axes or 0 in tensor.shape[2:]:
        needed = {"linear": "(N, C, L)", "bilinear": "(N, C, H, W)"}.get(mode, "(N, C, ...)")
        raise ShapeError(f"interpolate: mode {mode!r} takes {needed} with pixels, not {tensor.shape}.")
    if align_corners and mode == "nearest":
        raise ArgumentError('interpolate: align_corners is for the modes "linear" and "bilinear", not for "nearest".')
    result = snapshot(tensor)
    for axis, (length, old, new) in enumerate(_output_lengths(tensor.shape[2:], size, scale_factor), 2):
        if mode == "nearest":
            # Divide instead of multiplying by a rounded factor, because a whole quotient is then exact.
            places = np.minimum(np.floor(np.arange(length) * old / new), tensor.shape[axis] - 1)
            result = take_slices(result, places.astype(np.int64), axis)
        else:
            result = _interpolate_axis(result, axis, length, old / new, bool(align_corners))
    return result


def _output_lengths(lengths: Sequence[int], size: Any, scale_factor: Any) -> list[tuple[int, int, float]]:
    """The new length of each axis, and the ratio of old to new pixels as two numbers."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: pass exactly one of size and scale_factor.")
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,) * len(lengths)
    if len(each) != len(lengths):
        raise ArgumentError(f"interpolate: {name} is a number, or one for each of {len(lengths)} axes, not {given!r}.")
    if scale_factor is None:
        return [(new, old, new) for new, old in zip(each, lengths, strict=True)]
    scaled = [(math.floor(old * factor), 1, factor) for factor, old in zip(each, lengths, strict=True)]
    if any(not length for length, _, _ in scaled):
        raise ArgumentError(f"interpolate: scale_factor={scale_factor!r} reduces lengths {tuple(lengths)} to 0.")
    return scaled


def _interpolate_axis(x: Tensor, axis: int, length: int, scale: float, align_corners: bool) -> Tensor:
    last = x.shape[axis] - 1
    if align_corners:
        places = np.arange(length) * (last / (length - 1) if length > 1 else 0.0)
    else:
        places = (np.arange(length) + 0.5) * scale - 0.5
    places = np.clip(places, 0, last)
    low = np.floor(places).astype(np.int64)
    share = array_beside((places - low).reshape((-1, *(1,) * (x.ndim - axis - 1))), x).astype(x.dtype)
    return take_slices(x, low, axis) * (1.0 - share) + take_slices(x, np.minimum(low + 1, last), axis) * share


def pixel_shuffle(x: Numbers, upscale_factor: Count) -> Tensor:
    """Rearrange r^2 channels to r x r pixels: (..., C r^2, H, W) -> (..., C, H r, W r).

    Source: Shi and others, "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
    Convolutional Neural Network", CVPR 2016.
    """
    tensor, r = as_tensor(x, "pixel_shuffle"), upscale_factor
    if tensor.ndim < 3 or tensor.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: takes (..., C, H, W) with channels that are a multiple of {r * r}, not {tensor.shape}."
        )
    *batch, channels, height, width = tensor.shape
    parts = reshape(tensor, (*batch, channels // (r * r), r, r, height, width))
    n = len(batch)
    turned = transpose(parts, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return reshape(turned, (*batch, channels // (r * r), height * r, width * r))


def pixel_unshuffle(x: Numbers, downscale_factor: Count) -> Tensor:
    """Rearrange r x r pixels to r^2 channels: (..., C, H r, W r) -> (..., C r^2, H, W). Inverse of `pixel_shuffle`."""
    tensor, r = as_tensor(x, "pixel_unshuffle"), downscale_factor
    if tensor.ndim < 3 or tensor.shape[-2] % r or tensor.shape[-1] % r:
        raise ShapeError(
            f"pixel_unshuffle: takes (..., C, H, W) with a height and width that {r} divides, not {tensor.shape}."
        )
    *batch, channels, height, width = tensor.shape
    parts = reshape(tensor, (*batch, channels, height // r, r, width // r, r))
    n = len(batch)
    turned = transpose(parts, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return reshape(turned, (*batch, channels * r * r, height // r, width // r))
