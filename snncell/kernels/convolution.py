"""Convolutions on the CPU, of one or two axes: how the kernels of `cpu/convolution.py` are told what to do."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels import conv_events, winograd
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import convolution
from snncell.kernels.csr import Rows, fill_rows
from snncell.kernels.planes import (
    CACHED,
    FILL_CYCLES,
    LANES,
    Axes,
    Axis,
    PlaneLayout,
    Shape,
    axes_of,
    flat,
    layouts,
    sizes_of,
    with_two_axes,
)
from snncell.kernels.policy import compiles
from snncell.kernels.sharing import parts_of

Ints = tuple[int, ...]

LEAST_UNITS = 16  # units that threads can share well
LEAST_CHUNK = 16  # channels whose planes should fit into the cache
MOST_TOGETHER = 16  # images whose planes lie side by side
MOST_PIXELS = 640  # whose rows, four of a gradient and four of an image, fit into a first-level cache
TILE_CYCLES = 64  # to add up the lanes of sixteen sums
MOST_PARTIAL = 1 << 20  # elements of sums over parts of the images


class CorrelationPlan(NamedTuple):
    """A correlation: the numbers that its kernel takes, and how much room it needs."""

    geometry: Any
    offsets: Any
    views: Any
    units: int
    blocks: int
    planes: int
    sums: int
    work: int


@functools.lru_cache(maxsize=512)
def _plan(images: int, groups: int, channels: int, outputs: int, axes: Axes, out_plane: Ints) -> CorrelationPlan:
    down, across = axes
    terms, blocks = channels * len(down.places) * len(across.places), -(-outputs // 8)
    rows = down.results
    # Bands of so many rows that the planes of some channels fit into the cache. Then whole images side by side, if
    # that saves work.
    while rows > 1 and next(layouts(axes, rows, 1)).chunk(channels) < min(channels, LEAST_CHUNK):
        rows = -(-rows // 2)
    layout = min(
        layouts(axes, rows, min(MOST_TOGETHER, images)), key=lambda x: x.cycles(channels, outputs, rows, across.results)
    )
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
    return CorrelationPlan(
        np.array(geometry, np.int64),
        np.array(layout.offsets(chunk), np.int64),
        np.array([*layout.down.origins, *layout.across.origins], np.int64),
        units,
        blocks,
        layout.size(chunk),
        8 * layout.pixels(rows, across.results) * (split_blocks if chunk < channels else 1) + LANES,
        images * groups * outputs * terms * down.results * across.results,
    )


def _correlate(x: Any, weights: Any, layout: Ints, sources: Any, out: Any, shape: Shape) -> None:
    """Put into `out` the correlation of x (N, groups C, H, W) with weights in a layout: see `pack_weights`."""
    if winograd.pays(shape):
        winograd.correlate(x, weights, layout, sources, out, shape)
        return
    plan = _plan(*shape, out.shape[2:])
    kind = dtypes.BY_NUMPY[x.dtype]
    grain, parts = parts_of(plan.units, plan.work)
    packed = empty((shape.groups * plan.blocks, 8 * len(sources)), x.dtype)
    geometry = np.array([shape.outputs, *layout, len(sources)], np.int64)
    _kernel("pack_weights", kind)(len(packed), int(packed.size > 1 << 18), flat(weights), sources, packed, geometry)
    planes, sums = empty((parts, plan.planes), x.dtype), empty((parts, plan.sums), x.dtype)
    _kernel("correlate", kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(x), packed, plan.offsets, plan.views, out.reshape(-1),
        planes, sums, plan.geometry,
    )  # fmt: skip


def takes(x: Any, y: Any) -> bool:
    """True if these kernels compute a convolution of two operands, and `kernels/windows.py` need not.

    The first may be of bytes, or Rows.
    """
    known = isinstance(x, Rows) or (isinstance(x, np.ndarray) and (x.dtype == y.dtype or x.dtype in dtypes.BYTES))
    here = known and y.dtype.kind == "f" and y.dtype.itemsize >= 4
    return here and x.ndim <= 4 and compiles()


def _floats(images: Any, dtype: Any) -> Any:
    """Images of bytes in the dtype of the results, Rows with their zeros, others as they are."""
    if isinstance(images, Rows):
        return fill_rows(images, dtype)
    if images.dtype == dtype:
        return images
    floats = empty(images.shape, dtype)
    floats[...] = images
    return floats


def _axis_back(
    length: int, size: int, stride: int, dilation: int, before: int, count: int, first: int
) -> tuple[Axis, list[int]] | None:
    """The axis that gives every stride-th element of an image from `first` on, and which of the window it takes."""
    taps = [k for k in range(size) if (first + before - k * dilation) % stride == 0]
    if not taps or first >= length:
        return None
    places = tuple((first + before - k * dilation) // stride for k in taps)
    return Axis(count, 1, places, -(-(length - first) // stride), first, stride), taps


def convolve(x: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, count: Ints, groups: int) -> Any:
    """`windows.convolve`."""
    out = empty((len(x), len(weight), *count), weight.dtype)
    if not out.size:
        return out
    sizes = sizes_of(x.shape, weight.shape[2:], stride, dilation, before, count)
    shape = Shape(len(x), groups, weight.shape[1], len(weight) // groups, axes_of(sizes))
    images, results = with_two_axes(x), with_two_axes(out)
    if conv_events.pay(images, shape):
        conv_events.convolve(images, weight, results, sizes, groups)
        return out
    terms = math.prod(weight.shape[1:])
    images = _floats(images, weight.dtype)
    _correlate(images, weight, (terms, terms * shape.outputs), np.arange(terms), results, shape)
    return out


def convolve_back(
    dout: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, lengths: Ints, groups: int
) -> Any:
    """`windows.convolve_back`."""
    per_group, outputs = weight.shape[1], len(weight) // groups
    out = empty((len(dout), per_group * groups, *lengths), dout.dtype)
    if not out.size:
        return out
    sizes = sizes_of(out.shape, weight.shape[2:], stride, dilation, before, dout.shape[2:])
    taps = math.prod(sizes.window)
    if any(s > k or (d > 1 and s > 1) for s, k, d in zip(sizes.stride, sizes.window, sizes.dilation, strict=True)):
        out[...] = 0  # some elements may be in no window
    dout = with_two_axes(dout)
    for place in itertools.product(*map(range, sizes.stride)):
        both = [_axis_back(*numbers) for numbers in zip(*sizes, place, strict=True)]
        present = [axis for axis in both if axis is not None]
        if len(present) < 2:
            continue
        (down, rows), (across, columns) = present
        window = [i * sizes.window[1] + j for i in rows for j in columns]
        sources = (np.arange(outputs)[:, None] * per_group * taps + np.array(window)).reshape(-1)
        layout = (taps, outputs * per_group * taps)
        shape = Shape(len(dout), groups, outputs, per_group, (down, across))
        _correlate(dout, weight, layout, sources, with_two_axes(out), shape)
    return out


class WeightGradientPlan(NamedTuple):
    """A gradient of weights: the numbers that its kernels take, and how much room they need."""

    geometry: Any
    offsets: Any
    views: Any
    units: int
    fours: int
    partial: int
    planes: int
    slopes: int
    work: int


@functools.lru_cache(maxsize=512)
def _weight_plan(images: int, groups: int, channels: int, outputs: int, axes: Axes) -> WeightGradientPlan:
    down, across = axes
    taps, fours = len(down.places) * len(across.places), -(-outputs // 4)
    # Parts of the images first; where their sums are many, parts of the channels.
    parts = max(1, min(images, -(-LEAST_UNITS // groups), MOST_PARTIAL // max(1, groups * channels * taps * outputs)))
    splits = min(-(-channels // 8), -(-LEAST_UNITS // (parts * groups)))
    split_channels = -(-channels // splits)
    splits = -(-channels // split_channels)

    def cost(layout: PlaneLayout) -> float:
        pixels = layout.pixels(down.results, across.results)
        full = (layout.size(split_channels) + outputs * layout.apart) * 4 > CACHED or pixels > MOST_PIXELS
        tiles = split_channels * taps / 4 * fours
        multiplied = tiles * (pixels / LANES * 16 * (1.25 if full else 1.0) + TILE_CYCLES)
        slopes = FILL_CYCLES * outputs * layout.together * layout.rows * -(-layout.pitch // LANES)
        return (multiplied + slopes + layout.fill_cycles(split_channels)) / layout.together

    layout = min(layouts(axes, down.results, min(MOST_TOGETHER, -(-images // parts))), key=cost)
    terms = -(-split_channels * taps // 4) * 4
    offsets = np.zeros(terms, np.int64)
    offsets[: split_channels * taps] = layout.offsets(split_channels)
    geometry = [
        *(images, groups, channels, down.length, across.length, down.stride, across.stride),
        *(len(layout.down.origins), len(layout.across.origins), layout.rows, layout.pitch, layout.apart, taps),
        *(outputs, down.results, across.results, parts, splits, split_channels, layout.together),
    ]
    return WeightGradientPlan(
        np.array(geometry, np.int64),
        offsets,
        np.array([*layout.down.origins, *layout.across.origins, 0, 0], np.int64),
        parts * groups * splits,
        fours,
        terms * fours * 4,
        layout.size(split_channels),
        4 * fours * layout.apart + 2 * LANES,
        images * groups * channels * taps * outputs * down.results * across.results,
    )


def convolve_weight(x: Any, dout: Any, *, stride: Ints, before: Ints, dilation: Ints, size: Ints, groups: int) -> Any:
    """`windows.convolve_weight`."""
    outputs, channels = dout.shape[1] // groups, x.shape[1] // groups
    out = empty((dout.shape[1], channels, *size), dout.dtype)
    if not (out.size and x.size and dout.size):
        out[...] = 0
        return out
    sizes = sizes_of(x.shape, size, stride, dilation, before, dout.shape[2:])
    images = with_two_axes(x)
    shape = Shape(len(x), groups, channels, outputs, axes_of(sizes))
    if conv_events.pay(images, shape, conv_events.OF_WEIGHTS):
        conv_events.convolve_weight(images, with_two_axes(dout), out, sizes, groups)
        return out
    images = _floats(images, dout.dtype)
    if winograd.pays(shape):
        winograd.contract(images, dout, out, shape)
        return out
    plan = _weight_plan(*shape)
    kind = dtypes.BY_NUMPY[images.dtype]
    grain, parts = parts_of(plan.units, plan.work)
    partial = empty((plan.units, plan.partial), images.dtype)
    planes, slopes = (empty((parts, room), images.dtype) for room in (plan.planes, plan.slopes))
    _kernel("contract", kind)(
        plan.units, grain if parts > 1 else 0, grain, flat(images), flat(dout), plan.offsets, plan.views, partial,
        planes, slopes, plan.geometry,
    )  # fmt: skip
    blocks = groups * plan.fours
    _kernel("add_parts", kind)(blocks, int(partial.size > 1 << 18), partial, out.reshape(-1), plan.geometry)
    return out


@functools.cache
def _kernel(name: str, dtype: Any) -> Any:
    """One of the kernels of `cpu/convolution.py`, compiled for arrays of `dtype`."""
    flat, to_flat, rows, to_rows = (dtype, 1, False), (dtype, 1, True), (dtype, 2, False), (dtype, 2, True)
    numbers = (dtypes.int64, 1, False)
    signature = {
        "pack_weights": (flat, numbers, to_rows, numbers),
        "correlate": (dtypes.int64, flat, rows, numbers, numbers, to_flat, to_rows, to_rows, numbers),
        "contract": (dtypes.int64, flat, flat, numbers, numbers, to_rows, to_rows, to_rows, numbers),
        "add_parts": (rows, to_flat, numbers),
    }[name]
    return build(name, source_of(getattr(convolution, name)), signature)
