"""A network that does not learn, because all its neurons are dead: find the fault with `plot.report`, and fix it.

The threshold is high and the surrogates are narrow. So no neuron fires, and no gradient can make one fire. The report
names the first silent layer and suggests two fixes. With only one of them, half of the neurons stay dead.
"""

from pathlib import Path

import snncell
from snncell import nn, ops, plot, surrogate
from snncell.data import digits


class Net(nn.Cell):
    """64 pixels as constant currents -> two layers of LIF neurons -> the mean potential of 10 integrators."""

    def __init__(self, v_threshold: float, width: float, neurons: int, steps: int = 16) -> None:
        super().__init__()
        self.steps = steps
        self.dense1, self.lif1 = nn.Dense(64, neurons), self.layer(v_threshold, width)
        self.dense2, self.lif2 = nn.Dense(neurons, neurons), self.layer(v_threshold, width)
        self.dense3, self.readout = nn.Dense(neurons, 10), nn.MultiStep(nn.LINode(tau=8.0))

    @staticmethod
    def layer(v_threshold: float, width: float) -> nn.Cell:
        spike = surrogate.Triangle(width=width)
        return nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=v_threshold, surrogate_function=spike))

    def construct(self, images):
        current = self.dense1(images.reshape((len(images), -1)))
        spikes = self.lif1(ops.broadcast_to(current, (self.steps, *current.shape)))
        return self.readout(self.dense3(self.lif2(self.dense2(spikes)))).mean(0)


def trial(v_threshold: float, width: float, epochs: int, neurons: int, path: Path):
    """Train such a network. Return its test accuracy and the report."""
    snncell.set_seed(0)
    (images, labels), test = digits()
    net, loss = Net(v_threshold, width, neurons), nn.CrossEntropyLoss()
    adam = nn.Adam(net.trainable_params(), 3e-3)
    result = snncell.train.fit(net, loss, adam, (images, labels), epochs, validation=test, progress=False)
    report = plot.report(net, (images[:64], labels[:64]), loss, adam, result, path=path)
    return result.best["test_accuracy"], report


def main(epochs: int = 5, neurons: int = 64, folder: str = ".") -> dict[str, tuple]:
    """Train without a fix, with one, and with both. Return the test accuracy and the report of each."""
    found = {}
    for name, v_threshold, width in (("dead", 5.0, 0.1), ("lower threshold", 0.3, 0.1), ("wider too", 0.3, 0.6)):
        path = Path(folder) / f"{name.replace(' ', '_')}.html"
        accuracy, report = found[name] = trial(v_threshold, width, epochs, neurons, path)
        print(f"\n{name}: test accuracy {accuracy:.3f}, {report.path}")
        for finding in report:
            if finding.severity != "note" or finding.kind == "dead":
                print(f"  {finding}")
    return found


if __name__ == "__main__":
    main()
