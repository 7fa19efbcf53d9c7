"""Vectors as wide as the processor's registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from snncell.base.signals import import_once

ir: Any = import_once("llvmlite.ir")
llvm: Any = import_once("llvmlite.binding")
cgutils: Any = import_once("numba.core.cgutils")

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

    def constant(self, number: float) -> Any:
        """A vector of one number that is known."""
        return ir.Constant(self.type, [ir.Constant(self.element, number)] * self.lanes)

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

    def between(self, first: Any, end: Any) -> Any:
        """A mask of the lanes n for which `first + n` is at least 0 and below `end`."""
        lanes = ir.Constant(ir.VectorType(I32, self.lanes), [ir.Constant(I32, n) for n in range(self.lanes)])
        first, end = (self.spread(self.builder.trunc(x, I32)) for x in (first, end))
        return self.builder.icmp_unsigned("<", self.builder.add(lanes, first), end)

    def every_second(self) -> Any:
        """A mask of the lanes 0, 2, ..."""
        return ir.Constant(self._bits, [ir.Constant(ir.IntType(1), 1 - n % 2) for n in range(self.lanes)])

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
