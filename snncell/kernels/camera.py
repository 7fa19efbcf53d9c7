"""The events of all pixels of a camera, in one kernel that runs twice: to count them, and to write them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import camera
from snncell.kernels.sharing import grain_of

PARALLEL_SIZE = 1 << 17  # pixels times steps, from which on threads are worth it


def find_events(
    film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: tuple[float, float, float],
    refractory: int, width: int,
) -> Any:  # fmt: skip
    """Events as two words of RECORD each, (N, 2), pixel by pixel: see `kernels/cpu/camera.py`."""
    pixels = len(film)
    grain = grain_of(pixels) if film.size >= PARALLEL_SIZE else 0
    counts = np.zeros(pixels, np.int64)
    given = (film, times, levels, noise, noise_firsts, np.array(limits, np.float64))
    kernel = _kernel()
    kernel(pixels, grain, *given, np.array([refractory, width, 0], np.int64), counts, np.empty(0, np.int64))
    firsts = np.cumsum(counts) - counts
    words = np.empty((int(counts.sum()), 2), np.int64)
    if len(words):
        kernel(pixels, grain, *given, np.array([refractory, width, 1], np.int64), firsts, words.reshape(-1))
    return words


@functools.cache
def _kernel() -> Any:
    numbers, floats = (dtypes.int64, 1, False), (dtypes.float64, 1, False)
    film = (dtypes.float32, 2, False)
    signature = (
        film,
        numbers,
        floats,
        numbers,
        numbers,
        floats,
        numbers,
        (dtypes.int64, 1, True),
        (dtypes.int64, 1, True),
    )
    return build("find_events", source_of(camera.find_events), signature)
