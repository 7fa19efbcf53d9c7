"""Dense matrix products by BLAS, cut into parts that worker threads compute.

The parts depend on the sizes only, and partial sums are added in a fixed order, so the bits do not depend on the number
of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.numba.threads import BLAS, WORKERS

# Parts of a product. BLAS packs both operands of a part, so few large parts are faster than many small ones: 64 parts
# of (2048, 8000) times (8000, 2048) take 1.25 times as long as 4 parts (two cores, AVX-512). More parts use more cores.
PART_WORK = 1 << 25, 1 << 28  # multiplications of each part, for up to 8 parts and for 16; 1 << 25 take 0.2 ms
FEW_PARTS, MOST_PARTS = 8, 16
LEAST_SIDE = 256  # the minimum side of a part: in narrower ones, BLAS spends as much time on packing as on the product
LEAST_DEPTH = 1024  # the minimum contracted length of a part
PARTIAL = 0.5  # the maximum number of elements of all partial sums, as a fraction of the elements of the operands


def multiply_into(out: Any, x: Any, y: Any) -> None:
    """Store `x @ y` in `out`, a matrix in any memory order, or a batch of matrices."""
    BLAS.run(_multiply_into, out, x, y)


def multiply_any(x: Any, y: Any) -> Any:
    """`x @ y` for any arrays; many matrices are multiplied in parts along the first axis of the result."""
    return BLAS.run(_multiply_any, x, y)


def _multiply_into(out: Any, x: Any, y: Any) -> None:
    """Multiply by single-threaded BLAS, in parts whose number depends only on the sizes."""
    if out.ndim != 2 or x.ndim != 2 or y.ndim != 2:
        _multiply_batch_into(out, x, y)
        return
    if not out.flags.c_contiguous and out.flags.f_contiguous:
        out, x, y = out.T, y.T, x.T
    (m, n), k = out.shape, x.shape[1]
    rows, columns, depth = _parts(m, n, k)
    if rows == columns == depth == 1 or len(y) != k:
        np.matmul(x, y, out=out)  # raises an error if the lengths differ
        return
    sums = empty((depth, m, n), out.dtype) if depth > 1 else out[None]

    def multiply(part: tuple[int, slice, slice, slice]) -> None:
        number, middle, some_rows, some_columns = part
        np.matmul(x[some_rows, middle], y[middle, some_columns], out=sums[number][some_rows, some_columns])

    middles = enumerate(cut(k, depth))
    WORKERS.run(multiply, [(i, d, a, b) for i, d in middles for a in cut(m, rows) for b in cut(n, columns)])
    if depth > 1:  # the partial sums are added one after the other, so the order of the sum is fixed
        ranges = cut(m, min(m, FEW_PARTS) if sums.size >= PARALLEL_SIZE else 1)
        WORKERS.run(lambda own: np.add.reduce(sums[:, own], axis=0, out=out[own]), ranges)


def sum_of_products(out: Any, x: Any, y: Any, chunk: int) -> None:
    """Store the sum of the products of two batches (n, m, k) and (n, k, p) in `out` (m, p).
    Each part of the batch has its own sum, and adds the products of `chunk` matrices at a time.
    """
    parts = cut(len(x), number_of_parts(x.size * y.shape[-1], len(x)))
    sums = empty((len(parts), *out.shape), out.dtype)

    def add(part: int) -> None:
        for first in range(parts[part].start, parts[part].stop, chunk):
            some = slice(first, min(first + chunk, parts[part].stop))
            products = np.matmul(x[some], y[some])
            if first == parts[part].start:
                np.add.reduce(products, axis=0, out=sums[part])
            else:
                sums[part] += np.add.reduce(products, axis=0)

    BLAS.run(WORKERS.run, add, range(len(parts)))
    np.add.reduce(sums, axis=0, out=out)


def _multiply_any(x: Any, y: Any) -> Any:
    if max(x.ndim, y.ndim) > 2 and min(x.ndim, y.ndim) > 1 and x.dtype == y.dtype and x.shape[-1] == y.shape[-2]:
        shape = *np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]
        out = empty(shape, x.dtype)
        _multiply_batch_into(out, x, y)
        return out
    return np.matmul(x, y)


def _multiply_batch_into(out: Any, x: Any, y: Any) -> None:
    parts = number_of_parts(out.size * x.shape[-1], len(out) if out.ndim > 2 else 1)
    if parts == 1:
        np.matmul(x, y, out=out)
        return

    def take(operand: Any, some: slice) -> Any:
        return operand[some] if operand.ndim == out.ndim and len(operand) > 1 else operand

    WORKERS.run(lambda some: np.matmul(take(x, some), take(y, some), out=out[some]), cut(len(out), parts))


def _parts(m: int, n: int, k: int) -> tuple[int, int, int]:
    """The parts along rows and columns of a result (m, n), and along the contracted axis; the longest is halved first.
    The contracted axis counts half, because its parts have partial sums. For example, the gradient of a weight has few
    rows and columns, but a contracted axis of all steps and samples.
    """
    rows = columns = depth = 1
    for _ in range(number_of_parts(m * n * k, MOST_PARTS).bit_length() - 1):
        lengths = m // rows, n // columns, k // depth
        side = max(lengths[:2])
        fits = lengths[2] >= 2 * LEAST_DEPTH and 2 * depth * m * n <= PARTIAL * (m + n) * k
        if fits and lengths[2] >= 2 * side:
            depth *= 2
        elif side >= 2 * LEAST_SIDE:
            rows, columns = (2 * rows, columns) if lengths[0] == side else (rows, 2 * columns)
        else:
            break
    return rows, columns, depth


def number_of_parts(work: int, most: int) -> int:
    """The number of parts, a power of two up to `most`, for a number of multiplications."""
    parts = 1
    while 2 * parts <= min(most, MOST_PARTS) and work >= 2 * parts * PART_WORK[parts >= FEW_PARTS]:
        parts *= 2
    return parts


def cut(length: int, parts: int) -> list[slice]:
    """Cut an axis into parts of about equal length."""
    return [slice(length * part // parts, length * (part + 1) // parts) for part in range(parts)]
