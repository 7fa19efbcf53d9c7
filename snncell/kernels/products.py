"""Products of matrices: BLAS, or for a matrix of spikes, kernels whose work is in proportion to the spikes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import events
from snncell.kernels.cuda import products as on_device
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.kernels.threads import BLAS, WORKERS

# Up to which densities events win, measured with benchmarks/products.py: forward and reverse, for products that BLAS
# gets in parts for all threads, and for those that it gets whole, on one.
DENSITIES = {True: (0.3, 0.2), False: (0.3, 0.12)}
MOST_EVENTS = max(max(limits) for limits in DENSITIES.values())
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
    if not isinstance(x, np.ndarray):
        return on_device.matmul(x, y)
    if not (x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.size and y.size):
        return BLAS.run(np.matmul, x, y)
    out = empty((x.shape[0], y.shape[1]), x.dtype)
    matmul_into(out, x, y)
    return out


def matmul_into(out: Any, x: Any, y: Any) -> None:
    """`matmul`, put into `out`."""
    if not isinstance(x, np.ndarray):
        on_device.matmul(x, y, out)
        return
    if dtypes.only_stored(x.dtype):
        out[...] = matmul(*(array.astype(dtypes.computed(array.dtype)) for array in (x, y)))
        return
    if x.ndim == y.ndim == 2 and x.shape[1] == len(y) and out.flags.c_contiguous and _may_be_events(x, y):
        turned = not x.flags.c_contiguous
        spikes = x.T if turned else x
        if spikes.flags.c_contiguous and _density(spikes) < _limit(x, y, turned):
            _add_up(out, *_all_events(spikes, y.dtype), y, turned)
            return
    BLAS.run(_dense, out, x, y)


def events_of(x: Any, *, dtype: Any) -> tuple[Any, Any, Any]:
    """The events of a matrix, to be used by several products: their places, their values, and how many each row has.

    `x` is of floats, or of booleans that stand for 0 and 1; the products are of `dtype`. If there are too many events
    for any product to gain by them, the first number is -1.
    """
    if x.flags.c_contiguous and x.size and dtype.itemsize >= 4 and _density(x) < MOST_EVENTS:
        return _all_events(x, dtype)
    return np.empty((0, 0), np.int32), np.empty((0, 0), dtype), np.full(len(x), -1, np.int32)


def product_of_events(x: Any, places: Any, values: Any, counts: Any, y: Any, *, turned: bool) -> Any:
    """`x @ y`, or if `turned`, `x.T @ y`, for an `x` whose events are known."""
    left = x.T if turned else x
    known = len(counts) and counts[0] >= 0 and values.dtype == y.dtype and may_pay(left, y)
    if not known or counts.sum() >= _limit(left, y, turned) * x.size:
        return matmul(left.astype(y.dtype, copy=False), y)
    out = empty((len(left), y.shape[1]), y.dtype)
    _add_up(out, places, values, counts, y, turned)
    return out


def _may_be_events(x: Any, y: Any) -> bool:
    """True if a product is of a kind and a size at which it pays to look for events."""
    return bool(x.dtype == y.dtype and x.dtype.kind == "f" and x.dtype.itemsize >= 4 and may_pay(x, y))


def may_pay(x: Any, y: Any) -> bool:
    """True if a product of the rows or columns of `x` with `y` is of a size at which it pays to look for events."""
    columns = int(y.shape[-1])
    return math.prod(x.shape) * columns >= LEAST_WORK and columns >= LEAST_COLUMNS


def _limit(x: Any, y: Any, turned: bool) -> float:
    """The density up to which events win."""
    return DENSITIES[x.size * y.shape[1] >= 2 * PART_WORK][turned]


def _all_events(x: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The places of a matrix's events, their values, and how many there are in each row."""
    room = (-(-len(x) // events.PART), events.PART * x.shape[1] + 8)
    events_in_x = empty(room, np.dtype(np.int32)), empty(room, dtype), empty((len(x),), np.dtype(np.int32))
    grain = int(2 * x.size >= PARALLEL_SIZE)
    flags = empty((room[0], -(-x.shape[1] // 8) * 8), np.dtype(np.uint8))
    kernel("find_all_events", dtypes.BY_NUMPY[dtype], dtypes.BY_NUMPY[x.dtype])(room[0], grain, x, flags, *events_in_x)
    return events_in_x


def _add_up(out: Any, places: Any, values: Any, counts: Any, y: Any, turned: bool) -> None:
    """`out = x @ y`, or if `turned`, `x.T @ y`, by the events of `x`."""
    m, k = len(counts), len(out) if turned else len(y)
    kind, grain, y = dtypes.BY_NUMPY[y.dtype], int(2 * m * k >= PARALLEL_SIZE), np.ascontiguousarray(y)
    if not turned:
        kernel("rows_of_events", kind)(-(-m // events.PART), grain, places, values, counts, y, out)
        return
    # Memory of the pool, of which as much is used as there are events.
    blocks, strips = -(-m // events.BLOCK), -(-y.shape[1] // events.STRIP)
    rows, ordered = empty((blocks, events.BLOCK * k), np.dtype(np.int32)), empty((blocks, events.BLOCK * k), y.dtype)
    near = empty((strips, events.BLOCK * min(events.STRIP, y.shape[1])), y.dtype)
    firsts = np.zeros((blocks, k + 1), np.int32)
    free = empty((blocks, k), np.dtype(np.int32))
    kernel("sort_events", kind)(blocks, grain, places, values, counts, firsts, rows, ordered, free)
    kernel("columns_of_events", kind)(strips, grain, firsts, rows, ordered, y, out, near)


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


def kernel(name: str, dtype: Any, spikes: Any = None) -> Any:
    """One of the kernels of `cpu/events.py`, compiled for matrices of `dtype`, and `spikes` of another."""
    key = (name, dtype, spikes)
    if key not in _kernels:
        head = (
            "import numpy as np\n\n"
            "from snncell.kernels.cpu.builtins import least\n"
            "from snncell.kernels.cpu.elements import copy, flat, row, strip, tail\n"
            "from snncell.kernels.cpu.rows import add_events, find_events\n\n"
            f"PART, BLOCK, STRIP = {events.PART}, {events.BLOCK}, {events.STRIP}\n\n\n"
        )
        source = head + source_of(getattr(events, name))
        matrix, to_matrix = (dtype, 2, False), (dtype, 2, True)
        places, to_places = (dtypes.int32, 2, False), (dtypes.int32, 2, True)
        counts, to_counts = (dtypes.int32, 1, False), (dtypes.int32, 1, True)
        signature = {
            "find_all_events": ((spikes, 2, False), (dtypes.uint8, 2, True), to_places, to_matrix, to_counts),
            "rows_of_events": (places, matrix, counts, matrix, to_matrix),
            "sort_events": (places, matrix, counts, to_places, to_places, to_matrix, to_places),
            "columns_of_events": (places, places, matrix, matrix, to_matrix, to_matrix),
        }[name]
        _kernels[key] = build(name, source, signature)
    return _kernels[key]


_kernels: dict[Any, Any] = {}
