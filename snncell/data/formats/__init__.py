"""Event file formats: `read_events` detects the format of a file and reads it."""

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

TABLES: dict[bytes, Callable[..., Events]] = {  # first bytes -> reader(path, data, sensor_size, layout)
    b"\x93NUMPY": tables.read_npy,
    b"PK\x03\x04": tables.read_npz,
    b"MATLAB 5.0 MAT-file": tables.read_mat,
}
MAGIC: dict[bytes, Callable[..., Events]] = {  # first bytes -> reader(path, data, sensor_size)
    b"#!AER-DAT2.0": aedat.read_2,
    b"#!AER-DAT3.1": aedat.read_3,
    b"#!AER-DAT4": aedat.read_4,
}
HEAD = hdf5.USER_BLOCKS[-1] + len(hdf5.SIGNATURE)  # enough bytes to recognise HDF5; h5py reads the file itself
REFUSED = {
    b"Event Stream": "Event Stream (.es) is not read: convert it to .csv by the package faery",
    b"#ROSBAG V": "ROS bags are not read: convert the events to .npy by the package rosbags",
    b"#!AER-DAT": "AEDAT is read in versions 2.0, 3.1 and 4",
    b"\x1f\x8b": "it is compressed by gzip: decompress it first",
    b"PK": "events are expected in this archive, but it has none",
}


def read_events(
    path: Path,
    sensor_size: Sequence[int] | None = None,
    *,
    columns: Annotated[dict[str, str | int] | None, Own()] = None,
    time_unit: Annotated[str | None, Own()] = None,
) -> Events:
    r"""Read one recording from an event file: AEDAT, Prophesee RAW and DAT, N-MNIST, NumPy, MATLAB, CSV, HDF5.

    The format is detected from the content of the file, not from its name.

    | format | times in the file | default sensor |
    | --- | --- | --- |
    | `.bin` of N-MNIST and N-Caltech101 | microseconds, 23 bits and overflow marks | 34 x 34 if the events fit |
    | AEDAT 4, by the package aedat, with one stream of events | microseconds | in the file |
    | AEDAT 3.1: the valid polarity events | microseconds, 31 bits and an overflow count | from `#Source` |
    | AEDAT 2.0 of a DVS128 or a DAVIS, addresses unchanged | microseconds | from `AEChip`, or 128 x 128 |
    | Prophesee RAW in EVT 2.0 and EVT 3.0, and DAT: CD events | microseconds; 34, 24 and 32 bits | in the header |
    | `.npz` with t, x, y, p; `.npy` or `.npz` with a structured array | microseconds, or `time_unit` | |
    | `.npy` with columns t x y p, x y t p or t x p | microseconds, or `time_unit` | |
    | `.npy` with columns x y p t, as in tonic's DVS128 Gesture | milliseconds, with a warning, or `time_unit` | |
    | `.mat` of version 5 with ts, x, y, pol, or structs with such fields | microseconds, or `time_unit` | |
    | text with a header, or columns as in `.npy` | microseconds, or `time_unit`; all digits count | from a line "W H" |
    | HDF5 at the paths of `columns` | microseconds, or `time_unit` | |
    | HDF5 in SHD's layout with one sample; use `SHD` to read several | seconds, float16 | 700 x 1 x 1 |

    If a format has no sensor size, the default is the smallest one that contains the events, with two polarities.
    Polarities -1 and 1 become 0 and 1. Usual column names such as `timestamp`, `x_pos`, `polarity` and `on` are
    recognised. E2VID's text files begin with a line of width and height.

    A table without names is recognised by its numbers, because polarities are 0 and 1 and times do not decrease. If
    several orders fit, for example t x y p and x y t p, you must pass `columns`.

    Args:
        path: the file.
        sensor_size: (W, H, P). It must contain all events.
        columns: for tables, the columns that are t, x, and optionally y and p, by name or by index from 0. For example
            `{"t": "time_s", "x": "unit"}` or `{"x": 0, "y": 1, "p": 2, "t": 3}`. Without p, polarities are 0. In HDF5
            and structs of `.mat` a name is a path, for example `{"t": "events/t", "x": "events/x"}`. It can end with a
            field of a record or a column index: `{"t": "davis/left/events/2", "x": "davis/left/events/0"}`.
        time_unit: for tables, "s", "ms", "us" or "ns". Times are rounded to whole microseconds.
    Returns: `Events`, in the order of the file.
    Raises: FileError for a missing, damaged, ambiguous or unknown file, with the byte, line or array of the problem;
        ArgumentError for invalid `columns` or `time_unit`, and if you pass one for a file that is not a table.
    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "recording.csv")
        >>> with open(path, "w") as file:
        ...     _ = file.write("t,x,y,p\n10,3,1,0\n25,0,2,1\n")
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
    return ArgumentError(
        f"read_events: columns and time_unit apply to tables only (.npy, .npz, .mat, HDF5 and CSV), and "
        f"{os.fspath(path)} is not a table. Leave them out."
    )
