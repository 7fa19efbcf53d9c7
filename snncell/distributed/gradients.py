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
from snncell.errors import ArgumentError, DeviceError, ShapeError
from snncell.tape.given import as_data
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import STATE
from snncell.tape.tensor import Tensor


def shards(*batch: Annotated[Any, Own()]) -> Iterator[tuple[Any, ...]]:
    """This rank's shards of a batch (inputs, ..., target) that every rank is given.

    Whatever draws random numbers while a shard is computed draws those of the shard, on whichever rank it is. Of a
    batch of few samples a rank may have none.

    Args:
        batch: inputs (B, ...) or (T, B, ...), and last the target, with an entry for each of B samples.

    Raises:
        ArgumentError: for inputs with no axis for the samples, or with two; in a jitted function.
        RankError: before `init`.

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
    ranks = joined("distributed.shards")
    if STATE.trace is not None:
        raise ArgumentError(
            "distributed.shards: a jitted function is traced once, and shards are other ones at each call. Give the "
            "jitted function a shard: for x_part, y_part in distributed.shards(x, y): gradients(x_part, y_part)."
        )
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
            In a jitted function this is a step like others, which waits for the other ranks at each call; let there be
            one of it.
        samples: how many samples they are of, n_i: a number, or a list of them; left out, all count the same.

    Returns:
        Tensors of the shapes and dtypes of the gradients.

    Raises:
        ArgumentError: for no gradients at all, or another number of samples than of gradients.
        ShapeError: for gradients of different shapes or dtypes.
        DeviceError: in a function that is jitted for the GPU.
        RankError: before `init`.

    Example:
        A step of data that each rank has for itself:

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
    ranks = joined("distributed.mean_gradients")
    tuples, counts = _by_shard(ranks, grads, samples)
    if STATE.trace is None:
        return tuple(map(Tensor, _mean([g.asnumpy() for one in tuples for g in one], counts)))
    if not tuples or not tuples[0]:
        raise ArgumentError("distributed.mean_gradients: in a jitted function a rank has gradients at each call.")
    means: tuple[Tensor, ...] = _MEAN.bind(*(g for one in tuples for g in one), counts=tuple(counts))
    return means


def _mean(arrays: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """The means of gradients over all ranks, given one tuple after another, for each of which there is a count."""
    ranks = joined("distributed.mean_gradients")
    ranks.begin_anew()
    each = len(arrays) // max(1, len(counts))
    found = {
        shard: (n, [np.asarray(x) for x in arrays[number * each : (number + 1) * each]])
        for number, (shard, n) in enumerate(zip(ranks.own, counts, strict=False))
        if n
    }
    kinds = _agreed(ranks, [one for _, one in found.values()])
    total = ranks.summed({shard: np.array([float(n)]) for shard, (n, _) in found.items()}, np.zeros(1))[0]
    if not kinds or not total:
        raise ArgumentError("distributed.mean_gradients: no rank has gradients of any sample.")
    sums = sums_of(ranks, Layout.of([np.empty(shape, dtype) for shape, dtype in kinds]))
    for shard, (n, one) in found.items():
        sums.add(shard, n, one)
    sums.begin()
    return [(x * x.dtype.type(1.0 / total)).astype(dtype) for x, (_, dtype) in zip(sums.end(), kinds, strict=True)]


class _Mean(Primitive):
    """`mean_gradients` in a traced function."""

    as_stored = EVERYWHERE

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        # Without an exchange: a trace is this rank's own affair.
        return [(x.shape, x.dtype) for x in inputs[: len(inputs) // len(attrs["counts"])]]

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        raise DeviceError(
            "distributed.mean_gradients: a function that is jitted for the GPU exchanges nothing with other ranks. "
            "Compute gradients in one jitted function, call mean_gradients, and give what it returns to the optimiser."
        )


_MEAN = _Mean("mean_gradients", lambda *arrays, counts: tuple(_mean(arrays, counts)), multiple=True).no_gradient()


def _by_shard(ranks: Ranks, grads: Any, samples: Any) -> tuple[list[Sequence[Tensor]], list[int]]:
    """The gradients of each shard, and its number of samples."""
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
    if any(len(one) != len(tuples[0]) for one in tuples):
        raise ShapeError(
            f"distributed.mean_gradients: the shards have different numbers of gradients, {[*map(len, tuples)]}."
        )
    return list(tuples), [int(n) for n in numbers]


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
