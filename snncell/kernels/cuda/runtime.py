"""The device of this process: the first CUDA card, or Numba's simulator. It is found when it is first asked for."""

from __future__ import annotations

import importlib.metadata
import os
import threading
from typing import Any

from snncell.base.signals import after_fork, import_once, in_child
from snncell.errors import DeviceError
from snncell.kernels.cuda.base import Matrix as Matrix, MemoryBlock as MemoryBlock, Place as Place, Runtime as Runtime
from snncell.kernels.cuda.driver import FORKED, DriverRuntime
from snncell.kernels.cuda.simulated import SimulatedRuntime
from snncell.kernels.scalar.functions import is_simulated as is_simulated

OLDEST = (7, 5)  # the first capability that CUDA 13 makes code for
IN_USE: list[bool] = []  # not empty once there may be device arrays: eager operations look for them only then


class _One:
    """The runtime of the process, made once by whichever thread comes first."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._lock: Any = threading.RLock()
        after_fork(lambda: in_child(self._lock))

    def get(self) -> Runtime:
        if self._runtime is None:
            with self._lock:
                if self._runtime is None:
                    self._runtime = SimulatedRuntime() if is_simulated() else _driver_runtime()
                    IN_USE.append(True)
        if self._runtime.lost:
            raise DeviceError(FORKED)
        return self._runtime


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


_ONE = _One()


def runtime() -> Runtime:
    """The device that this process computes on; none for a forked child whose parent has used CUDA."""
    return _ONE.get()
