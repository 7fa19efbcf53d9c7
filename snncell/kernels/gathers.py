"""Products of rows with few events, as the kernel of a loop takes them: to add the rows of the matrix up step by step.

The events are those of the whole product (`kernels/products.py`), in another order: for a kernel that has all steps of
a sample go by before the next sample, those of a sample's steps lie one after another. The matrix lies in strips of
columns, each of which stays in the second-level cache meanwhile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels import products
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import events, gathers
from snncell.kernels.policy import PARALLEL_SIZE

DENSITY = 0.3  # up to which part of elements that are not zero: measured, forward and reverse, at 128 to 4096 columns
CACHED = 1 << 22  # bytes of a strip of the matrix: what its rows are read from, in long runs, beside the other threads
ROWS = 512  # that are near while they are added up to columns
LEAST_STRIP, MOST_STRIP = 64, 1024  # columns


class RowsOfEvents(NamedTuple):
    """A product whose rows are to be computed where they are used.

    Attributes:
        places, values: of all events, sample by sample.
        firsts: where those of each row begin.
        counts: how many each row has.
        matrix: the other operand.
    """

    places: Any
    values: Any
    firsts: Any
    counts: Any
    matrix: Any

    @property
    def strip(self) -> int:
        """The columns of the result that are computed together."""
        inner, width = self.matrix.shape
        columns = CACHED // (inner * self.matrix.itemsize) // LEAST_STRIP * LEAST_STRIP
        return int(min(width, max(LEAST_STRIP, min(MOST_STRIP, columns))))

    def in_strips(self, width: int) -> Any:
        """The matrix in one row: its strips of so many columns one after another."""
        inner, columns = self.matrix.shape
        turned = self.matrix.T
        if turned.flags.c_contiguous:
            out = empty((inner * columns,), turned.dtype)
            strips = -(-columns // width)
            _kernel("turn_in_strips", turned.dtype)(strips, int(turned.size >= PARALLEL_SIZE), turned, width, out)
            return out
        strips = [self.matrix[:, first : first + width].reshape(-1) for first in range(0, columns, width)]
        return strips[0] if len(strips) == 1 else np.concatenate(strips)


class SortedEvents(NamedTuple):
    """The events of a matrix by columns, within blocks of its rows: of so many steps of so many samples.

    Attributes:
        inner: the matrix's columns.
        held, group: the steps and the samples of a block.
        firsts: for each block where the events of each column begin.
        rows, values: of all events: the row in the block, and the element.
    """

    inner: int
    held: int
    group: int
    firsts: Any
    rows: Any
    values: Any


def rows_of_events(x: Any, lists: Any, matrix: Any, steps: int) -> RowsOfEvents | None:
    """The product of the rows of `x` with `matrix`, where its events are few enough; `lists` are `x`'s, if known."""
    if not all(isinstance(array, np.ndarray) for array in (x, matrix)) or not products.may_pay(x, matrix):
        return None
    found = _few_events(x, lists, matrix.dtype)
    if found is None:
        return None
    places, values, counts, total = found
    samples = len(x) // steps
    by_sample = counts.reshape(steps, samples).T.reshape(-1)
    ends = np.cumsum(by_sample, dtype=np.int64)
    firsts = np.ascontiguousarray((ends - by_sample).reshape(samples, steps).T).reshape(-1)
    own, of_own = empty((total + 1,), np.dtype(np.int32)), empty((total + 1,), values.dtype)
    _kernel("line_up", values.dtype)(
        len(places), int(2 * x.size >= PARALLEL_SIZE), events.PART, places, values, counts, firsts, own, of_own
    )
    return RowsOfEvents(own, of_own, firsts, counts, matrix)


def sorted_events(x: Any, lists: Any, dtype: Any, width: int, steps: int) -> SortedEvents | None:
    """The events of `x` for a product `x.T @ y`, where they are few enough; `lists` are `x`'s, if known."""
    if not isinstance(x, np.ndarray) or not products.may_pay(x, np.broadcast_to(np.zeros((), dtype), (len(x), width))):
        return None
    found = _few_events(x, lists, dtype)
    if found is None:
        return None
    places, values, counts, total = found
    samples, inner = len(x) // steps, x.shape[1]
    held = min(steps, ROWS)
    group = max(1, min(samples, ROWS // steps))
    chunks, groups = -(-steps // held), -(-samples // group)
    parts, room = places.shape
    by_part = np.zeros((parts, events.PART), np.int64)
    by_part.reshape(-1)[: len(counts)] = counts
    begins = (by_part.cumsum(1) - by_part + room * np.arange(parts)[:, None]).reshape(-1)
    by_block = np.zeros((chunks * held, groups * group), np.int64)
    by_block[:steps, :samples] = counts.reshape(steps, samples)
    in_block = by_block.reshape(chunks, held, groups, group).sum((1, 3)).T.reshape(-1)
    bases = in_block.cumsum() - in_block
    blocks = len(bases)
    firsts, free = np.zeros((blocks, inner + 1), np.int64), empty((blocks, inner), np.dtype(np.int64))
    rows, ordered = empty((total + 1,), np.dtype(np.int32)), empty((total + 1,), values.dtype)
    _kernel("sort_by_column", values.dtype)(
        *(blocks, int(2 * x.size >= PARALLEL_SIZE), samples, held, group),
        *(places.reshape(-1), values.reshape(-1), begins, counts, bases, firsts, free, rows, ordered),
    )
    return SortedEvents(inner, held, group, firsts, rows, ordered)


def _few_events(x: Any, lists: Any, dtype: Any) -> tuple[Any, Any, Any, int] | None:
    """The events of a matrix, and how many there are in all; None for too many."""
    places, values, counts = lists or products.events_of(x, dtype=dtype)
    total = int(counts.sum(dtype=np.int64))
    if counts[0] < 0 or values.dtype != dtype or total >= DENSITY * x.size:
        return None
    return places, values, counts, total


def _kernel(name: str, dtype: Any) -> Any:
    key = (name, dtype)
    if key not in _kernels:
        head = (
            "from snncell.kernels.cpu.builtins import least\n"
            "from snncell.kernels.cpu.elements import copy, fetch, row, tail\n\n"
            f"AHEAD, TILE = {gathers.AHEAD}, {gathers.TILE}\n\n\n"
        )
        kind, place, number = dtypes.BY_NUMPY[dtype], dtypes.int32, dtypes.int64
        lists = ((place, 2, False), (kind, 2, False), (place, 1, False), (number, 1, False))
        signature = {
            "line_up": (number, *lists, (place, 1, True), (kind, 1, True)),
            "turn_in_strips": ((kind, 2, False), number, (kind, 1, True)),
            "sort_by_column": (
                *(number, number, number, (place, 1, False), (kind, 1, False), (number, 1, False), (place, 1, False)),
                *((number, 1, False), (number, 2, True), (number, 2, True), (place, 1, True), (kind, 1, True)),
            ),
        }[name]
        _kernels[key] = build(name, head + source_of(getattr(gathers, name)), signature)
    return _kernels[key]


_kernels: dict[Any, Any] = {}
