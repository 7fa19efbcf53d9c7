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

_LEFT, _FAILED = 1, 2  # tags of messages: a rank's program is over; it has left `fit` by an error
TOLD = 0.3  # seconds for the launcher to hand on what was said: it drops what it has not read when the job ends
FIRST = 3.0  # seconds for which the others let rank 0 speak, of an error that all may have


class Ending:
    """The end of a rank's program, by an error or not.

    MPI itself knows of no errors of Python's: the others would wait forever for one that has raised an exception, or
    has left by `sys.exit`.

    Attributes:
        part: the number of the present part of the job: another one begins where a call of `fit` has failed.
        taken: the number of exchanges of this part that this rank has taken part in.
        failed: whether this rank has left the part by an error.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi, self.comm = mpi, comm
        self.others = [rank for rank in range(comm.size) if rank != comm.rank]
        self.part, self.taken, self.failed = 0, 0, False
        self.left: dict[int, tuple[int, int]] = {}  # those whose program is over: their part, and its exchanges
        self.caused: BaseException | None = None  # the error that another rank's has led to here
        self.sent: list[Any] = []
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
        # An error that all of them have is told once, and one that another has caused not before its own: by then the
        # job is over.
        time.sleep(FIRST * (2 if error is self.caused else 1 if self.comm.rank else 0))
        sys.stdout.flush()
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(
            f"{text}snncell.distributed: rank {self.comm.rank} of {self.comm.size} has ended by {kind.__name__}; this "
            f"ends the job.\n"
        )
        sys.stderr.flush()
        time.sleep(TOLD)
        self.mpi.COMM_WORLD.Abort(1)

    def _done(self) -> None:
        """Tell the others that this rank's program is over, and wait until theirs are."""
        if os.getpid() != self.process:
            return
        self._tell(_LEFT)
        left = [rank for rank in self.others if rank not in self.left]
        words = np.zeros((len(left), 2), np.int64)
        self.sent += [self.comm.Irecv(word, rank, _LEFT) for word, rank in zip(words, left, strict=True)]
        while not self.mpi.Request.Testall(self.sent):
            time.sleep(1e-3)

    def failed_here(self) -> None:
        """Tell the others that this rank goes on elsewhere, by an error."""
        self.failed = True
        self._tell(_FAILED)

    def _tell(self, what: int) -> None:
        """Send the others how far this rank has come."""
        word = np.array([self.part, self.taken], np.int64)
        self.sent += [self.comm.Isend(word, rank, what) for rank in self.others]

    def _heard(self, rank: int, what: int) -> tuple[int, int] | None:
        """The part and the exchanges that a rank had come to when it told that, if it has."""
        word = np.zeros(2, np.int64)
        if not self.comm.Iprobe(rank, what):
            return None
        self.comm.Recv(word, rank, what)
        return int(word[0]), int(word[1])

    def refuse_waiting(self) -> None:
        """Raise a RankError if this rank would wait forever for another one.

        That is one whose program has ended, or that has left `fit` by an error, before the exchange that this one waits
        in. One that took part in it may have ended since.
        """
        for rank in self.others:
            while word := self._heard(rank, _FAILED):
                if word[0] == self.part:  # not of a call that has failed here too
                    self.caused = RankError(
                        f"fit: rank {rank} has left it by an error, and rank {self.comm.rank} waits for it. See what "
                        f"rank {rank} says of it."
                    )
                    raise self.caused
            if rank not in self.left and (word := self._heard(rank, _LEFT)):
                self.left[rank] = word
            if rank in self.left and self.left[rank] <= (self.part, self.taken):
                raise RankError(
                    f"distributed: rank {rank} has ended its program, and rank {self.comm.rank} waits for it. All "
                    f"ranks go through the same calls of snncell.distributed and fit(distributed=True): see what only "
                    f"some of them do (if rank() == 0: ...; sys.exit())."
                )
