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
from snncell.kernels.cpu import events
from snncell.kernels.cpu.gathers import line_up
from snncell.kernels.policy import PARALLEL_SIZE

DENSITY = 0.2  # up to which part of elements that are not zero
CACHED = 1 << 20  # bytes of a strip of the matrix, all of a second-level cache: what is added up is read once, in order
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
        columns = self.matrix.shape[1]
        strips = [self.matrix[:, first : first + width].reshape(-1) for first in range(0, columns, width)]
        return strips[0] if len(strips) == 1 else np.concatenate(strips)


def rows_of_events(x: Any, lists: Any, matrix: Any, steps: int) -> RowsOfEvents | None:
    """The product of the rows of `x` with `matrix`, where its events are few enough; `lists` are `x`'s, if known."""
    if not all(isinstance(array, np.ndarray) for array in (x, matrix)) or not products.may_pay(x, matrix):
        return None
    places, values, counts = lists or products.events_of(x, dtype=matrix.dtype)
    total = int(counts.sum(dtype=np.int64))
    if counts[0] < 0 or values.dtype != matrix.dtype or total >= DENSITY * x.size:
        return None
    samples = len(x) // steps
    by_sample = counts.reshape(steps, samples).T.reshape(-1)
    ends = np.cumsum(by_sample, dtype=np.int64)
    firsts = np.ascontiguousarray((ends - by_sample).reshape(samples, steps).T).reshape(-1)
    own, of_own = empty((total + 1,), np.dtype(np.int32)), empty((total + 1,), values.dtype)
    _kernel(values.dtype)(
        len(places), int(2 * x.size >= PARALLEL_SIZE), events.PART, places, values, counts, firsts, own, of_own
    )
    return RowsOfEvents(own, of_own, firsts, counts, matrix)


def _kernel(dtype: Any) -> Any:
    if dtype not in _kernels:
        head = (
            "from snncell.kernels.cpu.builtins import least\n"
            "from snncell.kernels.cpu.elements import copy, row, tail\n\n\n"
        )
        kind, place = dtypes.BY_NUMPY[dtype], dtypes.int32
        lists = ((place, 2, False), (kind, 2, False), (place, 1, False), (dtypes.int64, 1, False))
        signature = (dtypes.int64, *lists, (place, 1, True), (kind, 1, True))
        _kernels[dtype] = build("line_up", head + source_of(line_up), signature)
    return _kernels[dtype]


_kernels: dict[Any, Any] = {}
