"""Tiles of sums of products, in vector registers: what a loop of Numba's would not keep there.

A tile of results stays in registers while a loop goes through all terms of its sums, so that an operand that is loaded
once is used for several products. Vectors are as wide as the processor's registers, and a tile is cut into as many
parts as there are registers for; what it computes does not depend on either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.cpu.builtins import declare_type, lowers
from snncell.kernels.cpu.elements import ArrayPart, tail
from snncell.kernels.cpu.vectors import I64, Vectors, registers
from snncell.kernels.policy import call_once

ir: Any = import_once("llvmlite.ir")
types: Any = import_once("numba.core.types")

PACK = 8  # rows whose weights lie together


def cut(count: int, size: int) -> list[range]:
    """The numbers below `count`, in ranges of `size` of them; the last may be shorter."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


# --- sums over terms whose places a table has: rows of weights times pixels -------------------------------------------


def _tile(rows: int, columns: int) -> Callable[..., None]:
    """A function for kernels: `out[r, i] = sum over k of weights[k, r] image[offsets[k] + i]`, all flat.

    `weights` are PACK wide, `out` is `step` wide; there is at least one term. If `more` is not 0, the sums go on from
    what is in `out`, as if there had been no pause.
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
                    own = vectors.at(weights, builder.mul(k, ir.Constant(I64, PACK)))
                    factors = [vectors.spread(builder.load(vectors.at(own, r))) for r in across]
                    pairs = [(a, b) for a in factors for b in loaded]
                    return [vectors.added(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]

                starts = [builder.mul(step, ir.Constant(I64, r)) for r in across]
                places = [vectors.at(vectors.at(out, start), n * vectors.lanes) for start in starts for n in along]
                sums = vectors.loop(count, 1, vectors.load_if(more, places), term)
                for total, place in zip(sums, places, strict=True):
                    vectors.store(total, place)
        return context.get_dummy_value()

    declare_type(multiply, lambda out, step, weights, image, offsets, count, more: types.none)
    lowers(multiply, ArrayPart, types.Integer, ArrayPart, ArrayPart, ArrayPart, types.Integer, types.Integer)(lower)
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
        firsts = [vectors.at(slopes, builder.mul(step, ir.Constant(I64, r))) for r in range(rows)]
        for part in cut(4, 4 if registers()[0] == 32 else 2):

            def term(i: Any, sums: list[Any], part: range = part) -> list[Any]:
                b = [vectors.load(vectors.at(shifted[k], i)) for k in part]
                a = [vectors.load(vectors.at(firsts[r], i)) for r in range(rows)]
                pairs = [(x, y) for y in b for x in a]
                return [vectors.added(x, y, c) for (x, y), c in zip(pairs, sums, strict=True)]

            sums = vectors.loop(count, vectors.lanes, [vectors.zero] * (rows * len(part)), term)
            four = [[*sums[rows * k : rows * k + rows], *[vectors.zero] * (4 - rows)] for k in range(len(part))]
            for number, total in enumerate(_totals(vectors, [total for row in four for total in row])):
                place = vectors.at(out, 4 * part[0] + number * vectors.lanes)
                vectors.store(builder.fadd(vectors.load(place), total), place)
        return context.get_dummy_value()

    declare_type(add, lambda out, slopes, step, image, offsets, count: types.none)
    lowers(add, ArrayPart, ArrayPart, types.Integer, ArrayPart, ArrayPart, types.Integer)(lower)
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
