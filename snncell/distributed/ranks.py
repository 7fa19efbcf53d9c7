"""The ranks of a job: the processes that one `mpiexec` has started, and their exchanges and sums."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell.base.signals import deferring
from snncell.distributed import ending
from snncell.distributed.sharding import Node, add_nodes, rank_nodes

Array = np.ndarray[Any, Any]

_SUM = "a sum over all shards"  # of gradients, losses or statistics; the name of the exchange
_PART = 3  # the tag of messages with a part of a vector
LARGE = 1 << 16  # bytes from which on a sum is shared among the ranks: each adds a part of the elements
PAUSE = 2e-4  # seconds between two questions of the progress thread: they take the core from kernels
_NOTHING = 4  # a tag that no message has


class ProgressThread:
    """A thread that lets MPI make progress while this rank computes, from `begin` to `end`; unused with one rank.

    MPI moves messages only while it is called: between two calls, a sum that was begun stands still. Kernels let other
    threads of Python's run, so a thread that calls it now and then is enough, on any MPI that takes calls from several
    threads.
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
    """All ranks of a job, as one of them sees them.

    What is exchanged waits by asking again and again: Ctrl-C is heard meanwhile, ranks that share a core let each other
    go on, and one that has left is noticed.

    Attributes:
        rank: the number of this one.
        size: how many there are.
        shards: into how many shards each batch is cut.
        fast: whether sums are MPI's, in whatever order.
    """

    def __init__(self, mpi: Any, shards: int, fast: bool) -> None:
        self.mpi, self.base = mpi, mpi.COMM_WORLD.Dup()
        self.comm = self.base.Dup()
        self.left: list[Any] = []  # exchanges that were begun, or that an error has come between
        self.rank, self.size = int(self.comm.rank), int(self.comm.size)
        self.shards, self.fast = shards, fast
        self.nodes = rank_nodes(shards, self.size)
        self.own = [shard for shard in range(shards) if shard * self.size // shards == self.rank]
        self.ending = ending.Ending(mpi, mpi.COMM_WORLD.Dup())
        self.progress = ProgressThread(mpi, mpi.COMM_WORLD.Dup())

    def wait(self, requests: Iterable[Any], what: str = "an exchange") -> None:
        """Wait until exchanges are done. After 30 s it says which ranks are awaited, and goes on waiting.

        Args:
            requests: those of MPI.
            what: the name of the exchange, for that message.

        Raises:
            RankError: if another rank has ended its program, or has left `fit` by an error.
        """
        under_way = [*requests]
        begun, asked, patience = time.monotonic(), 0, ending.SILENT
        try:
            for request in under_way:
                while not request.Test():
                    asked += 1
                    if asked < 500:
                        _let_others()
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

    def texts(self, own: bytes, what: str = "an exchange") -> list[bytes]:
        """The bytes of every rank, of any length. `what` names the exchange, as in `wait`."""
        lengths = [int(n) for n in self.gathered(np.array(len(own)), what)]
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(own)] = np.frombuffer(own, np.uint8)
        return [part[:length].tobytes() for part, length in zip(self.gathered(padded, what), lengths, strict=True)]

    def any(self, flag: bool) -> bool:
        """True if it is on one of the ranks."""
        return (self.size > 1 and any(map(bool, self.gathered(np.array(flag))))) or flag

    def first(self, own: Array) -> Array:
        """The array of rank 0."""
        return self.gathered(own)[0]

    # --- sums ---------------------------------------------------------------------------------------------------------

    def summed(self, own: dict[int, Array], like: Array) -> Array:
        """The sum over all shards, of vectors.

        Added in the order of a tree over the shards, see `rank_nodes`, so to the same bits on any number of ranks.

        Args:
            own: the vectors of this rank's shards, those that there are; they are added to.
            like: a vector of that length and dtype.
        """
        if self.fast:
            return self._reduced(own, like)
        there = np.zeros(self.shards, bool)
        there[list(own)] = True
        known: dict[Node, Any] = {(shard, shard + 1): vector for shard, vector in own.items()}
        mine = [add_nodes(node, known) for node in self.nodes[self.rank]]
        if self.size == 1:
            return mine[0] if mine[0] is not None else np.zeros_like(like)
        there = np.logical_or.reduce(self.gathered(there, _SUM))
        parts = [np.zeros_like(like) if part is None else part for part in mine]
        if like.nbytes < LARGE:
            return self._tree(self._from_all(parts, like.size, like.dtype), there)
        width = -(-like.size // self.size)
        ends = [min(like.size, rank * width) for rank in range(self.size + 1)]
        own_part = np.zeros(width, like.dtype)
        own_part[: ends[self.rank + 1] - ends[self.rank]] = self._tree(self._exchanged(parts, ends), there)
        total = np.empty(width * self.size, like.dtype)
        self.wait([self.comm.Iallgather(_bytes(own_part), _bytes(total))], _SUM)
        return total[: like.size]

    def _from_all(self, parts: list[Array], width: int, dtype: Any) -> list[Array]:
        """Of every rank the vectors of its nodes, in their order."""
        found = np.empty((sum(map(len, self.nodes)), width), dtype)
        counts = [len(own) * width * found.itemsize for own in self.nodes]
        self.wait([self.comm.Iallgatherv(_bytes(np.concatenate(parts)), [_bytes(found), counts])], _SUM)
        return list(found)

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

    def _reduced(self, own: dict[int, Array], like: Array) -> Array:
        """The sum by MPI."""
        total = np.zeros_like(like)
        for vector in own.values():
            total += vector
        self.wait([self.sum_begun(total)], _SUM)
        return total

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


def _let_others() -> None:
    """Let another process that wants this core have it; to sleep takes far longer than most exchanges."""
    getattr(os, "sched_yield", lambda: time.sleep(0))()


def _bytes(array: Array) -> Array:
    """An array as the bytes that MPI is given, whatever its dtype."""
    return array.reshape(-1).view(np.uint8)
