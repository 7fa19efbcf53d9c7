"""Broadcast operands of a block: the elements of a small array, laid out as the elements of a larger one."""

from __future__ import annotations

from typing import Any

from snncell.kernels.intrinsics.builtins import call_once, least
from snncell.kernels.intrinsics.elements import move, repeat, tail


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
