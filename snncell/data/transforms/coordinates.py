"""Transforms of times, coordinates and polarities: skew, jitter, downsampling, flips, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from snncell.base.arguments.kinds import Count, NotNegative, Positive, Probability
from snncell.data import transforms as base
from snncell.data.events import Events, has_rows
from snncell.data.transforms import Array, Generator, RandomTransform, Transform
from snncell.errors import ArgumentError

__all__ = [
    "Downsample", "MergePolarities", "RandomFlipLR", "RandomFlipPolarity", "RandomFlipUD", "RandomTimeReversal",
    "SpatialJitter", "TimeAlignment", "TimeJitter", "TimeSkew", "UniformNoise",
]  # fmt: skip

# --- Times ------------------------------------------------------------------------------------------------------------

FAR = 2.0**62  # microseconds


@dataclass(frozen=True)
class TimeAlignment(Transform):
    """Subtract the time of the first event from all times, so that the recording starts at 0.

    Args: sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    def _of(self, events: Events) -> Events:
        return base.with_columns(events, t=events["t"] - base.span(events)[0]) if len(events) else events.copy()


@dataclass(frozen=True)
class TimeSkew(RandomTransform):
    """Scale and shift times: t becomes floor(coefficient t + offset).

    Args:
        coefficient: a factor, or two numbers between which it is drawn.
        offset: microseconds, or two numbers between which it is drawn.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"coefficient": (-FAR, FAR), "offset": (-FAR, FAR)}

    coefficient: float | tuple[float, float]
    offset: float | tuple[float, float] = 0.0

    def _draw(self, events: Events, rng: Generator) -> Events:
        coefficient, offset = (base.draw_between(each, rng) for each in (self.coefficient, self.offset))
        return base.with_columns(events, t=scale_times("TimeSkew", events["t"], coefficient, offset))


@dataclass(frozen=True)
class TimeJitter(RandomTransform):
    """Add Gaussian noise to times, rounded to microseconds. Note that tonic rounds towards 0.

    Args:
        std: standard deviation in microseconds.
        clip_negative: drop events whose times become negative.
        sort_timestamps: sort the events by time again; events of equal times keep their order.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    std: NotNegative
    clip_negative: bool = True
    sort_timestamps: bool = False

    def _draw(self, events: Events, rng: Generator) -> Events:
        t = events["t"] + np.rint(rng.normal(0.0, self.std, len(events))).astype(np.int64)
        result = base.with_columns(events, t=t)
        if self.clip_negative:
            result = result[t >= 0]
        return base.in_order(result) if self.sort_timestamps else result


def scale_times(who: str, t: Any, factor: float, shift: float) -> Any:
    """floor(factor t + shift); raises ArgumentError for times that are too large."""
    if factor == 1.0 and shift == int(shift):
        return t + int(shift)  # exact even above 2^53
    times = np.floor(t * factor + shift)
    if not (np.abs(times) < FAR).all():
        raise ArgumentError(f"{who}: times {factor} t + {shift} are too large; they must stay below 2^62 microseconds.")
    return times.astype(np.int64)


# --- Coordinates and polarities ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Downsample(Transform):
    """Multiply times and coordinates by factors, and round down. No event is dropped.

    Column x becomes floor(f x), and the new sensor is the smallest that contains all pixels. With `target_size`, x
    becomes floor(x w / W), and the new sensor has that size. Rows are treated likewise.

    Args:
        time_factor: factor for times. For example, 0.001 converts microseconds to milliseconds.
        spatial_factor: one factor for columns and rows, or one for each.
        target_size: (w, h), instead of a spatial factor.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
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
        for axis, (name, whole) in enumerate(base.axes_of(events)):
            places = events[name].astype(np.int64)
            if self.target_size is not None:
                places, sides[axis] = places * self.target_size[axis] // whole, self.target_size[axis]
            elif factors[axis] != 1.0:
                places = np.floor(places * factors[axis]).astype(np.int64)
                sides[axis] = int((whole - 1) * factors[axis]) + 1
            columns[name] = places
        if max(sides) >= 1 << 16:
            raise ArgumentError(f"Downsample: a sensor of {sides} pixels is larger than 65,535.")
        return base.with_columns(events, (sides[0], sides[1], events.sensor_size[2]), **columns)


@dataclass(frozen=True)
class SpatialJitter(RandomTransform):
    """Add Gaussian noise to coordinates, rounded to pixels. Note that tonic rounds towards 0.

    Args:
        var_x, var_y: variance of the noise of columns and rows, in pixels^2.
        sigma_xy: covariance of both, with sigma_xy^2 <= var_x var_y.
        clip_outliers: drop events that leave the sensor. By default they stay at its border (in tonic, outside of it).
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    var_x: NotNegative = 1.0
    var_y: NotNegative = 1.0
    sigma_xy: float = 0.0
    clip_outliers: bool = False

    def __post_init__(self) -> None:
        if self.sigma_xy**2 > self.var_x * self.var_y * (1.0 + 1e-9):
            raise ArgumentError("SpatialJitter: sigma_xy^2 must be at most var_x var_y.")

    def _draw(self, events: Events, rng: Generator) -> Events:
        covariance = [[self.var_x, self.sigma_xy], [self.sigma_xy, self.var_y]]
        shifts = rng.multivariate_normal([0.0, 0.0], covariance, len(events))
        columns, inside = {}, np.ones(len(events), np.bool_)
        for axis, (name, limit) in enumerate(base.axes_of(events)):
            moved = np.rint(events[name] + shifts[:, axis])
            inside &= (moved >= 0) & (moved < limit)
            columns[name] = np.clip(moved, 0, limit - 1)
        result = base.with_columns(events, **columns)
        return result[inside] if self.clip_outliers else result


@dataclass(frozen=True)
class UniformNoise(RandomTransform):
    """Add noise events at random pixels, polarities and times between the first and the last event, and sort by time.

    Args:
        n: the number of added events, or two numbers between which it is drawn.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    RANGES: ClassVar = {"n": (0, 1 << 31)}

    n: int | tuple[int, int]

    def _draw(self, events: Events, rng: Generator) -> Any:
        if not len(events):
            return events.copy()
        number, first, last = base.draw_between(self.n, rng), *base.span(events)
        noisy = base.with_columns(np.zeros(len(events) + number, events.dtype).view(Events), events.sensor_size)
        noisy[number:] = events
        noisy["t"][:number] = rng.integers(first, last, number, endpoint=True)
        for name, limit in zip(("x", "y", "p"), events.sensor_size, strict=True):
            if name in (events.dtype.names or ()):
                noisy[name][:number] = rng.integers(0, limit, number)
        return base.in_order(noisy)


@dataclass(frozen=True)
class MergePolarities(Transform):
    """Set all polarities to 0 and P of the sensor size to 1.

    Args: sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    def _of(self, events: Events) -> Events:
        return base.with_columns(events, (*events.sensor_size[:2], 1), p=0)


# --- Flips with probability p -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RandomFlip(RandomTransform):
    p: Probability = 0.5

    def _draw(self, events: Events, rng: Generator) -> Events:
        return self._flip(events) if rng.random() < self.p else events.copy()

    def _flip(self, events: Events) -> Events:
        raise NotImplementedError


@dataclass(frozen=True)
class RandomFlipLR(_RandomFlip):
    """Flip events horizontally with probability p: x becomes W - 1 - x.

    Args:
        p: the probability.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    def _flip(self, events: Events) -> Events:
        return base.with_columns(events, x=_mirror(events, "x", 0))


@dataclass(frozen=True)
class RandomFlipUD(_RandomFlip):
    """Flip events, which must have y, vertically with probability p: y becomes H - 1 - y.

    Args:
        p: the probability.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    def _draw(self, events: Events, rng: Generator) -> Events:
        if not has_rows(events):
            raise ArgumentError("RandomFlipUD: these events have no y. Use RandomFlipLR to flip their channels.")
        return super()._draw(events, rng)

    def _flip(self, events: Events) -> Events:
        return base.with_columns(events, y=_mirror(events, "y", 1))


@dataclass(frozen=True)
class RandomFlipPolarity(_RandomFlip):
    """Flip the polarities of all events with probability p: polarity q becomes P - 1 - q.

    All events of a recording flip together, as in tonic's code; tonic's documentation describes flips of single events.

    Args:
        p: the probability.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    def _flip(self, events: Events) -> Events:
        return base.with_columns(events, p=_mirror(events, "p", 2))


@dataclass(frozen=True)
class RandomTimeReversal(_RandomFlip):
    """Reverse time with probability p: t becomes max(t) - t, and the last event comes first.

    Args:
        p: the probability.
        flip_polarities: also flip the polarities, because reversed time turns brightening into darkening.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    flip_polarities: bool = True

    def _flip(self, events: Events) -> Any:
        if not len(events):
            return events.copy()
        columns = {"t": base.span(events)[1] - events["t"]}
        columns |= {"p": _mirror(events, "p", 2)} if self.flip_polarities else {}
        return base.with_columns(events, None, **columns)[::-1]


def _mirror(events: Events, name: Any, axis: int) -> Array:
    """A column counted from the other side of the sensor."""
    return np.asarray(events.sensor_size[axis] - 1 - events[name].astype(np.int64))
