"""Event lists of images, sorted by pixel or by channel, for event-driven convolutions."""

from __future__ import annotations

from typing import Any

from snncell.kernels.intrinsics.builtins import call_once, least
from snncell.kernels.intrinsics.elements import move, move_added, strip, tail, zero
from snncell.kernels.intrinsics.panels import WORD, add_rows, bits_before, lowest, others, turn


@call_once
def list_events(
    x: Any, starts: Any, given: Any, first: int, images: int, size: int, offset: int, elements: int, pixels: int,
    key_of: Any, keys_apart: int, place_of: Any, places_apart: int, grid: int, keys: Any, places: Any, values: Any,
    counts: Any,
) -> int:  # fmt: skip
    """List the events among elements `offset` to `offset + elements` of some images; return their number.

    The images start with number `first`, and have `size` elements each in `x`; only `take_events` uses `starts` and
    `given`. An event has the key and place of its pixel, plus `keys_apart` and `places_apart` per channel, plus `grid`
    places per image. `counts` gets the number of events per key.
    """
    rest = strip(WORD, x)
    found = 0
    for image in range(images):
        own, begin, end = tail(x, (first + image) * size + offset), 0, pixels
        key, place = 0, image * grid
        for low in range(0, elements, WORD):
            bits = bits_before(own, low, elements, tail(rest, 0))
            while bits != 0:
                element = low + lowest(bits)
                while element >= end:
                    begin, end, key, place = end, end + pixels, key + keys_apart, place + places_apart
                of_pixel = key + key_of[element - begin]
                keys[found], places[found], values[found] = of_pixel, place + place_of[element - begin], own[element]
                counts[of_pixel] += 1
                found += 1
                bits = others(bits)
    return found


@call_once
def take_events(
    x: Any, starts: Any, given: Any, first: int, images: int, size: int, offset: int, elements: int, pixels: int,
    key_of: Any, keys_apart: int, place_of: Any, places_apart: int, grid: int, keys: Any, places: Any, values: Any,
    counts: Any,
) -> int:  # fmt: skip
    """`list_events` for images in CSR form: `x` has the values of the events, `given` the element of each in its image.

    `starts` has the index of the first event of each image; the events are in the order of the elements.
    """
    found = 0
    for image in range(images):
        begin, end, key, place = offset, offset + pixels, 0, image * grid
        event, high = starts[first + image], starts[first + image + 1]
        behind = high
        while event < behind:  # binary search for the first event from `offset` on
            middle = (event + behind) // 2
            if given[middle] < offset:
                event = middle + 1
            else:
                behind = middle
        while event < high and given[event] < offset + elements:
            element = given[event]
            while element >= end:
                begin, end, key, place = end, end + pixels, key + keys_apart, place + places_apart
            of_pixel = key + key_of[element - begin]
            keys[found], places[found], values[found] = of_pixel, place + place_of[element - begin], x[event]
            counts[of_pixel] += 1
            found += 1
            event += 1
    return found


@call_once
def sort_by_key(
    found: int, keys: Any, places: Any, values: Any, many: int, ends: Any, to_places: Any, to_values: Any
) -> int:
    """Stable counting sort by key; `ends` has the counts of keys, and gets their ends. Return 1 if a value is not 1."""
    total = 0
    for key in range(many):
        count = ends[key]
        ends[key] = total
        total += count
    graded = 0
    for event in range(found):
        key = keys[event]
        to = ends[key]
        ends[key] = to + 1
        to_places[to], to_values[to] = places[event], values[event]
        graded |= values[event] != 1
    return graded


@call_once
def lines_of_window(lines: Any, pieces: Any, rows: int, top: int, height: int, width: int) -> int:
    """List the rows of a window at row `top` that are inside of the image; return their number. For each row, `lines`
    gets its first pixel, and the number of an element in the window minus its pixel.
    """
    used = 0
    for k in range(rows):
        y = top + pieces[2 * k]
        if y >= 0 and y < height:
            lines[2 * used] = y * width
            lines[2 * used + 1] = pieces[2 * k + 1] - y * width
            used += 1
    return used


@call_once
def events_in_window(
    near: Any, near_values: Any, graded: int, ends: Any, places: Any, values: Any, lines: Any, used: int, parts: Any,
    many: int, column: int, width: int,
) -> int:  # fmt: skip
    """List the events in a window at `column`, with the row of weights for each; return their number. `parts` has the
    `many` parts of a window row with consecutive columns, and `lines` has the rows of the window.
    """
    count = 0
    for k in range(many):
        left = column + parts[3 * k]
        to = left + parts[3 * k + 2]
        to = least(to if to > 0 else 0, width)
        begin, shift = least(left if left > 0 else 0, to), parts[3 * k + 1] - left
        for line in range(used):
            first = ends[lines[2 * line] + begin]
            more = ends[lines[2 * line] + to] - first
            move_added(tail(near, count), tail(places, first), more, lines[2 * line + 1] + shift)
            if graded != 0:
                move(tail(near_values, count), tail(values, first), more)
            count += more
    return count


@call_once
def rows_of_pixels(
    target: Any, step: int, pitch: int, grid: int, source: Any, images: int, apart: int, channels: int, pixels: int,
    width: int, sums: Any, side: int,
) -> None:  # fmt: skip
    """Transpose (images, channels, pixels) to (images, pixels, step), so that the channels of a pixel are contiguous.

    In `source`, images are `apart` elements apart. In `target`, images are `grid` pixels apart, and rows of `width`
    pixels are `pitch` pixels apart. `sums` has memory for `side` pixels, the side of a tile.
    """
    wide = (channels + side - 1) // side * side
    for image in range(images):
        to, j = image * grid, 0
        for first in range(0, pixels, side):
            high = least(side, pixels - first)
            turn(sums, wide, tail(source, image * apart + first), pixels, channels, high, side)
            for i in range(high):
                move(tail(target, to * step), tail(sums, i * wide), wide)
                to, j = to + 1, j + 1
                if j == width:
                    to, j = to + pitch - width, 0


@call_once
def clear_terms(rows: Any, outputs: int, terms: int, first: int, last: int, most: int, lanes: int) -> None:
    """Set the rows of some terms to zero in all panels. A panel has `most` outputs; the last one has whole vectors."""
    for low in range(0, outputs, most):
        width = (least(most, outputs - low) + lanes - 1) // lanes * lanes
        zero(tail(rows, low * terms + first * width), (last - first) * width)


@call_once
def add_to_terms(
    rows: Any, width: int, slope: Any, step: int, vectors: int, firsts: Any, offsets: Any, taps: Any, of_channel: int,
    many: int, phases: int, ends: Any, places: Any, values: Any, graded: int,
) -> None:  # fmt: skip
    """Add to the row of each term the gradient rows of its events, one channel after the other."""
    for key in range(many):
        begin, count = ends[key], ends[key + 1] - ends[key]
        if count != 0:
            phase, term = key % phases, key // phases * of_channel
            own_values, own_places = tail(values, begin), tail(places, begin)
            for tap in range(firsts[phase], firsts[phase + 1]):
                total, near = tail(rows, (term + taps[tap]) * width), tail(slope, offsets[tap] * step)
                add_rows(total, 1, own_values, graded, own_places, count, near, step, vectors)
