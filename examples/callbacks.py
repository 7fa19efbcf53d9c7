"""Callbacks and checkpoints: parameter groups, average weights (EMA), metrics, TensorBoard, resume.

The weights and the neurons' time constants have different learning rates. A callback halves both rates when the test
loss hardly falls. The training stops in the middle of an epoch, and then resumes with exactly the same results.

    python examples/callbacks.py && tensorboard --logdir runs
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import snncell
from snncell import encode, nn, plot, train
from snncell.data import digits


class Net(nn.Cell):
    """Map pixels (B, 64) to the scores of ten digits."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.dense, self.hidden = nn.Dense(64, hidden), nn.MultiStep(nn.ParametricLIFNode(3.0, v_threshold=0.3))
        self.read, self.out = nn.Dense(hidden, 10), nn.MultiStep(nn.LINode(4.0))

    def construct(self, x):
        return self.out(self.read(self.hidden(self.dense(encode.current(x, 8))))).mean(0)


class Lower(train.Callback):
    """Halve all learning rates after an epoch that lowered the test loss by less than a fifth."""

    def on_epoch_end(self, training):
        losses = [record["test_loss"] for record in training.history]
        if len(losses) > 1 and losses[-1] > 0.8 * losses[-2]:
            for group, rate in enumerate(training.optimiser.rates()):
                training.optimiser.set_learning_rate(0.5 * rate.item(), group=group)


class Stop(train.Callback):
    """End the training after `steps` training steps, as Ctrl-C would."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, training):
        if training.step == self.steps:
            training.stop("seen enough")


def begin(folder, epochs, *callbacks, resume=False):
    """Start a training, or resume it."""
    snncell.set_seed(0)
    learnt, test = ((x.reshape(-1, 64), y) for x, y in digits())
    net = Net()
    weights = net.dense.trainable_params() + net.read.trainable_params()
    groups = [{"params": weights}, {"params": net.hidden.trainable_params(), "lr": 0.02}]
    board = train.TensorBoard(folder / "runs", batch=(test[0][:32], test[1][:32]), every=5, report=True)
    best = train.Checkpoint(folder / "best.ckpt", best="test_loss")
    options = {"metrics": ["top3", "confusion", "spikes", "energy"], "checkpoint": folder / "last.ckpt"}
    options |= {"callbacks": [train.EMA(0.95), Lower(), board, best, *callbacks], "test": test, "resume": resume}
    return train.fit(net, nn.CrossEntropyLoss(), nn.Adam(groups, 3e-3), learnt, epochs, progress=False, **options)


def main(epochs=10, folder="."):
    folder = Path(folder)
    print(begin(folder, epochs, Stop(100)).stopped)  # in the middle of an epoch
    result = begin(folder, epochs, resume=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.9), layout="constrained")
    plot.training_curves(result, ax=left, names=["loss", "energy"])
    plot.confusion_matrix(result.history[-1]["test_confusion"], ax=right)
    figure.savefig(folder / "callbacks.png")
    return result.history


if __name__ == "__main__":
    for record in main(*map(int, sys.argv[1:])):
        print({name: value for name, value in record.items() if not isinstance(value, list)})
