"""Event-driven products fused into loops over time: each step adds the matrix rows of its events.

If the cost model of `matmul.py` prefers events, they are found once for all steps. The matrix is copied to strips of
columns, and a strip stays in the L2 cache for all steps. For the product x.T @ y, the events are sorted by column
within blocks of rows of x, so that the rows of y for a block stay in the cache. The limits in `may_be_faster` come from
measurements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import prefetch, row, tail
from snncell.kernels.intrinsics.panels import DEPTH, pack
from snncell.kernels.numba.build import kernel_for
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.products import matmul
from snncell.kernels.products.matmul import MatrixEvents

# --- Kernels ----------------------------------------------------------------------------------------------------------

LANES = 16  # depends on the dtype

AHEAD = 8  # the prefetch distance of a row's events, in steps


def in_strips(start: Any, stop: Any, y: Any, y_turned: Any, width: Any, out: Any) -> None:
    """Copy `y` (or `y.T` if `y_turned`) into consecutive strips of `width` columns, padded to whole vectors."""
    inner, columns = y.shape
    if y_turned != 0:
        columns, inner = y.shape
    for unit in range(start, stop):
        first = unit * width
        count = least(width, columns - first)
        stride = (count + LANES - 1) // LANES * LANES
        pack(tail(out, first * inner), stride, y, y_turned, 0, inner, first, count, LANES)


def sort_by_column(
    start: Any, stop: Any, samples: Any, sizes: Any, places: Any, values: Any, starts: Any, counts: Any, bases: Any,
    firsts: Any, free: Any, own: Any, of_own: Any,
) -> None:  # fmt: skip
    """Sort the events of each block by column: write rows within the block to `own`, and values to `of_own`.

    The matrix has one row `t * samples + sample` for each step and sample. The events of row n begin at `starts[n]` of
    `places` and `values`. A unit is a block of `sizes[0]` steps and `sizes[1]` samples. Its sorted events begin at
    `bases[unit]` of `own` and `of_own`. `firsts` (blocks, k + 1), initially zero, gets the index of each column's first
    event. `free` (blocks, k) is overwritten. `values` may have one element, the value of all events.
    """
    steps, held, group = len(counts) // samples, sizes[0], sizes[1]
    chunks = (steps + held - 1) // held
    _, columns = free.shape
    for unit in range(start, stop):
        first, next_of = row(firsts, unit), row(free, unit)
        low, early = unit // chunks * group, unit % chunks * held
        for turn in range(2):  # count the events of each column, then put each in its place
            if turn == 1:
                first[0] = bases[unit]
                for column in range(columns):
                    first[column + 1] += first[column]
                    next_of[column] = first[column]
            for t in range(early, least(steps, early + held)):
                for sample in range(low, least(samples, low + group)):
                    number = t * samples + sample
                    prefetch(tail(places, starts[least(number + AHEAD * samples, len(counts) - 1)]))
                    for event in range(starts[number], starts[number] + counts[number]):
                        column = places[event]
                        if turn == 0:
                            first[column + 1] += 1
                        else:
                            place = next_of[column]
                            next_of[column] = place + 1
                            own[place] = (sample - low) * held + t - early
                            if len(values) > 1:
                                of_own[place] = values[event]


CACHED = 1 << 20  # the bytes of a strip of the matrix, so that it stays in the L2 cache for all steps
ROWS = 512  # rows of a block of sorted events; row numbers have 16 bits
LEAST_STRIP, MOST_STRIP = 64, 1024  # columns
DEEPEST = DEPTH  # the most rows of a matrix or gradient: with more, only narrow, slow strips would fit into the cache
FEWEST = 32, 128  # the fewest columns of a matrix, and of a gradient: with fewer, the search for events dominates


class RowsOfEvents(NamedTuple):
    """The operands of a product that a loop computes row by row, from the events of the first operand."""

    events: MatrixEvents  # of the first operand, with flat places and values
    total: int  # the number of events
    matrix: Any  # the second operand

    @property
    def strip(self) -> int:
        """The width of a strip: the columns of the result that are computed together."""
        inner, width = self.matrix.shape
        columns = CACHED // (inner * self.matrix.itemsize) // LEAST_STRIP * LEAST_STRIP
        return int(min(width, max(LEAST_STRIP, min(MOST_STRIP, columns))))


def pack_strips(y: Any, width: int) -> Any:
    """A matrix as a flat array of strips of `width` columns, with rows padded by zeros to whole vectors."""
    inner, columns = y.shape
    lanes = ALIGNMENT // y.dtype.itemsize
    if not (y.flags.c_contiguous or y.flags.f_contiguous):
        y = np.ascontiguousarray(y)
    turned = not y.flags.c_contiguous
    if not turned and width == columns and columns % lanes == 0:
        return y.reshape(-1)
    strips = -(-columns // width)
    out = empty((inner * ((strips - 1) * width + -(-(columns - (strips - 1) * width) // lanes) * lanes),), y.dtype)
    kernel = kernel_for(in_strips, "T[2] int64 int64 T[1]*", y.dtype, LANES=lanes)
    kernel(strips, int(y.size >= PARALLEL_SIZE), y.T if turned else y, int(turned), width, out)
    return out


class SortedEvents(NamedTuple):
    """The events of a matrix sorted by column, within blocks of some steps and samples."""

    inner: int  # the number of columns of the matrix
    held: int  # the steps of a block
    group: int  # the samples of a block
    firsts: Any  # for each block, the index of each column's first event
    rows: Any  # the row of each event within its block
    values: Any  # the value of each event, or a single value for all
    total: int  # the number of events


def may_be_faster(inner: int, width: int, dtype: Any, by_columns: bool) -> bool:
    """Return True if a loop that computes `x @ y`, or `x.T @ y`, may be faster; x has `inner` and y `width` columns."""
    return dtype in (np.float32, np.float64) and inner <= DEEPEST and width >= FEWEST[by_columns]


def rows_of_events(x: Any, lists: Any, matrix: Any) -> RowsOfEvents | None:
    """The product of `x` and `matrix` by events, or None if `x` has too many; `lists` are its events, if known."""
    if not all(isinstance(array, np.ndarray) for array in (x, matrix)):
        return None
    found = _few_events(x, lists, matrix.dtype, matmul.limit_of(x, matrix, False))
    return None if found is None else RowsOfEvents(*found, matrix)


def sort_events(x: Any, lists: Any, dtype: Any, width: int, steps: int) -> SortedEvents | None:
    """The events of `x` sorted for `x.T @ y`, or None if there are too many; `lists` are its events, if known."""
    if not isinstance(x, np.ndarray):
        return None
    inner, samples = x.shape[1], len(x) // steps
    few = _few_events(x, lists, dtype, matmul.limit(inner, len(x), width, np.dtype(dtype), True))
    if few is None:
        return None
    found, total = few
    held = min(steps, ROWS)
    group = max(1, min(samples, ROWS // steps))
    chunks, groups = -(-steps // held), -(-samples // group)
    by_block = np.zeros((chunks * held, groups * group), np.int64)
    by_block[:steps, :samples] = found.counts.reshape(steps, samples)
    in_block = by_block.reshape(chunks, held, groups, group).sum((1, 3)).T.reshape(-1)
    bases = in_block.cumsum() - in_block
    blocks = len(bases)
    firsts, free = np.zeros((blocks, inner + 1), np.int64), empty((blocks, inner), np.dtype(np.int64))
    rows = empty((total + 1,), np.dtype(np.int16))
    ordered = found.values if found.values.size == 1 else empty((total + 1,), found.values.dtype)
    kinds = "int64 int64[1] int16[1] T[1] int64[1] int32[1] int64[1] int64[2]* int64[2]* int16[1]* T[1]*"
    kernel = kernel_for(sort_by_column, kinds, found.values.dtype)
    sizes, grain = np.array([held, group]), int(2 * x.size >= PARALLEL_SIZE)
    kernel(blocks, grain, samples, sizes, *found, bases, firsts, free, rows, ordered)
    return SortedEvents(inner, held, group, firsts, rows, ordered, total)


def _few_events(x: Any, lists: Any, dtype: Any, below: float) -> tuple[MatrixEvents, int] | None:
    """The events of a matrix and their number; None if there are too many."""
    found = MatrixEvents(*lists) if lists else matmul.events_of(x, dtype=dtype, below=below)
    total = int(found.counts.sum(dtype=np.int64))
    if not found.counts.size or found.values.dtype != dtype or total >= below * x.size:
        return None
    return MatrixEvents(*(array.reshape(-1) for array in found)), total  # flat, because there is one block of columns
