"""Kernels of Winograd convolutions: transform tiles, multiply them at each point, and transform the results.

A *line*, a vector of 64 bytes, has consecutive channels of a tile at a point (see `transforms.py`). For each point, the
tiles are a matrix, and the weights are panels of PANEL lines of outputs; `multiply_panel` multiplies both. `direct.py`
explains units and `grain`, and `winograd.py` makes the plans.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.conv.transforms import WIDE, channels_to_lanes
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import line_of, row, tail
from snncell.kernels.intrinsics.panels import VECTORS_OF_TILE as PANEL, multiply_panel

SHORT_SUMS = 24  # products of so many tiles are summed before their sum is added to the total, for a small error

# Functions of `transforms.py`, which `winograd.py` generates for the tiling of a kernel.
points_of_weights: Any = None
tiles_of_images: Any = None
tiles_of_slopes: Any = None
results_of_points: Any = None
lanes_to_channels: Any = None
weights_of_points: Any = None


def pack_points(start: Any, stop: Any, weights: Any, places: Any, packed: Any, windows: Any, geometry: Any) -> None:
    """Transform weights to points, and pack them in panels of PANEL vectors of outputs. A unit is a vector of outputs.

    Row r of group g has its weights at `weights[g * group + r * apart:]`, with channels `between` elements apart. The
    windows of channel c for a panel of `step` outputs go to row c of a matrix (channels, step) of each point. `chunk`
    channels are packed together.
    """
    rows, apart, group, channels, between = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    high, wide, taps, chunk, padded = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    window_size, point = geometry[10], geometry[11]
    line = line_of(tail(weights, 0))
    side, panel = line * WIDE // 64, PANEL * line
    blocks = padded // side
    for unit in range(start, stop):
        window, first = row(windows, unit), unit % blocks * side
        begin = first // panel * panel
        own, step = tail(row(packed, unit // blocks), begin * channels + first - begin), least(panel, padded - begin)
        source, present = unit // blocks * group + first * apart, rows - first
        for c in range(0, channels, chunk):
            some = least(chunk, channels - c)
            channels_to_lanes(window, tail(places, 0), tail(weights, source + c * between), present, apart, some * taps)
            points_of_weights(
                tail(own, c * step), wide * point, point, step, window, high * side, side,
                window_size * side, some,
            )  # fmt: skip


def correlate_tiles(
    start: Any, stop: Any, grain: Any, x: Any, packed: Any, places: Any, out: Any, points: Any, sums: Any, lanes: Any,
    planes: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute results from images and packed weights. A unit is a range of output channels, and of images or rows."""
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, points_wide, top, down, pitch = geometry[10], geometry[11], geometry[12], geometry[13], geometry[14]
    bands, band_rows, together, many, apart = geometry[15], geometry[16], geometry[17], geometry[18], geometry[19]
    padded, splits, split_width, near = geometry[20], geometry[21], geometry[22], geometry[23]
    sums_apart = geometry[24]
    out_first, out_plane, out_down, adjacent = geometry[25], geometry[26], geometry[27], geometry[28]
    of_results, room, point = geometry[29], geometry[30], geometry[31]
    line = line_of(tail(out, 0))
    side, panel = line * WIDE // 64, PANEL * line
    result = 2 * columns * side
    tiles, total, lane = row(points, start // grain), row(sums, start // grain), row(lanes, start // grain)
    plane, filled = row(planes, start // grain), -1
    for unit in range(start, stop):
        split, number = unit % splits, unit // splits
        first_row, group = number % bands * band_rows, number // bands % groups
        first = number // bands // groups * together
        there, rows = least(together, images - first), least(band_rows, tile_rows - first_row)
        if number != filled:  # consecutive units have the same tiles
            tiles_of_images(
                tiles, apart, many, lane, room, tail(x, (first * groups + group) * channels * height * width), plane,
                tail(places, 0), there, groups * channels * height * width, channels,
                (channels + side - 1) // side * side, height, width, top + down * first_row, rows, columns, pitch,
            )  # fmt: skip
            filled = number
        last = least(padded, (split + 1) * split_width)
        lines = least(out_rows - 2 * first_row, 2 * rows)
        run = lines if adjacent else 1
        for low in range(split * split_width, last, near):  # their sums fit into the cache
            end = least(last, low + near)
            for p in range(count):
                for begin in range(low, end, panel):
                    vectors = least(PANEL, (padded - begin) // line)
                    weights = tail(row(packed, group), p * point + begin * channels)
                    multiply_panel(
                        tail(total, p * sums_apart + (begin - low) * many), line, many * line, tail(tiles, p * apart),
                        line, line * line, 1, many * line, weights, vectors * line, line, there * rows * columns,
                        vectors, channels, 0,
                    )  # fmt: skip
            for r in range(low, least(outputs, end), line):
                for n in range(there):
                    source = tail(total, ((r - low) // line * many + n * rows * columns) * line)
                    for i in range(rows):
                        for half in range(0, least(line, outputs - r), side):
                            results_of_points(
                                tail(lane, half // side * room + 2 * i * result), result, side, 2 * side,
                                tail(source, i * columns * line + half), points_wide * sums_apart, sums_apart, line,
                                columns,
                            )  # fmt: skip
                    for half in range(0, least(line, outputs - r), side):
                        place = out_first + (((first + n) * groups + group) * outputs + r + half) * out_plane
                        for i in range(0, lines, run):
                            lanes_to_channels(
                                tail(out, place + (2 * first_row + i) * out_down), outputs - r - half, out_plane,
                                tail(lane, half // side * room), tail(places, of_results + i * out_width),
                                run * out_width,
                            )  # fmt: skip


def contract_tiles(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, places: Any, partial: Any, points: Any, slopes: Any,
    lanes: Any, planes: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute the weight gradient at the points, from images and the result gradient.

    A unit is a range of images, of channels and of outputs. Its row of `partial` gets, for each point, the sums over
    its images: a matrix (channels, outputs).
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    outputs, out_rows, out_width, tile_rows, columns = geometry[5], geometry[6], geometry[7], geometry[8], geometry[9]
    count, top, down, pitch = geometry[10], geometry[12], geometry[13], geometry[14]
    parts, splits, split_channels = geometry[15], geometry[16], geometry[17]
    cuts, cut_outputs = geometry[18], geometry[19]
    together, bands, band_rows, of_slopes = geometry[20], geometry[21], geometry[22], geometry[23]
    many, apart, slopes_apart, point, room = geometry[24], geometry[25], geometry[26], geometry[27], geometry[30]
    line = line_of(tail(gradient, 0))
    side = line * WIDE // 64
    tiles, slope, lane = row(points, start // grain), row(slopes, start // grain), row(lanes, start // grain)
    plane = row(planes, start // grain)
    for unit in range(start, stop):
        own = row(partial, unit)
        split, number = unit % splits, unit // splits
        cut, number = number % cuts, number // cuts
        group, part = number % groups, number // groups
        first, first_output = split * split_channels, cut * cut_outputs
        some, present = least(split_channels, channels - first), least(cut_outputs, outputs - first_output)
        begin, end = part * images // parts, (part + 1) * images // parts
        for step in range((end - begin + together - 1) // together * bands):
            first_image, first_row = begin + step // bands * together, step % bands * band_rows
            there, rows = least(together, end - first_image), least(band_rows, tile_rows - first_row)
            member = first_image * groups + group
            tiles_of_images(
                tiles, apart, many, lane, room, tail(x, (member * channels + first) * height * width), plane,
                tail(places, 0), there, groups * channels * height * width, some, (some + side - 1) // side * side,
                height, width, top + down * first_row, rows, columns, pitch,
            )  # fmt: skip
            tiles_of_slopes(
                slope, slopes_apart, many, lane, room,
                tail(gradient, (member * outputs + first_output) * out_rows * out_width), plane,
                tail(places, of_slopes), there, groups * outputs * out_rows * out_width, present, cut_outputs, out_rows,
                out_width, 2 * first_row, rows, columns, 2 * columns,
            )  # fmt: skip
            total = there * rows * columns
            for p in range(count):
                for low in range(0, cut_outputs, PANEL * line):
                    vectors = least(PANEL, (cut_outputs - low) // line)
                    for t in range(0, total, SHORT_SUMS):
                        multiply_panel(
                            tail(own, p * point + low), cut_outputs, line, tail(tiles, p * apart + t * line), 1,
                            many * line, line, line * line, tail(slope, p * slopes_apart + low * many + t * line), line,
                            many * line, some, vectors, least(SHORT_SUMS, total - t), step + t,
                        )  # fmt: skip


def weights_of_tiles(start: Any, stop: Any, partial: Any, places: Any, lanes: Any, out: Any, geometry: Any) -> None:
    """Transform `partial` to the weight gradient, overwriting `partial`. A unit is a vector of channels of a row."""
    groups, channels, outputs, count, points_wide = geometry[1], geometry[2], geometry[5], geometry[10], geometry[11]
    parts, splits, split_channels = geometry[15], geometry[16], geometry[17]
    cuts, cut_outputs = geometry[18], geometry[19]
    point, window_wide, taps = geometry[27], geometry[28], geometry[29]
    side = line_of(tail(out, 0)) * WIDE // 64
    chunks, slots = (split_channels + side - 1) // side, groups * cuts * splits
    for unit in range(start, stop):
        chunk, slot = unit % chunks * side, unit // chunks
        split, cut, group = slot % splits, slot // splits % cuts, slot // splits // cuts
        first, first_output = split * split_channels + chunk, cut * cut_outputs
        some = least(side, least(channels - first, split_channels - chunk))
        present = least(cut_outputs, outputs - first_output)
        own, lane = tail(row(partial, slot), chunk * cut_outputs), row(lanes, unit)
        if some > 0:
            for part in range(1, parts):
                for p in range(count):
                    total = tail(own, p * point)
                    term = tail(row(partial, part * slots + slot), chunk * cut_outputs + p * point)
                    for k in range(some * cut_outputs):
                        total[k] = total[k] + term[k]
            for r in range(0, present, side):
                for c in range(some):
                    weights_of_points(
                        tail(lane, c * taps * side), window_wide * side, side, 0, tail(own, c * cut_outputs + r),
                        points_wide * point, point, 0, 1,
                    )  # fmt: skip
                target = ((group * outputs + first_output + r) * channels + first) * taps
                lanes_to_channels(tail(out, target), present - r, channels * taps, lane, tail(places, 0), some * taps)
