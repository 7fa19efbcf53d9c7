"""Events of a camera's pixels: the source of a kernel (`kernels/camera.py`). A unit of its work is a pixel."""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.elements import row


def find_events(
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
