"""Text: a row an event, with commas, semicolons, tabs or blanks between the numbers, with a header or without."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np

from snncell.data.events import Events
from snncell.data.formats.columns import MOST_PIXELS, PLAIN, UNITS, TableLayout, in_microseconds, order_of, ours
from snncell.data.formats.reading import EXACT, LATEST, Array, fault, recording


def is_text(data: bytes) -> bool:
    """True if a file can be text: UTF-8 without control characters but ends of lines and tabs."""
    text = bytes(range(32, 256)) + b"\t\r\n"
    if data[:256].translate(None, text) or data.translate(None, text):
        return False
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


def read(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = PLAIN) -> Events:
    """A table whose header names its columns, or one without, whose order is told by its numbers (`order_of`).

    A first line of two numbers above rows of four is E2VID's: the sensor's width and height, above t x y p. The rest of
    a line after "#" is a comment. Times are exact, however many digits they have.
    """
    text = data.decode("utf-8-sig")
    mark = len(data) - len(text.encode())
    leading = list(itertools.islice(_rows(text, mark), 2))
    if not leading:
        raise fault(path, "byte 0", "a row an event is expected, and there is none")
    place, row = leading[0]
    delimiter = next((each for each in (",", ";", "\t") if each in row), None)
    fields = _fields(row, delimiter)
    natural = _size(fields, _fields(leading[-1][1], delimiter))
    header = not all(map(_is_number, fields))
    skipped = int(header or natural is not None)
    width = 4 if natural else len(fields)
    if header:
        fields = [field.strip("\"'") for field in fields]
        places = {own: fields.index(name) for own, name in ours(path, fields, layout, place).items()}
        natural = _size([field.partition("@")[2] for field in (fields[places[own]] for own in "xy" if own in places)])
    table = _table(path, text, mark, delimiter, skipped, width)
    if not header:
        places = order_of(path, table, layout, place, "txyp" if natural and layout.columns is None else "")
    columns = {own: table[:, number] for own, number in places.items()}
    unit = layout.time_unit
    if _needs_digits(columns["t"], unit):
        digits = np.loadtxt(_lines(text, skipped), object, delimiter=delimiter, usecols=places["t"], ndmin=1)
        exact = _microseconds(digits.tolist(), unit)
        columns, unit = (columns, unit) if exact is None else (columns | {"t": exact}, "us")

    def line_of(number: int) -> str:
        rows = _rows(text, mark)
        return next(place for at, (place, _) in enumerate(rows) if at == number + skipped)

    return recording(path, in_microseconds(columns, unit), sensor, line_of, natural)


def _fields(row: str, delimiter: str | None) -> list[str]:
    return [field.strip() for field in row.split(delimiter)]


def _size(fields: list[str], following: list[str] | None = None) -> tuple[int, int, int] | None:
    """The sensor of which two fields are the width and the height, if four follow in the next row."""
    if len(fields) != 2 or (following is not None and len(following) != 4):
        return None
    size = [int(field) if field.isdecimal() and len(field) < 6 else 0 for field in fields]
    return (size[0], size[1], 2) if all(0 < each <= MOST_PIXELS for each in size) else None


def _needs_digits(t: Array, unit: str | None) -> bool:
    """True if float64 has not the thousandth part of a microsecond of these times."""
    many, parts = UNITS[unit or "us"]
    reached = float(np.abs(t).max(initial=0.0)) * many / parts
    return EXACT / 1000 < reached < LATEST


def _microseconds(fields: list[str], unit: str | None) -> Array | None:
    """Times as they are written, in whole microseconds; None for fractions of microseconds without a unit."""
    many, parts = UNITS[unit or "us"]
    half = Decimal("0.5")
    exact = [Decimal(field) * many / parts for field in fields]
    whole = [int((each + half).to_integral_value(ROUND_FLOOR)) for each in exact]
    if unit is None and whole != exact:
        return None
    return np.array(whole, np.int64)


def _rows(text: str, begin: int) -> Iterator[tuple[str, str]]:
    """The lines that count, each with its place."""
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        row = line.split("#")[0].strip()
        if row:
            yield f"line {number} (byte {begin})", row
        begin += len(line.encode())


def _lines(text: str, skipped: int) -> Iterator[str]:
    """The lines after the first rows."""
    lines = iter(io.StringIO(text, newline=None))
    while skipped:
        skipped -= bool(next(lines).split("#")[0].strip())
    return lines


def _table(path: Any, text: str, begin: int, delimiter: str | None, skipped: int, width: int) -> Array:
    """The numbers (rows, columns) after the first rows."""
    if next(itertools.islice(_rows(text, begin), skipped, None), None) is None:
        return np.zeros((0, width))
    try:
        table = np.loadtxt(_lines(text, skipped), np.float64, delimiter=delimiter, ndmin=2)
        if table.shape[1] == width:
            return table
    except ValueError:
        pass  # found below, with its place
    for place, row in itertools.islice(_rows(text, begin), skipped, None):
        fields = row.split(delimiter)
        if len(fields) != width or not all(map(_is_number, fields)):
            raise fault(path, place, f"{width} numbers are expected, not {row[:80]!r}")
    raise fault(path, "byte 0", f"rows of {width} numbers are expected")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
