"""Event filters: a disc moves past an event camera with noise. The plots show the events of 20 ms, the same events
after `Denoise`, and their time surface, with a tail at the edge of the disc.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from snncell import data


def disc_and_noise() -> data.Events:
    """Return the events of both edges of a disc that crosses 64 x 48 pixels in a second, and 6000 noise events."""
    rng = np.random.default_rng(0)
    t, angle = rng.integers(0, 1_000_000, 20_000), rng.uniform(-np.pi, np.pi, 20_000)
    x, y = 12 + 40 * t / 1e6 + 10 * np.cos(angle), 24 + 10 * np.sin(angle)
    order = np.argsort(t)
    edge = data.Events(
        t[order], np.rint(x[order]), np.rint(y[order]), np.cos(angle[order]) > 0, sensor_size=(64, 48, 2)
    )
    return data.UniformNoise(6000)(edge, rng=rng)


def main() -> Figure:
    events = data.CropTime(max=620_000)(disc_and_noise())
    clean = data.Denoise(5000)(events)
    window = data.Compose([data.CropTime(min=600_000), data.ToImage()])
    pictures = {
        "events of 20 ms": np.subtract(*window(events)[::-1]),
        "without those alone": np.subtract(*window(clean)[::-1]),
        "time surface, 50 ms": np.subtract(*data.ToTimesurface(10_000, 50_000.0)(clean)[-1][::-1]),
    }
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.35), layout="constrained")
    for ax, (title, picture) in zip(axes, pictures.items(), strict=True):
        most = np.abs(picture).max()
        ax.imshow(picture, cmap="gray", vmin=-most, vmax=most)
        ax.set(title=title, xlabel="x (pixels)")
    axes[0].set_ylabel("y (pixels)")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
