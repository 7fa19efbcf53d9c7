"""Winograd convolutions: fewer multiplications, and a cost model for the sizes where they are faster.

An image is cut into input tiles, one for each 2x2 block of results. The tiles overlap if the window is larger than the
stride. `transforms.py` transforms each tile to its *points*, the numbers that are multiplied. For example, a tile of a
3x3 window has 16 points. A convolution then becomes one matrix product per point: weights (outputs, channels) times
tiles (channels, tiles). The weight gradient is also one product per point: the gradient of the results (outputs, tiles)
times tiles (tiles, channels). A kernel processes as many tiles together as fit into the cache, also tiles of several
images. The weight gradient transforms the images again, because the points of the forward pass would take four times
the memory of the images for a 3x3 window, and longer to write and read than the second transform.

Vectors have channels in their lanes, so the transforms take the same time for all sizes of images and batches. Each
result is one sum in a fixed order, so the bits do not depend on the number of threads. Sums at the points have fewer
terms than direct sums, so windows of three lose no precision. If a pixel is NaN or infinite, all results of its tiles
are NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.conv import transforms
from snncell.kernels.conv.planes import LANES, Axis, ConvolutionPlan, Shape, WeightOrder, flat
from snncell.kernels.conv.tiles import SHORT_SUMS, contract_tiles, correlate_tiles, pack_points, weights_of_tiles
from snncell.kernels.conv.transforms import LONGEST, WIDE, Tiling, points
from snncell.kernels.intrinsics.panels import VECTORS_OF_TILE as PANEL
from snncell.kernels.numba.build import PARALLEL_WORK, kernel_for, run_in_parts

Ints = tuple[int, ...]

CHUNK = 8  # channels whose weights are packed together
UNITS = 8  # enough units to balance the load of threads
CACHED = 1 << 17  # elements of images and results at all points that fit into the L2 cache together
TILES = 48  # the minimum number of tiles that are processed together, so that each loaded weight is used often
NEAR = 1 << 16  # elements of results at all points that fit into the L2 cache in addition to the images
LONG_SUMS = 256  # the most tiles that the weight gradient transforms together
LEAST_TILES = 64  # the minimum number of tiles of a part of the images
MOST_PARTIAL = 1 << 20  # the maximum number of elements of the sums over parts of the images
LONGEST_STEP = 2  # the largest stride, and the largest step of results
LEAST_CHANNELS = 8  # the minimum number of channels and of outputs
# The cost model, in cycles fitted to measured times. SUMMED is per multiplication of a direct convolution, MULTIPLIED
# per multiplication at points, TRANSFORMED per point and vector of channels of a tile, PACKED per point of a weight.
SUMMED, MULTIPLIED, TRANSFORMED, PACKED = 1.15 / LANES, 1.05 / LANES, 2.7, 0.7
BATCH = 16  # an assumed number of images that share the transform of the weights


def _points(shape: Shape) -> int:
    return math.prod(points(len(axis.places), axis.stride) for axis in shape.axes)


def _tiles(shape: Shape) -> Ints:
    """The number of rows of tiles per image, and of tiles per row."""
    return tuple(-(-axis.results // 2) for axis in shape.axes)


def _tiling(shape: Shape) -> Tiling:
    down, across = shape.axes
    return Tiling((len(down.places), len(across.places)), (down.stride, across.stride), across.step)


def _work(shape: Shape) -> int:
    pairs = shape.images * shape.groups * shape.channels * shape.outputs
    return pairs * _points(shape) * math.prod(_tiles(shape))


def _sizes(shape: Shape) -> list[int]:
    """The first numbers of the geometry of both kernels."""
    down, across = shape.axes
    return [
        *(shape.images, shape.groups, shape.channels, down.length, across.length),
        *(shape.outputs, down.results, across.results, *_tiles(shape), _points(shape)),
        *(points(len(across.places), across.stride), min(down.places), 2 * down.stride, _pitch(across)),
    ]


def _pitch(axis: Axis) -> int:
    """The number of elements along an axis that its tiles read."""
    return 2 * axis.stride * (-(-axis.results // 2) - 1) + len(axis.places) + axis.stride


def _places(rows: int, width: int, left: int, pitch: int, missing: int) -> Any:
    """The place of each pixel of `rows` rows of an image in rows of `pitch` elements that begin at column `left`, or
    `missing` for pixels outside of these.
    """
    columns = np.arange(width) - left
    places = np.where((columns >= 0) & (columns < pitch), columns + pitch * np.arange(rows)[:, None], missing)
    return np.append(places.reshape(-1), [missing] * LANES)


def _padded(count: int, lanes: int) -> int:
    """Round up to whole vectors."""
    return -(-count // lanes) * lanes


def _lanes(shape: Shape, rows: int, lanes: int) -> tuple[Any, int, int]:
    """For kernels with `rows` rows of tiles: the places of image pixels and then of result pixels, the number of the
    former, and the elements of scratch memory.
    """
    down, across = shape.axes
    used, pitch, columns = (
        2 * down.stride * (rows - 1) + len(down.places) + down.stride,
        _pitch(across),
        _tiles(shape)[1],
    )
    of_images = _places(min(down.length, used), across.length, min(across.places), pitch, used * pitch)
    of_results = _places(2 * rows, across.results, 0, 2 * columns, 4 * rows * columns)
    room = max(2 * used * pitch + 1, 4 * rows * columns + 1) * lanes
    return np.append(of_images, of_results), len(of_images), room


@functools.lru_cache(maxsize=512)
def is_faster(shape: Shape) -> bool:
    """True if a Winograd convolution is faster than a direct one, for any number of images, so that an image has the
    same bits in any batch.
    """
    if min(shape.channels, shape.outputs) < LEAST_CHANNELS or not supports(shape):
        return False
    terms = shape.channels * _padded(shape.outputs, 8) * math.prod(shape.window)
    return bool(terms * math.prod(axis.results for axis in shape.axes) * SUMMED > cycles(shape))


def cycles(shape: Shape) -> float:
    """Estimate the cycles per image and group."""
    at, tiles, pairs = _points(shape), math.prod(_tiles(shape)), shape.channels * _padded(shape.outputs, LANES)
    vectors = (_padded(shape.channels, 8) + _padded(shape.outputs, 8)) / 8
    return at * (pairs * (tiles * MULTIPLIED + PACKED / BATCH) + TRANSFORMED * tiles * vectors)


def supports(shape: Shape) -> bool:
    """True for two axes, no dilation, and windows and strides with transforms: for example, 3x3 with stride 1 or 2."""
    return all(
        max(axis.places) - min(axis.places) + 1 == len(axis.places) <= LONGEST
        and max(axis.stride, axis.step) <= LONGEST_STEP
        for axis in shape.axes
    )


def _plan(shape: Shape, out_plane: Ints, itemsize: int) -> ConvolutionPlan:
    (rows, columns), line = _tiles(shape), ALIGNMENT // itemsize
    padded, panel = _padded(shape.outputs, line), PANEL * line
    wanted = CACHED // ((shape.channels + shape.outputs) * _points(shape))
    wanted = max(TILES, min(wanted, shape.images * shape.groups * rows * columns // UNITS))
    bands = -(-rows // max(1, min(rows, wanted // columns)))
    band_rows = -(-rows // bands)
    bands = -(-rows // band_rows)
    together = 1 if bands > 1 else min(shape.images, max(1, wanted // (rows * columns)))
    if (members := -(-shape.images // together)) > UNITS:  # round down, so that threads get the same number of units
        together = max(together, min(-(-shape.images // (members // UNITS * UNITS)), together + together // 3))
    members = -(-shape.images // together) * bands * shape.groups
    panels = -(-padded // panel)
    split_width = -(-panels // max(1, min(panels, UNITS // members))) * panel
    splits = -(-padded // split_width)
    # The kernel computes tiles four or eight at a time, so up to seven tiles more.
    many, channels = _padded(together * band_rows * columns, 8), _padded(shape.channels, line)
    near = max(1, min(split_width, NEAR // (_points(shape) * many)) // panel) * panel
    height, width = out_plane
    down, across = shape.axes
    places, of_results, room = _lanes(shape, band_rows, line // 2)
    geometry = [
        *(*_sizes(shape), bands, band_rows, together, many, many * channels + LANES, padded, splits, split_width),
        *(near, many * near + LANES, down.first * width + across.first, height * width, down.step * width),
        *(int(across.step == 1 and down.step == 1 and across.results == width), of_results, room),
        shape.channels * padded + LANES,
    ]
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        places,
        None,
        members * splits,
        shape.groups,
        (_points(shape) * (many * channels + LANES), _points(shape) * (many * near + LANES), 2 * room),
        _work(shape),
        _points(shape) * (shape.channels * padded + LANES),
    )


def _packing(shape: Shape, order: WeightOrder, itemsize: int) -> tuple[Any, Any, int]:
    """For the packing kernel: the places of the weights in a window, its geometry, and its units."""
    down, across = shape.axes
    # The transforms need the weights of a window in ascending order of their places.
    ordered = [
        order.taps[i * len(across.places) + j] for i in np.argsort(down.places) for j in np.argsort(across.places)
    ]
    taps, size = max(ordered) + 1, len(ordered)
    chunk = CHUNK if order.channel == taps else 1  # the weights of all channels are adjacent
    places = np.full((chunk, taps), chunk * size)
    places[:, ordered] = np.arange(chunk * size).reshape(chunk, size)
    places = np.append(places.reshape(-1), [chunk * size] * LANES)
    padded = _padded(shape.outputs, ALIGNMENT // itemsize)
    high = len(across.places)
    geometry = [
        *(shape.outputs, order.row, order.group, shape.channels, order.channel, high),
        *(points(high, across.stride), taps, chunk, padded, size, shape.channels * padded + LANES),
    ]
    return places, np.array(geometry, np.int64), shape.groups * padded * itemsize // WIDE


class _Correlation(NamedTuple):
    """All that a correlation of some shape needs except for its arrays."""

    pack: Any  # the kernels
    multiply: Any
    places: Any  # of the weights in a window
    geometry: Any
    units: int
    windows: int  # the number of elements of a unit's windows
    plan: ConvolutionPlan


@functools.lru_cache(maxsize=512)
def _correlation(shape: Shape, order: WeightOrder, out_plane: Ints, dtype: Any, of_images: Any) -> _Correlation:
    tiling = _tiling(shape)
    places, geometry, units = _packing(shape, order, dtype.itemsize)
    windows = (CHUNK * len(order.taps) + 1) * WIDE // dtype.itemsize
    plan = _plan(shape, out_plane, dtype.itemsize)
    pack, multiply = _kernel(pack_points, tiling, dtype), _kernel(correlate_tiles, tiling, dtype, of_images)
    return _Correlation(pack, multiply, places, geometry, units, windows, plan)


def correlate(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Compute results into `out`; the arguments are those of `direct._correlate`."""
    dtype = weights.dtype
    found = _correlation(shape, order, out.shape[2:], dtype, x.dtype)
    plan = found.plan
    packed, windows = empty((plan.blocks, plan.partial), dtype), empty((found.units, found.windows), dtype)
    found.pack(found.units, int(packed.size > 1 << 18), flat(weights), found.places, packed, windows, found.geometry)
    operands = flat(x), packed, plan.offsets, out.reshape(-1)
    memory = plan.memory(x, dtype, WIDE // dtype.itemsize)
    run_in_parts(found.multiply, plan.units, plan.work, operands, memory, plan.geometry)


def _weight_plan(shape: Shape, itemsize: int) -> ConvolutionPlan:
    (rows, columns), line = _tiles(shape), ALIGNMENT // itemsize
    images, groups, channels = shape.images, shape.groups, shape.channels
    most = MOST_PARTIAL // max(1, groups * channels * _points(shape) * shape.outputs)
    parts = max(1, min(images, -(-UNITS // groups), most, images * rows * columns // LEAST_TILES))
    parts = 1 << parts.bit_length() - 1  # threads get the same number of units
    # Memory for partial sums limits the number of parts. If these are too few units, split the channels or the outputs
    # too, although some tiles are then transformed several times.
    wanted = -(-UNITS // (parts * groups)) if _work(shape) > PARALLEL_WORK else 1
    pairs = [(n, -(-wanted // n)) for n in range(1, wanted + 1)]
    splits, cuts = min(pairs, key=lambda pair: pair[1] * channels + pair[0] * shape.outputs)
    split_channels = _padded(-(-channels // splits), line)
    cut_outputs = _padded(-(-shape.outputs // cuts), line)
    splits, cuts = -(-channels // split_channels), -(-shape.outputs // cut_outputs)
    long = max(SHORT_SUMS, min(LONG_SUMS, CACHED // (_points(shape) * (split_channels + cut_outputs))))
    bands = -(-rows // max(1, min(rows, -(-long // columns))))
    band_rows = -(-rows // bands)
    bands = -(-rows // band_rows)
    together = 1 if bands > 1 else max(1, min(-(-images // parts), -(-long // (rows * columns))))
    places, of_slopes, room = _lanes(shape, band_rows, line // 2)
    many, point = _padded(together * band_rows * columns, 8), split_channels * cut_outputs + LANES
    apart, slopes_apart = many * split_channels + LANES, many * cut_outputs + LANES
    geometry = [
        *(*_sizes(shape), parts, splits, split_channels, cuts, cut_outputs, together, bands, band_rows, of_slopes),
        *(many, apart, slopes_apart, point, shape.window[1], math.prod(shape.window), room),
    ]
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        places,
        np.arange(line // 2 * math.prod(shape.window) + LANES),
        parts * groups * cuts * splits,
        groups * cuts * splits * (split_channels // (line // 2)),
        (_points(shape) * apart, _points(shape) * slopes_apart, 2 * room),
        _work(shape),
        _points(shape) * point,
    )


@functools.lru_cache(maxsize=512)
def _contraction(shape: Shape, dtype: Any, of_images: Any) -> tuple[Any, Any, ConvolutionPlan]:
    """The two kernels of a weight gradient, and its plan."""
    tiling, plan = _tiling(shape), _weight_plan(shape, dtype.itemsize)
    return _kernel(contract_tiles, tiling, dtype, of_images), _kernel(weights_of_tiles, tiling, dtype), plan


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Compute the gradient of weights into `out`: see `direct.convolve_weight`."""
    dtype, lanes = dout.dtype, WIDE // dout.dtype.itemsize
    kernel, add, plan = _contraction(shape, dtype, x.dtype)
    partial = empty((plan.units, plan.partial), dtype)
    operands = flat(x), flat(dout), plan.offsets, partial
    run_in_parts(kernel, plan.units, plan.work, operands, plan.memory(x, dtype, lanes), plan.geometry)
    windows = empty((plan.blocks, lanes * lanes * math.prod(shape.window)), dtype)
    add(plan.blocks, int(partial.size > 1 << 18), partial, plan.views, windows, out.reshape(-1), plan.geometry)


# The signature of each kernel, and the functions that are generated for its tiling.
_KERNELS: dict[Any, tuple[str, dict[str, Any]]] = {
    pack_points: ("T[1] int64[1] T[2]* T[2]* int64[1]", {"points_of_weights": transforms.of_weights}),
    correlate_tiles: (
        "int64 S[1] T[2] int64[1] T[1]* T[2]* T[2]* T[2]* T[2]* int64[1]",
        {
            "tiles_of_images": transforms.of_images,
            "results_of_points": transforms.to_results,
            "lanes_to_channels": transforms.lanes_to_channels,
        },
    ),
    contract_tiles: (
        "int64 S[1] T[1] int64[1] T[2]* T[2]* T[2]* T[2]* T[2]* int64[1]",
        {"tiles_of_images": transforms.of_images, "tiles_of_slopes": transforms.of_slopes},
    ),
    weights_of_tiles: (
        "T[2]* int64[1] T[2]* T[1]* int64[1]",
        {"weights_of_points": transforms.to_weights, "lanes_to_channels": transforms.lanes_to_channels},
    ),
}


@functools.cache
def _kernel(function: Any, tiling: Tiling, *named: Any) -> Any:
    kinds, made = _KERNELS[function]
    return kernel_for(function, kinds, *named, **{name: functools.partial(make, tiling) for name, make in made.items()})
