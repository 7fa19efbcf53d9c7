"""Matrix products: BLAS, or event-driven kernels for a sparse matrix of spikes.

An event is a nonzero element of x in x @ y. For example, if a row of x has three events, this row of the result is a
weighted sum of three rows of y. A unit of work is some rows of the result in one strip of WIDTH columns; a thread takes
a chunk of consecutive units. The kernel packs y into panels of DEPTH rows and WIDTH columns, which fill half of an L2
cache. It uses a panel for all rows of a unit before it packs the next panel, so a unit loads each element of y once.
If x has few events per column, each row of y is used only a few times, and the kernel reads y without packing it. For
each row of x and each panel, the sums stay in registers while the kernel adds a panel row for each event. For x.T @ y,
the events are sorted by column first. Each sum adds the events in the order of their places, so the bits do not depend
on the number of threads.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import flat, row, strip, tail
from snncell.kernels.intrinsics.panels import (
    DEPTH,
    VECTORS,
    WORD,
    add_rows,
    bits_before,
    fetch,
    lowest,
    others,
    pack,
    store,
)
from snncell.kernels.numba.build import kernel_for
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.products import blas, device as on_device

# --- Kernels ----------------------------------------------------------------------------------------------------------

LANES, WIDTH = 16, 64  # elements of a vector, and of a row of a panel; they depend on the dtype

PART = 64  # rows of x whose events are stored one after the other; `_all_events` reserves the memory


def find_all_events(
    start: Any, stop: Any, x: Any, places: Any, values: Any, starts: Any, counts: Any, graded: Any
) -> None:
    """Find the nonzero elements of `x` (m, k), row by row: their columns and values.

    A column number counts from the first column of its block of DEPTH columns. `counts` (blocks, m) gets the number of
    events of each row and block. `starts` gets the index of the first of these events in `places` and `values`, which
    have the shape (parts, maximum number of events of a part). Unused memory is not written. `graded` (parts) is set to
    1 if a part has an event that is not 1.
    """
    _, k = x.shape
    blocks, m = counts.shape
    _, room = places.shape
    for part in range(start, stop):
        own, of_own, found = row(places, part), row(values, part), 0
        rest = strip(WORD, x)
        graded[part] = 0
        for number in range(part * PART, least(m, part * PART + PART)):
            given = row(x, number)
            for block in range(blocks):
                first, end = block * DEPTH, least(k, block * DEPTH + DEPTH)
                before = found
                for place in range(first, end, WORD):
                    bits = bits_before(given, place, end, tail(rest, 0))
                    while bits != 0:
                        column = place + lowest(bits)
                        own[found] = column - first
                        of_own[found] = given[column]
                        graded[part] |= of_own[found] != 1
                        found += 1
                        bits = others(bits)
                starts[block, number] = part * room + before
                counts[block, number] = found - before


def sort_events(
    start: Any, stop: Any, places: Any, values: Any, starts: Any, counts: Any, offsets: Any, rows: Any, ordered: Any,
    column_starts: Any, column_counts: Any,
) -> None:  # fmt: skip
    """Sort the events of each block of DEPTH rows by column. The result lists the events of the transposed matrix.

    `column_counts` (blocks, k) gets the number of events of each column in each block, and `column_starts` the index of
    the first one in `rows` and `ordered`. The events of a block begin at its entry of `offsets`. `values` and `ordered`
    may have one element, the value of all events.
    """
    column_blocks, m = counts.shape
    _, k = column_counts.shape
    graded = len(values) > 1
    for block in range(start, stop):
        next_of, count_of = row(column_starts, block), row(column_counts, block)
        for column in range(k):
            count_of[column] = 0
        for turn_of in range(2):  # count the events of each column, then put each in its place
            if turn_of == 1:
                at = offsets[block]
                for column in range(k):
                    next_of[column] = at
                    at += count_of[column]
            for number in range(block * DEPTH, least(m, block * DEPTH + DEPTH)):
                for low in range(column_blocks):
                    first = starts[low, number]
                    for event in range(first, first + counts[low, number]):
                        column = low * DEPTH + places[event]
                        if turn_of == 0:
                            count_of[column] += 1
                        else:
                            place = next_of[column]
                            next_of[column] = place + 1
                            rows[place] = number - block * DEPTH
                            if graded:
                                ordered[place] = values[event]
        for column in range(k):
            next_of[column] -= count_of[column]


def add_events(
    start: Any, stop: Any, places: Any, values: Any, starts: Any, counts: Any, y: Any, y_turned: Any, out: Any,
    out_turned: Any, rows: Any, packs: Any, grain: Any, panels: Any, reach: Any,
) -> None:  # fmt: skip
    """`out = x @ y` for an `x` given by its events.

    Args:
        places, values, starts, counts: events from `find_all_events` or `sort_events`, places and values flattened.
            `values` may have one element, the value of all events.
        y: (k, n), or (n, k) if `y_turned`.
        out: (m, n), or (n, m) if `out_turned`.
        rows: the number of rows of the result in a unit, which has WIDTH columns. Units are numbered strip by strip.
        packs: 0 to read the rows of `y` in place, without packing; they must then be whole vectors.
        grain: the number of consecutive units in a chunk, which one thread runs.
        panels: scratch memory, (number of chunks, min(reach, rows of `y`) * WIDTH); one unused row if `packs` is 0.
        reach: the number of rows of `y` in a block of events; at most DEPTH.
    """
    blocks, m = counts.shape
    inner, n = y.shape
    if y_turned != 0:
        n, inner = y.shape
    parts = (m + rows - 1) // rows
    panel = row(panels, start // grain)
    sums = strip(LANES * WIDTH, y)
    packed = -1
    graded = 0 if len(values) == 1 else 1
    for unit in range(start, stop):
        own = unit // parts
        first, low = (unit - own * parts) * rows, own * WIDTH
        width, last = least(WIDTH, n - low), least(m, first + rows)
        vectors = (width + LANES - 1) // LANES
        stride = vectors * LANES
        for block in range(blocks):
            depth = least(reach, inner - block * reach)
            if packs != 0 and packed != own * blocks + block:
                packed = own * blocks + block
                pack(panel, stride, y, y_turned, block * reach, depth, low, width, LANES)
            near, step = tail(panel, 0), stride
            if packs == 0:
                near, step = tail(flat(y), block * reach * n + low), n
            start_of, count_of = row(starts, block), row(counts, block)
            for group in range(first, last, LANES):
                height = least(LANES, last - group)
                if block != 0:
                    fetch(sums, stride, out, out_turned, group, height, low, width, LANES)
                for i in range(height):
                    event, total = start_of[group + i], tail(sums, i * stride)
                    own_places, own_values = tail(places, event), tail(values, event * graded)
                    add_rows(total, block, own_values, graded, own_places, count_of[group + i], near, step, vectors)
                store(out, out_turned, sums, stride, group, height, low, width, LANES)


SAMPLES, RUN = 16384, 64  # elements from which the density is estimated, in runs
GOLDEN = 0.6180339887498949  # the distance between two runs, as a fraction of the array
PLACES, FIRST = np.arange(SAMPLES // RUN) * GOLDEN % 1, 16  # the place of each run; the runs that are read first
UNITS = 16  # if an event-driven product has fewer strips of columns than this, its rows are divided among units too
UNIT_ROWS = 256  # the minimum number of rows of a unit
PANELS = 32  # the maximum number of chunks of units, each with a panel; a thread that is early takes another chunk
PACKED_FROM = 2  # events per column of x, on average: with fewer, the kernel reads y in place instead of packing it


class MatrixEvents(NamedTuple):
    """The events of a matrix, or of its transpose: see `find_all_events`."""

    places: Any
    values: Any
    starts: Any
    counts: Any


def matmul(x: Any, y: Any, *, turned: bool = False) -> Any:
    """`x @ y` as NumPy computes it, also for batches; if `turned`, the transpose of the product of two matrices.
    If `x`, or its transpose, is C-contiguous and sparse, only its nonzero elements are multiplied. The result then
    agrees to rounding, but 0 times inf or NaN is skipped.
    """
    if not isinstance(x, np.ndarray):
        return on_device.matmul(y.T, x.T) if turned else on_device.matmul(x, y)
    if not (x.ndim == y.ndim == 2 and _dtypes_match(x, y) and x.size and y.size):
        return blas.multiply_any(*((y.T, x.T) if turned else (x, y)))
    if turned:
        out = empty((y.shape[1], x.shape[0]), y.dtype)
        matmul_into(out.T, x, y)
    else:
        out = empty((x.shape[0], y.shape[1]), y.dtype)
        matmul_into(out, x, y)
    return out


def matmul_into(out: Any, x: Any, y: Any) -> None:
    """Store `x @ y` in `out`, which may be a transpose."""
    if not isinstance(x, np.ndarray):
        if out.contiguous:
            on_device.matmul(x, y, out)
        else:
            on_device.matmul(y.T, x.T, out.T)
        return
    if dtypes.is_storage_only(x.dtype):
        out[...] = matmul(*(array.astype(dtypes.compute_dtype(array.dtype)) for array in (x, y)))
        return
    if _may_be_events(out, x, y) and uses_events(x, y):
        by_columns = not x.flags.c_contiguous
        _add_up(out, _all_events(x.T if by_columns else x, y.dtype), y, by_columns)
        return
    blas.multiply_into(out, x if x.dtype == y.dtype else x.astype(y.dtype), y)


def uses_events(x: Any, y: Any) -> bool:
    """Return True if the product of two matrices uses events, by an estimate of the density of `x`."""
    by_columns = not x.flags.c_contiguous
    spikes, below = x.T if by_columns else x, limit_of(x, y, by_columns)
    return bool(below > 0 and spikes.flags.c_contiguous and estimate_density(spikes) < below)


def events_of(x: Any, *, dtype: Any, below: float) -> MatrixEvents:
    """Find the events of a matrix for several products of a dtype; none if its density is not below `below`.
    `x` has floats, bytes, or booleans, which count as 0 and 1.
    """
    if x.flags.c_contiguous and x.size and dtype in (np.float32, np.float64) and estimate_density(x) < below:
        return _all_events(x, dtype)
    return MatrixEvents(*(np.empty((0, 0), kind) for kind in (np.int16, dtype, np.int64, np.int32)))


def product_of_events(x: Any, found: MatrixEvents, y: Any, *, by_columns: bool, turned: bool) -> Any:
    """`x @ y`, or `x.T @ y` if `by_columns`, for an `x` with known events; the transpose of the result if `turned`."""
    left = x.T if by_columns else x
    if not uses_known_events(left, found, y, by_columns):
        return matmul(left.astype(y.dtype, copy=False), y, turned=turned)
    return product_by_events(found, left.shape, y, by_columns=by_columns, turned=turned)


def uses_known_events(left: Any, found: MatrixEvents, y: Any, by_columns: bool) -> bool:
    """Return True if `product_of_events` uses the known events."""
    known = found.counts.size and found.values.dtype == y.dtype
    return bool(known and found.counts.sum() < limit_of(left, y, by_columns) * left.size)


def product_by_events(
    found: MatrixEvents, sizes: tuple[int, int], y: Any, *, by_columns: bool, turned: bool, reach: int = DEPTH
) -> Any:
    """The product of `product_of_events`, from the events alone; `sizes` is the shape of the first operand.
    The events are in blocks of `reach` columns (of DEPTH columns if `by_columns`).
    """
    shape = sizes[0], y.shape[1]
    out = empty(shape[::-1] if turned else shape, y.dtype)
    _add_up(out.T if turned else out, found, y, by_columns, reach)
    return out


def limit_of(x: Any, y: Any, by_columns: bool) -> float:
    """The density of `x` (m, k) below which its product with `y` (k, n) is event-driven; 0 if it never is."""
    (m, k), n = x.shape, y.shape[-1]
    return limit(int(m), int(k), int(n), y.dtype, by_columns)


def _may_be_events(out: Any, x: Any, y: Any) -> bool:
    """True for a product of matrices with matching dtypes and shapes, and an `out` in C or Fortran order."""
    matrices = x.ndim == y.ndim == 2 and _dtypes_match(x, y) and x.shape[1] == len(y)
    return matrices and out.shape == (len(x), y.shape[1]) and _in_order(out)


def _dtypes_match(x: Any, y: Any) -> bool:
    """True for arrays of one dtype, and for bytes times floats, because events can be found in the bytes."""
    return x.dtype == y.dtype or (x.dtype in dtypes.BYTES and y.dtype in (np.float32, np.float64))


def _in_order(x: Any) -> bool:
    return bool(x.flags.c_contiguous or x.flags.f_contiguous)


def _all_events(x: Any, dtype: Any) -> MatrixEvents:
    m, k = x.shape
    parts, blocks = -(-m // PART), -(-k // DEPTH)
    # Reserve memory for the maximum number of events, because unused pages cost nothing. But with pages of 2 MB, unused
    # room between parts takes memory. Counting nonzero bytes is fast, so for bytes, reserve only as much as the fullest
    # part needs.
    room = PART * k
    if x.dtype in dtypes.BYTES:
        room = max(1, max(int(np.count_nonzero(x[n : n + PART])) for n in range(0, m, PART)))
    places, values = (empty((parts, room), kind) for kind in (np.dtype(np.int16), dtype))
    graded = np.empty(parts, np.int32)
    found = MatrixEvents(places, values, np.empty((blocks, m), np.int64), np.empty((blocks, m), np.int32))
    grain = int(2 * x.size >= PARALLEL_SIZE)
    kernel(find_all_events, dtype, x.dtype)(parts, grain, x, *found, graded)
    return found if graded.any() else found._replace(values=np.ones((1, 1), dtype))


def sort_by_columns(found: MatrixEvents, k: int, total: int) -> MatrixEvents:
    """The events of the transpose of a matrix with k columns and `total` events."""
    m, kind = found.counts.shape[1], found.values.dtype
    offsets = np.zeros(-(-m // DEPTH), np.int64)
    if len(offsets) > 1:
        np.cumsum(np.add.reduceat(found.counts.sum(0), np.arange(0, m, DEPTH))[:-1], out=offsets[1:])
    shape = len(offsets), k
    values = found.values if found.values.size == 1 else empty((total,), kind)
    places = empty((total,), np.dtype(np.int16))
    columns = MatrixEvents(places, values, np.empty(shape, np.int64), np.empty(shape, np.int32))
    grain = int(4 * total >= PARALLEL_SIZE)
    arguments = *_in_a_row(found), offsets, *_in_a_row(columns)
    kernel(sort_events, kind)(len(offsets), grain, *arguments)
    return columns


def _in_a_row(found: MatrixEvents) -> MatrixEvents:
    return found._replace(places=found.places.reshape(-1), values=found.values.reshape(-1))


def _add_up(out: Any, found: MatrixEvents, y: Any, by_columns: bool, reach: int = DEPTH) -> None:
    """`out = x @ y`, or `x.T @ y` if `by_columns`, by the events of `x`."""
    count, (m, n) = int(found.counts.sum()), out.shape
    if by_columns:
        found = sort_by_columns(found, m, count)
    if not _in_order(y):
        y = np.ascontiguousarray(y)
    y_turned, turned = not y.flags.c_contiguous, not out.flags.c_contiguous
    lanes = ALIGNMENT // y.dtype.itemsize
    width, depth = VECTORS * lanes, min(reach, len(y))
    packs = y_turned or n % lanes != 0 or count >= PACKED_FROM * len(y)
    strips = -(-n // width)
    rows = max(UNIT_ROWS, -(-m // -(-UNITS // strips) // lanes) * lanes)
    units = strips * -(-m // rows)
    grain = -(-units // PANELS)
    panels = empty((-(-units // grain) if packs else 1, depth * width), y.dtype)
    kernel(add_events, y.dtype)(
        *(units, grain if count * n >= 4 * PARALLEL_SIZE else 0, *_in_a_row(found)),
        *(y.T if y_turned else y, int(y_turned), out.T if turned else out, int(turned)),
        *(rows, int(packs), grain, panels, reach),
    )


def estimate_density(x: Any) -> float:
    """Estimate the fraction of nonzero elements of a contiguous array, from runs of elements. The distance between runs
    is not a whole number of rows or images. With every n-th row instead, for example, all samples could be the first
    rows of images, at whose border there are fewer spikes.
    """
    elements = x.reshape(-1)
    if x.size > SAMPLES:
        runs = elements[: x.size // RUN * RUN].reshape(-1, RUN)
        places = (PLACES * len(runs)).astype(np.int64)
        if (runs[places[:FIRST]] != 0).all():  # dense: most runs are not in a cache, so all of them would take 40 µs
            return 1.0
        elements = runs[places]
    # `!= 0` because counting floats is four times slower
    return float(np.count_nonzero(elements != 0) / max(1, elements.size))


# The signature of each kernel.
_KINDS = {
    find_all_events: "S[2] int16[2]* T[2]* int64[2]* int32[2]* int32[1]*",
    sort_events: "int16[1] T[1] int64[2] int32[2] int64[1] int16[1]* T[1]* int64[2]* int32[2]*",
    add_events: "int16[1] T[1] int64[2] int32[2] T[2] int64 T[2]* int64 int64 int64 int64 T[2]* int64",
}


def kernel(function: Any, dtype: Any, *spikes: Any) -> Any:
    """Build a kernel for matrices of `dtype`, and `spikes` of another dtype."""
    lanes = ALIGNMENT // dtype.itemsize
    return kernel_for(function, _KINDS[function], dtype, *spikes, LANES=lanes, WIDTH=VECTORS * lanes)


# --- The cost model: the density at which an event-driven product is as fast as BLAS ----------------------------------

# Both times are estimated from the sizes alone, in nanoseconds on one thread for float32. For float64, MULTIPLY,
# ELEMENT, PACK and ADD are twice as high, and the other costs are the same. The constants are fitted to the measured
# ratio of both times (`benchmarks/events.py`) for 200 to 8000 rows and 10 to 4096 columns, and include the time to load
# operands that are not in a cache. On another machine both times differ, but their ratio differs less. An event-driven
# product loads a row of a panel from the L2 cache for each event, so this cache limits its speed. Arithmetic limits the
# speed of BLAS.

# Costs of events: CALLS and SORTED_CALLS per product, without and with the sort by columns; LOOK per element of the
# sparse operand; LIST and SORT per event; ADD per event and column; PACK per element of the dense operand; ROW per row
# of the result in each strip and panel.
CALLS, SORTED_CALLS = 34_000.0, 57_000.0
LOOK, LIST, SORT, ADD = 0.52, 0.6, 3.0, 0.041
PACK, ROW = 0.62, 21.0

# Costs of BLAS: per multiplication, and per element of the operands and of the result.
MULTIPLY, ELEMENT = 0.0207, 0.62

LEAST = 0.02  # if the break-even density is lower, the search for events is not worth its time
FEWEST = 4, 8  # the fewest rows of x in x @ y, and in x.T @ y: with fewer, BLAS is memory-bound, and the model is wrong


@functools.lru_cache(maxsize=4096)
def limit(m: int, k: int, n: int, dtype: Any, by_columns: bool) -> float:
    """The density of `x` (m, k) below which `x @ y` is event-driven; 0 if it never is.
    `y` is (k, n), and both have dtype `dtype`. If `by_columns`, `x` is the transpose of the matrix in memory.
    """
    rows = k if by_columns else m
    if dtype.kind != "f" or dtype.itemsize not in (4, 8) or not m * k * n or rows < FEWEST[by_columns]:
        return 0.0
    size = dtype.itemsize / 4
    lanes = 64 // dtype.itemsize
    padded, width = -(-n // lanes) * lanes, VECTORS * lanes
    dense = size * (MULTIPLY * m * k * n + ELEMENT * (m * k + k * n + m * n))
    fixed = (SORTED_CALLS if by_columns else CALLS) + LOOK * m * k + size * PACK * k * n
    fixed += ROW * m * -(-n // width) * -(-k // DEPTH)
    event = LIST + SORT * by_columns + size * padded * ADD
    below = (dense - fixed) / (m * k * event)
    return min(1.0, below) if below >= LEAST else 0.0
