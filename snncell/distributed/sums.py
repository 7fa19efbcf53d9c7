"""Sums of gradients over all shards: to the same bits on any number of ranks, or in buckets while others are filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from snncell.distributed.ranks import BUCKET, Array, Ranks
from snncell.dtype import computed


class Layout(NamedTuple):
    """Arrays as vectors, one of each dtype that they are computed in."""

    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> Layout:
        """The layout of arrays; of float16 and bfloat16 sums are float32, in which they do not overflow."""
        return cls([tuple(x.shape) for x in arrays], [np.dtype(computed(np.dtype(x.dtype))) for x in arrays])

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


Vectors = dict[int, dict[Any, Array]]  # by shard, and by dtype


def summed(ranks: Ranks, layout: Layout, own: Vectors) -> list[Array]:
    """The sums over all shards of arrays that are given as vectors, which are added to."""
    like = layout.empty()
    return layout.arrays(
        {dtype: ranks.summed({s: one[dtype] for s, one in own.items()}, like[dtype]) for dtype in like}
    )


class Sums(Protocol):
    """Sums of arrays over shards, and over the batches of a step: `add` each, `begin`, and `end`, which gives them."""

    def add(self, shard: int, count: int, arrays: list[Array]) -> None:
        """Add arrays, times a number."""

    def begin(self) -> None:
        """Begin to exchange them, of which nothing is added any more."""

    def end(self) -> list[Array]:
        """The sums; afterwards there is nothing to be added to."""


class InOrder:
    """Sums in the order of the shards: see `Ranks.summed`."""

    def __init__(self, ranks: Ranks, layout: Layout) -> None:
        self.ranks, self.layout = ranks, layout
        self.totals: Vectors = {}

    def add(self, shard: int, count: int, arrays: list[Array]) -> None:
        """Add arrays, times a number."""
        vectors = self.layout.vectors(arrays, float(count))
        for dtype, total in self.totals.setdefault(shard, {}).items():
            total += vectors.pop(dtype)
        self.totals[shard] |= vectors

    def begin(self) -> None:
        """Nothing: what comes first in the order is not what is there first."""

    def end(self) -> list[Array]:
        """The sums."""
        sums, self.totals = summed(self.ranks, self.layout, self.totals), {}
        return sums


class InBuckets:
    """Sums by MPI, in whatever order: a bucket is on its way while the next one is filled.

    MPI goes on with what is on its way whenever it is asked something, as it is after each array.
    """

    def __init__(self, ranks: Ranks, layout: Layout) -> None:
        self.ranks, self.layout = ranks, layout
        self.vectors = layout.empty()
        self.last: tuple[int, list[Array]] | None = None  # arrays that are not in the vectors yet
        self.requests: list[Any] = []

    def add(self, shard: int, count: int, arrays: list[Array]) -> None:
        """Add arrays, times a number."""
        self._fill(dict.fromkeys(self.vectors))
        self.last = count, arrays

    def begin(self) -> None:
        """Send all that was added; what came last is added meanwhile."""
        self._fill(dict.fromkeys(self.vectors, 0))

    def _fill(self, sent: dict[Any, int | None]) -> None:
        """Add what came last to the vectors, sending each bucket that is full; or, where that is None, none."""
        count, arrays = self.last or (0, [])
        self.last = None
        places = self.layout.arrays(self.vectors)
        ends = dict.fromkeys(self.vectors, 0)
        for number, (place, dtype) in enumerate(zip(places, self.layout.dtypes, strict=True)):
            if arrays:
                place += arrays[number] * dtype.type(count)
            ends[dtype] += place.size
            self._send(dtype, sent, ends[dtype])

    def _send(self, dtype: Any, sent: dict[Any, int | None], end: int) -> None:
        """Send the buckets that are full, of a vector that is filled up to there."""
        begin = sent[dtype]
        if begin is None:
            return
        vector, width = self.vectors[dtype], BUCKET // dtype.itemsize
        while begin < end and (begin + width <= end or end == vector.size):
            bucket = vector[begin : begin + width]
            self.requests.append(self.ranks.comm.Iallreduce(self.ranks.mpi.IN_PLACE, bucket, self.ranks.mpi.SUM))
            begin = min(begin + width, end)
        sent[dtype] = begin
        if self.requests:
            self.requests[0].Test()

    def end(self) -> list[Array]:
        """The sums."""
        self.ranks.wait(self.requests)
        sums, self.requests, self.vectors = self.layout.arrays(self.vectors), [], self.layout.empty()
        return sums


def sums_of(ranks: Ranks, layout: Layout) -> Sums:
    """The sums of the kind that a job was joined for."""
    return InBuckets(ranks, layout) if ranks.fast else InOrder(ranks, layout)
