"""Cut a batch into shards, and all-reduce their gradients."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Protocol

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.distributed.job import join_job
from snncell.distributed.ranks import Array, Ranks, odd_rank
from snncell.distributed.sharding import Cutter, VectorLayout, draw_by_shard, shard_slices, sums_of
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.space import DEVICE, HOST, move_to_space, space_of
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import TRACING
from snncell.tape.structure import as_data
from snncell.tape.tensor import Tensor, wrap


def shards(*batch: Annotated[Any, Own()]) -> Iterator[tuple[Any, ...]]:
    """Iterate over the shards of a batch that belong to this rank, for your own training loop.

    Pass the whole batch on every rank. Random numbers drawn while you compute a shard belong to the shard, so they do
    not depend on the rank. For a small batch, a rank may get no shard.

    Args: batch: inputs (B, ...) or (T, B, ...), then the target with an entry for each of the B samples.
    Raises: ArgumentError if the axis of the samples is missing or ambiguous; RankError before `init`.
    Example:
        The gradient of a whole batch, the same bits on 1, 2 and 4 ranks:

        >>> snncell.distributed.init()
        >>> net, x, y = nn.Dense(3, 2), ops.uniform((10, 3)), ops.zeros((10, 2))
        >>> adam, loss = nn.Adam(net.trainable_params()), nn.MSELoss()
        >>> gradient = snncell.jit(snncell.grad(lambda x, y: loss(net(x), y), None, adam.parameters))
        >>> found, counts = [], []
        >>> for x_part, y_part in snncell.distributed.shards(x, y):
        ...     found.append(gradient(x_part, y_part))
        ...     counts.append(len(y_part))
        >>> _ = adam(snncell.distributed.mean_gradients(found, counts))
        >>> counts  # on one rank, which has all four
        [3, 3, 2, 2]
    """
    ranks = join_job("distributed.shards")
    if TRACING.trace is not None:
        raise ArgumentError(
            "distributed.shards: you cannot call it in a jitted function, because that is traced once, but shards "
            "differ in each call. Pass a shard to the jitted function: for x_part, y_part in distributed.shards(x, y): "
            "gradients(x_part, y_part)."
        )
    parts = tuple(as_data(part) for part in batch)
    if not parts or not isinstance(parts[-1], Tensor) or not parts[-1].ndim:
        raise ArgumentError(
            f"distributed.shards: pass inputs, then a target with an entry for each sample, not {came(batch)}."
        )
    cuts = shard_slices(len(parts[-1]), ranks.shards)
    own = [shard for shard in ranks.own if cuts[shard].stop > cuts[shard].start]
    for _, part in draw_by_shard(zip(own, Cutter().pieces(parts, [cuts[shard] for shard in own]), strict=True)):
        yield part


def mean_gradients(
    grads: Annotated[Sequence[Any], Own()], samples: Annotated[int | Sequence[int] | None, Own()] = None
) -> tuple[Tensor, ...]:
    """All-reduce gradients: their mean over all ranks, equal on each of them.

    G = sum_i n_i g_i / sum_i n_i, which is the gradient of the whole batch for a loss that is a mean over samples. Sums
    are added in the order of the shards, in float32 at least, so with `shards` any number of ranks gives the same bits.

    Args:
        grads: a tuple of Tensors; or a list of such tuples, one for each of this rank's `shards`. In a jitted function,
            call this once; the step then waits for the other ranks. In fast mode it overlaps the backward pass.
        samples: the number of samples n_i of each gradient, a number or a list; by default all have the same weight.
    Returns: Tensors with the shapes, dtypes and devices of the gradients.
    Raises: ShapeError for gradients that differ between ranks; RankError before `init`.
    Example:
        A jitted step with separate data on each rank:

        >>> snncell.distributed.init()
        >>> net, x, y = nn.Dense(3, 2), ops.uniform((10, 3)), ops.zeros((10, 2))
        >>> adam, loss = nn.Adam(net.trainable_params(), 0.1), nn.MSELoss()
        >>> gradients = snncell.value_and_grad(lambda x, y: loss(net(x), y), None, adam.parameters)
        >>> @snncell.jit
        ... def step(x, y):
        ...     value, grads = gradients(x, y)
        ...     adam(snncell.distributed.mean_gradients(grads, len(y)))
        ...     return value
        >>> losses = [step(x, y).item() for _ in range(9)]
        >>> losses[-1] < losses[0]
        True
    """
    ranks = join_job("distributed.mean_gradients")
    tuples, counts = _by_shard(ranks, grads, samples)
    mean = _Mean(ranks, counts, [[(g.shape, g._data.dtype) for g in one] for one in tuples])
    flat = [g for one in tuples for g in one]
    if TRACING.trace is None:
        arrays = mean.of([g.asnumpy() for g in flat])
        if not tuples:
            return tuple(map(Tensor, arrays))
        return tuple([wrap(move_to_space(x, space_of(g._data))) for x, g in zip(arrays, tuples[0], strict=True)])
    if not flat:
        raise ArgumentError("distributed.mean_gradients: in a jitted function, every rank must pass gradients.")
    return _END.bind_all(*hand_over(flat, mean), taker=mean)


# --- overlap of the all-reduce with the backward pass -----------------------------------------------------------------


class Taker(Protocol):
    """Receives gradients during the backward pass, bucket by bucket."""

    buckets: list[list[int]]

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Receive the gradients of a bucket, with their numbers."""


def hand_over(grads: Sequence[Tensor], taker: Taker) -> list[Tensor]:
    """Pass complete buckets of gradients to `taker` during the backward pass, and return the gradients unchanged."""
    found: dict[int, Tensor] = {}
    for bucket in taker.buckets:
        taken = _TAKE.bind(*(grads[n] for n in bucket), taker=taker, numbers=tuple(bucket))
        found.update(zip(bucket, taken, strict=True))
    return [found[n] for n in range(len(grads))]


class _Take(Primitive):
    as_stored = EVERYWHERE
    outside = early = True

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        # Do not call the taker in a trace, because other ranks may not trace at the same time, and would not answer.
        return [(x.shape, x.dtype) for x in inputs]

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        _takes_over(*(move_to_space(x, HOST) for x in arrays), **attrs)
        return tuple(arrays)


def _takes_over(*arrays: Array, taker: Taker, numbers: tuple[int, ...]) -> tuple[Array, ...]:
    taker.take(numbers, arrays)
    return arrays


_TAKE = _Take("take_gradients", _takes_over, multiple=True).no_gradient()


class _End(Primitive):
    """End the exchange, and return the means of all gradients that the taker has received."""

    as_stored = EVERYWHERE
    outside = True

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return list(attrs["taker"].kinds[0])

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return tuple(move_to_space(x, DEVICE) for x in attrs["taker"].end())


_END = _End("mean_gradients", lambda *arrays, taker: tuple(taker.end()), multiple=True).no_gradient()

Kind = tuple[tuple[int, ...], Any]  # shape and dtype


class _Mean:
    """Computes the mean of gradients, numbered shard by shard, over all ranks, any number of times."""

    def __init__(self, ranks: Ranks, counts: Sequence[int], kinds: Sequence[Sequence[Kind]]) -> None:
        self.ranks, self.counts, self.kinds = ranks, counts, kinds  # samples and gradients of each shard
        self.each = len(kinds[0]) if kinds else 0
        # A single shard can use the buckets of the sums; several shards are added first.
        self.buckets = [list(range(self.each * len(kinds)))]
        if len(kinds) == 1 and kinds[0]:
            self.buckets = sums_of(ranks, _layout(kinds[0])).buckets

    def __repr__(self) -> str:
        return f"mean over {self.ranks.size} rank(s)"

    def of(self, arrays: Sequence[Array]) -> list[Array]:
        for bucket in self.buckets:
            self.take(bucket, [arrays[number] for number in bucket])
        return self.end()

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        if list(numbers) == self.buckets[0]:
            self._begin()
        for row, count in enumerate(self.counts):
            own = [n for n, number in enumerate(numbers) if number // self.each == row] if count else []
            if own:
                self.sums.expect(self.ranks.own[row], count, last=True)
                self.sums.take([numbers[n] % self.each for n in own], [np.asarray(arrays[n]) for n in own])

    def _begin(self) -> None:
        self.ranks.start_part()
        there = [kinds for kinds, count in zip(self.kinds, self.counts, strict=True) if count]
        self.agreed = _agree_on_specs(self.ranks, there)
        self.total = self.ranks.all_gather(np.array(float(sum(self.counts))), "distributed.mean_gradients")
        if not self.agreed or not sum(self.total):
            raise ArgumentError("distributed.mean_gradients: no rank passed gradients with samples.")
        self.sums = sums_of(self.ranks, _layout(self.agreed))

    def end(self) -> list[Array]:
        self.sums.begin()
        factor = 1.0 / float(sum(self.total))
        sums = zip(self.sums.end(), self.agreed, strict=True)
        return [(x * x.dtype.type(factor)).astype(dtype) for x, (_, dtype) in sums]


def _layout(kinds: Sequence[Kind]) -> VectorLayout:
    return VectorLayout.of([np.empty(shape, dtype) for shape, dtype in kinds])


def _by_shard(ranks: Ranks, grads: Any, samples: Any) -> tuple[list[Sequence[Tensor]], list[int]]:
    several = isinstance(grads, list) and all(isinstance(one, (tuple, list)) for one in grads)
    tuples = grads if several else [grads]
    if not all(isinstance(one, (tuple, list)) and all(isinstance(g, Tensor) for g in one) for one in tuples):
        raise ArgumentError(
            f"distributed.mean_gradients: grads must be a tuple of Tensors, or a list of them, not {came(grads)}."
        )
    numbers = [1] * len(tuples) if samples is None else samples if isinstance(samples, (list, tuple)) else [samples]
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0 for n in numbers)
    if len(numbers) != len(tuples) or not whole:
        raise ArgumentError(
            f"distributed.mean_gradients: samples must be a number for each of {len(tuples)} gradients, not "
            f"{samples!r:.99}."
        )
    if len(tuples) > len(ranks.own):
        raise ArgumentError(
            f"distributed.mean_gradients: grads has {len(tuples)} shards, but this rank has {len(ranks.own)}. Call it "
            f"once for each batch."
        )
    if any(len(one) != len(tuples[0]) for one in tuples):
        raise ShapeError(
            f"distributed.mean_gradients: the shards have different numbers of gradients, {[*map(len, tuples)]}."
        )
    return list(tuples), [int(n) for n in numbers]


def _agree_on_specs(ranks: Ranks, found: Sequence[Sequence[Kind]]) -> list[Kind]:
    """Shape and dtype of each gradient, also for ranks without gradients. Raises a ShapeError if ranks differ."""
    own = [[[list(shape), np.dtype(dtype).name] for shape, dtype in one] for one in found]
    found_there = ranks.objects(own, "distributed.mean_gradients")
    of_ranks = [(rank, kind) for rank, kinds_there in enumerate(found_there) for kind in kinds_there]
    kinds = [kind for _, kind in of_ranks]
    if kinds and (odd := odd_rank([json.dumps(kind) for kind in kinds])):
        (rank, kind), (other, usual) = of_ranks[odd[0]], of_ranks[odd[1]]
        raise ShapeError(
            f"distributed.mean_gradients: gradients of a shard on rank {rank} are {kind}, but those of a shard on "
            f"rank {other} are {usual}."
        )
    return [(tuple(shape), dtypes.as_dtype(name).dtype) for shape, name in kinds[0]] if kinds else []
