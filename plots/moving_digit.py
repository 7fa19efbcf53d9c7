"""A digit that moves over a plane, as an event camera sees it: pixels fire on channel 0 where it becomes brighter, on
channel 1 where it becomes darker, and nothing fires where nothing changes.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from trained import images

from snncell import encode, plot

DPI = 120


def frames(steps: int = 24, size: int = 20) -> np.ndarray:
    """The first test image on its way around the plane, (T, H, W)."""
    digit = images(1)[0].asnumpy().reshape(8, 8)
    film = np.zeros((steps, size, size), np.float32)
    for step in range(steps):
        angle = 2.0 * np.pi * step / steps
        top, left = (int(np.round((size - 8) * (1.0 + part) / 2.0)) for part in (np.sin(angle), np.cos(angle)))
        film[step, top : top + 8, left : left + 8] = digit
    return film


def animation(ax: Any = None) -> Any:
    film = frames()
    round_trip = np.concatenate([film[-1:], film])  # the first frame follows the last
    events = encode.delta(round_trip, 0.3, off_spike=True).asnumpy()[1:]
    return plot.animate(np.stack([events > 0, events < 0], 1), film, fps=8, ax=ax, title="moving digit", fade=0.3)


def main() -> Figure:
    figure, ax = plt.subplots(figsize=(3.3, 3.3), layout="constrained")
    moving = animation(ax)
    figure.canvas.draw()  # the first frame
    moving.pause()
    return figure


if __name__ == "__main__":
    animation().save(Path(__file__).with_suffix(".gif"), writer="pillow", dpi=DPI)
