"""Register blocking: sums of rows and tiles of products in vector registers, where Numba would keep them in memory.

A panel is a packed strip of a matrix: its rows have at most VECTORS vectors of 64 bytes, each in one register or in
several smaller ones. The sums of a row of the result stay in registers while all events of the row are added. A tile of
results stays in registers over all terms of its sums, so that each loaded operand is used in several products. If the
processor has too few registers, a tile is split, which does not change its results. In Python, each function does the
same with NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.kernels.intrinsics.builtins import (
    Vectors,
    call_once,
    inline,
    int_constant,
    ir,
    least,
    lowers,
    registers,
    types,
)
from snncell.kernels.intrinsics.elements import copy, flat, line_of, row, tail

VECTOR = 64  # bytes
VECTORS = 4  # in a row of a panel: half of the registers of AVX2, an eighth of those of AVX-512
DEPTH = 2048  # rows of a panel: half of an L2 cache
WORD = 64  # elements that are tested together


def lanes_of(dtype: Any) -> int:
    """The number of elements in a vector."""
    return VECTOR // int(np.dtype(dtype).itemsize)


# --- Nonzero elements -------------------------------------------------------------------------------------------------


def bits_of(x: Any, first: Any) -> Any:
    """A bit mask of the nonzero elements among WORD elements from `first` on."""
    found = np.asarray(x[first : first + WORD]) != 0
    return int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little")


def lowest(bits: Any) -> Any:
    """The index of the lowest set bit; at least one bit must be set."""
    return int(bits & -bits).bit_length() - 1


def others(bits: Any) -> Any:
    """Clear the lowest set bit."""
    return bits & (bits - 1)


@lowers(bits_of, "ArrayPart", "Integer", result="int64")
def _lower_bits(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    pointer, first = operands
    vectors = Vectors(builder, pointer, WORD * context.get_abi_sizeof(pointer.type.pointee))
    compare = builder.fcmp_unordered if isinstance(signature.args[0].dtype, types.Float) else builder.icmp_signed
    return builder.bitcast(compare("!=", vectors.load(vectors.at(pointer, first)), vectors.zero), ir.IntType(64))


@lowers(lowest, "Integer", result="int64")
def _lower_lowest(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.cttz(operands[0], ir.Constant(ir.IntType(1), 1))


@lowers(others, "Integer", result="int64")
def _lower_others(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.and_(operands[0], builder.sub(operands[0], int_constant(1)))


@inline
def bits_before(x: Any, first: Any, end: Any, rest: Any) -> Any:
    """`bits_of` for the elements before `end`. If fewer than WORD are left, they are copied to `rest` first."""
    if first + WORD <= end:
        return bits_of(x, first)
    for i in range(WORD):
        rest[i] = 0
    copy(tail(rest, 0), tail(x, first), end - first)
    return bits_of(tail(rest, 0), 0)


# --- Sums of rows -----------------------------------------------------------------------------------------------------


def add_rows(
    sums: Any, more: Any, values: Any, step: Any, places: Any, count: Any, panel: Any, stride: Any, vectors: Any
) -> None:
    """Sum `count` rows of a panel, each times its value, in order. Add the result to `sums` if `more`, else store it.
    Values are `step` apart; a step of 0 uses one value for all rows. Rows of the panel are `stride` apart. `sums` and
    each row have `vectors` vectors of elements, 1 to VECTORS.
    """
    width = vectors * lanes_of(panel.dtype)
    total = sums[:width] if more else np.zeros(width, panel.dtype)
    for event, place in enumerate(map(int, places[:count])):  # int, because 16 bits times the stride would overflow
        total = total + values[event * step] * panel[place * stride : place * stride + width]
    sums[:width] = total


@lowers(add_rows, *["ArrayPart", "Integer"] * 4, "Integer", result="none")
def _lower_add_rows(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    sums, more, values, step, places, count, panel, stride, vectors = (
        context.cast(builder, x, kind, types.int64) if isinstance(kind, types.Integer) else x
        for x, kind in zip(operands, signature.args, strict=True)
    )
    each = Vectors(builder, panel, VECTOR)
    for number in range(1, VECTORS + 1):
        with builder.if_then(builder.icmp_signed("==", vectors, int_constant(number))):
            into = [each.at(sums, n * each.lanes) for n in range(number)]

            def added(event: Any, totals: list[Any], number: int = number) -> list[Any]:
                place = builder.sext(builder.load(each.at(places, event)), ir.IntType(64))
                factor = each.spread(builder.load(each.at(values, builder.mul(event, step))))
                rows = each.load_each(each.at(panel, builder.mul(place, stride, flags=["nsw"])), number)
                return [each.added(factor, own, total) for own, total in zip(rows, totals, strict=True)]

            totals = each.loop(count, 1, each.load_if(more, into), added, maybe_none=True)
            for total, place in zip(totals, into, strict=True):
                each.store(total, place)
    return context.get_dummy_value()


# --- Transposition ----------------------------------------------------------------------------------------------------


def turn_tile(target: Any, target_stride: Any, source: Any, source_stride: Any) -> None:
    """Transpose a square tile, with as many rows and columns as a vector has elements."""
    side = lanes_of(source.dtype)
    for i in range(side):
        for j in range(side):
            target[j * target_stride + i] = source[i * source_stride + j]


@lowers(turn_tile, "ArrayPart", "Integer", "ArrayPart", "Integer", result="none")
def _lower_turn_tile(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, target_stride, source, source_stride = operands
    vectors = Vectors(builder, source, VECTOR)
    side = vectors.lanes

    def row_of(pointer: Any, stride: Any, number: int) -> Any:
        return vectors.at(pointer, builder.mul(stride, int_constant(number)))

    rows = [vectors.load(row_of(source, source_stride, n)) for n in range(side)]
    for n, turned in enumerate(turn_vectors(vectors, rows)):
        vectors.store(turned, row_of(target, target_stride, n))
    return context.get_dummy_value()


def turn_vectors(vectors: Vectors, rows: list[Any]) -> list[Any]:
    """Transpose a square of elements, with as many vectors as a vector has lanes."""
    # Swap the two off-diagonal quadrants, then the same within each quadrant, and so on down to single elements.
    rows, side = list(rows), vectors.lanes
    half = side // 2
    while half:
        low = [n + side * (n & half > 0) - half * (n & half > 0) for n in range(side)]
        high = [n + half if n & half == 0 else n + side for n in range(side)]
        for n in range(side):
            if n & half == 0:
                a, b = rows[n], rows[n + half]
                rows[n], rows[n + half] = (vectors.shuffled(a, b, lanes) for lanes in (low, high))
        half //= 2
    return rows


@call_once
def turn(target: Any, target_stride: Any, source: Any, source_stride: Any, rows: Any, columns: Any, side: Any) -> None:
    """`target[column, row] = source[row, column]`; strides are between rows, and `side` is the side of a tile."""
    for first in range(0, rows, side):
        for low in range(0, columns, side):
            if first + side <= rows and low + side <= columns:
                into, tile = tail(target, low * target_stride + first), tail(source, first * source_stride + low)
                turn_tile(into, target_stride, tile, source_stride)
            else:
                for i in range(first, least(rows, first + side)):
                    for j in range(low, least(columns, low + side)):
                        target[j * target_stride + i] = source[i * source_stride + j]


@inline
def pack(
    panel: Any, stride: Any, y: Any, y_turned: Any, first: Any, depth: Any, low: Any, width: Any, side: Any
) -> None:
    """Pack rows from `first` and columns from `low` of `y` into a panel, zero-padded to rows of `stride` elements."""
    if y_turned != 0:
        _, inner = y.shape
        turn(panel, stride, tail(flat(y), low * inner + first), inner, width, depth, side)
    else:
        for place in range(depth):
            copy(tail(panel, place * stride), tail(row(y, first + place), low), width)
    for place in range(depth):
        for column in range(width, stride):
            panel[place * stride + column] = 0


@inline
def store(
    out: Any, out_turned: Any, sums: Any, stride: Any, first: Any, height: Any, low: Any, width: Any, side: Any
) -> None:
    """Copy `height` rows of sums, `stride` apart, to a result from row `first` and column `low` on. `out` is this
    result, or its transpose if `out_turned` is not 0.
    """
    if out_turned != 0:
        _, m = out.shape
        turn(tail(flat(out), low * m + first), m, sums, stride, height, width, side)
    else:
        for i in range(height):
            copy(tail(row(out, first + i), low), tail(sums, i * stride), width)


@inline
def fetch(
    sums: Any, stride: Any, out: Any, out_turned: Any, first: Any, height: Any, low: Any, width: Any, side: Any
) -> None:
    """Copy rows and columns of a result to the sums: the inverse of `store`."""
    if out_turned != 0:
        _, m = out.shape
        turn(sums, stride, tail(flat(out), low * m + first), m, width, height, side)
    else:
        for i in range(height):
            copy(tail(sums, i * stride), tail(row(out, first + i), low), width)


PACK = 8  # rows whose weights are interleaved


def cut(count: int, size: int) -> list[range]:
    """Split `range(count)` into ranges of `size`: for example, cut(5, 2) has the ranges 0-1, 2-3 and 4."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


# --- Products of weights and shifted pixels, summed over terms --------------------------------------------------------


def _tile(rows: int, columns: int) -> Callable[..., None]:
    """A kernel function: `out[r, i] = sum over k of weights[k, r] image[offsets[k] + i]`, with flat arrays.
    Rows of `weights` have PACK elements, and rows of `out` are `step` apart; `count` is at least 1. If `more` is not 0,
    the sums are added to `out`.
    """

    def multiply(out: Any, step: int, weights: Any, image: Any, offsets: Any, count: int, more: int) -> None:
        for r in range(rows):
            terms = (weights[PACK * k + r] * image[offsets[k] : offsets[k] + columns] for k in range(count))
            own = out[r * step : r * step + columns]
            own[...] = sum(terms, own if more else 0)

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, step, weights, image, offsets, count, more = operands
        vectors = Vectors(builder, out)
        room = 24 if registers()[0] == 32 else 12  # registers for sums; the others are for operands
        for across in cut(rows, min(rows, 8 if room == 24 else 4)):
            for along in cut(columns // vectors.lanes, room // len(across)):

                def term(k: Any, sums: list[Any], across: range = across, along: range = along) -> list[Any]:
                    pixels = vectors.at(image, builder.load(vectors.at(offsets, k)))
                    loaded = [vectors.load(vectors.at(pixels, n * vectors.lanes)) for n in along]
                    own = vectors.at(weights, builder.mul(k, int_constant(PACK)))
                    factors = [vectors.spread(builder.load(vectors.at(own, r))) for r in across]
                    pairs = [(a, b) for a in factors for b in loaded]
                    return [vectors.added(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]

                starts = [builder.mul(step, int_constant(r)) for r in across]
                places = [vectors.at(vectors.at(out, start), n * vectors.lanes) for start in starts for n in along]
                sums = vectors.loop(count, 1, vectors.load_if(more, places), term)
                for total, place in zip(sums, places, strict=True):
                    vectors.store(total, place)
        return context.get_dummy_value()

    parts = ["ArrayPart"] * 3
    lowers(multiply, "ArrayPart", "Integer", *parts, "Integer", "Integer", result="none")(lower)
    return multiply


tile_8_48, tile_8_32, tile_8_16 = _tile(8, 48), _tile(8, 32), _tile(8, 16)
tile_4_48, tile_4_16 = _tile(4, 48), _tile(4, 16)
tile_1_128, tile_1_16 = _tile(1, 128), _tile(1, 16)


@call_once
def multiply_rows(
    sums: Any, step: int, wide: int, weights: Any, rows: int, image: Any, offsets: Any, count: int, more: int
) -> None:
    """`sums[r, i] = sum over k of weights[k, r] image[offsets[k] + i]` for up to PACK rows; `wide` is 16 n.
    Rows of `sums` are `step` apart. Eight rows are written for five to eight, and four for two to four.
    """
    done = 0
    while done < wide:
        left, target, pixels = wide - done, tail(sums, done), tail(image, done)
        if rows > 4:
            if left >= 48 and left != 64:  # 64 is better split into two tiles of 32
                tile_8_48(target, step, weights, pixels, offsets, count, more)
                done += 48
            elif left >= 32:
                tile_8_32(target, step, weights, pixels, offsets, count, more)
                done += 32
            else:
                tile_8_16(target, step, weights, pixels, offsets, count, more)
                done += 16
        elif rows > 1:
            if left >= 48:
                tile_4_48(target, step, weights, pixels, offsets, count, more)
                done += 48
            else:
                tile_4_16(target, step, weights, pixels, offsets, count, more)
                done += 16
        elif left >= 128:
            tile_1_128(target, step, weights, pixels, offsets, count, more)
            done += 128
        else:
            tile_1_16(target, step, weights, pixels, offsets, count, more)
            done += 16


# --- Products of gradient rows and shifted image rows, summed over pixels ---------------------------------------------


def _adder(rows: int) -> Callable[..., None]:
    """A kernel function: `out[k, r] += sum over n, i of slopes[n, r, i] image[n, offsets[k] + i]` for four k and `rows`
    r. Rows of `out` have four elements, and rows of `slopes` are `step` apart; `count` is a multiple of 16. For the
    `images` values of n, slopes are `across` elements apart and images `between`.
    """

    def add(
        out: Any, slopes: Any, step: int, image: Any, offsets: Any, count: int, images: int, across: int, between: int
    ) -> None:
        for n in range(images):
            for k in range(4):
                pixels = image[n * between + offsets[k] :][:count]
                for r in range(rows):
                    out[4 * k + r] += (slopes[n * across + r * step :][:count] * pixels).sum()

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, slopes, step, image, offsets, count, images, across, between = operands
        vectors = Vectors(builder, out)
        shifted = [vectors.at(image, builder.load(vectors.at(offsets, k))) for k in range(4)]
        firsts = [vectors.at(slopes, builder.mul(step, int_constant(r))) for r in range(rows)]
        for part in cut(4, 4 if registers()[0] == 32 else 2):

            def plane(n: Any, sums: list[Any], part: range = part) -> list[Any]:
                pixels = [vectors.at(shifted[k], builder.mul(n, between)) for k in part]
                lines = [vectors.at(first, builder.mul(n, across)) for first in firsts]

                def term(i: Any, sums: list[Any]) -> list[Any]:
                    b, a = ([vectors.load(vectors.at(each, i)) for each in both] for both in (pixels, lines))
                    pairs = [(x, y) for y in b for x in a]
                    return [vectors.added(x, y, c) for (x, y), c in zip(pairs, sums, strict=True)]

                return vectors.loop(count, vectors.lanes, sums, term)

            sums = vectors.loop(images, 1, [vectors.zero] * (rows * len(part)), plane)
            four = [[*sums[rows * k : rows * k + rows], *[vectors.zero] * (4 - rows)] for k in range(len(part))]
            for number, total in enumerate(_totals(vectors, [total for own in four for total in own])):
                place = vectors.at(out, 4 * part[0] + number * vectors.lanes)
                vectors.store(builder.fadd(vectors.load(place), total), place)
        return context.get_dummy_value()

    lowers(add, *["ArrayPart", "ArrayPart", "Integer"] * 2, *["Integer"] * 3, result="none")(lower)
    return add


add_products_4, add_products_1 = _adder(4), _adder(1)


@call_once
def add_products(
    out: Any, slopes: Any, rows: int, step: int, image: Any, offsets: Any, terms: int, count: int, images: int,
    across: int, between: int,
) -> None:  # fmt: skip
    """For each of `terms`, add the products of `rows` of slopes and four shifts of images, summed over the pixels."""
    for r in range(0, rows, 4):
        for k in range(terms):
            target, shifts = tail(out, (r // 4 * terms + k) * 16), tail(offsets, 4 * k)
            if rows == 1:
                add_products_1(target, slopes, step, image, shifts, count, images, across, between)
            else:
                add_products_4(target, tail(slopes, r * step), step, image, shifts, count, images, across, between)


def _totals(vectors: Vectors, sums: list[Any]) -> list[Any]:
    """Reduce each vector to the sum of its lanes; the sums of as many vectors as there are lanes form one vector."""
    near = 1
    while near < vectors.lanes:
        # Fold pairs of vectors: each lane becomes the sum of two lanes that are `near` apart. If the number of the lane
        # has this bit, they are lanes of the second vector.
        firsts = [(n & ~near) + (vectors.lanes if n & near else 0) for n in range(vectors.lanes)]
        seconds = [n | near for n in firsts]
        sums = [
            vectors.builder.fadd(vectors.shuffled(a, b, firsts), vectors.shuffled(a, b, seconds))
            for a, b in zip(sums[::2], sums[1::2], strict=True)
        ]
        near *= 2
    return sums


# --- Products of two unpacked matrices --------------------------------------------------------------------------------

# A vector of the right matrix is loaded once for all rows of a tile, and an element of the left one once for a row.


def _row_tile(rows: int, vectors: int) -> Callable[..., None]:
    """A kernel function: `out[r, i] = sum over k of x[r, k] y[k, i]`, with flat arrays, for `vectors` vectors of i.
    Rows are `step` elements apart in `out` and `stride` in y, and vectors of i are `apart` and `y_apart`. In x, rows
    are `across` elements apart and terms `along`, but blocks of terms, as many as a vector has elements, are `jump`
    apart. `count` is at least 1. If `more` is not 0, the sums are added to `out`.
    """

    def multiply(
        out: Any, step: int, apart: int, x: Any, across: int, along: int, jump: int, y: Any, stride: int, y_apart: int,
        count: int, more: int,
    ) -> None:  # fmt: skip
        line = lanes_of(y.dtype)
        lanes, terms = np.arange(vectors * line), np.arange(count)
        of_terms = terms // line * jump + terms % line * along
        for r in range(rows):
            factors, places = x[r * across + of_terms], lanes // line * y_apart + lanes % line
            own = lanes // line * apart + lanes % line + r * step
            total = (factor * y[k * stride + places] for k, factor in enumerate(factors))
            out[own] = sum(total) + (out[own] if more else 0)

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, step, apart, x, across, along, jump, y, stride, y_apart, count, more = (
            context.cast(builder, x, kind, types.int64) if isinstance(kind, types.Integer) else x
            for x, kind in zip(operands, signature.args, strict=True)
        )
        each = Vectors(builder, out)
        line = VECTOR // each.bytes
        parts = line // each.lanes  # registers of a vector
        room = 24 if registers()[0] == 32 else 12  # registers for sums; the others are for operands

        def piece(start: Any, distance: Any, number: int) -> Any:
            """The address of a register's part of a row."""
            moved = builder.mul(distance, int_constant(number // parts), flags=["nsw"])
            return each.at(each.at(start, moved), number % parts * each.lanes)

        for wide in cut(vectors * parts, max(1, room // rows)):

            def term(k: Any, sums: list[Any], wide: range = wide) -> list[Any]:
                given = each.at(y, builder.mul(k, stride, flags=["nsw"]))
                loaded = [each.load(piece(given, y_apart, n)) for n in wide]
                block, inside = builder.udiv(k, int_constant(line)), builder.urem(k, int_constant(line))
                place = builder.add(builder.mul(block, jump), builder.mul(inside, along))
                factors = [
                    each.spread(builder.load(each.at(each.at(x, place), builder.mul(across, int_constant(r)))))
                    for r in range(rows)
                ]
                pairs = [(a, b) for a in factors for b in loaded]
                return [each.added(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]

            lines = [each.at(out, builder.mul(step, int_constant(r))) for r in range(rows)]
            targets = [piece(start, apart, n) for start in lines for n in wide]
            sums = each.loop(count, 1, [each.zero] * len(targets), term)
            for sum_of, place, old in zip(sums, targets, each.load_if(more, targets), strict=True):
                each.store(builder.fadd(old, sum_of), place)
        return context.get_dummy_value()

    kinds = "ArrayPart Integer Integer ArrayPart Integer Integer Integer ArrayPart Integer Integer Integer Integer"
    lowers(multiply, *kinds.split(), result="none")(lower)
    return multiply


VECTORS_OF_TILE = 4
tile_4, _tile_4_3, _tile_4_2, _tile_4_1 = (_row_tile(4, vectors) for vectors in (VECTORS_OF_TILE, 3, 2, 1))
_tile_8_1 = _row_tile(8, 1)  # four sums are too few for the latency of an addition


@call_once
def multiply_panel(
    out: Any, step: int, apart: int, x: Any, across: int, rows_jump: int, along: int, jump: int, y: Any, stride: int,
    y_apart: int, rows: int, vectors: int, count: int, more: int,
) -> None:  # fmt: skip
    """`out[r, i] = sum over k of x[r, k] y[k, i]` for `rows` rows, rounded up to a multiple of four, and one to four
    vectors of i. In x, blocks of as many rows as a vector has elements are `rows_jump` elements apart. See `_row_tile`
    for the other arguments.
    """
    line, r = line_of(y), 0
    while r < rows:
        own, left = tail(out, r * step), tail(x, r // line * rows_jump + r % line * across)
        if vectors == 1 and rows - r > 4:
            _tile_8_1(own, step, apart, left, across, along, jump, y, stride, y_apart, count, more)
            r += 4
        elif vectors == 1:
            _tile_4_1(own, step, apart, left, across, along, jump, y, stride, y_apart, count, more)
        elif vectors == 2:
            _tile_4_2(own, step, apart, left, across, along, jump, y, stride, y_apart, count, more)
        elif vectors == 3:
            _tile_4_3(own, step, apart, left, across, along, jump, y, stride, y_apart, count, more)
        else:
            tile_4(own, step, apart, left, across, along, jump, y, stride, y_apart, count, more)
        r += 4
