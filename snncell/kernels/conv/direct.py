"""Direct convolutions on the CPU, of one or two axes: sums over shifted images.

Images are copied, with their padding, into *planes* with rows `pitch` elements apart. Element k of all windows is then
a plane shifted by `offsets[k]`, and a tile of results is a sum of shifted planes times weights. The elements between
two rows of results are also computed, and then dropped. If they cost more time than additional copies, each element of
the window gets its own plane, which has only the elements that the results need.

Results are first computed in scratch memory and then copied to the output. The kernel computes them in the output
itself if four conditions hold: no elements lie between their rows, the results fill whole vectors, a unit has one
image, and a block has 8, 4 or 1 channels. Under similar conditions, it reads a gradient of results without a copy.

A kernel runs its units from `start` to `stop`. If it has an argument `grain`, a thread runs `grain` units at a time,
and the scratch memory has a row for each such part. Each result is one sum in a fixed order, so the bits do not depend
on the number of threads.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.conv import depthwise, events, pointwise, winograd
from snncell.kernels.conv.planes import (
    CACHED,
    FILL_CYCLES,
    LANES,
    Axes,
    Axis,
    ConvolutionPlan,
    PlaneLayout,
    Shape,
    Sizes,
    WeightOrder,
    axes_of,
    fill_planes,
    flat,
    layouts,
    put_rows,
    sizes_of,
    with_two_axes,
)
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row, tail, zero
from snncell.kernels.intrinsics.panels import add_products, multiply_rows
from snncell.kernels.numba.build import kernel_for, run_in_parts
from snncell.kernels.numba.policy import compiles
from snncell.kernels.products.csr import Rows, fill_rows

# --- Kernels ----------------------------------------------------------------------------------------------------------


def pack_weights(start: Any, stop: Any, weights: Any, sources: Any, packed: Any, geometry: Any) -> None:
    """Pack weights for register blocking: eight rows interleaved, term by term, with zeros after the last row. Row r of
    group g has its k-th weight at `weights[g * group + r * apart + sources[k]]`.
    """
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
    lines: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute results from images and packed weights. A unit has a range of output channels, and of images or rows."""
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    down, across, by_rows, by_columns = geometry[5], geometry[6], geometry[7], geometry[8]
    rows, pitch, apart, count = geometry[9], geometry[10], geometry[11], geometry[12]
    outputs, out_rows, out_width = geometry[13], geometry[14], geometry[15]
    bands, band_rows, splits, split_blocks = geometry[16], geometry[17], geometry[18], geometry[19]
    out_first, out_plane, out_down, out_across = geometry[20], geometry[21], geometry[22], geometry[23]
    together, chunk = geometry[24], geometry[25]
    blocks, area, taps = (outputs + 7) // 8, rows * pitch, count // channels
    adjacent = out_across == 1 and out_down == out_width and pitch == out_width
    image, total, line = row(planes, start // grain), row(sums, start // grain), row(lines, start // grain)
    filled = -1
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
            if number != filled or chunk < channels:  # consecutive units have the same planes
                fill_planes(
                    image, tail(x, 0), line, ((first * groups + group) * channels + begin) * height * width, there,
                    groups * channels * height * width, some, apart, height, width, down, across, tail(views, 0),
                    by_rows, by_columns, first_row * down, rows, pitch,
                )  # fmt: skip
                filled = number
            for block in range(first_block, least(blocks, first_block + split_blocks)):
                own = tail(row(packed, group * blocks + block), begin * taps * 8)
                present = least(8, outputs - 8 * block)
                place = out_first + ((first * groups + group) * outputs + 8 * block) * out_plane + first_row * out_down
                # If the kernel processes channels in chunks, it must keep the sums of all blocks for the next chunk.
                own_sums, step = tail(total, (block - first_block) * 8 * wide if chunk < channels else 0), wide
                in_place = adjacent and there == 1 and ahead == wide and (present == 8 or present == 4 or present == 1)
                if in_place:  # whole tiles of adjacent results are computed in the output itself
                    own_sums, step = tail(out, place), out_plane
                multiply_rows(own_sums, step, wide, own, present, image, tail(offsets, 0), some * taps, begin)
                if begin + chunk >= channels and not in_place:
                    for n in range(there):
                        put_rows(
                            tail(out, place + n * groups * outputs * out_plane), tail(own_sums, n * area), present,
                            out_plane, wide, some_rows, out_width, pitch, out_down, out_across,
                        )  # fmt: skip


def contract(
    start: Any, stop: Any, grain: Any, x: Any, gradient: Any, offsets: Any, views: Any, partial: Any, planes: Any,
    slopes: Any, lines: Any, geometry: Any,
) -> None:  # fmt: skip
    """Compute the gradient of weights from images and the gradient of results.

    A unit has a range of images and of channels. Its row of `partial` gets the sums over its images, in tiles of four
    outputs by four weights.
    """
    images, groups, channels, height, width = geometry[0], geometry[1], geometry[2], geometry[3], geometry[4]
    down, across, by_rows, by_columns = geometry[5], geometry[6], geometry[7], geometry[8]
    rows, pitch, apart, taps = geometry[9], geometry[10], geometry[11], geometry[12]
    outputs, out_rows, out_width = geometry[13], geometry[14], geometry[15]
    parts, splits, split_channels, together = geometry[16], geometry[17], geometry[18], geometry[19]
    area = rows * pitch
    plain = by_rows + by_columns  # the index in `views` of two zeros, for a plane of the gradient without padding
    pixels = out_rows * out_width
    in_place = pitch == out_width and pixels % 16 == 0 and (outputs % 4 == 0 or outputs == 1)
    for unit in range(start, stop):
        image, slope, own = row(planes, start // grain), row(slopes, start // grain), row(partial, unit)
        line = row(lines, start // grain)
        split, number = unit % splits, unit // splits
        group, part = number % groups, number // groups
        first = split * split_channels
        some = least(split_channels, channels - first)
        terms = (some * taps + 3) // 4
        zero(own, terms * ((outputs + 3) // 4) * 16)
        last = (part + 1) * images // parts
        for begin in range(part * images // parts, last, together):
            there = least(together, last - begin)
            # The elements between rows are multiplied too, by a gradient of 0, so they must be finite.
            member = begin * groups + group
            fill_planes(
                image, tail(x, 0), line, (member * channels + first) * height * width, there,
                groups * channels * height * width, some, apart, height, width, down, across, tail(views, 0), by_rows,
                by_columns, 0, rows, pitch,
            )  # fmt: skip
            if in_place:
                slopes_here = tail(gradient, member * outputs * pixels)
                add_products(
                    own, slopes_here, outputs, pixels, image, tail(offsets, 0), terms, pixels, there,
                    groups * outputs * pixels, area,
                )  # fmt: skip
                continue
            fill_planes(
                slope, tail(gradient, 0), line, member * outputs * pixels, there, groups * outputs * pixels, outputs,
                apart, out_rows, out_width, 1, 1, tail(views, plain), 1, 1, 0, rows, pitch,
            )  # fmt: skip
            wide = ((there - 1) * area + (out_rows - 1) * pitch + out_width + 15) // 16 * 16
            add_products(own, slope, outputs, apart, image, tail(offsets, 0), terms, wide, 1, 0, 0)


def add_parts(start: Any, stop: Any, partial: Any, out: Any, geometry: Any) -> None:
    """Sum the gradients of weights over the parts of the images, overwriting `partial`. A unit is four outputs."""
    groups, channels, taps, outputs = geometry[1], geometry[2], geometry[12], geometry[13]
    parts, splits, split_channels = geometry[16], geometry[17], geometry[18]
    fours = (outputs + 3) // 4
    for unit in range(start, stop):
        group, r = unit // fours, unit % fours
        for split in range(splits):
            some = least(split_channels, channels - split * split_channels) * taps
            terms = (some + 3) // 4
            total = tail(row(partial, group * splits + split), r * terms * 16)
            for part in range(1, parts):
                more = tail(row(partial, (part * groups + group) * splits + split), r * terms * 16)
                for place in range(16 * terms):
                    total[place] = total[place] + more[place]
            for n in range(least(4, outputs - 4 * r)):
                target = tail(out, ((group * outputs + 4 * r + n) * channels + split * split_channels) * taps)
                for k in range(some):
                    target[k] = total[4 * k + n]


Ints = tuple[int, ...]

LEAST_UNITS = 16  # enough units to balance the load of threads
LEAST_CHUNK = 16  # the planes of this many channels should fit into the cache
MOST_TOGETHER = 16  # the maximum number of images whose planes are adjacent
MOST_PIXELS = 640  # four rows of a gradient and four of an image of this length fit into the L1 cache
LEAST_PIXELS = 256  # the minimum number of pixels whose products are summed in registers before the lanes are reduced
TILE_CYCLES = 64  # to reduce the lanes of sixteen vectors
MOST_PARTIAL = 1 << 20  # the maximum number of elements of the sums over parts of the images


@functools.lru_cache(maxsize=512)
def _plan(images: int, groups: int, channels: int, outputs: int, axes: Axes, out_plane: Ints) -> ConvolutionPlan:
    down, across = axes
    terms, blocks = channels * len(down.places) * len(across.places), -(-outputs // 8)
    rows = down.results
    # Halve the bands of rows until the planes of several channels fit into the cache. Small images need no bands. Then
    # process several images at a time if this saves work.
    while rows > 1 and next(layouts(axes, rows, 1)).chunk(channels) < min(channels, LEAST_CHUNK):
        rows = -(-rows // 2)
    possible = layouts(axes, rows, min(MOST_TOGETHER, images))
    layout = min(possible, key=lambda x: x.cycles(channels, outputs, rows, across.results))
    chunk = layout.chunk(channels)
    split_blocks = blocks
    bands = -(-down.results // rows)
    members = -(-images // layout.together) * groups
    while split_blocks > 1 and members * bands * -(-blocks // split_blocks) < LEAST_UNITS:
        split_blocks = -(-split_blocks // 2)
    splits = -(-blocks // split_blocks)
    units = members * bands * splits
    height, width = out_plane
    geometry = [
        *(images, groups, channels, down.length, across.length, down.stride, across.stride),
        *(len(layout.down.origins), len(layout.across.origins), layout.rows, layout.pitch, layout.apart, terms),
        *(outputs, down.results, across.results, bands, rows, splits, split_blocks),
        *(down.first * width + across.first, height * width, down.step * width, across.step),
        *(layout.together, chunk),
    ]
    sums = 8 * layout.pixels(rows, across.results) * (split_blocks if chunk < channels else 1) + LANES
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        np.array(layout.offsets(chunk), np.int64),
        np.array([*layout.down.origins, *layout.across.origins], np.int64),
        units,
        blocks,
        (layout.size(chunk), sums),
        images * groups * outputs * terms * down.results * across.results,
    )


def other_algorithm(shape: Shape) -> Any:
    """The module that computes a correlation faster than the kernels of this file, or None."""
    for module in (depthwise, pointwise):
        if module.supports(shape):
            return module
    return winograd if winograd.is_faster(shape) else None


@functools.lru_cache(maxsize=512)
def _packing(channels: int, outputs: int, order: WeightOrder) -> tuple[Any, Any]:
    """The arguments `sources` and `geometry` of `pack_weights`."""
    sources = (np.arange(channels)[:, None] * order.channel + np.array(order.taps)).reshape(-1)
    return sources, np.array([outputs, order.row, order.group, len(sources)], np.int64)


def _correlate(x: Any, weights: Any, order: WeightOrder, out: Any, shape: Shape) -> None:
    """Correlate x (N, groups C, H, W) with weights into `out`."""
    x, other = _dense(x, weights.dtype, shape), other_algorithm(shape)
    if other is not None:
        other.correlate(x, weights, order, out, shape)
        return
    plan, dtype = _plan(*shape, out.shape[2:]), weights.dtype
    sources, geometry = _packing(shape.channels, shape.outputs, order)
    packed = empty((shape.groups * plan.blocks, 8 * len(sources)), dtype)
    pack = kernel_for(pack_weights, "T[1] int64[1] T[2]* int64[1]", dtype)
    pack(len(packed), int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    kinds = "int64 S[1] T[2] int64[1] int64[1] T[1]* T[2]* T[2]* T[2]* int64[1]"
    kernel = kernel_for(correlate, kinds, dtype, x.dtype)
    operands = flat(x), packed, plan.offsets, plan.views, out.reshape(-1)
    run_in_parts(kernel, plan.units, plan.work, operands, plan.memory(x, dtype), plan.geometry)


def supports(x: Any, y: Any) -> bool:
    """True if the kernels can convolve `x`, which may be bytes or Rows, with `y`; otherwise `im2col.py` does it."""
    known = isinstance(x, Rows) or (isinstance(x, np.ndarray) and (x.dtype == y.dtype or x.dtype in dtypes.BYTES))
    here = known and y.dtype.kind == "f" and y.dtype.itemsize >= 4
    return here and x.ndim <= 4 and compiles()


def _dense(images: Any, dtype: Any, shape: Shape) -> Any:
    """Convert Rows to dense images, and bytes to floats for algorithms that cannot read them."""
    if isinstance(images, Rows):
        return fill_rows(images, dtype)
    if images.dtype == dtype or not (depthwise.supports(shape) or pointwise.supports(shape)):
        return images
    floats = empty(images.shape, dtype)
    floats[...] = images
    return floats


def _axis_back(
    length: int, size: int, stride: int, dilation: int, before: int, count: int, first: int
) -> tuple[Axis, list[int]] | None:
    """The axis that computes every stride-th element of an image from `first` on, and the window elements that it
    reads. None if there is no such element, or if the elements are in no window.
    """
    taps = [k for k in range(size) if (first + before - k * dilation) % stride == 0]
    if not taps or first >= length:
        return None
    places = tuple((first + before - k * dilation) // stride for k in taps)
    return Axis(count, 1, places, -(-(length - first) // stride), first, stride), taps


@functools.lru_cache(maxsize=512)
def _sizes(
    images: Ints, weight: Ints, stride: Ints, before: Ints, dilation: Ints, count: Ints, groups: int
) -> tuple[Sizes, Shape, WeightOrder]:
    """The sizes of a convolution, the shape of its correlation, and the places of the weights."""
    sizes = sizes_of(images, weight[2:], stride, dilation, before, count)
    shape = Shape(images[0], groups, weight[1], weight[0] // groups, axes_of(sizes))
    terms, taps = math.prod(weight[1:]), math.prod(sizes.window)
    return sizes, shape, WeightOrder(terms, terms * shape.outputs, taps, tuple(range(taps)))


def convolve(x: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, count: Ints, groups: int) -> Any:
    """See `im2col.convolve`."""
    out = empty((len(x), len(weight), *count), weight.dtype)
    if not out.size:
        return out
    sizes, shape, order = _sizes(x.shape, weight.shape, stride, before, dilation, count, groups)
    images, results = with_two_axes(x), with_two_axes(out)
    if events.is_faster(images, shape):
        events.convolve(images, weight, results, sizes, groups)
    else:
        _correlate(images, weight, order, results, shape)
    return out


@functools.lru_cache(maxsize=512)
def _phases(
    results: Ints, weight: Ints, stride: Ints, before: Ints, dilation: Ints, lengths: Ints, groups: int
) -> tuple[bool, list[tuple[Shape, WeightOrder]]]:
    """True if some elements of an image are in no window; and the correlations for the gradient of the others."""
    per_group, outputs = weight[1], weight[0] // groups
    sizes = sizes_of((0, 0, *lengths), weight[2:], stride, dilation, before, results[2:])
    taps, phases = math.prod(sizes.window), []
    numbers = zip(sizes.stride, sizes.window, sizes.dilation, strict=True)
    partial = any(s > k or (d > 1 and s > 1) for s, k, d in numbers)
    for place in itertools.product(*map(range, sizes.stride)):
        both = [_axis_back(*numbers) for numbers in zip(*sizes, place, strict=True)]
        present = [axis for axis in both if axis is not None]
        if len(present) < 2:
            continue
        (down, rows), (across, columns) = present
        window = tuple(i * sizes.window[1] + j for i in rows for j in columns)
        order = WeightOrder(taps, outputs * per_group * taps, per_group * taps, window)
        phases.append((Shape(results[0], groups, outputs, per_group, (down, across)), order))
    return partial, phases


def convolve_back(
    dout: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, lengths: Ints, groups: int
) -> Any:
    """See `im2col.convolve_back`."""
    out = empty((len(dout), weight.shape[1] * groups, *lengths), weight.dtype)
    if not out.size:
        return out
    partial, phases = _phases(dout.shape, weight.shape, stride, before, dilation, lengths, groups)
    if partial:
        out[...] = 0  # an element that is in no window has gradient 0
    images, results = with_two_axes(dout), with_two_axes(out)
    if depthwise.correlate_phases(images, weight, results, phases):
        return out
    for shape, order in phases:
        _correlate(images, weight, order, results, shape)
    return out


@functools.lru_cache(maxsize=512)
def _weight_plan(images: int, groups: int, channels: int, outputs: int, axes: Axes) -> ConvolutionPlan:
    down, across = axes
    taps, fours = len(down.places) * len(across.places), -(-outputs // 4)
    # Split the images into parts first, but not into parts of fewer than LEAST_PIXELS pixels, or into so many that the
    # partial sums exceed MOST_PARTIAL. If these are too few units, split the channels too.
    most = MOST_PARTIAL // max(1, groups * channels * taps * outputs)
    most = min(most, images * down.results * across.results // LEAST_PIXELS)
    parts = max(1, min(images, -(-LEAST_UNITS // groups), most))
    splits = min(-(-channels // 8), -(-LEAST_UNITS // (parts * groups)))
    split_channels = -(-channels // splits)
    splits = -(-channels // split_channels)

    def cost(layout: PlaneLayout) -> float:
        in_place = layout.adjacent(down.results, across.results)
        pixels = layout.pixels(down.results, across.results)
        if in_place:
            pixels = layout.together * down.results * across.results
        full = (layout.size(split_channels) + outputs * layout.apart) * 4 > CACHED or pixels > MOST_PIXELS
        tiles = split_channels * taps / 4 * fours
        multiplied = tiles * (pixels / LANES * 16 * (1.25 if full else 1.0) + TILE_CYCLES)
        slopes = 0 if in_place else FILL_CYCLES * outputs * layout.together * layout.rows * -(-layout.pitch // LANES)
        return float((multiplied + slopes + layout.fill_cycles(split_channels)) / layout.together)

    layout = min(layouts(axes, down.results, min(MOST_TOGETHER, -(-images // parts))), key=cost)
    terms = -(-split_channels * taps // 4) * 4
    offsets = np.zeros(terms, np.int64)
    offsets[: split_channels * taps] = layout.offsets(split_channels)
    geometry = [
        *(images, groups, channels, down.length, across.length, down.stride, across.stride),
        *(len(layout.down.origins), len(layout.across.origins), layout.rows, layout.pitch, layout.apart, taps),
        *(outputs, down.results, across.results, parts, splits, split_channels, layout.together),
    ]
    return ConvolutionPlan(
        np.array(geometry, np.int64),
        offsets,
        np.array([*layout.down.origins, *layout.across.origins, 0, 0], np.int64),
        parts * groups * splits,
        fours,
        (layout.size(split_channels), 4 * fours * layout.apart + 2 * LANES),
        images * groups * channels * taps * outputs * down.results * across.results,
        terms * fours * 4,
    )


def convolve_weight(x: Any, dout: Any, *, stride: Ints, before: Ints, dilation: Ints, size: Ints, groups: int) -> Any:
    """See `im2col.convolve_weight`."""
    out = empty((dout.shape[1], x.shape[1] // groups, *size), dout.dtype)
    if not (out.size and x.size and dout.size):
        out[...] = 0
        return out
    sizes, shape, _ = _sizes(x.shape, out.shape, stride, before, dilation, dout.shape[2:], groups)
    images = with_two_axes(x)
    if events.is_faster(images, shape, of_weights=True):
        events.convolve_weight(images, with_two_axes(dout), out, sizes, groups)
        return out
    images = _dense(images, dout.dtype, shape)
    other = other_algorithm(shape)
    if other is not None:
        other.contract(images, with_two_axes(dout), out, shape)
        return out
    plan = _weight_plan(*shape)
    partial = empty((plan.units, plan.partial), dout.dtype)
    kinds = "int64 S[1] T[1] int64[1] int64[1] T[2]* T[2]* T[2]* T[2]* int64[1]"
    kernel = kernel_for(contract, kinds, dout.dtype, images.dtype)
    operands = flat(images), flat(dout), plan.offsets, plan.views, partial
    run_in_parts(kernel, plan.units, plan.work, operands, plan.memory(images, dout.dtype), plan.geometry)
    kernel = kernel_for(add_parts, "T[2]* T[1]* int64[1]", dout.dtype)
    kernel(groups * plan.blocks, int(partial.size > 1 << 18), partial, out.reshape(-1), plan.geometry)
    return out
