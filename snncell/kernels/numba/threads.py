"""Threads for products of matrices, which BLAS computes on one thread at a time.

BLAS's own threads spin for a while after each product: beside them our loops get half a core, and when other programs
want the cores, a step takes many times as long. They also split sums by their number. So BLAS gets one thread as long
as it works for us, and large products are cut into parts, the same for any number of threads, for threads that sleep
when they wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from snncell.base.signals import RUNNING, after_fork, import_once, let_fork
from snncell.kernels.numba.policy import number_of_threads


class _Blas:
    """Runs functions while BLAS has one thread; whatever was set before comes back when the last of them is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[object] = set()
        self._libraries: list[_Library] | None = None
        self._before: list[int] = []
        after_fork(self._in_child)

    def _in_child(self) -> None:
        """Begin outside of everything, in a child: it will not leave what other threads were inside of."""
        self._lock = threading.Lock()
        if self._inside:
            self._restore()
            self._inside.clear()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function while BLAS has one thread; a fork waits until it is done."""
        one = object()
        let_fork()
        with RUNNING.lock:
            try:
                try:
                    self._enter(one)
                    return function(*args)
                finally:
                    self._leave(one)
            finally:  # an interruption comes as `_leave` begins, or within it: it is done again then, from the start
                if one in self._inside:
                    self._leave(one)

    def _enter(self, one: object) -> None:
        libraries = self._found()
        with self._lock:
            if self._inside:
                self._inside.add(one)
                return
            self._before = [library.number() for library in libraries]
            self._inside.add(one)
            for library in libraries:
                library.set_number(1)

    def _leave(self, one: object) -> None:
        """Restore first, and be outside then: as long as something is left to do, `one` is inside."""
        with self._lock:
            if self._inside == {one}:
                self._restore()
            self._inside.discard(one)

    def _restore(self) -> None:
        for library, number in zip(self._found(), self._before, strict=True):
            library.set_number(number)

    def _found(self) -> list[_Library]:
        """The BLAS libraries that NumPy may use: those that are there now. What is loaded later is others'."""
        if self._libraries is None:
            # On first use: it looks through all loaded libraries, which takes milliseconds.
            controllers = import_once("threadpoolctl").ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = [_Library(controller) for controller in controllers]
        return self._libraries


class _Library:
    """One BLAS library, found by threadpoolctl, which can be asked and told its number of threads."""

    def __init__(self, controller: Any) -> None:
        self.path = controller.filepath
        self.number: Callable[[], int] = controller.get_num_threads
        self.set_number: Callable[[int], Any] = controller.set_num_threads
        # OpenBLAS is told directly: the controller would let one thread of the program alone do it.
        if controller.internal_api == "openblas":
            for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
                set_number = getattr(controller.dynlib, f"{prefix}openblas_set_num_threads{suffix}", None)
                if set_number is not None:
                    self.number = getattr(controller.dynlib, f"{prefix}openblas_get_num_threads{suffix}")
                    self.set_number = set_number


class _Workers:
    """Threads that share parts of a product among them."""

    def __init__(self) -> None:
        self._begin()
        after_fork(self._begin)  # a child has none of its parent's threads

    def _begin(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> None:
        """Call `function` with each part, on as many threads as loops run on."""
        number = min(number_of_threads(), len(parts))
        # The next of an iterator over a sequence is one step in C: no two threads get the same part.
        waiting = iter(parts)

        def work() -> None:
            for part in waiting:
                function(part)

        helpers: list[Future[None]] = []
        with suppress(RuntimeError):  # the interpreter is ending and starts no more threads: this one does it all
            for _ in range(number - 1):
                helpers.append(self._executor().submit(work))
        try:
            work()
        finally:
            wait(helpers)  # whatever happens, nobody writes to the result any more when this returns
        for helper in helpers:
            helper.result()

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                # Each thread begins with NumPy's warnings on, and inf and NaN are values here.
                quiet = partial(np.seterr, all="ignore")
                self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="snncell", initializer=quiet)
            return self._pool


BLAS = _Blas()
WORKERS = _Workers()
