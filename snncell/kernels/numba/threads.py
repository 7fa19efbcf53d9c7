"""Threads for matrix products: BLAS runs on one thread at a time, and large products are cut into parts.

BLAS's own threads spin for a while after each product. During that time, loops get half a core, and on a busy machine a
step takes many times as long. BLAS also splits sums by its number of threads, so the bits would depend on this number.
Therefore BLAS gets one thread while snncell uses it, and snncell cuts large products into parts. The parts are the same
for any number of threads. Worker threads compute them, and sleep while they wait for work.
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
    """Runs functions while BLAS is limited to one thread; the last one to return restores the previous setting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[object] = set()
        self._libraries: list[_Library] | None = None
        self._before: list[int] = []
        after_fork(self._in_child)

    def _in_child(self) -> None:
        """Forget the threads inside of `run` in a forked child, where they do not exist."""
        self._lock = threading.Lock()
        if self._inside:
            self._restore()
            self._inside.clear()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function while BLAS has one thread; a fork waits until it returns."""
        one = object()
        let_fork()
        with RUNNING.lock:
            try:
                try:
                    self._enter(one)
                    return function(*args)
                finally:
                    self._leave(one)
            finally:  # if an interruption hits `_leave` before it is done, it runs again from the start
                if one in self._inside:
                    self._leave(one)

    def _enter(self, one: object) -> None:
        libraries = self._blas_libraries()
        with self._lock:
            if self._inside:
                self._inside.add(one)
                return
            self._before = [library.number() for library in libraries]
            self._inside.add(one)
            for library in libraries:
                library.set_number(1)

    def _leave(self, one: object) -> None:
        """Restore the setting first, then remove `one`, so that `run` can repeat the call after an interruption."""
        with self._lock:
            if self._inside == {one}:
                self._restore()
            self._inside.discard(one)

    def _restore(self) -> None:
        for library, number in zip(self._blas_libraries(), self._before, strict=True):
            library.set_number(number)

    def _blas_libraries(self) -> list[_Library]:
        """The BLAS libraries that NumPy may use: those in memory at the first call. Later ones serve other packages."""
        if self._libraries is None:
            # Only on first use, because a search through all loaded libraries takes milliseconds.
            controllers = import_once("threadpoolctl").ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = [_Library(controller) for controller in controllers]
        return self._libraries


class _Library:
    """One BLAS library, found by threadpoolctl, with access to its number of threads."""

    def __init__(self, controller: Any) -> None:
        self.path = controller.filepath
        self.number: Callable[[], int] = controller.get_num_threads
        self.set_number: Callable[[int], Any] = controller.set_num_threads
        # Call OpenBLAS directly, because the controller's setting applies to one thread of the program only.
        if controller.internal_api == "openblas":
            for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
                set_number = getattr(controller.dynlib, f"{prefix}openblas_set_num_threads{suffix}", None)
                if set_number is not None:
                    self.number = getattr(controller.dynlib, f"{prefix}openblas_get_num_threads{suffix}")
                    self.set_number = set_number


class _Workers:
    """Worker threads that compute the parts of a product."""

    def __init__(self) -> None:
        self._begin()
        after_fork(self._begin)  # a child does not have its parent's threads

    def _begin(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> None:
        """Call `function` with each part, on as many threads as loops use."""
        number = min(number_of_threads(), len(parts))
        # `next` on this iterator is one atomic step in C, so no two threads get the same part.
        waiting = iter(parts)

        def work() -> None:
            for part in waiting:
                function(part)

        helpers: list[Future[None]] = []
        with suppress(RuntimeError):  # at interpreter shutdown no thread can start: this thread does all the work
            for _ in range(number - 1):
                helpers.append(self._executor().submit(work))
        try:
            work()
        finally:
            wait(helpers)  # even after an error, no helper may still write to the result
        for helper in helpers:
            helper.result()

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                # NumPy's warnings are on in each new thread, but inf and NaN are valid values here.
                quiet = partial(np.seterr, all="ignore")
                self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="snncell", initializer=quiet)
            return self._pool


BLAS = _Blas()
WORKERS = _Workers()
