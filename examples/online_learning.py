"""Learning forward in time: e-prop on a task that needs a memory, beside backpropagation through time.

A cue, on the left or on the right, is followed by nothing but noise, until the network is asked which one it was.
Adapting neurons keep it: what has fired has a higher threshold for a while. The network is trained three times: by
e-prop, whose learning signals come back through the weights of the readout; by random e-prop, where they come back by
weights that are drawn once; and by backpropagation through time, which is the same layer without its reverse.
"""

import numpy as np

import snncell
from snncell import Tensor, nn

CUE, ASKED = 8, 8  # steps of the cue and of the question


class Bptt(nn.EProp):
    """The same recurrent layer; without a bprop of its own it has the gradient of the tape."""

    bprop = None


METHODS = {
    "e-prop": (nn.EProp, nn.Dense),
    "random e-prop": (nn.EProp, nn.FeedbackDense),
    "BPTT": (Bptt, nn.Dense),
}


def trials(rng, steps, batch=64):
    """Spikes on 4 x 5 lines, (T, B, 20): the left cue, the right one, the question and noise; and which cue it was."""
    side = rng.integers(0, 2, batch)
    rates = np.zeros((steps, batch, 4))
    rates[:CUE, np.arange(batch), side] = 0.4
    rates[-ASKED:, :, 2] = 0.4
    rates[:, :, 3] = 0.05
    spikes = rng.uniform(size=(steps, batch, 4, 5)) < rates[..., None]
    return Tensor(spikes.reshape(steps, batch, 20).astype(np.float32)), Tensor(side)


def train(method: str, updates: int, steps: int, neurons: int) -> float:
    """The accuracy on new trials after so many steps of the optimiser."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    kind, readout = METHODS[method]
    layer = kind(20, neurons, decay=0.9, adaptation=0.2, adaptation_decay=0.98)
    net = nn.SequentialCell(layer, readout(neurons, 2))
    loss_fn, weights = nn.CrossEntropyLoss(), net.trainable_params()
    optimiser = nn.Adam(weights, 5e-3)

    def answers(x):
        return net(x)[-ASKED:].mean(0)

    gradients = snncell.value_and_grad(lambda x, y: loss_fn(answers(x), y), None, weights)

    @snncell.jit
    def step(x, y):
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss

    for _ in range(updates):
        loss = step(*trials(rng, steps))
    x, y = trials(rng, steps, 512)
    accuracy = float((answers(x).argmax(1) == y).mean())
    print(f"{method:<14} loss {float(loss):.3f}, accuracy on new trials {accuracy:.3f}")
    return accuracy


def main(updates: int = 150, steps: int = 50, neurons: int = 40) -> dict[str, float]:
    """Train by each method; the accuracies."""
    return {method: train(method, updates, steps, neurons) for method in METHODS}


if __name__ == "__main__":
    main()
