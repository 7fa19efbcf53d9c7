"""Kernels on another number of threads, within a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from snncell.kernels.numba import policy


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Run kernels on this number of threads; the test is skipped if the machine has fewer."""
    before = policy.number_of_threads()
    policy.set_number_of_threads(number)
    try:
        if policy.number_of_threads() != number:
            pytest.skip("this machine has one core")
        yield
    finally:
        policy.set_number_of_threads(before)
