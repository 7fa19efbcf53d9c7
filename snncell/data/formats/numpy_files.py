"""NumPy's `.npy` and `.npz`: structured arrays, columns by name, tables; never pickles."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from snncell.data.events import Events
from snncell.data.formats.columns import PLAIN, TableLayout, in_microseconds, in_milliseconds, order_of, ours
from snncell.data.formats.reading import Array, check_room, fault, foreign_errors, recording

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npy(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = PLAIN, order: str = "") -> Events:
    """A structured array, or a table, whose columns have the `order` or are told by their numbers."""
    columns = _columns(path, _array(path, "", data), layout, order, tonic=True)
    return recording(path, columns, sensor, lambda number: f"event {number}")


def read_npz(path: Any, data: bytes, sensor: Any = None, layout: TableLayout = PLAIN) -> Events:
    """Arrays t, x, y and p, as SpikingJelly keeps them, or a single array as in `.npy`."""
    with foreign_errors(path, ""), zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {each.filename.removesuffix(".npy"): each for each in archive.infolist()}
        several = len(members) > 1
        wanted = ours(path, members, layout) if several else {name: name for name in members}
        if not wanted:
            raise fault(path, "", "arrays t, x, y and p are expected, and there are none")
        check_room(path, "", sum(members[name].file_size for name in wanted.values()), len(data))
        arrays = {}
        for own, name in wanted.items():
            with foreign_errors(path, f"array {name}"):
                arrays[own] = _array(path, f"array {name}, ", archive.read(members[name]))
    if several:
        columns = in_microseconds({own: array.reshape(-1) for own, array in arrays.items()}, layout.time_unit)
    else:
        columns = _columns(path, next(iter(arrays.values())), layout)
    return recording(path, columns, sensor, lambda number: f"event {number}")


def _columns(path: Any, array: Array, layout: TableLayout, order: str = "", tonic: bool = False) -> dict[str, Array]:
    names: Iterable[str] | None = array.dtype.names
    if names is None:
        places = order_of(path, array, layout, order=order)
        unit = in_milliseconds(path, places, layout) if tonic else layout.time_unit
        return in_microseconds({own: array[:, number] for own, number in places.items()}, unit)
    if array.ndim != 1:
        raise fault(path, "", f"a structured array with one axis is expected, not of shape {array.shape}")
    return in_microseconds({own: array[name] for own, name in ours(path, names, layout).items()}, layout.time_unit)


def _array(path: Any, within: str, data: bytes) -> Array:
    """The array in the bytes of a `.npy`, whose header is compared with their number before anything is made."""
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
        found = f"an array of shape {shape} and {dtype} is announced, and {len(data) - start} bytes are left"
        raise fault(path, f"{within}byte {start}", found)
    with foreign_errors(path, f"{within}byte {start}"):
        flat = np.frombuffer(data, dtype, offset=start)
        return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
