"""Training curves: loss and accuracy of training and test images for each epoch. A star marks the best epoch."""

from pathlib import Path

from matplotlib.figure import Figure
from trained import trained

from snncell import plot


def main() -> Figure:
    return plot.training_curves(trained().result, title="DigitNet learns to read").figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
