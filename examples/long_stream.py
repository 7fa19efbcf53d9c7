"""Truncated backpropagation through time (BPTT) on a stream that does not fit into memory.

A recurrent network predicts a signal some steps ahead. The stream comes in chunks, and each chunk has its own training
step. The states continue from one chunk to the next, but the gradient does not. Within a chunk, `nn.Truncated` cuts the
gradient again. So you can choose the chunk length for speed, and the truncation for learning.
"""

import tracemalloc

import numpy as np

import snncell
from snncell import Tensor, nn

AHEAD, BATCH = 5, 16


class Net(nn.Cell):
    """1 input -> recurrent LIF neurons -> a linear readout that predicts the input."""

    def __init__(self, neurons: int, every: int) -> None:
        super().__init__()
        self.dense = nn.Dense(1, neurons, weight_init="normal", bias_init="ones")
        neuron = nn.LIFNode(10.0, decay_input=False, surrogate_function=snncell.surrogate.ATan())
        recurrent = nn.Recurrent(neuron, nn.Dense(neurons, neurons, has_bias=False))
        self.hidden = nn.MultiStep(nn.Truncated(recurrent, every), return_states=True)
        self.readout = nn.Dense(neurons, 1)

    def construct(self, x, *states):
        spikes, states = self.hidden(self.dense(x), *states)
        return self.readout(spikes), states


def stream(chunks: int, length: int):
    """Yield chunks (length, B, 1) of a sum of two slow waves, and the values AHEAD steps later, one at a time."""
    phase = np.random.default_rng(0).uniform(0.0, 6.28, (2, 1, BATCH, 1))
    for chunk in range(chunks):
        t = np.arange(chunk * length, (chunk + 1) * length + AHEAD).reshape(-1, 1, 1)
        wave = np.sin(t / 15.0 + phase[0]) + 0.5 * np.sin(t / 6.0 + phase[1])
        yield Tensor(wave[:-AHEAD].astype(np.float32)), Tensor(wave[AHEAD:].astype(np.float32))


def main(chunks: int = 200, length: int = 100, every: int = 25, neurons: int = 64) -> tuple[list[float], list[int]]:
    """Train along the stream. Return the loss of each chunk, and the extra memory of its first and second half."""
    snncell.set_seed(0)
    net, loss_fn = Net(neurons, every), nn.MSELoss()
    optimiser = nn.Adam(net.trainable_params(), 2e-3)

    def loss(x, y, *states):
        prediction, states = net(x, *states)
        return loss_fn(prediction, y), states

    gradients = snncell.value_and_grad(loss, None, net.trainable_params(), has_aux=True)

    @snncell.jit
    def step(x, y, *states):
        (value, states), grads = gradients(x, y, *states)
        optimiser(grads)
        return value, states

    losses, peaks, states = [], [], ()
    for number, (x, y) in enumerate(stream(chunks, length), 1):
        value, states = step(x, y, *states)
        losses.append(float(value))
        if number in (chunks // 2, chunks):
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.reset_peak()
            print(f"{number * length:7d} steps: loss {losses[-1]:.4f}, {peaks[-1] / 1e6:.2f} MB additional memory")
        if number == 2:  # everything is compiled now
            tracemalloc.start()
    tracemalloc.stop()
    return losses, peaks


if __name__ == "__main__":
    main()
