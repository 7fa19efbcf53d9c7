"""Weights and biases of each layer before and after training. The weights leave their initial range, and the biases
move little.
"""

from pathlib import Path

from matplotlib.figure import Figure
from trained import trained

from snncell import plot


def main() -> Figure:
    net, before, _ = trained()
    return plot.weight_histograms(net, before=before, title="before and after 12 epochs").figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
