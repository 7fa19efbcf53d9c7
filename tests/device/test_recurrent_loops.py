"""Recurrent layers on the device: outputs and gradients are the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops
from snncell.tape import structure


def on(device: str, kind: type[Any], lengths: list[int] | None) -> list[np.ndarray[Any, Any]]:
    """Loss and gradients of a network with the same weights and input, on a device."""
    rng = np.random.default_rng(3)
    snncell.set_context(device_target=device)
    try:
        net = kind(3, 2, bidirectional=True, dtype="float64")
        for p in net.get_parameters():
            p.set_data(Tensor(rng.standard_normal(p.shape)))
        given = None if lengths is None else Tensor(lengths)

        def loss(x: Tensor) -> Tensor:
            return ops.square(net(x, seq_length=given)[0]).sum()

        x = Tensor(rng.standard_normal((3, 2, 3)))
        found = structure.flatten(snncell.value_and_grad(loss, 0, net.trainable_params())(x))[0]
        assert {one.device for one in found} == {device.lower()}
        return [one.asnumpy() for one in found]
    finally:
        snncell.set_context(device_target="CPU")


@pytest.mark.parametrize("lengths", [None, [1, 3]], ids=["all steps", "lengths"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_layer_is_the_cpus(kind, lengths):
    for mine, theirs in zip(on("GPU", kind, lengths), on("CPU", kind, lengths), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
