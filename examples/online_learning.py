"""Online learning by e-prop, compared with backpropagation through time (BPTT), on a task that needs a memory.

A cue on the left or on the right is followed by noise, until the network must say which one it was. Adaptive neurons
remember the cue, because a spike raises their threshold for a while. The example trains three times. With e-prop, the
learning signals use the weights of the readout. With random e-prop, they use fixed random weights. BPTT is the same
layer without its custom gradient.
"""

import numpy as np

import snncell
from snncell import Tensor, nn

CUE, ASKED = 8, 8  # time steps of the cue and of the question


class Bptt(nn.EProp):
    """The same recurrent layer. Without a bprop, it gets the gradient of the tape, which is BPTT."""

    bprop = None


METHODS = {
    "e-prop": (nn.EProp, nn.Dense),
    "random e-prop": (nn.EProp, nn.FeedbackDense),
    "BPTT": (Bptt, nn.Dense),
}


def trials(rng, steps, batch=64):
    """Return spikes on 4 x 5 lines (left cue, right cue, question, noise), (T, B, 20), and the side of the cue."""
    side = rng.integers(0, 2, batch)
    rates = np.zeros((steps, batch, 4))
    rates[:CUE, np.arange(batch), side] = 0.4
    rates[-ASKED:, :, 2] = 0.4
    rates[:, :, 3] = 0.05
    spikes = rng.uniform(size=(steps, batch, 4, 5)) < rates[..., None]
    return Tensor(spikes.reshape(steps, batch, 20).astype(np.float32)), Tensor(side)


def train(method: str, updates: int, steps: int, neurons: int) -> float:
    """Train, and return the accuracy on new trials."""
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
    """Train with each method and return the accuracies."""
    return {method: train(method, updates, steps, neurons) for method in METHODS}


if __name__ == "__main__":
    main()
