"""Convolutions of images that are mostly zeros, as spikes are: work in proportion to the elements that are not.

Sums have the channels of the results next to each other. An element of an image adds a row of weights to the sums of
each pixel that has it in its window; in the gradient of the weights, the gradients of those pixels are added to its
rows of weights. Around the pixels there is room for windows that reach beyond them.

These functions are compiled from their source (`kernels/conv_events.py`), as kernels that carry out the units of their
work from `start` up to `stop`. Sums run over the events in an order that the sizes alone decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it needs Numba; the compiled source imports it
    from snncell.kernels.cpu.builtins import least
    from snncell.kernels.cpu.elements import flat, row, tail
    from snncell.kernels.cpu.rows import find_events
    from snncell.kernels.cpu.tiles import add_rows
    from snncell.kernels.cpu.vectors import zero


def weights_as_rows(start: Any, stop: Any, weights: Any, rows: Any, geometry: Any) -> None:
    """(groups, O, C taps) -> (groups C taps, width): the weights of all outputs side by side. A unit is a row."""
    outputs, terms = geometry[1], geometry[2]
    for unit in range(start, stop):
        own, group, term = row(rows, unit), unit // terms, unit % terms
        zero(own, geometry[4])
        for o in range(outputs):
            own[o] = weights[(group * outputs + o) * terms + term]


def scatter(
    start: Any, stop: Any, grain: Any, x: Any, weights: Any, bases: Any, firsts: Any, offsets: Any, taps: Any, out: Any,
    sums: Any, flags: Any, places: Any, values: Any, geometry: Any,
) -> None:  # fmt: skip
    """Results from images and rows of weights. A unit is a group of an image.

    `sums`, `flags`, `places` and `values` have a row for each part of `grain` units, and are overwritten.
    """
    groups, outputs, terms, channels, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    pixels, grid, pitch, out_rows, out_width = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    corner = geometry[10]
    part = start // grain
    total, flag, place, value = row(sums, part), row(flags, part), row(places, part), row(values, part)
    for unit in range(start, stop):
        zero(total, grid * width)
        for channel in range(channels):
            count = find_events(tail(x, (unit * channels + channel) * pixels), pixels, flag, place, value)
            own = (unit % groups * terms + channel * (terms // channels)) * width
            for event in range(count):
                pixel = place[event]
                phase = bases[2 * pixel + 1]
                add_rows(
                    tail(total, bases[2 * pixel] * width), tail(offsets, firsts[phase]), tail(flat(weights), own),
                    tail(taps, firsts[phase]), firsts[phase + 1] - firsts[phase], value[event], width,
                )  # fmt: skip
        for o in range(outputs):
            target = tail(out, (unit * outputs + o) * out_rows * out_width)
            for i in range(out_rows):
                origin = (corner + i * pitch) * width + o
                for j in range(out_width):
                    target[i * out_width + j] = total[origin + j * width]


def gather(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, bases: Any, firsts: Any, offsets: Any, taps: Any,
    partial: Any, slopes: Any, flags: Any, places: Any, values: Any, geometry: Any,
) -> None:  # fmt: skip
    """The gradient of rows of weights, from images and the gradient of results. A unit is channels of some images.

    `partial` (parts, groups C taps width) has a row for each part of the images. `slopes`, `flags`, `places` and
    `values` have a row for each part of `grain` units, and are overwritten.
    """
    groups, outputs, terms, channels, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    pixels, grid, pitch, out_rows, out_width = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    corner, members, parts, split_channels = geometry[10], geometry[11], geometry[12], geometry[13]
    splits, taps_of_all = (channels + split_channels - 1) // split_channels, terms // channels
    own = start // grain
    slope, flag, place, value = row(slopes, own), row(flags, own), row(places, own), row(values, own)
    zero(slope, grid * width)  # around the pixels it stays
    for unit in range(start, stop):
        part, first = unit // splits, unit % splits * split_channels
        last = least(channels, first + split_channels)
        rows = row(partial, part)
        for group in range(groups):
            zero(tail(rows, (group * terms + first * taps_of_all) * width), (last - first) * taps_of_all * width)
        for member in range(part * members // parts * groups, (part + 1) * members // parts * groups):
            for o in range(outputs):
                source = tail(gradient, (member * outputs + o) * out_rows * out_width)
                for i in range(out_rows):
                    origin = (corner + i * pitch) * width + o
                    for j in range(out_width):
                        slope[origin + j * width] = source[i * out_width + j]
            for channel in range(first, last):
                count = find_events(tail(x, (member * channels + channel) * pixels), pixels, flag, place, value)
                target = tail(rows, (member % groups * terms + channel * taps_of_all) * width)
                for event in range(count):
                    pixel = place[event]
                    phase = bases[2 * pixel + 1]
                    add_rows(
                        target, tail(taps, firsts[phase]), tail(slope, bases[2 * pixel] * width),
                        tail(offsets, firsts[phase]), firsts[phase + 1] - firsts[phase], value[event], width,
                    )  # fmt: skip


def weights_from_rows(start: Any, stop: Any, partial: Any, out: Any, geometry: Any) -> None:
    """(parts, groups C taps width) -> (groups, O, C taps), summed over the parts. A unit is an output."""
    outputs, terms, width, parts = geometry[1], geometry[2], geometry[4], geometry[12]
    for unit in range(start, stop):
        for term in range(terms):
            place = (unit // outputs * terms + term) * width + unit % outputs
            total = partial[0, place]
            for part in range(1, parts):
                total += partial[part, place]
            out[unit * terms + term] = total
