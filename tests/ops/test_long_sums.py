"""Long sums of float32: each function that sums, over each axis, against float64.

The terms have one sign, and every function is compared with NumPy's in float64. A plain sum in one float32 fails,
because its error is 1e-5 to 1e-2 at these lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, jit, nn, ops
from snncell.kernels import sums

BOUND = 1e-6
STORED = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # half a unit of the result's dtype is added to the bound


def terms(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of one sign: equal ones, whose rounding errors add up, or different ones."""
    low = float(rng.uniform(0.05, 1.0))
    x = np.full(shape, low) if rng.random() < 0.5 else low + rng.random(shape)
    return (x * rng.choice([-1.0, 1.0])).astype(np.float32)


def shape_of(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A shape of one to four axes, one of them long."""
    shape = [int(n) for n in rng.integers(1, 9, rng.integers(0, 4))]
    shape.insert(int(rng.integers(0, len(shape) + 1)), max(1, size // int(np.prod(shape, dtype=int))))
    return tuple(shape)


def assert_close(found: Any, expected: Any, bound: float = BOUND) -> None:
    found = np.asarray(found.asnumpy() if isinstance(found, Tensor) else found, np.float64)
    error = np.abs(found - expected) / np.abs(expected)
    assert error.max(initial=0.0) < bound, f"relative error {error.max():.2e}"


def change_layout(rng: np.random.Generator, x: Any) -> Any:
    """The same elements with another memory layout: C, Fortran, every second element, or exchanged axes."""
    kind = rng.integers(0, 4)
    if kind == 1:
        return np.asfortranarray(x)
    if kind == 2:
        return np.repeat(x, 2, axis=0)[::2]
    if kind == 3:
        axes = rng.permutation(x.ndim)
        return np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))
    return x


@random_cases(60)
def test_sums_of_any_memory_layout_are_accurate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = terms(rng, shape_of(rng, int(10 ** rng.uniform(1, 5.7))))
    axes = tuple(int(a) for a in np.flatnonzero(rng.random(x.ndim) < 0.6))
    keepdims = bool(rng.random() < 0.3)
    found = sums.total(change_layout(rng, x), axes, keepdims)
    assert found.dtype == np.float32
    assert_close(found, x.sum(axes, np.float64, keepdims=keepdims))


@random_cases(30)
def test_running_sums_are_accurate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = terms(rng, shape_of(rng, int(10 ** rng.uniform(1, 5.5))))
    axis = int(rng.integers(0, x.ndim))
    assert_close(ops.cumsum(Tensor(change_layout(rng, x)), axis), np.cumsum(x, axis, np.float64), 1.3e-7)


WIDE_ENOUGH = 1e-3  # relative to the squares, because the variance of nearly equal numbers is their rounding error
REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (ops.sum, lambda x, axis: x.sum(axis)),
    "mean": (ops.mean, lambda x, axis: x.mean(axis)),
    "var": (ops.var, lambda x, axis: x.var(axis)),
}


@random_cases(40)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_any_dtype_are_accurate(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn, expected = REDUCTIONS[name]
    x = terms(rng, shape_of(rng, int(10 ** rng.uniform(1, 5.7))))
    axis = tuple(int(a) for a in np.flatnonzero(rng.random(x.ndim) < 0.6)) or None
    if name == "var":
        x = x * rng.random(x.shape, np.float32)  # equal numbers have no variance
    dtype = str(rng.choice(["float32", "float32", "float32", "float64", "float16", "bfloat16"]))
    given = Tensor(x).astype(dtype)
    wide = given.astype("float64").asnumpy()
    with np.errstate(over="ignore"):
        exact = expected(wide, axis)
    if dtype == "float16" and np.abs(exact).max(initial=0.0) > 6e4:
        return  # infinite in float16
    keep = np.abs(exact) > (WIDE_ENOUGH * np.abs(wide).max() ** 2 if name == "var" else 0.0)
    found = fn(given, axis).astype("float64").asnumpy()
    assert_close(found[keep], exact[keep], (2 if name == "var" else 1) * BOUND + STORED.get(dtype, 0.0))


@pytest.mark.sampled(4)
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("name", "shape", "axes"),
    [
        ("sum", (200_003,), [0]),
        ("mean", (70_001, 3), [None, 0]),
        ("sum", (3, 70_001), [None, 1]),
        ("sum", (7, 30_000, 2), [1, (0, 1), (1, 2)]),
        ("sum", (9001, 5, 7), [None, 0, (0, 2)]),
        ("var", (9001, 5, 7), [0, (0, 2)]),
    ],
)
def test_compiled_reductions_are_accurate(name: str, shape: tuple[int, ...], axes: list[Any]) -> None:
    """The terms are products, so that map and reduce are fused into one loop."""
    fn, expected = REDUCTIONS[name]
    rng = np.random.default_rng(len(shape))
    x = rng.random(shape, np.float32) if name == "var" else np.full(shape, 0.1, np.float32)
    compiled = jit(lambda x, y: tuple(fn(x * y, axis) for axis in axes))
    for found, axis in zip(compiled(Tensor(x), Tensor(np.float32(1.3))), axes, strict=True):
        exact = expected((x * np.float32(1.3)).astype(np.float64), axis)
        assert_close(found, exact, 2 * BOUND if name == "var" else BOUND)


EQUATIONS = ["i->", "ia->a", "ai->a", "i,i->", "ia,ia->a", "ai,i->a", "i,ia->a", "i,ia,i->a", "ia,b->ab", "ai,bi,i->"]


@random_cases(3)
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_over_a_long_axis_is_accurate(equation: str, seed: int) -> None:
    """`i` is long. Matrix products are excluded, because BLAS computes them."""
    rng = np.random.default_rng(seed)
    lengths = {"i": int(10 ** rng.uniform(1, 5.3)), "a": int(rng.integers(1, 6)), "b": int(rng.integers(1, 6))}
    arrays = [terms(rng, tuple(lengths[letter] for letter in term)) for term in equation.split("->")[0].split(",")]
    exact = np.einsum(equation, *[x.astype(np.float64) for x in arrays])
    assert_close(ops.einsum(equation, *map(Tensor, arrays)), exact)


@random_cases(20)
def test_gradients_of_broadcast_operands_are_accurate(seed: int) -> None:
    """The gradient of an operand is the sum over its broadcast axes."""
    rng = np.random.default_rng(seed)
    x = terms(rng, shape_of(rng, int(10 ** rng.uniform(1, 5.7))))
    stretched = tuple(int(a) for a in np.flatnonzero(rng.random(x.ndim) < 0.6))
    small = np.ones([1 if axis in stretched else n for axis, n in enumerate(x.shape)], np.float32)
    found = snncell.grad(lambda w: (w * Tensor(x)).sum())(Tensor(small))
    assert_close(found, x.sum(stretched, np.float64, keepdims=True))


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize(("compiled", "every"), [(False, None), (True, None), (False, 150)])
def test_sums_over_many_steps_are_accurate(compiled: bool, every: int | None) -> None:
    """The sum over time of results, and the gradients of a scalar constant and of a constant per channel."""

    def results(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        _, y = ops.scan(lambda c, x: (c * 0.5, x * a * b), ops.zeros((2, 3)), x, checkpoint_every=every)
        return y

    def run(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        slopes = snncell.grad(lambda a, b: results(x, a, b).sum(), (0, 1))(a, b)
        return results(x, a, b).sum(0), *slopes

    for steps in (33, 20_011):
        x = np.full((steps, 2, 3), 0.1, np.float32)
        found = (jit(run) if compiled else run)(Tensor(x), Tensor(np.float32(1.0)), ops.ones(3))
        wide = x.astype(np.float64)
        for one, exact in zip(found, (wide.sum(0), wide.sum(), wide.sum((0, 1))), strict=True):
            assert_close(one, exact)


@pytest.mark.compiled
def test_sums_of_an_unfused_loop_are_accurate() -> None:
    x = np.full((3000, 2, 3), 0.1, np.float32)

    def loss(a: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            order = ops.argsort(c, -1)  # no loop kernel supports it
            return c + ops.gather_elements(x, 1, order) * a, x * a + c * 0.0

        return ops.scan(step, ops.zeros((2, 3)), Tensor(x))[1].sum()

    assert_close(snncell.grad(loss)(Tensor(np.float32(1.0))), x.sum(dtype=np.float64))


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.compiled)])
def test_batch_norm_and_bias_gradients_are_accurate(compiled: bool) -> None:
    rows = 100_003
    x = np.random.default_rng(0).random((rows, 3), np.float32) * 0.1 + 5.0
    norm = nn.BatchNorm1d(3)
    norm.momentum = 0.0  # the moving statistics are those of the batch
    norm.set_train()
    layer = nn.Dense(3, 3)

    def run(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        norm(x)
        of_bias = snncell.grad(lambda x: (layer(x) * x).sum(), None, [layer.bias])(x)
        return norm.moving_mean, norm.moving_variance, of_bias[0] if isinstance(of_bias, tuple) else of_bias

    mean, var, of_bias = (jit(run) if compiled else run)(Tensor(x))
    wide = x.astype(np.float64)
    assert_close(mean, wide.mean(0))
    assert_close(var, wide.var(0, ddof=1), 2e-6)
    assert_close(of_bias, wide.sum(0))


@random_cases(20)
def test_trailing_zeros_do_not_change_sums(seed: int) -> None:
    """The sum of a padded sequence equals that of the sequence."""
    rng = np.random.default_rng(seed)
    steps, more = (int(n) for n in rng.integers(1, 200, 2))
    x = rng.standard_normal((steps, 3, 5)).astype(np.float32)
    padded = np.concatenate([x, np.zeros((more, 3, 5), np.float32)])
    axis = (0,) if rng.random() < 0.5 else (0, 1)
    np.testing.assert_array_equal(sums.total(padded, axis), sums.total(x, axis))
    np.testing.assert_array_equal(sums.running(padded, 0)[:steps], sums.running(x, 0))


def test_sums_keep_infinities() -> None:
    x = np.ones((1000, 3), np.float32)
    x[5, 0], x[7, 1], x[8, 1], x[9, 2] = np.inf, np.inf, -np.inf, np.nan
    np.testing.assert_array_equal(ops.sum(Tensor(x), 0).asnumpy(), [np.inf, np.nan, np.nan])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(18_000_000, 2), (100_000_000,), (2, 18_000_000), (6, 3_000_000, 2)])
def test_very_long_sums_are_accurate(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 0.1, np.float32)
    axis = int(np.argmax(shape))
    exact = x.sum(axis, np.float64)
    assert_close(ops.sum(Tensor(x), axis), exact)
    assert_close(ops.mean(Tensor(x), axis), exact / shape[axis])
    assert_close(jit(lambda x: (x * 1.0).sum(axis))(Tensor(x)), exact)
