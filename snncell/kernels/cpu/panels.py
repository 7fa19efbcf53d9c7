"""Panels of matrices: strips of columns, close together, whose rows are added up in vector registers.

A row of a panel has at most WIDTH columns: VECTORS registers of 64 bytes, or as many more as a processor needs for it.
The sums of a row of the result stay in so many over all of its events; those of a plain loop LLVM keeps in memory. From
Python, each function here does the same to NumPy's arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.interrupts import imported
from snncell.kernels.cpu.builtins import least, lowers, typed
from snncell.kernels.cpu.elements import Part, copy, flat, row, tail
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
    name = f"llvm.fmuladd.v{VECTOR // size}f{8 * size}"
    add = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    has_more = builder.icmp_signed("!=", more, ir.Constant(_I64, 0))
    for number in range(1, VECTORS + 1):
        with builder.if_then(builder.icmp_signed("==", vectors, ir.Constant(_I64, number))):
            with builder.if_else(has_more) as (then, otherwise):
                with then:
                    before = _vectors(builder, sums, kind, size, number)
                    loaded = builder.block
                with otherwise:
                    begun = builder.block
            zero = ir.Constant(kind, None)
            totals = [_either(builder, (value, loaded), (zero, begun)) for value in before]

            def added(event: Any, totals: list[Any], number: int = number) -> list[Any]:
                place = builder.sext(builder.load(builder.gep(places, [event], inbounds=True)), _I64)
                value = builder.load(builder.gep(values, [builder.mul(event, step)], inbounds=True))
                factor = _spread(builder, value, kind)
                row = builder.gep(panel, [builder.mul(place, stride, flags=["nsw"])], inbounds=True)
                rows = _vectors(builder, row, kind, size, number)
                return [builder.call(add, [factor, *pair]) for pair in zip(rows, totals, strict=True)]

            for n, total in enumerate(_over(builder, count, totals, added)):
                _store(builder, total, _at(builder, sums, n, kind), kind, size)
    return context.get_dummy_value()


def _over(builder: Any, count: Any, values: list[Any], then: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """The values after `count` turns of a loop, of which each makes `then(number of the turn, values)` of them."""
    before, head = builder.block, builder.append_basic_block("head")
    body, done = builder.append_basic_block("body"), builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    turn = builder.phi(_I64)
    turn.add_incoming(ir.Constant(_I64, 0), before)
    held = [builder.phi(value.type) for value in values]
    for now, value in zip(held, values, strict=True):
        now.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", turn, count), body, done)
    builder.position_at_end(body)
    for now, value in zip(held, then(turn, held), strict=True):
        now.add_incoming(value, body)
    turn.add_incoming(builder.add(turn, ir.Constant(_I64, 1)), body)
    builder.branch(head)
    builder.position_at_end(done)
    return held


def _either(builder: Any, *values: tuple[Any, Any]) -> Any:
    """The value that goes with the block from which this one was entered."""
    one = builder.phi(values[0][0].type)
    for value, block in values:
        one.add_incoming(value, block)
    return one


def _spread(builder: Any, value: Any, kind: Any) -> Any:
    """A vector of the same element throughout."""
    lane, none = ir.IntType(32), ir.Constant(kind, ir.Undefined)
    every = ir.Constant(ir.VectorType(lane, kind.count), None)
    return builder.shuffle_vector(builder.insert_element(none, value, lane(0)), none, every)


def _at(builder: Any, pointer: Any, number: int, kind: Any) -> Any:
    return builder.gep(pointer, [ir.Constant(_I64, number * kind.count)], inbounds=True)


def _vectors(builder: Any, pointer: Any, kind: Any, align: int, number: int) -> list[Any]:
    """The vectors that lie one after another from a pointer on."""
    return [_load(builder, _at(builder, pointer, n, kind), kind, align) for n in range(number)]


# --- transposition ----------------------------------------------------------------------------------------------------


def turn_tile(target: Any, target_stride: Any, source: Any, source_stride: Any) -> None:
    """Transpose a square of as many rows and columns as a vector has elements."""
    side = lanes_of(source.dtype)
    for i in range(side):
        for j in range(side):
            target[j * target_stride + i] = source[i * source_stride + j]


typed(turn_tile, lambda target, target_stride, source, source_stride: types.none)


@lowers(turn_tile, Part, types.Integer, Part, types.Integer)
def _lower_turn_tile(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, target_stride, source, source_stride = operands
    element = context.get_data_type(signature.args[0].dtype)
    size = context.get_abi_sizeof(element)
    side = VECTOR // size
    kind = ir.VectorType(element, side)

    def row_of(pointer: Any, stride: Any, number: int) -> Any:
        return builder.gep(pointer, [builder.mul(stride, ir.Constant(_I64, number))])

    rows = [_load(builder, row_of(source, source_stride, n), kind, size) for n in range(side)]
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
        _store(builder, turned, row_of(target, target_stride, n), kind, size)
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
                for i in range(first, least(rows, first + side)):
                    for j in range(low, least(columns, low + side)):
                        target[j * target_stride + i] = source[i * source_stride + j]


@inlined
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


@inlined
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


@inlined
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


def _shuffled(builder: Any, a: Any, b: Any, places: list[int]) -> Any:
    lane = ir.IntType(32)
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(lane, len(places)), [lane(n) for n in places]))


def _load(builder: Any, pointer: Any, kind: Any, align: int) -> Any:
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = align
    return value


def _store(builder: Any, value: Any, pointer: Any, kind: Any, align: int) -> None:
    builder.store(value, builder.bitcast(pointer, kind.as_pointer())).align = align
