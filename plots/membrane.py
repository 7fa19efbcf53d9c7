"""Membrane potentials: three hidden neurons with threshold and spikes, and the ten readout neurons. The neuron of the
shown digit rises above all others.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from trained import images, recorded

from snncell import plot


def main() -> Figure:
    monitor, (_, labels) = recorded(), images(1)
    spikes, threshold = monitor.spikes["layer2"][:, 0], monitor.cell("layer2").v_threshold
    busy = np.argsort(np.abs(spikes.mean(0) - 0.3), kind="stable")[:3]  # they charge, fire and reset
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.0), layout="constrained")
    before_reset = monitor.above["layer2"][:, 0] + threshold
    plot.membrane(before_reset, spikes, threshold, left, "layer2: potential before the reset", neurons=busy)
    digits = [f"digit {n}" for n in range(10)]
    plot.membrane(monitor.v["layer3"][:, 0], ax=right, labels=digits, title=f"layer3, read out: shown a {labels[0]}")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
