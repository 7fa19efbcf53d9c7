# ruff: noqa: N802 - the names are mpi4py's
"""An MPI whose ranks are threads of this process, or this process alone: as much of mpi4py as is used.

Every exchange is done when it is begun, once all ranks have come to it, and waits no longer than `PATIENCE`.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

PATIENCE = 60.0


class Done:
    """A request that is done."""

    def Test(self) -> bool:
        return True


class Summed(Done):
    """A sum that is done: nobody may have changed it meanwhile."""

    def __init__(self, vector: Any) -> None:
        self.vector, self.sum = vector, vector.copy()

    def Test(self) -> bool:
        assert np.array_equal(self.vector, self.sum, equal_nan=True)
        return True


class Heard:
    """A message that is waited for."""

    def __init__(self, comm: Comm, place: Any, source: int, tag: int) -> None:
        self.comm, self.place, self.source, self.tag = comm, place, source, tag

    def Test(self) -> bool:
        if self.place is not None and self.comm.Iprobe(self.source, self.tag):
            self.comm.Recv(self.place, self.source, self.tag)
            self.place = None
        return self.place is None


class World:
    """The part of a communicator that its ranks share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.mail: dict[Any, deque[Any]] = defaultdict(deque)


class Comm:
    """A communicator, as one rank has it."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def _all(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        self.world.slots[self.rank] = value
        self.world.barrier.wait(PATIENCE)
        found = list(self.world.slots)
        self.world.barrier.wait(PATIENCE)
        return found

    def Dup(self) -> Comm:
        return Comm(self._all(World(self.size))[0], self.rank)

    def Idup(self) -> tuple[Comm, Done]:
        return self.Dup(), Done()

    def Split_type(self, kind: int) -> Comm:
        return self.Dup()

    def Free(self) -> None:
        pass

    def Iallgather(self, own: Any, found: Any) -> Done:
        found.reshape(self.size, -1)[:] = self._all(own.copy())
        return Done()

    def Iallgatherv(self, own: Any, found: list[Any]) -> Done:
        place, counts = found
        parts = self._all(own.copy())
        assert [len(part) for part in parts] == counts
        place[:] = np.concatenate(parts)
        return Done()

    def Iallreduce(self, own: Any, found: Any, operation: str) -> Done:
        found[:] = sum(self._all((found if own is None else own).copy()))
        return Summed(found)

    def Allreduce(self, own: Any, found: Any) -> None:
        self.Iallreduce(own, found, "sum")

    def Isend(self, word: Any, rank: int, tag: int) -> Done:
        self.world.mail[self.rank, rank, tag].append(word.copy())
        return Done()

    def Irecv(self, word: Any, rank: int, tag: int) -> Heard:
        return Heard(self, word, rank, tag)

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
    """The results of a function of MPI on each of so many ranks."""
    world, found = World(size), [None] * size
    errors: list[BaseException] = []

    def of(rank: int) -> None:
        try:
            found[rank] = function(Mpi(world, rank))
        except BaseException as error:
            errors.append(error)
            world.barrier.abort()

    threads = [threading.Thread(target=of, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if errors:
        raise errors[0]
    return found
