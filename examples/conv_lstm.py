"""Predict the next frame of a video by a convolutional LSTM, and by one with spikes as its output.

A square flies over a field of 12 x 12 pixels and bounces off its border. A single frame does not show the direction of
flight, so that the network must remember it.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import Tensor, nn, surrogate

SIZE, SIDE, STEPS, CHANNELS = 12, 3, 10, 8


class SpikingConvLSTM(nn.ConvLSTMCell):
    """A ConvLSTM with spikes of h as output; its states h and c do not change."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.spike = surrogate.ATan()

    def construct(self, x, h, c):
        _, h, c = super().construct(x, h, c)
        return self.spike(h - 0.2), h, c


def videos(rng, count):
    """Frames (T, B, 1, 12, 12) of a square that flies diagonally."""
    start, t = rng.integers(0, 2 * (SIZE - SIDE), (2, count)), np.arange(STEPS)[:, None]
    row, column = (abs((one + t) % (2 * (SIZE - SIDE)) - (SIZE - SIDE)) for one in start)  # (T, B) each, reflected
    rows, columns = ((np.arange(SIZE) - place[..., None]) // SIDE == 0 for place in (row, column))
    return (rows[..., :, None] & columns[..., None, :])[:, :, None].astype(np.float32)


def compare(updates):
    """Return the shares of wrong pixels, and eight last frames, their predictions and the true next frames."""
    found, pictures = {}, {"last frame": None}
    for name, cell in (("ConvLSTM", nn.ConvLSTMCell), ("spiking", SpikingConvLSTM)):
        snncell.set_seed(0)
        rng = np.random.default_rng(0)
        readout = nn.TimeDistributed(nn.Conv2d(CHANNELS, 1, 3, has_bias=True))
        net = nn.SequentialCell(nn.MultiStep(cell(1, CHANNELS, 5)), readout)
        step = snncell.train.training_step(net, nn.BCEWithLogitsLoss(), nn.Adam(net.trainable_params(), 0.03))
        for _ in range(updates):
            frames = videos(rng, 16)
            step(Tensor(frames[:-1]), Tensor(frames[1:]))
        frames = videos(rng, 64)
        after = net(Tensor(frames[:-1])).asnumpy()
        found["repeat"] = float((frames[3:-1] != frames[4:]).mean())
        found[name] = float(((after[3:] > 0) != frames[4:]).mean())  # after four frames
        pictures[name] = 1 / (1 + np.exp(-after[-1, :8, 0]))
    return found, pictures | {"last frame": frames[-2, :8, 0], "true next": frames[-1, :8, 0]}


def draw(pictures):
    figure, axes = plt.subplots(len(pictures), 8, figsize=(7, 3.7), layout="constrained")
    for row, (name, images) in zip(axes, pictures.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, image in zip(row, images, strict=True):
            ax.imshow(image, vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
    return figure


def main(updates: int = 300, picture: str | None = None):
    """Return the shares of wrong pixels: of a repeated frame, and of the predictions with and without spikes."""
    found, pictures = compare(updates)
    print(", ".join(f"{name}: {share:.1%} of pixels wrong" for name, share in found.items()))
    if picture is not None:
        draw(pictures).savefig(picture, dpi=150)
    return found


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
