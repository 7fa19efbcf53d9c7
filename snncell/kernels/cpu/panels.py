"""Panels of matrices: strips of columns, close together, whose rows are added up in vector registers.

A row of a panel has at most WIDTH columns: VECTORS registers of 64 bytes, or as many more as a processor needs for it.
The sums of a row of the result stay in so many over all of its events; those of a plain loop LLVM keeps in memory. From
Python, each function here does the same to NumPy's arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.interrupts import imported
from snncell.kernels.cpu.builtins import lowers, typed
from snncell.kernels.cpu.elements import Part, tail
from snncell.kernels.cpu.events import VECTORS, WORD
from snncell.kernels.policy import inlined

ir: Any = imported("llvmlite.ir")
types: Any = imported("numba.core.types")
cgutils: Any = imported("numba.core.cgutils")

VECTOR = 64  # bytes
_I64 = ir.IntType(64)


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
    return (bits & -bits).bit_length() - 1


def others(bits: Any) -> Any:
    """The bits without the lowest that is set."""
    return bits & (bits - 1)


typed(bits_of, lambda x, first: types.int64)
typed(lowest, lambda bits: types.int64)
typed(others, lambda bits: types.int64)


@lowers(bits_of, Part, types.Integer)
def _lower_bits(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    element = context.get_data_type(signature.args[0].dtype)
    kind = ir.VectorType(element, WORD)
    given = _load(builder, builder.gep(operands[0], [operands[1]]), kind, context.get_abi_sizeof(element))
    floats = isinstance(signature.args[0].dtype, types.Float)
    compare = builder.fcmp_unordered if floats else builder.icmp_signed
    return builder.bitcast(compare("!=", given, ir.Constant(kind, None)), _I64)


@lowers(lowest, types.Integer)
def _lower_lowest(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.cttz(operands[0], ir.Constant(ir.IntType(1), 1))


@lowers(others, types.Integer)
def _lower_others(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.and_(operands[0], builder.sub(operands[0], ir.Constant(_I64, 1)))


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
    for event, place in enumerate(places[:count]):
        total = total + values[event * step] * panel[place * stride : place * stride + width]
    sums[:width] = total


typed(add_rows, lambda sums, more, values, step, places, count, panel, stride, vectors: types.none)


@lowers(add_rows, Part, types.Integer, Part, types.Integer, Part, types.Integer, Part, types.Integer, types.Integer)
def _lower_add_rows(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    sums, more, values, step, places, count, panel, stride, vectors = (
        context.cast(builder, x, kind, types.int64) if isinstance(kind, types.Integer) else x
        for x, kind in zip(operands, signature.args, strict=True)
    )
    element = context.get_data_type(signature.args[6].dtype)
    size = context.get_abi_sizeof(element)
    kind = ir.VectorType(element, VECTOR // size)
    add = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind] * 3),
        f"llvm.fmuladd.v{VECTOR // size}f{8 * size}",
    )
    zero, lane = ir.Constant(_I64, 0), ir.IntType(32)
    every = ir.Constant(ir.VectorType(lane, VECTOR // size), None)
    has_more = builder.icmp_signed("!=", more, zero)

    def at(pointer: Any, number: int) -> Any:
        return builder.gep(pointer, [ir.Constant(_I64, number * VECTOR // size)], inbounds=True)

    for number in range(1, VECTORS + 1):
        with builder.if_then(builder.icmp_signed("==", vectors, ir.Constant(_I64, number))):
            with builder.if_else(has_more) as (then, otherwise):
                with then:
                    before = [_load(builder, at(sums, n), kind, size) for n in range(number)]
                    loaded = builder.block
                with otherwise:
                    empty = builder.block
            totals = []
            for value in before:
                total = builder.phi(kind)
                total.add_incoming(value, loaded)
                total.add_incoming(ir.Constant(kind, None), empty)
                totals.append(total)
            entry, head = builder.block, builder.append_basic_block("events")
            body, done = builder.append_basic_block("event"), builder.append_basic_block("added")
            builder.branch(head)
            builder.position_at_end(head)
            event = builder.phi(_I64)
            event.add_incoming(zero, entry)
            held = [builder.phi(kind) for _ in range(number)]
            for now, total in zip(held, totals, strict=True):
                now.add_incoming(total, entry)
            builder.cbranch(builder.icmp_signed("<", event, count), body, done)
            builder.position_at_end(body)
            place = builder.sext(builder.load(builder.gep(places, [event], inbounds=True)), _I64)
            one = builder.load(builder.gep(values, [builder.mul(event, step)], inbounds=True))
            none = ir.Constant(kind, ir.Undefined)
            factor = builder.shuffle_vector(builder.insert_element(none, one, ir.Constant(lane, 0)), none, every)
            row = builder.gep(panel, [builder.mul(place, stride, flags=["nsw"])], inbounds=True)
            for n, now in enumerate(held):
                now.add_incoming(builder.call(add, [factor, _load(builder, at(row, n), kind, size), now]), body)
            event.add_incoming(builder.add(event, ir.Constant(_I64, 1)), body)
            builder.branch(head)
            builder.position_at_end(done)
            for n, now in enumerate(held):
                _store(builder, now, at(sums, n), kind, size)
    return context.get_dummy_value()


# --- transposition ----------------------------------------------------------------------------------------------------


def turn_tile(target: Any, target_stride: Any, source: Any, source_stride: Any) -> None:
    """Transpose a square of as many rows and columns as a vector has elements."""
    side = lanes_of(source.dtype)
    for row in range(side):
        for column in range(side):
            target[column * target_stride + row] = source[row * source_stride + column]


typed(turn_tile, lambda target, target_stride, source, source_stride: types.none)


@lowers(turn_tile, Part, types.Integer, Part, types.Integer)
def _lower_turn_tile(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, target_stride, source, source_stride = operands
    element = context.get_data_type(signature.args[0].dtype)
    size = context.get_abi_sizeof(element)
    side = VECTOR // size
    kind = ir.VectorType(element, side)

    def row(pointer: Any, stride: Any, number: int) -> Any:
        return builder.gep(pointer, [builder.mul(stride, ir.Constant(_I64, number))])

    rows = [_load(builder, row(source, source_stride, n), kind, size) for n in range(side)]
    # Squares of half the side change places, off the diagonal, then those of half that within each, down to elements.
    half = side // 2
    while half:
        low = [n + side * (n & half > 0) - half * (n & half > 0) for n in range(side)]
        high = [n + half if n & half == 0 else n + side for n in range(side)]
        for n in range(side):
            if n & half == 0:
                a, b = rows[n], rows[n + half]
                rows[n], rows[n + half] = (_shuffled(builder, a, b, places) for places in (low, high))
        half //= 2
    for n, turned in enumerate(rows):
        _store(builder, turned, row(target, target_stride, n), kind, size)
    return context.get_dummy_value()


@inlined
def turn(target: Any, target_stride: Any, source: Any, source_stride: Any, rows: Any, columns: Any, side: Any) -> None:
    """`target[column, row] = source[row, column]`; strides are from a row to the next, `side` is that of a tile."""
    for first in range(0, rows, side):
        for low in range(0, columns, side):
            if first + side <= rows and low + side <= columns:
                into, tile = tail(target, low * target_stride + first), tail(source, first * source_stride + low)
                turn_tile(into, target_stride, tile, source_stride)
            else:
                for row in range(first, first + side if first + side < rows else rows):
                    for column in range(low, low + side if low + side < columns else columns):
                        target[column * target_stride + row] = source[row * source_stride + column]


def _shuffled(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    lane = ir.IntType(32)
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(lane, len(places)), [lane(n) for n in places]))


def _load(builder: Any, pointer: Any, kind: Any, align: int) -> Any:
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = align
    return value


def _store(builder: Any, value: Any, pointer: Any, kind: Any, align: int) -> None:
    builder.store(value, builder.bitcast(pointer, kind.as_pointer())).align = align
