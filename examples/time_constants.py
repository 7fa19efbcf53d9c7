"""Learn time constants: each neuron learns how long it remembers.

Two lines fire at random, one of them more often. At the end the network must say which one. Only its last spikes
count, so earlier input matters only if the neurons remember it. All neurons begin with a time constant of two steps.
The example trains once with fixed and once with learned time constants.
"""

import numpy as np

import snncell
from snncell import Tensor, nn
from snncell.common.initializer import Normal

HEARD = 4  # only the spikes of the last steps count


class Net(nn.Cell):
    """2 lines -> neurons -> 2 classes, read from the last spikes."""

    def __init__(self, neurons: int, learned: bool) -> None:
        super().__init__()
        spike = snncell.surrogate.ATan()
        node = nn.ParametricLIFNode(tau=np.full(neurons, 2.0), decay_input=False, surrogate_function=spike)
        node.w.requires_grad = learned
        self.dense = nn.Dense(2, neurons, weight_init=Normal(1.0))
        self.neurons = nn.MultiStep(node)
        self.readout = nn.Dense(neurons, 2)

    def construct(self, x):
        return self.readout(self.neurons(self.dense(x))[-HEARD:].mean(0))


def trials(rng, steps, batch=64):
    """Return spikes (T, B, 2), with rates of 0.4 and 0.2 per step, and the line that fires more often."""
    more = rng.integers(0, 2, batch)
    rates = np.where(np.arange(2) == more[:, None], 0.4, 0.2)
    return Tensor((rng.uniform(size=(steps, batch, 2)) < rates).astype(np.float32)), Tensor(more)


def train(learned: bool, updates: int, steps: int, neurons: int) -> tuple[float, np.ndarray]:
    """Return the accuracy on new trials, and the time constants in steps."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    net, loss_fn = Net(neurons, learned), nn.CrossEntropyLoss()
    step = snncell.train.training_step(net, loss_fn, nn.Adam(net.trainable_params(), 2e-2))
    for _ in range(updates):
        step(*trials(rng, steps))
    x, more = trials(rng, steps, 1000)
    return float((net(x).argmax(1) == more).mean()), net.neurons.cell.tau.asnumpy()


def main(updates: int = 300, steps: int = 50, neurons: int = 32) -> dict[str, float]:
    """Train with fixed and with learned time constants. Return the accuracies and the 90 % quantile of the latter."""
    fixed, before = train(False, updates, steps, neurons)
    learned, after = train(True, updates, steps, neurons)
    for name, accuracy, tau in (("fixed", fixed, before), ("learned", learned, after)):
        low, middle, high = np.quantile(tau, (0.1, 0.5, 0.9))
        print(f"{name:<8} accuracy {accuracy:.3f}, tau {middle:.1f} steps (most from {low:.1f} to {high:.1f})")
    return {"fixed": fixed, "learned": learned, "longest": float(np.quantile(after, 0.9))}


if __name__ == "__main__":
    main()
