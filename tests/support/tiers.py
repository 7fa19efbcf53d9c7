"""Which cases of a product of parameters the default run takes; the others are marked slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

GOLDEN = (5**0.5 - 1) / 2


def chosen(cases: Sequence[Mapping[str, Any]], count: int) -> set[int]:
    """The numbers of `count` of these cases, in which each value of each parameter comes up as evenly as can be.

    One case after the other is taken whose values have come up least often, so that a product gives its diagonal first,
    then the next one. Of equals that whose pairs of values have come up least often, and of those, as all rows of one
    table are, one that lies far from what was taken.
    """
    values = [[(name, key(value)) for name, value in case.items()] for case in cases]
    pairs = [list(combinations(case, 2)) for case in values]
    of_each = Counter(name for name, _ in {value for case in values for value in case})
    order = sorted(range(len(cases)), key=lambda number: number * GOLDEN % 1.0)
    seen: Counter[Hashable] = Counter()

    def often(number: int) -> tuple[int, int]:
        return sum(seen[value] * of_each[value[0]] for value in values[number]), sum(seen[p] for p in pairs[number])

    for _ in range(min(count, len(cases))):
        best = min(order, key=often)
        order.remove(best)
        seen.update(values[best])
        seen.update(pairs[best])
    return set(range(len(cases))).difference(order)


def key(value: Any) -> Hashable:
    """The same for the same value of a parameter: of what has no hash, its place in memory."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
