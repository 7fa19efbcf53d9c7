"""Products of matrices of which one is mostly zeros, as spikes are: work in proportion to the elements that are not.

These functions are compiled from their source (`kernels/products.py`), as kernels that carry out the units of their
work from `start` up to `stop`. Sums run over the events in an order that the sizes alone decide, so they do not depend
on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs Numba; the compiled source imports it
    from snncell.kernels.cpu.builtins import least
    from snncell.kernels.cpu.elements import copy, flat, row, strip, tail
    from snncell.kernels.cpu.rows import add_events, find_events

PART = 64  # rows that one thread takes at a time, whose events lie close together
BLOCK = 512  # rows that are added up together: with STRIP columns of them, a quarter of a second-level cache
STRIP = 128  # columns that one thread adds up together


def find_all_events(start: Any, stop: Any, x: Any, flags: Any, places: Any, values: Any, counts: Any) -> None:
    """The elements of `x` (m, k) that are not zero: their columns, themselves, and how many each row has.

    Those of PART rows lie one after another. `places` and `values` have room for nothing but events; what there are
    none for is left as it is. `flags` (parts, k in eights) is overwritten.
    """
    m, k = x.shape
    for part in range(start, stop):
        own, of_own, found = row(places, part), row(values, part), 0
        for place in range(part * PART, least(m, part * PART + PART)):
            given = row(x, place)
            counts[place] = find_events(given, k, row(flags, part), tail(own, found), tail(of_own, found))
            found += counts[place]


def rows_of_events(start: Any, stop: Any, places: Any, values: Any, counts: Any, y: Any, out: Any) -> None:
    """`out = x @ y` for `x` of few events: the rows of `y` that belong to a row's events, added up."""
    m, width = out.shape
    for part in range(start, stop):
        own, of_own, found = row(places, part), row(values, part), 0
        for place in range(part * PART, least(m, part * PART + PART)):
            add_events(tail(of_own, found), tail(own, found), counts[place], flat(y), row(out, place), width)
            found += counts[place]


def sort_events(
    start: Any, stop: Any, places: Any, values: Any, counts: Any, firsts: Any, rows: Any, ordered: Any, free: Any
) -> None:
    """The events of each block of rows in the order of their columns.

    `firsts` (blocks, k + 1), zero before, gets the place of each column's first event among those of the block; `rows`
    and `ordered` get the events' rows in the block and their values. They have room for nothing but events. `free`
    (blocks, k) is overwritten.
    """
    m = len(counts)
    _, ends = firsts.shape
    k = ends - 1
    for block in range(start, stop):
        first, row_of, value_of, next_of = row(firsts, block), row(rows, block), row(ordered, block), row(free, block)
        for turn in range(2):  # count the events of each column, then put each in its place
            if turn == 1:
                for column in range(k):
                    first[column + 1] += first[column]
                for column in range(k):
                    next_of[column] = first[column]
            for part in range(block * BLOCK // PART, (least(m, block * BLOCK + BLOCK) + PART - 1) // PART):
                own, of_own, found = row(places, part), row(values, part), 0
                for number in range(part * PART, least(m, part * PART + PART)):
                    for event in range(found, found + counts[number]):
                        column = own[event]
                        if turn == 0:
                            first[column + 1] += 1
                        else:
                            place = next_of[column]
                            next_of[column] = place + 1
                            row_of[place] = number - block * BLOCK
                            value_of[place] = of_own[event]
                    found += counts[number]


def columns_of_events(
    start: Any, stop: Any, firsts: Any, rows: Any, ordered: Any, y: Any, out: Any, strips: Any
) -> None:
    """`out = x.T @ y` for `x` of few events, sorted: to each row of the result, the rows of `y` of its events.

    A row of the result is loaded once for all events of a block. `strips` is overwritten: room for a strip of a block's
    rows of `y`, for each strip.
    """
    m = len(y)
    k, n = out.shape
    blocks = len(firsts)
    for own in range(start, stop):
        low, width = own * STRIP, least(STRIP, n - own * STRIP)
        near = row(strips, own)  # the strip of the block's rows of y, close together
        sums = strip(width, y)
        for column in range(k):
            result = tail(row(out, column), low)
            for i in range(width):
                result[i] = 0
        for block in range(blocks):
            row_of, value_of, first = row(rows, block), row(ordered, block), row(firsts, block)
            for place in range(least(BLOCK, m - block * BLOCK)):
                copy(tail(near, place * width), tail(row(y, block * BLOCK + place), low), width)
            for column in range(k):
                event, end = first[column], first[column + 1]
                if event < end:
                    add_events(tail(value_of, event), tail(row_of, event), end - event, near, tail(sums, 0), width)
                    result = tail(row(out, column), low)
                    for i in range(width):
                        result[i] += sums[i]
