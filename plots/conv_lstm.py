"""Predictions of the next frame by a convolutional LSTM. Squares fly diagonally and bounce off the border, so that the
last frame alone does not show where they fly.
"""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn


def videos(rng: np.random.Generator, count: int) -> Any:
    """Frames (10, B, 1, 12, 12) of squares of 3 x 3 pixels."""
    start, t = rng.integers(0, 18, (2, count)), np.arange(10)[:, None]
    rows, columns = ((np.arange(12) - abs((one + t) % 18 - 9)[..., None]) // 3 == 0 for one in start)
    return (rows[..., :, None] & columns[..., None, :])[:, :, None].astype(np.float32)


def main() -> Figure:
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    net = nn.SequentialCell(
        nn.MultiStep(nn.ConvLSTMCell(1, 8, 5)), nn.TimeDistributed(nn.Conv2d(8, 1, 3, has_bias=True)), nn.Sigmoid()
    )
    step = snncell.train.training_step(net, nn.BCELoss(), nn.Adam(net.trainable_params(), 0.03))
    for _ in range(250):
        frames = videos(rng, 16)
        step(Tensor(frames[:-1]), Tensor(frames[1:]))
    frames = videos(rng, 8)
    rows = {"last": frames[-2], "next": frames[-1], "predicted": net(Tensor(frames[:-1])).asnumpy()[-1]}
    figure, axes = plt.subplots(3, 8, figsize=(7, 2.9), layout="constrained", subplot_kw={"xticks": [], "yticks": []})
    for row, (name, images) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, image in zip(row, images, strict=True):
            ax.imshow(image[0], vmin=0.0, vmax=1.0)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
