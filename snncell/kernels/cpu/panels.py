"""Panels of matrices: strips of columns, close together, whose rows are added up in vector registers.

A row of a panel has at most WIDTH columns: VECTORS registers of 64 bytes, or as many more as a processor needs for it.
The sums of a row of the result stay in so many over all of its events; those of a plain loop LLVM keeps in memory. From
Python, each function here does the same to NumPy's arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.kernels.cpu.builtins import declare_type, least, lowers
from snncell.kernels.cpu.elements import ArrayPart, copy, flat, row, tail
from snncell.kernels.cpu.events import VECTORS, WORD
from snncell.kernels.cpu.vectors import I64, Vectors
from snncell.kernels.policy import inline

ir: Any = import_once("llvmlite.ir")
types: Any = import_once("numba.core.types")

VECTOR = 64  # bytes


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


declare_type(bits_of, lambda x, first: types.int64)
declare_type(lowest, lambda bits: types.int64)
declare_type(others, lambda bits: types.int64)


@lowers(bits_of, ArrayPart, types.Integer)
def _lower_bits(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    pointer, first = operands
    vectors = Vectors(builder, pointer, WORD * context.get_abi_sizeof(pointer.type.pointee))
    compare = builder.fcmp_unordered if isinstance(signature.args[0].dtype, types.Float) else builder.icmp_signed
    return builder.bitcast(compare("!=", vectors.load(vectors.at(pointer, first)), vectors.zero), I64)


@lowers(lowest, types.Integer)
def _lower_lowest(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.cttz(operands[0], ir.Constant(ir.IntType(1), 1))


@lowers(others, types.Integer)
def _lower_others(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.and_(operands[0], builder.sub(operands[0], ir.Constant(I64, 1)))


# --- sums of rows -----------------------------------------------------------------------------------------------------


def add_rows(
    sums: Any, more: Any, values: Any, step: Any, places: Any, count: Any, panel: Any, stride: Any, vectors: Any
) -> None:
    """`sums` = the sum of `count` rows of a panel, each times its value, added one by one; to `sums` if `more`.

    Values are `step` apart, 1 or 0: the same for all rows.

    `sums` and each row, `stride` after the one before, have `vectors` vectors of elements, 1 to VECTORS.
    """
    width = vectors * lanes_of(panel.dtype)
    total = sums[:width] if more else np.zeros(width, panel.dtype)
    for event, place in enumerate(map(int, places[:count])):  # of 16 bits, but not their products with the stride
        total = total + values[event * step] * panel[place * stride : place * stride + width]
    sums[:width] = total


declare_type(add_rows, lambda sums, more, values, step, places, count, panel, stride, vectors: types.none)


@lowers(
    add_rows,
    ArrayPart,
    types.Integer,
    ArrayPart,
    types.Integer,
    ArrayPart,
    types.Integer,
    ArrayPart,
    types.Integer,
    types.Integer,
)
def _lower_add_rows(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    sums, more, values, step, places, count, panel, stride, vectors = (
        context.cast(builder, x, kind, types.int64) if isinstance(kind, types.Integer) else x
        for x, kind in zip(operands, signature.args, strict=True)
    )
    each = Vectors(builder, panel, VECTOR)
    for number in range(1, VECTORS + 1):
        with builder.if_then(builder.icmp_signed("==", vectors, ir.Constant(I64, number))):
            into = [each.at(sums, n * each.lanes) for n in range(number)]

            def added(event: Any, totals: list[Any], number: int = number) -> list[Any]:
                place = builder.sext(builder.load(each.at(places, event)), I64)
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


declare_type(turn_tile, lambda target, target_stride, source, source_stride: types.none)


@lowers(turn_tile, ArrayPart, types.Integer, ArrayPart, types.Integer)
def _lower_turn_tile(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, target_stride, source, source_stride = operands
    vectors = Vectors(builder, source, VECTOR)
    side = vectors.lanes

    def row_of(pointer: Any, stride: Any, number: int) -> Any:
        return vectors.at(pointer, builder.mul(stride, ir.Constant(I64, number)))

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
