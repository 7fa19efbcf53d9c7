"""The order of loops: next to each other where it is free, so that they become one launch.

a = sum(x); y = product(x, w); b = a * 2   ->   y = product(x, w); a = sum(x); b = a * 2
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from snncell.compiler.schedule.fuse import FusionGroup

# A loop that moves more does not wait for others: what it takes would stay in memory, and leave the cache.
WAITING_BYTES = 1 << 20


def side_by_side(groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Let small loops wait for the next loop, past the calls that take nothing from them. Loops keep their order."""
    placed: list[FusionGroup] = []
    waiting: list[FusionGroup] = []
    for group in groups:
        if group.shape is not None:
            waiting.append(group)
            continue
        reads = set(group.reads)
        stays = [n for n, loop in enumerate(waiting, 1) if _is_large(loop) or not reads.isdisjoint(loop.writes)]
        count = stays[-1] if stays else 0
        placed += [*waiting[:count], group]
        waiting = waiting[count:]
    return placed + waiting


def _is_large(loop: FusionGroup) -> bool:
    moved: int = sum(math.prod(value.shape) * value.dtype.itemsize for value in (*loop.reads, *loop.writes))
    return moved > WAITING_BYTES
