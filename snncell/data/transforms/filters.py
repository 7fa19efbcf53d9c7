"""Fewer events of a recording: noise, and pixels that say too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count, Positive
from snncell.data.events import Events
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
)
from snncell.errors import ArgumentError
from snncell.kernels import event_filters

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
