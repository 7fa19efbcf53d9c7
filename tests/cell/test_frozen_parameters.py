"""Freezing Parameters during training: unchanged until they are unfrozen, eagerly and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Parameter, Tensor, amp, nn, ops, train
from snncell.errors import ArgumentError

MAKERS: dict[str, Any] = {
    "SGD": lambda p: nn.SGD(p, 0.1, weight_decay=0.1),
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True),
    "RMSProp": lambda p: nn.RMSProp(p, 0.1, centered=True, momentum=0.5),
    "Adam": lambda p: nn.Adam(p, 0.1, use_amsgrad=True),
    "AdamW": lambda p: nn.AdamW(p, 0.1, weight_decay=0.1),
    "AdaMax": lambda p: nn.AdaMax(p, 0.1),
}


@pytest.mark.sampled(8)
@random_cases(24)
def test_frozen_parameter_and_its_moments_do_not_change(seed: int) -> None:
    """Each Parameter changes as with a separate optimiser, called only at the steps at which it is not frozen."""
    rng = np.random.default_rng(seed)
    make = MAKERS[str(rng.choice(list(MAKERS)))]
    starts = [rng.standard_normal(n) for n in (2, 3, 1)]
    params = [Parameter(Tensor(x), name=f"p{n}") for n, x in enumerate(starts)]
    own = [Parameter(Tensor(x), name=f"p{n}") for n, x in enumerate(starts)]
    optimiser, alone = make(params), [make([p]) for p in own]
    take = snncell.jit(lambda *grads: optimiser(grads)) if seed % 3 == 0 else lambda *grads: optimiser(grads)
    for step in range(8):
        for p in params:
            p.requires_grad = bool(rng.integers(3))
        grads = [Tensor(rng.standard_normal(p.shape)) for p in params]
        thawed = [g for g, p in zip(grads, params, strict=True) if p.requires_grad]
        assert optimiser.trainable_params() == [p for p in params if p.requires_grad]
        take(*(thawed if rng.integers(2) else grads))
        for p, g, one in zip(params, grads, alone, strict=True):
            if p.requires_grad:
                one.global_step.set_data(Tensor(step))
                one([g])
        for p, theirs in zip(params, own, strict=True):
            np.testing.assert_allclose(p.asnumpy(), theirs.asnumpy(), rtol=1e-10, atol=1e-12)


def _by_hand(net: Any, optimiser: Any) -> Any:
    loss = lambda x, y: ops.square(net(x) - y).mean()  # noqa: E731

    def step(x: Tensor, y: Tensor) -> None:
        optimiser(ops.grad(loss, None, optimiser.trainable_params())(x, y))

    return step


def _fit(net: Any, optimiser: Any) -> Any:
    options: Any = {"epochs": 1, "progress": False, "accuracy": None}
    return lambda x, y: train.fit(net, nn.MSELoss(), optimiser, (x.asnumpy(), y.asnumpy()), **options)


STEPS: dict[str, Any] = {
    "by hand": _by_hand,
    "by hand, jitted": lambda net, optimiser: snncell.jit(_by_hand(net, optimiser)),
    "cell": lambda net, optimiser: nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimiser),
    "cell, jitted": lambda net, optimiser: snncell.jit(
        nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimiser)
    ),
    "training_step": lambda net, optimiser: train.training_step(net, nn.MSELoss(), optimiser),
    "clipped": lambda net, optimiser: train.training_step(
        net, nn.MSELoss(), optimiser, clip=lambda grads: ops.clip_by_global_norm(grads, 0.5)
    ),
    "scaled": lambda net, optimiser: train.training_step(net, nn.MSELoss(), optimiser, loss_scale=1024.0),
    "fit": _fit,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STEPS)
def test_layer_frozen_during_training_does_not_change(name: str) -> None:
    snncell.set_seed(3)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    optimiser = nn.Adam(net.trainable_params(), 0.1, weight_decay=0.01)
    step = STEPS[name](net, optimiser)
    rng = np.random.default_rng(0)
    x, y = Tensor(rng.standard_normal((6, 3)).astype("f")), Tensor(rng.standard_normal((6, 2)).astype("f"))
    layers = [list(net[0].get_parameters()), list(net[2].get_parameters())]
    for frozen in (None, 0, 0, None, 1, None):
        for number, layer in enumerate(layers):
            for p in layer:
                p.requires_grad = number != frozen
        before = [p.asnumpy().copy() for p in (*optimiser.parameters, *optimiser.moment1, *optimiser.moment2)]
        step(x, y)
        after = [p.asnumpy() for p in (*optimiser.parameters, *optimiser.moment1, *optimiser.moment2)]
        changed = [bool((a != b).any()) for a, b in zip(before, after, strict=True)]
        assert changed == [frozen != n for n in (0, 0, 1, 1)] * 3


def test_all_frozen_and_an_accumulated_step_change_nothing() -> None:
    net = nn.Dense(3, 2)
    optimiser = nn.SGD(net.trainable_params(), 0.1)
    data = (np.ones((4, 3), "f"), np.zeros((4, 2), "f"))
    for p in net.get_parameters():
        p.requires_grad = False
    before = [p.asnumpy().copy() for p in net.get_parameters()]
    options: Any = {"epochs": 1, "batch_size": 2, "progress": False, "accuracy": None}
    train.fit(net, nn.MSELoss(), optimiser, data, accumulate=2, loss_scale=amp.DynamicLossScaler(), **options)
    for p, value in zip(net.get_parameters(), before, strict=True):
        np.testing.assert_array_equal(p.asnumpy(), value)


def test_wrong_number_of_gradients_raises() -> None:
    p, q = Parameter(Tensor([1.0]), name="p"), Parameter(Tensor([1.0]), name="q")
    optimiser = nn.SGD([p, q], 0.1)
    with pytest.raises(ArgumentError, match=r"got 1 gradient\(s\) for 2 Parameter\(s\)\. Pass one for each\."):
        optimiser([ops.ones(1)])
    p.requires_grad = False
    with pytest.raises(ArgumentError, match=r"0 gradient\(s\) .* for each, or for the 1 that are not frozen"):
        optimiser([])
