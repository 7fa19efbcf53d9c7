"""Event filters: which events of a recording to keep, by earlier events of the same or a neighbouring pixel."""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.numba.build import build_function

# --- Kernels: one unit, the recording ---------------------------------------------------------------------------------

# They have one unit of work, the recording. `places` says which pixel each event is of, in a grid with a pixel around
# the sensor; `pixels` is what is known of each, as it begins.


def denoise(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if a pixel beside its own had one less than `number` before. `pixels` are their last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            place, since = places[k], times[k] - number
            near = pixels[place - 1] > since or pixels[place + 1] > since
            kept[k] = near or pixels[place - pitch] > since or pixels[place + pitch] > since
            pixels[place] = times[k]


def rest(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep an event if the one before it, of its pixel, is more than `number` ago. `pixels` are their last times."""
    for _ in range(start, stop):
        for k in range(len(times)):
            kept[k] = pixels[places[k]] < times[k] - number
            pixels[places[k]] = times[k]


def decimate(start: Any, stop: Any, times: Any, places: Any, pixels: Any, kept: Any, pitch: Any, number: Any) -> None:
    """Keep every event of a pixel whose number, from 1 on, `number` divides. `pixels` count since the last of those."""
    for _ in range(start, stop):
        for k in range(len(times)):
            pixels[places[k]] += 1
            kept[k] = pixels[places[k]] == number
            if pixels[places[k]] == number:
                pixels[places[k]] = 0


NEVER = -(1 << 62)  # microseconds: before all times


def keep_by_rule(rule: Literal["denoise", "rest", "decimate"], events: Any, size: tuple[int, int], number: int) -> Any:
    """Which of the events, in their order, one of the rules keeps: booleans.

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
    rules = {"denoise": denoise, "rest": rest, "decimate": decimate}
    return build_function(rules[rule], signature)
