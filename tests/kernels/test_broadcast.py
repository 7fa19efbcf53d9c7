"""`fill_broadcast`, compiled and as Python, lays out the elements that NumPy's `broadcast_to` gives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.kernels.loops import SLACK
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import function_of

SOURCE = """from snncell.kernels.intrinsics.broadcast import fill_broadcast
from snncell.kernels.intrinsics.elements import tail


def tried(start, stop, first, count, outer, times, inner, each, x, out):
    fill_broadcast(tail(out, 0), tail(x, 0), first, count, outer, times, inner, each)
"""
DTYPES = [dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64]
LENGTHS = list(itertools.product((1, 3, 20), (1, 4, 33), (1, 2, 5, 40), (1, 2, 3, 17, 70)))
REPEATED = 3  # the whole is repeated at least so often


def expected(x: Any, first: int, count: int, times: int, inner: int, each: int) -> Any:
    rows = x.reshape(-1, 1, inner, 1)
    whole = np.broadcast_to(rows, (len(rows), times, inner, each)).reshape(-1)
    return np.resize(whole, first + count)[first:]


def cases(outer: int, times: int, inner: int, each: int) -> list[tuple[int, int]]:
    """First elements and counts: the whole, ends, one element, and random parts."""
    size = outer * times * inner * each
    rng = np.random.default_rng(size)
    firsts = rng.integers(0, REPEATED * size, 4)
    return [(0, size), (0, 1), (size - 1, 2), (0, 0), *((int(first), int(rng.integers(1, 300))) for first in firsts)]


def check(function: Any, dtype: Any, lengths: tuple[int, ...]) -> None:
    outer, times, inner, each = lengths
    x = np.random.default_rng(0).integers(0, 100, outer * inner).astype(dtype)
    for first, count in cases(*lengths):
        out = np.zeros(count + SLACK, dtype)
        function(first, count, *lengths, x, out)
        np.testing.assert_array_equal(out[:count], expected(x, first, count, times, inner, each), str((first, count)))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_python_equals_numpy(lengths: tuple[int, ...]) -> None:
    plain = function_of(Path("tried.py"), SOURCE, "tried")
    check(lambda *arguments: plain(0, 1, *arguments), np.float32, lengths)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_equals_numpy(dtype: Any) -> None:
    kernel = build("tried", SOURCE, (*[dtypes.int64] * 6, (dtype, 1, False), (dtype, 1, True)))
    for lengths in LENGTHS:
        check(lambda *arguments: kernel(1, 0, *arguments), dtype.dtype, lengths)
