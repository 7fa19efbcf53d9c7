"""One image in four spike codes. Bright pixels fire often (rate) or early (latency). In the phase code, the steps stand
for the binary digits of the brightness. In the population code, each pixel has neurons for dark, grey and bright, and a
neuron fires earlier if it fits better.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import images

import snncell
from snncell import encode, plot


def main(steps: int = 32) -> Figure:
    snncell.set_seed(0)
    x = images(1)[0][0]  # 64 pixels
    soon = {"linear": True, "normalize": True}
    codes = {
        "rate": encode.rate(x, steps),
        "latency": encode.latency(x, steps, clip=True, **soon),
        "phase": encode.phase(x, steps, period=8),
        "population": encode.latency(encode.population(x, 3).reshape(-1), steps, threshold=0.3, clip=True, **soon),
    }
    figure, axes = plt.subplots(1, 4, figsize=(7, 2.6), layout="constrained")
    for ax, (name, spikes) in zip(axes, codes.items(), strict=True):
        plot.raster(spikes, ax, name)
        ax.set_title(f"{name}\n{int(spikes.sum())} spikes", fontsize=8)
        ax.set_ylabel("pixel" if ax is axes[0] else "pixel and grey value" if ax is axes[3] else "")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
