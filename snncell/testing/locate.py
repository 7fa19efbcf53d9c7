"""Where a gradient is worst: which array, which entry, which time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.testing.problem import Array, Problem, Scalar, Tolerance

LIMIT = 64  # entries of the worst array that are looked at one by one


class Worst(NamedTuple):
    """The entry that is worst."""

    number: int  # of the array
    entry: tuple[int, ...]
    found: float
    expected: float
    looked: int  # at so many entries, of
    size: int
    ratio: float | None  # found / expected, if it is the same in all of them


class Search:
    """Compares a gradient with differences, along directions and entry by entry.

    Args:
        problem: what is differentiated.
        fn: the number.
        point: where.
        found: its gradients there.
        tolerance: half the distance of the differences, and how far they may differ.
    """

    def __init__(
        self, problem: Problem, fn: Scalar, point: Sequence[Array], found: Sequence[Array], tolerance: Tolerance
    ) -> None:
        self.problem, self.fn, self.point, self.found, self.tolerance = problem, fn, point, found, tolerance
        self.rng = np.random.default_rng(problem.seed)

    def along(self, direction: Sequence[Array | None], eps: float | None = None) -> tuple[float, float]:
        """The derivative along a direction: from the gradients, and by differences."""
        pairs = zip(self.found, direction, strict=True)
        analytic = sum(float((g * v).sum()) for g, v in pairs if v is not None)
        return analytic, self.problem.slope(
            self.fn, direction, eps or self.tolerance.eps, self.point, self.tolerance.fine
        )

    def everywhere(self) -> list[Array | None]:
        """A random direction of all arrays together."""
        return [self.rng.standard_normal(x.shape) for x in self.point]

    def only(self, number: int) -> list[Array | None]:
        """A random direction of one array."""
        return [self.rng.standard_normal(x.shape) if i == number else None for i, x in enumerate(self.point)]

    def agree(self, direction: Sequence[Array | None], extra: float) -> tuple[bool, float, float]:
        """True if they agree along a direction, for one of the widths of the differences; and both numbers."""
        tolerance = self.tolerance
        found, expected = self.along(direction)
        if tolerance.agree(found, expected, extra):
            return True, found, expected
        for by in tolerance.others:
            again = self.along(direction, tolerance.eps * by)
            if tolerance.agree(*again, extra / by):
                return True, *again
        return False, found, expected

    def kinked(self) -> bool:
        """True if the slopes to both sides of the point differ, along a direction of some array."""
        eps, extra = self.tolerance.eps, self.problem.rounding(self.point, self.tolerance.eps)

        def value(direction: Sequence[Array | None], by: float) -> float:
            pairs = zip(self.point, direction, strict=True)
            moved = [x if v is None else x + by * v for x, v in pairs]
            return self.problem.value(self.fn, moved, self.problem.noted(self.fn, self.point))

        here = value([None] * len(self.point), 0.0)
        for number in range(len(self.point)):
            direction = self.only(number)
            ahead, behind = (value(direction, eps) - here) / eps, (here - value(direction, -eps)) / eps
            if abs(ahead - behind) > 1e-3 * max(abs(ahead), abs(behind)) + 2 * extra:
                return True
        return False

    def worst_array(self) -> int:
        """The array along which they differ most, as a part of what there is."""
        return int(np.argmax([relative(*self.along(self.only(number))) for number in range(len(self.point))]))

    def worst_entry(self, number: int) -> Worst:
        """The worst entry of an array, by halving what is large, and then one by one."""
        size = self.point[number].size
        block = np.arange(size)
        while len(block) > LIMIT:
            halves = np.array_split(block, 2)
            block = halves[int(np.argmax([self._difference(number, half) for half in halves]))]
        pairs = [self.along(self._direction(number, block[n : n + 1], np.ones(1))) for n in range(len(block))]
        n = int(np.argmax([_nan_as_inf(abs(a - b)) for a, b in pairs]))
        index = tuple(int(i) for i in np.unravel_index(block[n], self.point[number].shape))
        return Worst(number, index, *pairs[n], len(block), size, _common_ratio(pairs))

    def _difference(self, number: int, block: Any) -> float:
        analytic, numeric = self.along(self._direction(number, block, self.rng.standard_normal(len(block))))
        return _nan_as_inf(abs(analytic - numeric))

    def _direction(self, number: int, entries: Any, values: Any) -> list[Array | None]:
        direction: list[Array | None] = [None] * len(self.point)
        array = direction[number] = np.zeros(self.point[number].shape)
        array.flat[entries] = values
        return direction


def beside(point: Sequence[Array]) -> list[Array]:
    """A point near by, where no entry is what it was: away from kinks, and from potentials at the threshold."""
    rng = np.random.default_rng(1)
    return [x + 1e-3 * (0.1 + np.abs(x)) * rng.standard_normal(x.shape) for x in point]


def relative(found: float, expected: float) -> float:
    """The relative difference; that of NaN is infinite."""
    return _nan_as_inf(abs(found - expected) / max(abs(found), abs(expected), 1e-12))


def _nan_as_inf(x: float) -> float:
    return float("inf") if np.isnan(x) else x


def _common_ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    largest = max(abs(b) for _, b in pairs)
    ratios = [a / b for a, b in pairs if abs(b) > 1e-2 * largest]
    if len(ratios) < 2 or not np.isfinite(ratios).all() or np.ptp(ratios) > 0.05 * abs(np.mean(ratios) - 1.0):
        return None
    return float(np.mean(ratios))


def sentence(worst: Worst, name: str, timed: bool = False) -> str:
    """Where it is, and what is found there, in words."""
    at = f"at time step {worst.entry[0]}, index {worst.entry}" if timed else f"at index {worst.entry}"
    text = f"{name} is worst, {at}: the reverse gives {worst.found:.8g}, finite differences {worst.expected:.8g}"
    if worst.ratio is not None:
        text += f", {worst.ratio:.4g} times as much in all entries"
    if worst.looked < worst.size:
        text += f" ({worst.looked} of {worst.size} entries were looked at, found by halving)"
    return text + "."
