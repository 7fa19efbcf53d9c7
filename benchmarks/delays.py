"""Accuracy of networks with and without learned delays: `python benchmarks/delays.py --write FOLDER`.

Both networks have the same number of learned parameters. The data are synthetic words in the format of SHD
(`snncell.data.SHDLike`). Each word is an order of the same six sounds, so a network must use the times of spikes. The
settings are those of Hammouamri et al., ICLR 2024, at a smaller size: bins of 10 ms, 140 inputs, LIF neurons with a
time constant of 10 ms, dropout, and delays up to 250 ms. Delays have a 100 times larger learning rate, and their kernel
width shrinks in the first quarter of the training.
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import Tensor, nn

STEPS, CHANNELS, LONGEST, CLASSES, HIDDEN = 100, 140, 25, 20, 64
TRAINING, TEST, BATCH = 2000, 1000, 64
RATE, RATE_OF_DELAYS = 2e-3, 0.2


def words(samples: int, seed: int) -> tuple[Any, Any]:
    """Return spike counts (T, N, channels) in bins of 10 ms, each of five neighbouring channels, and the labels."""
    source = snncell.data.SHDLike(samples, seed=seed)
    x = np.zeros((STEPS, samples, CHANNELS), np.float32)
    labels = np.zeros(samples, np.int32)
    for number in range(samples):
        events, labels[number] = source[number]
        np.add.at(x[:, number], (np.minimum(events["t"] // 10_000, STEPS - 1), events["x"] // 5), 1.0)
    return x, labels


def neurons(count: int) -> list[Any]:
    """Return normalisation, LIF neurons with a time constant of one bin, and dropout."""
    lif = nn.LeakyNode(beta=float(np.exp(-1.0)), reset="zero", surrogate_function=snncell.surrogate.ATan())
    return [nn.TimeDistributed(nn.BatchNorm1d(count)), nn.MultiStep(lif), nn.TimeFixedDropout(p=0.2)]


def network(delayed: bool, hidden: int) -> Any:
    """Create two hidden layers and a readout, with or without delays."""

    def layer(inputs: int, outputs: int) -> Any:
        return nn.DelayedDense(inputs, outputs, LONGEST, width=12.5) if delayed else nn.Dense(inputs, outputs)

    cells = [layer(CHANNELS, hidden), *neurons(hidden), layer(hidden, hidden), *neurons(hidden)]
    return nn.SequentialCell(*cells, nn.Dense(hidden, CLASSES), nn.Readout("sum"))


def learned_numbers(net: Any) -> int:
    return sum(p.size for p in net.trainable_params())


def width_without_delays() -> int:
    """Return the smallest hidden width at which the network without delays has at least as many learned parameters."""
    target, hidden = learned_numbers(network(True, HIDDEN)), HIDDEN
    while learned_numbers(network(False, hidden)) < target:
        hidden += 1
    return hidden


def train(delayed: bool, hidden: int, epochs: int, seed: int, data: Any, test: Any) -> Iterator[float]:
    """Train a network; yield the test accuracy after each epoch."""
    snncell.set_seed(seed)
    net, (x, y), rng = network(delayed, hidden), data, np.random.default_rng(seed)
    layers = [cell for cell in net.cells() if isinstance(cell, nn.DelayedDense)]
    delays = [layer.delay for layer in layers]
    others = [p for p in net.trainable_params() if all(p is not one for one in delays)]
    groups: list[Any] = [{"params": others}] + ([{"params": delays, "lr": RATE_OF_DELAYS}] if delayed else [])
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(groups, RATE))
    widths = np.geomspace(LONGEST / 2, 0.5, max(epochs // 4, 2))
    for epoch in range(epochs):
        for layer in layers:
            layer.width = float(widths[min(epoch, len(widths) - 1)])
        net.set_train(True)
        for batch in np.array_split(rng.permutation(len(y)), -(-len(y) // BATCH)):
            step(Tensor(x[:, batch]), Tensor(y[batch]))
        net.set_train(False)
        yield float((net(Tensor(test[0])).asnumpy().argmax(1) == test[1]).mean())


def report(courses: dict[str, Any], numbers: dict[str, int], options: argparse.Namespace) -> str:
    lines = [
        "# Networks with and without learned delays",
        "",
        f"- command: python benchmarks/delays.py --seeds {options.seeds} --epochs {options.epochs}",
        f"- date: {datetime.date.today()}; {platform.machine()}, snncell {snncell.__version__}",
        f"- data: `snncell.data.SHDLike`, {CLASSES} words; {TRAINING} samples to train, {TEST} others to test",
        "",
        "Test accuracy in percent after the last epoch, mean +- standard deviation over the seeds.",
        "",
        "| network | learned parameters | accuracy |",
        "| --- | --- | --- |",
    ]
    for name, course in courses.items():
        last = 100.0 * course[:, -1]
        spread = f" +- {last.std(ddof=1):.1f}" if len(last) > 1 else ""
        lines.append(f"| {name} | {numbers[name]:,} | {last.mean():.1f}{spread} |")
    return "\n".join(lines) + "\n"


def draw(courses: dict[str, Any], path: Path) -> None:
    _, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    for name, course in courses.items():
        epochs = np.arange(1, course.shape[1] + 1)
        (line,) = ax.plot(epochs, course.mean(0), label=name)
        ax.fill_between(epochs, course.min(0), course.max(0), alpha=0.2, color=line.get_color(), linewidth=0)
    ax.axhline(1.0 / CLASSES, color="0.6", linestyle=":", label="chance")
    ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1), xlim=(1, course.shape[1]))
    ax.legend(loc="center right")
    ax.figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="trainings per network (3)")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--write", type=Path, help="write delays.md and delays.png to this folder")
    options = parser.parse_args()
    data, test = words(TRAINING, 1), words(TEST, 2)
    courses, numbers = {}, {}
    for name, delayed, hidden in (("learned delays", True, HIDDEN), ("no delays", False, width_without_delays())):
        numbers[name] = learned_numbers(network(delayed, hidden))
        runs = [list(train(delayed, hidden, options.epochs, seed, data, test)) for seed in range(options.seeds)]
        courses[name] = np.array(runs)
        print(f"{name}: {numbers[name]:,} learned parameters, test accuracy {courses[name][:, -1]}", flush=True)
    text = report(courses, numbers, options)
    print(text)
    if options.write is not None:
        (options.write / "delays.md").write_text(text, encoding="utf-8")
        draw(courses, options.write / "delays.png")


if __name__ == "__main__":
    main()
