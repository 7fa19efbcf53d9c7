"""Networks of LIF neurons on sparse spikes, feed-forward and recurrent, with a readout: a training step with Adam."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.frameworks import (
    OTHER_EQUATIONS_REMARK,
    TORCH_LAYERS,
    SuperSpike,
    add_reference,
    jax_lif_layer,
    jax_spike,
    snncell_lif_layer,
    spikingjelly_spike,
    torch_layer,
    torch_spike,
)
from benchmarks.row import Contestant, Row
from benchmarks.training import jax_training, snncell_training, torch_training
from snncell import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Sizes of a network. `widths` are inputs, layers of neurons, classes. `recurrent` feeds spikes back to a layer."""

    steps: int
    batch: int
    widths: tuple[int, ...]
    recurrent: bool = False
    density: float = 0.02

    def arrays(self) -> tuple[Any, ...]:
        """Return spikes (T, B, inputs), classes, and weights.

        The weights are matrix and bias of each layer, followed by those of its feedback, and then of the readout.
        """
        rng = np.random.default_rng(0)
        x = (rng.random((self.steps, self.batch, self.widths[0])) < self.density).astype(np.float32)
        weights: list[Any] = []

        def draw(outputs: int, inputs: int, gain: float) -> None:
            weights.append(rng.standard_normal((outputs, inputs)) * gain / np.sqrt(inputs))
            weights.append(rng.uniform(-0.1, 0.1, outputs))

        for n, (inputs, outputs) in enumerate(pairwise(self.widths[:-1])):
            draw(outputs, inputs, 2.0 / np.sqrt(self.density) if n == 0 else 3.0)  # hidden layers fire at about 15 %
            if self.recurrent:
                draw(outputs, outputs, 1.0)
        draw(self.widths[-1], self.widths[-2], 1.0)
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

    contestant = torch_training(net, weights, x, y)
    return add_reference(kind, contestant, lambda layer: snncell_forward(x, y, weights, layer))


def jax_forward(x: Any, y: Any, weights: list[Any]) -> Contestant:
    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for n in range(len(weights) // 2 - 1):
            x = jax_lif_layer(x @ params[2 * n].T + params[2 * n + 1])
        return (x @ params[-2].T + params[-1]).mean(0), x

    return jax_training(net, weights, x, y)


# --- recurrent: LIF, and adaptive LIF (ALIF) -------------------------------------------------------------------------

# ALIF: h = 0.9 v + x, s = h > 1 + 1.8 a, v = h - s, a = 0.97 a + 0.1 s.
ALIF = {"alpha": 0.9, "beta": 1.8, "rho": 0.97, "jump": 0.1}


def snncell_recurrent(x: Any, y: Any, weights: list[Any], adaptive: bool = False) -> Contestant:
    *hidden, readout = layers = snncell_dense(weights)
    pairs = list(zip(hidden[::2], hidden[1::2], strict=True))
    spike = {"surrogate_function": SuperSpike()}
    make = functools.partial(nn.ALIFNode, **ALIF, **spike) if adaptive else functools.partial(nn.LIFNode, 2.0, **spike)
    neurons = [nn.MultiStep(nn.Recurrent(make(), feedback)) for _, feedback in pairs]

    def net(x: Tensor) -> tuple[Tensor, Tensor]:
        for (dense, _), layer in zip(pairs, neurons, strict=True):
            x = layer(dense(x))
        return readout(x).mean(0), x

    return snncell_training(net, parameters(layers), x, y)


def torch_loop(adaptive: bool) -> Callable[..., Any]:
    """Return recurrent neurons over all time steps: a function of currents, and of weight and bias of the feedback."""
    from torch.nn.functional import linear

    spike, (alpha, beta, rho, jump) = torch_spike(), ALIF.values()

    def lif(now: Any, s: Any, v: Any, w: Any, b: Any) -> Any:
        h = v + (now + linear(s, w, b) - v) / 2.0
        s = spike(h - 1.0)
        return s, s, h - s

    def alif(now: Any, s: Any, v: Any, a: Any, w: Any, b: Any) -> Any:
        h = alpha * v + (now + linear(s, w, b))
        s = spike(h - (1.0 + beta * a))
        return s, s, h - s, rho * a + jump * s

    return torch_layer(alif, 3) if adaptive else torch_layer(lif, 2)


def spikingjelly_loop(current: Any, w: Any, b: Any) -> Any:
    """SpikingJelly's ElementWiseRecurrentContainer, with a function that adds the recurrent product to the input.

    LinearRecurrentContainer does not fit, because it multiplies (x, y) by one matrix, half of which would have to stay
    the identity. The loop here runs over the slices of `unbind`, because SpikingJelly's own loop indexes the sequence,
    which has a slower backward pass.
    """
    import torch
    from spikingjelly.activation_based import layer, neuron
    from torch.nn.functional import linear

    node = neuron.LIFNode(tau=2.0, v_reset=None, surrogate_function=spikingjelly_spike(), step_mode="s")
    net = layer.ElementWiseRecurrentContainer(node, lambda y, x: x + linear(y, w, b), step_mode="s")
    return torch.stack([net(now) for now in current.unbind(0)])


def torch_recurrent(x: Any, y: Any, weights: list[Any], adaptive: bool = False, loop: Any = None) -> Contestant:
    from torch.nn.functional import linear

    loop = loop or torch_loop(adaptive)

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for n in range(0, len(params) - 2, 4):
            x = loop(linear(x, *params[n : n + 2]), *params[n + 2 : n + 4])
        return linear(x, *params[-2:]).mean(0), x

    return torch_training(net, weights, x, y)


def jax_recurrent(x: Any, y: Any, weights: list[Any], adaptive: bool = False) -> Contestant:
    import jax
    import jax.numpy as jnp

    spike, (alpha, beta, rho, jump) = jax_spike(), ALIF.values()

    def layer(current: Any, w: Any, b: Any) -> Any:
        def lif(states: Any, now: Any) -> tuple[Any, Any]:
            s, v = states
            h = v + (now + s @ w.T + b - v) / 2.0
            s = spike(h - 1.0)
            return (s, h - s), s

        def alif(states: Any, now: Any) -> tuple[Any, Any]:
            s, v, a = states
            h = alpha * v + (now + (s @ w.T + b))
            s = spike(h - (1.0 + beta * a))
            return (s, h - s, rho * a + jump * s), s

        start = jnp.zeros_like(current[0])
        return jax.lax.scan(alif, (start,) * 3, current)[1] if adaptive else jax.lax.scan(lif, (start,) * 2, current)[1]

    def net(x: Any, *params: Any) -> tuple[Any, Any]:
        for n in range(0, len(params) - 2, 4):
            w, b, *feedback = params[n : n + 4]
            x = layer(x @ w.T + b, *feedback)
        return (x @ params[-2].T + params[-1]).mean(0), x

    return jax_training(net, weights, x, y)


FORWARD: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_forward,
    **{kind: functools.partial(torch_forward, kind) for kind in TORCH_LAYERS},
    "JAX": jax_forward,
}
RECURRENT: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_recurrent,
    "PyTorch": torch_recurrent,
    "SpikingJelly": functools.partial(torch_recurrent, loop=spikingjelly_loop),
    "JAX": jax_recurrent,
}
ADAPTIVE: dict[str, Callable[..., Contestant]] = {
    "snncell": functools.partial(snncell_recurrent, adaptive=True),
    "PyTorch": functools.partial(torch_recurrent, adaptive=True),
    "JAX": functools.partial(jax_recurrent, adaptive=True),
}
ROWS = [
    Row(
        "dense",
        "700-256-256-20 LIF, T 100, batch 64, 2 % input, step with Adam",
        Sizes(100, 64, (700, 256, 256, 20)),
        Sizes(20, 8, (50, 32, 32, 5), density=0.1),
        Sizes.arrays,
        FORWARD,
        3.5,
        remark=OTHER_EQUATIONS_REMARK,
    ),
    Row(
        "recurrent",
        "recurrent 700-256-20 LIF, T 100, batch 64, 2 % input, step with Adam",
        Sizes(100, 64, (700, 256, 20), recurrent=True),
        Sizes(20, 8, (50, 32, 5), recurrent=True, density=0.1),
        Sizes.arrays,
        RECURRENT,
        3.0,
    ),
    Row(
        "alif",
        "recurrent ALIF 700-128-128-20, T 250, batch 32, 2 % input, step with Adam",
        Sizes(250, 32, (700, 128, 128, 20), recurrent=True),
        Sizes(20, 8, (50, 32, 32, 5), recurrent=True, density=0.1),
        Sizes.arrays,
        ADAPTIVE,
    ),
]
