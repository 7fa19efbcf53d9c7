"""The ranks of a job (processes started by one `mpiexec`): exchanges, sums, and the end of a job."""

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
Node = tuple[int, int]  # a range of shards: first, last + 1

_SUM = "a sum over all shards"  # name of the exchange of gradients, losses or statistics
LARGE = 1 << 16  # bytes; for larger sums, each rank adds a part of the elements
PAUSE = 2e-4  # seconds between two calls of the progress thread, because each takes the core from kernels
# Message tags. _LEFT: the program of a rank has ended. _FAILED: a rank has left `fit` by an error. _PART: a part of a
# vector. _NOTHING: no message has it; a rank polls MPI with it. _WAITS: a rank has waited long in an exchange.
_LEFT, _FAILED, _PART, _NOTHING, _WAITS = 1, 2, 3, 4, 5


class ProgressThread:
    """A thread that calls MPI from `begin` to `end`, while this rank computes, because MPI moves messages only while it
    is called. It exists only if there are several ranks and MPI allows it. Kernels release the GIL for it.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.comm = comm
        self.helps = comm.size > 1 and mpi.Query_thread() >= mpi.THREAD_MULTIPLE
        self.over = threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread."""
        if self.helps and self.thread is None:
            deferring(self._start)  # an interruption could leave a thread that is never started or never joined

    def _start(self) -> None:
        self.over.clear()
        self.thread = threading.Thread(target=self._ask, name="snncell exchanges", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Stop the thread; it makes no further calls of MPI."""
        if self.thread is not None:
            self.over.set()
            self.thread.join()
            self.thread = None

    def _ask(self) -> None:
        while not self.over.wait(PAUSE):
            self.comm.Iprobe(self.comm.rank, _NOTHING)


class Ranks:
    """The ranks of a job, as one process sees them: it is number `rank` of `size`.

    Waiting is polling, so that Ctrl-C works, ranks that share a core let each other run, and ended ranks are noticed.
    Each batch is cut into `shards`. With `fast`, MPI computes sums, in any order.
    """

    def __init__(self, mpi: Any, shards: int, fast: bool) -> None:
        self.mpi, self.base = mpi, mpi.COMM_WORLD.Dup()
        self.comm = self.base.Dup()
        self.left: list[Any] = []  # exchanges in progress, or interrupted by an error
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.shards, self.fast = shards, fast
        self.nodes = rank_nodes(shards, self.size)
        self.own = [shard for shard in range(shards) if shard * self.size // shards == self.rank]
        self.ending = Ending(mpi, mpi.COMM_WORLD.Dup())
        self.progress = ProgressThread(mpi, mpi.COMM_WORLD.Dup())

    def wait(self, requests: Iterable[Any], what: str = "an exchange") -> None:
        """Wait for requests of MPI. After 30 s, a message with the name of the exchange lists the missing ranks."""
        under_way = [*requests]
        begun, asked, patience = time.monotonic(), 0, SILENT
        try:
            for request in under_way:
                while not request.Test():
                    asked += 1
                    if asked < 500:  # yield the core; sleeping would take much longer than most exchanges
                        getattr(os, "sched_yield", lambda: time.sleep(0))()
                    else:
                        time.sleep(5e-5)
                    if not asked % 200 and (seconds := time.monotonic() - begun) > 1.0:
                        patience = self.ending.wait_on(what, seconds, patience)
            self.ending.taken += 1  # one exchange, equal on all ranks, however many messages it had
            self.left = [request for request in self.left if request not in under_way]
        except BaseException:
            self.left += under_way  # keeps the arrays alive, because MPI may still write to them
            raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context manager for code that all ranks run: it reports an error on this rank to the others."""
        try:
            self.start_part()
            yield
        except BaseException as error:
            self.progress.end()
            self.ending.report_failure(error)
            raise

    def start_part(self) -> None:
        """Start a new part of the job after a failed call of `fit`, so that interrupted exchanges are dropped."""
        end = self.ending
        if end.failed:
            self.comm, request = self.base.Idup()  # the old one is kept, because messages may still be in progress
            end.part, end.taken, end.failed = end.part + 1, 0, False
            self.wait([request], "the beginning of another call after an error")

    def all_gather(self, own: Array, what: str = "an exchange") -> list[Array]:
        """All-gather: the arrays of all ranks, which must have one shape. `what` names the exchange, as in `wait`."""
        own = np.asarray(own, order="C")
        found = np.empty((self.size, *own.shape), own.dtype)
        self.wait([self.comm.Iallgather(_bytes(own), _bytes(found))], what)
        return list(found)

    def objects(self, own: Any, what: str) -> list[Any]:
        """All-gather objects as JSON; other objects inside become text."""
        return [json.loads(text) for text in self.texts(json.dumps(own, default=str).encode(), what)]

    def texts(self, own: bytes, what: str = "an exchange") -> list[bytes]:
        """All-gather bytes of any length. `what` names the exchange, as in `wait`."""
        lengths = [int(n) for n in self.all_gather(np.array(len(own)), what)]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(own)] = np.frombuffer(own, np.uint8)
        return [part[:length].tobytes() for part, length in zip(self.all_gather(padded, what), lengths, strict=True)]

    def sum_shards(self, own: dict[int, Array], like: Array) -> Array:
        """The sum over all shards of vectors like `like`. `own`, the vectors of this rank's shards, are overwritten.

        Vectors are added along a tree over the shards (see `rank_nodes`), so any number of ranks gives the same bits.
        """
        if self.fast:
            total = np.zeros_like(like)
            for vector in own.values():
                total += vector
            self.wait([self.start_sum(total)], _SUM)
            return total
        there = np.zeros(self.shards, bool)
        there[list(own)] = True
        known: dict[Node, Any] = {(shard, shard + 1): vector for shard, vector in own.items()}
        mine = [add_nodes(node, known) for node in self.nodes[self.rank]]
        if self.size == 1:
            return mine[0] if mine[0] is not None else np.zeros_like(like)
        there = np.logical_or.reduce(self.all_gather(there, _SUM))
        parts = [np.zeros_like(like) if part is None else part for part in mine]
        if like.nbytes < LARGE:
            found = np.empty((sum(map(len, self.nodes)), like.size), like.dtype)  # the nodes of all ranks
            counts = [len(nodes) * like.size * found.itemsize for nodes in self.nodes]
            self.wait([self.comm.Iallgatherv(_bytes(np.concatenate(parts)), [_bytes(found), counts])], _SUM)
            return self._tree(list(found), there)
        width = -(-like.size // self.size)
        ends = [min(like.size, rank * width) for rank in range(self.size + 1)]
        own_part = np.zeros(width, like.dtype)
        own_part[: ends[self.rank + 1] - ends[self.rank]] = self._tree(self._exchange(parts, ends), there)
        total = np.empty(width * self.size, like.dtype)
        self.wait([self.comm.Iallgather(_bytes(own_part), _bytes(total))], _SUM)
        return total[: like.size]

    def _exchange(self, parts: list[Array], ends: list[int]) -> list[Array]:
        """Receive this rank's part of the elements, for all nodes of all ranks."""
        # By messages between pairs, because MPICH's Ialltoallv took ten times as long for 4 MB on two ranks.
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
        """The sum of the nodes of all ranks. Nodes without present shards are skipped."""
        numbered = [node for own in self.nodes for node in own]
        known = {node: row if there[slice(*node)].any() else None for node, row in zip(numbered, rows, strict=True)}
        total = add_nodes((0, self.shards), known)
        return np.zeros_like(rows[0]) if total is None else total

    def start_sum(self, vector: Array) -> Any:
        """Start an in-place sum by MPI, and return its request. No rank waits here."""
        # One call of C functions, because an interruption between Python statements could free a vector that MPI still
        # writes to. `left` keeps it alive even if `wait` is never called.
        self.left.extend(map(self.comm.Iallreduce, [self.mpi.IN_PLACE], [vector], [self.mpi.SUM]))
        return self.left[-1]


def odd_rank(values: Sequence[Hashable]) -> tuple[int, int] | None:
    """The first rank with an unusual value, and the first with the most common value; None if all are equal. All ranks
    get the same answer, so that all error messages name the same rank.
    """
    usual, _ = Counter(values).most_common(1)[0]  # the first one for equal counts
    odd = next((rank for rank, value in enumerate(values) if value != usual), None)
    return None if odd is None else (odd, values.index(usual))


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


# --- the order of additions -------------------------------------------------------------------------------------------


def rank_nodes(shards: int, ranks: int) -> list[list[Node]]:
    """For each rank, the largest nodes of the binary tree that lie within its shards.

    The sum over all shards is the sum of its two halves, and so on recursively. So a local sum of a rank is a partial
    sum of this tree, for any number of ranks.

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
    """The sum of a node from known sums of nodes below it, or None if there are none. Arrays are added in place."""
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


# --- the end of a job: a failing rank ends all of them, and a finished rank waits for the others ----------------------

_WORDS = 4  # numbers in a message: part, exchanges; for an error also the rank that failed first, and 1 for sys.exit
TOLD = 0.3  # seconds for the launcher to forward output, because it drops unread output when the job ends
SILENT = 30.0  # seconds before a waiting rank prints a message
GRACE = 3.0  # seconds earlier, when it asks the other ranks whether they wait too
FIRST = 3.0  # seconds by which other ranks delay an error, so that rank 0 prints a common one first


class Ending:
    """Handles the end of a rank's program. MPI does not know Python's exceptions: without this class, other ranks would
    wait forever for a rank that has failed or called `sys.exit`.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi, self.comm = mpi, comm
        self.others = [rank for rank in range(comm.size) if rank != comm.rank]
        # A failed call of `fit` begins a new part of the job, in which exchanges (`taken` so far) are numbered anew.
        self.part, self.taken, self.failed = 0, 0, False
        self.left: dict[int, tuple[int, ...]] = {}  # ended ranks: (part, exchanges)
        self.caused: BaseException | None = None  # an error raised here because another rank failed
        self.origin: tuple[int, ...] = (comm.rank, 0)  # the rank that failed first, and 1 for sys.exit
        self.waiting: dict[int, tuple[int, ...]] = {}  # (part, exchanges) where other ranks have said that they wait
        self.announced = (-1, -1)  # (part, exchanges) where this rank has said that it waits
        self.sent: list[Any] = []
        self.before = sys.excepthook
        self.process = os.getpid()  # to recognise forked children, which are not ranks

    def watch(self) -> None:
        """From now on, an uncaught exception ends the job, and the end of the program waits for all ranks."""
        sys.excepthook = self._end_job
        atexit.register(self._done)  # runs before MPI finalises, because that was registered earlier

    def _end_job(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print the error and the rank that failed, and end all ranks."""
        if os.getpid() != self.process:
            self.before(kind, error, trace)
            return
        # Wait for two reasons: only one rank should print an error that all ranks raise, and the cause of an error
        # should be printed before its effects. The job usually ends during the wait.
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
        """Tell the others that this rank's program has ended, and wait for theirs."""
        if os.getpid() != self.process:
            return
        self._tell(_LEFT)
        left = [rank for rank in self.others if rank not in self.left]
        words = np.full((len(left), _WORDS), -1, np.int64)
        self.sent += [self.comm.Irecv(word, rank, _LEFT) for word, rank in zip(words, left, strict=True)]
        patience, begun = SILENT, time.monotonic()
        while not self.mpi.Request.Testall(self.sent):
            time.sleep(1e-3)
            if time.monotonic() - begun > patience:
                patience *= 2
                awaited = [rank for word, rank in zip(words, left, strict=True) if word[0] < 0]
                _say(
                    f"rank {self.comm.rank} has ended its program and waits for {_ranks(awaited)} to end as well, for "
                    f"{time.monotonic() - begun:.0f} s by now."
                )

    def report_failure(self, error: BaseException) -> None:
        """Tell the others that this rank has left by an error."""
        self.failed = True
        if isinstance(error, SystemExit):  # Python prints nothing for it
            _say(f"rank {self.comm.rank} has left fit by sys.exit({error.code!r:.200}).")
        own = self.comm.rank, int(isinstance(error, SystemExit))
        self._tell(_FAILED, *(self.origin if error is self.caused else own))

    def _tell(self, what: int, *more: int) -> None:
        """Send the others this rank's part and exchanges, and further numbers."""
        word = np.zeros(_WORDS, np.int64)
        word[: 2 + len(more)] = self.part, self.taken, *more
        self.sent = [request for request in self.sent if not request.Test()]
        self.sent += [self.comm.Isend(word, rank, what) for rank in self.others]

    def _receive(self, rank: int, what: int) -> tuple[int, ...] | None:
        """The last message with a tag from a rank, or None."""
        word = np.zeros(_WORDS, np.int64)
        if not self.comm.Iprobe(rank, what):
            return None
        self.comm.Recv(word, rank, what)
        return tuple(map(int, word))

    def refuse_waiting(self) -> None:
        """Raise a RankError if another rank has ended its program, or left `fit`, before the present exchange."""
        for rank in self.others:
            while word := self._receive(rank, _FAILED):
                if word[0] == self.part:  # a message about an earlier failed call is ignored
                    # Name the rank that failed first, not one that only reacted.
                    self.origin = origin, by_exit = word[2:]
                    how, more = ("sys.exit", "") if by_exit else ("an error", f" See the message of rank {origin}.")
                    self.caused = RankError(
                        f"fit: rank {origin} has left fit by {how}, and rank {self.comm.rank} waits for it.{more}"
                    )
                    raise self.caused
            if rank not in self.left and (word := self._receive(rank, _LEFT)):
                self.left[rank] = word[:2]
            if rank in self.left and self.left[rank] <= (self.part, self.taken):
                raise RankError(
                    f"distributed: rank {rank} has ended its program, and rank {self.comm.rank} waits for it. All "
                    f"ranks must make the same calls of snncell.distributed and fit(distributed=True). Check code that "
                    f"only some ranks run (if rank() == 0: ...; sys.exit())."
                )

    def wait_on(self, what: str, seconds: float, patience: float) -> float:
        """Check for ended ranks, print the missing ranks after `patience` seconds, and return the next patience.

        A rank that waits for long tells the others, which reply if they wait in the same exchange. The lowest waiting
        rank prints the message for all.
        """
        self.refuse_waiting()
        here = self.part, self.taken
        for rank in self.others:
            while word := self._receive(rank, _WAITS):
                self.waiting[rank] = word[:2]
        together = [rank for rank in self.others if self.waiting.get(rank, (-1, -1)) >= here]
        if (together or seconds > patience - GRACE) and self.announced != here:
            self._tell(_WAITS)
            self.announced = here
        if seconds <= patience:
            return patience
        awaited = [rank for rank in self.others if rank not in together]
        if awaited and self.comm.rank < min(together, default=self.comm.size):
            _say(
                f"rank {self.comm.rank} has waited {seconds:.0f} s for {_ranks(awaited)} in {what}, and goes on "
                f"waiting. Is a process stopped, does it still compute, or does it make other calls?"
            )
        return 2 * patience


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _say(text: str) -> None:
    sys.stderr.write(f"snncell.distributed: {text}\n")
    sys.stderr.flush()
