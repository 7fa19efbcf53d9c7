"""Products of matrices: BLAS, or for a matrix of spikes, kernels whose work is in proportion to the spikes."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.cpu import events
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.kernels.threads import BLAS, WORKERS

# Up to which densities events win, measured with benchmarks/products.py: forward and reverse, for products that BLAS
# gets in parts for all threads, and for those that it gets whole, on one.
DENSITIES = {True: (0.3, 0.2), False: (0.3, 0.12)}
LEAST_WORK = 1 << 21  # multiplications
PART_WORK = 1 << 24  # multiplications: a quarter of a millisecond, ten times what handing over a part costs
MOST_PARTS = 64
ROWS = 16  # parts are multiples of so many rows, which BLAS takes together
LEAST_COLUMNS = 16  # of the result: a register of float32
SAMPLES = 4096  # elements that are looked at for the density, in whole rows,
SAMPLED_ROWS = 16  # of which there are at least so many


def matmul(x: Any, y: Any) -> Any:
    """`x @ y` as NumPy has it, on batches too.

    If `x`, or the matrix it is the transpose of, is found to be mostly zeros, only the others are multiplied: the
    result agrees to rounding, but a zero times inf or NaN is left out.
    """
    if not (x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.size and y.size):
        with BLAS:
            return np.matmul(x, y)
    out = empty((x.shape[0], y.shape[1]), x.dtype)
    matmul_into(out, x, y)
    return out


def matmul_into(out: Any, x: Any, y: Any) -> None:
    """`matmul`, put into `out`."""
    if x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype.kind == "f" and x.dtype.itemsize >= 4:
        n = y.shape[1]
        if x.size * n >= LEAST_WORK and n >= LEAST_COLUMNS and x.shape[1] == len(y) and out.flags.c_contiguous:
            name, spikes = None, x
            forward, reverse = DENSITIES[x.size * n >= 2 * PART_WORK]
            if x.flags.c_contiguous:
                name = "rows_of_events" if _density(x) < forward else None
            elif x.T.flags.c_contiguous:
                spikes = x.T
                name = "columns_of_events" if _density(spikes) < reverse else None
            if name is not None:
                scratch = _scratch(spikes, y) if name == "columns_of_events" else ()
                run = kernel(name, dtypes.BY_NUMPY[x.dtype], 2 * x.size >= PARALLEL_SIZE)
                run(spikes, np.ascontiguousarray(y), out, *scratch)
                return
    with BLAS:
        _dense(out, x, y)


def _scratch(x: Any, y: Any) -> tuple[Any, ...]:
    """What `columns_of_events` works on: memory of the pool, of which it uses as much as there are events."""
    blocks, strips = -(-len(x) // events.BLOCK), -(-y.shape[1] // events.STRIP)
    room = events.BLOCK * x.shape[1] + 8
    found, rows = empty((blocks, room), np.dtype(np.int32)), empty((blocks, room), np.dtype(np.int32))
    return found, rows, empty((blocks, room), x.dtype), empty((strips, events.BLOCK * events.STRIP), y.dtype)


def _dense(out: Any, x: Any, y: Any) -> None:
    """BLAS on one thread, for each of so many parts of the rows: how many depends on the size alone."""
    parts = min(MOST_PARTS, x.size * y.shape[-1] // PART_WORK) if x.ndim == y.ndim == 2 else 1
    if parts < 2:
        np.matmul(x, y, out=out)
        return
    rows = -(-len(x) // parts // ROWS) * ROWS
    cuts = [slice(first, first + rows) for first in range(0, len(x), rows)]
    WORKERS.run(lambda cut: np.matmul(x[cut], y, out=out[cut]), cuts)


def _density(x: Any) -> float:
    """The part of elements that are not zero, from some of the rows."""
    rows = x[:: max(1, min(x.size // SAMPLES, len(x) // SAMPLED_ROWS))]
    return float(np.count_nonzero(rows) / max(1, rows.size))


def kernel(name: str, dtype: Any, parallel: bool) -> Any:
    """One of the kernels of `cpu/events.py`, compiled for matrices of `dtype`."""
    key = (name, dtype, parallel)
    if key not in _kernels:
        head = (
            "import numpy as np\nfrom numba import prange\n\n"
            "from snncell.kernels.cpu.rows import add_events, find_events\n\n"
            f"ROWS, BLOCK, STRIP = {events.ROWS}, {events.BLOCK}, {events.STRIP}\n\n\n"
        )
        source = head + inspect.getsource(getattr(events, name))
        for annotation in (": Any", " -> None"):
            source = source.replace(annotation, "")
        matrix, result, places = (dtype, 2, False), (dtype, 2, True), (dtypes.int32, 2, True)
        scratch = (places, places, result, result) if name == "columns_of_events" else ()
        _kernels[key] = build(name, source, (matrix, matrix, result, *scratch), parallel)
    return _kernels[key]


_kernels: dict[Any, Any] = {}
