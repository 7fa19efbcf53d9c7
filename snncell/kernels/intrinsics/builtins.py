"""Intrinsics: functions with a Python body, and with their own typing and lowering to LLVM IR in compiled kernels.

This module does not import Numba, because a kernel from the disk cache needs neither Numba nor its IR builder.
Therefore registrations wait in `PENDING` until a kernel is compiled. Kernels call `least` and `bitcast` instead of
`min` and `view`: Numba compiles a function for each call of `min` or `view`, but `least` and `bitcast` become one or
two instructions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from snncell.base.signals import import_once

_F = TypeVar("_F", bound=Callable[..., Any])


class LazyModule:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_once(self._name), name)


types: Any = LazyModule("numba.core.types")
ir: Any = LazyModule("llvmlite.ir")
llvm: Any = LazyModule("llvmlite.binding")
cgutils: Any = LazyModule("numba.core.cgutils")
array_types: Any = LazyModule("snncell.kernels.intrinsics.array_types")

# Registrations, in order, that `numba.passes.register_pending` passes on to Numba before it compiles a kernel.
PENDING: list[tuple[Any, ...]] = []


def declare_type(function: Callable[..., Any], result: Callable[..., Any]) -> None:
    """Register the typing of a call: `result` maps the argument types to the result type, or to None for a mismatch."""
    PENDING.append(("declare_type", function, result))


def lowers(
    function: Callable[..., Any], *kinds: str, result: str | Callable[..., Any] | None = None
) -> Callable[[_F], _F]:
    """Decorate the lowering of a call: the function that emits its LLVM IR for arguments of these kinds.
    A kind is the name of a type of Numba, such as "Integer", or of `array_types`. `result` is the type of the call: a
    name, or a function as in `declare_type`. Leave it out if you have declared the type before.
    """
    if result is not None:

        def of_call(*arguments: Any) -> Any:
            return getattr(types, result) if isinstance(result, str) else result(*arguments)

        of_call.pysig = inspect.signature(function)  # type: ignore[attr-defined]  # Numba's name for it
        declare_type(function, of_call)

    def register(write: _F) -> _F:
        PENDING.append(("lower", function, kinds, write))
        return write

    return register


def same_parts(target: Any, source: Any, *_: Any) -> Any:
    """The typing of a call that copies between array parts of one dtype, for `lowers`."""
    return types.none if target == source else None


def inline(function: _F) -> _F:
    """Decorate a function that kernels inline at each call; Python calls it directly."""
    PENDING.append(("inline", function))
    return function


def call_once(function: _F) -> _F:
    """Decorate a long function that kernels call; it is not inlined, so a kernel has its code only once. The functions
    of `intrinsics` have machine code of their own, which all kernels share.
    """
    PENDING.append(("call_once", function))
    return function


def int_constant(number: int) -> Any:
    """A 64-bit integer constant in LLVM IR."""
    return ir.Constant(ir.IntType(64), number)


def least(a: Any, b: Any) -> Any:
    """The minimum of two integers."""
    return min(a, b)


def independent(count: Any) -> Any:
    """A range for an innermost loop in which no iteration writes an array element that another iteration uses. LLVM
    vectorises such a loop without checks whether arrays overlap.
    """
    return range(count)


declare_type(independent, lambda count: types.range_state64_type)


def bitcast(x: Any, dtype: Any) -> Any:
    """Reinterpret the bits of a NumPy number as another dtype of the same size."""
    return x.view(dtype)


@lowers(least, "Integer", "Integer", result="int64")
def _lower_least(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    a, b = (context.cast(builder, x, kind, types.int64) for x, kind in zip(operands, signature.args, strict=True))
    return builder.select(builder.icmp_signed("<", b, a), b, a)


@lowers(bitcast, "Number", "Any", result=lambda x, dtype: dtype.dtype)
def _lower_bitcast(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return builder.bitcast(operands[0], context.get_data_type(signature.return_type))


# --- Arrays on the heap, in kernels whose arrays do not fit on the stack ----------------------------------------------

# A compiled kernel frees these arrays when it returns. A call in a loop frees its previous array first.
# If memory runs out, the kernel returns an error code. Only kernels can allocate, not the functions that they call.

CACHE_LINE = 64  # bytes; arrays are aligned to it


def heap(count: int, kind: Any) -> Any:
    """An uninitialised array of `count` elements."""
    return np.empty(count, kind)


def heap_rows(rows: int, count: int, kind: Any) -> Any:
    """An uninitialised array with two axes."""
    return np.empty((rows, count), kind)


@lowers(heap, "Integer", "Any", result=lambda count, kind: array_types.ArrayPart(kind.dtype))
def _lower_heap(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _allocated(context, builder, signature.return_type.dtype, _counts(context, builder, signature, operands)[0])


@lowers(heap_rows, "Integer", "Integer", "Any", result=lambda rows, count, kind: array_types.Elements(kind.dtype, 2))
def _lower_heap_rows(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    shape = _counts(context, builder, signature, operands)
    data = _allocated(context, builder, signature.return_type.dtype, builder.mul(*shape))
    elements = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
    return builder.insert_value(builder.insert_value(elements, data, 0), cgutils.pack_array(builder, shape), 1)


def _counts(context: Any, builder: Any, signature: Any, operands: Any) -> list[Any]:
    pairs = zip(operands[:-1], signature.args, strict=False)
    return [context.cast(builder, count, kind, types.int64) for count, kind in pairs]


def _allocated(context: Any, builder: Any, kind: Any, count: Any) -> Any:
    byte, word, element = ir.IntType(8).as_pointer(), ir.IntType(64), context.get_data_type(kind)
    malloc = cgutils.get_or_insert_function(builder.module, ir.FunctionType(byte, [word]), "malloc")
    with builder.goto_entry_block():
        place = builder.alloca(byte)
        builder.store(byte(None), place)
    builder.heap.append(place)
    free(builder, place)
    size = builder.mul(count, int_constant(context.get_abi_sizeof(element)))
    memory = builder.call(malloc, [builder.add(size, int_constant(CACHE_LINE))])
    builder.store(memory, place)
    with builder.if_then(builder.icmp_unsigned("==", memory, byte(None)), likely=False):
        builder.ret(ir.Constant(ir.IntType(32), -1))
    address = builder.add(builder.ptrtoint(memory, word), int_constant(CACHE_LINE - 1))
    return builder.inttoptr(builder.and_(address, int_constant(-CACHE_LINE)), element.as_pointer())


def free(builder: Any, place: Any) -> None:
    """Emit code that frees the memory at the address that is stored at `place`."""
    byte = ir.IntType(8).as_pointer()
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [byte]), "free")
    builder.call(function, [builder.load(place)])


# --- SIMD vectors -----------------------------------------------------------------------------------------------------


@functools.cache
def registers() -> tuple[int, int]:
    """The number of vector registers of the processor, and the bytes of each."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 32, 64
    if features.get("avx2"):
        return 16, 32
    return (32, 16) if llvm.get_process_triple().startswith(("aarch64", "arm64")) else (16, 16)


def _int32_vector(numbers: Sequence[int]) -> Any:
    kind = ir.IntType(32)
    return ir.Constant(ir.VectorType(kind, len(numbers)), [ir.Constant(kind, number) for number in numbers])


class Vectors:
    """Emits LLVM IR for SIMD vectors of a pointer's element type, `wide` bytes or as wide as a register."""

    def __init__(self, builder: Any, pointer: Any, wide: int | None = None) -> None:
        self.builder, self.element = builder, pointer.type.pointee
        integer = isinstance(self.element, ir.IntType)
        bits = self.element.width if integer else 64 if isinstance(self.element, ir.DoubleType) else 32
        self.bytes = bits // 8
        self.lanes = (wide or registers()[1]) // self.bytes
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, None)
        self.mask = ir.VectorType(ir.IntType(1), self.lanes)
        self._name = f"v{self.lanes}{'i' if integer else 'f'}{bits}"

    def _function(self, name: str, arguments: Sequence[Any], result: Any) -> Any:
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), name)

    def at(self, pointer: Any, place: Any) -> Any:
        """The address of an element."""
        place = place if isinstance(place, ir.Value) else int_constant(place)
        return self.builder.gep(pointer, [place], inbounds=True)

    def load(self, pointer: Any) -> Any:
        """Load a vector from an address, aligned to its elements only."""
        loaded = self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()))
        loaded.align = self.bytes
        return loaded

    def load_bytes(self, pointer: Any) -> Any:
        """Load a vector of unsigned bytes, and convert them to floats."""
        kind = ir.VectorType(ir.IntType(8), self.lanes)
        loaded = self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()))
        loaded.align = 1
        return self.builder.uitofp(loaded, self.type)

    def load_each(self, pointer: Any, number: int) -> list[Any]:
        """Load `number` consecutive vectors."""
        return [self.load(self.at(pointer, n * self.lanes)) for n in range(number)]

    def load_if(self, wanted: Any, places: Sequence[Any]) -> list[Any]:
        """Load vectors from addresses if the integer `wanted` is not 0, otherwise return zeros."""
        builder = self.builder
        with builder.if_else(builder.icmp_signed("!=", wanted, int_constant(0))) as (then, otherwise):
            with then:
                loaded, has_loaded = [self.load(place) for place in places], builder.block
            with otherwise:
                has_none = builder.block
        return [self.either((vector, has_loaded), (self.zero, has_none)) for vector in loaded]

    def store(self, vector: Any, pointer: Any) -> None:
        """Store a vector, aligned to its elements only."""
        stored = self.builder.store(vector, self.builder.bitcast(pointer, self.type.as_pointer()))
        stored.align = self.bytes

    def constant(self, number: float) -> Any:
        """A constant vector with one number in all lanes."""
        return ir.Constant(self.type, [ir.Constant(self.element, number)] * self.lanes)

    def spread(self, number: Any) -> Any:
        """Broadcast a number to all lanes."""
        undefined = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        one = self.builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), None))

    def added(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, fused if the processor can do it."""
        add = self._function(f"llvm.fmuladd.{self._name}", [self.type] * 3, self.type)
        return self.builder.call(add, [a, b, c])

    def shuffled(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Select lanes of two vectors, numbered from the first lane of `a` to the last of `b`."""
        return self.builder.shuffle_vector(a, b, _int32_vector(lanes))

    def either(self, *values: tuple[Any, Any]) -> Any:
        """A phi node of pairs (value, block): the value of the block from which the present block was entered."""
        one = self.builder.phi(values[0][0].type)
        for value, block in values:
            one.add_incoming(value, block)
        return one

    def below(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        lanes = ir.Constant(ir.VectorType(ir.IntType(64), self.lanes), [int_constant(n) for n in range(self.lanes)])
        return self.builder.icmp_signed("<", lanes, self.spread(count))

    def between(self, first: Any, end: Any) -> Any:
        """A mask of the lanes n for which `first + n` is at least 0 and below `end`."""
        lanes = _int32_vector(range(self.lanes))
        first, end = (self.spread(self.builder.trunc(x, ir.IntType(32))) for x in (first, end))
        return self.builder.icmp_unsigned("<", self.builder.add(lanes, first), end)

    def first_lanes(self, count: int) -> Any:
        """A mask of the first `count` lanes, a constant."""
        return ir.Constant(self.mask, [ir.Constant(ir.IntType(1), int(n < count)) for n in range(self.lanes)])

    def every_second(self) -> Any:
        """A mask of the lanes 0, 2, ..."""
        return ir.Constant(self.mask, [ir.Constant(ir.IntType(1), 1 - n % 2) for n in range(self.lanes)])

    def load_masked(self, pointer: Any, mask: Any) -> Any:
        """Load the lanes in a mask; other lanes are 0, and their memory is not read."""
        pointer = self.builder.bitcast(pointer, self.type.as_pointer())
        kinds = [pointer.type, ir.IntType(32), self.mask, self.type]
        load = self._function(f"llvm.masked.load.{self._name}.p0{self._name}", kinds, self.type)
        return self.builder.call(load, [pointer, ir.Constant(ir.IntType(32), self.bytes), mask, self.zero])

    def store_masked(self, vector: Any, pointer: Any, mask: Any) -> None:
        """Store the lanes in a mask."""
        pointer = self.builder.bitcast(pointer, self.type.as_pointer())
        kinds = [self.type, pointer.type, ir.IntType(32), self.mask]
        store = self._function(f"llvm.masked.store.{self._name}.p0{self._name}", kinds, ir.VoidType())
        self.builder.call(store, [vector, pointer, ir.Constant(ir.IntType(32), self.bytes), mask])

    def loop(
        self,
        count: Any,
        step: int,
        start: Sequence[Any],
        body: Callable[[Any, list[Any]], Sequence[Any]],
        *,
        maybe_none: bool = False,
    ) -> list[Any]:
        """Emit a loop of `body(number, values)` for the numbers 0, step, ... below `count`. `values` are variables with
        the initial values `start`. The body returns their next values, and `loop` their last ones. The loop runs at
        least once, unless `maybe_none` allows a count of 0.
        """
        builder = self.builder
        before, inside, behind = builder.block, builder.append_basic_block(), builder.append_basic_block()
        if maybe_none:
            builder.cbranch(builder.icmp_signed(">", count, int_constant(0)), inside, behind)
        else:
            builder.branch(inside)
        builder.position_at_end(inside)
        number, *values = (builder.phi(x.type) for x in (count, *start))
        for phi, x in zip((number, *values), (int_constant(0), *start), strict=True):
            phi.add_incoming(x, before)
        following = builder.add(number, int_constant(step))
        after, last = list(body(number, values)), builder.block
        for phi, x in zip((number, *values), (following, *after), strict=True):
            phi.add_incoming(x, last)
        builder.cbranch(builder.icmp_signed("<", following, count), inside, behind)
        builder.position_at_end(behind)
        if maybe_none:
            return [self.either((x, before), (y, last)) for x, y in zip(start, after, strict=True)]
        return after
