"""Sums over the taps (elements) of a window, for one channel of an image: kernel functions of depthwise convolutions.

A vector of results is a sum of vectors of the image, each times its weight. Vectors at the border of an image are
loaded with a mask, because padding is not in memory. For the weight gradient, each tap has a vector of sums; the caller
adds its lanes at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.intrinsics.builtins import Vectors, int_constant, lowers, registers
from snncell.kernels.intrinsics.panels import VECTOR, cut, lanes_of


class Taps(NamedTuple):
    """The window of a depthwise convolution along two axes, and the vectors that compute it."""

    window: tuple[int, int]
    stride: int  # between columns of the image, 1 or 2
    step: int  # between columns of results in the output, 1 or 2
    wide: int  # bytes of a vector


def _views(x: Any, taps: Taps, places: Any, sizes: tuple[int, ...]) -> Any:
    """The elements (rows, columns) of an image for each tap, with padding."""
    height, width, down, rows, columns = sizes
    image, found = x[: height * width].reshape(height, width), np.zeros((*taps.window, rows, columns), x.dtype)
    for a, b, i, j in np.ndindex(found.shape):
        y, z = i * down + places[a], j * taps.stride + places[taps.window[0] + b]
        if 0 <= y < height and 0 <= z < width:
            found[a, b, i, j] = image[y, z]
    return found


def _loader(vectors: Vectors, taps: Taps, places: Any, blank: Any, sizes: Any, first: Any) -> Any:
    """Emit code that loads the elements of an image for the results in columns from `first` on.

    `loaded(image, number, a)` returns them for row `number` of results and row `a` of the window: one vector for each
    column of the window.
    """
    builder, lanes = vectors.builder, vectors.lanes
    height, width, down, _, columns = sizes
    begins, masks = [], []
    for b in range(taps.window[1]):
        place = builder.load(vectors.at(places, taps.window[0] + b))
        begin = builder.add(builder.mul(first, int_constant(taps.stride)), place)
        end = builder.add(builder.mul(builder.sub(columns, int_constant(1)), int_constant(taps.stride)), place)
        # Mask the elements that no result needs, because an infinite one times a gradient of 0 would be NaN.
        end = builder.add(end, int_constant(1))
        end = builder.select(builder.icmp_signed("<", end, width), end, width)
        parts = [builder.add(begin, int_constant(n * lanes)) for n in range(taps.stride)]
        begins.append(parts)
        masks.append([vectors.between(part, end) for part in parts])
    lines = [builder.load(vectors.at(places, a)) for a in range(taps.window[0])]

    def loaded(image: Any, number: Any, a: int) -> list[Any]:
        y = builder.add(builder.mul(number, down), lines[a])
        inside = builder.icmp_unsigned("<", y, height)
        line = builder.select(inside, builder.gep(image, [builder.mul(y, width)]), blank)
        found = []
        for parts, own in zip(begins, masks, strict=True):
            each = [vectors.load_masked(builder.gep(line, [x]), mask) for x, mask in zip(parts, own, strict=True)]
            order = range(0, taps.stride * lanes, taps.stride)
            found.append(each[0] if taps.stride == 1 else vectors.shuffled(each[0], each[1], order))
        return found

    return loaded


@functools.cache
def correlation(taps: Taps) -> Callable[..., None]:
    """A kernel function: `target[i, j] = sum over a, b of weights[a, b] image[i down + p[a], j stride + q[b]]`.
    `places` has the numbers p and then the numbers q. Elements outside of the image (height, width) are 0. Rows of the
    target are `pitch` elements apart, and `blank` has `width` zeros.
    """

    def correlate(
        target: Any, pitch: int, image: Any, weights: Any, places: Any, blank: Any, height: int, width: int, down: int,
        rows: int, columns: int,
    ) -> None:  # fmt: skip
        found = _views(image, taps, places, (height, width, down, rows, columns))
        total = np.einsum("abij,ab->ij", found, weights[: math.prod(taps.window)].reshape(taps.window))
        for i in range(rows):
            target[i * pitch : i * pitch + taps.step * (columns - 1) + 1 : taps.step] = total[i]

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, pitch, image, weights, places, blank, *sizes = operands
        vectors = Vectors(builder, target, taps.wide)
        rows, columns = sizes[3:]
        factors = [vectors.spread(builder.load(vectors.at(weights, n))) for n in range(math.prod(taps.window))]

        def block(first: Any, _: list[Any]) -> list[Any]:
            loaded = _loader(vectors, taps, places, blank, sizes, first)
            left = builder.mul(builder.sub(columns, first), int_constant(taps.step))
            left = builder.sub(left, int_constant(taps.step - 1))

            def line(number: Any, _: list[Any]) -> list[Any]:
                each = [x for a in range(taps.window[0]) for x in loaded(image, number, a)]
                total = builder.fmul(factors[0], each[0])
                for factor, x in zip(factors[1:], each[1:], strict=True):
                    total = vectors.added(factor, x, total)
                start = builder.add(builder.mul(number, pitch), builder.mul(first, int_constant(taps.step)))
                for n in range(taps.step):
                    skipped = int_constant(n * vectors.lanes)
                    mask, part = vectors.below(builder.sub(left, skipped)), total
                    if taps.step > 1:
                        spread = [(n * vectors.lanes + lane) // taps.step for lane in range(vectors.lanes)]
                        mask, part = builder.and_(mask, vectors.every_second()), vectors.shuffled(total, total, spread)
                    vectors.store_masked(part, builder.gep(target, [builder.add(start, skipped)]), mask)
                return []

            vectors.loop(rows, 1, [], line)
            return []

        vectors.loop(columns, vectors.lanes, [], block)
        return context.get_dummy_value()

    parts = ["ArrayPart"] * 4
    lowers(correlate, "ArrayPart", "Integer", *parts, *["Integer"] * 5, result="none")(lower)
    return correlate


@functools.cache
def contraction(taps: Taps) -> Callable[..., None]:
    """A kernel function: add the products of gradients `slopes` (rows, columns) and of images to the sums of each tap.
    Images are `between` elements apart, and gradients `slopes_between`. A tap has a vector of sums, and lane n has the
    sum over the columns n, n + lanes, ... See `correlation` for the other arguments.
    """

    def contract(
        sums: Any, images: int, slopes: Any, slopes_between: int, image: Any, between: int, places: Any, blank: Any,
        height: int, width: int, down: int, rows: int, columns: int,
    ) -> None:  # fmt: skip
        lanes, sizes = taps.wide // sums.dtype.itemsize, (height, width, down, rows, columns)
        for n in range(images):
            found = _views(image[n * between :], taps, places, sizes).reshape(-1, rows, columns)
            products = found * slopes[n * slopes_between :][: rows * columns].reshape(rows, columns)
            for lane in range(lanes):
                sums[lane : lane + len(products) * lanes : lanes] += products[:, :, lane::lanes].sum((1, 2))

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        sums, images, slopes, slopes_between, image, between, places, blank, *sizes = operands
        vectors = Vectors(builder, sums, taps.wide)
        rows, columns = sizes[3:]
        most = (24 if registers()[0] == 32 else 8) // max(1, taps.wide // registers()[1])
        for part in cut(taps.window[0], max(1, most // taps.window[1])):
            numbers = [taps.window[1] * a + b for a in part for b in range(taps.window[1])]

            def block(first: Any, totals: list[Any], part: range = part) -> list[Any]:
                mask = vectors.below(builder.sub(columns, first))
                loaded = _loader(vectors, taps, places, blank, sizes, first)

                def plane(member: Any, totals: list[Any]) -> list[Any]:
                    own = builder.gep(slopes, [builder.add(builder.mul(member, slopes_between), first)])
                    here = builder.gep(image, [builder.mul(member, between)])

                    def line(number: Any, totals: list[Any]) -> list[Any]:
                        slope = vectors.load_masked(builder.gep(own, [builder.mul(number, columns)]), mask)
                        each = [x for a in part for x in loaded(here, number, a)]
                        return [vectors.added(slope, x, total) for x, total in zip(each, totals, strict=True)]

                    return vectors.loop(rows, 1, totals, line)

                return vectors.loop(images, 1, totals, plane)

            places_of_sums = [vectors.at(sums, n * vectors.lanes) for n in numbers]
            totals = [vectors.load(place) for place in places_of_sums]
            for total, place in zip(vectors.loop(columns, vectors.lanes, totals, block), places_of_sums, strict=True):
                vectors.store(total, place)
        return context.get_dummy_value()

    parts = ["ArrayPart", "Integer"] * 3
    lowers(contract, *parts, *["ArrayPart"] * 2, *["Integer"] * 5, result="none")(lower)
    return contract


# --- Small images: all pixels in registers ----------------------------------------------------------------------------

Ints = tuple[int, ...]


class Plane(NamedTuple):
    """A depthwise convolution of small images: the shapes of an image and of its results, and the taps of the results.
    A phase has the taps of some results, as numbers of weights, and its two axes: tuples (length, stride, places,
    results, first, step), see `planes.Axis`. For example, the image gradient of stride 2 has four phases.
    """

    image: Ints
    out: Ints
    phases: tuple[tuple[Ints, tuple[Any, ...], tuple[Any, ...]], ...]


def _places(plane: Plane) -> list[tuple[Any, Ints, Any]]:
    """For each phase: the places of its results (R), the numbers of its taps, their pixels (taps, R) or -1 for none."""
    found = []
    for taps, down, across in plane.phases:
        lines, columns = (axis[4] + axis[5] * np.arange(axis[3]) for axis in (down, across))
        y, x = (np.add.outer(axis[2], axis[1] * np.arange(axis[3])) for axis in (down, across))
        inside = [(at >= 0) & (at < length) for at, length in zip((y, x), plane.image, strict=True)]
        pixels = y[:, None, :, None] * plane.image[1] + x[None, :, None, :]
        pixels = np.where(inside[0][:, None, :, None] & inside[1][None, :, None, :], pixels, -1)
        found.append((np.add.outer(lines * plane.out[1], columns).reshape(-1), taps, pixels.reshape(len(taps), -1)))
    return found


def _load_plane(vectors: Vectors, pointer: Any, count: int) -> list[Any]:
    """Load `count` elements; the lanes after them are 0."""
    whole = vectors.load_each(pointer, count // vectors.lanes)
    rest = count % vectors.lanes
    last = vectors.at(pointer, count - rest)
    return [*whole, vectors.load_masked(last, vectors.first_lanes(rest))] if rest else whole


def _gather(vectors: Vectors, sources: list[Any], wanted: Any) -> Any:
    """A vector of the elements `wanted` of some vectors, with 0 for -1 and in the lanes after the last one."""
    lanes = vectors.lanes
    wanted = [*map(int, wanted)] + [-1] * (lanes - len(wanted))
    used = sorted({place // lanes for place in wanted if place >= 0})
    if not used:
        return vectors.zero
    total, own = sources[used[0]], [place % lanes if place >= 0 else 0 for place in wanted]
    if len(used) == 1 and -1 in wanted:
        return vectors.shuffled(total, vectors.zero, [lanes if wanted[n] < 0 else own[n] for n in range(lanes)])
    if len(used) == 1:
        return total if own == [*range(lanes)] else vectors.shuffled(total, total, own)
    for number, source in enumerate(used[1:]):
        kept = own if number == 0 else range(lanes)
        here = [place // lanes == source for place in wanted]
        order = [lanes + own[n] if here[n] else kept[n] for n in range(lanes)]
        total = vectors.shuffled(total, sources[source], order)
    if -1 in wanted:
        total = vectors.shuffled(total, vectors.zero, [lanes if wanted[n] < 0 else n for n in range(lanes)])
    return total


@functools.cache
def correlation_of_plane(plane: Plane) -> Callable[..., None]:
    """A kernel function like `correlation`, for small images. It uses only the arguments target, image and weights."""
    area, phases = math.prod(plane.out), _places(plane)

    def correlate(
        target: Any, pitch: int, image: Any, weights: Any, places: Any, blank: Any, height: int, width: int, down: int,
        rows: int, columns: int,
    ) -> None:  # fmt: skip
        padded = np.append(image[: math.prod(plane.image)], np.zeros(1, image.dtype))
        target[:area] = 0
        for results, taps, pixels in phases:
            target[results] = np.einsum("ti,t->i", padded[pixels], weights[list(taps)])

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, _, image, weights, *_ = operands
        vectors = Vectors(builder, target)
        sources, order = _load_plane(vectors, image, math.prod(plane.image)), np.full(area, -1)
        totals: list[Any] = []
        for results, taps, pixels in phases:
            factors = [vectors.spread(builder.load(vectors.at(weights, n))) for n in taps]
            for part in cut(len(results), vectors.lanes):
                total = builder.fmul(factors[0], _gather(vectors, sources, pixels[0, part]))
                for factor, own in zip(factors[1:], pixels[1:, part], strict=True):
                    total = vectors.added(factor, _gather(vectors, sources, own), total)
                order[results[part]] = len(totals) * vectors.lanes + np.arange(len(part))
                totals.append(total)
        for part in cut(area, vectors.lanes):
            place, found = vectors.at(target, part[0]), _gather(vectors, totals, order[part])
            if len(part) == vectors.lanes:
                vectors.store(found, place)
            else:
                vectors.store_masked(found, place, vectors.first_lanes(len(part)))
        return context.get_dummy_value()

    parts = ["ArrayPart"] * 4
    lowers(correlate, "ArrayPart", "Integer", *parts, *["Integer"] * 5, result="none")(lower)
    return correlate


@functools.cache
def contraction_of_plane(plane: Plane) -> Callable[..., None]:
    """A kernel function like `contraction`, for small images and one phase. A tap has `VECTOR` bytes of sums."""
    area, ((_, taps, pixels),) = math.prod(plane.out), _places(plane)

    def contract(
        sums: Any, images: int, slopes: Any, slopes_between: int, image: Any, between: int, places: Any, blank: Any,
        height: int, width: int, down: int, rows: int, columns: int,
    ) -> None:  # fmt: skip
        for n in range(images):
            padded = np.append(image[n * between :][: math.prod(plane.image)], np.zeros(1, image.dtype))
            sums[:: lanes_of(sums.dtype)][: len(taps)] += padded[pixels] @ slopes[n * slopes_between :][:area]

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        sums, images, slopes, slopes_between, image, between, *_ = operands
        vectors = Vectors(builder, sums)
        for some in cut(len(taps), 20 if registers()[0] == 32 else 8):

            def add(member: Any, totals: list[Any], some: range = some) -> list[Any]:
                sources = _load_plane(vectors, vectors.at(image, builder.mul(member, between)), math.prod(plane.image))
                own = _load_plane(vectors, vectors.at(slopes, builder.mul(member, slopes_between)), area)
                for slope, part in zip(own, cut(area, vectors.lanes), strict=True):
                    each = [_gather(vectors, sources, pixels[tap, part]) for tap in some]
                    totals = [vectors.added(slope, x, total) for x, total in zip(each, totals, strict=True)]
                return totals

            places_of_sums = [vectors.at(sums, tap * VECTOR // vectors.bytes) for tap in some]
            totals = [vectors.load(place) for place in places_of_sums]
            for total, place in zip(vectors.loop(images, 1, totals, add), places_of_sums, strict=True):
                vectors.store(total, place)
        return context.get_dummy_value()

    parts = ["ArrayPart", "Integer"] * 3
    lowers(contract, *parts, *["ArrayPart"] * 2, *["Integer"] * 5, result="none")(lower)
    return contract
