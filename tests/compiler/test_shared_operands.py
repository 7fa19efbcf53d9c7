"""Operands that several products share: scattered ones are copied once; spikes that multiply themselves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, explain_passes, grad, jit, ops
from snncell.testing import unfused

T, B, K, M = 4, 3, 5, 6


def array(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape))


def final(f: Callable[..., Any], *inputs: Any) -> str:
    """Return the Program after the last pass that changed it."""
    parts = [part for part in explain_passes(f, *inputs).split("\n\n") if not part.endswith("no change")]
    return parts[-1]


W, V = array(K, M, seed=1), array(K, 2, seed=2)

SCATTERED: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "transposed": (lambda x: x.swapaxes(0, 1), (B, T, K)),
    "broadcast": (lambda x: ops.broadcast_to(x, (T, B, K)), (B, K)),
    "an input": (lambda x: x, (T, B, K)),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_scattered_operand_of_several_products_is_copied_once(name: str) -> None:
    made, shape = SCATTERED[name]
    x = array(*shape)

    def heads(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        y = made(x)
        return ops.tanh(y @ w), ops.tanh(y @ v)

    def loss(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        one, other = heads(x, w, v)
        return (one * one).sum() + (other * other).sum()

    if name != "broadcast":  # a product of equal rows becomes a product of one row (push_reductions)
        copies = re.compile(r"= contiguous\(%\d")
        assert len(copies.findall(final(heads, x, W, V))) == 1
        assert not copies.findall(final(lambda x, w: made(x) @ w, x, W))
    with unfused():
        expected = *heads(x, W, V), *grad(loss, (0, 1, 2))(x, W, V)
    found = *jit(heads)(x, W, V), *jit(grad(loss, (0, 1, 2)))(x, W, V)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-12, atol=1e-12)


def test_results_of_a_loop_are_not_copied() -> None:
    def f(x: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        spikes = ops.scan(lambda c, x: (c * 0.5 + x, ops.tanh(c + x)), ops.zeros_like(x[0]), x)[1]
        return spikes @ w, spikes @ v

    assert "contiguous(%" not in final(f, array(T, B, K), W, V)


SIZE = 128  # large enough for products to look for events


def spikes_of(x: Tensor) -> Tensor:
    """Spikes (T, N) that leave their loop as booleans if only products use them."""

    def step(v: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
        v = v * 0.9 + now
        s = (v > 0.95).astype("float32")
        return v - s, s

    return ops.scan(step, ops.zeros_like(x[0]), x)[1]


def itself(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = spikes_of(x)
    return s @ s, s @ w


def correlated(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = spikes_of(x)
    return s @ w, ops.vjp(lambda w: s @ w, w)[1](s)[0]


def transposed(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    s = spikes_of(x)
    return s.T @ s, s @ w


@pytest.mark.parametrize("f", [itself, correlated, transposed])
def test_spikes_that_multiply_themselves_agree_with_eager_mode(f: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    x = Tensor((rng.random((SIZE, SIZE)) * 0.2).astype(np.float32))
    w = Tensor(rng.standard_normal((SIZE, SIZE)).astype(np.float32))
    with unfused():
        expected = f(x, w)
    for one, other in zip(jit(f)(x, w), expected, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-4)
