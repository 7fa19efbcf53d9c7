"""Sums of rows and tiles in vector registers, where a loop of Numba's would keep them in memory.

A panel of a matrix is a strip of its columns, close together. A row of a panel has at most WIDTH columns: VECTORS
registers of 64 bytes, or as many more as a processor needs for it. The sums of a row of the result stay in so many over
all of its events. A tile of results stays in registers while a loop goes through all terms of its sums, so that an
operand that is loaded once is used for several products; it is cut into as many parts as there are registers for, and
what it computes does not depend on that. From Python, each function here does the same to NumPy's arrays.
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
from snncell.kernels.intrinsics.elements import copy, flat, row, tail

VECTOR = 64  # bytes
VECTORS = 4  # in a row of a panel: half of the registers of AVX2, an eighth of those of AVX-512
DEPTH = 2048  # rows: half of a second-level cache
WORD = 64  # elements that are looked at together


def lanes_of(dtype: Any) -> int:
    """The number of elements in a vector."""
    return VECTOR // int(np.dtype(dtype).itemsize)


# --- elements that are not zero ---------------------------------------------------------------------------------------


def bits_of(x: Any, first: Any) -> Any:
    """Which of WORD elements from `first` on are not zero, a bit for each."""
    found = np.asarray(x[first : first + WORD]) != 0
    return int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little")


def lowest(bits: Any) -> Any:
    """The place of the lowest bit that is set; there is one."""
    return int(bits & -bits).bit_length() - 1


def others(bits: Any) -> Any:
    """The bits without the lowest that is set."""
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
    """`bits_of` the elements before `end`, of which there may be fewer than WORD: then `rest`, so many, is used."""
    if first + WORD <= end:
        return bits_of(x, first)
    for i in range(WORD):
        rest[i] = 0
    copy(tail(rest, 0), tail(x, first), end - first)
    return bits_of(tail(rest, 0), 0)


# --- sums of rows -----------------------------------------------------------------------------------------------------


def add_rows(
    sums: Any, more: Any, values: Any, step: Any, places: Any, count: Any, panel: Any, stride: Any, vectors: Any
) -> None:
    """`sums` = the sum of `count` rows of a panel, each times its value, added one by one; to `sums` if `more`.

    Values are `step` apart, 1 or 0: the same for all rows. `sums` and each row, `stride` after the one before, have
    `vectors` vectors of elements, 1 to VECTORS.
    """
    width = vectors * lanes_of(panel.dtype)
    total = sums[:width] if more else np.zeros(width, panel.dtype)
    for event, place in enumerate(map(int, places[:count])):  # of 16 bits, but not their products with the stride
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


# --- transposition ----------------------------------------------------------------------------------------------------


def turn_tile(target: Any, target_stride: Any, source: Any, source_stride: Any) -> None:
    """Transpose a square of as many rows and columns as a vector has elements."""
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
    # Squares of half the side change places, off the diagonal, then those of half that within each, down to elements.
    half = side // 2
    while half:
        low = [n + side * (n & half > 0) - half * (n & half > 0) for n in range(side)]
        high = [n + half if n & half == 0 else n + side for n in range(side)]
        for n in range(side):
            if n & half == 0:
                a, b = rows[n], rows[n + half]
                rows[n], rows[n + half] = (vectors.shuffled(a, b, lanes) for lanes in (low, high))
        half //= 2
    for n, turned in enumerate(rows):
        vectors.store(turned, row_of(target, target_stride, n))
    return context.get_dummy_value()


@inline
def turn(target: Any, target_stride: Any, source: Any, source_stride: Any, rows: Any, columns: Any, side: Any) -> None:
    """`target[column, row] = source[row, column]`; strides are from a row to the next, `side` is that of a tile."""
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
    """Rows `first` to `first + depth` of `y`, their `width` columns from `low` on, as a panel; zeros up to `stride`."""
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
    """Put `height` rows of sums, `stride` apart, into rows from `first` and columns from `low` on of a result."""
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
    """Take them from there again."""
    if out_turned != 0:
        _, m = out.shape
        turn(sums, stride, tail(flat(out), low * m + first), m, width, height, side)
    else:
        for i in range(height):
            copy(tail(sums, i * stride), tail(row(out, first + i), low), width)


PACK = 8  # rows whose weights lie together


def cut(count: int, size: int) -> list[range]:
    """The numbers below `count`, in ranges of `size` of them; the last may be shorter."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


# --- sums over terms whose places a table has: rows of weights times pixels -------------------------------------------


def _tile(rows: int, columns: int) -> Callable[..., None]:
    """A function for kernels: `out[r, i] = sum over k of weights[k, r] image[offsets[k] + i]`, all flat.

    `weights` are PACK wide, `out` is `step` wide; there is at least one term. If `more` is not 0, the sums go on from
    what is in `out`.
    """

    def multiply(out: Any, step: int, weights: Any, image: Any, offsets: Any, count: int, more: int) -> None:
        for r in range(rows):
            terms = (weights[PACK * k + r] * image[offsets[k] : offsets[k] + columns] for k in range(count))
            own = out[r * step : r * step + columns]
            own[...] = sum(terms, own if more else 0)

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, step, weights, image, offsets, count, more = operands
        vectors = Vectors(builder, out)
        room = 24 if registers()[0] == 32 else 12  # for sums; the others are for what is multiplied
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
    sums: Any, wide: int, weights: Any, rows: int, image: Any, offsets: Any, count: int, more: int
) -> None:
    """`sums[r, i] = sum over k of weights[k, r] image[offsets[k] + i]` for up to PACK rows of `wide`, in sixteens."""
    done = 0
    while done < wide:
        left, target, pixels = wide - done, tail(sums, done), tail(image, done)
        if rows > 4:
            if left >= 48 and left != 64:  # which is two tiles of 32
                tile_8_48(target, wide, weights, pixels, offsets, count, more)
                done += 48
            elif left >= 32:
                tile_8_32(target, wide, weights, pixels, offsets, count, more)
                done += 32
            else:
                tile_8_16(target, wide, weights, pixels, offsets, count, more)
                done += 16
        elif rows > 1:
            if left >= 48:
                tile_4_48(target, wide, weights, pixels, offsets, count, more)
                done += 48
            else:
                tile_4_16(target, wide, weights, pixels, offsets, count, more)
                done += 16
        elif left >= 128:
            tile_1_128(target, wide, weights, pixels, offsets, count, more)
            done += 128
        else:
            tile_1_16(target, wide, weights, pixels, offsets, count, more)
            done += 16


# --- sums over pixels: rows of a gradient times shifted rows of an image ----------------------------------------------


def _adder(rows: int) -> Callable[..., None]:
    """A function for kernels: `out[k, r] += sum over i of slopes[r, i] image[offsets[k] + i]` for four k, `rows` r.

    `out` is four wide, `slopes` is `step` wide; `count` is a number of sixteens.
    """

    def add(out: Any, slopes: Any, step: int, image: Any, offsets: Any, count: int) -> None:
        for k in range(4):
            for r in range(rows):
                pixels = image[offsets[k] : offsets[k] + count]
                out[4 * k + r] += (slopes[r * step : r * step + count] * pixels).sum()

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, slopes, step, image, offsets, count = operands
        vectors = Vectors(builder, out)
        shifted = [vectors.at(image, builder.load(vectors.at(offsets, k))) for k in range(4)]
        firsts = [vectors.at(slopes, builder.mul(step, int_constant(r))) for r in range(rows)]
        for part in cut(4, 4 if registers()[0] == 32 else 2):

            def term(i: Any, sums: list[Any], part: range = part) -> list[Any]:
                b = [vectors.load(vectors.at(shifted[k], i)) for k in part]
                a = [vectors.load(vectors.at(firsts[r], i)) for r in range(rows)]
                pairs = [(x, y) for y in b for x in a]
                return [vectors.added(x, y, c) for (x, y), c in zip(pairs, sums, strict=True)]

            sums = vectors.loop(count, vectors.lanes, [vectors.zero] * (rows * len(part)), term)
            four = [[*sums[rows * k : rows * k + rows], *[vectors.zero] * (4 - rows)] for k in range(len(part))]
            for number, total in enumerate(_totals(vectors, [total for own in four for total in own])):
                place = vectors.at(out, 4 * part[0] + number * vectors.lanes)
                vectors.store(builder.fadd(vectors.load(place), total), place)
        return context.get_dummy_value()

    lowers(add, *["ArrayPart", "ArrayPart", "Integer"] * 2, result="none")(lower)
    return add


add_products_4, add_products_1 = _adder(4), _adder(1)


@call_once
def add_products(out: Any, slopes: Any, rows: int, step: int, image: Any, offsets: Any, terms: int, count: int) -> None:
    """Add the products of `rows` of slopes and of four shifted images for each of `terms`, summed over the pixels."""
    for r in range(0, rows, 4):
        for k in range(terms):
            target, shifts = tail(out, (r // 4 * terms + k) * 16), tail(offsets, 4 * k)
            if rows == 1:
                add_products_1(target, slopes, step, image, shifts, count)
            else:
                add_products_4(target, tail(slopes, r * step), step, image, shifts, count)


def _totals(vectors: Vectors, sums: list[Any]) -> list[Any]:
    """The sum of the lanes of each vector; those of as many vectors as there are lanes are one vector."""
    near = 1
    while near < vectors.lanes:
        # Lanes whose number has this bit go to the second vector's sum, in both: then each is of half as many.
        order = [_lane(n, near, vectors.lanes) for n in range(vectors.lanes)]
        sums = [
            vectors.builder.fadd(
                vectors.shuffled(a, b, [first for first, _ in order]),
                vectors.shuffled(a, b, [second for _, second in order]),
            )
            for a, b in zip(sums[::2], sums[1::2], strict=True)
        ]
        near *= 2
    return sums


def _lane(lane: int, near: int, lanes: int) -> tuple[int, int]:
    """The two places in a pair of vectors that a lane of their sum is made of."""
    base = (lanes if lane & near else 0) + (lane & ~near)
    return base, base | near


# --- Sums over terms for rows of states and a matrix that is not packed -----------------------------------------------

# Of a tile's results each is a sum that runs over all terms in their order. What is loaded of the matrix is used for
# all rows of a tile, and what is loaded of a row for all of its vectors.


def _row_tile(rows: int, vectors: int) -> Callable[..., None]:
    """A function for kernels: `out[r, i] = sum over k of x[r, k] y[k, i]`, all flat, for `vectors` vectors of i.

    From row to row it is `step` elements in `out`, `across` in x and `stride` in y. There is at least one term.
    """

    def multiply(out: Any, step: int, x: Any, across: int, y: Any, stride: int, count: int) -> None:
        width = vectors * lanes_of(y.dtype)
        for r in range(rows):
            terms = (x[r * across + k] * y[k * stride : k * stride + width] for k in range(count))
            out[r * step : r * step + width] = sum(terms)

    def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
        out, step, x, across, y, stride, count = (
            context.cast(builder, x, kind, types.int64) if isinstance(kind, types.Integer) else x
            for x, kind in zip(operands, signature.args, strict=True)
        )
        each = Vectors(builder, out)
        total = vectors * VECTOR // each.bytes // each.lanes
        room = 24 if registers()[0] == 32 else 12  # for sums; the others are for what is multiplied
        for wide in cut(total, room // rows):

            def term(k: Any, sums: list[Any], wide: range = wide) -> list[Any]:
                given = each.at(y, builder.mul(k, stride, flags=["nsw"]))
                loaded = [each.load(each.at(given, n * each.lanes)) for n in wide]
                places = [builder.add(k, builder.mul(across, int_constant(r))) for r in range(rows)]
                factors = [each.spread(builder.load(each.at(x, place))) for place in places]
                pairs = [(a, b) for a in factors for b in loaded]
                return [each.added(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]

            starts = [builder.mul(step, int_constant(r)) for r in range(rows)]
            targets = [each.at(each.at(out, start), n * each.lanes) for start in starts for n in wide]
            for sum_of, place in zip(each.loop(count, 1, [each.zero] * len(targets), term), targets, strict=True):
                each.store(sum_of, place)
        return context.get_dummy_value()

    lowers(multiply, *["ArrayPart", "Integer"] * 3, "Integer", result="none")(lower)
    return multiply


VECTORS_OF_TILE = 4
tile_4 = _row_tile(4, VECTORS_OF_TILE)
