"""Event transforms: callables that change events or convert them to arrays. Use them from `snncell.data`.

This file has the base classes, `Compose`, and the conversion to images, voxel grids and time surfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype, FloatDtype, Positive, Size
from snncell.base.arguments.names import missing_from as _missing_from
from snncell.data.events import Events, as_events, has_rows, refuse_outside
from snncell.data.frames import Binning, make_frames
from snncell.data.samples import draw_seed, takes_rng
from snncell.errors import ArgumentError

__all__ = ["Compose", "ToImage", "ToTimesurface", "ToVoxelGrid"]
__getattr__ = _missing_from(__name__)

Array = np.ndarray[Any, Any]
Generator = np.random.Generator
Draws = Generator | Size | None


@dataclass(frozen=True)
class Transform:
    """Base class of deterministic event transforms.

    Call a transform with `Events`, or with a structured array with t, x, p and optionally y. Such arrays do not contain
    the `sensor_size` (W, H, P), so pass it to the transform. A transform does not change its input.

    Any callable, of this class or not, may also have a method that transforms all samples of a batch at once:

        batch(samples, steps) -> x, lengths

    - `samples` is a list of inputs of the callable. `lengths`, int64 (B,), are the samples' numbers of time steps.
    - `batch` must call `T = steps(lengths)` once. T is the number of steps of the batch, at least the largest length.
    - x must be (T, B, ...), or represent it: bit for bit the results of the callable, followed by zeros.
    - `batch` must not draw random numbers.

    A `Loader` calls `batch` instead of the callable and of padding. If `batch` raises, the Loader calls the callable
    sample by sample, so that the error names the sample. In a `Compose`, only the last part transforms a batch at
    once. The earlier parts get each sample alone, with its own random numbers. A callable with an argument `rng` is
    always called sample by sample. So is a subclass that overrides `__call__` but not `batch`.
    """

    # The lowest and the highest value of attributes; such an attribute is a number, or two in ascending order.
    RANGES: ClassVar[dict[str, tuple[float, float]]] = {}

    sensor_size: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, (low, high) in self.RANGES.items():
            value = getattr(self, name)
            several = value if isinstance(value, tuple) else (value,)
            if not all(low <= one <= high for one in several) or several[0] > several[-1]:
                raise ArgumentError(
                    f"{type(self).__name__}: {name} must be from {low} to {high}, or two such numbers with the lower "
                    f"one first, not {value}."
                )

    def __call__(self, events: Any) -> Any:
        return self._of(as_events(type(self).__name__, events, self.sensor_size))

    def _of(self, events: Events) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class RandomTransform(Transform):
    """Base class of random event transforms; a subclass defines `_draw(events, rng)`."""

    def __call__(self, events: Any, rng: Draws = None) -> Any:
        """Transform events. `rng` is a generator or a seed; by default `snncell.set_seed` decides."""
        return self._draw(as_events(type(self).__name__, events, self.sensor_size), generator(rng))

    def _draw(self, events: Events, rng: Generator) -> Any:
        raise NotImplementedError


class Compose:
    """Chain several event transforms into one.

    `transforms` are callables, in the order of application. Transforms with an argument `rng`, such as the random ones
    of this module, draw from one generator. You pass it, or a seed of `np.random.default_rng`, to the Compose. The
    result for a recording therefore depends on this generator alone.

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
                raise ArgumentError(f"Compose: a transform must be a callable that takes events, not {one!r:.200}.")
        self._drawing = [takes_rng(one) for one in self.transforms]

    def __call__(self, events: Any, rng: Draws = None) -> Any:
        rng = generator(rng) if any(self._drawing) else None
        for one, draws in zip(self.transforms, self._drawing, strict=True):
            events = one(events, rng=rng) if draws else one(events)
        return events

    def __repr__(self) -> str:
        return "\n    ".join(["Compose([", *(f"{one!r}," for one in self.transforms)]) + "\n])"


def by_batches(transform: Any) -> tuple[Compose | None, Any] | None:
    """Split a transform into its per-sample part (or None), and its last part if that has a usable method `batch`."""
    parts = [transform]
    while parts and type(parts[-1]) is Compose:
        parts[-1:] = parts[-1].transforms
    if not parts or not callable(getattr(parts[-1], "batch", None)) or takes_rng(parts[-1]):
        return None
    *before, last = parts
    family = type(last).__mro__
    owner, called = (next((each for each in family if name in vars(each)), None) for name in ("batch", "__call__"))
    if owner is None or called is None or not issubclass(owner, called):
        return None  # a subclass overrides `__call__` but inherits `batch`, so their results may differ
    return (Compose(before) if before else None), last


def generator(rng: Draws) -> Generator:
    """Return a generator as it is, or a new one from the seed `rng`; for None the seed is drawn (see `set_seed`)."""
    return np.random.Generator(np.random.Philox(draw_seed())) if rng is None else np.random.default_rng(rng)


def draw_between(value: Any, rng: Generator) -> Any:
    """Return a number, or draw uniformly between two; two integers give an integer, both ends included."""
    if not isinstance(value, tuple):
        return value
    if all(isinstance(one, int) for one in value):
        return int(rng.integers(value[0], value[1], endpoint=True))
    return float(rng.uniform(*value))


def with_columns(events: Events, sensor_size: tuple[int, int, int] | None = None, **columns: Any) -> Events:
    """A copy of events with replaced columns, and optionally another sensor size."""
    result = events.copy()
    for name, column in columns.items():
        result[name] = column
    if sensor_size is not None:
        result.sensor_size = sensor_size
    return result


def axes_of(events: Events) -> list[tuple[Any, int]]:
    """The spatial columns, x and, if present, y, each with its sensor length."""
    return list(zip("xy" if has_rows(events) else "x", events.sensor_size, strict=False))


def span(events: Events) -> tuple[int, int]:
    """The first and the last time of non-empty events."""
    return int(events["t"].min()), int(events["t"].max())


def grid_of(events: Events) -> tuple[int, int]:
    """W and H; H = 1 for events without y."""
    width, height, _ = events.sensor_size
    return width, height if has_rows(events) else 1


def check_inside(who: str, events: Events) -> None:
    """Raise ArgumentError for events outside of the sensor, because users can write to the columns."""
    refuse_outside(who, {name: events[name] for name in events.dtype.names or ()}, events.sensor_size)


def places_of(who: str, events: Events) -> Any:
    """The pixel of each event as an index from 0 to W H - 1."""
    check_inside(who, events)
    x = events["x"].astype(np.int64)
    return x + events["y"] * np.int64(events.sensor_size[0]) if has_rows(events) else x


def in_order(events: Events) -> Any:
    """Sort events by time; events of equal times keep their order."""
    return events[np.argsort(events["t"], kind="stable")]


# --- Events to arrays -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToImage(Transform):
    """Count all events per pixel and polarity in one image, (P, H, W), or (P, W) for events without y.

    Args:
        dtype: of the counts, which stop at its largest number.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    """

    dtype: Dtype = np.int32

    def _of(self, events: Events) -> Any:
        return make_frames("ToImage", Binning(n_bins=1, dtype=self.dtype), events)[0]


@dataclass(frozen=True)
class ToVoxelGrid(Transform):
    """Voxel grid: sum the signs of events in time bins, where each event is shared by its two nearest bins.

    Let t0 and t1 be the times of the first and the last event, and tau = n (t - t0) / (t1 - t0). Bin b of a pixel is

        V_b = sum_events s max(0, 1 - |b - tau|),  s = 1 for polarity 1, -1 for polarity 0.

    The last event has tau = n and is therefore in no bin, as in tonic; the article uses n - 1 instead of n. For a
    sensor with one polarity, s = 1. If all events have the same time, tau = 0.

    Args:
        n_time_bins: n.
        dtype: float32 or float64.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size; P is at most 2.
    Returns: When called, (n, 1, H, W), or (n, 1, W) for events without y.
    Source: Zhu et al., "Unsupervised Event-based Learning of Optical Flow, Depth, and Egomotion", CVPR 2019.
    """

    n_time_bins: Count
    dtype: FloatDtype = np.float32

    def _of(self, events: Events) -> Any:
        count = events.sensor_size[2]
        if count > 2:
            raise ArgumentError(f"ToVoxelGrid: needs a sensor with one or two polarities, and this one has {count}.")
        kind = dtypes.as_dtype(self.dtype).dtype
        (width, height), bins = grid_of(events), self.n_time_bins
        places, pixels = places_of("ToVoxelGrid", events), width * height
        grid = np.zeros(bins * pixels)
        if len(events):
            first, last = span(events)
            tau = bins * ((events["t"] - first) / max(last - first, 1))
            low = tau.astype(np.int64)
            signs = np.where(events["p"] > 0, 1.0, -1.0) if count == 2 else np.ones(len(events))
            for share, bin_of in ((1.0 - (tau - low), low), (tau - low, low + 1)):
                inside = bin_of < bins
                cells = bin_of[inside] * pixels + places[inside]
                grid += np.bincount(cells, (signs * share)[inside], minlength=len(grid))
        shape = (bins, 1, height, width) if has_rows(events) else (bins, 1, width)
        return grid.reshape(shape).astype(kind)


@dataclass(frozen=True)
class ToTimesurface(Transform):
    """Time surfaces: an exponentially decaying trace of each pixel's last event, sampled every dt microseconds.

    With t0 the time of the first event, surface i is exp(-(t0 + (i + 1) dt - t_last) / tau). Here t_last is the time of
    the pixel's last event before t0 + (i + 1) dt; without such an event the value is 0. There are as many surfaces as
    needed to include all events, whereas tonic leaves out the last surface.

    Args:
        dt: microseconds between surfaces.
        tau: time constant of the decay, in microseconds.
        dtype: a floating dtype.
        sensor_size: (W, H, P), for structured arrays, which contain no sensor size.
    Returns: When called, (T, P, H, W), or (T, P, W) for events without y; T = 0 without events.
    Source: Lagorce, Orchard, Galluppi, Shi and Benosman, "HOTS: A Hierarchy of Event-Based Time-Surfaces for Pattern
    Recognition", TPAMI 2017; here over the whole sensor.
    """

    dt: Count
    tau: Positive
    dtype: FloatDtype = np.float32

    def _of(self, events: Events) -> Array:
        check_inside("ToTimesurface", events)
        kind = dtypes.as_dtype(self.dtype).dtype
        (width, height), polarities = grid_of(events), events.sensor_size[2]
        ordered = in_order(events)
        first, last = span(events) if len(events) else (0, -1)
        number = (last - first) // self.dt + 1
        cells = places_of("ToTimesurface", ordered) + ordered["p"] * np.int64(width * height)
        # `latest` holds the last time of each pixel; each surface updates it by its own events.
        since = ordered["t"] - first
        ends = np.searchsorted(since, np.arange(1, number + 1) * self.dt)
        latest = np.full(polarities * width * height, -np.inf)
        surfaces = np.empty((number, len(latest)), kind)
        begin = 0
        for i, end in enumerate(ends):
            latest[cells[begin:end]] = since[begin:end]  # if a pixel occurs twice, NumPy keeps the later time
            surfaces[i] = np.exp((latest - (i + 1) * self.dt) / self.tau)
            begin = end
        shape = (polarities, height, width) if has_rows(events) else (polarities, width)
        return surfaces.reshape(number, *shape)
