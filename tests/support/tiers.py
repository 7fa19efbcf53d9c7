"""Selection of the test cases that the default run includes; the others are marked slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

GOLDEN = (5**0.5 - 1) / 2


def chosen(cases: Sequence[Mapping[str, Any]], count: int) -> set[int]:
    """Select the indices of `count` cases so that all values of each parameter occur about equally often.

    The function selects one case after the other, always one with the rarest values so far. From a product of
    parameters it therefore selects the diagonal first, then the next one. Ties go to the rarest pairs of values.
    Further ties, such as all rows of a single table, go to the case that is farthest from those selected.
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
    """A key that is equal for equal values of a parameter; the memory address if the value is unhashable."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
