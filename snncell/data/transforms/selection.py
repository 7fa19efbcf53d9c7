"""Transforms that select events: denoising, dropping and crops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count, Positive
from snncell.data.events import Events
from snncell.data.kernels import event_filters
from snncell.data.transforms.base import (
    Generator,
    RandomTransform,
    Transform,
    between,
    check_inside,
    draw_between,
    grid_of,
    has_rows,
    places_of,
    span,
    with_columns,
)
from snncell.errors import ArgumentError

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

LONGEST = 1 << 62  # microseconds


@dataclass(frozen=True)
class Denoise(Transform):
    """Drop the events that are alone: none of the four pixels beside theirs had one within `filter_time` before.

    An event at t is kept if the last event of a pixel above, below, left or right of its own, of either polarity, has a
    time above t - `filter_time`. Events are looked at in the order in which they are. In tonic every pixel begins with
    an event at t = 0; here with none.

    Args:
        filter_time: microseconds.
        sensor_size: of events that do not know theirs.
    """

    filter_time: Positive

    def _of(self, events: Events) -> Events:
        """The part of Events."""
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
        """The part of Events."""
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

    delta: int | tuple[int, int]

    def __post_init__(self) -> None:
        """Check the range."""
        between("RefractoryPeriod", "delta", self.delta, 0, LONGEST)

    def _draw(self, events: Events, rng: Generator) -> Events:
        """The part of Events."""
        return _filter_events("RefractoryPeriod", events, "rest", draw_between(self.delta, rng))


@dataclass(frozen=True)
class DropEvent(RandomTransform):
    """Drop a part of the events: floor(p N + 1/2) of N, chosen at random.

    Args:
        p: the part; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    p: float | tuple[float, float]

    def __post_init__(self) -> None:
        """Check the range."""
        between("DropEvent", "p", self.p, 0.0, 1.0)

    def _draw(self, events: Events, rng: Generator) -> Events:
        """The rest of Events."""
        number = len(events)
        dropped = rng.choice(number, int(draw_between(self.p, rng) * number + 0.5), replace=False, shuffle=False)
        kept = np.ones(number, np.bool_)
        kept[dropped] = False
        rest: Events = events[kept]
        return rest


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
        """Check which it is."""
        if (self.coordinates is None) == (self.hot_pixel_frequency is None):
            raise ArgumentError("DropPixel: give either the coordinates of pixels or a hot_pixel_frequency, in Hz.")

    def _of(self, events: Events) -> Events:
        """The rest of Events."""
        places, (width, height) = places_of("DropPixel", events), grid_of(events)
        if self.hot_pixel_frequency is not None:
            first, last = span(events) if len(events) else (0, 0)
            counts = np.bincount(places, minlength=width * height)
            dropped = counts > self.hot_pixel_frequency * (last - first) * 1e-6
        else:
            dropped = np.zeros(width * height, np.bool_)
            dropped[_mark_pixels(self.coordinates, has_rows(events), width, height)] = True
        rest: Events = events[~dropped[places]]
        return rest


def _mark_pixels(coordinates: Any, rows: bool, width: int, height: int) -> Any:
    """Which pixels of a sensor the coordinates are."""
    given = np.asarray(coordinates)
    given = given.reshape((0, 2) if rows else (0,)) if given.size == 0 else given
    of_axes = given[:, None] if not rows and given.ndim == 1 else given
    limits = [width, height] if rows else [width]
    wanted = of_axes.ndim == 2 and of_axes.shape[1] == len(limits) and (given.dtype.kind in "iu" or not given.size)
    if not wanted or (of_axes < 0).any() or (of_axes >= limits).any():
        each = "(x, y)" if rows else "x"
        raise ArgumentError(
            f"DropPixel: coordinates are {each} of pixels of a sensor {limits}, not {coordinates!r:.200}."
        )
    return of_axes.astype(np.int64) @ np.array([1, width][: len(limits)])


def _filter_events(who: str, events: Events, rule: Any, number: int) -> Events:
    """The events that a rule keeps."""
    check_inside(who, events)
    part: Events = events[event_filters.keep_by_rule(rule, events, grid_of(events), number)]
    return part


# --- crops: in time and in space --------------------------------------------------------------------------------------

MOST = 1 << 16


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
        """The part of Events."""
        t = events["t"]
        inside = t >= self.min
        if self.max is not None:
            inside &= t <= self.max
        part: Events = events[inside]
        return part


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
        """The part of Events."""
        width, height, _ = events.sensor_size
        size = _pair(self.size)
        return _crop_events(events, (width - size[0]) // 2, (height - size[1]) // 2, size)


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
        """The part of Events."""
        size, sensor = _pair(self.target_size), events.sensor_size
        axes = 2 if has_rows(events) else 1
        if any(own > whole for own, whole in zip(size[:axes], sensor, strict=False)):
            raise ArgumentError(f"RandomCrop: {size[:axes]} does not fit into sensor_size {sensor}; CenterCrop pads.")
        left, top = (int(rng.integers(0, max(whole - own, 0) + 1)) for own, whole in zip(size, sensor, strict=False))
        return _crop_events(events, left, top, size)


@dataclass(frozen=True)
class DropEventByTime(RandomTransform):
    """Drop the events in an interval at a random place.

    The recording lasts from its first event to its last; tonic's interval may lie before the first one, from t = 0 on.

    Args:
        duration_ratio: the part of the recording that the interval is; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    duration_ratio: float | tuple[float, float] = 0.2

    def __post_init__(self) -> None:
        """Check the range."""
        between("DropEventByTime", "duration_ratio", self.duration_ratio, 0.0, 1.0)

    def _draw(self, events: Events, rng: Generator) -> Events:
        """The rest of Events."""
        if not len(events):
            return events.copy()
        first, last = span(events)
        length = draw_between(self.duration_ratio, rng) * (last - first + 1)
        start = first + rng.uniform(0.0, last - first + 1 - length)
        rest: Events = events[(events["t"] < start) | (events["t"] >= start + length)]
        return rest


@dataclass(frozen=True)
class DropEventByArea(RandomTransform):
    """Drop the events in a box at a random place.

    The box has floor(r W) columns and floor(r H) rows; of events without y, columns alone.

    Args:
        area_ratio: r; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    area_ratio: float | tuple[float, float] = 0.2

    def __post_init__(self) -> None:
        """Check the range."""
        between("DropEventByArea", "area_ratio", self.area_ratio, 0.0, 1.0)

    def _draw(self, events: Events, rng: Generator) -> Events:
        """The rest of Events."""
        ratio = draw_between(self.area_ratio, rng)
        dropped = np.ones(len(events), np.bool_)
        for name, whole in zip("xy" if has_rows(events) else "x", events.sensor_size, strict=False):
            side = int(whole * ratio)
            first = int(rng.integers(0, whole - side, endpoint=True))
            dropped &= _between(events[name], first, side)
        rest: Events = events[~dropped]
        return rest


def _pair(size: Any) -> tuple[int, int]:
    """(w, h)."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _crop_events(events: Events, left: int, top: int, size: tuple[int, int]) -> Events:
    """The events from a place on, within a size, counted from there."""
    _, height, polarities = events.sensor_size
    inside, places = _between(events["x"], left, size[0]), {"x": left}
    if has_rows(events):
        inside &= _between(events["y"], top, size[1])
        places["y"], height = top, size[1]
    part = events[inside]
    columns = {name: part[name].astype(np.int64) - first for name, first in places.items()}
    return with_columns(part, (size[0], height, polarities), **columns)


def _between(column: Any, first: int, count: int) -> Any:
    """Which places are from `first` on, at most `count` of them."""
    return (column >= first) & (column < first + count)
