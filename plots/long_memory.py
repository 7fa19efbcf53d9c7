"""Memory of networks with two hidden layers: mean, smallest and largest test accuracy of three trainings. Left: a cue
of 8 classes, then steps of noise, then the class of the cue. Right: digits of 8 x 8 pixels, one pixel per step."""

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell.data import digits

DELAYS, SEEDS = (10, 30, 100, 300), range(3)
task = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "examples" / "long_memory.py")))


def main() -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained", sharey=True)
    data, test = (task.pixels(*part) for part in digits())
    for place, (name, marker) in enumerate(zip(task.LAYERS, "os^Dv", strict=True)):
        recalled = np.array([[recall(name, delay, seed) for delay in DELAYS] for seed in SEEDS])
        (line,) = left.plot(DELAYS, recalled.mean(0), marker=marker, label=name)
        left.fill_between(DELAYS, recalled.min(0), recalled.max(0), alpha=0.2, linewidth=0)
        read = np.array([task.accuracy(name, data, test, 16, 64, seed) for seed in SEEDS])
        spread, colour = np.abs(read.mean() - [[read.min()], [read.max()]]), line.get_color()
        right.bar(place, read.mean(), yerr=spread, color=colour, capsize=4)
        right.text(place, 0.03, f"{read.mean():.2f}", ha="center")
    right.set_title("digits, pixel by pixel")
    left.set(title="recall of a cue", xlabel="steps of noise", ylabel="test accuracy", ylim=(0, 1.04), xscale="log")
    left.set_xticks(DELAYS, DELAYS)
    for ax, classes in ((left, task.CLASSES), (right, 10)):
        ax.axhline(1 / classes, linestyle=":", color="0.4", label="chance")
    right.set_xticks(range(5), [name.replace(", ", ",\n").replace("g P", "g\nP") for name in task.LAYERS], fontsize=8)
    left.legend(frameon=False, fontsize=8, loc=(0.02, 0.14))
    return figure


def recall(name: str, delay: int, seed: int) -> float:
    data, test = task.recall(1024, delay, seed), task.recall(500, delay, seed + 100)
    return float(task.accuracy(name, data, test, 8, 32, seed))


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
