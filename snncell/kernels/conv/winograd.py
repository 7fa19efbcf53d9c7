"""Winograd convolutions: fewer multiplications, and a cost model for the sizes where they are faster.

An image is cut into input tiles, one for each 2x2 block of results. The tiles overlap if the window is larger than the
stride. `transforms.py` transforms each tile to its *points*, the numbers that are multiplied. For example, a tile of a
3x3 window has 16 points. A convolution then becomes one matrix product per point: weights (outputs, channels) times
tiles (channels, tiles). The weight gradient is also one product per point: the gradient of the results (outputs, tiles)
times tiles (tiles, channels). A kernel processes as many tiles together, also of several images, as fit into the cache.
The weight gradient transforms the images again. To keep the points of the forward pass would take four times the memory
of the images for a 3x3 window, and writing and reading them takes longer than the second transform.

As in `direct.py`, a kernel runs its units from `start` to `stop`. If it takes `grain`, its scratch memory has a row for
each part of `grain` units. Each result is one sum in a fixed order, so the bits do not depend on the number of threads.
Sums at the points have fewer terms than direct sums, so windows of three lose no precision. If a pixel is NaN or
infinite, all results of its tiles are NaN.
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
from snncell.kernels.intrinsics.elements import prefetch, row, tail, zero
from snncell.kernels.intrinsics.panels import add_products, multiply_rows
from snncell.kernels.numba.build import kernel_for, run_in_parts

# --- Kernels ----------------------------------------------------------------------------------------------------------

# Functions of `transforms.py`, which `_kernel` generates for the tiling of a kernel.
points_of_weights: Any = None
tiles_of_images: Any = None
tiles_of_slopes: Any = None
put_results: Any = None
weights_of_points: Any = None


def pack_points(start: Any, stop: Any, weights: Any, sources: Any, packed: Any, geometry: Any) -> None:
    """Pack transformed weights as `direct.pack_weights` does: interleave eight rows for each point and channel.

    The end of each row of `packed` is scratch memory for one window.
    """
    rows, apart, group, channels, taps, points = (
        geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5],
    )  # fmt: skip
    blocks = (rows + 7) // 8
    for unit in range(start, stop):
        own = row(packed, unit)
        window = tail(own, points * (channels * 8 + 16))
        first = unit // blocks * group + unit % blocks * 8 * apart
        present = least(8, rows - unit % blocks * 8)
        for c in range(channels):
            # In the backward pass, the weights of consecutive channels are far apart.
            ahead = first + sources[least(c + 8, channels - 1) * taps]
            for r in range(8):
                prefetch(tail(weights, ahead + r * apart))
            for k in range(taps):
                place = first + sources[c * taps + k]
                if present == 8:  # without a branch for each row
                    for r in range(8):
                        window[8 * k + r] = weights[place + r * apart]
                else:
                    for r in range(8):
                        window[8 * k + r] = weights[place + r * apart] if r < present else 0
            points_of_weights(tail(own, 8 * c), channels * 8 + 16, window, 8, 8)


def correlate_tiles(
    start: Any, stop: Any, grain: Any, x: Any, packed: Any, offsets: Any, out: Any, points: Any,
    sums: Any, planes: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute results from images and packed weights. A unit is a range of output channels, and of images or rows."""
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down, high = geometry[10], geometry[11], geometry[12], geometry[13], geometry[14]
    bands, band_rows, together, wide = geometry[15], geometry[16], geometry[17], geometry[18]
    splits, split_blocks, out_first, out_plane = geometry[19], geometry[20], geometry[21], geometry[22]
    out_down, near_blocks, shared = geometry[23], geometry[24], geometry[25]
    blocks, apart, sums_apart = (outputs + 7) // 8, channels * wide + 16, near_blocks * 8 * wide + 16
    tiles, total, plane = row(points, start // grain), row(sums, start // grain), row(planes, start // grain)
    filled = -1
    for unit in range(start, stop):
        split, number = unit % splits, unit // splits
        first_row, group = number % bands * band_rows, number // bands % groups
        first = number // bands // groups * together
        there, rows = least(together, images - first), least(band_rows, tile_rows - first_row)
        if number != filled:  # consecutive units have the same tiles
            tiles_of_images(
                tiles, apart, wide, tail(x, (first * groups + group) * channels * height * width), plane, there,
                groups * channels * height * width, channels, height, width, top + down * first_row, left, rows,
                columns, 0,
            )  # fmt: skip
            filled = number
        long = (there * rows * columns + 15) // 16 * 16
        last_block = least(blocks, (split + 1) * split_blocks)
        for low in range(split * split_blocks, last_block, near_blocks):  # their sums fit into the cache
            end = least(last_block, low + near_blocks)
            for p in range(count):
                for block in range(low, end):
                    own = tail(row(packed, group * blocks + block), p * (channels * 8 + 16))
                    target = tail(total, p * sums_apart + (block - low) * 8 * long)
                    pixels, present = tail(tiles, p * apart), least(8, outputs - 8 * block)
                    multiply_rows(target, long, long, own, present, pixels, tail(offsets, 0), channels, 0)
            for r in range(8 * low, least(outputs, 8 * end)):
                for n in range(0, there, shared):
                    place = out_first + (((first + n) * groups + group) * outputs + r) * out_plane
                    for i in range(0, rows, high):
                        line = 2 * (first_row + i)
                        put_results(
                            tail(out, place + line * out_down), out_down,
                            tail(total, (r - 8 * low) * long + (n * rows + i) * columns), sums_apart, out_width,
                            least(out_rows - line, 2 * (rows - i)), groups * outputs * out_plane, there - n,
                        )  # fmt: skip


def contract_tiles(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, offsets: Any, partial: Any, points: Any,
    slopes: Any, planes: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute the weight gradient at the points, from images and the result gradient.

    A unit is a range of images, of channels and of outputs. Its row of `partial` gets, for each point, the sums over
    its images, in register tiles of four outputs by four channels (`intrinsics/panels.py`).
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down = geometry[10], geometry[11], geometry[12], geometry[13]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    together, wide, bands, band_rows = geometry[20], geometry[21], geometry[22], geometry[23]
    apart, slopes_apart = split_channels * wide + 16, 4 * fours * wide + 16
    tiles, slope, plane = row(points, start // grain), row(slopes, start // grain), row(planes, start // grain)
    for unit in range(start, stop):
        own = row(partial, unit)
        split, number = unit % splits, unit // splits
        cut, number = number % cuts, number // cuts
        group, part = number % groups, number // groups
        first, first_output = split * split_channels, cut * fours * 4
        some, present = least(split_channels, channels - first), least(fours * 4, outputs - first_output)
        terms = (some + 3) // 4
        zero(own, count * (terms * fours * 16 + 16))
        begin, end = part * images // parts, (part + 1) * images // parts
        for step in range((end - begin + together - 1) // together * bands):
            first_image, first_row = begin + step // bands * together, step % bands * band_rows
            there, rows = least(together, end - first_image), least(band_rows, tile_rows - first_row)
            long = (there * rows * columns + 15) // 16 * 16  # padded with zeros to whole vectors
            member = first_image * groups + group
            tiles_of_images(
                tiles, apart, wide, tail(x, (member * channels + first) * height * width), plane, there,
                groups * channels * height * width, some, height, width, top + down * first_row, left, rows, columns,
                long,
            )  # fmt: skip
            tiles_of_slopes(
                slope, slopes_apart, wide, tail(gradient, (member * outputs + first_output) * out_rows * out_width),
                plane, there, groups * outputs * out_rows * out_width, present, out_rows, out_width, 2 * first_row, 0,
                rows, columns, long,
            )  # fmt: skip
            for p in range(count):
                target = tail(own, p * (terms * fours * 16 + 16))
                add_products(
                    target, tail(slope, p * slopes_apart), present, wide, tail(tiles, p * apart), tail(offsets, 0),
                    terms, long, 1, 0, 0,
                )  # fmt: skip


def weights_of_tiles(start: Any, stop: Any, partial: Any, scratch: Any, out: Any, geometry: Any) -> None:
    """Transform `partial` to the weight gradient, overwriting `partial` and `scratch`. A unit is four outputs."""
    groups, channels, outputs, count = geometry[1], geometry[2], geometry[5], geometry[10]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    taps, all_fours = geometry[24], (outputs + 3) // 4
    for unit in range(start, stop):
        group, first = unit // all_fours, unit % all_fours
        cut, r = first // fours, first % fours
        points = row(scratch, unit)
        for split in range(splits):
            some = least(split_channels, channels - split * split_channels)
            terms = (some + 3) // 4
            point = terms * fours * 16 + 16
            own = tail(row(partial, (group * cuts + cut) * splits + split), r * terms * 16)
            for part in range(1, parts):
                more = tail(row(partial, ((part * groups + group) * cuts + cut) * splits + split), r * terms * 16)
                for p in range(count):
                    total, term = tail(own, p * point), tail(more, p * point)
                    for k in range(16 * terms):
                        total[k] = total[k] + term[k]
            for k in range(terms):
                weights_of_points(points, 16, tail(own, 16 * k), point, 16)
                for c in range(least(4, some - 4 * k)):
                    for n in range(least(4, outputs - 4 * first)):
                        pair = (group * outputs + 4 * first + n) * channels + split * split_channels + 4 * k + c
                        for tap in range(taps):
                            out[pair * taps + tap] = points[16 * tap + 4 * c + n]


Ints = tuple[int, ...]

UNITS = 8  # enough units to balance the load of threads
CACHED = 1 << 17  # elements of images and results at all points that fit into the L2 cache together
TILES = 48  # the minimum number of tiles that are processed together, so that each loaded weight is used often
NEAR = 1 << 16  # elements of results at all points that fit into the L2 cache in addition to the images
LONG_SUMS = 256  # the minimum number of tiles whose products are summed in registers before the lanes are reduced
MOST_PARTIAL = 1 << 20  # the maximum number of elements of the sums over parts of the images
LONGEST_STEP = 2  # the largest stride, and the largest step of results
LEAST_CHANNELS = 8  # the minimum number of channels and of outputs
# The cost model, in cycles fitted to measured times. MULTIPLIED is per multiplication, and PACKED per point of a
# transformed weight. TRANSFORMED is per term of the sum that computes one point for eight tiles. The number of terms is
# the sum of `_mean_terms` over both axes.
MULTIPLIED, TRANSFORMED, PACKED = 1.15 / LANES, 0.45, 0.4
BATCH = 16  # an assumed number of images that share the transform of the weights
GAIN = 0.98  # a margin, because direct sums of small images, or with strides, take longer than the model says


def _points(shape: Shape) -> int:
    return math.prod(points(len(axis.places), axis.stride) for axis in shape.axes)


def _tiles(shape: Shape) -> Ints:
    """The number of rows of tiles per image, and of tiles per row."""
    return tuple(-(-axis.results // 2) for axis in shape.axes)


def _tiling(shape: Shape, dtype: Any) -> Tiling:
    """The tiling of a convolution; short rows of tiles, and small images, are combined until they fill a vector."""
    down, across = shape.axes
    wide = WIDE // dtype.itemsize
    rows, columns = _tiles(shape)
    window = len(down.places), len(across.places)
    together = 1 if wide % columns else wide // columns
    images = together // rows if together % rows == 0 else 1
    return Tiling(window, (down.stride, across.stride), across.step, together // max(1, images), max(1, images))


def _work(shape: Shape) -> int:
    pairs = shape.images * shape.groups * shape.channels * shape.outputs
    return pairs * _points(shape) * math.prod(_tiles(shape))


def _sizes(shape: Shape, tiling: Tiling) -> list[int]:
    down, across = shape.axes
    return [
        *(shape.images, shape.groups, shape.channels, down.length, across.length),
        *(shape.outputs, down.results, across.results, *_tiles(shape), _points(shape)),
        *(*(min(axis.places) for axis in shape.axes), 2 * down.stride, tiling.rows),
    ]


@functools.lru_cache(maxsize=512)
def pays(shape: Shape) -> bool:
    """True if a Winograd convolution is faster than a direct one.

    The decision does not depend on the number of images, so that an image has the same bits in any batch.
    """
    if min(shape.channels, shape.outputs) < LEAST_CHANNELS or not takes(shape):
        return False
    terms = shape.channels * 8 * -(-shape.outputs // 8) * math.prod(shape.window)
    return bool(terms * math.prod(axis.results for axis in shape.axes) * MULTIPLIED > GAIN * cycles(shape))


def cycles(shape: Shape) -> float:
    """Estimate the cycles per image and group."""
    (rows, columns), at = _tiles(shape), _points(shape)
    pairs = shape.channels * 8 * -(-shape.outputs // 8)
    high = 1 if 8 % columns else 8 // columns
    per_image = rows / high if high % rows == 0 else -(-rows // high)  # vectors of small images are shared
    vectors = (shape.channels + shape.outputs) * per_image * -(-columns // 8)
    transforms = TRANSFORMED * sum(map(_mean_terms, shape.axes)) * at * vectors
    return pairs * at * (rows * columns * MULTIPLIED + PACKED / BATCH) + transforms


def _mean_terms(axis: Axis) -> float:
    """The average number of a tile's elements, along an axis, that contribute to a point."""
    window = len(axis.places)
    counts = [len(range(first, window, axis.stride)) + 1 for first in range(min(axis.stride, window))]
    return sum(n * n for n in counts) / sum(counts)


def takes(shape: Shape) -> bool:
    """True for two axes, no dilation, and windows and strides with transforms: for example, 3x3 with stride 1 or 2."""
    return all(
        max(axis.places) - min(axis.places) + 1 == len(axis.places) <= LONGEST
        and max(axis.stride, axis.step) <= LONGEST_STEP
        for axis in shape.axes
    )


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape, tiling: Tiling, out_plane: Ints) -> ConvolutionPlan:
    (rows, columns), blocks = _tiles(shape), -(-shape.outputs // 8)
    wanted = CACHED // ((shape.channels + shape.outputs) * _points(shape))
    wanted = max(TILES, min(wanted, shape.images * shape.groups * rows * columns // UNITS))
    band_rows = rows if tiling.images > 1 else max(1, min(rows, wanted // columns))
    bands = -(-rows // band_rows)
    least_images = max(1, wanted // (rows * columns))
    # Up to two images more if their tiles fill vectors better.
    several = range(least_images, least_images + 3)
    together = min(several, key=lambda n: -(-n * rows * columns // LANES) / n)
    together = 1 if bands > 1 else min(shape.images, together)
    members = -(-shape.images // together) * bands * shape.groups
    split_blocks = -(-blocks // max(1, min(blocks, UNITS // members)))
    splits = -(-blocks // split_blocks)
    wide = -(-together * band_rows * columns // LANES) * LANES
    near_blocks = max(1, min(split_blocks, NEAR // (_points(shape) * 8 * wide)))
    height, width = out_plane
    down, across = shape.axes
    geometry = [
        *(*_sizes(shape, tiling), bands, band_rows, together, wide, splits, split_blocks),
        *(down.first * width + across.first, height * width, down.step * width, near_blocks, tiling.images),
    ]
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        np.arange(shape.channels) * wide,
        None,
        members * splits,
        shape.groups * blocks,
        (_points(shape) * (shape.channels * wide + LANES), _points(shape) * (near_blocks * 8 * wide + LANES)),
        _work(shape),
    )


def correlate(x: Any, weights: Any, layout: Ints, sources: Any, out: Any, shape: Shape) -> None:
    """Compute results into `out`; the arguments are those of `direct._correlate`."""
    dtype = weights.dtype
    tiling, window = _tiling(shape, dtype), shape.window
    plan = _plan(shape, tiling, out.shape[2:])
    taps = math.prod(window)
    # The transforms need the weights of a window in ascending order of their places.
    orders = [np.argsort(axis.places) for axis in shape.axes]
    order = (orders[0][:, None] * window[1] + orders[1]).reshape(-1)
    sources = np.ascontiguousarray(sources.reshape(-1, taps)[:, order]).reshape(-1)
    packed = empty((plan.blocks, _points(shape) * (shape.channels * 8 + LANES) + taps * 8), dtype)
    geometry = np.array([shape.outputs, *layout, shape.channels, taps, _points(shape)], np.int64)
    pack = _kernel(pack_points, tiling, dtype)
    pack(plan.blocks, int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    operands = flat(x), packed, plan.offsets, out.reshape(-1)
    kernel = _kernel(correlate_tiles, tiling, dtype, x.dtype)
    run_in_parts(kernel, plan.units, plan.work, operands, plan.memory(x, dtype, tiling.images), plan.geometry)


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape, tiling: Tiling) -> ConvolutionPlan:
    (rows, columns), all_fours = _tiles(shape), -(-shape.outputs // 4)
    images, groups, channels = shape.images, shape.groups, shape.channels
    most = MOST_PARTIAL // max(1, groups * channels * _points(shape) * shape.outputs)
    parts = max(1, min(images, -(-UNITS // groups), most, images * rows * columns // LONG_SUMS))
    # Memory for partial sums limits the number of parts. If these are too few units, split the channels or the outputs
    # too, although some tiles are then transformed several times.
    wanted = -(-UNITS // (parts * groups))
    pairs = [(n, -(-wanted // n)) for n in range(1, wanted + 1)]
    splits, cuts = min(pairs, key=lambda pair: pair[1] * channels + pair[0] * shape.outputs)
    split_channels, fours = -(-channels // min(splits, -(-channels // 8))), -(-all_fours // cuts)
    splits, cuts = -(-channels // split_channels), -(-all_fours // fours)
    band_rows = rows if tiling.images > 1 else max(1, min(rows, -(-LONG_SUMS // columns)))
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
        # Channels are processed four at a time; the last four are padded by repeating the first channels.
        np.array([c % split_channels * wide for c in range(4 * terms)], np.int64),
        None,
        parts * groups * cuts * splits,
        groups * all_fours,
        (_points(shape) * (split_channels * wide + LANES), _points(shape) * (4 * fours * wide + LANES)),
        _work(shape),
        _points(shape) * (terms * fours * 16 + 16),
    )


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Compute the gradient of weights into `out`: see `direct.convolve_weight`."""
    dtype = dout.dtype
    tiling = _tiling(shape, dtype)
    plan = _weight_plan(shape, tiling)
    partial = empty((plan.units, plan.partial), dtype)
    operands, kernel = (flat(x), flat(dout), plan.offsets, partial), _kernel(contract_tiles, tiling, dtype, x.dtype)
    run_in_parts(kernel, plan.units, plan.work, operands, plan.memory(x, dtype, tiling.images), plan.geometry)
    at_points = empty((plan.blocks, 16 * math.prod(shape.window)), dtype)
    add = _kernel(weights_of_tiles, tiling, dtype)
    add(plan.blocks, int(partial.size > 1 << 18), partial, at_points, out.reshape(-1), plan.geometry)


# The signature of each kernel, and the functions that are generated for its tiling.
_KERNELS: dict[Any, tuple[str, dict[str, Any]]] = {
    pack_points: ("T[1] int64[1] T[2]* int64[1]", {"points_of_weights": transforms.of_weights}),
    correlate_tiles: (
        "int64 S[1] T[2] int64[1] T[1]* T[2]* T[2]* T[2]* int64[1]",
        {"tiles_of_images": transforms.of_images, "put_results": transforms.put_results},
    ),
    contract_tiles: (
        "int64 S[1] T[1] int64[1] T[2]* T[2]* T[2]* T[2]* int64[1]",
        {"tiles_of_images": transforms.of_images, "tiles_of_slopes": transforms.of_slopes},
    ),
    weights_of_tiles: ("T[2]* T[2]* T[1]* int64[1]", {"weights_of_points": transforms.to_weights}),
}


@functools.cache
def _kernel(function: Any, tiling: Tiling, *named: Any) -> Any:
    kinds, made = _KERNELS[function]
    return kernel_for(function, kinds, *named, **{name: functools.partial(make, tiling) for name, make in made.items()})
