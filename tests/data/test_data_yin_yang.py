"""Yin-Yang: the points of its authors to the bit, its geometry, and what is refused."""

import hashlib

import numpy as np
import pytest

from snncell.data import yin_yang
from snncell.errors import ArgumentError

# Of the authors' files: the first bytes of the digests of coordinates and labels.
THEIRS = [
    ("training", 5000, 42, "f5a4054d56f2a058", "534d12acda4f9dbc"),
    ("validation", 1000, 41, "5eac358bdf212276", "5a4c2f605814a620"),
    ("test", 1000, 40, "7bab3ed668ed4992", "daa0f8f4e3b37b1d"),
]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "samples", "seed", "coordinates", "labels"), THEIRS, ids=[row[0] for row in THEIRS])
def test_the_sets_are_those_of_the_authors_to_the_bit(name, samples, seed, coordinates, labels):
    found, classes = yin_yang(samples, seed)
    assert (found.shape, found.dtype, classes.dtype) == ((samples, 4), np.float64, np.int64)
    assert (digest(found), digest(classes)) == (coordinates, labels)
    assert digest(yin_yang(samples // 2, seed)[0]) == digest(found[: samples // 2])  # fewer are its first


@pytest.mark.parametrize(("small", "big"), [(0.1, 0.5), (0.2, 0.5), (0.3, 1.0), (0.05, 0.3)])
def test_points_lie_in_the_part_of_the_sign_that_their_class_says(small, big):
    found, labels = yin_yang(3000, 7, small, big)
    x, y = found[:, 0], found[:, 1]
    np.testing.assert_array_equal(found[:, 2:], 1.0 - found[:, :2])
    assert (np.hypot(x - big, y - big) <= big).all()
    left, right = np.hypot(x - 0.5 * big, y - big), np.hypot(x - 1.5 * big, y - big)
    np.testing.assert_array_equal(labels == 2, np.minimum(left, right) < small)
    # Turned by half a turn, each half of the sign lies upon the other.
    half = np.where(y > big, right > 0.5 * big, left <= 0.5 * big)
    np.testing.assert_array_equal(labels[labels < 2] == 1, half[labels < 2])
    # The classes are drawn evenly, so each count is binomial: 3,000 draws of 1 / 3 deviate by 25.8.
    assert np.abs(np.bincount(labels) - 1000).max() < 6 * np.sqrt(3000 * 2 / 9)
    # Inside of a class the points lie evenly: the dots are mirror images, half of the points in each.
    dots = labels == 2
    assert abs((left[dots] < small).sum() - dots.sum() / 2) < 6 * np.sqrt(dots.sum() / 4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"r_small": 0.25}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.25 of 0.5"),
        ({"r_small": 0.004}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.004 of 0.5"),
        ({"r_big": 1e300}, r"r_big is a finite number in \[1e-06, 1e\+06\]"),
        ({"r_big": 0.2}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.1 of 0.2"),
        ({"r_small": 0.0}, "r_small is a finite number above 0"),
        ({"samples": 0}, "samples is an integer of at least 1"),
        ({"seed": -1}, "seed is an integer"),
        ({"seed": 2**32}, "seed is an integer"),
    ],
)
def test_nonsense_is_refused(wrong, text):
    with pytest.raises(ArgumentError, match=f"yin_yang: {text}"):
        yin_yang(**{"samples": 3, **wrong})
