"""Event filters, random dropping, and crops in time and space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from snncell.base.arguments.kinds import Count, Positive
from snncell.data import transforms as base
from snncell.data.events import Events, has_rows
from snncell.data.transforms import Generator, RandomTransform, Transform
from snncell.errors import ArgumentError
from snncell.kernels.numba.build import kernel_for

__all__ = [
    "CenterCrop", "CropTime", "Decimation", "Denoise", "DropEvent", "DropEventByArea", "DropEventByTime",
    "DropPixel", "RandomCrop", "RefractoryPeriod",
]  # fmt: skip

# --- Filters: kernels with one unit of work, the recording ------------------------------------------------------------

# `places` holds the pixel of each event, in a grid with a border of one pixel around the sensor, so that every pixel
# has four neighbours. `pixels` holds the initial state of each pixel.


def denoise(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if a neighbouring pixel had one less than `number` before. `pixels` are the pixels' last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            place, since = places[k], times[k] - number
            near = pixels[place - 1] > since or pixels[place + 1] > since
            kept[k] = near or pixels[place - pitch] > since or pixels[place + pitch] > since
            pixels[place] = times[k]


def rest(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if the previous one of its pixel is more than `number` ago. `pixels` are the pixels' last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            kept[k] = pixels[places[k]] < times[k] - number
            pixels[places[k]] = times[k]


def decimate(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep every `number`-th event of a pixel. `pixels` count the events since the last kept one."""
    for _ in range(start, stop):
        for k in range(len(times)):
            pixels[places[k]] += 1
            kept[k] = pixels[places[k]] == number
            if pixels[places[k]] == number:
                pixels[places[k]] = 0


RULES = {"denoise": denoise, "rest": rest, "decimate": decimate}
Rule = Literal["denoise", "rest", "decimate"]
LONGEST = 1 << 62  # microseconds


def keep_by_rule(rule: Rule, events: Any, size: tuple[int, int], number: int) -> Any:
    """Apply a rule to events inside of a sensor (W, H): a boolean per event."""
    width, height = size
    pitch = width + 2
    places = events["x"] + np.int64(pitch + 1)
    if "y" in events.dtype.names:
        places += events["y"] * np.int64(pitch)
    pixels = np.full(pitch * (height + 2), 0 if rule == "decimate" else -LONGEST, np.int64)  # before all times
    result = np.zeros(len(events), np.bool_)
    times = np.ascontiguousarray(events["t"])
    kernel = kernel_for(RULES[rule], "int64[1] int64[1] int64[1]* uint8[1]* int64 int64")
    kernel(1, 0, times, places, pixels, result.view(np.uint8), pitch, number)
    return result


def _filter_events(who: str, events: Events, rule: Rule, number: int) -> Any:
    base.check_inside(who, events)
    return events[keep_by_rule(rule, events, base.grid_of(events), number)]


@dataclass(frozen=True)
class Denoise(Transform):
    """Background activity filter: drop events without a recent event at a neighbouring pixel.

    You can use it to remove sensor noise, because real edges cause events at several neighbouring pixels. An event at
    time t is kept if the last event of the pixel above, below, left or right, of either polarity, is later than t -
    `filter_time`. Events are processed in the order of the array. In tonic, pixels start with an event at t = 0.

    Args:
        filter_time: microseconds.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    filter_time: Positive

    def _of(self, events: Events) -> Any:
        # For integers, t - before < filter_time is the same with the ceiling of filter_time.
        return _filter_events("Denoise", events, "denoise", min(int(np.ceil(self.filter_time)), LONGEST))


@dataclass(frozen=True)
class Decimation(Transform):
    """Keep every n-th event of each pixel, regardless of polarity: the n-th, the 2n-th and so on.

    Args:
        n: one of n events is kept.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    n: Count

    def _of(self, events: Events) -> Any:
        return _filter_events("Decimation", events, "decimate", self.n)


@dataclass(frozen=True)
class RefractoryPeriod(RandomTransform):
    """Drop events that follow the previous event of their pixel within `delta`.

    Let t_n be the times of a pixel's events of both polarities, in array order. Event n is kept if t_n - t_(n-1) >
    `delta`, even if event n - 1 was removed. The first event is kept; tonic drops it if its time is 0 or less.

    Args:
        delta: microseconds, or two numbers between which it is drawn.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"delta": (0, LONGEST)}

    delta: int | tuple[int, int]

    def _draw(self, events: Events, rng: Generator) -> Any:
        return _filter_events("RefractoryPeriod", events, "rest", base.draw_between(self.delta, rng))


# --- Dropping: at random, by pixel, time and area ---------------------------------------------------------------------


@dataclass(frozen=True)
class DropEvent(RandomTransform):
    """Drop a random fraction of the events: floor(p N + 1/2) of N.

    Args:
        p: the fraction, or two numbers between which it is drawn.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"p": (0.0, 1.0)}

    p: float | tuple[float, float]

    def _draw(self, events: Events, rng: Generator) -> Any:
        number = len(events)
        dropped = rng.choice(number, int(base.draw_between(self.p, rng) * number + 0.5), replace=False, shuffle=False)
        kept = np.ones(number, np.bool_)
        kept[dropped] = False
        return events[kept]


@dataclass(frozen=True)
class DropPixel(Transform):
    """Drop all events of given pixels, or of hot pixels.

    Args:
        coordinates: (x, y) of each pixel to drop, or x for events without y.
        hot_pixel_frequency: in Hz. A pixel is dropped if it has more events than this frequency times the time between
            the first and the last event of the recording. Pass this or `coordinates`.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    coordinates: Sequence[Any] | None = None
    hot_pixel_frequency: Positive | None = None

    def __post_init__(self) -> None:
        if (self.coordinates is None) == (self.hot_pixel_frequency is None):
            raise ArgumentError("DropPixel: give either the coordinates of pixels or a hot_pixel_frequency, in Hz.")

    def _of(self, events: Events) -> Any:
        places, (width, height) = base.places_of("DropPixel", events), base.grid_of(events)
        if self.hot_pixel_frequency is not None:
            first, last = base.span(events) if len(events) else (0, 0)
            counts = np.bincount(places, minlength=width * height)
            dropped = counts > self.hot_pixel_frequency * (last - first) * 1e-6
        else:
            dropped = np.zeros(width * height, np.bool_)
            dropped[_numbers_of_pixels(self.coordinates, [limit for _, limit in base.axes_of(events)])] = True
        return events[~dropped[places]]


def _numbers_of_pixels(coordinates: Any, limits: list[int]) -> Any:
    """The pixel indices of coordinates on a sensor (W, H) or (W,)."""
    given = np.asarray(coordinates)
    whole = given.dtype.kind in "iu" or not given.size
    of_axes = given.reshape(-1, 1) if len(limits) == 1 and given.ndim == 1 else given
    of_axes = of_axes if given.size else np.zeros((0, len(limits)), np.int64)
    wanted = whole and of_axes.ndim == 2 and of_axes.shape[1] == len(limits)
    if not wanted or (of_axes < 0).any() or (of_axes >= limits).any():
        each = "(x, y)" if len(limits) == 2 else "x"
        raise ArgumentError(
            f"DropPixel: coordinates must be {each} of pixels of a sensor {limits}, not {coordinates!r:.200}."
        )
    return of_axes.astype(np.int64) @ np.array([1, limits[0]][: len(limits)])


@dataclass(frozen=True)
class DropEventByTime(RandomTransform):
    """Drop all events in a time interval at a random position between the first event and the last (in tonic, from 0).

    Args:
        duration_ratio: the length of the interval as a fraction of the recording, or two numbers to draw it between.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"duration_ratio": (0.0, 1.0)}

    duration_ratio: float | tuple[float, float] = 0.2

    def _draw(self, events: Events, rng: Generator) -> Any:
        if not len(events):
            return events.copy()
        first, last = base.span(events)
        length = base.draw_between(self.duration_ratio, rng) * (last - first + 1)
        start = first + rng.uniform(0.0, last - first + 1 - length)
        return events[(events["t"] < start) | (events["t"] >= start + length)]


@dataclass(frozen=True)
class DropEventByArea(RandomTransform):
    """Drop all events in a rectangle of floor(r W) columns and floor(r H) rows at a random position.

    Args:
        area_ratio: r, or two numbers between which it is drawn.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"area_ratio": (0.0, 1.0)}

    area_ratio: float | tuple[float, float] = 0.2

    def _draw(self, events: Events, rng: Generator) -> Any:
        ratio = base.draw_between(self.area_ratio, rng)
        dropped = np.ones(len(events), np.bool_)
        for name, whole in base.axes_of(events):
            side = int(whole * ratio)
            first = int(rng.integers(0, whole - side, endpoint=True))
            dropped &= _between(events[name], first, side)
        return events[~dropped]


# --- Crops: in time and in space --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CropTime(Transform):
    """Keep the events with `min` <= t <= `max`, in microseconds.

    Args:
        min, max: the earliest and the latest time; without `max`, there is no latest time.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    min: int = 0
    max: int | None = None

    def _of(self, events: Events) -> Any:
        t = events["t"]
        return events[(t >= self.min) & (self.max is None or t <= self.max)]


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Crop the centre of the sensor, or pad it: column x becomes x - floor((W - w) / 2), and rows likewise.

    Args:
        size: (w, h), or one number for both; only w counts for events without y.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    size: Count | tuple[Count, Count]

    def _of(self, events: Events) -> Events:
        size = _pair(self.size)
        firsts = [(whole - own) // 2 for whole, own in zip(events.sensor_size[:2], size, strict=True)]
        return _crop_events(events, firsts, size)


@dataclass(frozen=True)
class RandomCrop(RandomTransform):
    """Crop the sensor at a random position; in contrast to tonic, this may be the last column and row.

    Args:
        target_size: (w, h) within the sensor, or one number for both; only w counts for events without y.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    target_size: Count | tuple[Count, Count]

    def _draw(self, events: Events, rng: Generator) -> Events:
        size, sensor = _pair(self.target_size), events.sensor_size
        axes = 2 if has_rows(events) else 1
        if any(own > whole for own, whole in zip(size[:axes], sensor, strict=False)):
            raise ArgumentError(f"RandomCrop: {size[:axes]} does not fit into sensor_size {sensor}; CenterCrop pads.")
        firsts = [int(rng.integers(0, max(whole - own, 0) + 1)) for own, whole in zip(size, sensor, strict=False)]
        return _crop_events(events, firsts, size)


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _crop_events(events: Events, firsts: list[int], size: tuple[int, int]) -> Events:
    """The events in a rectangle, with coordinates relative to its corner."""
    names, sides = [name for name, _ in base.axes_of(events)], list(events.sensor_size)
    sides[: len(names)] = size[: len(names)]
    inside = np.ones(len(events), np.bool_)
    for name, first, side in zip(names, firsts, size, strict=False):
        inside &= _between(events[name], first, side)
    part: Events = events[inside]
    columns = {name: part[name].astype(np.int64) - first for name, first in zip(names, firsts, strict=False)}
    return base.with_columns(part, (sides[0], sides[1], sides[2]), **columns)


def _between(column: Any, first: int, count: int) -> Any:
    return (column >= first) & (column < first + count)
