"""AEDAT files: 2.0 of a DVS128 or a DAVIS, 3.1, and 4 by the package aedat."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.data.events import Events
from snncell.data.formats.reading import PACKED, ROOM, Array, fault, foreign_errors, recording
from snncell.errors import FileError

DVS128 = (128, 128, 2)
DAVIS = {
    b"DAVIS128": DVS128,
    b"DAVIS208": (208, 192, 2),
    b"DAVIS240": (240, 180, 2),
    b"DAVIS346": (346, 260, 2),
    b"DAVIS640": (640, 480, 2),
}
SENSORS = {b"DVS128": DVS128, **DAVIS}

# --- AEDAT 2.0 --------------------------------------------------------------------------------------------------------

ASCII_END = b"#End Of ASCII Header"  # written by newer versions of jAER
OTHER_EVENT = 1 << 15  # flag of an external input pulse, which has no pixel
OTHER_OF_DAVIS = 1 << 31 | 1 << 10  # flags of frames and motion, and of external input pulses


def read_2(path: Any, data: bytes, sensor: Any = None) -> Events:
    """Read AEDAT 2.0: "#" header lines, then big-endian addresses and times. Unlike jAER, do not mirror x."""
    start = _end_of_lines(data)
    chip = _chip_2(path, data[:start])
    rest = (len(data) - start) % 8
    if rest:
        raise fault(path, f"byte {len(data) - rest}", f"an event of 8 bytes is expected, but the file has {rest} more")
    words = np.frombuffer(data, ">u4", offset=start).reshape(-1, 2)
    addresses = words[:, 0].astype(np.uint32)
    wide = addresses >= 1 << 16
    if chip is None and wide.any():
        number = int(wide.argmax())
        found = f"an address of 16 bits, as a DVS128 has them, is expected, not {int(addresses[number]):#x}"
        raise fault(path, f"byte {start + 8 * number}", found)
    numbers = np.flatnonzero(addresses & (OTHER_EVENT if chip is None else OTHER_OF_DAVIS) == 0)
    pixels = addresses[numbers]
    columns = {"t": words[numbers, 1].astype(np.int64)}
    if chip is None:
        columns |= {"x": pixels >> 1 & 0x7F, "y": pixels >> 8 & 0x7F, "p": pixels & 1}
    else:
        columns |= {"x": pixels >> 12 & 0x3FF, "y": pixels >> 22 & 0x1FF, "p": pixels >> 11 & 1}
    return recording(path, columns, sensor, lambda number: f"byte {start + 8 * int(numbers[number])}", chip or DVS128)


def _chip_2(path: Any, header: bytes) -> tuple[int, int, int] | None:
    """The sensor size of the DAVIS that the header names; None for a DVS128 or if no chip is named."""
    line = re.search(rb"^#\s*AEChip:\s*(.*?)\s*$", header, re.MULTILINE)
    name = line[1].upper() if line else b"128"
    davis = next((size for chip, size in DAVIS.items() if chip in name), None)
    if davis is None and line and b"128" not in name:
        found = f"AEDAT 2.0 is read of a DVS128 and of DAVIS chips, not of AEChip {line[1][:80].decode('latin-1')!r}"
        raise fault(path, f"byte {line.start()}", found)
    return davis


def _end_of_lines(data: bytes) -> int:
    """The end of the header: after its end mark, or before the first line that does not begin with "#"."""
    start = 0
    while data[start : start + 1] == b"#":
        end = data.find(b"\n", start)
        if end < 0:
            return len(data)
        line, start = data[start:end], end + 1
        if line.startswith(ASCII_END):
            break
    return start


# --- AEDAT 3.1 --------------------------------------------------------------------------------------------------------

HEADER_END = b"#!END-HEADER\r\n"
# eventType, eventSource, eventSize, eventTSOffset, eventTSOverflow, eventCapacity, eventNumber, eventValid
PACKET = struct.Struct("<HHiiiiii")
LARGEST = 1 << 24  # bytes, more than any frame; limits the event size that an empty packet may declare
POLARITY = 1  # type of packets with pixel events; other packets have frames, motion, ...


def read_3(path: Any, data: bytes, sensor: Any = None, begin: int = -1, end: int = 1 << 62) -> Events:
    """Read AEDAT 3.1: the valid polarity events of all packets with `begin` <= t < `end`."""
    chip, start = _header_3(path, data)
    times, words, places = [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    for body, kind, size, offset, overflow, number, valid in _packets(path, data, start):
        if kind != POLARITY or not number:
            continue
        events = np.frombuffer(data, np.uint8, number * size, body).reshape(number, size)
        stamps = _column(events, offset)
        # Times within a packet are in order, so other packets are skipped without decoding.
        first, last = (int(stamps[at]) | overflow << 31 for at in (0, -1))
        if (first < begin and last < begin) or (first >= end and last >= end):
            continue
        if stamps.max() >= 1 << 31:
            place = body + size * int((stamps >= 1 << 31).argmax()) + offset
            raise fault(path, f"byte {place}", "a time of 31 bits is expected, not a negative one")
        kept = _valid(path, _column(events, 0), valid, body - PACKET.size)
        stamps = stamps[kept].astype(np.int64) | overflow << 31
        asked = (stamps >= begin) & (stamps < end)
        times.append(stamps[asked])
        words.append(_column(events, 0)[kept][asked])
        places.append(body + size * kept[asked])
    word, bytes_of = np.concatenate(words), np.concatenate(places)
    columns = {"t": np.concatenate(times), "x": word >> 17 & 0x7FFF, "y": word >> 2 & 0x7FFF, "p": word >> 1 & 1}
    return recording(path, columns, sensor, lambda number: f"byte {int(bytes_of[number])}", chip)


def _header_3(path: Any, data: bytes) -> tuple[tuple[int, int, int] | None, int]:
    """The sensor size that the header names, and the position of the first packet."""
    start, chip = 0, None
    while not data.startswith(HEADER_END, start):
        end = data.find(b"\n", start)
        if data[start : start + 1] != b"#" or end < 0:
            raise fault(path, f"byte {start}", "a line of the header, or its last, #!END-HEADER, is expected")
        line = data[start:end].strip()
        if line.startswith(b"#Format:") and line[8:].strip() != b"RAW":
            raise fault(path, f"byte {start}", f"packets are read as #Format: RAW, not {line[8:40].strip()!r}")
        if line.startswith(b"#Source"):
            chip = next((size for name, size in SENSORS.items() if name in line.upper()), chip)
        start = end + 1
    return chip, start + len(HEADER_END)


def _packets(path: Any, data: bytes, start: int, reserved: bool = False) -> list[tuple[int, ...]]:
    """The header fields of all packets: position of the events, type, event size, offset of the time, and counts.
    libcaer writes only the events of a packet. Other programs also write unused memory, `reserved` up to its capacity.
    """
    first, room = start, False
    packets: list[tuple[int, ...]] = []
    try:
        while start < len(data):
            kind, size, offset, overflow, capacity, number, valid = _packet(path, data, start)
            body = start + PACKET.size
            packets.append((body, kind, size, offset, overflow, number, valid))
            start = body + size * (capacity if reserved else number)
            room |= capacity > number
        if start > len(data):
            found = f"room for {capacity} events of {size} bytes is expected, but the file ends"
            raise fault(path, f"byte {body}", found)
    except FileError:
        if reserved or not room:
            raise
        with contextlib.suppress(FileError):
            return _packets(path, data, first, reserved=True)
        raise
    return packets


def _packet(path: Any, data: bytes, start: int) -> tuple[int, int, int, int, int, int, int]:
    """The header fields of a packet: type, event size, offset of the time, overflow, capacity and counts."""
    if start + PACKET.size > len(data):
        found = f"the {PACKET.size} bytes of a packet's header are expected, but the file ends at byte {len(data)}"
        raise fault(path, f"byte {start}", found)
    kind, _, size, offset, overflow, capacity, number, valid = PACKET.unpack_from(data, start)

    def refuse(word: int, text: str) -> Any:
        return fault(path, f"byte {start + word}", f"{text} in the header of a packet")

    if size < 1 or (kind == POLARITY and size < 8):
        raise refuse(4, f"events of at least 8 bytes are expected, not {size},")
    if kind == POLARITY and not 4 <= offset <= size - 4:
        raise refuse(8, f"the place of the time in an event of {size} bytes is expected, not {offset},")
    if overflow < 0 or overflow >= 1 << 30:
        raise refuse(12, f"a number of overflows of time is expected, not {overflow},")
    if not 0 <= number <= capacity:
        raise refuse(20, f"a number of events from 0 to the capacity, {capacity}, is expected, not {number},")
    if size > LARGEST and not number:
        raise refuse(4, f"events of at most {LARGEST} bytes are expected, not {size},")
    if not 0 <= valid <= number:
        raise refuse(24, f"a number of valid events from 0 to {number} is expected, not {valid},")
    if start + PACKET.size + number * size > len(data):
        left = len(data) - start - PACKET.size
        raise refuse(20, f"{number} events of {size} bytes are announced, but {left} bytes are left,")
    return kind, size, offset, overflow, capacity, number, valid


def _column(events: Array, offset: int) -> Array:
    return np.ascontiguousarray(events[:, offset : offset + 4]).view("<u4")[:, 0]


def _valid(path: Any, words: Array, valid: int, packet: int) -> Array:
    """The indices of the valid events: all of them, or those whose lowest bit is set."""
    if valid == len(words):
        return np.arange(len(words))
    kept = np.flatnonzero(words & 1)
    if len(kept) != valid:
        found = f"{valid} valid events are announced in the header of a packet, but {len(kept)} are marked as valid"
        raise fault(path, f"byte {packet + 24}", found)
    return kept


def read_4(path: Any, data: bytes, sensor: Any = None) -> Events:
    """Read AEDAT 4, a file with one event stream, by the package aedat, which opens the file itself."""
    try:
        aedat = import_once("aedat")
    except ImportError:
        raise fault(path, "", "AEDAT 4 needs aedat: pip install snncell[events]") from None
    with foreign_errors(path, ""):
        size, packets = _packets_4(path, aedat.Decoder(os.fspath(path)), ROOM + PACKED * len(data))
        columns = {
            own: np.concatenate([np.zeros(0, np.uint8), *(packet[name] for packet in packets)])
            for own, name in zip("txyp", ("t", "x", "y", "on"), strict=True)
        }
    natural = (*size, 2) if all(0 < each < 1 << 16 for each in size) else None
    return recording(path, columns, sensor, natural=natural)


def _packets_4(path: Any, decoder: Any, room: int) -> tuple[tuple[int, int], list[Array]]:
    """The width and height of the one event stream, and its packets, of at most `room` bytes in total."""
    streams = decoder.id_to_stream()
    events = [number for number, stream in streams.items() if stream.get("type") == "events"]
    if len(events) != 1:
        kinds = ", ".join(f"{number} of {stream.get('type')}" for number, stream in sorted(streams.items())) or "none"
        raise fault(path, "", f"one stream of events is expected, but its streams are {kinds}")
    packets: list[Array] = []
    for packet in decoder:
        if packet["stream_id"] == events[0]:
            packets.append(packet["events"])
            room -= packets[-1].nbytes
            if room < 0:
                raise fault(path, "", "it unpacks to more than a valid file of its size: it is damaged, or a bomb")
    stream = streams[events[0]]
    return (stream["width"], stream["height"]), packets
