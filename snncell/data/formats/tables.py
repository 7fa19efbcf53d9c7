"""Tables of events: NumPy `.npy` and `.npz`, MATLAB `.mat` of version 5, and text."""

from __future__ import annotations

import io
import itertools
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from decimal import ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

import numpy as np

from snncell.data.events import Events
from snncell.data.formats import reading
from snncell.data.formats.reading import (
    Array,
    TableLayout,
    fault,
    foreign_errors,
    in_microseconds,
    order_of,
    ours,
    recording,
)

# --- NumPy: structured arrays, columns by name, and tables, but no pickles --------------------------------------------

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(
    path: Any, data: bytes, sensor: Any = None, layout: TableLayout = reading.PLAIN, order: str = ""
) -> Events:
    """Read a structured array, or a table whose column order is `order` or is found from its numbers."""
    return recording(path, _columns(path, _array(path, "", data), layout, order, tonic=True), sensor)


def read_npz(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = reading.PLAIN) -> Events:
    """Read arrays t, x, y and p, as SpikingJelly stores them, or a single array as in `.npy`."""
    with foreign_errors(path, ""), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
        several = len(members) > 1
        wanted = ours(path, members, layout) if several else {name: name for name in members}
        if not wanted:
            raise fault(path, "", "arrays t, x, y and p are expected, but the archive is empty")
        size = sum(members[name].file_size for name in wanted.values())
        if size > reading.ROOM + reading.PACKED * len(data):
            found = f"it would unpack to {size} bytes, of a file of {len(data)}: it is damaged, or a bomb"
            raise fault(path, "", found)
        arrays = {}
        for own, name in wanted.items():
            with foreign_errors(path, f"array {name}"):
                arrays[own] = _array(path, f"array {name}, ", archive.read(members[name]))
    if several:
        columns = in_microseconds({own: array.reshape(-1) for own, array in arrays.items()}, layout.time_unit)
    else:
        columns = _columns(path, next(iter(arrays.values())), layout)
    return recording(path, columns, sensor)


def _columns(path: Any, array: Array, layout: TableLayout, order: str = "", tonic: bool = False) -> dict[str, Array]:
    names = array.dtype.names
    if names is None:
        places = order_of(path, array, layout, order=order)
        unit = reading.in_milliseconds(path, places, layout) if tonic else layout.time_unit
        return in_microseconds({own: array[:, number] for own, number in places.items()}, unit)
    if array.ndim != 1:
        raise fault(path, "", f"a structured array with one axis is expected, not of shape {array.shape}")
    return in_microseconds({own: array[name] for own, name in ours(path, names, layout).items()}, layout.time_unit)


def _array(path: Any, within: str, data: bytes) -> Array:
    """The array in the bytes of a `.npy`. Its header is checked against their number before any allocation."""
    stream = io.BytesIO(data)
    with foreign_errors(path, f"{within}byte 0"):
        version = np.lib.format.read_magic(stream)
        if version not in HEADERS:
            raise fault(path, f"{within}byte 6", f"version 1.0 or 2.0 of the format is expected, not {version}")
        shape, by_columns, dtype = HEADERS[version](stream)
    start = stream.tell()
    if dtype.hasobject:
        raise fault(path, f"{within}byte 8", "numbers are expected, not Python objects, which would run a pickle")
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(data) - start:
        found = f"an array of shape {shape} and {dtype} is announced, but {len(data) - start} bytes are left"
        raise fault(path, f"{within}byte {start}", found)
    with foreign_errors(path, f"{within}byte {start}"):
        flat = np.frombuffer(data, dtype, offset=start)
        return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


# --- MATLAB, as in ASL-DVS: arrays ts, x, y and pol, or fields of a struct, compressed or not -------------------------

HEADER = 128
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
NUMERIC = range(6, 16)  # matrix classes from double to uint64; other classes are cells, text, ...
STRUCT = 2  # matrix class of a struct
DEEPEST = 8  # limit of nested structs


class _Element(NamedTuple):
    """An element of a file: its type, its bytes, and its position for error messages."""

    kind: int
    data: memoryview
    place: str


def read_mat(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = reading.PLAIN) -> Events:
    """Read the top-level arrays of a `.mat`; SciPy's reader would allocate any size that a damaged header declares."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:HEADER])
    if order is None:
        raise fault(path, "byte 126", f"IM or MI is expected, for the order of bytes, not {data[126:HEADER]!r}")
    arrays: dict[str, Array] = {}
    for element in _elements(path, memoryview(data)[HEADER:], HEADER, order, ""):
        inner = [element]
        if element.kind == COMPRESSED:
            unpacked = memoryview(_decompress(path, element, len(data)))
            inner = list(_elements(path, unpacked, 0, order, f"{element.place}, unpacked "))
        for each in inner:
            if each.kind == MATRIX:
                arrays.update(_matrix(path, each, order))
    columns = {own: arrays[name] for own, name in ours(path, arrays, layout).items()}
    return recording(path, in_microseconds(columns, layout.time_unit), sensor)


def _elements(path: Any, data: memoryview, at: int, order: str, within: str) -> Iterator[_Element]:
    """Consecutive tagged elements. `at` is the position of `data` in the part of the file that `within` names."""
    start = 0
    while start < len(data):
        place = f"{within}byte {at + start}"
        if start + 8 > len(data):
            raise fault(path, place, f"an element's tag of 8 bytes is expected, but {len(data) - start} are left")
        kind, size = struct.unpack_from(f"{order}II", data, start)
        if kind >> 16:  # small element format: size and type share a word, and the data lie in the tag
            kind, size, body, end = kind & 0xFFFF, kind >> 16, start + 4, start + 8
        else:
            body, end = start + 8, start + 8 + size
        if size > len(data) - body or (body == start + 4 and size > 4):
            raise fault(path, place, f"an element of {size} bytes is announced, but {len(data) - body} are left")
        yield _Element(kind, data[body : body + size], place)
        start = end if kind == COMPRESSED else end + -end % 8


def _decompress(path: Any, element: _Element, length: int) -> bytes:
    """The contents of a compressed element, limited to the size that a file of this length can contain."""
    room = reading.ROOM + reading.PACKED * length
    try:
        inflate = zlib.decompressobj()
        unpacked = inflate.decompress(element.data, room)
    except zlib.error as error:
        raise fault(path, element.place, f"a packed element is expected: {error}") from None
    if inflate.unconsumed_tail:
        raise fault(path, element.place, f"it unpacks to more than {room} bytes: it is damaged, or a bomb")
    if not inflate.eof:
        raise fault(path, element.place, "its compressed bytes end too early")
    return unpacked


def _matrix(path: Any, element: _Element, order: str, within: str = "", depth: int = 0) -> dict[str, Array]:
    """A numeric matrix by its name, or the fields of a struct as `struct/field`; empty for other classes."""
    parts = list(_elements(path, element.data, 0, order, f"{element.place}, matrix, "))
    if not parts and depth:
        return {}  # a field without a value
    if len(parts) < 3 or len(parts[0].data) < 8:
        raise fault(path, element.place, "a matrix with its class, lengths and name is expected")
    (flags,) = struct.unpack_from(f"{order}I", parts[0].data)
    name = within or bytes(parts[2].data).decode("latin-1")
    lengths = np.frombuffer(bytes(parts[1].data[: len(parts[1].data) // 4 * 4]), f"{order}i4")
    if flags & 0xFF == STRUCT and depth < DEEPEST and (lengths == 1).all():
        fields: dict[str, Array] = {}
        for own, part in zip(_field_names(path, parts, order), parts[5:], strict=True):
            fields |= _matrix(path, part, order, f"{name}/{own}", depth + 1)
        return fields
    if flags & 0xFF not in NUMERIC:
        return {}
    if len(parts) != 4 or parts[3].kind not in TYPES:
        raise fault(path, element.place, f"real numbers are expected in matrix {name!r}")
    dtype = np.dtype(order + TYPES[parts[3].kind])
    count = len(parts[3].data) // dtype.itemsize
    if int(np.prod(lengths.astype(np.float64))) != count or len(parts[3].data) % dtype.itemsize:
        shape = "x".join(str(int(length)) for length in lengths)
        raise fault(path, parts[3].place, f"{shape} numbers are announced in matrix {name!r}, and it has {count}")
    return {name: np.frombuffer(parts[3].data, dtype)}


def _field_names(path: Any, parts: list[_Element], order: str) -> list[str]:
    """The names of a struct's fields: one per following matrix, each padded to the length in the element before."""
    length = int.from_bytes(parts[3].data[:4], "little" if order == "<" else "big") if len(parts) > 4 else 0
    names = bytes(parts[4].data) if length else b""
    if not length or len(names) != length * len(parts[5:]) or any(part.kind != MATRIX for part in parts[5:]):
        raise fault(path, parts[0].place, "a struct with a name and a matrix for each of its fields is expected")
    return [names[at : at + length].partition(b"\0")[0].decode("latin-1") for at in range(0, len(names), length)]


# --- Text: one event per row, separated by commas, semicolons, tabs or blanks, with or without a header ---------------


def is_text(data: bytes) -> bool:
    """True if bytes can be text: UTF-8 whose only control characters are line ends and tabs."""
    text = bytes(range(32, 256)) + b"\t\r\n"
    if data[:256].translate(None, text) or data.translate(None, text):
        return False
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


def read_text(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = reading.PLAIN) -> Events:
    """Read a text table. A header names the columns; without a header, the numbers decide their order (`order_of`).

    A first line of two numbers above rows of four is E2VID's: the sensor's width and height, above t x y p. Text after
    "#" is a comment. Times are exact, however many digits they have.
    """
    text = data.decode("utf-8-sig")
    mark = len(data) - len(text.encode())
    leading = list(itertools.islice(_rows(text, mark), 2))
    if not leading:
        raise fault(path, "byte 0", "one row per event is expected, but there are no rows")
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
        natural = _size([fields[places[own]].partition("@")[2] for own in "xy" if own in places])
    table = _table(path, text, mark, delimiter, skipped, width)
    if not header:
        places = order_of(path, table, layout, place, "txyp" if natural and layout.columns is None else "")
    columns = {own: table[:, number] for own, number in places.items()}
    unit = layout.time_unit
    many, parts = reading.UNITS[unit or "us"]
    reached = float(np.abs(columns["t"]).max(initial=0.0)) * many / parts
    if reading.EXACT / 1000 < reached < reading.LATEST:  # float64 cannot represent 0.001 microseconds here
        digits = np.loadtxt(_lines(text, skipped), object, delimiter=delimiter, usecols=places["t"], ndmin=1)
        exact = _microseconds(digits.tolist(), unit)
        columns, unit = (columns, unit) if exact is None else (columns | {"t": exact}, "us")

    def line_of(number: int) -> str:
        return next(itertools.islice(_rows(text, mark), number + skipped, None))[0]

    return recording(path, in_microseconds(columns, unit), sensor, line_of, natural)


def _fields(row: str, delimiter: str | None) -> list[str]:
    return [field.strip() for field in row.split(delimiter)]


def _size(fields: list[str], following: list[str] | None = None) -> tuple[int, int, int] | None:
    """The sensor size if two fields are its width and height, and four fields follow in the next row."""
    if len(fields) != 2 or (following is not None and len(following) != 4):
        return None
    size = [int(field) if field.isdecimal() and len(field) < 6 else 0 for field in fields]
    return (size[0], size[1], 2) if all(0 < each <= reading.MOST_PIXELS for each in size) else None


def _microseconds(fields: list[str], unit: str | None) -> Array | None:
    """Times in whole microseconds, computed in decimal; None for fractional microseconds without a unit."""
    many, parts = reading.UNITS[unit or "us"]
    exact = [Decimal(field) * many / parts for field in fields]
    whole = [int((each + Decimal("0.5")).to_integral_value(ROUND_FLOOR)) for each in exact]
    return None if unit is None and whole != exact else np.array(whole, np.int64)


def _rows(text: str, begin: int) -> Iterator[tuple[str, str]]:
    """The lines with content, each with its position for error messages."""
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        row = line.split("#")[0].strip()
        if row:
            yield f"line {number} (byte {begin})", row
        begin += len(line.encode())


def _lines(text: str, skipped: int) -> Iterator[str]:
    lines = iter(io.StringIO(text, newline=None))
    while skipped:
        skipped -= bool(next(lines).split("#")[0].strip())
    return lines


def _table(path: Any, text: str, begin: int, delimiter: str | None, skipped: int, width: int) -> Array:
    """The numbers (rows, columns) after the first `skipped` rows."""
    if next(itertools.islice(_rows(text, begin), skipped, None), None) is None:
        return np.zeros((0, width))
    try:
        table = np.loadtxt(_lines(text, skipped), np.float64, delimiter=delimiter, ndmin=2)
        if table.shape[1] == width:
            return table
    except ValueError:
        pass  # the loop below finds the place of the error
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
