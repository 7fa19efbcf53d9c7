"""Gradient of a recurrent network through 50 time steps of random manifolds. With strong feedback it explodes towards
the first step; with weak feedback it keeps its size. Both plots use the same colours.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn, plot, surrogate
from snncell.common.initializer import Normal
from snncell.data import randman


def gradients(feedback: float, x: Tensor, labels: Tensor, neurons: int = 32) -> dict[str, np.ndarray]:
    """Return the gradients of two recurrent layers and of the integrators after them."""
    snncell.set_seed(0)
    cells: list[nn.Cell] = []
    for inputs in (x.shape[2], neurons):
        node = nn.CubaLIFNode(alpha=0.8, beta=0.9, surrogate_function=surrogate.ATan())
        weights = nn.Dense(neurons, neurons, weight_init=Normal(feedback))
        cells += [nn.Dense(inputs, neurons, weight_init=Normal(0.4)), nn.MultiStep(nn.Recurrent(node, weights))]
    net = nn.SequentialCell(*cells, nn.Dense(neurons, 5), nn.MultiStep(nn.LINode(tau=10.0)), nn.Readout("mean"))
    with snncell.monitor(net, grad=True) as monitor:
        snncell.grad(lambda x: nn.CrossEntropyLoss()(net(x), labels))(x)
    names = "recurrent 1", "recurrent 2", "read-out"
    return {name: monitor.grad[layer] for name, layer in zip(names, monitor.layers, strict=True)}


def main() -> Figure:
    patterns, labels = randman(5, 20, 20, 50, dim=1, seed=3)
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.2), layout="constrained")
    for ax, feedback, title in zip(axes, (0.5, 0.02), ("strong feedback", "weak feedback"), strict=True):
        shown = plot.gradient_flow(gradients(feedback, Tensor(patterns), Tensor(labels)), ax, title)
        shown.collections[0].set_clim(1e-7, 1.0)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
