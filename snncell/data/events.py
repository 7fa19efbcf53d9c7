"""Events of a sensor: where and when something changed, as a structured array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.shown import brief
from snncell.data.binning import LINE, RECORD
from snncell.errors import ArgumentError

__all__ = ["Events"]

Array = np.ndarray[Any, Any]
Sensor = tuple[int, int, int]

NAMES = {  # of columns in files and arrays of other packages, in lower case
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs", "x_pos", "pos_x", "xpos", "x_position", "x_coord", "x_coordinate", "x_addr", "x_address",
          "unit", "units", "channel"),
    "y": ("y", "ys", "y_pos", "pos_y", "ypos", "y_position", "y_coord", "y_coordinate", "y_addr", "y_address"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on", "is_on", "sign"),
}  # fmt: skip


class Events(np.ndarray[Any, Any]):
    """Events of one recording: a structured array with `t`, `x`, `y` and `p`, and the `sensor_size`.

    `t` is int64, in microseconds; `x`, `y` and the polarity `p` are uint16, with x < W, y < H, p < P of
    `sensor_size = (W, H, P)`. A sensor with one axis, as a cochlea's channels, has no `y`, and H = 1. You can use it as
    any structured array of NumPy, `events["t"]`, `events[events["p"] == 1]`; parts keep the sensor size, and so does
    `np.concatenate([events, others])` of one sensor, whose times stay as they are.

    Args:
        t: times in microseconds, integers; in any order, though everything is fastest in order of time.
        x: columns.
        y: rows, or None for a sensor with one axis.
        p: polarities; 0 if left out.
        sensor_size: (W, H, P).

    Raises:
        ArgumentError: for columns of different lengths, times that are no integers, events outside of the sensor; and
            from `np.concatenate` of events of several sensors.

    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> events[events["p"] == 1]["t"].tolist(), events.sensor_size
        ([0, 9], (2, 3, 2))
        >>> events
        Events(n=3, t=0..9 us, sensor_size=(2, 3, 2))
    """

    sensor_size: Sensor

    def __new__(cls, t: Any, x: Any, y: Any = None, p: Any = None, *, sensor_size: Sequence[int]) -> Events:
        """Check the columns and put them together."""
        columns = {"t": t, "x": x, "y": y, "p": p}
        given = {name: _column(name, column) for name, column in columns.items() if column is not None or name in "tx"}
        lengths = {name: column.shape for name, column in given.items()}
        if len(set(lengths.values())) != 1 or given["t"].ndim != 1:
            raise ArgumentError(f"Events: t, x, y and p are columns of one length, not {lengths}.")
        sensor = sensor_of("Events", sensor_size)
        events = events_of_columns({name: _whole(name, column) for name, column in given.items()}, sensor, cls)
        for name, limit in zip(("x", "y", "p"), sensor, strict=True):
            # Compared before the cast to 16 bits, which would wrap around.
            outside = (given[name] < 0) | (given[name] >= limit) if name in given else np.zeros(0, np.bool_)
            if outside.any():
                number = int(outside.argmax())
                raise ArgumentError(
                    f"Events: event {number} has {name} = {given[name][number]}, outside of sensor_size {sensor}."
                )
        return events

    def __array_finalize__(self, source: Any) -> None:
        """Parts and copies keep the sensor size."""
        self.sensor_size = getattr(source, "sensor_size", (0, 0, 0))

    def __getitem__(self, key: Any) -> Any:
        """A column is a plain array: it has no sensor."""
        part = super().__getitem__(key)
        return part.view(np.ndarray) if isinstance(part, Events) and part.dtype.names is None else part

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions as they are, but that events that are joined keep their sensor, and their layout."""
        result = super().__array_function__(func, types, args, kwargs)
        parts = list(args[0]) if func is np.concatenate and args else []
        if not parts or kwargs.get("out") is not None or not all(isinstance(part, Events) for part in parts):
            return result
        sizes = sorted({part.sensor_size for part in parts})
        if len(sizes) > 1:
            raise ArgumentError(
                f"np.concatenate: these are events of several sensors, {sizes}; make them events of one first, "
                f'Events(part["t"], part["x"], ..., sensor_size=...).'
            )
        joined = result.astype(parts[0].dtype).view(Events)  # NumPy packs the records
        joined.sensor_size = sizes[0]
        return joined

    def __repr__(self) -> str:
        if self.ndim != 1 or "t" not in (self.dtype.names or ()):
            return super().__repr__()
        t = self["t"]
        times = f", t={t.min()}..{t.max()} us" if len(t) else ""
        return f"{type(self).__name__}(n={len(t)}{times}, sensor_size={self.sensor_size})"

    def __reduce__(self) -> Any:
        """Pickled with the sensor size: workers send events from process to process."""
        reduced: Any = super().__reduce__()
        build, arguments, state = reduced
        return build, arguments, (state, self.sensor_size)

    def __setstate__(self, state: Any) -> None:
        records, self.sensor_size = state
        super().__setstate__(records)


def events_of_columns(columns: dict[str, Array], sensor: Sensor, kind: type[Events] = Events) -> Events:
    """Columns of integers, which were compared with the sensor, as Events."""
    records = np.zeros(len(columns["t"]), RECORD if "y" in columns else LINE)
    for name, column in columns.items():
        records[name] = column
    events = records.view(kind)
    events.sensor_size = sensor
    return events


def sensor_of(who: str, size: Any) -> Sensor:
    """(W, H, P) as three integers from 1 to 65,535; an ArgumentError for anything else."""
    try:
        width, height, polarities = (int(each) for each in size)
    except (TypeError, ValueError):
        raise ArgumentError(f"{who}: sensor_size is (W, H, P), not {size!r}.") from None
    if not all(0 < each < 1 << 16 for each in (width, height, polarities)):
        raise ArgumentError(f"{who}: the numbers of a sensor_size are from 1 to 65,535, not {size!r}.")
    return width, height, polarities


def as_events(who: str, events: Any, sensor_size: Any = None) -> Events:
    """A structured array as Events, with the names of tonic's data sets or others in `NAMES`; Events as they are.

    Raises:
        ArgumentError: if it has no t, x, p, or lies outside of the sensor, or its sensor's size is unknown.
    """
    names = match_names(getattr(getattr(events, "dtype", None), "names", None) or ())
    if not {"t", "x", "p"} <= set(names):
        raise ArgumentError(f"{who}: events are a structured array with t, x, p and perhaps y, not {brief(events)}.")
    size = getattr(events, "sensor_size", None) if sensor_size is None else sensor_size
    if size is None:
        raise ArgumentError(f"{who}: these events do not know their sensor_size: give it as (W, H, P).")
    # NumPy packs records that it joins: kernels read them as RECORD and LINE have them.
    if isinstance(events, Events) and tuple(size) == events.sensor_size and events.dtype in (RECORD, LINE):
        return events
    columns = {own: events[name] for own, name in names.items()}
    return Events(columns["t"], columns["x"], columns.get("y"), columns["p"], sensor_size=size)


def match_names(names: Iterable[str]) -> dict[str, str]:
    """The names of the columns t, x, y and p among `names`, as far as they are there.

    Case and blanks do not matter, nor what follows an "@" (faery writes `x@640`).
    """
    known = {name.partition("@")[0].strip().lower(): name for name in names}
    matches = {own: next((known[one] for one in others if one in known), None) for own, others in NAMES.items()}
    return {own: name for own, name in matches.items() if name is not None}


def times_of(recording: Any) -> Any:
    """The times of Events, or of a structured array with names in `NAMES`; None for other things."""
    name = match_names(getattr(getattr(recording, "dtype", None), "names", None) or ()).get("t")
    return None if name is None else np.asarray(recording[name])


def _column(name: str, column: Any) -> Array:
    try:
        return np.asarray(column)
    except ValueError:
        raise ArgumentError(f"Events: {name} is a column of numbers, not {brief(column)}.") from None


def _whole(name: str, column: Array) -> Array:
    """The column if its numbers are integers, in whatever type."""
    if column.dtype.kind in "iub":
        return column
    if column.dtype.kind != "f" or not np.array_equal(column, np.floor(column)):
        unit = " of microseconds" if name == "t" else ""
        raise ArgumentError(f"Events: {name} has integers{unit}, not {column.dtype} such as {column[:3].tolist()}.")
    return column
