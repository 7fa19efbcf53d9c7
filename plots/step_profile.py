"""Time of each layer in a training step of a small convolutional network, by `snncell.profile`. The bars show forward
pass, backward pass and optimiser. Times depend on the machine, and on the density of spikes.
"""

from pathlib import Path

from matplotlib.figure import Figure

import snncell
from snncell import Tensor, nn, ops


class Convolutional(nn.Cell):
    """Map images (T, B, 1, 28, 28) to classes (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        over_time = nn.TimeDistributed
        self.conv1, self.norm1 = over_time(nn.Conv2d(1, 32, 3)), over_time(nn.BatchNorm2d(32))
        self.conv2, self.norm2 = over_time(nn.Conv2d(32, 32, 3)), over_time(nn.BatchNorm2d(32))
        self.lif1, self.lif2 = nn.MultiStep(nn.LIFNode()), nn.MultiStep(nn.LIFNode())
        self.pool1, self.pool2 = over_time(nn.MaxPool2d(2, 2)), over_time(nn.MaxPool2d(2, 2))
        self.flat, self.head = over_time(nn.Flatten()), nn.Dense(32 * 7 * 7, 10)

    def construct(self, x: Tensor) -> Tensor:
        x = self.pool1(self.lif1(self.norm1(self.conv1(x))))
        return self.head(self.flat(self.pool2(self.lif2(self.norm2(self.conv2(x)))))).mean(0)


def main() -> Figure:
    snncell.set_seed(0)
    net = Convolutional().set_train()
    step = snncell.train.training_step(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-3))
    profile = snncell.profile(step, ops.uniform((8, 16, 1, 28, 28)), ops.zeros(16, snncell.int32), repeat=30)
    return profile.plot().figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
