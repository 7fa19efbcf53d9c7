"""Selection of the test cases that the default run includes; the others are marked slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

GOLDEN = (5**0.5 - 1) / 2
MANY = 1 << 32  # more than all pairs of a test


def chosen(cases: Sequence[Mapping[str, Any]], count: int) -> set[int]:
    """Select the indices of `count` cases so that all values of each parameter occur about equally often.

    The function selects one case after the other, always one with the rarest values so far. From a product of
    parameters it therefore selects the diagonal first, then the next one. Ties go to the rarest pairs of values.
    Further ties, such as all rows of a single table, go to the case that is farthest from those selected.
    """
    values = [[(name, key(value)) for name, value in case.items()] for case in cases]
    of_each = Counter(name for name, _ in {value for case in values for value in case})
    sharing: dict[Hashable, list[int]] = defaultdict(list)  # the cases with a value, or with a pair of values
    for number, case in enumerate(values):
        for part in (*case, *combinations(case, 2)):
            sharing[part].append(number)
    order = sorted(range(len(cases)), key=lambda number: number * GOLDEN % 1.0)
    often = [0] * len(cases)  # how often the values of a case have been selected; pairs decide between equal cases
    for _ in range(min(count, len(cases))):
        best = min(order, key=often.__getitem__)
        order.remove(best)
        for value in values[best]:
            for number in sharing[value]:
                often[number] += of_each[value[0]] * MANY
        for pair in combinations(values[best], 2):
            for number in sharing[pair]:
                often[number] += 1
    return set(range(len(cases))).difference(order)


def key(value: Any) -> Hashable:
    """A key that is equal for equal values of a parameter; the memory address if the value is unhashable."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value
