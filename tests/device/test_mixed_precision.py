"""Mixed precision, a dynamic loss scale, and the search for a learning rate on the device, beside the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, amp, nn, train

X = np.random.default_rng(0).random((4, 4, 6)).astype(np.float32)
BAD = np.where(X.max() == X, np.inf, X).astype(np.float32)  # spikes of it are finite, gradients are not
Y = np.arange(4) % 2


def begun(device: str, half: str) -> tuple[Any, nn.Optimizer]:
    snncell.set_seed(1)
    net = nn.SequentialCell(nn.Dense(6, 8), nn.MultiStep(nn.LIFNode(v_threshold=0.3)), nn.Dense(8, 2))
    net = amp.auto_mixed_precision(net, "O1", half).to(device)
    return net, nn.Adam(net.trainable_params(), 0.01)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_steps_taken_and_not_taken_are_those_of_the_cpu(half: str) -> None:
    found = []
    for device in ("cpu", "gpu"):
        net, adam = begun(device, half)
        scaler = amp.DynamicLossScaler(2.0**20, 4.0, 2)
        step = train.training_step(net, nn.CECountLoss(), adam, None, None, loss_scale=scaler)
        losses = [float(step(Tensor(x).to(device), Tensor(Y).to(device))["loss"]) for x in (X, X, BAD, X, X, X)]
        counts = scaler.taken.item(), scaler.skipped.item(), scaler.scale_value.item(), adam.global_step.item()
        found.append((losses, counts, [p.asnumpy() for p in net.trainable_params()]))
    (mine, counts, weights), (theirs, others, moved) = found
    assert counts == others and min(counts[:2]) > 0
    np.testing.assert_allclose(theirs, mine, rtol=1e-3)
    for one, other in zip(weights, moved, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-2, atol=1e-3)


def test_a_search_for_a_rate_leaves_everything_on_the_device_as_it_was() -> None:
    net, adam = begun("gpu", "float16")
    before = [p.asnumpy().copy() for p in adam.get_parameters()]
    batches = [(Tensor(X).to("gpu"), Tensor(Y).to("gpu"))]
    found = train.find_learning_rate(net, nn.CECountLoss(), adam, batches, steps=5)
    assert np.isfinite(found.losses).all() and len(set(found.losses)) > 1
    assert {p.device for p in net.get_parameters()} == {"gpu"}
    for old, parameter in zip(before, adam.get_parameters(), strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), old)
