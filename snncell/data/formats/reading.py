"""Helpers for event files: errors with positions, column names and orders, and conversion to Events."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.shown import show
from snncell.data.events import Events, Sensor, events_of_columns, match_names, sensor_of
from snncell.errors import ArgumentError, FileError, SnncellError

Array = np.ndarray[Any, Any]
Place = Callable[[int], str]  # position in the file of the event with an index, for error messages

EXACT = 1 << 53  # float64 represents every integer up to this one
LATEST = 1 << 61  # microseconds; sums and differences of such times fit into 64 bits
ROOM = 1 << 26  # a file may unpack to this many bytes,
PACKED = 100  # plus this multiple of its length


def fault(path: Any, place: str, text: str) -> FileError:
    """The error for invalid file contents at `place`."""
    return FileError(f"{os.fspath(path)}{place and ', '}{place}: {text}.")


def contents(path: Any, most: int = -1) -> bytes:
    """All bytes of a file, or the first `most`; raises FileError for an empty file, a folder, a pipe or a device."""
    try:
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                data = file.read(most)
    except (OSError, ValueError) as error:
        raise fault(path, "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise fault(path, "", f"one file with events is expected here, but it is {kind}")
    if not data:
        raise fault(path, "byte 0", "events are expected, but the file is empty")
    return data


@contextmanager
def foreign_errors(path: Any, place: str) -> Iterator[None]:
    """Context that converts any error of NumPy or another library on a damaged file to a FileError."""
    try:
        yield
    except SnncellError:
        raise
    except BaseException as error:
        # PanicException is the panic of aedat's Rust code.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise fault(path, place, f"cannot be read: {type(error).__name__}: {error}") from error


# --- Columns to Events ------------------------------------------------------------------------------------------------


def recording(
    path: Any, columns: dict[str, Array], sensor: Any, place: Place = "event {}".format, natural: Sensor | None = None
) -> Events:
    """Convert columns t, x, p, and y if the sensor has two axes, to Events. The sensor size is the user's, `sensor`, or
    else the one in the file, `natural`, or else the smallest that contains all events.
    """
    lengths = {name: len(column) for name, column in columns.items() if column.ndim == 1}
    if len(set(lengths.values())) != 1 or len(lengths) != len(columns):
        shapes = ", ".join(f"{name} {column.shape}" for name, column in columns.items())
        raise fault(path, "", f"columns of one length are expected, not of shapes {shapes}")
    size = natural if sensor is None else sensor_of("read_events", sensor)
    whole = {name: _integers(path, name, column, place) for name, column in columns.items()}
    limits = {"t": LATEST} | dict(zip("xyp", size or (65535, 65535, 65535), strict=True))
    for name, column in whole.items():
        lowest = -LATEST if name == "t" else 0
        if len(column) and (column.min() < lowest or column.max() >= limits[name]):
            number = int(((column < lowest) | (column >= limits[name])).argmax())
            bound = f"at least {lowest} and below {limits[name]}"
            known = f" of sensor_size {tuple(size)}" if size and name != "t" else ""
            raise fault(path, place(number), f"{name} must be {bound}{known}, not {column[number]}")
    if size is None:
        width, height, polarities = (int(whole[name].max()) + 1 if len(whole.get(name, ())) else 1 for name in "xyp")
        size = (width, height, max(polarities, 2))
    return events_of_columns(whole, size)


def _integers(path: Any, name: str, column: Array, place: Place) -> Array:
    """Check that all numbers are integers, and map polarities -1 and 1 to 0 and 1."""
    if column.dtype.kind not in "iubf":
        raise fault(path, "", f"{name} must be integers, not {column.dtype}")
    if column.dtype.kind == "f":
        fractions = ~(column == np.floor(column)) | (np.abs(column) > EXACT)  # true for NaN too
        if fractions.any():
            number = int(fractions.argmax())
            unit = " of microseconds" if name == "t" else ""
            fraction = name == "t" and abs(column[number]) <= EXACT
            hint = '; for times in another unit pass time_unit="s", "ms" or "ns"' if fraction else ""
            raise fault(path, place(number), f"{name} must be integers{unit}, not {column[number]}{hint}")
        column = column.astype(np.int64)
    if column.dtype.kind == "b":
        column = column.astype(np.uint8)
    if name == "p" and column.dtype.kind == "i" and np.isin(column, (-1, 1)).all():
        column = (column > 0).astype(np.uint8)
    return column


# --- Columns of a table: their names, order and time unit -------------------------------------------------------------

MOST_PIXELS = (1 << 16) - 1  # along an axis
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}  # microseconds, as a fraction
ORDERS = {4: ("txyp", "xytp", "xypt"), 3: ("txp",)}  # candidates for tables without names, by number of columns
GIVE = 'pass their order, for example columns={"t": 0, "x": 1, "y": 2, "p": 3}'


class TableLayout(NamedTuple):
    """The user's description of a table: its columns by name or index, and the unit of times."""

    columns: dict[str, str | int] | None = None
    time_unit: str | None = None


PLAIN = TableLayout()


def layout_of(who: str, columns: Any, time_unit: Any) -> TableLayout:
    """Check `columns` and `time_unit`."""
    if time_unit is not None and (not isinstance(time_unit, str) or time_unit not in UNITS):
        units = ", ".join(map(repr, UNITS))
        raise ArgumentError(f"{who}: time_unit is one of {units}, not {show(time_unit)}.")
    if columns is None:
        return TableLayout(None, time_unit)
    places = list(columns.values()) if isinstance(columns, dict) else []
    known = isinstance(columns, dict) and {"t", "x"} <= set(columns) <= set("txyp")
    if not known or not all(isinstance(place, str) or (type(place) is int and place >= 0) for place in places):
        raise ArgumentError(
            f"{who}: columns must map t, x, and optionally y and p to columns of the file, by name or by number from "
            f'0, for example columns={{"t": "time", "x": 1}}, not {show(columns)}.'
        )
    if len(set(places)) != len(places):
        raise ArgumentError(f"{who}: columns must name different columns of the file, not {show(columns)}.")
    return TableLayout(dict(columns), time_unit)


def ours(path: Any, names: Iterable[str], layout: TableLayout, place: str = "") -> dict[str, str]:
    """Map t, x, y and p to a file's column names, by the layout or by the usual names; y may be missing."""
    names = list(names)
    shown = ", ".join([*(name[:60] for name in names[:24]), *["..."] * (len(names) > 24)]) or "none"
    if layout.columns is None:
        found = match_names(names)
        missing = [own for own in "txp" if own not in found]
        if missing:
            text = f"columns t, x, p and optionally y are expected, but of {shown} none is {' and '.join(missing)}; "
            raise fault(path, place, text + 'pass their names, columns={"t": ..., "x": ...}')
        return found
    found = {}
    for own, wanted in layout.columns.items():
        if isinstance(wanted, int) and wanted < len(names):
            found[own] = names[wanted]
        elif wanted in names:
            found[own] = str(wanted)
        else:
            raise fault(path, place, f"the file has columns {shown}, but columns asks for {wanted!r}")
    return found


def order_of(path: Any, table: Array, layout: TableLayout, place: str = "", order: str = "") -> dict[str, int]:
    """The indices of the columns t, x, y and p of a table (events, N), by the layout, a known order, or its numbers.

    In the only order of `ORDERS` that fits, polarities are 0 and 1 (or -1 and 1) and times do not decrease. If several
    orders fit, x and y must also be valid pixels.
    """
    if table.dtype.kind not in "iubf" and table.ndim == 2:
        raise fault(path, place, f"numbers are expected, not {table.dtype}")
    if layout.columns is not None and table.ndim == 2:
        numbers: dict[str, int] = {}
        for own, wanted in layout.columns.items():
            if isinstance(wanted, str):
                found = f"the columns have no names, and none is {wanted!r}; columns must give their numbers, from 0"
                raise fault(path, place, found)
            if wanted >= table.shape[1]:
                found = f"there are {table.shape[1]} columns, numbered from 0, and none is {wanted}"
                raise fault(path, place, found)
            numbers[own] = wanted
        return numbers
    if order:
        if table.ndim != 2 or table.shape[1] != len(order):
            raise fault(path, place, f"columns {' '.join(order)} are expected, not a table of shape {table.shape}")
        return {own: number for number, own in enumerate(order)}
    if table.ndim != 2 or table.shape[1] not in ORDERS:
        found = f"a table with one row per event and 3 or 4 columns is expected, not of {table.shape}; {GIVE}"
        raise fault(path, place, found)
    orders = ORDERS[table.shape[1]]
    named = {each: dict(zip(each, table.T, strict=True)) for each in orders}
    fitting = [each for each in orders if _fits(named[each])] if len(table) else [orders[0]]
    if len(fitting) > 1:
        fitting = [each for each in fitting if _has_pixels(named[each])] or fitting
    if len(fitting) != 1:
        words = " or ".join(" ".join(each) for each in fitting or orders)
        may = "can be" if fitting else "are not"
        raise fault(path, place, f"judging by their numbers, the columns {may} {words}; {GIVE}")
    return {own: number for number, own in enumerate(fitting[0])}


def _fits(columns: dict[str, Array]) -> bool:
    """True if polarities are 0 and 1, or -1 and 1, and times do not decrease."""
    t, p = columns["t"], columns["p"]
    return any(bool(np.isin(p, pair).all()) for pair in ((0, 1), (-1, 1))) and bool((t[1:] >= t[:-1]).all())


def _has_pixels(columns: dict[str, Array]) -> bool:
    """True if x and y are integers that can be pixels of a sensor."""
    pixels = [columns[name] for name in "xy" if name in columns]
    return all(bool(((each >= 0) & (each < MOST_PIXELS) & (each == np.floor(each))).all()) for each in pixels)


def in_milliseconds(path: Any, places: dict[str, int], layout: TableLayout) -> str | None:
    """The unit of times in a `.npy`: milliseconds for columns x y p t, as in tonic's DVS128 Gesture."""
    if layout != PLAIN or "".join(places) != "xypt":
        return layout.time_unit
    warnings.warn(
        f"{os.fspath(path)}: the columns are x y p t, so times are read as milliseconds, as in tonic's DVS128 Gesture. "
        f'Pass time_unit="ms" to silence this warning, or time_unit="us" if they are microseconds.',
        RuntimeWarning,
        stacklevel=2,
    )
    return "ms"


def in_microseconds(columns: dict[str, Array], time_unit: str | None) -> dict[str, Array]:
    """Round times of unit `time_unit` to whole microseconds, and add polarities 0 if p is missing."""
    whole = columns if "p" in columns else columns | {"p": np.zeros(len(columns["t"]), np.uint8)}
    t = columns["t"]
    if time_unit is None or t.dtype.kind not in "iubf":
        return whole
    many, parts = UNITS[time_unit]
    reached = np.abs(t.astype(np.float64)).max(initial=0.0) * many / parts
    if t.dtype.kind == "f" or not reached < LATEST:
        return whole | {"t": np.rint(t.astype(np.float64) * many / parts)}
    wide = t if t.dtype.kind == "u" and t.dtype.itemsize == 8 else t.astype(np.int64)
    # In integers, because floats cannot represent nanoseconds since 1970 exactly.
    return whole | {"t": (wide // parts + (wide % parts >= (parts + 1) // 2) * (parts > 1)).astype(np.int64) * many}
