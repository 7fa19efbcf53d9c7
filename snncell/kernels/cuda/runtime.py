"""The device of this process, created on first use: the first CUDA card, or Numba's simulator."""

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

STAGED = 1 << 24  # bytes of pinned host memory for uploads; one half is filled while the card copies the other

FORKED = (
    "CUDA cannot be used in a forked child after the parent has used it. Start the process by spawn instead: "
    'multiprocessing.get_context("spawn").'
)

# Driver functions that put nothing on the stream. They run without the recording lock: a memory block may be freed in a
# thread that holds another lock, for which the recording thread waits.
_ANYTIME = frozenset(("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuEventCreate", "cuGraphDestroy"))


class DriverRuntime(Runtime):
    """The first card that the driver lists (CUDA_VISIBLE_DEVICES decides), with one context and one stream."""

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
        # A blocking stream would wait for the default stream of other libraries at each launch.
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
        """Make the card current in this thread, because a new thread has no current device."""
        if self.lost:
            raise DeviceError(FORKED)
        if not getattr(self._thread, "entered", False):
            self._core.Device(0).set_current()
            self._thread.entered = True
            self._threads.add(threading.get_ident())

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the driver's function `name`; return its result, or raise DeviceError with the driver's message."""
        self.enter()
        if name in _ANYTIME:
            status, *values = getattr(self._driver, name)(*arguments)
        else:
            with self._recording:  # keeps this call out of another thread's recording
                status, *values = getattr(self._driver, name)(*arguments)
        if int(status):
            if status == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise OutOfMemory(f"CUDA: {name} failed: the card has no memory left.")
            said = self._driver.cuGetErrorString(status)[1] or b"which the driver does not explain"
            raise DeviceError(
                f"CUDA: {name} failed: {status.name}, {said.decode()}. An earlier kernel may have caused this error; "
                "CUDA then works again only in a new process."
            )
        return values[0] if values else None

    # --- memory ---

    def _new(self, size: int) -> tuple[int, Any]:
        return int(self.call("cuMemAlloc", size)), None

    def _free(self, pointer: int) -> None:
        if not self.lost:  # in a forked child, the memory belongs to the parent
            self.call("cuMemFree", pointer)  # waits until the card no longer uses it

    def _memory(self) -> tuple[int, int]:
        self.enter()
        _, free, total = self._driver.cuMemGetInfo()
        return int(free), int(total)

    # --- copies ---

    def upload(self, array: Any, block: MemoryBlock, offset: int = 0) -> None:
        """Copy a C-contiguous NumPy array to the card through pinned memory, without waiting for the card."""
        self._refuse_to_record("it takes an array of the host")
        self._staging.send(as_bytes(array), block.pointer + offset)

    def download(self, block: MemoryBlock, offset: int, array: Any) -> None:
        self._refuse_to_record("it looks at a value on the host")
        if array.nbytes:
            target = as_bytes(array).ctypes.data
            self.call("cuMemcpyDtoHAsync", target, block.pointer + offset, array.nbytes, self.stream)
        self.synchronize()

    def copy(self, source: MemoryBlock, source_offset: int, target: MemoryBlock, target_offset: int, size: int) -> None:
        if size:
            places = target.pointer + target_offset, source.pointer + source_offset
            self.call("cuMemcpyDtoDAsync", *places, size, self.stream)

    def clear(self, block: MemoryBlock, offset: int, size: int) -> None:
        if size:
            self.call("cuMemsetD8Async", block.pointer + offset, 0, size, self.stream)

    def synchronize(self) -> None:
        self._refuse_to_record("it waits for the card")
        self.call("cuStreamSynchronize", self.stream)

    def _wait_for_all(self) -> None:
        self.call("cuCtxSynchronize")

    def wait_for(self, stream: int | None) -> None:
        """Wait for another library's stream; 1 and 2 are the two default streams."""
        if stream is not None:
            self.call("cuStreamSynchronize", stream)

    # --- recording ---

    def _capture(self, run: Callable[[], None]) -> Any:
        """Capture the stream to a CUDA graph."""
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.call("cuStreamBeginCapture", self.stream, mode)
        try:
            run()
        except BaseException:
            with suppress(DeviceError):  # the error may already have ended the capture
                self.call("cuGraphDestroy", self.call("cuStreamEndCapture", self.stream))
            raise
        graph = self.call("cuStreamEndCapture", self.stream)
        try:
            return _Graph(self, self.call("cuGraphInstantiate", graph, 0))
        finally:
            self.call("cuGraphDestroy", graph)

    def play(self, recording: Any) -> None:
        self.call("cuGraphLaunch", recording.handle, self.stream)

    # --- kernels ---

    def load(self, cubin: bytes, name: str) -> Any:
        self.enter()
        try:
            return self._core.ObjectCode.from_cubin(cubin, name=name).get_kernel(name)
        except Exception as error:  # CUDAError, which is not a public name
            raise DeviceError(f"CUDA: the kernel {name} cannot be loaded: {error}") from error

    def launch(self, kernel: Any, grid: int, threads: int, arguments: Sequence[Any], shared: int = 0) -> None:
        if not grid:
            return
        self.enter()
        packed: list[Any] = []
        for argument in arguments:
            if type(argument) is tuple:
                packed.append(argument[0].pointer + argument[1])
            elif isinstance(argument, np.complexfloating):  # Numba passes real and imaginary parts separately
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
    """An executable CUDA graph, destroyed with this object."""

    def __init__(self, device: DriverRuntime, handle: Any) -> None:
        self._device = device
        self.handle = handle

    def __del__(self) -> None:
        if not self._device.lost:
            self._device.call("cuGraphExecDestroy", self.handle)


class _Staging:
    """Uploads through pinned memory: the caller may change the array immediately, while the card is still busy."""

    # Arrays are copied into one half of the pinned memory until it is full. Then the other half is filled, as soon as
    # the card has read its previous contents.

    def __init__(self, device: DriverRuntime) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._bytes: Any = None
        self._used = 0  # bytes in the half that is being filled
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
                    device.call("cuEventRecord", self._events[self._half], device.stream)
                    self._half, self._used = 1 - self._half, 0
                    device.call("cuEventSynchronize", self._events[self._half])  # returns immediately if never recorded
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


OLDEST = (7, 5)  # the oldest capability that CUDA 13 supports
IN_USE: list[bool] = []  # empty until device arrays may exist; before that, eager operations do not check for them


def _driver_runtime() -> DriverRuntime:
    """The first card; DeviceError names any missing requirement."""
    fix = 'pip install "snncell[cuda]"'
    try:
        driver: Any = import_once("cuda.bindings.driver")
        linker: Any = import_once("cuda.bindings.nvjitlink")
        import_once("cuda.core")
        importlib.metadata.version("numba-cuda")
    except ImportError as error:
        also = "" if has_driver() else " This machine also has no NVIDIA driver, which the GPU needs."
        raise DeviceError(f"The GPU needs packages that are not installed ({error}). Run: {fix}.{also}") from error
    _start(driver)
    try:
        cuda_version = linker.version()[0]
    except Exception as error:  # the bindings raise a private class if nvJitLink is missing
        raise DeviceError(f"The GPU needs nvJitLink, which cannot be loaded ({error}). Run: {fix}.") from error
    _, version = driver.cuDriverGetVersion()
    if version // 1000 < cuda_version:
        raise DeviceError(
            f"The NVIDIA driver is too old: it supports CUDA {version // 1000}.{version % 1000 // 10}, but the "
            f"installed packages generate code for CUDA {cuda_version}. Update the driver, or install packages for "
            f'the older version: pip install "numba-cuda[cu{version // 1000}]".'
        )
    card = DriverRuntime()
    if card.capability < OLDEST:
        raise DeviceError(
            f"{card.name} has compute capability {card.capability[0]}.{card.capability[1]}, but snncell needs "
            f"{OLDEST[0]}.{OLDEST[1]} (Turing, 2018) or newer. Choose another card by CUDA_VISIBLE_DEVICES."
        )
    return card


def has_driver() -> bool:
    """True if the library of the NVIDIA driver can be loaded."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _start(driver: Any) -> None:
    """Initialise the driver. This must be the first driver call, because without a driver other calls hang."""
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise DeviceError(
            "This machine has no NVIDIA driver, which the GPU needs. Install it (Linux: libcuda.so.1; Windows: "
            'nvcuda.dll), or leave device_target at "CPU".'
        ) from error
    codes = driver.CUresult
    if status == codes.CUDA_ERROR_NO_DEVICE:
        raise DeviceError(
            "The NVIDIA driver finds no card. If there is one, check that CUDA_VISIBLE_DEVICES does not hide it (it is "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')!r}), and that a container may use it (--gpus all)."
        )
    if status in (codes.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, codes.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE):
        raise DeviceError(
            f"The NVIDIA driver is inconsistent ({status.name}): its library and its kernel module have different "
            "versions. Restart the machine, or reinstall the driver."
        )
    if status != codes.CUDA_SUCCESS:
        raise DeviceError(f"The NVIDIA driver does not start ({status.name}). Check whether nvidia-smi works.")


_runtime: Runtime | None = None
_lock: Any = threading.RLock()
after_fork(lambda: in_child(_lock))


def runtime() -> Runtime:
    """The device of this process, created on first use; raises DeviceError in a forked child that cannot use it."""
    global _runtime
    if _runtime is None:
        with _lock:
            if _runtime is None:  # another thread may have made it in the meantime
                _runtime = SimulatedRuntime() if is_simulated() else _driver_runtime()
                IN_USE.append(True)
    if _runtime.lost:
        raise DeviceError(FORKED)
    return _runtime
