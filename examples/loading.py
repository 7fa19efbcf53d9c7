"""Load recordings of different lengths: a Loader that bins events to frames, pads them and prefetches batches.

Each recording is a chirp of 0.1 to 0.8 s on 32 channels: rising, falling, or first rising and then falling. In
training, each pass drops other random events. The network gets the length of each recording, so the padding does not
count.

    python examples/loading.py
"""

import numpy as np

import snncell
from snncell import data, nn

CHANNELS, WINDOW = 32, 10_000  # microseconds
BUCKETS = [20, 40, 80]  # time steps; a jitted training step is traced for these three shapes


class Chirps:
    """A data set: recordings with labels, with a length and an index."""

    classes = ("rising", "falling", "up and down", "down and up")

    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        label, longest = index % 4, int(rng.integers(100_000, 800_000))
        t = np.sort(rng.integers(0, longest, longest // 500))
        part = t / longest
        place = (part, 1 - part, 1 - abs(2 * part - 1), abs(2 * part - 1))[label]
        x = np.clip(rng.normal((CHANNELS - 1) * place, 2.0), 0, CHANNELS - 1).astype(int)
        return data.Events(t, x, sensor_size=(CHANNELS, 1, 1)), label


class Net(nn.Cell):
    """A recurrent layer, and the mean potential of integrators over the valid steps of each recording."""

    def __init__(self, neurons=64):
        super().__init__()
        node = nn.CubaLIFNode(alpha=0.7, beta=0.9, surrogate_function=snncell.surrogate.ATan())
        self.hidden = nn.SequentialCell(
            nn.Dense(CHANNELS, neurons), nn.MultiStep(nn.Recurrent(node, nn.Dense(neurons, neurons)))
        )
        self.readout = nn.SequentialCell(nn.Dense(neurons, 4), nn.MultiStep(nn.LINode(tau=10.0)))

    def construct(self, x, lengths):  # (T, B, 1, CHANNELS), (B,)
        potentials = self.readout(self.hidden(x[:, :, 0].astype("float32")))
        return snncell.encode.mean_membrane(potentials, lengths=lengths)


def main(samples=512, epochs=6):
    snncell.set_seed(0)
    frames = data.ToFrame(window=WINDOW)
    noisy = data.Compose([data.DropEvent((0.0, 0.3)), frames])  # random transforms come before the binning to frames
    training = data.Loader(Chirps(samples, 0), 32, transform=noisy, buckets=BUCKETS, workers=2, seed=0)
    testing = data.Loader(Chirps(128, 1), 32, False, transform=frames, buckets=BUCKETS)
    for x, lengths, y in testing:
        print(f"x {x.shape} {x.dtype}, lengths from {lengths.min().item()} to {lengths.max().item()}, y {y.shape}")
        break

    net = Net()
    adam = nn.Adam(net.trainable_params(), nn.CosineDecayLR(1e-4, 0.01, epochs * len(training)))
    result = snncell.train.fit(net, nn.CrossEntropyLoss(), adam, training, epochs, validation=testing, progress=False)
    for row in result.history:
        print(f"epoch {row['epoch']}: loss {row['loss']:.3f}, test accuracy {row['test_accuracy']:.0%}")
    return result.history[-1]["test_accuracy"]


if __name__ == "__main__":
    main()
