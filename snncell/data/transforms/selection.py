"""Transforms that select events: filters, dropping and crops."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Positive
from snncell.data.events import Events
from snncell.data.transforms.base import (
    Generator,
    RandomTransform,
    Transform,
    axes_of,
    check_inside,
    draw_between,
    grid_of,
    has_rows,
    places_of,
    select,
    span,
    with_columns,
)
from snncell.errors import ArgumentError
from snncell.kernels.numba.build import build_function

__all__ = [
    "CenterCrop",
    "CropTime",
    "Decimation",
    "Denoise",
    "DropEvent",
    "DropEventByArea",
    "DropEventByTime",
    "DropPixel",
    "RandomCrop",
    "RefractoryPeriod",
]

# --- filters: kernels with one unit of work, the recording ------------------------------------------------------------

# `places` says which pixel each event is of, in a grid with a pixel around the sensor; `pixels` is what is known of
# each, as it begins.


def denoise(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if a pixel beside its own had one less than `number` before. `pixels` are their last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            place, since = places[k], times[k] - number
            near = pixels[place - 1] > since or pixels[place + 1] > since
            kept[k] = near or pixels[place - pitch] > since or pixels[place + pitch] > since
            pixels[place] = times[k]


def rest(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if the one before it, of its pixel, is more than `number` ago. `pixels` are their last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            kept[k] = pixels[places[k]] < times[k] - number
            pixels[places[k]] = times[k]


def decimate(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep every event of a pixel whose number, from 1 on, `number` divides. `pixels` count since the last of those."""
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
    """Which of the events, in their order, one of the rules keeps: booleans. All are inside of a sensor of (W, H)."""
    width, height = size
    pitch = width + 2
    places = events["x"] + np.int64(pitch + 1)
    if "y" in events.dtype.names:
        places += events["y"] * np.int64(pitch)
    pixels = np.full(pitch * (height + 2), 0 if rule == "decimate" else -LONGEST, np.int64)  # before all times
    result = np.zeros(len(events), np.bool_)
    times = np.ascontiguousarray(events["t"])
    _kernel(rule)(1, 0, times, places, pixels, result.view(np.uint8), pitch, number)
    return result


@functools.cache
def _kernel(rule: Rule) -> Any:
    numbers, number = (dtypes.int64, 1, False), dtypes.int64
    signature = (numbers, numbers, (dtypes.int64, 1, True), (dtypes.uint8, 1, True), number, number)
    return build_function(RULES[rule], signature)


def _filter_events(who: str, events: Events, rule: Rule, number: int) -> Events:
    check_inside(who, events)
    return select(events, keep_by_rule(rule, events, grid_of(events), number))


@dataclass(frozen=True)
class Denoise(Transform):
    """Background activity filter: drop events if no pixel beside theirs had one within `filter_time` before.

    An event at t is kept if the last event of a pixel above, below, left or right of its own, of either polarity, has a
    time above t - `filter_time`. Events are looked at in the order in which they are. In tonic every pixel begins with
    an event at t = 0; here with none.

    Args:
        filter_time: microseconds.
        sensor_size: of events that do not know theirs.
    """

    filter_time: Positive

    def _of(self, events: Events) -> Events:
        # Of integers: t - before < filter_time.
        return _filter_events("Denoise", events, "denoise", min(int(np.ceil(self.filter_time)), LONGEST))


@dataclass(frozen=True)
class Decimation(Transform):
    """Keep every n-th event of each pixel, whatever its polarity: its n-th, 2n-th and so on.

    Args:
        n: of how many events one is kept.
        sensor_size: of events that do not know theirs.
    """

    n: Count

    def _of(self, events: Events) -> Events:
        return _filter_events("Decimation", events, "decimate", self.n)


@dataclass(frozen=True)
class RefractoryPeriod(RandomTransform):
    """Keep the first event of each pixel, and those whose time to the one before is above `delta`.

    With t_n the times of all events of a pixel, of either polarity and in the order in which they are, event n is kept
    if t_n - t_(n-1) > `delta`, whether event n - 1 was kept or not: as in tonic, but that it drops a first event at
    t <= 0.

    Args:
        delta: microseconds; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"delta": (0, LONGEST)}

    delta: int | tuple[int, int]

    def _draw(self, events: Events, rng: Generator) -> Events:
        return _filter_events("RefractoryPeriod", events, "rest", draw_between(self.delta, rng))


# --- dropping: at random, by pixel, time and place --------------------------------------------------------------------


@dataclass(frozen=True)
class DropEvent(RandomTransform):
    """Drop a part of the events: floor(p N + 1/2) of N, chosen at random.

    Args:
        p: the part; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"p": (0.0, 1.0)}

    p: float | tuple[float, float]

    def _draw(self, events: Events, rng: Generator) -> Events:
        number = len(events)
        dropped = rng.choice(number, int(draw_between(self.p, rng) * number + 0.5), replace=False, shuffle=False)
        kept = np.ones(number, np.bool_)
        kept[dropped] = False
        return select(events, kept)


@dataclass(frozen=True)
class DropPixel(Transform):
    """Drop all events of some pixels: those that are named, or those that fire too often.

    Args:
        coordinates: (x, y) of each pixel; of events without y, each x.
        hot_pixel_frequency: in Hz; pixels are dropped that have more events than this times the time from the first
            event of the recording to its last.
        sensor_size: of events that do not know theirs.

    Raises:
        ArgumentError: for both or neither of them; when called, for coordinates that are no such.
    """

    coordinates: Sequence[Any] | None = None
    hot_pixel_frequency: Positive | None = None

    def __post_init__(self) -> None:
        if (self.coordinates is None) == (self.hot_pixel_frequency is None):
            raise ArgumentError("DropPixel: give either the coordinates of pixels or a hot_pixel_frequency, in Hz.")

    def _of(self, events: Events) -> Events:
        places, (width, height) = places_of("DropPixel", events), grid_of(events)
        if self.hot_pixel_frequency is not None:
            first, last = span(events) if len(events) else (0, 0)
            counts = np.bincount(places, minlength=width * height)
            dropped = counts > self.hot_pixel_frequency * (last - first) * 1e-6
        else:
            dropped = np.zeros(width * height, np.bool_)
            dropped[_numbers_of_pixels(self.coordinates, [limit for _, limit in axes_of(events)])] = True
        return select(events, ~dropped[places])


def _numbers_of_pixels(coordinates: Any, limits: list[int]) -> Any:
    """The numbers of the pixels at some coordinates, of a sensor (W, H) or (W,)."""
    given = np.asarray(coordinates)
    whole = given.dtype.kind in "iu" or not given.size
    of_axes = given.reshape(-1, 1) if len(limits) == 1 and given.ndim == 1 else given
    of_axes = of_axes if given.size else np.zeros((0, len(limits)), np.int64)
    wanted = whole and of_axes.ndim == 2 and of_axes.shape[1] == len(limits)
    if not wanted or (of_axes < 0).any() or (of_axes >= limits).any():
        each = "(x, y)" if len(limits) == 2 else "x"
        raise ArgumentError(
            f"DropPixel: coordinates are {each} of pixels of a sensor {limits}, not {coordinates!r:.200}."
        )
    return of_axes.astype(np.int64) @ np.array([1, limits[0]][: len(limits)])


@dataclass(frozen=True)
class DropEventByTime(RandomTransform):
    """Drop the events in an interval at a random place.

    The recording lasts from its first event to its last; tonic's interval may lie before the first one, from t = 0 on.

    Args:
        duration_ratio: the part of the recording that the interval is; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"duration_ratio": (0.0, 1.0)}

    duration_ratio: float | tuple[float, float] = 0.2

    def _draw(self, events: Events, rng: Generator) -> Events:
        if not len(events):
            return events.copy()
        first, last = span(events)
        length = draw_between(self.duration_ratio, rng) * (last - first + 1)
        start = first + rng.uniform(0.0, last - first + 1 - length)
        return select(events, (events["t"] < start) | (events["t"] >= start + length))


@dataclass(frozen=True)
class DropEventByArea(RandomTransform):
    """Drop the events in a box at a random place.

    The box has floor(r W) columns and floor(r H) rows; of events without y, columns alone.

    Args:
        area_ratio: r; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"area_ratio": (0.0, 1.0)}

    area_ratio: float | tuple[float, float] = 0.2

    def _draw(self, events: Events, rng: Generator) -> Events:
        ratio = draw_between(self.area_ratio, rng)
        dropped = np.ones(len(events), np.bool_)
        for name, whole in axes_of(events):
            side = int(whole * ratio)
            first = int(rng.integers(0, whole - side, endpoint=True))
            dropped &= _between(events[name], first, side)
        return select(events, ~dropped)


# --- crops: in time and in space --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CropTime(Transform):
    """Keep the events with `min` <= t <= `max`, in microseconds.

    Args:
        min: the first time.
        max: the last one; without it, to the end.
        sensor_size: of events that do not know theirs.
    """

    min: int = 0
    max: int | None = None

    def _of(self, events: Events) -> Events:
        t = events["t"]
        return select(events, (t >= self.min) & (self.max is None or t <= self.max))


@dataclass(frozen=True)
class CenterCrop(Transform):
    """Keep the events in the middle of the sensor, as those of a smaller one.

    Column x becomes x - floor((W - w) / 2), and rows alike. A size larger than the sensor puts it into the middle of
    the new one.

    Args:
        size: (w, h), or one number for both; of events without y, w.
        sensor_size: of events that do not know theirs.
    """

    size: Count | tuple[Count, Count]

    def _of(self, events: Events) -> Events:
        size = _pair(self.size)
        firsts = [(whole - own) // 2 for whole, own in zip(events.sensor_size[:2], size, strict=True)]
        return _crop_events(events, firsts, size)


@dataclass(frozen=True)
class RandomCrop(RandomTransform):
    """Keep the events in a part of the sensor at a random place, as those of a smaller one.

    Each place is as likely as any other; tonic's never reaches the last column and row.

    Args:
        target_size: (w, h), or one number for both; of events without y, w.
        sensor_size: of events that do not know theirs.

    Raises:
        ArgumentError: when called, for a size larger than the sensor.
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
    """The events from a place on, within a size, counted from there."""
    names, sides = [name for name, _ in axes_of(events)], list(events.sensor_size)
    sides[: len(names)] = size[: len(names)]
    inside = np.ones(len(events), np.bool_)
    for name, first, side in zip(names, firsts, size, strict=False):
        inside &= _between(events[name], first, side)
    part = select(events, inside)
    columns = {name: part[name].astype(np.int64) - first for name, first in zip(names, firsts, strict=False)}
    return with_columns(part, (sides[0], sides[1], sides[2]), **columns)


def _between(column: Any, first: int, count: int) -> Any:
    """Which places are from `first` on, at most `count` of them."""
    return (column >= first) & (column < first + count)
