"""Convolutions of images that are mostly zeros, as spikes are: work in proportion to the elements that are not.

The events of an image, its elements that are not zero, are put in the order of its pixels. Then those in a row of a
window lie next to each other, and a pixel of the results is the sum of a row of weights for each event in its window.
For the gradient of the weights the events are in the order of the channels: the gradient of a weight of all outputs is
the sum of a row of the results' gradient, its outputs next to each other, for each event of its channel. Either sum
stays in registers over all its events (`panels.py`), WIDTH outputs at a time.

These functions are compiled from their source (`kernels/conv/events.py`), as kernels that carry out the units of their
work from `start` up to `stop`. Sums run over the events in an order that the sizes alone decide.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.conv.event_lists import (
    add_to_terms,
    clear_terms,
    events_in_window,
    lines_of_window,
    list_events,
    rows_of_pixels,
    sort_by_key,
)
from snncell.kernels.conv.planes import LANES
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.copies import move, zero
from snncell.kernels.intrinsics.elements import row, strip, tail
from snncell.kernels.intrinsics.panels import add_rows, turn

WIDTH = 64  # outputs whose sums are in registers at once: by the dtype, as LANES


def weights_as_panels(start: Any, stop: Any, weights: Any, panels: Any, geometry: Any) -> None:
    """(groups, O, terms) -> for each group and WIDTH of its outputs, (terms, width). A unit is LANES terms of a group.

    The width is that of whole vectors, filled up with zeros.
    """
    outputs, terms = geometry[1], geometry[2]
    blocks = (terms + LANES - 1) // LANES
    for unit in range(start, stop):
        group, first = unit // blocks, unit % blocks * LANES
        count = least(LANES, terms - first)
        for low in range(0, outputs, WIDTH):
            own = least(WIDTH, outputs - low)
            width = (own + LANES - 1) // LANES * LANES
            panel = tail(row(panels, group), low * terms + first * width)
            if own < width:
                zero(panel, count * width)
            turn(panel, width, tail(weights, (group * outputs + low) * terms + first), terms, own, count, LANES)


def convolve_events(
    start: Any, stop: Any, grain: Any, x: Any, starts: Any, given: Any, panels: Any, pixel_of: Any, pieces: Any,
    out: Any, numbers: Any, values: Any, geometry: Any,
) -> None:  # fmt: skip
    """Results from images and panels of weights. A unit is a group of an image.

    `x` has the images, or the values of their events, and then `starts` and `given` say which they are.
    `pieces` has for each row of a window how far it is from where the stride puts the window, and the number of its
    first element; then for each part of a row in which columns follow each other, the same of the first column, and how
    many there are. `numbers` and `values` have a row for each part of `grain` units, and are overwritten.
    """
    groups, outputs, terms, channels = geometry[0], geometry[1], geometry[2], geometry[3]
    height, width, out_width, results = geometry[5], geometry[6], geometry[7], geometry[8]
    down, across, room, window_rows, window_parts = geometry[9], geometry[10], geometry[11], geometry[12], geometry[13]
    pixels, elements = height * width, channels * height * width
    part = start // grain
    own_numbers, own_values = row(numbers, part), row(values, part)
    keys, listed, places = tail(own_numbers, 0), tail(own_numbers, room), tail(own_numbers, 2 * room)
    ends, lines = tail(own_numbers, 3 * room), tail(own_numbers, 3 * room + pixels + 1)
    near, window = tail(own_numbers, 3 * room + pixels + 1 + 2 * window_rows), tail(pieces, 2 * window_rows)
    listed_values, sorted_values, near_values = own_values, tail(own_values, room), tail(own_values, 2 * room)
    sums = strip(LANES * WIDTH, panels)
    for unit in range(start, stop):
        zero(ends, pixels + 1)
        found = list_events(
            x, starts, given, unit // groups, 1, groups * elements, unit % groups * elements, elements, pixels,
            pixel_of, 0, pixel_of, terms // channels, 0, keys, listed, listed_values, tail(ends, 1),
        )  # fmt: skip
        graded = sort_by_key(found, keys, listed, listed_values, pixels, tail(ends, 1), places, sorted_values)
        near_values[0] = 1
        for low in range(0, outputs, WIDTH):
            own = least(WIDTH, outputs - low)
            vectors = (own + LANES - 1) // LANES
            step, panel = vectors * LANES, tail(row(panels, unit % groups), low * terms)
            i, j, used = -1, out_width, 0
            for group in range(0, results, LANES):
                high = least(LANES, results - group)
                for n in range(high):
                    if j == out_width:
                        i, j = i + 1, 0
                        used = lines_of_window(lines, pieces, window_rows, i * down, height, width)
                    count = events_in_window(
                        near, near_values, graded, ends, places, sorted_values, lines, used, window, window_parts,
                        j * across, width,
                    )  # fmt: skip
                    j += 1
                    add_rows(tail(sums, n * step), 0, near_values, graded, near, count, panel, step, vectors)
                target = tail(out, (unit * outputs + low) * results + group)
                turn(target, results, sums, step, high, own, LANES)


def correlate_events(
    start: Any, stop: Any, grain: Any, x: Any, starts: Any, given: Any, gradient: Any, phase_of: Any, place_of: Any,
    firsts: Any, offsets: Any, taps: Any, partial: Any, slopes: Any, numbers: Any, values: Any, geometry: Any,
) -> None:  # fmt: skip
    """Panels of the gradient of the weights, from images and that of results. A unit is channels of some images.

    `x`, `starts` and `given` are as for `convolve_events`. `partial` has panels of all weights for each part of the
    images, group by group. `slopes`, `numbers` and `values` have a row for each part of `grain` units, overwritten.
    """
    groups, outputs, terms, channels, panel_size = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    pixels, grid, pitch, corner, out_width = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    results, members, parts, split_channels = geometry[10], geometry[11], geometry[12], geometry[13]
    together, phases, room, step = geometry[14], geometry[15], geometry[16], geometry[17]
    splits, of_channel, own_part = (channels + split_channels - 1) // split_channels, terms // channels, start // grain
    own_numbers, own_values, slope = row(numbers, own_part), row(values, own_part), row(slopes, own_part)
    keys, listed, places = tail(own_numbers, 0), tail(own_numbers, room), tail(own_numbers, 2 * room)
    ends, listed_values, sorted_values = tail(own_numbers, 3 * room), own_values, tail(own_values, room)
    sums = strip(LANES * WIDTH, slopes)
    zero(sums, LANES * WIDTH)
    zero(slope, together * grid * step)  # around the pixels it stays
    for unit in range(start, stop):
        part, first = unit // splits, unit % splits * split_channels
        last, behind = least(channels, first + split_channels), (part + 1) * members // parts
        many = (last - first) * phases
        for group in range(groups):
            rows = tail(row(partial, part), group * panel_size)
            clear_terms(rows, outputs, terms, first * of_channel, last * of_channel, WIDTH, LANES)
        for member in range(part * members // parts, behind, together):
            batch = least(together, behind - member)
            for group in range(groups):
                rows, image = tail(row(partial, part), group * panel_size), member * groups + group
                zero(ends, many + 1)
                found = list_events(
                    x, starts, given, member, batch, groups * channels * pixels, (group * channels + first) * pixels,
                    (last - first) * pixels, pixels, phase_of, phases, place_of, 0, grid, keys, listed, listed_values,
                    tail(ends, 1),
                )  # fmt: skip
                graded = sort_by_key(found, keys, listed, listed_values, many, tail(ends, 1), places, sorted_values)
                for low in range(0, outputs, WIDTH):
                    own = least(WIDTH, outputs - low)
                    width = (own + LANES - 1) // LANES * LANES
                    rows_of_pixels(
                        tail(slope, corner * step), step, pitch, grid,
                        tail(gradient, (image * outputs + low) * results), batch, groups * outputs * results, own,
                        results, out_width, sums, LANES,
                    )  # fmt: skip
                    add_to_terms(
                        tail(rows, low * terms + first * of_channel * width), width, slope, step, width // LANES,
                        firsts, offsets, taps, of_channel, many, phases, ends, places, sorted_values, graded,
                    )  # fmt: skip


def weights_from_panels(start: Any, stop: Any, partial: Any, out: Any, geometry: Any) -> None:
    """The other way, and the sum of all parts. A unit is LANES terms of a group."""
    outputs, terms, panel_size, parts = geometry[1], geometry[2], geometry[4], geometry[12]
    blocks = (terms + LANES - 1) // LANES
    sums = strip(LANES * WIDTH, partial)
    for unit in range(start, stop):
        group, first = unit // blocks, unit % blocks * LANES
        count = least(LANES, terms - first)
        for low in range(0, outputs, WIDTH):
            own = least(WIDTH, outputs - low)
            width = (own + LANES - 1) // LANES * LANES
            begin = group * panel_size + low * terms + first * width
            move(sums, tail(row(partial, 0), begin), count * width)
            for part in range(1, parts):
                source = tail(row(partial, part), begin)
                for n in range(count * width):
                    sums[n] += source[n]
            turn(tail(out, (group * outputs + low) * terms + first), terms, sums, width, count, own, LANES)
