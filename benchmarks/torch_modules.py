"""CPU time of SpikingJelly and snnTorch networks with their own neurons and with `snncell.torch.fused`.

    NUMBA_NUM_THREADS=1 python benchmarks/torch_modules.py [--markdown FILE]
    NUMBA_NUM_THREADS=2 python benchmarks/torch_modules.py --threads 2

A training step is forward pass, loss, backward pass and Adam. Both networks start from the same weights, and the script
compares their spikes before it measures. It measures the CPU time of the process, not the wall time, so that other
programs on the machine count for little. The second command alternates convolutions of PyTorch with kernels of snncell,
each on two threads.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import snntorch
import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from timing import in_turns, medians, process_time, publish

import snncell
from snncell import nn
from snncell.torch import fused

Make = Callable[[], torch.nn.Module]


def convolutional(make: Make) -> torch.nn.Sequential:
    """SpikingJelly's example for Fashion-MNIST, with 32 channels instead of 128."""
    net = torch.nn.Sequential(
        *(layer.Conv2d(1, 32, 3, padding=1, bias=False), layer.BatchNorm2d(32), make(), layer.MaxPool2d(2)),
        *(layer.Conv2d(32, 32, 3, padding=1, bias=False), layer.BatchNorm2d(32), make(), layer.MaxPool2d(2)),
        *(layer.Flatten(), layer.Linear(32 * 49, 512, bias=False), make(), layer.Linear(512, 10, bias=False), make()),
    )
    functional.set_step_mode(net, "m")
    return net


WIDTHS = ((700, 256), (256, 256), (256, 20))


def dense(make: Make) -> torch.nn.Sequential:
    """Three linear layers with neurons."""
    net = torch.nn.Sequential(*(part for size in WIDTHS for part in (layer.Linear(*size), make())))
    functional.set_step_mode(net, "m")
    return net


def one_cell(make: Make) -> torch.nn.Module:
    """The network of `dense` as one Cell of snncell."""
    neurons = (nn.MultiStep(nn.LIFNode.like("spikingjelly")) for _ in WIDTHS)
    pairs = zip((nn.Dense(*size) for size in WIDTHS), neurons, strict=True)
    net = fused(nn.SequentialCell(*(part for pair in pairs for part in pair)))
    for ours, theirs in zip(net.parameters(), dense(make).parameters(), strict=True):
        ours.data.copy_(theirs.data)
    return net


class Tutorial(torch.nn.Module):
    """The network of snnTorch's tutorial 5, with its loop over 25 steps."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.fc1, self.lif1 = torch.nn.Linear(784, 1000), make()
        self.fc2, self.lif2 = torch.nn.Linear(1000, 10), make()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mem1, mem2, recorded = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for now in x:
            spk1, mem1 = self.lif1(self.fc1(now), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            recorded.append(spk2)
        return torch.stack(recorded)


def without_loop(make: Make) -> torch.nn.Sequential:
    """The network of `Tutorial` without its loop."""
    return torch.nn.Sequential(torch.nn.Linear(784, 1000), make(), torch.nn.Linear(1000, 10), make())


def integrate() -> torch.nn.Module:
    return neuron.IFNode(surrogate_function=surrogate.ATan())


def fused_integrate() -> torch.nn.Module:
    return fused(nn.IFNode.like("spikingjelly", surrogate_function=snncell.surrogate.ATan(2.0)))


def leaky() -> torch.nn.Module:
    return snntorch.Leaky(beta=0.95)


def fused_leaky(**options: Any) -> torch.nn.Module:
    return fused(nn.LIFNode.like("snntorch", beta=0.95), **options)


# Title, shape of the input, factor of the initial weights (so that all layers fire), networks with their neurons.
ROWS: list[tuple[str, tuple[int, ...], float, Any, Any]] = [
    ("SpikingJelly, convolutional, 28x28, T 4, batch 16", (4, 16, 1, 28, 28), 3.0, (convolutional, integrate),
     (convolutional, fused_integrate)),
    ("SpikingJelly, 700-256-256-20, T 100, batch 64", (100, 64, 700), 8.0, (dense, neuron.LIFNode),
     (dense, lambda: fused(nn.LIFNode.like("spikingjelly")))),
    ("the same, all layers in snncell", (100, 64, 700), 8.0, (dense, neuron.LIFNode), (one_cell, neuron.LIFNode)),
    ("snnTorch, tutorial 5, 784-1000-10, T 25, batch 128, loop kept", (25, 128, 784), 1.0, (Tutorial, leaky),
     (Tutorial, lambda: fused_leaky(over_time=False))),
    ("the same, loop removed for snncell", (25, 128, 784), 1.0, (Tutorial, leaky), (without_loop, fused_leaky)),
]  # fmt: skip


def training(net: torch.nn.Module, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a function that runs one training step and returns the spikes."""
    optimiser, y = torch.optim.Adam(net.parameters(), 1e-3), torch.arange(x.shape[1]) % 10

    def step() -> torch.Tensor:
        functional.reset_net(net)
        spikes = net(x)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(spikes.mean(0), y).backward()
        optimiser.step()
        return spikes.detach()

    return step


def measure_row(title: str, shape: tuple[int, ...], gain: float, theirs: Any, ours: Any) -> str:
    """Measure both networks of a row, and return the row of the table."""
    x = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    steps = {}
    for name, (network, make) in (("theirs", theirs), ("ours", ours)):
        torch.manual_seed(0)
        net = network(make)
        for weights in net.parameters():
            if weights.ndim > 1:
                weights.data *= gain
        steps[name] = training(net, x)
    expected, spikes = (step() for step in steps.values())
    assert float(expected.mean()) > 0.01
    different = int((expected != spikes).sum())
    seconds = medians(in_turns(steps, clock=process_time))
    times = " | ".join(f"{1e3 * value:.1f} ms" for value in seconds.values())
    return f"| {title} | {different} of {expected.numel()} | {times} | {seconds['theirs'] / seconds['ours']:.1f} |"


def alternating(threads: int) -> list[str]:
    """Time a convolution of PyTorch and a neuron of snncell, alone and in alternation."""
    convolution, neurons = torch.nn.Conv2d(16, 32, 3, padding=1), fused(nn.LIFNode())
    images, currents = torch.rand(32, 16, 28, 28), 2.0 * torch.rand(16, 64, 1024)

    def repeat(*parts: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                for _ in range(30):
                    for part in parts:
                        part()

        return run

    first, second = (lambda: convolution(images)), (lambda: neurons(currents))
    contestants = {"PyTorch alone": repeat(first), "snncell alone": repeat(second), "both": repeat(first, second)}
    lines = []
    for clock in (process_time, None):
        times = in_turns(contestants, rest=0.01, rounds=25, **({} if clock is None else {"clock": clock}))
        title = "wall time" if clock is None else "CPU time"
        lines += [f"{title}, {name}: {1e3 * value / 30:.2f}" for name, value in medians(times).items()]
    return [f"{threads} threads each, {numba.threading_layer()} and OpenMP; ms of a call", *lines]


def main() -> None:
    """Measure, then print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads > 1:
        publish(alternating(options.threads), options.markdown)
        return
    lines = ["# SpikingJelly and snnTorch networks with our neurons", ""]
    lines.append("- command: NUMBA_NUM_THREADS=1 python benchmarks/torch_modules.py --markdown FILE, on one thread")
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, PyTorch {torch.__version__}")
    peers = f"SpikingJelly {version('spikingjelly')}, snnTorch {version('snntorch')}"
    lines.append(f"- {peers}; both networks take turns, from the same weights; medians")
    lines.append("- a step is forward pass, loss, backward pass and Adam; CPU time of the process")
    lines.append("- different spikes: in the outputs of the first step")
    lines += ["", "| network | different spikes | their neurons | ours | times as fast |"]
    lines.append("|" + " --- |" * 5)
    lines += [measure_row(*row) for row in ROWS]
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
