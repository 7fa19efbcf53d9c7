"""Convolutions as sums over shifted images.

Images are copied, with their padding, into planes, whose rows follow each other `pitch` elements apart. The window's
element k of all pixels is then a plane from `offsets[k]` on, and a tile of results is a sum of such pieces times
weights. Where the rows of a plane are longer than those of the results, what lies between two rows is computed too, and
left out; where that is more work than copying, there is a plane for each place in a window, as long as the results.

These functions are compiled from their source (`kernels/convolution.py`), as kernels that carry out the units of their
work from `start` up to `stop`. An element of a result is one sum in a fixed order, whoever computes it.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.copies import fill_planes, put_rows, zero
from snncell.kernels.cpu.elements import row, tail
from snncell.kernels.cpu.tiles import add_products, multiply_rows


def pack_weights(start: Any, stop: Any, weights: Any, sources: Any, packed: Any, geometry: Any) -> None:
    """Eight rows of weights side by side, for each term of their sums: row r of group g has its k-th weight at
    `weights[g * group + r * apart + sources[k]]`. There are zeros for rows behind the last."""
    rows, apart, group, count = geometry[0], geometry[1], geometry[2], geometry[3]
    blocks = (rows + 7) // 8
    for unit in range(start, stop):
        own = row(packed, unit)
        first = unit // blocks * group + unit % blocks * 8 * apart
        present = least(8, rows - unit % blocks * 8)
        for k in range(count):
            for r in range(8):
                own[8 * k + r] = weights[first + r * apart + sources[k]] if r < present else 0


def correlate(
    start: Any, stop: Any, grain: Any, x: Any, packed: Any, offsets: Any, views: Any, out: Any, planes: Any, sums: Any,
    geometry: Any,
) -> None:  # fmt: skip
    """Results from images and packed weights. A unit is some channels of the results of some images, or of some rows.

    `planes` and `sums` have a row for each part of `grain` units, and are overwritten.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    down, across, by_rows, by_columns = geometry[5], geometry[6], geometry[7], geometry[8]
    rows, pitch, apart, count = geometry[9], geometry[10], geometry[11], geometry[12]
    outputs, out_rows, out_width = geometry[13], geometry[14], geometry[15]
    bands, band_rows, splits, split_blocks = geometry[16], geometry[17], geometry[18], geometry[19]
    out_first, out_plane, out_down, out_across = geometry[20], geometry[21], geometry[22], geometry[23]
    together, chunk = geometry[24], geometry[25]
    blocks, area, taps = (outputs + 7) // 8, rows * pitch, count // channels
    image, total = row(planes, start // grain), row(sums, start // grain)
    for unit in range(start, stop):
        split, number = unit % splits, unit // splits
        first_row, group = number % bands * band_rows, number // bands % groups
        first = number // bands // groups * together
        there, some_rows = least(together, images - first), least(band_rows, out_rows - first_row)
        ahead = (some_rows - 1) * pitch + out_width
        wide = ((there - 1) * area + ahead + 15) // 16 * 16
        first_block = split * split_blocks
        for begin in range(0, channels, chunk):
            some = least(chunk, channels - begin)
            # First, for they reach into the planes behind them. Pieces end there, and rows that share their padding.
            for plane in range(some * by_rows * by_columns):
                zero(tail(image, plane * apart + there * area), apart - there * area)
            for n in range(there):
                member = (first + n) * groups + group
                fill_planes(
                    tail(image, n * area), tail(x, 0), (member * channels + begin) * height * width, some, apart,
                    height, width, down, across, tail(views, 0), by_rows, by_columns, first_row * down, rows, pitch,
                )  # fmt: skip
            for block in range(first_block, least(blocks, first_block + split_blocks)):
                # Where channels come in chunks, the sums of all blocks wait for the next; else only one's are there.
                own_sums = tail(total, (block - first_block) * 8 * wide if chunk < channels else 0)
                own = tail(row(packed, group * blocks + block), begin * taps * 8)
                present = least(8, outputs - 8 * block)
                multiply_rows(own_sums, wide, own, present, image, tail(offsets, 0), some * taps, begin)
                if begin + chunk >= channels:
                    for n in range(there):
                        place = out_first + (((first + n) * groups + group) * outputs + 8 * block) * out_plane
                        put_rows(
                            tail(out, place + first_row * out_down), tail(own_sums, n * area), present, out_plane, wide,
                            some_rows, out_width, pitch, out_down, out_across,
                        )  # fmt: skip


def contract(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, offsets: Any, views: Any, partial: Any, planes: Any,
    slopes: Any, geometry: Any,
) -> None:  # fmt: skip
    """The gradient of weights, from images and the gradient of results. A unit is some images and some channels.

    `partial` has a row for each unit: the sums over its images, for four outputs and four weights at a time. `planes`
    and `slopes` have a row for each part of `grain` units, and are overwritten.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    down, across, by_rows, by_columns = geometry[5], geometry[6], geometry[7], geometry[8]
    rows, pitch, apart, taps = geometry[9], geometry[10], geometry[11], geometry[12]
    outputs, out_rows, out_width = geometry[13], geometry[14], geometry[15]
    parts, splits, split_channels, together = geometry[16], geometry[17], geometry[18], geometry[19]
    area = rows * pitch
    plain = by_rows + by_columns  # the view of a gradient, which has no padding
    for unit in range(start, stop):
        image, slope, own = row(planes, start // grain), row(slopes, start // grain), row(partial, unit)
        split, number = unit % splits, unit // splits
        group, part = number % groups, number // groups
        first = split * split_channels
        some = least(split_channels, channels - first)
        terms = (some * taps + 3) // 4
        zero(own, terms * ((outputs + 3) // 4) * 16)
        last = (part + 1) * images // parts
        for begin in range(part * images // parts, last, together):
            there = least(together, last - begin)
            # First, for they reach into what is behind them. What lies between pixels is multiplied too, with a
            # gradient of 0, so it has to be finite.
            for plane in range(some * by_rows * by_columns):
                zero(tail(image, plane * apart + there * area), apart - there * area)
            for r in range(outputs):
                zero(tail(slope, r * apart + there * area), apart - there * area)
            for n in range(there):
                member = (begin + n) * groups + group
                fill_planes(
                    tail(image, n * area), tail(x, 0), (member * channels + first) * height * width, some, apart,
                    height, width, down, across, tail(views, 0), by_rows, by_columns, 0, rows, pitch,
                )  # fmt: skip
                fill_planes(
                    tail(slope, n * area), tail(gradient, 0), member * outputs * out_rows * out_width, outputs, apart,
                    out_rows, out_width, 1, 1, tail(views, plain), 1, 1, 0, rows, pitch,
                )  # fmt: skip
            wide = ((there - 1) * area + (out_rows - 1) * pitch + out_width + 15) // 16 * 16
            add_products(own, slope, outputs, apart, image, tail(offsets, 0), terms, wide)


def add_parts(start: Any, stop: Any, partial: Any, out: Any, geometry: Any) -> None:
    """The gradient of weights from the sums over parts of the images. A unit is four outputs of a group."""
    groups, channels, taps, outputs = geometry[1], geometry[2], geometry[12], geometry[13]
    parts, splits, split_channels = geometry[16], geometry[17], geometry[18]
    fours = (outputs + 3) // 4
    for unit in range(start, stop):
        group, r = unit // fours, unit % fours
        for split in range(splits):
            some = least(split_channels, channels - split * split_channels) * taps
            terms = (some + 3) // 4
            for n in range(least(4, outputs - 4 * r)):
                target = tail(out, ((group * outputs + 4 * r + n) * channels + split * split_channels) * taps)
                for k in range(some):
                    place = (r * terms + k // 4) * 16 + k % 4 * 4 + n
                    total = partial[group * splits + split, place]
                    for part in range(1, parts):
                        total += partial[(part * groups + group) * splits + split, place]
                    target[k] = total
