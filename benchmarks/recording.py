"""Cost of recording: training steps of a 700-256-256-20 network with and without a monitor, in turns.

    python benchmarks/recording.py [--markdown FILE]

The networks are feed-forward and recurrent, with 100 time steps, a batch of 64, and 5 % of the inputs active. The
script checks that a monitor does not change the bits of the gradients.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns, medians, publish

import snncell
from snncell import Tensor, nn

STEPS, BATCH = 100, 64
RECORDINGS: dict[str, dict[str, Any]] = {
    "spikes": {},
    "spikes and potentials": {"v": True},
    "spikes and potentials, every 10th step": {"v": True, "every": 10},
    "spikes, potentials and gradients": {"v": True, "grad": True},
}


def network(recurrent: bool) -> nn.Cell:
    """Return a network with 700 inputs, two hidden layers and 20 outputs."""
    snncell.set_seed(0)
    cells: list[nn.Cell] = []
    for inputs, outputs in ((700, 256), (256, 256), (256, 20)):
        neuron: nn.Cell = nn.LIFNode(tau=10.0, decay_input=False, v_threshold=0.5)
        if recurrent and outputs == 256:
            neuron = nn.Recurrent(neuron, nn.Dense(outputs, outputs))
        cells += [
            nn.Dense(inputs, outputs, weight_init=snncell.common.initializer.HeUniform(1.0)),
            nn.MultiStep(neuron),
        ]
    return nn.SequentialCell(*cells)


def contestants(recurrent: bool) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """Return a training step for each recording, and the firing rates of the layers."""
    net = network(recurrent)
    net.set_train()
    loss = nn.CrossEntropyLoss()
    random = np.random.default_rng(0)
    x = Tensor((random.random((STEPS, BATCH, 700)) < 0.05).astype(np.float32))
    y = Tensor(random.integers(0, 20, BATCH))
    step = snncell.jit(snncell.value_and_grad(lambda x, y: loss(net(x).mean(0), y), None, net.trainable_params()))
    steps: dict[str, Callable[[], Any]] = {"without": lambda: step(x, y)}
    expected = [g.asnumpy() for g in step(x, y)[1]]
    rates: dict[str, float] = {}
    for name, options in RECORDINGS.items():
        monitor = snncell.monitor(net, **options)

        def record(monitor: snncell.monitoring.Monitor = monitor) -> Any:
            with monitor:
                return step(x, y)

        for a, b in zip(expected, record()[1], strict=True):
            np.testing.assert_array_equal(a, b.asnumpy())
        rates = {layer: float(monitor.rates(layer).mean()) for layer in monitor.layers}
        steps[name] = record
    return steps, rates


def main() -> None:
    """Measure, then print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = ["# Cost of recording", "", "- command: python benchmarks/recording.py --markdown FILE"]
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append("- medians of training steps that take turns; gradients are equal to the bit in all rows")
    lines += ["", "| network | recorded | step | ratio |", "| --- | --- | --- | --- |"]
    for recurrent in (False, True):
        kind = "recurrent" if recurrent else "feed-forward"
        steps, rates = contestants(recurrent)
        times = medians(in_turns(steps, calls=5, rounds=25))
        for name, seconds in times.items():
            lines.append(f"| {kind} | {name} | {1e3 * seconds:.1f} ms | {seconds / times['without']:.2f} |")
        lines.append(
            f"| {kind} | spikes per neuron and step: " + ", ".join(f"{r:.3f}" for r in rates.values()) + " | | |"
        )
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
