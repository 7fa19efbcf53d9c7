"""The processes that a training runs on: this one alone, or the ranks of a job, each with its shards of every batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from snncell.cell import Cell
from snncell.distributed.draws import aside, draw_for_shard
from snncell.distributed.job import join_job
from snncell.distributed.ranks import Ranks, odd_rank
from snncell.errors import ArgumentError, RankError
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.stateful import Stateful
from snncell.ops.seeds import present_key, replaying
from snncell.tape.tensor import Tensor
from snncell.train.loss_scale import Scaling
from snncell.train.sharded import Means, Numbers, Sharded, Share, Shares
from snncell.train.state import buffers_of, description, first_difference, weights_of
from snncell.train.steps import Accumulated, Clip, EachBatch, TrainStep, fused_step, step_in_two

_BEGINNING = "the comparison of nets and settings at the beginning of fit"  # the name of these exchanges
Counted = tuple[int, Any]  # the samples of a batch, and the batch


class OneProcess:
    """A training on this process alone."""

    first = True  # whether this is the process that writes files

    def batches(self, source: Any) -> Any:
        """The batches of data, to be `counted`."""
        return source

    def counted(self, source: Any, parts_of: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Counted]:
        """A function that makes a batch of what `batches` gives, and counts its samples."""

        def of_batch(batch: Any) -> Counted:
            parts = parts_of(batch)
            return len(parts[-1]), parts

        return of_batch

    def step(
        self,
        parts: tuple[Any, ...],
        of_batch: Callable[..., Any],
        optimiser: Optimizer,
        clip: Clip,
        scaling: Scaling | None,
        accumulate: int,
    ) -> TrainStep:
        """The step of a training, of batches that are counted."""
        if accumulate == 1:
            return EachBatch(fused_step(of_batch, optimiser, clip, scaling))
        return Accumulated(*step_in_two(of_batch, optimiser, clip, scaling), accumulate)

    def measured(self, of_batch: Callable[..., Numbers]) -> Callable[[Any], Numbers]:
        """A function of a counted batch that measures it."""
        return lambda batch: of_batch(*batch)

    def any(self, flag: bool) -> bool:
        """True if it is on any process."""
        return flag

    def apart(self, alone: bool) -> AbstractContextManager[Any]:
        """A context of what this process does alone, or all do: what one draws is not of the training."""
        return nullcontext()

    def together(self) -> AbstractContextManager[Any]:
        """A context of all that the processes do together."""
        return nullcontext()

    def asked(self) -> dict[str, Any]:
        """The settings of the processes that a resume must find as they were."""
        return {}

    def refuse(self, parts: tuple[Any, ...], optimiser: Optimizer, settings: Callable[[], dict[str, Any]]) -> None:
        """Raise an error for what does not go together."""


class AllRanks(OneProcess):
    """A training on all ranks of a job."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.first = ranks.rank == 0

    def batches(self, source: Any) -> Any:
        """This rank's shards of them."""
        return Shares(source, self.ranks)

    def counted(self, source: Any, parts_of: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Counted]:
        """The same for shards."""
        shares = Shares(source, self.ranks)

        def of_item(item: Any) -> Counted:
            share = shares.converted(item, parts_of)
            return share.samples, share

        return of_item

    def step(
        self,
        parts: tuple[Any, ...],
        of_batch: Any,
        optimiser: Optimizer,
        clip: Clip,
        scaling: Scaling | None,
        accumulate: int,
    ) -> TrainStep:
        """A step of the mean over all shards."""
        functions = step_in_two(of_batch, optimiser, clip, scaling)
        trained = {id(p) for p in optimiser.parameters}
        statistics = {path: p for path, p in weights_of(*parts).items() if id(p) not in trained}
        return Sharded(self.ranks, functions, optimiser, statistics, accumulate, scaling is not None)

    def measured(self, of_batch: Callable[..., Numbers]) -> Callable[[Any], Numbers]:
        """The means over all shards."""
        means = Means(self.ranks)

        def of_all(batch: Share) -> Numbers:
            found = {}
            with aside() as key:
                for shard, part in batch.shards.items():
                    draw_for_shard(key, shard)
                    found[shard] = len(part[-1]), of_batch(*part)
            return means.of(found, batch)

        return of_all

    def apart(self, alone: bool) -> AbstractContextManager[Any]:
        """A context in which one that acts alone draws nothing of the training."""
        return replaying(present_key()) if alone else nullcontext()

    def together(self) -> AbstractContextManager[Any]:
        """A context that tells the others of an error here."""
        return self.ranks.together()

    def asked(self) -> dict[str, Any]:
        """The number of shards, on which the bits depend; with fast sums they depend on the number of ranks anyway."""
        return {"shards": None if self.ranks.fast else self.ranks.shards}

    def any(self, flag: bool) -> bool:
        """True if it is on any rank.

        Raises:
            RankError: if the ranks have drawn different numbers of random numbers.
        """
        own = np.array([flag, *present_key().asnumpy()], np.int64)
        rows = self.ranks.gathered(own, "fit, which compares the states of the ranks")
        if odd := odd_rank([tuple(row[1:].tolist()) for row in rows]):
            raise RankError(
                f"fit: rank {odd[0]} has drawn another number of random numbers than rank {odd[1]}. A callback or the "
                f"data draw on some ranks alone; let them draw on all, or from a generator of their own."
            )
        return any(bool(row[0]) for row in rows)

    def refuse(self, parts: tuple[Any, ...], optimiser: Optimizer, settings: Callable[[], dict[str, Any]]) -> None:
        """Raise an error for what has no shards, and for ranks that differ."""
        for cell in (cell for part in parts if isinstance(part, Cell) for _, cell in part.cells_and_names()):
            if isinstance(cell, Stateful):
                raise ArgumentError(
                    "fit: a Stateful keeps states from batch to batch, and with distributed=True a rank has other "
                    "samples than that. Give whole sequences to a MultiStep, or train in one process."
                )
        makes = {"net": parts[0], "loss": parts[1], "optimiser": optimiser}
        descriptions = {name: description(cell) for name, cell in makes.items() if isinstance(cell, Cell)}
        self._refuse_settings({**settings(), **descriptions})
        named: dict[str, Tensor] = {f"Parameter {path!r}": p for path, p in weights_of(parts[0], parts[1]).items()}
        trained = {id(p) for p in optimiser.parameters}
        named |= {
            f"the optimiser's {path!r}": p for path, p in optimiser.parameters_dict().items() if id(p) not in trained
        }
        named |= {f"buffer {path!r}": buffer for path, (_, _, buffer) in buffers_of(parts[0], parts[1]).items()}
        own = [hashlib.blake2b(p.asnumpy().tobytes(), digest_size=16).digest() for p in named.values()]
        texts = self.ranks.texts(b"".join(own), _BEGINNING)
        for place, name in enumerate(named):
            if odd := odd_rank([text[16 * place : 16 * place + 16] for text in texts]):
                raise RankError(
                    f"fit: {name} of rank {odd[0]} differs from that of rank {odd[1]} before the first step. Make net "
                    f"and optimiser after distributed.init(), in the same way on all ranks."
                )

    def _refuse_settings(self, own: dict[str, Any]) -> None:
        """Raise a RankError for a call of `fit` that differs between ranks."""
        rows = [json.loads(text) for text in self.ranks.texts(json.dumps(own, default=str).encode(), _BEGINNING)]
        for name in dict.fromkeys(name for row in rows for name in row):
            if odd := odd_rank([json.dumps(row.get(name), sort_keys=True) for row in rows]):
                found = first_difference(*(rows[rank].get(name) for rank in odd))
                path, *values = found or ("it", "another", "another")
                here, usual = ("not there" if value is None else value for value in values)
                mend = " Every rank is given all of the data, and takes its shards of each batch." * ("data" in name)
                raise RankError(
                    f"fit: rank {odd[0]} was given another {name} than rank {odd[1]}: {path} is {here} on rank "
                    f"{odd[0]} and {usual} on rank {odd[1]}.{mend}"
                )


def processes(distributed: bool) -> OneProcess:
    """The processes that `fit` is asked to train on.

    Raises:
        RankError: for those of a job that was not joined.
    """
    if not distributed:
        return OneProcess()
    return AllRanks(join_job("fit: distributed=True"))
