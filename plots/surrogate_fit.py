"""Membrane potentials of a trained layer, with two surrogates. The derivative of the narrow surrogate is nearly 0 at
most potentials, so most neurons get no gradient at most steps. The derivative of the wide one covers nearly all
potentials.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import recorded

from snncell import plot, surrogate


def main() -> Figure:
    above = recorded().above["layer2"]
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")
    for ax, width, title in zip(axes, (0.05, 1.0), ("too narrow", "fits"), strict=True):
        triangle = surrogate.Triangle(width=width)
        share = plot.share_outside(above, triangle)
        plot.surrogate_and_membrane(above, triangle, ax=ax, title=f"{title}: {100 * share:.3g} % out of reach")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
