"""Sums of gradients over all shards: in a fixed order (same bits on any number of ranks), or in buckets by MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from snncell.distributed.ranks import Array, Ranks
from snncell.dtype import compute_dtype

BUCKET = 1 << 20  # bytes that go together in fast mode


class VectorLayout(NamedTuple):
    """Arrays as vectors, one of each dtype that they are computed in."""

    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> VectorLayout:
        """The layout of arrays; of float16 and bfloat16 sums are float32, in which they do not overflow."""
        return cls([tuple(x.shape) for x in arrays], [np.dtype(compute_dtype(np.dtype(x.dtype))) for x in arrays])

    def vectors(self, arrays: Sequence[Array], factor: float = 1.0) -> dict[Any, Array]:
        """The arrays, each times a number, as vectors that are nobody else's."""
        found = {}
        for dtype in dict.fromkeys(self.dtypes):
            parts = [np.ravel(x).astype(dtype) for x, own in zip(arrays, self.dtypes, strict=True) if own == dtype]
            found[dtype] = np.concatenate(parts)
            found[dtype] *= dtype.type(factor)
        return found

    def empty(self) -> dict[Any, Array]:
        """Vectors of these lengths and dtypes."""
        sizes = dict.fromkeys(self.dtypes, 0)
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            sizes[dtype] += int(np.prod(shape))
        return {dtype: np.zeros(size, dtype) for dtype, size in sizes.items()}

    def arrays(self, vectors: dict[Any, Array]) -> list[Array]:
        """The arrays that vectors are of."""
        places, found = dict.fromkeys(self.dtypes, 0), []
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            begin = places[dtype]
            places[dtype] = begin + int(np.prod(shape))
            found.append(vectors[dtype][begin : places[dtype]].reshape(shape))
        return found

    def span(self, numbers: Sequence[int]) -> tuple[int, int]:
        """The begin and the end, in the vector of their dtype, of arrays that follow each other there."""
        dtype = self.dtypes[numbers[0]]
        sizes = [int(np.prod(shape)) * (own == dtype) for shape, own in zip(self.shapes, self.dtypes, strict=True)]
        return sum(sizes[: min(numbers)]), sum(sizes[: max(numbers) + 1])

    def add(self, places: list[Array], numbers: Sequence[int], arrays: Sequence[Array], factor: float) -> None:
        """Add some of the arrays, each times a number, to their places among all."""
        for number, x in zip(numbers, arrays, strict=True):
            place, dtype = places[number], self.dtypes[number]
            place += x.astype(dtype, copy=False) * dtype.type(factor)


Vectors = dict[int, dict[Any, Array]]  # by shard, and by dtype


def sum_over_shards(ranks: Ranks, layout: VectorLayout, own: Vectors) -> list[Array]:
    """The sums over all shards of arrays that are given as vectors, which are added to."""
    like = layout.empty()
    return layout.arrays(
        {dtype: ranks.summed({s: one[dtype] for s, one in own.items()}, like[dtype]) for dtype in like}
    )


class Sums(Protocol):
    """Sums of arrays over shards, and over the batches of a step.

    For each shard of each batch `expect`, then `take` of its arrays, in any order; then `begin`, and `end`.

    Attributes:
        buckets: the numbers of the arrays that are exchanged together.
    """

    buckets: list[list[int]]

    def expect(self, shard: int, count: int, last: bool) -> None:
        """The next arrays are of that shard, to be added times a number; `last` if nothing is added behind them."""

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Add some of the arrays, given with their numbers in the layout."""

    def begin(self) -> None:
        """Begin to exchange what is not on its way yet."""

    def end(self) -> list[Array]:
        """The sums; afterwards there is nothing to be added to."""


class InOrder:
    """Sums in the order of the shards: see `Ranks.summed`."""

    def __init__(self, ranks: Ranks, layout: VectorLayout) -> None:
        self.ranks, self.layout = ranks, layout
        self.buckets = [list(range(len(layout.shapes)))]  # exchanged at the end: the first in order is not there first
        self.vectors: Vectors = {}
        self.places: dict[int, list[Array]] = {}
        self.present = (0, 0)

    def __repr__(self) -> str:
        return f"sums over {self.ranks.shards} shards"

    def expect(self, shard: int, count: int, last: bool) -> None:
        """The next arrays are of that shard."""
        if shard not in self.vectors:
            self.vectors[shard] = self.layout.empty()
            self.places[shard] = self.layout.arrays(self.vectors[shard])
        self.present = shard, count

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Add some of the arrays."""
        shard, count = self.present
        self.layout.add(self.places[shard], numbers, arrays, count)

    def begin(self) -> None:
        """Nothing: what comes first in the order is not what is there first."""

    def end(self) -> list[Array]:
        """The sums."""
        sums = sum_over_shards(self.ranks, self.layout, self.vectors)
        self.vectors, self.places = {}, {}
        return sums


class InBuckets:
    """Sums by MPI, in whatever order: a bucket is on its way as soon as all of its arrays are there.

    Buckets go in the same order on all ranks, and that is from the last array to the first: as gradients come.
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
        self.complete: set[int] = set()  # the arrays that nothing is added to any more
        self.requests: list[Any] = []
        self.sent = 0  # buckets

    def expect(self, shard: int, count: int, last: bool) -> None:
        """The next arrays are of that shard."""
        self.present = count, last

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Add some of the arrays, and send the buckets that are full."""
        count, last = self.present
        self.layout.add(self.places, numbers, arrays, count)
        if last:
            self.complete.update(numbers)
            self._send()

    def begin(self) -> None:
        """Send the buckets that are left."""
        self.complete.update(range(len(self.places)))
        self._send()

    def _send(self) -> None:
        while self.sent < len(self.buckets) and self.complete.issuperset(self.buckets[self.sent]):
            bucket = self.buckets[self.sent]
            vector = self.vectors[self.layout.dtypes[bucket[0]]]
            begin, end = self.layout.span(bucket)
            self.requests.append(self.ranks.sum_begun(vector[begin:end]))
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
    """The numbers of arrays that go together, at least BUCKET bytes of one dtype; from the last array to the first."""
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


def sums_of(ranks: Ranks, layout: VectorLayout) -> Sums:
    """The sums of the kind that a job was joined for."""
    return InBuckets(ranks, layout) if ranks.fast else InOrder(ranks, layout)
