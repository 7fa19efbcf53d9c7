"""Products of a few rows inside loops equal NumPy for every shape and density, for any split of the rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.kernels.numba.build import build

SOURCE = """
import numpy as np

from snncell.kernels.intrinsics import rows
from snncell.kernels.intrinsics.builtins import heap


def product(start, stop, count, inner, width, x, y, out):
    places = heap(inner, np.int32)
    values = heap(inner, np.{dtype})
    rows.multiply_rows(x, y, out, count, inner, width, places, values)
"""


def product(x: Any, y: Any) -> Any:
    """Compute `x @ y` into outputs that are filled with NaN first."""
    dtype = dtypes.BY_NUMPY[x.dtype]
    kinds = (*[dtypes.int64] * 3, (dtype, 1, False), (dtype, 1, False), (dtype, 1, True))
    kernel = build("product", SOURCE.format(dtype=x.dtype), kinds)
    out = np.full((len(x), y.shape[1]), np.nan, x.dtype)
    kernel(1, 0, *x.shape, y.shape[1], *(array.reshape(-1) for array in (x, y, out)))
    return out


@pytest.mark.sampled(53)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    ("count", "inner", "width"),
    [(1, 5, 3), (4, 1, 1), (5, 7, 300), (9, 10, 513), (3, 130, 96), (6, 64, 17), (4, 0, 3), (5, 0, 70), (8, 33, 131)],
)
def test_products_equal_numpy(count: int, inner: int, width: int, density: float, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(count, inner)) * (rng.random((count, inner)) < density)).astype(dtype)
    y = rng.normal(size=(inner, width)).astype(dtype)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    bound = 4 * max(4, inner) * np.finfo(dtype).eps * (np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64))
    assert (np.abs(product(x, y) - exact) <= bound).all()


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_block_size_of_rows_does_not_change_bits(density: float) -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(12, 9)) * (rng.random((12, 9)) < density)).astype(np.float32)
    y = rng.normal(size=(9, 20)).astype(np.float32)
    whole = product(x, y)
    for block in (4, 8):
        parts = [product(np.ascontiguousarray(x[n : n + block]), y) for n in range(0, 12, block)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_zero_times_infinity_is_skipped_for_events_and_nan_propagates() -> None:
    x = np.zeros((1, 8), np.float32)
    x[0, 2], x[0, 5] = np.nan, 0.0
    y = np.ones((8, 2), np.float32)
    y[5] = np.inf
    assert np.isnan(product(x, y)).all()
    x[0, 2] = 3.0
    np.testing.assert_array_equal(product(x, y), [[3.0, 3.0]])


LINEAR_ALGEBRA = """
import sys
import numpy as np
import numba
import snncell
from snncell import ops
snncell.jit(lambda x: ops.exp(x) + 1.0)(ops.ones(3))
print("scipy.linalg" in sys.modules)
print(numba.njit(lambda a, b: np.dot(a, b))(np.eye(2), np.full((2, 2), 3.0))[0, 0])
"""


@pytest.mark.compiled
def test_kernel_needs_no_linear_algebra_library_and_numba_keeps_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", LINEAR_ALGEBRA], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "3.0"]
