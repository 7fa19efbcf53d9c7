"""Train on one rank by a custom training loop: python -m ranks.own_loop FILE [fast]."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, distributed, nn, ops


def main() -> None:
    """Train, and write the first mean gradient, the gradient of the whole batch, and the weights."""
    snncell.set_seed(3)
    distributed.init(fast=len(sys.argv) > 2)
    marker = Path(f"{sys.argv[1]}.there")
    if distributed.rank() == 0:
        time.sleep(0.3)  # without the barrier, the others would be faster
        marker.touch()
    distributed.barrier()
    assert marker.exists()
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(5, 22, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 22))
    net = nn.SequentialCell(nn.Dense(6, 8), nn.MultiStep(nn.LIFNode(tau=2.0)), nn.Dense(8, 3))
    loss, adam = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.02)

    @snncell.jit
    def gradients(x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        value, grads = ops.value_and_grad(lambda a, b: loss(net(a).mean(0), b), None, adam.parameters)(x, y)
        return value, grads

    def mean(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        grads, counts = [], []
        for x_part, y_part in distributed.shards(x, y):
            grads.append(gradients(x_part, y_part)[1])
            counts.append(len(y_part))
        return distributed.mean_gradients(grads, counts)

    results: dict[str, list[list[float]]] = {
        "whole": as_lists(gradients(x, y)[1]),
        "first": as_lists(mean(x, y)),
    }
    # A gradient larger than a bucket, of which each rank adds only a part.
    wide = Tensor(rng.normal(size=(22, 1200)).astype(np.float32))
    parts = [(part.asnumpy(), len(y_part)) for part, y_part in distributed.shards(wide, y)]
    products = [(Tensor(part.T @ part / n),) for part, n in parts]
    (large,) = distributed.mean_gradients(products, [n for _, n in parts])
    exact = wide.asnumpy().astype(np.float64)
    assert np.allclose(large.asnumpy(), exact.T @ exact / 22, atol=1e-5)
    results["large"] = [[int(n) for n in hashlib.blake2b(large.asnumpy().tobytes()).digest()]]
    for _ in range(5):
        adam(mean(x, y))
    results["weights"] = as_lists(net.get_parameters())

    # Separate data on each rank: one jitted step gives the same as three functions.
    own = slice(distributed.rank() * 22 // distributed.size(), (distributed.rank() + 1) * 22 // distributed.size())
    x_own, y_own = x[:, own], y[own]

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = ops.value_and_grad(lambda a, b: loss(net(a).mean(0), b), None, adam.parameters)(x, y)
        adam(distributed.mean_gradients(grads, len(y)))
        return value

    begin = [p.asnumpy().copy() for p in (*net.get_parameters(), *adam.get_parameters())]
    losses = [step(x_own, y_own).item() for _ in range(3)]
    jitted = as_lists(net.get_parameters())
    for p, value in zip((*net.get_parameters(), *adam.get_parameters()), begin, strict=True):
        p.set_data(Tensor(value))
    for number in range(3):
        value, grads = gradients(x_own, y_own)
        assert abs(value.item() - losses[number]) < 1e-5
        adam(distributed.mean_gradients(grads, len(y_own)))
    for one, other in zip(jitted, as_lists(net.get_parameters()), strict=True):
        assert np.allclose(one, other, atol=1e-5)
    if distributed.rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(results), encoding="utf-8")


def as_lists(tensors: Any) -> list[list[float]]:
    return [x.asnumpy().ravel().tolist() for x in tensors]


if __name__ == "__main__":
    main()
