"""Binary event files: N-MNIST's `.bin`, and Prophesee's RAW in EVT 2.0 and 3.0 and DAT (see docs.prophesee.ai)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.data.events import Events, events_of_columns, sensor_of
from snncell.data.formats.reading import Array, fault, recording

# --- `.bin` of N-MNIST and N-Caltech101: five bytes per event, no header ----------------------------------------------

BYTES = 5
OVERFLOW_ROW = 240  # the y of an overflow mark, which is not an event
OVERFLOW = 1 << 13  # microseconds that each mark adds to all later times
NMNIST = (34, 34, 2)


def read_bin(path: Any, data: bytes, sensor: Any = None, *, certain: bool = True) -> Events:
    """Read events of five bytes, `[x] [y] [p, t22..t16] [t15..t8] [t7..t0]`, without a header. Unless the format is
    `certain`, times must not decrease, or pixels must fit N-MNIST's sensor.
    """
    if len(data) % BYTES:
        last = len(data) - len(data) % BYTES
        kind = "an event of 5 bytes, as N-MNIST's .bin has them" + ("" if certain else ", or another known format")
        raise fault(path, f"byte {last}", f"{kind}, is expected, but the file ends at byte {len(data)}")
    # Bytes 1 to 4 of each event as one number: y, p and 23 bits of time.
    words = np.ndarray(len(data) // BYTES, ">u4", data, min(len(data), 1), (BYTES,)).astype(np.uint32)
    xs = np.frombuffer(data, np.uint8)[::BYTES]
    marks = words >> 24 == OVERFLOW_ROW
    numbers = None
    times = words & 0x7FFFFF
    if marks.any():
        times = times.astype(np.int64) + np.cumsum(marks) * OVERFLOW
        numbers = np.flatnonzero(~marks)
        words, times, xs = words[numbers], times[numbers], xs[numbers]
    ys = words >> 24
    width, height = (int(each.max(initial=0)) + 1 for each in (xs, ys))
    small = max(width, height) <= NMNIST[0]

    def place(number: int) -> str:
        return f"byte {BYTES * int(number if numbers is None else numbers[number])}"

    if not (certain or small):
        back = np.flatnonzero(times[1:] < times[:-1])
        if len(back):
            found = "the file has the signature of no known format, and read as N-MNIST's .bin its times decrease"
            raise fault(path, place(int(back[0]) + 1), found)
    columns = {"t": times, "x": xs, "y": ys, "p": words >> 23 & 1}
    size = (NMNIST if small else None) if sensor is None else sensor_of("read_events", sensor)
    if size is None or size[0] < width or size[1] < height or size[2] < 2:
        return recording(path, columns, sensor, place, size)
    return events_of_columns(columns, size)  # `recording` would repeat the comparison above at a higher cost


# --- Prophesee: header lines after "% ", then words. EVT words have their type in the upper four bits -----------------

Columns = dict[str, Array]
Word = Callable[[int], int]

BLOCK = 1 << 16  # EVT 3.0 words that are decoded at once
CONVERT = "convert it by the package faery, or by metavision_file_to_dat of OpenEB"
SENSORS = {"gen3": (640, 480), "gen4": (1280, 720), "imx636": (1280, 720), "genx320": (320, 320)}  # by plugin_name


def is_prophesee(data: bytes) -> bool:
    """True for RAW and DAT files: one of the header lines has a Prophesee keyword."""
    lines, _ = _header(data)
    return bool(_encoding(lines) or {"Version", "Data"} & set(lines))


def read_prophesee(path: Any, data: bytes, sensor: Any = None) -> Events:
    """Read the CD events of a RAW or DAT file, without triggers and other words."""
    lines, start = _header(data)
    encoding = _encoding(lines)
    if not encoding:
        return _read_dat(path, data, start, lines, sensor)
    if encoding not in DECODERS:
        raise fault(path, "byte 0", f"EVT 2.0 and EVT 3.0 are read, and its encoding is {encoding}: {CONVERT}")
    dtype, decode = DECODERS[encoding]
    words = _words(path, data, start, dtype, encoding)
    columns, word = decode(words)
    return recording(path, columns, sensor, lambda n: f"byte {start + words.itemsize * word(n)}", _sensor_of(lines))


def _header(data: bytes) -> tuple[dict[str, str], int]:
    """The header lines by their first word, and the position after the header."""
    lines, start = {}, 0
    while data.startswith(b"%", start):
        end = data.find(b"\n", start)
        if end < 0:
            break
        name, _, value = data[start + 1 : end].strip().decode("latin-1").partition(" ")
        lines[name], start = value.strip(), end + 1
        if name == "end":
            break
    return lines, start


def _encoding(lines: dict[str, str]) -> str:
    """The encoding, for example "EVT 2.0"; "" if the header does not name one."""
    version = lines.get("evt", "") or lines.get("format", "").partition(";")[0].removeprefix("EVT")
    number = re.fullmatch(r"(\d)(?:\.?(\d))?", version)
    return f"EVT {number[1]}.{number[2] or 0}" if number else ""


def _sensor_of(lines: dict[str, str]) -> tuple[int, int, int] | None:
    """The sensor size in the header: its width and height, or those of the camera plugin."""
    text = f"{lines.get('geometry', '')};{lines.get('format', '')}"
    width = re.search(r"\bwidth=(\d{1,5})\b", text) or re.fullmatch(r"(\d{1,5})", lines.get("Width", ""))
    height = re.search(r"\bheight=(\d{1,5})\b", text) or re.fullmatch(r"(\d{1,5})", lines.get("Height", ""))
    geometry = re.match(r"(\d{1,5})x(\d{1,5})\b", text)
    if geometry:
        size = (int(geometry[1]), int(geometry[2]))
    elif width and height:
        size = (int(width[1]), int(height[1]))
    else:
        plugin = lines.get("plugin_name", "")
        size = next((each for name, each in SENSORS.items() if name in plugin), (0, 0))
    return (*size, 2) if all(0 < each < 1 << 16 for each in size) else None


def _words(path: Any, data: bytes, start: int, dtype: str, kind: str) -> Array:
    size = np.dtype(dtype).itemsize
    rest = (len(data) - start) % size
    if rest:
        found = f"a word of {size} bytes is expected, as {kind} has them, and the file has {rest} more"
        raise fault(path, f"byte {len(data) - rest}", found)
    return np.frombuffer(data, dtype, offset=start)


def _unwrap_counters(highs: Array, bits: int) -> Array:
    """Make counters of `bits` bits monotonic: a decrease of more than half of their range is an overflow."""
    values = highs.astype(np.int64)
    wraps = np.diff(values, prepend=values[:1]) < -(1 << bits - 1)
    return values + (np.cumsum(wraps) << bits)


OFF, ON, TIME_HIGH = 0x0, 0x1, 0x8  # TIME_HIGH in EVT 3.0 too


def _decode_2(words: Array) -> tuple[Columns, Word]:
    """Decode EVT 2.0: the columns, and a function from the index of an event to that of its word. CD_OFF and CD_ON hold
    x, y and the lower 6 bits of the time; TIME_HIGH holds the upper 28 bits.
    """
    kinds = words >> 28
    highs = np.flatnonzero(kinds == TIME_HIGH)
    times = _unwrap_counters(words[highs] & 0xFFFFFFF, 28)
    numbers = np.flatnonzero(kinds <= ON)
    owners = np.searchsorted(highs, numbers) - 1
    numbers, owners = numbers[owners >= 0], owners[owners >= 0]
    events = words[numbers]
    t = times[owners] << 6 | (events >> 22 & 0x3F)
    columns = {"t": t, "x": events >> 11 & 0x7FF, "y": events & 0x7FF, "p": events >> 28}
    return columns, lambda number: int(numbers[number])


ADDR_Y, ADDR_X, BASE_X, VECTOR_12, VECTOR_8, TIME_LOW = 0x0, 0x2, 0x3, 0x4, 0x5, 0x6


def _decode_3(words: Array) -> tuple[Columns, Word]:
    """Decode EVT 3.0: the columns, and a function from the index of an event to that of its word.

    Words set the time, the row or the first pixel, or contain one, 8 or 12 pixels. TIME_LOW sets the lower 12 bits of
    the time, and may decrease. A TIME_HIGH that differs from the previous one sets them to 0. The first pixel of a
    vector is the last base plus the lengths of all vectors since then.
    """
    kinds, values = words >> 12, words & 0xFFF
    highs, lows, rows, bases = (np.flatnonzero(kinds == kind) for kind in (TIME_HIGH, TIME_LOW, ADDR_Y, BASE_X))
    times = _unwrap_counters(values[highs], 12)
    changes = np.diff(times, prepend=-1) != 0
    highs, times = highs[changes], times[changes]
    lengths = np.where(kinds == VECTOR_12, 12, np.where(kinds == VECTOR_8, 8, 0))
    passed = np.cumsum(lengths) - lengths
    numbers = np.flatnonzero((kinds == ADDR_X) | (lengths > 0))
    high, low, row, base = (np.searchsorted(marks, numbers) - 1 for marks in (highs, lows, rows, bases))
    single = kinds[numbers] == ADDR_X
    known = (high >= 0) & (row >= 0) & (single | (base >= 0))
    numbers, high, low, row, base, single = (each[known] for each in (numbers, high, low, row, base, single))

    # Index -1 (no such word yet) reads the appended 0; its value is not used.
    low_places, base_places = (np.append(marks, 0) for marks in (lows, bases))
    fine = np.where(low_places[low] > highs[high], values[low_places[low]], 0) * (low >= 0)
    source = np.where(single, numbers, base_places[base])  # the word with the first pixel and the polarity
    first = (values[source] & 0x7FF).astype(np.int64) + np.where(single, 0, passed[numbers] - passed[source])
    pixels = np.where(single, 1, values[numbers] & np.where(lengths[numbers] == 8, 0xFF, 0xFFF)).astype(np.uint16)
    t, y, p = times[high] << 12 | fine, values[rows[row]] & 0x7FF, values[source] >> 11
    ends = np.cumsum(np.bitwise_count(pixels), dtype=np.int64)
    count = int(ends[-1]) if len(ends) else 0
    columns = {"t": np.empty(count, np.int64)} | {name: np.empty(count, np.uint16) for name in "xyp"}
    for begin in range(0, len(numbers), BLOCK):  # in blocks, because a word is up to 12 events
        part = slice(begin, begin + BLOCK)
        event, pixel = np.nonzero(pixels[part, None] >> np.arange(12, dtype=np.uint16) & 1)
        place = slice(int(ends[begin - 1]) if begin else 0, int(ends[part][-1]))
        columns["x"][place] = np.minimum(first[part][event] + pixel, 0xFFFF)  # a damaged file may exceed 16 bits
        for name, column in (("t", t), ("y", y), ("p", p)):
            columns[name][place] = column[part][event]
    return columns, lambda number: int(numbers[np.searchsorted(ends, number, "right")])


DECODERS = {"EVT 2.0": ("<u4", _decode_2), "EVT 3.0": ("<u2", _decode_3)}
CD_EVENTS = (0x00, 0x0C)  # the types of pixel events in DAT


def _read_dat(path: Any, data: bytes, start: int, lines: dict[str, str], sensor: Any) -> Events:
    """Read DAT: one byte each for type and size of events, then 32 bits of time and 32 of x, y and p per event."""
    kind, size = data[start : start + 2].ljust(2, b"\0")
    if kind not in CD_EVENTS or size != 8:
        found = f"DAT's CD events of 8 bytes are expected, with type 0 or 12, not type {kind} of {size} bytes"
        raise fault(path, f"byte {start}", found)
    start += 2
    words = _words(path, data, start, "<u8", "DAT")
    version = lines.get("Version", "2")
    if version not in ("1", "2"):
        raise fault(path, "byte 0", f"DAT is read in versions 1 and 2, not {version!r}: {CONVERT}")
    x_bits, y_bits = (9, 8) if version == "1" else (14, 14)
    pixels = words >> 32
    columns = {
        "t": _unwrap_counters(words & 0xFFFFFFFF, 32),
        "x": pixels & (1 << x_bits) - 1,
        "y": pixels >> x_bits & (1 << y_bits) - 1,
        "p": pixels >> x_bits + y_bits & 1,
    }
    return recording(path, columns, sensor, lambda number: f"byte {start + 8 * number}", _sensor_of(lines))
