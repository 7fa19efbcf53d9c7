"""Transforms of times, coordinates and polarities: skew, jitter, downsampling, flips, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from snncell.base.arguments.kinds import Count, NotNegative, Positive, Probability
from snncell.data.events import Events
from snncell.data.transforms.base import (
    Array,
    Generator,
    RandomTransform,
    Transform,
    axes_of,
    draw_between,
    has_rows,
    in_order,
    select,
    span,
    with_columns,
)
from snncell.errors import ArgumentError

__all__ = [
    "Downsample",
    "MergePolarities",
    "RandomFlipLR",
    "RandomFlipPolarity",
    "RandomFlipUD",
    "RandomTimeReversal",
    "SpatialJitter",
    "TimeAlignment",
    "TimeJitter",
    "TimeSkew",
    "UniformNoise",
]

# --- times ------------------------------------------------------------------------------------------------------------

FAR = 2.0**62  # microseconds


@dataclass(frozen=True)
class TimeAlignment(Transform):
    """Subtract the time of the first event from all.

    Args:
        sensor_size: of events that do not know theirs.
    """

    def _of(self, events: Events) -> Events:
        return with_columns(events, t=events["t"] - span(events)[0]) if len(events) else events.copy()


@dataclass(frozen=True)
class TimeSkew(RandomTransform):
    """Make floor(coefficient t + offset) of each time t.

    Args:
        coefficient: of times; of two numbers, one drawn between them.
        offset: microseconds; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"coefficient": (-FAR, FAR), "offset": (-FAR, FAR)}

    coefficient: float | tuple[float, float]
    offset: float | tuple[float, float] = 0.0

    def _draw(self, events: Events, rng: Generator) -> Events:
        coefficient = draw_between(self.coefficient, rng)
        return with_columns(events, t=scale_times("TimeSkew", events["t"], coefficient, draw_between(self.offset, rng)))


@dataclass(frozen=True)
class TimeJitter(RandomTransform):
    """Add normal numbers to the times, rounded to microseconds; tonic rounds towards 0.

    Args:
        std: microseconds.
        clip_negative: drop the events whose times become negative.
        sort_timestamps: put the events in order of time again; those of one time stay in their order.
        sensor_size: of events that do not know theirs.
    """

    std: NotNegative
    clip_negative: bool = True
    sort_timestamps: bool = False

    def _draw(self, events: Events, rng: Generator) -> Events:
        t = events["t"] + np.rint(rng.normal(0.0, self.std, len(events))).astype(np.int64)
        result = with_columns(events, t=t)
        if self.clip_negative:
            result = result[t >= 0]
        return in_order(result) if self.sort_timestamps else result


def scale_times(who: str, t: Any, factor: float, offset: float) -> Any:
    """floor(factor t + offset), where it is a time."""
    if factor == 1.0 and offset == int(offset):
        return t + int(offset)  # exactly, beyond 2^53 too
    times = np.floor(t * factor + offset)
    if not (np.abs(times) < FAR).all():
        raise ArgumentError(f"{who}: there are no times as large as {factor} t + {offset}.")
    return times.astype(np.int64)


# --- coordinates and polarities ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Downsample(Transform):
    """Multiply times and places with factors, and round down. No event is dropped.

    Column x becomes floor(f x), and the sensor the smallest that has all of its pixels; with a `target_size`, x becomes
    floor(x w / W), and the sensor has that size. Rows alike.

    Args:
        time_factor: of times; 0.001 makes microseconds milliseconds.
        spatial_factor: of columns and rows, or of each.
        target_size: (w, h) instead of a spatial factor.
        sensor_size: of events that do not know theirs.

    Raises:
        ArgumentError: for a spatial factor and a target size.
    """

    time_factor: Positive = 1.0
    spatial_factor: Positive | tuple[Positive, Positive] = 1.0
    target_size: tuple[Count, Count] | None = None

    def __post_init__(self) -> None:
        if self.target_size is not None and self.spatial_factor != 1.0:
            raise ArgumentError("Downsample: give either a spatial_factor or a target_size.")

    def _of(self, events: Events) -> Events:
        sides = list(events.sensor_size[:2])
        columns = {"t": scale_times("Downsample", events["t"], self.time_factor, 0.0)}
        factors = self.spatial_factor if isinstance(self.spatial_factor, tuple) else (self.spatial_factor,) * 2
        for axis, (name, whole) in enumerate(axes_of(events)):
            places = events[name].astype(np.int64)
            if self.target_size is not None:
                places, sides[axis] = places * self.target_size[axis] // whole, self.target_size[axis]
            elif factors[axis] != 1.0:
                places = np.floor(places * factors[axis]).astype(np.int64)
                sides[axis] = int((whole - 1) * factors[axis]) + 1
            columns[name] = places
        if max(sides) >= 1 << 16:
            raise ArgumentError(f"Downsample: a sensor of {sides} pixels is larger than 65,535.")
        return with_columns(events, (sides[0], sides[1], events.sensor_size[2]), **columns)


@dataclass(frozen=True)
class SpatialJitter(RandomTransform):
    """Add normal numbers to the places, rounded to pixels; tonic rounds towards 0.

    Args:
        var_x: variance of the columns, in pixels^2.
        var_y: of the rows.
        sigma_xy: the covariance of both.
        clip_outliers: drop the events that leave the sensor. Else they stay at its border; in tonic, outside.
        sensor_size: of events that do not know theirs.

    Raises:
        ArgumentError: for a covariance that there is not with these variances.
    """

    var_x: NotNegative = 1.0
    var_y: NotNegative = 1.0
    sigma_xy: float = 0.0
    clip_outliers: bool = False

    def __post_init__(self) -> None:
        if self.sigma_xy**2 > self.var_x * self.var_y * (1.0 + 1e-9):
            raise ArgumentError("SpatialJitter: sigma_xy^2 is at most var_x var_y.")

    def _draw(self, events: Events, rng: Generator) -> Events:
        covariance = [[self.var_x, self.sigma_xy], [self.sigma_xy, self.var_y]]
        shifts = rng.multivariate_normal([0.0, 0.0], covariance, len(events))
        columns, inside = {}, np.ones(len(events), np.bool_)
        for axis, (name, limit) in enumerate(axes_of(events)):
            moved = np.rint(events[name] + shifts[:, axis])
            inside &= (moved >= 0) & (moved < limit)
            columns[name] = np.clip(moved, 0, limit - 1)
        result = with_columns(events, **columns)
        return result[inside] if self.clip_outliers else result


@dataclass(frozen=True)
class UniformNoise(RandomTransform):
    """Add events at random pixels, of random polarities, at random times between the first and the last event.

    The events are in order of time then. Of a recording without events nothing is made.

    Args:
        n: the number of events; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    RANGES: ClassVar = {"n": (0, 1 << 31)}

    n: int | tuple[int, int]

    def _draw(self, events: Events, rng: Generator) -> Events:
        if not len(events):
            return events.copy()
        number, first, last = draw_between(self.n, rng), *span(events)
        noisy = with_columns(np.zeros(len(events) + number, events.dtype).view(Events), events.sensor_size)
        noisy[number:] = events
        noisy["t"][:number] = rng.integers(first, last, number, endpoint=True)
        for name, limit in zip(("x", "y", "p"), events.sensor_size, strict=True):
            if name in (events.dtype.names or ()):
                noisy[name][:number] = rng.integers(0, limit, number)
        return in_order(noisy)


@dataclass(frozen=True)
class MergePolarities(Transform):
    """Make all events of polarity 0, of a sensor with P = 1.

    Args:
        sensor_size: of events that do not know theirs.
    """

    def _of(self, events: Events) -> Events:
        return with_columns(events, (*events.sensor_size[:2], 1), p=0)


# --- flips: with probability p ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RandomFlip(RandomTransform):
    p: Probability = 0.5

    def _draw(self, events: Events, rng: Generator) -> Events:
        return self._flip(events) if rng.random() < self.p else events.copy()

    def _flip(self, events: Events) -> Events:
        raise NotImplementedError


@dataclass(frozen=True)
class RandomFlipLR(_RandomFlip):
    """Turn left and right around, x to W - 1 - x, with probability p.

    Args:
        p: the probability.
        sensor_size: of events that do not know theirs.
    """

    def _flip(self, events: Events) -> Events:
        return with_columns(events, x=_mirror(events, "x", 0))


@dataclass(frozen=True)
class RandomFlipUD(_RandomFlip):
    """Turn top and bottom around, y to H - 1 - y, with probability p.

    Args:
        p: the probability.
        sensor_size: of events that do not know theirs.

    Raises:
        ArgumentError: when called, for events without y.
    """

    def _draw(self, events: Events, rng: Generator) -> Events:
        if not has_rows(events):
            raise ArgumentError("RandomFlipUD: these events have no y; RandomFlipLR turns their channels around.")
        return super()._draw(events, rng)

    def _flip(self, events: Events) -> Events:
        return with_columns(events, y=_mirror(events, "y", 1))


@dataclass(frozen=True)
class RandomFlipPolarity(_RandomFlip):
    """Turn all polarities around, p to P - 1 - p, with probability p.

    As tonic computes it; its words are of single events.

    Args:
        p: the probability.
        sensor_size: of events that do not know theirs.
    """

    def _flip(self, events: Events) -> Events:
        return with_columns(events, p=_mirror(events, "p", 2))


@dataclass(frozen=True)
class RandomTimeReversal(_RandomFlip):
    """Run backwards with probability p: t becomes max(t) - t, and the last event is the first.

    Args:
        p: the probability.
        flip_polarities: then turn the polarities around too: what became bright becomes dark.
        sensor_size: of events that do not know theirs.
    """

    flip_polarities: bool = True

    def _flip(self, events: Events) -> Events:
        if not len(events):
            return events.copy()
        columns = {"t": span(events)[1] - events["t"]}
        columns |= {"p": _mirror(events, "p", 2)} if self.flip_polarities else {}
        return select(with_columns(events, None, **columns), slice(None, None, -1))


def _mirror(events: Events, name: Any, axis: int) -> Array:
    """A column counted from the other side of the sensor."""
    column: Array = events.sensor_size[axis] - 1 - events[name].astype(np.int64)
    return column
