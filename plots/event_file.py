"""A recording from an event file: a ring grows in front of an event camera, brighter on one side and darker on the
other. The plots show the events over time, and the ring at the end.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import data


def write(path: Path) -> None:
    """Write the ring, five bytes for each event, in the format of N-MNIST."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.integers(0, 100_000, 2000))
    angle, radius = rng.uniform(0, 2 * np.pi, t.size), 3 + 12 * t / 100_000 + rng.normal(0, 0.3, t.size)
    x, y = np.rint(16.5 + radius * np.cos(angle)), np.rint(16.5 + radius * np.sin(angle))
    p = np.cos(angle) > 0
    np.stack([x, y, p * 128 + t // 65_536, t // 256 % 256, t % 256], 1).astype(np.uint8).tofile(path)


def main() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "ring.bin")
        events = data.read_events(Path(folder) / "ring.bin")
    figure, (over_time, seen) = plt.subplots(1, 2, figsize=(3.3, 1.9), sharey=True, layout="constrained")
    late = events[events["t"] > 80_000]
    for polarity, marker, name in ((1, "o", "brighter"), (0, "x", "darker")):
        own, end = events[events["p"] == polarity], late[late["p"] == polarity]
        over_time.plot(own["t"] / 1000, own["x"], marker, color="0.6" if polarity else "black", ms=1.2, label=name)
        seen.plot(end["y"], end["x"], marker, color="0.6" if polarity else "black", ms=1.2)
    over_time.set(xlabel="t (ms)", ylabel="x", ylim=(-1, 58))
    over_time.legend(loc="upper left", markerscale=3, frameon=False)
    seen.set(xlabel="y", title="the last 20 ms")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
