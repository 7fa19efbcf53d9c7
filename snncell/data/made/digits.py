"""Handwritten digits: the images that the package contains, and an event camera's recordings of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Count, NotNegative, Within
from snncell.data.events import Events, sensor_of
from snncell.data.made.camera import EventCamera, record
from snncell.data.random_numbers import Seed, generator
from snncell.errors import ArgumentError, TensorIndexError

__all__ = ["MovingDigits", "digits"]

Array = np.ndarray[Any, Any]

# --- digits -----------------------------------------------------------------------------------------------------------


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Handwritten digits: 1,797 grey images of 8 x 8 pixels, 1,438 for training and 359 for testing.

    Every fifth image is a test image, so the same writers are in both parts.

    Returns:
        `(images, labels), (test_images, test_labels)`: images float32 (N, 8, 8) in [0, 1], labels int64 (N,) in [0, 9].

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (its test set), UCI Machine Learning
    Repository, 1998, doi:10.24432/C50P49, CC BY 4.0; the images as scikit-learn bundles them, stored as uint8.
    """
    with resources.files("snncell.data").joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        images = stored["images"].astype(np.float32) / 16.0
        labels = stored["labels"].astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return (images[~test], labels[~test]), (images[test], labels[test])


# --- MovingDigits -----------------------------------------------------------------------------------------------------

PAPER = 0.1  # of the light of the ink
MOVING = 0.5  # part of a saccade's duration; then the digit rests
PEAK = 1.875  # of the speed in a saccade, as a multiple of its mean
PIXELS = 0.5  # the most that a digit moves from frame to frame


class MovingDigits:
    """Handwritten digits that jump over the sensor of an event camera: recordings like those of N-MNIST, made here.

    A bright digit of `data.digits` rests at a random place, and each `duration` it moves to another one, for half of
    that time, along a line with the least jerk:

        p(t) = p_k + (p_(k+1) - p_k) (10 s^3 - 15 s^4 + 6 s^5),  s = min(2 (t - t_k) / duration, 1)

    It is drawn with bilinear interpolation in steps of at most half a pixel, and filmed by the `camera`. Sample i
    depends on the seed and i alone, in whatever order and by whatever process it is taken.

    Args:
        samples: how many; each is a random image of its part of the digits.
        train: of the 1,438 images for training, or of the 359 others.
        sensor_size: (W, H, 2).
        digit: its size in pixels, from 8 on.
        saccades: how many.
        duration: of each with its rest, in microseconds, from 1,000 to 10^9.
        reach: how far from the middle of the sensor a digit rests, in pixels along each axis; as far as the sensor
            has room by default.
        camera: an `EventCamera`; by default with thresholds of 0.3, 1 Hz of noise, 0.1 Hz of leak and 100 microseconds
            of silence after an event.
        seed: of everything.
        transform: applied to the events of each sample.

    Attributes:
        sensor_size: (W, H, 2).
        classes: the digits' names.

    Raises:
        ArgumentError: for a digit that does not fit on the sensor, or numbers that make no sense.
        TensorIndexError: for a sample that it does not have.

    Source: the saccades are those of Orchard, Jayawant, Cohen and Thakor, "Converting static image datasets to spiking
    neuromorphic datasets using saccades", Frontiers in Neuroscience 2015; their course that of Flash and Hogan, "The
    coordination of arm movements", Journal of Neuroscience 1985. The digits' source stands at `data.digits`.

    Example:
        >>> recordings = snncell.data.MovingDigits(samples=10, seed=0)
        >>> events, label = recordings[3]
        >>> len(recordings), events.sensor_size, recordings.classes[label]
        (10, (34, 34, 2), '0')
    """

    def __init__(
        self,
        samples: Count = 1000,
        train: bool = True,
        *,
        sensor_size: Sequence[int] = (34, 34, 2),
        digit: Annotated[int, Within(8, 65535)] = 20,
        saccades: Count = 3,
        duration: Annotated[int, Within(1000, 10**9)] = 100_000,
        reach: NotNegative | None = None,
        camera: EventCamera | None = None,
        seed: Seed = 0,
        transform: Callable[[Events], Any] | None = None,
    ) -> None:
        self.sensor_size = sensor_of("MovingDigits", sensor_size)
        width, height, polarities = self.sensor_size
        if polarities != 2 or min(width, height) < digit:
            raise ArgumentError(
                f"MovingDigits: a digit of {digit} pixels needs a sensor_size of (W, H, 2) that has room for it, "
                f"not {self.sensor_size}."
            )
        self.classes = tuple("0123456789")
        self.camera = camera or EventCamera(0.3, refractory=100, noise=1.0, leak=0.1)
        self.samples, self.train, self.digit, self.saccades, self.duration = samples, train, digit, saccades, duration
        room = (np.array([width, height]) - digit) / 2.0
        self.reach = room if reach is None else np.minimum(room, reach)
        self.seed, self.transform = seed, transform
        self._images, self._labels = digits()[0 if train else 1]

    def __len__(self) -> int:
        """The number of samples."""
        return self.samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Make a sample: `(events, label)`."""
        if not -self.samples <= index < self.samples:
            raise TensorIndexError(f"MovingDigits: there is no sample {index}, there are {self.samples}.")
        rng = generator(self.seed, int(self.train), int(index) % self.samples)
        chosen = int(rng.integers(len(self._images)))
        middle = np.array(self.sensor_size[:2]) / 2.0
        rests = middle + self.reach * rng.uniform(-1.0, 1.0, (self.saccades + 1, 2))
        times, places = _course(rests, self.duration)
        image = self._images[chosen]

        def light(rows: slice) -> Array:
            return PAPER + (1.0 - PAPER) * self._film(image, places, rows)

        events = record(self.camera, self.sensor_size[:2], light, times, rng)
        return events if self.transform is None else self.transform(events), int(self._labels[chosen])

    def _film(self, image: Array, places: Array, rows: slice) -> Array:
        """The image with its middle at each place, (rows, W, T): bilinear, and 0 around it."""
        width, height, _ = self.sensor_size
        across = _hats(places[:, 0], range(width), self.digit, image.shape[1])
        down = _hats(places[:, 1], range(height)[rows], self.digit, image.shape[0])
        film: Array = down @ (image @ across.transpose(0, 2, 1))
        return film.transpose(1, 2, 0)


def _course(rests: Array, duration: int) -> tuple[Array, Array]:
    """Times (T,) and places (T, 2) from rest to rest, in steps of at most PIXELS, and one step for each rest."""
    times, places = [np.zeros(1)], [rests[:1]]
    for number, (start, target) in enumerate(pairwise(rests)):
        steps = min(int(np.abs(target - start).max() * PEAK / PIXELS) + 1, int(duration * MOVING))
        s = np.arange(1, steps + 1)[:, None] / steps
        times.append(np.append((number + MOVING * s[:, 0]) * duration, (number + 1) * duration))
        places.append(start + (target - start) * s**3 * (10.0 - 15.0 * s + 6.0 * s**2))
        places.append(target[None])
    return np.concatenate(times).astype(np.int64), np.concatenate(places)


def _hats(middles: Array, pixels: range, digit: int, points: int) -> Array:
    """The weights (T, pixels, points) of an image's points in pixels along an axis."""
    # Distances in units of the image's points, of which `digit` pixels show all.
    places = (np.array(pixels) + 0.5 - middles[:, None]) * (points / digit) + (points - 1) / 2.0
    weights: Array = np.maximum(1.0 - np.abs(places[:, :, None] - np.arange(points)), 0.0)
    return weights.astype(np.float32)
