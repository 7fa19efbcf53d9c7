"""From recordings in SHD files to a trained recurrent network, a report page, and a NIR graph for other frameworks.

Pass the files of the Spiking Heidelberg Digits: `python examples/words_to_nir.py shd_train.h5 shd_test.h5`. Without
arguments the example generates two files of the same layout. It needs `pip install 'snncell[events,nir]'`.
"""

import sys
from pathlib import Path

import nir

import snncell
from snncell import data, encode, nn, plot, surrogate

WINDOW = 10_000  # microseconds of a frame, which is one time step


class Words(nn.Cell):
    """Map frames (T, B, 1, 700) and lengths (B,) to scores (B, classes), the firing rate of each output."""

    def __init__(self, classes: int, hidden: int = 128) -> None:
        super().__init__()
        # v changes by x / tau (tau in steps), so the threshold is small and the surrogate narrow
        spike = surrogate.ATan(alpha=40.0)
        hear, answer = (nn.LIFNode(20.0, 0.05, reset="zero", surrogate_function=spike) for _ in range(2))
        self.layers = nn.SequentialCell(
            nn.Dense(700, hidden),
            nn.MultiStep(nn.Recurrent(hear, nn.Dense(hidden, hidden))),
            nn.Dense(hidden, classes),
            nn.MultiStep(answer),
        )

    def construct(self, frames, lengths):
        return 10.0 * encode.firing_rate(self.layers(frames.flatten(start_dim=2)), lengths=lengths)


def main(train: str = "", test: str = "", folder: str = ".", samples: int = 1000, epochs: int = 6) -> float:
    """Read, train, report and export. Return the accuracy on the test words."""
    snncell.set_seed(0)
    paths = [Path(train or Path(folder, "words_train.h5")), Path(test or Path(folder, "words_test.h5"))]
    if not train:
        for seed, path in enumerate(paths):
            data.write_shd_like(path, samples, seed)
    words, unheard = (data.SHD(path, transform=data.ToFrame(window=WINDOW)) for path in paths)
    batches = data.Loader(words, batch_size=50, seed=0)

    net, loss = Words(len(words.classes)), nn.CrossEntropyLoss()
    adam = nn.Adam(net.trainable_params(), 2e-3)
    tests = data.Loader(unheard, batch_size=50, shuffle=False)
    result = snncell.train.fit(net, loss, adam, batches, epochs, validation=tests)

    accuracy = result.history[-1]["test_accuracy"]
    print(f"test accuracy {accuracy:.1%}")
    plot.report(net, next(iter(batches)), loss, adam, result, path=Path(folder, "words.html"))
    nir.write(Path(folder, "words.nir"), snncell.nir.to_nir(net.layers, dt=WINDOW * 1e-6, input_shape=700))
    print("words.html is the report, words.nir is the network for Norse and other frameworks")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:])
