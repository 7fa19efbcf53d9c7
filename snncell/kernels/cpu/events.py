"""Products of matrices of which one is mostly zeros, as spikes are: work in proportion to the elements that are not.

An event is an element that is not zero. A row of the result is the sum of the rows of the other operand that belong to
the events of a row, or for the transposed matrix of a column. Of the other operand a panel is packed, WIDTH columns of
DEPTH rows, half of a second-level cache, and all rows of the result go through it before the next: each of its elements
comes from memory once, whatever its order there. The sums of a row stay in registers over all its events of a panel.

These functions are compiled from their source (`kernels/products.py`), as kernels that carry out the units of their
work from `start` up to `stop`. Sums run over the events in the order of their places, so they do not depend on the
number of threads, nor on how the result is cut.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.elements import copy, flat, row, strip, tail
from snncell.kernels.cpu.panels import WORD, add_rows, bits_of, fetch, lowest, others, pack, store

LANES, WIDTH = 16, 64  # elements of a vector, and of a row of a panel: by the dtype

PART = 64  # rows whose events lie close together, in memory for as many as they have elements
DEPTH = 2048  # rows of a panel


def find_all_events(
    start: Any, stop: Any, x: Any, places: Any, values: Any, starts: Any, counts: Any, graded: Any
) -> None:
    """The elements of `x` (m, k) that are not zero, row by row: their columns and themselves.

    The columns are counted from the start of their block of DEPTH. `counts` (blocks, m) has how many events a row has
    in a block, `starts` which of `places` (parts, at least the most events of a part) and `values` is the first. What
    there are none for is left as it is. `graded` (parts) gets a 1 where an event is not 1.
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
                    if place + WORD <= end:
                        bits = bits_of(given, place)
                    else:
                        for i in range(WORD):
                            rest[i] = 0
                        copy(tail(rest, 0), tail(given, place), end - place)
                        bits = bits_of(tail(rest, 0), 0)
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
    start: Any,
    stop: Any,
    places: Any,
    values: Any,
    starts: Any,
    counts: Any,
    offsets: Any,
    rows: Any,
    ordered: Any,
    column_starts: Any,
    column_counts: Any,
) -> None:
    """The events of each block of DEPTH rows in the order of their columns, as those of the transposed matrix.

    `column_counts` and `column_starts` (blocks, k) are to a column what `counts` and `starts` are to a row; the events
    of a block begin at its one of `offsets`. `values` and `ordered` may be one element, the value of all events.
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
    start: Any,
    stop: Any,
    places: Any,
    values: Any,
    starts: Any,
    counts: Any,
    y: Any,
    y_turned: Any,
    out: Any,
    out_turned: Any,
    rows: Any,
    packs: Any,
    grain: Any,
    panels: Any,
) -> None:
    """`out = x @ y` for an `x` whose events are given.

    Args:
        places: and `values`, `starts`, `counts`: of `find_all_events` or `sort_events`, the events in one row. Or
            `values` is one element, the value of all events.
        y: (k, n), or if `y_turned`, (n, k).
        out: (m, n), or if `out_turned`, (n, m).
        rows: of the result, in a unit: units are `rows` rows of a strip of WIDTH columns, strip by strip.
        packs: 0 if the rows of `y` are read where they are: then a row is whole vectors.
        grain: how many units follow each other on a thread.
        panels: (threads, DEPTH WIDTH), overwritten.
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
            depth = least(DEPTH, inner - block * DEPTH)
            if packs != 0 and packed != own * blocks + block:
                packed = own * blocks + block
                pack(panel, stride, y, y_turned, block * DEPTH, depth, low, width, LANES)
            near, step = tail(panel, 0), stride
            if packs == 0:
                near, step = tail(flat(y), block * DEPTH * n + low), n
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
