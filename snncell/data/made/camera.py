"""An event camera: what its pixels report of a film."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Lengths, Numbers, Size, Within
from snncell.data.events import Events, sensor_of
from snncell.data.kernels.binning import RECORD
from snncell.data.kernels.camera import find_events
from snncell.data.random_numbers import generator, seed_or_draw
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.structure import on_host

__all__ = ["EventCamera"]

Array = np.ndarray[Any, Any]
Threshold = Annotated[float, Within(1e-3)]
Dark = Annotated[float, Within(1e-6)]
Rate = Annotated[float, Within(0.0, 1e6)]

MICROSECONDS = 1e-6  # seconds
MOST = 1 << 31  # events of noise and leak
LATEST = 1 << 60  # microseconds: the kernel has times in 63 bits
ROOM = 1 << 20  # elements of a film that are there at once, in whole rows


class EventCamera:
    """A camera whose pixels report changes of brightness, each by itself: frames in, events out.

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

    Raises:
        ArgumentError: for numbers that make no sense.

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
