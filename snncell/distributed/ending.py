"""The end of a job: a rank that fails ends all of them, and one that is done waits for the others."""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from types import TracebackType
from typing import Any

import numpy as np

from snncell.errors import RankError

_LEFT = 1  # the tag of the message by which a rank says that its program has ended
FIRST = 1.0  # seconds for which the others let rank 0 speak, of an error that all may have


class Ending:
    """The end of a rank's program, by an error or not.

    MPI itself knows of no errors of Python's: the others would wait forever for one that has raised an exception, or
    has left by `sys.exit`.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi, self.comm = mpi, comm
        self.before = sys.excepthook
        self.process = os.getpid()  # a child that is forked is no rank

    def watch(self) -> None:
        """From now on, an exception that nobody catches ends the job, and the end of the program waits for all."""
        sys.excepthook = self._failed
        atexit.register(self._done)  # before MPI's own end, which was registered earlier

    def _failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Say which rank has failed, and end all."""
        if os.getpid() != self.process:
            self.before(kind, error, trace)
            return
        if self.comm.rank:
            time.sleep(FIRST)  # an error that all of them have is told once: by then the job is over
        sys.stdout.flush()
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(
            f"{text}snncell.distributed: rank {self.comm.rank} of {self.comm.size} has ended by {kind.__name__}; this "
            f"ends the job.\n"
        )
        sys.stderr.flush()
        self.mpi.COMM_WORLD.Abort(1)

    def _done(self) -> None:
        """Tell the others that this rank's program is over, and wait until theirs are."""
        if os.getpid() != self.process:
            return
        others = [rank for rank in range(self.comm.size) if rank != self.comm.rank]
        word, heard = np.zeros(1, np.uint8), np.zeros((len(others), 1), np.uint8)
        requests = [self.comm.Isend(word, rank, _LEFT) for rank in others]
        requests += [self.comm.Irecv(place, rank, _LEFT) for place, rank in zip(heard, others, strict=True)]
        while not self.mpi.Request.Testall(requests):
            time.sleep(1e-3)

    def refuse_left(self) -> None:
        """Raise a RankError if a rank has ended its program, for whom this one would wait forever."""
        status = self.mpi.Status()
        if self.comm.Iprobe(self.mpi.ANY_SOURCE, _LEFT, status):
            raise RankError(
                f"distributed: rank {status.source} has ended its program, and rank {self.comm.rank} waits for it. "
                f"All ranks go through the same calls of snncell.distributed and fit(distributed=True): see what only "
                f"some of them do (if rank() == 0: ...; sys.exit())."
            )
