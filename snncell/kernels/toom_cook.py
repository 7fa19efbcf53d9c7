"""Short correlations with fewer multiplications: the algorithm of Toom and Cook, as Winograd nested it for two axes.

Two neighbouring results of a window of r elements, y[i] = sum over k of d[i + k] g[k], are

    y = A [(G g) * (B d)],    with matrices A (2, r + 1), G (r + 1, r), B (r + 1, r + 1),

so they take r + 1 multiplications instead of 2 r. For two axes the transforms are made along one and then the other:
3x3 windows take 16 multiplications for four results instead of 36, and 5x5 windows 36 instead of 100. The sums over
channels are made of what is multiplied, before A, so transforms cost little where there are many channels.

Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2016), arXiv:1509.09308.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import NamedTuple

Matrix = tuple[tuple[float, ...], ...]

# The places at which polynomials are evaluated, beside the one at infinity. Errors grow with their size and number:
# of windows of five, these have the least, less than twice those of sums one after another.
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2))
LONGEST = len(_POINTS)


class Transforms(NamedTuple):
    """The matrices A, G and B of the module's formula, for one length of window."""

    results: Matrix
    weights: Matrix
    images: Matrix


@functools.cache
def transforms(window: int) -> Transforms:
    """The matrices for two results of a window of 1 to LONGEST elements."""
    points = _POINTS[:window]
    results = [[x**i for x in points] for i in range(2)]
    weights, images = [], []
    for x in points:
        others = [y for y in points if y != x]
        scale = Fraction(1)
        for y in others:
            scale *= x - y
        weights.append([x**k / scale for k in range(window)])
        images.append([*_with_roots(others), Fraction(0)])
    weights.append([Fraction(k == window - 1) for k in range(window)])
    images.append(_with_roots(points))
    return Transforms(
        _matrix([[*results[0], Fraction(0)], [*results[1], Fraction(1)]]), _matrix(weights), _matrix(images)
    )


def _with_roots(roots: tuple[Fraction, ...] | list[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these roots and leading coefficient 1, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _matrix(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(x) for x in row) for row in rows)
