"""Data-parallel training, `train.fit(distributed=True)`: each rank trains on its shards of every batch."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from snncell.cell.cell import Cell
from snncell.compiler.jit import jit
from snncell.distributed import sharding
from snncell.distributed.gradients import hand_over
from snncell.distributed.job import join_job
from snncell.distributed.ranks import Array, Ranks, odd_rank
from snncell.distributed.sharding import Cutter, VectorLayout, Vectors
from snncell.errors import ArgumentError, RankError
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.states import find_statefuls
from snncell.ops.random import present_key, replaying
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.structure import flatten
from snncell.tape.tensor import Tensor
from snncell.train.finite import Scaling
from snncell.train.state import buffers_of, describe_cell, find_difference, state_of, weights_of
from snncell.train.steps import Clip, Counted, OneProcess, TrainStep, step_in_two

Numbers = dict[str, Any]
Shards = dict[int, tuple[Any, ...]]  # the shards of a batch on one rank, by number


class Share(NamedTuple):
    """A rank's shards of a batch, and the number of samples of the whole batch."""

    samples: int
    shards: Shards
    digest: int = 0  # a checksum of the whole batch, to compare data that each rank has loaded separately


_WIDE = np.dtype(np.float64)


class Shares:
    """Iterate over batches as this rank's shards: (samples of the batch, its shards), or (0, a whole batch to cut).
    Data with a method `in_parts`, such as `Batches` and `Loader`, make only the shards of this rank.
    """

    def __init__(self, source: Any, ranks: Ranks) -> None:
        self.source, self.ranks = source, ranks
        self.cutter = Cutter()

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        family = type(self.source).__mro__
        parts, whole = (
            next((n for n, one in enumerate(family) if name in vars(one)), None) for name in ("in_parts", "__iter__")
        )
        if parts is not None and whole is not None and parts <= whole:  # unless a subclass overrides only `__iter__`
            yield from self.source.in_parts(self.of)
        else:
            yield from ((0, batch) for batch in self.source)

    def of(self, samples: int) -> dict[int, slice]:
        """The samples of each of this rank's shards."""
        cuts = sharding.shard_slices(samples, self.ranks.shards)
        return {shard: cuts[shard] for shard in self.ranks.own if cuts[shard].stop > cuts[shard].start}

    def convert(self, item: tuple[int, Any], parts_of: Callable[[Any], tuple[Any, ...]]) -> Share:
        """Convert an item of the iteration to a share of a batch."""
        samples, found = item
        if samples:
            return Share(samples, {shard: parts_of(part) for shard, part in found.items()})
        parts = parts_of(found)
        cuts = self.of(len(parts[-1]))
        pieces = dict(zip(cuts, self.cutter.pieces(parts, cuts.values()), strict=True))
        digest = 0
        for leaf in flatten(parts)[0]:
            digest = zlib.crc32(np.ascontiguousarray(leaf.asnumpy()).reshape(-1).view(np.uint8).data, digest)
        return Share(len(parts[-1]), pieces, digest)


class Means:
    """Means of numbers over the samples of all shards."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.names: list[str] = []
        # A rank without a shard of the first batch learns names and shapes from the others.
        self.layout: VectorLayout | None = None

    def of(self, found: dict[int, tuple[int, Numbers]], share: Share) -> Numbers:
        """The means of numbers, given with samples by shard. Raises a RankError if ranks have different batches."""
        layout = self.layout or self._learn_layout(next((numbers for _, numbers in found.values()), None))
        own: Vectors = {}
        for shard, (count, numbers) in found.items():
            arrays = [
                np.ones(()),
                np.array(float(share.digest)),
                *(np.asarray(numbers[name], _WIDE) for name in self.names),
            ]
            own[shard] = layout.vectors(arrays, float(count))
        samples, digests, *sums = sharding.sum_over_shards(self.ranks, layout, own)
        if samples != share.samples or digests != samples * share.digest:  # whole numbers, so exact
            rows = self.ranks.all_gather(np.array([share.samples, share.digest], np.int64))
            odd, usual = odd_rank([tuple(row.tolist()) for row in rows]) or (self.ranks.rank, 0)
            raise RankError(
                f"fit: rank {odd} has a different batch than rank {usual}. All ranks must get the same batches in the "
                f"same order, and take their shards of each. Shuffle with snncell's random numbers (data.Loader, "
                f"train.Batches), or with the same seed on all ranks (torch.manual_seed)."
            )
        return {name: Tensor(np.asarray(x / samples)) for name, x in zip(self.names, sums, strict=True)}

    def _learn_layout(self, numbers: Numbers | None) -> VectorLayout:
        own = None if numbers is None else [[name, np.shape(x)] for name, x in numbers.items()]
        rows = next(one for one in self.ranks.objects(own, "the first batch of fit") if one is not None)
        self.names = [name for name, _ in rows]
        self.layout = VectorLayout([(), (), *(tuple(shape) for _, shape in rows)], [_WIDE] * (len(rows) + 2))
        return self.layout


class Sharded(TrainStep):
    """A training step with the mean of the gradients of all shards, for one batch or several (gradient accumulation).

    G = sum n g / sum n over the shards of all batches, with n samples in a shard. Each shard starts with the statistics
    from before the batch (such as BatchNorm's moving mean); afterwards they are the mean over all samples.
    """

    def __init__(
        self,
        ranks: Ranks,
        functions: tuple[Callable[..., Any], Callable[..., None]],
        optimiser: Optimizer,
        statistics: dict[str, Parameter],
        accumulate: int,
        scaled: bool,
    ) -> None:
        self.ranks, self.accumulate, self.scaled = ranks, accumulate, scaled
        of_part, self.update = functions
        self.statistics = statistics
        self.sums = sums = sharding.sums_of(ranks, VectorLayout.of(optimiser.parameters))

        def gradients(*part: Tensor) -> tuple[Numbers, list[Tensor]]:
            numbers, grads = of_part(*part)
            return numbers, hand_over(grads, sums)

        self.gradients = jit(gradients)
        self.numbers = Means(ranks)
        self.waiting = 0
        self.samples = 0

    def __call__(self, batch: Share) -> Numbers:
        before = [(p, p.value()) for p in self.statistics.values()]
        found: dict[int, tuple[int, Numbers]] = {}
        after: dict[int, tuple[int, list[Array]]] = {}
        for shard, part in sharding.draw_by_shard(batch.shards.items()):
            _put(before)
            count = len(part[-1])
            self.sums.expect(shard, count, last=self.waiting + 1 == self.accumulate)
            numbers, grads = self.gradients(*part)
            finite = float(not self.scaled or all(np.isfinite(g.asnumpy()).all() for g in grads))
            changed = [float(p._data is not value._data) for p, value in before]
            found[shard] = count, {**numbers, _FINITE: finite, _CHANGED: np.array(changed)}
            after[shard] = count, [p.asnumpy() for p in self.statistics.values()]
        self.samples += batch.samples
        self.waiting += 1
        full = self.waiting == self.accumulate
        if full:
            self.sums.begin()
        numbers = self.numbers.of(found, batch)
        finite, changed = numbers.pop(_FINITE).item() == 1.0, numbers.pop(_CHANGED).asnumpy() > 0
        _put(before)
        if finite and changed.any():
            self._combine([p for p, one in zip(self.statistics.items(), changed, strict=True) if one], changed, after)
        if full:
            self._update()
        return numbers

    @property
    def updated(self) -> bool:
        return not self.waiting

    def _combine(
        self, named: list[tuple[str, Parameter]], changed: Array, after: dict[int, tuple[int, list[Array]]]
    ) -> None:
        layout = VectorLayout([(), *(p.shape for _, p in named)], [_WIDE] * (len(named) + 1))
        values = {s: (n, [x for x, one in zip(every, changed, strict=True) if one]) for s, (n, every) in after.items()}
        own = {shard: layout.vectors([np.ones(()), *few], float(count)) for shard, (count, few) in values.items()}
        samples, *sums = sharding.sum_over_shards(self.ranks, layout, own)
        means = [(x / samples).astype(p.dtype.dtype) for x, (_, p) in zip(sums, named, strict=True)]
        for _, few in values.values():
            for (path, p), mean, one in zip(named, means, few, strict=True):
                if not p.dtype.is_float and (mean != one).any():
                    raise ArgumentError(
                        f"fit: Parameter {path!r}, {p.dtype.name}, is not trained, but shards of a batch give it "
                        f"different integers, which have no mean. Make it float, or train in one process."
                    )
        _put([(p, Tensor(mean)) for (_, p), mean in zip(named, means, strict=True)])

    def finish(self) -> None:
        if self.waiting:
            self.sums.begin()
            self._update()

    def _update(self) -> None:
        self.update(*(Tensor(x * x.dtype.type(1.0 / self.samples)) for x in self.sums.end()))
        self.waiting, self.samples = 0, 0


# Internal numbers; the space keeps them apart from names of metrics.
_FINITE, _CHANGED = " finite", " changed"


def _put(values: list[tuple[Parameter, Tensor]]) -> None:
    assign_all(values, "fit", in_range=True)


_BEGINNING = "the comparison of nets and settings at the beginning of fit"  # the name of these exchanges


class AllRanks(OneProcess):
    """All ranks of a job, as the processes of a training."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.first = ranks.rank == 0

    def batches(self, source: Any, parts_of: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, Callable[[Any], Counted]]:
        """An iterable over the data, and a function that converts an item to (samples of the whole batch, `Share`)."""
        shares = Shares(source, self.ranks)

        def counted(item: Any) -> Counted:
            share = shares.convert(item, parts_of)
            return share.samples, share

        return shares, counted

    def step(
        self,
        parts: tuple[Any, ...],
        of_batch: Any,
        optimiser: Optimizer,
        clip: Clip,
        scaling: Scaling | None,
        accumulate: int,
    ) -> TrainStep:
        functions = step_in_two(of_batch, optimiser, clip, scaling)
        trained = {id(p) for p in optimiser.parameters}
        statistics = {path: p for path, p in weights_of(*parts).items() if id(p) not in trained}
        return Sharded(self.ranks, functions, optimiser, statistics, accumulate, scaling is not None)

    def measured(self, of_batch: Callable[..., Numbers]) -> Callable[[Any], Numbers]:
        means = Means(self.ranks)

        def of_all(batch: Share) -> Numbers:
            found = {}
            for shard, part in sharding.draw_by_shard(batch.shards.items()):
                found[shard] = len(part[-1]), of_batch(*part)
            return means.of(found, batch)

        return of_all

    def apart(self, alone: bool) -> AbstractContextManager[Any]:
        """Context manager: a callback on one rank may draw random numbers without an effect on the training."""
        return replaying(present_key()) if alone else nullcontext()

    def together(self) -> AbstractContextManager[Any]:
        return self.ranks.together()

    def settings(self) -> dict[str, Any]:
        """The number of shards, because the bits depend on it; None in fast mode, where they depend on the ranks."""
        return {"shards": None if self.ranks.fast else self.ranks.shards}

    def any(self, flag: bool) -> bool:
        own = np.array([flag, *present_key().asnumpy()], np.int64)
        rows = self.ranks.all_gather(own, "fit, which compares the states of the ranks")
        if odd := odd_rank([tuple(row[1:].tolist()) for row in rows]):
            raise RankError(
                f"fit: rank {odd[0]} has drawn a different number of random numbers than rank {odd[1]}. A callback or "
                f"the data draw on some ranks only. Draw on all ranks, or from a separate generator."
            )
        return any(bool(row[0]) for row in rows)

    def refuse(self, parts: tuple[Any, ...], optimiser: Optimizer, settings: Callable[[], dict[str, Any]]) -> None:
        """Raise for a `Stateful`, which has no shards, and for networks or settings that differ between ranks."""
        if find_statefuls(*parts):
            raise ArgumentError(
                "fit: a Stateful keeps states from batch to batch, but with distributed=True a rank gets other "
                "samples in each batch. Pass whole sequences to a MultiStep, or train in one process."
            )
        makes = {"net": parts[0], "loss": parts[1], "optimiser": optimiser}
        descriptions = {name: describe_cell(cell) for name, cell in makes.items() if isinstance(cell, Cell)}
        self._refuse_settings({**settings(), **descriptions})
        named: dict[str, Tensor] = {f"Parameter {path!r}": p for path, p in weights_of(parts[0], parts[1]).items()}
        named |= {f"the optimiser's {path!r}": p for path, p in state_of(optimiser).items()}
        named |= {f"buffer {path!r}": buffer for path, (_, _, buffer) in buffers_of(parts[0], parts[1]).items()}
        own = [hashlib.blake2b(p.asnumpy().tobytes(), digest_size=16).digest() for p in named.values()]
        texts = self.ranks.texts(b"".join(own), _BEGINNING)
        for place, name in enumerate(named):
            if odd := odd_rank([text[16 * place : 16 * place + 16] for text in texts]):
                raise RankError(
                    f"fit: {name} of rank {odd[0]} differs from that of rank {odd[1]} before the first step. Make "
                    f"network and optimiser after distributed.init(), in the same way on all ranks."
                )

    def _refuse_settings(self, own: dict[str, Any]) -> None:
        rows = self.ranks.objects(own, _BEGINNING)
        for name in dict.fromkeys(name for row in rows for name in row):
            if odd := odd_rank([json.dumps(row.get(name), sort_keys=True) for row in rows]):
                found = find_difference(*(rows[rank].get(name) for rank in odd))
                path, *values = found or ("it", "different", "different")
                here, usual = ("missing" if value is None else value for value in values)
                fix = " Pass all of the data on every rank; it takes its shards of each batch." * ("data" in name)
                raise RankError(
                    f"fit: the {name} of rank {odd[0]} differs from that of rank {odd[1]}: {path} is {here} on rank "
                    f"{odd[0]} and {usual} on rank {odd[1]}.{fix}"
                )


def train_on_ranks() -> AllRanks:
    """The ranks for `train.fit(distributed=True)`. Raises a RankError before `init`."""
    return AllRanks(join_job("fit: distributed=True"))
