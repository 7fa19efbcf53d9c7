"""Convolutions of spikes by their events: when they pay, and how the kernels of `cpu/conv_events.py` are told."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import conv_events
from snncell.kernels.planes import LANES, Sizes, flat
from snncell.kernels.sharing import parts_of

Ints = tuple[int, ...]

PARTS = 16  # of images, whose gradients are added up in order; where those are large, of channels
MOST_SUMS = 1 << 19  # bytes of an image's sums, which events are added to all over
MOST_PARTIAL = 1 << 20  # elements of the gradients of all parts
SAMPLES = 4096  # elements that are looked at for the density, in whole rows of images
# Cycles, measured with `python -m benchmarks`: for a vector of sums, dense and of an event; for an event beside that;
# for an element that is looked at, or moved between the two orders of channels and pixels.
DENSE, ADDED, EVENT, MOVED = 1.2, 5.0, 15.0, 2.3


class Grid(NamedTuple):
    """The pixels of the results, with room around them, and where the windows are that an element of an image is in.

    Attributes:
        bases: for each element of an image, the first pixel of the grid that it may add to, and its place in a stride.
        firsts: for each place in a stride, the number of its first tap; and of all taps.
        offsets: for each tap, how far from the base the pixel is.
        taps: which element of the window it is.
        size, pitch, corner: pixels of the grid, of one of its rows, and before the first result.
    """

    bases: Any
    firsts: Any
    offsets: Any
    taps: Any
    size: int
    pitch: int
    corner: int


@functools.lru_cache(maxsize=256)
def _grid_of(sizes: Sizes, width: int) -> Grid:
    """The grid for results of `width` channels."""
    lengths, size, stride, dilation, before, count = sizes
    # Along an axis, element y is in the windows of results q with q stride + k dilation = y + before.
    targets = [
        [[((y + low - k * d) // s, k) for k in range(own) if (y + low - k * d) % s == 0] for y in range(n)]
        for n, own, s, d, low in zip(lengths, size, stride, dilation, before, strict=True)
    ]
    lows = [min([0, *(q for found in axis for q, _ in found)]) for axis in targets]
    highs = [
        max([many, *(q + 1 for found in axis for q, _ in found)]) for axis, many in zip(targets, count, strict=True)
    ]
    rows, pitch = (high - low for high, low in zip(highs, lows, strict=True))
    offsets, taps, firsts = [], [], [0]
    for a, b in itertools.product(*(range(s) for s in stride)):
        down, across = (
            [((p + low - k * d) // s, k) for k in range(own) if (p + low - k * d) % s == 0]
            for p, own, s, d, low in zip((a, b), size, stride, dilation, before, strict=True)
        )
        pairs = [(i * pitch + j, k * size[1] + m) for i, k in down for j, m in across]
        offsets += [(i - lows[0] * pitch - lows[1]) * width for i, _ in pairs]
        taps += [tap * width for _, tap in pairs]
        firsts.append(len(taps))
    bases = [
        number
        for y, x in itertools.product(*map(range, lengths))
        for number in (y // stride[0] * pitch + x // stride[1], y % stride[0] * stride[1] + x % stride[1])
    ]
    tables = [np.array(table, np.int64) for table in (bases, firsts, offsets, taps)]
    return Grid(tables[0], tables[1], tables[2], tables[3], rows * pitch, pitch, -lows[0] * pitch - lows[1])


def pay(x: Any, window: Ints, outputs: int, count: Ints, groups: int) -> bool:
    """True if images have so few elements that are not zero that their events are less work than all of them."""
    if not x.size:
        return False
    channels, pixels, results = x.shape[1] // groups, math.prod(x.shape[2:]), math.prod(count)
    vectors = -(-outputs // groups // LANES)
    if results * vectors * LANES * x.dtype.itemsize > MOST_SUMS:
        return False
    taps = math.prod(window)
    dense = channels * taps * (outputs // groups) / LANES * results * DENSE
    moved = (channels * pixels / 4 + outputs // groups * results) * MOVED
    each = EVENT + taps * results / pixels * vectors * ADDED
    limit = (dense - moved) / (channels * pixels * each)
    if limit <= 0:
        return False
    rows = x.reshape(-1, x.shape[-1])
    some = rows[:: max(1, rows.size // SAMPLES)]
    return bool(np.count_nonzero(some) < limit * some.size)


def convolve(x: Any, weight: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Put into `out` the convolution of images, by their events."""
    width = _width(len(weight) // groups)
    grid = _grid_of(sizes, width)
    geometry = _geometry(x, weight.shape, out.shape, grid, groups, (1, 1))
    members, terms = len(x) * groups, math.prod(weight.shape[1:])
    rows = empty((groups * terms, width), x.dtype)
    kind = dtypes.BY_NUMPY[x.dtype]
    _kernel("weights_as_rows", kind)(len(rows), int(rows.size > 1 << 18), flat(weight), rows, geometry)
    grain, parts = parts_of(members)
    sums = empty((parts, grid.size * width + LANES), x.dtype)
    _kernel("scatter", kind)(
        members, grain if parts > 1 else 0, grain, flat(x), rows, grid.bases, grid.firsts, grid.offsets, grid.taps,
        out.reshape(-1), sums, *_room(parts, x), geometry,
    )  # fmt: skip


def convolve_weight(x: Any, dout: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Put into `out` the gradient of the weight, by the events of the images."""
    channels = x.shape[1] // groups
    partial_size = _width(len(out) // groups) * groups * out[0].size
    units = max(1, min(len(x), PARTS, MOST_PARTIAL // partial_size))
    split_channels = -(-channels // min(channels, -(-PARTS // units)))
    splits = -(-channels // split_channels)
    width = _width(len(out) // groups)
    grid = _grid_of(sizes, width)
    geometry = _geometry(x, out.shape, dout.shape, grid, groups, (units, split_channels))
    kind = dtypes.BY_NUMPY[x.dtype]
    grain, parts = parts_of(units * splits)
    partial = empty((units, partial_size + LANES), x.dtype)
    slopes = empty((parts, grid.size * width + LANES), x.dtype)
    _kernel("gather", kind)(
        units * splits, grain if parts > 1 else 0, grain, flat(x), flat(dout), grid.bases, grid.firsts, grid.offsets,
        grid.taps, partial, slopes, *_room(parts, x), geometry,
    )  # fmt: skip
    _kernel("weights_from_rows", kind)(len(out), int(partial.size > 1 << 18), partial, out.reshape(-1), geometry)


def _geometry(x: Any, weight: Ints, results: Ints, grid: Grid, groups: int, parts: Ints) -> Any:
    """The numbers that the kernels take."""
    channels, outputs = x.shape[1] // groups, results[1] // groups
    numbers = [
        *(groups, outputs, math.prod(weight[1:]), channels, _width(outputs), math.prod(x.shape[2:])),
        *(grid.size, grid.pitch, *results[2:], grid.corner, len(x), *parts),
    ]
    return np.array(numbers, np.int64)


def _width(outputs: int) -> int:
    """The length of a row of weights."""
    return -(-outputs // LANES) * LANES


def _room(parts: int, x: Any) -> tuple[Any, Any, Any]:
    """Memory to find events in, for each part."""
    pixels = math.prod(x.shape[2:])
    words = -(-pixels // 8) * 8
    return (
        empty((parts, words), np.dtype(np.uint8)),
        empty((parts, words + 8), np.dtype(np.int32)),
        empty((parts, words + 8), x.dtype),
    )


_HEAD = """\
from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.elements import flat, row, tail
from snncell.kernels.cpu.rows import find_events
from snncell.kernels.cpu.tiles import add_rows
from snncell.kernels.cpu.vectors import zero


"""


@functools.cache
def _kernel(name: str, dtype: Any) -> Any:
    """One of the kernels of `cpu/conv_events.py`, compiled for arrays of `dtype`."""
    line, to_line, rows, to_rows = (dtype, 1, False), (dtype, 1, True), (dtype, 2, False), (dtype, 2, True)
    numbers = (dtypes.int64, 1, False)
    room = ((dtypes.uint8, 2, True), (dtypes.int32, 2, True), to_rows)
    signature = {
        "weights_as_rows": (line, to_rows, numbers),
        "scatter": (dtypes.int64, line, rows, *[numbers] * 4, to_line, to_rows, *room, numbers),
        "gather": (dtypes.int64, line, line, *[numbers] * 4, to_rows, to_rows, *room, numbers),
        "weights_from_rows": (rows, to_line, numbers),
    }[name]
    return build(name, _HEAD + source_of(getattr(conv_events, name)), signature)
