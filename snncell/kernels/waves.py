"""Products of sums of waves at many points, in one kernel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.build import build
from snncell.kernels.code import source_of
from snncell.kernels.cpu import waves

BLOCK = 512  # points that are a unit of work
PARALLEL_SIZE = 1 << 16  # waves times points, from which on threads are worth it
ACCURACY = 1e-13  # of a cosine in the kernel, beside what rounding its argument costs


def multiply_waves(z: Any, coefficients: Any) -> Any:
    """f (units, N) at the points z (dim, N), of coefficients (units, dim, K, 3): see `kernels/cpu/waves.py`."""
    units, dim, harmonics, _ = coefficients.shape
    f = np.empty((units, z.shape[1]))
    parts = units * -(-z.shape[1] // BLOCK)
    grain = int(f.size * dim * harmonics >= PARALLEL_SIZE)
    _kernel()(parts, grain, np.ascontiguousarray(z), coefficients.reshape(units * dim, 3 * harmonics), f)
    return f


@functools.cache
def _kernel() -> Any:
    rows = (dtypes.float64, 2, False)
    return build("multiply_waves", source_of(waves.multiply_waves), (rows, rows, (dtypes.float64, 2, True)))
