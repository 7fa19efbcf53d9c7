"""Monitors on the device record what they record on the CPU."""

import numpy as np
import pytest
from test_monitor import Net, everything, flat, gradients, inputs

import snncell


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_records_are_those_of_the_cpu(jitted):
    snncell.set_seed(3)
    net, x = Net(), inputs()
    with everything(net) as expected:
        gradients(net)(x)
    net.to("gpu")
    run = snncell.jit(gradients(net)) if jitted else gradients(net)
    plain = flat(run(x.to("gpu")))
    with everything(net, every=2) as m:
        recorded = flat(run(x.to("gpu")))
    for a, b in zip(plain, recorded, strict=True):
        np.testing.assert_array_equal(a, b)
    assert expected.spikes["layer2"].any()
    for name in expected.layers:
        for quantity in ("spikes", "v", "grad"):
            found, wanted = getattr(m, quantity)[name], getattr(expected, quantity)[name]
            np.testing.assert_allclose(found, wanted[::2], rtol=1e-4, atol=1e-6)
    assert m.costs()["dense1"] == expected.costs()["dense1"]
    assert m.energy().dense == pytest.approx(expected.energy().dense)  # as often as it ran, whatever fired
