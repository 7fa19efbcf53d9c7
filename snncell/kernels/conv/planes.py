"""Layouts and costs of planes. A plane is a padded copy of one channel of an image, for direct convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.intrinsics.builtins import call_once, least
from snncell.kernels.intrinsics.elements import convert, move, move_between, move_every_second, put, tail, zero

# --- Kernel functions: copy rows into padded planes, and results out of them ------------------------------------------


@call_once
def fill_planes(
    target: Any, source: Any, lines: Any, first: int, images: int, between: int, channels: int, apart: int, height: int,
    width: int, down: int, across: int, views: Any, by_rows: int, by_columns: int, skipped: int, rows: int, pitch: int,
) -> None:  # fmt: skip
    """Copy some channels of several images into padded planes. Each channel has the shape (height, width).

    The channels of the first image start at `source[first]`, and those of each next image `between` elements later.
    `views` contains `by_rows` row offsets p and then `by_columns` column offsets q. Each pair (p, q) gives one plane
    per channel. A plane contains the rows of all images, one image after the other, and then zeros. For each image, its
    element (i, j) is element (skipped + i * down + p, j * across + q) of the channel, or 0 if there is no such element.
    Planes begin at distances of `apart` elements in `target`. If the images are bytes, `lines` is memory in which one
    channel is converted to floats.
    """
    area = rows * pitch
    for plane in range(channels * by_rows * by_columns):
        # Clear the end of each plane before the copies, because `zero` may also clear the start of the next plane. The
        # zeros are needed for two reasons. Vectors read past the last row. And a row shares the zeros on its right
        # with the next row, which has them on its left; after the last row there is no next row.
        zero(tail(target, plane * apart + images * area), apart - images * area)
    top, last = least(views[0], views[by_rows - 1]), views[0] if views[0] > views[by_rows - 1] else views[by_rows - 1]
    begin = skipped + top if skipped + top > 0 else 0
    needed = least(height, skipped + last + (rows - 1) * down + 1) - begin
    needed = needed if needed > 0 else 0
    for n in range(images):
        for channel in range(channels):
            own = tail(source, first + n * between + (channel * height + begin) * width)
            image = convert(lines, own, needed * width)
            for a in range(by_rows):
                for b in range(by_columns):
                    plane = ((channel * by_rows + a) * by_columns + b) * apart + n * area
                    fill_plane(
                        tail(target, plane), image, needed, width, down, across, views[a] + skipped - begin,
                        views[by_rows + b], rows, pitch,
                    )  # fmt: skip


@call_once
def fill_plane(
    target: Any, image: Any, height: int, width: int, down: int, across: int, top: int, left: int, rows: int, pitch: int
) -> None:
    """Copy element (top + i * down, left + j * across) of an image, or 0 outside of it, to row i and column j."""
    low, high = -left, width - left
    if across > 1:  # a branch, because divisions take long
        low, high = (across - 1 - left) // across, (width - 1 - left) // across + 1
    low = least(pitch, low if left < 0 else 0)
    high = least(pitch, high if left < width else 0)
    if down == 1 and across == 1 and left == 0 and pitch == width:
        # The rows are adjacent in the image, with rows of zeros before and after them.
        above = least(rows, -top if top < 0 else 0)
        below = least(rows, height - top if height > top else 0)
        below = above if below < above else below
        zero(target, above * pitch)
        if below > above:
            move(tail(target, above * pitch), tail(image, (top + above) * width), (below - above) * pitch)
        zero(tail(target, below * pitch), (rows - below) * pitch)
        return
    for i in range(rows):
        place, y = i * pitch, i * down + top
        # Store in ascending order. A vector can store a few elements too many, and the next store overwrites these.
        if y < 0 or y >= height or high <= low:
            zero(tail(target, place), pitch)
        elif across == 1:
            move_between(tail(target, place), image, y * width + left, low, high, pitch)
        else:
            begin = y * width + low * across + left
            zero(tail(target, place), low)
            if across == 2:
                move_every_second(tail(target, place + low), tail(image, begin), high - low)
            else:
                for j in range(high - low):
                    target[place + low + j] = image[begin + j * across]
            zero(tail(target, place + high), pitch - high)


@call_once
def put_rows(
    target: Any, source: Any, channels: int, target_apart: int, source_apart: int, rows: int, width: int, pitch: int,
    down: int, across: int,
) -> None:  # fmt: skip
    """Copy the results of some channels. The distance between two rows is `pitch` in `source`, and `down` in `target`.
    Columns of `target` are `across` apart.
    """
    for channel in range(channels):
        place, origin = channel * target_apart, channel * source_apart
        if across == 1 and pitch == width and down == width:
            put(tail(target, place), tail(source, origin), rows * width)
        else:
            for i in range(rows):
                if across == 1:
                    put(tail(target, place + i * down), tail(source, origin + i * pitch), width)
                else:
                    for j in range(width):
                        target[place + i * down + j * across] = source[origin + i * pitch + j]


# --- Layouts ----------------------------------------------------------------------------------------------------------

Ints = tuple[int, ...]
Axes = Any  # tuple[Axis, Axis]

CACHED = 1 << 18  # bytes of planes: a part of the L2 cache, within the reach of the L1 TLB
LANES = 16  # elements of the longest vector
FILL_CYCLES = 6  # cycles per vector that is copied to or from a plane; a fused multiply-add of a vector takes one


class Sizes(NamedTuple):
    """The sizes of a convolution along two axes: y[q] = sum over k of x[q stride + k dilation - before] w[k]."""

    lengths: Ints
    window: Ints
    stride: Ints
    dilation: Ints
    before: Ints
    results: Ints


class Axis(NamedTuple):
    """An axis of a correlation: y[q] = sum over k of x[q stride + places[k]] w[k], with zero padding.
    For example, a window of 3 with padding 1 has places (-1, 0, 1). y[q] is stored at the index `first + q step`.
    """

    length: int
    stride: int
    places: Ints
    results: int
    first: int = 0
    step: int = 1


class Shape(NamedTuple):
    """The shape of a correlation. In each image and group, `outputs` results are computed from `channels` channels."""

    images: int
    groups: int
    channels: int
    outputs: int
    axes: Axes

    @property
    def window(self) -> Ints:
        """The number of elements of the window along each axis."""
        return tuple(len(axis.places) for axis in self.axes)


class WeightOrder(NamedTuple):
    """The strides of an array of weights. For output r and channel c in group g, and element k of the window, the
    weight has the index `g * group + r * row + c * channel + taps[k]`.
    """

    row: int
    group: int
    channel: int
    taps: Ints


class ConvolutionPlan(NamedTuple):
    """The plan of a correlation or a weight gradient: kernel arguments and sizes of scratch memory."""

    geometry: Any  # geometry, offsets and views are kernel arguments
    offsets: Any
    views: Any
    units: int  # the number of units of the multiplying kernel
    blocks: int  # the number of blocks of weights in a group; a block has eight outputs, or four for a weight gradient
    scratch: Ints  # the row length of each scratch array, except the last one, which `memory` adds
    work: int  # the number of multiplications
    partial: int = 0  # the number of partial sums of a unit, for a weight gradient

    def memory(self, x: Any, dtype: Any, channels: int = 1) -> list[tuple[int, Any]]:
        """The size and dtype of each scratch array. The last one is for `channels` channels, converted from bytes."""
        return [(size, dtype) for size in (*self.scratch, 1 if x.dtype == dtype else channels * math.prod(x.shape[2:]))]


class Views(NamedTuple):
    """The planes of an image along one axis."""

    origins: Ints  # of the planes in the image
    of_tap: tuple[tuple[int, int], ...]  # the plane and the shift of each tap
    reach: int  # the length of a plane
    shared: int = 0  # the number of zeros after a row that also serve as zeros before the next one

    @classmethod
    def shifted(cls, axis: Axis) -> Views:
        """One plane per phase of the stride, the position modulo the stride. For example, if the stride is 2, one plane
        contains the even elements, and the other one the odd elements. A tap, an element of the window, reads one
        plane with a shift.
        """
        low = min(axis.places)
        phases = sorted({(p - low) % axis.stride for p in axis.places})
        shifts = [(phases.index((p - low) % axis.stride), (p - low) // axis.stride) for p in axis.places]
        most = max(shift for _, shift in shifts)
        shared = most
        for phase in phases:
            origin = low + phase
            before = max(0, -(origin // axis.stride))
            end = max(0, (axis.length - 1 - origin) // axis.stride + 1)
            shared = min(shared, before, max(0, axis.results + most - end))
        return cls(tuple(low + phase for phase in phases), tuple(shifts), axis.results + most, shared)

    @classmethod
    def spread(cls, axis: Axis) -> Views:
        """One plane per element of the window; its length is the number of results."""
        return cls(axis.places, tuple((k, 0) for k in range(len(axis.places))), axis.results)


class PlaneLayout(NamedTuple):
    """The memory layout of the planes of some images."""

    down: Views
    across: Views
    rows: int
    together: int

    @property
    def pitch(self) -> int:
        """The distance between rows of a plane."""
        return self.across.reach - self.across.shared

    @property
    def apart(self) -> int:
        """The distance between planes, including zeros at the end that the last vector may read."""
        return (-(-(self.together * self.rows * self.pitch + self.across.shared) // LANES) + 1) * LANES

    @property
    def planes(self) -> int:
        """The number of planes per channel."""
        return len(self.down.origins) * len(self.across.origins)

    def size(self, channels: int) -> int:
        """The number of elements of all planes."""
        return channels * self.planes * self.apart + 2 * LANES

    def offsets(self, channels: int) -> list[int]:
        """The offset of the shifted plane for each term of a sum."""
        return [
            ((c * len(self.down.origins) + a) * len(self.across.origins) + b) * self.apart + i * self.pitch + j
            for c in range(channels)
            for a, i in self.down.of_tap
            for b, j in self.across.of_tap
        ]

    def pixels(self, out_rows: int, out_width: int) -> int:
        """The number of elements that are computed, including those between two rows."""
        wide = ((self.together - 1) * self.rows + out_rows - 1) * self.pitch + out_width
        return -(-wide // LANES) * LANES

    def adjacent(self, out_rows: int, out_width: int) -> bool:
        """True if all computed elements of an image are results, in whole vectors, so that no copy is needed."""
        return self.pitch == out_width and out_rows * out_width % LANES == 0

    def chunk(self, channels: int) -> int:
        """The number of channels whose planes fit into the cache."""
        return max(1, min(channels, CACHED // (4 * self.planes * self.apart)))

    def cycles(self, channels: int, outputs: int, rows: int, width: int) -> float:
        """Estimate the cycles for the results of one image."""
        vectors = self.pixels(rows, width) // LANES
        wide = 3 * (vectors // 3) + (0, 1.4, 2)[vectors % 3]  # a tile of one vector is bound by latency
        terms = channels * len(self.down.of_tap) * len(self.across.of_tap)
        chunks = -(-channels // self.chunk(channels))
        multiplied = -(-outputs // 8) * 8 * (terms + 4 * chunks) * wide
        in_place = self.together == 1 and self.adjacent(rows, width)
        copied = 0 if in_place else outputs * self.together * rows * -(-width // LANES)
        return (multiplied + self.fill_cycles(channels) + FILL_CYCLES * copied) / self.together

    def fill_cycles(self, channels: int) -> float:
        """Estimate the cycles for copying."""
        return FILL_CYCLES * channels * self.planes * self.together * self.rows * -(-self.pitch // LANES)


def layouts(axes: Axes, rows: int, most: int) -> Iterator[PlaneLayout]:
    """The possible layouts for bands of `rows` rows of results, or for up to `most` whole images."""
    down, across = axes
    ways = (Views.shifted, Views.shifted), (Views.shifted, Views.spread), (Views.spread, Views.spread)
    for by_row, by_column in ways:
        high, wide = by_row(down), by_column(across)
        own = rows + high.reach - down.results
        for together in range(1, most + 1 if rows == down.results else 2):
            yield PlaneLayout(high, wide, own, together)


def flat(x: Any) -> Any:
    """Flatten an array in C order."""
    return np.ascontiguousarray(x).reshape(-1)


def with_two_axes(x: Any) -> Any:
    """Images (N, C, L) as (N, C, 1, L), and booleans as bytes."""
    x = x if x.ndim == 4 else x.reshape(*x.shape[:2], 1, x.shape[2])
    return x.view(np.uint8) if x.dtype == bool and isinstance(x, np.ndarray) else x


def two(values: Ints, filler: int) -> Ints:
    """Extend numbers for one axis to two axes by a leading `filler`."""
    return (filler,) * (2 - len(values)) + tuple(values)


def sizes_of(images: Ints, window: Ints, stride: Ints, dilation: Ints, before: Ints, count: Ints) -> Sizes:
    """The sizes of a convolution, extended to two axes; `images` is the shape of the images."""
    return Sizes(two(images[2:], 1), two(window, 1), two(stride, 1), two(dilation, 1), two(before, 0), two(count, 1))


def axes_of(sizes: Sizes) -> Axes:
    """The axes of a convolution."""
    numbers = zip(*sizes, strict=True)
    return tuple(Axis(n, s, tuple(k * d - low for k in range(own)), many) for n, own, s, d, low, many in numbers)
