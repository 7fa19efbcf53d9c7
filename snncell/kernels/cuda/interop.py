"""Device arrays for other libraries and from them, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import DeviceError
from snncell.kernels.cuda import exchange
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.cuda.runtime import MemoryBlock, is_simulated, runtime


class _Borrowed:
    """Memory that belongs to another library, in the place of `Memory`."""

    __slots__ = ("__weakref__", "block", "device")

    def __init__(self, block: MemoryBlock) -> None:
        self.block = block
        self.device = runtime()

    def __del__(self) -> None:
        self.device.settle(self.block.owner)  # its library may use it again at once, on another stream


class _Exported:
    """Memory that another library has, on whose stream it may be read after the last reference is gone."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.device = runtime()

    def __del__(self) -> None:
        self.device.settle(self.memory, everywhere=True)


def _still(array: DeviceArray) -> DeviceArray:
    """The array, in memory that stays where it is: what a recording has lent is copied."""
    part = getattr(array.memory, "part", None)
    if part is not None:
        part()
    return array


def adopt_array(source: Any) -> DeviceArray:
    """The elements of another library's array, where they are."""
    here = runtime()
    described = getattr(source, "__cuda_array_interface__", {})
    # The interface has no name for bfloat16: some call it raw bytes there.
    by_interface = described and not (described["typestr"] == "<V2" and hasattr(source, "__dlpack__"))
    foreign = exchange.from_interface(source) if by_interface else exchange.from_dlpack(source, here.stream)
    dtypes.as_dtype(foreign.dtype)
    size, card = foreign.dtype.itemsize, foreign.device[1]
    if card != 0:
        raise DeviceError(
            f"{type(source).__name__}: it is on card {card}, and snncell computes on card 0. Copy it there."
        )
    if any(step % size for step in foreign.strides):
        raise DeviceError(f"{type(source).__name__}: its strides are no multiples of an element. Copy it first.")
    here.wait_for(foreign.stream)
    before, after = foreign.span
    first = foreign.pointer - before
    seen = np.ctypeslib.as_array((ctypes.c_uint8 * (before + after)).from_address(first)) if is_simulated() else None
    block = MemoryBlock(first, before + after, bytes=seen, owner=foreign.owner)
    steps = tuple(step // size for step in foreign.strides)
    return DeviceArray(_Borrowed(block), before // size, foreign.shape, steps, np.dtype(foreign.dtype))


def interface_of(array: DeviceArray) -> dict[str, Any]:
    """The value of `__cuda_array_interface__`."""
    array = _still(array)
    strides = tuple(step * array.dtype.itemsize for step in array.strides)
    # Numba's simulator has no stream; what it was asked for is done.
    return exchange.interface(array.pointer, array.shape, strides, array.dtype, stream=runtime().stream, readonly=True)


def capsule_of(array: DeviceArray, stream: int | None) -> Any:
    """A DLPack capsule; the memory is ready when this returns, unless the consumer says that it waits itself."""
    array = _still(array)
    if exchange.must_wait(stream):
        runtime().synchronize()
    strides = tuple(step * array.dtype.itemsize for step in array.strides)
    return exchange.capsule_of(array.pointer, array.shape, strides, array.dtype, _Exported(array.memory))
