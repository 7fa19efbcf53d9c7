"""Settings of optimisers that change during training: every setting of every optimiser, eager and compiled."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn
from snncell.errors import ArgumentError, ParameterError

OPTIMISERS = sorted(
    (one for one in vars(nn).values() if isinstance(one, type) and issubclass(one, nn.Optimizer)),
    key=lambda one: one.__name__,
)
OPTIMISERS.remove(nn.Optimizer)
WRONG = {bool: ["x", 1, None], float: ["x", -1.0, float("nan"), None, True, [0.5]]}
BASE = {
    "momentum": 0.5,
    "learning_rate": 0.25,
}  # momentum is on where possible, so that the other settings have an effect


def settings_of(optimiser: Any) -> dict[str, tuple[type, Any]]:
    """The settings of an optimiser: type and default of each argument except the Parameters."""
    hints = typing.get_type_hints(optimiser.__init__)
    parameters = list(inspect.signature(optimiser.__init__).parameters.values())[2:]
    kinds = {p.name: (bool if hints[p.name] is bool else float, p.default) for p in parameters}
    return kinds


CASES = [(optimiser, name) for optimiser in OPTIMISERS for name in settings_of(optimiser)]
CASES += [(nn.Momentum, "nesterov"), (nn.SGD, "momentum off")]


def make_optimiser(optimiser: Any, values: Any, **settings: Any) -> Any:
    base = {name: value for name, value in BASE.items() if name in settings_of(optimiser)}
    parameters = [Parameter(value, name=f"p{i}") for i, value in enumerate(values)]
    return optimiser(parameters, **(base | settings))


def stepping(optimiser: Any, compiled: bool) -> Any:
    step = lambda *grads: optimiser(grads)  # noqa: E731
    return snncell.jit(step) if compiled else step


def test_learning_rate_supports_in_place_multiplication():
    optimiser = nn.SGD(nn.Dense(2, 1).trainable_params(), 0.5)
    optimiser.learning_rate *= 0.5
    assert optimiser.learning_rate.item() == 0.25


@pytest.mark.compiled
@pytest.mark.sampled(14)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("optimiser", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_changed_setting_equals_a_new_optimiser_with_it(optimiser, name, compiled, rng):
    start = [rng.normal(size=(3, 2)), rng.normal(size=4)]
    grads = [[Tensor(rng.normal(size=x.shape)) for x in start] for _ in range(4)]
    first = {"momentum": 0.0} if name == "momentum off" else {}
    name = name.removesuffix(" off")
    kind, default = settings_of(optimiser).get(name, (bool, False))
    value = (not default) if kind is bool else 0.75
    changed = make_optimiser(optimiser, start, **first)
    step = stepping(changed, compiled)
    for each in grads[:2]:
        step(*each)
    constructor = {name if name in settings_of(optimiser) else "use_nesterov": value}
    other = make_optimiser(optimiser, [p.asnumpy() for p in changed.parameters], **constructor)
    kept = changed.parameters_dict()
    for path, parameter in other.parameters_dict().items():
        if path in kept and "learning_rate" not in path:
            parameter.set_data(kept[path].value())
    setattr(changed, name, value)
    assert float(getattr(changed, name) if name != "learning_rate" else changed.get_lr()) == value
    unlike = [p.asnumpy() for p in changed.parameters]
    for each in grads[2:]:
        step(*each)
        other(each)
        for ours, theirs in zip(changed.parameters, other.parameters, strict=True):
            np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-12)
    assert all((p.asnumpy() != before).any() for p, before in zip(changed.parameters, unlike, strict=True))


@pytest.mark.parametrize(("optimiser", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_invalid_values_raise_and_change_nothing(optimiser, name, rng):
    name = name.removesuffix(" off")
    one = make_optimiser(optimiser, [rng.normal(size=3)])
    kind, _ = settings_of(optimiser).get(name, (bool, False))
    before = {key: str(value) for key, value in vars(one).items()}
    for wrong in WRONG[kind]:
        with pytest.raises(ArgumentError, match=name.removeprefix("use_")):
            setattr(one, name, wrong)
        for group in one.groups if name in ("learning_rate", "weight_decay") else ():
            with pytest.raises(ArgumentError, match=name):
                setattr(group, name, wrong)
    assert {key: str(value) for key, value in vars(one).items()} == before
    one([Tensor(np.ones(3))])


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda one: one.__name__)
def test_names_of_other_libraries_raise_with_the_name_to_use(optimiser, rng):
    one = make_optimiser(optimiser, [rng.normal(size=3)])
    for name, meant in {"lr": "learning_rate", "weightdecay": "weight_decay", "learningrate": "learning_rate"}.items():
        with pytest.raises(ArgumentError, match=rf"has no setting {name}\. Did you mean {meant}\?"):
            setattr(one, name, 0.5)
    for name in ("params", "parameters", "groups"):
        with pytest.raises(ParameterError, match=f"{name} cannot change. Create a new optimiser"):
            setattr(one, name, [])
    one.note = "of mine"


def test_incompatible_settings_raise_in_either_order():
    one = nn.SGD([Parameter(1.0, name="p")], 0.1, momentum=0.5, nesterov=True)
    for name, value in (("momentum", 0.0), ("dampening", 0.5)):
        with pytest.raises(ArgumentError, match="nesterov needs a momentum above 0 and no dampening"):
            setattr(one, name, value)
    assert (one.momentum, one.dampening) == (0.5, 0.0)
    schedule = nn.CosineDecayLR(0.1, 0.5, 9)
    for name, value, words in (
        ("max_lr", 0.05, "max_lr"),
        ("min_lr", 0.7, "max_lr"),
        ("decay_steps", 0, "decay_steps"),
    ):
        with pytest.raises(ArgumentError, match=f"CosineDecayLR: {words}"):
            setattr(schedule, name, value)
    schedule.max_lr = 0.25
    assert schedule(Tensor(0.0)).item() == 0.25


def test_group_settings_are_set_in_the_group():
    p, q = Parameter(1.0, name="p"), Parameter(1.0, name="q")
    one = nn.SGD([{"params": [p]}, {"params": [q]}], 0.5)
    for name in ("learning_rate", "weight_decay"):
        with pytest.raises(ArgumentError, match=r"each of its 2 groups has a"):
            setattr(one, name, 0.25)
    one.groups[1].learning_rate, one.groups[1].weight_decay = 0.25, 1.0
    one([Tensor(1.0), Tensor(1.0)])
    assert (p.item(), q.item()) == (0.5, 0.5)
