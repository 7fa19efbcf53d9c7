"""Sums of convolutions that are computed by tiles: how much larger they become, and where they are not exact."""

from __future__ import annotations

import math
from typing import Any

from snncell import nn
from snncell.kernels.conv.toom_cook import transforms
from snncell.kernels.conv.winograd import LEAST_CHANNELS
from snncell.quantise.linear import bits_behind_point


def growth(cell: Any) -> float:
    """The factor by which sums of a convolution may grow on the way: 1, or more by Winograd's tiles.

    Windows of up to three elements have transforms of halves; longer ones have thirds, which are not exact: infinity.
    """
    if not isinstance(cell, nn.Conv2d):
        return 1.0
    channels = min(cell.in_channels, cell.out_channels) // cell.group
    if channels < LEAST_CHANNELS or cell.kernel_size == (1, 1):
        return 1.0
    stride = cell.stride if isinstance(cell.stride, (list, tuple)) else (cell.stride,) * 2
    return math.prod(_of_axis(int(k), int(s)) for k, s in zip(cell.kernel_size, stride, strict=True))


def _of_axis(window: int, stride: int) -> float:
    """The growth along one axis."""
    if -(-window // stride) > 5:
        return 1.0  # there are no such tiles
    of = transforms(window, stride)
    bits = max(bits_behind_point(matrix) for matrix in of)
    if bits > 8:
        return math.inf
    results, weights, images = (max(sum(map(abs, row)) for row in matrix) for matrix in of)
    return float(2**bits * results * max(1.0, weights) * images)
