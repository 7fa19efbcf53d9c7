"""Learning through time and online on the device: what the CPU gives, eagerly and jitted."""

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate
from snncell.tape import structure


def neuron():
    return nn.LIFNode(2.5, decay_input=False, surrogate_function=surrogate.ATan())


NETS = {
    "Truncated": lambda: nn.MultiStep(nn.Truncated(neuron(), 2)),
    "Truncated Recurrent": lambda: nn.MultiStep(nn.Truncated(nn.Recurrent(neuron(), nn.Dense(3, 3)), 2)),
    "OTTT": lambda: nn.MultiStep(nn.OTTTDense(3, 2)),
    "e-prop": lambda: nn.SequentialCell(nn.EProp(3, 4), nn.FeedbackDense(4, 2)),
    "e-prop, adapting": lambda: nn.SequentialCell(nn.EProp(3, 4, adaptation=0.2), nn.Dense(4, 2)),
    "STDP": lambda: nn.MultiStep(nn.PlasticDense(3, 2, neuron(), nn.STDP(bounds="soft", a_plus=0.1))),
}


def found(name, device, how):
    """The value, and the gradients of the input and of the weights."""
    snncell.set_seed(0)
    net = NETS[name]().to(device)
    x = (np.random.default_rng(0).uniform(size=(5, 2, 3)) < 0.5).astype(np.float32)
    fn = ops.value_and_grad(lambda x: ops.square(net(x) + 0.5).sum(), 0, net.trainable_params() or None)
    return structure.flatten(how(fn)(Tensor(x).to(device)))[0]


@pytest.mark.parametrize("how", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", NETS)
def test_values_and_gradients_are_the_cpus(name, how):
    mine = found(name, "gpu", how)
    for a, b in zip(mine, found(name, "cpu", lambda fn: fn), strict=True):
        assert a.device == "gpu"
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)
    assert len(mine) > 1 and all(a.asnumpy().any() for a in mine)
