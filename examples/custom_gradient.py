"""A custom gradient that passes `check_bprop`, in three tries: a spike with a learned slope.

The derivative of a step is 0, so the layers before it cannot learn. Therefore `bprop` returns the derivative of a
smooth function, the `primitive`: sigmoid(slope x), where the slope is a Parameter. The first two tries are wrong, and
the check reports the reason.
"""

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.data import digits


class Step(nn.Cell):  # 1 above the threshold, else 0
    def construct(self, x):
        return (x > 0).astype(x.dtype)


class FirstTry(Step):
    """The derivative of a sigmoid instead of 0. It lacks a factor: by the chain rule, the slope."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = Parameter(Tensor([4.0]), name="slope")

    def primitive(self, x):  # check_bprop compares bprop with the derivative of this function
        return ops.sigmoid(self.slope * x)

    def bprop(self, x, out, dout):
        smooth = self.primitive(x)
        return (dout * smooth * (1.0 - smooth),)


class SecondTry(FirstTry):  # correct for the input, but the slope gets no gradient, so it does not learn
    def bprop(self, x, out, dout):
        smooth = self.primitive(x)
        return (dout * self.slope * smooth * (1.0 - smooth),)


class Spike(FirstTry):
    """bprop returns a tuple with a gradient for each input, and a dict with one for each of `internal_params`."""

    def __init__(self) -> None:
        super().__init__()
        self.internal_params = [self.slope]

    def bprop(self, x, out, dout):
        bump = dout * self.primitive(x) * (1.0 - self.primitive(x))
        return (self.slope * bump,), {self.slope: (x * bump).sum().reshape((1,))}


def accuracy(spike: nn.Cell, epochs: int) -> float:
    """Return the test accuracy of a network with 64 of these spike functions on digits."""
    snncell.set_seed(0)
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 64), spike, nn.Dense(64, 10))
    train, test = digits()
    adam = nn.Adam(net.trainable_params(), 1e-2)
    result = snncell.train.fit(net, nn.CrossEntropyLoss(), adam, train, epochs, validation=test, progress=False)
    return result.best["test_accuracy"]


def main(epochs: int = 10) -> dict[str, float]:
    """Check each try, then train with the plain step and with the correct gradient. Return both test accuracies."""
    x = Tensor([-1.0, -0.3, 0.1, 0.7])
    print("gradient of a step:", ops.grad(Step())(x))
    for cell in (FirstTry(), SecondTry(), Spike()):
        try:
            snncell.testing.check_bprop(cell, x)
            print(f"{type(cell).__name__} passes")
        except AssertionError as error:
            print(f"{type(cell).__name__}: {error}")
    spike = Spike()
    found = {"Step": accuracy(Step(), epochs), "Spike": accuracy(spike, epochs)}
    print(
        f"test accuracy {found['Step']:.3f} with a step, {found['Spike']:.3f} with a spike; slope", spike.slope.item()
    )
    return found


if __name__ == "__main__":
    main()
