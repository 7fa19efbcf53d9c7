"""Broadcast operands of a block of elements, and sums over axes by blocks: kernel functions, and the plan of a sum.

`fill_broadcast` lays out a small array as the elements of a larger one, and `sum_broadcast` adds such elements to a
small array. The kernel of a sum over axes adds the elements of each block to a row of results of its own. A row has
room for the results of one block only, so the rows together are much smaller than the array:

    sum of (8, 64, 1024) over axes 0 and 2, blocks of 4096     128 rows of 6 of the 64 channels
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.intrinsics.builtins import call_once, least
from snncell.kernels.intrinsics.elements import move, repeat, strip, tail
from snncell.kernels.loops import LANES


@call_once
def fill_broadcast(
    target: Any, source: Any, first: int, count: int, outer: int, times: int, inner: int, each: int
) -> None:
    """Store in `target` `count` elements from `first` on of a flat array that repeats those of `source` (outer, inner).

    The array is `source[:, None, :, None]` broadcast to (outer, times, inner, each), and this repeated without end. For
    example, a number per channel of images has inner = channels, each = pixels. Up to the end of a vector, `target` is
    overwritten. There are no divisions in the loops, and each repetition is copied from the first.
    """
    tile = inner * each
    group = times * tile
    need, place = least(count, outer * group), first % (outer * group)
    row, place = place // group, place % group
    end, column, length = group - place, place % tile // each, each - place % each
    done = 0
    while done < need:
        begin, stop = done, least(end, need)
        end = least(begin + tile, stop)
        while done < end:
            if each == 1:
                length = least(inner - column, end - done)
                move(tail(target, done), tail(source, row * inner + column), length)
                column = inner
            else:
                length = least(length, end - done)
                repeat(tail(target, done), tail(source, row * inner + column), length)
                column += 1
            done += length
            length = each
            if column == inner:
                column = 0
        while done < stop:
            length = least(done - begin, stop - done)
            move(tail(target, done), tail(target, begin), length)
            done += length
        row += 1
        if row == outer:
            row = 0
        end, column, length = done + group, 0, each
    while done < count:
        length = least(done, count - done)
        move(tail(target, done), tail(target, 0), length)
        done += length


@call_once
def sum_broadcast(
    target: Any, source: Any, first: int, count: int, rows: int, times: int, inner: int, each: int
) -> None:
    """The transpose of `fill_broadcast`: add each element of the source to the element of `target` that it repeats.
    `target` (rows, inner) is reused like a ring: it has the results of row n at n % rows. Therefore it needs only the
    rows to which these `count` elements belong. The additions have a fixed order, in the dtype of `target`.
    """
    tile = inner * each
    group = times * tile
    row, place = first // group % rows, first % group
    turn, column, length = place // tile, place % tile // each, each - place % each
    sums = strip(LANES, target)
    done = 0
    while done < count:
        own, part = tail(target, row * inner + column), tail(source, done)
        if each == 1:
            length = least(inner - column, count - done)
            for i in range(length):
                own[i] += part[i]
            column = inner
        else:
            length = least(length, count - done)
            # A sum per lane, because each addition must wait for the previous one of the same sum.
            for lane in range(LANES):
                sums[lane] = 0
            whole = length - length % LANES
            for base in range(0, whole, LANES):
                for lane in range(LANES):
                    sums[lane] += part[base + lane]
            for lane in range(length - whole):
                sums[lane] += part[whole + lane]
            for lane in range(LANES):
                own[0] += sums[lane]
            column += 1
        done += length
        length = each
        if column == inner:
            column = 0
            turn += 1
            if turn == times:
                turn = 0
                row += 1
                if row == rows:
                    row = 0


# --- The plan of a sum by blocks --------------------------------------------------------------------------------------

LONG = 64  # elements that a kernel should add at a time
FEWER = 4  # a loop sums only if a block has at least this number of elements for each of its results


class BlockSum(NamedTuple):
    """The sum of an array of a `shape` to the shape `kept`, which has length 1 along summed axes. The array is read as
    (repetitions, outer, times, inner, each) and summed to the results (outer, inner). If there are few results, `inner`
    contains each result `fold` times, and `total` adds these copies.
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
        # Sum the axes that `_results` has left in full.
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
    if len(own) == 2:  # each result is the sum of a contiguous run of elements
        return BlockSum(shape, kept, own[0], 1, 1, own[1])
    if len(own) == 4:
        return BlockSum(shape, kept, *own)
    outer, times, inner = own if len(own) == 3 else (1, 0, own[0])  # 0 for any number of repetitions
    fold = next(n for n in range(max(1, LONG // max(1, inner)), 0, -1) if times % n == 0)
    return BlockSum(shape, kept, outer, max(1, times // fold), inner * fold, 1, fold)


def _has(shape: tuple[int, ...], kept: tuple[int, ...], level: list[int]) -> bool:
    return all(kept[axis] == shape[axis] for axis in level)


def _levels(shape: tuple[int, ...], kept: tuple[int, ...]) -> list[list[int]]:
    """The levels of a sum, runs of axes that are all kept or all summed, from the first kept axis on. They leave out
    axes of length 1. For example, the sum of (8, 64, 1024) over axes 0 and 2 has the levels [1] and [2].
    """
    axes = [axis for axis, n in enumerate(shape) if n != 1]
    levels = [list(run) for _, run in itertools.groupby(axes, lambda axis: kept[axis] == shape[axis])]
    return levels[1:] if len(levels) > 1 and not _has(shape, kept, levels[0]) else levels or [[]]


def _results(shape: tuple[int, ...], kept: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a kernel's results: `kept`, but from a third level on with all axes in full if there are more than
    four levels, because a kernel has loops for four.
    """
    levels = _levels(shape, kept)
    if len(levels) <= 4:
        return kept
    return tuple(n if axis >= levels[2][0] else own for axis, (n, own) in enumerate(zip(shape, kept, strict=True)))
