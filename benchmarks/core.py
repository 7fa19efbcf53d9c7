"""Overhead of the core, compared with PyTorch if it is installed: `python benchmarks/core.py [--markdown FILE]`.

Contestants take turns (A B A B ...), because the speed of a machine drifts. The script prints medians and ratios.

- import: `import snncell` in fresh processes.
- eager: one operation on 64 elements with its tape entry, forward only.
- first call: a jitted function in a fresh process, with an empty and with a filled disk cache.
- guards: the comparison, at each call, of the Python values that a jitted function reads.
- sums: along each axis, eager and jitted, with the largest relative error for equal terms.
- step: a training step of a 64-128-128-10 MLP with Adam, batch 64, float32.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timing import command, in_turns, medians, publish, seconds_in_process

import snncell
from snncell import Tensor, nn, ops
from snncell.tape.state import Tape, record_on


def import_time() -> dict[str, float]:
    code = "import time; t = time.perf_counter(); import snncell; print(time.perf_counter() - t)"
    return {"import snncell, s": statistics.median(seconds_in_process(code) for _ in range(7))}


def first_call() -> dict[str, float]:
    code = (
        "import time, snncell; from snncell import Tensor, ops\n"
        "f = snncell.jit(lambda x: (ops.tanh(x * 2.0 + 1.0) * ops.sigmoid(x)).sum(0)); x = Tensor([[1.0, 2.0]] * 64)\n"
        "t = time.perf_counter(); f(x); print(time.perf_counter() - t)"
    )
    cold, warm = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(seconds_in_process(code, SNNCELL_CACHE_DIR=folder))
            warm.append(seconds_in_process(code, SNNCELL_CACHE_DIR=folder))
    return {"jit, first call, cold, s": statistics.median(cold), "from the disk cache, s": statistics.median(warm)}


def eager_op(torch: Any) -> dict[str, float]:
    x = snncell.Parameter(np.ones(64, np.float32))
    y = Tensor(np.ones(64, np.float32))
    tape = Tape()

    def add() -> Any:
        return x + y

    def mul() -> Any:
        return x * y

    def sigmoid() -> Any:
        return ops.sigmoid(x)

    figures: dict[str, float] = {}
    for mine in (add, mul, sigmoid):
        contestants: dict[str, Callable[[], Any]] = {"snncell": mine}
        if torch is not None:
            a, b = torch.ones(64, requires_grad=True), torch.ones(64)
            theirs = {"add": lambda a=a, b=b: a + b, "mul": lambda a=a, b=b: a * b, "sigmoid": lambda a=a: a.sigmoid()}
            contestants["torch"] = theirs[mine.__name__]
        with record_on(tape):
            times = medians(in_turns(contestants, 2000))
            tape.entries.clear()
        figures.update({f"eager {mine.__name__} with tape, {name}, us": t * 1e6 for name, t in times.items()})
    return figures


SCALE, SHIFT = 2.0, Tensor(np.ones(64, np.float32))


def scaled(x: Tensor) -> Tensor:
    return x * SCALE + SHIFT


def guards() -> dict[str, float]:
    class Settings:
        gain, bias = 1.5, 0.5

    settings, gains, array = Settings(), [1.0, 2.0], np.ones(256, np.float32)
    settings.gain = 2.5

    def plain(x: Tensor) -> Tensor:
        return scaled(x) * settings.gain

    def many(x: Tensor) -> Tensor:
        return scaled(x) * settings.gain * gains[0] + settings.bias + Tensor(array[:1])

    layers = [nn.Dense(64, 64), nn.MultiStep(nn.LIFNode())]
    net = nn.SequentialCell(*layers, nn.Dense(64, 64), nn.MultiStep(nn.LIFNode()))
    figures = {}
    for name, fn, x in (
        ("5 values", plain, Tensor(np.ones(64, np.float32))),
        ("9 values, a list, an array", many, Tensor(np.ones(64, np.float32))),
        ("a net of 4 layers", net, Tensor(np.ones((2, 3, 64), np.float32))),
    ):
        jitted = snncell.jit(fn)
        jitted(x)
        (compiled,) = jitted.compiled.values()
        times = medians(in_turns({"all": lambda c=compiled: c.dependencies.is_current()}, 2000))
        figures[f"guards, {name}, us"] = times["all"] * 1e6
    return figures


def sums(torch: Any) -> dict[str, float]:
    """Time sums and variances, which BatchNorm and the gradients of biases use, and compute the error of sums."""
    figures = {}
    for shape in ((64, 128), (1_000_000, 2), (10_000, 512)):
        x = np.full(shape, 0.1, np.float32)
        tensor = Tensor(x)
        for axis in (0, 1):
            jitted = snncell.jit(lambda x, axis=axis: (x * 1.0).sum(axis))
            contestants: dict[str, Callable[[], Any]] = {
                "eager": lambda axis=axis, x=tensor: x.sum(axis),
                "jitted": lambda jitted=jitted, x=tensor: jitted(x),
                "var": lambda axis=axis, x=tensor: x.var(axis),
            }
            if torch is not None:
                contestants["torch"] = partial(torch.from_numpy(x).sum, axis)
            times = medians(in_turns(contestants, max(1, 100_000 // x.size)))
            figures |= {f"sum of {shape} along {axis}, {name}, us": t * 1e6 for name, t in times.items()}
            exact = x.sum(axis, np.float64)
            errors = [np.abs(contestants[name]().asnumpy() / exact - 1).max() for name in ("eager", "jitted")]
            figures[f"sum of {shape} along {axis}, relative error"] = float(max(errors))
    return figures


def training_step(torch: Any) -> dict[str, float]:
    rng = np.random.default_rng(0)
    data, classes = rng.standard_normal((64, 64)).astype(np.float32), rng.integers(0, 10, 64)
    net = nn.SequentialCell(nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 128), nn.ReLU(), nn.Dense(128, 10))
    loss_fn, params = nn.CrossEntropyLoss(), net.trainable_params()
    optimiser = nn.Adam(params, 1e-3)
    gradients = snncell.value_and_grad(lambda x, y: loss_fn(net(x), y), None, params)
    x, y = Tensor(data), Tensor(classes)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value

    jitted = snncell.jit(step)
    contestants: dict[str, Callable[[], Any]] = {"eager": lambda: step(x, y), "jitted": lambda: jitted(x, y)}
    if torch is not None:
        layers = torch.nn
        model = layers.Sequential(
            layers.Linear(64, 128), layers.ReLU(), layers.Linear(128, 128), layers.ReLU(), layers.Linear(128, 10)
        )
        adam = torch.optim.Adam(model.parameters(), 1e-3)
        tx, ty = torch.from_numpy(data), torch.from_numpy(classes)

        def torch_step() -> None:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(model(tx), ty).backward()
            adam.step()

        def on_one_thread() -> None:
            torch.set_num_threads(1)
            torch_step()

        def on_all_threads() -> None:
            torch.set_num_threads(os.cpu_count() or 1)
            torch_step()

        contestants["torch"] = on_all_threads
        contestants["torch on one thread"] = on_one_thread
    return {f"MLP step, {name}, us": t * 1e6 for name, t in medians(in_turns(contestants, 100)).items()}


GOALS = {
    "import snncell": "under 0.5 s",
    **{f"eager {name} with tape": "at most 3 times PyTorch's" for name in ("add", "mul", "sigmoid")},
    "MLP step": "not slower than PyTorch",
}


def page(figures: dict[str, float]) -> list[str]:
    """Return the lines of the page: each figure and its ratio to PyTorch's with the better number of threads.

    The key of a figure is "figure, contestant, unit", "figure, unit" or "figure, relative error".
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba")]
    lines = [
        "# Single operations and the core",
        "",
        f"- command: {command()}",
        f"- date: {datetime.date.today()}, {os.cpu_count()} cores",
        f"- versions: Python {platform.python_version()}, snncell {snncell.__version__}, {', '.join(versions)}",
        "- medians of calls that take turns",
        "",
        "A sigmoid costs more than a sum, because NumPy computes 1 / (1 + exp(-x)) in four passes. `guards` is the",
        "comparison, at each call, of the Python values that a jitted function has read.",
        "",
        "| figure | | times PyTorch's | goal |",
        "| --- | --- | --- | --- |",
    ]
    for name, value in figures.items():
        stem, *_, unit = name.split(", ")
        stem = name.rsplit(", ", 2)[0] if name.count(", ") > 1 else stem
        theirs = [figures[other] for other in figures if other.startswith(f"{stem}, torch")]
        ratio = f"{value / min(theirs):.2f}" if theirs and "torch" not in name and unit == "us" else ""
        goal = GOALS.get(stem, "") if "torch" not in name and "eager, us" not in name else ""
        shown = f"{value:.1e}" if unit == "relative error" else f"{value:.3g} {unit}"
        title = name if unit == "relative error" else name.removesuffix(f", {unit}")
        lines.append(f"| {title} | {shown} | {ratio} | {goal} |")
    return [
        *lines,
        "",
        "Small loops run on one thread. `python benchmarks/parallel.py` measures the size from which all threads are",
        "faster: with two cores, about 100,000 elements for plain arithmetic and 5,000 for exp.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="also write the page to this file")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
        print("PyTorch is not installed, so its figures are missing.")
    figures = {**import_time(), **first_call(), **eager_op(torch), **guards(), **sums(torch), **training_step(torch)}
    publish(page(figures), arguments.markdown)


if __name__ == "__main__":
    main()
