"""Dense layers with a learned delay for each synapse (DCLS), forward and backward, on sparse spikes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import jax_vjp, snncell_vjp, torch_vjp
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Sizes of a layer, and the share of ones in its input. The input of a hidden layer has a gradient, too."""

    steps: int
    batch: int
    inputs: int
    outputs: int
    longest: int
    density: float
    hidden: bool

    def arrays(self) -> tuple[Any, ...]:
        """Return the sizes, spikes (T, B, N_in), weights and delays (N_out, N_in), and the gradient of the output."""
        rng = np.random.default_rng(0)
        x = (rng.random((self.steps, self.batch, self.inputs)) < self.density).astype(np.float32)
        w = rng.standard_normal((self.outputs, self.inputs), np.float32) / np.float32(np.sqrt(self.inputs))
        p = rng.uniform(0.0, self.longest, w.shape).astype(np.float32)
        return self, x, w, p, rng.standard_normal((self.steps, self.batch, self.outputs), np.float32)

    @property
    def width(self) -> float:
        return self.longest / 4.0


def snncell_delays(sizes: Sizes, x: Any, w: Any, p: Any, dout: Any) -> Contestant:
    layer = nn.DelayedDense(
        sizes.inputs, sizes.outputs, sizes.longest, "gaussian", sizes.width, Tensor(w), Tensor(p), has_bias=False
    ).set_train()
    constant = Tensor(x)
    net, leaves = (layer, [x]) if sizes.hidden else (lambda: layer(constant), [])
    return snncell_vjp(net, leaves, dout, [layer.weight, layer.delay], spikes=False, jitted=True)


def torch_delays(sizes: Sizes, x: Any, w: Any, p: Any, dout: Any) -> Contestant:
    """A convolution over time like in DCLS: weights and positions give the kernel."""
    import torch
    from torch.nn.functional import conv1d, pad

    earlier = torch.arange(sizes.longest, -1, -1).reshape(1, 1, -1)  # the last element of a kernel is d = 0
    constant = torch.from_numpy(x)

    def net(*leaves: Any) -> Any:
        *own, w, p = leaves
        heights = torch.exp(-0.5 * ((earlier - p[:, :, None]) / sizes.width) ** 2)
        kernel = w[:, :, None] * heights / heights.sum(2, keepdim=True)
        sequences = pad((own[0] if own else constant).permute(1, 2, 0), (sizes.longest, 0))
        return conv1d(sequences, kernel).permute(2, 0, 1)

    return torch_vjp(net, [x, w, p] if sizes.hidden else [w, p], dout, spikes=False)


def jax_delays(sizes: Sizes, x: Any, w: Any, p: Any, dout: Any) -> Contestant:
    import jax
    import jax.numpy as jnp

    earlier = np.arange(sizes.longest, -1, -1).reshape(1, 1, -1)

    def net(*leaves: Any) -> Any:
        *own, w, p = leaves
        kernel = w[:, :, None] * jax.nn.softmax(-0.5 * ((earlier - p[:, :, None]) / sizes.width) ** 2, 2)
        sequences = jnp.transpose(own[0] if own else jnp.asarray(x), (1, 2, 0))
        out = jax.lax.conv_general_dilated(
            sequences, kernel, (1,), [(sizes.longest, 0)], dimension_numbers=("NCH", "OIH", "NCH")
        )
        return jnp.transpose(out, (2, 0, 1))

    return jax_vjp(net, [x, w, p] if sizes.hidden else [w, p], dout, spikes=False)


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_delays,
    "PyTorch": torch_delays,
    "JAX": jax_delays,
}


def row(name: str, sizes: Sizes) -> Row:
    few = Sizes(20, 3, 8, 6, 9, 0.1, sizes.hidden)
    title = (
        f"delays up to {sizes.longest} steps, {sizes.inputs} to {sizes.outputs}, T {sizes.steps}, batch {sizes.batch}, "
        f"{100 * sizes.density:.0f} % input"
    )
    return Row(name, title, sizes, few, Sizes.arrays, CONTESTANTS, 5.0, "layers")


ROWS = [
    row("delays-input", Sizes(100, 32, 140, 256, 25, 0.05, hidden=False)),
    row("delays-hidden", Sizes(100, 32, 256, 256, 25, 0.05, hidden=True)),
]
