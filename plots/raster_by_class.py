"""Spikes of one neuron for images of three digits, one row for each image. It fires often for one digit, less for
another, and hardly for the third. The histogram below shows the spikes over time.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from trained import images, trained

import snncell
from snncell import Tensor, plot

SHOWN = 0, 1, 7


def main() -> Figure:
    x, labels = images()
    chosen = np.nonzero(np.isin(labels, SHOWN))[0]
    net, labels = trained().net, labels[chosen]
    with snncell.monitor(net, spikes="layer2") as monitor:
        net(Tensor(x.asnumpy()[chosen]))
    rates = np.stack([monitor.spikes["layer2"][:, labels == digit].mean((0, 1)) for digit in SHOWN])  # (classes, N)
    neuron = int(np.diff(np.sort(rates, 0), axis=0).min(0).argmax())  # the neuron that separates all three best
    figure, axes = plt.subplots(figsize=(3.3, 3.6), layout="constrained")
    names = [f"digit {label}" for label in labels]
    plot.raster(monitor, axes, f"neuron {neuron} of layer2", layer="layer2", neuron=neuron, classes=names, psth=2)
    axes.set_ylabel("image")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
