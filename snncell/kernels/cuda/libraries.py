"""Matrix products by cuBLAS and Fourier transforms by cuFFT, on the stream and in the memory of a `Runtime`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from snncell.base.signals import import_once
from snncell.errors import DeviceError, DTypeError
from snncell.kernels.cuda.base import Matrix, MemoryBlock, Place, ProductSizes, Runtime

WORKSPACE = 1 << 25  # bytes, as cuBLAS recommends for the largest cards
PLANS = 64  # the capacity of the cache of FFT plans


def _library(name: str, purpose: str, start: bool = False) -> Any:
    """Import a module of bindings, or with `start` create a handle; DeviceError if the library cannot be loaded."""
    try:
        module = import_once(f"nvmath.bindings.{name}")
        return module.create() if start else module
    except Exception as error:
        if not start and not isinstance(error, ImportError):  # an error inside the bindings
            raise
        raise DeviceError(
            f"{purpose} on the GPU need a library that cannot be loaded ({error}). "
            'Install it by pip install "snncell[cuda]".'
        ) from error


# --- products ---------------------------------------------------------------------------------------------------------


class Gemm(NamedTuple):
    """The arguments of cuBLAS's column-major product; `first` and `second` are its A and B."""

    turned: tuple[bool, bool]
    sizes: ProductSizes
    first: Matrix
    second: Matrix
    leading: tuple[int, int, int]


def gemm_arguments(out: Matrix, a: Matrix, b: Matrix, sizes: ProductSizes) -> Gemm:
    """The arguments with which cuBLAS computes the row-major product `out = a @ b`."""
    # A row-major matrix is its transpose in column-major order, and (a @ b).T = b.T @ a.T.
    m, n, k = sizes
    leading = _leading(b, k, n), _leading(a, m, k), _leading(out, m, n)
    return Gemm((b.turned, a.turned), (n, m, k), b, a, leading)


def _leading(matrix: Matrix, rows: int, columns: int) -> int:
    """The leading dimension for cuBLAS, which checks it even for a single row."""
    if matrix.turned:
        rows, columns = columns, rows
    return matrix.leading if rows > 1 else max(matrix.leading, columns, 1)


# For each dtype: cuBLAS's element type, its compute type, and the dtype of alpha and beta.
KINDS: dict[str, tuple[str, str, Any]] = {
    "float16": ("CUDA_R_16F", "COMPUTE_32F", np.float32),
    "bfloat16": ("CUDA_R_16BF", "COMPUTE_32F", np.float32),
    "float32": ("CUDA_R_32F", "COMPUTE_32F", np.float32),
    "float64": ("CUDA_R_64F", "COMPUTE_64F", np.float64),
    "complex64": ("CUDA_C_32F", "COMPUTE_32F", np.complex64),
    "complex128": ("CUDA_C_64F", "COMPUTE_64F", np.complex128),
}


class Blas:
    """cuBLAS; the first product starts it."""

    def __init__(self, device: Runtime) -> None:
        self._device = device
        self._lock = threading.Lock()  # only one thread at a time may use a handle
        self._bindings: Any = None
        self._types: Any = None
        self._handle = 0
        self._workspace: MemoryBlock | None = None
        # cuBLAS reads alpha = 1 and beta = 0 by address.
        self._factors = {kind[2]: (np.zeros(1, kind[2]), np.ones(1, kind[2])) for kind in KINDS.values()}

    def matmul(self, out: Matrix, a: Matrix, b: Matrix, sizes: ProductSizes, dtype: Any, batch: int = 1) -> None:
        """See `Runtime.matmul`."""
        name = np.dtype(dtype).name
        if name not in KINDS:
            raise DTypeError(
                f"The GPU cannot multiply {name} matrices. Convert them to one of these dtypes: {', '.join(KINDS)}."
            )
        if not (sizes[0] and sizes[1] and batch):
            return
        self._device.enter()
        with self._device.in_order(), self._lock:
            if self._bindings is None:
                self._begin()
            cublas = self._bindings
            element, way, factor = KINDS[name]
            kind = int(self._types[element])
            gemm = gemm_arguments(out, a, b, sizes)
            transposed = (int(cublas.Operation.T if turned else cublas.Operation.N) for turned in gemm.turned)
            matrices = zip((gemm.first, gemm.second, out), gemm.leading, strict=True)
            operands = [(x.block.pointer + x.offset, kind, leading, x.stride) for x, leading in matrices]
            zero, one = (number.ctypes.data for number in self._factors[factor])
            cublas.gemm_strided_batched_ex_64(
                *(self._handle, *transposed, *gemm.sizes, one),
                *operands[0],
                *operands[1],
                zero,  # beta: with 0, cuBLAS does not read `out`
                *operands[2],
                *(batch, int(cublas.ComputeType[way]), int(cublas.GemmAlgo.DEFAULT)),
            )

    def _begin(self) -> None:
        cublas = _library("cublas", "Matrix products")
        self._device.enter()
        self._handle = _library("cublas", "Matrix products", start=True)
        self._types = import_once("nvmath").CudaDataType
        cublas.set_stream(self._handle, self._device.stream)
        # With a fixed workspace, a product gives the same bits each time. `set_stream` resets it, so it comes after.
        self._workspace = self._device.allocate(WORKSPACE)
        cublas.set_workspace(self._handle, self._workspace.pointer, WORKSPACE)
        cublas.set_math_mode(self._handle, int(cublas.Math.DISALLOW_REDUCED_PRECISION_REDUCTION))  # sums of halves
        self._bindings = cublas


# --- Fourier transforms -----------------------------------------------------------------------------------------------

# For each kind cuFFT's name in single and in double precision.
_TRANSFORMS = {"c2c": ("C2C", "Z2Z"), "r2c": ("R2C", "D2Z"), "c2r": ("C2R", "Z2D")}
_FORWARD, _INVERSE = -1, 1


class _Plan(NamedTuple):
    handle: int
    work: int  # bytes


class Fft:
    """cuFFT, with a cache of the most recent plans."""

    def __init__(self, device: Runtime) -> None:
        self._device = device
        self._lock = threading.Lock()  # only one thread at a time may use a plan
        self._plans: OrderedDict[tuple[str, int, int], _Plan] = OrderedDict()

    def run(
        self, kind: str, source: Place, target: Place, length: int, batch: int, double: bool, inverse: bool
    ) -> None:
        """See `Runtime.fft`."""
        if not batch:
            return
        name = _TRANSFORMS[kind][double]
        device = self._device
        device.enter()
        with device.in_order(), self._lock:
            cufft = _library("cufft", "Fourier transforms")
            plan = self._plan(cufft, name, length, batch)
            work = device.allocate(plan.work)
            read = source
            try:
                if kind == "c2r":  # it may overwrite its input
                    size = batch * (length // 2 + 1) * (16 if double else 8)
                    read = device.allocate(size), 0
                    device.copy(*source, *read, size)
                cufft.set_work_area(plan.handle, work.pointer)
                direction = (_INVERSE if inverse else _FORWARD,) if kind == "c2c" else ()
                execute = getattr(cufft, f"exec_{name.lower()}")
                execute(plan.handle, read[0].pointer + read[1], target[0].pointer + target[1], *direction)
            finally:
                device.release(work)
                if read is not source:
                    device.release(read[0])

    def _plan(self, cufft: Any, name: str, length: int, batch: int) -> _Plan:
        key = name, length, batch
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._new_plan(cufft, name, length, batch)
            if len(self._plans) > PLANS and not self._device.recorded:  # a recording may use the oldest plan
                self._device.synchronize()  # the oldest plan may be running
                cufft.destroy(self._plans.popitem(last=False)[1].handle)
        self._plans.move_to_end(key)
        return plan

    def _new_plan(self, cufft: Any, name: str, length: int, batch: int) -> _Plan:
        half = length // 2 + 1
        read = half if name in ("C2R", "Z2D") else length
        written = half if name in ("R2C", "D2Z") else length
        handle = _library("cufft", "Fourier transforms", start=True)
        cufft.set_auto_allocation(handle, 0)  # the work area comes from the pool
        kind = int(cufft.Type[name])
        work = cufft.make_plan_many64(handle, 1, [length], [read], 1, read, [written], 1, written, kind, batch)
        cufft.set_stream(handle, self._device.stream)
        return _Plan(handle, int(work))
