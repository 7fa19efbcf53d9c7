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
from snncell.kernels.cpu import winograd
from snncell.kernels.planes import LANES, Axes, flat
from snncell.kernels.sharing import parts_of
from snncell.kernels.toom_cook import LONGEST

Ints = tuple[int, ...]

UNITS = 8  # that threads can share well, if there is work for so many
CACHED = 1 << 17  # elements at all points, of images and results together: they go through the second-level cache
TILES = 48, 96  # at a time, so that weights are not fetched for a few of them only: at least, and if that leaves UNITS
LONG_SUMS = 256  # tiles whose products are added up in registers, before the lanes of the sums are
MOST_PARTIAL = 1 << 20  # elements of sums over parts of the images
LEAST_CHANNELS = 8  # of images and of results
TRANSFORM_CYCLES = 4  # for each point of eight tiles, from the image to the tile or from the tile to the results
WEIGHT_CYCLES = 3  # for each point of eight weights
BATCH = 16  # images that share the transform of the weights
GAIN = 1.2  # from which on estimates are trusted


class Shape(NamedTuple):
    """A convolution of stride 1: its sizes, and its window by the places of its elements."""

    images: int
    groups: int
    channels: int
    outputs: int
    axes: Axes

    @property
    def window(self) -> Ints:
        """The number of its elements along each axis."""
        return tuple(len(axis.places) for axis in self.axes)

    @property
    def points(self) -> int:
        """The number of multiplications for a tile."""
        return math.prod(n + 1 for n in self.window)

    @property
    def tiles(self) -> Ints:
        """Rows of tiles of an image, and tiles of a row."""
        return tuple(-(-axis.results // 2) for axis in self.axes)

    @property
    def work(self) -> int:
        """The number of multiplications at the points."""
        return self.images * self.groups * self.channels * self.outputs * self.points * math.prod(self.tiles)

    def sizes(self) -> list[int]:
        """The numbers that both plans begin with: see `correlate_tiles`."""
        down, across = self.axes
        return [
            *(self.images, self.groups, self.channels, down.length, across.length),
            *(self.outputs, down.results, across.results, *self.tiles, self.points),
            *(min(axis.places) for axis in self.axes),
        ]


@functools.lru_cache(maxsize=512)
def pays(shape: Shape) -> bool:
    """True if a convolution takes less time by tiles than as a sum over shifted images.

    It does not depend on the number of images: the results of one have the same bits, whatever is in its batch.
    """
    if min(shape.channels, shape.outputs) < LEAST_CHANNELS or not takes(shape):
        return False
    (rows, columns), eights = shape.tiles, -(-shape.outputs // 8)
    pairs = shape.channels * 8 * eights
    plain = pairs * math.prod(shape.window) * math.prod(axis.results for axis in shape.axes) / LANES
    transforms = TRANSFORM_CYCLES * (shape.channels + shape.outputs) * rows * -(-columns // 8) * shape.points
    weights = WEIGHT_CYCLES * shape.channels * eights * shape.points / BATCH
    return bool(plain > GAIN * (pairs * shape.points * rows * columns / LANES + transforms + weights))


def takes(shape: Shape) -> bool:
    """True for convolutions of two axes, without strides and dilation, with windows that there are transforms for."""
    return all(
        max(axis.places) - min(axis.places) + 1 == len(axis.places) <= LONGEST
        and axis.stride == axis.step == 1
        and axis.first == 0
        for axis in shape.axes
    )


class Plan(NamedTuple):
    """A correlation: the numbers that its kernel takes, and how much room it needs."""

    geometry: Any
    offsets: Any
    units: int
    points: int
    sums: int


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape) -> Plan:
    (rows, columns), blocks = shape.tiles, -(-shape.outputs // 8)
    wanted = max(TILES[1], CACHED // ((shape.channels + shape.outputs) * shape.points))
    wanted = min(wanted, max(TILES[0], shape.images * shape.groups * rows * columns // UNITS))
    band_rows = max(1, min(rows, wanted // columns))
    bands = -(-rows // band_rows)
    together = 1 if bands > 1 else max(1, min(shape.images, wanted // (rows * columns)))
    members = -(-shape.images // together) * bands * shape.groups
    split_blocks = -(-blocks // max(1, min(blocks, UNITS // members)))
    splits = -(-blocks // split_blocks)
    wide = -(-together * band_rows * columns // LANES) * LANES
    geometry = [*shape.sizes(), bands, band_rows, together, wide, splits, split_blocks]
    return Plan(
        np.array(geometry, np.int64),
        np.arange(shape.channels) * wide,
        members * splits,
        shape.points * (shape.channels * wide + LANES),
        shape.points * (split_blocks * 8 * wide + LANES),
    )


def correlate(x: Any, weights: Any, layout: Ints, sources: Any, out: Any, shape: Shape) -> None:
    """`convolution._correlate`."""
    plan, window = _plan(shape), shape.window
    kind = dtypes.BY_NUMPY[x.dtype]
    taps, rows = math.prod(window), shape.groups * -(-shape.outputs // 8)
    # The weights of a window in the order of their places.
    orders = [np.argsort(axis.places) for axis in shape.axes]
    order = (orders[0][:, None] * window[1] + orders[1]).reshape(-1)
    sources = np.ascontiguousarray(sources.reshape(-1, taps)[:, order]).reshape(-1)
    packed = empty((rows, shape.points * shape.channels * 8 + taps * 8), x.dtype)
    geometry = np.array([shape.outputs, *layout, shape.channels, taps, shape.points], np.int64)
    _kernel("pack_points", window, kind)(rows, int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    grain, parts = parts_of(plan.units, shape.work)
    rooms = [empty((parts, size), x.dtype) for size in (plan.points, plan.sums)]
    _kernel("correlate_tiles", window, kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(x), packed, plan.offsets, out.reshape(-1),
        *rooms, plan.geometry,
    )  # fmt: skip


class WeightPlan(NamedTuple):
    """A gradient of weights: the numbers that its kernels take, and how much room they need."""

    geometry: Any
    offsets: Any
    units: int
    blocks: int
    partial: int
    points: int
    slopes: int


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape) -> WeightPlan:
    (rows, columns), all_fours = shape.tiles, -(-shape.outputs // 4)
    images, groups, channels = shape.images, shape.groups, shape.channels
    most = MOST_PARTIAL // max(1, groups * channels * shape.points * shape.outputs)
    parts = max(1, min(images, -(-UNITS // groups), most))
    # Where the sums are many, parts of the channels and of the outputs: each has the tiles of all others made again.
    wanted = -(-UNITS // (parts * groups))
    pairs = [(n, -(-wanted // n)) for n in range(1, wanted + 1)]
    splits, cuts = min(pairs, key=lambda pair: pair[1] * channels + pair[0] * shape.outputs)
    split_channels, fours = -(-channels // min(splits, -(-channels // 8))), -(-all_fours // cuts)
    splits, cuts = -(-channels // split_channels), -(-all_fours // fours)
    together = max(1, min(-(-images // parts), -(-LONG_SUMS // (rows * columns))))
    wide = -(-together * rows * columns // LANES) * LANES
    geometry = [
        *(*shape.sizes(), parts, splits, split_channels, cuts, fours),
        *(together, wide, math.prod(shape.window)),
    ]
    terms = -(-split_channels // 4)
    return WeightPlan(
        np.array(geometry, np.int64),
        # The channels are gone through four at a time; those behind the last are again the first.
        np.array([c % split_channels * wide for c in range(4 * terms)], np.int64),
        parts * groups * cuts * splits,
        groups * all_fours,
        shape.points * terms * fours * 16,
        shape.points * (split_channels * wide + LANES),
        shape.points * (4 * fours * wide + LANES),
    )


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Put the gradient of weights into `out`: see `convolution.convolve_weight`."""
    plan, window = _weight_plan(shape), shape.window
    kind = dtypes.BY_NUMPY[x.dtype]
    grain, parts = parts_of(plan.units, shape.work)
    partial = empty((plan.units, plan.partial), x.dtype)
    rooms = [empty((parts, size), x.dtype) for size in (plan.points, plan.slopes)]
    _kernel("contract_tiles", window, kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(x), flat(dout), plan.offsets, partial, *rooms,
        plan.geometry,
    )  # fmt: skip
    room = empty((plan.blocks, 16 * math.prod(window)), x.dtype)
    _kernel("weights_of_tiles", window, kind)(
        plan.blocks, int(partial.size > 1 << 18), partial, room, out.reshape(-1), plan.geometry
    )


_HEAD = """\
from snncell.kernels.cpu import transforms
from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.copies import zero
from snncell.kernels.cpu.elements import row, tail
from snncell.kernels.cpu.tiles import add_products, multiply_rows

"""
_TRANSFORMS = {
    "pack_points": {"points_of_weights": "of_weights"},
    "correlate_tiles": {"tiles_of_images": "of_images", "put_results": "put_results"},
    "contract_tiles": {"tiles_of_images": "of_images", "tiles_of_slopes": "of_slopes"},
    "weights_of_tiles": {"weights_of_points": "to_weights"},
}


@functools.cache
def _kernel(name: str, window: Ints, dtype: Any) -> Any:
    """One of the kernels of `cpu/winograd.py`, compiled for a window and arrays of `dtype`."""
    flat, to_flat, rows, to_rows = (dtype, 1, False), (dtype, 1, True), (dtype, 2, False), (dtype, 2, True)
    numbers = (dtypes.int64, 1, False)
    signature = {
        "pack_points": (flat, numbers, to_rows, numbers),
        "correlate_tiles": (dtypes.int64, flat, rows, numbers, to_flat, to_rows, to_rows, numbers),
        "contract_tiles": (dtypes.int64, flat, flat, numbers, to_rows, to_rows, to_rows, numbers),
        "weights_of_tiles": (to_rows, to_rows, to_flat, numbers),
    }[name]
    own = "".join(f"{called} = transforms.{made}{window}\n" for called, made in _TRANSFORMS[name].items())
    return build(name, f"{_HEAD}{own}\n\n{source_of(getattr(winograd, name))}", signature)
