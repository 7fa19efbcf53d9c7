"""Neurons without other layers, forward and backward: LIF, and a custom neuron with two states and learned decay."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import (
    OTHER_EQUATIONS_REMARK,
    TORCH_LAYERS,
    SuperSpike,
    add_reference,
    jax_lif_layer,
    jax_spike,
    jax_vjp,
    snncell_lif_layer,
    snncell_vjp,
    torch_layer,
    torch_spike,
    torch_vjp,
)
from benchmarks.row import Contestant, Row
from snncell import Parameter, Tensor, nn, ops

SHAPE, FEW = (64, 64, 4096), (40, 4, 512)  # (T, B, N)


def currents(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the input and the gradient of the output."""
    rng = np.random.default_rng(0)
    x, dout = rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)
    x *= 1.5
    x += 0.5
    return x, dout


def with_time_constants(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    return *currents(shape), np.random.default_rng(2).uniform(-1.0, 3.0, shape[-1]).astype(np.float32)


def snncell_lif(x: Any, dout: Any, every: int | None = None) -> Contestant:
    return snncell_vjp(snncell_lif_layer(every), [x], dout)


def torch_lif(kind: str, x: Any, dout: Any) -> Contestant:
    contestant = torch_vjp(TORCH_LAYERS[kind](), [x], dout)
    return add_reference(kind, contestant, lambda layer: snncell_vjp(layer, [x], dout))


def jax_lif(x: Any, dout: Any) -> Contestant:
    return jax_vjp(jax_lif_layer, [x], dout)


class Adaptive(nn.Cell):
    """A neuron whose threshold rises with each spike, with a learned time constant for each neuron."""

    def __init__(self, w: Any) -> None:
        super().__init__()
        self.w = Parameter(Tensor(w))
        self.spike = SuperSpike()

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = ops.sigmoid(self.w) * v + x
        s = self.spike(h - 1.0 - a)
        return s, h - s * (1.0 + a), 0.95 * a + 0.1 * s


def snncell_adaptive(x: Any, dout: Any, w: Any) -> Contestant:
    neuron = Adaptive(w)
    return snncell_vjp(nn.MultiStep(neuron), [x], dout, neuron.w)


def torch_adaptive(x: Any, dout: Any, w: Any) -> Contestant:
    import torch

    spike = torch_spike()

    def step(now: Any, v: Any, a: Any, decay: Any) -> Any:
        h = decay * v + now
        s = spike(h - 1.0 - a)
        return s, h - s * (1.0 + a), 0.95 * a + 0.1 * s

    layer = torch_layer(step, 2)
    return torch_vjp(lambda x, w: layer(x, torch.sigmoid(w)), [x, w], dout)


def jax_adaptive(x: Any, dout: Any, w: Any) -> Contestant:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def net(x: Any, w: Any) -> Any:
        decay = jax.nn.sigmoid(w)

        def step(states: Any, now: Any) -> tuple[Any, Any]:
            v, a = states
            h = decay * v + now
            s = spike(h - 1.0 - a)
            return (h - s * (1.0 + a), 0.95 * a + 0.1 * s), s

        start = jnp.zeros_like(x[0])
        return jax.lax.scan(step, (start, start), x)[1]

    return jax_vjp(net, [x, w], dout)


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_lif,
    "snncell, checkpoint_every=32": functools.partial(snncell_lif, every=32),
    **{kind: functools.partial(torch_lif, kind) for kind in TORCH_LAYERS},
    "JAX": jax_lif,
}
ROWS = [
    Row(
        "lif",
        "LIF alone, T 64, 2^18 neurons",
        SHAPE,
        FEW,
        currents,
        CONTESTANTS,
        5.0,
        "neurons",
        OTHER_EQUATIONS_REMARK,
    ),
    Row(
        "adaptive",
        "custom adaptive neuron, T 64, 2^18 neurons",
        SHAPE,
        FEW,
        with_time_constants,
        {"snncell": snncell_adaptive, "PyTorch": torch_adaptive, "JAX": jax_adaptive},
        None,
        "neurons",
        remark="SpikingJelly runs the operations of the PyTorch loop for a custom neuron",
    ),
]
