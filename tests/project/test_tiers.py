"""Test tiers: selection of the cases that run by default; no file is skipped entirely."""

from __future__ import annotations

import re
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest
from tiers import chosen

TESTS = Path(__file__).parents[1]
CASES = [dict(zip("abc", case, strict=True)) for case in product("pqrstu", range(4), (True, False))]


@pytest.mark.parametrize("count", [6, 12, 24])
def test_each_value_of_each_parameter_is_selected(count: int) -> None:
    found = [CASES[number] for number in chosen(CASES, count)]
    assert len(found) == count
    for name, values in (("a", 6), ("b", 4), ("c", 2)):
        times = [sum(case[name] == value for case in found) for value in {case[name] for case in CASES}]
        assert len(times) == values and max(times) - min(times) <= 1, name


def test_values_are_selected_in_different_combinations() -> None:
    found = [CASES[number] for number in chosen(CASES, 24)]
    for one, other in combinations("abc", 2):
        pairs = {(case[one], case[other]) for case in found}
        assert len(pairs) >= 0.75 * len({(case[one], case[other]) for case in CASES}), (one, other)


def test_rows_from_all_parts_of_a_table_are_selected() -> None:
    found = sorted(chosen([{"row": object()} for _ in range(100)], 10))
    assert len(found) == 10 and found[0] < 10 and found[-1] >= 85
    assert max(b - a for a, b in pairwise(found)) < 20


def test_unhashable_values_and_too_large_samples_are_accepted() -> None:
    rows = [{"x": [n]} for n in range(3)]
    assert chosen(rows, 2) < {0, 1, 2}
    assert chosen(rows, 9) == {0, 1, 2}


def test_no_file_is_deselected_by_default() -> None:
    """Check the marks above each test."""
    heads = re.compile(r"((?:^@.*\n(?:[ )\]}].*\n)*)*)^def test_", re.M)
    marks = {path.name: heads.findall(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py")}
    assert len(marks) > 100 and any("mark.slow" in mark for mark in marks["test_threads.py"])
    assert [name for name, found in marks.items() if all("mark.slow" in mark for mark in found)] == []
