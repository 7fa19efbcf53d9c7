"""A recurrent network on generated words in the shape of SHD. The words differ only in the order of their sounds.

A linear layer that gets the event counts of the 700 channels does no better than chance. The recurrent network gets
windows of 20 ms, and can use the order.
"""

import numpy as np

import snncell
from snncell import nn
from snncell.common.initializer import Normal
from snncell.data import SHDLike, to_frames
from snncell.train import Batches

CHANNELS, WINDOW = 700, 20_000  # microseconds


def words(samples: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the channels that are active in each window, (T, N, 700), and the labels."""
    recordings, labels = zip(*SHDLike(samples, seed, classes=classes), strict=True)
    counts = to_frames(list(recordings), window=WINDOW)[:, :, 0]  # (T, N, 700), there is one polarity
    return (counts > 0).astype(np.float32), np.array(labels)


def network(neurons: int, classes: int) -> nn.Cell:
    """Recurrent neurons with a synaptic current, and the mean potential of integrators."""
    node = nn.CubaLIFNode(alpha=0.7, beta=0.9, surrogate_function=snncell.surrogate.ATan())
    feedback = nn.Dense(neurons, neurons, weight_init=Normal(0.05))
    return nn.SequentialCell(
        nn.Dense(CHANNELS, neurons, weight_init=Normal(0.1)),
        nn.MultiStep(nn.Recurrent(node, feedback)),
        nn.Dense(neurons, classes),
        nn.MultiStep(nn.LINode(tau=10.0)),
        nn.Readout("mean"),
    )


def train(net: nn.Cell, train: Batches, test: Batches, epochs: int, rate: float) -> float:
    """Return the test accuracy after the last epoch."""
    adam = nn.Adam(net.trainable_params(), nn.CosineDecayLR(0.05 * rate, rate, epochs * len(train)))
    result = snncell.train.fit(net, nn.CrossEntropyLoss(), adam, train, epochs, validation=test, progress=False)
    print(f"accuracy {result.history[-1]['test_accuracy']:.3f} ({epochs} epochs, {result.seconds:.0f} s)")
    return result.history[-1]["test_accuracy"]


def main(epochs: int = 12, samples: int = 1500, classes: int = 20, neurons: int = 128) -> tuple[float, float]:
    """Return the accuracies on new words: by counts, and by times."""
    snncell.set_seed(0)
    x, labels = words(samples + 300, classes, seed=1)
    parts = slice(None, samples), slice(samples, None)
    print(f"chance is {1 / classes:.3f}; from the counts of the channels: ", end="")
    counts = x.sum(0)
    by_counts = train(
        nn.Dense(CHANNELS, classes), *(Batches(counts[n], labels[n], batch_size=50) for n in parts), epochs, 5e-3
    )
    print("from the times of the events: ", end="")
    by_times = train(
        network(neurons, classes),
        *(Batches(x[:, n], labels[n], batch_size=50, time_first=True) for n in parts),
        epochs,
        5e-3,
    )
    return by_counts, by_times


if __name__ == "__main__":
    main()
