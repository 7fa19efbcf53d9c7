"""Files of events, written by the layouts of their formats, for tests of what reads them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("t", "x", "y", "p")
Columns = dict[str, np.ndarray]


def drawn(rng: Any, count: int, sensor=(34, 34, 2), longest: int = 300_000) -> Columns:
    """Random events in order of time."""
    columns = {"t": np.sort(rng.integers(0, longest, count))}
    return columns | {name: rng.integers(0, size, count) for name, size in zip("xyp", sensor, strict=True)}


def write_bin(path: Path, columns: Columns) -> None:
    """N-MNIST's: times beyond 23 bits by as many marks of overflow as they need."""
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


def write_aedat_3(path: Path, columns: Columns, rng: Any, size: int = 8, offset: int = 4) -> None:
    """DVS Gesture's: packets of some events, invalid events between them, packets of other types."""
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
        out += packet(1, size, offset, overflow, bytes(body), valid, spare=int(rng.integers(3)))
        if rng.random() < 0.5:
            out += packet(int(rng.choice([0, 2, 3])), 12, 4, 0, rng.bytes(12 * int(rng.integers(0, 4))), 0)
        start = stop
    path.write_bytes(out)


def write_aedat_2(path: Path, columns: Columns, header: bytes = b"#!AER-DAT2.0\r\n# a line\r\n") -> None:
    addresses = columns["y"] << 8 | columns["x"] << 1 | columns["p"]
    path.write_bytes(header + np.stack([addresses, columns["t"]], 1).astype(">u4").tobytes())


def structured(columns: Columns) -> np.ndarray:
    """As tonic has them."""
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
    """SHD's layout; `options` are those of the two datasets of variable length."""
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
