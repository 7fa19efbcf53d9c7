"""HDF5: the spikes of SHD and SSC, many samples in a file, and columns of events at any paths.

h5py finds the tables and columns in a separate process (`libraries.py`). A sample of SHD is two pieces of the file from
then on, read without HDF5's library: workers have no handle of h5py's, which does not survive a fork.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from snncell.data.events import Events
from snncell.data.formats.columns import TableLayout, in_microseconds
from snncell.data.formats.libraries import read_by_library
from snncell.data.formats.reading import Array, contents, fault, recording
from snncell.errors import FileError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK = 56  # bytes of it that are looked into
USER_BLOCKS = (0, *(512 << n for n in range(8)))  # where a superblock can be
CHANNELS = (700, 1, 1)
CLASSES = 1 << 16  # of a file without names: labels are uint16, and data.SHD makes a name for each class
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])  # of an entry of variable length
MICROSECONDS = 1e6  # of a second


class SpikeTables(NamedTuple):
    """The tables of a file: of each sample its label, its speaker if the file has one, and where its spikes are."""

    path: str
    dtypes: tuple[str, str]  # of times and units
    base: int  # which addresses in the file count from
    times: Array
    units: Array
    labels: Array
    keys: tuple[str, ...] | None
    speakers: Array | None


def is_hdf5(data: bytes) -> bool:
    """True if there is a superblock, at the beginning or behind a user block."""
    return any(data.startswith(SIGNATURE, at) for at in USER_BLOCKS)


def tables(path: Any) -> SpikeTables:
    """Everything of a file but the spikes.

    Raises:
        FileError: without h5py, and if there is no /spikes/times, /spikes/units, /labels, or the file is damaged.
    """
    _check_length(path)
    facts, (times, units, labels, *others) = read_by_library(path, "spikes")
    speakers = others[0] if others else None
    keys = None if facts["keys"] is None else tuple(facts["keys"])
    known = CLASSES if keys is None else len(keys)
    wrong = (labels < 0) | (labels >= known)
    if wrong.any():
        number = int(wrong.argmax())
        raise fault(
            path, f"dataset /labels, index {number}", f"a label from 0 to {known - 1} is expected, not {labels[number]}"
        )
    if speakers is not None and len(speakers) != len(labels):
        raise fault(path, "dataset /extra/speaker", f"{len(labels)} speakers are expected, not {len(speakers)}")
    first, second = facts["dtypes"]
    times, units = (table.view(REFERENCE)[:, 0] for table in (times, units))
    return SpikeTables(os.path.abspath(path), (first, second), facts["base"], times, units, labels, keys, speakers)


def _check_length(path: Any) -> None:
    """Compare the file's length with that in its superblock.

    Raises:
        FileError: for a file that is not there, no HDF5, or cut off.
    """
    data = contents(path, USER_BLOCKS[-1] + SUPERBLOCK)
    length = os.path.getsize(path)
    at = next((at for at in USER_BLOCKS if data.startswith(SIGNATURE, at)), None)
    if at is None:
        gzip = ", and it is packed by gzip: unpack it first" if data.startswith(b"\x1f\x8b") else ""
        raise fault(path, "byte 0", f"an HDF5 file is expected{gzip}")
    head = data[at : at + SUPERBLOCK]
    if len(head) < SUPERBLOCK:
        raise fault(path, f"byte {at}", f"a superblock is expected, and the file ends at byte {length}")
    place = {0: 40, 1: 44}.get(head[8], 28)  # of the address of the file's end
    end = int.from_bytes(head[place : place + 8], "little")
    if end > length:
        raise fault(path, f"byte {at + place}", f"a file of {end} bytes is announced, and it ends at byte {length}")


# --- samples ----------------------------------------------------------------------------------------------------------

HEAP = 16  # bytes of a collection's header, and of that of an object in it
SHARED = 1 << 16  # bytes: longer collections have one object


def sample(spikes: SpikeTables, index: int) -> Events:
    """The events of a sample: t in microseconds of however precise seconds, x the unit, p 0."""
    path = spikes.path
    try:
        with open(path, "rb", buffering=0) as file:
            times = _entry(spikes, file, "times", spikes.dtypes[0], spikes.times[index], index)
            units = _entry(spikes, file, "units", spikes.dtypes[1], spikes.units[index], index)
    except OSError as error:
        raise fault(path, "", f"cannot be read: {error.strerror}") from None
    place = f"dataset /spikes/times, index {index}"
    if len(times) != len(units):
        raise fault(path, place, f"as many times as units are expected, not {len(times)} and {len(units)}")
    seconds = times.astype(np.float64)
    if not np.isfinite(seconds).all() or (abs(seconds) >= 1e9).any():
        raise fault(path, place, "times in seconds are expected, and some are not finite")
    columns = {"t": np.rint(seconds * MICROSECONDS).astype(np.int64), "x": units, "p": np.zeros(len(units), np.uint8)}
    return recording(path, columns, CHANNELS, lambda number: f"dataset /spikes/units, index {index}, spike {number}")


def _entry(spikes: SpikeTables, file: Any, name: str, dtype: str, reference: Any, index: int) -> Array:
    """The numbers that an entry of variable length refers to, in one of the file's global heaps."""
    count = int(reference["length"])
    if not count:
        return np.zeros(0, dtype)
    start = spikes.base + int(reference["address"])
    size = count * np.dtype(dtype).itemsize
    length = file.seek(0, os.SEEK_END)

    def refuse(text: str) -> FileError:
        return fault(spikes.path, f"dataset /spikes/{name}, index {index} (byte {start})", text)

    def piece(at: int, wanted: int) -> bytes:
        # Compared before anything is read: what is damaged may announce any size.
        if at + wanted > length:
            raise refuse(f"{wanted} bytes at byte {at} are expected, and the file ends at byte {length}")
        file.seek(at)
        return _whole(file, wanted)

    head = piece(start, 2 * HEAP)
    whole = int.from_bytes(head[8:HEAP], "little")
    if head[:5] != b"GCOL\x01" or whole < 2 * HEAP or start + whole > length:
        raise refuse("a global heap, GCOL, is expected")
    at = HEAP
    block = head if whole > SHARED else piece(start, whole)
    while at + HEAP <= len(block):
        number = int.from_bytes(block[at : at + 2], "little")
        own = int.from_bytes(block[at + 8 : at + HEAP], "little")
        if number == reference["number"]:
            if own != size or at + HEAP + own > whole:
                raise refuse(f"{count} numbers of {dtype} are announced, and {own} bytes are there")
            return np.frombuffer(piece(start + at + HEAP, size), dtype)
        if number == 0:
            break  # the room that is left
        at += HEAP + own + -own % 8
    raise refuse(f"object {int(reference['number'])} of a global heap is expected, and it is not there")


def _whole(file: Any, size: int) -> bytes:
    """So many bytes of a file without a buffer, which may give them in parts."""
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read(path: Any, sensor: Any, layout: TableLayout) -> Events:
    """The columns at the paths of `layout`, or the one sample of a file with SHD's layout."""
    if layout.columns is not None:
        _check_length(path)
        _, arrays = read_by_library(path, "columns", [str(place) for place in layout.columns.values()])
        columns = in_microseconds(dict(zip(layout.columns, arrays, strict=True)), layout.time_unit)
        return recording(path, columns, sensor, lambda number: f"event {number}")
    spikes = tables(path)
    if len(spikes.labels) != 1:
        found = f"one recording is expected, and it has {len(spikes.labels)}: snncell.data.SHD reads them"
        raise fault(path, "dataset /labels", found)
    events = sample(spikes, 0)
    if sensor is None:
        return events
    columns = {name: events[name] for name in ("t", "x", "p")}
    return recording(path, columns, sensor, lambda number: f"dataset /spikes/units, index 0, spike {number}")
