"""Vectors as wide as the processor's registers, and rows that are copied by them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from snncell.interrupts import imported
from snncell.kernels.cpu.builtins import least, lowers, typed
from snncell.kernels.cpu.elements import Part, tail
from snncell.kernels.policy import called

ir: Any = imported("llvmlite.ir")
llvm: Any = imported("llvmlite.binding")
types: Any = imported("numba.core.types")
cgutils: Any = imported("numba.core.cgutils")

I64, I32 = ir.IntType(64), ir.IntType(32)


@functools.cache
def registers() -> tuple[int, int]:
    """The number of vector registers of the processor, and the bytes of each."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 32, 64
    if features.get("avx2"):
        return 16, 32
    return (32, 16) if llvm.get_process_triple().startswith(("aarch64", "arm64")) else (16, 16)


class Vectors:
    """Instructions on vectors of what a pointer points to: of as many bytes as are given, or as wide as a register."""

    def __init__(self, builder: Any, pointer: Any, wide: int | None = None) -> None:
        self.builder, self.element = builder, pointer.type.pointee
        integer = isinstance(self.element, ir.IntType)
        bits = self.element.width if integer else 64 if isinstance(self.element, ir.DoubleType) else 32
        self.bytes = bits // 8
        self.lanes = (wide or registers()[1]) // self.bytes
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, None)
        self._bits = ir.VectorType(ir.IntType(1), self.lanes)
        self._name = f"v{self.lanes}{'i' if integer else 'f'}{bits}"

    def _function(self, name: str, arguments: Sequence[Any], result: Any) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)

    def at(self, pointer: Any, place: Any) -> Any:
        """The address of an element."""
        place = place if isinstance(place, ir.Value) else ir.Constant(I64, place)
        return self.builder.gep(pointer, [place], inbounds=True)

    def load(self, pointer: Any) -> Any:
        """The elements from an address on."""
        loaded = self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()))
        loaded.align = self.bytes
        return loaded

    def load_each(self, pointer: Any, number: int) -> list[Any]:
        """So many vectors that lie one after another."""
        return [self.load(self.at(pointer, n * self.lanes)) for n in range(number)]

    def load_if(self, wanted: Any, places: Sequence[Any]) -> list[Any]:
        """The vectors at addresses, or if an integer is 0, zeros."""
        builder = self.builder
        with builder.if_else(builder.icmp_signed("!=", wanted, ir.Constant(I64, 0))) as (then, otherwise):
            with then:
                loaded, has_loaded = [self.load(place) for place in places], builder.block
            with otherwise:
                has_none = builder.block
        return [self.either((vector, has_loaded), (self.zero, has_none)) for vector in loaded]

    def store(self, vector: Any, pointer: Any) -> None:
        """Put elements to an address and behind it."""
        stored = self.builder.store(vector, self.builder.bitcast(pointer, self.type.as_pointer()))
        stored.align = self.bytes

    def spread(self, number: Any) -> Any:
        """A vector of one number."""
        undefined = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, self.lanes), None))

    def added(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c."""
        add = self._function(f"llvm.fmuladd.{self._name}", [self.type] * 3, self.type)
        return self.builder.call(add, [a, b, c])

    def shuffled(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """A vector of lanes of two, which are counted from the first of `a` to the last of `b`."""
        order = ir.Constant(ir.VectorType(I32, len(lanes)), [ir.Constant(I32, lane) for lane in lanes])
        return self.builder.shuffle_vector(a, b, order)

    def either(self, *values: tuple[Any, Any]) -> Any:
        """The value that goes with the block from which this one is entered."""
        one = self.builder.phi(values[0][0].type)
        for value, block in values:
            one.add_incoming(value, block)
        return one

    def below(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), [ir.Constant(I64, n) for n in range(self.lanes)])
        return self.builder.icmp_signed("<", lanes, self.spread(count))

    def load_masked(self, pointer: Any, mask: Any) -> Any:
        """The elements from an address on where a mask has them; 0 elsewhere, which is not read."""
        pointer = self.builder.bitcast(pointer, self.type.as_pointer())
        kinds = [pointer.type, I32, self._bits, self.type]
        load = self._function(f"llvm.masked.load.{self._name}.p0{self._name}", kinds, self.type)
        return self.builder.call(load, [pointer, ir.Constant(I32, self.bytes), mask, self.zero])

    def store_masked(self, vector: Any, pointer: Any, mask: Any) -> None:
        """Put elements where a mask has them."""
        pointer = self.builder.bitcast(pointer, self.type.as_pointer())
        kinds = [self.type, pointer.type, I32, self._bits]
        store = self._function(f"llvm.masked.store.{self._name}.p0{self._name}", kinds, ir.VoidType())
        self.builder.call(store, [vector, pointer, ir.Constant(I32, self.bytes), mask])

    def loop(
        self,
        count: Any,
        step: int,
        start: Sequence[Any],
        body: Callable[[Any, list[Any]], Sequence[Any]],
        *,
        maybe_none: bool = False,
    ) -> list[Any]:
        """Run `body(number, values)` for 0, step, ... below `count`; it gives the values of the next.

        It runs at least once, unless there may be none.
        """
        builder = self.builder
        before, inside, behind = builder.block, builder.append_basic_block(), builder.append_basic_block()
        if maybe_none:
            builder.cbranch(builder.icmp_signed(">", count, ir.Constant(I64, 0)), inside, behind)
        else:
            builder.branch(inside)
        builder.position_at_end(inside)
        number, *values = (builder.phi(x.type) for x in (count, *start))
        for phi, x in zip((number, *values), (ir.Constant(I64, 0), *start), strict=True):
            phi.add_incoming(x, before)
        following = builder.add(number, ir.Constant(I64, step))
        after, last = list(body(number, values)), builder.block
        for phi, x in zip((number, *values), (following, *after), strict=True):
            phi.add_incoming(x, last)
        builder.cbranch(builder.icmp_signed("<", following, count), inside, behind)
        builder.position_at_end(behind)
        if maybe_none:
            return [self.either((x, before), (y, last)) for x, y in zip(start, after, strict=True)]
        return after


# --- rows -------------------------------------------------------------------------------------------------------------


def move(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements, and put zeros behind them, to the end of a vector."""
    target[:count] = source[:count]


def zero(target: Any, count: int) -> None:
    """Put `count` zeros, and more to the end of a vector."""
    target[:count] = 0


def put(target: Any, source: Any, count: int) -> None:
    """Copy `count` elements and touch nothing behind them; there may be garbage behind the source's."""
    target[:count] = source[:count]


typed(move, lambda target, source, count: types.none if target == source else None)
typed(zero, lambda target, count: types.none)
typed(put, lambda target, source, count: types.none if target == source else None)


def move_added(target: Any, source: Any, count: int, term: int) -> None:
    """Copy `count` integers, each with `term` added; what is behind them in the last vector, of one or more, is any."""
    target[:count] = source[:count] + term


typed(move_added, lambda target, source, count, term: types.none if target == source else None)


def _for_each_vector(vectors: Vectors, count: Any, body: Callable[[Any], None], *, maybe_none: bool = True) -> None:
    """Run `body(first)` for the first element of each vector, if there are any."""

    def once(first: Any, _: list[Any]) -> list[Any]:
        body(first)
        return []

    vectors.loop(count, vectors.lanes, [], once, maybe_none=maybe_none)


@lowers(move, Part, Part, types.Integer)
def _lower_move(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)

    def one(first: Any) -> None:
        mask = vectors.below(builder.sub(count, first))
        vectors.store(vectors.load_masked(vectors.at(source, first), mask), vectors.at(target, first))

    _for_each_vector(vectors, count, one)
    return context.get_dummy_value()


@lowers(zero, Part, types.Integer)
def _lower_zero(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, count = operands
    vectors = Vectors(builder, target)
    _for_each_vector(vectors, count, lambda first: vectors.store(vectors.zero, vectors.at(target, first)))
    return context.get_dummy_value()


@lowers(put, Part, Part, types.Integer)
def _lower_put(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count = operands
    vectors = Vectors(builder, target)

    def one(first: Any) -> None:
        mask = vectors.below(builder.sub(count, first))
        vectors.store_masked(vectors.load(vectors.at(source, first)), vectors.at(target, first), mask)

    _for_each_vector(vectors, count, one)
    return context.get_dummy_value()


@lowers(move_added, Part, Part, types.Integer, types.Integer)
def _lower_move_added(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    target, source, count, term = operands
    vectors = Vectors(builder, target)
    terms = vectors.spread(context.cast(builder, term, signature.args[3], signature.args[0].dtype))

    def one(first: Any) -> None:
        vectors.store(builder.add(vectors.load(vectors.at(source, first)), terms), vectors.at(target, first))

    _for_each_vector(vectors, count, one, maybe_none=False)  # without a branch, where there are few
    return context.get_dummy_value()


@called
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
                        else:
                            for j in range(high - low):
                                target[place + low + j] = source[begin + j * across]
                        zero(tail(target, place + high), pitch - high)


@called
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
