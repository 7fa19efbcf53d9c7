"""N-MNIST's and N-Caltech101's `.bin`: five bytes an event, no header."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.data.events import Events
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
    words = np.frombuffer(data, np.uint8).reshape(-1, BYTES)
    marks = words[:, 1] == OVERFLOW_ROW
    times = (words[:, 2].astype(np.int64) & 0x7F) << 16 | words[:, 3].astype(np.int64) << 8 | words[:, 4]
    times += np.cumsum(marks) * OVERFLOW
    numbers = np.flatnonzero(~marks)
    words, times = words[numbers], times[numbers]
    small = bool((words[:, :2] < NMNIST[0]).all())
    back = np.flatnonzero(np.diff(times) < 0)
    if not (certain or small) and len(back):
        place = f"byte {BYTES * int(numbers[back[0] + 1])}"
        raise fault(path, place, "the file begins like none of the known formats, and as N-MNIST's .bin time goes back")
    columns = {"t": times, "x": words[:, 0], "y": words[:, 1], "p": words[:, 2] >> 7}
    natural = NMNIST if small else None
    return recording(path, columns, sensor, lambda number: f"byte {BYTES * int(numbers[number])}", natural)
