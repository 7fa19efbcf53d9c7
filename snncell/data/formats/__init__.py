"""Recordings of events in files, of whatever format they are."""

from __future__ import annotations

from collections.abc import Sequence

from snncell.arguments.vocabulary import Path
from snncell.data.events import Events, sensor_of
from snncell.data.formats import aedat, bin, hdf5, mat, numpy_files, text
from snncell.data.formats.reading import contents, fault

MAGIC = {
    b"\x93NUMPY": numpy_files.read_npy,
    b"PK\x03\x04": numpy_files.read_npz,
    b"#!AER-DAT2.0": aedat.read_2,
    b"#!AER-DAT3.1": aedat.read_3,
    b"MATLAB 5.0 MAT-file": mat.read,
}
REFUSED = {
    b"#!AER-DAT4": "AEDAT 4 is not read: save a structured array with t, x, y, p as .npy, by the package aedat",
    b"#!AER-DAT": "AEDAT is read in versions 2.0 and 3.1",
    b"\x1f\x8b": "it is packed by gzip: unpack it first",
    b"PK": "events are expected in this archive, and it has none",
}


def read_events(path: Path, sensor_size: Sequence[int] | None = None) -> Events:
    """Read one recording from a file, of a format that its content tells, whatever its name is.

    | format | times in the file | sensor, if it is not given |
    | --- | --- | --- |
    | N-MNIST's and N-Caltech101's `.bin` | microseconds, 23 bits and marks of overflow | 34 x 34 if the events fit |
    | AEDAT 3.1: the valid polarity events | microseconds, 31 bits and a count of overflows | that of its `#Source` |
    | AEDAT 2.0 of a DVS128, addresses as they are | microseconds | 128 x 128 |
    | `.npz` with t, x, y, p; `.npy` or `.npz` with a structured array | microseconds | |
    | `.npy` with four columns: t x y p, or x y t p; or x y p t, as tonic keeps them | microseconds; milliseconds | |
    | `.mat` of version 5 with ts, x, y, pol | microseconds | |
    | CSV with a header, or columns as in `.npy` | microseconds | |
    | HDF5 as of SHD with one sample; `SHD` reads all | seconds, float16 | 700 x 1 x 1 |

    Where the format has no sensor, it is the smallest one that holds the events, with two polarities. -1 and 1 are
    read as 0 and 1.

    Args:
        path: the file.
        sensor_size: (W, H, P), which all events must be inside of.

    Returns:
        `Events`, in the order of the file.

    Raises:
        FileError: for a file that is missing, damaged or of no known format; it says at which byte, line or array.

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
    if hdf5.is_hdf5(contents(path, hdf5.USER_BLOCKS[-1] + 8)):
        return hdf5.read(path, sensor_size)
    data = contents(path)
    for begin, reader in MAGIC.items():
        if data.startswith(begin):
            return reader(path, data, sensor_size)
    for begin, reason in REFUSED.items():
        if data.startswith(begin):
            raise fault(path, "byte 0", reason)
    if any(begin.startswith(data) for begin in (*MAGIC, hdf5.SIGNATURE)):
        raise fault(path, f"byte {len(data)}", "the file ends inside of its first word")
    if text.is_text(data):
        return text.read(path, data, sensor_size)
    return bin.read(path, data, sensor_size, certain=False)
