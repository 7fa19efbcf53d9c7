"""Compiled kernels: machine code that is linked into this process, and called by its address.

All kernels have one signature, `(start, stop, slots)`: which units of their work to carry out, and the address of their
arguments (`intrinsics/elements.py`). So a call from Python packs those and calls a C function, and one launcher shares
the units of any kernel among threads. To link code that is there, LLVM's linker alone is needed: Numba is imported only
if something is compiled, or shared among threads, or if the code calls Numba's runtime.
"""

from __future__ import annotations

import ctypes
import functools
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from snncell import dtype as dtypes
from snncell.base.signals import import_once
from snncell.errors import KernelMemoryError

_BYTES = bytes.__basicsize__ - 1  # from the address of a bytes object to its first byte
_WORD = 8


class Code(NamedTuple):
    """The machine code of a kernel."""

    symbol: str  # the function's name in the object code
    needs: tuple[str, ...]  # names that the code has from elsewhere
    objects: bytes  # the object code

    def packed(self) -> bytes:
        """As one row of bytes, for a file."""
        head = json.dumps([self.symbol, self.needs]).encode()
        return len(head).to_bytes(8, "little") + head + self.objects

    @classmethod
    def unpacked(cls, data: bytes) -> Code:
        """The code that `packed` made a row of bytes of."""
        end = 8 + int.from_bytes(data[:8], "little")
        symbol, needs = json.loads(data[8:end])
        return cls(symbol, tuple(needs), data[end:])


class Linked(NamedTuple):
    """Code in this process: the address of the function, and what keeps the code there."""

    address: int
    owner: Any


def link(code: Code, more: Callable[[], None]) -> Linked | None:
    """Link object code into the process; None if it needs what is not there, even after `more()` has looked for it."""
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
    """Something that makes machine code of a module, and links it."""
    llvm: Any = import_once("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(module, machine)


@functools.cache
def _caller() -> tuple[Callable[[bytes], int], Any]:
    """A C function that calls a kernel for all of its units, and what keeps it."""
    llvm: Any = import_once("llvmlite.binding")
    ir: Any = import_once("llvmlite.ir")
    # It takes one argument, a row of the kernel's address, the number of units and the slots: `ctypes` takes time for
    # each argument.
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    module = ir.Module("snncell")
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), [word.as_pointer()]), "snncell_call")
    builder = ir.IRBuilder(function.append_basic_block())
    address, units, slots = (builder.gep(function.args[0], [ir.Constant(word, place)]) for place in range(3))
    kinds = [byte.as_pointer(), byte.as_pointer(), word, word, word.as_pointer()]
    kernel = builder.inttoptr(builder.load(address), ir.FunctionType(ir.IntType(32), kinds).as_pointer())
    nothing = [builder.alloca(byte), builder.alloca(byte)]  # where it puts what it returns and raises
    builder.ret(builder.call(kernel, [*nothing, ir.Constant(word, 0), builder.load(units), slots]))
    engine = _engine(llvm.parse_assembly(str(module)))
    engine.finalize_object()
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(engine.get_function_address("snncell_call")), engine


class Kernel(Protocol):
    """A function `(units, grain, *arguments)` of NumPy arrays and Python numbers.

    It carries out so many units: on the calling thread, or, `grain` of them at a time, on all if `grain` is not 0.
    """

    loaded: bool  # whether it was not compiled now, but found on disk

    def __call__(self, units: int, grain: int, *arguments: Any) -> Any: ...


def kernel_of(name: str, linked: Linked, signature: Sequence[Any], share: Callable[..., int], loaded: bool) -> Kernel:
    """A function that calls linked code, and has `share(address, slots, units, grain)` share its units among threads.

    Its signature has a DType for a number, and (DType, ndim, writable) for a C-contiguous array.
    """

    def shared(row: bytes, units: int, grain: int) -> int:
        return share(linked.address, id(row) + _BYTES + 2 * _WORD, units, grain)

    def fail() -> None:
        raise KernelMemoryError(f"{name}: there is no memory for what it computes with.")

    # Written out for this signature: to go through it at each call would take longer than the call. The arrays are
    # alive until it returns, for the lambda's arguments refer to them; the row has their addresses alone.
    names = [f"a{n}" for n in range(len(signature))]
    row = f"pack({', '.join([str(linked.address), 'units', *map(_pack_argument, names, signature)])})"
    names_in_text = {
        "pack": struct.Struct("=qq" + "".join(map(_format, signature))).pack,
        "id": id,  # in CPython the address of an object, which is what the kernel reads arrays from
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
    kernel.linked = linked  # which keeps the code
    typed_kernel: Kernel = kernel
    return typed_kernel


def _format(kind: dtypes.DType | tuple[Any, ...]) -> str:
    """The slots of an argument, as `struct` has them."""
    if isinstance(kind, tuple):
        return "q"
    return {"f": "d", "c": "dd"}.get(kind.dtype.kind, "q")


def _pack_argument(name: str, kind: dtypes.DType | tuple[Any, ...]) -> str:
    """An argument as it goes into its slots, as text: of an array the address of its object."""
    if isinstance(kind, tuple):
        return f"id({name})"
    return f"{name}.real, {name}.imag" if kind.dtype.kind == "c" else name
