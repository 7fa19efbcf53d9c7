"""Matrix products: NumPy's values on every path, the choice of the path, and equal bits on all threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, grad, jit, nn, ops, testing
from snncell.kernels.numba import build
from snncell.kernels.products import blas, matmul
from snncell.tape.state import TRACING

COMPILED = os.environ.get("NUMBA_DISABLE_JIT") != "1"


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small products with a density below a half count as worth a search for events."""
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 0.5)


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the path of each product, except shape-only calls of a trace."""
    found: list[str] = []
    by_events, dense = matmul._add_up, blas.multiply_into

    def note(name: str) -> None:
        if TRACING.trace is None:
            found.append(name)

    def add_up(*arguments: Any) -> None:
        note("columns" if arguments[3] else "rows")
        by_events(*arguments)

    monkeypatch.setattr(matmul, "_add_up", add_up)
    monkeypatch.setattr(blas, "multiply_into", lambda *arrays: note("blas") or dense(*arrays))
    return found


def events(rng: Any, shape: tuple[int, ...], density: float, dtype: Any, weighted: bool = False) -> Any:
    """A matrix of spikes, of weight 1 or any weight, with at least one event for a positive density."""
    made = (rng.random(shape) < density).astype(dtype)
    if density:
        made.flat[rng.integers(made.size)] = 1
    return made * rng.normal(size=shape).astype(dtype) if weighted else made


def close(found: Any, x: Any, y: Any) -> None:
    """Assert that `found` is `x @ y` to rounding, in any order of summation."""
    wide = np.float64 if found.dtype == np.float32 else np.longdouble
    exact = x.astype(wide) @ y.astype(wide)
    assert found.shape == exact.shape
    bound = max(4, x.shape[1]) * np.finfo(found.dtype).eps * (np.abs(x).astype(wide) @ np.abs(y).astype(wide))
    assert (np.abs(found - exact) <= bound).all()


# --- values -----------------------------------------------------------------------------------------------------------

SIZES = [
    (67, 131, 200),  # (m, k, n): remainders in every direction
    (33, 65, 131),
    (16, 64, 128),  # no remainders
    (5, 3, 16),
    (40, 7, 300),
    (1, 130, 17),  # one row
    (17, 1, 129),  # one column of events
]


@pytest.mark.sampled(36)
@pytest.mark.parametrize("weighted", [False, True], ids=["spikes", "weights"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("m, k, n", SIZES)  # noqa: PT006 (as they are written in the names of the tests)
def test_products_of_events_equal_numpy(
    small_too: None, monkeypatch: pytest.MonkeyPatch, m: int, k: int, n: int, density: float, dtype: Any, weighted: bool
) -> None:
    monkeypatch.setattr(matmul, "estimate_density", lambda x: 0.0)  # small matrices may exceed the density by chance
    rng = np.random.default_rng(m + k + n)
    x = events(rng, (m, k), density, dtype, weighted)
    y, d = rng.normal(size=(k, n)).astype(dtype), rng.normal(size=(m, n)).astype(dtype)
    close(matmul.matmul(x, y), x, y)
    close(matmul.matmul(x.T, d), x.T, d)
    for left, right in ((x, y), (x.T, d)):
        out = np.full((left.shape[0], n), np.nan, dtype)  # earlier content must not matter
        matmul.matmul_into(out, left, right)
        np.testing.assert_array_equal(out, matmul.matmul(left, right))


@pytest.mark.parametrize("count", range(10))
def test_rows_can_have_any_number_of_events(small_too: None, count: int) -> None:
    x = np.zeros((6, 100), np.float32)
    x[3, 7 : 7 + count] = 1.0 + np.arange(count)
    x[5, 99] = -2.0
    y = np.random.default_rng(0).normal(size=(100, 33)).astype(np.float32)
    found = matmul.matmul(x, y)
    close(found, x, y)
    assert not found[[0, 1, 2, 4]].any()  # rows without events give zeros
    d = np.random.default_rng(0).normal(size=(6, 33)).astype(np.float32)
    close(matmul.matmul(x.T, d), x.T, d)


@pytest.mark.parametrize("where", [0, 7, 8, 15, 16, 31, 100])
def test_event_at_any_position_is_used(small_too: None, where: int) -> None:
    x = np.zeros((18, 101), np.float64)
    x[[0, 15, 16, 17], where] = 3.0
    y, d = np.arange(101.0 * 20).reshape(101, 20), np.arange(18.0 * 20).reshape(18, 20)
    np.testing.assert_array_equal(matmul.matmul(x, y), x @ y)
    np.testing.assert_array_equal(matmul.matmul(x.T, d), x.T @ d)


def test_rows_can_have_more_events_than_a_byte_counts(small_too: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "estimate_density", lambda x: 0.0)
    x = np.zeros((3, 600), np.float32)
    x[1, :300] = 1.0
    y, d = np.ones((600, 16), np.float32), np.ones((3, 16), np.float32)
    np.testing.assert_array_equal(matmul.matmul(x, y), x @ y)
    np.testing.assert_array_equal(matmul.matmul(x.T, d), x.T @ d)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_products_of_events_equal_numpy(paths: list[str], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = events(rng, (1030, 259), 0.03, dtype, weighted=True)  # enough for all threads, in four strips of columns
    y, d = rng.normal(size=(259, 401)).astype(dtype), rng.normal(size=(1030, 401)).astype(dtype)
    close(matmul.matmul(x, y), x, y)
    close(matmul.matmul(x.T, d), x.T, d)
    assert paths == ["rows", "columns"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("transposed", ["no", "x", "y", "both"])
@pytest.mark.parametrize("turned", [False, True])
def test_partitioned_dense_products_equal_numpy(
    monkeypatch: pytest.MonkeyPatch, dtype: Any, transposed: str, turned: bool
) -> None:
    use_small_parts(monkeypatch, 1 << 12)
    rng = np.random.default_rng(0)
    x = np.asarray(rng.normal(size=(101, 37)).astype(dtype), order="F" if transposed in ("x", "both") else "C")
    y = np.asarray(rng.normal(size=(37, 45)).astype(dtype), order="F" if transposed in ("y", "both") else "C")
    cuts = parts_of(monkeypatch)
    found = matmul.matmul(x, y, turned=turned)
    assert found.flags.c_contiguous
    close(found.T if turned else found, x, y)
    assert cuts == [(2, 4, 1) if turned else (4, 2, 1)]


def use_small_parts(monkeypatch: pytest.MonkeyPatch, work: int = 1 << 10) -> None:
    monkeypatch.setattr(blas, "PART_WORK", (work, 2 * work))
    monkeypatch.setattr(blas, "LEAST_SIDE", 16)
    monkeypatch.setattr(blas, "LEAST_DEPTH", 32)


def parts_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """For each product, return the number of parts along rows, columns and the contracted axis.

    Each multiplication is in exactly one part.
    """
    found: list[tuple[int, int, int]] = []
    run = blas.WORKERS.run

    def noting(function: Any, cuts: Any) -> None:
        if isinstance(cuts[0], tuple):  # otherwise rows of the sum over parts
            rows, columns, depth = (sorted({(cut[at].start, cut[at].stop) for cut in cuts}) for at in (2, 3, 1))
            assert len(cuts) == len(set(map(str, cuts))) == len(rows) * len(columns) * len(depth)
            for ends in (rows, columns, depth):
                assert ends[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(ends))
            found.append((len(rows), len(columns), len(depth)))
        run(function, cuts)

    monkeypatch.setattr(blas.WORKERS, "run", noting)
    return found


def test_partition_of_a_product_depends_only_on_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    cuts = parts_of(monkeypatch)
    for m, n in ((15, 31), (33, 16), (16, 33), (100, 100), (5000, 20), (20, 5000)):
        close(matmul.matmul(np.ones((m, 40)), np.ones((40, n))), np.ones((m, 40)), np.ones((40, n)))
    # BLAS computes the first one whole
    assert cuts == [(2, 1, 1), (1, 2, 1), (4, 4, 1), (16, 1, 1), (1, 16, 1)]
    cuts.clear()
    for threads in (1, 2, 64):
        monkeypatch.setattr("snncell.kernels.numba.threads.number_of_threads", lambda threads=threads: threads)
        matmul.matmul(np.ones((1000, 40), np.float32), np.ones((40, 30), np.float32))
    assert cuts == [(16, 1, 1)] * 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_long_contracted_axis_is_cut_and_its_partial_sums_have_a_fixed_order(
    monkeypatch: pytest.MonkeyPatch, dtype: Any, turned: bool
) -> None:
    use_small_parts(monkeypatch)
    cuts = parts_of(monkeypatch)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(1003, n)).astype(dtype) for n in (17, 14))
    results = []
    for threads in (1, 2, 64):
        monkeypatch.setattr("snncell.kernels.numba.threads.number_of_threads", lambda threads=threads: threads)
        results.append(matmul.matmul(x.T, y, turned=turned))
    close(results[0].T if turned else results[0], x.T, y)
    np.testing.assert_array_equal(results, results[:1] * 3)
    monkeypatch.setattr(blas, "PARTIAL", 4.5 * 17 * 14 / ((17 + 14) * 1003))
    matmul.matmul(x.T, y)
    assert cuts == [(1, 1, 16)] * 3 + [(1, 1, 4)]


@pytest.mark.parametrize(
    ("left", "right"),
    [((9, 2, 3, 8), (8, 5)), ((1, 2, 3, 8), (9, 1, 8, 5)), ((2, 3, 8), (9, 2, 8, 5)), ((3, 8), (9, 8, 5))],
)
def test_batches_are_multiplied_in_parts(
    monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    use_small_parts(monkeypatch, 1 << 8)
    sizes: list[int] = []
    run = blas.WORKERS.run
    monkeypatch.setattr(blas.WORKERS, "run", lambda function, cuts: (sizes.append(len(cuts)), run(function, cuts)))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=left), rng.normal(size=right)
    np.testing.assert_allclose(matmul.matmul(x, y), x @ y, rtol=1e-13)
    out = np.empty_like(x @ y)
    matmul.matmul_into(out, x, y)
    np.testing.assert_allclose(out, x @ y, rtol=1e-13)
    assert sizes == [4 if left == (3, 8) else 8] * 2


def test_error_in_a_part_is_raised_and_the_next_product_works(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    monkeypatch.setattr("snncell.kernels.numba.threads.number_of_threads", lambda: 3)
    x, y = np.ones((200, 40), np.float32), np.ones((40, 30), np.float32)
    with pytest.raises(ValueError, match="matmul"):
        matmul.matmul_into(np.empty((200, 31), np.float32), x, y)
    with pytest.raises(ValueError, match="matmul"):
        matmul.matmul_into(np.empty((200, 30), np.float32), x, np.ones((41, 30), np.float32))
    np.testing.assert_array_equal(matmul.matmul(x, y), x @ y)


@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3,), (3, 2))],
)
def test_other_shapes_are_computed_by_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=left), rng.normal(size=right)
    np.testing.assert_array_equal(matmul.matmul(x, y), np.matmul(x, y))
    out = np.empty_like(np.matmul(x, y))
    matmul.matmul_into(out, x, y)
    np.testing.assert_array_equal(out, np.matmul(x, y))


# --- choice of the path -----------------------------------------------------------------------------------------------


def spikes(density: float, shape: tuple[int, int] = (256, 200), dtype: Any = np.float32) -> Any:
    """A matrix with the given fraction of ones, spread evenly, so that each sample of rows finds the same density."""
    m, k = shape
    row = (np.arange(k) % max(1, round(1 / density)) == 0) if density else np.zeros(k, bool)
    return np.tile(row, (m, 1)).astype(dtype)


W = np.ones((200, 64), np.float32)
D = np.ones((256, 64), np.float32)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_density_selects_the_path(paths: list[str], density: float) -> None:
    x, w, d = spikes(density, (1024, 200)), np.ones((200, 256), np.float32), np.ones((1024, 256), np.float32)
    forward, reverse = matmul.limit_of(x, w, False), matmul.limit_of(x.T, d, True)
    np.testing.assert_array_equal(matmul.matmul(x, w), x @ w)
    np.testing.assert_array_equal(matmul.matmul(x.T, d), x.T @ d)
    assert paths == ["rows" if density < forward else "blas", "columns" if density < reverse else "blas"]
    assert 0.2 <= reverse <= forward <= 0.6


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("shape", [(32, 64, 16, 16), (64, 32, 32, 32), (20, 2, 48, 48), (100, 8, 40, 30)])
def test_estimated_density_does_not_depend_on_the_place_of_spikes(shape: tuple[int, ...], axis: int) -> None:
    of_place = np.linspace(0, 0.5, shape[axis]).reshape([-1 if n == axis else 1 for n in range(4)])
    x = (np.random.default_rng(0).random(shape) < of_place).astype(np.float32)
    x[..., 0, :] = 0  # an empty border
    assert matmul.estimate_density(x) == pytest.approx(np.count_nonzero(x) / x.size, rel=0.08)
    assert matmul.estimate_density(x[0, 0, :2]) == np.count_nonzero(x[0, 0, :2]) / x[0, 0, :2].size


CASES: dict[str, tuple[Any, Any]] = {
    "few columns": (spikes(0.01, (1024, 200)), W[:, :1]),
    "little work": (spikes(0.01, (32, 200)), W),
    "every second column": (spikes(0.01, (256, 400))[:, ::2], W),
    "every second row": (spikes(0.01, (512, 200))[::2], W),
    "part of the columns": (spikes(0.01, (256, 400))[:, :200], W),
    "a broadcast row": (np.broadcast_to(spikes(0.01)[0], (256, 200)), W),
    "backwards": (spikes(0.01)[::-1], W),
    "the other operand": (D.T.copy(), spikes(0.01, (256, 200))),
    "integers": (spikes(0.01, dtype=np.int32), W.astype(np.int32)),
    "complex": (spikes(0.01, dtype=np.complex64), W.astype(np.complex64)),
}


@pytest.mark.parametrize("case", CASES)
def test_unsuitable_products_stay_with_blas(paths: list[str], case: str) -> None:
    x, y = CASES[case]
    np.testing.assert_array_equal(matmul.matmul(x, y), x @ y)
    assert paths == ["blas"]


@pytest.mark.parametrize("dtype", [snncell.float16, snncell.bfloat16], ids=str)
def test_storage_formats_are_multiplied_as_float32(paths: list[str], dtype: Any) -> None:
    x, y = spikes(0.01).astype(dtype), W.astype(dtype)
    found = matmul.matmul(x, y)
    assert found.dtype == dtype and paths == ["rows"]
    wide = matmul.matmul(x.astype(np.float32), y.astype(np.float32))
    assert found.tobytes() == wide.astype(dtype).tobytes()


@pytest.mark.parametrize("y", [W[:, ::-1], W.T.copy().T, np.broadcast_to(W[:1], W.shape)], ids=["back", "T", "row"])
def test_dense_operand_can_have_any_layout(paths: list[str], y: Any) -> None:
    x = spikes(0.01)
    np.testing.assert_array_equal(matmul.matmul(x, y), x @ y)
    assert paths == ["rows"]


def test_non_contiguous_result_stays_with_blas(paths: list[str]) -> None:
    out = np.zeros((256, 128), np.float32)[:, ::2]
    matmul.matmul_into(out, spikes(0.01), W)
    np.testing.assert_array_equal(out, spikes(0.01) @ W)
    assert paths == ["blas"]


def test_read_only_operands_are_accepted(paths: list[str]) -> None:
    x, w = spikes(0.01), W.copy()
    x.flags.writeable = w.flags.writeable = False
    np.testing.assert_array_equal(matmul.matmul(x, w), x @ w)
    np.testing.assert_array_equal(matmul.matmul(x.T, D), x.T @ D)
    assert paths == ["rows", "columns"]


def test_one_dense_first_row_does_not_select_the_path(paths: list[str]) -> None:
    x = spikes(0.0, (2048, 64))
    x[0] = 1.0
    np.testing.assert_array_equal(matmul.matmul(x, W[:64]), x @ W[:64])
    assert paths == ["rows"]


def test_one_empty_first_row_does_not_select_the_path(paths: list[str]) -> None:
    x = np.ones((32, 5000), np.float32)
    x[0] = 0.0  # for spikes over time, the first step is often silent
    matmul.matmul(x, np.ones((5000, 16), np.float32))
    assert paths == ["blas"]


# --- zeros, infinities and NaN ----------------------------------------------------------------------------------------


def test_zero_times_nan_is_skipped_and_events_times_nan_are_not(small_too: None) -> None:
    x = np.zeros((20, 50), np.float32)
    x[3, 4] = x[5, 6] = x[7, 8] = 1.0
    y = np.ones((50, 16), np.float32)
    y[4], y[6], y[40] = np.nan, np.inf, np.nan
    found = matmul.matmul(x, y)
    assert np.isnan(found[3]).all() and np.isposinf(found[5]).all() and (found[7] == 1.0).all()
    assert not np.delete(found, [3, 5, 7], 0).any()  # NumPy has NaN here
    d = np.ones((20, 16), np.float32)
    d[3], d[10] = np.nan, np.inf
    back = matmul.matmul(x.T, d)
    assert np.isnan(back[4]).all() and (back[[6, 8]] == 1.0).all()
    assert not np.delete(back, [4, 6, 8], 0).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e-45, -1e-45])
def test_every_nonzero_value_is_an_event(small_too: None, value: float) -> None:
    x = np.zeros((20, 50), np.float32)
    x[3, 4] = value
    y, d = np.full((50, 16), 2.0, np.float32), np.full((20, 16), 2.0, np.float32)
    np.testing.assert_array_equal(matmul.matmul(x, y)[3], np.full(16, np.float32(value) * np.float32(2)))
    np.testing.assert_array_equal(matmul.matmul(x.T, d)[4], np.full(16, np.float32(value) * np.float32(2)))


def test_minus_zero_is_not_an_event(small_too: None) -> None:
    x = np.full((20, 50), -0.0, np.float32)
    y = np.full((50, 16), np.nan, np.float32)
    assert not matmul.matmul(x, y).any()


def test_blas_path_propagates_nan_as_numpy(small_too: None, paths: list[str]) -> None:
    x, y = np.ones((20, 50), np.float32), np.ones((50, 16), np.float32)
    x[:, 3] = 0.0
    y[3] = np.nan
    assert np.isnan(matmul.matmul(x, y)).all()
    assert paths == ["blas"]


# --- in operations, gradients and jit ---------------------------------------------------------------------------------


def test_gradients_through_a_product_with_spikes_are_correct(paths: list[str]) -> None:
    rng = np.random.default_rng(0)
    x = Tensor(events(rng, (256, 128), 0.03, np.float64))
    w = Tensor(rng.normal(size=(128, 64)))
    testing.check_grads(lambda w: ops.matmul(x, w), w, order=2)
    assert {"rows", "columns"} <= set(paths)
    testing.check_grads(lambda x: ops.matmul(x, w), x)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_gradients_equal_those_of_the_dense_product(
    paths: list[str], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = Tensor(events(rng, (256, 128), 0.03, np.float32))
    w = Tensor(rng.normal(size=(128, 256)).astype(np.float32))

    def total(x: Any, w: Any) -> Any:
        y = ops.matmul(x, w)
        return (y * y).sum()

    gradient = jit(grad(total, (0, 1))) if compiled else grad(total, (0, 1))
    found = gradient(x, w)
    assert sorted(paths) == ["blas", "columns", "rows"]
    with monkeypatch.context() as patch:
        patch.setattr(matmul, "limit", lambda *sizes: 0.0)
        paths.clear()
        dense = gradient(x, w)
        assert paths == ["blas"] * 3
    for mine, theirs in zip(found, dense, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-4)


def test_batch_of_spikes_is_multiplied_as_one_matrix(paths: list[str]) -> None:
    x = spikes(0.01).reshape(4, 64, 200)
    found = ops.matmul(Tensor(x), Tensor(W))
    np.testing.assert_array_equal(found.asnumpy(), x @ W)
    assert paths == ["rows"]


def test_jitted_layer_on_spikes_equals_eager_mode(paths: list[str]) -> None:
    layer = nn.Dense(200, 64)
    x = Tensor(spikes(0.01))
    np.testing.assert_allclose(jit(layer)(x).asnumpy(), layer(x).asnumpy(), rtol=1e-5, atol=1e-6)
    assert paths == ["rows"] * 2


def test_products_inside_a_loop_over_time_use_events(small_too: None, paths: list[str]) -> None:
    rng = np.random.default_rng(0)
    w = Tensor(rng.normal(size=(40, 40)).astype(np.float32))
    x = Tensor((rng.normal(size=(6, 16, 40)) - 1.0).astype(np.float32))

    def step(c: Any, x: Any) -> Any:
        spike = ops.cast(ops.matmul(c, w) + x > 1.0 + c.min(), "float32")  # the minimum prevents a single kernel
        return spike, spike

    zeros = ops.zeros((16, 40))
    found = jit(lambda x: ops.scan(step, zeros, x)[1])(x)
    assert "rows" in paths  # written at the place chosen by the plan
    state = np.zeros((16, 40), np.float32)
    for t in range(6):
        state = (state @ w.asnumpy() + x.asnumpy()[t] > 1.0).astype(np.float32)
        np.testing.assert_array_equal(found.asnumpy()[t], state)
    assert 0 < found.asnumpy().mean() < 0.5


def test_two_threads_build_and_use_kernels_concurrently(small_too: None) -> None:
    build.kernel_for.cache_clear()
    x = spikes(0.05, (32, 40))
    y, d = np.ones((40, 16), np.float32), np.ones((32, 16), np.float32)
    found: list[bool] = []
    start = threading.Barrier(2)

    def work() -> None:
        start.wait(timeout=60)
        for _ in range(10):
            found.append(np.array_equal(matmul.matmul(x, y), x @ y))
            found.append(np.array_equal(matmul.matmul(x.T, d), x.T @ d))

    threads = [threading.Thread(target=work) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert found == [True] * 40


# --- threads ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import hashlib
import numpy as np
from snncell.kernels.products import blas, matmul as products
from snncell.tape.state import TRACING
from snncell.kernels.numba.policy import number_of_threads

runs = []
run = blas.WORKERS.run
blas.WORKERS.run = lambda function, parts: runs.append(len(parts)) or run(function, parts)

def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

rng = np.random.default_rng(0)
for dtype in (np.float32, np.float64):
    name = np.dtype(dtype).name
    x = ((rng.random((1030, 259)) < 0.03) * rng.normal(size=(1030, 259))).astype(dtype)
    y, d = rng.normal(size=(259, 401)).astype(dtype), rng.normal(size=(1030, 401)).astype(dtype)
    print(name + "-forward", digest(products.matmul(x, y)))
    print(name + "-reverse", digest(products.matmul(x.T, d)))
    a, b = rng.normal(size=(777, 530)).astype(dtype), rng.normal(size=(530, 410)).astype(dtype)
    assert not runs
    print(name + "-dense", digest(*(products.matmul(a, b) for _ in range(3))))
    print(name + "-transposed", digest(products.matmul(b.T, a.T), products.matmul(a.T, np.ascontiguousarray(a))))
    assert len(runs) == 5 and min(runs) > 1, runs
    runs.clear()
print("threads", number_of_threads())
"""


def digests(threads: int, **environment: str) -> dict[str, str]:
    """Return the results of the script with the given number of threads, as hashes. BLAS may use any number of
    threads.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={**os.environ, "NUMBA_NUM_THREADS": str(threads), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split() for line in done.stdout.splitlines())
    assert said.pop("threads") == str(threads)
    return said  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.compiled
def test_products_have_equal_bits_for_any_number_of_threads() -> None:
    alone = digests(1)
    assert len(alone) == 8
    assert digests(2) == alone
    assert digests(4) == alone
    assert digests(2, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1") == alone


# --- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.sampled(10)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True], ids=["spikes", "weights"])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"], ids="y {0[0]}, out {0[1]}".format)
@pytest.mark.parametrize(
    "sizes",
    [
        (2060, 2050, 18),  # two panels in each direction
        (17, 2060, 130),  # two strips and part of a third
        (2060, 17, 64),
        (300, 129, 1),
        (64, 64, 15),
        (1, 2049, 31),
        (2049, 1, 100),
        (70, 40, 300),
    ],
)
def test_operands_and_results_can_have_any_memory_order(
    monkeypatch: pytest.MonkeyPatch, paths: list[str], sizes: Any, orders: str, weighted: bool, dtype: Any
) -> None:
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 2.0)
    m, k, n = sizes
    rng = np.random.default_rng(m + k + n)
    x = events(rng, (m, k), rng.choice([0.002, 0.03, 0.4]), dtype, weighted)
    y, d = (np.asarray(rng.normal(size=shape), dtype, order=orders[0]) for shape in ((k, n), (m, n)))
    for left, right in ((x, y), (x.T, d)):
        out = np.full((len(left), n), np.nan, dtype, order=orders[1])
        matmul.matmul_into(out, left, right)
        close(out, left, right)
        turned = matmul.matmul(left, right, turned=True)
        assert turned.flags.c_contiguous
        np.testing.assert_array_equal(turned, out.T)  # each sum has one order
    # A single row has the layout of a single column.
    assert set(paths) == ({"rows", "columns"} if min(m, k) > 1 else {"rows"})


@pytest.mark.parametrize("density", [0.01, 1.0])
def test_result_of_another_shape_raises(density: float) -> None:
    for out in (
        np.empty((256, 65), np.float32),
        np.empty((255, 64), np.float32),
        np.empty((64, 256), np.float32).T[1:],
    ):
        with pytest.raises(ValueError, match="matmul"):
            matmul.matmul_into(out, spikes(density), W)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("density", [0.02, 1.0])
def test_gradient_of_a_layer_has_the_layout_of_its_weights(compiled: bool, density: float) -> None:
    rng = np.random.default_rng(0)
    layer = nn.Dense(120, 90, has_bias=False)
    x = Tensor(events(rng, (20, 16, 120), density, np.float32))
    scale = Tensor(rng.normal(size=(20, 16, 90)).astype(np.float32))
    gradient = grad(lambda x: (layer(x) * scale).sum(), None, layer.trainable_params())
    (found,) = (jit(gradient) if compiled else gradient)(x)
    assert found.shape == (90, 120) and found._data.flags.c_contiguous
    with testing.unfused():
        (expected,) = gradient(x)
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-4)


def test_second_order_gradients_through_a_transposed_matrix_are_correct(small_too: None, paths: list[str]) -> None:
    rng = np.random.default_rng(0)
    x = Tensor(events(rng, (12, 20), 0.2, np.float64))
    w = Tensor(rng.normal(size=(18, 20)))
    for function in (
        lambda w: ops.square(ops.matmul(x, w.T)).sum(),
        jit(lambda w: ops.square(ops.matmul(x, w.T)).sum()),
    ):
        testing.check_grads(function, w, order=2)
    testing.check_grads(lambda x: ops.square(ops.matmul(x, w.T)).sum(), x, order=2)
    assert {"rows", "columns"} <= set(paths)


def test_products_of_a_layer_do_not_copy_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Dense(200, 64)
    x = Tensor(spikes(0.01))
    step = jit(snncell.value_and_grad(lambda x: ops.square(layer(x)).sum(), None, layer.trainable_params()))
    step(x)
    monkeypatch.setattr(np, "ascontiguousarray", lambda *_: pytest.fail("an operand is copied"))
    step(x)


def test_explain_names_products_that_use_events() -> None:
    dense = jit(lambda x, w: x @ w)
    few, many = Tensor(spikes(0.01)), Tensor(W)
    limit = matmul.limit_of(few.asnumpy(), W, False)
    assert 0.1 < limit < 0.9
    assert f"event-driven below {100 * limit:.2g} % of non-zero elements" in snncell.explain(
        dense, few, many, detail="launches"
    )
    assert "by BLAS: for operands of these sizes" in snncell.explain(dense, few[:4], many, detail="launches")
    shared = snncell.explain(jit(lambda x, w, v: (x @ w, x @ v)), few, many, many, detail="launches")
    assert shared.count(f"event-driven below {100 * limit:.2g} %") == 2


@pytest.mark.parametrize("by_columns", [False, True])
def test_density_limit_grows_with_the_number_of_columns(by_columns: bool) -> None:
    limits = [matmul.limit(1600, 1600, n, np.dtype(np.float32), by_columns) for n in (1, 16, 64, 256, 4096)]
    assert limits == sorted(limits) and 0.0 <= limits[0] < limits[-1] < 1.0
    for dtype in (np.int32, np.complex64, np.float16, np.longdouble, bool):
        assert matmul.limit(1600, 1600, 256, np.dtype(dtype), by_columns) == 0.0
