"""Estimate energy in joules: one network with three input codes (currents, rate, latency), compared with an ANN.

It trains one network for each code, and prints and plots cost and accuracy.

    python examples/energy.py
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import snncell
from snncell import Tensor, encode, monitoring, nn, plot
from snncell.data import digits

STEPS = 10
CODES = {  # functions of pixels, (B, 64) -> (T, B, 64)
    "currents": lambda x: encode.current(x, STEPS),
    "rate": lambda x: encode.rate(x, STEPS),
    "latency": lambda x: encode.latency(x, STEPS, linear=True, normalize=True, clip=True),
}


class Net(nn.Cell):
    """Map (T, B, 64) to the scores of ten digits, and return the spikes of the hidden layer."""

    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.dense, self.hidden = nn.Dense(64, hidden), nn.MultiStep(nn.LIFNode(4.0, 0.3, decay_input=False))
        self.read, self.out = nn.Dense(hidden, 10), nn.MultiStep(nn.LINode(4.0))

    def construct(self, x):
        spikes = self.hidden(self.dense(x))
        return self.out(self.read(spikes)).mean(0), spikes


def train(x, labels, epochs):
    """Return a trained network. A small penalty on each spike is part of the loss."""
    net, loss, price = Net(), nn.CrossEntropyLoss(), nn.L1RateSparsity(1e-6)
    adam = nn.Adam(net.trainable_params(), 2e-3)

    def objective(x, y):
        scores, spikes = net(x)
        return loss(scores, y) + price(spikes)

    gradients = snncell.value_and_grad(objective, None, net.trainable_params())
    step = snncell.jit(lambda x, y: adam(gradients(x, y)[1]))
    for _ in range(epochs):
        for batch in snncell.train.Batches(x, labels, batch_size=64, time_first=True):
            step(*batch)
    return net


def main(epochs=8, folder="."):
    training, test = ((Tensor(images.reshape(-1, 64)), Tensor(labels)) for images, labels in digits())
    figure, axes = plt.subplots(1, len(CODES), figsize=(3.3 * len(CODES), 2.4), layout="constrained")
    found = {}
    for (name, code), ax in zip(CODES.items(), axes, strict=True):
        snncell.set_seed(0)
        net = train(code(training[0]), training[1], epochs)
        x = code(test[0])
        right = float((net(x)[0].argmax(1) == test[1]).astype("float32").mean())
        found[name] = right, monitoring.energy(net, x)
        print(f"{name}: test accuracy {right:.0%}", found[name][1], sep="\n", end="\n\n")
        plot.energy_by_layer(found[name][1], ax, f"{name}: test accuracy {right:.0%}")
    figure.savefig(Path(folder, "energy.png"), dpi=200)
    return found


if __name__ == "__main__":
    main(folder=sys.argv[1] if len(sys.argv) > 1 else ".")
