"""Left: the accuracy of a spiking network that reads digits, by the bits of its weights, rounded after its training and
trained on with the rounding for four epochs; states have 12 bits, and the dashed line is float32, trained on for as
long. Right: the weights of its first layer that are held in float32, and the grid of three bits that it computes with.
"""

import copy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn, quantise
from snncell.data import digits

BITS = (2, 3, 4, 6, 8)


def main() -> Figure:
    snncell.set_seed(0)
    (images, labels), (test_images, test_labels) = digits()
    x, test = (np.repeat(pictures.reshape(1, -1, 64), 12, 0) for pictures in (images, test_images))
    data, loss = snncell.train.Batches(x, labels, time_first=True), nn.CrossEntropyLoss()
    hidden = [nn.Dense(64, 64), nn.MultiStep(nn.LeakyNode(0.9)), nn.Dense(64, 64), nn.MultiStep(nn.LeakyNode(0.9))]
    net = nn.SequentialCell(*hidden, nn.Dense(64, 10), nn.MultiStep(nn.LINode(tau=8.0)), nn.Readout("last"))

    def train(one: nn.Cell, rate: float, epochs: int) -> None:
        adam = nn.Adam(one.trainable_params(), rate)
        snncell.train.fit(one, loss, adam, data, epochs, progress=False)

    def accuracy(one: nn.Cell) -> float:
        return 100 * float((one.set_train(False)(Tensor(test)).asnumpy().argmax(1) == test_labels).mean())

    train(net, 2e-3, 10)
    plain = copy.deepcopy(net)
    train(plain, 5e-4, 4)
    rounded, trained = [], []
    for bits in BITS:
        one = quantise.prepare(copy.deepcopy(net), quantise.Uniform(bits, "mse"), quantise.FixedPoint(12, 8))
        rounded.append(accuracy(one))
        train(one, 5e-4, 4)
        trained.append(accuracy(one))
        if bits == 3:
            weights, levels = one[0].weight.asnumpy(), one[0].quantisers.weight(one[0].weight).asnumpy()
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.4, 2.6), layout="constrained")
    left.axhline(accuracy(plain), color="0.5", linestyle="--", linewidth=1, label="float32")
    left.plot(BITS, rounded, "o-", markersize=4, label="rounded")
    left.plot(BITS, trained, "s-", markersize=4, label="trained on")
    left.set(xlabel="bits of a weight", ylabel="test accuracy (%)", xticks=BITS)
    left.legend(fontsize=8)
    step = np.diff(np.unique(levels)).min()
    right.hist(weights.ravel(), np.arange(-4.5, 4.6, 0.1) * step, color="0.7", label="held")
    places, counts = np.unique(levels, return_counts=True)
    right.bar(places, counts, 0.12 * step, label="computed with")
    right.legend(fontsize=8, loc="upper right")
    right.set(xlabel="weight", ylabel="count", yscale="log", ylim=(0.7, 8000))
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
