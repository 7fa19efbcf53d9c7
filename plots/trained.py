"""A small network that classifies digits, trained once per process, as the subject of several pictures."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import snncell
from snncell import Tensor, nn
from snncell.data import digits
from snncell.demo import DigitNet


class Trained(NamedTuple):
    """The network, its initial weights, and the records of the training."""

    net: DigitNet
    before: dict[str, Any]
    result: snncell.train.Result


def images(count: int | None = None) -> tuple[Tensor, Any]:
    """Return the first test images as rows of pixels, (B, 64), and their labels."""
    pictures, labels = digits()[1]
    return Tensor(pictures[:count].reshape(-1, 64)), labels[:count]


@cache
def trained(epochs: int = 12) -> Trained:
    """Return the network of the demo after a few epochs."""
    snncell.set_seed(0)
    train, test = ((pictures.reshape(-1, 64), labels) for pictures, labels in digits())
    net = DigitNet()
    before = {name: parameter.asnumpy().copy() for name, parameter in net.parameters_and_names()}
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    adam = nn.AdamW(net.trainable_params(), learning_rate=2e-3, weight_decay=0.01)
    result = snncell.train.fit(net, loss, adam, train, epochs, validation=test, progress=False)
    return Trained(net, before, result)


@cache
def recorded(count: int = 100) -> Any:
    """Return a monitor of the first test images, with the gradient of the loss."""
    x, labels = images(count)
    net = trained().net
    with snncell.monitor(net, v=True, above=True, grad=True) as monitor:
        snncell.grad(lambda x: nn.CrossEntropyLoss()(net(x), Tensor(labels)))(x)
    return monitor


def deep(depth: int, surrogate: nn.Cell, gain: float = 1.0, width: int = 64) -> nn.SequentialCell:
    """Return a chain of LIF layers, with weights of standard deviation gain / sqrt(width)."""
    snncell.set_seed(0)
    cells: list[nn.Cell] = []
    for _ in range(depth):
        weights = snncell.common.initializer.Normal(gain / np.sqrt(width))
        lif = nn.LIFNode(tau=2.0, decay_input=False, surrogate_function=surrogate)
        cells += [nn.Dense(width, width, weight_init=weights), nn.MultiStep(lif)]
    return nn.SequentialCell(*cells)


def watched(net: nn.SequentialCell, x: Tensor) -> Any:
    """Return a monitor of the network, with the gradient of the last layer's summed output. Layers have numbers."""
    with snncell.monitor(net, above=True, grad=True) as monitor:
        snncell.grad(lambda x: net(x).sum())(x)
    return monitor
