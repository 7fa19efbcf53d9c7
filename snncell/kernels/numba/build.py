"""Build kernels from source text or from functions, and launch them on all threads.

The threads are Numba's, on TBB if it is installed. Numba's other threading layers are fragile. "workqueue" ends the
process if two Python threads enter its kernels at once; with it, Python threads take turns. GNU OpenMP, the layer on
Linux without TBB, ends a child process that was forked after the threads had started. Therefore such a child runs
kernels on one thread. A fork waits for running kernels and builds.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.base.signals import BUILDING, RUNNING, after_fork, deferring, in_child, let_fork, refuse_unfinished
from snncell.errors import KernelMemoryError
from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import AXES, DATA, call, word_at
from snncell.kernels.numba import policy, store
from snncell.kernels.numba.code import (
    code_of,
    digest_of,
    expect_kernels,
    function_of,
    keep,
    listening,
    of_slots,
    source_of,
    without_comments,
)
from snncell.kernels.numba.native import kernel_of, range_runner

# --- Kernel: the one function that runs on several threads ------------------------------------------------------------


def launch(start: Any, stop: Any, address: Any, given: Any, units: Any, grain: Any, failed: Any) -> None:
    """Call the kernel at `address` for parts of `grain` units; set `failed` to 1 if a call returns an error."""
    for part in range(start, stop):
        if call(address, part * grain, least(units, part * grain + grain), given):
            failed[0] = 1


PARTS = 256  # the largest number of parts

_TURNS: Any = threading.RLock()
after_fork(lambda: in_child(_TURNS))
_launcher: tuple[Any, Any] | None = None  # the compiled `launch`, and the lock around it


PARALLEL_WORK = 1 << 20  # multiplications; below this, starting threads costs more than it saves
PARTS_OF_THREAD = 4  # for parts with scratch memory, so that threads get almost the same number of units


def parts_of(units: int, work: float = math.inf) -> tuple[int, int]:
    """Choose grain (units per part) and number of parts for a kernel with scratch memory; one part for little work."""
    threads = policy.number_of_threads() if work >= PARALLEL_WORK and units > 1 else 1
    if threads == 1:
        return max(units, 1), 1

    def longest(grain: int) -> int:
        """The largest number of units of a thread: for 10 units on 2 threads, 6 with grain 2, and 5 with grain 1."""
        return -(-units // grain // threads) * grain

    most = -(-units // (PARTS_OF_THREAD * threads))
    grain = min(range(most, (most + 1) // 2 - 1, -1), key=longest)
    return grain, -(-units // grain)


def run_in_parts(
    kernel: Callable[..., Any], units: int, work: float, operands: Sequence[Any], scratch: Sequence[Any], geometry: Any
) -> None:
    """Call a kernel `(grain, *operands, *memory, geometry)` that needs scratch memory. Each array of `memory` has one
    row for each part, and a kernel uses row `start // grain`. `scratch` has the size and dtype of the rows of each.
    `geometry` contains integers, such as strides and numbers of channels.
    """
    grain, parts = parts_of(units, work)
    memory = [empty((parts, size), np.dtype(dtype)) for size, dtype in scratch]
    kernel(units, grain if parts > 1 else 0, grain, *operands, *memory, geometry)


def grain_of(units: int) -> int:
    """Choose the grain of a kernel with many cheap units."""
    return -(-units // PARTS)


def share(address: int, slots: int, units: int, grain: int) -> int:
    """Run the units of the kernel at `address` on all threads, `grain` at a time; return 0 if no unit failed."""
    refuse_unfinished()
    let_fork()
    # Reading `_launcher` needs no lock, because a launcher is never replaced.
    launch, turns = _launcher or _make_launcher()
    failed = np.zeros(1, np.int64)
    with RUNNING.lock, turns:
        launch(-(-units // grain), 1, address, slots, units, grain, failed)
    return int(failed[0])


def _in_child() -> None:
    """Give a forked child a launcher of one thread if a parallel launch would end the process."""
    global _launcher
    if policy.ends_in_children():
        _launcher = _launch_alone, contextlib.nullcontext()


after_fork(_in_child)
_warned = False


def _launch_alone(parts: int, _: int, address: int, slots: int, units: int, grain: int, failed: Any) -> None:
    """Run `launch` on this thread alone, with the same parts in the same order, so that the bits are the same."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "snncell: this process was forked after parallel kernels had run on GNU OpenMP, which does not survive a "
            "fork, so kernels run on one thread in this process. To use all threads, set "
            "NUMBA_THREADING_LAYER=workqueue before Python starts, or start processes by "
            'multiprocessing.get_context("spawn").',
            RuntimeWarning,
            stacklevel=2,
        )
    launch(0, parts, address, slots, units, grain, failed)


def _make_launcher() -> tuple[Any, Any]:
    global _launcher
    with BUILDING:
        if _launcher is None:
            _launcher = deferring(_compile_launcher)
        return _launcher


def _compile_launcher() -> tuple[Any, Any]:
    signature = (*[dtypes.int64] * 4, (dtypes.int64, 1, True))
    source = of_slots("launch", source_of(launch), signature)
    policy.number_of_threads()  # starts the threads, which decides the threading layer
    range_runner()  # under the lock: if two threads made one each, the first would be freed while it runs
    linked, loaded = code_of("launch", source, source)
    kernel = kernel_of("launch", linked, signature, policy.run_on_threads, loaded)
    return kernel, _TURNS if policy.threading_layer() == "workqueue" else contextlib.nullcontext()


# --- Building: the same source gives the same kernel ------------------------------------------------------------------

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}


def build(name: str, source: str, signature: Sequence[Any]) -> Callable[..., Any]:
    """Return the kernel called `name` in `source`, compiled for `signature` (see `native.kernel_of`)."""
    code = without_comments(source)
    key = (name, code, tuple(signature))
    kernel = _built.get(key)
    if kernel is None:
        # Before the lock: otherwise a thread that builds many kernels in a row would never let a fork start.
        refuse_unfinished()
        let_fork()
        with BUILDING:
            kernel = _built.get(key)  # another thread may have built it meanwhile
            if kernel is None:
                # Ctrl-C waits until this kernel is done, because it would leave Numba in an inconsistent state.
                kernel = _built[key] = deferring(_compile_kernel, name, source, code, signature)
    return kernel


def _compile_kernel(name: str, source: str, code: str, signature: Sequence[Any]) -> Callable[..., Any]:
    if not policy.compiles():
        function = function_of(keep(name, source, code)[0], source, name)
        return lambda units, _, *arguments: function(0, units, *arguments)
    linked, loaded = code_of(name, of_slots(name, source, signature), of_slots(name, code, signature))
    return kernel_of(name, linked, signature, share, loaded)


def signature_of(kinds: str, *named: Any) -> tuple[Any, ...]:
    """Parse the signature of a kernel from text. For example, in "int64 T[1] S[2]*" the first argument is an integer
    and the others are arrays of one and two axes. The star marks an array that the kernel writes. T and S stand for the
    dtypes in `named`.
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
    """Build, and cache, a kernel from a Python function; see `signature_of` and `source_of` for the arguments."""
    return build(function.__name__, source_of(function, **given), signature_of(kinds, *named))


def expect(kernels: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
    """Announce kernels, given as arguments of `build`, to the progress display before the first of them is compiled."""
    if not listening():
        return
    with_code = store.compiled_names()
    for name, source, signature in kernels:
        code = without_comments(source)
        file = f"{name}_{digest_of(of_slots(name, code, signature))}"
        if (name, code, tuple(signature)) not in _built and file not in with_code:
            expect_kernels([file])


# --- Batched launches: one call from Python runs the units of all kernels on the threads ------------------------------

# A batch has the same numbers and shapes at each call, so they are written to the slots once. Each array is replaced by
# a record with its shape and a field for the address of its elements; a call only writes these addresses. The following
# two kernels are compiled once for all batches, because they call the other kernels through a table of addresses.


def find_elements(start: Any, stop: Any, objects: Any, words: Any, places: Any) -> None:
    """Read the element address of each array object in `objects`, and store it in `words` at `places`."""
    for n in range(start, stop):
        words[places[n]] = word_at(objects[n])


def run_segments(start: Any, stop: Any, table: Any, failed: Any) -> None:
    """Run the units from `start` to `stop`, where the units of all kernels are numbered one kernel after the other.
    `table` (kernels, 3) has the address of each kernel, the address of its slots, and its number of units. `failed` is
    set to 1 if a kernel returns an error.
    """
    kernels, _ = table.shape
    first = 0
    for segment in range(kernels):
        end = first + table[segment, 2]
        low = start if start > first else first
        high = stop if stop < end else end
        if low < high and call(table[segment, 0], low - first, high - first, table[segment, 1]) != 0:
            failed[0] = 1
        first = end


_WORD = 8
_ELEMENTS, _AXES = DATA // _WORD, AXES // _WORD  # the fields of a record that kernels read, in words
_RECORD = _AXES + 1


class Segment(NamedTuple):
    """A kernel and its arguments: a (number, dtype) pair for each number, the shape for each array."""

    kernel: Any
    units: int
    arguments: Sequence[tuple[Any, dtypes.DType] | tuple[int, ...]]


class KernelBatch:
    """Batched kernel launches: several kernels in one call, always with the same numbers and shapes."""

    def __init__(self, kernels: Sequence[Segment]) -> None:
        self.kernels = kernels
        self.units = sum(kernel.units for kernel in kernels)
        self._free: list[_Call] = []

    def __call__(self, arrays: Sequence[Any], grain: int) -> None:
        """Run all kernels: in order on this thread, or, if `grain` is not 0, in any order on all threads. `arrays` are
        the arrays of all kernels, C-contiguous; only their numbers of elements must be right.
        """
        call = self._free.pop() if self._free else _Call(self.kernels)  # another thread may be in a call, too
        call.objects[:] = list(map(id, arrays))
        call.objects += DATA
        find_elements, run_segments = _batch_kernels
        find_elements(len(arrays), 0, call.objects, call.words, call.places)
        run_segments(self.units, grain, call.table, call.failed)
        if call.failed[0]:
            raise KernelMemoryError(
                "Out of memory: a loop of a compiled function cannot allocate its scratch arrays. Use a smaller batch."
            )
        self._free.append(call)


class _Call:
    """Argument memory of one call of a `KernelBatch`; one thread uses it at a time."""

    def __init__(self, kernels: Sequence[Segment]) -> None:
        layout: list[int] = []
        records: list[Any] = []
        firsts, pointers = [], []
        for kernel in kernels:
            firsts.append(len(layout))
            for argument in kernel.arguments:
                if len(argument) == 2 and isinstance(argument[1], dtypes.DType):
                    layout += _words(*argument)
                else:
                    pointers.append(len(layout))
                    layout.append(0)  # replaced by the address of the record
                    records.append(argument)
        count = len(layout)  # slots; the records follow them, and then the shapes
        starts = [count + n * _RECORD for n in range(len(records))]
        shapes = np.cumsum([count + len(records) * _RECORD, *map(len, records)])
        self.words = np.zeros(max(int(shapes[-1]), 1), np.int64)
        base = self.words.ctypes.data
        self.words[:count] = layout
        self.words[pointers] = [base + _WORD * start for start in starts]
        for start, first, shape in zip(starts, shapes[:-1], records, strict=True):
            self.words[start + _AXES] = base + _WORD * int(first)
            self.words[first : first + len(shape)] = shape
        self.places = np.array(starts, np.int64) + _ELEMENTS
        self.objects = np.zeros(len(records), np.int64)
        self.failed = np.zeros(1, np.int64)
        rows = [(k.kernel.linked.address, base + _WORD * n, k.units) for k, n in zip(kernels, firsts, strict=True)]
        self.table = np.array(rows, np.int64)


def _words(number: Any, dtype: dtypes.DType) -> list[int]:
    if dtype.dtype.kind == "c":
        return [*struct.unpack("=qq", struct.pack("=dd", number.real, number.imag))]
    if dtype.dtype.kind == "f":
        return [*struct.unpack("=q", struct.pack("=d", number))]
    return [int(number)]


def batch_sources() -> list[tuple[str, str, tuple[Any, ...]]]:
    """The sources of the two batch kernels, as arguments for `build`."""
    given, filled, table = (dtypes.int64, 1, False), (dtypes.int64, 1, True), (dtypes.int64, 2, False)
    return [
        ("find_elements", source_of(find_elements), (given, filled, given)),
        ("run_segments", source_of(run_segments), (table, filled)),
    ]


def prepare_batches() -> None:
    """Compile or load the two batch kernels."""
    _batch_kernels[:] = [build(*source) for source in batch_sources()]


_batch_kernels: list[Any] = []
