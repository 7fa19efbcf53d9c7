"""A Spikformer block, a conductance-based LIF neuron and a convolutional LSTM, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.frameworks import snncell_vjp, torch_layer, torch_spike, torch_vjp
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn, surrogate

# --- Spikformer, in training ------------------------------------------------------------------------------------------


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


# --- conductance-based LIF --------------------------------------------------------------------------------------------

COBA: dict[str, Any] = {"tau": 4.0, "alpha_e": 0.8, "alpha_i": 0.9, "e_exc": 6.0, "e_inh": -2.0}  # Norse's equations


def currents(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the input (T, B, N) and the gradient of the output."""
    rng = np.random.default_rng(0)
    return rng.normal(0.03, 0.2, shape).astype(np.float32), rng.standard_normal(shape, np.float32)


def snncell_coba(x: Any, dout: Any) -> Contestant:
    neuron = nn.CobaLIFNode(
        **COBA, scheme="euler", order="jump decay read", surrogate_function=surrogate.SuperSpike(1.0)
    )
    return snncell_vjp(nn.MultiStep(neuron), [x], dout)


def torch_coba(x: Any, dout: Any) -> Contestant:
    import torch

    spike = torch_spike(1.0)

    def step(now: Any, v: Any, g_e: Any, g_i: Any) -> Any:
        g_e, g_i = COBA["alpha_e"] * (g_e + torch.relu(now)), COBA["alpha_i"] * (g_i + torch.relu(-now))
        h = v + (COBA["e_exc"] * g_e + COBA["e_inh"] * g_i - (1.0 + g_e + g_i) * v) / COBA["tau"]
        s = spike(h - 1.0)
        return s, h * (1.0 - s), g_e, g_i

    return torch_vjp(torch_layer(step, 3), [x], dout)


def norse_coba(x: Any, dout: Any) -> Contestant:
    import torch
    from norse.torch.functional.coba_lif import (
        CobaLIFFeedForwardState,
        CobaLIFParameters,
        coba_lif_feed_forward_step,
    )

    numbers = {
        "tau_syn_exc_inv": 1.0 - COBA["alpha_e"], "tau_syn_inh_inv": 1.0 - COBA["alpha_i"], "g_l": 1.0,
        "c_m_inv": 1.0 / COBA["tau"], "e_rev_E": COBA["e_exc"], "e_rev_I": COBA["e_inh"], "v_rest": 0.0,
        "v_reset": 0.0, "v_thresh": 1.0,
    }  # fmt: skip
    p = CobaLIFParameters(**{name: torch.tensor(value) for name, value in numbers.items()}, method="super")

    def net(x: Any) -> Any:
        state, out = CobaLIFFeedForwardState(*[torch.zeros_like(x[0])] * 3), []
        for now in x.unbind(0):
            s, state = coba_lif_feed_forward_step(now, state, p, dt=1.0)
            out.append(s)
        return torch.stack(out)

    return torch_vjp(net, [x], dout)


# --- ConvLSTM ---------------------------------------------------------------------------------------------------------


def videos(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return frames (T, B, C, H, W), 5 x 5 kernels (4 O, C, ...) and (4 O, O, ...), biases, and the gradient of h."""
    rng, (steps, batch, channels, *size) = np.random.default_rng(0), shape
    x, dout = (rng.standard_normal((steps, batch, c, *size), np.float32) for c in (channels, CHANNELS))
    of_x, of_h = (0.1 * rng.standard_normal((4 * CHANNELS, c, 5, 5), np.float32) for c in (channels, CHANNELS))
    return x, of_x, of_h, rng.standard_normal(4 * CHANNELS, np.float32), dout


CHANNELS = 16  # of the states


def snncell_conv_lstm(x: Any, of_x: Any, of_h: Any, bias: Any, dout: Any) -> Contestant:
    cell = nn.ConvLSTMCell(x.shape[2], CHANNELS, 5)
    for parameter, value in zip(cell.trainable_params(), (of_x, bias, of_h), strict=True):
        parameter.set_data(Tensor(value))
    return snncell_vjp(nn.MultiStep(cell), [x], dout, cell.of_h.weight, spikes=False, jitted=True)


def snntorch_conv_lstm(x: Any, of_x: Any, of_h: Any, bias: Any, dout: Any) -> Contestant:
    import snntorch
    import torch

    cell = snntorch.SConv2dLSTM(x.shape[2], CHANNELS, 5)
    i, f, g, o = np.split(np.arange(4 * CHANNELS), 4)
    order = np.concatenate([i, f, o, g])
    cell.conv.bias = torch.nn.Parameter(torch.from_numpy(bias[order]), requires_grad=False)
    inputs, own_order = torch.from_numpy(of_x), torch.from_numpy(order)

    def net(x: Any, of_h: Any) -> Any:
        del cell.conv.weight
        cell.conv.weight = torch.cat([inputs, of_h], 1)[own_order]
        syn = mem = torch.zeros_like(x[0, :, :1]).expand(-1, CHANNELS, -1, -1)
        out = []
        for now in x.unbind(0):
            _, syn, mem = cell(now, syn, mem)
            out.append(mem)
        return torch.stack(out)

    return torch_vjp(net, [x, of_h], dout, spikes=False)


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
    Row(
        "coba-lif",
        "conductance-based LIF alone, T 64, 2^18 neurons",
        (64, 64, 4096),
        (40, 4, 512),
        currents,
        {"snncell": snncell_coba, "PyTorch": torch_coba, "Norse": norse_coba},
        None,
        "neurons",
    ),
    Row(
        "conv-lstm",
        "ConvLSTM 5x5, T 16, batch 8, 2 to 16 channels, 32x32",
        (16, 8, 2, 32, 32),
        (4, 2, 2, 6, 6),
        videos,
        {"snncell": snncell_conv_lstm, "snnTorch": snntorch_conv_lstm},
        None,
        "nets",
    ),
]
