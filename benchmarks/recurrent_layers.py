"""LSTM and GRU compared with PyTorch: time of training steps and forward passes by size.

    NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/recurrent_layers.py [--markdown FILE]

Both run on one thread, in one process, in turns. A training step here is the forward pass and the gradients of all
weights. You should unset `OPENBLAS_CORETYPE`, because NumPy's BLAS may use slower kernels if it is set.
"""

from __future__ import annotations

import argparse
import datetime
import platform
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info
from timing import in_turns, medians, publish

import snncell
from snncell import Tensor, nn

SIZES = [(32, 50, 64), (32, 50, 128), (32, 50, 256), (32, 50, 512), (128, 50, 64), (128, 50, 256), (32, 100, 128)]


def measure_row(name: str, batch: int, steps: int, width: int) -> str:
    """Measure a layer at one size, and return a row of the table."""
    array = np.random.default_rng(0).standard_normal((steps, batch, width)).astype(np.float32)
    own, theirs = getattr(nn, name)(width, width), getattr(torch.nn, name)(width, width)
    x, y = Tensor(array), torch.from_numpy(array)
    step = snncell.jit(snncell.value_and_grad(lambda x: (own(x)[0] ** 2).sum(), None, own.trainable_params()))
    forward = snncell.jit(lambda x: own(x)[0])

    def their_step() -> None:
        theirs.zero_grad()
        (theirs(y)[0] ** 2).sum().backward()

    def their_forward() -> None:
        with torch.no_grad():
            theirs(y)

    cells = []
    for ours, others in ((lambda: step(x), their_step), (lambda: forward(x), their_forward)):
        seconds = medians(in_turns({"snncell": ours, "PyTorch": others}))
        cells += [f"{1e3 * value:.1f}" for value in seconds.values()]
        cells.append(f"{seconds['snncell'] / seconds['PyTorch']:.2f}")
    return f"| {name} | {batch} | {steps} | {width} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, then print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    blas = ", ".join(sorted({own["architecture"] for own in threadpool_info() if "architecture" in own}))
    lines = ["# LSTM and GRU compared with PyTorch", ""]
    lines.append("- command: python benchmarks/recurrent_layers.py --markdown FILE, on one thread (see the script)")
    lines.append(f"- date: {datetime.date.today()}")
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, PyTorch {torch.__version__}")
    lines.append(f"- numpy {np.__version__}; its BLAS has kernels for {blas}")
    lines.append("- float32, as many inputs as units; medians in milliseconds of calls that take turns")
    lines += ["", "| layer | batch | steps | units | training step | PyTorch | ratio | forward | PyTorch | ratio |"]
    lines.append("|" + " --- |" * 10)
    lines += [measure_row(name, *size) for name in ("LSTM", "GRU") for size in SIZES]
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
