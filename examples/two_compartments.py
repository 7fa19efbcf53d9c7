"""Remember a cue for a hundred steps with two-compartment neurons (TC-LIF), compared with LIF neurons.

One of four lines is active for five steps. Afterwards all lines carry only noise, and at the end the network must name
the line. There are no recurrent weights, so that the memory can only be in the neurons.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import nn, ops, surrogate

CUES, CUE, DELAY, NEURONS = 4, 5, 100, 32


def batch(size):
    """Inputs (T, B, lines) and the number of the active line, (B,)."""
    labels = ops.randint(0, CUES, (size,))
    active = ops.one_hot(labels, CUES) * 0.8
    noise = (ops.uniform((CUE + DELAY, size, CUES)) < 0.05).astype("float32") * 0.2
    return noise + ops.concat([ops.stack([active] * CUE), ops.zeros((DELAY, size, CUES))]), labels


def train(neuron, updates):
    """Return the accuracy of each update."""
    snncell.set_seed(0)
    hidden = nn.SequentialCell(nn.Dense(CUES, NEURONS), nn.MultiStep(neuron))
    readout = nn.Dense(NEURONS, CUES)
    params = [*hidden.trainable_params(), *readout.trainable_params()]
    loss, adam = nn.CrossEntropyLoss(), nn.Adam(params, 0.01)

    def forward(x, labels):
        logits = readout(hidden(x)[-20:].mean(0))
        return loss(logits, labels), (logits.argmax(-1) == labels).astype("float32").mean()

    gradients = snncell.value_and_grad(forward, None, params, has_aux=True)

    @snncell.jit
    def update(x, labels):
        (_, right), grads = gradients(x, labels)
        adam(grads)
        return right

    return [float(update(*batch(64))) for _ in range(updates)]


def main(updates: int = 300, picture: str | None = None):
    """Return the accuracies of the last 20 updates. Draw running means to `picture`."""
    options = {"surrogate_function": surrogate.ATan(), "learnable": ("beta1", "beta2")}
    neurons = {
        "LIF, tau 2": nn.LIFNode(2.0, surrogate_function=surrogate.ATan()),
        "LIF, tau 50": nn.LIFNode(50.0, decay_input=False, surrogate_function=surrogate.ATan()),
        "TC-LIF": nn.TCLIFNode([-0.5] * NEURONS, [0.5] * NEURONS, **options),
    }
    curves = {name: train(neuron, updates) for name, neuron in neurons.items()}
    for name, curve in curves.items():
        print(f"{name:<12} accuracy {sum(curve[-20:]) / 20:.2f}")
    if picture is not None:
        for name, curve in curves.items():
            smooth = np.convolve(curve, np.ones(20) / 20, "valid")
            plt.plot(np.arange(len(smooth)) + 20, smooth, label=name)
        plt.axhline(1 / CUES, color="0.4", linestyle="--", label="chance")
        plt.gca().set(xlabel="update", ylabel="accuracy, mean of 20 updates", ylim=(0, 1))
        plt.legend()
        plt.savefig(picture, dpi=150)
    return {name: sum(curve[-20:]) / 20 for name, curve in curves.items()}


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
