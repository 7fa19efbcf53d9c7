"""Event-driven convolutions of spikes: the work is proportional to the number of events, the nonzero elements.

For results, the events of an image are sorted by pixel, so that the events in one row of a window are contiguous. Each
event in the window of a result pixel adds a row of weights to this pixel. For the gradient of the weights, the events
are sorted by channel. A row of this gradient belongs to one channel and one element of the window, and has a number for
each output. Each event of the channel adds to it the result gradient of all outputs at one pixel, times the value of
the event. The sums of WIDTH outputs stay in registers over all events (`intrinsics/panels.py`), in an order that
depends only on the sizes. `direct.py` explains units and `grain`.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import ALIGNMENT, empty
from snncell.kernels.conv import event_lists, pointwise, transforms, winograd
from snncell.kernels.conv.event_lists import (
    add_to_terms,
    clear_terms,
    events_in_window,
    lines_of_window,
    list_events,
    rows_of_pixels,
    sort_by_key,
)
from snncell.kernels.conv.planes import LANES, Axis, Shape, Sizes, flat
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import move, row, strip, tail, zero
from snncell.kernels.intrinsics.panels import VECTORS, add_rows, turn
from snncell.kernels.numba.build import kernel_for, run_in_parts
from snncell.kernels.products.csr import Rows
from snncell.kernels.products.matmul import estimate_density

# --- Kernels ----------------------------------------------------------------------------------------------------------

WIDTH = 64  # the outputs of a register block of float32; `_kernel` replaces WIDTH and LANES by those of its dtype


def weights_as_panels(start: Any, stop: Any, weights: Any, panels: Any, geometry: Any) -> None:
    """Pack weights (groups, outputs, terms) into panels. A unit is LANES terms of a group.

    A term is an element of the window in one channel. A panel (terms, WIDTH) has the weights of WIDTH outputs, and the
    last panel of a group those of the remaining outputs, filled up to whole vectors.
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
    """Compute results from images and panels of weights. A unit is a group of an image.

    `x` has the images, or only the values of their events, whose positions are in `starts` and `given`. `pieces`
    describes the window. First it has two numbers for each row: the offset from the position of the window, and the
    number of the first element. Then it has three numbers for each part of a row with consecutive columns: the same
    two, and the length.
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
    """Compute panels of the gradient of the weights, from images and the gradient of results.

    A unit is a range of channels in one part of the images. `x`, `starts` and `given` are as for `convolve_events`.
    `partial` has panels of all weights for each part of the images, group by group.
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
    zero(slope, together * grid * step)  # the margins around the pixels stay zero
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
    """Unpack the panels of all parts, and sum over the parts. A unit is LANES terms of a group."""
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


Ints = tuple[int, ...]

PARTS = 16  # parts of the images for a weight gradient; if memory or images allow only fewer, channels are split too
MOST_SLOPES = 1 << 18  # bytes of result gradients processed at once, a part of the L2 cache
MOST_PARTIAL = 1 << 20  # the maximum number of elements of the gradients of all parts
# The cost model, in cycles of one thread per image and group, fitted to ratios of measured times for 133 shapes
# (`benchmarks/events.py`). Dense algorithms cost
# - one cycle per vector of multiplications, or POINTWISE if images are not copied,
# - COPIED per element that is copied,
# - WEIGHT per weight that is summed over parts of the images, PACKED per weight that is packed, and TRANSFORMED per
#   weight of either kind at each of Winograd's points.
# Events cost
# - CALL per weight gradient,
# - MOVED per element that is scanned, or transposed between channels and pixels,
# - WINDOW per result and panel, for each row of the window and once more,
# - PACKED per weight that is packed,
# - SUMMED per vector of weights that is summed over parts of the images,
# - per event in a window, EVENT for each panel and ADDED for each vector of sums.
COPIED, WEIGHT, CALL, MOVED, WINDOW, SUMMED, EVENT, ADDED = 1.3, 8.0, 10_000.0, 1.2, 8.0, 38.0, 1.7, 2.3
PACKED, TRANSFORMED, POINTWISE = 1.3, 1.0, 0.8
BATCH = 16  # an assumed number of images that share the packed weights


class Grid(NamedTuple):
    """The pixels of the results with margins around them, and the windows that contain each element of an image.

    A tap is an element of the window. Taps are sorted by the phase of the image elements that they multiply: the
    position of an element modulo the stride.
    """

    bases: Any  # for each element of an image, the pixel of the grid to which the offsets are added
    phases: Any  # for each element, its phase
    firsts: Any  # for each phase, the number of its first tap, and at the end the number of all taps
    offsets: Any  # for each tap, the offset of its result from the base pixel
    taps: Any  # for each tap, its number in the window
    size: int  # pixels of the grid
    pitch: int  # pixels of one of its rows
    corner: int  # pixels before the first result


@functools.lru_cache(maxsize=256)
def _grid_of(sizes: Sizes) -> Grid:
    lengths, size, stride, dilation, before, _ = sizes
    lows, highs = [], []
    for n, own, s, d, low, many in zip(*sizes, strict=True):
        # Along an axis, element y is in the windows of results q with q stride + k dilation = y + before.
        ends = np.arange(n)[:, None] + low - np.arange(own) * d
        results = ends[ends % s == 0] // s
        lows.append(int(results.min(initial=0)))
        highs.append(int(results.max(initial=many - 1)) + 1)
    rows, pitch = (high - low for high, low in zip(highs, lows, strict=True))
    shifts, within, starts = [], [], [0]
    for a, b in itertools.product(*(range(s) for s in stride)):
        down, across = (
            [((p + low - k * d) // s, k) for k in range(own) if (p + low - k * d) % s == 0]
            for p, own, s, d, low in zip((a, b), size, stride, dilation, before, strict=True)
        )
        pairs = [(i * pitch + j, k * size[1] + m) for i, k in down for j, m in across]
        shifts += [i - lows[0] * pitch - lows[1] for i, _ in pairs]
        within += [tap for _, tap in pairs]
        starts.append(len(within))
    y, x = np.indices(lengths).reshape(2, -1)
    bases, phases = y // stride[0] * pitch + x // stride[1], y % stride[0] * stride[1] + x % stride[1]
    corner = -lows[0] * pitch - lows[1]
    firsts, offsets, taps = (np.array(numbers, np.int64) for numbers in (starts, shifts, within))
    return Grid(bases, phases, firsts, offsets, taps, rows * pitch, pitch, corner)


@functools.lru_cache(maxsize=256)
def _pieces_of(sizes: Sizes) -> tuple[Any, int, int]:
    """The `pieces` of a window for `convolve_events`, and the numbers of its rows and of the parts of a row."""
    (rows, columns), (down, across), (top, left) = sizes.window, sizes.dilation, sizes.before
    length = columns if across == 1 else 1
    lines = [(k * down - top, k * columns) for k in range(rows)]
    parts = [(k * across - left, k, length) for k in range(0, columns, length)]
    return np.array([*itertools.chain(*lines, *parts)], np.int64), len(lines), len(parts)


def is_faster(x: Any, shape: Shape, of_weights: bool = False) -> bool:
    """Return True if images are so sparse that an event-driven convolution is faster than a dense one."""
    below = limit(shape, max(4, x.dtype.itemsize), of_weights) if x.size else 0.0  # bytes are converted to floats
    return below > 0 and (x.density if isinstance(x, Rows) else estimate_density(x)) < below


@functools.lru_cache(maxsize=512)
def limit(shape: Shape, itemsize: int, of_weights: bool = False) -> float:
    """The density of images below which an event-driven convolution is faster; 0 or negative if it never is.

    With `of_weights`, it is the limit for the gradient of the weights, otherwise for results. The limit for results
    does not depend on the number of images. Therefore an image has the same bits in batches of different sizes, if the
    densities of both batches are below the limit, or neither is.
    """
    images, groups, channels, outputs, axes = shape
    elements, results = channels * math.prod(axis.length for axis in axes), math.prod(axis.results for axis in axes)
    lanes = ALIGNMENT // itemsize
    size, vectors, panels = LANES / lanes, -(-outputs // lanes), -(-outputs // (VECTORS * lanes))
    terms = channels * math.prod(shape.window)
    each = channels * math.prod(map(_inside, axes)) * (EVENT * panels + ADDED * vectors)

    fixed = MOVED * size * (elements + lanes * vectors * results)
    if winograd.is_faster(shape):
        points = math.prod(transforms.points(own, axis.stride) for axis, own in zip(axes, shape.window, strict=True))
        weights, copied = channels * outputs * points, outputs * results
        dense, packed = winograd.cycles(shape), TRANSFORMED
    elif pointwise.supports(shape) and pointwise.in_place(shape):
        weights, copied = 0, 0
        dense, packed = POINTWISE * terms * outputs * results / LANES, 0.0
    else:
        # The padding of windows at the border is multiplied too. Results that fill vectors are not copied.
        weights, copied = terms * outputs, elements + (outputs * results if results % LANES else 0)
        reach = math.prod(axis.results + own - 1 for axis, own in zip(axes, shape.window, strict=True))
        dense, packed = terms * -(-outputs // 8) * 8 * reach / LANES, WEIGHT if of_weights else PACKED
    if of_weights:
        parts = _parts(images, PARTS, groups * terms * lanes * vectors)
        each_call = CALL + SUMMED * terms * vectors * (2 + parts) / 3  # the first part takes longest
        weights, share = weights * _parts(images, winograd.UNITS, groups * weights), max(1, images)
    else:
        each_call, share = PACKED * size * terms * outputs, BATCH
        fixed += WINDOW * (shape.window[0] + 1) * results * panels
    fixed, dense = fixed + each_call / share, dense + packed * weights / share
    return float((size * (dense + COPIED * copied) - fixed) / each) if each else 0.0


def _inside(axis: Axis) -> int:
    """The number of pairs of a result and an element of its window that is inside of the image."""
    lows = (-(place // axis.stride) for place in axis.places)
    highs = ((axis.length - 1 - place) // axis.stride + 1 for place in axis.places)
    pairs = zip(lows, highs, strict=True)
    return sum(max(0, min(axis.results, high) - max(0, low)) for low, high in pairs)


def _parts(images: int, most: int, weights: int) -> int:
    """The number of parts of the images for a weight gradient."""
    return max(1, min(images, most, MOST_PARTIAL // max(1, weights)))


def convolve(x: Any, weight: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Convolve images, which may be bytes or Rows, by their events into `out`."""
    outputs, terms, pixels = len(weight) // groups, math.prod(weight.shape[1:]), math.prod(x.shape[2:])
    panels = empty((groups, terms * _width(outputs, out)), out.dtype)
    units = groups * -(-terms // _lanes(out))
    geometry = np.array([groups, outputs, terms, weight.shape[1]], np.int64)
    pack = _kernel(weights_as_panels, "T[1] T[2]* int64[1]", out.dtype)
    pack(units, int(panels.size > 1 << 18), flat(weight), panels, geometry)
    pieces, rows, in_row = _pieces_of(sizes)
    room = weight.shape[1] * pixels + LANES
    numbers = [
        *(groups, outputs, terms, weight.shape[1], 0, *sizes.lengths, sizes.results[1], math.prod(sizes.results)),
        *(*sizes.stride, room, rows, in_row),
    ]
    near = 2 * rows + terms + LANES
    images = _operands(x, out)
    kinds = f"int64 {_IMAGES} T[2] int64[1] int64[1] T[1]* int32[2]* T[2]* int64[1]"
    kernel = _kernel(convolve_events, kinds, out.dtype, images[0].dtype, listed=isinstance(x, Rows))
    operands = *images, panels, np.arange(pixels), pieces, out.reshape(-1)
    scratch = (3 * room + pixels + 1 + near, np.int32), (2 * room + near, out.dtype)
    run_in_parts(kernel, len(x) * groups, math.inf, operands, scratch, np.array(numbers, np.int64))


def convolve_weight(x: Any, dout: Any, out: Any, sizes: Sizes, groups: int) -> None:
    """Compute the gradient of the weight into `out`, by the events of the images, which may be bytes or Rows."""
    channels, outputs, terms = x.shape[1] // groups, len(out) // groups, math.prod(out.shape[1:])
    width, pixels = _width(outputs, out), math.prod(x.shape[2:])
    units = _parts(len(x), PARTS, groups * terms * width)
    split_channels = -(-channels // min(channels, -(-PARTS // units)))
    splits = -(-channels // split_channels)
    grid = _grid_of(sizes)
    step, phases = min(width, VECTORS * _lanes(out)), len(grid.firsts) - 1
    together = max(1, min(-(-len(x) // units), MOST_SLOPES // (grid.size * step * out.itemsize)))
    room = together * split_channels * pixels + LANES
    numbers = [
        *(groups, outputs, terms, channels, terms * width, pixels, grid.size, grid.pitch, grid.corner),
        *(sizes.results[1], math.prod(sizes.results), len(x), units, split_channels, together, phases, room, step),
    ]
    partial = empty((units, groups * terms * width + LANES), out.dtype)
    images = _operands(x, out)
    kinds = f"int64 {_IMAGES} T[1] {'int64[1] ' * 5} T[2]* T[2]* int32[2]* T[2]* int64[1]"
    kernel = _kernel(correlate_events, kinds, out.dtype, images[0].dtype, listed=isinstance(x, Rows))
    operands = *images, flat(dout), grid.phases, grid.bases, grid.firsts, grid.offsets, grid.taps, partial
    slopes, lists = together * grid.size * step + LANES, 3 * room + split_channels * phases + 1 + LANES
    scratch = (slopes, out.dtype), (lists, np.int32), (2 * room, out.dtype)
    geometry = np.array(numbers, np.int64)
    run_in_parts(kernel, units * splits, math.inf, operands, scratch, geometry)
    units = groups * -(-terms // _lanes(out))
    unpack = _kernel(weights_from_panels, "T[2] T[1]* int64[1]", out.dtype)
    unpack(units, int(partial.size > 1 << 18), partial, out.reshape(-1), geometry)


_IMAGES = "S[1] int64[1] int32[1]"  # the signature of `_operands`
_NOTHING = np.zeros(1, np.int64), np.zeros(1, np.int32)


def _operands(x: Any, out: Any) -> tuple[Any, Any, Any]:
    if not isinstance(x, Rows):
        return flat(x), *_NOTHING
    return (x if x.dtype in dtypes.BYTES else x.astype(out.dtype)).values, x.starts, x.places


def _lanes(out: Any) -> int:
    return int(ALIGNMENT // out.itemsize)


def _width(outputs: int, out: Any) -> int:
    return -(-outputs // _lanes(out)) * _lanes(out)


def _kernel(function: Any, kinds: str, dtype: Any, *spikes: Any, listed: bool = False) -> Any:
    """Build a kernel for arrays of `dtype` and images of dtype `spikes`; `listed` says that the images are Rows."""
    lanes = ALIGNMENT // dtype.itemsize
    given = {"list_events": event_lists.take_events} if listed else {}
    return kernel_for(function, kinds, dtype, *spikes, LANES=lanes, WIDTH=VECTORS * lanes, **given)
