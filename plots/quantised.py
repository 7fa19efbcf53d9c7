"""Quantisation. Left: accuracy by number of bits, with weights rounded after or during training. The dashed line is
float32 with the same number of epochs. Right: the stored weights of a layer, and its three-bit grid.
"""

import copy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn, quantise as q
from snncell.data import digits


def main() -> Figure:
    snncell.set_seed(0)
    (images, labels), (seen, right) = digits()
    x, test = (np.repeat(pictures.reshape(1, -1, 64), 12, 0) for pictures in (images, seen))
    cells = [cell for n in (64, 64, 10) for cell in (nn.Dense(64, n), nn.MultiStep(nn.LeakyNode(0.9)))]
    net = nn.SequentialCell(*cells[:-1], nn.MultiStep(nn.LINode(tau=8.0)), nn.Readout("last"))

    def trained(one: nn.Cell, rate: float, epochs: int) -> float:
        data, adam = snncell.train.Batches(x, labels, time_first=True), nn.Adam(one.trainable_params(), rate)
        snncell.train.fit(one, nn.CrossEntropyLoss(), adam, data, epochs, progress=False)
        return 100 * float((one.set_train(False)(Tensor(test)).asnumpy().argmax(1) == right).mean())

    trained(net, 2e-3, 10)
    figure, (left, beside) = plt.subplots(1, 2, figsize=(7.0, 2.6), layout="constrained")
    left.axhline(trained(copy.deepcopy(net), 5e-4, 4), color="0.5", linestyle="--", label="float32")
    nets = {n: q.prepare(copy.deepcopy(net), q.Uniform(n, "mse"), q.FixedPoint(12, 8)) for n in (2, 3, 4, 6, 8)}
    for epochs, label in ((0, "rounded"), (4, "trained on")):
        left.plot(list(nets), [trained(one, 5e-4, epochs) for one in nets.values()], "o-", markersize=4, label=label)
    left.set(xlabel="bits of a weight", ylabel="test accuracy (%)")
    places, counts = np.unique(nets[3][0].quantisers.weight(nets[3][0].weight).asnumpy(), return_counts=True)
    beside.hist(nets[3][0].weight.asnumpy().ravel(), 80, color="0.7", label="held")
    beside.bar(places, counts, 0.01, label="computed with")
    beside.set(xlabel="weight", ylabel="count", yscale="log", ylim=(0.7, 8000))
    figure.legend(fontsize=8, loc="outside right upper")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
