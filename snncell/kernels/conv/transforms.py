"""The Toom-Cook algorithm for short correlations, which Winograd nested for two axes: it saves multiplications.

Two neighbouring results of a window of r elements, y[i] = sum over k of d[i + k] g[k], are

    y = A [(G g) * (B d)],    with matrices A (2, r + 1), G (r + 1, r), B (r + 1, r + 1),

so they take r + 1 multiplications instead of 2 r. For two axes the transforms are applied along one axis and then the
other. For example, four results of a 3x3 window take 16 multiplications instead of 36, and of a 5x5 window 36 instead
of 100. The sums over channels come before A, so the transforms cost little if there are many channels.

With a stride, y[i] = sum over k of d[i stride + k] g[k] is a sum of such correlations, one per phase of the stride. For
example, two results of a window of three with stride 2 take 3 + 2 multiplications instead of 6.

Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2016), arXiv:1509.09308.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.intrinsics.builtins import Vectors, call_once, int_constant, least, lowers
from snncell.kernels.intrinsics.elements import convert, line_of, tail

Matrix = tuple[tuple[float, ...], ...]

# The points at which polynomials are evaluated, in addition to infinity. Rounding errors grow with their size and
# number. For windows of five, these points have the smallest errors, less than twice the errors of a direct sum.
_POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-2))
LONGEST = len(_POINTS)
WIDE = 32  # bytes of a vector of tiles, because short rows of images would leave a longer vector half empty


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
    rows: int = 1  # the number of rows of tiles that share a vector, each with an equal part of its lanes
    images: int = 1  # the number of images whose tiles share a vector; if there are several, `rows` are all of an image

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


# --- Kernel functions: transforms of a vector of tiles at a time ------------------------------------------------------


def _transpose_factors(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


@functools.cache
def of_images(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms tiles of images to points: see `_tiles`."""
    down, across = tiling.matrices
    return _tiles(down.images, across.images, (2 * tiling.stride[0], 2 * tiling.stride[1]), tiling)


@functools.cache
def of_slopes(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms tiles of a gradient of results to points: see `_tiles`."""
    down, across = tiling.matrices
    return _tiles(_transpose_factors(down.results), _transpose_factors(across.results), (2, 2), tiling)


def _tiles(down: Matrix, across: Matrix, steps: tuple[int, int], tiling: Tiling) -> Callable[..., None]:
    transform, points = _rows_of_tiles(down, across, steps, tiling), len(down) * len(across)
    high, tall, together, shared = steps[0], len(down[0]), tiling.rows, tiling.images

    @call_once
    def fill_tiles(
        tiles: Any, apart: int, wide: int, x: Any, plane: Any, images: int, between: int, channels: int, height: int,
        width: int, top: int, left: int, rows: int, columns: int, end: int,
    ) -> None:  # fmt: skip
        """Transform `rows` rows of tiles for `channels` of `images`; the first tile is at (top, left).
        The images are `between` elements apart. Point p of channel c begins at `tiles[p * apart + c * wide]`, with
        zeros after the last tile up to `end`. `plane` has memory for a channel of the images that share a vector, if
        they are bytes.
        """
        skipped = top if top > 0 else 0
        lines = least(height, top + high * (rows - 1) + tall) - skipped
        lines = lines if lines > 0 else 0
        step = between if line_of(x) == line_of(plane) else lines * width  # between converted images
        for c in range(channels):
            for n in range(0, images, shared):
                own = tail(x, n * between + (c * height + skipped) * width)
                image = convert(plane, own, lines * width)
                for m in range(1, least(shared, images - n)):
                    convert(tail(plane, m * lines * width), tail(own, m * between), lines * width)
                for i in range(0, rows, together):
                    # In ascending order, because vector stores past the end of a row are overwritten by the next row.
                    first, line = c * wide + (n * rows + i) * columns, top - skipped + high * i
                    transform(tail(tiles, first), apart, image, images - n, step, lines, width, line, left, columns)
            for p in range(points):
                for t in range(images * rows * columns, end):
                    tiles[p * apart + c * wide + t] = 0

    return fill_tiles


def _rows_of_tiles(down: Matrix, across: Matrix, steps: tuple[int, int], tiling: Tiling) -> Callable[..., None]:
    """A kernel function: `down` times each of `count` tiles times `across`, transposed.
    It processes the rows of tiles that fill a vector, of up to `images`, which are `between` elements apart. The first
    tile begins at (top, left) of an image, and the others are `steps` further down and across, with zeros outside of
    the image. Element p of all tiles goes to `target[p * target_apart:]`. The last vector may store garbage after the
    last tile.
    """
    high, wide, step, together = len(down[0]), len(across[0]), steps[1], tiling.rows * tiling.images

    def transform(
        target: Any, target_apart: int, image: Any, images: int, between: int, height: int, width: int, top: int,
        left: int, count: int,
    ) -> None:  # fmt: skip
        for row in range(tiling.rows * min(images, tiling.images)):
            padded = np.zeros((high, step * count + wide), target.dtype)
            for a, b in np.ndindex(padded.shape):
                n, line = divmod(row, tiling.rows)
                y = top + line * steps[0] + a
                if 0 <= y < height and 0 <= left + b < width:
                    padded[a, b] = image[n * between + y * width + left + b]
            tiles = [[padded[a, b : b + step * count : step] for b in range(wide)] for a in range(high)]
            for p, values in enumerate(np.einsum("pa,qb,abt->pqt", down, across, tiles).reshape(-1, count)):
                place = p * target_apart + row * count
                target[place : place + count] = values

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, target_apart, image, images, between, height, width, top, left, count = operands
        vectors, pairs = _vectors(builder, target)
        # The input of a vector of tiles comes in steps of `parts` vectors. Each row of tiles gets `own_lanes` of their
        # lanes.
        parts = step // 2
        own_lanes = parts * pairs.lanes // together

        def loaded(n: int, line: Any, column: Any) -> Any:
            """Load elements of a row of image `n`."""
            there = builder.icmp_unsigned("<", line, height)
            if n:
                there = builder.and_(there, builder.icmp_signed("<", int_constant(n), images))
            mask = pairs.between(column, builder.select(there, width, int_constant(0)))
            first = builder.add(builder.mul(between, int_constant(n)), builder.mul(line, width))
            return pairs.load_masked(builder.gep(image, [builder.add(first, column)]), mask)

        def part(number: int, line: Any, column: Any) -> Any:
            """Load vector `number` of `parts`: consecutive elements of one row, or of several rows."""
            begin, found = number * pairs.lanes, None
            for first in range(0, pairs.lanes, min(own_lanes, pairs.lanes)):
                row, inside = divmod(begin + first, own_lanes)
                n, row = divmod(row, tiling.rows)
                here = builder.add(line, int_constant(row * steps[0]))
                more = loaded(n, here, builder.add(column, int_constant(inside - first)))
                order = [lane if lane < first else pairs.lanes + lane for lane in range(pairs.lanes)]
                found = more if found is None else pairs.shuffled(found, more, order)
            return found

        def elements(a: int, b: int, first: Any) -> list[Any]:
            """Elements (a, b), (a, b + 1), ... of each tile, up to the end of a step."""
            line, column = builder.add(top, int_constant(a)), builder.add(first, int_constant(b))
            own = [part(number, line, column) for number in range(parts)]
            orders = [range(n, parts * pairs.lanes, step) for n in range(min(step, wide - b))]
            return [vectors.shuffled(own[0], own[-1], order) for order in orders]

        def one(i: Any, _: list[Any]) -> list[Any]:
            first = builder.add(left, builder.mul(i, int_constant(step)))
            rows = [[each for b in range(0, wide, step) for each in elements(a, b, first)] for a in range(high)]
            for p, total in enumerate(_nest_products(vectors, down, across, rows)):
                vectors.store(total, vectors.at(vectors.at(target, i), builder.mul(target_apart, int_constant(p))))
            return []

        vectors.loop(count, vectors.lanes, [], one)
        return context.get_dummy_value()

    integers = ["Integer"] * 7
    lowers(transform, "ArrayPart", "Integer", "ArrayPart", *integers, result="none")(lower)
    return transform


@functools.cache
def of_weights(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms windows of weights to points: see `_by_elements`."""
    down, across = tiling.matrices
    return _by_elements(down.weights, across.weights)


@functools.cache
def to_weights(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms gradients at the points to gradients of weights: see `_by_elements`."""
    down, across = tiling.matrices
    return _by_elements(_transpose_factors(down.weights), _transpose_factors(across.weights))


def _by_elements(down: Matrix, across: Matrix) -> Callable[..., None]:
    """A kernel function: `down` times each of `count` windows times `across`, transposed.
    Element p of the windows begins at `source[p * apart]`, and of their transforms at `target[p * target_apart]`.
    """
    high, wide = len(down[0]), len(across[0])

    def transform(target: Any, target_apart: int, source: Any, apart: int, count: int) -> None:
        elements = np.array([source[p * apart : p * apart + count] for p in range(high * wide)])
        windows = elements.reshape(high, wide, count)
        for p, row in enumerate(np.einsum("pa,qb,abt->pqt", down, across, windows).reshape(-1, count)):
            target[p * target_apart : p * target_apart + count] = row

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, target_apart, source, apart, count = operands
        vectors, _ = _vectors(builder, target)

        def one(i: Any, _: list[Any]) -> list[Any]:
            rows = _rows(vectors, vectors.at(source, i), apart, high, wide)
            for p, total in enumerate(_nest_products(vectors, down, across, rows)):
                vectors.store(total, vectors.at(vectors.at(target, i), builder.mul(target_apart, int_constant(p))))
            return []

        vectors.loop(count, vectors.lanes, [], one)
        return context.get_dummy_value()

    lowers(transform, "ArrayPart", "Integer", "ArrayPart", "Integer", "Integer", result="none")(lower)
    return transform


@functools.cache
def put_results(tiling: Tiling) -> Callable[..., None]:
    """A kernel function that transforms products at the points, `apart` elements apart, to a row of tiles of results.
    Results go to `target`, with `columns` per row, rows `pitch` apart, and `lines` rows, two for each row of tiles. If
    several images share a vector, these are the results of up to `images`, which are `between` elements apart. Nothing
    else is written.
    """
    down, across = (axis.results for axis in tiling.matrices)
    points, step = (len(down[0]), len(across[0])), tiling.step

    def put(
        target: Any, pitch: int, source: Any, apart: int, columns: int, lines: int, between: int, images: int
    ) -> None:
        tiles = (columns + 1) // 2
        for row in range(tiling.rows * min(images, tiling.images)):
            values = [source[p * apart + row * tiles :][:tiles] for p in range(points[0] * points[1])]
            results = np.einsum("pa,qb,abt->ptq", down, across, np.array(values).reshape(*points, tiles)).reshape(2, -1)
            for n in range(2):
                image, line = divmod(row, tiling.rows)
                if 2 * line + n < lines:
                    target[image * between + (2 * line + n) * pitch :][: step * columns : step] = results[n, :columns]

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, pitch, source, apart, columns, lines, between, images = operands
        vectors, pairs = _vectors(builder, target)
        order = [lane for t in range(vectors.lanes) for lane in (t, vectors.lanes + t)]

        def goal(image: int, line: int, column: Any) -> tuple[Any, Any]:
            """The address of the results of a row, and the number of elements from there on; 0 after the last row."""
            there = builder.and_(
                builder.icmp_signed("<", int_constant(line), lines), builder.icmp_signed("<", column, columns)
            )
            if image:
                there = builder.and_(there, builder.icmp_signed("<", int_constant(image), images))
            count = builder.mul(builder.sub(columns, column), int_constant(step))
            place = builder.add(builder.mul(pitch, int_constant(line)), builder.mul(column, int_constant(step)))
            place = builder.add(place, builder.mul(between, int_constant(image)))
            return builder.gep(target, [place]), builder.select(there, count, int_constant(0))

        def put_row(results: Any, n: int, first: Any) -> None:
            """Store row `n` of the results of a vector of tiles, for each row of tiles in it."""
            own_lanes = pairs.lanes // (tiling.rows * tiling.images)
            for begin in range(0, pairs.lanes, min(own_lanes, pairs.lanes // step)):
                row, inside = divmod(begin, own_lanes)
                image, line = divmod(row, tiling.rows)
                place, count = goal(image, 2 * line + n, builder.add(first, int_constant(inside)))
                # With step 1, store the vector and mask the lanes before `begin`; with step 2, spread the lanes first.
                shift = int_constant(-begin if step == 1 else 0)
                mask = pairs.between(shift, count)
                if step > 1:
                    spread = [min(begin + lane // step, pairs.lanes - 1) for lane in range(pairs.lanes)]
                    results_here = pairs.shuffled(results, results, spread)
                    mask = builder.and_(mask, pairs.every_second())
                else:
                    results_here = results
                pairs.store_masked(results_here, builder.gep(place, [shift]), mask)

        def one(first: Any, _: list[Any]) -> list[Any]:
            own = vectors.at(source, builder.lshr(first, int_constant(1)))
            results = _nest_products(vectors, down, across, _rows(vectors, own, apart, *points))
            for n in range(2):
                put_row(pairs.shuffled(results[2 * n], results[2 * n + 1], order), n, first)
            return []

        pairs.loop(columns, pairs.lanes, [], one)
        return context.get_dummy_value()

    lowers(put, "ArrayPart", "Integer", "ArrayPart", *["Integer"] * 5, result="none")(lower)
    return put


def _vectors(builder: Any, pointer: Any) -> tuple[Vectors, Vectors]:
    """The vector types for tiles and for columns; a tile has two columns."""
    return Vectors(builder, pointer, WIDE), Vectors(builder, pointer, 2 * WIDE)


def _rows(vectors: Vectors, first: Any, apart: Any, high: int, wide: int) -> list[list[Any]]:
    places = [vectors.builder.mul(apart, int_constant(p)) for p in range(high * wide)]
    loaded = [vectors.load(vectors.at(first, place)) for place in places]
    return [loaded[n : n + wide] for n in range(0, len(loaded), wide)]


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
