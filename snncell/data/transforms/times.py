"""Events at other times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import NotNegative, Probability
from snncell.data.events import Events
from snncell.data.transforms.base import (
    Generator,
    RandomTransform,
    Transform,
    between,
    draw_between,
    flip_polarity,
    in_order,
    span,
    with_columns,
)
from snncell.errors import ArgumentError

FAR = 2.0**62  # microseconds


@dataclass(frozen=True)
class TimeAlignment(Transform):
    """Subtract the time of the first event from all.

    Args:
        sensor_size: of events that do not know theirs.
    """

    def _of(self, events: Events) -> Events:
        """Events from t = 0 on."""
        return with_columns(events, t=events["t"] - span(events)[0]) if len(events) else events.copy()


@dataclass(frozen=True)
class TimeSkew(RandomTransform):
    """Make floor(coefficient t + offset) of each time t.

    Args:
        coefficient: of times; of two numbers, one drawn between them.
        offset: microseconds; of two numbers, one drawn between them.
        sensor_size: of events that do not know theirs.
    """

    coefficient: float | tuple[float, float]
    offset: float | tuple[float, float] = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        between("TimeSkew", "coefficient", self.coefficient, -FAR, FAR)
        between("TimeSkew", "offset", self.offset, -FAR, FAR)

    def _draw(self, events: Events, rng: Generator) -> Events:
        """Events at other times."""
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
        """Events at other times."""
        t = events["t"] + np.rint(rng.normal(0.0, self.std, len(events))).astype(np.int64)
        result = with_columns(events, t=t)
        if self.clip_negative:
            result = result[t >= 0]
        return in_order(result) if self.sort_timestamps else result


@dataclass(frozen=True)
class RandomTimeReversal(RandomTransform):
    """Run backwards with probability p: t becomes max(t) - t, and the last event is the first.

    Args:
        p: the probability.
        flip_polarities: then turn the polarities around too: what became bright becomes dark.
        sensor_size: of events that do not know theirs.
    """

    p: Probability = 0.5
    flip_polarities: bool = True

    def _draw(self, events: Events, rng: Generator) -> Events:
        """Events, backwards or not."""
        if rng.random() >= self.p or not len(events):
            return events.copy()
        columns = {"p": flip_polarity(events)} if self.flip_polarities else {}
        backwards: Events = with_columns(events, t=span(events)[1] - events["t"], **columns)[::-1]
        return backwards


def scale_times(who: str, t: Any, factor: float, offset: float) -> Any:
    """floor(factor t + offset), where it is a time."""
    if factor == 1.0 and offset == int(offset):
        return t + int(offset)  # exactly, beyond 2^53 too
    times = np.floor(t * factor + offset)
    if not (np.abs(times) < FAR).all():
        raise ArgumentError(f"{who}: there are no times as large as {factor} t + {offset}.")
    return times.astype(np.int64)
