"""Shards of a batch: cutting it, the order in which their results are added, and their random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell.errors import ArgumentError
from snncell.ops.random import go_on_from, present_key
from snncell.tape.event_lists import EventLists
from snncell.tape.structure import flatten, unflatten
from snncell.tape.tensor import Tensor

Node = tuple[int, int]  # the shards from one number up to another one, without that


# --- cutting ----------------------------------------------------------------------------------------------------------


def shard_slices(samples: int, shards: int) -> list[slice]:
    """The samples of each shard, as even as can be; of few samples the first shards have two or three, others none.

    None has a single one unless the batch has: of one sample a batch normalisation has no variance.

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
    """Cuts batches (inputs, ..., target) by samples.

    The target, an array, has an entry for each sample. Of inputs that is the first axis, (B, ...), or behind time the
    second one, (T, B, ...); numbers are the same for all. Where both are as long, an input of two axes is (B, ...), and
    others are as in the batches before.
    """

    def __init__(self) -> None:
        self.axes: dict[int, int] = {}  # of inputs that left no doubt

    def pieces(self, batch: tuple[Any, ...], cuts: Iterable[slice]) -> Iterator[tuple[Any, ...]]:
        """Parts of a batch.

        Raises:
            ArgumentError: for inputs that no axis of samples is found of.
        """
        samples = len(batch[-1])
        refuse_lists(batch)
        leaves, structure = flatten(batch[:-1])
        axes = [self._axis(number, leaf, samples) for number, leaf in enumerate(leaves)]
        for cut in cuts:
            chosen = [_cut(leaf, axis, cut) for leaf, axis in zip(leaves, axes, strict=True)]
            yield (*unflatten(structure, chosen), batch[-1][cut])

    def _axis(self, number: int, x: Tensor, samples: int) -> int | None:
        """The axis of the samples, or None of a number."""
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
                f"(T, B, ...), since both axes have that length. Give train.Batches(..., time_first=True or False) or "
                f"a data.Loader, or another batch size."
            )
        else:
            raise ArgumentError(
                f"distributed: an input of shape {x.shape} has no axis for the {samples} samples of its target; inputs "
                f"are (B, ...) or (T, B, ...)."
            )
        return found[0]


def refuse_lists(tree: Any) -> None:
    """Raise an ArgumentError for EventLists, which have no axis to cut."""
    if isinstance(tree, EventLists):
        raise ArgumentError(
            "distributed: a batch of EventLists is not cut into shards. Give arrays (events.to_dense()), or a "
            "data.Loader, which makes the shards one by one."
        )
    if isinstance(tree, (tuple, list)):
        for item in tree:
            refuse_lists(item)
    if isinstance(tree, dict):
        refuse_lists(tuple(tree.values()))


def _cut(x: Tensor, axis: int | None, cut: slice) -> Tensor:
    return x if axis is None else x[cut] if axis == 0 else x[:, cut]


# --- the order of additions -------------------------------------------------------------------------------------------


def rank_nodes(shards: int, ranks: int) -> list[list[Node]]:
    """For each rank the largest nodes of the tree that lie within its shards.

    The sum of all shards is that of the first half and that of the second, and so on down to single ones: what a rank
    adds by itself is part of the same sum on any number of ranks.

    >>> from snncell.distributed.sharding import rank_nodes
    >>> rank_nodes(4, 2), rank_nodes(4, 3)
    ([[(0, 2)], [(2, 4)]], [[(0, 2)], [(2, 3)], [(3, 4)]])
    """
    owner = [shard * ranks // shards for shard in range(shards)]
    found: list[list[Node]] = [[] for _ in range(ranks)]

    def within(low: int, high: int) -> None:
        if owner[low] == owner[high - 1]:
            found[owner[low]].append((low, high))
            return
        middle = (low + high) // 2
        within(low, middle)
        within(middle, high)

    within(0, shards)
    return found


def add_nodes(node: Node, known: dict[Node, Any]) -> Any:
    """The sum of a node, of arrays that are known of some below; None where there is nothing to add.

    Arrays are added in place, so they belong to nobody else afterwards.
    """
    if node in known:
        return known[node]
    low, high = node
    if high - low == 1:
        return None
    middle = (low + high) // 2
    first, second = add_nodes((low, middle), known), add_nodes((middle, high), known)
    if first is None or second is None:
        return second if first is None else first
    first += second
    return first


# --- random numbers, which do not depend on the rank that computes a shard --------------------------------------------

Key = tuple[int, int]  # seed and number of the next draw


@contextmanager
def aside() -> Iterator[Key]:
    """A context in which shards draw; behind it all ranks go on with the same number, whatever shards they had."""
    seed, drawn = (int(number) for number in present_key().asnumpy())
    try:
        yield seed, drawn
    finally:
        go_on_from(np.array([seed, drawn + 1]))


def draw_for_shard(key: Key, shard: int) -> None:
    """Draw from the sequence that belongs to a shard, at this place of the sequence of all."""
    seed = np.random.SeedSequence((*key, shard)).generate_state(1, np.uint64)[0]
    go_on_from(np.array([int(seed) >> 2, 0]))
