"""Single layers of convolutional networks, forward and backward: NCHW, float32, dense inputs and gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.frameworks import jax_vjp, snncell_vjp, torch_vjp
from benchmarks.row import Contestant, Row
from snncell import Parameter, Tensor, nn, ops

Arrays = tuple[Any, ...]


@dataclass(frozen=True)
class Conv:
    """A convolution with "same" padding of odd kernels."""

    batch: int
    inputs: int
    outputs: int
    side: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1

    @property
    def options(self) -> dict[str, int]:
        return {"stride": self.stride, "padding": self.kernel // 2, "groups": self.groups}

    def arrays(self) -> Arrays:
        """Return the sizes, the input, the kernels, and the gradient of the output."""
        rng = np.random.default_rng(0)
        out = (self.side + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1
        shapes = [
            (self.batch, self.inputs, self.side, self.side),
            (self.outputs, self.inputs // self.groups, self.kernel, self.kernel),
            (self.batch, self.outputs, out, out),
        ]
        x, w, dout = (rng.standard_normal(shape, np.float32) for shape in shapes)
        return self, x, w / np.float32(np.sqrt(w[0].size)), dout


def snncell_conv(sizes: Conv, x: Any, w: Any, dout: Any) -> Contestant:
    def net(x: Tensor, w: Tensor) -> Tensor:
        return ops.conv2d(x, w, pad_mode="pad", **sizes.options)

    return snncell_vjp(net, [x, w], dout, spikes=False, jitted=True)


def torch_conv(sizes: Conv, x: Any, w: Any, dout: Any) -> Contestant:
    from torch.nn.functional import conv2d

    return torch_vjp(lambda x, w: conv2d(x, w, **sizes.options), [x, w], dout, spikes=False)


def jax_conv(sizes: Conv, x: Any, w: Any, dout: Any) -> Contestant:
    import jax

    pad = sizes.options["padding"]

    def net(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (sizes.stride,) * 2, [(pad, pad)] * 2, feature_group_count=sizes.groups
        )

    return jax_vjp(net, [x, w], dout, spikes=False)


def conv_row(name: str, sizes: Conv, goal: float) -> Row:
    kind = "depthwise conv" if sizes.groups == sizes.inputs > 1 else "conv"
    more = f", stride {sizes.stride}" if sizes.stride > 1 else ""
    shape = f"{sizes.batch}, {sizes.inputs} to {sizes.outputs}, {sizes.side}x{sizes.side}"
    small = replace(sizes, batch=2, side=min(sizes.side, 9))
    contestants = {"snncell": snncell_conv, "PyTorch": torch_conv, "JAX": jax_conv}
    title = f"{kind} {sizes.kernel}x{sizes.kernel}{more} ({shape})"
    return Row(name, title, sizes, small, Conv.arrays, contestants, goal, "layers")


# --- pooling, normalisation -------------------------------------------------------------------------------------------

IMAGES, FEW = (128, 32, 28, 28), (3, 4, 6, 6)


def pool_arrays(shape: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    out = (*shape[:2], shape[2] // 2, shape[3] // 2)
    return rng.standard_normal(shape, np.float32), rng.standard_normal(out, np.float32)


def norm_arrays(shape: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    x, dout = (rng.standard_normal(shape, np.float32) for _ in range(2))
    gamma, beta = (rng.standard_normal(shape[1], np.float32) for _ in range(2))
    return x, gamma, beta, dout


def snncell_pool(pool: Callable[..., Any], x: Any, dout: Any) -> Contestant:
    return snncell_vjp(lambda x: pool(x, 2), [x], dout, spikes=False, jitted=True)


def torch_pool(name: str, x: Any, dout: Any) -> Contestant:
    import torch

    pool = getattr(torch.nn.functional, name)
    return torch_vjp(lambda x: pool(x, 2), [x], dout, spikes=False)


def jax_pool(largest: bool, x: Any, dout: Any) -> Contestant:
    import jax

    start, join, scale = (-np.inf, jax.lax.max, 1.0) if largest else (0.0, jax.lax.add, 0.25)
    window = (1, 1, 2, 2)
    return jax_vjp(
        lambda x: scale * jax.lax.reduce_window(x, start, join, window, window, "VALID"), [x], dout, spikes=False
    )


def snncell_norm(x: Any, gamma: Any, beta: Any, dout: Any) -> Contestant:
    norm = nn.BatchNorm2d(len(gamma), gamma_init=Tensor(gamma), beta_init=Tensor(beta)).set_train()
    weights: list[Parameter] = [norm.gamma, norm.beta]
    return snncell_vjp(norm, [x], dout, weights, spikes=False, jitted=True)


def torch_norm(x: Any, gamma: Any, beta: Any, dout: Any) -> Contestant:
    import torch

    mean, var = torch.zeros(len(gamma)), torch.ones(len(gamma))
    norm = torch.nn.functional.batch_norm
    return torch_vjp(
        lambda x, gamma, beta: norm(x, mean, var, gamma, beta, training=True), [x, gamma, beta], dout, spikes=False
    )


def jax_norm(x: Any, gamma: Any, beta: Any, dout: Any) -> Contestant:
    import jax.numpy as jnp

    def net(x: Any, gamma: Any, beta: Any) -> Any:
        mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * gamma[:, None, None] + beta[:, None, None]

    return jax_vjp(net, [x, gamma, beta], dout, spikes=False)


def pool_row(name: str, largest: bool, goal: float | None) -> Row:
    contestants: dict[str, Callable[..., Contestant]] = {
        "snncell": functools.partial(snncell_pool, ops.max_pool2d if largest else ops.avg_pool2d),
        "PyTorch": functools.partial(torch_pool, "max_pool2d" if largest else "avg_pool2d"),
        "JAX": functools.partial(jax_pool, largest),
    }
    title = f"{'max' if largest else 'average'} pooling 2x2 {IMAGES}"
    return Row(name, title, IMAGES, FEW, pool_arrays, contestants, goal, "layers")


ROWS = [
    conv_row("conv-first", Conv(128, 1, 32, 28), 4.0),
    conv_row("conv-32", Conv(128, 32, 32, 14), 1.0),
    conv_row("conv-rgb", Conv(128, 3, 64, 32), 4.0),
    conv_row("conv-64", Conv(64, 64, 64, 16), 1.0),
    conv_row("conv-128", Conv(32, 128, 128, 8), 1.0),
    conv_row("conv-512", Conv(16, 512, 512, 8), 1.0),
    conv_row("conv-depthwise", Conv(64, 64, 64, 16, groups=64), 1.0),
    conv_row("conv-1x1", Conv(64, 64, 128, 16, kernel=1), 1.0),
    conv_row("conv-5x5", Conv(128, 32, 32, 14, kernel=5), 1.0),
    conv_row("conv-strided", Conv(64, 64, 128, 16, stride=2), 1.0),
    pool_row("max-pool", True, 2.0),
    pool_row("average-pool", False, None),
    Row(
        "batch-norm",
        f"batch norm {IMAGES}",
        IMAGES,
        FEW,
        norm_arrays,
        {"snncell": snncell_norm, "PyTorch": torch_norm, "JAX": jax_norm},
        None,
        "layers",
    ),
]
