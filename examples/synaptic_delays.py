"""Learn the delay of each synapse: classes that differ only in the relative times of spikes.

Each of six lines fires once per sample, from a random start. A class is an order of the lines. If the delays of a
neuron compensate the times of an order, the neuron gets all spikes at once. The example trains a network with learned
delays and a network without delays that has as many learned parameters.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import nn
from snncell.train import Batches, Callback, fit

LINES, GAP, STEPS = 6, 8, 60
LONGEST = GAP * (LINES - 1)


def samples(rng, orders, count):
    """Return spikes (T, N, lines) with a jitter of a step, and the class of each sample."""
    labels = rng.integers(0, len(orders), count)
    start = rng.integers(1, STEPS - LONGEST - 8, (count, 1))
    times = start + GAP * orders[labels] + rng.integers(-1, 2, (count, LINES))
    return np.eye(STEPS, dtype=np.float32)[times].transpose(2, 0, 1), labels


class Narrow(Callback):
    """Let the kernels of all delays shrink to half a step over the first half of the training."""

    def __init__(self, layer, epochs):
        self.layer, self.widths = layer, np.geomspace(LONGEST / 2, 0.5, epochs // 2)

    def on_epoch_begin(self, training):
        self.layer.width = float(self.widths[min(training.epoch - 1, len(self.widths) - 1)])


def network(first, hidden, classes):
    """A first layer, LIF neurons that forget within a step or two, and the counts of a readout."""
    neurons = nn.LIFNode(tau=2.0, decay_input=False, v_threshold=1.0, surrogate_function=snncell.surrogate.ATan())
    return nn.SequentialCell(first, nn.MultiStep(neurons), nn.Dense(hidden, classes), nn.Readout("sum"))


def main(epochs: int = 30, count: int = 1024, classes: int = 8, hidden: int = 32, picture: str | None = None):
    """Return the test accuracies with and without delays. Draw the training to `picture` if you pass a path."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    orders = np.stack([rng.permutation(LINES) for _ in range(classes)])
    data, test = (Batches(*samples(rng, orders, n), batch_size=64, time_first=True) for n in (count, 1000))
    delayed = nn.DelayedDense(LINES, hidden, LONGEST)
    more = (hidden * (2 * LINES + 1 + classes)) // (LINES + 1 + classes)  # neurons for as many learned parameters
    histories = {}
    for name, first, size in (("learned delays", delayed, hidden), ("no delays", nn.Dense(LINES, more), more)):
        net = network(first, size, classes)
        delays = [first.delay] if name == "learned delays" else []
        others = [p for p in net.trainable_params() if all(p is not one for one in delays)]
        groups = [{"params": others}] + [{"params": delays, "lr": 0.3} for _ in delays]
        narrow = [Narrow(first, epochs) for _ in delays]
        adam = nn.Adam(groups, 1e-2)
        result = fit(net, nn.CrossEntropyLoss(), adam, data, epochs, validation=test, progress=False, callbacks=narrow)
        histories[name] = [record["test_accuracy"] for record in result.history]
        learned = sum(p.size for p in net.trainable_params())
        print(f"{name:<15} {learned} learned parameters, accuracy {histories[name][-1]:.3f}")
    if picture is not None:
        _, ax = plt.subplots(figsize=(6, 3), layout="constrained")
        for name, history in histories.items():
            ax.plot(range(1, epochs + 1), history, label=name)
        ax.set(xlabel="epoch", ylabel="test accuracy", ylim=(0, 1))
        ax.legend()
        ax.figure.savefig(picture, dpi=150)
    return tuple(history[-1] for history in histories.values())


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
