"""Weights of the sum to which both libraries reduce the results of a program."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

LEARNING_RATE = 0.125


@functools.cache
def weights_of(shape: tuple[int, ...]) -> Any:
    """Return numbers without a pattern, so that errors do not cancel."""
    size = int(np.prod(shape))
    return np.asarray(np.cos(np.arange(1.0, size + 1.0) * 1.7).reshape(shape) + 0.3)
