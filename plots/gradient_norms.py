"""Gradient norm of each layer's current at each time step. Early input counts most, because it stays in the potentials
of the readout. Input at the last step can hardly change them.
"""

from pathlib import Path

from matplotlib.figure import Figure
from trained import recorded

from snncell import plot


def main() -> Figure:
    monitor = recorded()
    return plot.gradient_norms(monitor, title="gradient of the loss of 100 images").figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
