"""Compiled kernels: machine code that is linked into this process, and called by its address.

All kernels have one signature, `(start, stop, slots)`: which units of their work to carry out, and the address of their
arguments (`cpu/given.py`). So a call from Python packs those and calls a C function, and one launcher shares the units
of any kernel among threads. To link code that is there, LLVM's linker alone is needed: Numba is imported only if
something is compiled, or shared among threads, or if the code calls Numba's runtime.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from snncell import dtype as dtypes
from snncell.errors import KernelMemoryError
from snncell.interrupts import imported

_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_NOWHERE = (ctypes.c_void_p * 2)()  # where kernels put what they return, which is nothing
_RESULT, _RAISED = ctypes.addressof(_NOWHERE), ctypes.addressof(_NOWHERE) + ctypes.sizeof(ctypes.c_void_p)
_BYTES = bytes.__basicsize__ - 1  # from the address of a bytes object to its first byte


class Code(NamedTuple):
    """The machine code of a kernel.

    Attributes:
        symbol: the function's name in the object code.
        needs: names that the code has from elsewhere.
        objects: the object code.
    """

    symbol: str
    needs: tuple[str, ...]
    objects: bytes

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
    """Code in this process.

    Attributes:
        address: of the function.
        owner: what keeps the code where it is.
    """

    address: int
    owner: Any


def link(code: Code, more: Callable[[], None]) -> Linked | None:
    """Link object code into the process; None if it needs what is not there, even after `more()` has looked for it."""
    llvm: Any = imported("llvmlite.binding")

    def missing() -> bool:
        return any(llvm.address_of_symbol(name) is None for name in code.needs)

    if missing():
        more()
        if missing():
            return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.objects))
    engine.finalize_object()
    return Linked(engine.get_function_address(code.symbol), engine)


class Kernel:
    """A kernel that is called with NumPy arrays and Python numbers.

    Args:
        name: for errors.
        linked: its code.
        signature: for each argument, a DType for a number, or (DType, ndim, writable) for a C-contiguous array.
        share: what shares the units among threads, `share(address, slots, units, grain)`.
        loaded: whether it was not compiled now, but found on disk.
    """

    def __init__(
        self, name: str, linked: Linked, signature: Sequence[Any], share: Callable[..., int], loaded: bool
    ) -> None:
        self.name = name
        self.linked = linked
        self.signature = tuple(signature)
        self.loaded = loaded
        self._function = _FUNCTION(linked.address)
        self._share = share
        self._arrays = [isinstance(kind, tuple) for kind in signature]
        self._complex = any(not isinstance(kind, tuple) and kind.dtype.kind == "c" for kind in signature)
        self._pack = struct.Struct("=" + "".join(map(_format, signature))).pack

    def __call__(self, units: int, grain: int, *arguments: Any) -> None:
        """Carry out so many units: on this thread, or, `grain` of them at a time, on all if `grain` is not 0."""
        if self._complex:
            slots = self._pack(*_slots(arguments, self.signature))
        else:
            slots = self._pack(*[id(x) if is_array else x for x, is_array in zip(arguments, self._arrays, strict=True)])
        address = id(slots) + _BYTES
        if grain and units > grain:
            failed = self._share(self.linked.address, address, units, grain)
        else:
            failed = self._function(_RESULT, _RAISED, 0, units, address)
        if failed:
            raise KernelMemoryError(f"{self.name}: there is no memory for what it computes with.")


def slots_of(signature: Sequence[Any]) -> list[int]:
    """The first slot of each argument."""
    places, place = [], 0
    for kind in signature:
        places.append(place)
        place += len(_format(kind))
    return places


def _format(kind: dtypes.DType | tuple[Any, ...]) -> str:
    """The slots of an argument, as `struct` has them."""
    if isinstance(kind, tuple):
        return "q"
    return {"f": "d", "c": "dd"}.get(kind.dtype.kind, "q")


def _slots(arguments: Sequence[Any], signature: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for x, kind in zip(arguments, signature, strict=True):
        if isinstance(kind, tuple):
            found.append(id(x))
        else:
            found += [x.real, x.imag] if kind.dtype.kind == "c" else [x]
    return found
