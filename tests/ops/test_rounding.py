"""Rounding to float16 and bfloat16: the same bits eagerly, compiled, over a batch and over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell as ms
from snncell import Tensor, amp, nn, ops

HALVES = {"float16": ms.float16, "bfloat16": ms.bfloat16}


def eighths(rng: np.random.Generator, *shape: int) -> Tensor:
    """Multiples of 1/8, whose sums of products float32 holds exactly: the order of the terms does not matter."""
    return Tensor(rng.integers(-16, 17, shape).astype(np.float32) / 8)


@pytest.mark.sampled(1)
@random_cases(6)
def test_random_nets_are_rounded_alike_in_every_mode(seed: int) -> None:
    """Eagerly, jitted, over a batch by vmap, in a scan and in a loop with states: the same bits, gradients too."""
    rng = np.random.default_rng(seed)
    half = str(rng.choice(list(HALVES)))
    net = nn.SequentialCell()
    for _ in range(rng.integers(1, 4)):
        activation = [None, "relu", "leakyrelu"][rng.integers(3)]
        layer = nn.Dense(4, 4, has_bias=bool(rng.integers(4)), activation=activation)
        for p in layer.get_parameters():
            p.set_data(eighths(rng, *p.shape) / 3.0 if p.ndim == 1 else eighths(rng, *p.shape))
        net.append(layer)
        if rng.integers(2):
            net.append(nn.ReLU())
    if seed % 3:
        amp.auto_mixed_precision(net, "O1", half)
    else:
        net.to_float(HALVES[half])
    x = eighths(rng, 5, 4)
    rows = ops.stack([net(row) for row in x])

    def stepped(x: Tensor) -> Tensor:
        kind = net(x[0]).dtype
        return ops.scan(lambda c, row: (net(row).astype(kind), c), ops.zeros(4, kind), ops.concat([x, x[:1]]))[1][1:]

    for found in (ms.jit(net)(x), ops.vmap(net)(x), ms.jit(ops.vmap(net))(x), stepped(x), ms.jit(stepped)(x)):
        np.testing.assert_array_equal(found.asnumpy(), rows.asnumpy())

    def slopes(net: Any) -> Any:
        return ops.grad(lambda x: (net(x) * 0.25).sum(), 0, net.trainable_params())(x)

    eager, jitted = slopes(net), ms.jit(lambda x: slopes(net))(x)
    for a, b in zip((eager[0], *eager[1]), (jitted[0], *jitted[1]), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


@pytest.mark.sampled(1)
@pytest.mark.compiled
@random_cases(4)
def test_random_formulas_of_few_bits_are_rounded_after_each_operation(seed: int) -> None:
    """A fused loop, and a loop over time with and without a product, give the bits of the eager operations."""
    rng = np.random.default_rng(seed)
    half = str(rng.choice(list(HALVES)))
    w = eighths(rng, 4, 4).astype(half) if seed % 2 else None
    plan = [(str(rng.choice(["add", "mul", "scale", "relu", "square"])), *rng.integers(2, size=2)) for _ in range(5)]

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        values = [c if w is None else c @ w, x]
        for name, a, b in plan:
            one, other = values[-1 - a], values[-1 - b]
            results = {"add": one + other, "mul": one * other, "scale": one * 0.3, "relu": ops.relu(one)}
            results["square"] = ops.square(one) - other
            values.append(ops.clip(results[name], -4.0, 4.0))
        return values[-1] * 0.7, values[-1].astype("float32") + values[-2].astype("float32")

    c, xs = eighths(rng, 3, 4).astype(half), eighths(rng, 6, 3, 4).astype(half)
    with ms.testing.unfused():
        expected = ops.scan(step, c, xs)
    one = step(c, xs[0])
    for found, right in ((ops.scan(step, c, xs), expected), (ms.jit(step)(c, xs[0]), one)):
        for a, b in zip(found, right, strict=True):
            np.testing.assert_array_equal(a.astype("float32").asnumpy(), b.astype("float32").asnumpy(), str(plan))
