"""Events of an event camera: one kernel runs twice, to count the events of all pixels and to write them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.intrinsics.elements import row
from snncell.kernels.numba.build import build_function, grain_of

# --- Kernel: a unit is a pixel ----------------------------------------------------------------------------------------


def find_events_kernel(
    start: Any, stop: Any, film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: Any,
    numbers: Any, firsts: Any, words: Any,
) -> None:  # fmt: skip
    """Find where each pixel's light, linear between frames, has left its level by a threshold: `words` gets an event.

    `film` is (pixels, T), `levels` where each pixel begins, `noise` times with the polarity in the lowest bit, a
    pixel's own from `noise_firsts[pixel]` on, in order. Pixel n writes from event `firsts[n]` on; if the flag in
    `numbers` is not set, it puts its number of events there instead.
    """
    on, off, leak = limits[0], limits[1], limits[2]
    refractory, width, writing = numbers[0], numbers[1], numbers[2]
    steps = len(times)
    never = 1 << 62
    for pixel in range(start, stop):
        light, level = row(film, pixel), levels[pixel]
        place = pixel % width | pixel // width << 16
        free = times[0]  # from when on the pixel can fire
        event = firsts[pixel] if writing != 0 else 0
        n, last = noise_firsts[pixel], noise_firsts[pixel + 1]
        soon = noise[n] >> 1 if n < last else never
        for step in range(1, steps):
            begin, end = times[step - 1], times[step]
            span = end - begin
            before = light[step - 1] - level
            after = light[step] - level + leak * span
            level -= leak * span
            until = end if step < steps - 1 else never
            while after >= on or after <= -off or soon < until:
                t, p = until, 0
                if after >= on or after <= -off:
                    p = 1 if after >= on else 0
                    # Rounding may have put `before` on the threshold already.
                    way = (on - before if p == 1 else off + before) / (abs(after - before) + 1e-30)
                    t = begin + int(span * (way if way > 0.0 else 0.0))
                if soon < t:
                    t, p = soon, noise[n] & 1
                    n += 1
                    soon = noise[n] >> 1 if n < last else never
                else:
                    change = on if p == 1 else -off
                    level, before, after = level + change, before - change, after - change
                if t >= free:
                    free = t + refractory
                    if writing != 0:
                        words[2 * event] = t
                        words[2 * event + 1] = place | p << 32
                    event += 1
        if writing == 0:
            firsts[pixel] = event


PARALLEL_SIZE = 1 << 17  # pixels times steps, from which on threads are worth it


def find_events(
    film: Any, times: Any, levels: Any, noise: Any, noise_firsts: Any, limits: tuple[float, float, float],
    refractory: int, width: int,
) -> Any:  # fmt: skip
    """Events as two words of RECORD each, (N, 2), pixel by pixel: see `find_events_kernel`."""
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
    return build_function(find_events_kernel, signature)
