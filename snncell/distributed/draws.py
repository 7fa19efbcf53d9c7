"""Random numbers of shards, which do not depend on the rank that computes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from snncell.ops.seeds import go_on_from, present_key

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
