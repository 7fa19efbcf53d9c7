"""Pointwise (1x1) convolutions of many channels: matrix products by BLAS."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.conv.planes import Shape, WeightOrder, flat
from snncell.kernels.numba.threads import BLAS, WORKERS
from snncell.kernels.products.blas import LEAST_SIDE, cut, multiply_into, number_of_parts, sum_of_products

LEAST_CHANNELS = 32  # with fewer, the direct kernels are as fast as BLAS
LEAST_PIXELS = 64  # of an image: with fewer, the weight gradient is one product of transposed copies
CHUNK = 1 << 18  # elements of the weight gradients of some images: they stay in the L2 cache until they are added


def supports(shape: Shape) -> bool:
    """Return True for a window of one element, stride 1, and at least LEAST_CHANNELS channels on both sides."""
    axes = all(axis == (axis.length, 1, (0,), axis.length, 0, 1) for axis in shape.axes)
    return axes and shape.groups == 1 and min(shape.channels, shape.outputs) >= LEAST_CHANNELS


def correlate(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Compute results into `out`; the arguments are those of `direct._correlate`.
    Each image is multiplied in parts that depend on its own size only, so its bits do not depend on the other images.
    """
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
    x, dout = _as_matrices(x, shape.channels), _as_matrices(dout, shape.outputs)
    result = out.reshape(shape.outputs, shape.channels)
    if x.shape[-1] < LEAST_PIXELS or shape.images == 1:
        multiply_into(result, _by_channels(dout), _by_channels(x).T)
    else:
        sum_of_products(result, dout, x.transpose(0, 2, 1), max(1, CHUNK // result.size))


def _as_matrices(images: Any, channels: int) -> Any:
    return images.reshape(len(images), channels, -1)


def _by_channels(images: Any) -> Any:
    """The channels of all images as rows."""
    if len(images) == 1:
        return images[0]
    rows = empty((images.shape[1], len(images), images.shape[2]), images.dtype)
    rows[...] = images.transpose(1, 0, 2)
    return rows.reshape(len(rows), -1)
