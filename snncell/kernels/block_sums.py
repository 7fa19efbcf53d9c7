"""Sums over axes of an array by blocks of its flat elements: the results that belong to a block, and their sum.

A kernel adds the elements of each block to a row of results (`intrinsics/broadcast.py`). A row has room for the results
of one block only, so the rows together are much smaller than the array:

    sum of (8, 64, 1024) over axes 0 and 2, blocks of 4096     128 rows of 6 of the 64 channels
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

LONG = 64  # elements that a kernel should add at a time
FEWER = 4  # a block has at least this number of elements for each of its results; otherwise the loop does not sum them


class BlockSum(NamedTuple):
    """The sum of an array of a `shape` to the shape `kept`, with length 1 along summed axes.

    The array is read as (repetitions, outer, times, inner, each) and summed to the results (outer, inner). If there are
    few results, `inner` contains each of them `fold` times, and these copies are added last.
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    outer: int
    times: int
    inner: int
    each: int
    fold: int = 1

    def rows(self, block: int) -> int:
        """The number of rows of results to which a block of elements belongs."""
        return max(1, min(self.outer, block // self._group() + 2))

    def is_worthwhile(self, block: int, rows: int | None = None) -> bool:
        """Return True if a block has many more elements than results in `rows` rows (default: as many as needed)."""
        return (self.rows(block) if rows is None else rows) * self.inner * FEWER <= block

    def total(self, parts: Any, rows: int, block: int) -> Any:
        """The sum in the shape `kept`, from the results of all blocks; row n of a block's results is at n % rows."""
        if not parts.size:
            return np.zeros(self.kept, parts.dtype)
        if rows == self.outer:
            sums = np.add.reduce(parts, 0)
        else:
            first = np.arange(len(parts))[:, None] * block // self._group()
            row = (first + (np.arange(rows) - first) % rows) % self.outer
            places = row[:, :, None] * self.inner + np.arange(self.inner)
            sums = np.bincount(places.reshape(-1), parts.reshape(-1), self.outer * self.inner)  # in order
        axes = tuple(axis for axis, n in enumerate(self.shape) if self.kept[axis] != n)
        sums = sums.reshape(self.outer, self.fold, -1).sum(1)
        # The results (outer, inner) may have more axes than `kept`, which had too many levels.
        return sums.reshape(_results(self.shape, self.kept)).sum(axes, keepdims=True).reshape(self.kept)

    def _group(self) -> int:
        """The elements that belong to a row of results."""
        return max(1, self.times * self.inner * self.each)


def block_sum(shape: tuple[int, ...], axes: tuple[int, ...]) -> BlockSum:
    """The sum of an array over axes."""
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape))
    levels = _levels(shape, _results(shape, kept))
    own = [math.prod(shape[axis] for axis in level) for level in levels]
    if len(own) == 1 and not _has(shape, kept, levels[0]):
        return BlockSum(shape, kept, 1, 1, 1, own[0])
    if len(own) == 2:  # the results are a run of elements each
        return BlockSum(shape, kept, own[0], 1, 1, own[1])
    if len(own) == 4:
        return BlockSum(shape, kept, *own)
    outer, times, inner = own if len(own) == 3 else (1, 0, own[0])  # 0 for any number of repetitions
    fold = next(n for n in range(max(1, LONG // max(1, inner)), 0, -1) if times % n == 0)
    return BlockSum(shape, kept, outer, max(1, times // fold), inner * fold, 1, fold)


def _has(shape: tuple[int, ...], kept: tuple[int, ...], level: list[int]) -> bool:
    return all(kept[axis] == shape[axis] for axis in level)


def _levels(shape: tuple[int, ...], kept: tuple[int, ...]) -> list[list[int]]:
    """Runs of kept and summed axes, from the first kept one on; axes of length 1 belong to any run."""
    axes = [axis for axis, n in enumerate(shape) if n != 1]
    levels = [list(run) for _, run in itertools.groupby(axes, lambda axis: kept[axis] == shape[axis])]
    return levels[1:] if len(levels) > 1 and not _has(shape, kept, levels[0]) else levels or [[]]


def _results(shape: tuple[int, ...], kept: tuple[int, ...]) -> tuple[int, ...]:
    """`kept`, with more axes in full if it has more than the four levels kept, summed, kept, summed."""
    levels = _levels(shape, kept)
    if len(levels) <= 4:
        return kept
    return tuple(n if axis >= levels[2][0] else own for axis, (n, own) in enumerate(zip(shape, kept, strict=True)))
