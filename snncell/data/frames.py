"""Event frames and event lists: count events per pixel in time bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Count, Dtype
from snncell.data.binning import BITS, MOST, count_events, list_events, number_bins, span_events
from snncell.data.events import Events, Sensor, as_events, has_rows, sensor_of
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.products.csr import Rows, check, move_rows
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import on_host
from snncell.tape.tensor import place_array, wrap

__all__ = ["ToEventLists", "ToFrame", "to_event_lists", "to_frames"]

Array = np.ndarray[Any, Any]
Steps = Callable[[Array], int]  # maps the numbers of steps (B,) to T of the batch

NEVER = np.iinfo(np.int64).max  # a time, or an event index, after all others


@dataclass(frozen=True)
class Binning:
    """The arguments of `to_frames`."""

    sensor_size: Sequence[int] | None = None
    n_bins: Count | None = None
    window: Count | None = None
    count: Count | None = None
    overlap: int = 0
    last: Literal["keep", "drop"] = "keep"
    dtype: Dtype = np.uint8
    start: int | None = None
    end: int | None = None


def to_frames(
    events: Any,
    sensor_size: Sequence[int] | None = None,
    *,
    n_bins: Count | None = None,
    window: Count | None = None,
    count: Count | None = None,
    overlap: int = 0,
    last: Literal["keep", "drop"] = "keep",
    dtype: Dtype = np.uint8,
    start: int | None = None,
    end: int | None = None,
) -> Array:
    """Count events per pixel and polarity in time bins: event frames.

    You must choose the bins by exactly one of `n_bins`, `window` and `count`. Every event is in a bin, unless
    `last="drop"` leaves out a last window or count that is not full. Note that tonic's ToFrame drops the last events:
    its windows end before the last event, and its n_time_bins are floor((t1 - t0) / n) long. Its n_event_bins
    correspond to `count=len(events) // n, last="drop"`.

    Args:
        events: `Events`, or a structured array with t, x, p, and y if the sensor has two axes; or a list of them, a
            batch. Time-ordered events are fastest.
        sensor_size: (W, H, P), by default the events' own. With P = 1, all polarities are counted together.
        n_bins: the number of bins of equal length. An event is in bin floor((t - t0) n_bins / D). Here t0 and t1 are
            the times of the first and the last event, and D = t1 - t0 + 1 microseconds.
        window: the length of a bin in microseconds. Bin b is [t0 + b s, t0 + b s + window) with s = window - overlap.
        count: the number of consecutive events in a bin, in array order. Bin b begins at event b (count - overlap).
        overlap: how much of a bin the next one repeats, in microseconds or events; less than a bin.
        last: "keep" or "drop" a last window or count that is not full.
        dtype: the dtype of the counts, bool, integer or real. The default, uint8, needs little memory. Counts stop at
            the largest n such that the dtype represents all integers up to n, for example 255 for uint8. With bool, an
            element is True if there was an event.
        start: the time in microseconds at which the first bin begins, instead of t0. Earlier events are left out.
        end: the time in microseconds at which the last bin ends. Events from this time on are left out. With `start`
            and `end`, all recordings have the same number of frames, for example for the 100 ms after a trigger.
    Returns: (T, P, H, W), or (T, P, W) for events without y. A batch gives (T, B, ...), and shorter recordings end with
        empty frames. A recording without events has T = 0 windows, or `n_bins` empty bins.
    Raises: ArgumentError for arguments that contradict each other, for example `count` (events) and `start` (a time),
        for events outside of the sensor, and for a batch with several sensors.
    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> frames = snncell.data.to_frames(events, n_bins=5)
        >>> frames.shape, frames.sum((1, 2, 3)).tolist()
        ((5, 2, 3, 2), [1, 0, 1, 0, 1])
    """
    binning = Binning(sensor_size, n_bins, window, count, overlap, last, dtype, start, end)
    return make_frames("to_frames", binning, events)


def make_frames(who: str, binning: Binning, events: Any, steps: Steps | None = None) -> Array:
    """The frames of a recording or a batch. `steps` maps the recordings' numbers of frames to T of the batch."""
    kind = _dtype_of_counts(who, binning)
    bins = bins_of(who, binning, events, steps)
    counts, wrong = count_events(bins.recordings, bins.begins, bins.ends, bins.sensor, bins.by_number, kind)
    bins.refuse(who, wrong)
    if not has_rows(bins.recordings[0]):
        counts = counts[:, :, :, 0]
    return np.asarray(counts if bins.several else counts[:, 0])


def _dtype_of_counts(who: str, binning: Binning) -> Any:
    kind = dtypes.as_dtype(binning.dtype).dtype
    if kind not in MOST:
        raise DTypeError(f"{who}: dtype must be bool, an integer or a real floating dtype, not {kind}.")
    return kind


class Bins(NamedTuple):
    """Recordings, and the bins in which their events are counted."""

    recordings: list[Events]  # with dtype RECORD or LINE
    sensor: Sensor  # (W, H, P), with H = 1 for events without y
    begins: Array  # int64 (B, T): the first time (or event index) in each bin
    ends: Array  # int64 (B, T): the first one after each bin
    by_number: bool  # begins and ends are event indices, not times
    several: bool  # the caller passed a batch, not one recording

    def refuse(self, who: str, wrong: Array) -> None:
        """Raise ArgumentError for an event outside of the sensor, given by its index in `wrong` (B,); -1 for none."""
        for n in np.flatnonzero(wrong >= 0)[:1]:
            event = self.recordings[n][int(wrong[n])]
            names = [name for name in ("x", "y", "p") if name in (event.dtype.names or ())]
            fields = ", ".join(f"{name}={event[name]}" for name in names)
            raise ArgumentError(f"{who}: event {wrong[n]} ({fields}) lies outside of sensor_size {self.sensor}.")


def bins_of(who: str, binning: Binning, events: Any, steps: Steps | None = None) -> Bins:
    """The bins of a recording or a batch. If given, `steps` maps the recordings' numbers of bins to T of the batch."""
    several = isinstance(events, list | tuple)
    way, size = check_bins(who, binning)
    recordings, sensor = _recordings(who, binning, list(events) if several else [events])
    if way == "count":
        lengths, starts = np.array(list(map(len, recordings)), np.int64), np.zeros(len(recordings), np.int64)
    else:
        lengths, starts = _spans(who, binning, recordings)
    if way == "n_bins":
        begins, ends = _evenly(lengths, starts, size)
    else:
        begins, ends = _in_steps(lengths, starts, size, size - binning.overlap, binning.last)
    if binning.end is not None and way == "window":  # the last window may extend beyond `end`
        ends = np.where(begins == NEVER, NEVER, np.minimum(ends, binning.end))
    if steps is not None:  # append empty bins up to T
        own = np.full(len(begins), size) if way == "n_bins" else (begins < ends).sum(1)
        more = (0, 0), (0, int(steps(own)) - begins.shape[1])
        begins, ends = (np.pad(each, more, constant_values=NEVER) for each in (begins, ends))
    return Bins(recordings, sensor, begins, ends, way == "count", several)


def _spans(who: str, binning: Binning, recordings: list[Events]) -> tuple[Array, Array]:
    """The length and the start time of each recording, from its events or from `start` and `end`."""
    start, end = binning.start, binning.end
    spans = span_events(recordings)
    firsts, lasts = spans[:, 0].astype(object), spans[:, 1].astype(object)  # Python's integers do not overflow
    starts = firsts if start is None else np.full_like(firsts, start)
    stops = lasts + 1 if end is None else np.full_like(lasts, end)
    lengths = np.maximum(stops - starts, 0)
    if start is None or end is None:
        lengths[lasts < firsts] = 0  # an empty recording has no first time
    if (lengths >= 2**63).any():
        raise ArgumentError(f"{who}: the times of a recording span 2**63 microseconds or more.")
    return lengths.astype(np.int64), starts.astype(np.int64)


def check_bins(who: str, binning: Binning) -> tuple[str, int]:
    """The chosen binning, "n_bins", "window" or "count", and the value of this argument."""
    overlap, start, end = binning.overlap, binning.start, binning.end
    given = {way: size for way in ("n_bins", "window", "count") if (size := getattr(binning, way)) is not None}
    if len(given) != 1:
        named = " and ".join(given) or "none"
        raise ArgumentError(f"{who}: give one of n_bins, window (microseconds) and count (events); you gave {named}.")
    ((way, size),) = given.items()
    if not 0 <= overlap < size or (overlap and way == "n_bins"):
        limit = "it must be 0 with n_bins" if way == "n_bins" else f"it must be at least 0 and below {way} = {size}"
        raise ArgumentError(f"{who}: overlap is {overlap}, but {limit}.")
    if way == "count" and (start, end) != (None, None):
        raise ArgumentError(
            f"{who}: start and end are times, but count={size} makes bins by number of events. Leave out start and "
            f"end, or crop the events first, data.CropTime(min=..., max=...)(events)."
        )
    if start is not None and end is not None and end <= start:
        raise ArgumentError(f"{who}: end={end} is not after start={start} (microseconds).")
    return way, size


def _recordings(who: str, binning: Binning, given: list[Any]) -> tuple[list[Events], Sensor]:
    size = binning.sensor_size
    if not given:
        raise ArgumentError(f"{who}: the list of recordings is empty.")
    sensor = None if size is None else sensor_of(who, size)
    # With P = 1, polarities may have any value, because they are counted together. The kernel itself checks Events.
    widest = sensor and (sensor[:2] + ((BITS,) if sensor[2] == 1 else sensor[2:]))
    events = [as_events(who, each, None if isinstance(each, Events) else widest) for each in given]
    sizes = {each.sensor_size for each in events} if sensor is None else {sensor}
    if len(sizes) > 1:
        raise ArgumentError(f"{who}: the recordings have several sensor sizes, {sorted(sizes)}. Pass sensor_size.")
    if len({each.dtype for each in events}) > 1:
        raise ArgumentError(f"{who}: some of the recordings have y, and others do not. Convert them separately.")
    width, height, polarities = sensor or sizes.pop()
    return events, (width, height if has_rows(events[0]) else 1, polarities)


def _evenly(lengths: Array, starts: Array, bins: int) -> tuple[Array, Array]:
    """Begin and end of `bins` equal bins: t is in bin floor((t - start) bins / length)."""
    whole, rest = np.divmod(lengths[:, None], bins)
    number = np.arange(bins + 1)
    edges = starts[:, None] + number * whole - (-number * rest // bins)
    return np.ascontiguousarray(edges[:, :-1]), np.ascontiguousarray(edges[:, 1:])


def _in_steps(lengths: Array, starts: Array, size: int, step: int, last: str) -> tuple[Array, Array]:
    """Begin and end of overlapping windows; (NEVER, NEVER) after a recording's last window."""
    whole = np.maximum((lengths - size) // step + 1, 0)
    # A partial last window is added if events remain after the full windows.
    covered = np.where(whole > 0, (whole - 1) * step + size, 0)
    own = whole + ((lengths > covered) & (last == "keep"))
    number = np.arange(int(own.max(initial=0)))
    begins = starts[:, None] + number * step
    there = number < own[:, None]
    return np.where(there, begins, NEVER), np.where(there, begins + size, NEVER)


# --- Event lists: the pixels that had events --------------------------------------------------------------------------


def to_event_lists(
    events: Any,
    sensor_size: Sequence[int] | None = None,
    *,
    n_bins: Count | None = None,
    window: Count | None = None,
    count: Count | None = None,
    overlap: int = 0,
    last: Literal["keep", "drop"] = "keep",
    dtype: Dtype = np.uint8,
    start: int | None = None,
    end: int | None = None,
) -> EventLists:
    """Bin events like `to_frames`, but as sparse event lists instead of dense frames.

    You can pass the result to layers, which then compute without an array of all pixels. Arguments, bins, counts,
    shapes and errors are those of `to_frames`, and `to_event_lists(...).to_dense()` equals its frames. Each row of the
    lists is a frame, in which pixel (p, y, x) has index (p H + y) W + x. Zeros pad indices and values to a length of 1,
    2, 3, 4, 6, 8, 12, ..., so that a jitted step is traced for few shapes only.

    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> lists = snncell.data.to_event_lists(events, n_bins=5)
        >>> lists.shape, lists.indptr.tolist()
        ((5, 2, 3, 2), [0, 1, 1, 2, 2, 3])
    """
    binning = Binning(sensor_size, n_bins, window, count, overlap, last, dtype, start, end)
    return make_event_lists("to_event_lists", binning, events)


def make_event_lists(who: str, binning: Binning, events: Any, steps: Steps | None = None) -> EventLists:
    """The event lists of a recording or a batch. If given, `steps` maps the recordings' numbers of rows to T."""
    kind = _dtype_of_counts(who, binning)
    bins = bins_of(who, binning, events, steps)
    recordings, orders = list(bins.recordings), {}
    if bins.by_number:
        lengths = np.array(list(map(len, recordings)), np.int64)[:, None]
        firsts, lasts = np.minimum(bins.begins, lengths), np.minimum(bins.ends, lengths)
    else:
        firsts, lasts, ordered = number_bins(recordings, bins.begins, bins.ends)
        for n in np.flatnonzero(ordered == 0).tolist():
            orders[n] = np.argsort(recordings[n]["t"], kind="stable")
            recordings[n] = recordings[n][orders[n]]
        if orders:
            firsts, lasts, _ = number_bins(recordings, bins.begins, bins.ends)
    places, values, begins, counts, wrong = list_events(recordings, firsts, lasts, bins.sensor, kind)
    for n, order in orders.items():
        wrong[n] = order[wrong[n]] if wrong[n] >= 0 else -1
    bins.refuse(who, wrong)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places, values = move_rows(begins, starts, places, values, grid_length(int(starts[-1])))
    width, height, polarities = bins.sensor
    of_row = (polarities, height, width) if has_rows(recordings[0]) else (polarities, width)
    batch, bins_of_all = firsts.shape
    return _lists(starts, places, values, (bins_of_all, *((batch,) if bins.several else ()), *of_row))


def join_event_lists(lists: Sequence[EventLists], steps: int) -> EventLists:
    """Combine event lists (T_n, ...) into a batch (T, B, ...); shorter ones end with empty rows."""
    if len({(each.shape[1:], each.dtype) for each in lists}) > 1 or any(each.rows != each.shape[0] for each in lists):
        shapes = ", ".join(dict.fromkeys(f"{each.dtype}{each.shape}" for each in lists))
        raise ShapeError(
            f"Event lists of a batch must be (T, ...) with one row per step, and may differ only in T, not "
            f"{shapes:.300}."
        )
    for each in lists:
        starts, places, values = map(on_host, each.operands("Loader"))
        check(Rows(starts, places, values, each.shape), "Loader")
    counts = np.zeros((steps, len(lists)), np.int64)
    for n, each in enumerate(lists):
        counts[: each.rows, n] = np.diff(on_host(each.indptr))
    starts = np.concatenate([[0], np.cumsum(counts.reshape(-1))])
    room, begins = grid_length(int(starts[-1])), starts[:-1].reshape(steps, len(lists))
    places = np.zeros(room, np.int32)
    values = np.zeros(room, on_host(lists[0].values).dtype)
    for n, each in enumerate(lists):
        own = on_host(each.indptr)
        to = np.repeat(begins[: each.rows, n] - own[:-1], np.diff(own)) + np.arange(own[0], own[-1])
        listed_here = slice(own[0], own[-1])
        places[to], values[to] = on_host(each.indices)[listed_here], on_host(each.values)[listed_here]
    return _lists(starts, places, values, (steps, len(lists), *lists[0].shape[1:]))


def _lists(starts: Array, places: Array, values: Array, shape: tuple[int, ...]) -> EventLists:
    return EventLists(wrap(place_array(starts)), wrap(place_array(places)), wrap(place_array(values)), shape)


def grid_length(length: int) -> int:
    """Round a length up to the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., two values per power of two."""
    power = 1 << max(length - 1, 0).bit_length()
    return power * 3 // 4 if power > 2 and length <= power * 3 // 4 else power


@dataclass(frozen=True)
class ToFrame(Binning):
    """Event frames: count events per pixel and polarity in time bins; `data.to_frames` as a transform.

    You can pass it to a `Loader`, which then bins a whole batch at once.

    Args: sensor_size, n_bins, window, count, overlap, last, dtype, start, end: as for `to_frames`.
    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> snncell.data.ToFrame(window=4)(events).shape
        (3, 2, 3, 2)
    """

    def __post_init__(self) -> None:
        check_bins(type(self).__name__, self)

    def __call__(self, events: Any) -> Any:
        """The frames of a recording, or of a list of recordings."""
        return self._binned(events)

    def batch(self, samples: list[Any], steps: Steps = max) -> tuple[Any, Array]:
        """Frames (T, B, P, H, W) or (T, B, P, W), and the numbers of frames (B,), which `steps` maps to T."""
        found: list[Array] = []

        def noted(lengths: Array) -> int:
            found.append(lengths)
            return steps(lengths)

        return self._binned(samples, noted), found[0]

    def _binned(self, events: Any, steps: Steps | None = None) -> Any:
        return make_frames(type(self).__name__, self, events, steps)


@dataclass(frozen=True)
class ToEventLists(ToFrame):
    """List the pixels with events in time bins: `data.to_event_lists` as a transform, with the arguments of `ToFrame`.

    A `Loader` joins the lists of its samples to a batch. `Dense` and `Conv2d` accept event lists directly, which saves
    time and memory when few pixels have events.

    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> snncell.data.ToEventLists(window=4)(events).shape
        (3, 2, 3, 2)
    """

    def _binned(self, events: Any, steps: Steps | None = None) -> EventLists:
        return make_event_lists(type(self).__name__, self, events, steps)
