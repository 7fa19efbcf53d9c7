"""ANN-to-SNN conversion (ann2snn): train a ReLU network, convert it, and compare accuracies by number of time steps.

It converts a network with ReLU, with thresholds from the maximum and from a percentile of the activations, and a
network that was trained with QCFS. Then it counts the spikes.

    python examples/ann_to_snn.py
"""

from typing import Any

import numpy as np

import snncell
from snncell import Tensor, nn, quantise
from snncell.data import digits
from snncell.encode import current

STEPS = (1, 2, 4, 8, 16, 32, 64)


def network(activation: Any) -> nn.SequentialCell:
    snncell.set_seed(0)
    return nn.SequentialCell(
        nn.Conv2d(1, 12, 3),
        nn.BatchNorm2d(12),  # to_spiking folds it into the convolution
        activation(),
        nn.AvgPool2d(2, stride=2),
        nn.Flatten(),
        nn.Dense(192, 64),
        activation(),
        nn.Dropout(p=0.2),
        nn.Dense(64, 10),
    )


def main(epochs: int = 10) -> dict[str, list[float]]:
    """Train, convert, and return the test accuracies of each SNN after 1, 2, 4, ... steps, and of its ANN."""
    (images, labels), (test_images, test_labels) = digits()
    images, test = images[:, None], Tensor(test_images[:, None])  # (B, 1, 8, 8)

    def accuracy(scores: Tensor) -> float:
        return float(np.mean(scores.asnumpy().argmax(1) == test_labels))

    anns = {"ReLU": network(nn.ReLU), "QCFS": network(lambda: quantise.QCFS(levels=4))}
    for ann in anns.values():
        adam = nn.Adam(ann.trainable_params(), 3e-3)
        snncell.train.fit(ann, nn.CrossEntropyLoss(), adam, (images, labels), epochs, progress=False)

    samples = images[:500]  # for the thresholds
    snns = {
        "maximum, from 0": quantise.to_spiking(anns["ReLU"], samples, percentile=100, initial=0.0),
        "maximum": quantise.to_spiking(anns["ReLU"], samples, percentile=100),
        "99.9 %": quantise.to_spiking(anns["ReLU"], samples),
        "QCFS": quantise.to_spiking(anns["QCFS"], samples),
    }
    found = {}
    print(f"{'time steps':16}", *(f"{steps:>6}" for steps in STEPS), "   ANN")
    for name, snn in snns.items():
        run, ann = snncell.jit(snn), anns.get(name, anns["ReLU"])
        found[name] = [accuracy(run(current(test, steps))) for steps in STEPS] + [accuracy(ann(test))]
        print(f"{name:16}", *(f"{value:6.3f}" for value in found[name]))

    with snncell.monitor(snns["QCFS"]) as monitor:
        snns["QCFS"](current(test, 8))
    for layer, spikes in monitor.spikes.items():
        print(f"layer {layer}: {100 * np.mean(spikes != 0):.1f} % of the neurons spike in a time step")
    return found


if __name__ == "__main__":
    main()
