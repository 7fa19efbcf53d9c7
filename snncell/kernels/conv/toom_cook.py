"""Short correlations with fewer multiplications: the algorithm of Toom and Cook, as Winograd nested it for two axes.

Two neighbouring results of a window of r elements, y[i] = sum over k of d[i + k] g[k], are

    y = A [(G g) * (B d)],    with matrices A (2, r + 1), G (r + 1, r), B (r + 1, r + 1),

so they take r + 1 multiplications instead of 2 r. For two axes the transforms are made along one and then the other:
3x3 windows take 16 multiplications for four results instead of 36, and 5x5 windows 36 instead of 100. The sums over
channels are made of what is multiplied, before A, so transforms cost little where there are many channels.

With a stride, y[i] = sum over k of d[i stride + k] g[k] is a sum of such correlations: of the elements at each place in
a stride. Two results of three elements at every second place take 3 + 2 multiplications instead of 6.

Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2016), arXiv:1509.09308.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

Matrix = tuple[tuple[float, ...], ...]

# The places at which polynomials are evaluated, beside the one at infinity. Errors grow with their size and number:
# of windows of five, these have the least, less than twice those of sums one after another.
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2))
LONGEST = len(_POINTS)
WIDE = 32  # bytes of tiles in a vector: rows of images are short, and a longer one would be half empty


class Transforms(NamedTuple):
    """The matrices A, G and B of the module's formula, for one length of window and stride."""

    results: Matrix
    weights: Matrix
    images: Matrix


def points(window: int, stride: int) -> int:
    """The number of multiplications for two results."""
    return window + min(window, stride)


@functools.cache
def transforms(window: int, stride: int = 1) -> Transforms:
    """The matrices for two results of a window; each place in a stride has 1 to LONGEST elements of it."""
    results: list[list[Fraction]] = [[], []]
    weights, images = [], []
    for first in range(min(stride, window)):
        taps = range(first, window, stride)
        own = _of_neighbours(len(taps))
        for total, row in zip(results, own[0], strict=True):
            total += row
        weights += [_spread(row, taps, window) for row in own[1]]
        images += [_spread(row, range(first, window + stride, stride), window + stride) for row in own[2]]
    return Transforms(_matrix(results), _matrix(weights), _matrix(images))


class Tiling(NamedTuple):
    """The tiles of a convolution.

    Attributes:
        window: the number of its elements along each axis.
        stride: along each axis.
        step: from one column of results to the next where they go, 1 or 2.
        rows: of tiles that share a vector, each of which has as many of its lanes.
    """

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    step: int = 1
    rows: int = 1

    @property
    def matrices(self) -> tuple[Transforms, Transforms]:
        """Those of each axis."""
        down, across = (transforms(*axis) for axis in zip(self.window, self.stride, strict=True))
        return down, across


def _of_neighbours(window: int) -> tuple[list[list[Fraction]], list[list[Fraction]], list[list[Fraction]]]:
    """A, G and B for elements that follow each other."""
    points = _POINTS[:window]
    zero, one = Fraction(0), Fraction(1)
    results = [[*(x**i for x in points), end] for i, end in enumerate((zero, one))]
    weights, images = [], []
    for x in points:
        others = [y for y in points if y != x]
        scale = math.prod((x - y for y in others), start=one)
        weights.append([x**k / scale for k in range(window)])
        images.append([*_with_roots(others), zero])
    weights.append([Fraction(k == window - 1) for k in range(window)])
    images.append(_with_roots(points))
    return results, weights, images


def _spread(row: list[Fraction], places: range, length: int) -> list[Fraction]:
    """A row with its elements at some places, and zeros between them."""
    wide = [Fraction(0)] * length
    for place, x in zip(places, row, strict=True):
        wide[place] = x
    return wide


def _with_roots(roots: tuple[Fraction, ...] | list[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these roots and leading coefficient 1, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _matrix(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(x) for x in row) for row in rows)
