"""Build kernels from source or from functions, and launch them on all threads: Numba's, with TBB where it is installed.

A fork waits for what runs on threads, and a child that was not waited for is told so. Numba's own layer, "workqueue",
ends the process if two Python threads are in its kernels at once: there, they take turns. GNU's OpenMP, Numba's choice
on Linux where there is no TBB, ends a child that is forked after its threads have begun: there, a child has one thread.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.signals import BUILDING, RUNNING, after_fork, deferring, in_child, let_fork, refuse_unfinished
from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import call
from snncell.kernels.numba import policy, progress, store
from snncell.kernels.numba.code import code_of, digest_of, function_of, keep, of_slots, source_of, without_comments
from snncell.kernels.numba.native import kernel_of

# --- Kernel: the one function that runs on several threads ------------------------------------------------------------

prange = range  # compiled, it is Numba's: see `_compile_launcher`


def launch(start: Any, stop: Any, address: Any, given: Any, units: Any, grain: Any, failed: Any) -> None:
    """Call the kernel at `address` for all units, `grain` of them at a time; `failed` gets 1 if a call raised."""
    for part in prange((units + grain - 1) // grain):
        if call(address, part * grain, least(units, part * grain + grain), given):
            failed[0] = 1


PARTS = 256  # at most so many parts: threads that are done take what is left

_TURNS: Any = threading.RLock()
after_fork(lambda: in_child(_TURNS))
_launcher: tuple[Any, Any] | None = None  # what shares units, compiled, and what one thread at a time holds


PARALLEL_WORK = 1 << 20  # multiplications from which on threads are worth it
PARTS_OF_THREAD = 4  # where parts have memory of their own: a thread that is done takes over what is left


def parts_of(units: int, work: float = math.inf) -> tuple[int, int]:
    """The number of units that a thread takes at a time, and of such parts, where each part has memory of its own.

    It is one part for all if `work`, a number of multiplications, is not worth a thread.
    """
    if work < PARALLEL_WORK or units < 2:
        return max(units, 1), 1
    grain = -(-units // (PARTS_OF_THREAD * policy.number_of_threads()))
    return grain, -(-units // grain)


def run_in_parts(
    kernel: Callable[..., Any], units: int, work: float, operands: Sequence[Any], rooms: Sequence[Any], geometry: Any
) -> None:
    """Call a kernel `(grain, *operands, *memory, geometry)` for all units.

    `rooms` are sizes and dtypes of its memory: each array of it has a row for each part of `grain` units.
    """
    grain, parts = parts_of(units, work)
    memory = [empty((parts, size), np.dtype(dtype)) for size, dtype in rooms]
    kernel(units, grain if parts > 1 else 0, grain, *operands, *memory, geometry)


def grain_of(units: int) -> int:
    """The number of units that a thread takes at a time, of so many that take little time each."""
    return -(-units // PARTS)


def share(address: int, slots: int, units: int, grain: int) -> int:
    """Carry out the units of the kernel at `address` on all threads, `grain` of them at a time; 0 if none raised."""
    refuse_unfinished()
    let_fork()
    # Without a lock: once there is a launcher, it stays.
    launch, turns = _launcher or _make_launcher()
    failed = np.zeros(1, np.int64)
    with RUNNING.lock, turns:
        launch(1, 0, address, slots, units, grain, failed)
    return int(failed[0])


def _in_child() -> None:
    """Give a child a launcher of one thread, where another one would end it."""
    global _launcher
    if policy.ends_in_children():
        _launcher = _launch_alone, contextlib.nullcontext()


after_fork(_in_child)
_warned = False


def _launch_alone(start: int, stop: int, address: int, slots: int, units: int, grain: int, failed: Any) -> None:
    """`launch` on this thread alone, part by part as there: to the same bits."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "snncell: this process was forked after parallel kernels had run on GNU OpenMP, which cannot be forked: "
            "its kernels run on one thread here. Set NUMBA_THREADING_LAYER=workqueue before Python starts, or start "
            'processes anew: multiprocessing.get_context("spawn").',
            RuntimeWarning,
            stacklevel=2,
        )
    launch(0, 1, address, slots, units, grain, failed)


def _make_launcher() -> tuple[Any, Any]:
    global _launcher
    with BUILDING:
        if _launcher is None:
            _launcher = deferring(_compile_launcher)
        return _launcher


def _compile_launcher() -> tuple[Any, Any]:
    signature = (*[dtypes.int64] * 4, (dtypes.int64, 1, True))
    source = of_slots("launch", "from numba import prange\n" + source_of(launch, prange=None), signature)
    policy.number_of_threads()  # starts them, and so settles which layer they are of
    linked, loaded = code_of("launch", source, source, threads=True)
    layer = policy.threading_layer()
    kernel = kernel_of("launch", linked, signature, share, loaded)  # of one unit, so it is never shared itself
    return kernel, _TURNS if layer == "workqueue" else contextlib.nullcontext()


# --- Building: the same source gives the same kernel ------------------------------------------------------------------

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}


def build(name: str, source: str, signature: Sequence[Any]) -> Callable[..., Any]:
    """The kernel called `name` in `source`, compiled for `signature`: see `native.kernel_of`."""
    code = without_comments(source)
    key = (name, code, tuple(signature))
    kernel = _built.get(key)
    if kernel is None:
        # Before the lock, which a thread that builds one kernel after the other would not leave to a fork.
        refuse_unfinished()
        let_fork()
        with BUILDING:
            kernel = _built.get(key)  # another thread may have built it meanwhile
            if kernel is None:
                # Numba's state would be left in pieces: an interruption waits until this kernel is done.
                kernel = _built[key] = deferring(_compile_kernel, name, source, code, signature)
    return kernel


def _compile_kernel(name: str, source: str, code: str, signature: Sequence[Any]) -> Callable[..., Any]:
    if not policy.compiles():
        function = function_of(keep(name, source, code)[0], source, name)
        return lambda units, _, *arguments: function(0, units, *arguments)
    linked, loaded = code_of(name, of_slots(name, source, signature), of_slots(name, code, signature))
    return kernel_of(name, linked, signature, share, loaded)


def build_function(kernel: Callable[..., Any], signature: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The kernel that a function is the source of; `given` as for `source_of`."""
    return build(kernel.__name__, source_of(kernel, **given), signature)


def signature_of(kinds: str, *named: Any) -> tuple[Any, ...]:
    """The signature of a kernel with arguments of the `kinds` that a text names.

    For example, in "int64 T[1] S[2]*" the first argument is an integer, the others are arrays of one and two axes, and
    the kernel writes to the last one. T and S stand for the dtypes `named`.
    """
    of_letter = dict(zip("TS", named, strict=False))
    signature: list[Any] = []
    for kind in kinds.split():
        name, _, ndim = kind.rstrip("]*").partition("[")
        dtype = dtypes.BY_NUMPY[np.dtype(of_letter[name])] if name in of_letter else getattr(dtypes, name)
        signature.append((dtype, int(ndim), kind.endswith("*")) if ndim else dtype)
    return tuple(signature)


@functools.cache
def kernel_for(function: Callable[..., Any], kinds: str, *named: Any, **given: Any) -> Callable[..., Any]:
    """The kernel that a function is the source of; `kinds` are for `signature_of`, `given` for `source_of`."""
    return build_function(function, signature_of(kinds, *named), **given)


def expect(kernels: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
    """Say which kernels are about to be built, as the arguments of `build`, before the first of them is compiled."""
    if not progress.listening():
        return
    with_code = store.compiled_names()
    for name, source, signature in kernels:
        code = without_comments(source)
        file = f"{name}_{digest_of(of_slots(name, code, signature))}"
        if (name, code, tuple(signature)) not in _built and file not in with_code:
            progress.expect([file])
