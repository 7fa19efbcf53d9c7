"""The one place where Numba is asked to compile: every flag is decided here, with its reason."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

# From this many elements on, a loop of plain arithmetic is run by all threads; a call of exp and the like counts as
# CALL_COST elements. Measured on two cores with benchmarks/parallel.py: the break-even lies at 100,000 elements for
# sums and products, whose loops wait for memory, and at 5,000 for exp.
PARALLEL_SIZE = 131_072
CALL_COST = 24

_threads_chosen = False


def compile_kernel(function: Callable[..., Any], signature: Sequence[Any], parallel: bool) -> Callable[..., Any]:
    """Compile a generated function for one signature, or load it from the disk cache.

    Args:
        function: the function, from a module file (Numba's cache needs one).
        signature: for each argument, a DType for a scalar, or (DType, ndim, writable) for a C-contiguous array.
        parallel: whether its `prange` loops are run by all threads.
    """
    numba: Any = importlib.import_module("numba")  # half of `import snncell`'s time, were it imported at the top

    if parallel:
        _choose_threading_layer()
    kernel: Callable[..., Any] = numba.njit(
        tuple(_numba_type(argument) for argument in signature),
        cache=not numba.config.DISABLE_JIT,
        error_model="numpy",  # 1 / 0 is inf as in NumPy; Python's check for it would stop vectorisation
        fastmath=False,  # reordering sums would change which neuron spikes
        nogil=True,  # another Python thread may run meanwhile
        boundscheck=False,  # the planner has checked every shape
        parallel=parallel,
    )(function)
    return kernel


def _numba_type(argument: Any) -> Any:
    from numba import types
    from numba.np.numpy_support import from_dtype

    if not isinstance(argument, tuple):
        return from_dtype(argument.dtype)
    dtype, ndim, writable = argument
    return types.Array(from_dtype(dtype.dtype), ndim, "C", readonly=not writable)


def _choose_threading_layer() -> None:
    """Make TBB loadable where its wheel is installed, unless the user has chosen a layer.

    GNU OpenMP, Numba's other choice on Linux, kills a process that forks after its first parallel kernel, and its
    threads spin while they wait. The wheel puts the library where the loader does not look, so it is loaded here.
    """
    global _threads_chosen
    if _threads_chosen:
        return
    _threads_chosen = True
    if "NUMBA_THREADING_LAYER" in os.environ or not sys.platform.startswith("linux"):
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # in case OpenMP is what Numba ends up with
    try:
        files = importlib.metadata.files("tbb") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name.startswith("libtbb.so.") and file.name.count(".") == 2:
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
            return


def threading_layer() -> str:
    """The threading layer that parallel kernels run on, for `python -m snncell info`."""
    numba: Any = importlib.import_module("numba")
    try:
        return str(numba.threading_layer())
    except ValueError:
        return "not started (no parallel kernel has run yet)"
