"""Reproduce published results: `python -m benchmarks.published [--only NAME ...] [--seeds N] [--write FILE]`.

Each row trains a network of a paper with its settings, once per seed, and compares the test accuracy with the published
one. The table has the spread over the seeds, the time per epoch, and a hash of the final weights of seed 0. The same
seed gives the same hash on the same processor type with the same version. To add a row, append a `Reproduction` to
ROWS.

`nir-lif` trains nothing: it runs one neuron and compares its voltage with other simulators (`nir_lif.py`).
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
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
from benchmarks import nir_lif
from snncell import Tensor, nn, ops

RESULTS = Path(__file__).parent / "results" / "published.md"


@dataclass(frozen=True)
class Reproduction:
    """A published result, and the training that reproduces it.

    Attributes:
        name: the name for `--only`.
        task, settings: data, split and preprocessing; network, optimiser, batch size and epochs.
        paper: the source of the settings and of the published result.
        published: the published result in percent, with its spread.
        epochs: the number of epochs.
        train: train(seed, epochs) yields the result after each epoch as a share of 1, then the Parameters.
        course: published ranges after the first epochs, if there are any.
        measure: the meaning of the result.
        needs: a function that returns the reason why the row cannot run here, or an empty text.
        details: a function that returns more lines for the section of the row.
    """

    name: str
    task: str
    settings: str
    paper: str
    published: str
    epochs: int
    train: Callable[[int, int], Iterator[Any]]
    course: str = ""
    measure: str = "test accuracy in percent"
    needs: Callable[[], str] = lambda: ""
    details: Callable[[], list[str]] = list


# --- Yin-Yang ---------------------------------------------------------------------------------------------------------

YIN_YANG = "Yin-Yang: 5,000 samples of seed 42 to train, 1,000 of seed 40 to test; x, y, 1 - x, 1 - y"
KRIENER = "Kriener, Goeltz and Petrovici, The Yin-Yang dataset, NICE 2022"


def yin_yang() -> tuple[Any, ...]:
    """Return points and labels of the training set, then of the test set."""
    sets = snncell.data.yin_yang(5000, seed=42), snncell.data.yin_yang(1000, seed=40)
    return tuple(array for x, y in sets for array in (x.astype(np.float32), y.astype(np.int32)))


def batches(rng: Any, count: int, size: int) -> Iterable[Any]:
    """Return the sample numbers of each batch of an epoch, shuffled."""
    return np.array_split(rng.permutation(count), -(-count // size))


def train_times(seed: int, epochs: int) -> Iterator[Any]:
    """Train by EventProp from spike times to first spikes."""
    x, y, test_x, test_y = yin_yang()
    times, test_times = (np.pad(30.0 * each, ((0, 0), (0, 1))).astype(np.float32) for each in (x, test_x))
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
        first = net(Tensor(test_times))[..., 0].asnumpy()
        yield (first.argmin(1) == test_y).mean()
    yield net.trainable_params()


def train_perceptron(hidden: int, frozen: bool = False) -> Callable[[int, int], Iterator[Any]]:
    """Return a training function of a 4-`hidden`-3 network with ReLU. `frozen` keeps the weights of the first layer."""

    def train(seed: int, epochs: int) -> Iterator[Any]:
        x, y, test_x, test_y = yin_yang()
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
            yield (net(Tensor(test_x)).asnumpy().argmax(1) == test_y).mean()
        yield net.trainable_params()

    return train


# --- spoken words with learned delays ---------------------------------------------------------------------------------

HAMMOUAMRI = "Hammouamri, Khalfaoui-Hassani and Masquelier, Learning delays, ICLR 2024; settings of their repository"


def blend(begin: float, end: float, p: Any) -> Any:
    """Return half a cosine from `begin` at p = 0 to `end` at p = 1."""
    return begin + (end - begin) * (1.0 - np.cos(np.pi * p)) / 2.0


def one_cycle(highest: float, epochs: int) -> Any:
    """Return the learning rate of each epoch: up from highest / 25 for 30 % of the training, then down to almost 0."""
    epoch, top = np.arange(epochs), 0.3 * epochs - 1.0
    up = blend(highest / 25.0, highest, epoch / top)
    down = blend(highest, highest / 250_000.0, (epoch - top) / (epochs - 1.0 - top))
    return np.where(epoch < top, up, down)


@dataclass(frozen=True)
class Words:
    """Data set of spoken words, SHD or SSC, and the network of the paper. A step is a bin of 10 ms.

    Attributes:
        name: "shd" or "ssc", the prefix of the file names. You set their folder by the variable NAME_FOLDER.
        steps: the number of bins; later spikes are dropped.
        classes: the number of words.
        hidden: the number of neurons of each hidden layer.
        tau: the time constant of the neurons, in steps.
        longest: the largest delay, in steps.
        dropout: the share of hidden neurons that training drops.
        batch: the batch size.
        channels: the number of inputs, each the sum of five neighbouring channels.
    """

    name: str
    steps: int
    classes: int
    hidden: tuple[int, ...]
    tau: float
    longest: int
    dropout: float
    batch: int
    channels: int = 140

    def file(self, part: str) -> Path:
        return Path(os.environ.get(f"{self.name.upper()}_FOLDER", self.name)) / f"{self.name}_{part}.h5"

    def missing(self) -> str:
        """Return the reason why the row cannot run here, or an empty text."""
        files = [self.file(part) for part in ("train", "test")]
        names = " and ".join(file.name for file in files)
        absent = f"needs {names} in the folder {self.name.upper()}_FOLDER (zenkelab.org/datasets)"
        return "" if all(file.exists() for file in files) else absent

    def load(self, part: str) -> tuple[Any, Any]:
        """Return spike counts (N, T, channels), up to 255, and labels of the part "train" or "test"."""
        words = snncell.data.SHD(self.file(part))
        x = np.zeros((len(words), self.steps, self.channels), np.uint8)
        for number in range(len(words)):
            events = words[number][0]
            bins = events["t"] // 10_000 * self.channels + events["x"] // 5
            counts = np.bincount(bins[bins < x[number].size], minlength=x[number].size)
            x[number] = np.minimum(counts, 255).reshape(self.steps, self.channels)
        return x, words.labels.astype(np.int32)

    def net(self) -> tuple[Any, list[Any]]:
        """Return the network, which sums the probabilities of all steps, and its layers with delays."""
        widths, init = (self.channels, *self.hidden, self.classes), snncell.common.initializer.HeUniform()
        layers = [
            nn.DelayedDense(n, m, self.longest, weight_init=init, has_bias=False) for n, m in itertools.pairwise(widths)
        ]
        cells: list[Any] = []
        for layer, width in zip(layers, self.hidden, strict=False):
            spike = snncell.surrogate.ATan(5.0)
            lif = nn.LIFNode(self.tau, decay_input=False, reset="zero", detach_reset=True, surrogate_function=spike)
            cells += [layer, nn.TimeDistributed(nn.BatchNorm1d(width)), nn.MultiStep(lif)]
            cells.append(nn.TimeFixedDropout(self.dropout))
        readout = nn.MultiStep(nn.LINode(self.tau, decay_input=False))
        return nn.SequentialCell(*cells, layers[-1], readout, nn.Softmax(), nn.Readout("sum")), layers

    def train(self, seed: int, epochs: int) -> Iterator[Any]:
        """Learn weights and delays. The width of the kernels shrinks in the first quarter of the training."""
        (x, y), (test_x, test_y) = self.load("train"), self.load("test")
        net, layers = self.net()
        delays, weights = [layer.delay for layer in layers], [layer.weight for layer in layers]
        norms = [p for cell in net.cells() if isinstance(cell, nn.TimeDistributed) for p in cell.trainable_params()]
        per_epoch = -(-len(x) // self.batch)
        rates = one_cycle(5e-3, epochs).repeat(per_epoch).tolist()
        groups = [
            {"params": weights, "lr": rates, "weight_decay": 1e-5},
            {"params": norms, "lr": rates},
            {"params": delays, "lr": blend(0.1, 0.0, np.arange(epochs) / epochs).repeat(per_epoch).tolist()},
        ]
        step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(groups))
        rng, widths = np.random.default_rng(seed), np.geomspace(self.longest / 2, 0.23, max(epochs // 4, 1) + 1) + 0.27

        def over_time(x: Any) -> Tensor:
            return Tensor(np.ascontiguousarray(x.swapaxes(0, 1), np.float32))

        for epoch in range(epochs):
            for layer in layers:
                layer.width = float(widths[min(epoch, len(widths) - 1)])
            net.set_train(True)
            for numbers in batches(rng, len(x), self.batch):
                step(over_time(x[numbers]), Tensor(y[numbers]))
            net.set_train(False)
            parts = np.array_split(np.arange(len(test_x)), -(-len(test_x) // self.batch))
            answers = [net(over_time(test_x[part])).asnumpy().argmax(1) for part in parts]
            yield (np.concatenate(answers) == test_y).mean()
        yield net.trainable_params()


SHD = Words("shd", 140, 20, (256, 256), 1.005, 24, 0.4, 256)
SSC = Words("ssc", 100, 35, (512, 512, 512), 1.5, 30, 0.25, 128)


# --- the table --------------------------------------------------------------------------------------------------------

DELAYS = (
    "batch normalisation; softmax of the output potentials, summed over time; Adam; weights: one cycle to 5e-3, weight "
    "decay 1e-5; delays: 0.1, half a cosine to 0; width of the kernels to 0.5 bins in the first quarter. Different "
    "from the paper: the beta of Adam is fixed, samples are padded to one length, and the last epoch counts, not the "
    "best"
)
PERCEPTRON = "Adam, 0.01; batches of 20; 300 epochs"
ROWS = (
    Reproduction(
        "yin-yang",
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
        "SHD: the files' split; bins of 10 ms to 1.4 s, sums of five neighbouring channels",
        "140-256-256-20 LIF, tau 10.05 ms; delays of 0 to 24 bins, dropout 0.4; batches of 256; 150 epochs; "
        + DELAYS,
        HAMMOUAMRI, "95.07 +- 0.24", 150, SHD.train, needs=SHD.missing,
    ),
    Reproduction(
        "ssc-delays",
        "SSC: the files' split, without the validation set; bins of 10 ms to 1 s, sums of five neighbouring channels",
        "140-512-512-512-35 LIF, tau 15 ms; delays of 0 to 30 bins, dropout 0.25; batches of 128; 60 epochs; "
        + DELAYS,
        HAMMOUAMRI, "80.29 +- 0.06", 60, SSC.train, needs=SSC.missing,
    ),
    Reproduction(
        "nir-lif",
        "34 input spikes in 1,000 steps of 0.1 ms",
        "one LIF neuron of a NIR graph, tau 2.5 ms, threshold 0.1, reset to 0; no training",
        "Pedersen et al., Neuromorphic intermediate representation, Nature Communications 2024; the published numbers "
        "are computed from the files of its repository, because the paper has a figure only",
        "0.933 (Norse)", 1, nir_lif.run, needs=nir_lif.absent, details=nir_lif.details,
        measure="root-mean-square distance of v from the exact solution, in percent of the threshold",
    ),
)  # fmt: skip


def format_digits(x: float) -> str:
    """Format a number with three digits, for example 98.0 or 0.933."""
    return f"{x:#.3g}".rstrip(".")


@dataclass(frozen=True)
class Outcome:
    """Results of a row in percent, (seeds, epochs), seconds per epoch, and the hash of the final weights of seed 0."""

    results: Any
    seconds: float
    digest: str

    def last(self) -> str:
        """Return the result after the last epoch, with its standard deviation if there are several seeds."""
        last = self.results[:, -1]
        return format_digits(last.mean()) + (f" +- {last.std(ddof=1):.1f}" if len(last) > 1 else "")


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
        print(f"{row.name}, seed {seed}: {format_digits(100.0 * course[-1])}", flush=True)
    seconds = (time.perf_counter() - begin) / (seeds * len(courses[0]))
    outcome = Outcome(100.0 * np.array(courses), seconds, digest)
    print(f"{row.name}: published {row.published}, here {outcome.last()}", flush=True)
    return outcome


def table(outcomes: dict[str, Outcome | str], seeds: int) -> str:
    """Return the report as Markdown. An outcome that is a text is the reason why a row did not run."""
    lines = [
        "# Published results, reproduced",
        "",
        f"- command: python -m benchmarks.published {' '.join(sys.argv[1:])}".rstrip(),
        f"- date: {datetime.date.today()}, {seeds} seed(s)",
        f"- processor: {platform.machine()}; Python {platform.python_version()}, snncell {snncell.__version__}, "
        f"numpy {np.__version__}",
        "",
        "Results in percent, mean +- standard deviation over the seeds, after the last epoch. They are test accuracies "
        "unless the section of the row has another measure. The hash is that of the final weights of seed 0.",
        "",
        "| row | published | here | s per epoch | hash |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        if row.name in outcomes:
            outcome = outcomes[row.name]
            cells = ["not run", "", ""]
            if isinstance(outcome, Outcome):
                cells = [outcome.last(), f"{outcome.seconds:.2g}", f"`{outcome.digest}`"]
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
            f"- measure: {row.measure}",
        ]
        outcome = outcomes[row.name]
        if isinstance(outcome, str):
            lines.append(f"- not run: {outcome}")
            continue
        lines += row.details()
        if row.course:
            lines.append(f"- published after the first epochs: {row.course}")
            count = row.course.count(",") + 1
            ranges = [f"{one.min():.1f}-{one.max():.1f}" for one in outcome.results[:, :count].T]
            lines.append(f"- here after the first epochs: {', '.join(ranges)}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[row.name for row in ROWS], help="only these rows")
    parser.add_argument("--seeds", type=int, default=10, help="trainings per row (10)")
    parser.add_argument("--epochs", type=int, help="fewer epochs, to check that everything runs")
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
