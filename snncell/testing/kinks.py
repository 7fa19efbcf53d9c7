"""Kinks: compare gradients with finite differences where these decide, and nowhere else.

At a kink (equal values in a window of max pooling, a silent input of ReLU) several gradients are right, and a
difference across it is none of them. A comparison that fails is therefore repeated at random points near the inputs,
farther and farther away. It counts only where the function is smooth along the direction of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from snncell.testing.locate import BESIDE, Search, beside, relative
from snncell.testing.problem import Problem, Scalar, Tolerance
from snncell.testing.result import Row

SEEN = 1e-3  # the relative fault that is to be found
DISTANCES = (0.0, 1e-3, 1e-2, 0.1, 1.0)  # of the points; farther away, equal values are farther apart, too
EVERYWHERE = "kinks at the inputs and at all points near them: differences decide nothing there"


class WrongGradient(NamedTuple):
    """A gradient that differs from differences where these decide."""

    search: Search  # at the point where that is so
    number: int | None  # the array that was moved; None for all of them together
    analytic: float
    numeric: float


def search_at(problem: Problem, fn: Scalar, tolerance: Tolerance, distance: float) -> Search:
    """A Search at a random point at a distance from the inputs."""
    point = beside(problem.point, distance) if distance else problem.point
    return Search(problem, fn, point, problem.gradient(fn, point), tolerance)


def compare_arrays(
    search: Callable[[float], Search], part: str, numbers: Sequence[int | None], at_inputs: bool
) -> tuple[list[Row], WrongGradient | None]:
    """Compare the gradient of each array; None in `numbers` stands for all arrays together.

    Args:
        search: makes the Search at a distance from the inputs.
        part: of the check, for the rows.
        numbers: the arrays.
        at_inputs: whether a fault at the inputs themselves counts if the function is smooth there. A network may be
            smooth where its layers have kinks that cancel, so that no layer is wrong; for those, only other points do.

    Returns:
        A row for each array, and the first one that is wrong.
    """
    rows: dict[int | None, Row] = {}
    faults: dict[int | None, float] = {}  # the difference of those that are not decided yet
    for distance in DISTANCES:
        here = search(distance)
        if distance and not here.finite():  # the point left the domain of the function
            continue
        extra = here.problem.rounding(here.point, here.tolerance.eps)
        for number in [n for n in numbers if n not in rows]:
            direction = here.everywhere() if number is None else here.only(number)
            right, analytic, numeric = here.agree(direction, extra)
            # Far away a gradient may be zero where a fault was visible: that 0 is 0 says nothing about it.
            if right and not max(abs(analytic), abs(numeric)) <= _noise(here, extra) < faults.get(number, 0.0):
                row = _row(here, part, number, extra, analytic, numeric)
                rows[number] = row.noted(BESIDE if distance else "")
            elif not right:
                faults[number] = abs(analytic - numeric)
                if (distance or at_inputs) and here.decided(direction, analytic):
                    return list(rows.values()), WrongGradient(here, number, analytic, numeric)
        if len(rows) == len(numbers):
            break
    return [_row_or_undecided(here, part, rows, n) for n in numbers if n is not None or len(numbers) == 1], None


def _noise(search: Search, extra: float) -> float:
    """The size of a slope that rounding may make."""
    return extra + search.tolerance.atol


def _name(search: Search, number: int | None) -> str:
    return ", ".join(search.problem.names) if number is None else search.problem.names[number]


def _row(search: Search, part: str, number: int | None, extra: float, analytic: float, numeric: float) -> Row:
    """A row, with a note on a gradient that is so small that differences would not show a fault."""
    name, size, noise = _name(search, number), max(abs(analytic), abs(numeric)), _noise(search, extra)
    if size <= noise:
        return Row(part, name, 0.0, note="the gradient is zero" if size == 0.0 else "the gradient is zero to rounding")
    hidden = f"so small that a fault below {noise / size:.2g} of it would go unseen" if noise > SEEN * size else ""
    return Row(part, name, relative(analytic, numeric), note=hidden)


def _row_or_undecided(search: Search, part: str, rows: dict[int | None, Row], number: int | None) -> Row:
    return rows.get(number, Row(part, _name(search, number), math.nan, note=EVERYWHERE))
