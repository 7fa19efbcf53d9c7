"""Convolutional networks of blocks (convolution 3x3, BatchNorm, LIF) and a readout: a training step with Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import jax_lif_layer, snncell_lif_layer, spikingjelly_lif_layer, torch_lif_layer
from benchmarks.row import Contestant, Row
from benchmarks.training import jax_training, snncell_training, torch_training
from snncell import Tensor, nn

Block = Callable[[Any], Any]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network.

    Attributes:
        layers: a number is a block with this number of channels, "pool" is max pooling 2x2, and "sew" is a SEW
            residual block: two blocks whose output is added to their input.
        density: the share of ones in the input; 1.0 is an input of normal numbers.
    """

    steps: int
    batch: int
    shape: tuple[int, int, int]  # channels, height, width
    layers: tuple[int | str, ...]
    density: float = 0.2
    classes: int = 10

    def arrays(self) -> tuple[Any, ...]:
        """Return the layers, the input (T, B, C, H, W), the classes, and the weights.

        The weights are kernels, gamma and beta of each block, then weight and bias of the readout.
        """
        rng = np.random.default_rng(0)
        shape, y = (self.steps, self.batch, *self.shape), rng.integers(0, self.classes, self.batch)
        x = rng.standard_normal(shape) if self.density == 1.0 else rng.random(shape) < self.density
        (channels, side, _), weights = self.shape, []
        for layer in self.layers:
            if layer == "pool":
                side //= 2
            for _ in range(number_of_blocks(layer)):
                outputs = channels if isinstance(layer, str) else layer
                weights.append(rng.standard_normal((outputs, channels, 3, 3)) / np.sqrt(9 * channels))
                weights += [rng.uniform(0.8, 1.6, outputs), rng.uniform(0.0, 0.5, outputs)]
                channels = outputs
        features = channels * side**2
        weights += [rng.standard_normal((self.classes, features)) / np.sqrt(features), np.zeros(self.classes)]
        return self.layers, x.astype(np.float32), y, [weight.astype(np.float32) for weight in weights]


def number_of_blocks(layer: int | str) -> int:
    return {"pool": 0, "sew": 2}.get(str(layer), 1)


def run_layers(layers: tuple[int | str, ...], x: Any, block: Block, pool: Block) -> tuple[Any, Any]:
    """Return the output of all layers and the spikes of the last block. Each call of `block` uses the next weights."""
    spikes = x
    for layer in layers:
        if layer == "pool":
            x = pool(x)
            continue
        spikes = block(x)
        if layer == "sew":
            spikes = block(spikes)
        x = x + spikes if layer == "sew" else spikes
    return x, spikes


def snncell_net(layers: tuple[int | str, ...], x: Any, y: Any, weights: list[Any]) -> Contestant:
    blocks, params = [], []
    for kernels, gamma, beta in zip(*(weights[n:-2:3] for n in range(3)), strict=True):
        conv = nn.Conv2d(kernels.shape[1], len(kernels), 3, weight_init=Tensor(kernels))
        norm = nn.BatchNorm2d(len(kernels), gamma_init=Tensor(gamma), beta_init=Tensor(beta))
        blocks.append((nn.TimeDistributed(conv), nn.TimeDistributed(norm).set_train(), snncell_lif_layer()))
        params += [conv.weight, norm.gamma, norm.beta]
    pool = nn.TimeDistributed(nn.MaxPool2d(2, 2))
    readout = nn.Dense(weights[-2].shape[1], len(weights[-2]), Tensor(weights[-2]), Tensor(weights[-1]))

    def net(x: Tensor) -> tuple[Tensor, Tensor]:
        left = iter(blocks)

        def block(x: Tensor) -> Tensor:
            conv, norm, neurons = next(left)
            return neurons(norm(conv(x)))  # type: ignore[no-any-return]

        x, spikes = run_layers(layers, x, block, pool)
        return readout(x.reshape((*x.shape[:2], -1))).mean(0), spikes

    return snncell_training(net, [*params, readout.weight, readout.bias], x, y)


def torch_net(
    layers: tuple[int | str, ...], x: Any, y: Any, weights: list[Any], spikingjelly: bool = False
) -> Contestant:
    import torch
    from torch.nn import functional

    averages = [(torch.zeros(len(gamma)), torch.ones(len(gamma))) for gamma in weights[1:-2:3]]
    neurons = [spikingjelly_lif_layer() if spikingjelly else torch_lif_layer() for _ in averages]

    def pool(x: Any) -> Any:
        return functional.max_pool2d(x.flatten(0, 1), 2).unflatten(0, x.shape[:2])

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        left = iter(range(len(neurons)))

        def block(x: Any) -> Any:
            n = next(left)
            kernels, gamma, beta = params[3 * n : 3 * n + 3]
            current = functional.conv2d(x.flatten(0, 1), kernels, padding=1)
            current = functional.batch_norm(current, *averages[n], gamma, beta, training=True)
            return neurons[n](current.unflatten(0, x.shape[:2]))

        x, spikes = run_layers(layers, x, block, pool)
        return functional.linear(x.flatten(2), *params[-2:]).mean(0), spikes

    return torch_training(net, weights, x, y)


def spikingjelly_net(layers: tuple[int | str, ...], x: Any, y: Any, weights: list[Any]) -> Contestant:
    return torch_net(layers, x, y, weights, spikingjelly=True)


def jax_net(layers: tuple[int | str, ...], x: Any, y: Any, weights: list[Any]) -> Contestant:
    import jax
    import jax.numpy as jnp

    def pool(x: Any) -> Any:
        window = (1, 1, 1, 2, 2)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        left = iter(range(0, len(params) - 2, 3))

        def block(x: Any) -> Any:
            n = next(left)
            kernels, gamma, beta = params[n : n + 3]
            current = jax.lax.conv_general_dilated(x.reshape(-1, *x.shape[2:]), kernels, (1, 1), [(1, 1)] * 2)
            mean, var = current.mean((0, 2, 3), keepdims=True), current.var((0, 2, 3), keepdims=True)
            current = (current - mean) / jnp.sqrt(var + 1e-5) * gamma[:, None, None] + beta[:, None, None]
            return jax_lif_layer(current.reshape(*x.shape[:2], *current.shape[1:]))

        x, spikes = run_layers(layers, x, block, pool)
        return (x.reshape(*x.shape[:2], -1) @ params[-2].T + params[-1]).mean(0), spikes

    return jax_training(net, weights, x, y)


def row(name: str, title: str, sizes: Sizes, few: Sizes, goal: float | None = None) -> Row:
    contestants = {"snncell": snncell_net, "PyTorch": torch_net, "SpikingJelly": spikingjelly_net, "JAX": jax_net}
    return Row(name, f"{title}, step with Adam", sizes, few, Sizes.arrays, contestants, goal)


POOL, SEW = "pool", "sew"
ROWS = [
    row(
        "conv-net",
        "conv 3x3 1-32-32, BatchNorm, LIF, pooling, 28x28, T 8, batch 16",
        Sizes(8, 16, (1, 28, 28), (32, POOL, 32, POOL)),
        Sizes(3, 4, (1, 12, 12), (6, POOL, 6, POOL)),
        2.0,
    ),
    row(
        "dvs",
        "5 x (conv 3x3 32, BatchNorm, LIF, pooling), 2x64x64, T 16, batch 4, 5 % input",
        Sizes(16, 4, (2, 64, 64), (32, POOL) * 5, 0.05, 11),
        Sizes(3, 4, (2, 16, 16), (6, POOL) * 3, 0.1, 11),
    ),
    row(
        "vgg",
        "conv 3x3 64-128p-256-256p-256p, BatchNorm, LIF, 2x48x48, T 10, batch 2, 5 % input",
        Sizes(10, 2, (2, 48, 48), (64, 128, POOL, 256, 256, POOL, 256, POOL), 0.05),
        Sizes(3, 4, (2, 8, 8), (6, 8, POOL, 8, 8, POOL, 8, POOL), 0.1),
    ),
    row(
        "sew",
        "conv 3x3 3-64, pooling, 2 SEW blocks, pooling, 2 SEW blocks, 32x32, T 4, batch 8",
        Sizes(4, 8, (3, 32, 32), (64, POOL, SEW, SEW, POOL, SEW, SEW), 1.0),
        Sizes(3, 4, (3, 8, 8), (6, POOL, SEW, POOL, SEW), 1.0),
    ),
]
