"""The ranks of a job: the processes that one `mpiexec` has started, their exchanges and sums, and their end."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from snncell.base.signals import deferring
from snncell.errors import RankError

Array = np.ndarray[Any, Any]
Node = tuple[int, int]  # the shards from one number up to another one, without that

_SUM = "a sum over all shards"  # of gradients, losses or statistics; the name of the exchange
LARGE = 1 << 16  # bytes from which on a sum is shared among the ranks: each adds a part of the elements
PAUSE = 2e-4  # seconds between two questions of the progress thread: they take the core from kernels
# Tags of messages: a rank's program is over; it has left `fit` by an error; a part of a vector; none has this one; it
# has waited for long in an exchange.
_LEFT, _FAILED, _PART, _NOTHING, _WAITS = 1, 2, 3, 4, 5


class ProgressThread:
    """A thread that lets MPI make progress while this rank computes, from `begin` to `end`; unused with one rank.

    MPI moves messages only while it is called. Kernels let other threads of Python's run, so a thread that calls it now
    and then is enough, on any MPI that takes calls from several threads.
    """

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


class Ranks:
    """All ranks of a job, as one of them sees them: its number `rank`, their number `size`.

    Exchanges wait by asking again and again: Ctrl-C is heard meanwhile, ranks that share a core let each other go on,
    and one that has left is noticed. Each batch is cut into `shards`; with `fast`, sums are MPI's, in whatever order.
    """

    def __init__(self, mpi: Any, shards: int, fast: bool) -> None:
        self.mpi, self.base = mpi, mpi.COMM_WORLD.Dup()
        self.comm = self.base.Dup()
        self.left: list[Any] = []  # exchanges that were begun, or that an error has come between
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.shards, self.fast = shards, fast
        self.nodes = rank_nodes(shards, self.size)
        self.own = [shard for shard in range(shards) if shard * self.size // shards == self.rank]
        self.ending = Ending(mpi, mpi.COMM_WORLD.Dup())
        self.progress = ProgressThread(mpi, mpi.COMM_WORLD.Dup())

    def wait(self, requests: Iterable[Any], what: str = "an exchange") -> None:
        """Wait until requests of MPI are done. After 30 s a message with the name of the exchange says who is awaited.

        Raises:
            RankError: if another rank has ended its program, or has left `fit` by an error.
        """
        under_way = [*requests]
        begun, asked, patience = time.monotonic(), 0, SILENT
        try:
            for request in under_way:
                while not request.Test():
                    asked += 1
                    if asked < 500:  # let another process have this core; to sleep takes far longer than most exchanges
                        getattr(os, "sched_yield", lambda: time.sleep(0))()
                    else:
                        time.sleep(5e-5)
                    if not asked % 200 and (seconds := time.monotonic() - begun) > 1.0:
                        patience = self.ending.wait_on(what, seconds, patience)
            self.ending.taken += 1  # on all ranks alike, however many messages it was
            self.left = [request for request in self.left if request not in under_way]
        except BaseException:
            self.left += under_way  # which hold their arrays: MPI may write to them still
            raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context of what all ranks do: an error by which one leaves it reaches those that wait for it there."""
        try:
            self.begin_anew()
            yield
        except BaseException as error:
            self.progress.end()
            self.ending.failed_here(error)
            raise

    def begin_anew(self) -> None:
        """Begin anew after a call of `fit` that failed, on all ranks: exchanges that some waited in are over."""
        end = self.ending
        if end.failed:
            self.comm, request = self.base.Idup()  # the one before stays: nobody knows what is under way in it
            end.part, end.taken, end.failed = end.part + 1, 0, False
            self.wait([request], "the beginning of another call after an error")

    def gathered(self, own: Array, what: str = "an exchange") -> list[Array]:
        """The array of every rank; they have one shape. `what` names the exchange, as in `wait`."""
        own = np.asarray(own, order="C")
        found = np.empty((self.size, *own.shape), own.dtype)
        self.wait([self.comm.Iallgather(_bytes(own), _bytes(found))], what)
        return list(found)

    def objects(self, own: Any, what: str) -> list[Any]:
        """The object of every rank, of what JSON has; other objects in it become text."""
        return [json.loads(text) for text in self.texts(json.dumps(own, default=str).encode(), what)]

    def texts(self, own: bytes, what: str = "an exchange") -> list[bytes]:
        """The bytes of every rank, of any length. `what` names the exchange, as in `wait`."""
        lengths = [int(n) for n in self.gathered(np.array(len(own)), what)]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(own)] = np.frombuffer(own, np.uint8)
        return [part[:length].tobytes() for part, length in zip(self.gathered(padded, what), lengths, strict=True)]

    def any(self, flag: bool) -> bool:
        """True if it is on one of the ranks."""
        return (self.size > 1 and any(map(bool, self.gathered(np.array(flag))))) or flag

    def summed(self, own: dict[int, Array], like: Array) -> Array:
        """The sum over all shards, of vectors like `like`; `own` are those of this rank's shards, which are added to.

        They are added in the order of a tree over the shards, so to the same bits on any number of ranks: `rank_nodes`.
        """
        if self.fast:
            total = np.zeros_like(like)
            for vector in own.values():
                total += vector
            self.wait([self.sum_begun(total)], _SUM)
            return total
        there = np.zeros(self.shards, bool)
        there[list(own)] = True
        known: dict[Node, Any] = {(shard, shard + 1): vector for shard, vector in own.items()}
        mine = [add_nodes(node, known) for node in self.nodes[self.rank]]
        if self.size == 1:
            return mine[0] if mine[0] is not None else np.zeros_like(like)
        there = np.logical_or.reduce(self.gathered(there, _SUM))
        parts = [np.zeros_like(like) if part is None else part for part in mine]
        if like.nbytes < LARGE:
            found = np.empty((sum(map(len, self.nodes)), like.size), like.dtype)  # of every rank those of its nodes
            counts = [len(nodes) * like.size * found.itemsize for nodes in self.nodes]
            self.wait([self.comm.Iallgatherv(_bytes(np.concatenate(parts)), [_bytes(found), counts])], _SUM)
            return self._tree(list(found), there)
        width = -(-like.size // self.size)
        ends = [min(like.size, rank * width) for rank in range(self.size + 1)]
        own_part = np.zeros(width, like.dtype)
        own_part[: ends[self.rank + 1] - ends[self.rank]] = self._tree(self._exchanged(parts, ends), there)
        total = np.empty(width * self.size, like.dtype)
        self.wait([self.comm.Iallgather(_bytes(own_part), _bytes(total))], _SUM)
        return total[: like.size]

    def _exchanged(self, parts: list[Array], ends: list[int]) -> list[Array]:
        """Of every rank the part of its nodes' vectors that this one adds, in their order.

        By messages between each two: MPICH's Ialltoallv took ten times as long for 4 MB on two ranks.
        """
        rows: list[Array] = []
        requests = []
        for rank, own in enumerate(self.nodes):
            begin, end = ends[self.rank : self.rank + 2]
            if rank == self.rank:
                rows += [part[begin:end] for part in parts]
                continue
            rows += [np.empty(end - begin, parts[0].dtype) for _ in own]
            requests += [self.comm.Irecv(_bytes(row), rank, _PART) for row in rows[-len(own) :]]
        for rank in range(self.size):
            if rank != self.rank:
                pieces = [part[ends[rank] : ends[rank + 1]] for part in parts]
                requests += [self.comm.Isend(_bytes(piece), rank, _PART) for piece in pieces]
        self.wait(requests, _SUM)
        return rows

    def _tree(self, rows: list[Array], there: Array) -> Array:
        """The sum of the nodes of all ranks, of which those without a shard that is there are none."""
        numbered = [node for own in self.nodes for node in own]
        known = {node: row if there[slice(*node)].any() else None for node, row in zip(numbered, rows, strict=True)}
        total = add_nodes((0, self.shards), known)
        return np.zeros_like(rows[0]) if total is None else total

    def sum_begun(self, vector: Array) -> Any:
        """The request of a sum by MPI, which is put in the vector's place; no rank waits here."""
        # By functions in C alone: an interruption between them would free a vector that MPI still writes to. What is
        # left holds it, should nobody come to wait for it.
        self.left.extend(map(self.comm.Iallreduce, [self.mpi.IN_PLACE], [vector], [self.mpi.SUM]))
        return self.left[-1]


def odd_rank(values: Sequence[Hashable]) -> tuple[int, int] | None:
    """The lowest rank whose value differs from that of most ranks, and the lowest of these; None if all are equal.

    Every rank gets the same answer, so that all of them name the same rank. Of two ranks, rank 1 is the odd one.
    """
    usual, _ = Counter(values).most_common(1)[0]  # of equal counts the first
    odd = next((rank for rank, value in enumerate(values) if value != usual), None)
    return None if odd is None else (odd, values.index(usual))


def _bytes(array: Array) -> Array:
    """An array as the bytes that MPI is given, whatever its dtype."""
    return array.reshape(-1).view(np.uint8)


# --- the order of additions -------------------------------------------------------------------------------------------


def rank_nodes(shards: int, ranks: int) -> list[list[Node]]:
    """For each rank the largest nodes of the tree that lie within its shards.

    The sum of all shards is that of the first half and that of the second, and so on down to single ones: what a rank
    adds by itself is part of the same sum on any number of ranks.

    >>> from snncell.distributed.ranks import rank_nodes
    >>> rank_nodes(4, 2), rank_nodes(4, 3)
    ([[(0, 2)], [(2, 4)]], [[(0, 2)], [(2, 3)], [(3, 4)]])
    """
    owner = [shard * ranks // shards for shard in range(shards)]
    found: list[list[Node]] = [[] for _ in range(ranks)]

    def within(low: int, high: int) -> None:
        if owner[low] == owner[high - 1]:
            found[owner[low]].append((low, high))
            return
        middle = (low + high) // 2
        within(low, middle)
        within(middle, high)

    within(0, shards)
    return found


def add_nodes(node: Node, known: dict[Node, Any]) -> Any:
    """The sum of a node, of arrays that are known of some below; None where there is nothing to add.

    Arrays are added in place, so they belong to nobody else afterwards.
    """
    if node in known:
        return known[node]
    low, high = node
    if high - low == 1:
        return None
    middle = (low + high) // 2
    first, second = add_nodes((low, middle), known), add_nodes((middle, high), known)
    if first is None or second is None:
        return second if first is None else first
    first += second
    return first


# --- the end of a job: a rank that fails ends all of them, and one that is done waits for the others -----------------

_WORDS = 4  # of a message: part and exchanges; of an error, the rank that had it first, and whether it was sys.exit
TOLD = 0.3  # seconds for the launcher to hand on what was said: it drops what it has not read when the job ends
SILENT = 30.0  # seconds for which a rank waits without a word
GRACE = 3.0  # seconds before, when it asks the others whether they wait too
FIRST = 3.0  # seconds for which the others let rank 0 speak, of an error that all may have


class Ending:
    """The end of a rank's program, by an error or not.

    MPI itself knows of no errors of Python's: the others would wait forever for one that has raised an exception, or
    has left by `sys.exit`. A job has parts: another one begins where a call of `fit` has failed. `taken` counts the
    exchanges of the present part that this rank has taken part in.
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
        which tell it whether they wait too. The lowest of the waiting ranks says so, on behalf of all. The result is
        the time after which it says so again.
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
