"""Memory of networks with two hidden layers: mean, smallest and largest accuracy of three trainings. Left: a cue, then
steps of noise, then the class of the cue. Right: digits of 8 x 8 pixels, one pixel per step. Chance is dotted. The LIF
neurons learn their time constant.
"""

from pathlib import Path
from runpy import run_path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell.data import digits

DELAYS, SEEDS, COUNT = (10, 30, 100, 300), range(3), 1024
task = run_path(str(Path(__file__).parents[1] / "examples" / "long_memory.py"))


def main() -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained", sharey=True)
    data, test = (task["pixels"](*part) for part in digits())
    for place, (name, marker) in enumerate(zip(task["LAYERS"], "os^D", strict=True)):
        recalled = np.array([[recall(name, delay, seed) for delay in DELAYS] for seed in SEEDS])
        (line,) = left.plot(DELAYS, recalled.mean(0), marker=marker, label=name)
        left.fill_between(DELAYS, recalled.min(0), recalled.max(0), alpha=0.2, linewidth=0)
        read = np.array([task["accuracy"](name, data, test, 16, 64, seed) for seed in SEEDS])
        spread = [[read.mean() - read.min()], [read.max() - read.mean()]]
        right.bar(place, read.mean(), yerr=spread, color=line.get_color(), capsize=4)
        right.text(place, 0.03, f"{read.mean():.2f}", ha="center")
    left.set(xlabel="steps of noise", ylabel="test accuracy", xscale="log", ylim=(0, 1.04))
    left.set_xticks(DELAYS, [str(delay) for delay in DELAYS])
    left.axhline(1 / 8, linestyle=":", color="0.4")
    right.axhline(1 / 10, linestyle=":", color="0.4")
    right.set_xticks(range(len(task["LAYERS"])), [name.replace(", ", ",\n") for name in task["LAYERS"]])
    left.legend(frameon=False, loc=(0.02, 0.18))
    return figure


def recall(name: str, delay: int, seed: int) -> float:
    data, test = task["recall"](COUNT, delay, seed), task["recall"](500, delay, seed + 100)
    return float(task["accuracy"](name, data, test, 8, 32, seed))


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
