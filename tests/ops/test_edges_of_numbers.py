"""Infinities and the smallest integers: log-sums, powers, division and remainders, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, ops

INF = float("inf")

# --- logarithms of sums -----------------------------------------------------------------------------------------------


def log_sum(x: Any, axis: int) -> tuple[Any, Any]:
    """The logarithm of a sum of exponentials, and its gradient, in NumPy.

    At infinities the result is the largest element, and tied elements share the gradient evenly. This is the limit
    for a single largest element, and gives equal weights to elements that cannot be distinguished.
    """
    peak = x.max(axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        raised = np.where(x == peak, 1.0, np.exp(x - peak))
    total = raised.sum(axis, keepdims=True)
    return (np.log(total) + peak).squeeze(axis), raised / total


@pytest.mark.sampled(37)
@random_cases(60)
def test_log_sum_gradients_are_consistent_at_infinities(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
    axis = int(rng.integers(len(shape)))
    x = rng.choice([INF, -INF, 0.0, 1.0, 1000.0, -1000.0, np.nan], shape, p=[0.2, 0.3, 0.14, 0.1, 0.1, 0.1, 0.06])
    x = np.where(rng.random(shape) < 0.4, rng.standard_normal(shape), x)
    if shape[axis] == 1:
        x = np.nan_to_num(x, posinf=INF, neginf=-INF)  # logcumsumexp of one element is the identity, also for NaN
    value, gradient = log_sum(x, axis)
    compiled = snncell.jit if seed % 8 == 0 else lambda f: f

    def last(x: Tensor) -> Tensor:
        return ops.logcumsumexp(x, axis)[(slice(None),) * axis + (-1,)]

    def joined(x: Tensor) -> Tensor:
        pair = ops.split(x, 1, axis)
        return ops.logaddexp(pair[0], pair[1]).squeeze(axis)

    functions = [lambda x: ops.logsumexp(x, axis), last, *[joined] * int(shape[axis] == 2)]
    for f in functions:
        found, dx = compiled(snncell.value_and_grad(lambda x, f=f: (f(x), f(x))[0]))(Tensor(x))
        np.testing.assert_allclose(found.asnumpy(), value, rtol=1e-12)
        np.testing.assert_allclose(dx.asnumpy(), gradient, rtol=1e-12)
        if not np.isnan(gradient).any():  # the gradient sums to 1, so that second derivatives along an axis sum to 0
            second = snncell.grad(lambda x, f=f: snncell.grad(f)(x).sum())(Tensor(x)).asnumpy()
            np.testing.assert_allclose(second, 0.0, atol=1e-12)
    try:
        import torch
    except ImportError:
        return
    theirs = torch.tensor(x, requires_grad=True)
    torch.logsumexp(theirs, axis).sum().backward()
    known = np.isfinite(theirs.grad.numpy())  # it gives NaN at infinities that contribute
    np.testing.assert_allclose(gradient[known], theirs.grad.numpy()[known], rtol=1e-11)


# --- powers -----------------------------------------------------------------------------------------------------------


@random_cases(12)
def test_exponent_gradient_masked_by_where_is_finite(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.choice([0.0, -0.0, 2.0, -1.5], 8), rng.choice([-2.0, -0.5, 0.0, 1.5, 3.0], 8)
    chosen = Tensor(x > 0)

    def masked(y: Tensor) -> Tensor:
        return ops.where(chosen, ops.pow(Tensor(x), y), 0.0).sum()

    logarithm = np.log(np.where(x > 0, x, 1.0))
    expected = np.where(x > 0, 2.0**y * logarithm, 0.0)  # 2 is the only positive base
    for _ in (1, 2):
        for run in (lambda f: f, snncell.jit) if seed < 2 else (lambda f: f,):
            np.testing.assert_allclose(run(snncell.grad(masked))(Tensor(y)).asnumpy(), expected, rtol=1e-12)
        masked = (lambda f: lambda y: snncell.grad(f)(y).sum())(masked)
        expected = expected * logarithm
    # Without where too, and for numbers: the gradient is 0 for constants and for bases without a real logarithm.
    found = snncell.grad(lambda y: ops.pow(Tensor(x), y).sum())(Tensor(y)).asnumpy()
    assert np.isfinite(found).all() and (found[x <= 0] == 0).all()
    assert snncell.grad(lambda y: (0.0**y).sum())(Tensor([-1.0, 2.0])).tolist() == [0.0, 0.0]


# --- integers ---------------------------------------------------------------------------------------------------------

PAIRS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_div": np.floor_divide,
    "floor_divide": np.floor_divide,
    "mod": np.mod,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "equal": np.equal,
    "less": np.less,
    "greater_equal": np.greater_equal,
}
SINGLE: dict[str, Any] = {"abs": np.abs, "neg": np.negative, "sign": np.sign, "square": np.square, "trunc": np.trunc}


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_extreme_integers_equal_numpy_eager_and_compiled(dtype: str) -> None:
    limits = np.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max - 1, limits.max, limits.max // 2, *range(-3 if limits.min else 0, 4)]
    x, y = (part.ravel() for part in np.meshgrid(np.array(near, dtype), np.array(near, dtype)))
    kinds = [(name, theirs, (x, y)) for name, theirs in PAIRS.items()]
    kinds += [(name, theirs, (x,)) for name, theirs in SINGLE.items()]

    def every(x: Tensor, y: Tensor) -> list[Tensor]:
        return [getattr(ops, name)(*(x, y)[: len(operands)]) for name, _, operands in kinds]

    eager, jitted = every(Tensor(x), Tensor(y)), snncell.jit(every)(Tensor(x), Tensor(y))
    for (name, theirs, operands), a, b in zip(kinds, eager, jitted, strict=True):
        with np.errstate(all="ignore"):
            expected = theirs(*operands)
        np.testing.assert_array_equal(a.asnumpy(), expected, f"{name} of {dtype}")
        np.testing.assert_array_equal(b.asnumpy(), expected, f"{name} of {dtype}, compiled")


@random_cases(20)
def test_fmod_of_floats_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.choice([1e-20, -1e-20, 3.5, -3.5, 1e10, INF, -INF, 0.1, np.nan], 40) * rng.random(40) for _ in range(2))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ops.fmod(Tensor(x), Tensor(y)).asnumpy(), np.fmod(x, y))
