"""Online training through time (OTTT): a gradient at each step of a dense layer of LIF neurons, without BPTT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import SuperSpike, spikingjelly_spike
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn, ops


@dataclass(frozen=True)
class Sizes:
    """Sizes of a layer."""

    steps: int
    batch: int
    inputs: int
    outputs: int

    def arrays(self) -> tuple[Any, ...]:
        """Return spikes (T, B, I), the weight (N, I), and the gradient of the output (T, B, N)."""
        rng = np.random.default_rng(0)
        x = (rng.random((self.steps, self.batch, self.inputs)) < 0.1).astype(np.float32)
        w = rng.standard_normal((self.outputs, self.inputs), np.float32) * np.float32(2 / np.sqrt(self.inputs))
        return x, w, rng.standard_normal((self.steps, self.batch, self.outputs), np.float32)


class Layer(nn.Cell):
    """A dense layer and its neurons: one time step."""

    def __init__(self, w: Any) -> None:
        super().__init__()
        self.dense = nn.Dense(w.shape[1], w.shape[0], Tensor(w), has_bias=False)
        self.neuron = nn.LIFNode(2.0, decay_input=False, detach_reset=True, surrogate_function=SuperSpike())

    def construct(self, x: Tensor, v: Tensor) -> Any:
        return self.neuron(self.dense(x), v)

    def init_state(self, x: Tensor) -> Any:
        return ops.zeros((x.shape[0], self.dense.out_channels))


def run_online(layer: Any, x: Any, dout: Any) -> Contestant:
    weight = layer.trainable_params()[0]

    def loss(x: Tensor, dout: Tensor, *states: Tensor) -> Any:
        out, *after = layer(x, *states)
        return (out * dout).sum(), out, *after

    step = snncell.jit(snncell.grad(loss, None, weight, has_aux=True))
    inputs, seeds = list(Tensor(x)), list(Tensor(dout))

    def run() -> dict[str, Any]:
        states, spikes, total = layer.init_state(inputs[0]), [], 0.0
        states = states if isinstance(states, tuple) else (states,)
        for now, seed in zip(inputs, seeds, strict=True):
            gradient, (out, *states) = step(now, seed, *states)
            spikes.append(out)
            total = total + gradient
        return {"spikes": ops.stack(spikes), "gradient 0": total}

    return Contestant(run)


def snncell_online(x: Any, w: Any, dout: Any) -> Contestant:
    return run_online(nn.Online(Layer(w), "OTTT"), x, dout)


def snncell_layer(x: Any, w: Any, dout: Any) -> Contestant:
    settings = {"has_bias": False, "surrogate_function": SuperSpike()}
    return run_online(nn.OTTTDense(w.shape[1], w.shape[0], 0.5, weight_init=Tensor(w), **settings), x, dout)


def spikingjelly_online(x: Any, w: Any, dout: Any) -> Contestant:
    import torch
    from spikingjelly.activation_based import functional, layer, neuron

    dense = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    dense.weight.data = torch.from_numpy(w).clone()
    node = neuron.OTTTLIFNode(2.0, surrogate_function=spikingjelly_spike())
    net = layer.OTTTSequential(dense, node)
    inputs, seeds = torch.from_numpy(x).unbind(0), torch.from_numpy(dout).unbind(0)

    def run() -> dict[str, Any]:
        functional.reset_net(net)
        spikes, total, trace = [], torch.zeros_like(dense.weight), torch.zeros_like(inputs[0])
        for now, seed in zip(inputs, seeds, strict=True):
            trace = neuron.OTTTLIFNode.track_trace(now, trace, 2.0)
            out = net([now, trace])[0]
            total += torch.autograd.grad((out * seed).sum(), dense.weight)[0]
            spikes.append(out.detach())
        return {"spikes": torch.stack(spikes), "gradient 0": total}

    return Contestant(run)


CONTESTANTS = {"snncell": snncell_online, "snncell, OTTTDense": snncell_layer, "SpikingJelly": spikingjelly_online}
TITLE = "OTTT step by step: T 100, batch 32, 512-512"
REMARK = "the sum of the gradients of all steps"
ROWS = [
    Row("ottt", TITLE, Sizes(100, 32, 512, 512), Sizes(20, 4, 64, 32), Sizes.arrays, CONTESTANTS, None, "nets", REMARK)
]
