"""A rank that trains by a loop of its own: python -m ranks.own_loop FILE [fast]."""

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
    """Train, and write the first gradient, that of the whole batch, and the losses."""
    snncell.set_seed(3)
    distributed.init(fast=len(sys.argv) > 2)
    there = Path(f"{sys.argv[1]}.there")
    if distributed.rank() == 0:
        time.sleep(0.3)  # the others would be faster
        there.touch()
    distributed.barrier()
    assert there.exists()
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.normal(size=(5, 22, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 22))
    net = nn.SequentialCell(nn.Dense(6, 8), nn.MultiStep(nn.LIFNode(tau=2.0)), nn.Dense(8, 3))
    loss, adam = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.02)

    @snncell.jit
    def gradients(x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        value, grads = ops.value_and_grad(lambda a, b: loss(net(a).mean(0), b), None, adam.parameters)(x, y)
        return value, grads

    def mean(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found, counts = [], []
        for x_part, y_part in distributed.shards(x, y):
            found.append(gradients(x_part, y_part)[1])
            counts.append(len(y_part))
        return distributed.mean_gradients(found, counts)

    written: dict[str, list[list[float]]] = {
        "whole": listed(gradients(x, y)[1]),
        "first": listed(mean(x, y)),
    }
    # More than a bucket, and more than each rank adds of.
    wide = Tensor(rng.normal(size=(22, 1200)).astype(np.float32))
    parts = [(part.asnumpy(), len(y_part)) for part, y_part in distributed.shards(wide, y)]
    products = [(Tensor(part.T @ part / n),) for part, n in parts]
    (large,) = distributed.mean_gradients(products, [n for _, n in parts])
    exact = wide.asnumpy().astype(np.float64)
    assert np.allclose(large.asnumpy(), exact.T @ exact / 22, atol=1e-5)
    written["large"] = [[int(n) for n in hashlib.blake2b(large.asnumpy().tobytes()).digest()]]
    for _ in range(5):
        adam(mean(x, y))
    written["weights"] = listed(net.get_parameters())

    # In one jitted function, of what each rank has; by the same steps in three functions.
    own = slice(distributed.rank() * 22 // distributed.size(), (distributed.rank() + 1) * 22 // distributed.size())
    x_own, y_own = x[:, own], y[own]

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = ops.value_and_grad(lambda a, b: loss(net(a).mean(0), b), None, adam.parameters)(x, y)
        adam(distributed.mean_gradients(grads, len(y)))
        return value

    begin = [p.asnumpy().copy() for p in (*net.get_parameters(), *adam.get_parameters())]
    losses = [step(x_own, y_own).item() for _ in range(3)]
    jitted = listed(net.get_parameters())
    for p, value in zip((*net.get_parameters(), *adam.get_parameters()), begin, strict=True):
        p.set_data(Tensor(value))
    for number in range(3):
        value, grads = gradients(x_own, y_own)
        assert abs(value.item() - losses[number]) < 1e-5
        adam(distributed.mean_gradients(grads, len(y_own)))
    for one, other in zip(jitted, listed(net.get_parameters()), strict=True):
        assert np.allclose(one, other, atol=1e-5)
    if distributed.rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(written), encoding="utf-8")


def listed(tensors: Any) -> list[list[float]]:
    """Their elements."""
    return [x.asnumpy().ravel().tolist() for x in tensors]


if __name__ == "__main__":
    main()
