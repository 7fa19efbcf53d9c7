"""Dead neurons in six untrained layers. With small weights the spikes die out after a few layers; with larger weights
every layer fires.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import deep, images, watched

from snncell import ops, plot, surrogate


def main() -> Figure:
    x = ops.broadcast_to(images(100)[0], (16, 100, 64))
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
    for ax, gain, title in zip(axes, (1.0, 3.0), ("small weights", "weights three times as large"), strict=True):
        monitor = watched(deep(6, surrogate.ATan(), gain), x)
        spikes = {f"layer {n + 1}": monitor.spikes[name] for n, name in enumerate(monitor.layers)}
        plot.dead_and_saturated(spikes, ax, title)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
