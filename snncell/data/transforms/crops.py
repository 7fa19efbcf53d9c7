"""Parts of recordings: in time, and in space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count
from snncell.data.events import Events
from snncell.data.transforms.base import (
    Generator,
    RandomTransform,
    Transform,
    between,
    draw_between,
    has_rows,
    span,
    with_columns,
)
from snncell.errors import ArgumentError

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
