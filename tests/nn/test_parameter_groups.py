"""Parameter groups: one step trains each group as a separate optimiser would."""

from __future__ import annotations

import os

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops, train
from snncell.errors import ArgumentError, CheckpointError, ParameterError

MODES = ["eager", "jit"] if os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0") else ["eager"]
MAKES = {
    "SGD": lambda params, rate, **own: nn.SGD(params, rate, **own),
    "nesterov": lambda params, rate, **own: nn.SGD(params, rate, momentum=0.9, nesterov=True, **own),
    "Momentum": lambda params, rate, **own: nn.Momentum(params, rate, 0.8, **own),
    "RMSProp": lambda params, rate, **own: nn.RMSProp(params, rate, centered=True, **own),
    "Adam": lambda params, rate, **own: nn.Adam(params, rate, **own),
    "AdamW": lambda params, rate, **own: nn.AdamW(params, rate, **own),
}
SETTINGS = [
    {},
    {"lr": 0.5},
    {"weight_decay": 0.25},
    {"lr": nn.ExponentialDecayLR(0.5, 0.5, 2), "weight_decay": 0.0},
    {"grad_centralization": True, "lr": 0.125},
]
SHAPES = [(3,), (2, 3), (2, 2, 3), ()]


def parameters():
    rng = np.random.default_rng(0)
    return [Parameter(Tensor(rng.normal(size=s).astype(np.float32)), name=f"p{n}") for n, s in enumerate(SHAPES)]


def gradients(step):
    rng = np.random.default_rng(step + 1)
    return [Tensor(rng.normal(size=s).astype(np.float32)) for s in SHAPES]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("first", range(len(SETTINGS)))
@pytest.mark.parametrize("second", range(len(SETTINGS)))
@pytest.mark.sampled(6)
@pytest.mark.uncompiled
def test_groups_equal_separate_optimisers(mode, make, first, second):
    rate, decay = 0.25, 0.125
    own = [SETTINGS[first], SETTINGS[second]]
    together, apart = parameters(), parameters()
    optimiser = MAKES[make](
        [{"params": together[:2], **own[0]}, {"params": together[2:], **own[1]}], rate, weight_decay=decay
    )
    others = []
    for settings, some in zip(own, (apart[:2], apart[2:]), strict=True):
        decayed = {"weight_decay": settings.get("weight_decay", decay)}
        others.append(MAKES[make](some, settings.get("lr", rate), **decayed))

    def centred(settings, grads):
        if not settings.get("grad_centralization"):
            return grads
        return [g - g.mean(tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g for g in grads]

    def separate(grads):
        others[0](centred(own[0], grads[:2]))
        others[1](centred(own[1], grads[2:]))

    steps = [optimiser, separate]
    if mode == "jit":
        steps = [snncell.jit(lambda grads, step=step: step(grads)) for step in (optimiser, separate)]
    for number in range(4):
        for step in steps:
            step(gradients(number))
        for one, other in zip(together, apart, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    for rates, other in zip(optimiser.rates(), others, strict=True):
        assert rates.item() == other.get_lr().item()


def test_order_params_sets_the_order_of_gradients():
    plain, grouped = parameters(), parameters()
    order = [grouped[n] for n in (2, 0, 3, 1)]
    optimiser = nn.Adam([{"params": grouped[:1], "lr": 0.5}, {"order_params": order}, {"params": grouped[1:]}], 0.25)
    other = nn.Adam([{"params": plain[:1], "lr": 0.5}, {"params": plain[1:]}], 0.25)
    assert [p.name for p in optimiser.parameters] == ["p2", "p0", "p3", "p1"]
    grads = gradients(0)
    optimiser([grads[n] for n in (2, 0, 3, 1)])
    other(grads)
    for one, another in zip(plain, grouped, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), another.asnumpy())


def test_changed_group_rate_applies_from_the_next_step():
    p, q = parameters()[:2]
    optimiser = nn.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], 0.25)
    step = snncell.jit(lambda a, b: optimiser([a, b]))
    for rate in (0.5, 2.0, 0.0):
        optimiser.set_learning_rate(rate, group=1)
        before = q.asnumpy().copy()
        step(ops.ones(SHAPES[0]), ops.ones(SHAPES[1]))
        np.testing.assert_allclose(q.asnumpy(), before - rate, rtol=1e-6)
    assert [x.item() for x in optimiser.rates()] == [0.25, 0.0]
    assert optimiser.get_lr().item() == 0.25


def test_fit_records_each_rate_and_resumes_groups_exactly(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 4)).astype(np.float32), rng.integers(0, 3, 32)

    def make_optimiser(rate=0.05):
        snncell.set_seed(0)
        net = nn.SequentialCell(nn.Dense(4, 5), nn.ReLU(), nn.Dense(5, 3))
        groups = [
            {"params": net[0].trainable_params(), "lr": nn.ExponentialDecayLR(0.1, 0.5, 4), "weight_decay": 0.01},
            {"params": net[2].trainable_params(), "lr": rate},
        ]
        return net, nn.Adam(groups, 0.3)

    def train_net(net, optimiser, epochs, **more):
        return train.fit(
            net, nn.CrossEntropyLoss(), optimiser, (x, y), epochs=epochs, batch_size=8, progress=False, **more
        )

    net, optimiser = make_optimiser()
    whole = train_net(net, optimiser, 3)
    assert [record["learning_rate_1"] for record in whole.history] == [0.05] * 3
    assert whole.history[0]["learning_rate"] == pytest.approx(0.05) and whole.history[1]["learning_rate"] < 0.03
    file = tmp_path / "state"
    first = make_optimiser()
    train_net(*first, 1, checkpoint=file)
    second = make_optimiser()
    resumed = train_net(*second, 3, checkpoint=file, resume=True)
    assert resumed.history == whole.history
    for one, other in zip(net.trainable_params(), second[0].trainable_params(), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    changed = make_optimiser(rate=0.5)
    with pytest.raises(CheckpointError, match=r"learning_rate of group 1 was 0\.05 and is 0\.5"):
        train_net(*changed, 3, checkpoint=file, resume=True)


P, Q = Parameter(Tensor([1.0, 2.0]), name="p"), Parameter(Tensor([1.0]), name="q")


@pytest.mark.parametrize(
    ("params", "kind", "words"),
    [
        ([{"params": [P]}, Q], ParameterError, r"Adam: group 1 is a Parameter, but with groups every entry"),
        ([{"lr": 0.1}], ParameterError, r"Adam: group 0 has no 'params'"),
        ([{"params": []}], ParameterError, r"Adam: group 0 has no Parameters"),
        ([{"params": [P], "learning_rate": 0.1}], ArgumentError, r"group 0 has no setting 'learning_rate'; .*'lr'"),
        ([{"params": [P], "lr": -1.0}], ArgumentError, r"Adam: group 0: learning_rate must be a number in \[0"),
        ([{"params": [P], "lr": None}], ArgumentError, r"Adam: group 0: learning_rate must be a number"),
        ([{"params": [P], "weight_decay": "a"}], ArgumentError, r"Adam: group 0: weight_decay is a number"),
        (
            [{"params": [P], "grad_centralization": 1}],
            ArgumentError,
            r"group 0: grad_centralization must be True or False",
        ),
        ([{"params": [P]}, {"params": [Q, P]}], ParameterError, r"Adam: Parameter 'p' occurs twice"),
        ([{"params": [P, 3]}], ParameterError, r"Adam: element 1 is a int, not a Parameter"),
        ({"params": [P]}, ParameterError, r"Put a group in a list: \[\{'params'"),
        ([{"order_params": [P]}], ParameterError, r"Adam: there are no Parameters to train"),
        ([{"params": [P]}, {"order_params": [P, Q]}], ParameterError, r"'q' is in no group"),
        ([{"params": [P, Q]}, {"order_params": [P]}], ParameterError, r"'q' is missing in order_params"),
        ([{"params": [P]}, {"order_params": [P], "lr": 1.0}], ParameterError, r"order_params must occur once"),
        ([{"params": nn.Dense(1, 1)}], ParameterError, r"params must be Parameters, not a Cell"),
    ],
)
def test_invalid_groups_raise(params, kind, words):
    with pytest.raises(kind, match=words):
        nn.Adam(params, 0.1)


def test_learning_rate_is_a_parameter():
    optimiser = nn.SGD([P, Q], 0.25, weight_decay=0.5)
    optimiser.learning_rate.set_data(np.float32(0.5))
    assert optimiser.get_lr().item() == optimiser.learning_rate.item() == 0.5 and optimiser.weight_decay == 0.5
    with pytest.raises(AttributeError, match="learning_rate"):
        _ = nn.SGD([P], nn.ExponentialDecayLR(0.5, 0.5, 2)).learning_rate
    optimiser.learning_rate = 0.125
    assert optimiser.get_lr().item() == 0.125


def test_rate_of_a_parameter_is_the_rate_of_its_group():
    sgd = nn.SGD([{"params": [P], "lr": 0.5}, {"params": [Q], "lr": nn.ExponentialDecayLR(0.25, 0.5, 2)}], 0.1)
    assert sgd.get_lr_parameter(P).item() == 0.5 and [r.item() for r in sgd.get_lr_parameter([Q, P])] == [0.25, 0.5]
    with pytest.raises(ParameterError, match=r"get_lr_parameter: the optimiser does not have Parameter \(name=other"):
        sgd.get_lr_parameter([P, Parameter(1.0, name="other")])


def test_ambiguous_learning_rate_raises():
    optimiser = nn.SGD([{"params": [P]}, {"params": [Q]}], 0.1)
    with pytest.raises(ArgumentError, match=r"SGD: each of its 2 groups has a learning rate\. Pass the number"):
        optimiser.set_learning_rate(0.1)
    with pytest.raises(ArgumentError, match=r"SGD: group must be from 0 to 1, not 2"):
        optimiser.set_learning_rate(0.1, group=2)
    assert "learning_rate=0.1" in repr(optimiser)
