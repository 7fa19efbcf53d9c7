"""Random test cases: the number of seeds, and the decorator for tests that take a seed.

Each test has a small number of cases by default. `SNNCELL_DRAWS=2000 pytest -m random` runs 2000 of each. The case of a
seed is the same in every run, so a failure can be repeated by its seed.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest


def seeds(count: int) -> range:
    """Return the seeds 0, 1, ... of a test: `count` of them, or `SNNCELL_DRAWS` of them where that is set."""
    return range(int(os.environ.get("SNNCELL_DRAWS", count)))


def random_cases(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test once for each seed: `@random_cases(40)` on `def test_sums(seed)`."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        return pytest.mark.random(pytest.mark.parametrize("seed", seeds(count))(test))

    return decorate
