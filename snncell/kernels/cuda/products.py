"""Products of matrices on the device: the vendor's library, given views as they lie where it can take them."""

from __future__ import annotations

import math

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, empty, refusal, zeros
from snncell.kernels.cuda.libraries import KINDS
from snncell.kernels.cuda.runtime import Matrix, runtime


def matmul(x: DeviceArray, y: DeviceArray, out: DeviceArray | None = None) -> DeviceArray:
    """`x @ y` over the last two axes, leading axes broadcast; into `out`, if that is given."""
    if x.dtype.name not in KINDS:
        raise refusal(f"matmul of {x.dtype}")
    (m, k), n = x.shape[-2:], y.shape[-1]
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    target = empty((*batch, m, n), x.dtype) if out is None or not out.contiguous else out
    if not k:
        target = zeros(target.shape, x.dtype)
    elif target.size:
        spread = [array.broadcast_to((*batch, *array.shape[-2:])) for array in (x, y)]
        # What had to be copied is held until the product is under way: its memory would serve the other one's copy.
        (a, _own), (b, _held) = map(_matrix, spread)
        product = Matrix(target.memory.block, target.offset * x.dtype.itemsize, n, m * n)
        runtime().matmul(product, a, b, (m, n, k), dtype=x.dtype, batch=math.prod(batch))
    if out is not None and target is not out:
        out[...] = target
    return target if out is None else out


def _matrix(array: DeviceArray) -> tuple[Matrix, DeviceArray]:
    """The operand that describes a batch of matrices, copied if no two numbers describe where its elements are."""
    rows, columns = array.shape[-2:]
    flat = array.view((math.prod(array.shape[:-2]), rows, columns), (0, *array.strides[-2:]))
    if array.ndim > 2:
        flat = array.reshape(-1, rows, columns)
    stride, down, across = flat.strides
    size = array.dtype.itemsize
    if stride < 0:
        return _matrix(flat.copy())  # the libraries count forwards
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        leading = max(down, columns) if rows > 1 else columns
        return Matrix(flat.memory.block, flat.offset * size, leading, stride), flat
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        leading = max(across, rows) if columns > 1 else rows
        return Matrix(flat.memory.block, flat.offset * size, leading, stride, turned=True), flat
    return _matrix(flat.copy())
