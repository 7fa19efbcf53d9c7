"""Several kernels as one: a kernel whose units are those of others, which it calls by their addresses.

These functions are compiled from their source (`kernels/segments.py`), once: what they call stands in a table, so they
are the same for any number of kernels, and for any kernels.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.arguments import call, word_at


def find_elements(start: Any, stop: Any, objects: Any, words: Any, places: Any) -> None:
    """Put where the elements of arrays begin into `words` at `places`; `objects` are the addresses to look at."""
    for n in range(start, stop):
        words[places[n]] = word_at(objects[n])


def run_segments(start: Any, stop: Any, table: Any, failed: Any) -> None:
    """Carry out the units from `start` to `stop` of all kernels, counted one kernel after the other.

    `table` (kernels, 3) has the address of each, that of its slots, and the number of its units; `failed` gets 1 if one
    raised.
    """
    kernels, _ = table.shape
    first = 0
    for segment in range(kernels):
        end = first + table[segment, 2]
        low = start if start > first else first
        high = stop if stop < end else end
        if low < high and call(table[segment, 0], low - first, high - first, table[segment, 1]) != 0:
            failed[0] = 1
        first = end
