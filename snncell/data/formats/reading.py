"""Files, the errors that say where they are damaged, and columns of numbers made Events."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell.data.events import Events, events_of_columns, sensor_of
from snncell.errors import FileError, SnncellError

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
        FileError: if there is none, or it is a folder, a pipe, a device, or empty.
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


def check_room(path: Any, place: str, size: int, length: int) -> None:
    """Refuse what would unpack to so many bytes that it is no recording of `length` bytes on the disk."""
    if size > ROOM + PACKED * length:
        raise fault(path, place, f"it would unpack to {size} bytes, of a file of {length}: it is damaged, or a bomb")


def recording(
    path: Any, columns: dict[str, Array], sensor: Any, place: Place, natural: tuple[int, int, int] | None = None
) -> Events:
    """Columns of a file as Events.

    Args:
        path: of the file, for errors.
        columns: t, x, p, and y if the sensor has two axes.
        sensor: as the user gave it; None is `natural`, the sensor of such files, or the smallest that holds the events.
        place: for errors.
        natural: (W, H, P).
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
