"""Attention maps of a Spikformer block, trained on digits of 16 patches. A map shows for each patch how many spikes its
key shares with a query, on average over all queries. The block reads from strokes, and seldom from the background.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import snncell
from snncell import Tensor, data, nn, ops, train


class Spikformer(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.neurons = nn.Dense(4, 64), nn.MultiStep(nn.LIFNode(2.0, 0.5))
        self.place = snncell.Parameter(ops.normal((16, 64), 0.0, 0.3))
        self.block, self.head = nn.SpikformerBlock(64, 4, mlp_ratio=2.0), nn.Dense(64, 10)

    def tokens(self, images: Tensor) -> Tensor:  # (B, 8, 8) -> (T, B, 16, 64)
        patches = images.reshape((-1, 4, 2, 4, 2)).transpose((0, 1, 3, 2, 4)).reshape((-1, 16, 4))
        return self.neurons(ops.stack([self.embed(patches) + self.place] * 4))

    def construct(self, images: Tensor) -> Tensor:
        return self.head(self.block(self.tokens(images)).mean((0, 2)))


def main() -> Figure:
    snncell.set_seed(0)
    (digits, (images, _)), net = data.digits(), Spikformer()
    train.fit(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01), digits, 10, progress=False)
    net.set_train(False)
    q, k, _ = net.block.attention.heads(net.tokens(Tensor(images[:8])))
    maps = (q @ k.swapaxes(-1, -2)).mean((0, 2, 3)).reshape((8, 4, 4)).asnumpy()
    figure, axes = plt.subplots(2, 8, figsize=(7, 2), layout="constrained", subplot_kw={"xticks": [], "yticks": []})
    for ax, picture in zip(axes.ravel(), (*images[:8], *maps), strict=True):
        ax.imshow(picture)
    axes[0, 0].set_ylabel("image")
    axes[1, 0].set_ylabel("attention")
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
