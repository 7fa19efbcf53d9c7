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


def _vector_by_vector(
    function: Callable[..., Any], *kinds: str, result: Any = same_parts
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `one(vectors, first, *operands)`, the instructions of a copy for the vector of elements from `first` on.

    The last operand is the number of elements.
    """

    def register(one: Callable[..., None]) -> Callable[..., None]:
        @lowers(function, *kinds, result=result)
        def lower(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            vectors = Vectors(builder, operands[0])

            def body(first: Any, _: list[Any]) -> list[Any]:
                one(vectors, first, *operands)
                return []

            vectors.loop(operands[-1], vectors.lanes, [], body, maybe_none=True)
            return context.get_dummy_value()

        return one

    return register


def move(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and put zeros after them, to the end of a vector."""
    target[:count] = source[:count]


@_vector_by_vector(move, "ArrayPart", "ArrayPart", "Integer")
def _move_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    mask = vectors.below(vectors.builder.sub(count, first))
    vectors.store(vectors.load_masked(vectors.at(source, first), mask), vectors.at(target, first))


def move_every_second(target: Any, source: Any, count: int) -> None:
    """As `move`, of the elements 0, 2, 4 ... of the source."""
    target[:count] = source[: 2 * count : 2]


@_vector_by_vector(move_every_second, "ArrayPart", "ArrayPart", "Integer")
def _move_every_second_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    builder = vectors.builder
    left = builder.mul(builder.sub(count, first), int_constant(2))
    left = builder.sub(left, int_constant(1))  # after the last there may be nothing
    near = vectors.at(source, builder.mul(first, int_constant(2)))
    a, b = (
        vectors.load_masked(vectors.at(near, n), vectors.below(builder.sub(left, int_constant(n))))
        for n in (0, vectors.lanes)
    )
    vectors.store(vectors.shuffled(a, b, range(0, 2 * vectors.lanes, 2)), vectors.at(target, first))


def zero(target: Any, count: int) -> None:
    """Put `count` zeros, and more to the end of a vector."""
    target[:count] = 0


@_vector_by_vector(zero, "ArrayPart", "Integer", result="none")
def _zero_vector(vectors: Vectors, first: Any, target: Any, count: Any) -> None:
    vectors.store(vectors.zero, vectors.at(target, first))


def put(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements and touch nothing after them; there may be garbage after the source's."""
    target[:count] = source[:count]


@_vector_by_vector(put, "ArrayPart", "ArrayPart", "Integer")
def _put_vector(vectors: Vectors, first: Any, target: Any, source: Any, count: Any) -> None:
    mask = vectors.below(vectors.builder.sub(count, first))
    vectors.store_masked(vectors.load(vectors.at(source, first)), vectors.at(target, first), mask)


def clear(target: Any, count: int) -> None:
    """Put `count` zeros, and touch nothing after them."""
    target[:count] = 0


@lowers(clear, "ArrayPart", "Integer", result="none")
def _lower_clear(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    size = int_constant(context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    count = context.cast(builder, operands[1], signature.args[1], types.int64)
    cgutils.memset(builder, operands[0], builder.mul(count, size), 0)
    return context.get_dummy_value()


def move_added(target: Any, source: Any, count: int, term: int) -> None:
    """Copy `count` integers, each with `term` added; what is after them in the last vector, of one or more, is any."""
    target[:count] = source[:count] + term


@lowers(move_added, "ArrayPart", "ArrayPart", "Integer", "Integer", result=same_parts)
def _lower_move_added(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count, term = operands
    vectors = Vectors(builder, target)
    terms = vectors.spread(context.cast(builder, term, signature.args[3], signature.args[0].dtype))

    def one(first: Any, _: list[Any]) -> list[Any]:
        vectors.store(builder.add(vectors.load(vectors.at(source, first)), terms), vectors.at(target, first))
        return []

    vectors.loop(count, vectors.lanes, [], one)  # without a branch, where there are few
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
