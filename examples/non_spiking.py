"""Custom gradients without spikes: a convolutional network with a threshold, channel dropout and a learned gain.

The threshold is a layer of the library. The dropout returns its mask as a second output, so that its `bprop` finds the
mask in `out`. The `bprop` of the gain returns the gradient of a Parameter. The example checks both before it trains.
"""

import snncell
from snncell import Parameter, nn, ops
from snncell.data import digits
from snncell.testing import check_bprop, check_grads


class ChannelDropout(nn.Cell):
    """Set whole channels to 0, and divide the others by the fraction kept. Return (y, mask)."""

    def __init__(self, keep: float) -> None:
        super().__init__()
        self.keep, self.drop = keep, ops.Dropout2D(keep)

    def construct(self, x):
        return self.drop(x)

    def bprop(self, x, out, dout):
        (_, mask), (dy, _) = out, dout  # two outputs, so `out` and `dout` are pairs; the gradient of the mask is unused
        return (dy * mask.astype(dy.dtype) / self.keep,)


class Gain(nn.Cell):
    """y = w x, with one weight for each channel of x, (B, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.w = Parameter(ops.ones((channels, 1, 1)) * 2.0, name="weight")
        self.internal_params = [self.w]  # bprop returns their gradients

    def construct(self, x):
        return self.w * x

    def bprop(self, *args):  # the inputs, the output, and the gradient of the output
        x, dout = args[0], args[-1]
        return (self.w * dout,), {self.w: (x * dout).sum((0, 2, 3)).reshape(self.w.shape)}


class Net(nn.Cell):
    """8 x 8 pixels -> channels with a threshold -> 10 classes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.gain = nn.Conv2d(1, channels, 3, has_bias=True), Gain(channels)
        self.threshold, self.dropout = nn.Threshold(0.1, 0.0), ChannelDropout(0.8)
        self.dense = nn.Dense(channels * 64, 10)

    def construct(self, images):
        x = self.threshold(self.gain(self.conv(images.expand_dims(1))))
        if self.training:
            x, _ = self.dropout(x)
        return self.dense(x.reshape((len(x), -1)))


def main(epochs: int = 8, channels: int = 16) -> float:
    """Check the gradients, train, and return the test accuracy."""
    snncell.set_seed(0)
    x = ops.normal((3, 4, 5, 5))
    for cell in (ChannelDropout(0.8), Gain(4)):
        check_bprop(cell, x)
        print(f"{type(cell).__name__}: its gradient is correct")
    (images, labels), test = digits()
    net = Net(channels)
    check_grads(net, snncell.Tensor(images[:4]))  # the whole network; this would also find a wrong bprop
    adam = nn.Adam(net.trainable_params(), 3e-3)
    result = snncell.train.fit(
        net, nn.CrossEntropyLoss(), adam, (images, labels), epochs, validation=test, progress=False
    )
    gains = net.gain.w.asnumpy()
    print(f"test accuracy {result.best['test_accuracy']:.3f}; gains from {gains.min():.2f} to {gains.max():.2f}")
    return result.best["test_accuracy"]


if __name__ == "__main__":
    main()
