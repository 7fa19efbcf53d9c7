"""The job of this process: `init`, `rank`, `size` and `barrier`."""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Count
from snncell.base.signals import import_once
from snncell.distributed.ranks import Ranks
from snncell.errors import ArgumentError, RankError
from snncell.kernels.numba.policy import set_number_of_threads
from snncell.ops.random import go_on_from, present_key
from snncell.tape.state import TRACING

SHARDS = 4
_JOB: list[Ranks] = []


def init(shards: Count | None = None, *, fast: bool = False, threads: Count | None = None) -> None:
    """Initialise distributed training: call it once on every rank, before the net is made.

        mpiexec -n 4 python train.py

    Every rank draws from rank 0's random numbers afterwards, so that nets made after it begin with the same weights.
    The ranks of a machine share its cores. An exception that a rank does not catch ends the job, and so does a rank
    that ends its program while others wait for it. Without `mpiexec` there is one rank, with the same results.

    Args:
        shards: into how many parts each batch is cut, at least the number of ranks; 4 unless it is given. What is
            computed of them is added in one order, so that results do not depend on the number of ranks, to the bit;
            they do depend on the number of shards.
        fast: sums are MPI's own (Allreduce, of buckets of 1 MiB, on their way while the reverse goes on), each rank
            with one part of the batch: the bits depend on the number of ranks, and may on where they run.
        threads: for parallel kernels; the cores that this process may run on, divided by the ranks that share them,
            unless it is given, or NUMBA_NUM_THREADS is set.

    Raises:
        ArgumentError: for fewer shards than ranks.
        RankError: without mpi4py or an MPI, saying how they are installed; if the ranks ask for different things, or
            on a second call with other settings.
    """
    ranks = _join_once(shards, fast)
    _share_cores(ranks, threads)
    go_on_from(ranks.gathered(present_key().asnumpy())[0])


def _join_once(shards: int | None, fast: bool) -> Ranks:
    """The job, joined once."""
    if fast and shards is not None:
        raise ArgumentError("distributed.init: with fast=True each rank has one shard; leave shards out.")
    mpi = _mpi()
    size = mpi.COMM_WORLD.size
    number = size if fast else SHARDS if shards is None else shards
    if number < size:
        raise ArgumentError(
            f"distributed.init: {number} shards leave {size - number} of {size} ranks without work. Give more: "
            f"distributed.init(shards={size}). A number that all your jobs can use gives all of them the same bits."
        )
    if _JOB:
        if (_JOB[0].shards, _JOB[0].fast) != (number, fast):
            raise RankError(
                f"distributed.init: this process has joined its job with shards={_JOB[0].shards}, "
                f"fast={_JOB[0].fast}; that stays."
            )
        return _JOB[0]
    ranks = Ranks(mpi, number, fast)
    ranks.ending.watch()
    atexit.register(ranks.progress.end)  # before MPI's own end
    asked = {(int(row[0]), bool(row[1])) for row in ranks.gathered(np.array([number, int(fast)]), "distributed.init")}
    if len(asked) > 1:
        raise RankError(f"distributed.init: the ranks ask for different (shards, fast): {sorted(asked)}.")
    _JOB.append(ranks)
    return ranks


@cache
def _mpi() -> Any:
    """mpi4py's MPI, which is begun when it is imported."""
    try:
        return import_once("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        if getattr(error, "name", None) == "mpi4py":
            raise RankError(
                'snncell.distributed needs mpi4py and an MPI: pip install "snncell[mpi]" brings both.'
            ) from None
        raise RankError(
            f'mpi4py has found no MPI ({error}): pip install mpich, or the MPI of your cluster ("module load ...").'
        ) from error


def _share_cores(ranks: Ranks, threads: int | None) -> None:
    """Let the parallel kernels of this rank run on its part of the machine's cores."""
    node = ranks.comm.Split_type(ranks.mpi.COMM_TYPE_SHARED)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    mine = np.zeros(max(os.cpu_count() or 1, cores[-1] + 1), np.int64)
    mine[cores] = 1
    together = np.zeros_like(mine)
    node.Allreduce(mine, together)
    node.Free()
    if threads is None and "NUMBA_NUM_THREADS" not in os.environ:
        # A launcher may have given each rank cores of its own: then none is shared.
        threads = max(1, len(cores) // int(together[cores].max()))
    if threads is not None:
        set_number_of_threads(threads)


def join_job(who: str) -> Ranks:
    """The job; a RankError if it was not joined."""
    if not _JOB:
        raise RankError(
            f"{who}: this process has joined no job: call snncell.distributed.init(), before the net is made."
        )
    return _JOB[0]


def rank() -> int:
    """The number of this process in its job, from 0.

    Raises:
        RankError: before `init`.

    Example:
        >>> snncell.distributed.init()
        >>> snncell.distributed.rank() in range(snncell.distributed.size())
        True
    """
    return join_job("distributed.rank").rank


def size() -> int:
    """The number of processes in the job; 1 without `mpiexec`.

    Raises:
        RankError: before `init`.

    Example:
        >>> snncell.distributed.init()
        >>> snncell.distributed.size() >= 1
        True
    """
    return join_job("distributed.size").size


def barrier() -> None:
    """Wait until every rank has come here: for a file that one of them writes, and the others read.

    Raises:
        ArgumentError: in a jitted function, which would wait while it is traced and never again.
        RankError: before `init`, or if a rank has ended.

    Example:
        >>> snncell.distributed.init()
        >>> if snncell.distributed.rank() == 0:
        ...     pass  # write a file
        >>> snncell.distributed.barrier()
    """
    ranks = join_job("distributed.barrier")
    if TRACING.trace is not None:
        raise ArgumentError("distributed.barrier: a jitted function does not wait for other ranks; call it outside.")
    ranks.gathered(np.zeros(1, np.uint8), "distributed.barrier")
