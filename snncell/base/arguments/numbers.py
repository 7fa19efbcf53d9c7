"""Checks of numbers: counts, positive numbers, and numbers in an interval."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError


def check_count(value: Any, who: str, name: str) -> int:
    """A count of channels or features."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{who}: {name} is an integer of at least 1, not {value!r}.")
    return value


def check_positive(value: Any, who: str, name: str) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
        raise ArgumentError(f"{who}: {name} is a number above 0, not {value!r}.")
    return float(value)


def check_interval(value: Any, low: float, high: float, who: str, name: str) -> float:
    """A number in [low, high)."""
    value = value.item() if isinstance(value, np.number) else value
    largest = sys.float_info.max  # of an int beyond it there is no float
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high
    if not fits or abs(value) > largest:
        raise ArgumentError(f"{who}: {name} is a number in [{low}, {high}), not {show(value)}.")
    return float(value)
