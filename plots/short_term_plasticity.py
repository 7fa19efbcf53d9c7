"""Short-term plasticity (Tsodyks-Markram) of a depressing and a facilitating synapse: eight spikes at 20 Hz, and one
half a second later. A spike acts with the strength u r, the product of the two curves.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import Tensor, nn

STEPS = 1000  # of 1 ms


class Recorded(nn.ShortTermPlasticity):
    """Return the states next to the strength of the spike."""

    def construct(self, x: Tensor, u: Tensor, r: Tensor) -> Any:
        y, u, r = super().construct(x, u, r)
        return (y, u, r), u, r


def main() -> Figure:
    spikes = np.zeros((STEPS, 1), np.float32)
    spikes[[*range(50, 450, 50), 900]] = 1.0
    kinds = {"depressing": Recorded(U=0.45, tau_f=50.0, tau_d=750.0), "facilitating": Recorded(0.15, 750.0, 50.0)}
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), sharey=True, layout="constrained")
    for ax, (name, synapse) in zip(axes, kinds.items(), strict=True):
        y, u, r = (part.asnumpy()[:, 0] for part in nn.MultiStep(synapse)(Tensor(spikes)))
        times = np.flatnonzero(y)
        ax.plot(u, label="u (facilitation)")
        ax.plot(r, "--", label="r (resources)")
        ax.vlines(times, 0.0, y[times], color="black", label="strength of a spike")
        ax.set(title=name, xlabel="time (ms)", ylim=(0.0, 1.05))
    axes[0].legend(loc="upper right")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
