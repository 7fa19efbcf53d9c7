"""The use of Numba: compile kernels for the CPU and to PTX, and run them on Numba's threads.

`passes.py` has the compiler passes and flags.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib.metadata
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

from snncell import dtype as dtypes
from snncell.base.signals import BUILDING, deferring, import_once, let_fork
from snncell.errors import ArgumentError
from snncell.kernels.numba.native import Code, Linked, range_runner

# From this number of elements on, a loop of plain arithmetic runs on all threads; a call of a function like exp counts
# as CALL_COST elements. On two idle cores, threads save some tens of microseconds from a quarter of this number on
# (benchmarks/parallel.py: 100,000 elements for plain arithmetic, 20,000 for exp). However, each parallel loop waits for
# its last thread, which takes milliseconds if other programs use the cores. With two such programs, a small training
# step took 3.2 times as long with that lower number, and 1.1 to 1.6 times with this one
# (`python -m benchmarks --figures busy`).
PARALLEL_SIZE = 524_288
CALL_COST = 5

_started = False  # whether Numba's threads are running


def compiles() -> bool:
    """True if kernels are compiled; with NUMBA_DISABLE_JIT=1 they run as Python."""
    config = getattr(sys.modules.get("numba"), "config", None)
    if config is not None:
        return not config.DISABLE_JIT
    return os.environ.get("NUMBA_DISABLE_JIT", "") in ("", "0")


def compile_kernel(
    function: Callable[..., Any], *, share: Callable[[str, Callable[[], Any]], Any]
) -> tuple[Code | None, Linked]:
    """Compile a generated function `(start, stop, slots)`; `share(symbol, make)` provides a function that it calls.

    Returns: The code, or None if it is valid only in this process; and the same code linked.
    """
    types: Any = import_once("numba.types")  # imported here because it would double the time of `import snncell`
    lock: Any = import_once("numba.core.compiler_lock").global_compiler_lock
    import_array_functions()
    pipeline: Any = import_once("snncell.kernels.numba.passes")
    # The caller holds BUILDING. A fork takes Numba's lock after BUILDING, too: the same order avoids a deadlock.
    with lock, _without_collection():
        pipeline.register_pending()
        result = pipeline.compile_whole(function, (types.int64, types.int64, types.CPointer(types.int64)))
        return _machine_code(result.library, result.fndesc.llvm_func_name, share)


def _machine_code(
    library: Any, symbol: str, share: Callable[[str, Callable[[], Any]], Any]
) -> tuple[Code | None, Linked]:
    for callee in library.shared():
        share(callee.symbol, functools.partial(_machine_code, callee, callee.symbol, share))
    linked = Linked(library.get_pointer_to_function(symbol), library)
    module = library._final_module
    declared = [x.name for x in (*module.functions, *module.global_variables) if x.is_declaration]
    needs = tuple(name for name in declared if not name.startswith("llvm."))
    if library.has_dynamic_globals:  # the code contains addresses of this process
        return None, linked
    return Code(symbol, needs, library._get_compiled_object()), linked


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pause Python's garbage collector, which would take an eighth of the compile time to traverse all objects."""
    # By the threshold, not by gc.disable(), because other threads of the program may enable or disable the collector in
    # the meantime. If another thread sets thresholds, its thresholds are kept.
    before = gc.get_threshold()
    gc.set_threshold(0)
    during = gc.get_threshold()
    try:
        yield
    finally:
        if gc.get_threshold() == during:
            gc.set_threshold(*before)


def provide_runtime() -> None:
    """Register the symbols of Numba's runtime, and of the libraries that Numba loads, with LLVM."""
    registry: Any = import_once("numba.core.registry")
    runtime: Any = import_once("numba.core.runtime")
    runtime.rtsys.initialize(registry.cpu_target.target_context)


def import_array_functions() -> None:
    """Import Numba's array support without SciPy's linear algebra."""
    # Numba imports SciPy only to check that `np.dot` would work. This takes a tenth of a second, and kernels never call
    # `np.dot`. The check is unnecessary because snncell depends on SciPy.
    if "numba.np.arraymath" in sys.modules:
        return
    linalg: Any = import_once("numba.np.linalg")
    ensure = getattr(linalg, "ensure_blas", None)
    if ensure is None:
        return  # another version of Numba, without this check
    linalg.ensure_blas = lambda: None
    try:
        arrays: Any = import_once("numba.np.arraymath")
        arrays.ensure_blas = ensure
    finally:
        linalg.ensure_blas = ensure


def _load_tbb() -> None:
    """Load TBB from its wheel if it is installed, unless the user has chosen another threading layer."""
    # GNU OpenMP, Numba's other choice on Linux, kills a child that is forked after the first parallel kernel, and its
    # threads spin while they wait. The loader does not search the folder of the wheel, so TBB is loaded here.
    chosen = os.environ.get("NUMBA_THREADING_LAYER")
    if chosen not in (None, "tbb") or not sys.platform.startswith("linux"):
        return
    if chosen is None:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # in case Numba chooses OpenMP
    try:
        files = importlib.metadata.files("tbb") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name.startswith("libtbb.so.") and file.name.count(".") == 2:
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
            return


def number_of_threads() -> int:
    """The number of threads of parallel kernels, as set in Numba; starts the threads if necessary."""
    global _started
    if not _started:
        let_fork()
        with BUILDING:
            deferring(_start_threads)
            _started = True
    number: int = import_once("numba").get_num_threads()
    return number


def set_number_of_threads(number: int) -> None:
    """Set the number of threads for kernels that this thread launches, at most the number of existing threads."""
    number_of_threads()  # the threads must be running first
    numba = import_once("numba")
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))


def run_on_threads(address: int, slots: int, units: int, _: int) -> int:
    """Run the units of the kernel at `address` on the threads, in as many ranges; return 0."""
    # Numba would take 0.15 s to compile a kernel with a `prange`, and this kernel would call the same C function.
    ranges = min(number_of_threads(), units)
    first, step, number = (ctypes.c_int64(value) for value in (0, 1, ranges))
    kernel = (ctypes.c_int64 * 4)(address, slots, units, ranges)
    operands = (ctypes.byref(each) for each in (first, number, step, kernel))
    _parallel_for()(range_runner()[0], *operands, 0, 1, ranges)  # arrays of 0 inner axes, 1 array
    return 0


@functools.cache
def _parallel_for() -> Callable[..., None]:
    """Numba's C function that runs a loop on its threads."""
    address = import_once("llvmlite.binding").address_of_symbol("numba_parallel_for")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_size_t] * 2, ctypes.c_int)(address)


def _start_threads() -> None:
    _load_tbb()  # before Numba chooses a threading layer, which it does only once
    numba = import_once("numba")
    try:
        numba.get_num_threads()  # starts the threads
    except ValueError as error:
        chosen = os.environ.get("NUMBA_THREADING_LAYER", "default")
        raise ArgumentError(
            f"NUMBA_THREADING_LAYER={chosen}: Numba cannot load this threading layer here "
            f"({' '.join(str(error).split())}). Unset the variable, or set it to workqueue, which is part of Numba."
        ) from error


def ends_in_children() -> bool:
    """True if a forked child of this process would be killed by its first parallel kernel."""
    pool: Any = sys.modules.get("numba.np.ufunc.omppool")
    return pool is not None and pool.openmp_vendor == "GNU" and threading_layer() == "omp"


def threading_layer() -> str:
    """The threading layer of parallel kernels, for `python -m snncell info`."""
    numba: Any = import_once("numba")
    try:
        return str(numba.threading_layer())
    except ValueError:
        return "not started (no parallel kernel has run yet)"


# --- CUDA -------------------------------------------------------------------------------------------------------------

# Whether `a * b + c` becomes one instruction, with one rounding instead of two. It helps little, because most kernels
# are memory-bound. Without it, additions and products give the same bits as on the CPU, and so the same spikes.
CUDA_FMA = False

_compiling_ptx = threading.Lock()


def compile_ptx(
    function: Callable[..., Any],
    name: str,
    signature: Sequence[Any],
    capability: tuple[int, int],
    launch_bounds: tuple[int, ...] | None = None,
    fma: bool = CUDA_FMA,
) -> str:
    """Compile a generated function to PTX for a capability and newer cards, without a card; see `cuda.build.build`."""
    compiler: Any = import_once("numba.cuda.compiler")
    nvvm: Any = import_once("numba.cuda.cudadrv.nvvm")
    types: Any = import_once("numba.types")

    options = {"opt": 3, "fastmath": False}  # keep the user's order of operations, and exact division
    if not fma:
        options["fma"] = 0
    with _compiling_ptx, _assume_capability(capability):
        result = compiler.compile_cuda(
            function,
            types.void,
            tuple(_cuda_type(argument) for argument in signature),
            lineinfo=False,  # line numbers would help profilers, but make the code depend on comments
            nvvm_options=options,
            fastmath=False,
            cc=capability,
        )
        library, mangled = result.library, result.fndesc.llvm_func_name
        kernel = library.get_function(mangled)
        library._entry_name = mangled
        compiler.kernel_fixup(kernel, False)
        nvvm.set_launch_bounds(kernel, launch_bounds)
        ptx = "".join(library.get_asm_strs(cc=capability))
    lines = [line for line in ptx.splitlines() if not (line.startswith(".common .global") and "NumbaEnv" in line)]
    # Numba mangles the name differently in each process, which would change the text.
    return "\n".join(lines).replace(mangled, name) + "\n"


@contextlib.contextmanager
def _assume_capability(capability: tuple[int, int]) -> Iterator[None]:
    """Make Numba compile callees for this capability, instead of asking the driver for the card's."""
    dispatcher: Any = import_once("numba.cuda.dispatcher")
    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


def _cuda_type(argument: Any) -> Any:
    types: Any = import_once("numba.types")
    from_dtype: Any = import_once("numba.np.numpy_support").from_dtype
    if not isinstance(argument, tuple):
        return from_dtype(argument.dtype)
    # Booleans are passed as bytes, because LLVM's have one bit and Numba cannot store them by address.
    return types.CPointer(from_dtype(dtypes.in_memory(argument[0])))


def simulate(function: Callable[..., Any]) -> Any:
    """Wrap a generated function as a kernel of Numba's simulator, which runs it as Python (NUMBA_ENABLE_CUDASIM=1)."""
    cuda: Any = import_once("numba.cuda")
    np: Any = import_once("numpy")

    def run(*arguments: Any) -> None:
        with np.errstate(all="ignore"):  # NumPy's warnings are on in each new thread of the simulator
            function(*arguments)

    # The simulator replaces `cuda` in the globals of its function, which must therefore be the generated file's.
    own = FunctionType(run.__code__, function.__globals__, function.__name__, closure=run.__closure__)
    return cuda.jit(own)
