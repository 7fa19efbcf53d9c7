"""Writers of event files in the formats of cameras and datasets, for tests of the readers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("t", "x", "y", "p")
Columns = dict[str, np.ndarray]


def drawn(rng: Any, count: int, sensor=(34, 34, 2), longest: int = 300_000) -> Columns:
    """Random events sorted by time."""
    columns = {"t": np.sort(rng.integers(0, longest, count))}
    return columns | {name: rng.integers(0, size, count) for name, size in zip("xyp", sensor, strict=True)}


def write_bin(path: Path, columns: Columns) -> None:
    """N-MNIST format: times above 23 bits need several overflow markers."""
    out, passed = bytearray(), 0
    for t, x, y, p in zip(*(columns[name].tolist() for name in NAMES), strict=True):
        while t - passed * 2**13 >= 2**23:
            out += bytes([0, 240, 0, 0, 0])
            passed += 1
        rest = t - passed * 2**13
        out += bytes([x, y, p << 7 | rest >> 16, rest >> 8 & 255, rest & 255])
    path.write_bytes(out)


HEADER_3 = b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#!END-HEADER\r\n"


def packet(kind: int, size: int, offset: int, overflow: int, body: bytes, valid: int, spare: int = 0) -> bytes:
    number = len(body) // size
    return struct.pack("<HHiiiiii", kind, 1, size, offset, overflow, number + spare, number, valid) + body


def write_aedat_3(
    path: Path, columns: Columns, rng: Any, size: int = 8, offset: int = 4, reserved: bool = False
) -> None:
    """DVS Gesture format: packets of events with invalid events between them, and packets of other types.

    A packet's capacity can exceed its number of events. With `reserved`, the file contains this unused room, filled
    with zeros or old events.
    """
    out, count, start = bytearray(HEADER_3), len(columns["t"]), 0
    while start < count:
        overflow = int(columns["t"][start]) >> 31
        stop = min(start + int(rng.integers(1, 20)), count)
        stop = start + int((columns["t"][start:stop] >> 31 == overflow).sum())
        body, valid = bytearray(), 0
        for t, x, y, p in zip(*(columns[name][start:stop].tolist() for name in NAMES), strict=True):
            for good in [*[0] * int(rng.random() < 0.2), 1]:
                event = bytearray(rng.bytes(size))
                event[0:4] = struct.pack("<I", x << 17 | y << 2 | p << 1 | good)
                event[offset : offset + 4] = struct.pack("<I", t & 2**31 - 1)
                body += event
                valid += good
        spare = int(rng.integers(3))
        out += packet(1, size, offset, overflow, bytes(body), valid, spare)
        old = body[:size] if rng.random() < 0.5 else bytes(size)
        out += bytes(old) * spare * reserved
        if rng.random() < 0.5:
            out += packet(int(rng.choice([0, 2, 3])), 12, 4, 0, rng.bytes(12 * int(rng.integers(0, 4))), 0)
        start = stop
    path.write_bytes(out)


def write_aedat_2(path: Path, columns: Columns, header: bytes = b"#!AER-DAT2.0\r\n# a line\r\n") -> None:
    addresses = columns["y"] << 8 | columns["x"] << 1 | columns["p"]
    path.write_bytes(header + np.stack([addresses, columns["t"]], 1).astype(">u4").tobytes())


def write_aedat_2_of_davis(path: Path, columns: Columns, rng: Any, chip: str) -> None:
    """jAER format, with frames and external pulses between pixel events."""
    addresses = columns["y"] << 22 | columns["x"] << 12 | columns["p"] << 11
    words = np.stack([addresses, columns["t"]], 1)
    others = rng.choice([1 << 31 | 5 << 22, 1 << 31 | 1 << 10, 1 << 10, 7 << 12 | 1 << 10], (len(words), 2))
    places = np.flatnonzero(rng.random(len(words)) < 0.3)
    words = np.insert(words, places, others[: len(places)], axis=0)
    path.write_bytes(f"#!AER-DAT2.0\r\n# AEChip: {chip}\r\n".encode() + words.astype(">u4").tobytes())


HEADER_RAW = b"% camera_integrator_name Prophesee\n% evt 2.0\n% geometry 640x480\n% end\n"


def write_evt_2(path: Path, columns: Columns, rng: Any, header: bytes = HEADER_RAW) -> None:
    """EVT 2.0: a word with the upper time bits at every change, and triggers and other words between events."""
    words: list[int] = [1 << 28 | 5 << 11 | 5] * int(rng.integers(2))  # an event before the first time has none
    high = -1
    for t, x, y, p in zip(*(columns[name].tolist() for name in NAMES), strict=True):
        if t >> 6 != high or rng.random() < 0.1:
            high = t >> 6
            words.append(0x8 << 28 | high & (1 << 28) - 1)
        words += [int(rng.choice([0xA, 0xE, 0xF])) << 28 | int(rng.integers(1 << 28))] * int(rng.integers(2))
        words.append(p << 28 | (t & 63) << 22 | x << 11 | y)
    path.write_bytes(header + np.array(words, "<u4").tobytes())


def write_evt_3(path: Path, columns: Columns, rng: Any, header: bytes | None = None) -> None:
    """EVT 3.0 for events sorted by t, y, p and x: words for changes, then single pixels or vectors of pixels."""
    header = HEADER_RAW.replace(b"2.0", b"3.0") if header is None else header
    words: list[int] = [0x2 << 12 | 3] * int(rng.integers(2))  # a pixel before the first time has none
    time = -1
    rows: dict[tuple[int, int, int], list[int]] = {}
    for t, x, y, p in zip(*(columns[name].tolist() for name in NAMES), strict=True):
        rows.setdefault((t, y, p), []).append(x)
    for (t, y, p), pixels in rows.items():
        if t >> 12 != time >> 12 or rng.random() < 0.1:
            words.append(0x8 << 12 | t >> 12 & 0xFFF)
            time = time if t >> 12 == time >> 12 else t >> 12 << 12  # a new upper part sets the lower part to 0
        if t != time or rng.random() < 0.1:
            words.append(0x6 << 12 | t & 0xFFF)
            time = t
        words += [int(rng.choice([0x7, 0xA, 0xE, 0xF])) << 12 | int(rng.integers(1 << 12))] * int(rng.integers(2))
        words.append(int(rng.integers(2)) << 11 | y)
        words += _pixels(pixels, p, rng)
    path.write_bytes(header + np.array(words, "<u2").tobytes())


def _pixels(pixels: list[int], p: int, rng: Any) -> list[int]:
    if rng.random() < 0.4:
        return [0x2 << 12 | p << 11 | x for x in pixels]
    begin = max(pixels[0] - int(rng.integers(4)), 0)
    words = [0x3 << 12 | p << 11 | begin]
    while begin <= pixels[-1]:
        length, kind = ((12, 0x4), (8, 0x5))[int(rng.integers(2))]
        mask = sum(1 << x - begin for x in pixels if begin <= x < begin + length)
        words.append(kind << 12 | mask | (int(rng.integers(16)) << 8 if length == 8 else 0))  # unused bits may be set
        begin += length
    return words


def write_dat(path: Path, columns: Columns, version: int = 2, size: tuple[int, int] | None = (640, 480)) -> None:
    lines = f"% Data file containing CD events.\n% Version {version}\n"
    lines += f"% Width {size[0]}\n% Height {size[1]}\n" if size else ""
    x_bits, y_bits = (14, 14) if version == 2 else (9, 8)
    pixels = columns["x"] | columns["y"] << x_bits | columns["p"] << x_bits + y_bits
    body = np.stack([columns["t"] & 0xFFFFFFFF, pixels], 1).astype("<u4").tobytes()
    path.write_bytes(lines.encode() + bytes([0x0C if version == 2 else 0, 8]) + body)


def structured(columns: Columns) -> np.ndarray:
    """Structured array, as in tonic."""
    dtype = np.dtype([("x", "<i2"), ("y", "<i2"), ("t", "<i8"), ("p", "?")])
    array = np.zeros(len(columns["t"]), dtype)
    for name in dtype.names:
        array[name] = columns[name]
    return array


def write_csv(path: Path, columns: Columns, order="txyp", delimiter=",", header=True, end="\n") -> None:
    lines = [delimiter.join(order)] if header else []
    lines += [delimiter.join(map(str, row)) for row in zip(*(columns[name].tolist() for name in order), strict=True)]
    path.write_bytes((end.join(lines) + end).encode())


def write_shd(path: Path, rng: Any, lengths: list[int], classes: int = 3, speaker: bool = True, **options: Any) -> None:
    """SHD format; `options` are the variable-length types of the two datasets."""
    import h5py

    settings = {name: options.pop(name) for name in ("libver", "userblock_size") if name in options}
    with h5py.File(path, "w", **settings) as file:
        count = (len(lengths),)
        times = file.create_dataset("spikes/times", count, h5py.vlen_dtype(np.float16), **options)
        units = file.create_dataset("spikes/units", count, h5py.vlen_dtype(np.uint16), **options)
        for number, length in enumerate(lengths):
            times[number] = np.sort(rng.random(length) * 1.4).astype(np.float16)
            units[number] = rng.integers(0, 700, length).astype(np.uint16)
        file["labels"] = rng.integers(0, classes, count).astype(np.uint16)
        file["extra/keys"] = [f"word {n}".encode() for n in range(classes)]
        if speaker:
            file["extra/speaker"] = rng.integers(0, 12, count).astype(np.uint16)
