"""Images of other sizes: by interpolation, and with channels as pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Numbers, Positive
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_float, as_tensor
from snncell.ops.gathering import take_slices
from snncell.ops.shape import reshape, transpose
from snncell.tape.tensor import Tensor, beside, snapshot

__all__ = ["interpolate", "pixel_shuffle", "pixel_unshuffle"]

Interpolation = Literal["nearest", "linear", "bilinear"]
_AXES = {"linear": 1, "bilinear": 2}


def interpolate(
    x: Numbers,
    size: Count | Sequence[Count] | None = None,
    scale_factor: Positive | Sequence[Positive] | None = None,
    mode: Interpolation = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`x` of (N, C, *S) at another size: pixel i of L is that of the place i S / L, or between the pixels around it.

    Args:
        x: (N, C, L), (N, C, H, W) or with more axes.
        size: the lengths of the axes after the channels: an int or one for each.
        scale_factor: or by how much each is longer than before; lengths are rounded down.
        mode: "nearest"; "linear" between the two neighbours of (N, C, L), "bilinear" the four of (N, C, H, W).
        align_corners: of "linear" and "bilinear": True has the middles of the outermost pixels where they were, False
            and None the corners of the image.

    Raises:
        ArgumentError: if not one of `size` and `scale_factor` is given, or for options that do not fit.
        ShapeError: for another number of axes.
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
            # A quotient that is whole is so exactly, where a product with a rounded factor may lie below.
            places = np.minimum(np.floor(np.arange(length) * old / new), tensor.shape[axis] - 1)
            result = take_slices(result, places.astype(np.int64), axis)
        else:
            result = _interpolate_axis(result, axis, length, old / new, bool(align_corners))
    return result


def _output_lengths(lengths: Sequence[int], size: Any, scale_factor: Any) -> list[tuple[int, int, float]]:
    """The new length of each axis, and how many pixels of the old one are as long as how many of the new."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: give size or scale_factor, and not both.")
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,) * len(lengths)
    if len(each) != len(lengths):
        raise ArgumentError(f"interpolate: {name} is a number, or one for each of {len(lengths)} axes, not {given!r}.")
    if scale_factor is None:
        return [(new, old, new) for new, old in zip(each, lengths, strict=True)]
    scaled = [(math.floor(old * factor), 1, factor) for factor, old in zip(each, lengths, strict=True)]
    if any(not length for length, _, _ in scaled):
        raise ArgumentError(f"interpolate: scale_factor={scale_factor!r} leaves nothing of lengths {tuple(lengths)}.")
    return scaled


def _interpolate_axis(x: Tensor, axis: int, length: int, scale: float, align_corners: bool) -> Tensor:
    """Each pixel of an axis from the two that it is between."""
    last = x.shape[axis] - 1
    if align_corners:
        places = np.arange(length) * (last / (length - 1) if length > 1 else 0.0)
    else:
        places = (np.arange(length) + 0.5) * scale - 0.5
    places = np.clip(places, 0, last)
    low = np.floor(places).astype(np.int64)
    with beside(x):
        share = Tensor((places - low).reshape((-1, *(1,) * (x.ndim - axis - 1)))).astype(x.dtype)
    return take_slices(x, low, axis) * (1.0 - share) + take_slices(x, np.minimum(low + 1, last), axis) * share


def pixel_shuffle(x: Numbers, upscale_factor: Count) -> Tensor:
    """r^2 channels as r x r pixels: (..., C r^2, H, W) -> (..., C, H r, W r).

    Raises:
        ShapeError: for a number of channels that r^2 does not divide.

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
    """r x r pixels as r^2 channels: (..., C, H r, W r) -> (..., C r^2, H, W); the inverse of `pixel_shuffle`.

    Raises:
        ShapeError: for a height or width that r does not divide.
    """
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
