"""Reproduce published accuracies: `python -m benchmarks.published [--only NAME ...] [--seeds N] [--write FILE]`.

Each row trains a network of a paper with its settings, once per seed, and compares the test accuracy with the published
one. The table has the spread over the seeds, the time per epoch, and a hash of the final weights of seed 0. On one
processor type and version, the same seed gives the same hash. To add a row, append a `Reproduction` to ROWS.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, nn, ops

RESULTS = Path(__file__).parent / "results" / "published.md"


@dataclass(frozen=True)
class Reproduction:
    """A published accuracy, and the training that reproduces it.

    Attributes:
        name: the name for `--only`.
        task, settings: data, split and preprocessing; network, optimiser, batch size and epochs.
        paper: the source of the settings and of the published accuracy.
        published: the published test accuracy in percent, with its spread.
        epochs: the number of epochs.
        train: train(seed) yields the test accuracy after each epoch, and at last the Parameters.
        course: published ranges after the first epochs, if there are any.
        needs: a reason why it cannot run here, or an empty text.
    """

    name: str
    task: str
    settings: str
    paper: str
    published: str
    epochs: int
    train: Callable[[int, int], Iterator[Any]]
    course: str = ""
    needs: Callable[[], str] = lambda: ""


# --- Yin-Yang ---------------------------------------------------------------------------------------------------------

YIN_YANG = "Yin-Yang: 5,000 samples of seed 42 to train, 1,000 of seed 40 to test; x, y, 1 - x, 1 - y"
KRIENER = "Kriener, Goeltz and Petrovici, The Yin-Yang dataset, NICE 2022"


def yin_yang() -> tuple[Any, Any, Any, Any]:
    """The points and labels of the training set and of the test set."""
    (x, y), (others, wanted) = snncell.data.yin_yang(5000, seed=42), snncell.data.yin_yang(1000, seed=40)
    return x.astype(np.float32), y.astype(np.int32), others.astype(np.float32), wanted.astype(np.int32)


def batches(rng: Any, count: int, size: int) -> Iterable[Any]:
    """The numbers of the samples of each batch of an epoch, shuffled."""
    return np.array_split(rng.permutation(count), -(-count // size))


def train_times(seed: int, epochs: int) -> Iterator[Any]:
    """EventProp: spike times in, first spikes out."""
    x, y, others, wanted = yin_yang()
    times, tests = (np.pad(30.0 * each, ((0, 0), (0, 1))).astype(np.float32) for each in (x, others))
    normal = snncell.common.initializer.Normal
    net = nn.SequentialCell(
        nn.EventPropLIF(5, 200, weight_init=normal(0.78, 1.5)), nn.EventPropLIF(200, 3, weight_init=normal(0.1, 0.93))
    )
    rate = nn.ExponentialDecayLR(5e-3, 0.95, -(-len(x) // 32), is_stair=True)
    adam = nn.Adam(net.trainable_params(), rate)
    step = snncell.train.training_step(net, nn.FirstSpikeLoss(), adam)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        for numbers in batches(rng, len(x), 32):
            step(Tensor(times[numbers]), Tensor(y[numbers]))
        first = net(Tensor(tests))[..., 0].asnumpy()
        yield (first.argmin(1) == wanted).mean()
    yield net.trainable_params()


def train_perceptron(hidden: int, frozen: bool = False) -> Callable[[int, int], Iterator[Any]]:
    """A network without spikes: 4 inputs, `hidden` ReLU units, 3 outputs; `frozen` keeps the lower weights."""

    def train(seed: int, epochs: int) -> Iterator[Any]:
        x, y, others, wanted = yin_yang()
        layers = [nn.Dense(4, hidden), nn.ReLU(), nn.Dense(hidden, 3)] if hidden else [nn.Dense(4, 3)]
        net = nn.SequentialCell(*layers)
        learned = layers[-1].trainable_params() if frozen else net.trainable_params()
        gradient = snncell.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, learned)
        adam = nn.Adam(learned, 0.01)

        @snncell.jit
        def step(x: Tensor, y: Tensor) -> Tensor:
            loss: Tensor
            loss, grads = gradient(x, y)
            adam(grads)
            return loss

        rng = np.random.default_rng(seed)
        for _ in range(epochs):
            for numbers in batches(rng, len(x), 20):
                step(Tensor(x[numbers]), Tensor(y[numbers]))
            yield (net(Tensor(others)).asnumpy().argmax(1) == wanted).mean()
        yield net.trainable_params()

    return train


# --- SHD with learned delays ------------------------------------------------------------------------------------------

STEPS, CHANNELS, LONGEST = 100, 140, 25  # bins of 10 ms; five neighbouring channels form one


def shd_folder() -> Path:
    """The folder with shd_train.h5 and shd_test.h5."""
    return Path(os.environ.get("SHD_FOLDER", "shd"))


def no_shd() -> str:
    """The reason why SHD cannot run here."""
    there = all((shd_folder() / f"shd_{part}.h5").exists() for part in ("train", "test"))
    return "" if there else "needs shd_train.h5 and shd_test.h5 in the folder SHD_FOLDER (zenkelab.org/datasets)"


def binned(part: str) -> tuple[Any, Any]:
    """Spike counts (N, T, channels) and labels of a file."""
    words = snncell.data.SHD(shd_folder() / f"shd_{part}.h5")
    x = np.zeros((len(words), STEPS, CHANNELS), np.float32)
    for number in range(len(words)):
        events = words[number][0]
        bins = np.minimum(events["t"] // 10_000, STEPS - 1)
        np.add.at(x[number], (bins, events["x"] // 5), 1.0)
    return x, words.labels.astype(np.int32)


def delayed_net() -> tuple[Any, list[Any]]:
    """Two hidden layers of LIF neurons, and the layers with learned delays before and after them."""
    layers = [nn.DelayedDense(n, m, LONGEST, width=12.5) for n, m in ((CHANNELS, 256), (256, 256), (256, 20))]
    cells: list[Any] = []
    for layer in layers[:2]:
        neurons = nn.LeakyNode(beta=float(np.exp(-1.0)), reset="zero")  # tau = 10 ms
        cells += [layer, nn.TimeDistributed(nn.BatchNorm1d(256)), nn.MultiStep(neurons), nn.TimeFixedDropout(0.4)]
    return nn.SequentialCell(*cells, layers[2], nn.Readout("sum")), layers


def train_delays(seed: int, epochs: int) -> Iterator[Any]:
    """Learn weights and delays; the width of the kernels shrinks in the first quarter of the training."""
    (x, y), (others, wanted) = binned("train"), binned("test")
    net, layers = delayed_net()
    delays = [layer.delay for layer in layers]
    weights = [p for p in net.trainable_params() if all(p is not one for one in delays)]
    adam = nn.Adam([{"params": weights}, {"params": delays, "lr": 0.1}], 1e-3)
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), adam)
    rng, widths = np.random.default_rng(seed), np.geomspace(12.5, 0.5, max(epochs // 4, 1))

    def over_time(x: Any) -> Tensor:
        return Tensor(np.ascontiguousarray(x.swapaxes(0, 1)))

    for epoch in range(epochs):
        for layer in layers:
            layer.width = float(widths[min(epoch, len(widths) - 1)])
        net.set_train(True)
        for numbers in batches(rng, len(x), 256):
            step(over_time(x[numbers]), Tensor(y[numbers]))
        net.set_train(False)
        parts = np.array_split(np.arange(len(others)), -(-len(others) // 256))
        answers = [net(over_time(others[part])).asnumpy().argmax(1) for part in parts]
        yield (np.concatenate(answers) == wanted).mean()
    yield net.trainable_params()


# --- the table --------------------------------------------------------------------------------------------------------

PERCEPTRON = "Adam, 0.01; batches of 20; 300 epochs"
ROWS = (
    Reproduction(
        "yin-yang-eventprop",
        f"{YIN_YANG}; as spike times in 0 to 30 ms and a bias spike at 0",
        "5-200-3 LIF, tau_mem 20 ms, tau_syn 5 ms; weights N(1.5, 0.78), N(0.93, 0.1); Adam, 5e-3, times 0.95 per "
        "epoch; batches of 32; 100 epochs; `nn.FirstSpikeLoss`",
        "Wunderlich and Pehle, Scientific Reports 11, 2021",
        "98.1 +- 0.2",
        100,
        train_times,
        "78.3-86.1, 87.4-94.0, 93.6-95.5, 93.9-95.7, 95.1-96.6, 93.5-96.8, 94.8-97.5",
    ),
    Reproduction(
        "yin-yang-relu", YIN_YANG, f"4-30-3, ReLU; {PERCEPTRON}", KRIENER, "97.6 +- 1.5", 300, train_perceptron(30)
    ),
    Reproduction(
        "yin-yang-frozen", YIN_YANG, f"4-30-3, ReLU, lower weights fixed; {PERCEPTRON}", KRIENER, "85.5 +- 5.8", 300,
        train_perceptron(30, frozen=True),
    ),
    Reproduction("yin-yang-linear", YIN_YANG, f"4-3; {PERCEPTRON}", KRIENER, "63.8 +- 1.0", 300, train_perceptron(0)),
    Reproduction(
        "shd-delays",
        "SHD: the files' split; 100 bins of 10 ms, sums of five neighbouring channels",
        "140-256-256-20 LIF, tau 10 ms, batch normalisation, learned delays to 250 ms, dropout 0.4; Adam, 1e-3, delays "
        "0.1; batches of 256; 150 epochs; width from 12.5 to 0.5 steps in the first quarter",
        "Hammouamri et al., ICLR 2024",
        "95.07 +- 0.24",
        150,
        train_delays,
        needs=no_shd,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The accuracies of a row, (seeds, epochs), the seconds per epoch, and the hash of the weights of seed 0."""

    accuracies: Any
    seconds: float
    digest: str


def reproduce(row: Reproduction, seeds: int, epochs: int | None = None) -> Outcome:
    """Train a row once per seed."""
    courses, digest, begin = [], "", time.perf_counter()
    for seed in range(seeds):
        snncell.set_seed(seed)
        *course, parameters = row.train(seed, epochs or row.epochs)
        courses.append(course)
        if not digest:
            weights = b"".join(np.ascontiguousarray(p.asnumpy()).tobytes() for p in parameters)
            digest = hashlib.sha256(weights).hexdigest()[:12]
        print(f"{row.name}, seed {seed}: {course[-1]:.1%}", flush=True)
    seconds = (time.perf_counter() - begin) / (seeds * len(courses[0]))
    return Outcome(100.0 * np.array(courses), seconds, digest)


def table(outcomes: dict[str, Outcome | str], seeds: int) -> str:
    """The report as Markdown; a text in place of an outcome is the reason why a row did not run."""
    lines = [
        "# Published accuracies, reproduced",
        "",
        f"- command: python -m benchmarks.published {' '.join(sys.argv[1:])}".rstrip(),
        f"- date: {datetime.date.today()}, {seeds} seed(s)",
        f"- processor: {platform.machine()}; Python {platform.python_version()}, snncell {snncell.__version__}, "
        f"numpy {np.__version__}",
        "",
        "Test accuracies in percent, mean +- standard deviation over the seeds, after the last epoch. The hash is that "
        "of the weights of seed 0 at the end.",
        "",
        "| row | published | here | s per epoch | hash |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        if row.name in outcomes:
            found = outcomes[row.name]
            cells = ["not run", "", ""]
            if isinstance(found, Outcome):
                last = found.accuracies[:, -1]
                spread = f" +- {last.std(ddof=1):.1f}" if len(last) > 1 else ""
                cells = [f"{last.mean():.1f}{spread}", f"{found.seconds:.2g}", f"`{found.digest}`"]
            lines.append(f"| {row.name} | {row.published} | {' | '.join(cells)} |")
    for row in ROWS:
        if row.name not in outcomes:
            continue
        lines += [
            "",
            f"## {row.name}",
            "",
            f"- data: {row.task}",
            f"- training: {row.settings}",
            f"- paper: {row.paper}",
        ]
        found = outcomes[row.name]
        if isinstance(found, str):
            lines.append(f"- not run: {found}")
        elif row.course:
            lines.append(f"- published after the first epochs: {row.course}")
            count = row.course.count(",") + 1
            ranges = [f"{one.min():.1f}-{one.max():.1f}" for one in found.accuracies[:, :count].T]
            lines.append(f"- here after the first epochs: {', '.join(ranges)}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ROWS], help="these rows only")
    parser.add_argument("--seeds", type=int, default=10, help="trainings per row (10)")
    parser.add_argument("--epochs", type=int, help="fewer epochs, to see whether everything runs")
    parser.add_argument("--write", type=Path, help=f"the file for the table; with all rows {RESULTS.name}")
    options = parser.parse_args(arguments)
    outcomes: dict[str, Outcome | str] = {}
    for row in ROWS:
        if options.only is None or row.name in options.only:
            reason = row.needs()
            outcomes[row.name] = reason or reproduce(row, options.seeds, options.epochs)
    text = table(outcomes, options.seeds)
    print(text)
    target = options.write or (RESULTS if options.only is None and options.epochs is None else None)
    if target is not None:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
