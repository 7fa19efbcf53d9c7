"""Winograd convolutions: fewer multiplications, and a rule for the sizes where they are faster.

An image is cut into tiles of 2x2 results, which overlap where the window reaches beyond them, and each is transformed
to as many points as it has elements (`transforms.py`). At each point there is then a product of matrices: of weights
(outputs, channels) by tiles (channels, tiles) for results, or of a gradient (outputs, tiles) by tiles for the gradient
of weights. The tiles of some images follow each other without a gap, few enough for the cache.

A kernel carries out the units of its work from `start` up to `stop`. Each result is one sum in a fixed order, for any
number of threads; where a kernel takes `grain`, its memory has a row for each part of `grain` units. Sums at the points
have fewer terms than those of a direct convolution, so windows of three lose no precision. A tile that has a pixel of
NaN or infinity is NaN as a whole.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.conv import transforms
from snncell.kernels.conv.planes import LANES, Axis, ConvolutionPlan, Shape, flat
from snncell.kernels.conv.transforms import LONGEST, WIDE, Tiling, points
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row, tail, zero
from snncell.kernels.intrinsics.panels import add_products, multiply_rows
from snncell.kernels.numba.build import kernel_for, run_in_parts

# --- Kernels ----------------------------------------------------------------------------------------------------------

# Functions of `transforms.py`, made for the tiles of a kernel when it is built.
points_of_weights: Any = None
tiles_of_images: Any = None
tiles_of_slopes: Any = None
put_results: Any = None
weights_of_points: Any = None


def pack_points(start: Any, stop: Any, weights: Any, sources: Any, packed: Any, geometry: Any) -> None:
    """As `direct.pack_weights`, of weights at points: for each point, eight rows side by side for each channel.

    After them, a row of `packed` has room for one window.
    """
    rows, apart, group, channels, taps, points = (
        geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5],
    )  # fmt: skip
    blocks = (rows + 7) // 8
    for unit in range(start, stop):
        own = row(packed, unit)
        window = tail(own, points * channels * 8)
        first = unit // blocks * group + unit % blocks * 8 * apart
        present = least(8, rows - unit % blocks * 8)
        for c in range(channels):
            for k in range(taps):
                place = first + sources[c * taps + k]
                for r in range(8):
                    window[8 * k + r] = weights[place + r * apart] if r < present else 0
            points_of_weights(tail(own, 8 * c), 8 * channels, window, 8, 8)


def correlate_tiles(
    start: Any, stop: Any, grain: Any, x: Any, packed: Any, offsets: Any, out: Any, points: Any,
    sums: Any, geometry: Any,
) -> None:  # fmt: skip
    """Results from images and packed weights. A unit is some channels of the results of some images or rows."""
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down, high = geometry[10], geometry[11], geometry[12], geometry[13], geometry[14]
    bands, band_rows, together, wide = geometry[15], geometry[16], geometry[17], geometry[18]
    splits, split_blocks, out_first, out_plane = geometry[19], geometry[20], geometry[21], geometry[22]
    out_down = geometry[23]
    blocks, apart, sums_apart = (outputs + 7) // 8, channels * wide + 16, split_blocks * 8 * wide + 16
    tiles, total = row(points, start // grain), row(sums, start // grain)
    for unit in range(start, stop):
        split, number = unit % splits, unit // splits
        first_row, group = number % bands * band_rows, number // bands % groups
        first = number // bands // groups * together
        there, rows = least(together, images - first), least(band_rows, tile_rows - first_row)
        tiles_of_images(
            tiles, apart, wide, tail(x, (first * groups + group) * channels * height * width), there,
            groups * channels * height * width, channels, height, width, top + down * first_row, left, rows, columns, 0,
        )  # fmt: skip
        long = (there * rows * columns + 15) // 16 * 16
        first_block = split * split_blocks
        last_block = least(blocks, first_block + split_blocks)
        for p in range(count):
            for block in range(first_block, last_block):
                own = tail(row(packed, group * blocks + block), p * channels * 8)
                target = tail(total, p * sums_apart + (block - first_block) * 8 * long)
                present = least(8, outputs - 8 * block)
                multiply_rows(target, long, own, present, tail(tiles, p * apart), tail(offsets, 0), channels, 0)
        for r in range(8 * first_block, least(outputs, 8 * last_block)):
            for n in range(there):
                place = out_first + (((first + n) * groups + group) * outputs + r) * out_plane
                for i in range(0, rows, high):
                    line = 2 * (first_row + i)
                    put_results(
                        tail(out, place + line * out_down), out_down,
                        tail(total, (r - 8 * first_block) * long + (n * rows + i) * columns), sums_apart, out_width,
                        least(out_rows - line, 2 * (rows - i)),
                    )  # fmt: skip


def contract_tiles(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, offsets: Any, partial: Any, points: Any,
    slopes: Any, geometry: Any,
) -> None:  # fmt: skip
    """The gradient of weights at the points, from images and that of results. A unit is some images, channels, outputs.

    `partial` has a row for each unit: for each point, the sums over its images, for four outputs and four channels.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down = geometry[10], geometry[11], geometry[12], geometry[13]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    together, wide, bands, band_rows = geometry[20], geometry[21], geometry[22], geometry[23]
    apart, slopes_apart = split_channels * wide + 16, 4 * fours * wide + 16
    tiles, slope = row(points, start // grain), row(slopes, start // grain)
    for unit in range(start, stop):
        own = row(partial, unit)
        split, number = unit % splits, unit // splits
        cut, number = number % cuts, number // cuts
        group, part = number % groups, number // groups
        first, first_output = split * split_channels, cut * fours * 4
        some, present = least(split_channels, channels - first), least(fours * 4, outputs - first_output)
        terms = (some + 3) // 4
        zero(own, count * terms * fours * 16)
        begin, end = part * images // parts, (part + 1) * images // parts
        for step in range((end - begin + together - 1) // together * bands):
            first_image, first_row = begin + step // bands * together, step % bands * band_rows
            there, rows = least(together, end - first_image), least(band_rows, tile_rows - first_row)
            long = (there * rows * columns + 15) // 16 * 16  # what is behind the last tile is multiplied too
            member = first_image * groups + group
            tiles_of_images(
                tiles, apart, wide, tail(x, (member * channels + first) * height * width), there,
                groups * channels * height * width, some, height, width, top + down * first_row, left, rows, columns,
                long,
            )  # fmt: skip
            tiles_of_slopes(
                slope, slopes_apart, wide, tail(gradient, (member * outputs + first_output) * out_rows * out_width),
                there, groups * outputs * out_rows * out_width, present, out_rows, out_width, 2 * first_row, 0, rows,
                columns, long,
            )  # fmt: skip
            for p in range(count):
                target = tail(own, p * terms * fours * 16)
                add_products(
                    target, tail(slope, p * slopes_apart), present, wide, tail(tiles, p * apart), tail(offsets, 0),
                    terms, long,
                )  # fmt: skip


def weights_of_tiles(start: Any, stop: Any, partial: Any, rooms: Any, out: Any, geometry: Any) -> None:
    """The gradient of weights from `partial`, overwritten as `rooms` is. A unit is four outputs of a group."""
    groups, channels, outputs, count = geometry[1], geometry[2], geometry[5], geometry[10]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    taps, all_fours = geometry[24], (outputs + 3) // 4
    for unit in range(start, stop):
        group, first = unit // all_fours, unit % all_fours
        cut, r = first // fours, first % fours
        room = row(rooms, unit)
        for split in range(splits):
            some = least(split_channels, channels - split * split_channels)
            terms = (some + 3) // 4
            own = row(partial, (group * cuts + cut) * splits + split)
            for k in range(terms):
                place = (r * terms + k) * 16
                for part in range(1, parts):
                    more = row(partial, ((part * groups + group) * cuts + cut) * splits + split)
                    for p in range(count):
                        for lane in range(16):
                            there = p * terms * fours * 16 + place + lane
                            own[there] = own[there] + more[there]
                weights_of_points(room, 16, tail(own, place), terms * fours * 16, 16)
                for c in range(least(4, some - 4 * k)):
                    for n in range(least(4, outputs - 4 * first)):
                        pair = (group * outputs + 4 * first + n) * channels + split * split_channels + 4 * k + c
                        for tap in range(taps):
                            out[pair * taps + tap] = room[16 * tap + 4 * c + n]


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


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape, tiling: Tiling, out_plane: Ints) -> ConvolutionPlan:
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
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        np.arange(shape.channels) * wide,
        None,
        members * splits,
        shape.groups * blocks,
        (_points(shape) * (shape.channels * wide + LANES), _points(shape) * (split_blocks * 8 * wide + LANES)),
        _work(shape),
    )


def correlate(x: Any, weights: Any, layout: Ints, sources: Any, out: Any, shape: Shape) -> None:
    """See `direct._correlate`."""
    tiling, window = _tiling(shape, x.dtype), shape.window
    plan = _plan(shape, tiling, out.shape[2:])
    taps = math.prod(window)
    # The weights of a window in the order of their places.
    orders = [np.argsort(axis.places) for axis in shape.axes]
    order = (orders[0][:, None] * window[1] + orders[1]).reshape(-1)
    sources = np.ascontiguousarray(sources.reshape(-1, taps)[:, order]).reshape(-1)
    packed = empty((plan.blocks, _points(shape) * shape.channels * 8 + taps * 8), x.dtype)
    geometry = np.array([shape.outputs, *layout, shape.channels, taps, _points(shape)], np.int64)
    pack = _kernel(pack_points, tiling, x.dtype)
    pack(plan.blocks, int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    operands, rooms = (flat(x), packed, plan.offsets, out.reshape(-1)), [(size, x.dtype) for size in plan.rooms]
    run_in_parts(_kernel(correlate_tiles, tiling, x.dtype), plan.units, plan.work, operands, rooms, plan.geometry)


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape, tiling: Tiling) -> ConvolutionPlan:
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
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        # The channels are gone through four at a time; those after the last are again the first.
        np.array([c % split_channels * wide for c in range(4 * terms)], np.int64),
        None,
        parts * groups * cuts * splits,
        groups * all_fours,
        (_points(shape) * (split_channels * wide + LANES), _points(shape) * (4 * fours * wide + LANES)),
        _work(shape),
        _points(shape) * terms * fours * 16,
    )


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Put the gradient of weights into `out`: see `direct.convolve_weight`."""
    tiling = _tiling(shape, x.dtype)
    plan = _weight_plan(shape, tiling)
    partial = empty((plan.units, plan.partial), x.dtype)
    operands, rooms = (flat(x), flat(dout), plan.offsets, partial), [(size, x.dtype) for size in plan.rooms]
    run_in_parts(_kernel(contract_tiles, tiling, x.dtype), plan.units, plan.work, operands, rooms, plan.geometry)
    room = empty((plan.blocks, 16 * math.prod(shape.window)), x.dtype)
    add = _kernel(weights_of_tiles, tiling, x.dtype)
    add(plan.blocks, int(partial.size > 1 << 18), partial, room, out.reshape(-1), plan.geometry)


# Of each kernel the kinds of its arguments, and the functions that are made for its tiles.
_KERNELS: dict[Any, tuple[str, dict[str, Any]]] = {
    pack_points: ("T[1] int64[1] T[2]* int64[1]", {"points_of_weights": transforms.of_weights}),
    correlate_tiles: (
        "int64 T[1] T[2] int64[1] T[1]* T[2]* T[2]* int64[1]",
        {"tiles_of_images": transforms.of_images, "put_results": transforms.put_results},
    ),
    contract_tiles: (
        "int64 T[1] T[1] int64[1] T[2]* T[2]* T[2]* int64[1]",
        {"tiles_of_images": transforms.of_images, "tiles_of_slopes": transforms.of_slopes},
    ),
    weights_of_tiles: ("T[2]* T[2]* T[1]* int64[1]", {"weights_of_points": transforms.to_weights}),
}


@functools.cache
def _kernel(function: Any, tiling: Tiling, dtype: Any) -> Any:
    """One of the kernels, compiled for such tiles and arrays of `dtype`."""
    kinds, made = _KERNELS[function]
    return kernel_for(function, kinds, dtype, **{name: functools.partial(make, tiling) for name, make in made.items()})
