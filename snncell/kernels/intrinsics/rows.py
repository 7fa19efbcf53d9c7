"""Products of a few rows with a matrix inside of generated loops, without launches, packing or threads.

A nonzero element of a row is an event. If four rows have few events, as with spikes, each event adds its row of the
matrix. Otherwise the four rows are multiplied at once, so that each loaded element of the matrix is used four times.
The choice and the order of additions depend only on these four rows. Therefore the bits do not depend on the partition
among threads. For eight rows of 256, the dense algorithm takes less than half of the time of BLAS, which packs the
matrix for each call. For whole batches BLAS is as fast, and it multiplies outside of loops
(`kernels/products/matmul.py`).
"""

from __future__ import annotations

from typing import Any

from numpy import int64

from snncell.kernels.intrinsics.builtins import call_once, inline, least
from snncell.kernels.intrinsics.elements import line_of, strip, tail
from snncell.kernels.intrinsics.panels import (
    VECTORS,
    VECTORS_OF_TILE,
    WORD,
    add_rows,
    bits_before,
    lowest,
    others,
    store,
    tile_4,
)

GROUP = 4  # rows that are multiplied together
STRIP = 256  # columns that are summed at a time: with GROUP rows, 4 kB of the L1 cache
STRIDE = STRIP + 16  # between the sums of two rows: a distance of 1 kB would cause cache conflicts
EVENTFUL = 0.4  # from this density on, the dense algorithm is faster


@call_once
def find_events(x: Any, length: int, places: Any, values: Any) -> int:
    """Store the nonzero elements among `length` in `values`, and their positions in `places`; return their number."""
    count, rest = 0, strip(WORD, x)
    for first in range(0, length, WORD):
        bits = bits_before(x, first, length, tail(rest, 0))
        while bits != 0:
            place = first + lowest(bits)
            places[count] = place
            values[count] = x[place]
            count += 1
            bits = others(bits)
    return count


@call_once
def add_events(
    values: Any, graded: int, places: Any, count: int, y: Any, stride: int, result: Any, more: int, width: int
) -> None:
    """`result = x @ y` for a row `x` of `count` events, or `result += x @ y` if `more`. `graded` is 1, or 0 if all
    events have one value. `y` is flat, with rows `stride` apart, and `result` has `width` elements.
    """
    line = line_of(y)
    whole = width // line
    for first in range(0, whole, VECTORS):
        vectors, low = least(VECTORS, whole - first), first * line
        add_rows(tail(result, low), more, values, graded, places, count, tail(y, low), stride, vectors)
    if whole * line < width:  # the remainder is shorter than a vector
        for column in range(whole * line, width):
            if more == 0:
                result[column] = 0
        for event in range(count):
            value, given = values[event * graded], tail(y, int64(places[event]) * stride)
            for column in range(whole * line, width):
                result[column] += value * given[column]


@call_once
def gather_rows(
    places: Any, values: Any, graded: int, starts: Any, counts: Any, first: int, many: int, y: Any, out: Any,
    width: int, step: int, steps: int,
) -> None:  # fmt: skip
    """`out = x @ y` for `steps` groups of `many` rows of `x`: the first one from row `first` on, each other `step` rows
    after the previous one. The events of row n begin at `starts[n]` of `places`. `y` and `out` are flat, with rows of
    `width` elements; the rows of `y` are padded to whole vectors.
    """
    place, stride = 0, padded_width(width, y)
    for turn in range(steps):
        for number in range(first + turn * step, first + turn * step + many):
            own, of_own = tail(places, starts[number]), tail(values, starts[number] * graded)
            add_events(of_own, graded, own, counts[number], tail(y, 0), stride, tail(out, place), 0, width)
            place += width


@call_once
def scatter_rows(
    firsts: Any, rows: Any, values: Any, graded: int, inner: int, near: Any, sums: Any, width: int, stride: int
) -> None:
    """`sums += x.T @ near` for an `x` with `inner` columns, and with events sorted by column.
    `rows` and `values` have the row and value of each event; the events of column n begin at `firsts[n]`. Rows of
    `near` and `sums` are `stride` apart and have `width` elements.
    """
    for column in range(inner):
        event, end = firsts[column], firsts[column + 1]
        if event < end:
            own, of_own = tail(rows, event), tail(values, event * graded)
            add_events(of_own, graded, own, end - event, near, stride, tail(sums, column * stride), 1, width)


@inline
def padded_width(width: int, y: Any) -> Any:
    """Round a width up to whole vectors."""
    line = line_of(y)
    return (width + line - 1) // line * line


@call_once
def put_strip(sums: Any, out: Any, turned: int, inner: int, first: int, width: int, stride: int) -> None:
    """Copy `inner` rows of sums, `stride` apart, to columns of `out` from `first` on, or to rows if `turned`."""
    store(out, turned, sums, stride, 0, inner, first, width, line_of(sums))


@inline
def multiply_four(x: Any, y: Any, out: Any, inner: int, width: int, sums: Any) -> None:
    """`out = x @ y` for four rows, all flat: `x` (4, inner), `y` (inner, width), `out` (4, width)."""
    x0, x1, x2, x3 = tail(x, 0), tail(x, inner), tail(x, 2 * inner), tail(x, 3 * inner)
    s0, s1, s2, s3 = tail(sums, 0), tail(sums, STRIDE), tail(sums, 2 * STRIDE), tail(sums, 3 * STRIDE)
    line = line_of(y)
    wide = VECTORS_OF_TILE * line
    whole = width // wide * wide if inner > 0 else 0
    for first in range(0, whole, wide):
        tile_4(tail(out, first), width, line, x0, inner, 1, line, tail(y, first), width, line, inner, 0)
    for first in range(whole, width, STRIP):
        count = least(STRIP, width - first)
        for place in range(4 * STRIDE):
            sums[place] = 0
        k = 0
        while k + 4 <= inner:
            low = k * width + first
            y0, y1, y2, y3 = tail(y, low), tail(y, low + width), tail(y, low + 2 * width), tail(y, low + 3 * width)
            a0, a1, a2, a3 = x0[k], x0[k + 1], x0[k + 2], x0[k + 3]
            b0, b1, b2, b3 = x1[k], x1[k + 1], x1[k + 2], x1[k + 3]
            c0, c1, c2, c3 = x2[k], x2[k + 1], x2[k + 2], x2[k + 3]
            d0, d1, d2, d3 = x3[k], x3[k + 1], x3[k + 2], x3[k + 3]
            for i in range(count):
                s0[i] += (a0 * y0[i] + a1 * y1[i]) + (a2 * y2[i] + a3 * y3[i])
                s1[i] += (b0 * y0[i] + b1 * y1[i]) + (b2 * y2[i] + b3 * y3[i])
                s2[i] += (c0 * y0[i] + c1 * y1[i]) + (c2 * y2[i] + c3 * y3[i])
                s3[i] += (d0 * y0[i] + d1 * y1[i]) + (d2 * y2[i] + d3 * y3[i])
            k += 4
        while k < inner:
            y0 = tail(y, k * width + first)
            a0, b0, c0, d0 = x0[k], x1[k], x2[k], x3[k]
            for i in range(count):
                s0[i] += a0 * y0[i]
                s1[i] += b0 * y0[i]
                s2[i] += c0 * y0[i]
                s3[i] += d0 * y0[i]
            k += 1
        for place in range(4):
            result, total = tail(out, place * width + first), tail(sums, place * STRIDE)
            for i in range(count):
                result[i] = total[i]


@call_once
def multiply_rows(x: Any, y: Any, out: Any, count: int, inner: int, width: int, places: Any, values: Any) -> None:
    """`out = x @ y` for `count` rows, all flat: `x` (count, inner), `y` (inner, width), `out` (count, width).
    `places` and `values`, of `inner` elements, are overwritten.
    """
    sums = strip(GROUP * STRIDE, out)
    for first in range(0, count, GROUP):
        rows = least(GROUP, count - first)
        own, result = tail(x, first * inner), tail(out, first * width)
        events = 0
        for place in range(rows * inner):
            events += own[place] != 0
        if rows == GROUP and events > EVENTFUL * GROUP * inner:
            multiply_four(own, tail(y, 0), result, inner, width, tail(sums, 0))
        else:
            for row in range(rows):
                found = find_events(tail(own, row * inner), inner, tail(places, 0), tail(values, 0))
                target = tail(result, row * width)
                add_events(tail(values, 0), 1, tail(places, 0), found, tail(y, 0), width, target, 0, width)


@call_once
def multiply_plainly(x: Any, y: Any, out: Any, count: int, inner: int, width: int) -> None:
    """`multiply_rows` for any dtype: skip the zeros of `x`, and add a row of `y` for each other element."""
    for row in range(count):
        result = tail(out, row * width)
        for column in range(width):
            result[column] = 0
        for place in range(inner):
            value, given = x[row * inner + place], tail(y, place * width)
            if value != 0:
                for column in range(width):
                    result[column] += value * given[column]
