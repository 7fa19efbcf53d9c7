"""Event camera simulator, handwritten digits, and synthetic recordings of moving digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Count, Lengths, NotNegative, Numbers, Size, Within
from snncell.data.binning import RECORD
from snncell.data.events import Events, sensor_of
from snncell.data.samples import Seed, generator, position_of
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.intrinsics.elements import row
from snncell.kernels.numba.build import grain_of, kernel_for
from snncell.tape.structure import on_host

__all__ = ["EventCamera", "MovingDigits", "digits"]

Array = np.ndarray[Any, Any]
Threshold = Annotated[float, Within(1e-3)]
Dark = Annotated[float, Within(1e-6)]
Rate = Annotated[float, Within(0.0, 1e6)]

MICROSECONDS = 1e-6  # seconds
MOST = 1 << 31  # limit of noise and leak events
LATEST = 1 << 60  # microseconds; the kernel uses 63 bits for times
ROOM = 1 << 20  # film elements in memory at once, rounded to whole rows

# --- Kernel: a unit is a pixel ----------------------------------------------------------------------------------------


def find_events_kernel(
    start: Any, stop: Any, film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: Any,
    numbers: Any, firsts: Any, words: Any,
) -> None:  # fmt: skip
    """Find the events of each pixel of `film` (pixels, T): its light, linear between frames, has moved by a threshold.

    `noise` has sorted times, with the polarity in the lowest bit, from `noise_firsts[pixel]` on. If `numbers[2]` is 1,
    pixel n writes its events to `words` from event `firsts[n]` on. If it is 0, `firsts[n]` gets only their number.
    """
    on, off, leak = limits[0], limits[1], limits[2]
    refractory, width, writing = numbers[0], numbers[1], numbers[2]
    steps = len(times)
    never = 1 << 62
    for pixel in range(start, stop):
        light, level = row(film, pixel), levels[pixel]
        place = pixel % width | pixel // width << 16
        free = times[0]  # end of the refractory period
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
                    # Rounding may have moved `before` to or beyond the threshold already.
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


PARALLEL_SIZE = 1 << 17  # pixels times steps; below this size threads do not pay off


def find_events(
    film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: tuple[float, float, float],
    refractory: int, width: int,
) -> Any:  # fmt: skip
    """Events as two words of RECORD each, (N, 2), pixel by pixel. The kernel runs twice, to count and to write."""
    pixels = len(film)
    grain = grain_of(pixels) if film.size >= PARALLEL_SIZE else 0
    counts = np.zeros(pixels, np.int64)
    given = (film, times, levels, noise, noise_firsts, np.array(limits, np.float64))
    kinds = "float32[2] int64[1] float64[1] int64[1] int64[1] float64[1] int64[1] int64[1]* int64[1]*"
    kernel = kernel_for(find_events_kernel, kinds)
    kernel(pixels, grain, *given, np.array([refractory, width, 0], np.int64), counts, np.empty(0, np.int64))
    firsts = np.cumsum(counts) - counts
    words = np.empty((int(counts.sum()), 2), np.int64)
    if len(words):
        kernel(pixels, grain, *given, np.array([refractory, width, 1], np.int64), firsts, words.reshape(-1))
    return words


class EventCamera:
    """Event camera simulator (DVS): convert video frames to events.

    Each pixel reports changes of its brightness independently. It keeps a level m of the logarithm of its light, L(t) =
    ln(I(t) + dark), which is interpolated linearly between frames:

        L(t) - m >= on      an event of polarity 1 at t, and m <- m + on
        L(t) - m <= -off    an event of polarity 0 at t, and m <- m - off
        dm/dt = -leak on    between events

    A large change gives several events, each at the time when it crosses its threshold. Pixels start at random levels
    between their thresholds, because otherwise all of them would leak at the same time. Noise events have random times
    and polarities. For `refractory` microseconds after an event a pixel reports nothing, but m is still updated.

    Args:
        threshold: the change of ln I that causes an event, at least 0.001; one number, or (on, off).
        refractory: the refractory period in microseconds.
        noise: rate of noise events per pixel, in Hz.
        leak: rate of polarity-1 events of a pixel without any change, in Hz.
        dark: dark current in the film's unit of light, at least 1e-6. It bounds the logarithm.
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

    def __call__(self, film: Numbers, times: Lengths, seed: Seed | None = None) -> Events:
        """Convert a film to events.

        Args:
            film: light intensity (T, H, W), finite and not negative, with at least two frames.
            times: the times of the frames in microseconds, ascending (T,); or one number, the time between frames.
            seed: the seed of the initial levels and the noise. By default `snncell.set_seed` decides.
        Returns: Events in order of time, with sensor_size (W, H, 2).
        """
        with np.errstate(over="ignore"):  # numbers too large for float32 are refused below
            frames = np.asarray(on_host(film), np.float32)
        if frames.ndim != 3 or len(frames) < 2 or frames.size == 0:
            raise ShapeError(f"EventCamera: film must be (T, H, W) with at least two frames, not {frames.shape}.")
        if not np.isfinite(frames).all() or frames.min() < 0.0:
            raise ArgumentError(
                f"EventCamera: film is light, so it must be finite and not negative, but it has values from "
                f"{frames.min():g} to {frames.max():g}."
            )
        at = np.arange(len(frames)) * times if isinstance(times, int) else np.asarray(times, np.int64)
        if at.shape != (len(frames),):
            raise ShapeError(
                f"EventCamera: times must be one number, or one for each of {len(frames)} frames, not {at.shape}."
            )
        if (np.diff(at) <= 0).any() or (at <= -LATEST).any() or (at >= LATEST).any():
            raise ArgumentError("EventCamera: times must ascend, in whole microseconds below 2^60.")
        size = sensor_of("EventCamera", (frames.shape[2], frames.shape[1], 2))[:2]
        rng = generator(seed)
        return record(self, size, lambda rows: frames[:, rows].transpose(1, 2, 0), at, rng)


def record(
    camera: EventCamera, size: tuple[int, int], light: Callable[[slice], Array], times: Array, rng: np.random.Generator
) -> Events:
    """Events of a film of size (W, H), computed in blocks: `light` maps a slice of rows to their light (rows, W, T)."""
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
        parts[-1][:, 1] += top << 16  # y of the block's first row
    words = np.concatenate(parts)
    words = words[np.argsort(words[:, 0], kind="stable")]
    events: Events = words.reshape(-1).view(RECORD).view(Events)
    events.sensor_size = (width, height, 2)
    return events


def _noise(camera: EventCamera, pixels: int, begin: int, end: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Noise times with the polarity in the lowest bit, sorted by pixel and time, and each pixel's first index."""
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


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Handwritten digits: 1,797 grey images of 8 x 8 pixels, of which 1,438 are for training and 359 for testing.

    The images come with the package. Every fifth image is a test image, so both parts contain the same writers.

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


PAPER = 0.1  # brightness of the background relative to the digit
MOVING = 0.5  # fraction of `duration` in which the digit moves; then it rests
PEAK = 1.875  # peak speed of a saccade relative to its mean speed
PIXELS = 0.5  # largest movement between two frames


class MovingDigits:
    """Synthetic N-MNIST: event camera recordings of handwritten digits that move in saccades.

    A bright digit of `data.digits` rests at a random place. In each period of length `duration` it moves to another
    place during the first half, along a straight minimum-jerk trajectory:

        p(t) = p_k + (p_(k+1) - p_k) (10 s^3 - 15 s^4 + 6 s^5),  s = min(2 (t - t_k) / duration, 1)

    Frames use bilinear interpolation and steps of at most half a pixel, and `camera` converts them to events. Sample i
    depends only on the seed and i, so you can read samples in any order and from any process.

    Args:
        samples: the number of samples; each shows a random image.
        train: use the 1,438 training images, or else the 359 test images.
        sensor_size: (W, H, 2), at least as large as the digit.
        digit: size of the digit in pixels, at least 8.
        saccades: the number of movements.
        duration: the duration of a movement and the rest after it, in microseconds, from 1,000 to 10^9.
        reach: the largest distance of a resting place from the sensor's centre, in pixels along each axis; None (the
            default) for any place on the sensor.
        camera: by default `EventCamera(0.3, refractory=100, noise=1.0, leak=0.1)`.
        seed: the seed of all random numbers.
        transform: a function of the events; `[i]` returns its result.
    Attributes: classes: the names of the digits.
    Source: saccades as in Orchard, Jayawant, Cohen and Thakor, "Converting static image datasets to spiking
        neuromorphic datasets using saccades", Frontiers in Neuroscience 2015; trajectory of Flash and Hogan, "The
        coordination of arm movements", Journal of Neuroscience 1985. For the images see `data.digits`.
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
                f"MovingDigits: a digit of {digit} pixels needs a sensor_size (W, H, 2) that is at least as large, not "
                f"{self.sensor_size}."
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
        rng = generator(self.seed, int(self.train), position_of(self, index))
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
        """The image centred at each place, (rows, W, T), bilinearly interpolated, with zeros around it."""
        width, height, _ = self.sensor_size
        across = _hats(places[:, 0], range(width), self.digit, image.shape[1])
        down = _hats(places[:, 1], range(height)[rows], self.digit, image.shape[0])
        film: Array = down @ (image @ across.transpose(0, 2, 1))
        return film.transpose(1, 2, 0)


def _course(rests: Array, duration: int) -> tuple[Array, Array]:
    """Times (T,) and places (T, 2) of the trajectory, in steps of at most PIXELS; one step per rest."""
    times, places = [np.zeros(1)], [rests[:1]]
    for number, (start, target) in enumerate(pairwise(rests)):
        steps = min(int(np.abs(target - start).max() * PEAK / PIXELS) + 1, int(duration * MOVING))
        s = np.arange(1, steps + 1)[:, None] / steps
        times.append(np.append((number + MOVING * s[:, 0]) * duration, (number + 1) * duration))
        places.append(start + (target - start) * s**3 * (10.0 - 15.0 * s + 6.0 * s**2))
        places.append(target[None])
    return np.concatenate(times).astype(np.int64), np.concatenate(places)


def _hats(middles: Array, pixels: range, digit: int, points: int) -> Array:
    """Bilinear weights (T, pixels, points) of an image's points for the sensor's pixels along an axis."""
    # Distances in points of the image; `digit` sensor pixels show all points.
    places = (np.array(pixels) + 0.5 - middles[:, None]) * (points / digit) + (points - 1) / 2.0
    weights: Array = np.maximum(1.0 - np.abs(places[:, :, None] - np.arange(points)), 0.0)
    return weights.astype(np.float32)
