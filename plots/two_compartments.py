"""Three steps of input to a LIF neuron, and to the two compartments of a TC-LIF neuron. The LIF neuron forgets them.
Dendrite and soma exchange the charge without a leak, so they oscillate until later input arrives. Bars are spikes.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import Tensor, nn


class WithDendrite(nn.TCLIFNode):
    def construct(self, x: Tensor, v: Tensor, d: Tensor) -> Any:
        s, v, d = super().construct(x, v, d)
        return (s, v, d), v, d


class WithPotential(nn.LIFNode):
    def construct(self, x: Tensor, v: Tensor) -> Any:
        s, v = self.fired(self.charge(x, v), None)
        return (s, v), v


def main() -> Figure:
    plt.style.use(Path(__file__).with_name("house.mplstyle"))
    x = np.eye(80, dtype=np.float32)[5:8].sum(0)[:, None]  # (T, N)
    lif = nn.MultiStep(WithPotential(5.0, decay_input=False))(Tensor(x))
    two = nn.MultiStep(WithDendrite(gamma=0.2))(Tensor(x))
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharey=True, layout="constrained")
    for ax, title, curves in (axes[0], "LIF, tau = 5", lif), (axes[1], "TC-LIF", two):
        spikes, *potentials = (part.asnumpy()[:, 0] for part in curves)
        for label, style, curve in zip(("soma v", "dendrite d"), ("-", "--"), potentials, strict=False):
            ax.plot(curve, style, label=label)
        ax.plot(np.flatnonzero(spikes), np.full(int(spikes.sum()), 3.2), "|k", markersize=8)
        ax.set(title=title, xlabel="time step")
    axes[0].set_ylabel("potential")
    axes[1].legend(loc="upper right")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
