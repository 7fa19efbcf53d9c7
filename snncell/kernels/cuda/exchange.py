"""Device memory from and to other libraries without a copy: DLPack's capsules, and `__cuda_array_interface__`.

Both describe memory by address, shape and strides. Here strides are NumPy's, in bytes, and None stands for C order.
What is written here is DLPack 1's first structure ("dltensor"), which all consumers know.
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

CPU, CUDA = 1, 2  # DLPack's numbers for kinds of devices


class Foreign(NamedTuple):
    """Memory of another library."""

    pointer: int  # the address of the first element
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    dtype: Any
    device: tuple[int, int]  # DLPack's kind and number
    owner: Any  # what keeps the memory alive
    stream: int | None = None  # whose work must be waited for before the memory is used (`Runtime.wait_for`)
    readonly: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """The bytes that the elements take before the first one, and from it on."""
        if 0 in self.shape:
            return 0, 0
        reach = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        return -sum(x for x in reach if x < 0), sum(x for x in reach if x > 0) + int(self.dtype.itemsize)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The strides of an array in C order, in bytes."""
    return tuple(itemsize * step for step in dense(shape))


# --- __cuda_array_interface__ -----------------------------------------------------------------------------------------


def interface(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: Any,
    *,
    stream: int | None,
    readonly: bool = False,
) -> dict[str, Any]:
    """The value of `__cuda_array_interface__`, version 3; consumers wait for the work of `stream`, if that is given."""
    dtype = np.dtype(dtype)
    return {
        "shape": shape,
        "typestr": dtype.str,
        "data": (0 if 0 in shape else pointer, readonly),
        "strides": None if strides is None or strides == c_strides(shape, dtype.itemsize) else strides,
        "stream": stream,
        "version": 3,
    }


def from_interface(source: Any) -> Foreign:
    """The memory of an object that has `__cuda_array_interface__`."""
    described = source.__cuda_array_interface__
    kind = type(source).__name__
    dtype = np.dtype(described["typestr"])
    if not dtype.isnative or dtype.kind not in "biufc":
        raise DTypeError(f"{kind}: its elements ({described['typestr']}) are no numbers that the GPU computes with.")
    if described.get("mask") is not None:
        raise DeviceError(f"{kind}: arrays with a mask are not taken. Fill in what it hides first.")
    stream = described.get("stream") if described["version"] >= 3 else 1  # older ones mean the default stream
    if stream == 0:  # which the protocol forbids
        raise DeviceError(
            f"{kind}: its __cuda_array_interface__ gives the stream 0, which says not which one is meant."
        )
    shape = tuple(int(n) for n in described["shape"])
    strides = described.get("strides") or c_strides(shape, dtype.itemsize)
    pointer, readonly = described["data"]
    return Foreign(
        int(pointer or 0), shape, tuple(strides), dtype, (CUDA, 0), source, stream=stream, readonly=bool(readonly)
    )


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


def _end(address: int, let_go: Any = _let_go, managed: Any = _Managed) -> None:
    """Called by a consumer that is done: nothing keeps the owner alive any more."""
    let_go(managed.from_address(address).context)


def _die(capsule: int, valid: Any = _valid, pointer: Any = _pointer, end: Any = _end, name: Any = _NAME) -> None:
    """Called with a capsule that dies; one that was consumed has another name."""
    if valid(capsule, name):
        end(pointer(capsule, name))


# A consumer may die after this module has: what it calls must not.
_delete, _destroy = _DELETER(_end), _DELETER(_die)
for _callback in (_delete, _destroy, _NAME, _USED):
    _keep(_callback)


def must_wait(stream: int | None) -> bool:
    """True if a producer that is asked by `__dlpack__(stream=...)` must wait for its work to be done."""
    if stream is None:
        return True
    if isinstance(stream, bool) or not isinstance(stream, int) or stream == 0 or stream < -1:
        raise ArgumentError(
            "__dlpack__: stream is None, -1 (do not wait), 1 or 2 (default streams), or a stream's address, not "
            f"{stream!r}."
        )
    return stream != -1  # to wait on the host serves whatever stream the consumer goes on with


def capsule_of(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: Any,
    owner: Any,
    device: tuple[int, int] = (CUDA, 0),
) -> Any:
    """A capsule that describes memory for `from_dlpack` of another library, and keeps `owner` alive.

    The work on the memory must be done (see `must_wait`). Consumers may write to it.
    """
    dtype = np.dtype(dtype)
    if strides is None:
        strides = c_strides(shape, dtype.itemsize)
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
    # The structure refers to this tuple, which holds it: a circle that only the deleter opens.
    alive = (managed, lengths, steps, owner)
    managed.context = id(alive)
    _keep(alive)
    return _new(ctypes.addressof(managed), _NAME, ctypes.cast(_destroy, ctypes.c_void_p))


def capsule_of_host(array: Any) -> Any:
    """The same for an array of NumPy's: bfloat16, of which NumPy makes none."""
    return capsule_of(array.ctypes.data, array.shape, array.strides, array.dtype, array, (CPU, 0))


class _Consumed:
    """The owner that keeps the memory of a consumed capsule alive."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.addressof(self._managed))


def from_dlpack(source: Any, stream: int | None = None) -> Foreign:
    """The memory of an object that has `__dlpack__`, made ready for use on `stream`, or of a capsule."""
    capsule = source
    if hasattr(source, "__dlpack__"):
        on_device = source.__dlpack_device__()[0] == CUDA
        capsule = source.__dlpack__(stream=stream) if on_device else source.__dlpack__()
    # By its address: ctypes would take hold of the object only for the call.
    address = id(capsule)
    if type(capsule).__name__ != "PyCapsule" or not _valid(address, _NAME):
        raise DeviceError(
            f"from_dlpack: {capsule!r} is no DLPack capsule that can still be consumed. Ask for a new one."
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
    """`np.from_dlpack`, for bfloat16 too, which is copied."""
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
            f"from_dlpack: snncell has no elements of DLPack's kind {described.code} with {described.bits} bits and "
            f"{described.lanes} lanes. Convert the array first, to float32 for instance."
        )
    try:
        return np.dtype(f"{kind}{described.bits // 8}")
    except TypeError:
        raise DTypeError(f"from_dlpack: snncell has no elements of {described.bits} bits of kind {kind!r}.") from None


# --- Device arrays ----------------------------------------------------------------------------------------------------


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
    foreign = from_interface(source) if by_interface else from_dlpack(source, here.stream)
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
    return interface(array.pointer, array.shape, strides, array.dtype, stream=runtime().stream, readonly=True)


def device_capsule(array: DeviceArray, stream: int | None) -> Any:
    """A DLPack capsule; the memory is ready when this returns, unless the consumer says that it waits itself."""
    array = _still(array)
    if must_wait(stream):
        runtime().synchronize()
    strides = tuple(step * array.dtype.itemsize for step in array.strides)
    return capsule_of(array.pointer, array.shape, strides, array.dtype, _Exported(array.memory))
