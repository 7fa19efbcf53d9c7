"""Which events of a recording to keep, by those before them: the source of kernels (`kernels/event_filters.py`).

They have one unit of work, the recording. `places` says which pixel each event is of, in a grid with a pixel around the
sensor; `pixels` is what is known of each, as it begins.
"""

from __future__ import annotations

from typing import Any


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
