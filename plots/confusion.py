"""Confusion matrix of the test images: the network recognises nearly all digits, so nearly all images are on the
diagonal.
"""

from pathlib import Path

from matplotlib.figure import Figure
from trained import images, trained

from snncell import plot


def main() -> Figure:
    x, labels = images()
    return plot.confusion_matrix(trained().net(x), labels).figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
