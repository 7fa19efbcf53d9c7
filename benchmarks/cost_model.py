"""Cost model: the bytes and operations of each kernel compared with copy bandwidth and the rate of BLAS.

The bound of a kernel is the larger of two times: its bytes at the bandwidth of a copy, and its operations at the rate
of a product of large matrices. The bytes are the least memory traffic: inputs are read once, outputs are written once,
and values stored for the backward pass are written and read once. The operations are the multiplications and additions
of the algorithm. For example, a product with spikes counts those of events only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import snncell_lif_layer
from benchmarks.machine import median_seconds
from benchmarks.row import OURS
from benchmarks.rows import ROWS, linear
from snncell import Tensor, nn
from snncell.kernels.limits import copy_bandwidth, product_rate

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Kernel:
    """A kernel, or the kernels of a row, with its bytes and operations, and an explanation of these numbers."""

    name: str
    run: Callable[[], Any]
    bytes: float
    operations: float
    explanation: str


def kernels(quick: bool) -> Iterator[Kernel]:
    """Yield all kernels. Their arrays are created one after the other, so that few are in memory at once."""
    yield from elementwise(1 << (12 if quick else 24))
    yield from neurons(quick)
    yield from products(quick)
    yield from spiking_layers(quick)
    yield from images(quick)
    yield adam(1 << (12 if quick else 22))


def elementwise(n: int) -> Iterator[Kernel]:
    a, b, c = (Tensor(np.random.default_rng(k).random(n, np.float32)) for k in range(3))
    fused, total = snncell.jit(lambda a, b, c: a * b + c), snncell.jit(lambda a: a.sum())
    yield Kernel("a b + c, elementwise", lambda: fused(a, b, c), 4 * FLOAT * n, 2 * n, "3 read, 1 written")
    yield Kernel("sum", lambda: total(a), FLOAT * n, n, "1 read")


def sizes_and_run(name: str, quick: bool) -> tuple[Any, Callable[[], Any]]:
    """Return the sizes of a row, and its function of snncell."""
    row = ROWS[name]
    sizes = row.small_sizes if quick else row.sizes
    return sizes, row.contestants[OURS](*row.make_arrays(sizes)).run


def neurons(quick: bool) -> Iterator[Kernel]:
    for name, sequences, work, explanation in (
        ("lif", 6, 14, "x, spikes, 1 stored; dout, 1 stored, dx"),
        ("adaptive", 9, 34, "x, spikes, 2 stored; x, dout, 2 stored, dx"),
    ):
        shape, run = sizes_and_run(name, quick)
        size = float(np.prod(shape))
        yield Kernel(f"{ROWS[name].title}, both ways", run, sequences * FLOAT * size, work * size, explanation)


def products(quick: bool) -> Iterator[Kernel]:
    rng = np.random.default_rng(0)
    n = 64 if quick else 2048
    a, b = (Tensor(rng.standard_normal((n, n), np.float32)) for _ in range(2))
    dense = snncell.jit(lambda a, b: a @ b)
    yield Kernel(f"product {n}^3, dense", lambda: dense(a, b), 3 * FLOAT * n * n, 2 * n**3, "BLAS, in parts")
    rows, inputs, outputs = (64, 32, 32) if quick else (8000, 512, 512)
    for density in (0.02, 0.05, 0.1):
        spikes = Tensor((rng.random((rows, inputs)) < density).astype(np.float32))
        w, dout = (Tensor(rng.standard_normal((k, outputs), np.float32)) for k in (inputs, rows))
        turned = snncell.jit(lambda x, d: x.T @ d)
        events = float(np.count_nonzero(spikes.asnumpy()))
        size = FLOAT * (rows * (inputs + outputs) + inputs * outputs)
        title = f"({rows}, {inputs}) spikes at {density:.0%}, {outputs} outputs"
        work = 2 * events * outputs
        yield Kernel(f"product, {title}", lambda s=spikes, w=w: dense(s, w), size, work, "rows of w added up")
        yield Kernel(f"its gradient of w, {title}", lambda s=spikes, d=dout, t=turned: t(s, d), size, work, "scattered")


def spiking_layers(quick: bool) -> Iterator[Kernel]:
    """A linear layer with LIF neurons: the loop over time computes the products, so the current is never written."""
    shapes = [(20, 32)] if quick else [(500, 256), (500, 512), (100, 1024), (500, 1024), (100, 4096)]
    for steps, n in shapes:
        for density in (0.01, 0.05, 0.1):
            sizes = linear.Sizes(steps, 16, n, n, density)
            x, w, b, dout = sizes.arrays()
            events, sequence, matrix = float(np.count_nonzero(x)), FLOAT * x.size, FLOAT * w.size
            dense, layer, inputs = nn.Dense(n, n, Tensor(w), Tensor(b)), snncell_lif_layer(), Tensor(x)
            forward = snncell.jit(lambda x, dense=dense, layer=layer: layer(dense(x)))
            title = f"Linear({n})+LIF, T {steps}, batch 16, {density:.0%} input"
            run = functools.partial(forward, inputs)
            yield Kernel(f"{title}, forward", run, 2 * sequence + matrix, 2 * events * n, "x, w; spikes")
            run = linear.snncell_linear(x, w, b, dout).run
            explanation = "x, w; spikes, 1 stored; dout, 1 stored, dw"
            yield Kernel(f"{title}, both ways", run, 5 * sequence + 2 * matrix, 4 * events * n, explanation)


def images(quick: bool) -> Iterator[Kernel]:
    for name, row in ROWS.items():
        if row.group == "layers" and name.startswith("conv"):
            sizes, run = sizes_and_run(name, quick)
            _, x, w, dout = sizes.arrays()
            work = 6.0 * dout.size * w[0].size
            read = FLOAT * (2.0 * x.size + 2 * w.size + 2 * dout.size + x.size)
            yield Kernel(f"{row.title}, both ways", run, read, work, "x, out; x, dout, dx; 3 products")
    for name, times, explanation in (
        ("max-pool", 2.75, "x, out, 1 byte each; dout, dx"),
        ("average-pool", 2.5, "x, out; dout, dx"),
        ("batch-norm", 8.0, "x twice, out; x and dout twice, dx"),
    ):
        shape, run = sizes_and_run(name, quick)
        size = float(np.prod(shape))
        yield Kernel(f"{ROWS[name].title}, both ways", run, times * FLOAT * size, 10 * size, explanation)


def adam(n: int) -> Kernel:
    weight = snncell.Parameter(Tensor(np.zeros(n, np.float32)), name="w")
    optimiser, gradient = nn.Adam([weight], 1e-3), Tensor(np.full(n, 0.1, np.float32))
    step = snncell.jit(lambda g: optimiser((g,)))
    return Kernel(f"Adam, {n} weights", lambda: step(gradient), 7 * FLOAT * n, 12 * n, "w, g, 2 moments; 3 written")


def table(quick: bool) -> str:
    """Return a table with a line for each kernel: bytes, operations, bound, time, and the ratio of time and bound."""
    bandwidth, rate = copy_bandwidth(), product_rate()
    lines = [
        f"Copies: {bandwidth / 1e9:.1f} GB/s read and written. BLAS: {rate / 1e9:.0f} GFLOP/s.",
        "",
        "| kernel | counted | MB | Mflop | bound by | bound, ms | takes, ms | times the bound |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kernel in kernels(quick):
        memory_time, work_time = kernel.bytes / bandwidth, kernel.operations / rate
        seconds, bound = median_seconds(kernel.run), max(memory_time, work_time)
        by = "memory" if memory_time >= work_time else "arithmetic"
        cells = [kernel.name, kernel.explanation, f"{kernel.bytes / 1e6:.3g}", f"{kernel.operations / 1e6:.3g}", by]
        cells += [f"{bound * 1e3:.3g}", f"{seconds * 1e3:.3g}", f"{seconds / bound:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
        print(f"  {kernel.name}: {seconds * 1e3:.3g} ms, {seconds / bound:.2f} times its bound", flush=True)
    return "\n".join(lines)
