"""Broadcast operands of a block: lay out a small array as elements of a larger one, and sum such elements again."""

from __future__ import annotations

from typing import Any

from snncell.kernels.intrinsics.builtins import call_once, least
from snncell.kernels.intrinsics.elements import move, repeat, strip, tail
from snncell.kernels.loops import LANES


@call_once
def fill_broadcast(
    target: Any, source: Any, first: int, count: int, outer: int, times: int, inner: int, each: int
) -> None:
    """The elements from `first` to `first + count` of a flat array that repeats those of `source` (outer, inner).

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
