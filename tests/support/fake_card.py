"""A fake GPU in Python: the driver and NVIDIA libraries that `DriverRuntime` calls, on the host's memory.

Work on the stream runs only when the caller waits for it, as late as a real GPU could run it.
"""

# ruff: noqa: N802, N815 - the driver's names
from __future__ import annotations

import ctypes
import enum
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np


class Status(enum.IntEnum):
    """The driver's status codes."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804
    CUDA_ERROR_UNKNOWN = 999


STREAM = 77
OK = (Status.CUDA_SUCCESS,)


class Card:
    """Memory of `size` bytes, a stream, and a record of requests.

    Attributes:
        threads: threads that made this GPU current.
        fails: the status that the next call of a driver function returns, by name.
        launched: (grid, threads, shared, kernel, arguments) of each kernel.
    """

    def __init__(self, size: int = 1 << 30) -> None:
        self.size = size
        self.used = 0
        self.memory: dict[int, Any] = {}
        self.queue: list[Callable[[], None]] = []
        self.threads: set[int] = set()
        self.fails: dict[str, Status] = {}
        self.launched: list[tuple[Any, ...]] = []
        self.plans: dict[int, Any] = {}

    def modules(self) -> dict[str, Any]:
        """Replacements for NVIDIA's packages in `sys.modules`."""
        return {
            "cuda.bindings.driver": _Driver(self),
            "cuda.bindings.nvjitlink": SimpleNamespace(version=lambda: (13, 5)),
            "cuda.core": self._core(),
            "nvmath": SimpleNamespace(CudaDataType=DATA_TYPES),
            "nvmath.bindings.cublas": _Cublas(self),
            "nvmath.bindings.cufft": _Cufft(self),
        }

    def finish(self, until: Callable[[], None] | None = None) -> None:
        """Run the work on the stream, to the end or to an event."""
        while self.queue:
            work = self.queue.pop(0)
            work()
            if work is until:
                return

    def _core(self) -> Any:
        card = self

        class Device:
            name = "Card of Python's"
            compute_capability = (8, 6)

            def __init__(self, number: int) -> None:
                assert number == 0

            def set_current(self) -> None:
                card.threads.add(threading.get_ident())

            def create_stream(self, options: Any) -> Any:
                assert options == {"nonblocking": True}
                return SimpleNamespace(handle=STREAM)

        class ObjectCode:
            def __init__(self, cubin: bytes) -> None:
                self.cubin = cubin

            @classmethod
            def from_cubin(cls, cubin: bytes, *, name: str) -> Any:
                if cubin != b"good":
                    raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
                return cls(cubin)

            def get_kernel(self, name: str) -> str:
                return name

        def launch(stream: Any, config: Any, kernel: Any, *arguments: Any) -> None:
            if config["block"] > 1024:
                raise RuntimeError("CUDA_ERROR_INVALID_VALUE")
            card.launched.append((config["grid"], config["block"], config["shmem_size"], kernel, arguments))

        return SimpleNamespace(
            Device=Device, ObjectCode=ObjectCode, StreamOptions=dict, LaunchConfig=dict, launch=launch
        )


class _Driver:
    """`cuda.bindings.driver`: each function returns its status, then its results."""

    CUresult = Status
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)

    def __init__(self, card: Card) -> None:
        self._card = card

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name not in ("cuInit", "cuDriverGetVersion", "cuGetErrorString"):
            card = object.__getattribute__(self, "_card")
            if threading.get_ident() not in card.threads:
                return lambda *arguments: (Status.CUDA_ERROR_INVALID_CONTEXT,)
            if name in card.fails:
                return lambda *arguments: (card.fails.pop(name),)
        return object.__getattribute__(self, name)

    def cuInit(self, flags: int) -> Any:
        return (self._card.fails.get("cuInit", Status.CUDA_SUCCESS),)

    def cuDriverGetVersion(self) -> Any:
        return Status.CUDA_SUCCESS, 13_020

    def cuGetErrorString(self, status: Status) -> Any:
        return Status.CUDA_SUCCESS, status.name.lower().encode()

    def cuMemAlloc(self, size: int) -> Any:
        if self._card.used + size > self._card.size:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY, None)
        memory = np.empty(size, np.uint8)
        memory[:4096] = 0xAB
        self._card.memory[memory.ctypes.data] = memory
        self._card.used += size
        return Status.CUDA_SUCCESS, memory.ctypes.data

    def cuMemFree(self, pointer: int) -> Any:
        self._card.finish()
        self._card.used -= self._card.memory.pop(pointer).size
        return OK

    def cuMemGetInfo(self) -> Any:
        return Status.CUDA_SUCCESS, self._card.size - self._card.used, self._card.size

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        self.staging = np.empty(size, np.uint8)
        return Status.CUDA_SUCCESS, self.staging.ctypes.data

    def _copy(self, target: int, source: int, size: int, stream: int) -> Any:
        assert stream == STREAM
        self._card.queue.append(lambda: ctypes.memmove(target, source, size))
        return OK

    cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = _copy

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: int) -> Any:
        self._card.queue.append(lambda: ctypes.memset(target, value, size))
        return OK

    def cuStreamSynchronize(self, stream: int) -> Any:
        if stream == STREAM:
            self._card.finish()
        else:
            self._card.launched.append(("waited", stream))
        return OK

    def cuEventCreate(self, flags: int) -> Any:
        return Status.CUDA_SUCCESS, SimpleNamespace(mark=None)

    def cuEventRecord(self, event: Any, stream: int) -> Any:
        event.mark = lambda: None
        self._card.queue.append(event.mark)
        return OK

    def cuEventSynchronize(self, event: Any) -> Any:
        if event.mark in self._card.queue:
            self._card.finish(event.mark)
        return OK


# --- libraries --------------------------------------------------------------------------------------------------------

DATA_TYPES = enum.IntEnum(
    "DATA_TYPES",
    {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_C_32F": 4, "CUDA_C_64F": 5, "CUDA_R_16BF": 14},
)
_DTYPES = {0: "float32", 1: "float64", 2: "float16", 4: "complex64", 5: "complex128", 14: "bfloat16"}
_FACTORS = {
    68: {2: "float32", 0: "float32", 4: "complex64", 14: "float32"},
    77: {0: "float32"},
    70: {1: "float64", 5: "complex128"},
}


def at(pointer: int, size: int, dtype: Any) -> Any:
    """`size` elements starting at an address."""
    dtype = np.dtype(dtype)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (size * dtype.itemsize)).from_address(pointer)).view(dtype)


def _by_columns(pointer: int, rows: int, columns: int, leading: int, dtype: Any) -> Any:
    assert leading >= max(1, rows), "cuBLAS refuses it"
    flat = at(pointer, (columns - 1) * leading + rows if columns else 0, dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, leading * flat.itemsize))


class _Cublas:
    """`nvmath.bindings.cublas`: products of column-major matrices."""

    Operation = enum.IntEnum("Operation", {"N": 0, "T": 1})
    ComputeType = enum.IntEnum("ComputeType", {"COMPUTE_32F": 68, "COMPUTE_32F_FAST_TF32": 77, "COMPUTE_64F": 70})
    GemmAlgo = enum.IntEnum("GemmAlgo", {"DEFAULT": -1})
    Math = enum.IntEnum("Math", {"DEFAULT_MATH": 0, "DISALLOW_REDUCED_PRECISION_REDUCTION": 16})

    def __init__(self, card: Card) -> None:
        self._card = card
        self.calls: list[tuple[Any, ...]] = []

    def create(self) -> int:
        self.calls.append(("create",))
        return 5

    def set_stream(self, handle: int, stream: int) -> None:
        self.calls.append(("stream", stream))

    def set_workspace(self, handle: int, pointer: int, size: int) -> None:
        assert self._card.memory[pointer].size >= size
        self.calls.append(("workspace", size))

    def set_math_mode(self, handle: int, mode: int) -> None:
        self.calls.append(("math", mode))

    def gemm_strided_batched_ex_64(
        self, handle, transa, transb, m, n, k, alpha, a, atype, lda, stride_a, b, btype, ldb, stride_b, beta, c, ctype,
        ldc, stride_c, batch, compute, algo,
    ) -> None:  # fmt: skip
        assert handle == 5 and atype == btype == ctype and algo == -1
        dtype = np.dtype(_DTYPES[atype])
        factors = [at(pointer, 1, _FACTORS[compute][atype])[0] for pointer in (alpha, beta)]
        self.calls.append(("gemm", compute))

        def work() -> None:
            for turn in range(batch):
                of_a, of_b, of_c = (turn * stride * dtype.itemsize for stride in (stride_a, stride_b, stride_c))
                left = _by_columns(a + of_a, *((k, m) if transa else (m, k)), lda, dtype)
                right = _by_columns(b + of_b, *((n, k) if transb else (k, n)), ldb, dtype)
                target = _by_columns(c + of_c, m, n, ldc, dtype)
                left, right = (left.T if transa else left), (right.T if transb else right)
                product = factors[0] * (left.astype(factors[0].dtype) @ right.astype(factors[0].dtype))
                target[...] = product + factors[1] * target if factors[1] else product

        self._card.queue.append(work)


class _Cufft:
    """`nvmath.bindings.cufft`: one-dimensional transforms of contiguous arrays."""

    Type = enum.IntEnum("Type", {"R2C": 42, "C2R": 44, "C2C": 41, "D2Z": 106, "Z2D": 108, "Z2Z": 105})

    def __init__(self, card: Card) -> None:
        self._card = card
        self.alive: dict[int, Any] = {}
        self.made = 0

    def create(self) -> int:
        self.made += 1
        self.alive[self.made] = SimpleNamespace(own_memory=True, work=None, stream=None)
        return self.made

    def destroy(self, plan: int) -> None:
        del self.alive[plan]

    def set_auto_allocation(self, plan: int, value: int) -> None:
        self.alive[plan].own_memory = bool(value)

    def make_plan_many64(
        self, plan, rank, n, inembed, istride, idist, onembed, ostride, odist, kind, batch
    ) -> int:  # fmt: skip
        assert rank == istride == ostride == 1 and inembed == [idist] and onembed == [odist]
        made = self.alive[plan]
        assert not made.own_memory
        made.length, made.read, made.written, made.kind, made.batch = n[0], idist, odist, self.Type(kind), batch
        return 1000

    def set_work_area(self, plan: int, pointer: int) -> None:
        assert self._card.memory[pointer].size >= 1000
        self.alive[plan].work = pointer

    def set_stream(self, plan: int, stream: int) -> None:
        assert stream == STREAM
        self.alive[plan].stream = stream

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("exec_"):
            raise AttributeError(name)
        kind = self.Type[name.removeprefix("exec_").upper()]

        def execute(plan: int, source: int, target: int, direction: int | None = None) -> None:
            made = self.alive[plan]
            assert made.kind == kind and made.stream == STREAM and made.work is not None
            assert (direction is not None) == (kind.name in ("C2C", "Z2Z"))
            self._card.queue.append(lambda: _transform(made, kind.name, source, target, direction))

        return execute


def _transform(plan: Any, kind: str, source: int, target: int, direction: int | None) -> None:
    real, complex_ = ("f8", "c16") if "Z" in kind else ("f4", "c8")
    read_dtype = real if kind[0] in "RD" else complex_
    read = at(source, plan.batch * plan.read, read_dtype).reshape(plan.batch, plan.read)
    written = at(target, plan.batch * plan.written, real if kind[2] in "RD" else complex_)
    if kind in ("C2R", "Z2D"):
        values = np.fft.irfft(read, plan.length, norm="forward")
        read[...] = np.nan  # cuFFT may do so
    elif kind in ("R2C", "D2Z"):
        values = np.fft.rfft(read)
    else:
        values = np.fft.fft(read) if direction == -1 else np.fft.ifft(read, norm="forward")
    written[:] = values.reshape(-1)
