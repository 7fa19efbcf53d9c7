"""Long sequences: a linear recurrence with learned complex eigenvalues, as in an LRU, and sliding PSN."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import (
    SuperSpike,
    jax_vjp,
    snncell_vjp,
    spikingjelly_spike,
    torch_spike,
    torch_vjp,
)
from benchmarks.peers import compile_part
from benchmarks.row import Contestant, Row
from snncell import Parameter, Tensor, nn, ops

SHAPE, FEW = (16384, 4, 64), (40, 3, 8)  # (T, B, N)


def arrays(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return x, the gradient of the output, and nu and theta with lambda = exp(-exp(nu) + i exp(theta))."""
    rng = np.random.default_rng(0)
    x, dout = rng.standard_normal(shape, np.float32), rng.standard_normal(shape, np.float32)
    nu, theta = rng.uniform(-7.0, -2.0, shape[-1]), rng.uniform(-4.0, 1.0, shape[-1])
    return x, dout, nu.astype(np.float32), theta.astype(np.float32)


class Oscillators(nn.Cell):
    """h[t] = lambda h[t-1] + x[t], y[t] = Re(h[t]), with pairs of real states."""

    def __init__(self, nu: Any, theta: Any) -> None:
        super().__init__()
        self.nu, self.theta = Parameter(Tensor(nu)), Parameter(Tensor(theta))

    def eigenvalues(self) -> tuple[Tensor, Tensor]:
        size, phase = ops.exp(-ops.exp(self.nu)), ops.exp(self.theta)
        return size * ops.cos(phase), size * ops.sin(phase)

    def construct(self, x: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = self.eigenvalues()
        re, im = a * re - b * im + x, a * im + b * re
        return re, re, im


def snncell_loop(x: Any, dout: Any, nu: Any, theta: Any, every: int | None = None) -> Contestant:
    cell = Oscillators(nu, theta)
    net = nn.MultiStep(cell, checkpoint_every=every)
    return snncell_vjp(net, [x], dout, [cell.nu, cell.theta], spikes=False, jitted=True)


def snncell_checkpoints(*arrays: Any) -> Contestant:
    return snncell_loop(*arrays, every=128)


def snncell_parallel(x: Any, dout: Any, nu: Any, theta: Any) -> Contestant:
    cell = Oscillators(nu, theta)

    def combine(p: tuple[Tensor, ...], q: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The step h -> a h + b of p, then that of q; complex numbers as real and imaginary parts."""
        (a, b, c, d), (e, f, g, h) = p, q
        return a * e - b * f, a * f + b * e, e * c - f * d + g, e * d + f * c + h

    def net(x: Tensor) -> Tensor:
        a, b = (part + ops.zeros_like(x) for part in cell.eigenvalues())
        re: Tensor = ops.associative_scan(combine, (a, b, x, ops.zeros_like(x)))[2]
        return re

    return snncell_vjp(net, [x], dout, [cell.nu, cell.theta], spikes=False, jitted=True)


def torch_loop(x: Any, dout: Any, nu: Any, theta: Any) -> Contestant:
    """A loop with pairs of real states, because `torch.compile` generates no code for complex numbers."""
    import torch

    def step(now: Any, re: Any, im: Any, a: Any, b: Any) -> Any:
        return a * re - b * im + now, a * im + b * re

    step = compile_part("time step", step)

    def net(x: Any, nu: Any, theta: Any) -> Any:
        size, phase = torch.exp(-torch.exp(nu)), torch.exp(theta)
        a, b = size * torch.cos(phase), size * torch.sin(phase)
        re, im, out = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
        for now in x.unbind(0):
            re, im = step(now, re, im, a, b)
            out.append(re)
        return torch.stack(out)

    return torch_vjp(net, [x, nu, theta], dout, spikes=False)


def jax_loop(x: Any, dout: Any, nu: Any, theta: Any, parallel: bool = False) -> Contestant:
    import jax
    import jax.numpy as jnp

    def net(x: Any, nu: Any, theta: Any) -> Any:
        poles, drive = jnp.exp(-jnp.exp(nu) + 1j * jnp.exp(theta)), x.astype(jnp.complex64)
        if parallel:
            pairs = jnp.broadcast_to(poles, drive.shape), drive
            return jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), pairs)[1].real

        def step(h: Any, now: Any) -> tuple[Any, Any]:
            h = poles * h + now
            return h, h.real

        return jax.lax.scan(step, jnp.zeros_like(drive[0]), drive)[1]

    return jax_vjp(net, [x, nu, theta], dout, spikes=False)


def jax_parallel(*arrays: Any) -> Contestant:
    return jax_loop(*arrays, parallel=True)


# --- sliding parallel spiking neurons ---------------------------------------------------------------------------------

PSN_SHAPE, PSN_FEW, ORDER = (512, 8, 256), (200, 3, 8), 32  # (T, B, N)


def psn_arrays(shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return x, the gradient of the spikes, and the weights of the last steps, the present one last."""
    rng = np.random.default_rng(0)
    x, dout = rng.standard_normal(shape, np.float32) + np.float32(0.5), rng.standard_normal(shape, np.float32)
    return x, dout, rng.uniform(-0.5, 0.7, ORDER).astype(np.float32)


def snncell_psn(x: Any, dout: Any, w: Any) -> Contestant:
    layer = nn.SlidingPSN(ORDER, surrogate_function=SuperSpike())
    layer.weight.set_data(Tensor(w))
    return snncell_vjp(layer, [x], dout, [layer.weight, layer.bias], jitted=True)


def spikingjelly_psn(x: Any, dout: Any, w: Any) -> Contestant:
    from spikingjelly.activation_based import neuron

    layer = neuron.SlidingPSN(ORDER, surrogate_function=spikingjelly_spike(), step_mode="m")
    del layer.weight, layer.bias

    def net(x: Any, w: Any, bias: Any) -> Any:
        layer.weight, layer.bias = w, bias
        return layer(x)

    return torch_vjp(net, [x, w, np.full((), -1.0, np.float32)], dout)


def torch_psn(x: Any, dout: Any, w: Any) -> Contestant:
    """A causal convolution over time, the fastest form for a user of PyTorch."""
    from torch.nn.functional import conv1d, pad

    spike = torch_spike()

    def net(x: Any, w: Any, bias: Any) -> Any:
        rows = pad(x.permute(1, 2, 0).reshape(-1, 1, len(x)), (ORDER - 1, 0))
        h = conv1d(rows, w[None, None]).reshape(*x.shape[1:], -1).permute(2, 0, 1)
        return spike(h + bias)

    return torch_vjp(net, [x, w, np.full((), -1.0, np.float32)], dout)


CONTESTANTS = {
    "snncell": snncell_loop,
    "snncell, checkpoint_every=128": snncell_checkpoints,
    "snncell, associative_scan": snncell_parallel,
    "PyTorch": torch_loop,
    "JAX": jax_loop,
    "JAX, associative_scan": jax_parallel,
}
PSN = {"snncell": snncell_psn, "PyTorch": torch_psn, "SpikingJelly": spikingjelly_psn}
TITLE, PSN_TITLE = (
    "complex linear recurrence, T 16384, batch 4, 64 states",
    "sliding PSN of 32 steps, T 512, 2048 neurons",
)
ROWS = [
    Row("lru", TITLE, SHAPE, FEW, arrays, CONTESTANTS, None, "neurons"),
    Row("sliding-psn", PSN_TITLE, PSN_SHAPE, PSN_FEW, psn_arrays, PSN, None, "layers"),
]
