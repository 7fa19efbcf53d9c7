"""The base classes of transforms of events, several transforms in a row, and what transforms have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from snncell.base.arguments.kinds import Size
from snncell.data.events import Events, as_events
from snncell.data.random_numbers import draw_seed, takes_rng
from snncell.errors import ArgumentError

__all__ = ["Compose"]

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Draws = Generator | Size | None


@dataclass(frozen=True)
class Transform:
    """A callable that makes something of the events of a recording, always the same.

    It takes `Events`, or a structured array with t, x, p and perhaps y, whose `sensor_size` it is told. It returns new
    events: those that it was given stay as they are.

    A callable of any class may also have a method that transforms all samples of a batch at once:

        batch(samples, steps) -> x, lengths

    `samples` is a list of what the callable takes, and `lengths` int64 (B,) the number of time steps of each. It calls
    `T = steps(lengths)` once, as soon as it knows them, for the steps of the batch; T is no less than the largest and
    at least 1. x is (T, B, ...), what the callable makes of each sample with zeros behind it, to the bit; or whatever
    stands for that in a batch. It draws no random numbers. A `Loader` calls it in the place of the callable and of
    padding, and, where it raises, the callable, sample by sample, so that an error names its sample. Of a `Compose` it
    calls that of the last part; each sample goes through the parts in front alone, with its own random numbers. A
    callable with an argument `rng`, or with a `__call__` of a class below the one that `batch` is of, is called sample
    by sample.

    A subclass defines `_of(events)`. `RANGES` are the lowest and the highest value of attributes that are a number, or
    two numbers of which the first is not larger.
    """

    RANGES: ClassVar[dict[str, tuple[float, float]]] = {}

    sensor_size: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value = getattr(self, name)
            several = value if isinstance(value, tuple) else (value,)
            if not all(low <= one <= high for one in several) or several[0] > several[-1]:
                raise ArgumentError(
                    f"{type(self).__name__}: {name} is from {low} to {high}, or two such numbers, the lower one first; "
                    f"not {value}."
                )

    def __call__(self, events: Any) -> Any:
        """Transform events."""
        return self._of(as_events(type(self).__name__, events, self.sensor_size))

    def _of(self, events: Events) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class RandomTransform(Transform):
    """A transform that draws random numbers: from `rng`, a generator or a seed, or as `snncell.set_seed` decides.

    A subclass defines `_draw(events, rng)`.
    """

    def __call__(self, events: Any, rng: Draws = None) -> Any:
        """Transform events, with the next numbers of a generator."""
        return self._draw(as_events(type(self).__name__, events, self.sensor_size), generator(rng))

    def _draw(self, events: Events, rng: Generator) -> Any:
        raise NotImplementedError


class Compose:
    """Transforms one after another, as one.

    Any callable is a transform. Those that take `rng`, as the random ones of this module do, draw their numbers from
    the one generator that the whole is given, one after another. So what becomes of a recording depends on its
    generator alone, whoever calls. A seed stands for a new generator of its numbers, `np.random.default_rng(seed)`.

    Args:
        transforms: in their order.

    Raises:
        ArgumentError: for what cannot be called.

    Example:
        >>> from snncell import data
        >>> transform = data.Compose([data.CropTime(max=20), data.RandomFlipLR(p=1.0), data.ToFrame(n_bins=2)])
        >>> events = data.Events([0, 10, 30], x=[0, 1, 2], y=[0, 0, 0], sensor_size=(4, 1, 1))
        >>> transform(events, rng=0)[:, 0, 0].tolist()
        [[0, 0, 0, 1], [0, 0, 1, 0]]
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = tuple(transforms)
        for one in self.transforms:
            if isinstance(one, type) or not callable(one):
                raise ArgumentError(f"Compose: a transform is called with events, which {one!r:.200} is not made for.")
        self._drawing = [takes_rng(one) for one in self.transforms]

    def __call__(self, events: Any, rng: Draws = None) -> Any:
        """Transform events."""
        rng = generator(rng) if any(self._drawing) else None
        for one, draws in zip(self.transforms, self._drawing, strict=True):
            events = one(events, rng=rng) if draws else one(events)
        return events

    def __repr__(self) -> str:
        return "\n    ".join(["Compose([", *(f"{one!r}," for one in self.transforms)]) + "\n])"


def by_batches(transform: Any) -> tuple[Compose | None, Any] | None:
    """The transforms in front, which each sample goes through, if any, and the one of whole batches behind them.

    None if there is none of batches: see `Transform`.
    """
    parts = [transform]
    while parts and type(parts[-1]) is Compose:
        parts[-1:] = parts[-1].transforms
    if not parts or not callable(getattr(parts[-1], "batch", None)) or takes_rng(parts[-1]):
        return None
    *before, last = parts
    family = type(last).__mro__
    owner, called = (next((each for each in family if name in vars(each)), None) for name in ("batch", "__call__"))
    if owner is None or called is None or not issubclass(owner, called):
        return None  # a `__call__` that was written over that of a class with `batch`
    return (Compose(before) if before else None), last


def generator(rng: Draws) -> Generator:
    """The generator, or a new one from a seed, or from what `set_seed` decides."""
    return np.random.Generator(np.random.Philox(draw_seed())) if rng is None else np.random.default_rng(rng)


def draw_between(value: Any, rng: Generator) -> Any:
    """A number as it is, or one between two, evenly; of integers an integer, both of them included."""
    if not isinstance(value, tuple):
        return value
    if all(isinstance(one, int) for one in value):
        return int(rng.integers(value[0], value[1], endpoint=True))
    return float(rng.uniform(*value))


def select(events: Events, which: Any) -> Events:
    """Some of the events: a slice, booleans or numbers, as NumPy takes them."""
    part: Events = events[which]
    return part


def with_columns(events: Events, sensor_size: tuple[int, int, int] | None = None, **columns: Any) -> Events:
    """A copy of events with other columns, and perhaps another sensor."""
    result = events.copy()
    for name, column in columns.items():
        result[name] = column
    if sensor_size is not None:
        result.sensor_size = sensor_size
    return result


def has_rows(events: Events) -> bool:
    """True for events with y."""
    return "y" in (events.dtype.names or ())


def axes_of(events: Events) -> list[tuple[Any, int]]:
    """The columns of places, x and perhaps y, with the length of the sensor along each."""
    return list(zip("xy" if has_rows(events) else "x", events.sensor_size, strict=False))


def span(events: Events) -> tuple[int, int]:
    """The first and the last time, of at least one event."""
    return int(events["t"].min()), int(events["t"].max())


def grid_of(events: Events) -> tuple[int, int]:
    """W and H; 1 of events without y."""
    width, height, _ = events.sensor_size
    return width, height if has_rows(events) else 1


def check_inside(who: str, events: Events) -> None:
    """Refuse events outside of the sensor: columns can be written to."""
    for name, limit in zip(("x", "y", "p"), events.sensor_size, strict=True):
        if name in (events.dtype.names or ()) and (events[name] >= limit).any():
            number = int((events[name] >= limit).argmax())
            raise ArgumentError(
                f"{who}: event {number} has {name} = {events[name][number]}, outside of sensor_size "
                f"{events.sensor_size}."
            )


def places_of(who: str, events: Events) -> Any:
    """The pixel of each event, as a number from 0 to below W H."""
    check_inside(who, events)
    x = events["x"].astype(np.int64)
    return x + events["y"] * np.int64(events.sensor_size[0]) if has_rows(events) else x


def in_order(events: Events) -> Events:
    """By time, those of one time as they were."""
    return select(events, np.argsort(events["t"], kind="stable"))
