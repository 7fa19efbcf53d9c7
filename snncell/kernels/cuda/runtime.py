"""The device of this process, found when it is first asked for: the first CUDA card, or Numba's simulator."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from snncell.base.signals import after_fork, import_once, in_child
from snncell.errors import DeviceError
from snncell.kernels.cuda.base import MemoryBlock, OutOfMemory, Runtime, as_bytes
from snncell.kernels.cuda.libraries import Blas, Fft
from snncell.kernels.cuda.simulated import SimulatedRuntime
from snncell.kernels.scalar import is_simulated as is_simulated

# Bytes of memory that the card reads by itself, through which arrays go there. Two halves: one is filled while the
# other is on its way.
STAGED = 1 << 24

FORKED = (
    "CUDA cannot be used in a forked child after the parent has used it; start the process by spawn: "
    'multiprocessing.get_context("spawn").'
)


# What puts nothing on the stream: a block may die in a thread that holds a lock which the recording one waits for.
_ANYTIME = frozenset(("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuEventCreate", "cuGraphDestroy"))


class DriverRuntime(Runtime):
    """The first card that the driver shows (CUDA_VISIBLE_DEVICES says which that is): one context, one stream."""

    def __init__(self) -> None:
        super().__init__()
        core: Any = import_once("cuda.core")
        self._driver: Any = import_once("cuda.bindings.driver")
        self._core = core
        self._thread = threading.local()
        device = core.Device(0)
        device.set_current()
        self.name = str(device.name)
        major, minor = device.compute_capability
        self.capability = (int(major), int(minor))
        # Without this option it would wait for other libraries' default stream, and that for ours, at each launch.
        self._stream = device.create_stream(options=core.StreamOptions(nonblocking=True))
        self.stream = int(self._stream.handle)
        self._config = functools.lru_cache(maxsize=4096)(
            lambda grid, threads, shared: core.LaunchConfig(grid=grid, block=threads, shmem_size=shared)
        )
        self._staging = _Staging(self)
        self.matmul, self.fft = Blas(self).matmul, Fft(self).run  # type: ignore[method-assign]

    def _in_child(self) -> None:
        super()._in_child()
        self.lost = True

    def enter(self) -> None:
        """Make the card the one of this thread: a thread begins without."""
        if self.lost:
            raise DeviceError(FORKED)
        if not getattr(self._thread, "entered", False):
            self._core.Device(0).set_current()
            self._thread.entered = True
            self._threads.add(threading.get_ident())

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the driver's function `name` on this thread: its result, or an error with the driver's words."""
        self.enter()
        if name in _ANYTIME:
            status, *values = getattr(self._driver, name)(*arguments)
        else:
            with self._recording:  # another thread's call must not become part of a recording
                status, *values = getattr(self._driver, name)(*arguments)
        if int(status):
            if status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise OutOfMemory(f"CUDA: {name} failed: the card has no memory left.")
            said = self._driver.cuGetErrorString(status)[1] or b"which the driver does not explain"
            raise DeviceError(
                f"CUDA: {name} failed: {status.name}, {said.decode()}. It may come from a kernel that ran before; then "
                "CUDA works again in a new process only."
            )
        return values[0] if values else None

    # --- memory ---

    def _new(self, size: int) -> tuple[int, Any]:
        return int(self.call("cuMemAlloc", size)), None

    def _free(self, pointer: int) -> None:
        if not self.lost:  # in a child the memory is the parent's
            self.call("cuMemFree", pointer)  # it waits until the card is done with it

    def _memory(self) -> tuple[int, int]:
        self.enter()
        _, free, total = self._driver.cuMemGetInfo()
        return int(free), int(total)

    # --- copies ---

    def upload(self, array: Any, block: MemoryBlock, offset: int = 0) -> None:
        """Copy a C-contiguous NumPy array to the card, by way of memory of ours: nobody waits for the card."""
        self._refuse_to_record("it takes an array of the host")
        self._staging.send(as_bytes(array), block.pointer + offset)

    def download(self, block: MemoryBlock, offset: int, array: Any) -> None:
        """Copy from the card to a C-contiguous NumPy array, and wait until it is there."""
        self._refuse_to_record("it looks at a value on the host")
        if array.nbytes:
            target = as_bytes(array).ctypes.data
            self.call("cuMemcpyDtoHAsync", target, block.pointer + offset, array.nbytes, self.stream)
        self.synchronize()

    def copy(self, source: MemoryBlock, source_offset: int, target: MemoryBlock, target_offset: int, size: int) -> None:
        """Copy `size` bytes on the card, between places that do not overlap."""
        if size:
            places = target.pointer + target_offset, source.pointer + source_offset
            self.call("cuMemcpyDtoDAsync", *places, size, self.stream)

    def clear(self, block: MemoryBlock, offset: int, size: int) -> None:
        """Fill `size` bytes with zeros."""
        if size:
            self.call("cuMemsetD8Async", block.pointer + offset, 0, size, self.stream)

    def synchronize(self) -> None:
        """Wait until all that was asked for is done."""
        self._refuse_to_record("it waits for the card")
        self.call("cuStreamSynchronize", self.stream)

    def _wait_for_all(self) -> None:
        self.call("cuCtxSynchronize")

    def wait_for(self, stream: int | None) -> None:
        """Wait for another library's stream; 1 and 2 are the two default streams."""
        if stream is not None:
            self.call("cuStreamSynchronize", stream)

    # --- recording ---

    def _recorded(self, run: Callable[[], None]) -> Any:
        """A CUDA graph, made by capturing the stream."""
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.call("cuStreamBeginCapture", self.stream, mode)
        try:
            run()
        except BaseException:
            with suppress(DeviceError):  # the capture may have been broken off by what went wrong
                self.call("cuGraphDestroy", self.call("cuStreamEndCapture", self.stream))
            raise
        graph = self.call("cuStreamEndCapture", self.stream)
        try:
            return _Graph(self, self.call("cuGraphInstantiate", graph, 0))
        finally:
            self.call("cuGraphDestroy", graph)

    def play(self, recording: Any) -> None:
        """Launch a graph."""
        self.call("cuGraphLaunch", recording.handle, self.stream)

    # --- kernels ---

    def load(self, cubin: bytes, name: str) -> Any:
        """The kernel `name` of a cubin."""
        self.enter()
        try:
            return self._core.ObjectCode.from_cubin(cubin, name=name).get_kernel(name)
        except Exception as error:  # CUDAError, which is no public name
            raise DeviceError(f"CUDA: the kernel {name} cannot be loaded: {error}") from error

    def launch(self, kernel: Any, grid: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        """Run a kernel."""
        if not grid:
            return
        self.enter()
        packed: list[Any] = []
        for argument in arguments:
            if type(argument) is tuple:
                packed.append(argument[0].pointer + argument[1])
            elif isinstance(argument, np.complexfloating):  # Numba's kernels take its parts
                packed += [argument.real, argument.imag]
            else:
                packed.append(argument)
        try:
            with self._recording:
                self._core.launch(self._stream, self._config(grid, threads, shared), kernel, *packed)
        except Exception as error:
            raise DeviceError(
                f"CUDA: a kernel cannot be launched on {grid} blocks of {threads} threads: {error}"
            ) from error


class _Graph:
    """A graph that can be launched; it is destroyed with this object."""

    def __init__(self, device: DriverRuntime, handle: Any) -> None:
        self._device = device
        self.handle = handle

    def __del__(self) -> None:
        if not self._device.lost:
            self._device.call("cuGraphExecDestroy", self.handle)


class _Staging:
    """Copies from the host's memory, which the caller may change at once, while the card is still busy."""

    # Arrays are copied to memory that the card reads by itself, as long as there is room in the half that is being
    # filled; then the other half is filled, when the card is done with what was in it.

    def __init__(self, device: DriverRuntime) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._bytes: Any = None
        self._used = 0  # of the half that is being filled
        self._half = 0
        self._events: list[Any] = []

    def send(self, array: Any, pointer: int) -> None:
        """Copy bytes to an address on the card."""
        device, half = self._device, STAGED // 2
        with self._lock:
            if self._bytes is None:
                self._begin()
            done = 0
            while done < array.size:
                if self._used == half:
                    self._turn()
                size = min(array.size - done, half - self._used)
                start = self._half * half + self._used
                self._bytes[start : start + size] = array[done : done + size]
                device.call("cuMemcpyHtoDAsync", pointer + done, self._address + start, size, device.stream)
                self._used += size
                done += size

    def _begin(self) -> None:
        flags = self._device._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._events = [self._device.call("cuEventCreate", flags) for _ in range(2)]
        self._address = int(self._device.call("cuMemHostAlloc", STAGED, 0))
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * STAGED).from_address(self._address))

    def _turn(self) -> None:
        """Go on in the other half."""
        self._device.call("cuEventRecord", self._events[self._half], self._device.stream)
        self._half, self._used = 1 - self._half, 0
        self._device.call("cuEventSynchronize", self._events[self._half])  # at once if it was never recorded


OLDEST = (7, 5)  # the first capability that CUDA 13 makes code for
IN_USE: list[bool] = []  # not empty once there may be device arrays: eager operations look for them only then


def _driver_runtime() -> DriverRuntime:
    """The first card, if all that it needs is there; else a DeviceError says what is missing."""
    mend = 'pip install "snncell[cuda]"'
    try:
        driver: Any = import_once("cuda.bindings.driver")
        linker: Any = import_once("cuda.bindings.nvjitlink")
        import_once("cuda.core")
        importlib.metadata.version("numba-cuda")
    except ImportError as error:
        raise DeviceError(f"The GPU needs packages that are not installed ({error}): {mend}.") from error
    _start(driver)
    try:
        cuda_version = linker.version()[0]
    except Exception as error:  # of its own kind where nvJitLink is not there
        raise DeviceError(f"The GPU needs nvJitLink, which cannot be loaded ({error}): {mend}.") from error
    _, version = driver.cuDriverGetVersion()
    if version // 1000 < cuda_version:
        raise DeviceError(
            f"The NVIDIA driver is too old: it knows CUDA {version // 1000}.{version % 1000 // 10}, and the installed "
            f"packages make code for CUDA {cuda_version}. Update the driver, or install the packages for its version: "
            f'pip install "numba-cuda[cu{version // 1000}]".'
        )
    card = DriverRuntime()
    if card.capability < OLDEST:
        raise DeviceError(
            f"{card.name} has compute capability {card.capability[0]}.{card.capability[1]}, and snncell needs "
            f"{OLDEST[0]}.{OLDEST[1]} (Turing, 2018) or newer. CUDA_VISIBLE_DEVICES chooses another card."
        )
    return card


def _start(driver: Any) -> None:
    """Start the driver. It must be the first to be asked: where it is missing, other calls to it hang."""
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise DeviceError(
            "There is no NVIDIA driver on this machine, which the GPU needs: install it (Linux: libcuda.so.1; Windows: "
            'nvcuda.dll), or leave device_target at "CPU".'
        ) from error
    codes = driver.CUresult
    if status == codes.CUDA_ERROR_NO_DEVICE:
        raise DeviceError(
            "The NVIDIA driver finds no card. If there is one, CUDA_VISIBLE_DEVICES must not hide it (it is "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')!r}) and a container must be given it (--gpus all)."
        )
    if status in (codes.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, codes.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE):
        raise DeviceError(
            f"The NVIDIA driver does not fit itself ({status.name}): its library and its kernel module are of "
            "different versions. Restart the machine, or install the driver again."
        )
    if status != codes.CUDA_SUCCESS:
        raise DeviceError(f"The NVIDIA driver does not start ({status.name}). See whether nvidia-smi works.")


_runtime: Runtime | None = None
_lock: Any = threading.RLock()
after_fork(lambda: in_child(_lock))


def runtime() -> Runtime:
    """The device that this process computes on; none for a forked child whose parent has used CUDA."""
    global _runtime
    if _runtime is None:
        with _lock:
            if _runtime is None:  # made once, by whichever thread comes first
                _runtime = SimulatedRuntime() if is_simulated() else _driver_runtime()
                IN_USE.append(True)
    if _runtime.lost:
        raise DeviceError(FORKED)
    return _runtime
