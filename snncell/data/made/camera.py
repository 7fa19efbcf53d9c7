"""An event camera: its events of a film, handwritten digits, and its recordings of digits that move."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Lengths, NotNegative, Numbers, Size, Within
from snncell.data.binning import RECORD
from snncell.data.events import Events, sensor_of
from snncell.data.random_numbers import Seed, generator, seed_or_draw
from snncell.errors import ArgumentError, ShapeError, TensorIndexError
from snncell.kernels.intrinsics.elements import row
from snncell.kernels.numba.build import build_function, grain_of
from snncell.tape.structure import on_host

__all__ = ["EventCamera", "MovingDigits", "digits"]

Array = np.ndarray[Any, Any]
Threshold = Annotated[float, Within(1e-3)]
Dark = Annotated[float, Within(1e-6)]
Rate = Annotated[float, Within(0.0, 1e6)]

MICROSECONDS = 1e-6  # seconds
MOST = 1 << 31  # events of noise and leak
LATEST = 1 << 60  # microseconds: the kernel has times in 63 bits
ROOM = 1 << 20  # elements of a film that are there at once, in whole rows

# --- the kernel: a unit is a pixel ------------------------------------------------------------------------------------


def find_events_kernel(
    start: Any, stop: Any, film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: Any,
    numbers: Any, firsts: Any, words: Any,
) -> None:  # fmt: skip
    """Find where each pixel's light, linear between frames, has left its level by a threshold: `words` gets an event.

    `film` is (pixels, T), `levels` where each pixel begins, `noise` times with the polarity in the lowest bit, a
    pixel's own from `noise_firsts[pixel]` on, in order. Pixel n writes from event `firsts[n]` on; if the flag in
    `numbers` is not set, it puts its number of events there instead.
    """
    on, off, leak = limits[0], limits[1], limits[2]
    refractory, width, writing = numbers[0], numbers[1], numbers[2]
    steps = len(times)
    never = 1 << 62
    for pixel in range(start, stop):
        light, level = row(film, pixel), levels[pixel]
        place = pixel % width | pixel // width << 16
        free = times[0]  # from when on the pixel can fire
        event = firsts[pixel] if writing != 0 else 0
        n, last = noise_firsts[pixel], noise_firsts[pixel + 1]
        soon = noise[n] >> 1 if n < last else never
        for step in range(1, steps):
            begin, end = times[step - 1], times[step]
            span = end - begin
            before = light[step - 1] - level
            after = light[step] - level + leak * span
            level -= leak * span
            until = end if step < steps - 1 else never
            while after >= on or after <= -off or soon < until:
                t, p = until, 0
                if after >= on or after <= -off:
                    p = 1 if after >= on else 0
                    # Rounding may have put `before` on the threshold already.
                    way = (on - before if p == 1 else off + before) / (abs(after - before) + 1e-30)
                    t = begin + int(span * (way if way > 0.0 else 0.0))
                if soon < t:
                    t, p = soon, noise[n] & 1
                    n += 1
                    soon = noise[n] >> 1 if n < last else never
                else:
                    change = on if p == 1 else -off
                    level, before, after = level + change, before - change, after - change
                if t >= free:
                    free = t + refractory
                    if writing != 0:
                        words[2 * event] = t
                        words[2 * event + 1] = place | p << 32
                    event += 1
        if writing == 0:
            firsts[pixel] = event


PARALLEL_SIZE = 1 << 17  # pixels times steps, from which on threads are worth it


def find_events(
    film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: tuple[float, float, float],
    refractory: int, width: int,
) -> Any:  # fmt: skip
    """Events as two words of RECORD each, (N, 2), pixel by pixel: the kernel counts them, then writes them."""
    pixels = len(film)
    grain = grain_of(pixels) if film.size >= PARALLEL_SIZE else 0
    counts = np.zeros(pixels, np.int64)
    given = (film, times, levels, noise, noise_firsts, np.array(limits, np.float64))
    kernel = _kernel()
    kernel(pixels, grain, *given, np.array([refractory, width, 0], np.int64), counts, np.empty(0, np.int64))
    firsts = np.cumsum(counts) - counts
    words = np.empty((int(counts.sum()), 2), np.int64)
    if len(words):
        kernel(pixels, grain, *given, np.array([refractory, width, 1], np.int64), firsts, words.reshape(-1))
    return words


@functools.cache
def _kernel() -> Any:
    numbers, floats, film = (dtypes.int64, 1, False), (dtypes.float64, 1, False), (dtypes.float32, 2, False)
    written = (dtypes.int64, 1, True)
    signature = (film, numbers, floats, numbers, numbers, floats, numbers, written, written)
    return build_function(find_events_kernel, signature)


# --- the camera -------------------------------------------------------------------------------------------------------


class EventCamera:
    """Event camera simulator: pixels that report changes of brightness, each by itself; frames in, events out.

    A pixel keeps a level m of the logarithm of its light, L(t) = ln(I(t) + dark), which is linear between frames:

        L(t) - m >= on      an event of polarity 1 at t, and m <- m + on
        L(t) - m <= -off    an event of polarity 0 at t, and m <- m - off
        dm/dt = -leak on    between events

    A step of light of several thresholds gives as many events, at the times when it passes each. Each pixel begins at a
    random place between its thresholds, or all of them would leak in time. Noise are events of either polarity at
    random times. For `refractory` microseconds after an event a pixel reports nothing; m moves all the same.

    Args:
        threshold: of ln I, from 0.001 on; one, or (on, off).
        refractory: in microseconds.
        noise: in Hz, events of each pixel.
        leak: in Hz, events of polarity 1 of a pixel that sees no change.
        dark: in the film's unit of light, what a pixel sees in the dark: it bounds the logarithm. From 1e-6 on.

    Source: Lichtsteiner, Posch and Delbruck, "A 128 x 128 120 dB 15 us latency asynchronous temporal contrast vision
    sensor", IEEE JSSC 2008; Rebecq, Gehrig and Scaramuzza, "ESIM: an open event camera simulator", CoRL 2018; leak and
    noise as in Hu, Liu and Delbruck, "v2e: From video frames to realistic DVS events", CVPR Workshops 2021.

    Example:
        >>> film = [[[0.5, 0.1]], [[0.5, 0.3]]]  # the second of two pixels grows brighter, within a ms
        >>> snncell.data.EventCamera(threshold=0.25)(film, 1000, seed=0).tolist()
        [(130, 1, 0, 1), (371, 1, 0, 1), (612, 1, 0, 1), (854, 1, 0, 1)]
    """

    def __init__(
        self,
        threshold: Threshold | tuple[Threshold, Threshold] = 0.2,
        *,
        refractory: Size = 0,
        noise: Rate = 0.0,
        leak: Rate = 0.0,
        dark: Dark = 0.01,
    ) -> None:
        self.on, self.off = threshold if isinstance(threshold, (tuple, list)) else (threshold, threshold)
        self.refractory, self.noise, self.leak, self.dark = refractory, noise, leak, dark

    def __call__(self, film: Numbers, times: Lengths, seed: int | None = None) -> Events:
        """Film these frames.

        Args:
            film: light (T, H, W), not negative, of at least two frames.
            times: in microseconds, ascending (T,); or one number, the time from each frame to the next.
            seed: of the levels at which pixels begin, and of noise; without it `snncell.set_seed` decides.

        Returns:
            Events in order of time, with sensor_size (W, H, 2).

        Raises:
            ShapeError: for a film that is not (T, H, W), or times that are not (T,).
            ArgumentError: for light that is negative or not finite, times that do not ascend, noise and leak of more
                than two billion events.
        """
        with np.errstate(over="ignore"):  # what is too large for float32 is refused below
            frames = np.asarray(on_host(film), np.float32)
        if frames.ndim != 3 or len(frames) < 2 or frames.size == 0:
            raise ShapeError(f"EventCamera: film is (T, H, W) with two frames or more, not {frames.shape}.")
        if not np.isfinite(frames).all() or frames.min() < 0.0:
            raise ArgumentError("EventCamera: film is light, finite and not negative.")
        at = np.arange(len(frames)) * times if isinstance(times, int) else np.asarray(times, np.int64)
        if at.shape != (len(frames),):
            raise ShapeError(
                f"EventCamera: times are one number, or one for each of {len(frames)} frames, not {at.shape}."
            )
        if (np.diff(at) <= 0).any() or (at <= -LATEST).any() or (at >= LATEST).any():
            raise ArgumentError("EventCamera: times ascend from frame to frame, in whole microseconds below 2^60.")
        size = sensor_of("EventCamera", (frames.shape[2], frames.shape[1], 2))[:2]
        rng = generator(seed_or_draw("EventCamera", seed))
        return record(self, size, lambda rows: frames[:, rows].transpose(1, 2, 0), at, rng)


def record(
    camera: EventCamera, size: tuple[int, int], light: Callable[[slice], Array], times: Array, rng: np.random.Generator
) -> Events:
    """Events of the light that `light` gives of some rows, (rows, W, T) at these times; the size is (W, H)."""
    width, height = size
    phases = rng.random((height, width))
    noise, firsts = _noise(camera, width * height, int(times[0]), int(times[-1]), rng)
    limits = (camera.on, camera.off, camera.leak * camera.on * MICROSECONDS)
    parts, at_once = [], max(ROOM // (width * len(times)), 1)
    for top in range(0, height, at_once):
        rows = slice(top, min(top + at_once, height))
        film = np.ascontiguousarray(light(rows)).reshape(-1, len(times)) + np.float32(camera.dark)
        np.log(film, film)
        levels = film[:, 0].astype(np.float64) - camera.on + (camera.on + camera.off) * phases[rows].reshape(-1)
        own = firsts[rows.start * width : rows.stop * width + 1]
        parts.append(find_events(film, times, levels, noise, own, limits, camera.refractory, width))
        parts[-1][:, 1] += top << 16  # of y
    words = np.concatenate(parts)
    words = words[np.argsort(words[:, 0], kind="stable")]
    events: Events = words.reshape(-1).view(RECORD).view(Events)
    events.sensor_size = (width, height, 2)
    return events


def _noise(camera: EventCamera, pixels: int, begin: int, end: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Times of noise with the polarity in the lowest bit, those of a pixel in order, and where those of each begin."""
    seconds = MICROSECONDS * (end - begin)
    if (camera.noise + camera.leak) * seconds * pixels > MOST:
        raise ArgumentError(
            f"EventCamera: noise {camera.noise:g} Hz and leak {camera.leak:g} Hz of {pixels} pixels give more than "
            f"{MOST} events in {seconds:g} s."
        )
    count = int(rng.poisson(camera.noise * seconds * pixels))
    where, when = rng.integers(pixels, size=count), rng.integers(begin, end, size=count)
    words = when << 1 | rng.integers(2, size=count)
    firsts = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=pixels))])
    return words[np.lexsort((words, where))], firsts


# --- handwritten digits -----------------------------------------------------------------------------------------------


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


PAPER = 0.1  # of the light of the ink
MOVING = 0.5  # part of a saccade's duration; then the digit rests
PEAK = 1.875  # of the speed in a saccade, as a multiple of its mean
PIXELS = 0.5  # the most that a digit moves from frame to frame


class MovingDigits:
    """Synthetic recordings like N-MNIST's: handwritten digits that jump over the sensor of an event camera.

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
        return self.samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
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
