"""Recordings of different lengths in batches of 6: one batch with the zeros behind each recording, and how much of all
batches is padding, by `buckets`, the lengths that they are padded to. Beside the bars: of how many shapes the batches
were, for each of which a jitted step is traced once.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import data

BATCH = 6
BUCKETS: dict[str, Any] = {"8": 8, "4": 4, "2": 2, "None": None, "[80]": [80]}


class Chirps:
    """Recordings of 0.05 to 0.8 s, as many of each doubling: the channel rises (1) or falls (0)."""

    def __len__(self) -> int:
        return 192

    def __getitem__(self, index: int) -> tuple[data.Events, int]:
        rng = np.random.default_rng(index)
        label = index % 2
        t = np.sort(rng.integers(0, int(50_000 * 16 ** rng.random()), 400))
        position = (t - t[0]) / (t[-1] - t[0])
        x = np.clip(20 * (position if label else 1 - position) + rng.normal(0, 1, 400), 0, 19).astype(int)
        return data.Events(t, x, p=np.zeros(400, int), sensor_size=(20, 1, 1)), label


def main() -> Figure:
    figure, (one, all_of_them) = plt.subplots(1, 2, figsize=(3.3, 1.9), layout="constrained")
    for place, (name, buckets) in enumerate(BUCKETS.items()):
        loader = data.Loader(Chirps(), BATCH, transform=data.ToFrame(window=10_000), buckets=buckets, seed=0)
        made = [(x.shape[0], lengths.asnumpy()) for x, lengths, _ in loader]
        padding = 1 - sum(int(lengths.sum()) for _, lengths in made) / sum(BATCH * steps for steps, _ in made)
        shapes = len({steps for steps, _ in made})
        all_of_them.barh(place, 100 * padding, color="0.6")
        all_of_them.text(100 * padding + 1, place, f"{shapes}", va="center", fontsize=8)
        if name == "None":
            steps, lengths = made[0]
            one.barh(range(BATCH), lengths, color="black", label="events")
            one.barh(range(BATCH), steps - lengths, left=lengths, color="0.8", label="zeros")
            one.set(xlabel="step of 10 ms", ylabel="recording", xticks=(0, 40, 80), yticks=range(0, BATCH, 2))
    one.set_ylim(-0.8, BATCH + 1.2)
    one.legend(loc="upper center", ncols=2, frameon=False, fontsize=7, columnspacing=0.8, handlelength=1, borderpad=0)
    all_of_them.set(xlabel="padding (%)", ylabel="buckets", xlim=(0, 80), xticks=(0, 25, 50, 75), yticks=range(len(BUCKETS)))
    all_of_them.set_yticklabels(list(BUCKETS), fontsize=8)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
