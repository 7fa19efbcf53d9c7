"""Event files: every format reads random events as they were written, and checks its layout."""

from __future__ import annotations

import io
import sys
import zipfile

import event_files as write
import numpy as np
import pytest
import scipy.io

from snncell.data import read_events
from snncell.data.formats import binary
from snncell.errors import ArgumentError, FileError

COUNTS = (1, 2, 7, 400)


def same(events, columns, sensor=None) -> None:
    assert events.dtype.names == tuple(name for name in "txyp" if name in columns)
    assert events["t"].dtype == np.int64
    for name in columns:
        np.testing.assert_array_equal(events[name], columns[name], name)
    assert sensor is None or events.sensor_size == sensor


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording"  # without a suffix, because the content decides the format


# --- N-MNIST ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_bin_events_are_read(path, count):
    columns = write.drawn(np.random.default_rng(count), count)
    write.write_bin(path, columns)
    same(read_events(path), columns, (34, 34, 2))
    same(read_events(path, (40, 50, 2)), columns, (40, 50, 2))


@pytest.mark.parametrize("seed", range(5))
def test_bin_of_a_larger_sensor_with_time_overflows(path, seed):
    rng = np.random.default_rng(seed)
    columns = write.drawn(rng, 300, (240, 180, 2), longest=2**23 + 2**16)
    columns["x"][0], columns["y"][0], columns["t"][-1] = 239, 179, 2**23 + 2**16
    write.write_bin(path, columns)
    assert path.stat().st_size % 5 == 0 and path.stat().st_size > 1500
    same(read_events(path), columns, (240, 180, 2))


def test_bin_overflow_marker_shifts_later_times(path):
    path.write_bytes(bytes([1, 2, 0x80, 0, 100, 7, 240, 0, 0, 0, 3, 4, 0, 0, 50]))
    same(read_events(path), {"t": [100, 8242], "x": [1, 3], "y": [2, 4], "p": [1, 0]})
    path.write_bytes(bytes([9, 240, 0, 0, 0]) * 3 + bytes([3, 4, 0, 0, 50]))
    same(read_events(path), {"t": [3 * 8192 + 50], "x": [3], "y": [4], "p": [0]})


def test_truncated_bin_raises_at_its_last_event(path):
    path.write_bytes(bytes([1, 2, 0x80, 0, 100, 3, 4]))
    with pytest.raises(FileError, match=r"recording, byte 5: an event of 5 bytes.* the file ends at byte 7\."):
        read_events(path)


def test_arbitrary_bytes_are_not_detected_as_bin(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(200)) * 2 + bytes(2))
    with pytest.raises(FileError, match=r"byte \d+: the file has the signature of no known format"):
        read_events(path)


def test_event_outside_of_the_sensor_is_named_with_its_byte(path):
    path.write_bytes(bytes([0, 240, 0, 0, 0, 1, 2, 0, 0, 100, 33, 4, 0, 0, 200]))
    with pytest.raises(
        FileError, match=r"byte 10: x must be at least 0 and below 20 of sensor_size \(20, 20, 2\), not 33\."
    ):
        read_events(path, (20, 20, 2))


# --- NumPy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
def test_structured_arrays_are_read(path, count):
    columns = write.drawn(np.random.default_rng(count), count)
    array = write.structured(columns)
    with path.open("wb") as file:
        np.save(file, array)
    same(read_events(path, (34, 34, 2)), columns)
    with path.open("wb") as file:
        other = np.zeros(count, [("p", "i1"), ("x", ">f4"), ("t", ">u8"), ("y", "u1")])
        for name, column in columns.items():
            other[name] = column
        np.save(file, other)
    same(read_events(path, (34, 34, 2)), columns)
    with path.open("wb") as file:
        np.savez(file, events=array)
    same(read_events(path, (34, 34, 2)), columns)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_one_array_per_column(path, save):
    columns = write.drawn(np.random.default_rng(0), 500)
    with path.open("wb") as file:
        save(file, **columns, other=np.zeros((3, 3)))
    same(read_events(path), columns, (34, 34, 2))


@pytest.mark.parametrize("order", ["txyp", "xytp", "xypt"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64, ">i4"])
@pytest.mark.parametrize("signed", [False, True])
def test_tables_without_column_names(path, order, dtype, signed):
    columns = write.drawn(np.random.default_rng(1), 300)
    stored = columns | ({"p": 2 * columns["p"] - 1} if signed else {})
    table = np.stack([stored[name] for name in order], 1).astype(dtype)
    with path.open("wb") as file:
        np.save(file, np.asfortranarray(table) if signed else table)
    if order == "xypt":
        with pytest.warns(RuntimeWarning, match=r'columns are x y p t, .*Pass time_unit="ms"'):
            same(read_events(path), columns | {"t": columns["t"] * 1000})
        same(read_events(path, time_unit="ms"), columns | {"t": columns["t"] * 1000})
    same(read_events(path, (34, 34, 2), time_unit="us"), columns)


def test_fractional_milliseconds_become_microseconds(path):
    with path.open("wb") as file:
        np.save(file, np.array([[10, 20, 1, 0.25], [30, 3, 0, 7.0014]]))
    same(read_events(path, time_unit="ms"), {"t": [250, 7001], "x": [10, 30], "y": [20, 3], "p": [1, 0]})


def test_events_of_a_one_dimensional_sensor(path):
    array = np.zeros(3, [("t", "i8"), ("x", "i4"), ("p", "i4")])
    array["x"] = [5, 600, 2]
    with path.open("wb") as file:
        np.save(file, array)
    events = read_events(path)
    assert events.dtype.names == ("t", "x", "p") and events.sensor_size == (601, 1, 2)


def test_pickles_are_not_executed(path):
    class Trap:
        def __reduce__(self):
            return sys.exit, (7,)

    for save in (np.save, np.savez):
        with path.open("wb") as file:
            save(file, np.array([Trap()], dtype=object))
        with pytest.raises(FileError, match="numbers are expected, not Python objects, which would run a pickle"):
            read_events(path)


def npy(shape: str, descr: str = "'<i8'", rest: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + rest


@pytest.mark.parametrize(
    "shape", ["(1000000000000, 4)", "(-1, 4)", "(2, 4)", "(99999999999999999999999,)", "(True, 4)"]
)
def test_npy_shape_larger_than_the_file_raises(path, shape):
    path.write_bytes(npy(shape, rest=bytes(24)))
    with pytest.raises(FileError, match=r"recording, byte \d+: "):
        read_events(path)


def test_zip_bomb_raises(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        zeros = bytes(1 << 24)
        with archive.open("events.npy", "w", force_zip64=True) as member:
            for _ in range(8):
                member.write(zeros)
    with pytest.raises(FileError, match=r"would unpack to 134217728 bytes, of a file of 13\d{4}: it is damaged, or a"):
        read_events(path)


def test_files_without_events_raise(path):
    with path.open("wb") as file:
        np.savez(file, a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(
        FileError, match=r"columns t, x, p and optionally y are expected, but of a, b none is t and x and p"
    ):
        read_events(path)
    for array, said in (
        (np.zeros((5, 7)), r"a table with one row per event and 3 or 4 columns"),
        (np.full((5, 4), 9), r"the columns are not t x y p or x y t p or x y p t"),
        (np.zeros(5, "U3"), r"a table with one row per event and 3 or 4 columns"),
        (np.zeros((5, 4), "U3"), r"numbers are expected, not <U3"),
    ):
        with path.open("wb") as file:
            np.save(file, array)
        with pytest.raises(FileError, match=said):
            read_events(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("t", 0.5, "event 2: t must be integers of microseconds, not 0.5"),
        ("t", np.nan, "event 2: t must be integers of microseconds, not nan"),
        ("x", np.inf, "event 2: x must be integers, not inf"),
        ("t", 1e18, "event 2: t must be integers of microseconds, not 1e[+]18"),
        ("x", -1, r"event 2: x must be at least 0 and below 65535, not -1"),
        ("y", 65535, "event 2: y must be at least 0 and below 65535, not 65535"),
        ("p", 3, ""),
    ],
)
def test_invalid_values_are_named_with_their_event(path, column, value, said):
    columns = {name: np.arange(4.0) for name in "txyp"}
    columns[column][2] = value
    with path.open("wb") as file:
        np.savez(file, **columns)
    if not said:
        assert read_events(path).sensor_size == (4, 4, 4)
        return
    with pytest.raises(FileError, match=said):
        read_events(path)


# --- .mat -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint16])
def test_mat_events_are_read(path, count, packed, dtype):
    columns = write.drawn(np.random.default_rng(count), count, (240, 180, 2), longest=60_000)
    names = {"ts": "t", "x": "x", "y": "y", "pol": "p"}
    arrays = {name: columns[own].astype(dtype)[:, None] for name, own in names.items()}
    with path.open("wb") as file:
        scipy.io.savemat(file, arrays | {"note": "a text", "cells": np.array([1, "a"], object)}, do_compression=packed)
    same(read_events(path, (240, 180, 2)), columns)


@pytest.mark.parametrize("packed", [False, True])
def test_mat_structs_are_read(path, packed):
    columns = write.drawn(np.random.default_rng(packed), 40, (304, 240, 2))
    fields = {"x": "x", "y": "y", "p": "p", "ts": "t"}
    struct = {name: columns[own][:, None] + (name == "p") for name, own in fields.items()}
    with path.open("wb") as file:
        several = np.array([{"ts": 1.0}, {"ts": 2.0}], object)
        scipy.io.savemat(
            file, {"TD": struct, "outer": {"EM": struct, "note": "text"}, "list": several}, do_compression=packed
        )
    for struct_name in ("TD", "outer/EM"):
        places = {own: f"{struct_name}/{name}" for name, own in fields.items()}
        same(read_events(path, columns=places), columns | {"p": columns["p"] + 1})
    for options, words in (
        ({}, r"of TD/x, TD/y, TD/p, TD/ts, outer/EM/x, outer/EM/y, outer/EM/p, outer/EM/ts none is t and x and p"),
        (
            {"columns": {"t": "TD/t", "x": "TD/x"}},
            r"the file has columns TD/x, TD/y, TD/p, TD/ts, .* columns asks for 'TD/t'",
        ),
    ):
        with pytest.raises(FileError, match=words):
            read_events(path, **options)


def test_mat_matrix_with_too_few_numbers_raises(path):
    with path.open("wb") as file:
        scipy.io.savemat(file, {name: np.arange(40.0) for name in ("ts", "x", "y", "pol")})
    data = path.read_bytes()
    at = data.index(np.array([1, 40], "<i4").tobytes())
    path.write_bytes(data[:at] + np.array([1 << 30, 1 << 30], "<i4").tobytes() + data[at + 8 :])
    with pytest.raises(FileError, match=r"1073741824x1073741824 numbers are announced in matrix 'ts', and it has 40"):
        read_events(path)


# --- CSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", ", "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\r"])
def test_csv_events_are_read(path, count, delimiter, end):
    columns = write.drawn(np.random.default_rng(count), count)
    for order in ("txyp", "ypxt"):
        write.write_csv(path, columns, order, delimiter, True, end)
        same(read_events(path, (34, 34, 2)), columns)
    write.write_csv(path, columns, "txyp", delimiter, False, end)
    if count > 2:  # otherwise the numbers may be columns in another order
        same(read_events(path, (34, 34, 2)), columns)


def test_csv_column_names_comments_and_byte_order_mark(path):
    path.write_bytes(
        b'\xef\xbb\xbf# made by hand, in \xc2\xb5s\n Timestamp , X,"y",Polarity\n\n10,1,2,-1 # first\n20,3,4,1\n'
    )
    same(read_events(path), {"t": [10, 20], "x": [1, 3], "y": [2, 4], "p": [0, 1]})
    path.write_text("t,x,y,p\n")
    assert len(read_events(path)) == 0
    path.write_text("5 7 0\n6 300 0\n")
    same(read_events(path), {"t": [5, 6], "x": [7, 300], "p": [0, 0]}, (301, 1, 2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,x,y,p\n1,2,3,0\n2,a,3,1\n", r"line 3 \(byte 16\): 4 numbers are expected, not '2,a,3,1'"),
        ("t,x,y,p\n1,2,3,0\n\n2,3,1\n", r"line 4 \(byte 17\): 4 numbers are expected, not '2,3,1'"),
        ("t,x,y,p\n1,2,3,0\n2.5,3,1,1\n", r"line 3 \(byte 16\): t must be integers of microseconds, not 2.5"),
        (
            "t,x,y\n1,2,3\n",
            r"line 1 \(byte 0\): columns t, x, p and optionally y are expected, but of t, x, y none is p",
        ),
        ("hello, world\n", r"line 1 \(byte 0\): columns t, x, p"),
        ("1 2 3 4 5\n", r"line 1 \(byte 0\): a table with one row per event and 3 or 4 columns"),
        ("# nothing\n", r"byte 0: one row per event is expected, but there are no rows"),
        ("t,x,p\nnan,1,1\n", r"line 2 \(byte 6\): t must be integers of microseconds, not nan"),
        ("t,x,p\n1_0,1,1\n", r"rows of 3 numbers are expected"),
    ],
)
def test_invalid_text_raises_at_its_line(path, text, said):
    path.write_text(text)
    with pytest.raises(FileError, match=said):
        read_events(path)


# --- HDF5, as one recording -------------------------------------------------------------------------------------------


def test_hdf5_with_one_sample_is_read_and_with_several_raises(path):
    pytest.importorskip("h5py")
    write.write_shd(path, np.random.default_rng(0), [20])
    events = read_events(path)
    assert events.sensor_size == (700, 1, 1) and len(events) == 20 and events.dtype.names == ("t", "x", "p")
    assert read_events(path, (800, 1, 2)).sensor_size == (800, 1, 2)
    write.write_shd(path, np.random.default_rng(0), [20, 3])
    with pytest.raises(
        FileError, match=r"dataset /labels: one recording is expected, but it has 2: use snncell.data.SHD"
    ):
        read_events(path)


# --- all of them ------------------------------------------------------------------------------------------------------


def test_invalid_files_raise(tmp_path):
    for path, said in (
        (tmp_path / "none", r"none: cannot be read: No such file or directory"),
        (tmp_path, r"one file with events is expected here, but it is a folder"),
        ("a\0b", r"cannot be read: "),
    ):
        with pytest.raises(FileError, match=said):
            read_events(path)
    (tmp_path / "empty").touch()
    with pytest.raises(FileError, match=r"empty, byte 0: events are expected, but the file is empty\."):
        read_events(tmp_path / "empty")
    with pytest.raises(ArgumentError, match=r"read_events: sensor_size must be \(W, H, P\), not \(3, 4\)"):
        read_events(tmp_path / "empty", (3, 4))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with names")
def test_named_pipe_does_not_block(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="it is no regular file"):
        read_events(tmp_path / "pipe")


def test_gzip_file_error_names_gzip(path):
    import gzip

    path.write_bytes(gzip.compress(b"t,x,p\n1,2,0\n"))
    with pytest.raises(FileError, match=r"byte 0: it is compressed by gzip: decompress it first"):
        read_events(path)


def test_read_bin_accepts_decreasing_times(path):
    data = bytes([200, 2, 0, 1, 0, 200, 2, 0, 0, 0])
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"byte 5: .* its times decrease"):
        read_events(path)
    assert binary.read_bin(path, data)["t"].tolist() == [256, 0]


def test_in_memory_stream_is_not_a_path():
    with pytest.raises(ArgumentError, match="path"):
        read_events(io.BytesIO(b"t,x,p\n"))
