"""Distributed training with MPI: several processes, on one machine or many, started by `mpiexec` (extra `mpi`)."""

from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.names import missing_from as _missing_from
from snncell.distributed.gradients import mean_gradients as mean_gradients, shards as shards
from snncell.distributed.job import barrier as barrier, init as init, rank as rank, size as size

_guard(globals())
__getattr__ = _missing_from(__name__)
