"""Products of sums of waves at many points, in one kernel whose units are blocks of points."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row, strip, tail
from snncell.kernels.numba.build import build_function


def multiply_waves_kernel(start: Any, stop: Any, z: Any, waves: Any, f: Any) -> None:
    """f[u, n] = prod_d sum_k a cos(2 pi (b z[d, n] + c)), with a, b, c of (u, d, k) in a row (3 k) of `waves`.

    The cosine is a polynomial: it is right to 1e-13.
    """
    (dim, samples), harmonics = z.shape, waves.shape[1] // 3
    blocks = (samples + 511) // BLOCK  # of BLOCK points, as `data/kernels/waves.py` has it
    for unit in range(start, stop):
        u, low = unit // blocks, unit % blocks * BLOCK
        count = least(samples - low, BLOCK)
        out, sums = tail(row(f, u), low), strip(BLOCK, z)
        for n in range(count):
            out[n] = 1.0
        for d in range(dim):
            at, coefficients = tail(row(z, d), low), row(waves, u * dim + d)
            for n in range(count):
                sums[n] = 0.0
            for k in range(harmonics):
                a, b, c = coefficients[3 * k], coefficients[3 * k + 1], coefficients[3 * k + 2]
                for n in range(count):
                    x = b * at[n] + c
                    # Adding 1.5 * 2**52 rounds to an integer. cos(2 pi x) = sin(2 pi s) with |s| <= 1 / 4, where nine
                    # terms of a Taylor series are enough.
                    s = 0.25 - abs(x - ((x + 6755399441055744.0) - 6755399441055744.0))
                    q = s * s
                    sums[n] += a * s * (
                        6.283185307179586 + q * (-41.341702240399755 + q * (81.60524927607504 + q * (-76.70585975306136
                        + q * (42.05869394489765 + q * (-15.094642576822984 + q * (3.8199525848482803
                        + q * (-0.7181223017785001 + q * 0.10422916220813978)))))))
                    )  # fmt: skip
            for n in range(count):
                out[n] *= sums[n]


BLOCK = 512  # points that are a unit of work
PARALLEL_SIZE = 1 << 16  # waves times points, from which on threads are worth it
ACCURACY = 1e-13  # of a cosine in the kernel, beside what rounding its argument costs


def multiply_waves(z: Any, coefficients: Any) -> Any:
    """f (units, N) at the points z (dim, N), of coefficients (units, dim, K, 3): see `data/kernels/waves.py`."""
    units, dim, harmonics, _ = coefficients.shape
    f = np.empty((units, z.shape[1]))
    parts = units * -(-z.shape[1] // BLOCK)
    grain = int(f.size * dim * harmonics >= PARALLEL_SIZE)
    _kernel()(parts, grain, np.ascontiguousarray(z), coefficients.reshape(units * dim, 3 * harmonics), f)
    return f


@functools.cache
def _kernel() -> Any:
    rows = (dtypes.float64, 2, False)
    return build_function(multiply_waves_kernel, (rows, rows, (dtypes.float64, 2, True)))
