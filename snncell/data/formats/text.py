"""Text: a row an event, with commas, semicolons, tabs or blanks between the numbers, with a header or without."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from snncell.data.events import Events
from snncell.data.formats.columns import PLAIN, Layout, in_microseconds, ours, unnamed
from snncell.data.formats.reading import Array, fault, recording


def is_text(data: bytes) -> bool:
    """True if a file can be text: UTF-8 without control characters but ends of lines and tabs."""
    if data.translate(None, bytes(range(32, 256)) + b"\t\r\n"):
        return False
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


def read(path: Any, data: bytes, sensor: Any = None, layout: Layout = PLAIN) -> Events:
    """A table whose header names its columns, `t x y p` in any order; without one the numbers tell (`unnamed`).

    Lines that begin with "#" are passed over.
    """
    text = data.decode("utf-8-sig")
    rows = _rows(text, len(data) - len(text.encode()))
    first = next(rows, None)
    if first is None:
        raise fault(path, "byte 0", "a row an event is expected, and there is none")
    place, row = first
    delimiter = next((mark for mark in (",", ";", "\t") if mark in row), None)
    fields = [field.strip() for field in row.split(delimiter)]
    names = None if all(map(_is_number, fields)) else [field.strip("\"'") for field in fields]
    chosen = ours(path, names, layout, place) if names is not None else None
    table = _table(path, text, len(data) - len(text.encode()), delimiter, names is not None, len(fields))
    if names is None or chosen is None:
        columns = unnamed(path, table, layout, place)
    else:
        columns = {own: table[:, names.index(name)] for own, name in chosen.items()}

    def line_of(number: int) -> str:
        lines = _rows(text, len(data) - len(text.encode()))
        return next(place for at, (place, _) in enumerate(lines) if at == number + (names is not None))

    return recording(path, in_microseconds(columns, layout.time_unit), sensor, line_of)


def _rows(text: str, begin: int) -> Iterator[tuple[str, str]]:
    """The lines that count, each with its place."""
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        row = line.split("#")[0].strip()
        if row:
            yield f"line {number} (byte {begin})", row
        begin += len(line.encode())


def _table(path: Any, text: str, begin: int, delimiter: str | None, header: bool, width: int) -> Array:
    """The numbers (rows, columns)."""
    rows = _rows(text, begin)
    skipped = [next(rows)[1]] if header else []
    if next(rows, None) is None:
        return np.zeros((0, width))
    lines = io.StringIO(text, newline=None)
    while skipped and next(lines).split("#")[0].strip() != skipped[0]:
        pass  # up to behind the header
    try:
        table = np.loadtxt(lines, np.float64, delimiter=delimiter, ndmin=2)
        if table.shape[1] == width:
            return table
    except ValueError:
        pass  # found below, with its place
    for place, row in list(_rows(text, begin))[len(skipped) :]:
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
