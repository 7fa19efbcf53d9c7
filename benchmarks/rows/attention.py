"""A block of Spikformer, forward and backward: spiking self-attention and a two-layer spiking network, in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import snncell_vjp, torch_vjp
from benchmarks.row import Contestant, Row
from snncell import nn


@dataclass(frozen=True)
class Sizes:
    """Sizes of the block; an image has side x side tokens of `dim` features."""

    steps: int
    batch: int
    side: int
    dim: int
    heads: int

    def arrays(self) -> tuple[Any, ...]:
        """Return the sizes, spikes (T, B, N, D), weights (out, in) of the four products, and the gradient of y."""
        rng, d = np.random.default_rng(0), self.dim
        x = (rng.random((self.steps, self.batch, self.side**2, d)) < 0.2).astype(np.float32)
        weights = [
            rng.standard_normal((out, inputs), np.float32) / np.float32(np.sqrt(inputs))
            for out, inputs in ((3 * d, d), (d, d), (4 * d, d), (d, 4 * d))
        ]
        return self, x, weights, rng.standard_normal(x.shape, np.float32)


GAMMA = 3.0  # scale of the normalised currents, so that q, k and v fire often enough for attention


def snncell_block(sizes: Sizes, x: Any, weights: list[Any], dout: Any) -> Contestant:
    block = nn.SpikformerBlock(sizes.dim, sizes.heads).set_train()
    layers = [block.attention.qkv, block.attention.projection, *block.mlp.cells()]
    for layer, weight in zip(layers, weights, strict=True):
        layer.dense.weight.set_data(weight)
        layer.norm.gamma.set_data(np.full(len(weight), GAMMA, np.float32))
    return snncell_vjp(block, [x], dout, [layer.dense.weight for layer in layers], spikes=False, jitted=True)


def spikingjelly_block(sizes: Sizes, x: Any, weights: list[Any], dout: Any) -> Contestant:
    import torch
    from spikingjelly.activation_based import functional
    from spikingjelly.activation_based.model.spikformer import SpikformerBlock

    block = SpikformerBlock(sizes.dim, sizes.heads)
    pairs = block.attn.qkv_conv_bn, block.attn.proj_conv_bn, block.mlp.fc1, block.mlp.fc2
    for conv, norm in pairs:
        conv.weight.requires_grad_(False)
        torch.nn.init.constant_(norm.weight, GAMMA)
    names = [f"{name}.0.weight" for name in ("attn.qkv_conv_bn", "attn.proj_conv_bn", "mlp.fc1", "mlp.fc2")]

    def net(x: Any, *given: Any) -> Any:
        functional.reset_net(block)
        images = x.transpose(2, 3).unflatten(3, (sizes.side, sizes.side))  # (T, B, D, H, W)
        own = {name: weight[:, :, None] for name, weight in zip(names, given, strict=True)}
        return torch.func.functional_call(block, own, (images,)).flatten(3).transpose(2, 3)

    return torch_vjp(net, [x, *weights], dout, spikes=False)


ROWS = [
    Row(
        "spikformer",
        "Spikformer block, T 4, batch 16, 64 tokens of 256 features, 8 heads",
        Sizes(4, 16, 8, 256, 8),
        Sizes(4, 2, 3, 16, 2),
        Sizes.arrays,
        {"snncell": snncell_block, "SpikingJelly": spikingjelly_block},
        None,
        "nets",
    ),
]
