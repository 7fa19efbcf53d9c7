"""Products of matrices of which one is mostly zeros, as spikes are: work in proportion to the elements that are not.

These functions are compiled from their source (`kernels/products.py`). Sums run over the events in their order, so they
do not depend on the number of threads. No slice is assigned to: what Numba makes of that takes a second to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

prange = range  # where the source is compiled, Numba's: shared among threads
ROWS = 16  # that one thread takes at a time
STRIP = 128  # columns that one thread adds up together: their sums stay in registers and the first-level cache


def find_events(given: Any, flags: Any, words: Any, places: Any) -> int:
    """Put the places of the elements that are not zero into `places`; how many there are.

    `flags` gets a 1 for each of them, a byte each; `words` is the same memory, eight to a word, so that eight zeros are
    passed over at once.
    """
    for place in range(len(given)):
        flags[place] = given[place] != 0
    count = 0
    for word in range(len(words)):
        if words[word] != 0:
            for place in range(8 * word, 8 * word + 8):
                places[count] = place
                count += flags[place] != 0
    return count


def rows_of_events(x: Any, y: Any, out: Any) -> None:
    """`out = x @ y` for `x` (m, k) of few events: the rows of `y` that belong to a row's events, added up."""
    m, k = x.shape
    n = y.shape[1]
    for part in prange((m + ROWS - 1) // ROWS):
        flags = np.zeros((k + 7) // 8 * 8, np.uint8)
        words = flags.view(np.uint64)
        places = np.empty(k + 8, np.int32)
        for row in range(part * ROWS, min(m, part * ROWS + ROWS)):
            given = x[row]
            count = find_events(given, flags, words, places)
            result = out[row]
            for column in range(n):
                result[column] = 0
            event = 0
            while event + 4 <= count:  # four rows of y for each pass over the result
                a, b, c, d = places[event], places[event + 1], places[event + 2], places[event + 3]
                va, vb, vc, vd = given[a], given[b], given[c], given[d]
                ya, yb, yc, yd = y[a], y[b], y[c], y[d]
                for column in range(n):
                    result[column] += va * ya[column] + vb * yb[column] + (vc * yc[column] + vd * yd[column])
                event += 4
            while event < count:
                a = places[event]
                va = given[a]
                ya = y[a]
                for column in range(n):
                    result[column] += va * ya[column]
                event += 1


def columns_of_events(x: Any, y: Any, out: Any) -> None:
    """`out = x.T @ y` for `x` (m, k) of few events: each event adds a row of `y` to a row of the result."""
    m, k = x.shape
    n = y.shape[1]
    firsts = np.zeros(m + 1, np.int64)
    for row in prange(m):
        found = 0
        for place in range(k):
            found += x[row, place] != 0
        firsts[row + 1] = found
    for row in range(m):
        firsts[row + 1] += firsts[row]
    places = np.empty(firsts[m] + 8, np.int32)
    for part in prange((m + ROWS - 1) // ROWS):
        flags = np.zeros((k + 7) // 8 * 8, np.uint8)
        words = flags.view(np.uint64)
        own = np.empty(k + 8, np.int32)
        for row in range(part * ROWS, min(m, part * ROWS + ROWS)):
            given = x[row]
            count = find_events(given, flags, words, own)
            for event in range(count):
                places[firsts[row] + event] = own[event]
    for strip in prange((n + STRIP - 1) // STRIP):
        low = strip * STRIP
        high = min(low + STRIP, n)
        for place in range(k):
            result = out[place, low:high]
            for column in range(high - low):
                result[column] = 0
        for row in range(m):
            given = x[row]
            added = y[row, low:high]
            for event in range(firsts[row], firsts[row + 1]):
                place = places[event]
                value = given[place]
                result = out[place, low:high]
                for column in range(high - low):
                    result[column] += value * added[column]
