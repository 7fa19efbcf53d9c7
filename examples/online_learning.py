"""Online learning of your own neuron, with an update after each time step, on a task that needs a memory.

A cue on the left or on the right is followed by noise, until the network must say which one it was. The neurons
remember the cue, because a spike raises their threshold for a while. `nn.Online` derives the eligibility traces of this
neuron. E-prop keeps the path through the threshold. OTTT and SLTT ignore it, so they cannot learn this task.
"""

import numpy as np

import snncell
from snncell import Tensor, nn, ops

CUE, ASKED = 8, 8  # time steps of the cue and of the question


class Adaptive(nn.Cell):
    """A dense layer of neurons with a threshold that rises with each spike: one time step."""

    def __init__(self, inputs: int, neurons: int) -> None:
        super().__init__()
        self.dense = nn.Dense(inputs, neurons, weight_init="normal", has_bias=False)
        self.spike = snncell.surrogate.Triangle()

    def construct(self, x, v, rise):
        v = 0.9 * v + self.dense(x)
        z = self.spike(v - 1.0 - 0.2 * rise)
        return z, v - ops.stop_gradient(z), 0.98 * rise + z

    def init_state(self, x):
        return (ops.zeros((x.shape[0], self.dense.out_channels)),) * 2


def trials(rng, steps, batch=64):
    """Return spikes on 4 x 5 lines (left cue, right cue, question, noise), (T, B, 20), and the side of the cue."""
    side = rng.integers(0, 2, batch)
    rates = np.zeros((steps, batch, 4))
    rates[:CUE, np.arange(batch), side] = rates[-ASKED:, :, 2] = 0.4
    rates[:, :, 3] = 0.05
    spikes = rng.uniform(size=(steps, batch, 4, 5)) < rates[..., None]
    return Tensor(spikes.reshape(steps, batch, 20).astype(np.float32)), Tensor(side)


def train(rule: str, updates: int, steps: int, neurons: int) -> float:
    """Train by a rule, and return the accuracy on new trials."""
    snncell.set_seed(0)
    rng, loss_fn = np.random.default_rng(0), nn.CrossEntropyLoss()
    layer, readout = nn.Online(Adaptive(20, neurons), rule), nn.Dense(neurons, 2)
    optimiser = nn.Adam(weights := [*layer.trainable_params(), *readout.trainable_params()], 2e-3)

    def loss(x, side, *states):
        z, *states = layer(x, *states)
        return loss_fn(readout(z), side), states

    @snncell.jit
    def learn(x, side, *states):
        (_, states), grads = snncell.value_and_grad(loss, None, weights, has_aux=True)(x, side, *states)
        optimiser(grads)
        return states

    wait = snncell.jit(lambda x, *states: layer(x, *states)[1:])
    for _ in range(updates):
        x, side = trials(rng, steps)
        states = layer.init_state(x[0])
        for t in range(steps):
            states = wait(x[t], *states) if t < steps - ASKED else learn(x[t], side, *states)
    x, side = trials(rng, steps, 512)
    answers = readout(nn.MultiStep(layer.cell)(x)[-ASKED:]).mean(0)
    accuracy = float((answers.argmax(1) == side).mean())
    print(f"{rule:<8} accuracy on new trials {accuracy:.3f}")
    return accuracy


def main(updates: int = 100, steps: int = 40, neurons: int = 40) -> dict[str, float]:
    """Train by each rule and return the accuracies."""
    return {rule: train(rule, updates, steps, neurons) for rule in ("e-prop", "OTTT", "SLTT")}


if __name__ == "__main__":
    main()
