"""N-MNIST's and N-Caltech101's `.bin`: five bytes an event, no header."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.data.events import Events, events_of_columns, sensor_of
from snncell.data.formats.reading import fault, recording

BYTES = 5
OVERFLOW_ROW = 240  # of a mark in place of an event: times begin again
OVERFLOW = 1 << 13  # microseconds that all later times go on by
NMNIST = (34, 34, 2)


def read(path: Any, data: bytes, sensor: Any = None, *, certain: bool = True) -> Events:
    """Events of `[x] [y] [p, t22..t16] [t15..t8] [t7..t0]`.

    Without a header only the numbers tell: unless it is `certain` that this is such a file, its times must not go back,
    or its pixels must be N-MNIST's.
    """
    if len(data) % BYTES:
        last = len(data) - len(data) % BYTES
        kind = "an event of 5 bytes, as N-MNIST's .bin has them" + ("" if certain else ", or another known format")
        raise fault(path, f"byte {last}", f"{kind}, is expected, and the file ends at byte {len(data)}")
    # Bytes 1 to 4 of each event as one number: y, p and 23 bits of time.
    words = (
        np.ndarray(len(data) // BYTES, ">u4", data, 1, (BYTES,)).astype(np.uint32) if data else np.zeros(0, np.uint32)
    )
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
            found = "the file begins like none of the known formats, and as N-MNIST's .bin time goes back"
            raise fault(path, place(int(back[0]) + 1), found)
    columns = {"t": times, "x": xs, "y": ys, "p": words >> 23 & 1}
    size = (NMNIST if small else None) if sensor is None else sensor_of("read_events", sensor)
    if size is None or size[0] < width or size[1] < height or size[2] < 2:
        return recording(path, columns, sensor, place, size)
    return events_of_columns(columns, size)  # compared above with less work
