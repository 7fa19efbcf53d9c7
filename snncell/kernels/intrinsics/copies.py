"""Rows that are copied a vector at a time: into planes with zeros around them, and out of them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.kernels.intrinsics.builtins import (
    LazyModule,
    Vectors,
    call_once,
    int_constant,
    least,
    lowers,
    same_parts,
    types,
)
from snncell.kernels.intrinsics.elements import tail

cgutils: Any = LazyModule("numba.core.cgutils")


def move(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and put zeros behind them, to the end of a vector."""
    target[:count] = source[:count]


def zero(target: Any, count: int) -> None:
    """Put `count` zeros, and more to the end of a vector."""
    target[:count] = 0


def clear(target: Any, count: int) -> None:
    """Put `count` zeros, and touch nothing behind them."""
    target[:count] = 0


def move_every_second(target: Any, source: Any, count: int) -> None:
    """As `move`, of the elements 0, 2, 4 ... of the source."""
    target[:count] = source[: 2 * count : 2]


def put(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements and touch nothing behind them; there may be garbage behind the source's."""
    target[:count] = source[:count]


def move_added(target: Any, source: Any, count: int, term: int) -> None:
    """Copy `count` integers, each with `term` added; what is behind them in the last vector, of one or more, is any."""
    target[:count] = source[:count] + term


def _for_each_vector(vectors: Vectors, count: Any, body: Callable[[Any], None], *, maybe_none: bool = True) -> None:
    """Run `body(first)` for the first element of each vector, if there are any."""

    def once(first: Any, _: list[Any]) -> list[Any]:
        body(first)
        return []

    vectors.loop(count, vectors.lanes, [], once, maybe_none=maybe_none)


@lowers(move, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_move(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)

    def one(first: Any) -> None:
        mask = vectors.below(builder.sub(count, first))
        vectors.store(vectors.load_masked(vectors.at(source, first), mask), vectors.at(target, first))

    _for_each_vector(vectors, count, one)
    return context.get_dummy_value()


@lowers(move_every_second, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_move_every_second(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)

    def one(first: Any) -> None:
        left = builder.mul(builder.sub(count, first), int_constant(2))
        left = builder.sub(left, int_constant(1))  # behind the last there may be nothing
        near = vectors.at(source, builder.mul(first, int_constant(2)))
        a, b = (
            vectors.load_masked(vectors.at(near, n), vectors.below(builder.sub(left, int_constant(n))))
            for n in (0, vectors.lanes)
        )
        vectors.store(vectors.shuffled(a, b, range(0, 2 * vectors.lanes, 2)), vectors.at(target, first))

    _for_each_vector(vectors, count, one)
    return context.get_dummy_value()


@lowers(clear, "ArrayPart", "Integer", result="none")
def _lower_clear(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    size = int_constant(context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    count = context.cast(builder, operands[1], signature.args[1], types.int64)
    cgutils.memset(builder, operands[0], builder.mul(count, size), 0)
    return context.get_dummy_value()


@lowers(zero, "ArrayPart", "Integer", result="none")
def _lower_zero(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, count = operands
    vectors = Vectors(builder, target)
    _for_each_vector(vectors, count, lambda first: vectors.store(vectors.zero, vectors.at(target, first)))
    return context.get_dummy_value()


@lowers(put, "ArrayPart", "ArrayPart", "Integer", result=same_parts)
def _lower_put(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)

    def one(first: Any) -> None:
        mask = vectors.below(builder.sub(count, first))
        vectors.store_masked(vectors.load(vectors.at(source, first)), vectors.at(target, first), mask)

    _for_each_vector(vectors, count, one)
    return context.get_dummy_value()


@lowers(move_added, "ArrayPart", "ArrayPart", "Integer", "Integer", result=same_parts)
def _lower_move_added(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count, term = operands
    vectors = Vectors(builder, target)
    terms = vectors.spread(context.cast(builder, term, signature.args[3], signature.args[0].dtype))

    def one(first: Any) -> None:
        vectors.store(builder.add(vectors.load(vectors.at(source, first)), terms), vectors.at(target, first))

    _for_each_vector(vectors, count, one, maybe_none=False)  # without a branch, where there are few
    return context.get_dummy_value()


@call_once
def fill_planes(
    target: Any, source: Any, first: int, channels: int, apart: int, height: int, width: int, down: int, across: int,
    views: Any, by_rows: int, by_columns: int, skipped: int, rows: int, pitch: int,
) -> None:  # fmt: skip
    """The planes of `channels` images of (height, width), the first at `source[first]`, `apart` apart in `target`.

    `views` holds the numbers p of `by_rows` and then q of `by_columns`: an image has a plane for each pair, whose
    element (i, j) is its (i down + p, j across + q), or 0 outside of it. Of the image, `skipped` rows lie before it.
    """
    for channel in range(channels):
        for a in range(by_rows):
            for b in range(by_columns):
                plane = ((channel * by_rows + a) * by_columns + b) * apart
                origin = views[by_rows + b]
                low = least(pitch, (across - 1 - origin) // across if origin < 0 else 0)
                high = least(pitch, (width - 1 - origin) // across + 1 if origin < width else 0)
                for i in range(rows):
                    place, y = plane + i * pitch, i * down + views[a] + skipped
                    # From the front to the back: what is put beyond an end is overwritten by what follows.
                    if y < 0 or y >= height or high <= low:
                        zero(tail(target, place), pitch)
                    else:
                        begin = first + (channel * height + y) * width + low * across + origin
                        zero(tail(target, place), low)
                        if across == 1:
                            move(tail(target, place + low), tail(source, begin), high - low)
                        elif across == 2:
                            move_every_second(tail(target, place + low), tail(source, begin), high - low)
                        else:
                            for j in range(high - low):
                                target[place + low + j] = source[begin + j * across]
                        zero(tail(target, place + high), pitch - high)


@call_once
def put_rows(
    target: Any, source: Any, channels: int, target_apart: int, source_apart: int, rows: int, width: int, pitch: int,
    down: int, across: int,
) -> None:  # fmt: skip
    """Copy pixels of `channels`, whose rows are `pitch` apart, to where they are `down` and the columns `across`."""
    for channel in range(channels):
        place, origin = channel * target_apart, channel * source_apart
        if across == 1 and pitch == width and down == width:
            put(tail(target, place), tail(source, origin), rows * width)
        else:
            for i in range(rows):
                if across == 1:
                    put(tail(target, place + i * down), tail(source, origin + i * pitch), width)
                else:
                    for j in range(width):
                        target[place + i * down + j * across] = source[origin + i * pitch + j]
