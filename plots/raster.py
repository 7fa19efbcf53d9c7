"""Spike raster of two layers of a trained network that sees one digit as a constant current. Few neurons fire in each
layer, and they fire repeatedly. The second layer starts one time step later.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import images, recorded

from snncell import plot


def main() -> Figure:
    monitor, (_, labels) = recorded(), images(1)
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    for ax, layer in zip(axes, ("layer1", "layer2"), strict=True):
        plot.raster(monitor, ax=ax, layer=layer, title=f"{layer}, shown a {labels[0]}")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
