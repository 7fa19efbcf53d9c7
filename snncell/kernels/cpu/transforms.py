"""The transforms of Winograd's convolutions (`kernels/toom_cook.py`), of a vector of tiles at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.interrupts import imported
from snncell.kernels.cpu.builtins import lowers, typed
from snncell.kernels.cpu.elements import Part, tail
from snncell.kernels.cpu.vectors import I64, Vectors, registers
from snncell.kernels.policy import called
from snncell.kernels.toom_cook import Matrix, transforms

ir: Any = imported("llvmlite.ir")
types: Any = imported("numba.core.types")

WIDE = 32  # bytes of tiles at a time: rows of images are short, and longer vectors would be half empty


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


@functools.cache
def of_images(down: int, across: int) -> Callable[..., None]:
    """Tiles of images, at points: see `_tiles`."""
    return _tiles(transforms(down).images, transforms(across).images)


@functools.cache
def of_slopes(down: int, across: int) -> Callable[..., None]:
    """Tiles of a gradient of results, at points: see `_tiles`."""
    return _tiles(_transposed(transforms(down).results), _transposed(transforms(across).results))


def _tiles(down: Matrix, across: Matrix) -> Callable[..., None]:
    transform, points = _row_of_tiles(down, across), len(down) * len(across)

    @called
    def fill_tiles(
        tiles: Any, apart: int, wide: int, x: Any, images: int, between: int, channels: int, height: int, width: int,
        top: int, left: int, rows: int, columns: int, end: int,
    ) -> None:  # fmt: skip
        """`rows` rows of tiles of `channels` of `images`, which are `between` elements apart; the first at (top, left).

        Point p of channel c begins at `tiles[p * apart + c * wide]`, with zeros behind the last tile up to `end`.
        """
        for c in range(channels):
            for n in range(images):
                image = tail(x, n * between + c * height * width)
                for i in range(rows):
                    # From the first to the last: what is put behind a row is overwritten by the next.
                    first = c * wide + (n * rows + i) * columns
                    transform(tail(tiles, first), apart, image, height, width, top + 2 * i, left, columns)
            for p in range(points):
                for t in range(images * rows * columns, end):
                    tiles[p * apart + c * wide + t] = 0

    return fill_tiles


def _row_of_tiles(down: Matrix, across: Matrix) -> Callable[..., None]:
    """A function for kernels: `down` times each of `count` tiles times `across`, transposed.

    The first tile begins at (top, left) of an image, and each of the others two columns behind the one before it;
    outside of the image are zeros. Element p of all tiles goes to `target[p * target_apart:]`; there may be garbage
    behind those of the last, to the end of a vector.
    """
    high, wide = len(down[0]), len(across[0])

    def transform(
        target: Any, target_apart: int, image: Any, height: int, width: int, top: int, left: int, count: int
    ) -> None:
        padded = np.zeros((high, 2 * count + wide), target.dtype)
        for a, b in np.ndindex(padded.shape):
            if 0 <= top + a < height and 0 <= left + b < width:
                padded[a, b] = image[(top + a) * width + left + b]
        tiles = [[padded[a, b : b + 2 * count : 2] for b in range(wide)] for a in range(high)]
        for p, row in enumerate(np.einsum("pa,qb,abt->pqt", down, across, tiles).reshape(-1, count)):
            target[p * target_apart : p * target_apart + count] = row

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, target_apart, image, height, width, top, left, count = operands
        vectors, pairs = _vectors(builder, target)

        def two_columns(a: int, b: int, first: Any) -> list[Any]:
            """Elements (a, b) and (a, b + 1) of each tile from one on."""
            line, column = builder.add(top, ir.Constant(I64, a)), builder.add(first, ir.Constant(I64, b))
            there = builder.icmp_unsigned("<", line, height)
            mask = pairs.between(column, builder.select(there, width, ir.Constant(I64, 0)))
            place = builder.add(builder.mul(line, width), column)
            loaded = pairs.load_masked(builder.gep(image, [place]), mask)
            return [vectors.shuffled(loaded, loaded, range(n, pairs.lanes, 2)) for n in range(2)]

        def one(i: Any, _: list[Any]) -> list[Any]:
            first = builder.add(left, builder.mul(i, ir.Constant(I64, 2)))
            rows = [
                [element for b in range(0, wide, 2) for element in two_columns(a, b, first)][:wide] for a in range(high)
            ]
            for p, total in enumerate(_nested(vectors, down, across, rows)):
                vectors.store(total, vectors.at(vectors.at(target, i), builder.mul(target_apart, ir.Constant(I64, p))))
            return []

        vectors.loop(count, vectors.lanes, [], one)
        return context.get_dummy_value()

    integers = [types.Integer] * 5
    typed(transform, lambda target, target_apart, image, height, width, top, left, count: types.none)
    lowers(transform, Part, types.Integer, Part, *integers)(lower)
    return transform


@functools.cache
def of_weights(down: int, across: int) -> Callable[..., None]:
    """Windows of weights, to points: see `_by_elements`."""
    return _by_elements(transforms(down).weights, transforms(across).weights)


@functools.cache
def to_weights(down: int, across: int) -> Callable[..., None]:
    """The gradients of weights, of those at the points: see `_by_elements`."""
    return _by_elements(_transposed(transforms(down).weights), _transposed(transforms(across).weights))


def _by_elements(down: Matrix, across: Matrix) -> Callable[..., None]:
    """A function for kernels: `down` times windows times `across`, transposed.

    Element p of `count` windows begins at `source[p * apart]`, and of their transforms at `target[p * target_apart]`.
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
            for p, total in enumerate(_nested(vectors, down, across, rows)):
                vectors.store(total, vectors.at(vectors.at(target, i), builder.mul(target_apart, ir.Constant(I64, p))))
            return []

        vectors.loop(count, vectors.lanes, [], one)
        return context.get_dummy_value()

    typed(transform, lambda target, target_apart, source, apart, count: types.none)
    lowers(transform, Part, types.Integer, Part, types.Integer, types.Integer)(lower)
    return transform


@functools.cache
def put_results(down: int, across: int) -> Callable[..., None]:
    """A function for kernels: two rows of results, of what was multiplied at the points, which lie `apart`.

    They begin at `target` and `target[width]`. The first has `columns` results, the second `below`, which may be none;
    nothing behind them is touched.
    """
    matrices = transforms(down).results, transforms(across).results
    points = len(matrices[0][0]), len(matrices[1][0])

    def put(target: Any, width: int, source: Any, apart: int, columns: int, below: int) -> None:
        tiles = (columns + 1) // 2
        values = [source[p * apart : p * apart + tiles] for p in range(points[0] * points[1])]
        results = np.einsum("pa,qb,abt->ptq", *matrices, np.array(values).reshape(*points, tiles)).reshape(2, -1)
        target[:columns] = results[0, :columns]
        target[width : width + below] = results[1, :below]

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        target, width, source, apart, columns, below = operands
        vectors, pairs = _vectors(builder, target)
        order = [lane for t in range(vectors.lanes) for lane in (t, vectors.lanes + t)]

        def one(first: Any, _: list[Any]) -> list[Any]:
            own = vectors.at(source, builder.lshr(first, ir.Constant(I64, 1)))
            results = _nested(vectors, *matrices, _rows(vectors, own, apart, *points))
            goals = (vectors.at(target, first), vectors.at(vectors.at(target, first), width))
            for n, (goal, count) in enumerate(zip(goals, (columns, below), strict=True)):
                row = vectors.shuffled(results[2 * n], results[2 * n + 1], order)
                pairs.store_masked(row, goal, pairs.below(builder.sub(count, first)))
            return []

        pairs.loop(columns, pairs.lanes, [], one)
        return context.get_dummy_value()

    typed(put, lambda target, width, source, apart, columns, below: types.none)
    lowers(put, Part, types.Integer, Part, types.Integer, types.Integer, types.Integer)(lower)
    return put


def _vectors(builder: Any, pointer: Any) -> tuple[Vectors, Vectors]:
    """Vectors of tiles, and of the columns of as many, of which there are two each."""
    wide = min(WIDE, registers()[1])
    return Vectors(builder, pointer, wide), Vectors(builder, pointer, 2 * wide)


def _rows(vectors: Vectors, first: Any, apart: Any, high: int, wide: int) -> list[list[Any]]:
    """Rows of vectors that lie `apart`, one after another."""
    places = [vectors.builder.mul(apart, ir.Constant(I64, p)) for p in range(high * wide)]
    loaded = [vectors.load(vectors.at(first, place)) for place in places]
    return [loaded[n : n + wide] for n in range(0, len(loaded), wide)]


def _nested(vectors: Vectors, down: Matrix, across: Matrix, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """`down` times `rows` times `across`, transposed: row by row."""
    along = [_times(vectors, across, row) for row in rows]
    columns = [_times(vectors, down, column) for column in zip(*along, strict=True)]
    return [total for row in zip(*columns, strict=True) for total in row]


def _times(vectors: Vectors, matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    """A matrix of known numbers times a vector whose elements are vectors."""
    return [_combined(vectors, row, values) for row in matrix]


def _combined(vectors: Vectors, factors: Sequence[float], values: Sequence[Any]) -> Any:
    builder, total = vectors.builder, None
    # What is added as it is comes first, so that hardly anything has to be negated.
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
