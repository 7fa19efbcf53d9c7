"""snncell alone: the first call of a new neuron, the demo, and a training step while other processes compute."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import snncell
from benchmarks.timing import fresh, printed
from snncell import Tensor, nn

Line = tuple[str, str, str]  # figure, case, value

NEW_NEURON = """
import time
import numpy as np
import snncell
start = time.perf_counter()
from snncell import Tensor, nn, ops

class Spike(nn.Cell):
    def construct(self, x):
        return (x > 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)

class Adaptive(nn.Cell):
    def __init__(self):
        super().__init__()
        self.spike = Spike()

    def construct(self, x, v, a):
        h = 0.9 * v + x
        s = self.spike(h - 1.0 - a)
        return s, h - s * (1.0 + a), 0.95 * a + 0.1 * s

x = Tensor(np.ones({shape}, np.float32))
out, pull = ops.vjp(nn.MultiStep(Adaptive()), x)
pull(out)
print(time.perf_counter() - start)
"""
IMPORT_NUMBA = """
import time
import snncell
start = time.perf_counter()
import numba
print(time.perf_counter() - start)
"""
DEMO = """
import tempfile
import time
start = time.perf_counter()
import snncell.demo
with tempfile.TemporaryDirectory() as folder:
    accuracy = snncell.demo.run(epochs={epochs}, folder=folder, progress=False)
print(time.perf_counter() - start, accuracy)
"""
CACHES = ("empty disk cache", "filled disk cache")


def first_call(quick: bool) -> list[Line]:
    """A new neuron, forward and reverse, in fresh processes."""
    shapes = {"small, serial kernels": (16, 4, 64)} | ({} if quick else {"large, parallel kernels": (16, 64, 2048)})
    lines = []
    for kind, shape in shapes.items():
        times: dict[str, list[float]] = {name: [] for name in CACHES}
        for _ in range(1 if quick else 5):
            with tempfile.TemporaryDirectory() as folder:
                for values in times.values():
                    values.append(fresh(NEW_NEURON.format(shape=shape), SNNCELL_CACHE_DIR=folder))
        lines += [(f"first call, {kind}", name, f"{statistics.median(each):.3g} s") for name, each in times.items()]
    imports = [fresh(IMPORT_NUMBA) for _ in range(1 if quick else 5)]
    return [*lines, ("first call", "of which importing Numba", f"{statistics.median(imports):.3g} s")]


def demo(quick: bool) -> list[Line]:
    """`python -m snncell demo`, with imports."""
    lines, epochs = [], 1 if quick else 30
    with tempfile.TemporaryDirectory() as folder:
        for name in CACHES:
            code = DEMO.format(epochs=epochs)
            seconds, accuracy = map(float, printed(code, SNNCELL_CACHE_DIR=folder, MPLBACKEND="Agg").split()[-2:])
            lines.append((f"demo, {epochs} epochs", name, f"{seconds:.3g} s, {accuracy:.1%} right"))
    return lines


@contextmanager
def others_computing(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.3)  # they have started
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy(quick: bool) -> list[Line]:
    """A training step of the demo's network, on a quiet machine and beside two other processes."""
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
        with others_computing(2):
            measure(times["two other processes computing"])
    return [
        (
            "training step of 64-128-64-10",
            name,
            f"median {statistics.median(t) * 1e3:.3g}, mean {np.mean(t) * 1e3:.3g} ms",
        )
        for name, t in times.items()
    ]


FIGURES: dict[str, Callable[[bool], list[Line]]] = {"first": first_call, "demo": demo, "busy": busy}


def table(lines: list[Line]) -> str:
    return "\n".join(["| figure | | |", "| --- | --- | --- |", *(f"| {' | '.join(line)} |" for line in lines)])
