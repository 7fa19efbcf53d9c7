"""Threads for what is not a generated loop: products of matrices, which BLAS computes on one thread at a time.

BLAS's own threads spin for a while after each product: beside them our loops get half a core, and when other programs
want the cores, a step takes many times as long. They also split sums by their number. So BLAS gets one thread as long
as it works for us, and large products are cut into parts, the same for any number of threads, for threads that sleep
when they wait.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from snncell.kernels.policy import number_of_threads


class _Blas:
    """A context in which BLAS runs on one thread; whatever was set before comes back when the last leaves it."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._libraries: list[Any] | None = None
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                libraries = self._found()
                self._before = [library.get_num_threads() for library in libraries]
                for library in libraries:
                    library.set_num_threads(1)
            self._inside += 1

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for library, number in zip(self._found(), self._before, strict=True):
                    library.set_num_threads(number)

    def _found(self) -> list[Any]:
        """The BLAS libraries of this process that NumPy may use."""
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController  # looks through all loaded libraries: milliseconds

            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries


class _Workers:
    """Threads that share parts of a product among them."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[[Any], Any], parts: Sequence[Any]) -> None:
        """Call `function` with each part, on as many threads as loops run on."""
        number = min(number_of_threads(), len(parts))
        waiting = iter(parts)

        def work() -> None:
            for part in waiting:  # each takes the next that is left
                function(part)

        helpers = [self._executor().submit(work) for _ in range(number - 1)]
        work()
        for helper in helpers:
            helper.result()

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="snncell")
            return self._pool


BLAS = _Blas()
WORKERS = _Workers()
