"""Gradient of the spikes of the last step, through 40 time steps of one layer. If the gradient includes the reset, each
step cancels most of it, and nothing reaches the early steps. With `detach_reset=True` the gradient decays with the leak
only.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import snncell
from snncell import nn, ops, plot


def main(steps: int = 40) -> Figure:
    snncell.set_seed(0)
    x = ops.uniform((steps, 8, 64), 0.0, 0.5)
    gradients = {}
    for name, detached in (("reset in the gradient", False), ("reset detached", True)):
        net = nn.MultiStep(nn.LIFNode(tau=10.0, decay_input=False, detach_reset=detached))
        with snncell.monitor(net, grad=True) as monitor:
            snncell.grad(lambda x, net=net: net(x)[-1].sum())(x)
        gradients[name] = next(iter(monitor.grad.values()))
    figure, axes = plt.subplots(figsize=(3.3, 2.5), layout="constrained")
    plot.gradient_norms(gradients, axes, "gradient of the last step's spikes")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
