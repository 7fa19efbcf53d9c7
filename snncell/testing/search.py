"""Search for the array, entry and time step where a gradient differs from finite differences.

At a kink (equal values in a max-pooling window, a silent input of ReLU) several gradients are correct. Therefore a
failed comparison is repeated at random points near the inputs, and counts only where the function is smooth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.testing.bprops import Row, index_of, perturb
from snncell.testing.problem import Array, Problem, Scalar, Tolerance, directional_derivative, move_point

UNDECIDED = 0.05  # the largest part of an error that kinks and curvature may explain
LIMIT = 64  # the number of entries of the worst array that are compared one by one
BESIDE = "near the inputs, because they are at a kink"


class WorstEntry(NamedTuple):
    """The entry with the largest difference."""

    entry: tuple[int, ...]
    analytic: float
    numeric: float
    compared: int  # the number of compared entries
    size: int  # the number of all entries
    ratio: float | None  # analytic / numeric, if it is the same in all compared entries


class Search:
    """Compares the gradients of the scalar `fn` at a point with finite differences, along directions and by entry."""

    def __init__(
        self, problem: Problem, fn: Scalar, point: Sequence[Array], gradients: Sequence[Array], tolerance: Tolerance
    ) -> None:
        self.problem, self.fn, self.point, self.gradients, self.tolerance = problem, fn, point, gradients, tolerance
        self.rng = np.random.default_rng(problem.seed)

    def along(self, direction: Sequence[Array | None], eps: float | None = None) -> tuple[float, float]:
        """The derivative along a direction: from the gradients, and by finite differences."""
        tolerance = self.tolerance
        numeric = self.problem.slope(self.fn, direction, eps or tolerance.eps, self.point, tolerance.fine)
        return directional_derivative(self.gradients, direction), numeric

    def everywhere(self) -> list[Array | None]:
        """A random direction of all arrays together."""
        return [self.rng.standard_normal(x.shape) for x in self.point]

    def only(self, number: int) -> list[Array | None]:
        """A random direction of one array."""
        return [self.rng.standard_normal(x.shape) if i == number else None for i, x in enumerate(self.point)]

    def agree(self, direction: Sequence[Array | None], extra: float) -> tuple[bool, float, float]:
        """Compare along a direction, with several step sizes. Return whether one agrees, and both derivatives."""
        tolerance = self.tolerance
        analytic, numeric = self.along(direction)
        if tolerance.agree(analytic, numeric, extra):
            return True, analytic, numeric
        for by in tolerance.others:
            again = self.along(direction, tolerance.eps * by)
            if tolerance.agree(*again, extra / by):
                return True, *again
        return False, analytic, numeric

    def proves_error(self, direction: Sequence[Array | None], analytic: float) -> bool:
        """True if finite differences prove an error: the function is smooth along the direction, or not finite."""
        widths = (1.0, *self.tolerance.others)
        return not self.finite() or any(self._smooth(direction, analytic, self.tolerance.eps * by) for by in widths)

    def finite(self) -> bool:
        """True if the function is finite at the point."""
        return bool(
            np.isfinite(self.problem.value(self.fn, self.point, self.problem.detached_values(self.fn, self.point)))
        )

    def _smooth(self, direction: Sequence[Array | None], analytic: float, eps: float) -> bool:
        """True without a kink: slopes on both sides, for a full and a quarter step, differ far less than the error."""
        noted = self.problem.detached_values(self.fn, self.point)

        def value(by: float) -> float:
            return self.problem.value(self.fn, move_point(self.point, direction, by), noted)

        here, slopes = value(0.0), []
        for step in (eps, eps / 4):
            slopes += [(value(step) - here) / step, (here - value(-step)) / step]
        fault = _nan_as_inf(abs(analytic - sum(slopes[2:]) / 2))
        rounding = self.problem.rounding(self.point, eps / 4)
        return max(slopes) - min(slopes) + rounding <= UNDECIDED * fault

    def worst_array(self) -> int:
        """The array with the largest relative difference."""
        return int(np.argmax([relative(*self.along(self.only(number))) for number in range(len(self.point))]))

    def worst_entry(self, number: int) -> WorstEntry:
        """The worst entry of an array: by bisecting large arrays, and then one by one."""
        size = self.point[number].size
        block = np.arange(size)
        while len(block) > LIMIT:  # bisect, because a directional derivative costs two evaluations for any direction
            halves = np.array_split(block, 2)
            block = halves[int(np.argmax([self._difference(number, half) for half in halves]))]
        pairs = [self._closest(self._direction(number, block[n : n + 1], np.ones(1))) for n in range(len(block))]
        n = int(np.argmax([_nan_as_inf(abs(a - b)) for a, b in pairs]))
        index = index_of(block[n], self.point[number].shape)
        return WorstEntry(index, *pairs[n], len(block), size, _common_ratio(pairs))

    def _difference(self, number: int, block: Any) -> float:
        analytic, numeric = self._closest(self._direction(number, block, self.rng.standard_normal(len(block))))
        return _nan_as_inf(abs(analytic - numeric))

    def _closest(self, direction: Sequence[Array | None]) -> tuple[float, float]:
        """Both slopes along a direction, for the step that agrees best, because a large step may cross a kink."""
        widths = {1.0, min(1.0, *self.tolerance.others)}
        pairs = [self.along(direction, self.tolerance.eps * by) for by in sorted(widths, reverse=True)]
        return min(pairs, key=lambda pair: _nan_as_inf(abs(pair[0] - pair[1])))

    def _direction(self, number: int, entries: Any, values: Any) -> list[Array | None]:
        direction: list[Array | None] = [None] * len(self.point)
        array = direction[number] = np.zeros(self.point[number].shape)
        array.flat[entries] = values
        return direction


def point_near(point: Sequence[Array], distance: float = 1e-3) -> list[Array]:
    """A random point nearby with all entries changed, to leave kinks and potentials at the threshold."""
    rng = np.random.default_rng(1)
    return [perturb(x, distance, rng) for x in point]


def relative(analytic: float, numeric: float) -> float:
    """The relative difference; infinite for NaN."""
    return _nan_as_inf(abs(analytic - numeric) / max(abs(analytic), abs(numeric), 1e-12))


def _nan_as_inf(x: float) -> float:
    return float("inf") if np.isnan(x) else x


def _common_ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    """analytic / numeric, if it is the same for all entries that are not small, and not 1."""
    largest = max(abs(b) for _, b in pairs)
    # Small slopes from finite differences are mostly rounding.
    ratios = [a / b for a, b in pairs if abs(b) > 1e-2 * largest]
    if len(ratios) < 2 or not np.isfinite(ratios).all() or np.ptp(ratios) > 0.05 * abs(np.mean(ratios) - 1.0):
        return None
    return float(np.mean(ratios))


def describe_entry(worst: WorstEntry, name: str, timed: bool = False) -> str:
    """A sentence with the location of the entry and both numbers."""
    at = f"at time step {worst.entry[0]}, index {worst.entry}" if timed else f"at index {worst.entry}"
    text = (
        f"{name} is worst, {at}: the backward pass gives {worst.analytic:.8g}, finite differences {worst.numeric:.8g}"
    )
    if worst.ratio is not None:
        text += f", {worst.ratio:.4g} times as much in all entries"
    if worst.compared < worst.size:
        text += f" ({worst.compared} of {worst.size} entries were compared, found by bisection)"
    return text + "."


# --- comparisons off kinks --------------------------------------------------------------------------------------------

SEEN = 1e-3  # the relative error that the check must find
DISTANCES = (0.0, 1e-3, 1e-2, 0.1, 1.0)  # of the random points; at larger distances, equal values differ more
EVERYWHERE = "not checked: kinks at the inputs and at all points near them"


class WrongGradient(NamedTuple):
    """A gradient that finite differences prove wrong."""

    search: Search  # at the point of the proof
    number: int | None  # the array that was moved; None for all together
    analytic: float
    numeric: float


def compare_arrays(
    problem: Problem, fn: Scalar, tolerance: Tolerance, part: str, numbers: Sequence[int | None], at_inputs: bool
) -> tuple[list[Row], WrongGradient | None]:
    """Compare the gradient of each array with finite differences; None in `numbers` means all arrays together.

    Return a row for each array, and the first wrong gradient. Without `at_inputs`, an error must be proved at another
    point, because kinks of several layers may cancel at the inputs: finite differences then see a smooth network, and
    differ from its gradient although no layer is wrong.
    """
    rows: dict[int | None, Row] = {}
    faults: dict[int | None, float] = {}  # the differences that no point has proved or refuted yet
    for distance in DISTANCES:
        point = point_near(problem.point, distance) if distance else problem.point
        here = Search(problem, fn, point, problem.gradient(fn, point), tolerance)
        if distance and not here.finite():  # the point left the domain of the function
            continue
        extra = problem.rounding(point, tolerance.eps)
        noise = extra + tolerance.atol  # the largest slope that rounding may cause
        for number in [n for n in numbers if n not in rows]:
            direction = here.everywhere() if number is None else here.only(number)
            right, analytic, numeric = here.agree(direction, extra)
            # Far away the gradient may be zero, and 0 equal to 0 does not refute an error seen before.
            if right and not max(abs(analytic), abs(numeric)) <= noise < faults.get(number, 0.0):
                row = _row_of_slopes(part, _name(problem, number), noise, analytic, numeric)
                rows[number] = row.with_note(BESIDE if distance else "")
            elif not right:
                faults[number] = abs(analytic - numeric)
                if (distance or at_inputs) and here.proves_error(direction, analytic):
                    return list(rows.values()), WrongGradient(here, number, analytic, numeric)
        if len(rows) == len(numbers):
            break
    missing = {n: Row(part, _name(problem, n), math.nan, note=EVERYWHERE) for n in numbers if n not in rows}
    return [(rows | missing)[n] for n in numbers if n is not None or len(numbers) == 1], None


def _name(problem: Problem, number: int | None) -> str:
    return ", ".join(problem.names) if number is None else problem.names[number]


def _row_of_slopes(part: str, name: str, noise: float, analytic: float, numeric: float) -> Row:
    """A row, with a note if the gradient is so small that finite differences would not reveal an error."""
    size = max(abs(analytic), abs(numeric))
    if size <= noise:
        return Row(part, name, 0.0, note="the gradient is zero" if size == 0.0 else "the gradient is zero to rounding")
    hidden = f"so small that relative errors below {noise / size:.2g} stay hidden" if noise > SEEN * size else ""
    return Row(part, name, relative(analytic, numeric), note=hidden)
