"""Recordings of different lengths in batches of 6: one batch with its padding, and the share of padding in all batches
for several numbers of `buckets`. The numbers next to the bars count the shapes of batches, because a jitted step is
traced once for each shape.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import data

BATCH = 6
BUCKETS: dict[str, Any] = {"8": 8, "4": 4, "2": 2, "None": None, "[80]": [80]}


def main() -> Figure:
    rng = np.random.default_rng(0)
    longest = (50_000 * 16 ** rng.random(192)).astype(int)  # microseconds, evenly distributed on a logarithmic scale
    words = [data.Events(np.arange(0, each, 500), np.zeros(-(-each // 500)), sensor_size=(1, 1, 1)) for each in longest]
    figure, (one, all_of_them) = plt.subplots(1, 2, figsize=(3.3, 1.9), layout="constrained")
    for place, buckets in enumerate(BUCKETS.values()):
        loader = data.Loader(words, BATCH, transform=data.ToFrame(window=10_000), buckets=buckets, seed=0)
        made = [(x.shape[0], lengths.asnumpy()) for x, lengths in loader]
        padding = 100 - 100 * sum(int(lengths.sum()) for _, lengths in made) / sum(BATCH * steps for steps, _ in made)
        all_of_them.barh(place, padding, color="0.6")
        all_of_them.text(padding + 1, place, f"{len({steps for steps, _ in made})}", va="center", fontsize=8)
    steps, lengths = made[0]
    one.barh(range(BATCH), lengths, color="black", label="events")
    one.barh(range(BATCH), steps - lengths, left=lengths, color="0.8", label="zeros")
    one.set(xlabel="step of 10 ms", ylabel="recording", xticks=(0, 40, 80), ylim=(-0.8, BATCH + 1.2))
    one.set_yticks(range(0, BATCH, 2))
    one.legend(loc="upper center", ncols=2, frameon=False, fontsize=7, columnspacing=0.8, handlelength=1, borderpad=0)
    all_of_them.set(xlabel="padding (%)", ylabel="buckets", xlim=(0, 80), xticks=(0, 25, 50, 75))
    all_of_them.set_yticks(range(len(BUCKETS)), list(BUCKETS), fontsize=8)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
