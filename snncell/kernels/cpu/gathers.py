"""Events and matrices in the order in which the kernel of a loop over time takes them.

Compiled from its source (`kernels/gathers.py`), as a kernel that carries out the units of its work from `start` up to
`stop`.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.elements import prefetch, row, tail
from snncell.kernels.cpu.panels import pack

LANES = 16  # by the dtype

AHEAD = 8  # steps that the events of a row are fetched ahead


def in_strips(start: Any, stop: Any, y: Any, y_turned: Any, width: Any, out: Any) -> None:
    """`y` in strips of `width` columns, one after another, each a unit; the rows of the last padded to whole vectors.

    If `y_turned`, it is given as its transpose.
    """
    inner, columns = y.shape
    if y_turned != 0:
        columns, inner = y.shape
    for unit in range(start, stop):
        first = unit * width
        count = least(width, columns - first)
        stride = (count + LANES - 1) // LANES * LANES
        pack(tail(out, first * inner), stride, y, y_turned, 0, inner, first, count, LANES)


def sort_by_column(
    start: Any,
    stop: Any,
    samples: Any,
    sizes: Any,
    places: Any,
    values: Any,
    starts: Any,
    counts: Any,
    bases: Any,
    firsts: Any,
    free: Any,
    own: Any,
    of_own: Any,
) -> None:
    """The events of each block in the order of their columns: their rows in the block into `own`, their values.

    Row `t * samples + sample` of the matrix has its events in `places` and `values` from its `starts` on. A block, a
    unit, has `sizes` steps and samples, and its events from its `bases` on; `firsts` (blocks, k + 1), zero before, gets
    the place of each column's first event, and `free` (blocks, k) is overwritten. `values` may be one for all events.
    """
    steps, held, group = len(counts) // samples, sizes[0], sizes[1]
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
                    prefetch(tail(places, starts[least(number + AHEAD * samples, len(counts) - 1)]))
                    for event in range(starts[number], starts[number] + counts[number]):
                        column = places[event]
                        if turn == 0:
                            first[column + 1] += 1
                        else:
                            place = next_of[column]
                            next_of[column] = place + 1
                            own[place] = (sample - low) * held + t - early
                            if len(values) > 1:
                                of_own[place] = values[event]
