"""Two generated words in the shape of SHD, in windows of 10 ms. Both contain the same six sounds with three formants
each, in different orders. So the spike counts of the channels show length and loudness, but not the word.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from snncell import plot
from snncell.data import SHDLike, to_frames


def main() -> Figure:
    words = SHDLike(10, seed=5, events=4000)
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    for ax, number in zip(axes, (0, 1), strict=True):
        events, label = words[number]
        plot.raster(to_frames(events, window=10_000)[:, 0], ax=ax, title=f"the word {words.classes[label]}")
        ax.set_ylabel("channel")
        ax.set_xlabel("window of 10 ms")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
