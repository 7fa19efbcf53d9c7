"""Energy of a spoken word, compared with the same network without sparsity, and of a digit, compared with an ANN of the
same layers. Memory takes most of the energy. A layer with many input spikes can cost more than in the ANN.
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from trained import images, trained

import snncell
from snncell import Tensor, data, encode, monitoring, nn, plot


class Words(nn.Cell):
    """Map events (T, B, 700) and lengths (B,) to rates (B, 20)."""

    def __init__(self) -> None:
        super().__init__()
        spike = snncell.surrogate.ATan(alpha=40.0)
        hear, answer = (nn.LIFNode(20.0, 0.05, reset="zero", surrogate_function=spike) for _ in range(2))
        self.dense, self.hear = nn.Dense(700, 64), nn.MultiStep(nn.Recurrent(hear, nn.Dense(64, 64)))
        self.read, self.answer = nn.Dense(64, 20), nn.MultiStep(answer)

    def construct(self, x: Tensor, lengths: Tensor) -> Tensor:
        heard = self.hear(self.dense(x), lengths=lengths)
        return 10.0 * encode.firing_rate(self.answer(self.read(heard), lengths=lengths), lengths=lengths)


def main() -> Figure:
    snncell.set_seed(0)
    words = data.SHDLike(100, seed=0)
    x, lengths = data.padded([data.to_frames(events, window=10_000)[:, 0] > 0 for events, _ in words])
    x, labels, net = x.astype("float32"), [label for _, label in words], Words()
    batches = snncell.train.Batches(x, lengths, labels, batch_size=50, time_first=True)
    adam = nn.Adam(net.trainable_params(), 2e-3)
    snncell.train.fit(net, nn.CrossEntropyLoss(), adam, batches, 4, progress=False)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")
    plot.energy_by_layer(monitoring.energy(net, Tensor(x), lengths), left, beside="dense")
    plot.energy_by_layer(monitoring.energy(trained().net, images(100)[0]), right)
    return figure


if __name__ == "__main__":
    main().savefig(Path(__file__).with_suffix(".png"), dpi=200)
