"""Random test cases: the number of seeds, and a decorator for tests that take a seed.

Each test runs a few cases by default. `SNNCELL_DRAWS=2000 pytest -m random` runs 2000 of each. A seed gives the same
case in every run, so you can repeat a failure by its seed.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest


def seeds(count: int) -> range:
    """Return the seeds 0, 1, ... of a test: `count` seeds, or `SNNCELL_DRAWS` if that variable is set."""
    return range(int(os.environ.get("SNNCELL_DRAWS", count)))


def random_cases(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test once for each seed: `@random_cases(40)` on `def test_sums(seed)`."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        return pytest.mark.random(pytest.mark.parametrize("seed", seeds(count))(test))

    return decorate
