"""Spike encodings compared: rate, latency and population codes of the same digits, with the same network.

The input of the network consists of spikes only. `snncell.train.fit` trains it once for each code.
"""

import snncell
from snncell import encode, nn
from snncell.data import digits

FIELDS = 3  # receptive fields of each pixel in the population code


def rate(x, steps):
    """Each pixel fires at random, more often if it is brighter."""
    return encode.rate(x, steps)


def latency(x, steps):
    """Each pixel fires once, earlier if it is brighter; dark pixels stay silent."""
    return encode.latency(x, steps, linear=True, normalize=True, clip=True)


def population(x, steps):
    """Three neurons for each pixel: dark, grey and bright. Each fires once, earlier if it fits better."""
    responses = encode.population(x, FIELDS).reshape((len(x), -1))
    return encode.latency(responses, steps, linear=True, normalize=True, threshold=0.1, clip=True)


WIDTHS = {rate: 64, latency: 64, population: 64 * FIELDS}


class Net(nn.Cell):
    """64 pixels -> spikes -> hidden neurons -> the mean potential of 10 integrators."""

    def __init__(self, encoder, steps: int, neurons: int) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, steps
        self.layers = nn.SequentialCell(
            nn.Dense(WIDTHS[encoder], neurons, weight_init="he_uniform"),
            nn.MultiStep(nn.LIFNode(tau=4.0, decay_input=False, surrogate_function=snncell.surrogate.ATan())),
            nn.Dense(neurons, 10),
            nn.MultiStep(nn.LINode(tau=8.0, decay_input=False)),
            nn.Readout("mean"),
        )

    def construct(self, images):
        return self.layers(self.encoder(images.reshape((len(images), -1)), self.steps))


def main(epochs: int = 15, steps: int = 16, neurons: int = 128) -> dict[str, float]:
    """Train with each encoder and return the test accuracies."""
    train, test = digits()
    accuracies = {}
    for encoder in WIDTHS:
        snncell.set_seed(0)
        net = Net(encoder, steps, neurons)
        adam = nn.Adam(net.trainable_params(), 2e-3)
        hidden = net.layers[1]
        result = snncell.train.fit(
            net, nn.CrossEntropyLoss(), adam, train, epochs, validation=test, firing_rate=hidden, progress=False
        )
        accuracy, firing = result.best["test_accuracy"], result.best["test_firing_rate"]
        print(f"{encoder.__name__:<10} test accuracy {accuracy:.3f}, {firing:.3f} spikes per step and neuron, ", end="")
        print(f"{result.seconds:.1f} s including compilation")
        accuracies[encoder.__name__] = accuracy
    return accuracies


if __name__ == "__main__":
    main()
