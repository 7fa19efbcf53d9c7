"""Size of the first 60 updates relative to the weights. With a usual learning rate (left) they stay at the upper edge
of the grey band; with a rate thirty times as high they are above it, at first far above. In the left plot the third
line starts late, because until then no spike reaches these weights.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import snncell
from snncell import nn, plot
from snncell.data import batches, digits
from snncell.demo import DigitNet


def ratios(learning_rate: float, updates: int) -> list[dict[str, float]]:
    """Return the relative size of each update, for each weight."""
    snncell.set_seed(0)
    pictures, labels = digits()[0]
    net = DigitNet()
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), learning_rate))
    weights = {name: p for name, p in net.parameters_and_names() if name.endswith("weight")}
    found = []
    for x, y in batches(pictures.reshape(-1, 64), labels, batch_size=1438 // updates, drop_last=True):
        before = {name: p.asnumpy().copy() for name, p in weights.items()}
        step(x, y)
        found.append(plot.update_ratios(before, {name: p.asnumpy() for name, p in weights.items()}))
    return found[:updates]


def main(updates: int = 60) -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.7), sharey=True, layout="constrained")
    for ax, rate in zip(axes, (1e-3, 3e-2), strict=True):
        plot.gradient_to_weight(ratios(rate, updates), ax, f"Adam, learning rate {rate:g}")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
