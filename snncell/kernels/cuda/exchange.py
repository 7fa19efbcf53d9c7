"""Zero-copy exchange of device memory with other libraries: DLPack capsules and `__cuda_array_interface__`.

Both protocols describe memory by address, shape and strides. Strides are in bytes here, as in NumPy. Exports use the
unversioned structure of DLPack ("dltensor"), which all consumers support.
"""

from __future__ import annotations

import ctypes
from ctypes import pythonapi
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import ArgumentError, DeviceError, DTypeError
from snncell.kernels.cuda.arrays import DeviceArray, dense
from snncell.kernels.cuda.base import MemoryBlock
from snncell.kernels.cuda.runtime import is_simulated, runtime

CPU, CUDA = 1, 2  # DLPack's device types


class Foreign(NamedTuple):
    """Memory of another library."""

    pointer: int  # the address of the first element
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: Any
    device: tuple[int, int]  # DLPack's device type and number
    owner: Any  # the object that keeps the memory alive
    stream: int | None = None  # wait for its work before you use the memory (`Runtime.wait_for`)

    @property
    def span(self) -> tuple[int, int]:
        """The extent of the elements in bytes: before the first element, and from the first element on."""
        if 0 in self.shape:
            return 0, 0
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        return -sum(x for x in reach if x < 0), sum(x for x in reach if x > 0) + int(self.dtype.itemsize)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in bytes."""
    return tuple(itemsize * step for step in dense(shape))


# --- __cuda_array_interface__ -----------------------------------------------------------------------------------------


def interface(
    pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, stream: int | None
) -> dict[str, Any]:
    """The value of `__cuda_array_interface__`, version 3, for read-only memory; consumers wait for `stream`."""
    return {
        "shape": shape,
        "typestr": dtype.str,
        "data": (0 if 0 in shape else pointer, True),
        "strides": None if strides == c_strides(shape, dtype.itemsize) else strides,
        "stream": stream,
        "version": 3,
    }


def from_interface(source: Any) -> Foreign:
    """The memory of an object with `__cuda_array_interface__`."""
    described = source.__cuda_array_interface__
    kind = type(source).__name__
    dtype = np.dtype(described["typestr"])
    if not dtype.isnative or dtype.kind not in "biufc":
        raise DTypeError(f"{kind}: the GPU cannot compute with its dtype ({described['typestr']}). Convert it first.")
    if described.get("mask") is not None:
        raise DeviceError(f"{kind}: masked arrays are not supported. Fill in the masked elements first.")
    stream = described.get("stream") if described["version"] >= 3 else 1  # before version 3, the default stream
    if stream == 0:  # the protocol forbids it
        raise DeviceError(
            f"{kind}: its __cuda_array_interface__ gives the stream 0, which is ambiguous: 1 is the legacy default "
            f"stream, 2 the per-thread default stream."
        )
    shape = tuple(int(n) for n in described["shape"])
    strides = described.get("strides") or c_strides(shape, dtype.itemsize)
    return Foreign(int(described["data"][0] or 0), shape, tuple(strides), dtype, (CUDA, 0), source, stream)


# --- DLPack -----------------------------------------------------------------------------------------------------------


class _DLDevice(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


_NAME, _USED = ctypes.c_char_p(b"dltensor"), ctypes.c_char_p(b"used_dltensor")  # capsules refer to these bytes
_CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}  # of NumPy's kinds; "V" is bfloat16
_KINDS = {code: kind for kind, code in _CODES.items()}

_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", pythonapi)
)
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", pythonapi))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", pythonapi))
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", pythonapi))
_let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", pythonapi))


def _release_owner(address: int, let_go: Any = _let_go, managed: Any = _Managed) -> None:
    """The deleter of a capsule, called by its consumer: release the owner."""
    let_go(managed.from_address(address).context)


def _destroy_capsule(
    capsule: int, valid: Any = _valid, pointer: Any = _pointer, end: Any = _release_owner, name: Any = _NAME
) -> None:
    """The destructor of a capsule: release the owner, unless the capsule was consumed and therefore renamed."""
    if valid(capsule, name):
        end(pointer(capsule, name))


# A consumer may outlive this module, so its callbacks must live forever.
_delete, _destroy = _DELETER(_release_owner), _DELETER(_destroy_capsule)
for _callback in (_delete, _destroy, _NAME, _USED):
    _keep(_callback)


def must_wait(stream: int | None) -> bool:
    """True if `__dlpack__(stream=...)` must wait for pending work before it returns."""
    if stream is None:
        return True
    if isinstance(stream, bool) or not isinstance(stream, int) or stream == 0 or stream < -1:
        raise ArgumentError(
            "__dlpack__: stream must be None, -1 (do not wait), 1 or 2 (default streams), or the address of a stream, "
            f"not {stream!r}."
        )
    return stream != -1  # a wait on the host is valid for any stream of the consumer


def capsule_of(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    owner: Any,
    device: tuple[int, int] = (CUDA, 0),
) -> Any:
    """A DLPack capsule for writable memory without pending work (see `must_wait`). The capsule keeps `owner` alive."""
    managed = _Managed()
    tensor = managed.tensor
    lengths = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*(step // dtype.itemsize for step in strides))
    tensor.data = pointer
    tensor.device = _DLDevice(*device)
    tensor.ndim = len(shape)
    tensor.dtype = _DType(_CODES[dtype.kind], 8 * dtype.itemsize, 1)
    tensor.shape, tensor.strides = lengths, steps
    managed.deleter = _delete
    # The structure and this tuple refer to each other: a cycle that only the deleter breaks.
    alive = (managed, lengths, steps, owner)
    managed.context = id(alive)
    _keep(alive)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_destroy, ctypes.c_void_p))


def capsule_of_host(array: Any) -> Any:
    """A DLPack capsule of a NumPy array with dtype bfloat16, which NumPy itself cannot export."""
    return capsule_of(array.ctypes.data, array.shape, array.strides, array.dtype, array, (CPU, 0))


class _Consumed:
    """The owner of a consumed capsule's memory."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def from_dlpack(source: Any, stream: int | None = None) -> Foreign:
    """Import the memory of an object with `__dlpack__`, ready for use on `stream`, or of a capsule."""
    capsule = source
    if hasattr(source, "__dlpack__"):
        on_device = source.__dlpack_device__()[0] == CUDA
        capsule = source.__dlpack__(stream=stream) if on_device else source.__dlpack__()
    # Pass the address, because ctypes would hold a reference to the object only during the call.
    address = id(capsule)
    if type(capsule).__name__ != "PyCapsule" or not _valid(address, _NAME):
        raise DeviceError(
            f"from_dlpack: {capsule!r} is not an unused DLPack capsule. A capsule can be consumed only once: create a "
            f"new one by x.__dlpack__()."
        )
    managed = _Managed.from_address(_pointer(address, _NAME))
    _rename(address, _USED)
    owner = _Consumed(managed)
    tensor = managed.tensor
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    dtype = _dtype_of(tensor.dtype)
    steps = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else c_strides(shape, 1)
    strides = tuple(step * dtype.itemsize for step in steps)
    device = (int(tensor.device.kind), int(tensor.device.number))
    return Foreign((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, device, owner)


def host_array(source: Any) -> Any:
    """`np.from_dlpack`, extended to bfloat16, which is copied."""
    if not str(getattr(source, "dtype", None)).endswith("bfloat16"):
        return np.from_dlpack(source)
    foreign = from_dlpack(source)
    before, after = foreign.span
    memory: Any = (ctypes.c_uint8 * (before + after)).from_address(foreign.pointer - before)
    return np.ndarray(foreign.shape, foreign.dtype, memory, before, foreign.strides).copy()


def _dtype_of(described: Any) -> Any:
    if (described.code, described.bits, described.lanes) == (_CODES["V"], 16, 1):
        return dtypes.bfloat16.dtype
    kind = _KINDS.get(described.code)
    if kind in (None, "V") or described.lanes != 1 or described.bits % 8:
        raise DTypeError(
            f"from_dlpack: snncell has no dtype for DLPack's type code {described.code} with {described.bits} bits and "
            f"{described.lanes} lanes. Convert the array first, for example to float32."
        )
    try:
        return np.dtype(f"{kind}{described.bits // 8}")
    except TypeError:
        raise DTypeError(
            f"from_dlpack: snncell has no dtype of kind {kind!r} with {described.bits} bits. Convert the array first, "
            f"for example to float32."
        ) from None


# --- Device arrays ----------------------------------------------------------------------------------------------------


class _Borrowed:
    """The `memory` of an array with memory of another library."""

    __slots__ = ("__weakref__", "block", "device")

    def __init__(self, block: MemoryBlock) -> None:
        self.block = block
        self.device = runtime()

    def __del__(self) -> None:
        self.device.settle(self.block.owner)  # the other library may reuse the memory immediately, on another stream


class _Exported:
    """Memory that another library uses; its stream may still read the memory after the last reference is gone."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.device = runtime()

    def __del__(self) -> None:
        self.device.settle(self.memory, everywhere=True)


def _detach_from_graph(array: DeviceArray) -> DeviceArray:
    """Copy the memory of a CUDA graph, so that the array's address and elements stay the same."""
    detach = getattr(array.memory, "detach", None)
    if detach is not None:
        detach()
    return array


def adopt_array(source: Any) -> DeviceArray:
    """Wrap another library's array as a DeviceArray, without a copy."""
    here = runtime()
    described = getattr(source, "__cuda_array_interface__", {})
    # The interface has no name for bfloat16; some libraries describe it as raw bytes.
    by_interface = described and not (described["typestr"] == "<V2" and hasattr(source, "__dlpack__"))
    foreign = from_interface(source) if by_interface else from_dlpack(source, here.stream)
    dtypes.as_dtype(foreign.dtype)
    size, card = foreign.dtype.itemsize, foreign.device[1]
    if card != 0:
        raise DeviceError(
            f"{type(source).__name__}: the array is on card {card}, but snncell computes on card 0. Copy it to card 0."
        )
    if any(step % size for step in foreign.strides):
        raise DeviceError(
            f"{type(source).__name__}: its strides are not multiples of the element size. Make a contiguous copy first."
        )
    here.wait_for(foreign.stream)
    before, after = foreign.span
    first = foreign.pointer - before
    seen = np.ctypeslib.as_array((ctypes.c_uint8 * (before + after)).from_address(first)) if is_simulated() else None
    block = MemoryBlock(first, before + after, bytes=seen, owner=foreign.owner)
    steps = tuple(step // size for step in foreign.strides)
    return DeviceArray(_Borrowed(block), before // size, foreign.shape, steps, np.dtype(foreign.dtype))


def interface_of(array: DeviceArray) -> dict[str, Any]:
    """The value of `__cuda_array_interface__` of a DeviceArray."""
    array = _detach_from_graph(array)
    # Numba's simulator has no stream, because its operations run synchronously.
    return interface(array.pointer, array.shape, _strides_in_bytes(array), array.dtype, runtime().stream)


def device_capsule(array: DeviceArray, stream: int | None) -> Any:
    """A DLPack capsule of a DeviceArray; the memory is ready on return, unless the consumer does not want to wait."""
    array = _detach_from_graph(array)
    if must_wait(stream):
        runtime().synchronize()
    return capsule_of(array.pointer, array.shape, _strides_in_bytes(array), array.dtype, _Exported(array.memory))


def _strides_in_bytes(array: DeviceArray) -> tuple[int, ...]:
    return tuple(step * array.dtype.itemsize for step in array.strides)
