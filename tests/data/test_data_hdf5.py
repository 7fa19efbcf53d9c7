"""HDF5 files: columns at any path, layouts of published data sets, small chunks, labels without names."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path
from typing import Any

import event_files as write
import numpy as np
import pytest
from random_cases import random_cases

from snncell import data
from snncell.data import read_events
from snncell.errors import FileError

h5py = pytest.importorskip("h5py")

MICROSECONDS = {"t": "<i8", "x": "<u2", "y": "<u2", "p": "u1"}


def separate(file: Any, columns: write.Columns, rng: Any) -> dict[str, str]:
    """DSEC, e2vid: a dataset for each column, in one group."""
    group, suffix = str(rng.choice(["events", "", "a/b c"])), str(rng.choice(["", "s"]))
    paths = {name: f"{group}/{name}{suffix}".strip("/") for name in columns}
    for name, column in columns.items():
        shape = column.shape if rng.random() < 0.7 else (1, len(column))  # vectors written by MATLAB
        file.create_dataset(paths[name], data=column.astype(MICROSECONDS[name]).reshape(shape), chunks=True)
    return paths


def table(file: Any, columns: write.Columns, rng: Any) -> dict[str, str]:
    """MVSEC, v2e: a 2-D table whose columns have a given order."""
    path, order = str(rng.choice(["events", "davis/left/events"])), rng.permutation(list(columns)).tolist()
    dtype = rng.choice(["<f8", "<i8", "<u4"])
    file[path] = np.stack([columns[name] for name in order], 1).astype(dtype)
    return {name: f"/{path}/{order.index(name)}" for name in columns}


def compound(file: Any, columns: write.Columns, rng: Any) -> dict[str, str]:
    """aertb: records with a field for each column."""
    records = np.zeros(len(columns["t"]), [(name, MICROSECONDS[name]) for name in rng.permutation(list(columns))])
    for name, column in columns.items():
        records[name] = column
    file.create_dataset("0/00004", data=records, chunks=(16,), compression="gzip")
    return {name: f"0/00004/{name}" for name in columns}


@pytest.mark.parametrize("layout", [separate, table, compound])
@random_cases(2)
def test_columns_are_read_from_their_paths(tmp_path: Path, layout: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = write.drawn(rng, int(rng.integers(1, 60)), (640, 480, 2))
    for name in rng.choice(["y", "p", "all", "all"], 1):
        columns.pop(name, None)
    with h5py.File(tmp_path / "file", "w") as file:
        paths = layout(file, columns, rng)
        file["other"] = np.zeros((3, 3, 3))
    events = read_events(tmp_path / "file", columns=paths)
    for name in events.dtype.names:
        np.testing.assert_array_equal(events[name], columns.get(name, 0), name)


def test_times_in_seconds_with_an_explicit_sensor(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w") as file:
        file["events"] = [[3, 5, 1504645177.4156, 1], [4, 6, 1504645177.4251, -1]]  # MVSEC's: x, y, t, p
    paths = {"x": "events/0", "y": "events/1", "t": "events/2", "p": "events/3"}
    events = read_events(tmp_path / "file", (346, 260, 2), columns=paths, time_unit="s")
    assert events.tolist() == [(1504645177415600, 3, 5, 1), (1504645177425100, 4, 6, 0)]
    assert events.sensor_size == (346, 260, 2)
    with pytest.raises(FileError, match=r"event 0: x must be at least 0 and below 3 of sensor_size \(3, 9, 2\), not 3"):
        read_events(tmp_path / "file", (3, 9, 2), columns=paths, time_unit="s")
    with pytest.raises(FileError, match=r'event 0: t must be integers of microseconds, .* pass time_unit="s"'):
        read_events(tmp_path / "file", columns=paths)


def test_errors_list_the_contents_of_the_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w") as file:
        file["events/t"], file["events/x"] = np.arange(4), np.arange(4, dtype="u2")
        file["table"] = np.zeros((5, 4), np.float32)
        file["records"] = np.zeros(3, [("ts", "i8"), ("on", "?")])
        file["text"] = np.array([b"a", b"b"])
        file["elsewhere"] = h5py.ExternalLink("other.h5", "a")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a"] = np.arange(4)
    contents = (
        r"The file has events/t \(int64 4\), events/x \(uint16 4\), records/ts \(3\), records/on \(3\), "
        r"table/0 to table/3 \(float32 5x4\), text \(\|S1 2\)"
    )
    for columns, words in (
        (
            None,
            r'to read another layout, pass its paths, for example columns=\{"t": "events/t", "x": "events/x"\}\. '
            + contents,
        ),
        ({"t": "events/ts", "x": "events/x"}, r"there is no dataset 'events/ts'\. " + contents),
        ({"t": 0, "x": 1}, r"there is no dataset '0'\. " + contents),
        ({"t": "events", "x": "events/x"}, r"there is no dataset 'events'\. " + contents),
        ({"t": "table/4", "x": "events/x"}, r"dataset /table: it has no field or column '4'\. " + contents),
        ({"t": "records/t", "x": "events/x"}, r"dataset /records: it has no field or column 't'\. " + contents),
        ({"t": "table", "x": "events/x"}, r"dataset /table: numbers along one axis are expected\. " + contents),
        ({"t": "text", "x": "events/x"}, r"dataset /text: real numbers along one axis are expected, not \|S1\."),
        ({"t": "elsewhere", "x": "events/x"}, r"dataset /elsewhere: its numbers must be stored in this file"),
        ({"t": "events/t", "x": "records/on"}, r"columns of one length are expected"),
    ):
        with pytest.raises(FileError, match=rf"file(, |: ).*{words}"):
            read_events(tmp_path / "file", columns=columns)


def test_compressed_columns_name_the_required_package(tmp_path: Path) -> None:
    for code, words in (
        (36559, r"Prophesee's codec ECF: convert the file by metavision_file_to_csv of OpenEB"),
        (32004, r"filter 32004 \(no name\), which h5py does not have: pip install hdf5plugin"),
    ):
        if h5py.h5z.filter_avail(code):
            pytest.skip(f"filter {code} is installed")
        with h5py.File(tmp_path / "file", "w") as file:
            settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            settings.set_chunk((4,))
            settings.set_filter(code, h5py.h5z.FLAG_OPTIONAL)
            file.create_group("CD")
            records = h5py.h5t.py_create(np.dtype([("t", "i8"), ("x", "u2")]))
            h5py.h5d.create(file.id, b"CD/events", records, h5py.h5s.create_simple((8,)), settings)
        for columns in ({"t": "CD/events/t", "x": "CD/events/x"}, None):
            with pytest.raises(FileError, match=rf"dataset /CD/events: it is compressed by {words}"):
                read_events(tmp_path / "file", columns=columns)


def test_columns_larger_than_the_file_are_not_allocated(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w") as file:
        for name in "tx":
            file.create_dataset(name, (1 << 40,), "i8", chunks=(1 << 10,), compression="gzip")
    with pytest.raises(FileError, match=r"dataset /t: shape \(1099511627776,\) of int64 is too large for a file"):
        read_events(tmp_path / "file", columns={"t": "t", "x": "x"})


def test_damaged_columns_raise_a_file_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "whole", "w") as file:
        paths = separate(file, write.drawn(rng, 50), np.random.default_rng(1))
    whole = (tmp_path / "whole").read_bytes()
    used = np.flatnonzero(np.frombuffer(whole, np.uint8))
    for number in range(8):
        changed = bytearray(whole[: len(whole) // 2] if number == 0 else whole)
        for at in rng.choice(used[used < len(changed)], 3):
            changed[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "file").write_bytes(changed)
        with contextlib.suppress(FileError):
            assert read_events(tmp_path / "file", columns=paths).sensor_size[2] >= 2


def write_small(path: Path, samples: int, labels: Any, **options: Any) -> None:
    """SHD's layout without names, with one or two spikes per sample."""
    with h5py.File(path, "w") as file:
        for name, dtype in (("times", np.float16), ("units", np.uint16)):
            rows = np.empty(samples, object)
            rows[:] = [np.full(1 + number % 2, number % 700, dtype) for number in range(samples)]
            file.create_dataset(f"spikes/{name}", (samples,), h5py.vlen_dtype(dtype), **options)[...] = rows
        file["labels"] = labels


def test_file_with_20000_chunks_is_read(tmp_path: Path) -> None:
    write_small(tmp_path / "shd.h5", 20_000, np.arange(20_000) % 20, chunks=(1,))
    dataset = data.SHD(tmp_path / "shd.h5")
    assert len(dataset) == 20_000
    assert [(len(events), int(events["x"][0]), label) for events, label in (dataset[7], dataset[19_999])] == [
        (2, 7, 7),
        (2, 19_999 % 700, 19),
    ]


@pytest.mark.parametrize("label", [1 << 16, 1 << 26, (1 << 62) + 1])
def test_large_label_does_not_create_class_names(tmp_path: Path, label: int) -> None:
    write_small(tmp_path / "shd.h5", 3, np.array([0, 1, label]))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=rf"dataset /labels, index 2: a label from 0 to 65535 .*, not {label}"):
            data.SHD(tmp_path / "shd.h5")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_largest_label_without_class_names(tmp_path: Path) -> None:
    write_small(tmp_path / "shd.h5", 3, np.array([0, 1, 65_535], np.uint16))
    assert data.SHD(tmp_path / "shd.h5").classes[-1] == "65535"
