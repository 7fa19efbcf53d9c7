"""Share of the time that each rank spends on its 64 samples, by a model of latency and bandwidth. The time of the
training step was measured on one rank; latency and bandwidth are assumed. Sums in the order of the shards give the same
bits on any number of ranks; sums by MPI (fast) do not.
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "distributed.md"
NETWORKS = {"25 Gb/s": (20e-6, 3.1e9, "0.5"), "100 Gb/s": (1.5e-6, 12e9, "black")}  # latency (s), bandwidth (B/s)


def main() -> Figure:
    found = re.search(r"step ([\d.]+) ms, gradient ([\d.]+) MB", RESULTS.read_text(encoding="utf-8"))
    assert found is not None
    step, size = 1e-3 * float(found[1]), 1e6 * float(found[2])
    p = np.arange(1, 1001)
    rounds = np.ceil(np.log2(p))
    figure, ax = plt.subplots(figsize=(3.3, 2.2), layout="constrained")
    for name, (latency, bandwidth, colour) in NETWORKS.items():
        moved = 2 * size * (p - 1) / p / bandwidth + 3 * (rounds * latency + 64 * (p - 1) / bandwidth)
        for way, messages, line in (("in order", 2 * (p - 1), "-"), ("fast", 2 * rounds, "--")):
            share = 100 * step / (step + moved + messages * latency)
            ax.plot(p, share, line, color=colour, label=f"{name}, {way}")
    ax.set(xscale="log", xlabel="ranks", ylabel="time on samples (%)", ylim=(0, 104), xlim=(1, 1000))
    ax.set_xticks((1, 10, 100, 1000), ("1", "10", "100", "1,000"))
    ax.legend(loc="lower left", frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
