"""AEDAT 2.0, 3.1 and 4: random recordings, a recording by another package, camera chips, damaged files."""

from __future__ import annotations

import hashlib
import sys
import types
from pathlib import Path

import event_files as write
import numpy as np
import pytest
from random_cases import random_cases

from snncell.data import read_events
from snncell.data.formats import aedat
from snncell.errors import ArgumentError, FileError

COUNTS = (1, 2, 7, 400)
FAERY = Path(__file__).parents[1] / "recordings" / "faery.aedat4"  # 2,000 events of a Prophesee camera, by faery 0.7.1


def same(events, columns, sensor=None) -> None:
    for name in "txyp":
        np.testing.assert_array_equal(events[name], columns[name], name)
    assert sensor is None or events.sensor_size == sensor


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording"


# --- AEDAT 3.1 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("size", "offset"), [(8, 4), (12, 8), (20, 13)])
def test_aedat_3_events_are_read(path, count, size, offset):
    rng = np.random.default_rng(count + size)
    columns = write.drawn(rng, count, (128, 128, 2), longest=2**33)
    write.write_aedat_3(path, columns, rng, size, offset)
    same(read_events(path), columns, (128, 128, 2))


@random_cases(10)
def test_aedat_3_packets_with_unused_capacity(path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = write.drawn(rng, int(rng.integers(1, 200)), (128, 128, 2), longest=2**33)
    write.write_aedat_3(path, columns, rng, *((8, 4), (12, 8))[seed % 2], reserved=True)
    same(read_events(path), columns, (128, 128, 2))


@pytest.mark.parametrize("seed", range(8))
def test_aedat_3_slices(path, seed):
    rng = np.random.default_rng(seed)
    columns = write.drawn(rng, 300, (128, 128, 2), longest=5000)
    write.write_aedat_3(path, columns, rng)
    begin, end = np.sort(rng.integers(-100, 5100, 2))
    chosen = (columns["t"] >= begin) & (columns["t"] < end)
    events = aedat.read_3(path, path.read_bytes(), None, int(begin), int(end))
    same(events, {name: column[chosen] for name, column in columns.items()})


def test_aedat_3_packet_header_fields_are_respected(path):
    def event(t, x, y, p, valid):
        return np.array([x << 17 | y << 2 | p << 1 | valid, t], "<u4").tobytes()

    body = event(5, 3, 4, 1, 0) + event(6, 0x7FFF, 0x7FFE, 0, 1)
    head = b"#!AER-DAT3.1\r\n#!END-HEADER\r\n"
    path.write_bytes(head + write.packet(1, 8, 4, 2, body, valid=1))
    same(read_events(path), {"t": [2**32 + 6], "x": [0x7FFF], "y": [0x7FFE], "p": [0]}, (0x8000, 0x7FFF, 2))
    path.write_bytes(head + write.packet(1, 8, 4, 0, body, valid=2))  # all are valid, whatever their valid bits are
    same(read_events(path), {"t": [5, 6], "x": [3, 0x7FFF], "y": [4, 0x7FFE], "p": [1, 0]})
    path.write_bytes(head)
    assert len(read_events(path)) == 0


@pytest.mark.parametrize(
    ("word", "value", "said"),
    [
        (4, 4, r"byte 32: events of at least 8 bytes are expected, not 4,"),
        (4, 0, r"byte 32: events of at least 8"),
        (8, 6, r"byte 36: the place of the time in an event of 8 bytes is expected, not 6,"),
        (12, -1, r"byte 40: a number of overflows of time is expected, not -1,"),
        (20, 3, r"byte 48: a number of events from 0 to the capacity, 2, is expected, not 3,"),
        (20, -1, r"byte 48: a number of events"),
        (24, 3, r"byte 52: a number of valid events from 0 to 2 is expected, not 3,"),
        (24, 0, r"byte 52: 0 valid events are announced in the header of a packet, but 1 are marked as valid"),
        (32, -1, r"byte 60: a time of 31 bits is expected, not a negative one"),
    ],
)
def test_damaged_packet_error_names_its_byte(path, word, value, said):
    head = b"#!AER-DAT3.1\r\n#!END-HEADER\r\n"
    data = bytearray(head + write.packet(1, 8, 4, 0, np.array([1, 5, 0, 6], "<u4").tobytes(), valid=1))
    assert len(head) == 28
    data[28 + word : 32 + word] = np.array([value], "<i4").tobytes()
    path.write_bytes(data)
    with pytest.raises(FileError, match=said):
        read_events(path)


def test_packet_larger_than_the_file_raises(path):
    header = np.array([1 << 16 | 1, 2**30, 4, 0, 2**31 - 1, 2**31 - 1, 0], "<i4").tobytes()
    path.write_bytes(write.HEADER_3 + header)
    with pytest.raises(FileError, match=r"2147483647 events of 1073741824 bytes are announced, but 0 bytes are left"):
        read_events(path)


def test_compressed_aedat_3_and_unknown_versions_raise(path):
    path.write_bytes(write.HEADER_3.replace(b"RAW", b"Serialized-TS"))
    with pytest.raises(FileError, match=r"byte 14: packets are read as #Format: RAW, not b'Serialized-TS'"):
        read_events(path)
    for version, said in (("3.0", "versions 2.0, 3.1 and 4"), ("1.0", "versions 2.0, 3.1 and 4")):
        path.write_bytes(f"#!AER-DAT{version}\r\n".encode())
        with pytest.raises(FileError, match=rf"byte 0: .*{said}"):
            read_events(path)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "header", [b"#!AER-DAT2.0\r\n", b"#!AER-DAT2.0\n# one\n#two\n", b"#!AER-DAT2.0\r\n#End Of ASCII Header\r\n"]
)
def test_aedat_2_events_are_read(path, count, header):
    columns = write.drawn(np.random.default_rng(count), count, (128, 128, 2), longest=2**32)
    if b"End" in header:
        columns["y"][0] = 35  # the first byte after the zeros of the address is "#"
    write.write_aedat_2(path, columns, header)
    same(read_events(path), columns, (128, 128, 2))


def test_aedat_2_skips_pulses_and_rejects_unknown_cameras(path):
    words = np.array([[0x8001, 1], [4 << 8 | 3 << 1 | 1, 2]], ">u4")
    path.write_bytes(b"#!AER-DAT2.0\r\n" + words.tobytes())
    same(read_events(path), {"t": [2], "x": [3], "y": [4], "p": [1]})
    words[1, 0] = 1 << 22
    path.write_bytes(b"#!AER-DAT2.0\r\n" + words.tobytes())
    with pytest.raises(FileError, match=r"byte 22: an address of 16 bits, as a DVS128 has them.* not 0x400000"):
        read_events(path)
    path.write_bytes(b"#!AER-DAT2.0\r\n" + words.tobytes()[:-3])
    with pytest.raises(FileError, match=r"byte 22: an event of 8 bytes is expected, but the file has 5 more"):
        read_events(path)


CHIPS = {
    "eu.seebetter.ini.chips.davis.Davis346B": (346, 260, 2),
    "eu.seebetter.ini.chips.davis.DAVIS240C": (240, 180, 2),
    "eu.seebetter.ini.chips.davis.Davis640": (640, 480, 2),
    "davis208": (208, 192, 2),
}


@pytest.mark.parametrize("chip", CHIPS)
@random_cases(3)
def test_aedat_2_of_a_davis_camera(path, chip: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = write.drawn(rng, int(rng.integers(1, 200)), CHIPS[chip], longest=2**32)
    write.write_aedat_2_of_davis(path, columns, rng, chip)
    same(read_events(path), columns, CHIPS[chip])


def test_aedat_2_with_an_explicit_chip_name(path) -> None:
    columns = write.drawn(np.random.default_rng(0), 20, (128, 128, 2))
    for chip in ("ch.unizh.ini.jaer.chip.retina.DVS128", "class ch.unizh.ini.jaer.chip.retina.Tmpdiff128"):
        write.write_aedat_2(path, columns, f"#!AER-DAT2.0\n# AEChip: {chip}\n".encode())
        same(read_events(path), columns, (128, 128, 2))
    write.write_aedat_2(path, columns, b"#!AER-DAT2.0\n# AEChip: ch.unizh.ini.jaer.chip.cochlea.CochleaAMS1c\n")
    with pytest.raises(
        FileError, match=r"byte 13: AEDAT 2.0 is read of a DVS128 and of DAVIS chips, not of AEChip 'ch"
    ):
        read_events(path)


# --- AEDAT 4 ----------------------------------------------------------------------------------------------------------


def test_aedat_4_events_are_read() -> None:
    pytest.importorskip("aedat")
    events = read_events(FAERY)
    assert len(events) == 2000 and events.sensor_size == (640, 480, 2)
    assert events[:2].tolist() == [(913716224, 35, 443, 1), (913716224, 36, 443, 1)] and events["t"][-1] == 913716303
    digest = hashlib.sha256(b"".join(events[name].astype("<i8").tobytes() for name in "txyp"))
    assert digest.hexdigest() == "d772b38013808ccdb27922431d277ab9b5b4752ed5307c14b609a7b6aa634b75"
    with pytest.raises(FileError, match=r"faery\.aedat4, event \d+: x must be at least 0 and below 50 of sensor_size"):
        read_events(FAERY, (50, 480, 2))
    with pytest.raises(ArgumentError, match="columns and time_unit apply to tables"):
        read_events(FAERY, time_unit="ms")


def test_aedat_4_without_its_package_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aedat", None)
    with pytest.raises(FileError, match=r"AEDAT 4 needs aedat: pip install snncell\[events\]"):
        read_events(FAERY)


def test_damaged_aedat_4_raises_a_file_error(path) -> None:
    pytest.importorskip("aedat")
    whole = FAERY.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(8):
        damaged = bytearray(whole)
        at = int(rng.integers(14, 60 if number % 2 else len(whole)))
        damaged[at : at + 4] = b"\xff\xff\xff\x7f"
        path.write_bytes(damaged if number else whole[: len(whole) // 2])
        try:
            assert read_events(path).sensor_size == (640, 480, 2)
        except FileError as error:
            refused += str(error).startswith(f"{path}: ")
    assert refused > 5


def test_panic_in_the_aedat_package_raises_a_file_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):  # like pyo3's class
        pass

    def panic(path: str) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setitem(sys.modules, "aedat", types.SimpleNamespace(Decoder=panic))
    with pytest.raises(FileError, match=r"faery\.aedat4: cannot be read: PanicException: called"):
        read_events(FAERY)
