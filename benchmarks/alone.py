"""Benchmarks of snncell without peers: a busy machine, prefetching, exact spike times."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import snncell
from benchmarks.frameworks import SuperSpike
from snncell import Tensor, nn, ops

Line = tuple[str, str, str]  # figure, case, value


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3)  # until they have started
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy(quick: bool) -> list[Line]:
    """Time a training step of the demo's network, on an idle machine and next to two busy processes."""
    from snncell.demo import DigitNet

    rounds, calls = (2, 10) if quick else (5, 200)
    rng = np.random.default_rng(0)
    net = DigitNet()
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3))
    x, y = Tensor(rng.random((64, 64), np.float32)), Tensor(rng.integers(0, 10, 64))
    step(x, y)
    times: dict[str, list[float]] = {"quiet": [], "two other processes computing": []}

    def measure(values: list[float]) -> None:
        for _ in range(calls):
            start = time.perf_counter()
            step(x, y)
            values.append(time.perf_counter() - start)

    for _ in range(rounds):
        measure(times["quiet"])
        with busy_processes(2):
            measure(times["two other processes computing"])
    return [
        (
            "training step of 64-128-64-10",
            name,
            f"median {statistics.median(t) * 1e3:.3g}, mean {np.mean(t) * 1e3:.3g} ms",
        )
        for name, t in times.items()
    ]


class EventBatches:
    """Batches of events that are binned into (T, B, inputs) at each read."""

    def __init__(self, batches: int, shape: tuple[int, int, int], events: int) -> None:
        self.shape, rng = shape, np.random.default_rng(0)
        self.events = [rng.integers(0, int(np.prod(shape)), events) for _ in range(batches)]
        self.labels = rng.integers(0, 20, (batches, shape[1]))

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for indices, labels in zip(self.events, self.labels, strict=True):
            counts = np.bincount(indices, minlength=int(np.prod(self.shape))).reshape(self.shape)
            yield Tensor(np.minimum(counts, 1).astype(np.float32)), Tensor(labels)


def prefetch(quick: bool) -> list[Line]:
    """Time training on events that are binned between steps, or during steps by prefetching."""
    steps, batch, inputs = (4, 2, 10) if quick else (100, 64, 700)
    data = EventBatches(3 if quick else 12, (steps, batch, inputs), 100 if quick else 1 << 18)
    lif = [nn.MultiStep(nn.LIFNode(surrogate_function=SuperSpike())) for _ in range(2)]
    net = nn.SequentialCell(nn.Dense(inputs, 512), lif[0], nn.Dense(512, 512), lif[1], nn.Dense(512, 20))
    loss_fn, adam = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3)

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return loss_fn(out.mean(0), y)

    def fit_seconds(epochs: int, ahead: bool) -> float:
        return snncell.train.fit(net, loss, adam, data, epochs, progress=False, prefetch=ahead).seconds

    def read_seconds() -> float:
        start = time.perf_counter()
        for _ in data:
            pass
        return time.perf_counter() - start

    times: dict[str, list[float]] = {"data alone": [], "between steps": [], "while one runs": []}
    for _ in range(1 if quick else 3):
        times["data alone"].append(read_seconds())
        for name, ahead in (("between steps", False), ("while one runs", True)):
            times[name].append((fit_seconds(3, ahead) - fit_seconds(1, ahead)) / 2)  # without compilation
    return [
        ("a batch of events, binned and trained on", name, f"{statistics.median(each) / len(data) * 1e3:.3g} ms")
        for name, each in times.items()
    ]


def spike_times(quick: bool) -> list[Line]:
    """Time a training step with exact gradients of spike times, at the sizes of the Yin-Yang task."""
    rng = np.random.default_rng(0)
    times = Tensor(np.append(rng.uniform(0.0, 30.0, (32, 4)), np.zeros((32, 1)), 1).astype(np.float32))
    labels, end, lines = Tensor(rng.integers(0, 3, 32)), 60.0, []
    for spikes in (1, 4):
        sizes = {"tau_mem": 20.0, "tau_syn": 5.0, "t_max": end, "spikes": spikes}
        net = nn.SequentialCell(nn.EventPropLIF(5, 200, **sizes), nn.EventPropLIF(200, 3, **sizes))
        cross_entropy, adam = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3)

        def loss(spike_times: Tensor, labels: Tensor, cross_entropy: nn.Cell = cross_entropy) -> Tensor:
            return cross_entropy(-ops.minimum(spike_times[..., 0], end), labels)

        step = snncell.train.training_step(net, loss, adam)
        start = time.perf_counter()
        step(times, labels)
        first_call = time.perf_counter() - start
        seconds = []
        for _ in range(5 if quick else 200):
            start = time.perf_counter()
            step(times, labels)
            seconds.append(time.perf_counter() - start)
        median, minimum = statistics.median(seconds) * 1e3, min(seconds) * 1e3
        value = f"median {median:.3g}, minimum {minimum:.3g} ms; first call {first_call:.3g} s"
        lines.append(("step of EventProp, 5-200-3, batch 32", f"K = {spikes} spikes", value))
    return lines


FIGURES: dict[str, Callable[[bool], list[Line]]] = {
    "busy": busy,
    "prefetch": prefetch,
    "spike-times": spike_times,
}


def table(lines: list[Line]) -> str:
    return "\n".join(["| figure | | |", "| --- | --- | --- |", *(f"| {' | '.join(line)} |" for line in lines)])
