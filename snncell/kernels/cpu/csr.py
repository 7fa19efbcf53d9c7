"""Rows of which only some elements are listed: the source of kernels (`kernels/csr.py`). A unit is ROWS rows.

`starts` (rows + 1) says where in `places` and `values` the elements of each row begin; the elements of a row are listed
in their order.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.elements import row
from snncell.kernels.cpu.events import DEPTH

ROWS = 64  # of a unit


def check_rows(start: Any, stop: Any, starts: Any, places: Any, elements: Any, wrong: Any) -> None:
    """Put into `wrong`, for each unit, the first row that is none of so many `elements` in ascending order, or -1."""
    rows, room = len(starts) - 1, len(places)
    for unit in range(start, stop):
        found = -1
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            begin, end = starts[number], starts[number + 1]
            fault, before = begin < 0 or end < begin or end > room, -1
            if not fault:
                for event in range(begin, end):
                    place = places[event]
                    fault = fault or place <= before
                    before = place
            if (fault or before >= elements) and found < 0:
                found = number
        wrong[unit] = found


def split_rows(
    start: Any, stop: Any, starts: Any, places: Any, values: Any, own: Any, own_values: Any, firsts: Any, counts: Any,
    graded: Any,
) -> None:  # fmt: skip
    """List elements as `events.find_all_events` does: by blocks of DEPTH places, each counted from its block's first.

    `graded` gets a 1 for units of which a value is not 1.
    """
    blocks, rows = counts.shape
    for unit in range(start, stop):
        graded[unit] = 0
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            event, end = starts[number], starts[number + 1]
            for block in range(blocks):
                before, limit = event, block * DEPTH + DEPTH
                while event < end and places[event] < limit:
                    own[event] = places[event] - block * DEPTH
                    own_values[event] = values[event]
                    graded[unit] |= own_values[event] != 1
                    event += 1
                firsts[block, number] = before
                counts[block, number] = event - before


def fill_rows(start: Any, stop: Any, starts: Any, places: Any, values: Any, out: Any) -> None:
    """Put the elements into the rows of `out`, and zeros between them."""
    rows, elements = out.shape
    for unit in range(start, stop):
        for number in range(unit * ROWS, least(rows, unit * ROWS + ROWS)):
            of_row = row(out, number)
            for place in range(elements):
                of_row[place] = 0
            for event in range(starts[number], starts[number + 1]):
                of_row[places[event]] = values[event]


def move_rows(
    start: Any, stop: Any, firsts: Any, starts: Any, places: Any, values: Any, to_places: Any, to_values: Any
) -> None:
    """Move the elements of rows that are listed from `firsts` on to where `starts` has them."""
    for unit in range(start, stop):
        for number in range(unit * ROWS, least(len(starts) - 1, unit * ROWS + ROWS)):
            first, begin = firsts[number], starts[number]
            for event in range(starts[number + 1] - begin):
                to_places[begin + event] = places[first + event]
                to_values[begin + event] = values[first + event]
