"""Gradients over all ranks of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes
from snncell.arguments.kinds import Own
from snncell.arguments.shown import came
from snncell.distributed.cuts import Cutter, slices
from snncell.distributed.draws import aside, draw_for_shard
from snncell.distributed.job import joined
from snncell.distributed.ranks import Array, Ranks
from snncell.distributed.sums import Layout, sums_of
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.given import as_data
from snncell.tape.state import STATE
from snncell.tape.tensor import Tensor


def shards(*batch: Annotated[Any, Own()]) -> Iterator[tuple[Any, ...]]:
    """This rank's shards of a batch (inputs, ..., target) that every rank is given.

    Whatever draws random numbers while a shard is computed draws those of the shard, on whichever rank it is. Of a
    batch of few samples a rank may have none.

    Args:
        batch: inputs (B, ...) or (T, B, ...), and last the target, with an entry for each of B samples.

    Raises:
        ArgumentError: for inputs with no axis for the samples, or with two.
        RankError: before `init`.

    Example:
        Gradients of the whole batch, the same bits on 1, 2 and 4 ranks:

            found, counts = [], []
            for x_part, y_part in distributed.shards(x, y):
                loss, grads = gradients(x_part, y_part)
                found.append(grads)
                counts.append(len(y_part))
            optimiser(distributed.mean_gradients(found, counts))
    """
    ranks = joined("distributed.shards")
    parts = tuple(as_data(part) for part in batch)
    if not parts or not isinstance(parts[-1], Tensor) or not parts[-1].ndim:
        raise ArgumentError(
            f"distributed.shards: takes inputs and a target with an entry for each sample, not {came(batch)}."
        )
    cuts = slices(len(parts[-1]), ranks.shards)
    own = [shard for shard in ranks.own if cuts[shard].stop > cuts[shard].start]
    with aside() as key:
        for shard, part in zip(own, Cutter().pieces(parts, [cuts[shard] for shard in own]), strict=True):
            draw_for_shard(key, shard)
            yield part


def mean_gradients(
    grads: Annotated[Sequence[Any], Own()], samples: Annotated[int | Sequence[int] | None, Own()] = None
) -> tuple[Tensor, ...]:
    """The mean of gradients over all ranks, the same on each of them.

    G = sum_i n_i g_i / sum_i n_i, of a loss that is a mean over samples the gradient of all samples at once. It is
    added in the order of the shards, in float32 at least: of `shards`, to the same bits on any number of ranks.

    Args:
        grads: the gradients of this rank, a tuple of Tensors; or a list of such tuples, one for each of its `shards`.
        samples: how many samples they are of, n_i: a number, or a list of them; left out, all count the same.

    Returns:
        Tensors of the shapes and dtypes of the gradients.

    Raises:
        ArgumentError: in a jitted function, which exchanges nothing with other ranks; for no gradients at all, or
            another number of samples than of gradients.
        ShapeError: for gradients of different shapes or dtypes.
        RankError: before `init`.

    Example:
        Of data that each rank has for itself:

            loss, grads = gradients(x, y)
            optimiser(distributed.mean_gradients(grads, len(y)))
    """
    ranks = joined("distributed.mean_gradients")
    if STATE.trace is not None:
        raise ArgumentError(
            "distributed.mean_gradients: a jitted function exchanges nothing with other ranks. Compute gradients in "
            "one jitted function, call mean_gradients, and give what it returns to the optimiser."
        )
    found, counts = _by_shard(ranks, grads, samples)
    kinds = _agreed(ranks, list(found.values()))
    total = ranks.summed({shard: np.array([float(n)]) for shard, n in counts.items()}, np.zeros(1))[0]
    if not kinds or not total:
        raise ArgumentError("distributed.mean_gradients: no rank has gradients of any sample.")
    layout = Layout.of([np.empty(shape, dtype) for shape, dtype in kinds])
    sums = sums_of(ranks, layout)
    for shard, arrays in found.items():
        sums.add(shard, counts[shard], arrays)
    sums.begin()
    return tuple(
        Tensor((x * x.dtype.type(1.0 / total)).astype(dtype)) for x, (_, dtype) in zip(sums.end(), kinds, strict=True)
    )


def _by_shard(ranks: Ranks, grads: Any, samples: Any) -> tuple[dict[int, list[Array]], dict[int, int]]:
    """Gradients and numbers of samples by shard, of those with samples."""
    several = isinstance(grads, list) and all(isinstance(one, (tuple, list)) for one in grads)
    tuples = grads if several else [grads]
    if not all(isinstance(one, (tuple, list)) and all(isinstance(g, Tensor) for g in one) for one in tuples):
        raise ArgumentError(
            f"distributed.mean_gradients: takes a tuple of Tensors, or a list of such tuples, not {came(grads)}."
        )
    numbers = [1] * len(tuples) if samples is None else samples if isinstance(samples, (list, tuple)) else [samples]
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0 for n in numbers)
    if len(numbers) != len(tuples) or not whole:
        raise ArgumentError(
            f"distributed.mean_gradients: samples are a number for each of {len(tuples)} gradients, not "
            f"{samples!r:.99}."
        )
    if len(tuples) > len(ranks.own):
        raise ArgumentError(
            f"distributed.mean_gradients: there are gradients of {len(tuples)} shards, and this rank has "
            f"{len(ranks.own)}. Call it once for each batch."
        )
    kept = [(shard, one, int(n)) for shard, one, n in zip(ranks.own, tuples, numbers, strict=False) if n]
    return {shard: [g.asnumpy() for g in one] for shard, one, _ in kept}, {shard: n for shard, _, n in kept}


def _agreed(ranks: Ranks, found: list[list[Array]]) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and dtype of each gradient; no rank need have some.

    Raises:
        ShapeError: if they differ.
    """
    own = [[[list(x.shape), x.dtype.name] for x in one] for one in found]
    kinds = [kind for text in ranks.texts(json.dumps(own).encode()) for kind in json.loads(text)]
    for kind in kinds:
        if kind != kinds[0]:
            raise ShapeError(
                f"distributed.mean_gradients: the gradients of one shard are {kinds[0]}, and of another {kind}."
            )
    return [(tuple(shape), dtypes.as_dtype(name).dtype) for shape, name in kinds[0]] if kinds else []
