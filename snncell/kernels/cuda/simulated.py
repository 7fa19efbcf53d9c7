"""A device on Numba's CUDA simulator: NumPy memory, kernels that run as Python, products and FFTs on the host.

You can use it to test without a card, or to run a debugger inside of a kernel. A CUDA thread takes some microseconds,
or milliseconds if threads synchronise or share memory.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from snncell import dtype as dtypes
from snncell.base.signals import import_once
from snncell.errors import DTypeError
from snncell.kernels.arrays import allocate_aligned
from snncell.kernels.cuda.base import Matrix, MemoryBlock, OutOfMemory, Place, ProductSizes, Runtime, as_bytes

_M = TypeVar("_M", bound=Callable[..., None])


class SimulatedKernel(NamedTuple):
    """A kernel as a Python function."""

    name: str
    function: Any  # of `policy.simulate`
    signature: tuple[Any, ...]  # the types of its arguments (see `build`)
    threads_meet: bool  # True if the threads of a block synchronise or share memory


def _recordable(method: _M) -> _M:
    """A decorator: during a recording, note the call instead of running it."""

    @functools.wraps(method)
    def noted(self: Any, *arguments: Any, **options: Any) -> None:
        self._threads.add(threading.get_ident())
        with self._recording:
            if self.recording:
                self._calls.append((method, arguments, options))
            else:
                method(self, *arguments, **options)

    return noted  # type: ignore[return-value]


class SimulatedRuntime(Runtime):
    """The simulator as a Runtime."""

    name = "CUDA simulator"
    capability = (5, 2)  # as Numba's simulator reports it

    def __init__(self) -> None:
        super().__init__()
        self._launching = threading.Lock()  # the simulator runs one kernel at a time
        self._calls: list[Any] = []  # the calls of the current recording

    def _in_child(self) -> None:
        super()._in_child()
        self._launching = threading.Lock()

    def _new(self, size: int) -> tuple[int, Any]:
        try:
            memory = allocate_aligned(size)
        except MemoryError:
            raise OutOfMemory from None
        return memory.ctypes.data, memory

    def _free(self, pointer: int) -> None:
        pass  # the array is freed with its block

    def _memory(self) -> tuple[int, int]:
        return 0, self._total

    def _capture(self, run: Callable[[], None]) -> Any:
        self._calls = []
        run()
        return self._calls

    def play(self, recording: Any) -> None:
        for method, arguments, options in recording:
            method(self, *arguments, **options)

    def upload(self, array: Any, block: MemoryBlock, offset: int = 0) -> None:
        self._refuse_to_record("it takes an array of the host")
        block.bytes[offset : offset + array.nbytes] = as_bytes(array)

    def download(self, block: MemoryBlock, offset: int, array: Any) -> None:
        self._refuse_to_record("it looks at a value on the host")
        as_bytes(array)[:] = block.bytes[offset : offset + array.nbytes]

    @_recordable
    def copy(self, source: MemoryBlock, source_offset: int, target: MemoryBlock, target_offset: int, size: int) -> None:
        target.bytes[target_offset : target_offset + size] = source.bytes[source_offset : source_offset + size]

    @_recordable
    def clear(self, block: MemoryBlock, offset: int, size: int) -> None:
        block.bytes[offset : offset + size] = 0

    def synchronize(self) -> None:
        """Do nothing, because the simulator is synchronous."""
        self._refuse_to_record("it waits for the card")

    def wait_for(self, stream: int | None) -> None:
        """Do nothing, because the simulator is synchronous."""

    @_recordable
    def launch(
        self, kernel: SimulatedKernel, grid: int, threads: int, arguments: Sequence[Any], shared: int = 0
    ) -> None:
        """Run a kernel, one thread after the other."""
        # Check the arguments, because a card does not: it would read wrong bytes if they do not match the signature.
        if len(arguments) != len(kernel.signature):
            raise DTypeError(f"{kernel.name}: got {len(arguments)} arguments for {len(kernel.signature)} parameters.")
        pairs = enumerate(zip(arguments, kernel.signature, strict=True))
        values = [_argument(f"{kernel.name}, argument {n}", argument, parameter) for n, (argument, parameter) in pairs]
        if grid:
            with self._launching:
                run = _run_interacting if kernel.threads_meet else _run_independent
                run(kernel.function, grid, threads, values, shared)

    @_recordable
    def matmul(self, out: Matrix, a: Matrix, b: Matrix, sizes: ProductSizes, dtype: Any, batch: int = 1) -> None:
        """Matrix products by NumPy; halves are multiplied and accumulated in float32, as on the card."""
        m, n, k = sizes
        left, right = _view_matrices(a, m, k, batch, dtype), _view_matrices(b, k, n, batch, dtype)
        target = _view_matrices(out, m, n, batch, dtype)
        left, right = (x.astype(dtypes.compute_dtype(x.dtype), copy=False) for x in (left, right))
        with np.errstate(all="ignore"):
            target[...] = np.matmul(left, right)

    @_recordable
    def fft(
        self, kind: str, source: Place, target: Place, length: int, batch: int, double: bool, inverse: bool
    ) -> None:
        """Fourier transforms by SciPy."""
        transforms: Any = import_once("scipy.fft")
        half = length // 2 + 1
        shapes = {"c2c": (length, length), "r2c": (length, half), "c2r": (half, length)}[kind]
        real, complex_ = (np.float64, np.complex128) if double else (np.float32, np.complex64)
        read = _flat(source, np.dtype(real if kind == "r2c" else complex_))[: batch * shapes[0]]
        written = _flat(target, np.dtype(real if kind == "c2r" else complex_))[: batch * shapes[1]]
        complex_fft = transforms.ifft if inverse else transforms.fft
        functions = {"c2c": complex_fft, "r2c": transforms.rfft, "c2r": transforms.irfft}
        norm = "forward" if kind == "c2r" or inverse else "backward"  # divides in the other direction, so not here
        if batch:
            written[:] = functions[kind](read.reshape(batch, shapes[0]), n=length, norm=norm).reshape(-1)


def _run_interacting(function: Any, grid: int, threads: int, values: Sequence[Any], shared: int) -> None:
    """Run a kernel with one Python thread per CUDA thread, as the simulator does."""
    devices: Any = import_once("numba.cuda.simulator.cudadrv.devicearray")
    # The simulator would copy plain arrays in and out, and so overwrite results written through aliases.
    arrays = [devices.FakeCUDAArray(x) if isinstance(x, np.ndarray) else x for x in values]
    function[grid, threads, 0, shared](*arrays)


def _run_independent(function: Any, grid: int, threads: int, values: Sequence[Any], shared: int) -> None:
    """Run a kernel whose threads do not interact on a single Python thread, which is a hundred times faster."""
    api: Any = import_once("numba.cuda.simulator.kernelapi")
    inside: Any = import_once("numba.cuda.simulator.kernel")._push_kernel_context
    module = api.FakeCUDAModule((grid, 1, 1), (threads, 1, 1), shared)
    place: Any = threading.current_thread()  # the simulator reads the position in the grid from its attributes
    with inside(module), api.swapped_cuda_module(function.fn, module):
        try:
            for block in range(grid):
                place.blockIdx = api.Dim3(block, 0, 0)
                for thread in range(threads):
                    place.threadIdx = api.Dim3(thread, 0, 0)
                    function.fn(*values)
        finally:
            place.__dict__.pop("blockIdx", None)
            place.__dict__.pop("threadIdx", None)


def _flat(place: Place, dtype: Any) -> Any:
    """All elements from a place to the end of its block."""
    block, offset = place
    room = (block.size - offset) // dtype.itemsize * dtype.itemsize
    return block.bytes[offset : offset + room].view(dtype)


def _view_matrices(matrix: Matrix, rows: int, columns: int, batch: int, dtype: Any) -> Any:
    if matrix.turned:
        rows, columns = columns, rows
    flat, size = _flat((matrix.block, matrix.offset), np.dtype(dtype)), np.dtype(dtype).itemsize
    strides = matrix.stride * size, matrix.leading * size, size
    view = np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)
    return view.transpose(0, 2, 1) if matrix.turned else view


def _argument(where: str, argument: Any, parameter: Any) -> Any:
    if not isinstance(parameter, tuple):
        # A Python int is accepted only for int64, because the card would read a Python float as a double.
        fits = type(argument) is int if parameter == np.int64 else getattr(argument, "dtype", None) == parameter.dtype
        if not fits and not (isinstance(argument, np.int64) and parameter == np.int64):
            raise DTypeError(f"{where}: the kernel takes a {parameter.name}, not {argument!r}.")
        return argument
    dtype, writable = parameter
    block, offset, dtype_of_array = argument
    if dtype_of_array != dtype.dtype:
        raise DTypeError(f"{where}: the kernel takes an array of {dtype.name}, not of {dtype_of_array}.")
    array = _flat((block, offset), dtypes.in_memory(dtype))
    array.flags.writeable = writable
    return array
