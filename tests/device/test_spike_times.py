"""EventProp on the device: the spike times and gradients of the CPU."""

import numpy as np
import pytest

import snncell
from snncell import Tensor, jit, nn, ops, value_and_grad
from snncell.errors import ArgumentError


@pytest.mark.parametrize("run", [lambda fn: fn, jit], ids=["eager", "jit"])
def test_spike_times_and_gradients_are_the_cpus(run):
    times = np.random.default_rng(0).uniform(0.0, 30.0, (3, 4, 2))
    times[0, 1], times[1, :, 1] = np.inf, np.inf
    net = nn.SequentialCell(
        nn.EventPropLIF(4, 3, spikes=2, dtype="float64"), nn.EventPropLIF(3, 2, t_max=90.0, dtype="float64")
    )

    def loss(x):
        first = net[0](x)
        return ops.minimum(first, 50.0).sum() + ops.square(ops.minimum(net[1](first), 50.0)).sum(), first

    found = {}
    for device in ("cpu", "gpu"):
        net.to(device)
        step = run(value_and_grad(loss, 0, net.trainable_params(), has_aux=True))
        (value, first), (of_times, of_weights) = step(Tensor(times).to(device))
        found[device] = [value, first, of_times, *of_weights]
        assert [x.device for x in found[device]] == [device] * 5
    assert np.isfinite(found["cpu"][1].asnumpy()).mean() > 0.3
    for ours, theirs in zip(found["gpu"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-9, atol=1e-12)


def test_times_that_are_none_are_refused():
    layer = nn.EventPropLIF(2, 1).to("gpu")
    with pytest.raises(ArgumentError, match="EventPropLIF: times contains NaN or -inf"):
        layer(Tensor([[1.0, np.nan]]).to("gpu"))


def test_each_way_is_one_operation():
    layer = nn.EventPropLIF(2, 1, spikes=2).to("gpu")
    text = snncell.explain(snncell.grad(lambda x: layer(x).sum()), ops.ones((1, 2)).to("gpu"))
    assert text.count("call spike_times") == text.count("call sent_back") == 1 and "scan" not in text
