"""MATLAB's `.mat` of version 5, as of ASL-DVS: arrays ts, x, y and pol, or such fields of a struct, packed or not."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from snncell.data.events import Events
from snncell.data.formats.columns import PLAIN, TableLayout, in_microseconds, ours
from snncell.data.formats.reading import PACKED, ROOM, Array, fault, recording

HEADER = 128
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15
NUMERIC = range(6, 16)  # the classes of matrices, from double to uint64; others are cells, text, ...
STRUCT = 2  # a class too
DEEPEST = 8  # structs in structs


class _Element(NamedTuple):
    """A piece of a file: what it is, its bytes, and where it begins, in words."""

    kind: int
    data: memoryview
    place: str


def read(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = PLAIN) -> Events:
    """The arrays of events at the top of a file. Not by SciPy, whose reader makes what a damaged header announces."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:HEADER])
    if order is None:
        raise fault(path, "byte 126", f"IM or MI is expected, for the order of bytes, not {data[126:HEADER]!r}")
    arrays: dict[str, Array] = {}
    for element in _elements(path, memoryview(data)[HEADER:], HEADER, order, ""):
        if element.kind == COMPRESSED:
            unpacked = memoryview(_decompress(path, element, len(data)))
            inner = list(_elements(path, unpacked, 0, order, f"{element.place}, unpacked "))
        else:
            inner = [element]
        for each in inner:
            if each.kind == MATRIX:
                arrays.update(_matrix(path, each, order))
    columns = {own: arrays[name] for own, name in ours(path, arrays, layout).items()}
    columns = in_microseconds(columns, layout.time_unit)
    return recording(path, columns, sensor, lambda number: f"event {number}")


def _elements(path: Any, data: memoryview, at: int, order: str, within: str) -> Iterator[_Element]:
    """Tagged pieces one after another; `at` is where `data` begins in what `within` says."""
    start = 0
    while start < len(data):
        place = f"{within}byte {at + start}"
        if start + 8 > len(data):
            raise fault(path, place, f"an element's tag of 8 bytes is expected, and {len(data) - start} are left")
        kind, size = struct.unpack_from(f"{order}II", data, start)
        if kind >> 16:  # a small one: its size beside its kind, its data in the tag
            kind, size, body, end = kind & 0xFFFF, kind >> 16, start + 4, start + 8
        else:
            body, end = start + 8, start + 8 + size
        if size > len(data) - body or (body == start + 4 and size > 4):
            raise fault(path, place, f"an element of {size} bytes is announced, and {len(data) - body} are left")
        yield _Element(kind, data[body : body + size], place)
        start = end if kind == COMPRESSED else end + -end % 8


def _decompress(path: Any, element: _Element, length: int) -> bytes:
    """The inside of a compressed element, if it is no more than a file of this length can have."""
    room = ROOM + PACKED * length
    try:
        inflate = zlib.decompressobj()
        unpacked = inflate.decompress(element.data, room)
    except zlib.error as error:
        raise fault(path, element.place, f"a packed element is expected: {error}") from None
    if not inflate.eof:
        found = f"it unpacks to more than {room} bytes: it is damaged, or a bomb"
        if not inflate.unconsumed_tail:
            found = "its packed bytes end too early"
        raise fault(path, element.place, found)
    return unpacked


def _matrix(path: Any, element: _Element, order: str, within: str = "", depth: int = 0) -> dict[str, Array]:
    """The numbers of a matrix by its name, or of the fields of a struct by `struct/field`; none of other classes."""
    parts = list(_elements(path, element.data, 0, order, f"{element.place}, matrix, "))
    if not parts and depth:
        return {}  # a field without a value
    if len(parts) < 3 or len(parts[0].data) < 8:
        raise fault(path, element.place, "a matrix with its class, lengths and name is expected")
    (flags,) = struct.unpack_from(f"{order}I", parts[0].data)
    name = within or bytes(parts[2].data).decode("latin-1")
    lengths = np.frombuffer(bytes(parts[1].data[: len(parts[1].data) // 4 * 4]), f"{order}i4")
    if flags & 0xFF == STRUCT and depth < DEEPEST and (lengths == 1).all():
        names = _field_names(path, parts, order)
        fields = [
            _matrix(path, part, order, f"{name}/{own}", depth + 1) for own, part in zip(names, parts[5:], strict=True)
        ]
        return {own: column for field in fields for own, column in field.items()}
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
    """The names of a struct's fields: as many as matrices follow, each in so many bytes as the part before says."""
    length = int.from_bytes(parts[3].data[:4], "little" if order == "<" else "big") if len(parts) > 4 else 0
    names = bytes(parts[4].data) if length else b""
    if not length or len(names) != length * len(parts[5:]) or any(part.kind != MATRIX for part in parts[5:]):
        raise fault(path, parts[0].place, "a struct with a name and a matrix for each of its fields is expected")
    return [names[at : at + length].partition(b"\0")[0].decode("latin-1") for at in range(0, len(names), length)]
