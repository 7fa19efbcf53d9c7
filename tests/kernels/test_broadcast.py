"""`fill_broadcast`, compiled and as Python, lays out the elements that NumPy's `broadcast_to` gives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import dtype as dtypes
from snncell.kernels.intrinsics.broadcast import block_sum
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


SUM = SOURCE.replace("fill_broadcast", "sum_broadcast").replace("tail(out, 0), tail(x, 0)", "tail(x, 0), tail(out, 0)")


def check_sum(function: Any, dtype: Any, lengths: tuple[int, ...]) -> None:
    """Whole numbers have the same sums in any order."""
    outer, times, inner, each = lengths
    for first, count in cases(*lengths):
        terms = np.random.default_rng(count).integers(-50, 50, count).astype(dtype)
        period = outer * times * inner * each
        places = expected(np.arange(outer * inner), first % period, count, times, inner, each)
        found, wanted = np.ones(outer * inner), np.ones(outer * inner)
        function(first % period, count, *lengths, found, terms)
        np.add.at(wanted, places, terms)
        np.testing.assert_array_equal(found, wanted, str((first, count)))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_sums_in_python_equal_numpy(lengths: tuple[int, ...]) -> None:
    plain = function_of(Path("tried.py"), SUM, "tried")
    check_sum(lambda *arguments: plain(0, 1, *arguments), np.float32, lengths)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_compiled_sums_equal_numpy(dtype: Any) -> None:
    kernel = build("tried", SUM, (*[dtypes.int64] * 6, (dtypes.float64, 1, True), (dtype, 1, False)))
    for lengths in LENGTHS:
        check_sum(lambda *arguments: kernel(1, 0, *arguments), dtype.dtype, lengths)


def test_infinite_sums_stay_infinite() -> None:
    plain, found = function_of(Path("tried.py"), SUM, "tried"), np.zeros(2)
    terms = np.ones(16)
    terms[[1, 6]] = np.inf, -np.inf
    plain(0, 1, 0, 16, 1, 2, 2, 4, found, terms)  # each result belongs to two runs of four elements
    np.testing.assert_array_equal(found, [np.inf, -np.inf])


SHAPES = [(3, 4, 5, 2), (1, 7, 1, 3), (2, 3, 3, 3, 2), (40,), (6, 1), (), (0, 3), (2, 0, 4)]
SUMS = [
    (shape, axes)
    for shape in SHAPES
    for n in range(len(shape) + 1)
    for axes in itertools.combinations(range(len(shape)), n)
]


@pytest.mark.parametrize(("shape", "axes"), SUMS, ids=str)
def test_sums_by_blocks_equal_numpy(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.float64)
    own, plain = block_sum(shape, axes), function_of(Path("tried.py"), SUM, "tried")
    for block in (1, 5, 8, 16, 100):
        for rows in (own.rows(block), own.outer):
            parts = np.zeros((-(-x.size // block), rows * own.inner))
            for n, row in enumerate(parts):
                count = min(block, x.size - n * block)
                terms = x.reshape(-1)[n * block :][:count]
                plain(0, 1, n * block, count, rows, own.times, own.inner, own.each, row, terms)
            np.testing.assert_array_equal(own.total(parts, rows, block), x.sum(axes, keepdims=True))
