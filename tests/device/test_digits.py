"""The demo's network on the device: training steps on real digits, at a small size, beside the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np

import snncell
from snncell import Tensor, jit, nn, value_and_grad
from snncell.data import digits
from snncell.demo import DigitNet


def losses(device: str, steps: int) -> tuple[list[float], list[Any]]:
    """The losses of some steps, and the Parameters after them."""
    snncell.set_seed(1)
    (images, labels), _ = digits()
    net = DigitNet(steps=4).set_train().to(device)
    optimiser, loss_fn = nn.Adam(net.trainable_params(), 0.005), nn.CrossEntropyLoss(label_smoothing=0.1)
    both = value_and_grad(lambda x, y: loss_fn(net(x), y), None, net.trainable_params())

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = both(x, y)
        optimiser(grads)
        return loss  # type: ignore[no-any-return]

    found = []
    for n in range(steps):
        part = slice(6 * n, 6 * n + 6)
        x, y = Tensor(images[part].reshape(-1, 64)).to(device), Tensor(labels[part]).to(device)
        found.append(float(step(x, y)))
    return found, [p.asnumpy() for p in net.trainable_params()]


def test_training_steps_on_digits_are_those_of_the_cpu() -> None:
    (mine, weights), (theirs, others) = losses("cpu", 3), losses("gpu", 3)
    assert len(set(mine)) == 3
    np.testing.assert_allclose(theirs, mine, rtol=1e-5)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)
