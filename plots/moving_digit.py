"""A digit that jumps over the sensor of an event camera. Pixels fire on channel 0 if they become darker and on channel
1 if they become brighter. The other events are noise.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from snncell import plot
from snncell.data import MovingDigits, to_frames

DPI = 120
WINDOW = 6000  # microseconds


def animation(ax: Any = None) -> Any:
    events, label = MovingDigits(sensor_size=(28, 28, 2), digit=14, duration=60_000, seed=0)[3]
    frames = to_frames(events, window=WINDOW)
    return plot.animate(frames, fps=8, ax=ax, title=f"a moving {label}, {WINDOW // 1000} ms a step", fade=0.3)


def main() -> Figure:
    figure, ax = plt.subplots(figsize=(3.3, 3.3), layout="constrained")
    moving = animation(ax)
    figure.canvas.draw()  # the first frame
    moving.pause()
    return figure


if __name__ == "__main__":
    animation().save(Path(__file__).with_suffix(".gif"), writer="pillow", dpi=DPI)
