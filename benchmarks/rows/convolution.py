"""A convolutional net: twice (convolution 3x3, BatchNorm, LIF, max pooling), then a readout; a step with Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import jax_lif_layer, snncell_lif_layer, spikingjelly_lif_layer, torch_lif_layer
from benchmarks.row import Contestant, Row
from benchmarks.training import jax_training, snncell_training, torch_training
from snncell import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    steps: int
    batch: int
    side: int
    channels: int
    classes: int = 10
    density: float = 0.2

    def given(self) -> tuple[Any, ...]:
        """Spikes (T, B, 1, H, W), classes, and the Parameters: kernels, gamma and beta of each layer, the readout's."""
        rng = np.random.default_rng(0)
        x = (rng.random((self.steps, self.batch, 1, self.side, self.side)) < self.density).astype(np.float32)
        weights: list[Any] = []
        for inputs in (1, self.channels):
            weights.append(rng.standard_normal((self.channels, inputs, 3, 3)) / np.sqrt(9 * inputs))
            weights += [rng.uniform(0.8, 1.6, self.channels), rng.uniform(0.0, 0.5, self.channels)]
        features = self.channels * (self.side // 4) ** 2
        weights += [rng.standard_normal((self.classes, features)) / np.sqrt(features), np.zeros(self.classes)]
        return x, rng.integers(0, self.classes, self.batch), [weight.astype(np.float32) for weight in weights]


def snncell_net(x: Any, y: Any, weights: list[Any]) -> Contestant:
    layers, params = [], []
    for kernels, gamma, beta in (weights[:3], weights[3:6]):
        conv = nn.Conv2d(kernels.shape[1], len(kernels), 3, weight_init=Tensor(kernels))
        norm = nn.BatchNorm2d(len(kernels), gamma_init=Tensor(gamma), beta_init=Tensor(beta))
        pool = nn.TimeDistributed(nn.MaxPool2d(2, 2))
        layers.append((nn.TimeDistributed(conv), nn.TimeDistributed(norm).set_train(), snncell_lif_layer(), pool))
        params += [conv.weight, norm.gamma, norm.beta]
    readout = nn.Dense(weights[6].shape[1], len(weights[6]), Tensor(weights[6]), Tensor(weights[7]))
    params += [readout.weight, readout.bias]

    def net(x: Tensor) -> tuple[Tensor, Tensor]:
        for conv, norm, neurons, pool in layers:
            spikes = neurons(norm(conv(x)))
            x = pool(spikes)
        return readout(x.reshape((*x.shape[:2], -1))).mean(0), spikes

    return snncell_training(net, params, x, y)


def torch_net(x: Any, y: Any, weights: list[Any], spikingjelly: bool = False) -> Contestant:
    import torch
    from torch.nn import functional

    channels = len(weights[0])
    averages = [(torch.zeros(channels), torch.ones(channels)) for _ in range(2)]
    neurons = [spikingjelly_lif_layer() if spikingjelly else torch_lif_layer for _ in range(2)]

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for (mean, var), layer, at in zip(averages, neurons, (0, 3), strict=True):
            kernels, gamma, beta = params[at : at + 3]
            current = functional.conv2d(x.flatten(0, 1), kernels, padding=1)
            current = functional.batch_norm(current, mean, var, gamma, beta, training=True)
            spikes = layer(current.unflatten(0, x.shape[:2]))
            x = functional.max_pool2d(spikes.flatten(0, 1), 2).unflatten(0, x.shape[:2])
        return functional.linear(x.flatten(2), *params[6:]).mean(0), spikes

    return torch_training(net, weights, x, y)


def jax_net(x: Any, y: Any, weights: list[Any]) -> Contestant:
    import jax
    import jax.numpy as jnp

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for at in (0, 3):
            kernels, gamma, beta = params[at : at + 3]
            flat = x.reshape(-1, *x.shape[2:])
            current = jax.lax.conv_general_dilated(flat, kernels, (1, 1), [(1, 1)] * 2)
            mean, var = current.mean((0, 2, 3), keepdims=True), current.var((0, 2, 3), keepdims=True)
            current = (current - mean) / jnp.sqrt(var + 1e-5) * gamma[:, None, None] + beta[:, None, None]
            spikes = jax_lif_layer(current.reshape(*x.shape[:2], *current.shape[1:]))
            window = (1, 1, 1, 2, 2)
            x = jax.lax.reduce_window(spikes, -jnp.inf, jax.lax.max, window, window, "VALID")
        features = x.reshape(*x.shape[:2], -1)
        return (features @ params[6].T + params[7]).mean(0), spikes

    return jax_training(net, weights, x, y)


def spikingjelly_net(x: Any, y: Any, weights: list[Any]) -> Contestant:
    return torch_net(x, y, weights, spikingjelly=True)


ROWS = [
    Row(
        "conv-net",
        "conv 3x3 1-32-32, BatchNorm, LIF, pooling, 28x28, T 8, batch 16, step with Adam",
        Sizes(8, 16, 28, 32),
        Sizes(3, 4, 12, 6),
        Sizes.given,
        {"snncell": snncell_net, "PyTorch": torch_net, "SpikingJelly": spikingjelly_net, "JAX": jax_net},
        2.0,
    )
]
