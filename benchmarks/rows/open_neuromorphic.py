"""Settings of the Open Neuromorphic benchmark: Linear(n, n) and LIF, batch 16, T 500, forward and backward separately.

The input is dense: uniform numbers. All contestants have the neuron, surrogate and weights of our linear rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import OTHER_EQUATIONS_REMARK, TORCH_LAYERS, add_reference, jax_lif_layer, snncell_lif_layer
from benchmarks.peers import compile_part
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn, ops


@dataclass(frozen=True)
class Sizes:
    neurons: int
    steps: int = 500
    batch: int = 16

    def arrays(self) -> tuple[Any, ...]:
        """Return the input (T, B, n), the weights (n, n), the biases, and the gradient of the output spikes."""
        rng = np.random.default_rng(0)
        x = rng.random((self.steps, self.batch, self.neurons), np.float32)
        w = rng.standard_normal((self.neurons, self.neurons), np.float32)
        w *= np.float32(3.0 / np.sqrt(self.neurons))
        b = rng.uniform(-0.1, 0.1, self.neurons).astype(np.float32)
        return x, w, b, rng.standard_normal(x.shape, np.float32)


def _split(backward: bool, forward: Any, back: Any) -> Contestant:
    """Measure only the forward pass, or only the backward pass. The results of both are compared."""

    def results() -> dict[str, Any]:
        state = forward()
        gradients = back(state)
        return {"spikes": state[0], "gradient w": gradients[0], "gradient b": gradients[1]}

    return Contestant(back, results, forward) if backward else Contestant(forward, results)


def snncell_split(backward: bool, x: Any, w: Any, b: Any, dout: Any, layer: Any = None) -> Contestant:
    dense, layer = nn.Dense(w.shape[1], len(w), Tensor(w), Tensor(b)), layer or snncell_lif_layer()
    inputs, seed, params = Tensor(x), Tensor(dout), [dense.weight, dense.bias]
    return _split(
        backward,
        lambda: ops.vjp(lambda: layer(dense(inputs)), weights=params),
        lambda state: state[1](seed)[1],
    )


def torch_split(kind: str, backward: bool, x: Any, w: Any, b: Any, dout: Any) -> Contestant:
    import torch

    params = [torch.from_numpy(each).requires_grad_() for each in (w, b)]
    inputs, seed = torch.from_numpy(x), torch.from_numpy(dout)
    layer = TORCH_LAYERS[kind]()
    net = compile_part("network", lambda: layer(torch.nn.functional.linear(inputs, *params)))

    def forward() -> Any:
        out = net()
        return out.detach(), out

    contestant = _split(backward, forward, lambda state: torch.autograd.grad(state[1], params, seed))
    return add_reference(kind, contestant, lambda layer: snncell_split(backward, x, w, b, dout, layer))


def jax_split(backward: bool, x: Any, w: Any, b: Any, dout: Any) -> Contestant:
    import jax

    @jax.jit
    def net(w: Any, b: Any, x: Any) -> Any:
        return jax_lif_layer(x @ w.T + b)

    *params, inputs = (jax.device_put(each) for each in (w, b, x))
    seed = jax.device_put(dout)

    def forward() -> Any:
        out, pull = jax.vjp(lambda w, b: net(w, b, inputs), *params)
        return jax.block_until_ready(out), pull

    return _split(backward, forward, lambda state: jax.block_until_ready(state[1](seed)))


CONTESTANTS = {
    backward: {
        "snncell": functools.partial(snncell_split, backward),
        **{kind: functools.partial(torch_split, kind, backward) for kind in TORCH_LAYERS},
        "JAX": functools.partial(jax_split, backward),
    }
    for backward in (False, True)
}


def row(neurons: int, backward: bool) -> Row:
    way = "backward" if backward else "forward"
    title = f"Linear({neurons})+LIF, T 500, batch 16, dense input, {way}"
    few = Sizes(12, 10, 3)
    group = "onm" if neurons <= 2048 else "onm-large"  # a large row takes minutes per call, and many gigabytes
    return Row(
        f"onm-{neurons}-{way}",
        title,
        Sizes(neurons),
        few,
        Sizes.arrays,
        CONTESTANTS[backward],
        None,
        group,
        OTHER_EQUATIONS_REMARK,
    )


ROWS = [row(neurons, backward) for neurons in (512, 1024, 2048, 4096, 8192, 16384) for backward in (False, True)]
