"""Train a small Spikformer, a spiking transformer, on 8 x 8 digits.

Each image becomes 16 tokens of 2 x 2 pixels. A dense layer embeds the tokens and adds learned positions, the same at
each time step. Two blocks of spiking self-attention follow, and then a mean over steps and tokens. The paper embeds
patches by convolutions (SPS), which suit larger images.
"""

import sys
import time

import matplotlib.pyplot as plt

import snncell
from snncell import nn, ops, train
from snncell.data import digits

STEPS, DIM, HEADS = 4, 64, 4


class Spikformer(nn.Cell):
    """Images (B, 8, 8) to logits (B, 10)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.SequentialCell(nn.Dense(4, DIM, has_bias=False), nn.BatchNorm1d(DIM))
        self.place = snncell.Parameter(ops.normal((16, DIM), 0.0, 0.3), name="place")
        self.neurons = nn.MultiStep(nn.LIFNode(2.0))
        self.blocks = nn.SequentialCell(*[nn.SpikformerBlock(DIM, HEADS, mlp_ratio=2.0) for _ in range(2)])
        self.head = nn.Dense(DIM, 10)

    def tokens(self, images):
        """Spikes of the 16 patches, (T, B, 16, D)."""
        patches = images.reshape((-1, 4, 2, 4, 2)).transpose((0, 1, 3, 2, 4)).reshape((-1, 4))
        current = self.embed(patches).reshape((-1, 16, DIM)) + self.place
        return self.neurons(ops.broadcast_to(current, (STEPS, *current.shape)))

    def construct(self, images):
        return self.head(self.blocks(self.tokens(images)).mean((0, 2)))  # mean over steps and tokens


def attention_map(net, images):
    """The mean score of each patch in the first block, over steps, heads and queries: (B, 4, 4)."""
    q, k, _ = net.blocks[0].attention.heads(net.tokens(images))
    return (q @ k.transpose((0, 1, 2, 4, 3))).mean((0, 2, 3)).reshape((-1, 4, 4))


def main(epochs: int = 25, picture: str | None = None):
    """Return the test accuracy. Draw attention maps of ten digits to `picture`."""
    snncell.set_seed(0)
    data, test = digits()
    net, start = Spikformer(), time.perf_counter()
    adam = nn.Adam(net.trainable_params(), 0.01)
    result = train.fit(net, nn.CrossEntropyLoss(), adam, data, epochs, validation=test, progress=False)
    accuracy = result.history[-1]["test_accuracy"]
    print(f"test accuracy {accuracy:.3f} after {epochs} epochs, {time.perf_counter() - start:.0f} s")
    if picture is not None:
        net.set_train(False)
        images = test[0][:10]
        maps = attention_map(net, snncell.Tensor(images)).asnumpy()
        figure, axes = plt.subplots(2, 10, figsize=(9, 2), layout="constrained")
        for row, name, shown in zip(axes, ("digit", "attention"), (images, maps), strict=True):
            row[0].set_ylabel(name)
            for ax, image in zip(row, shown, strict=True):
                ax.imshow(image)
                ax.set(xticks=[], yticks=[])
        figure.savefig(picture, dpi=150)
    return accuracy


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
