"""Damaged and hostile event files: reading returns events or raises a FileError that names the file."""

from __future__ import annotations

import functools
import tracemalloc
from typing import Any

import event_files as write
import numpy as np
import pytest
import scipy.io

from snncell import data
from snncell.data.formats import aedat, binary, tables
from snncell.errors import ArgumentError, FileError

MEMORY = 1 << 28  # bytes: twice the largest unpacked size of a compressed file


def content(kind: str, path, rng) -> bytes:
    """A small file of a format."""
    columns = write.drawn(rng, 12, (100, 90, 2), longest=5000)
    if kind == "bin":
        write.write_bin(path, columns)
    elif kind == "aedat 3":
        write.write_aedat_3(path, columns, rng)
    elif kind == "aedat 2":
        write.write_aedat_2(path, columns)
    elif kind == "davis":
        write.write_aedat_2_of_davis(path, columns, rng, "Davis346")
    elif kind in ("evt 2", "evt 3"):
        {"evt 2": write.write_evt_2, "evt 3": write.write_evt_3}[kind](path, columns, rng)
    elif kind == "dat":
        write.write_dat(path, columns)
    elif kind == "nanoseconds":
        write.write_csv(path, columns | {"t": columns["t"] + 1_700_000_000_000_000_000})
    elif kind == "e2vid":
        write.write_csv(path, columns, "txyp", " ", header=False)
        path.write_bytes(b"240 180\n" + path.read_bytes())
    elif kind == "csv":
        write.write_csv(path, columns)
    elif kind == "table":
        write.write_csv(path, columns, "xytp", " ", header=False)
    elif kind in ("mat", "mat packed", "mat struct"):
        arrays: Any = {"ts": columns["t"], "x": columns["x"], "y": columns["y"], "pol": columns["p"]}
        arrays = {"TD": arrays} if kind == "mat struct" else arrays
        with path.open("wb") as file:
            scipy.io.savemat(file, arrays, do_compression=kind == "mat packed")
    else:
        save = {"npy": np.save, "npz": np.savez, "npz packed": np.savez_compressed}[kind]
        with path.open("wb") as file:
            save(file, write.structured(columns)) if kind == "npy" else save(file, **columns)
    return path.read_bytes()


KINDS = (
    "bin", "aedat 3", "aedat 2", "csv", "table", "mat", "mat packed", "npy", "npz", "npz packed",
    "davis", "evt 2", "evt 3", "dat", "mat struct", "nanoseconds", "e2vid",
)  # fmt: skip
READERS = (
    aedat.read_2, aedat.read_3, binary.read_bin, tables.read_mat, tables.read_npy, tables.read_npz,
    binary.read_prophesee,
)  # fmt: skip
OPTIONS: dict[str, Any] = {
    "mat struct": {"columns": {"t": "TD/ts", "x": "TD/x", "y": "TD/y", "p": "TD/pol"}},
    "nanoseconds": {"time_unit": "ns"},
}


def reader_of(kind: str) -> Any:
    return functools.partial(data.read_events, **OPTIONS.get(kind, {}))


def outcome(path, damaged: bytes, read=data.read_events) -> str:
    """Read a file: "events", or the text of its FileError. Any other error fails the test."""
    path.write_bytes(damaged)
    try:
        events = read(path)
    except ArgumentError as error:  # the file is not a table with the caller's columns
        file, said = str(path) if "apply to tables only" in str(error) else "", str(error)
    except FileError as error:
        file, said = str(error)[: len(str(path))], str(error)[len(str(path)) :]
    else:
        assert events.sensor_size[0] > 0
        return "events"
    assert file == str(path), "the file is named"
    return said


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_file_truncated_at_any_byte_raises_or_has_fewer_events(tmp_path, kind):
    path = tmp_path / "recording"
    whole = content(kind, path, np.random.default_rng(1))
    step = 1 if len(whole) < 600 else 3  # for archives, only every third byte is tested
    said = [outcome(path, whole[:end], reader_of(kind)) for end in range(0, len(whole), step)]
    complete = sum(each == "events" for each in said)
    # The ends of events, packets and digits.
    least = {"bin": 11, "aedat 3": 1, "aedat 2": 12, "csv": 20, "table": 20, "davis": 12, "evt 2": 12, "evt 3": 12}
    least |= {"dat": 12, "nanoseconds": 20, "e2vid": 20}
    words = kind in ("csv", "table", "nanoseconds", "e2vid")
    assert complete >= least.get(kind, 0) and complete < len(said) * (0.95 if words else 0.5)
    if kind not in least:
        assert not complete


def damage(whole: bytes, rng) -> bytes:
    """A few bytes changed, removed, inserted or repeated."""
    changed = bytearray(whole)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(changed)))
        way = int(rng.integers(6))
        if way < 2:
            changed[at] ^= 1 << int(rng.integers(8))
        elif way == 2:
            changed[at] = int(rng.integers(256))
        elif way == 3:
            changed[at : at + 4] = rng.choice([bytes(4), b"\xff" * 4, b"\xff\xff\xff\x7f"]).ljust(4, b"\0")
        elif way == 4:
            del changed[at : at + int(rng.integers(1, 9))]
        else:
            changed[at:at] = changed[: int(rng.integers(1, 20))]
        changed = changed or bytearray(1)
    return bytes(changed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes_raise_or_give_events_in_bounded_memory(tmp_path, kind):
    path = tmp_path / "recording"
    rng = np.random.default_rng(KINDS.index(kind))
    whole = content(kind, path, rng)
    tracemalloc.start()
    try:
        said = [outcome(path, damage(whole, rng), reader_of(kind)) for _ in range(400)]
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert any(each != "events" for each in said)


def test_readers_of_other_formats_raise_or_return_events(tmp_path):
    path = tmp_path / "recording"
    rng = np.random.default_rng(3)
    wholes = [content(kind, path, rng) for kind in KINDS] + [rng.bytes(size) for size in (1, 5, 27, 28, 200, 4000)]
    for whole in wholes:
        for read in READERS:
            outcome(path, whole, lambda path, read=read: read(path, path.read_bytes()))
        if tables.is_text(whole):
            outcome(path, whole, lambda path: tables.read_text(path, path.read_bytes()))
        assert "HDF5 file is expected" in outcome(path, whole, lambda path: data.SHD(path)[0][0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("magic", [
    b"#!AER-DAT3.1\r\n#!END-HEADER\r\n", b"#!AER-DAT2.0\r\n", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", b"PK\x03\x04",
    b"PK\x05\x06", b"MATLAB 5.0 MAT-file" + b" " * 105 + b"\0\1IM", b"\x89HDF\r\n\x1a\n", b"t,x,y,p\n", b"",
])  # fmt: skip
def test_random_bytes_after_a_valid_magic_number(tmp_path, magic):
    path = tmp_path / "recording"
    rng = np.random.default_rng(len(magic))
    for size in [*range(40), 100, 1000, 5000]:
        for rest in (rng.bytes(size), bytes(size), b"\xff" * size, bytes(rng.choice(list(b"0123456789 ,\n"), size))):
            outcome(path, magic + rest)


def test_decompression_bomb_in_a_mat_file_raises(tmp_path):
    path = tmp_path / "recording"
    with path.open("wb") as file:
        zeros = np.zeros((1 << 24, 1))
        scipy.io.savemat(file, {"ts": zeros, "x": zeros}, do_compression=True)
    assert path.stat().st_size < 1 << 19
    assert "it unpacks to more than" in outcome(path, path.read_bytes())


# --- HDF5 by h5py: the HDF5 library detects only some damage ----------------------------------------------------------


@pytest.fixture
def shd_file(tmp_path):
    pytest.importorskip("h5py")
    write.write_shd(tmp_path / "whole.h5", np.random.default_rng(0), [5, 0, 9], chunks=(2,))
    return tmp_path / "shd.h5", (tmp_path / "whole.h5").read_bytes()


def all_samples(path):
    dataset = data.SHD(path)
    events, *_ = (dataset[index][0] for index in range(len(dataset)))
    return events


def test_hdf5_truncated_at_any_byte_raises(shd_file):
    path, whole = shd_file
    for end in range(0, len(whole), 23):
        said = outcome(path, whole[:end], all_samples)
        assert "byte 0" in said or "cannot be read: OSError: Unable to synchronously open file" in said, end


@pytest.mark.parametrize("signature", [b"GCOL", b"TREE", b"SNOD", b"HEAP"])
def test_hdf5_with_a_missing_signature_raises(shd_file, signature):
    path, whole = shd_file
    places = [at for at in range(len(whole)) if whole.startswith(signature, at)]
    said = [outcome(path, whole[:at] + bytes(4) + whole[at + 4 :], all_samples) for at in places]
    assert any("cannot be read: " in each for each in said)
    if signature == b"GCOL":
        assert any("dataset /extra/keys: cannot be read: OSError: " in each for each in said)


def test_flipped_bits_in_hdf5_spikes_raise_or_give_events(shd_file):
    path, whole = shd_file
    rng = np.random.default_rng(2)
    times = data.SHD(path.with_name("whole.h5"))[2][0]["t"] / 1e6
    place = whole.index(times.astype("<f2").tobytes())
    said = []
    for _ in range(200):
        changed = bytearray(whole)
        changed[place + int(rng.integers(2 * len(times)))] ^= 1 << int(rng.integers(8))
        said.append(outcome(path, bytes(changed), all_samples))
    assert "events" in said
    assert any("dataset /spikes/times, index 2: times in seconds are expected" in each for each in said)


def test_class_names_must_be_text(shd_file):
    h5py = pytest.importorskip("h5py")
    path, whole = shd_file
    path.write_bytes(whole)
    with h5py.File(path, "a") as file:
        del file["extra/keys"]
        rows = file.create_dataset("extra/keys", (3,), h5py.vlen_dtype(np.int32))
        rows[0] = [1, 2]
    with pytest.raises(FileError, match=r"dataset /extra/keys: text is expected, not object"):
        data.SHD(path)


def test_chunks_larger_than_the_file_are_not_allocated(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "shd.h5"
    write.write_shd(path, np.random.default_rng(0), [3, 4])
    with h5py.File(path, "a") as file:
        del file["labels"]
        file.create_dataset("labels", data=np.zeros(2, "i8"), maxshape=(None,), chunks=(1 << 24,), compression="gzip")
    with pytest.raises(FileError, match=r"dataset /labels: chunks \(16777216,\) of int64 are too large for a file"):
        data.SHD(path)
