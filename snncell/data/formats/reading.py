"""Files of events: errors that name the place of the damage, columns by name or order, and columns as Events."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.shown import show
from snncell.data.events import Events, events_of_columns, match_names, sensor_of
from snncell.errors import ArgumentError, FileError, SnncellError

Array = np.ndarray[Any, Any]
Place = Callable[[int], str]  # where in the file the event of a number is, in words

EXACT = 1 << 53  # up to which a float64 has every integer
LATEST = 1 << 61  # microseconds; sums and differences of such times fit into 64 bits
ROOM = 1 << 26  # bytes that any file may unpack to
PACKED = 100  # times its own length that a file may unpack to beyond these


def fault(path: Any, place: str, text: str) -> FileError:
    """The error for a file that is not what it should be at `place`."""
    return FileError(f"{os.fspath(path)}{place and ', '}{place}: {text}.")


def contents(path: Any, most: int = -1) -> bytes:
    """All bytes of a file, or the first ones.

    Raises:
        FileError: for a missing or empty file, and for a folder, a pipe or a device.
    """
    try:
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            with open(path, "rb") as file:
                data = file.read(most)
    except (OSError, ValueError) as error:
        raise fault(path, "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise fault(path, "", f"one file with events is expected here, and it is {kind}")
    if not data:
        raise fault(path, "byte 0", "events are expected, and the file is empty")
    return data


@contextmanager
def foreign_errors(path: Any, place: str) -> Iterator[None]:
    """Errors of libraries and NumPy over a damaged file, of whatever type, as a FileError."""
    try:
        yield
    except SnncellError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Rust's, of aedat
            raise
        raise fault(path, place, f"cannot be read: {type(error).__name__}: {error}") from error


# --- columns as Events ------------------------------------------------------------------------------------------------


def event_number(number: int) -> str:
    """The place of an event in a file without bytes or lines of its own."""
    return f"event {number}"


def recording(
    path: Any,
    columns: dict[str, Array],
    sensor: Any,
    place: Place = event_number,
    natural: tuple[int, int, int] | None = None,
) -> Events:
    """Columns of a file as Events.

    Args:
        path: of the file, for errors.
        columns: t, x, p, and y if the sensor has two axes.
        sensor: as the user gave it; None is `natural`, or else the smallest sensor that holds the events.
        place: for errors.
        natural: (W, H, P), the sensor that the file names.
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
            bound = f"from {lowest} up to below {limits[name]}"
            known = f" of sensor_size {tuple(size)}" if size and name != "t" else ""
            raise fault(path, place(number), f"{name} is {bound}{known}, not {column[number]}")
    if size is None:
        width, height, polarities = (int(whole[name].max()) + 1 if len(whole.get(name, ())) else 1 for name in "xyp")
        size = (width, height, max(polarities, 2))
    return events_of_columns(whole, size)


def _integers(path: Any, name: str, column: Array, place: Place) -> Array:
    """A column if all of its numbers are integers; polarities -1 and 1 are 0 and 1."""
    if column.dtype.kind not in "iubf":
        raise fault(path, "", f"{name} has integers, not {column.dtype}")
    if column.dtype.kind == "f":
        fractions = ~(column == np.floor(column)) | (np.abs(column) > EXACT)  # true for NaN too
        if fractions.any():
            number = int(fractions.argmax())
            unit = " of microseconds" if name == "t" else ""
            fraction = name == "t" and abs(column[number]) <= EXACT
            mend = ', and times in another unit are read with time_unit="s", "ms" or "ns"' if fraction else ""
            raise fault(path, place(number), f"{name} has integers{unit}, not {column[number]}{mend}")
        column = column.astype(np.int64)
    if column.dtype.kind == "b":
        column = column.astype(np.uint8)
    if name == "p" and column.dtype.kind == "i" and np.isin(column, (-1, 1)).all():
        column = (column > 0).astype(np.uint8)
    return column


# --- the columns of a table: which is which, and in what unit ---------------------------------------------------------

MOST_PIXELS = (1 << 16) - 1  # along an axis
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}  # microseconds, as a fraction
ORDERS = {4: ("txyp", "xytp", "xypt"), 3: ("txp",)}  # of tables without names
GIVE = 'columns={"t": 0, "x": 1, "y": 2, "p": 3} would say which is which'


class TableLayout(NamedTuple):
    """What the user says of a table: which column is which, by name or number, and the unit of times."""

    columns: dict[str, str | int] | None = None
    time_unit: str | None = None


PLAIN = TableLayout()


def layout_of(who: str, columns: Any, time_unit: Any) -> TableLayout:
    """A checked layout.

    Raises:
        ArgumentError: for columns that are no names or numbers of t, x and perhaps y and p, and for other units.
    """
    if time_unit is not None and (not isinstance(time_unit, str) or time_unit not in UNITS):
        units = ", ".join(map(repr, UNITS))
        raise ArgumentError(f"{who}: time_unit is one of {units}, not {show(time_unit)}.")
    if columns is None:
        return TableLayout(None, time_unit)
    places = list(columns.values()) if isinstance(columns, dict) else []
    known = isinstance(columns, dict) and {"t", "x"} <= set(columns) <= set("txyp")
    counts = (type(place) is int and place >= 0 for place in places)
    if not known or not all(count or isinstance(place, str) for count, place in zip(counts, places, strict=True)):
        raise ArgumentError(
            f"{who}: columns says which column of the file is t, x, and perhaps y and p, by name or by number from 0: "
            f'columns={{"t": "time", "x": 1}}, not {show(columns)}.'
        )
    if len(set(places)) != len(places):
        raise ArgumentError(f"{who}: each of columns is another one, not {show(columns)}.")
    return TableLayout(dict(columns), time_unit)


def ours(path: Any, names: Iterable[str], layout: TableLayout, place: str = "") -> dict[str, str]:
    """The names of the columns t, x, y and p among a file's names: by the layout, or by the usual names.

    Raises:
        FileError: for a missing column; y may be missing, and p if the layout has none.
    """
    names = list(names)
    shown = ", ".join([*(name[:60] for name in names[:24]), *["..."] * (len(names) > 24)]) or "none"
    if layout.columns is None:
        found = match_names(names)
        missing = [own for own in "txp" if own not in found]
        if missing:
            text = f"columns t, x, p and perhaps y are expected, and of {shown} none is {' and '.join(missing)}; "
            raise fault(path, place, text + 'columns={"t": ..., "x": ...} would say which is which')
        return found
    found = {}
    for own, wanted in layout.columns.items():
        if isinstance(wanted, int) and wanted < len(names):
            found[own] = names[wanted]
        elif wanted in names:
            found[own] = str(wanted)
        else:
            raise fault(path, place, f"there are columns {shown}, and none is {wanted!r}, as columns has it")
    return found


def order_of(path: Any, table: Array, layout: TableLayout, place: str = "", order: str = "") -> dict[str, int]:
    """The numbers of the columns t, x, y and p of a table (events, N): by the layout, a known order, or its numbers.

    Four columns are `t x y p`, `x y t p` or `x y p t`: the one order in which polarities are 0 and 1 or -1 and 1 and
    times do not go back. If several are, then the one in which x and y can be pixels. Three columns are `t x p`.

    Raises:
        FileError: for tables of another width, and if no order fits, or several.
    """
    if table.dtype.kind not in "iubf" and table.ndim == 2:
        raise fault(path, place, f"numbers are expected, not {table.dtype}")
    if layout.columns is not None and table.ndim == 2:
        numbers: dict[str, int] = {}
        for own, wanted in layout.columns.items():
            if isinstance(wanted, str):
                found = f"the columns have no names, and none is {wanted!r}; columns has their numbers, from 0"
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
        found = f"a table of 4 columns, or of 3, a row an event, is expected, not of {table.shape}; {GIVE}"
        raise fault(path, place, found)
    orders = ORDERS[table.shape[1]]
    named = {each: dict(zip(each, table.T, strict=True)) for each in orders}
    fitting = [each for each in orders if _fits(named[each])] if len(table) else [orders[0]]
    if len(fitting) > 1:
        fitting = [each for each in fitting if _has_pixels(named[each])] or fitting
    if len(fitting) != 1:
        words = " or ".join(" ".join(each) for each in fitting or orders)
        may = "can be" if fitting else "are not"
        raise fault(path, place, f"by their numbers, the columns {may} {words}; {GIVE}")
    return {own: number for number, own in enumerate(fitting[0])}


def _fits(columns: dict[str, Array]) -> bool:
    """True if polarities are 0 and 1, or -1 and 1, and times do not go back."""
    t, p = columns["t"], columns["p"]
    return any(bool(np.isin(p, pair).all()) for pair in ((0, 1), (-1, 1))) and bool((t[1:] >= t[:-1]).all())


def _has_pixels(columns: dict[str, Array]) -> bool:
    """True if x and y are whole numbers of a sensor."""
    pixels = [columns[name] for name in "xy" if name in columns]
    return all(bool(((each >= 0) & (each < MOST_PIXELS) & (each == np.floor(each))).all()) for each in pixels)


def in_milliseconds(path: Any, places: dict[str, int], layout: TableLayout) -> str | None:
    """The unit of the times in a `.npy`: milliseconds for columns x y p t, because tonic keeps DVS128 Gesture so."""
    if layout != PLAIN or "".join(places) != "xypt":
        return layout.time_unit
    warnings.warn(
        f"{os.fspath(path)}: its columns are x y p t, and the times are taken for milliseconds, as tonic keeps DVS128 "
        f'Gesture. Say time_unit="ms", or "us" if they are microseconds.',
        RuntimeWarning,
        stacklevel=2,
    )
    return "ms"


def in_microseconds(columns: dict[str, Array], time_unit: str | None) -> dict[str, Array]:
    """The columns with times of `time_unit` rounded to whole microseconds, and with polarities 0 where p is missing.

    Integers stay exact, unless they become times that no recording has.
    """
    whole = columns if "p" in columns else columns | {"p": np.zeros(len(columns["t"]), np.uint8)}
    t = columns["t"]
    if time_unit is None or t.dtype.kind not in "iubf":
        return whole
    many, parts = UNITS[time_unit]
    reached = np.abs(t.astype(np.float64)).max(initial=0.0) * many / parts
    if t.dtype.kind == "f" or not reached < LATEST:
        return whole | {"t": np.rint(t.astype(np.float64) * many / parts)}
    wide = t if t.dtype.kind == "u" and t.dtype.itemsize == 8 else t.astype(np.int64)
    # Of nanoseconds since 1970 no float has the last digits.
    return whole | {"t": (wide // parts + (wide % parts >= (parts + 1) // 2) * (parts > 1)).astype(np.int64) * many}
