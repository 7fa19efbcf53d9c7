"""compare, max_spikes and the spike function, set when a neuron is made and set later: the same neuron."""

import copy

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate
from snncell.errors import ArgumentError

KINDS = [
    kind
    for kind in vars(nn).values()
    if isinstance(kind, type) and issubclass(kind, nn.Neuron) and kind is not nn.Neuron
]
OWN = {nn.ILIFNode}
CHANGES = {
    "compare": (">=", ">"),
    "max_spikes": (3, None, 1),
    "surrogate_function": (surrogate.ATan(), surrogate.Triangle(2.0)),
}
BEFORE = ({}, {"compare": ">="}, {"max_spikes": 2}, {"compare": ">=", "max_spikes": None})


def takes(kind, options):
    one = kind in (nn.IzhikevichNode, nn.GLIFNode)
    return not one or options.get("max_spikes", 1) == 1


def made(kind, options):
    return kind(**{name: value for name, value in options.items() if kind is not nn.GLIFNode or name != "max_spikes"})


def answers(node):
    """The spikes and the gradient of the spike function around, and just at, the first three thresholds."""
    x = Tensor(np.array([-1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 2.0, 5.0], np.float32))
    found = snncell.grad(lambda x: node.fire_at(x).sum())(x).asnumpy()
    return node.fire_at(x).asnumpy().tolist(), found.tolist(), node.compare, node.max_spikes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OWN], ids=lambda kind: kind.__name__)
def test_set_later_is_as_given(kind):
    for before in BEFORE:
        for name, values in CHANGES.items():
            for value in values:
                if not takes(kind, before) or not takes(kind, {**before, name: value}):
                    continue
                later = made(kind, before)
                setattr(later, name, value)
                assert answers(later) == answers(made(kind, {**before, name: value})), (before, name, value)


@pytest.mark.compiled
def test_a_compiled_neuron_that_is_changed_is_the_changed_one():
    x, node = ops.ones((3, 1, 2)) * 2.0, nn.LIFNode(2.0, reset="zero", decay_input=False)
    layer = snncell.jit(nn.MultiStep(node))
    assert layer(x).asnumpy().max() == 1.0
    node.max_spikes = None
    assert layer(x).asnumpy().max() == 1.0
    node.compare = ">="  # 2.0 is two thresholds
    assert layer(x).asnumpy().max() == 2.0
    node.max_spikes = 1
    assert layer(x).asnumpy().max() == 1.0


REFUSED = [
    (nn.LIFNode, "compare", "==", 'LIFNode: compare is ">" or ">=", not \'==\''),
    (
        nn.LIFNode,
        "max_spikes",
        0,
        "LIFNode: max_spikes must be a whole number of at least 1, or None for no limit, not 0",
    ),
    (nn.LIFNode, "surrogate_function", surrogate.ATan, "LIFNode: surrogate_function is a spike function"),
    (nn.IzhikevichNode, "max_spikes", 3, "IzhikevichNode: max_spikes is 1, not 3"),
    (nn.GLIFNode, "max_spikes", None, "GLIFNode: max_spikes is 1, not None"),
    (nn.ILIFNode, "compare", ">=", "ILIFNode has a fixed spike function, so compare cannot change. Create a new"),
    (nn.ILIFNode, "max_spikes", 2, "ILIFNode has a fixed spike function, so max_spikes"),
    (nn.ILIFNode, "surrogate_function", surrogate.ATan(), "ILIFNode has a fixed spike function, so surrogate"),
]


@pytest.mark.parametrize(("kind", "name", "value", "message"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(kind, name, value, message):
    node = kind()
    before = answers(node)
    with pytest.raises(ArgumentError, match=message):
        setattr(node, name, value)
    assert answers(node) == before


def test_several_spikes_of_a_threshold_below_zero_are_refused_later_too():
    node = nn.EIFNode(v_threshold=-0.05, v_reset=-0.1, reset="value")
    before = answers(node)
    with pytest.raises(ArgumentError, match="EIFNode: v_threshold is positive if a step can ha"):
        node.max_spikes = 2
    assert answers(node) == before


def test_a_spike_function_that_was_given_is_learned_on():
    given = surrogate.ATan(snncell.Parameter(2.0, name="alpha"))
    node = nn.LIFNode(surrogate_function=given)
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.alpha"]
    node.compare = ">="  # the one that was given stands inside of another one
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.surrogate_function.alpha"]
    node.max_spikes = 4
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.surrogate_function.alpha"]
    node.max_spikes, node.compare = 1, ">"
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.alpha"]
    assert node.surrogate_function is given


def test_a_copy_is_changed_alone():
    node = nn.LIFNode()
    other = copy.deepcopy(node)
    other.compare = ">="
    assert node.compare == ">" and answers(node)[0] != answers(other)[0]
