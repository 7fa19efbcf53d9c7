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

# Tags of messages: a rank's program is over; it has left `fit` by an error; it has waited for long in an exchange.
_LEFT, _FAILED, _WAITS = 1, 2, 5
_WORDS = 4  # of a message: part and exchanges; of an error, the rank that had it first, and whether it was sys.exit
TOLD = 0.3  # seconds for the launcher to hand on what was said: it drops what it has not read when the job ends
SILENT = 30.0  # seconds for which a rank waits without a word
GRACE = 3.0  # seconds before, when it asks the others whether they wait too
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
        self.left: dict[int, tuple[int, ...]] = {}  # those whose program is over: their part, and its exchanges
        self.caused: BaseException | None = None  # the error that another rank's has led to here
        self.origin: tuple[int, ...] = (comm.rank, 0)  # the rank that had it, and whether that was sys.exit
        self.waiting: dict[int, tuple[int, ...]] = {}  # where other ranks wait, as far as they have told
        self.told_waiting = (-1, -1)  # where this rank has told the others that it waits
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
        words = np.full((len(left), _WORDS), -1, np.int64)
        self.sent += [self.comm.Irecv(word, rank, _LEFT) for word, rank in zip(words, left, strict=True)]
        patience = SILENT
        begun = time.monotonic()
        while not self.mpi.Request.Testall(self.sent):
            time.sleep(1e-3)
            if time.monotonic() - begun > patience:
                patience *= 2
                awaited = [rank for word, rank in zip(words, left, strict=True) if word[0] < 0]
                _say(
                    f"rank {self.comm.rank} has ended its program and waits for {_ranks(awaited)} to end as well, for "
                    f"{time.monotonic() - begun:.0f} s by now."
                )

    def failed_here(self, error: BaseException) -> None:
        """Tell the others that this rank goes on elsewhere, by an error."""
        self.failed = True
        if isinstance(error, SystemExit):  # Python says nothing of it
            _say(f"rank {self.comm.rank} has left fit by sys.exit({error.code!r:.200}).")
        own = self.comm.rank, int(isinstance(error, SystemExit))
        self._tell(_FAILED, *(self.origin if error is self.caused else own))

    def _tell(self, what: int, *more: int) -> None:
        """Send the others how far this rank has come, and more of what has happened."""
        word = np.zeros(_WORDS, np.int64)
        word[: 2 + len(more)] = self.part, self.taken, *more
        self.sent = [request for request in self.sent if not request.Test()]
        self.sent += [self.comm.Isend(word, rank, what) for rank in self.others]

    def _heard(self, rank: int, what: int) -> tuple[int, ...] | None:
        """The last message of that kind from a rank, or None: its part and exchanges at that time, and more."""
        word = np.zeros(_WORDS, np.int64)
        if not self.comm.Iprobe(rank, what):
            return None
        self.comm.Recv(word, rank, what)
        return tuple(map(int, word))

    def refuse_waiting(self) -> None:
        """Raise a RankError if this rank would wait forever for another one.

        That is one whose program has ended, or that has left `fit` by an error, before the exchange that this one waits
        in. One that took part in it may have ended since.
        """
        for rank in self.others:
            while word := self._heard(rank, _FAILED):
                if word[0] == self.part:  # not of a call that has failed here too
                    # A rank that has only heard of the error names the one that had it.
                    self.origin = origin, by_exit = word[2:]
                    how, mend = ("sys.exit", "") if by_exit else ("an error", f" See what rank {origin} says of it.")
                    self.caused = RankError(
                        f"fit: rank {origin} has left it by {how}, and rank {self.comm.rank} waits for it.{mend}"
                    )
                    raise self.caused
            if rank not in self.left and (word := self._heard(rank, _LEFT)):
                self.left[rank] = word[:2]
            if rank in self.left and self.left[rank] <= (self.part, self.taken):
                raise RankError(
                    f"distributed: rank {rank} has ended its program, and rank {self.comm.rank} waits for it. All "
                    f"ranks go through the same calls of snncell.distributed and fit(distributed=True): see what only "
                    f"some of them do (if rank() == 0: ...; sys.exit())."
                )

    def wait_on(self, what: str, seconds: float, patience: float) -> float:
        """Go on waiting: notice ranks that have left, and say which ones are awaited when the patience is over.

        The awaited ranks are those that do not wait in the same exchange. A rank that waits for long tells the others,
        which tell it whether they wait too. The lowest of the waiting ranks says so, on behalf of all.

        Args:
            what: the name of the exchange.
            seconds: the time that this rank has waited.
            patience: the time after which it says so.

        Returns:
            The time after which it says so again.
        """
        self.refuse_waiting()
        here = self.part, self.taken
        for rank in self.others:
            while word := self._heard(rank, _WAITS):
                self.waiting[rank] = word[:2]
        together = [rank for rank in self.others if self.waiting.get(rank, (-1, -1)) >= here]
        if (together or seconds > patience - GRACE) and self.told_waiting != here:
            self._tell(_WAITS)
            self.told_waiting = here
        if seconds <= patience:
            return patience
        awaited = [rank for rank in self.others if rank not in together]
        if awaited and self.comm.rank < min(together, default=self.comm.size):
            _say(
                f"rank {self.comm.rank} has waited {seconds:.0f} s for {_ranks(awaited)} in {what}, and goes on "
                f"waiting. Is a process stopped, does it still compute, or does it go through other calls?"
            )
        return 2 * patience


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _say(text: str) -> None:
    sys.stderr.write(f"snncell.distributed: {text}\n")
    sys.stderr.flush()
