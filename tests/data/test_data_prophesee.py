"""Prophesee RAW and DAT files: events of random recordings, time counter overflow, headers, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import event_files as write
import numpy as np
import pytest
from random_cases import random_cases

from snncell.data import read_events
from snncell.errors import ArgumentError, FileError


def random_recording(rng: Any, bits: int, sensor: tuple[int, int, int] = (640, 480, 2)) -> write.Columns:
    """Random events sorted by t, y, p and x, without repetitions, over several turns of a counter with `bits` bits."""
    count = int(rng.integers(1, 80))
    turn = 1 << bits
    span = int(rng.choice([300, 5000, turn // 3]))
    start = int(rng.integers(0, turn))
    t = start + np.cumsum(rng.integers(0, max(span // count, 2), count))
    t -= t[0] // turn * turn  # the first time is in the first turn, because a file does not store turns
    rows = np.stack([t, rng.integers(0, sensor[1], count), rng.integers(0, 2, count), rng.integers(0, 40, count)], 1)
    crowd = rows.repeat(int(rng.integers(1, 6)), 0)
    crowd[:, 3] += (
        rng.integers(0, sensor[0] - 40, len(crowd)) if rng.random() < 0.3 else rng.integers(0, 30, len(crowd))
    )
    rows = np.unique(crowd, axis=0)
    return dict(zip("typx", rows.T, strict=True))


def same(events: Any, columns: write.Columns) -> None:
    for name in "txyp":
        np.testing.assert_array_equal(events[name], columns[name], name)


FORMATS = {  # the writer, and the number of bits of times in the file
    "EVT 2.0": (write.write_evt_2, 34),
    "EVT 3.0": (write.write_evt_3, 24),
    "DAT": (lambda path, columns, rng: write.write_dat(path, columns), 32),
}


@pytest.mark.parametrize("kind", FORMATS)
@random_cases(15)
def test_all_events_are_read(tmp_path: Path, kind: str, seed: int) -> None:
    put, bits = FORMATS[kind]
    rng = np.random.default_rng(seed)
    columns = random_recording(rng, bits)
    put(tmp_path / "file", columns, rng)
    events = read_events(tmp_path / "file")
    same(events, columns)
    assert events.sensor_size == (640, 480, 2)
    same(read_events(tmp_path / "file", (2000, 2000, 2)), columns)


@pytest.mark.parametrize("kind", FORMATS)
def test_times_continue_after_counter_overflow(tmp_path: Path, kind: str) -> None:
    put, bits = FORMATS[kind]
    turn = 1 << bits
    t = np.arange(turn // 2, 3 * turn + 1, turn // 4) + 7
    columns = {"t": t} | {name: np.arange(len(t)) + shift for name, shift in (("x", 3), ("y", 7))}
    columns["p"] = columns["x"] % 2
    put(tmp_path / "file", columns, np.random.default_rng(0))
    same(read_events(tmp_path / "file"), columns)


def words_of(*words: int, dtype: str = "<u2") -> bytes:
    return np.array(words, dtype).tobytes()


EVT_3 = write.HEADER_RAW.replace(b"2.0", b"3.0")


def test_lower_time_bits_may_decrease(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(EVT_3 + words_of(0x8001, 0x0005, 0x6009, 0x2001, 0x6004, 0x2802, 0x8001, 0x2003, 0x8002, 0x2004))
    assert read_events(path).tolist() == [
        (4096 + 9, 1, 5, 0),
        (4096 + 4, 2, 5, 1),
        (4096 + 4, 3, 5, 0),  # the same upper bits keep the lower bits
        (8192, 4, 5, 0),  # other upper bits reset the lower bits to 0
    ]


def test_vectors_continue_after_the_previous_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    vectors = (0x3000 | 1 << 11 | 100, 0x4801, 0x2007, 0x5F81, 0x4001, 0x3005, 0x5001)
    path.write_bytes(EVT_3 + words_of(0x8000, 0x6001, 0x4001, 0x0003, *vectors))
    xs = [(100, 1), (111, 1), (7, 0), (112, 1), (119, 1), (120, 1), (5, 0)]
    assert read_events(path).tolist() == [(1, x, 3, p) for x, p in xs]  # a vector before a base is skipped


HEADERS: list[tuple[bytes, Any]] = [
    (b"% evt 2.0\n", (6, 8, 2)),
    (b"% format EVT2;height=720;width=1280\n% end\n", (1280, 720, 2)),
    (b"% evt 2.0\n% plugin_name hal_plugin_gen3_fx3\n", (640, 480, 2)),
    (b"% evt 2.0\n% plugin_name hal_plugin_gen41_evk3\n", (1280, 720, 2)),
    (b"% evt 2.0\r\n% geometry 320x320\r\n% end\r\n", (320, 320, 2)),
    (b"% evt 2.0\n% geometry 99999x1\n", (6, 8, 2)),
]


@pytest.mark.parametrize(("header", "sensor"), HEADERS)
def test_sensor_size_comes_from_the_header(tmp_path: Path, header: bytes, sensor: Any) -> None:
    columns = {"t": np.array([70, 90]), "x": np.array([5, 4]), "y": np.array([7, 0]), "p": np.array([1, 0])}
    write.write_evt_2(tmp_path / "file", columns, np.random.default_rng(0), header)
    events = read_events(tmp_path / "file")
    same(events, columns)
    assert events.sensor_size == sensor


@pytest.mark.parametrize("version", [1, 2])
def test_dat_files_of_both_versions_are_read(tmp_path: Path, version: int) -> None:
    rng = np.random.default_rng(version)
    columns = write.drawn(rng, 50, (304, 240, 2))
    write.write_dat(tmp_path / "file", columns, version, None)
    same(read_events(tmp_path / "file", (304, 240, 2)), columns)
    write.write_dat(tmp_path / "file", columns, 2, (304, 240))
    assert read_events(tmp_path / "file").sensor_size == (304, 240, 2)


def test_empty_recordings_have_no_events(tmp_path: Path) -> None:
    for content in (write.HEADER_RAW, EVT_3, b"% Version 2\n" + bytes([12, 8])):
        (tmp_path / "file").write_bytes(content)
        assert len(read_events(tmp_path / "file")) == 0


WRONG: list[tuple[bytes, str]] = [
    (
        write.HEADER_RAW + bytes(5),
        r"byte 74: a word of 4 bytes is expected, as EVT 2.0 has them, and the file has 1 more",
    ),
    (EVT_3 + bytes(3), r"byte 72: a word of 2 bytes is expected, as EVT 3.0 has them, and the file has 1 more"),
    (
        b"% evt 2.1\n% end\n",
        r"EVT 2.0 and EVT 3.0 are read, and its encoding is EVT 2.1: convert it by the package faery",
    ),
    (
        b"% format EVT4;width=3\n",
        r"its encoding is EVT 4.0: convert it by the package faery, or by metavision_file_to_dat",
    ),
    (b"% Version 2\n" + bytes([14, 8]), r"byte 12: DAT's CD events of 8 bytes are expected, .* not type 14 of 8 bytes"),
    (b"% Version 2\n", r"byte 12: DAT's CD events"),
    (b"% Version 3\n" + bytes([12, 8]), r"DAT is read in versions 1 and 2, not '3': convert it"),
    (b"% Version 2\n" + bytes([12, 8, 1]), r"byte 14: a word of 8 bytes is expected, as DAT has them"),
    (
        b"Event Stream" + bytes(9),
        r"byte 0: Event Stream \(\.es\) is not read: convert it to \.csv by the package faery",
    ),
    (
        b"#ROSBAG V2.0\n" + bytes(9),
        r"byte 0: ROS bags are not read: convert the events to \.npy by the package rosbags",
    ),
    (
        write.HEADER_RAW.replace(b"640x480", b"3x480") + words_of(0x80000000, 1 << 28 | 3 << 11, dtype="<u4"),
        r"byte 72: x must be at least 0 and below 3 of sensor_size \(3, 480, 2\), not 3",
    ),
]


@pytest.mark.parametrize(("content", "words"), WRONG)
def test_invalid_files_raise(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileError, match=words):
        read_events(tmp_path / "file")


def test_columns_argument_applies_only_to_tables(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(write.HEADER_RAW)
    with pytest.raises(ArgumentError, match=r"columns and time_unit apply to tables"):
        read_events(tmp_path / "file", time_unit="ms")
