"""A thread that lets MPI go on with what is on its way while this rank computes.

MPI moves messages when it is called, whatever it is asked: between two calls, a sum that was begun stands still.
Kernels let other threads of Python's run, so one that asks now and then is enough, on any MPI that takes calls from
several threads.
"""

from __future__ import annotations

import threading
from typing import Any

from snncell.base.signals import deferring

PAUSE = 2e-4  # seconds between two questions: they take the core from kernels
_NOTHING = 4  # a tag that no message has


class ProgressThread:
    """The thread, from `begin` to `end`; none of a job with one rank."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.comm = comm
        self.helps = comm.size > 1 and mpi.Query_thread() >= mpi.THREAD_MULTIPLE
        self.over = threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Go on from now on."""
        if self.helps and self.thread is None:
            deferring(self._start)  # interrupted, it could be a thread that never begins, or one that nobody ends

    def _start(self) -> None:
        self.over.clear()
        self.thread = threading.Thread(target=self._ask, name="snncell exchanges", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Go on no more: no call of MPI is under way behind this."""
        if self.thread is not None:
            self.over.set()
            self.thread.join()
            self.thread = None

    def _ask(self) -> None:
        while not self.over.wait(PAUSE):
            self.comm.Iprobe(self.comm.rank, _NOTHING)
