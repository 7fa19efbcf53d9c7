"""The only door to Numba: compilation, threads, runtime. `passes.py` has the passes and flags, with their reasons."""

from __future__ import annotations

import contextlib
import ctypes
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
from snncell.kernels.numba.native import Code, Linked

# From this many elements on, a loop of plain arithmetic is run by all threads; a call of exp and the like counts as
# CALL_COST elements. On two quiet cores threads are worth it from a quarter of that on (benchmarks/parallel.py: 100,000
# elements for plain arithmetic, 20,000 for exp), by some tens of microseconds. But each such loop waits for its last
# thread, milliseconds where other programs want the cores: with the lower number, a small training step beside two of
# them took 3.2 times as long as by itself, with this one 1.1 to 1.6 times (`python -m benchmarks --figures busy`).
PARALLEL_SIZE = 524_288
CALL_COST = 5

_started = False  # whether Numba's threads are


def compiles() -> bool:
    """True if kernels are compiled: with NUMBA_DISABLE_JIT=1 they are run as Python."""
    config = getattr(sys.modules.get("numba"), "config", None)
    if config is not None:
        return not config.DISABLE_JIT
    return os.environ.get("NUMBA_DISABLE_JIT", "") in ("", "0")


def compile_kernel(function: Callable[..., Any], *, threads: bool = False) -> tuple[Code | None, Linked]:
    """Compile a generated function `(start, stop, slots)`, with `threads` one that has a `prange`.

    Returns:
        Its code, or None if that can be used in this process alone; and the same linked.
    """
    types: Any = import_once("numba.types")  # half of `import snncell`'s time, were it imported at the top
    lock: Any = import_once("numba.core.compiler_lock").global_compiler_lock
    import_array_functions()
    pipeline: Any = import_once("snncell.kernels.numba.passes")
    # Numba's lock within BUILDING, which the caller holds: the order in which a fork takes them.
    with lock, _without_collection():
        pipeline.register_pending()
        compiled = pipeline.compile_threads if threads else pipeline.compile_whole
        result = compiled(function, (types.int64, types.int64, types.CPointer(types.int64)))
        library, symbol = result.library, result.fndesc.llvm_func_name
        provide_runtime()
        linked = Linked(library.get_pointer_to_function(symbol), library)
        module = library._final_module
        declared = [x.name for x in (*module.functions, *module.global_variables) if x.is_declaration]
        needs = tuple(name for name in declared if not name.startswith("llvm."))
        if library.has_dynamic_globals:  # addresses of this process
            return None, linked
        return Code(symbol, needs, library._get_compiled_object()), linked


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Without Python's garbage collector, which else takes an eighth of the time of compilation.

    Numba makes so many objects that all that the process has are looked at several times for each kernel.
    """
    # By its threshold: whether the collector is enabled is the program's, whose other threads may change that
    # meanwhile. If they set thresholds, theirs stay.
    before = gc.get_threshold()
    gc.set_threshold(0)
    during = gc.get_threshold()
    try:
        yield
    finally:
        if gc.get_threshold() == during:
            gc.set_threshold(*before)


def provide_runtime() -> None:
    """Make known to LLVM what code has from Numba's runtime, and from the libraries that Numba loads."""
    registry: Any = import_once("numba.core.registry")
    runtime: Any = import_once("numba.core.runtime")
    runtime.rtsys.initialize(registry.cpu_target.target_context)


def import_array_functions() -> None:
    """Import what Numba needs to compile a kernel, without SciPy's linear algebra."""
    # Numba imports that only to see whether `np.dot` would work: a tenth of a second, for something that no kernel of
    # ours calls. SciPy is there, we depend on it.
    if "numba.np.arraymath" in sys.modules:
        return
    linalg: Any = import_once("numba.np.linalg")
    ensure = getattr(linalg, "ensure_blas", None)
    if ensure is None:
        return  # another Numba, with another way to look
    linalg.ensure_blas = lambda: None
    try:
        arrays: Any = import_once("numba.np.arraymath")
        arrays.ensure_blas = ensure
    finally:
        linalg.ensure_blas = ensure


def _load_tbb() -> None:
    """Make TBB loadable where its wheel is installed, unless the user has chosen another layer of threads."""
    # GNU OpenMP, Numba's other choice on Linux, kills a process that forks after its first parallel kernel, and its
    # threads spin while they wait. The wheel puts the library where the loader does not look, so it is loaded here.
    chosen = os.environ.get("NUMBA_THREADING_LAYER")
    if chosen not in (None, "tbb") or not sys.platform.startswith("linux"):
        return
    if chosen is None:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # in case OpenMP is what Numba ends up with
    try:
        files = importlib.metadata.files("tbb") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name.startswith("libtbb.so.") and file.name.count(".") == 2:
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
            return


def number_of_threads() -> int:
    """The number of threads that parallel kernels run on: Numba's setting."""
    global _started
    if not _started:
        let_fork()
        with BUILDING:
            deferring(_start_threads)
            _started = True
    number: int = import_once("numba").get_num_threads()
    return number


def set_number_of_threads(number: int) -> None:
    """Let parallel kernels that this thread starts run on so many threads, or on all there are if those are fewer."""
    number_of_threads()  # they must have been started
    numba = import_once("numba")
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))


def _start_threads() -> None:
    _load_tbb()  # before Numba looks for a layer, which it does once
    numba = import_once("numba")
    try:
        numba.get_num_threads()  # asking for the number starts them
    except ValueError as error:
        chosen = os.environ.get("NUMBA_THREADING_LAYER", "default")
        raise ArgumentError(
            f"NUMBA_THREADING_LAYER={chosen}: Numba cannot load this threading layer here "
            f"({' '.join(str(error).split())}). Leave the variable unset, or set it to workqueue, which Numba brings."
        ) from error


def ends_in_children() -> bool:
    """True if the threads of this process end one that is forked from it at its first parallel kernel."""
    pool: Any = sys.modules.get("numba.np.ufunc.omppool")
    return pool is not None and pool.openmp_vendor == "GNU" and threading_layer() == "omp"


def threading_layer() -> str:
    """The threading layer that parallel kernels run on, for `python -m snncell info`."""
    numba: Any = import_once("numba")
    try:
        return str(numba.threading_layer())
    except ValueError:
        return "not started (no parallel kernel has run yet)"


# --- CUDA -------------------------------------------------------------------------------------------------------------

# Whether `a * b + c` becomes one instruction, with one rounding instead of two. It is faster by little where memory is
# what a kernel waits for; without it additions and products have the bits that they have on the CPU, and so do spikes.
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
    """A generated function as PTX for cards of a compute capability and newer ones; it needs no card and no driver.

    Signature and launch bounds are those of `cuda.build.build`; of an array the kernel gets the address alone.
    """
    compiler: Any = import_once("numba.cuda.compiler")
    nvvm: Any = import_once("numba.cuda.cudadrv.nvvm")
    types: Any = import_once("numba.types")

    options = {"opt": 3, "fastmath": False}  # the order of operations is the user's, and division is exact
    if not fma:
        options["fma"] = 0
    with _compiling_ptx, _assume_capability(capability):
        result = compiler.compile_cuda(
            function,
            types.void,
            tuple(_cuda_type(argument) for argument in signature),
            lineinfo=False,  # lines of generated files, which profilers could show, would be part of the code
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
    # Numba's name differs from process to process; so would the text.
    return "\n".join(lines).replace(mangled, name) + "\n"


@contextlib.contextmanager
def _assume_capability(capability: tuple[int, int]) -> Iterator[None]:
    """Let Numba compile the functions that a kernel calls without asking the driver for the card's capability."""
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
    # Booleans by their bytes: LLVM's have one bit, and Numba cannot store them by address.
    return types.CPointer(from_dtype(dtypes.in_memory(argument[0])))


def simulate(function: Callable[..., Any]) -> Any:
    """A generated function as a kernel of Numba's simulator: with NUMBA_ENABLE_CUDASIM=1, it is run as Python."""
    cuda: Any = import_once("numba.cuda")
    np: Any = import_once("numpy")

    def run(*arguments: Any) -> None:
        with np.errstate(all="ignore"):  # each of the simulator's threads begins with warnings on
            function(*arguments)

    # The simulator replaces `cuda` among the globals of what it runs: they must be those of the generated file.
    own = FunctionType(run.__code__, function.__globals__, function.__name__, closure=run.__closure__)
    return cuda.jit(own)
