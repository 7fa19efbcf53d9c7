"""Linear layer and LIF neurons on sparse spikes: forward pass, and gradients of weights and bias."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import OTHER_EQUATIONS_REMARK, TORCH_LAYERS, add_reference, jax_lif_layer, snncell_lif_layer
from benchmarks.peers import compile_part
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn, ops


@dataclass(frozen=True)
class Sizes:
    steps: int
    batch: int
    inputs: int
    neurons: int
    density: float = 0.05

    def arrays(self) -> tuple[Any, ...]:
        """Return the input (T, B, inputs), the weights, the biases, and the gradient of the output.

        The input has spikes, or normal numbers for density 1.
        """
        rng = np.random.default_rng(0)
        draw = rng.standard_normal if self.density == 1.0 else rng.random
        x = draw((self.steps, self.batch, self.inputs), np.float32)
        if self.density < 1.0:
            x = (x < self.density).astype(np.float32)
        w = rng.standard_normal((self.neurons, self.inputs), np.float32)
        w *= np.float32(2.0 / np.sqrt(self.density * self.inputs))
        b = rng.uniform(-0.1, 0.1, self.neurons).astype(np.float32)
        return x, w, b, rng.standard_normal((self.steps, self.batch, self.neurons), np.float32)


def _label_results(out: Any, gradients: Any) -> dict[str, Any]:
    return {"spikes": out, "gradient w": gradients[0], "gradient b": gradients[1]}


def snncell_linear(x: Any, w: Any, b: Any, dout: Any, layer: Any = None) -> Contestant:
    dense, layer = nn.Dense(w.shape[1], len(w), Tensor(w), Tensor(b)), layer or snncell_lif_layer()
    inputs, seed, params = Tensor(x), Tensor(dout), [dense.weight, dense.bias]

    def both(x: Tensor, seed: Tensor) -> Any:
        # The input is a constant, like that of a first layer, so it gets no gradient.
        out, pull = ops.vjp(lambda: layer(dense(x)), weights=params)
        return out, pull(seed)[1]

    call = snncell.jit(both)
    return Contestant(lambda: _label_results(*call(inputs, seed)))


def torch_linear(kind: str, x: Any, w: Any, b: Any, dout: Any) -> Contestant:
    import torch

    params = [torch.from_numpy(each).requires_grad_() for each in (w, b)]
    inputs, seed = torch.from_numpy(x), torch.from_numpy(dout)
    layer = TORCH_LAYERS[kind]()
    net = compile_part("network", lambda: layer(torch.nn.functional.linear(inputs, *params)))

    def run() -> dict[str, Any]:
        out = net()
        return _label_results(out.detach(), torch.autograd.grad(out, params, seed))

    return add_reference(kind, Contestant(run), lambda layer: snncell_linear(x, w, b, dout, layer))


def jax_linear(x: Any, w: Any, b: Any, dout: Any) -> Contestant:
    import jax

    @jax.jit
    def both(x: Any, w: Any, b: Any, dout: Any) -> Any:
        out, pull = jax.vjp(lambda w, b: jax_lif_layer(x @ w.T + b), w, b)
        return out, pull(dout)

    arrays = [jax.device_put(each) for each in (x, w, b, dout)]
    return Contestant(lambda: _label_results(*jax.block_until_ready(both(*arrays))))


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_linear,
    **{kind: functools.partial(torch_linear, kind) for kind in TORCH_LAYERS},
    "JAX": jax_linear,
}
FEW = Sizes(20, 3, 40, 24, 0.2)


def row(name: str, title: str, sizes: Sizes, goal: float) -> Row:
    return Row(name, title, sizes, FEW, Sizes.arrays, CONTESTANTS, goal, remark=OTHER_EQUATIONS_REMARK)


def spyx_row(steps: int, neurons: int) -> Row:
    """Create a row with a size of Spyx's profile of neurons (`research/` of Spyx), which has a dense input."""
    sizes, few = Sizes(steps, 64, neurons, neurons, 1.0), replace(FEW, density=1.0)
    title = f"Linear({neurons})+LIF, T {steps}, batch 64, dense input"
    return Row(
        f"spyx-{neurons}-{steps}", title, sizes, few, Sizes.arrays, CONTESTANTS, None, "spyx", OTHER_EQUATIONS_REMARK
    )


ROWS = [
    row("linear-512", "Linear(512)+LIF, T 500, batch 16, 5 % input", Sizes(500, 16, 512, 512), 4.0),
    row("linear-4096", "Linear(4096)+LIF, T 100, batch 16, 5 % input", Sizes(100, 16, 4096, 4096), 2.5),
    *(spyx_row(steps, neurons) for neurons in (64, 256, 1024) for steps in (64, 256, 1024)),
]
