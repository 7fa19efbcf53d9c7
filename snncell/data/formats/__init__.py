"""Recordings of events in files: the table of formats, and the reader that finds the right one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own, Path
from snncell.data.events import Events, sensor_of
from snncell.data.formats import aedat, binary, hdf5, tables
from snncell.data.formats.reading import PLAIN, contents, fault, layout_of
from snncell.errors import ArgumentError

__all__ = ["read_events"]

TABLES: dict[bytes, Callable[..., Events]] = {  # readers (path, data, sensor_size, layout) by the first bytes of files
    b"\x93NUMPY": tables.read_npy,
    b"PK\x03\x04": tables.read_npz,
    b"MATLAB 5.0 MAT-file": tables.read_mat,
}
MAGIC: dict[bytes, Callable[..., Events]] = {  # readers (path, data, sensor_size)
    b"#!AER-DAT2.0": aedat.read_2,
    b"#!AER-DAT3.1": aedat.read_3,
    b"#!AER-DAT4": aedat.read_4,
}
HEAD = hdf5.USER_BLOCKS[-1] + len(hdf5.SIGNATURE)  # bytes, in which HDF5 begins; h5py reads the rest itself
REFUSED = {
    b"Event Stream": "Event Stream (.es) is not read: convert it to .csv by the package faery",
    b"#ROSBAG V": "ROS bags are not read: convert the events to .npy by the package rosbags",
    b"#!AER-DAT": "AEDAT is read in versions 2.0, 3.1 and 4",
    b"\x1f\x8b": "it is packed by gzip: unpack it first",
    b"PK": "events are expected in this archive, and it has none",
}


def read_events(
    path: Path,
    sensor_size: Sequence[int] | None = None,
    *,
    columns: Annotated[dict[str, str | int] | None, Own()] = None,
    time_unit: Annotated[str | None, Own()] = None,
) -> Events:
    """Read one recording of events from a file. The content of the file tells its format, not its name.

    | format | times in the file | sensor, if it is not given |
    | --- | --- | --- |
    | N-MNIST's and N-Caltech101's `.bin` | microseconds, 23 bits and marks of overflow | 34 x 34 if the events fit |
    | AEDAT 4, by the package aedat: its one stream of events | microseconds | in the file |
    | AEDAT 3.1: the valid polarity events | microseconds, 31 bits and a count of overflows | that of its `#Source` |
    | AEDAT 2.0 of a DVS128 or a DAVIS, addresses as they are | microseconds | of its `AEChip`, or 128 x 128 |
    | Prophesee's RAW in EVT 2.0 and EVT 3.0, and DAT: CD events | microseconds; 34, 24 and 32 bits | in the header |
    | `.npz` with t, x, y, p; `.npy` or `.npz` with a structured array | microseconds, or `time_unit` | |
    | `.npy` with columns t x y p, x y t p or t x p | microseconds, or `time_unit` | |
    | `.npy` with columns x y p t, as tonic keeps DVS128 Gesture | milliseconds, with a warning, or `time_unit` | |
    | `.mat` of version 5 with ts, x, y, pol, or structs with such fields | microseconds, or `time_unit` | |
    | text with a header, or columns as in `.npy` | microseconds, or `time_unit`; all digits count | of a line "W H" |
    | HDF5 at the paths of `columns` | microseconds, or `time_unit` | |
    | HDF5 with SHD's layout and one sample; `SHD` reads all | seconds, float16 | 700 x 1 x 1 |

    A format without a sensor gets the smallest one that holds the events, with two polarities. -1 and 1 are read as 0
    and 1. Names such as `timestamp`, `x_pos`, `polarity` and `on` are known. In a table without names, polarities are 0
    and 1 and times do not go back. If that fits several orders of the columns, such as t x y p and x y t p, it is an
    error: pass `columns`. E2VID's text files begin with a line of the width and the height.

    Args:
        path: the file.
        sensor_size: (W, H, P), which must contain all events.
        columns: of tables, which column is t, x, and perhaps y and p, by name or by number from 0:
            `{"t": "time_s", "x": "unit"}`, `{"x": 0, "y": 1, "p": 2, "t": 3}`. Without p it is 0. In HDF5 and structs
            of `.mat` a name is a path: `{"t": "events/t", "x": "events/x"}`. A path can go on with a field of a record,
            or with the number of a column: `{"t": "davis/left/events/2", "x": "davis/left/events/0"}`.
        time_unit: of tables, "s", "ms", "us" or "ns"; times are rounded to whole microseconds.

    Returns:
        `Events`, in the order of the file.

    Raises:
        FileError: for a file that is missing, damaged, ambiguous or of no known format; it says at which byte, line or
            array.
        ArgumentError: for invalid columns and units, and if they are given for a file that is no table.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "recording.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("t,x,y,p\\n10,3,1,0\\n25,0,2,1\\n")
        >>> events = snncell.data.read_events(path, sensor_size=(4, 4, 2))
        >>> events["t"].tolist(), events["x"].tolist(), events.sensor_size
        ([10, 25], [3, 0], (4, 4, 2))
    """
    if sensor_size is not None:
        sensor_of("read_events", sensor_size)
    layout = layout_of("read_events", columns, time_unit)
    data = contents(path, HEAD)
    if hdf5.is_hdf5(data):
        if layout.columns is None and layout != PLAIN:
            raise _no_table(path)
        return hdf5.read(path, sensor_size, layout)
    if len(data) == HEAD:
        data = contents(path)
    table = next((reader for begin, reader in TABLES.items() if data.startswith(begin)), None)
    other = next((reader for begin, reader in MAGIC.items() if data.startswith(begin)), None)
    if table is None and other is None:
        for begin, reason in REFUSED.items():
            if data.startswith(begin):
                raise fault(path, "byte 0", reason)
        if any(begin.startswith(data) for begin in (*TABLES, *MAGIC, hdf5.SIGNATURE)):
            raise fault(path, f"byte {len(data)}", "the file ends inside of its first word")
        if binary.is_prophesee(data):
            other = binary.read_prophesee
        elif tables.is_text(data):
            table = tables.read_text
    if table is not None:
        return table(path, data, sensor_size, layout)
    if layout != PLAIN:
        raise _no_table(path)
    return binary.read_bin(path, data, sensor_size, certain=False) if other is None else other(path, data, sensor_size)


def _no_table(path: Any) -> ArgumentError:
    """The error for columns and time_unit of formats that define both."""
    return ArgumentError(
        f"read_events: columns and time_unit are said of tables, as .npy, .npz, .mat, HDF5 and CSV, and "
        f"{os.fspath(path)} is none; leave them out."
    )
