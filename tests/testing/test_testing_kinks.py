"""Gradient checks at kinks: ties in pooling windows neither blame correct layers nor hide planted faults."""

import numpy as np
import pytest
from random_cases import random_cases

from snncell import Tensor, nn, ops, surrogate, testing, vjp
from snncell.errors import GradientCheckError

# --- random convolutional nets ----------------------------------------------------------------------------------------


class Wrong(nn.Cell):
    """A layer with a custom `bprop` that is off by a factor, for its input or its Parameters."""

    def __init__(self, cell, of_x=1.0, of_w=1.0):
        super().__init__()
        self.cell, self.of_x, self.of_w = cell, of_x, of_w
        self.internal_params = list(cell.trainable_params())

    def construct(self, x):
        return self.cell(x)

    def bprop(self, x, out, dout):
        of_x, of_w = vjp(self.cell, x, weights=tuple(self.internal_params))[1](dout)
        of_inputs = tuple(g * self.of_x for g in of_x)
        if not self.internal_params:
            return of_inputs
        return of_inputs, {p: g * self.of_w for p, g in zip(self.internal_params, of_w, strict=True)}


class Leaves(nn.Cell):
    """A layer with some values that leave the tape."""

    def __init__(self, cell, part):
        super().__init__()
        self.cell, self.part = cell, part

    def construct(self, x):
        out = self.cell(x)
        return out * (1.0 - self.part) + Tensor(out.asnumpy() * self.part)


class Stops(nn.Cell):
    """A layer that stops part of its gradient."""

    def __init__(self, cell, part):
        super().__init__()
        self.cell, self.part = cell, part

    def construct(self, x):
        out = self.cell(x)
        return out * (1.0 - self.part) + ops.stop_gradient(out) * self.part


class Off(surrogate.ATan):
    """A surrogate with a `bprop` that is off by a factor."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def bprop(self, x, out, dout):
        return (super().bprop(x, out, dout)[0] * self.factor,)


def random_net(rng, fault=""):
    """Convolution, spikes, pooling and more, with silent pixels, so that there are ties; a fault in one layer.

    Returns:
        The net, spikes (T, B, C, H, W), and the class that is at fault.
    """
    size = int(rng.integers(5, 9))
    shape = (int(rng.integers(2, 5)), 2, int(rng.integers(1, 3)), size, size)
    channels = int(rng.integers(2, 5))
    window = int(rng.integers(2, 4))
    stride = int(rng.integers(1, window + 1))
    layers = {
        "conv": nn.Conv2d(shape[2], channels, 3, has_bias=bool(rng.integers(2))),
        "norm": nn.BatchNorm2d(channels).set_train(bool(rng.integers(2))) if rng.integers(2) else None,
        "rectifier": [None, nn.ReLU, nn.LeakyReLU, nn.HSigmoid][rng.integers(4)],
        "pool": [
            lambda: nn.MaxPool2d(window, stride),
            lambda: nn.AvgPool2d(window, stride),
            lambda: nn.AdaptiveMaxPool2d(2),
            lambda: nn.SequentialCell(nn.MaxPool2d(2, 1), nn.MaxPool2d(2, 1)),
        ][rng.choice(4, p=[0.6, 0.1, 0.15, 0.15])](),
    }
    if layers["rectifier"] is not None:
        layers["rectifier"] = layers["rectifier"]()
    present = [name for name, layer in layers.items() if layer is not None]
    neuron = [nn.LIFNode, nn.IFNode, nn.ParametricLIFNode, nn.QIFNode][rng.integers(4)]
    spikes = Off(1.01) if fault == "surrogate" else surrogate.ATan()
    guilty = str(rng.choice(present))
    wrap = {
        "bprop, input": lambda cell: Wrong(cell, of_x=1.01),
        "bprop, weight": lambda cell: Wrong(cell, of_w=0.99),
        "leaves": lambda cell: Leaves(cell, 0.01),
        "stops": lambda cell: Stops(cell, 0.01),
    }
    if fault == "bprop, weight":
        guilty = "conv"
    if fault in wrap:
        layers[guilty] = wrap[fault](layers[guilty])
    over_time = {name: nn.TimeDistributed(layers[name]) for name in present}
    middle = nn.MultiStep(neuron(surrogate_function=spikes))
    order = (
        ["conv", "norm", "lif", "rectifier", "pool"]
        if rng.integers(2)
        else ["conv", "norm", "rectifier", "lif", "pool"]
    )
    over_time["lif"] = middle
    features = nn.SequentialCell(*[over_time[name] for name in order if name in over_time], nn.Flatten(2))
    # Without any spike a weight's gradient is 0, and 1 % of it too.
    density = rng.choice([0.2 if fault == "bprop, weight" else 0.0, 0.05, 0.2])
    x = Tensor((rng.random(shape) < density).astype(np.float32))
    net = nn.SequentialCell(features, nn.Dense(features(x).shape[-1], 3))
    classes = {"": "", "surrogate": "Off", "leaves": "Leaves", "stops": "Stops"}
    return net, x, classes.get(fault, "Wrong")


@pytest.mark.sampled(1)
@random_cases(6)
def test_correct_layers_pass_at_ties(seed):
    net, x, _ = random_net(np.random.default_rng(seed))
    with testing.unfused():
        result = testing.check_through_time(net, x)
    assert result.worst < 1e-5 and all(row.checked for row in result.rows), result


@pytest.mark.sampled(1)
@random_cases(6)
def test_planted_faults_are_found_at_ties(seed):
    fault = ["bprop, input", "bprop, weight", "leaves", "stops", "surrogate"][seed % 5]
    net, x, guilty = random_net(np.random.default_rng(seed), fault)
    with testing.unfused(), pytest.raises(GradientCheckError, match=rf"cause.*\({guilty}\)"):
        testing.check_through_time(net, x)
