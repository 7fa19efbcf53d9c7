"""Products of matrices of which one is mostly zeros, as spikes are: work in proportion to the elements that are not.

These functions are compiled from their source (`kernels/products.py`). Sums run over the events in an order that the
sizes alone decide, so they do not depend on the number of threads. No slice is assigned to: what Numba makes of that
takes a second to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.kernels.cpu.rows import add_events, find_events

prange = range  # where the source is compiled, Numba's: shared among threads
ROWS = 16  # that one thread takes at a time
BLOCK = 512  # rows that are added up together: with STRIP columns of them, a quarter of a second-level cache
STRIP = 128  # columns that one thread adds up together


def rows_of_events(x: Any, y: Any, out: Any) -> None:
    """`out = x @ y` for `x` (m, k) of few events: the rows of `y` that belong to a row's events, added up."""
    m, k = x.shape
    weights = y.reshape(-1)
    for part in prange((m + ROWS - 1) // ROWS):
        flags = np.zeros((k + 7) // 8 * 8, np.uint8)
        words = flags.view(np.uint64)
        places = np.empty(k + 8, np.int32)
        for row in range(part * ROWS, min(m, part * ROWS + ROWS)):
            count = find_events(x[row], flags, words, places)
            add_events(x[row], places, count, weights, out[row])


def columns_of_events(x: Any, y: Any, out: Any, found: Any, rows: Any, values: Any, strips: Any) -> None:
    """`out = x.T @ y` for `x` (m, k) of few events: to each row of the result, the rows of `y` of its events.

    The events of a block of rows are sorted by their columns first, so that a row of the result is loaded once for all
    of them. What the events need of the last four arguments is overwritten: `found`, `rows` and `values` have room for
    a block of nothing but events, for each block; `strips` for a strip of a block's rows of `y`, for each strip.
    """
    m, k = x.shape
    n = y.shape[1]
    blocks = (m + BLOCK - 1) // BLOCK
    firsts = np.zeros((blocks, k + 1), np.int32)  # of each column's events among those of the block
    for block in prange(blocks):
        low, high = block * BLOCK, min(m, block * BLOCK + BLOCK)
        flags = np.zeros((k + 7) // 8 * 8, np.uint8)
        words = flags.view(np.uint64)
        places = found[block]
        counts = np.empty(high - low, np.int32)
        first, total = firsts[block], 0
        for row in range(low, high):
            own = places[total:]
            count = find_events(x[row], flags, words, own)
            for event in range(count):
                first[own[event] + 1] += 1
            counts[row - low] = count
            total += count
        for column in range(k):
            first[column + 1] += first[column]
        free = np.empty(k, np.int32)
        for column in range(k):
            free[column] = first[column]
        total = 0
        row_of, value_of = rows[block], values[block]
        for row in range(low, high):
            own, given = places[total:], x[row]
            for event in range(counts[row - low]):
                place = free[own[event]]
                free[own[event]] = place + 1
                row_of[place] = row - low
                value_of[place] = given[own[event]]
            total += counts[row - low]
    for strip in prange((n + STRIP - 1) // STRIP):
        low, width = strip * STRIP, min(STRIP, n - strip * STRIP)
        near = strips[strip]  # the strip of the block's rows of y, close together
        sums = np.empty(STRIP, y.dtype)
        for column in range(k):
            result = out[column, low : low + width]
            for i in range(width):
                result[i] = 0
        for block in range(blocks):
            row_of, value_of, first = rows[block], values[block], firsts[block]
            for row in range(min(BLOCK, m - block * BLOCK)):
                given, own = y[block * BLOCK + row, low : low + width], near[row * STRIP : row * STRIP + width]
                for i in range(width):
                    own[i] = given[i]
            for column in range(k):
                event, end = first[column], first[column + 1]
                if event < end:
                    for i in range(STRIP):
                        sums[i] = 0
                    while event + 4 <= end:  # four rows of y for each pass over the sums
                        a, b = row_of[event] * STRIP, row_of[event + 1] * STRIP
                        c, d = row_of[event + 2] * STRIP, row_of[event + 3] * STRIP
                        va, vb, vc, vd = value_of[event], value_of[event + 1], value_of[event + 2], value_of[event + 3]
                        ya, yb = near[a : a + STRIP], near[b : b + STRIP]
                        yc, yd = near[c : c + STRIP], near[d : d + STRIP]
                        for i in range(STRIP):
                            sums[i] += (va * ya[i] + vb * yb[i]) + (vc * yc[i] + vd * yd[i])
                        event += 4
                    while event < end:
                        a = row_of[event] * STRIP
                        va = value_of[event]
                        ya = near[a : a + STRIP]
                        for i in range(STRIP):
                            sums[i] += va * ya[i]
                        event += 1
                    result = out[column, low : low + width]
                    for i in range(width):
                        result[i] += sums[i]
