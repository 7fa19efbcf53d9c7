"""Long memory: recall a class after a delay, and read digits pixel by pixel.

LIF neurons forget within a few time constants, and a sliding PSN sees the last 64 steps. Resonators and state space
models (LRU) keep an oscillation over hundreds of steps. All networks have two hidden layers of spikes of the same size.
"""

import numpy as np

from snncell import nn, set_seed
from snncell.data import digits
from snncell.surrogate import ATan
from snncell.train import Batches, fit

CLASSES, CUE = 8, 5  # channels, and steps of the cue


def recall(count, delay, seed):
    """A cue of 5 steps on one of 8 channels, then noise: spikes (T, N, 8), and the channel of each sample."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    x = (rng.random((CUE + delay, count, CLASSES)) < 0.05).astype(np.float32)
    x[:CUE] = np.eye(CLASSES, dtype=np.float32)[labels]
    return x, labels


def pixels(images, labels):
    """Images (N, 8, 8) as sequences of one pixel per step, (64, N, 1)."""
    return images.reshape(len(images), -1, 1).transpose(1, 0, 2), labels


def resonators(size):
    """A bank of neurons with a frequency and a damping each, which are learned."""
    omega, damping, learned = np.linspace(0.02, 0.5, size), np.full(size, 0.002), ("omega", "damping")
    return nn.BalancedResonateNode(omega, damping, learnable=learned, surrogate_function=ATan())


def lif(reset):
    return nn.LIFNode(20.0, decay_input=False, reset=reset, learnable="tau", surrogate_function=ATan())


LAYERS = {
    "LIF": lambda inputs, size: [nn.Dense(inputs, size), nn.MultiStep(lif("subtract"))],
    "LIF, no reset": lambda inputs, size: [nn.Dense(inputs, size), nn.MultiStep(lif(None))],
    "sliding PSN": lambda inputs, size: [nn.Dense(inputs, size), nn.SlidingPSN(order=64)],
    "resonators": lambda inputs, size: [nn.Dense(inputs, size), nn.MultiStep(resonators(size))],
    "LRU": lambda inputs, size: [nn.LRU(inputs, size, size // 2, radius=(0.99, 0.9995), max_phase=1.0), ATan()],
}


class LastSteps(nn.Cell):
    """The mean of the last steps: (T, B, N) -> (B, N)."""

    def construct(self, x):
        return x[-CUE:].mean(0)


def accuracy(name, data, test, epochs, size, seed=0):
    """Train a network with two hidden layers, and return its accuracy on the test data."""
    set_seed(seed)
    layers, inputs, classes = LAYERS[name], data[0].shape[2], len(set(data[1]))
    net = nn.SequentialCell(*layers(inputs, size), *layers(size, size), nn.Dense(size, classes), LastSteps())
    data, test = (Batches(*part, batch_size=64, time_first=True) for part in (data, test))
    adam, loss = nn.Adam(net.trainable_params(), 1e-2), nn.CrossEntropyLoss()
    result = fit(net, loss, adam, data, epochs, test=test, test_every=epochs, progress=False)
    return result.history[-1]["test_accuracy"]


def main(delay: int = 100, count: int = 1024, epochs: tuple[int, int] = (8, 16)):
    """Return the accuracies of each network on both tasks."""
    found, (data, test) = {}, digits()
    for name in LAYERS:
        recalled = accuracy(name, recall(count, delay, 0), recall(500, delay, 1), epochs[0], size=32)
        found[name] = recalled, accuracy(name, pixels(*data), pixels(*test), epochs[1], size=64)
        print(f"{name:<14} cue after {delay} steps {recalled:.3f}, digits pixel by pixel {found[name][1]:.3f}")
    return found


if __name__ == "__main__":
    main()
