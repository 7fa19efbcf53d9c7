"""A temporal task with your own neuron: which of two input lines fired first?

Each line fires once, and the network must tell the order. It is trained with a jitted training step. At the end, the
example records and plots the potentials of its neurons.
"""

import sys

import numpy as np

import snncell
from snncell import Tensor, nn, ops, plot

STEPS, BATCH = 20, 64


class TwoScales(nn.Cell):
    """A fast synaptic current feeds a slow membrane: i = 0.7 i + x, v = 0.95 v + 0.2 i, reset by subtraction."""

    spike = snncell.surrogate.ATan()

    def construct(self, x, i, v):
        i = 0.7 * i + x
        h = 0.95 * v + 0.2 * i
        s = self.spike(h - 1.0)
        return (s, h), i, h - s  # MultiStep collects an output of any structure: here spikes and potentials


class Net(nn.Cell):
    """2 lines -> 32 neurons -> 2 classes, read from the mean spikes."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(2, 32, weight_init="normal")
        self.readout = nn.Dense(32, 2)
        self.neurons = nn.MultiStep(TwoScales())

    def construct(self, x):
        spikes, potentials = self.neurons(self.dense(x) * 20.0)  # otherwise all neurons would be silent
        late = ops.arange(STEPS).astype("float32").reshape((-1, 1, 1)) / STEPS  # later spikes count more
        return self.readout((spikes * late).mean(0)), spikes, potentials


def pulses(rng):
    """Return one pulse on each line at different time steps, (T, B, 2), and which line was first."""
    times = np.stack([rng.permutation(STEPS - 4)[:2] for _ in range(BATCH)])
    x = np.zeros((STEPS, BATCH, 2), np.float32)
    x[times[:, 0], np.arange(BATCH), 0] = 1.0
    x[times[:, 1], np.arange(BATCH), 1] = 1.0
    return Tensor(x), Tensor((times[:, 1] < times[:, 0]).astype(np.int64))


def main(steps: int = 400, picture: str | None = None) -> float:
    """Train and return the accuracy on new pulses. Draw the potentials to `picture` if you pass a path."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    net, loss_fn = Net(), nn.CrossEntropyLoss()
    optimiser = nn.Adam(net.trainable_params(), 5e-3)
    gradients = snncell.value_and_grad(lambda x, y: loss_fn(net(x)[0], y), None, net.trainable_params())

    @snncell.jit
    def step(x, y):
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss

    for _ in range(steps):
        step(*pulses(rng))
    x, y = pulses(rng)
    logits, spikes, potentials = net(x)
    print(f"accuracy on new pulses {(accuracy := float((logits.argmax(1) == y).mean())):.3f}")
    if picture is not None:
        axes = plot.membrane(potentials[:, 0, :3], spikes[:, 0, :3], v_threshold=1.0, title="before the reset")
        axes.figure.savefig(picture, dpi=150)
    return accuracy


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
