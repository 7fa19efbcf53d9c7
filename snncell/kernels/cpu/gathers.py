"""Lists of events in the order in which the kernel of a loop over time takes them.

Compiled from its source (`kernels/gathers.py`), as a kernel that carries out the units of its work from `start` up to
`stop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs Numba; the compiled source imports it
    from snncell.kernels.cpu.builtins import least
    from snncell.kernels.cpu.elements import copy, fetch, row, tail

AHEAD = 8  # steps that the events of a row are fetched ahead
TILE = 16  # elements of a row that are moved together: a line of the cache


def line_up(
    start: Any, stop: Any, part: Any, places: Any, values: Any, counts: Any, firsts: Any, own: Any, of_own: Any
) -> None:
    """Put the events of each row from its `firsts` on, their places into `own` and their values into `of_own`.

    In `places` and `values` the events of `part` rows, a unit, lie one after another.
    """
    for unit in range(start, stop):
        found = 0
        for number in range(unit * part, least(len(counts), unit * part + part)):
            count = counts[number]
            copy(tail(own, firsts[number]), tail(row(places, unit), found), count)
            copy(tail(of_own, firsts[number]), tail(row(values, unit), found), count)
            found += count


def turn_in_strips(start: Any, stop: Any, x: Any, width: Any, out: Any) -> None:
    """The transpose of `x` in strips of `width` columns, one after another; a unit is a strip."""
    columns, inner = x.shape
    for unit in range(start, stop):
        first = unit * width
        count = least(width, columns - first)
        own = tail(out, first * inner)
        for low in range(0, inner, TILE):
            high = least(low + TILE, inner)
            for column in range(count):
                given = row(x, first + column)
                for place in range(low, high):
                    own[place * count + column] = given[place]


def sort_by_column(
    start: Any,
    stop: Any,
    samples: Any,
    held: Any,
    group: Any,
    places: Any,
    values: Any,
    begins: Any,
    counts: Any,
    bases: Any,
    firsts: Any,
    free: Any,
    own: Any,
    of_own: Any,
) -> None:
    """The events of each block in the order of their columns: their rows in the block into `own`, their values.

    Row `t * samples + sample` of the matrix has its events in `places` and `values` from its `begins` on. A block, a
    unit, has `held` steps of `group` samples, and its events from its `bases` on; `firsts` (blocks, k + 1), zero
    before, gets the place of each column's first event, and `free` (blocks, k) is overwritten.
    """
    steps = len(counts) // samples
    chunks = (steps + held - 1) // held
    _, columns = free.shape
    for unit in range(start, stop):
        first, next_of = row(firsts, unit), row(free, unit)
        low, early = unit // chunks * group, unit % chunks * held
        for turn in range(2):  # count the events of each column, then put each in its place
            if turn == 1:
                first[0] = bases[unit]
                for column in range(columns):
                    first[column + 1] += first[column]
                    next_of[column] = first[column]
            for t in range(early, least(steps, early + held)):
                for sample in range(low, least(samples, low + group)):
                    number = t * samples + sample
                    later = begins[least(number + AHEAD * samples, len(counts) - 1)]
                    fetch(tail(places, later))
                    fetch(tail(values, later))
                    begin = begins[number]
                    for event in range(begin, begin + counts[number]):
                        column = places[event]
                        if turn == 0:
                            first[column + 1] += 1
                        else:
                            place = next_of[column]
                            next_of[column] = place + 1
                            own[place] = (sample - low) * held + t - early
                            of_own[place] = values[event]
