"""Pointwise (1x1) convolutions of many channels: matrix products of images in place, or by BLAS.

If the pixels of an image fill whole vectors, kernels multiply the images without a copy. For few pixels per image, this
is faster than BLAS, which would pack the weights again for each image. Each result is one sum in a fixed order.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.conv.planes import LANES, Shape, WeightOrder, flat
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import line_of, row, tail
from snncell.kernels.intrinsics.panels import VECTOR, multiply_panel, turn
from snncell.kernels.numba.build import PARALLEL_WORK, grain_of, kernel_for, run_in_parts
from snncell.kernels.numba.threads import BLAS, WORKERS
from snncell.kernels.products.blas import LEAST_SIDE, cut, multiply_into, number_of_parts, sum_of_products

# --- Kernels ----------------------------------------------------------------------------------------------------------


def correlate_pixels(start: Any, stop: Any, x: Any, weights: Any, out: Any, geometry: Any) -> None:
    """Multiply the weights (outputs, channels) by images (channels, pixels). A unit has a range of outputs, and four
    vectors of pixels: of one image, or of four images that have a vector each.
    """
    images, channels, outputs, pixels, across, along = (
        geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5],
    )  # fmt: skip
    chunk, split_rows = geometry[6], geometry[7]
    line = line_of(tail(x, 0))
    splits, vectors_of_image = (outputs + split_rows - 1) // split_rows, pixels // line
    for unit in range(start, stop):
        begin, number = unit % splits * split_rows, unit // splits
        rows = least(split_rows, outputs - begin)
        if vectors_of_image == 1:
            first, place, vectors = 4 * number, 0, least(4, images - 4 * number)
            apart, from_image = outputs * pixels, channels * pixels
        else:
            fours = (vectors_of_image + 3) // 4
            first, place = number // fours, number % fours * 4
            vectors, apart, from_image = least(4, vectors_of_image - place), line, line
        target = tail(out, (first * outputs + begin) * pixels + place * line)
        for channel in range(0, channels, chunk):
            multiply_panel(
                target, pixels, apart, tail(weights, begin * across + channel * along), across, line * across, along,
                line * along, tail(x, (first * channels + channel) * pixels + place * line), pixels, from_image, rows,
                vectors, least(chunk, channels - channel), channel,
            )  # fmt: skip


def contract_pixels(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, partial: Any, panels: Any, geometry: Any
) -> None:
    """Multiply result gradients (outputs, pixels) by transposed images (pixels, channels). A unit has a range of images
    and up to four vectors of channels; it adds its products to a matrix of `partial` (ranges, outputs channels).
    """
    images, channels, outputs, pixels, parts, depth = (
        geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5],
    )  # fmt: skip
    panel, line = row(panels, start // grain), line_of(tail(x, 0))
    splits = (channels + 4 * line - 1) // (4 * line)
    together = depth // pixels if pixels == line else 1
    for unit in range(start, stop):
        channel, part = unit % splits * 4 * line, unit // splits
        wide, own = least(4 * line, channels - channel), tail(row(partial, part), channel)
        begin, end = part * images // parts, (part + 1) * images // parts
        for first in range(begin, end, together):
            there = least(together, end - first)
            for pixel in range(0, pixels, depth):
                some = least(depth, pixels - pixel)
                for n in range(there):
                    turn(
                        tail(panel, n * some * 4 * line), 4 * line,
                        tail(x, ((first + n) * channels + channel) * pixels + pixel), pixels, wide, some, line,
                    )  # fmt: skip
                multiply_panel(
                    own, channels, line, tail(gradient, first * outputs * pixels + pixel), pixels, line * pixels, 1,
                    outputs * pixels if pixels == line else line, panel, 4 * line, line, outputs, wide // line,
                    there * some, first - begin + pixel,
                )  # fmt: skip


LEAST_CHANNELS = 32  # with fewer, the direct kernels are as fast
LEAST_PIXELS = 64  # of an image: with fewer, the weight gradient by BLAS is one product of transposed copies
CHUNK = 1 << 18  # elements of the weight gradients of some images: they stay in the L2 cache until they are added
UNITS = 16  # enough units to balance the load of threads
LEAST_ROWS = 32  # the minimum number of outputs of a unit
# The number of channels whose pixels stay in the L1 cache: adjacent channels, and channels a power of two apart.
NEAR, FAR = 128, 32
DEPTH = 128  # pixels that the weight gradient multiplies at once, so that they stay in the L1 cache
LEAST_DEPTH = 256  # the minimum number of pixels of a unit of the weight gradient


def supports(shape: Shape) -> bool:
    """Return True for a window of one element, stride 1, and at least LEAST_CHANNELS channels on both sides."""
    axes = all(axis == (axis.length, 1, (0,), axis.length, 0, 1) for axis in shape.axes)
    return axes and shape.groups == 1 and min(shape.channels, shape.outputs) >= LEAST_CHANNELS


def _pixels(shape: Shape) -> int:
    return math.prod(axis.length for axis in shape.axes)


def in_place(shape: Shape) -> bool:
    """Return True if pixels fill whole vectors and the outputs whole tiles, so that kernels need no copies."""
    return _pixels(shape) % LANES == 0 and shape.outputs % 4 == 0


def correlate(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Compute results into `out`; the arguments are those of `direct._correlate`."""
    if not in_place(shape):
        _correlate_by_blas(x, weights, order, out, shape)
        return
    kernel, units, grain, geometry = _plan(shape, order, x.dtype)
    kernel(units, grain, flat(x), flat(weights), out.reshape(-1), geometry)


@functools.lru_cache(maxsize=512)
def _plan(shape: Shape, order: WeightOrder, dtype: Any) -> tuple[Any, int, int, Any]:
    """The kernel for images in place, its units and their grain, and its geometry."""
    pixels = _pixels(shape)
    vectors = pixels * dtype.itemsize // VECTOR
    units = -(-shape.images // 4) if vectors == 1 else shape.images * -(-vectors // 4)
    splits = max(1, min(shape.outputs // LEAST_ROWS, -(-UNITS // units)))
    rows = -(-shape.outputs // (4 * splits)) * 4
    sizes = [shape.images, shape.channels, shape.outputs, pixels, order.row, order.channel]
    geometry = np.array([*sizes, NEAR if vectors <= 4 else FAR, rows], np.int64)
    kernel = kernel_for(correlate_pixels, "T[1] T[1] T[1]* int64[1]", dtype)
    work = shape.images * shape.channels * shape.outputs * pixels
    units *= -(-shape.outputs // rows)
    return kernel, units, grain_of(units) if work > PARALLEL_WORK else 0, geometry


def _correlate_by_blas(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Multiply each image in parts that depend only on its own size, so its bits do not depend on the other images."""
    sizes, steps = (shape.outputs, shape.channels), (order.row, order.channel)
    matrix = np.lib.stride_tricks.as_strided(flat(weights), sizes, [step * weights.itemsize for step in steps])
    x, out = _as_matrices(x, shape.channels), _as_matrices(out, shape.outputs)
    work = x[0].size * shape.outputs
    rows = cut(shape.outputs, number_of_parts(work, shape.outputs // LEAST_SIDE))
    some_images = cut(len(x), number_of_parts(work * len(x) // len(rows), len(x)))

    def multiply(part: tuple[slice, slice]) -> None:
        some, some_rows = part
        np.matmul(matrix[some_rows], x[some], out=out[some, some_rows])

    BLAS.run(WORKERS.run, multiply, list(itertools.product(some_images, rows)))


def contract(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    """Compute the gradient of weights into `out`: see `direct.convolve_weight`."""
    if in_place(shape) and shape.channels % LANES == 0:
        _contract_in_place(x, dout, out, shape)
        return
    x, dout = _as_matrices(x, shape.channels), _as_matrices(dout, shape.outputs)
    result = out.reshape(shape.outputs, shape.channels)
    if x.shape[-1] < LEAST_PIXELS or shape.images == 1:
        multiply_into(result, _by_channels(dout), _by_channels(x).T)
    else:
        sum_of_products(result, dout, x.transpose(0, 2, 1), max(1, CHUNK // result.size))


@functools.lru_cache(maxsize=512)
def _weight_plan(shape: Shape, dtype: Any) -> tuple[Any, int, int, Any]:
    """The kernel for images in place, its ranges of images and of channels, and its geometry."""
    pixels = _pixels(shape)
    splits = -(-shape.channels // (4 * VECTOR // dtype.itemsize))
    parts = max(1, min(-(-UNITS // splits), shape.images, shape.images * pixels // LEAST_DEPTH))
    geometry = np.array([shape.images, shape.channels, shape.outputs, pixels, parts, DEPTH], np.int64)
    kernel = kernel_for(contract_pixels, "int64 T[1] T[1] T[2]* T[2]* int64[1]", dtype)
    return kernel, parts, splits, geometry


def _contract_in_place(x: Any, dout: Any, out: Any, shape: Shape) -> None:
    kernel, parts, splits, geometry = _weight_plan(shape, x.dtype)
    partial = out.reshape(1, -1) if parts == 1 else empty((parts, out.size), x.dtype)
    memory = [(4 * VECTOR // x.itemsize * DEPTH, x.dtype)]
    run_in_parts(kernel, parts * splits, x.size * shape.outputs, (flat(x), flat(dout), partial), memory, geometry)
    if parts > 1:
        np.add.reduce(partial, axis=0, out=out.reshape(-1))


def _as_matrices(images: Any, channels: int) -> Any:
    return images.reshape(len(images), channels, -1)


def _by_channels(images: Any) -> Any:
    """The channels of all images as rows."""
    if len(images) == 1:
        return images[0]
    rows = empty((images.shape[1], len(images), images.shape[2]), images.dtype)
    rows[...] = images.transpose(1, 0, 2)
    return rows.reshape(len(rows), -1)
