"""A linear recurrence with learned complex eigenvalues over a long sequence, as in an LRU: loops and parallel scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import jax_vjp, snncell_vjp, torch_vjp
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


CONTESTANTS = {
    "snncell": snncell_loop,
    "snncell, checkpoint_every=128": snncell_checkpoints,
    "snncell, associative_scan": snncell_parallel,
    "PyTorch": torch_loop,
    "JAX": jax_loop,
    "JAX, associative_scan": jax_parallel,
}
TITLE = "complex linear recurrence, T 16384, batch 4, 64 states"
ROWS = [Row("lru", TITLE, SHAPE, FEW, arrays, CONTESTANTS, None, "neurons")]
