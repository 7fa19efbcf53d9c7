"""Firing rates of the neurons of two layers over 100 images. Half of the neurons fire less often than every sixth time
step. A few neurons of the first layer fire at nearly every step.
"""

from pathlib import Path

from matplotlib.figure import Figure
from trained import recorded

from snncell import plot


def main() -> Figure:
    spikes = {layer: recorded().spikes[layer] for layer in ("layer1", "layer2")}
    return plot.firing_rates(spikes, title="spikes while 100 digits are read").figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
