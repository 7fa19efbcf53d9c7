"""Products of rows with few events, as the kernel of a loop takes them: to add the rows of the matrix up step by step.

The events are those of the whole product (`kernels/products.py`), and they are few enough by its rule. The matrix lies
in strips of columns, each of which stays in the second-level cache for all steps. For the transposed product the events
are sorted by column, for as many rows as stay in the cache.

Which sizes are worth it was measured beside the same loops with the products before and after them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels import event_costs, products
from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import events, gathers
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.kernels.products import MatrixEvents

CACHED = 1 << 20  # bytes of a strip of the matrix, which its rows are read from, step after step: a second-level cache
ROWS = 512  # that are near while they are added up to columns: their places are of 16 bits
LEAST_STRIP, MOST_STRIP = 64, 1024  # columns
DEEPEST = events.DEPTH  # rows of a matrix, or a gradient: of more, narrow strips fill the cache, or are cut in depth
FEWEST = 32, 128  # columns of a matrix, and of a gradient: of fewer, finding the events is most of the work


class RowsOfEvents(NamedTuple):
    """A product whose rows are to be computed where they are used.

    Attributes:
        events: of the first operand, their places and values in one row.
        total: how many there are.
        matrix: the other operand.
    """

    events: MatrixEvents
    total: int
    matrix: Any

    @property
    def strip(self) -> int:
        """The columns of the result that are computed together."""
        inner, width = self.matrix.shape
        columns = CACHED // (inner * self.matrix.itemsize) // LEAST_STRIP * LEAST_STRIP
        return int(min(width, max(LEAST_STRIP, min(MOST_STRIP, columns))))

    def in_strips(self, width: int) -> Any:
        """The matrix in one row: its strips of so many columns one after another, of rows of whole vectors."""
        y, (inner, columns) = self.matrix, self.matrix.shape
        lanes = ALIGNMENT // y.dtype.itemsize
        if not (y.flags.c_contiguous or y.flags.f_contiguous):
            y = np.ascontiguousarray(y)
        turned = not y.flags.c_contiguous
        if not turned and width == columns and columns % lanes == 0:
            return y.reshape(-1)
        strips = -(-columns // width)
        out = empty((inner * ((strips - 1) * width + -(-(columns - (strips - 1) * width) // lanes) * lanes),), y.dtype)
        arguments = (y.T if turned else y), int(turned), width, out
        _kernel("in_strips", y.dtype)(strips, int(y.size >= PARALLEL_SIZE), *arguments)
        return out


class SortedEvents(NamedTuple):
    """The events of a matrix by columns, within blocks of its rows: of so many steps of so many samples.

    Attributes:
        inner: the matrix's columns.
        held, group: the steps and the samples of a block.
        firsts: for each block where the events of each column begin.
        rows: of all events, in the block.
        values: of all events, or one for all.
        total: how many events there are.
    """

    inner: int
    held: int
    group: int
    firsts: Any
    rows: Any
    values: Any
    total: int


def may_pay(inner: int, width: int, dtype: Any, by_columns: bool) -> bool:
    """True for a product `x @ y`, or `x.T @ y`, that a loop may carry out; `x` has `inner` columns, `y` has `width`."""
    return dtype in (np.float32, np.float64) and inner <= DEEPEST and width >= FEWEST[by_columns]


def rows_of_events(x: Any, lists: Any, matrix: Any) -> RowsOfEvents | None:
    """The product of the rows of `x` with `matrix`, where its events are few enough; `lists` are `x`'s, if known."""
    if not all(isinstance(array, np.ndarray) for array in (x, matrix)):
        return None
    found = _few_events(x, lists, matrix.dtype, products.limit_of(x, matrix, False))
    return None if found is None else RowsOfEvents(*found, matrix)


def sort_events(x: Any, lists: Any, dtype: Any, width: int, steps: int) -> SortedEvents | None:
    """The events of `x` for a product `x.T @ y`, where they are few enough; `lists` are `x`'s, if known."""
    if not isinstance(x, np.ndarray):
        return None
    inner, samples = x.shape[1], len(x) // steps
    few = _few_events(x, lists, dtype, event_costs.limit(inner, len(x), width, np.dtype(dtype), True))
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
    _kernel("sort_by_column", found.values.dtype)(
        *(blocks, int(2 * x.size >= PARALLEL_SIZE), samples, np.array([held, group])),
        *(*found, bases, firsts, free, rows, ordered),
    )
    return SortedEvents(inner, held, group, firsts, rows, ordered, total)


def _few_events(x: Any, lists: Any, dtype: Any, below: float) -> tuple[MatrixEvents, int] | None:
    """The events of a matrix, and how many there are in all; None for too many."""
    found = MatrixEvents(*lists) if lists else products.events_of(x, dtype=dtype, below=below)
    total = int(found.counts.sum(dtype=np.int64))
    if not found.counts.size or found.values.dtype != dtype or total >= below * x.size:
        return None
    return MatrixEvents(*(array.reshape(-1) for array in found)), total  # of one block of columns


def _kernel(name: str, dtype: Any) -> Any:
    key = (name, dtype)
    if key not in _kernels:
        kind, place, number = dtypes.BY_NUMPY[dtype], dtypes.int16, dtypes.int64
        signature = {
            "in_strips": ((kind, 2, False), number, number, (kind, 1, True)),
            "sort_by_column": (
                *(number, (number, 1, False), (place, 1, False), (kind, 1, False), (number, 1, False)),
                *((dtypes.int32, 1, False), (number, 1, False), (number, 2, True), (number, 2, True)),
                *((place, 1, True), (kind, 1, True)),
            ),
        }[name]
        _kernels[key] = build(name, source_of(getattr(gathers, name), LANES=ALIGNMENT // dtype.itemsize), signature)
    return _kernels[key]


_kernels: dict[Any, Any] = {}
