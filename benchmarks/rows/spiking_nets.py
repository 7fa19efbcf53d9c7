"""Nets of LIF neurons on sparse spikes, feed-forward and recurrent, with a readout: a training step with Adam."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import (
    DETACHED,
    TORCH_LAYERS,
    SuperSpike,
    compared,
    jax_lif_layer,
    jax_spike,
    snncell_lif_layer,
    spikingjelly_spike,
    torch_spike,
)
from benchmarks.row import Contestant, Row
from benchmarks.training import jax_training, snncell_training, torch_training
from snncell import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Widths: inputs, layers of neurons, classes; `recurrent` has one layer, which is fed back to itself."""

    steps: int
    batch: int
    widths: tuple[int, ...]
    recurrent: bool = False
    density: float = 0.02

    def given(self) -> tuple[Any, ...]:
        """Spikes (T, B, inputs), classes, and matrices, each followed by its bias: layers, feedback, readout."""
        rng = np.random.default_rng(0)
        x = (rng.random((self.steps, self.batch, self.widths[0])) < self.density).astype(np.float32)
        pairs = list(zip(self.widths[1:], self.widths, strict=False))
        if self.recurrent:
            pairs.insert(1, (self.widths[1], self.widths[1]))
        weights: list[Any] = []
        for n, (outputs, inputs) in enumerate(pairs):
            scale = 2.0 / np.sqrt(self.density * inputs) if n == 0 else 1.0 / np.sqrt(inputs)
            scale *= 3.0 if 0 < n < len(pairs) - 1 and not self.recurrent else 1.0  # of spikes at some 15 %
            weights += [rng.standard_normal((outputs, inputs)) * scale, rng.uniform(-0.1, 0.1, outputs)]
        y = rng.integers(0, self.widths[-1], self.batch)
        return x, y, [weight.astype(np.float32) for weight in weights]


# --- feed-forward -----------------------------------------------------------------------------------------------------


def snncell_dense(weights: list[Any]) -> list[Any]:
    pairs = zip(weights[::2], weights[1::2], strict=True)
    return [nn.Dense(w.shape[1], len(w), Tensor(w), Tensor(b)) for w, b in pairs]


def parameters(layers: list[Any]) -> list[Any]:
    return [p for layer in layers for p in (layer.weight, layer.bias)]


def snncell_forward(x: Any, y: Any, weights: list[Any], layer: Any = None) -> Contestant:
    *hidden, readout = layers = snncell_dense(weights)
    neurons = [layer or snncell_lif_layer() for _ in hidden]

    def net(x: Tensor) -> tuple[Tensor, Tensor]:
        for dense, layer in zip(hidden, neurons, strict=True):
            x = layer(dense(x))
        return readout(x).mean(0), x

    return snncell_training(net, parameters(layers), x, y)


def torch_forward(kind: str, x: Any, y: Any, weights: list[Any]) -> Contestant:
    from torch.nn.functional import linear

    neurons = [TORCH_LAYERS[kind]() for _ in range(len(weights) // 2 - 1)]

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for n, layer in enumerate(neurons):
            x = layer(linear(x, *params[2 * n : 2 * n + 2]))
        return linear(x, *params[-2:]).mean(0), x

    made = torch_training(net, weights, x, y)
    return compared(kind, made, lambda layer: snncell_forward(x, y, weights, layer))


def jax_forward(x: Any, y: Any, weights: list[Any]) -> Contestant:
    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for n in range(len(weights) // 2 - 1):
            x = jax_lif_layer(x @ params[2 * n].T + params[2 * n + 1])
        return (x @ params[-2].T + params[-1]).mean(0), x

    return jax_training(net, weights, x, y)


# --- recurrent --------------------------------------------------------------------------------------------------------


def snncell_recurrent(x: Any, y: Any, weights: list[Any]) -> Contestant:
    dense, feedback, readout = layers = snncell_dense(weights)
    layer = nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=2.0, surrogate_function=SuperSpike()), feedback))

    def net(x: Tensor) -> tuple[Tensor, Tensor]:
        spikes = layer(dense(x))
        return readout(spikes).mean(0), spikes

    return snncell_training(net, parameters(layers), x, y)


def torch_recurrent(x: Any, y: Any, weights: list[Any], made: Callable[..., Any] | None = None) -> Contestant:
    import torch
    from torch.nn.functional import linear

    spike = torch_spike()

    def loop(current: Any, feedback: Callable[[Any], Any]) -> Any:
        s = v = torch.zeros_like(current[0])
        out = []
        for now in current.unbind(0):
            h = v + (now + feedback(s) - v) / 2.0
            s = spike(h - 1.0)
            v = h - s
            out.append(s)
        return torch.stack(out)

    def net(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> tuple[Any, Any]:
        spikes = (made or loop)(linear(x, w1, b1), lambda s: linear(s, w2, b2))
        return linear(spikes, w3, b3).mean(0), spikes

    return torch_training(net, weights, x, y)


def spikingjelly_loop(current: Any, feedback: Callable[[Any], Any]) -> Any:
    """Its ElementWiseRecurrentContainer, with a function that adds the recurrent product to the input.

    LinearRecurrentContainer multiplies (x, y) by one matrix of which half would have to stay the identity. Both are
    called step by step over the slices of unbind; their own loops index the sequence, whose reverse is slower.
    """
    import torch
    from spikingjelly.activation_based import layer, neuron

    node = neuron.LIFNode(tau=2.0, v_reset=None, surrogate_function=spikingjelly_spike(), step_mode="s")
    net = layer.ElementWiseRecurrentContainer(node, lambda y, x: x + feedback(y), step_mode="s")
    return torch.stack([net(now) for now in current.unbind(0)])


def spikingjelly_recurrent(x: Any, y: Any, weights: list[Any]) -> Contestant:
    return torch_recurrent(x, y, weights, spikingjelly_loop)


def jax_recurrent(x: Any, y: Any, weights: list[Any]) -> Contestant:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def net(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> tuple[Any, Any]:
        def one(states: Any, now: Any) -> tuple[Any, Any]:
            s, v = states
            h = v + (now + s @ w2.T + b2 - v) / 2.0
            s = spike(h - 1.0)
            return (s, h - s), s

        current = x @ w1.T + b1
        start = jnp.zeros_like(current[0])
        spikes = jax.lax.scan(one, (start, start), current)[1]
        return (spikes @ w3.T + b3).mean(0), spikes

    return jax_training(net, weights, x, y)


FORWARD: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_forward,
    **{kind: functools.partial(torch_forward, kind) for kind in TORCH_LAYERS},
    "JAX": jax_forward,
}
RECURRENT = {
    "snncell": snncell_recurrent,
    "PyTorch": torch_recurrent,
    "SpikingJelly": spikingjelly_recurrent,
    "JAX": jax_recurrent,
}
ROWS = [
    Row(
        "dense",
        "700-256-256-20 LIF, T 100, batch 64, 2 % input, step with Adam",
        Sizes(100, 64, (700, 256, 256, 20)),
        Sizes(20, 8, (50, 32, 32, 5), density=0.1),
        Sizes.given,
        FORWARD,
        3.5,
        remark=DETACHED,
    ),
    Row(
        "recurrent",
        "recurrent 700-256-20 LIF, T 100, batch 64, 2 % input, step with Adam",
        Sizes(100, 64, (700, 256, 20), recurrent=True),
        Sizes(20, 8, (50, 32, 5), recurrent=True, density=0.1),
        Sizes.given,
        RECURRENT,
        3.0,
    ),
]
