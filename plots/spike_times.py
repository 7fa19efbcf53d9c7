"""First spikes of neurons that learn target times by exact gradients (EventProp). Before training the errors reach ten
ms and more; after training most spikes are right to the ms.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn, ops, plot

END = 50  # ms; a bin of the histograms is one ms


def main(updates: int = 300, patterns: int = 16, lines: int = 40, outputs: int = 8) -> Figure:
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    times = Tensor(rng.uniform(0.0, 20.0, (patterns, lines)).astype(np.float32))
    wanted = rng.integers(8, 20, (patterns, outputs)).astype(np.float32)
    net = nn.EventPropLIF(
        lines, outputs, tau_mem=20.0, tau_syn=5.0, t_max=END, weight_init=snncell.common.initializer.Normal(0.15, 0.25)
    )
    adam = nn.Adam(net.trainable_params(), 2e-2)

    def error(found: Tensor, wanted: Tensor) -> Tensor:
        return ops.square(ops.minimum(found[..., 0], END) - wanted).mean()

    step = snncell.train.training_step(net, error, adam, clip=lambda g: snncell.train.clip_by_global_norm(g, 1.0))

    def spikes() -> np.ndarray:  # (T, B, N), with one step per ms
        return np.round(net(times)[..., 0].asnumpy()) == np.arange(END)[:, None, None]

    figure, axes = plt.subplots(1, 2, figsize=(7, 2.4), layout="constrained")
    plot.spike_time_differences(spikes(), wanted, axes[0], "before", labels=("found", "wanted"))
    for _ in range(updates):
        step(times, Tensor(wanted))
    plot.spike_time_differences(spikes(), wanted, axes[1], "after", labels=("found", "wanted"))
    axes[1].set_xlim(axes[0].get_xlim())
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
