"""Which events of a recording to keep, by those before them at the same place or beside it."""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import event_filters

NEVER = -(1 << 62)  # microseconds: before all times


def keep_by_rule(rule: Literal["denoise", "rest", "decimate"], events: Any, size: tuple[int, int], number: int) -> Any:
    """Which of the events, in their order, one of the rules of `cpu/event_filters.py` keeps: booleans.

    All events are inside of a sensor of `size`, (W, H).
    """
    width, height = size
    pitch = width + 2
    places = events["x"] + np.int64(pitch + 1)
    if "y" in events.dtype.names:
        places += events["y"] * np.int64(pitch)
    pixels = np.full(pitch * (height + 2), 0 if rule == "decimate" else NEVER, np.int64)
    result = np.zeros(len(events), np.bool_)
    times = np.ascontiguousarray(events["t"])
    _kernel(rule)(1, 0, times, places, pixels, result.view(np.uint8), pitch, number)
    return result


@functools.cache
def _kernel(rule: str) -> Any:
    numbers, number = (dtypes.int64, 1, False), dtypes.int64
    signature = (numbers, numbers, (dtypes.int64, 1, True), (dtypes.uint8, 1, True), number, number)
    return build(rule, source_of(getattr(event_filters, rule)), signature)
