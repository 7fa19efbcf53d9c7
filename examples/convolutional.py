"""A convolutional spiking network with threshold-dependent batch normalisation (tdBN), on digits."""

import snncell
from snncell import encode, nn
from snncell.data import digits


def layer(inputs: int, outputs: int) -> list[nn.Cell]:
    """Convolution and pooling at each time step, normalised currents, and neurons over time: (T, B, C, H, W)."""
    return [
        nn.TimeDistributed(nn.Conv2d(inputs, outputs, 3, weight_init="he_uniform")),
        nn.TimeDistributed(nn.AvgPool2d(2, 2)),
        nn.ThresholdBatchNorm(outputs, v_threshold=1.0),
        nn.MultiStep(nn.LIFNode(tau=2.0, decay_input=False, surrogate_function=snncell.surrogate.Triangle())),
    ]


class Net(nn.Cell):
    """1 x 8 x 8 -> C x 4 x 4 -> 2C x 2 x 2 -> 10; the grey values are a constant current."""

    def __init__(self, steps: int, channels: int) -> None:
        super().__init__()
        self.steps = steps
        self.features = nn.SequentialCell(*layer(1, channels), *layer(channels, 2 * channels))
        self.readout = nn.Dense(8 * channels, 10)

    def construct(self, images):
        spikes = self.features(encode.current(images.expand_dims(1), self.steps))
        return self.readout(spikes.reshape((self.steps, len(images), -1)))


def main(epochs: int = 8, steps: int = 4, channels: int = 16) -> float:
    """Train on the digits and return the test accuracy."""
    snncell.set_seed(0)
    train, test = digits()
    net, loss = Net(steps, channels), nn.TETLoss()
    adam = nn.Adam(net.trainable_params(), 3e-3)
    neurons = [cell for cell in net.features if isinstance(cell, nn.MultiStep)]
    result = snncell.train.fit(net, loss, adam, train, epochs, validation=test, firing_rate=neurons, progress=False)
    for record in result.history:
        print("epoch {epoch}: loss {loss:.3f}, test accuracy {test_accuracy:.3f}".format(**record))
    print(f"{result.best['test_firing_rate']:.2f} spikes per step and neuron, {result.seconds:.1f} s with compilation")
    return result.best["test_accuracy"]


if __name__ == "__main__":
    main()
