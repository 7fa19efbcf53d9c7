"""The gradient of the loss with respect to each layer's current, step by step: what comes in early stays in the
potentials that are read out, so it counts most; what comes in at the last step can hardly change anything.
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
