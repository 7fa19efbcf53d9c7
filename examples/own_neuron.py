"""Write your own neuron and surrogate: spikes of both signs, which follow a signal up and down."""

import math

import numpy as np

import snncell
from snncell import Tensor, nn, ops
from snncell.common.initializer import Normal


class Ternary(snncell.surrogate.Surrogate):
    """+1 above 1, -1 below -1, else 0. The gradient is that of two smooth steps of this width.

    primitive: (tanh((x - 1) / width) + tanh((x + 1) / width)) / 2
    """

    def __init__(self, width: float = 0.5) -> None:
        super().__init__(width=width)

    def construct(self, x):
        return (x > 1.0).astype(x.dtype) - (x < -1.0).astype(x.dtype)

    def bprop(self, x, out, dout):
        up, down = ops.tanh((x - 1.0) / self.width), ops.tanh((x + 1.0) / self.width)
        return (dout * (2.0 - up**2 - down**2) / (2.0 * self.width),)

    def primitive(self, x):
        return (ops.tanh((x - 1.0) / self.width) + ops.tanh((x + 1.0) / self.width)) / 2.0


class TwoSigned(nn.Cell):
    """A leaky membrane that fires upwards and downwards."""

    def __init__(self) -> None:
        super().__init__()
        self.spike = Ternary()

    def construct(self, x, v):
        h = 0.9 * v + x
        s = self.spike(h)
        return s, h - s


def signals(rng, steps, batch=32):
    """Return sums of two waves with random frequencies and phases, (T, B, 1)."""
    t = np.arange(steps)[:, None, None] / steps
    turns, phases = rng.uniform(1.0, 5.0, (batch, 2)), rng.uniform(0.0, 1.0, (batch, 2))
    return Tensor(np.sin(2.0 * math.pi * (turns * t + phases)).sum(2, keepdims=True).astype(np.float32))


def check(neuron: nn.Cell) -> None:
    """Check the bprop against its primitive, and the loop over time with smooth spikes against finite differences."""
    snncell.testing.check_bprop(neuron.spike, ops.uniform((50,), -3.0, 3.0))
    with snncell.surrogate.smooth():
        snncell.testing.check_grads(nn.MultiStep(neuron), ops.normal((10, 2, 3)))


def main(updates: int = 300, steps: int = 100, neurons: int = 32) -> float:
    """Check, explain and train. Return the remaining error relative to the variance of the signals."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    layer = nn.MultiStep(TwoSigned())
    check(layer.cell)
    report = snncell.explain(layer, ops.ones((steps, 32, neurons)), detail="launches")
    print(next(line.strip() for line in report.splitlines() if "one kernel" in line))
    readout = nn.MultiStep(nn.LINode(tau=2.0))
    net = nn.SequentialCell(nn.Dense(1, neurons, weight_init=Normal(0.3)), layer, nn.Dense(neurons, 1), readout)
    step = snncell.train.training_step(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 1e-2))
    for _ in range(updates):
        step(x := signals(rng, steps), x)
    x = signals(rng, steps)
    left = float(ops.square(net(x) - x).mean() / ops.square(x).mean())
    print(f"error {left:.3f} of the variance, {float(layer(net[0](x)).abs().mean()):.3f} spikes per step and neuron")
    return left


if __name__ == "__main__":
    main()
