"""Cut batches into shards, draw random numbers for each shard, and sum results over shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.distributed.ranks import Array, Ranks
from snncell.dtype import compute_dtype
from snncell.errors import ArgumentError
from snncell.ops.random import present_key, restore_key
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import flatten, unflatten
from snncell.tape.tensor import Tensor


def shard_slices(samples: int, shards: int) -> list[slice]:
    """The samples of each shard, as evenly as possible.

    If there are few samples, the first shards have two or three each, and the others are empty. A shard never has a
    single sample unless the batch has, because batch normalisation of one sample has no variance.

    >>> from snncell.distributed.sharding import shard_slices
    >>> [[(one.start, one.stop) for one in shard_slices(samples, 4)] for samples in (10, 5)]
    [[(0, 3), (3, 6), (6, 8), (8, 10)], [(0, 3), (3, 5), (5, 5), (5, 5)]]
    """
    used = min(shards, max(1, samples // 2))
    size, more = divmod(samples, used)
    ends = [size * (n + 1) + min(n + 1, more) for n in range(used)]
    ends += [samples] * (shards - used)
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


class Cutter:
    """Cut batches (inputs, ..., target) by samples. Inputs are (B, ...) or (T, B, ...), targets (B, ...).

    If both axes have as many entries as there are samples, an input is cut along the same axis as in earlier batches.
    Without an earlier batch, an input of two axes is taken as (B, ...). Numbers are not cut.
    """

    def __init__(self) -> None:
        self.axes: dict[int, int] = {}  # the axis of the samples of each input, from unambiguous batches

    def pieces(self, batch: tuple[Any, ...], cuts: Iterable[slice]) -> Iterator[tuple[Any, ...]]:
        """Parts of a batch. Raises an ArgumentError if the axis of the samples is missing or ambiguous."""
        samples = len(batch[-1])
        refuse_lists(batch)
        leaves, structure = flatten(batch[:-1])
        axes = [self._axis(number, leaf, samples) for number, leaf in enumerate(leaves)]
        for cut in cuts:
            pairs = zip(leaves, axes, strict=True)
            chosen = [x if axis is None else x[cut] if axis == 0 else x[:, cut] for x, axis in pairs]
            yield (*unflatten(structure, chosen), batch[-1][cut])

    def _axis(self, number: int, x: Tensor, samples: int) -> int | None:
        if not x.ndim:
            return None
        found = [axis for axis in (0, 1) if x.ndim > axis and x.shape[axis] == samples]
        if len(found) == 1:
            self.axes[number] = found[0]
        elif found and (x.ndim == 2 or number in self.axes):
            return self.axes.get(number, 0)
        elif found:
            raise ArgumentError(
                f"distributed: an input of shape {x.shape} in a batch of {samples} samples may be (B, ...) or "
                f"(T, B, ...), because both axes have that length. Use train.Batches(..., time_first=True or False), a "
                f"data.Loader, or another batch size."
            )
        else:
            raise ArgumentError(
                f"distributed: an input of shape {x.shape} has no axis for the {samples} samples of its target. Inputs "
                f"must be (B, ...) or (T, B, ...)."
            )
        return found[0]


def refuse_lists(tree: Any) -> None:
    """Raise an ArgumentError for EventLists, because they have no axis to cut."""
    if isinstance(tree, EventLists):
        raise ArgumentError(
            "distributed: a batch of EventLists cannot be cut into shards. Pass arrays (events.to_dense()), or a "
            "data.Loader, which makes each shard separately."
        )
    if isinstance(tree, (tuple, list)):
        for item in tree:
            refuse_lists(item)
    if isinstance(tree, dict):
        refuse_lists(tuple(tree.values()))


# --- random numbers of a shard, independent of the rank that computes it ----------------------------------------------


def draw_by_shard(parts: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Iterate over pairs of a shard and its part of the batch. A shard's random sequence depends only on the common key
    and the number of the shard. Afterwards all ranks continue with the same random number.
    """
    seed, drawn = (int(number) for number in present_key().asnumpy())
    try:
        for shard, part in parts:
            own = np.random.SeedSequence((seed, drawn, shard)).generate_state(1, np.uint64)[0]
            restore_key(np.array([int(own) >> 2, 0]))
            yield shard, part
    finally:
        restore_key(np.array([seed, drawn + 1]))


# --- sums -------------------------------------------------------------------------------------------------------------

BUCKET = 1 << 20  # bytes of a bucket in fast mode


class VectorLayout(NamedTuple):
    """The layout of arrays that are concatenated into one vector per compute dtype, for exchange in few messages."""

    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> VectorLayout:
        """The layout of arrays. float16 and bfloat16 are summed in float32, so that sums do not overflow."""
        return cls([tuple(x.shape) for x in arrays], [np.dtype(compute_dtype(np.dtype(x.dtype))) for x in arrays])

    def vectors(self, arrays: Sequence[Array], factor: float = 1.0) -> dict[Any, Array]:
        """Copy the arrays, multiplied by `factor`, into new vectors."""
        found = {}
        for dtype in dict.fromkeys(self.dtypes):
            parts = [np.ravel(x).astype(dtype) for x, own in zip(arrays, self.dtypes, strict=True) if own == dtype]
            found[dtype] = np.concatenate(parts)
            found[dtype] *= dtype.type(factor)
        return found

    def empty(self) -> dict[Any, Array]:
        """Vectors of zeros."""
        sizes = dict.fromkeys(self.dtypes, 0)
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            sizes[dtype] += int(np.prod(shape))
        return {dtype: np.zeros(size, dtype) for dtype, size in sizes.items()}

    def arrays(self, vectors: dict[Any, Array]) -> list[Array]:
        """Views of the arrays in vectors."""
        places, found = dict.fromkeys(self.dtypes, 0), []
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            begin = places[dtype]
            places[dtype] = begin + int(np.prod(shape))
            found.append(vectors[dtype][begin : places[dtype]].reshape(shape))
        return found

    def span(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Begin and end of consecutive arrays in the vector of their dtype."""
        dtype = self.dtypes[numbers[0]]
        sizes = [int(np.prod(shape)) * (own == dtype) for shape, own in zip(self.shapes, self.dtypes, strict=True)]
        return sum(sizes[: min(numbers)]), sum(sizes[: max(numbers) + 1])

    def add(self, places: list[Array], numbers: Sequence[int], arrays: Sequence[Array], factor: float) -> None:
        """Add arrays, multiplied by `factor`, to `places` at their `numbers`."""
        for number, x in zip(numbers, arrays, strict=True):
            place, dtype = places[number], self.dtypes[number]
            place += x.astype(dtype, copy=False) * dtype.type(factor)


Vectors = dict[int, dict[Any, Array]]  # by shard, and by dtype


def sum_over_shards(ranks: Ranks, layout: VectorLayout, own: Vectors) -> list[Array]:
    """Sum arrays over all shards. `own` has the vectors of this rank's shards, and is overwritten."""
    like = layout.empty()
    return layout.arrays(
        {dtype: ranks.sum_shards({s: one[dtype] for s, one in own.items()}, like[dtype]) for dtype in like}
    )


class InOrder:
    """Sum arrays over the shards and batches of a training step, in the order of the shards (see `Ranks.sum_shards`).

    For each shard of each batch, call `expect`, then `take` with its arrays in any order; finally `begin` and `end`.
    """

    def __init__(self, ranks: Ranks, layout: VectorLayout) -> None:
        self.ranks, self.layout = ranks, layout
        self.buckets = [list(range(len(layout.shapes)))]  # one exchange of all, because the order is fixed
        self.vectors: Vectors = {}
        self.places: dict[int, list[Array]] = {}
        self.present = (0, 0)

    def __repr__(self) -> str:
        return f"sums over {self.ranks.shards} shards"

    def expect(self, shard: int, count: int, last: bool) -> None:
        """Announce the next arrays of a shard. `take` multiplies them by `count`; `last` if they are the final ones."""
        if shard not in self.vectors:
            self.vectors[shard] = self.layout.empty()
            self.places[shard] = self.layout.arrays(self.vectors[shard])
        self.present = shard, count

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Add some arrays, given with their numbers in the layout."""
        shard, count = self.present
        self.layout.add(self.places[shard], numbers, arrays, count)

    def begin(self) -> None:
        """Do nothing: the exchange starts in `end`, because the order of additions is fixed."""

    def end(self) -> list[Array]:
        """Exchange, return the sums, and start again from zero."""
        sums = sum_over_shards(self.ranks, self.layout, self.vectors)
        self.vectors, self.places = {}, {}
        return sums


class InBuckets:
    """Like `InOrder`, but MPI adds in any order: a bucket is sent as soon as all of its arrays are complete.

    All ranks send them in the same order, from the last array to the first, as the backward pass computes them.
    """

    def __init__(self, ranks: Ranks, layout: VectorLayout) -> None:
        self.ranks, self.layout = ranks, layout
        self.buckets = _buckets(layout)
        self._empty()

    def __repr__(self) -> str:
        return f"sums over {self.ranks.size} ranks"

    def _empty(self) -> None:
        self.vectors = self.layout.empty()
        self.places = self.layout.arrays(self.vectors)
        self.present = (0, False)
        self.complete: set[int] = set()  # numbers of arrays with their final local sum
        self.requests: list[Any] = []
        self.sent = 0  # buckets

    def expect(self, shard: int, count: int, last: bool) -> None:
        """Announce arrays of a shard."""
        self.present = count, last

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Add some arrays, and send complete buckets."""
        count, last = self.present
        self.layout.add(self.places, numbers, arrays, count)
        if last:
            self.complete.update(numbers)
            self._send()

    def begin(self) -> None:
        """Send the remaining buckets."""
        self.complete.update(range(len(self.places)))
        self._send()

    def _send(self) -> None:
        while self.sent < len(self.buckets) and self.complete.issuperset(self.buckets[self.sent]):
            bucket = self.buckets[self.sent]
            vector = self.vectors[self.layout.dtypes[bucket[0]]]
            begin, end = self.layout.span(bucket)
            self.requests.append(self.ranks.start_sum(vector[begin:end]))
            self.ranks.progress.begin()
            self.sent += 1

    def end(self) -> list[Array]:
        """The sums."""
        self.ranks.progress.end()
        self.ranks.wait(self.requests, "a sum of gradients")
        sums = self.places
        self._empty()
        return sums


def _buckets(layout: VectorLayout) -> list[list[int]]:
    """Group arrays of one dtype into buckets of at least BUCKET bytes, from the last array to the first."""
    buckets: list[list[int]] = []
    open_ones: dict[Any, list[int]] = {}
    for number in reversed(range(len(layout.shapes))):
        bucket = open_ones.setdefault(layout.dtypes[number], [])
        if not bucket:
            buckets.append(bucket)
        bucket.append(number)
        begin, end = layout.span(bucket)
        if (end - begin) * layout.dtypes[number].itemsize >= BUCKET:
            del open_ones[layout.dtypes[number]]
    return buckets


Sums = InOrder | InBuckets


def sums_of(ranks: Ranks, layout: VectorLayout) -> Sums:
    """Sums in order or in buckets, depending on `fast`."""
    return InBuckets(ranks, layout) if ranks.fast else InOrder(ranks, layout)
