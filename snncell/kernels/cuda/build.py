"""Build CUDA kernels: generated source -> PTX -> a cubin in the cache folder -> a loaded kernel.

Numba compiles the source to PTX, and nvJitLink assembles the PTX to a cubin, the card's machine code. The compiler of
the driver is not used, because it may be older than Numba. The cubin is stored next to the generated file and sealed as
the CPU's code is (`numba/store.py`), so that the next process loads it without Numba. For the simulator, a kernel is a
Python function.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.base.signals import after_fork, import_once, in_child
from snncell.errors import DeviceError
from snncell.kernels.cuda.runtime import is_simulated, runtime
from snncell.kernels.cuda.simulated import SimulatedKernel
from snncell.kernels.numba import policy
from snncell.kernels.numba.code import function_of, keep, load_or_make, without_comments

_built: dict[tuple[Any, ...], Any] = {}
_building: Any = threading.RLock()
after_fork(lambda: in_child(_building))

# The packages that affect the code. Their names depend on the CUDA version, so some of these are not installed.
_TOOLS = (
    *("numba", "numba-cuda", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink"),
    *("nvidia-cuda-nvcc-cu12", "nvidia-nvjitlink-cu12"),
)


def build(name: str, source: str, signature: Sequence[Any], launch_bounds: tuple[int, ...] | None = None) -> Any:
    """Build the kernel called `name` in `source`, a complete file, for `Runtime.launch`.
    The signature has a DType for each scalar, and (DType, writable) for each flat array. `launch_bounds` are the
    maximum number of threads per block, and the minimum number of resident blocks per multiprocessor.
    """
    code = without_comments(source)
    key = (name, code, tuple(signature), launch_bounds)
    kernel = _built.get(key)
    if kernel is None:
        with _building:
            kernel = _built.get(key)
            if kernel is None:
                make = _simulate if is_simulated() else _load_kernel
                kernel = _built[key] = make(name, source, code, tuple(signature), launch_bounds)
    return kernel


def _simulate(name: str, source: str, code: str, signature: tuple[Any, ...], launch_bounds: Any) -> SimulatedKernel:
    path, _ = keep(name, source, code)
    function = policy.simulate(function_of(path, source, name))
    return SimulatedKernel(name, function, signature, threads_meet="sync" in code or "shared" in code)


def _load_kernel(name: str, source: str, code: str, signature: tuple[Any, ...], launch_bounds: Any) -> Any:
    device = runtime()
    path, writable = keep(name, source, code)

    def load(cubin: bytes) -> Any:
        with contextlib.suppress(DeviceError):  # the file is valid, but the driver may have changed since
            return device.load(cubin, name)

    def make() -> tuple[bytes, Any]:
        function = function_of(path, source, name)
        ptx = policy.compile_ptx(function, name, signature, device.capability, launch_bounds)
        cubin, _ = _link_ptx(ptx, device.capability)
        return cubin, device.load(cubin, name)

    facts = (path.stem, name, signature, launch_bounds, device.capability, policy.CUDA_FMA, _versions())
    return load_or_make(path, writable, "cubin", facts, load, make)[0]


@functools.cache
def _versions() -> tuple[str | None, ...]:
    """The versions of the packages that affect the code; None if a package is not installed."""
    versions: list[str | None] = []
    for tool in _TOOLS:
        try:
            versions.append(importlib.metadata.version(tool))
        except importlib.metadata.PackageNotFoundError:
            versions.append(None)
    return tuple(versions)


# --- Without a card ---------------------------------------------------------------------------------------------------


def ptx_of(
    name: str,
    source: str,
    signature: Sequence[Any],
    capability: tuple[int, int],
    launch_bounds: tuple[int, ...] | None = None,
    fma: bool = policy.CUDA_FMA,
) -> str:
    """The PTX of a kernel for a compute capability, as `build` would compile it. It needs no driver."""
    path = Path(f"{name}_ptx.py")  # only a name for tracebacks; the file is not written
    return policy.compile_ptx(function_of(path, source, name), name, signature, capability, launch_bounds, fma)


def resources(ptx: str, capability: tuple[int, int]) -> dict[str, int]:
    """The resources of the one kernel in `ptx` on a card of that compute capability; this needs no driver.
    Per thread: "registers", "spilled" (bytes of spill loads and stores) and "stack" (bytes); per block: "shared" bytes.
    """
    _, log = _link_ptx(ptx, capability)
    # Count shared arrays in the PTX, because the assembler reports no externally visible arrays, as Numba's are.
    shared = sum(map(int, re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", ptx)))
    used = {"registers": 0, "spilled": 0, "stack": 0, "shared": shared}
    for line in log.splitlines():
        if sizes := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, stores, loads = map(int, sizes.groups())
            used["stack"] = max(used["stack"], stack)
            used["spilled"] = max(used["spilled"], stores + loads)
        elif line.startswith("ptxas") and (registers := re.search(r"Used (\d+) registers", line)):
            used["registers"] = int(registers[1])
    return used


def _link_ptx(ptx: str, capability: tuple[int, int]) -> tuple[bytes, str]:
    linker: Any = import_once("cuda.bindings.nvjitlink")
    major, minor = capability
    options = [f"-arch=sm_{major}{minor}", "-Xptxas=-v"]
    text = ptx.encode() + b"\0"
    handle = None
    try:
        handle = linker.create(len(options), options)
        linker.add_data(handle, linker.InputType.PTX, text, len(text), "snncell.ptx")
        linker.complete(handle)
        cubin = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, cubin)
        return bytes(cubin), _log(handle, linker.get_info_log_size, linker.get_info_log)
    except linker.nvJitLinkError as error:
        message = "" if handle is None else _log(handle, linker.get_error_log_size, linker.get_error_log)
        raise DeviceError(
            f"nvJitLink cannot compile a kernel for compute capability {major}.{minor} ({error}). {message.strip()} If "
            f"the card is newer than the installed packages, update them: pip install -U 'snncell[cuda]'."
        ) from error
    finally:
        if handle is not None:
            linker.destroy(handle)


def _log(handle: Any, size: Any, read: Any) -> str:
    text = bytearray(size(handle))
    if text:
        read(handle, text)
    return text.decode(errors="replace").rstrip("\0")


# --- Elementwise kernels, one thread per element: the frame around their statements, and their launch -----------------

# Kernels never compute in a storage-only dtype, because operations first convert to float32 (`Primitive.as_stored`).

THREADS = 256
_HEAD = '"""Generated by snncell: {name}."""\n\n{imports}import numpy as np\nfrom numba import cuda\n\n{casts}\n\n'
_CASTS = ("i1", "i2", "i4", "i8", "u1", "u8", "f2", "f4", "f8")
_FUNCTIONS = ("cos", "erf", "erfc", "exp", "expm1", "log", "log1p", "sin", "sqrt")
# Elements that are only moved are moved as integers, so that one kernel serves all dtypes of a size.
_BITS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
_PARTS = {"complex64": dtypes.float32, "complex128": dtypes.float64}


@functools.cache
def kernel(name: str, parameters: tuple[tuple[str, Any], ...], body: str) -> Any:
    """A kernel whose thread `i` runs `body` if `i < count`, its first parameter; (DType, writable) is an array.
    In the body, cast numbers by i8, f4 and so on, because other numbers are int64 or float64.
    """
    used = [code for code in _CASTS if code in body]
    casts = "\n".join(f"{code} = np.{np.dtype(code).type.__name__}" for code in used)
    names = ", ".join(["count", *(parameter for parameter, _ in parameters)])
    lines = f"def {name}({names}):\n    i = cuda.grid(1)\n    if i < count:\n"
    lines += indent(body.strip("\n"), " " * 8) + "\n"
    called = [function for function in _FUNCTIONS if f"{function}(" in body]
    imports = f"from math import {', '.join(called)}\n\n" if called else ""
    source = _HEAD.format(name=name, casts=casts, imports=imports) + lines
    return build(name, source, (dtypes.int64, *(kind for _, kind in parameters)))


def launch(compiled: Any, count: int, *arguments: Any) -> None:
    """Launch a kernel of `kernel` on `count` threads."""
    values = [x.argument if hasattr(x, "argument") else x for x in arguments]
    runtime().launch(compiled, -(-count // THREADS), THREADS, [count, *values])


def run(
    name: str, body: str, count: int, numbers: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    """Run `body` for each `i < count`, with numbers, contiguous input arrays `inputs` and output arrays `outputs`."""
    parameters = (
        *((key, dtypes.BY_NUMPY[np.dtype(type(number))]) for key, number in numbers.items()),
        *((key, (dtypes.BY_NUMPY[array.dtype], False)) for key, array in inputs.items()),
        *((key, (dtypes.BY_NUMPY[array.dtype], True)) for key, array in outputs.items()),
    )
    launch(kernel(name, parameters, body), count, *numbers.values(), *inputs.values(), *outputs.values())


def bits_of(array: Any) -> tuple[Any, int]:
    """The integer dtype for moving an element, and the number of such integers per element."""
    size = array.dtype.itemsize
    return (_BITS[8], 2) if size == 16 else (_BITS[size], 1)


class Viewed(NamedTuple):
    """A contiguous array as a kernel argument of another dtype; it keeps the array's memory alive."""

    array: Any
    dtype: Any

    @property
    def argument(self) -> tuple[Any, int, Any]:
        """The kernel argument."""
        block, offset, _ = self.array.argument
        return block, offset, self.dtype


def as_bits(array: Any) -> Viewed:
    """A contiguous array as an argument of a kernel that moves elements."""
    return Viewed(array, bits_of(array)[0].dtype)


def parts_of(array: Any) -> tuple[Any, int]:
    """The DType in which elements are summed, and the parts per element: 2 for complex numbers."""
    part = _PARTS.get(array.dtype.name)
    return (dtypes.BY_NUMPY[array.dtype], 1) if part is None else (part, 2)


def as_parts(array: Any) -> Viewed:
    """A contiguous array as an argument of a kernel that sums."""
    return Viewed(array, parts_of(array)[0].dtype)


def fill(array: Any, number: Any) -> None:
    """Set all elements of a contiguous array to a number."""
    bits, parts = bits_of(array)
    words = np.array([number], array.dtype).view(bits.dtype).tolist()
    chosen = "first" if parts == 1 else "(first if i % 2 == 0 else second)"
    numbers, body = {"first": words[0], "second": words[-1]}, f"out[i] = {bits.code}({chosen})"
    run(f"fill_{parts}", body, array.size * parts, numbers, {}, {"out": as_bits(array)})


def around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """The number of elements before an axis, along it, and after it."""
    return int(np.prod(shape[:axis])), int(shape[axis]), int(np.prod(shape[axis + 1 :]))
