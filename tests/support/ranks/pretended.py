# ruff: noqa: N802 - the names are mpi4py's
"""Fake MPI: the used part of mpi4py, with threads of this process as ranks.

Every exchange finishes in the call that starts it, after all ranks have reached it, or fails after `PATIENCE` seconds.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

PATIENCE = 60.0


class Done:
    """A finished request."""

    def Test(self) -> bool:
        return True


class FinishedSum(Done):
    """A finished sum; `Test` checks that no other code has changed the vector meanwhile."""

    def __init__(self, vector: Any) -> None:
        self.vector, self.sum = vector, vector.copy()

    def Test(self) -> bool:
        assert np.array_equal(self.vector, self.sum, equal_nan=True)
        return True


class PendingMessage:
    """A request to receive a message."""

    def __init__(self, comm: Comm, place: Any, source: int, tag: int) -> None:
        self.comm, self.place, self.source, self.tag = comm, place, source, tag

    def Test(self) -> bool:
        if self.place is not None and self.comm.Iprobe(self.source, self.tag):
            self.comm.Recv(self.place, self.source, self.tag)
            self.place = None
        return self.place is None


class World:
    """The part of a communicator that all ranks share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.mail: dict[Any, deque[Any]] = defaultdict(deque)


class Comm:
    """A communicator of one rank."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def _all(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        self.world.slots[self.rank] = value
        self.world.barrier.wait(PATIENCE)
        values = list(self.world.slots)
        self.world.barrier.wait(PATIENCE)
        return values

    def Dup(self) -> Comm:
        return Comm(self._all(World(self.size))[0], self.rank)

    def Idup(self) -> tuple[Comm, Done]:
        return self.Dup(), Done()

    def Split_type(self, kind: int) -> Comm:
        return self.Dup()

    def Free(self) -> None:
        pass

    def Iallgather(self, own: Any, out: Any) -> Done:
        out.reshape(self.size, -1)[:] = self._all(own.copy())
        return Done()

    def Iallgatherv(self, own: Any, out: list[Any]) -> Done:
        vector, counts = out
        parts = self._all(own.copy())
        assert [len(part) for part in parts] == counts
        vector[:] = np.concatenate(parts)
        return Done()

    def Iallreduce(self, own: Any, out: Any, operation: str) -> Done:
        out[:] = sum(self._all((out if own is None else own).copy()))
        return FinishedSum(out)

    def Allreduce(self, own: Any, out: Any) -> None:
        self.Iallreduce(own, out, "sum")

    def Isend(self, word: Any, rank: int, tag: int) -> Done:
        self.world.mail[self.rank, rank, tag].append(word.copy())
        return Done()

    def Irecv(self, word: Any, rank: int, tag: int) -> PendingMessage:
        return PendingMessage(self, word, rank, tag)

    def Iprobe(self, rank: int, tag: int) -> bool:
        return bool(self.world.mail[rank, self.rank, tag])

    def Recv(self, word: Any, rank: int, tag: int) -> None:
        word[...] = self.world.mail[rank, self.rank, tag].popleft()


class Mpi:
    """The module `mpi4py.MPI` of one rank."""

    SUM, IN_PLACE, COMM_TYPE_SHARED = "sum", None, 1
    THREAD_MULTIPLE = 3

    @staticmethod
    def Query_thread() -> int:
        return Mpi.THREAD_MULTIPLE

    class Request:
        """Requests."""

        @staticmethod
        def Testall(requests: list[Any]) -> bool:
            return all(request.Test() for request in requests)

    def __init__(self, world: World | None = None, rank: int = 0) -> None:
        self.COMM_WORLD = Comm(world or World(1), rank)


def on_ranks(size: int, function: Callable[[Mpi], Any]) -> list[Any]:
    """Run a function of the module MPI on this number of ranks, and return its results."""
    world, results = World(size), [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = function(Mpi(world, rank))
        except BaseException as error:
            errors.append(error)
            world.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if errors:
        raise errors[0]
    return results
