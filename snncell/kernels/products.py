"""Products of matrices: BLAS, or for a matrix of spikes, kernels whose work is in proportion to the spikes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels import event_costs
from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import events
from snncell.kernels.cpu.panels import VECTORS
from snncell.kernels.cuda import products as on_device
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.kernels.threads import BLAS, WORKERS

PART_WORK = 1 << 24  # multiplications: a third of a millisecond, ten times what handing over a part costs
MOST_PARTS = 64
LEAST_SIDE = 256  # of a part: BLAS copies the operands of each, which in narrower ones takes as long as multiplying
SAMPLES = 4096  # elements that are looked at for the density, in whole rows,
SAMPLED_ROWS = 16  # of which there are at least so many
UNITS = 16  # of a product of events that has fewer strips of columns than that: then its rows are cut too,
UNIT_ROWS = 256  # into at least so many
PANELS = 32  # at most: threads that are done take what is left
PACKED_FROM = 2  # events for each row of a matrix: with fewer, it is not copied into panels, but read where it is


class MatrixEvents(NamedTuple):
    """The events of a matrix, or of its transpose: see `cpu/events.py`."""

    places: Any
    values: Any
    starts: Any
    counts: Any


def matmul(x: Any, y: Any, *, turned: bool = False) -> Any:
    """`x @ y` as NumPy has it, on batches too; if `turned`, its transpose, of two matrices.

    If `x`, or the matrix it is the transpose of, is found to be mostly zeros, only the others are multiplied: the
    result agrees to rounding, but a zero times inf or NaN is left out.
    """
    if not isinstance(x, np.ndarray):
        return on_device.matmul(y.T, x.T) if turned else on_device.matmul(x, y)
    if not (x.ndim == y.ndim == 2 and _go_together(x, y) and x.size and y.size):
        return BLAS.run(np.matmul, *((y.T, x.T) if turned else (x, y)))
    if turned:
        out = empty((y.shape[1], x.shape[0]), y.dtype)
        matmul_into(out.T, x, y)
    else:
        out = empty((x.shape[0], y.shape[1]), y.dtype)
        matmul_into(out, x, y)
    return out


def matmul_into(out: Any, x: Any, y: Any) -> None:
    """`x @ y`, put into `out`, which may be a transpose."""
    if not isinstance(x, np.ndarray):
        if out.contiguous:
            on_device.matmul(x, y, out)
        else:
            on_device.matmul(y.T, x.T, out.T)
        return
    if dtypes.is_storage_only(x.dtype):
        out[...] = matmul(*(array.astype(dtypes.compute_dtype(array.dtype)) for array in (x, y)))
        return
    if _may_be_events(out, x, y):
        by_columns = not x.flags.c_contiguous
        spikes = x.T if by_columns else x
        below = limit_of(x, y, by_columns)
        if below > 0 and spikes.flags.c_contiguous and _density(spikes) < below:
            _add_up(out, _all_events(spikes, y.dtype), y, by_columns)
            return
    BLAS.run(_dense, out, x if x.dtype == y.dtype else x.astype(y.dtype), y)


def events_of(x: Any, *, dtype: Any, below: float) -> MatrixEvents:
    """The events of a matrix, to be used by several products.

    `x` is of floats, of booleans that stand for 0 and 1, or of bytes; the products are of `dtype`. Where no product
    gains by them, as there are not less than the part `below` of all elements, the arrays are empty.
    """
    if x.flags.c_contiguous and x.size and dtype in (np.float32, np.float64) and _density(x) < below:
        return _all_events(x, dtype)
    return MatrixEvents(*(np.empty((0, 0), kind) for kind in (np.int16, dtype, np.int64, np.int32)))


def product_of_events(x: Any, found: MatrixEvents, y: Any, *, by_columns: bool, turned: bool) -> Any:
    """`x @ y`, or if `by_columns`, `x.T @ y`, for an `x` whose events are known; if `turned`, the transpose."""
    left = x.T if by_columns else x
    known = found.counts.size and found.values.dtype == y.dtype
    if not known or found.counts.sum() >= limit_of(left, y, by_columns) * x.size:
        return matmul(left.astype(y.dtype, copy=False), y, turned=turned)
    return product_by_events(found, left.shape, y, by_columns=by_columns, turned=turned)


def product_by_events(found: MatrixEvents, sizes: tuple[int, int], y: Any, *, by_columns: bool, turned: bool) -> Any:
    """The same from the events alone, of an `x` or `x.T` of these sizes."""
    shape = sizes[0], y.shape[1]
    out = empty(shape[::-1] if turned else shape, y.dtype)
    _add_up(out.T if turned else out, found, y, by_columns)
    return out


def limit_of(x: Any, y: Any, by_columns: bool) -> float:
    """The density of `x` (m, k) below which its product with `y` (k, n) is made of events: 0 where none is."""
    (m, k), n = x.shape, y.shape[-1]
    return event_costs.limit(int(m), int(k), int(n), y.dtype, by_columns)


def _may_be_events(out: Any, x: Any, y: Any) -> bool:
    """True for a product of matrices that go together, into one that lies by rows or by columns."""
    matrices = x.ndim == y.ndim == 2 and _go_together(x, y) and x.shape[1] == len(y)
    return matrices and out.shape == (len(x), y.shape[1]) and _in_order(out)


def _go_together(x: Any, y: Any) -> bool:
    """True for arrays of one dtype, and for bytes and floats: then the events are found in the bytes."""
    return x.dtype == y.dtype or (x.dtype in dtypes.BYTES and y.dtype in (np.float32, np.float64))


def _in_order(x: Any) -> bool:
    """True for a matrix whose elements follow each other, by rows or by columns."""
    return bool(x.flags.c_contiguous or x.flags.f_contiguous)


def _all_events(x: Any, dtype: Any) -> MatrixEvents:
    """The events of a matrix, row by row."""
    m, k = x.shape
    parts, blocks = -(-m // events.PART), -(-k // events.DEPTH)
    # Memory of the pool, of which as much is used as there are events. Memory comes in pages of up to 2 MB, each whole:
    # of bytes, whose events are counted in no time, no more is taken than there are.
    room = events.PART * k
    if x.dtype in dtypes.BYTES:
        room = max(1, max(int(np.count_nonzero(x[n : n + events.PART])) for n in range(0, m, events.PART)))
    places, values = (empty((parts, room), kind) for kind in (np.dtype(np.int16), dtype))
    graded = np.empty(parts, np.int32)
    found = MatrixEvents(places, values, np.empty((blocks, m), np.int64), np.empty((blocks, m), np.int32))
    grain = int(2 * x.size >= PARALLEL_SIZE)
    kernel("find_all_events", dtypes.BY_NUMPY[dtype], dtypes.BY_NUMPY[x.dtype])(parts, grain, x, *found, graded)
    return found if graded.any() else found._replace(values=np.ones((1, 1), dtype))


def _sort_by_columns(found: MatrixEvents, k: int, total: int) -> MatrixEvents:
    """The events of a matrix with `k` columns, `total` of them, column by column."""
    m, kind = found.counts.shape[1], found.values.dtype
    offsets = np.zeros(-(-m // events.DEPTH), np.int64)
    if len(offsets) > 1:
        np.cumsum(np.add.reduceat(found.counts.sum(0), np.arange(0, m, events.DEPTH))[:-1], out=offsets[1:])
    shape = len(offsets), k
    columns = MatrixEvents(
        empty((total,), np.dtype(np.int16)),
        found.values if found.values.size == 1 else empty((total,), kind),
        np.empty(shape, np.int64),
        np.empty(shape, np.int32),
    )
    grain = int(4 * total >= PARALLEL_SIZE)
    arguments = *_in_a_row(found), offsets, *_in_a_row(columns)
    kernel("sort_events", dtypes.BY_NUMPY[kind])(len(offsets), grain, *arguments)
    return columns


def _in_a_row(found: MatrixEvents) -> MatrixEvents:
    return found._replace(places=found.places.reshape(-1), values=found.values.reshape(-1))


def _add_up(out: Any, found: MatrixEvents, y: Any, by_columns: bool) -> None:
    """`out = x @ y`, or if `by_columns`, `x.T @ y`, by the events of `x`."""
    count, (m, n) = int(found.counts.sum()), out.shape
    if by_columns:
        found = _sort_by_columns(found, m, count)
    if not _in_order(y):
        y = np.ascontiguousarray(y)
    y_turned, turned = not y.flags.c_contiguous, not out.flags.c_contiguous
    lanes = ALIGNMENT // y.dtype.itemsize
    width, depth = VECTORS * lanes, min(events.DEPTH, len(y))
    packs = y_turned or n % lanes != 0 or count >= PACKED_FROM * len(y)
    strips = -(-n // width)
    rows = max(UNIT_ROWS, -(-m // -(-UNITS // strips) // lanes) * lanes)
    units = strips * -(-m // rows)
    grain = -(-units // PANELS)
    panels = empty((-(-units // grain) if packs else 1, depth * width), y.dtype)
    kernel("add_events", dtypes.BY_NUMPY[y.dtype])(
        units,
        grain if count * n >= 4 * PARALLEL_SIZE else 0,
        *_in_a_row(found),
        y.T if y_turned else y,
        int(y_turned),
        out.T if turned else out,
        int(turned),
        rows,
        int(packs),
        grain,
        panels,
    )


def _dense(out: Any, x: Any, y: Any) -> None:
    """BLAS on one thread, for each of so many parts of the result: how many depends on the size alone."""
    if x.ndim != 2 or y.ndim != 2:
        np.matmul(x, y, out=out)
        return
    if not out.flags.c_contiguous and out.flags.f_contiguous:
        out, x, y = out.T, y.T, x.T
    m, n = out.shape
    rows, columns = _parts(m, n, x.shape[1])
    if rows == columns == 1:
        np.matmul(x, y, out=out)
        return
    cuts = [(a, b) for a in _slices(m, rows) for b in _slices(n, columns)]
    WORKERS.run(lambda cut: np.matmul(x[cut[0]], y[:, cut[1]], out=out[cut]), cuts)


def _parts(m: int, n: int, k: int) -> tuple[int, int]:
    """Into how many parts rows and columns of a result (m, n) are cut: the longer side of a part in halves."""
    rows = columns = 1
    while 2 * rows * columns <= MOST_PARTS and m * n * k >= 2 * rows * columns * PART_WORK:
        if max(m // rows, n // columns) < 2 * LEAST_SIDE:
            break
        rows, columns = (2 * rows, columns) if m // rows >= n // columns else (rows, 2 * columns)
    return rows, columns


def _slices(length: int, parts: int) -> list[slice]:
    ends = [length * part // parts for part in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def _density(x: Any) -> float:
    """The part of elements that are not zero, from some of the rows."""
    rows = x[:: max(1, min(x.size // SAMPLES, len(x) // SAMPLED_ROWS))]
    return float(np.count_nonzero(rows != 0) / max(1, rows.size))  # of booleans: of floats it takes four times as long


def kernel(name: str, dtype: Any, spikes: Any = None) -> Any:
    """One of the kernels of `cpu/events.py`, compiled for matrices of `dtype`, and `spikes` of another."""
    key = (name, dtype, spikes)
    if key not in _kernels:
        lanes = ALIGNMENT // dtype.itemsize
        source = source_of(getattr(events, name), LANES=lanes, WIDTH=VECTORS * lanes)
        number, matrix, to_matrix = dtypes.int64, (dtype, 2, False), (dtype, 2, True)
        listed = ((dtypes.int16, 1), (dtype, 1), (dtypes.int64, 2), (dtypes.int32, 2))
        taken, given = ([(*kind, writable) for kind in listed] for writable in (False, True))
        signature = {
            "find_all_events": (
                (spikes, 2, False),
                (dtypes.int16, 2, True),
                to_matrix,
                *given[2:],
                (dtypes.int32, 1, True),
            ),
            "sort_events": (*taken, (dtypes.int64, 1, False), *given),
            "add_events": (*taken, matrix, number, to_matrix, *[number] * 4, to_matrix),
        }[name]
        _kernels[key] = build(name, source, signature)
    return _kernels[key]


_kernels: dict[Any, Any] = {}
