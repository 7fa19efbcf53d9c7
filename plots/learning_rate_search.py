"""Learning-rate search: the rate rises over 100 training steps. The dotted line marks the rate at which the loss falls
most steeply, before it diverges. With normalised currents (right), the loss begins to fall at a tenth of the rate, and
falls over a wider range of rates.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import snncell
from snncell import nn, ops, plot
from snncell.data import digits


def network(normalised: bool) -> nn.Cell:
    snncell.set_seed(0)
    norm = [nn.TimeDistributed(nn.BatchNorm1d(100))] if normalised else []
    layers = [nn.Dense(64, 100), *norm, nn.MultiStep(nn.LIFNode(v_threshold=0.3)), nn.Dense(100, 10)]
    return nn.SequentialCell(*layers, nn.Readout("mean"))


def main() -> Figure:
    images, labels = digits()[0]
    x = ops.stack([snncell.Tensor(images.reshape(-1, 64))] * 10)
    data = snncell.train.Batches(x, labels, batch_size=32, time_first=True)
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.5), sharey=True, layout="constrained")
    for ax, title in zip(axes, ("plain", "with BatchNorm1d"), strict=True):
        net = network(normalised=title != "plain")
        sgd = nn.SGD(net.trainable_params(), 0.1)
        search = snncell.train.find_learning_rate(net, nn.CrossEntropyLoss(), sgd, data, 1e-3, 1e3)
        plot.learning_rate_search(search, ax, title)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
