"""Convolutions with fewer multiplications: where that pays, and how `cpu/winograd.py` is told what to do.

Sums at the points are of fewer terms than those of a plain convolution, so with windows of three there is no loss of
precision. A tile that has a pixel of NaN or infinity is NaN as a whole.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import transforms, winograd
from snncell.kernels.planes import LANES, Axis, Shape, flat
from snncell.kernels.sharing import parts_of
from snncell.kernels.toom_cook import LONGEST, WIDE, Tiling, points

Ints = tuple[int, ...]

UNITS = 8  # that threads can share well, if there is work for so many
CACHED = 1 << 17  # elements at all points, of images and results together: they go through the second-level cache
TILES = 48, 96  # at a time, so that weights are not fetched for a few of them only: at least, and if that leaves UNITS
LONG_SUMS = 256  # tiles at least whose products are added up in registers, before the lanes of the sums are
MOST_PARTIAL = 1 << 20  # elements of sums over parts of the images
LONGEST_STEP = 2  # of images and of results
LEAST_CHANNELS = 8  # of images and of results
# Cycles, fitted to times: of a product in a vector; of a point of eight tiles, for each element along both axes of a
# tile, to it or from it; of a point of a weight.
MULTIPLIED, TRANSFORMED, PACKED = 1.15 / LANES, 0.64, 0.4
BATCH = 16  # images that share the transform of the weights
GAIN = 0.98  # by the estimates: of small images, and with strides, sums take longer than theirs


def _points(shape: Shape) -> int:
    """The number of multiplications for a tile."""
    return math.prod(points(len(axis.places), axis.stride) for axis in shape.axes)


def _tiles(shape: Shape) -> Ints:
    """Rows of tiles of an image, and tiles of a row."""
    return tuple(-(-axis.results // 2) for axis in shape.axes)


def _tiling(shape: Shape, dtype: Any) -> Tiling:
    """The tiles of a convolution: as many rows of them together as fill a vector, if they do."""
    down, across = shape.axes
    wide = WIDE // dtype.itemsize
    columns = _tiles(shape)[1]
    window = len(down.places), len(across.places)
    return Tiling(window, (down.stride, across.stride), across.step, 1 if wide % columns else wide // columns)


def _work(shape: Shape) -> int:
    """The number of multiplications at the points."""
    pairs = shape.images * shape.groups * shape.channels * shape.outputs
    return pairs * _points(shape) * math.prod(_tiles(shape))


def _sizes(shape: Shape, tiling: Tiling) -> list[int]:
    """The numbers that both plans begin with: see `correlate_tiles`."""
    down, across = shape.axes
    return [
        *(shape.images, shape.groups, shape.channels, down.length, across.length),
        *(shape.outputs, down.results, across.results, *_tiles(shape), _points(shape)),
        *(*(min(axis.places) for axis in shape.axes), 2 * down.stride, tiling.rows),
    ]


@functools.lru_cache(maxsize=512)
def pays(shape: Shape) -> bool:
    """True if a convolution takes less time by tiles than as a sum over shifted images.

    It does not depend on the number of images: the results of one have the same bits, whatever is in its batch.
    """
    if min(shape.channels, shape.outputs) < LEAST_CHANNELS or not takes(shape):
        return False
    terms = shape.channels * 8 * -(-shape.outputs // 8) * math.prod(shape.window)
    return bool(terms * math.prod(axis.results for axis in shape.axes) * MULTIPLIED > GAIN * cycles(shape))


def cycles(shape: Shape) -> float:
    """An estimate of what an image takes, of each group."""
    (rows, columns), at = _tiles(shape), _points(shape)
    pairs = shape.channels * 8 * -(-shape.outputs // 8)
    high = 1 if 8 % columns else 8 // columns
    vectors = (shape.channels + shape.outputs) * -(-rows // high) * -(-columns // 8)
    transforms = TRANSFORMED * sum(map(_mean_terms, shape.axes)) * at * vectors
    return pairs * at * (rows * columns * MULTIPLIED + PACKED / BATCH) + transforms


def _mean_terms(axis: Axis) -> float:
    """The elements, along an axis, of a tile that go to a point, on average."""
    window = len(axis.places)
    counts = [len(range(first, window, axis.stride)) + 1 for first in range(min(axis.stride, window))]
    return sum(n * n for n in counts) / sum(counts)


def takes(shape: Shape) -> bool:
    """True for convolutions of two axes, without dilation, with windows and strides that there are transforms for."""
    return all(
        max(axis.places) - min(axis.places) + 1 == len(axis.places) <= LONGEST
        and max(axis.stride, axis.step) <= LONGEST_STEP
        for axis in shape.axes
    )


class WinogradPlan(NamedTuple):
    """A correlation: the numbers that its kernel takes, and how much room it needs."""

    geometry: Any
    offsets: Any
    units: int
    points: int
    sums: int


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape, tiling: Tiling, out_plane: Ints) -> WinogradPlan:
    (rows, columns), blocks = _tiles(shape), -(-shape.outputs // 8)
    wanted = max(TILES[1], CACHED // ((shape.channels + shape.outputs) * _points(shape)))
    wanted = min(wanted, max(TILES[0], shape.images * shape.groups * rows * columns // UNITS))
    band_rows = max(1, min(rows, wanted // columns))
    bands = -(-rows // band_rows)
    together = 1 if bands > 1 else max(1, min(shape.images, wanted // (rows * columns)))
    members = -(-shape.images // together) * bands * shape.groups
    split_blocks = -(-blocks // max(1, min(blocks, UNITS // members)))
    splits = -(-blocks // split_blocks)
    wide = -(-together * band_rows * columns // LANES) * LANES
    height, width = out_plane
    down, across = shape.axes
    geometry = [
        *(*_sizes(shape, tiling), bands, band_rows, together, wide, splits, split_blocks),
        *(down.first * width + across.first, height * width, down.step * width),
    ]
    return WinogradPlan(
        np.array(geometry, np.int64),
        np.arange(shape.channels) * wide,
        members * splits,
        _points(shape) * (shape.channels * wide + LANES),
        _points(shape) * (split_blocks * 8 * wide + LANES),
    )


def correlate(x: Any, weights: Any, layout: Ints, sources: Any, out: Any, shape: Shape) -> None:
    """`convolution._correlate`."""
    tiling, window = _tiling(shape, x.dtype), shape.window
    plan = _plan(shape, tiling, out.shape[2:])
    kind = dtypes.BY_NUMPY[x.dtype]
    taps, rows = math.prod(window), shape.groups * -(-shape.outputs // 8)
    # The weights of a window in the order of their places.
    orders = [np.argsort(axis.places) for axis in shape.axes]
    order = (orders[0][:, None] * window[1] + orders[1]).reshape(-1)
    sources = np.ascontiguousarray(sources.reshape(-1, taps)[:, order]).reshape(-1)
    packed = empty((rows, _points(shape) * shape.channels * 8 + taps * 8), x.dtype)
    geometry = np.array([shape.outputs, *layout, shape.channels, taps, _points(shape)], np.int64)
    _kernel("pack_points", tiling, kind)(rows, int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    grain, parts = parts_of(plan.units, _work(shape))
    rooms = [empty((parts, size), x.dtype) for size in (plan.points, plan.sums)]
    _kernel("correlate_tiles", tiling, kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(x), packed, plan.offsets, out.reshape(-1),
        *rooms, plan.geometry,
    )  # fmt: skip


class WinogradWeightPlan(NamedTuple):
    """A gradient of weights: the numbers that its kernels take, and how much room they need."""

    geometry: Any
    offsets: Any
    units: int
    blocks: int
    partial: int
    points: int
    slopes: int


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape, tiling: Tiling) -> WinogradWeightPlan:
    (rows, columns), all_fours = _tiles(shape), -(-shape.outputs // 4)
    images, groups, channels = shape.images, shape.groups, shape.channels
    most = MOST_PARTIAL // max(1, groups * channels * _points(shape) * shape.outputs)
    parts = max(1, min(images, -(-UNITS // groups), most))
    # Where the sums are many, parts of the channels and of the outputs: each has the tiles of all others made again.
    wanted = -(-UNITS // (parts * groups))
    pairs = [(n, -(-wanted // n)) for n in range(1, wanted + 1)]
    splits, cuts = min(pairs, key=lambda pair: pair[1] * channels + pair[0] * shape.outputs)
    split_channels, fours = -(-channels // min(splits, -(-channels // 8))), -(-all_fours // cuts)
    splits, cuts = -(-channels // split_channels), -(-all_fours // fours)
    band_rows = max(1, min(rows, -(-LONG_SUMS // columns)))
    bands = -(-rows // band_rows)
    together = 1 if bands > 1 else max(1, min(-(-images // parts), -(-LONG_SUMS // (rows * columns))))
    wide = -(-together * band_rows * columns // LANES) * LANES
    geometry = [
        *(*_sizes(shape, tiling), parts, splits, split_channels, cuts, fours),
        *(together, wide, bands, band_rows, math.prod(shape.window)),
    ]
    terms = -(-split_channels // 4)
    return WinogradWeightPlan(
        np.array(geometry, np.int64),
        # The channels are gone through four at a time; those behind the last are again the first.
        np.array([c % split_channels * wide for c in range(4 * terms)], np.int64),
        parts * groups * cuts * splits,
        groups * all_fours,
        _points(shape) * terms * fours * 16,
        _points(shape) * (split_channels * wide + LANES),
        _points(shape) * (4 * fours * wide + LANES),
    )


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Put the gradient of weights into `out`: see `convolution.convolve_weight`."""
    tiling = _tiling(shape, x.dtype)
    plan = _weight_plan(shape, tiling)
    kind = dtypes.BY_NUMPY[x.dtype]
    grain, parts = parts_of(plan.units, _work(shape))
    partial = empty((plan.units, plan.partial), x.dtype)
    rooms = [empty((parts, size), x.dtype) for size in (plan.points, plan.slopes)]
    _kernel("contract_tiles", tiling, kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(x), flat(dout), plan.offsets, partial, *rooms,
        plan.geometry,
    )  # fmt: skip
    room = empty((plan.blocks, 16 * math.prod(shape.window)), x.dtype)
    _kernel("weights_of_tiles", tiling, kind)(
        plan.blocks, int(partial.size > 1 << 18), partial, room, out.reshape(-1), plan.geometry
    )


_TRANSFORMS = {
    "pack_points": {"points_of_weights": transforms.of_weights},
    "correlate_tiles": {"tiles_of_images": transforms.of_images, "put_results": transforms.put_results},
    "contract_tiles": {"tiles_of_images": transforms.of_images, "tiles_of_slopes": transforms.of_slopes},
    "weights_of_tiles": {"weights_of_points": transforms.to_weights},
}


@functools.cache
def _kernel(name: str, tiling: Tiling, dtype: Any) -> Any:
    """One of the kernels of `cpu/winograd.py`, compiled for such tiles and arrays of `dtype`."""
    flat, to_flat, rows, to_rows = (dtype, 1, False), (dtype, 1, True), (dtype, 2, False), (dtype, 2, True)
    numbers = (dtypes.int64, 1, False)
    signature = {
        "pack_points": (flat, numbers, to_rows, numbers),
        "correlate_tiles": (dtypes.int64, flat, rows, numbers, to_flat, to_rows, to_rows, numbers),
        "contract_tiles": (dtypes.int64, flat, flat, numbers, to_rows, to_rows, to_rows, numbers),
        "weights_of_tiles": (to_rows, to_rows, to_flat, numbers),
    }[name]
    own = {called: functools.partial(made, tiling) for called, made in _TRANSFORMS[name].items()}
    return build(name, source_of(getattr(winograd, name), **own), signature)
