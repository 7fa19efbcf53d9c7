"""Reductions in loops, run as plain Python: all patterns of kept and reduced axes, lengths, dtypes, NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from interpreting import emitted, run_plainly, whole_numbers

from snncell import Tensor, ops
from snncell.compiler.backends import groups as emitter
from snncell.kernels.numba.policy import PARALLEL_SIZE

LENGTHS = [0, 1, 15, 16, 17, 31, 33, 1025]

# Shapes with one axis of length n, and the reduced axes.
PATTERNS: list[tuple[tuple[Any, ...], tuple[int, ...]]] = [
    (("n",), (0,)),
    ((3, "n"), (1,)),
    (("n", 3), (1,)),
    ((3, "n"), (0,)),
    (("n", 3), (0,)),
    ((3, "n"), (0, 1)),
    ((2, "n", 3), (1,)),
    ((2, "n", 3), (0, 2)),
    (("n", 3, 2), (0, 2)),
    ((2, 3, "n"), (0, 2)),
    ((2, 3, "n"), (1,)),
    ((2, 3, "n"), (1, 2)),
    ((2, 3, "n"), (0, 1)),
    (("n", 2, 2, 3), (0, 2)),
    ((2, 2, "n", 3), (1, 3)),
    ((2, 2, 3, "n"), (1, 3)),
    ((2, 2, 3, "n"), (0, 2, 3)),
    ((2, 1, "n", 1), (1, 2)),
]
NAMES = [f"{'x'.join(map(str, shape))}-{''.join(map(str, axis))}" for shape, axis in PATTERNS]


@pytest.fixture(params=["serial", "parallel"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the loops for small and for large arrays, because the kind depends on the size alone."""
    if request.param == "parallel":
        monkeypatch.setattr(emitter, "PARALLEL_SIZE", 0)
    return str(request.param)


def with_length(shape: tuple[Any, ...], length: int) -> tuple[int, ...]:
    return tuple(length if n == "n" else n for n in shape)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize(("shape", "axis"), PATTERNS, ids=NAMES)
def test_reductions_over_every_pattern_of_axes_agree_with_numpy(
    shape: tuple[Any, ...], axis: tuple[int, ...], dtype: Any
) -> None:
    for length in (1, 5, 17):
        a = whole_numbers(with_length(shape, length), dtype)
        doubled, total, top, low = run_plainly(
            lambda x: (x * 2, ops.sum(x * 2, axis), ops.max(x, axis, keepdims=True), ops.min(x, axis)), a
        )
        np.testing.assert_array_equal(doubled, a * 2, strict=True)
        np.testing.assert_array_equal(total, (a * 2).sum(axis), strict=True)
        np.testing.assert_array_equal(top, a.max(axis, keepdims=True), strict=True)
        np.testing.assert_array_equal(low, a.min(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("shape", "axis"), PATTERNS, ids=NAMES)
def test_sums_of_every_length_agree_with_numpy(shape: tuple[Any, ...], axis: tuple[int, ...], length: int) -> None:
    a = whole_numbers(with_length(shape, length), np.float32)
    (total,) = run_plainly(lambda x: x.sum(axis), a)
    np.testing.assert_array_equal(total, a.sum(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int16, np.int32, np.uint8])
@pytest.mark.parametrize(("shape", "axis"), [((33,), (0,)), ((3, 17), (1,)), ((17, 3), (0,))])
def test_narrow_integers_and_booleans_agree_with_numpy(
    shape: tuple[int, ...], axis: tuple[int, ...], dtype: Any
) -> None:
    a = whole_numbers(shape, np.int8).astype(dtype)
    (total,) = run_plainly(lambda x: ops.sum(x, axis), a)
    np.testing.assert_array_equal(total, a.sum(axis, np.int64), strict=True)
    top, low = run_plainly(lambda x: (ops.max(x, axis), ops.min(x, axis)), a)
    np.testing.assert_array_equal(top, a.max(axis), strict=True)
    np.testing.assert_array_equal(low, a.min(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("length", LENGTHS)
def test_any_and_all_agree_with_numpy(length: int) -> None:
    for a in (np.zeros((2, length), bool), np.ones((2, length), bool), np.arange(2 * length).reshape(2, length) == 1):
        some, every = run_plainly(lambda x: (ops.any(x, 1), ops.all(x, 1)), a)
        np.testing.assert_array_equal(some, a.any(1), strict=True)
        np.testing.assert_array_equal(every, a.all(1), strict=True)


@pytest.mark.usefixtures("kind")
def test_integers_at_the_limits_of_their_range_agree_with_numpy() -> None:
    for dtype in (np.int8, np.int64, np.uint8):
        ends = np.iinfo(dtype)
        for a in (np.full(20, ends.min, dtype), np.full(20, ends.max, dtype)):
            top, low = run_plainly(lambda x: (ops.max(x, 0), ops.min(x, 0)), a)
            assert (top.item(), low.item()) == (a[0].item(), a[0].item())


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(("shape", "axis"), [((40,), (0,)), ((3, 40), (1,)), ((40, 3), (0,))])
@pytest.mark.parametrize("position", [0, 7, 16, 31, 39])  # the first and later rounds of each lane, and the remainder
def test_nan_at_any_position_propagates(shape: tuple[int, ...], axis: tuple[int, ...], position: int) -> None:
    a = whole_numbers(shape, np.float32)
    place = tuple(position if n == 40 else 1 for n in shape)
    for value in (np.nan, np.inf, -np.inf):
        a[place] = value
        top, low, total = run_plainly(lambda x: (ops.max(x, axis), ops.min(x, axis), ops.sum(x, axis)), a)
        np.testing.assert_array_equal(top, a.max(axis), strict=True)
        np.testing.assert_array_equal(low, a.min(axis), strict=True)
        np.testing.assert_array_equal(total, a.sum(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("axis", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("other", [(1, 1, 5), (1, 4, 1), (3, 1, 1), (5,), (4, 1), (3, 1, 5), ()])
def test_reduced_product_with_broadcast_operand_agrees_with_numpy(
    other: tuple[int, ...], axis: tuple[int, ...]
) -> None:
    a, b = whole_numbers((3, 4, 5), np.float64), whole_numbers(other, np.float64, 1)
    product, total = run_plainly(lambda x, y: (x * y, (x * y).sum(axis)), a, b)
    np.testing.assert_array_equal(product, a * b, strict=True)
    np.testing.assert_array_equal(total, (a * b).sum(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("axis", [(0,), (1,), (0, 1)])
def test_sum_over_broadcast_axis_agrees_with_numpy(axis: tuple[int, ...]) -> None:
    a, b = whole_numbers((4, 1), np.float64), whole_numbers((1, 3), np.float64, 1)
    (total,) = run_plainly(lambda x, y: (x * y).sum(axis), a, b)
    np.testing.assert_array_equal(total, (a * b).sum(axis), strict=True)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize(
    ("shape", "axis"), [((0,), (0,)), ((0, 3), (0,)), ((3, 0), (0,)), ((3, 0), (1,)), ((2, 0, 3), (0, 2))]
)
def test_empty_sum_is_zero(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    a = np.zeros(shape, np.float32)
    total, some, every = run_plainly(lambda x: (x.sum(axis), ops.any(x > 0, axis), ops.all(x > 0, axis)), a)
    np.testing.assert_array_equal(total, a.sum(axis), strict=True)
    np.testing.assert_array_equal(some, (a > 0).any(axis), strict=True)
    np.testing.assert_array_equal(every, (a > 0).all(axis), strict=True)


def test_long_axis_is_reduced_in_blocks_of_fixed_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "PARALLEL_SIZE", 0)
    for length in (4095, 4096, 4097, 9000):
        a = whole_numbers((length,), np.float64)
        (total,) = run_plainly(lambda x: x.sum(), a)
        assert total.item() == a.sum()


@pytest.mark.parametrize("length", [257, 600])
def test_more_columns_than_one_strip_agree_with_numpy(length: int) -> None:
    a = whole_numbers((5, length), np.float64)
    (total,) = run_plainly(lambda x: x.sum(axis=0), a)
    np.testing.assert_array_equal(total, a.sum(axis=0), strict=True)


def test_large_term_absorbs_only_terms_of_its_own_block() -> None:
    # A single float32 accumulator would lose all 1599 ones; a block loses only its other 31 terms.
    a = np.ones(1600, np.float32)
    a[0] = 2.0**25
    (total,) = run_plainly(lambda x: x.sum(), a)
    assert total.item() == 2.0**25 + 1599 - 31
    assert math.fsum(a) - total.item() == 31.0


@pytest.mark.parametrize(("shape", "axis"), PATTERNS, ids=NAMES)
def test_every_parallel_loop_has_work_to_share(shape: tuple[Any, ...], axis: tuple[int, ...]) -> None:
    x = Tensor(np.ones(with_length(shape, PARALLEL_SIZE), np.float32))
    kernel = emitted(lambda x: (x * 2.0).sum(axis), x)
    assert kernel.shared
    assert "in range(start, stop):" in kernel.source


@pytest.mark.parametrize("other", [(800,), (800, 1), (1, 800)])
def test_full_sum_with_broadcast_operand_is_shared_among_threads(other: tuple[int, ...]) -> None:
    kernel = emitted(lambda x, y: (x * y).sum(), ops.ones((800, 800)), ops.ones(other))
    assert kernel.shared
    assert "in range(start, stop):" in kernel.source


@pytest.mark.parametrize("length", [1, 7, 63, 64, 65, 200])
def test_channels_of_many_images_are_reduced_per_image(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(emitter, "PARALLEL_SIZE", 0)
    a = whole_numbers((5, 3, length), np.float64)
    x = Tensor(a)
    kernel = emitted(lambda x: (ops.sum(x, (0, 2)), ops.max(x * x, (0, 2), keepdims=True)), x)
    slices = length >= emitter.LEAST_PART
    assert (kernel.units, kernel.left, len(kernel.parts)) == ((5, 3, 2) if slices else (3, 0, 0))
    total, top = run_plainly(lambda x: (ops.sum(x, (0, 2)), ops.max(x * x, (0, 2), keepdims=True)), a)
    np.testing.assert_array_equal(total, a.sum((0, 2)), strict=True)
    np.testing.assert_array_equal(top, (a * a).max((0, 2), keepdims=True), strict=True)


def test_slices_keep_several_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "PARALLEL_SIZE", 0)
    a = whole_numbers((4, 3, 65, 2, 3), np.float64)
    (total,) = run_plainly(lambda x: ops.sum(x, (0, 2, 4)), a)
    np.testing.assert_array_equal(total, a.sum((0, 2, 4)), strict=True)
    assert emitted(lambda x: ops.sum(x, (0, 2, 4)), Tensor(a)).left == 6
