"""Mixed precision on the CPU: time of training steps with products in float16, bfloat16 and float32.

python benchmarks/mixed_precision.py [--markdown FILE]
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns, publish

import snncell
from snncell import Tensor, amp, nn

STEPS, BATCH = 25, 64
WAYS = {
    "float32": (None, None),
    "float32, dynamic scale": (None, amp.DynamicLossScaler()),
    "float16, dynamic scale": ("float16", amp.DynamicLossScaler()),
    "bfloat16": ("bfloat16", None),
}


def dense() -> tuple[Any, tuple[int, ...]]:
    """Two layers of 512 neurons, and 20 outputs."""
    layers = [cell for n in (700, 512) for cell in (nn.Dense(n, 512), nn.MultiStep(nn.LIFNode(v_threshold=0.5)))]
    return nn.SequentialCell(*layers, nn.Dense(512, 20), nn.Readout("mean")), (STEPS, BATCH, 700)


def convolutional() -> tuple[Any, tuple[int, ...]]:
    """Two convolutions over images of 16 x 16 pixels."""
    layers = [
        cell
        for n in (2, 32)
        for cell in (nn.TimeDistributed(nn.Conv2d(n, 32, 3)), nn.MultiStep(nn.LIFNode(v_threshold=0.5)))
    ]
    head = nn.TimeDistributed(nn.Flatten()), nn.Dense(32 * 256, 20), nn.Readout("mean")
    return nn.SequentialCell(*layers, *head), (8, 16, 2, 16, 16)


def steps(make: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Return a jitted training step for each precision."""
    functions: dict[str, Callable[[], Any]] = {}
    for name, (half, scaler) in WAYS.items():
        snncell.set_seed(0)
        net, shape = make()
        if half:
            amp.auto_mixed_precision(net, "O1", half)
        x = Tensor((np.random.default_rng(0).random(shape) < 0.5).astype(np.float32))
        y = Tensor(np.arange(shape[1]) % 20)
        adam = nn.Adam(net.trainable_params(), 1e-3)
        step = snncell.train.training_step(net, nn.CrossEntropyLoss(), adam, accuracy=None, loss_scale=scaler)
        functions[name] = lambda step=step, x=x, y=y: step(x, y)["loss"].item()
    return functions


def main() -> None:
    """Measure, then print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = ["# Mixed precision", "", "- command: python benchmarks/mixed_precision.py --markdown FILE"]
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}, CPU")
    lines.append("- milliseconds of a training step, minimum of steps that take turns")
    lines += ["", f"| | {' | '.join(WAYS)} |", "| --- |" + " --- |" * len(WAYS)]
    for make in (dense, convolutional):
        times = in_turns(steps(make), rounds=15)
        words = (make.__doc__ or "").removesuffix(".").lower()
        lines.append(f"| {words} | " + " | ".join(f"{1e3 * min(seconds):.1f}" for seconds in times.values()) + " |")
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
