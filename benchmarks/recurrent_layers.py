"""Training steps and forward passes of LSTM and GRU beside PyTorch's, by size.

    NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/recurrent_layers.py

Both run on one thread, in one process, in turns. What counts is processor time, so that other programs on the machine
disturb less; the best of the runs is taken. A training step here is the forward pass and the gradients of all weights.
Writes `benchmarks/results/recurrent-layers.md`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

import snncell
from snncell import Tensor, nn

SIZES = [(32, 50, 64), (32, 50, 128), (32, 50, 256), (32, 50, 512), (128, 50, 64), (128, 50, 256), (32, 100, 128)]
RUNS = 10
RESULT = Path(__file__).parent / "results" / "recurrent-layers.md"


def best(functions: list[Callable[[], Any]]) -> list[float]:
    """Milliseconds of each, the best of runs that take turns."""
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(RUNS):
        for own, function in zip(times, functions, strict=True):
            start = process_time()
            function()
            own.append((process_time() - start) * 1e3)
    return [min(own) for own in times]


def compared(name: str, batch: int, steps: int, width: int) -> str:
    """A row of the table."""
    array = np.random.default_rng(0).standard_normal((steps, batch, width)).astype(np.float32)
    own, theirs = getattr(nn, name)(width, width), getattr(torch.nn, name)(width, width)
    x, y = Tensor(array), torch.from_numpy(array)
    weights = list(own.trainable_params())
    step = snncell.jit(snncell.value_and_grad(lambda x: (own(x)[0] ** 2).sum(), None, weights))
    forward = snncell.jit(lambda x: own(x)[0])

    def their_step() -> None:
        theirs.zero_grad()
        (theirs(y)[0] ** 2).sum().backward()

    def their_forward() -> None:
        with torch.no_grad():
            theirs(y)

    a, b, c, d = best([lambda: step(x), their_step, lambda: forward(x), their_forward])
    sizes = f"{name} | {batch} | {steps} | {width}"
    return f"| {sizes} | {a:.1f} | {b:.1f} | {a / b:.2f} | {c:.1f} | {d:.1f} | {c / d:.2f} |"


def main() -> None:
    torch.set_num_threads(1)
    blas = ", ".join(sorted({own["architecture"] for own in threadpool_info() if "architecture" in own}))
    lines = [
        "# LSTM and GRU beside PyTorch",
        "",
        "Processor time in milliseconds on one thread, float32, inputs as wide as the layer; the best of "
        f"{RUNS} runs in turns (`benchmarks/recurrent_layers.py`). NumPy's BLAS uses its kernels for {blas}.",
        "",
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"PyTorch {torch.__version__}.",
        "",
        "| layer | batch | steps | units | training step | PyTorch | ratio | forward | PyTorch | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in ("LSTM", "GRU"):
        for size in SIZES:
            lines.append(compared(name, *size))
            print(lines[-1], flush=True)
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
