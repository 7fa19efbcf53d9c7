"""Tiles of a product that stay in vector registers, for rows of states and a matrix that is not packed.

Of a tile's results each is a sum that runs over all terms in their order. What is loaded of the matrix is used for all
rows of a tile, and what is loaded of a row for all of its vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.cpu.builtins import declare_type, lowers
from snncell.kernels.cpu.elements import ArrayPart
from snncell.kernels.cpu.panels import VECTOR, lanes_of
from snncell.kernels.cpu.tiles import cut
from snncell.kernels.cpu.vectors import I64, Vectors, registers

ir: Any = import_once("llvmlite.ir")
types: Any = import_once("numba.core.types")


def _tile(rows: int, vectors: int) -> Callable[..., None]:
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
                places = [builder.add(k, builder.mul(across, ir.Constant(I64, r))) for r in range(rows)]
                factors = [each.spread(builder.load(each.at(x, place))) for place in places]
                pairs = [(a, b) for a in factors for b in loaded]
                return [each.added(a, b, c) for (a, b), c in zip(pairs, sums, strict=True)]

            starts = [builder.mul(step, ir.Constant(I64, r)) for r in range(rows)]
            targets = [each.at(each.at(out, start), n * each.lanes) for start in starts for n in wide]
            for sum_of, place in zip(each.loop(count, 1, [each.zero] * len(targets), term), targets, strict=True):
                each.store(sum_of, place)
        return context.get_dummy_value()

    number = types.Integer
    declare_type(multiply, lambda out, step, x, across, y, stride, count: types.none)
    lowers(multiply, ArrayPart, number, ArrayPart, number, ArrayPart, number, number)(lower)
    return multiply


VECTORS_OF_TILE = 4
tile_4 = _tile(4, VECTORS_OF_TILE)
