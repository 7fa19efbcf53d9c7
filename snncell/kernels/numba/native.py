"""Compiled kernels: link machine code into this process, and call it by its address.

All kernels have the C signature `(start, stop, slots)`: a range of units, and the address of the packed arguments
(`intrinsics/elements.py`). One launcher shares the units of any kernel among threads. Linking cached code needs only
LLVM's linker. Numba is imported only to compile, to use several threads, or for code that calls Numba's runtime.
"""

from __future__ import annotations

import ctypes
import functools
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from snncell.base.signals import import_once
from snncell.errors import KernelMemoryError

_BYTES = bytes.__basicsize__ - 1  # the offset of the first byte within a bytes object
_WORD = 8
SHARED = "snncell_"  # the prefix of the symbols of functions that kernels share


class Code(NamedTuple):
    """The machine code of a kernel."""

    symbol: str  # the function's name in the object code
    needs: tuple[str, ...]  # external symbols that the code refers to
    objects: bytes  # the object code

    def pack(self) -> bytes:
        """Serialise the code for a file."""
        head = json.dumps([self.symbol, self.needs]).encode()
        return len(head).to_bytes(8, "little") + head + self.objects

    @classmethod
    def unpack(cls, data: bytes) -> Code:
        """Deserialise the output of `pack`."""
        end = 8 + int.from_bytes(data[:8], "little")
        symbol, needs = json.loads(data[8:end])
        return cls(symbol, tuple(needs), data[end:])


class Linked(NamedTuple):
    """Linked code: the address of the function, and the object that keeps the code in memory."""

    address: int
    owner: Any


def link(code: Code, more: Callable[[], None]) -> Linked | None:
    """Link object code into the process; call `more()` if symbols are missing, and return None if they still are."""
    llvm: Any = import_once("llvmlite.binding")

    def missing() -> bool:
        return any(llvm.address_of_symbol(name) is None for name in code.needs)

    if missing():
        more()
        if missing():
            return None
    engine = _engine(llvm.parse_assembly(""))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.objects))
    engine.finalize_object()
    return Linked(engine.get_function_address(code.symbol), engine)


def _engine(module: Any) -> Any:
    """An MCJIT engine, which compiles and links a module."""
    llvm: Any = import_once("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(module, machine)


def _define(name: str, result: Any, arguments: int, write: Callable[[Any, Any, Callable[..., Any]], None]) -> Any:
    """Compile a C function of pointers to 8-byte words; return its address, and the engine that keeps it in memory.
    `write(builder, arguments, call)` emits its code, in which `call(address, start, stop, slots)` calls a kernel.
    """
    llvm: Any = import_once("llvmlite.binding")
    ir: Any = import_once("llvmlite.ir")
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    kernel = ir.FunctionType(ir.IntType(32), [byte.as_pointer(), byte.as_pointer(), word, word, word.as_pointer()])
    module = ir.Module("snncell")
    function = ir.Function(module, ir.FunctionType(result, [word.as_pointer()] * arguments), name)
    builder = ir.IRBuilder(function.append_basic_block())

    def call(address: Any, start: Any, stop: Any, slots: Any) -> Any:
        nothing = [builder.alloca(byte), builder.alloca(byte)]  # for its return value and its exception, both ignored
        return builder.call(builder.inttoptr(address, kernel.as_pointer()), [*nothing, start, stop, slots])

    write(builder, function.args, call)
    engine = _engine(llvm.parse_assembly(str(module)))
    engine.finalize_object()
    return engine.get_function_address(name), engine


@functools.cache
def _caller() -> tuple[Callable[[bytes], int], Any]:
    """A C function that calls a kernel for all of its units, and the engine that keeps it in memory."""
    ir: Any = import_once("llvmlite.ir")

    # The function has a single argument, a row with the kernel's address, the number of units and the slots, because
    # `ctypes` takes time to convert each argument.
    def write(builder: Any, arguments: Any, call: Callable[..., Any]) -> None:
        word = ir.IntType(64)
        address, units, slots = (builder.gep(arguments[0], [ir.Constant(word, place)]) for place in range(3))
        builder.ret(call(builder.load(address), ir.Constant(word, 0), builder.load(units), slots))

    address, engine = _define("snncell_call", ir.IntType(32), 1, write)
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(address), engine


@functools.cache
def range_runner() -> tuple[int, Any]:
    """The address of a C function that runs ranges of a kernel's units on a thread, and its engine.

    Its arguments are those of Numba's generalised ufuncs, `(first, count, steps, kernel)`. `first` points to the number
    of the first range, `count` to the number of ranges that it runs, and `kernel` to four words: the kernel's address,
    its slots, the number of its units, and the number of all ranges.
    """
    ir: Any = import_once("llvmlite.ir")

    def write(builder: Any, arguments: Any, call: Callable[..., Any]) -> None:
        word = ir.IntType(64)
        places = (builder.gep(arguments[3], [ir.Constant(word, place)]) for place in range(4))
        address, slots, units, ranges = (builder.load(place) for place in places)
        first, count = builder.load(arguments[0]), builder.load(arguments[1])
        start, stop = (builder.sdiv(builder.mul(x, units), ranges) for x in (first, builder.add(first, count)))
        call(address, start, stop, builder.inttoptr(slots, word.as_pointer()))
        builder.ret_void()

    made: tuple[int, Any] = _define("snncell_ranges", ir.VoidType(), 4, write)
    return made


class Kernel(Protocol):
    """A compiled kernel: a function `(units, grain, *arguments)` of NumPy arrays and Python numbers. It runs `units`
    units on the calling thread, or, if `grain` is not 0, on all threads, `grain` units at a time.
    """

    loaded: bool  # True if the code came from disk, False if it was compiled now

    def __call__(self, units: int, grain: int, *arguments: Any) -> Any: ...


# The slots of an argument in the format of `struct`, and the expressions packed into them; others are integers.
_SLOTS = {"array": ("q", "id({0})"), "f": ("d", "{0}"), "c": ("dd", "{0}.real, {0}.imag")}


def kernel_of(name: str, linked: Linked, signature: Sequence[Any], share: Callable[..., int], loaded: bool) -> Kernel:
    """Make a Python function that calls linked code; `share(address, slots, units, grain)` runs its units on threads.
    The signature has a DType for each number, and (DType, ndim, writable) for each C-contiguous array.
    """

    def shared(row: bytes, units: int, grain: int) -> int:
        return share(linked.address, id(row) + _BYTES + 2 * _WORD, units, grain)

    def fail() -> None:
        raise KernelMemoryError(
            f"{name}: out of memory, the kernel cannot allocate its scratch arrays. Use a smaller batch."
        )

    # The lambda is generated for this signature, because a loop over the signature would take longer than the call
    # itself. The row has only the addresses of the arrays; the arguments of the lambda keep the arrays alive.
    names = [f"a{n}" for n in range(len(signature))]
    kinds = ["array" if isinstance(kind, tuple) else kind.dtype.kind for kind in signature]
    slots = [_SLOTS.get(kind, ("q", "{0}")) for kind in kinds]
    packed = [expression.format(name) for name, (_, expression) in zip(names, slots, strict=True)]
    row = f"pack({', '.join([str(linked.address), 'units', *packed])})"
    names_in_text = {
        "pack": struct.Struct("=qq" + "".join(letters for letters, _ in slots)).pack,
        "id": id,  # in CPython the address of an object, from which the kernel reads the array's header
        "call": _caller()[0],
        "shared": shared,
        "fail": fail,
    }
    kernel: Any = eval(
        f"lambda {', '.join(['units', 'grain', *names])}: "
        f"(shared({row}, units, grain) if grain and units > grain else call({row})) and fail()",
        names_in_text,
    )
    kernel.loaded = loaded
    kernel.linked = linked  # keeps the code in memory
    typed_kernel: Kernel = kernel
    return typed_kernel
