"""The steady potential of neurons without a threshold, by their excitatory input. With conductances, an input has less
effect close to the reversal potential of 6, and inhibition divides the potential instead of subtracting from it.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import Tensor, nn

RATES, STEPS = np.linspace(0.0, 1.0, 41, dtype=np.float32), 400  # input per step


def steady(neuron: nn.Neuron, inhibition: float) -> Any:
    """Return the last potential for each rate."""
    excitation = np.where(np.arange(STEPS)[:, None] % 2, RATES, 0.0)  # inhibition comes in the other steps
    x = excitation - np.where(np.arange(STEPS)[:, None] % 2, 0.0, inhibition)
    _, (v, *_) = nn.MultiStep(neuron, return_states=True)(Tensor(x.astype(np.float32)))
    return v.asnumpy()


def main() -> Figure:
    plt.style.use(Path(__file__).with_name("house.mplstyle"))
    figure, ax = plt.subplots(figsize=(3.3, 2.4), layout="constrained")
    for inhibition, style in ((0.0, "-"), (0.5, "--")):
        words = ", inhibited" if inhibition else ""
        cuba = nn.CubaLIFNode(0.819, 0.95, 0.25, v_threshold=1e9)
        coba = nn.CobaLIFNode(e_inh=0.0, v_threshold=1e9)
        for name, neuron, look in ("current", cuba, "C1s"), ("conductance", coba, "C2o"):
            ax.plot(RATES, steady(neuron, inhibition), look + style, markevery=8, label=f"{name}{words}")
    ax.axhline(6.0, color="black", linewidth=0.8, linestyle=":", label="reversal potential")
    ax.set(xlabel="excitatory input", ylabel="potential", ylim=(-8.0, 23.0))
    ax.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
