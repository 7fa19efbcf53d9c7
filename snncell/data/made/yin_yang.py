"""Yin-Yang: three classes in a circle that no line tells apart, and four numbers a sample."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Count, Positive, Within
from snncell.errors import ArgumentError

Array = np.ndarray[Any, Any]

Radius = Annotated[float, Within(1e-6, 1e6)]  # its square is a float, too
Word = Annotated[int, Within(0, 2**32 - 1)]  # a seed of NumPy's older generator


def yin_yang(
    samples: Count = 5000, seed: Word = 42, r_small: Positive = 0.1, r_big: Radius = 0.5
) -> tuple[Array, Array]:
    """Points of the Yin-Yang sign; the class of each is the part that it lies in, one of two halves or a dot.

    The sign is a circle of radius R = `r_big` around (R, R), with dots of radius r = `r_small` around (R / 2, R) and
    (3 R / 2, R). With d the distance of a point (x, y) from the left centre and e that from the right one, its class is

        2   a dot    if d < r or e < r,
        1            otherwise, if d <= R / 2, or y > R and e > R / 2,
        0            otherwise.

    For each sample the generator draws a class, `randint(3)`, and then points, `rand(2) * 2 * R`, until one lies in the
    circle and is of that class: the classes come equally often. With seeds 42, 41 and 40 the first 5,000, 1,000 and
    1,000 samples are the training, validation and test set of the authors, to the bit.

    Args:
        samples: N.
        seed: of `numpy.random.RandomState`; other seeds are other points of the same task.
        r_small: the radius of the dots, from `r_big` / 100 up to, not including, `r_big` / 2.
        r_big: the radius of the sign, from 1e-6 to 1e6.

    Returns:
        `(coordinates, labels)`: x, y, 1 - x, 1 - y as float64 (N, 4), for a network without bias, and int64 (N,).

    Raises:
        ArgumentError: for dots that do not fit into the halves, or are hardly ever met; a seed beyond 32 bits.

    Source: Kriener, Göltz and Petrovici, "The Yin-Yang dataset", NICE 2022, doi:10.1145/3517343.3517380.

    Example:
        >>> coordinates, labels = snncell.data.yin_yang(samples=4)
        >>> coordinates[0].round(3).tolist(), labels.tolist()
        ([0.68, 0.45, 0.32, 0.55], [2, 1, 2, 1])
    """
    if not r_big / 100.0 <= r_small < r_big / 2.0:
        raise ArgumentError(f"yin_yang: r_small is from r_big / 100 to below r_big / 2, not {r_small!r} of {r_big!r}.")
    random = np.random.RandomState(seed)
    points, labels = np.empty((samples, 2)), np.empty(samples, np.int64)
    for number in range(samples):
        goal = labels[number] = random.randint(3)
        while True:
            points[number] = random.rand(2) * 2.0 * r_big
            x, y = points[number].tolist()
            if _class_of(x, y, r_small, r_big) == goal:
                break
    return np.concatenate([points, 1.0 - points], 1), labels


def _class_of(x: float, y: float, small: float, big: float) -> int:
    """The class of a point; -1 outside of the sign."""
    if math.sqrt((x - big) ** 2 + (y - big) ** 2) > big:
        return -1
    right, left = (math.sqrt((x - part * big) ** 2 + (y - big) ** 2) for part in (1.5, 0.5))
    if left < small or right < small:
        return 2
    return int(left <= 0.5 * big or (y > big and right > 0.5 * big))
