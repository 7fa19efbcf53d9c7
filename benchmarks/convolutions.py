"""CPU time of convolutions of many shapes compared with PyTorch: forward and both gradients, on one thread.

    python -m benchmarks.convolutions [--rows NAME ...] [--parts] [--markdown FILE]

PyTorch runs eagerly, and snncell jitted, in float32. Both take turns, and the script measures CPU time instead of wall
time, because other programs may run. A ratio is PyTorch's time divided by snncell's. `--parts` also times the kernels
of the forward pass and of each gradient, without differentiation and jit.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"  # before the first kernel

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.rows.layers import Conv, snncell_conv, torch_conv
from benchmarks.timing import publish
from snncell.kernels.conv import direct

ROWS = {
    "batch 1": [Conv(1, c, c, side) for c, side in ((16, 32), (32, 28), (32, 14), (64, 16), (128, 8), (256, 7))],
    "4x4": [Conv(b, c, c, 4) for b, c in ((64, 32), (128, 64), (64, 64), (64, 128), (32, 256))],
    "8x8, stride 2": [Conv(b, c, d, 8, stride=2) for b, c, d in ((128, 32, 64), (64, 64, 128), (32, 128, 256))],
    "strided": [Conv(64, c, d, s, stride=2) for c, d, s in ((16, 32, 28), (32, 64, 32), (64, 64, 16), (64, 128, 16))],
    "depthwise, stride 2": [
        Conv(b, c, c, s, stride=2, groups=c) for b, c, s in ((64, 32, 32), (64, 64, 16), (64, 128, 8))
    ],
    "depthwise": [Conv(b, c, c, s, groups=c) for b, c, s in ((64, 32, 28), (64, 64, 16), (64, 128, 8))],
    "1x1": [
        Conv(b, c, d, s, kernel=1)
        for b, c, d, s in ((64, 32, 32, 28), (64, 64, 128, 16), (64, 128, 64, 8), (64, 256, 256, 4))
    ],
    "5x5": [Conv(b, c, d, s, kernel=5) for b, c, d, s in ((128, 32, 32, 14), (64, 16, 32, 28), (64, 64, 64, 8))],
    "32 channels": [Conv(b, 32, 32, s) for b, s in ((64, 28), (128, 14), (128, 12), (128, 7))],
    "64 to 256 channels": [
        Conv(b, c, d, s) for b, c, d, s in ((64, 64, 64, 16), (32, 128, 128, 8), (32, 64, 128, 24), (32, 256, 256, 6))
    ],
    "first layer": [Conv(b, c, d, s) for b, c, d, s in ((128, 1, 32, 28), (128, 2, 32, 32), (64, 3, 64, 32))],
}
ROUNDS, ROUND = 15, 0.02  # turns, and seconds of a turn
Times = dict[str, float]


def cpu_times(runs: dict[str, Callable[[], Any]]) -> Times:
    """Return the median CPU seconds of a call of each function; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    calls = {}
    for name, run in runs.items():
        run(), run()
        start = time.process_time()
        run()
        calls[name] = max(1, math.ceil(ROUND / max(1e-5, time.process_time() - start)))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(calls[name]):
                run()
            seconds[name].append((time.process_time() - start) / calls[name])
    return {name: statistics.median(times) for name, times in seconds.items()}


def kernels(sizes: Conv) -> dict[str, dict[str, Callable[[], Any]]]:
    """Return functions for the forward pass and each gradient, with the kernels of snncell and of PyTorch."""
    _, x, w, dout = sizes.arrays()
    steps, pads = (sizes.stride,) * 2, (sizes.kernel // 2,) * 2
    own: dict[str, Any] = {"stride": steps, "before": pads, "dilation": (1, 1), "groups": sizes.groups}
    tx, tw, td = map(torch.from_numpy, (x, w, dout))

    def back(*mask: bool) -> Any:
        rest = steps, pads, (1, 1), False, (0, 0), sizes.groups, (*mask, False)
        return torch.ops.aten.convolution_backward(td, tx, tw, None, *rest)

    return {
        "forward": {
            "snncell": lambda: direct.convolve(x, w, count=dout.shape[2:], **own),
            "PyTorch": lambda: functional.conv2d(tx, tw, None, steps, pads, 1, sizes.groups),
        },
        "input gradient": {
            "snncell": lambda: direct.convolve_back(dout, w, lengths=x.shape[2:], **own),
            "PyTorch": lambda: back(True, False),
        },
        "weight gradient": {
            "snncell": lambda: direct.convolve_weight(x, dout, size=w.shape[2:], **own),
            "PyTorch": lambda: back(False, True),
        },
    }


def cells(times: Times) -> str:
    ratio = times["PyTorch"] / times["snncell"]
    return f" {1e3 * times['snncell']:.3f} | {1e3 * times['PyTorch']:.3f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="default: all")
    parser.add_argument("--parts", action="store_true", help="also time the forward pass and each gradient alone")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| row | convolution | part | snncell, ms | PyTorch, ms | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in arguments.rows:
        ratios = []
        for sizes in ROWS[row]:
            arrays = sizes.arrays()
            both = {"snncell": snncell_conv(*arrays).run, "PyTorch": torch_conv(*arrays).run}
            times_of = {"all": cpu_times(both)}
            if arguments.parts:
                times_of |= {part: cpu_times(runs) for part, runs in kernels(sizes).items()}
            ratios.append(times_of["all"]["PyTorch"] / times_of["all"]["snncell"])
            shape = f"{sizes.batch}x{sizes.inputs}x{sizes.side}x{sizes.side} to {sizes.outputs}"
            lines += [f"| {row} | {shape} | {part} |" + cells(times) for part, times in times_of.items()]
            print(*lines[-len(times_of) :], sep="\n", flush=True)
        lines.append(f"| {row} | | geometric mean | | | {statistics.geometric_mean(ratios):.2f} |")
        print(lines[-1], flush=True)
    print()
    publish(lines, arguments.markdown)


if __name__ == "__main__":
    main()
