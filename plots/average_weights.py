"""Test loss of a network during training, and of the moving average of its weights (EMA). At a high learning rate the
weights jump from side to side of a minimum of the loss, and their average is close to it.
"""

from pathlib import Path

from matplotlib.figure import Figure

import snncell
from snncell import encode, nn, plot, train
from snncell.data import digits


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense, self.hidden = nn.Dense(64, 50), nn.MultiStep(nn.LIFNode(3.0, 0.3))
        self.read, self.out = nn.Dense(50, 10), nn.MultiStep(nn.LINode(4.0))

    def construct(self, x: snncell.Tensor) -> snncell.Tensor:
        return self.out(self.read(self.hidden(self.dense(encode.current(x, 8))))).mean(0)


def main() -> Figure:
    (x, y), (test_x, test_y) = digits()
    curves = {}
    for name, callbacks in (("weights", []), ("average", [train.EMA(0.99)])):
        snncell.set_seed(0)
        net = Net()
        adam = nn.Adam(net.trainable_params(), 0.02)
        options = {"test": (test_x.reshape(-1, 64), test_y), "batch_size": 16, "progress": False}
        learnt = x.reshape(-1, 64), y
        result = train.fit(net, nn.CrossEntropyLoss(), adam, learnt, 20, callbacks=callbacks, **options)
        curves[f"test_loss of the {name}"] = [record["test_loss"] for record in result.history]
    axes = plot.training_curves(curves, best="test_loss of the average")
    axes.set_ylim(0.0, 0.6)
    axes.set_ylabel("test loss")
    return axes.figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
