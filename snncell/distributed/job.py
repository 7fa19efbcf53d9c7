"""Join the MPI job of this process: `init`, `rank`, `size` and `barrier`."""

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
from snncell.ops.random import present_key, restore_key
from snncell.tape.state import TRACING

SHARDS = 4
_JOB: list[Ranks] = []


def init(shards: Count | None = None, *, fast: bool = False, threads: Count | None = None) -> None:
    """Initialise distributed training. Call it once on every rank, before you make the network.

        mpiexec -n 4 python train.py

    Afterwards every rank draws rank 0's random numbers, so that networks start with the same weights. The ranks of a
    machine share its cores. An uncaught exception on one rank ends the job. If a rank ends its program while others
    wait for it, this also ends the job. Without `mpiexec` there is one rank, with the same results.

    Args:
        shards: number of parts of each batch, 4 by default, at least the number of ranks. Their results are added in a
            fixed order. Results therefore depend on the number of shards, but not on the number of ranks, to the bit.
        fast: use MPI's own sums (Allreduce in buckets of 1 MiB, which overlaps the backward pass), with one shard for
            each rank. The bits then depend on the number of ranks, and maybe on the machines.
        threads: threads of parallel kernels; by default NUMBA_NUM_THREADS if set, else the cores divided by
            the ranks that share them.
    Raises: RankError without mpi4py or an MPI library, and for different arguments on the ranks or in a second call.
    """
    ranks = _join_once(shards, fast)
    _share_cores(ranks, threads)
    restore_key(ranks.all_gather(present_key().asnumpy())[0])


def _join_once(shards: int | None, fast: bool) -> Ranks:
    if fast and shards is not None:
        raise ArgumentError("distributed.init: with fast=True each rank has one shard. Leave shards out.")
    mpi = _mpi()
    size = mpi.COMM_WORLD.size
    number = size if fast else SHARDS if shards is None else shards
    if number < size:
        raise ArgumentError(
            f"distributed.init: {number} shards leave {size - number} of {size} ranks without work. Use more: "
            f"distributed.init(shards={size}). If all your jobs use the same number, all have the same bits."
        )
    if _JOB:
        if (_JOB[0].shards, _JOB[0].fast) != (number, fast):
            raise RankError(
                f"distributed.init: this process has joined its job with shards={_JOB[0].shards}, "
                f"fast={_JOB[0].fast}, which cannot be changed. Pass the same arguments in each call."
            )
        return _JOB[0]
    ranks = Ranks(mpi, number, fast)
    ranks.ending.watch()
    atexit.register(ranks.progress.end)  # runs before MPI finalises
    asked = {(int(row[0]), bool(row[1])) for row in ranks.all_gather(np.array([number, int(fast)]), "distributed.init")}
    if len(asked) > 1:
        raise RankError(f"distributed.init: the ranks pass different (shards, fast): {sorted(asked)}. Pass the same.")
    _JOB.append(ranks)
    return ranks


@cache
def _mpi() -> Any:
    """mpi4py's MPI. Importing it initialises MPI."""
    try:
        return import_once("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        if getattr(error, "name", None) == "mpi4py":
            raise RankError(
                'snncell.distributed needs mpi4py and an MPI library: pip install "snncell[mpi]" installs both.'
            ) from None
        raise RankError(
            f"mpi4py has found no MPI library ({error}). Run pip install mpich, or load the MPI of your cluster "
            f'("module load ...").'
        ) from error


def _share_cores(ranks: Ranks, threads: int | None) -> None:
    node = ranks.comm.Split_type(ranks.mpi.COMM_TYPE_SHARED)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    mine = np.zeros(max(os.cpu_count() or 1, cores[-1] + 1), np.int64)
    mine[cores] = 1
    together = np.zeros_like(mine)
    node.Allreduce(mine, together)
    node.Free()
    if threads is None and "NUMBA_NUM_THREADS" not in os.environ:
        # If the launcher has bound each rank to separate cores, none is shared.
        threads = max(1, len(cores) // int(together[cores].max()))
    if threads is not None:
        set_number_of_threads(threads)


def join_job(who: str) -> Ranks:
    """The job of this process. Raises a RankError before `init`."""
    if not _JOB:
        raise RankError(
            f"{who}: this process has joined no job. Call snncell.distributed.init() before you make the network."
        )
    return _JOB[0]


def rank() -> int:
    """The number of this process in its job, from 0. It raises RankError before `init`.

    Example:
        >>> snncell.distributed.init()
        >>> snncell.distributed.rank() in range(snncell.distributed.size())
        True
    """
    return join_job("distributed.rank").rank


def size() -> int:
    """The number of processes in the job; 1 without `mpiexec`. It raises RankError before `init`."""
    return join_job("distributed.size").size


def barrier() -> None:
    """Wait until all ranks reach this call, for example until one of them has written a file that the others read.

    Raises: ArgumentError in a jitted function, because only its trace would wait; RankError before `init`, or if a rank
        has ended.
    """
    ranks = join_job("distributed.barrier")
    if TRACING.trace is not None:
        raise ArgumentError("distributed.barrier: a jitted function cannot wait for other ranks. Call it outside.")
    ranks.all_gather(np.zeros(1, np.uint8), "distributed.barrier")
