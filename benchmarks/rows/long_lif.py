"""LIF neurons over a long sequence: memory with all spikes as output, and with their counts only."""

from __future__ import annotations

from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import (
    OTHER_EQUATIONS_REMARK,
    jax_spike,
    jax_vjp,
    snncell_lif_layer,
    spikingjelly_lif_layer,
    torch_spike,
    torch_vjp,
)
from benchmarks.peers import compile_part
from benchmarks.row import Contestant, Row
from benchmarks.rows.neurons import CONTESTANTS, currents
from snncell import Tensor, ops

SHAPE, FEW = (1000, 1, 1 << 15), (40, 4, 512)


def count_arrays(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the input, and the gradient of the spike counts."""
    x, _ = currents(shape)
    return x, np.random.default_rng(3).standard_normal(shape[1:], np.float32)


def snncell_counts(x: Any, dout: Any, every: int | None = None) -> Contestant:
    layer, inputs, seed = snncell_lif_layer(every), Tensor(x), Tensor(dout)

    @snncell.jit
    def both(x: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        out, pull = ops.vjp(lambda x: layer(x).sum(0), x)
        return out, pull(dout)[0]

    return Contestant(lambda: dict(zip(("output", "gradient 0"), both(inputs, seed), strict=True)))


def snncell_checkpoints(x: Any, dout: Any) -> Contestant:
    return snncell_counts(x, dout, every=32)


def torch_counts(x: Any, dout: Any) -> Contestant:
    import torch

    spike = torch_spike()

    def step(now: Any, v: Any, counts: Any) -> Any:
        h = v + (now - v) / 2.0
        s = spike(h - 1.0)
        return h - s, counts + s

    step = compile_part("time step", step)

    def net(x: Any) -> Any:
        v, counts = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        for now in x.unbind(0):
            v, counts = step(now, v, counts)
        return counts

    return torch_vjp(net, [x], dout, spikes=False)


def spikingjelly_counts(x: Any, dout: Any) -> Contestant:
    layer = spikingjelly_lif_layer()
    return torch_vjp(lambda x: layer(x).sum(0), [x], dout, spikes=False)


def jax_counts(x: Any, dout: Any) -> Contestant:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def step(states: Any, now: Any) -> tuple[Any, None]:
        v, counts = states
        h = v + (now - v) / 2.0
        s = spike(h - 1.0)
        return (h - s, counts + s), None

    def net(x: Any) -> Any:
        start = jnp.zeros_like(x[0])
        return jax.lax.scan(step, (start, start), x)[0][1]

    return jax_vjp(net, [x], dout, spikes=False)


COUNTS = {
    "snncell": snncell_counts,
    "snncell, checkpoint_every=32": snncell_checkpoints,
    "PyTorch": torch_counts,
    "SpikingJelly": spikingjelly_counts,
    "JAX": jax_counts,
}
TITLE = "LIF, T 1000, 32768 neurons"
ROWS = [
    Row("lif-long", TITLE, SHAPE, FEW, currents, CONTESTANTS, None, "neurons", OTHER_EQUATIONS_REMARK),
    Row("lif-counted", f"{TITLE}, spikes counted", SHAPE, FEW, count_arrays, COUNTS, None, "neurons"),
]
