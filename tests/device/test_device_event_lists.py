"""Event lists on the device: of them an array is made, and results are those of that array."""

from __future__ import annotations

import numpy as np
import pytest
from test_event_lists import drawn, lists_of

import snncell
from snncell import Tensor, nn, ops
from snncell.tape import structure


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("layer", ["dense", "conv"])
def test_layers_give_on_the_device_what_they_give_on_the_cpu(dtype: str, layer: str) -> None:
    rng = np.random.default_rng(0)
    x = drawn(rng, (3, 2, 2, 5, 4), 0.2, dtype)
    snncell.set_seed(1)
    net = nn.Dense(40, 6) if layer == "dense" else nn.TimeDistributed(nn.Conv2d(2, 3, 3))

    def value(lists: object) -> Tensor:
        return (net(ops.flatten(lists, 2) if layer == "dense" else lists) ** 2).sum()

    lists = lists_of(x, 2, room=2)
    step = snncell.value_and_grad(value, None, net.trainable_params())
    want = step(lists)
    net.to("gpu")
    there = structure.map_leaves(lambda leaf: leaf.to("gpu"), lists)
    found = step(there)
    for one, other in zip((want[0], *want[1]), (found[0], *found[1]), strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(there.to_dense().asnumpy(), x)
