"""Gradient through eight layers for three widths of the surrogate. With a narrow one it vanishes towards the first
layer; with a wide one it grows. All plots use the same colours.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import deep, images, watched

from snncell import ops, plot, surrogate


def main(depth: int = 8) -> Figure:
    x = ops.broadcast_to(images(32)[0], (16, 32, 64))
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.6), layout="constrained")
    for ax, width in zip(axes, (0.1, 0.4, 2.0), strict=True):
        monitor = watched(deep(depth, surrogate.Triangle(width=width), gain=3.0), x)
        gradients = {f"layer {n + 1}": monitor.grad[name] for n, name in enumerate(monitor.layers)}
        plot.gradient_flow(gradients, ax, f"width {width:g}").collections[0].set_clim(1e-3, 1e4)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
