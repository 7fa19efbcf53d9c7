"""Lists of events in the order in which the kernel of a loop over time takes them.

Compiled from its source (`kernels/gathers.py`), as a kernel that carries out the units of its work from `start` up to
`stop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs Numba; the compiled source imports it
    from snncell.kernels.cpu.builtins import least
    from snncell.kernels.cpu.elements import copy, row, tail


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
