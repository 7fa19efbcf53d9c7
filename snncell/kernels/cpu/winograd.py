"""Convolutions with fewer multiplications: see `kernels/toom_cook.py`.

An image is cut into tiles of 2x2 results, which overlap where the window reaches beyond them. Each is transformed to as
many points as it has elements. At each point there is then a product of matrices: of weights (outputs, channels) by
tiles (channels, tiles) for results, or of a gradient (outputs, tiles) by tiles for the gradient of weights. The tiles
of some images follow each other without a gap, and a part of the images is small enough for the cache.

These functions are compiled from their source (`kernels/winograd.py`), as kernels that carry out the units of their
work from `start` up to `stop`. An element of a result is one sum in a fixed order, whoever computes it.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.copies import zero
from snncell.kernels.cpu.elements import row, tail
from snncell.kernels.cpu.tiles import add_products, multiply_rows

# Of `cpu/transforms.py`, for the tiles of the kernel.
points_of_weights: Any = None
tiles_of_images: Any = None
tiles_of_slopes: Any = None
put_results: Any = None
weights_of_points: Any = None


def pack_points(start: Any, stop: Any, weights: Any, sources: Any, packed: Any, geometry: Any) -> None:
    """As `convolution.pack_weights`, of weights at points: for each point, eight rows side by side for each channel.

    Behind them, a row of `packed` has room for one window.
    """
    rows, apart, group, channels, taps, points = (
        geometry[0], geometry[1], geometry[2], geometry[3], geometry[4], geometry[5],
    )  # fmt: skip
    blocks = (rows + 7) // 8
    for unit in range(start, stop):
        own = row(packed, unit)
        window = tail(own, points * channels * 8)
        first = unit // blocks * group + unit % blocks * 8 * apart
        present = least(8, rows - unit % blocks * 8)
        for c in range(channels):
            for k in range(taps):
                place = first + sources[c * taps + k]
                for r in range(8):
                    window[8 * k + r] = weights[place + r * apart] if r < present else 0
            points_of_weights(tail(own, 8 * c), 8 * channels, window, 8, 8)


def correlate_tiles(
    start: Any, stop: Any, grain: Any, x: Any, packed: Any, offsets: Any, out: Any, points: Any,
    sums: Any, geometry: Any,
) -> None:  # fmt: skip
    """Results from images and packed weights. A unit is some channels of the results of some images, or of some rows.

    `points` and `sums` have a row for each part of `grain` units, and are overwritten.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down, high = geometry[10], geometry[11], geometry[12], geometry[13], geometry[14]
    bands, band_rows, together, wide = geometry[15], geometry[16], geometry[17], geometry[18]
    splits, split_blocks, out_first, out_plane = geometry[19], geometry[20], geometry[21], geometry[22]
    out_down = geometry[23]
    blocks, apart, sums_apart = (outputs + 7) // 8, channels * wide + 16, split_blocks * 8 * wide + 16
    tiles, total = row(points, start // grain), row(sums, start // grain)
    for unit in range(start, stop):
        split, number = unit % splits, unit // splits
        first_row, group = number % bands * band_rows, number // bands % groups
        first = number // bands // groups * together
        there, rows = least(together, images - first), least(band_rows, tile_rows - first_row)
        tiles_of_images(
            tiles, apart, wide, tail(x, (first * groups + group) * channels * height * width), there,
            groups * channels * height * width, channels, height, width, top + down * first_row, left, rows, columns, 0,
        )  # fmt: skip
        long = (there * rows * columns + 15) // 16 * 16
        first_block = split * split_blocks
        last_block = least(blocks, first_block + split_blocks)
        for p in range(count):
            for block in range(first_block, last_block):
                own = tail(row(packed, group * blocks + block), p * channels * 8)
                target = tail(total, p * sums_apart + (block - first_block) * 8 * long)
                present = least(8, outputs - 8 * block)
                multiply_rows(target, long, own, present, tail(tiles, p * apart), tail(offsets, 0), channels, 0)
        for r in range(8 * first_block, least(outputs, 8 * last_block)):
            for n in range(there):
                place = out_first + (((first + n) * groups + group) * outputs + r) * out_plane
                for i in range(0, rows, high):
                    line = 2 * (first_row + i)
                    put_results(
                        tail(out, place + line * out_down), out_down,
                        tail(total, (r - 8 * first_block) * long + (n * rows + i) * columns), sums_apart, out_width,
                        least(out_rows - line, 2 * (rows - i)),
                    )  # fmt: skip


def contract_tiles(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, offsets: Any, partial: Any, points: Any,
    slopes: Any, geometry: Any,
) -> None:  # fmt: skip
    """The gradient of weights at the points, from images and the gradient of results. A unit is a part of the images,
    some of the channels, and some of the outputs, in fours.

    `partial` has a row for each unit: for each point, the sums over its images, for four outputs and four channels at
    a time. `points` and `slopes` have a row for each part of `grain` units, and are overwritten.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, left, down = geometry[10], geometry[11], geometry[12], geometry[13]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    together, wide, bands, band_rows = geometry[20], geometry[21], geometry[22], geometry[23]
    apart, slopes_apart = split_channels * wide + 16, 4 * fours * wide + 16
    tiles, slope = row(points, start // grain), row(slopes, start // grain)
    for unit in range(start, stop):
        own = row(partial, unit)
        split, number = unit % splits, unit // splits
        cut, number = number % cuts, number // cuts
        group, part = number % groups, number // groups
        first, first_output = split * split_channels, cut * fours * 4
        some, present = least(split_channels, channels - first), least(fours * 4, outputs - first_output)
        terms = (some + 3) // 4
        zero(own, count * terms * fours * 16)
        begin, end = part * images // parts, (part + 1) * images // parts
        for step in range((end - begin + together - 1) // together * bands):
            first_image, first_row = begin + step // bands * together, step % bands * band_rows
            there, rows = least(together, end - first_image), least(band_rows, tile_rows - first_row)
            long = (there * rows * columns + 15) // 16 * 16  # what is behind the last tile is multiplied too
            member = first_image * groups + group
            tiles_of_images(
                tiles, apart, wide, tail(x, (member * channels + first) * height * width), there,
                groups * channels * height * width, some, height, width, top + down * first_row, left, rows, columns,
                long,
            )  # fmt: skip
            tiles_of_slopes(
                slope, slopes_apart, wide, tail(gradient, (member * outputs + first_output) * out_rows * out_width),
                there, groups * outputs * out_rows * out_width, present, out_rows, out_width, 2 * first_row, 0, rows,
                columns, long,
            )  # fmt: skip
            for p in range(count):
                target = tail(own, p * terms * fours * 16)
                add_products(
                    target, tail(slope, p * slopes_apart), present, wide, tail(tiles, p * apart), tail(offsets, 0),
                    terms, long,
                )  # fmt: skip


def weights_of_tiles(start: Any, stop: Any, partial: Any, rooms: Any, out: Any, geometry: Any) -> None:
    """The gradient of weights, of what `contract_tiles` made. A unit is four outputs of a group.

    `rooms` has a row for each unit, and is overwritten; so is `partial`.
    """
    groups, channels, outputs, count = geometry[1], geometry[2], geometry[5], geometry[10]
    parts, splits, split_channels, cuts, fours = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    taps, all_fours = geometry[24], (outputs + 3) // 4
    for unit in range(start, stop):
        group, first = unit // all_fours, unit % all_fours
        cut, r = first // fours, first % fours
        room = row(rooms, unit)
        for split in range(splits):
            some = least(split_channels, channels - split * split_channels)
            terms = (some + 3) // 4
            own = row(partial, (group * cuts + cut) * splits + split)
            for k in range(terms):
                place = (r * terms + k) * 16
                for part in range(1, parts):
                    more = row(partial, ((part * groups + group) * cuts + cut) * splits + split)
                    for p in range(count):
                        for lane in range(16):
                            there = p * terms * fours * 16 + place + lane
                            own[there] = own[there] + more[there]
                weights_of_points(room, 16, tail(own, place), terms * fours * 16, 16)
                for c in range(least(4, some - 4 * k)):
                    for n in range(least(4, outputs - 4 * first)):
                        pair = (group * outputs + 4 * first + n) * channels + split * split_channels + 4 * k + c
                        for tap in range(taps):
                            out[pair * taps + tap] = room[16 * tap + 4 * c + n]
