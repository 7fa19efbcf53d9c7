"""Test accuracy on digits for networks with few synapses. A fixed random pattern puts many of them at useless places.
DEEP R and RigL move synapses during training and keep their number.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import snncell
from snncell import encode, nn, train
from snncell.data import digits


class Net(nn.Cell):
    def __init__(self, density: float) -> None:
        super().__init__()
        self.first, self.last = nn.SparseDense(64, 256, density), nn.SparseDense(256, 10, density)
        self.neurons = nn.MultiStep(nn.LIFNode(2.0, 0.3))

    def construct(self, x: snncell.Tensor) -> snncell.Tensor:
        return self.last(self.neurons(self.first(encode.current(x, 8)))).mean(0)


def main() -> Figure:
    data, test = ((images.reshape(-1, 64), labels) for images, labels in digits())
    densities, deep, rigl = (0.01, 0.02, 0.05), train.DeepR(l1=0.02, temperature=1e-5), train.RigL(every=20)
    figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
    for name, callbacks in (("fixed", []), ("DEEP R", [deep]), ("RigL", [rigl])):
        accuracies = []
        for density in densities:
            snncell.set_seed(0)
            net = Net(density)
            options = {"validation": test, "callbacks": callbacks, "progress": False}
            adam = nn.Adam(net.trainable_params(), 0.01)
            result = train.fit(net, nn.CrossEntropyLoss(), adam, data, 12, test_every=12, **options)
            accuracies.append(result.history[-1]["test_accuracy"])
        ax.plot([f"{100 * x:g} %" for x in densities], accuracies, "o-", label=name)
    ax.set(xlabel="synapses, as a share of a dense layer", ylabel="test accuracy")
    ax.legend()
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
