"""Events of an event camera or another event sensor, as a NumPy structured array."""

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

NAMES = {  # names of these columns in other packages' files and arrays, in lower case
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps"),
    "x": ("x", "xs", "x_pos", "pos_x", "xpos", "x_position", "x_coord", "x_coordinate", "x_addr", "x_address",
          "unit", "units", "channel"),
    "y": ("y", "ys", "y_pos", "pos_y", "ypos", "y_position", "y_coord", "y_coordinate", "y_addr", "y_address"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on", "is_on", "sign"),
}  # fmt: skip


class Events(np.ndarray[Any, Any]):
    """Events of one recording: a NumPy structured array with fields `t`, `x`, `y` and `p`, and a `sensor_size`.

    `t` is int64, in microseconds. `x`, `y` and the polarity `p` are uint16, with x < W, y < H and p < P of
    `sensor_size = (W, H, P)`. A sensor with one axis, such as the channels of a cochlea, has no `y`, and H = 1.

    You can use it like any structured array, for example `events["t"]` or `events[events["p"] == 1]`. Parts keep the
    sensor size. So does `np.concatenate([events, others])` if all have the same sensor; it does not shift the times.

    Args:
        t: times in microseconds, integers in any order. Most functions are fastest on time-ordered events.
        x, y: columns and rows of the sensor; y is None (default) for a sensor with one axis.
        p: polarities, 0 by default.
        sensor_size: (W, H, P), which must contain all events.
    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], y=[0, 0, 2], p=[1, 0, 1], sensor_size=(2, 3, 2))
        >>> events[events["p"] == 1]["t"].tolist(), events.sensor_size
        ([0, 9], (2, 3, 2))
        >>> events
        Events(n=3, t=0..9 us, sensor_size=(2, 3, 2))
    """

    sensor_size: Sensor

    def __new__(cls, t: Any, x: Any, y: Any = None, p: Any = None, *, sensor_size: Sequence[int]) -> Events:
        columns = {"t": t, "x": x, "y": y, "p": p}
        given = {name: _column(name, column) for name, column in columns.items() if column is not None or name in "tx"}
        lengths = {name: column.shape for name, column in given.items()}
        if len(set(lengths.values())) != 1 or given["t"].ndim != 1:
            raise ArgumentError(f"Events: t, x, y and p must be columns of one length, not {lengths}.")
        sensor = sensor_of("Events", sensor_size)
        whole = {name: _whole(name, column) for name, column in given.items()}
        refuse_outside("Events", whole, sensor)  # before the cast to 16 bits, which wraps around
        return events_of_columns(whole, sensor, cls)

    def __array_finalize__(self, source: Any) -> None:
        self.sensor_size = getattr(source, "sensor_size", (0, 0, 0))

    def __getitem__(self, key: Any) -> Any:
        """Index as NumPy does. A single column is a plain array, because it has no sensor size."""
        part = super().__getitem__(key)
        return part.view(np.ndarray) if isinstance(part, Events) and part.dtype.names is None else part

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Make `np.concatenate` keep the sensor size and the memory layout; other NumPy functions are unchanged."""
        result = super().__array_function__(func, types, args, kwargs)
        parts = list(args[0]) if func is np.concatenate and args else []
        if not parts or kwargs.get("out") is not None or not all(isinstance(part, Events) for part in parts):
            return result
        sizes = sorted({part.sensor_size for part in parts})
        if len(sizes) > 1:
            raise ArgumentError(
                f"np.concatenate: the events have several sensor sizes, {sizes}. Give them one sensor size first, "
                f'Events(part["t"], part["x"], ..., sensor_size=...).'
            )
        joined = result.astype(parts[0].dtype).view(Events)  # because NumPy packs the records
        joined.sensor_size = sizes[0]
        return joined

    def __repr__(self) -> str:
        if self.ndim != 1 or "t" not in (self.dtype.names or ()):
            return super().__repr__()
        t = self["t"]
        times = f", t={t.min()}..{t.max()} us" if len(t) else ""
        return f"{type(self).__name__}(n={len(t)}{times}, sensor_size={self.sensor_size})"

    def __reduce__(self) -> Any:
        """Pickle the sensor size too, because workers send events between processes."""
        reduced: Any = super().__reduce__()
        build, arguments, state = reduced
        return build, arguments, (state, self.sensor_size)

    def __setstate__(self, state: Any) -> None:
        records, self.sensor_size = state
        super().__setstate__(records)


def events_of_columns(columns: dict[str, Array], sensor: Sensor, kind: type[Events] = Events) -> Events:
    """Events from integer columns that were already compared with the sensor size."""
    records = np.zeros(len(columns["t"]), RECORD if "y" in columns else LINE)
    for name, column in columns.items():
        records[name] = column
    events = records.view(kind)
    events.sensor_size = sensor
    return events


def sensor_of(who: str, size: Any) -> Sensor:
    """(W, H, P) as three integers from 1 to 65,535."""
    try:
        width, height, polarities = (int(each) for each in size)
    except (TypeError, ValueError):
        raise ArgumentError(f"{who}: sensor_size must be (W, H, P), not {size!r}.") from None
    if not all(0 < each < 1 << 16 for each in (width, height, polarities)):
        raise ArgumentError(f"{who}: the numbers in sensor_size must be from 1 to 65,535, not {size!r}.")
    return width, height, polarities


def refuse_outside(who: str, columns: dict[str, Array], sensor: Sensor) -> None:
    """Raise ArgumentError for an event outside of the sensor."""
    for name, limit in zip("xyp", sensor, strict=True):
        column = columns.get(name, np.zeros(0, np.uint16))
        outside = column >= limit if column.dtype.kind == "u" else (column < 0) | (column >= limit)
        if outside.any():
            number = int(outside.argmax())
            raise ArgumentError(
                f"{who}: event {number} has {name} = {column[number]}, outside of sensor_size {sensor}."
            )


def has_rows(events: Events) -> bool:
    """True for events with y."""
    return "y" in (events.dtype.names or ())


def as_events(who: str, events: Any, sensor_size: Any = None) -> Events:
    """Convert a structured array with any names in `NAMES`, such as those of tonic's data sets, to Events."""
    names = match_names(getattr(getattr(events, "dtype", None), "names", None) or ())
    if not {"t", "x", "p"} <= set(names):
        raise ArgumentError(
            f"{who}: events must be a structured array with t, x, p and optionally y, not {brief(events)}."
        )
    size = getattr(events, "sensor_size", None) if sensor_size is None else sensor_size
    if size is None:
        raise ArgumentError(f"{who}: these events have no sensor_size. Pass it as sensor_size=(W, H, P).")
    # Records that NumPy has packed are converted, because kernels need the layout of RECORD or LINE.
    if isinstance(events, Events) and tuple(size) == events.sensor_size and events.dtype in (RECORD, LINE):
        return events
    columns = {own: events[name] for own, name in names.items()}
    return Events(columns["t"], columns["x"], columns.get("y"), columns["p"], sensor_size=size)


def match_names(names: Iterable[str]) -> dict[str, str]:
    """Map "t", "x", "y" and "p" to the matching column names; columns without a match are left out."""
    known = {name.partition("@")[0].strip().lower(): name for name in names}  # faery writes `x@640`, for example
    matches = {own: next((known[one] for one in others if one in known), None) for own, others in NAMES.items()}
    return {own: name for own, name in matches.items() if name is not None}


def times_of(recording: Any) -> Any:
    """The times of Events, or of a structured array with names in `NAMES`; None for other objects."""
    name = match_names(getattr(getattr(recording, "dtype", None), "names", None) or ()).get("t")
    return None if name is None else np.asarray(recording[name])


def _column(name: str, column: Any) -> Array:
    try:
        return np.asarray(column)
    except ValueError:
        raise ArgumentError(f"Events: {name} must be a column of numbers, not {brief(column)}.") from None


def _whole(name: str, column: Array) -> Array:
    """Check that a column has integer values, in an integer or floating dtype, and return it."""
    kind = column.dtype.kind
    if kind not in "iub" and (kind != "f" or not np.array_equal(column, np.floor(column))):
        unit = " of microseconds" if name == "t" else ""
        raise ArgumentError(f"Events: {name} must be integers{unit}, not {column.dtype} such as {column[:3].tolist()}.")
    if name == "t" and kind in "uf" and column.size:
        first, last = column.min().item(), column.max().item()  # Python compares floats and integers exactly
        if not -(2**63) <= first <= last < 2**63:
            raise ArgumentError(f"Events: t must be below 2^63 microseconds, but reaches {first} to {last}.")
    return column
