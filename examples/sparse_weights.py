"""Train a network with few synapses, and let RigL find where they are most useful.

The layers of the network have one synapse for each hundred of a dense layer. With a fixed random pattern, many pixels
and neurons are badly connected. RigL removes the smallest weights from time to time, and grows synapses where the
gradient is largest. The number of synapses, and so time and memory of training, stay the same.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import snncell
from snncell import encode, nn, train
from snncell.data import digits

HIDDEN, STEPS = 256, 8


class Net(nn.Cell):
    """64 pixels -> spiking neurons -> 10 classes, with sparse weights."""

    def __init__(self, density):
        super().__init__()
        self.first = nn.SparseDense(64, HIDDEN, density)
        self.neurons = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3))
        self.last = nn.SparseDense(HIDDEN, 10, density)

    def construct(self, x):
        return self.last(self.neurons(self.first(encode.current(x, STEPS)))).mean(0)


def main(epochs: int = 30, density: float = 0.01, picture: str | None = None):
    """Return the test accuracies with a fixed pattern, DEEP R and RigL. Draw the synapses per pixel to `picture`."""
    data, test = ((images.reshape(-1, 64), labels) for images, labels in digits())
    rules = {
        "fixed": [],
        "DEEP R": [train.DeepR(l1=0.02, temperature=1e-5)],
        "RigL": [train.RigL(every=20, fraction=0.3)],
    }
    accuracies, maps = {}, {}
    for name, callbacks in rules.items():
        snncell.set_seed(0)
        net = Net(density)
        adam = nn.Adam(net.trainable_params(), 0.01)
        options = {"validation": test, "callbacks": callbacks, "progress": False}
        result = train.fit(net, nn.CrossEntropyLoss(), adam, data, epochs, **options)
        accuracies[name] = result.history[-1]["test_accuracy"]
        maps[name] = np.diff(net.first.indptr.asnumpy()).reshape(8, 8)  # synapses of each pixel
        print(f"{name:<7} {net.first.weight.size + net.last.weight.size} synapses, accuracy {accuracies[name]:.3f}")
    if picture is not None:
        figure, axes = plt.subplots(1, len(maps), figsize=(7, 2.4), layout="constrained")
        for ax, (name, counts) in zip(axes, maps.items(), strict=True):
            image = ax.imshow(counts, vmin=0, vmax=max(each.max() for each in maps.values()))
            ax.set(title=f"{name}: {accuracies[name]:.0%}", xticks=[], yticks=[])
        figure.colorbar(image, ax=axes, label="synapses of a pixel")
        figure.savefig(picture, dpi=150)
    return accuracies


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
