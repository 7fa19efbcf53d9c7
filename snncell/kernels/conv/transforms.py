"""The Toom-Cook algorithm for short correlations, which Winograd nested for two axes: it saves multiplications.

Two neighbouring results of a window of r elements, y[i] = sum over k of d[i + k] g[k], are

    y = A [(G g) * (B d)],    with matrices A (2, r + 1), G (r + 1, r), B (r + 1, r + 1),

so they take r + 1 multiplications instead of 2 r. For two axes, the transforms are applied along one axis and then
along the other. For example, four results of a 3x3 window take 16 multiplications instead of 36, and four of a 5x5
window 36 instead of 100. Products are summed over channels before A is applied, so the transforms cost little if there
are many channels.

With a stride, y[i] = sum over k of d[i stride + k] g[k] is a sum of such correlations: one for each remainder of k
divided by the stride (a phase). For example, two results of a window of three with stride 2 take 3 + 2 multiplications
instead of 6.

Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2016), arXiv:1509.09308.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.intrinsics.builtins import Vectors, call_once, int_constant, ir, least, lowers
from snncell.kernels.intrinsics.elements import convert, line_of, tail, zero
from snncell.kernels.intrinsics.panels import turn_vectors

Matrix = tuple[tuple[float, ...], ...]

# The points at which polynomials are evaluated, in addition to infinity. Rounding errors grow with their size and
# number. For windows of five, these points have the smallest errors, less than twice the errors of a direct sum.
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2))
LONGEST = len(_POINTS)
WIDE = 32  # bytes of a vector of channels; a longer vector is not faster, and would be half empty for few channels


class Transforms(NamedTuple):
    """The matrices A, G and B of the module's formula, for one length of window and stride."""

    results: Matrix
    weights: Matrix
    images: Matrix


def points(window: int, stride: int) -> int:
    """The number of multiplications for two results."""
    return window + min(window, stride)


@functools.cache
def transforms(window: int, stride: int = 1) -> Transforms:
    """The matrices for two results of a window; each phase of the stride has 1 to LONGEST taps."""
    results: list[list[Fraction]] = [[], []]
    weights, images = [], []
    for first in range(min(stride, window)):
        taps = range(first, window, stride)
        own = _of_neighbours(len(taps))
        for total, row in zip(results, own[0], strict=True):
            total += row
        weights += [_spread(row, taps, window) for row in own[1]]
        images += [_spread(row, range(first, window + stride, stride), window + stride) for row in own[2]]
    return Transforms(_matrix(results), _matrix(weights), _matrix(images))


class Tiling(NamedTuple):
    """The tiles of a convolution."""

    window: tuple[int, int]  # the number of its elements along each axis
    stride: tuple[int, int] = (1, 1)  # along each axis
    step: int = 1  # the distance between columns of results in the output, 1 or 2

    @property
    def matrices(self) -> tuple[Transforms, Transforms]:
        """The transforms of each axis."""
        down, across = (transforms(*axis) for axis in zip(self.window, self.stride, strict=True))
        return down, across


def _of_neighbours(window: int) -> tuple[list[list[Fraction]], list[list[Fraction]], list[list[Fraction]]]:
    """A, G and B for a window without a stride."""
    points = _POINTS[:window]
    zero, one = Fraction(0), Fraction(1)
    results = [[*(x**i for x in points), end] for i, end in enumerate((zero, one))]
    weights, images = [], []
    for x in points:
        others = [y for y in points if y != x]
        scale = math.prod((x - y for y in others), start=one)
        weights.append([x**k / scale for k in range(window)])
        images.append([*_with_roots(others), zero])
    weights.append([Fraction(k == window - 1) for k in range(window)])
    images.append(_with_roots(points))
    return results, weights, images


def _spread(row: list[Fraction], places: range, length: int) -> list[Fraction]:
    """Place the elements of a row at some positions, with zeros between them."""
    wide = [Fraction(0)] * length
    for place, x in zip(places, row, strict=True):
        wide[place] = x
    return wide


def _with_roots(roots: tuple[Fraction, ...] | list[Fraction]) -> list[Fraction]:
    """The coefficients of the polynomial with these roots and leading coefficient 1, the constant first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _matrix(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(float(x) for x in row) for row in rows)


# --- Kernel functions: channels in the lanes of vectors ---------------------------------------------------------------

# A vector has an element of LANES channels of an image. A transform then needs no shuffles, and no masks for padding,
# because it reads a padded copy of a part of the image. All sizes of images and batches take the same time per tile.


def _transpose_factors(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def channels_to_lanes(target: Any, places: Any, source: Any, channels: int, between: int, count: int) -> None:
    """Copy the first `count` elements of up to a vector of channels, `between` elements apart, to vectors.
    Element p of all channels goes to vector `places[p]` of `target`, with zeros in the lanes of missing channels.
    `places` has `count` entries, rounded up to whole vectors; the extra ones must name vectors without an element.
    """
    lanes = WIDE // target.dtype.itemsize
    for p in range(count):
        for lane in range(lanes):
            target[places[p] * lanes + lane] = source[lane * between + p] if lane < channels else 0


@lowers(channels_to_lanes, "ArrayPart", "ArrayPart", "ArrayPart", "Integer", "Integer", "Integer", result="none")
def _lower_channels_to_lanes(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, places, source, channels, between, count = operands
    vectors = Vectors(builder, target, WIDE)
    lanes = int_constant(vectors.lanes)
    none = ir.Constant(vectors.mask, None)
    starts = [builder.gep(source, [builder.mul(between, int_constant(lane))]) for lane in range(vectors.lanes)]
    present = [builder.icmp_signed("<", int_constant(lane), channels) for lane in range(vectors.lanes)]
    all_present = builder.icmp_signed(">=", channels, lanes)

    def one(first: Any, _: list[Any]) -> list[Any]:
        left, pointers = builder.sub(count, first), [builder.gep(start, [first]) for start in starts]
        whole = builder.and_(all_present, builder.icmp_signed(">=", left, lanes))
        with builder.if_else(whole) as (then, otherwise):
            with then:
                fast, after_fast = [vectors.load(pointer) for pointer in pointers], builder.block
            with otherwise:
                mask = vectors.below(left)
                masks = [builder.select(there, mask, none) for there in present]
                pairs = zip(pointers, masks, strict=True)
                slow, after_slow = [vectors.load_masked(pointer, own) for pointer, own in pairs], builder.block
        rows = [vectors.either((a, after_fast), (b, after_slow)) for a, b in zip(fast, slow, strict=True)]
        for n, turned in enumerate(turn_vectors(vectors, rows)):
            place = builder.load(vectors.at(places, builder.add(first, int_constant(n))))
            vectors.store(turned, vectors.at(target, builder.mul(place, int_constant(vectors.lanes))))
        return []

    vectors.loop(count, vectors.lanes, [], one, maybe_none=True)
    return context.get_dummy_value()


@functools.cache
def lanes_to_channels(tiling: Tiling) -> Callable[..., None]:
    """A kernel function: the inverse of `channels_to_lanes`, with elements `tiling.step` apart in `target`."""
    step = tiling.step

    def collect(target: Any, channels: int, between: int, source: Any, places: Any, count: int) -> None:
        lanes = WIDE // source.dtype.itemsize
        for p in range(count):
            for lane in range(min(lanes, channels)):
                target[lane * between + step * p] = source[places[p] * lanes + lane]

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, channels, between, source, places, count = operands
        vectors, pairs = Vectors(builder, source, WIDE), Vectors(builder, source, 2 * WIDE)
        lanes = int_constant(vectors.lanes)
        starts = [builder.gep(target, [builder.mul(between, int_constant(lane))]) for lane in range(vectors.lanes)]
        present = [builder.icmp_signed("<", int_constant(lane), channels) for lane in range(vectors.lanes)]
        all_present = builder.icmp_signed(">=", channels, lanes)

        def put_masked(vectors: Vectors, rows: list[Any], pointers: list[Any], mask: Any) -> None:
            for row, pointer, there in zip(rows, pointers, present, strict=True):
                own = builder.select(there, mask, ir.Constant(vectors.mask, None))
                vectors.store_masked(row, pointer, own)

        def one(first: Any, _: list[Any]) -> list[Any]:
            left, found = builder.sub(count, first), []
            for n in range(vectors.lanes):
                place = builder.load(vectors.at(places, builder.add(first, int_constant(n))))
                found.append(vectors.load(vectors.at(source, builder.mul(place, int_constant(vectors.lanes)))))
            rows = turn_vectors(vectors, found)
            pointers = [builder.gep(start, [builder.mul(first, int_constant(step))]) for start in starts]
            if step > 1:
                rows = [pairs.shuffled(row, row, [n // 2 for n in range(pairs.lanes)]) for row in rows]
                mask = builder.and_(pairs.below(builder.mul(left, int_constant(2))), pairs.every_second())
                put_masked(pairs, rows, pointers, mask)
                return []
            whole = builder.and_(all_present, builder.icmp_signed(">=", left, lanes))
            with builder.if_else(whole) as (then, otherwise):
                with then:
                    for row, pointer in zip(rows, pointers, strict=True):
                        vectors.store(row, pointer)
                with otherwise:
                    put_masked(vectors, rows, pointers, vectors.below(left))
            return []

        vectors.loop(count, vectors.lanes, [], one, maybe_none=True)
        return context.get_dummy_value()

    lowers(collect, "ArrayPart", "Integer", "Integer", "ArrayPart", "ArrayPart", "Integer", result="none")(lower)
    return collect


@functools.cache
def of_images(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms tiles of images to points: see `_tiles`."""
    down, across = tiling.matrices
    return _tiles(down.images, across.images, (2 * tiling.stride[0], 2 * tiling.stride[1]))


@functools.cache
def of_slopes(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms tiles of a gradient of results to points: see `_tiles`."""
    down, across = tiling.matrices
    return _tiles(_transpose_factors(down.results), _transpose_factors(across.results), (2, 2))


def _tiles(down: Matrix, across: Matrix, steps: tuple[int, int]) -> Callable[..., None]:
    transform, wide = _between_grids(down, across), len(across)
    step_down, step_across, tall = *steps, len(down[0])

    @call_once
    def fill_tiles(
        tiles: Any, apart: int, many: int, lanes: Any, room: int, x: Any, plane: Any, places: Any, images: int,
        between: int, channels: int, padded: int, height: int, width: int, top: int, rows: int, columns: int,
        pitch: int,
    ) -> None:  # fmt: skip
        """Transform `rows` rows of tiles of `images`, which are `between` elements apart; the first tile is at `top`.
        Point p of tile t has the channels from c on at `tiles[p * apart + c * many + t * line:]`, a line of 64 bytes,
        with zeros from `channels` to `padded`. `lanes` has memory for the rows of pixels that the tiles read, `pitch`
        vectors apart, at `places`: `room` elements for each vector of a line. `plane` has memory for a vector of
        channels, if they are bytes.
        """
        line = line_of(lanes)
        side, skipped = line * WIDE // 64, top if top > 0 else 0
        used = step_down * (rows - 1) + tall
        lines = least(height, top + used) - skipped
        lines = lines if lines > 0 else 0
        step = height * width if line_of(x) == line_of(plane) else lines * width  # between converted channels
        for half in range(0, line, side):
            zero(tail(lanes, half // side * room), used * pitch * side)
        for n in range(images):
            for c in range(0, padded, side):
                present, half = least(side, channels - c), c % line // side
                own = tail(x, n * between + (c * height + skipped) * width)
                image = convert(plane, own, lines * width if present > 0 else 0)
                for m in range(1, present):
                    convert(tail(plane, m * lines * width), tail(own, m * height * width), lines * width)
                first = tail(lanes, half * room + (skipped - top) * pitch * side)
                channels_to_lanes(first, places, image, present, step, lines * width)
                if (c + side) % line == 0 or c + side >= padded:  # all vectors of a line
                    target = tail(tiles, (c // line * many + n * rows * columns) * line)
                    for i in range(rows):
                        for k in range(half + 1):
                            transform(
                                tail(target, i * columns * line + k * side), wide * apart, apart, line,
                                tail(lanes, k * room + i * step_down * pitch * side), pitch * side, side,
                                step_across * side, columns,
                            )  # fmt: skip

    return fill_tiles


@functools.cache
def to_results(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms products at the points to tiles of results: see `_between_grids`."""
    down, across = tiling.matrices
    return _between_grids(down.results, across.results)


@functools.cache
def of_weights(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms windows of weights to points: see `_between_grids`."""
    down, across = tiling.matrices
    return _between_grids(down.weights, across.weights)


@functools.cache
def to_weights(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms gradients at the points to gradients of weights: see `_between_grids`."""
    down, across = tiling.matrices
    return _between_grids(_transpose_factors(down.weights), _transpose_factors(across.weights))


def _between_grids(down: Matrix, across: Matrix) -> Callable[..., None]:
    """A kernel function: `down` times each of `count` grids of vectors times `across`, transposed.
    In `source`, rows of a grid are `source_down` elements apart, columns `source_across`, and grids `source_step`; in
    `target`, they are `target_down`, `target_across` and `target_step` apart.
    """
    high, wide = len(down[0]), len(across[0])

    def transform(
        target: Any, target_down: int, target_across: int, target_step: int, source: Any, source_down: int,
        source_across: int, source_step: int, count: int,
    ) -> None:  # fmt: skip
        lanes = np.arange(WIDE // target.dtype.itemsize)
        for t in range(count):
            rows, columns = np.arange(high)[:, None, None] * source_down, np.arange(wide)[:, None] * source_across
            grid = source[t * source_step + rows + columns + lanes]
            found = np.einsum("pa,qb,abt->pqt", down, across, grid)
            rows, columns = (
                np.arange(n) * step for n, step in zip(found.shape[:2], (target_down, target_across), strict=True)
            )
            target[t * target_step + rows[:, None, None] + columns[:, None] + lanes] = found

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, target_down, target_across, target_step, source, source_down, source_across, source_step, count = (
            operands
        )
        vectors = Vectors(builder, target, WIDE)

        def places(first: Any, apart: tuple[Any, Any], number: tuple[int, int]) -> list[list[Any]]:
            lines = [vectors.at(first, builder.mul(apart[0], int_constant(n))) for n in range(number[0])]
            steps = [builder.mul(apart[1], int_constant(n)) for n in range(number[1])]
            return [[vectors.at(line, step) for step in steps] for line in lines]

        def one(t: Any, _: list[Any]) -> list[Any]:
            first = vectors.at(source, builder.mul(t, source_step))
            rows = [
                [vectors.load(place) for place in line]
                for line in places(first, (source_down, source_across), (high, wide))
            ]
            first = vectors.at(target, builder.mul(t, target_step))
            goals = places(first, (target_down, target_across), (len(down), len(across)))
            totals = _nest_products(vectors, down, across, rows)
            for total, place in zip(totals, (place for line in goals for place in line), strict=True):
                vectors.store(total, place)
            return []

        vectors.loop(count, 1, [], one)
        return context.get_dummy_value()

    three = ["ArrayPart", "Integer", "Integer", "Integer"]
    lowers(transform, *three, *three, "Integer", result="none")(lower)
    return transform


def _nest_products(vectors: Vectors, down: Matrix, across: Matrix, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """`down` times `rows` times `across`, transposed, flattened row by row."""
    along = [_times(vectors, across, row) for row in rows]
    columns = [_times(vectors, down, column) for column in zip(*along, strict=True)]
    return [total for row in zip(*columns, strict=True) for total in row]


def _times(vectors: Vectors, matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    return [_combine_values(vectors, row, values) for row in matrix]


def _combine_values(vectors: Vectors, factors: Sequence[float], values: Sequence[Any]) -> Any:
    builder, total = vectors.builder, None
    # Terms with factor 1 come first, so that a negation is rarely necessary.
    for factor, value in sorted(zip(factors, values, strict=True), key=lambda pair: pair[0] != 1):
        if factor == 0:
            continue
        if total is None:
            total = value if factor == 1 else builder.fmul(value, vectors.constant(factor))
        elif factor == 1:
            total = builder.fadd(total, value)
        elif factor == -1:
            total = builder.fsub(total, value)
        else:
            total = vectors.added(value, vectors.constant(factor), total)
    return vectors.zero if total is None else total
