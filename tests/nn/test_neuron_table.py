"""Every neuron: against its naive loop, with smooth spikes against finite differences, fused, compiled, detached."""

import naive_neurons as naive
import numpy as np
import pytest
from neuron_table import ALL, CASES, NEURONS

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ShapeError
from snncell.nn.neurons.constants import Membrane

EACH = pytest.mark.parametrize(("name", "reset"), CASES, ids=[f"{n}-{r}" for n, r in CASES])
RUNAWAY = (nn.EIFNode, nn.AdExNode, nn.QIFNode, nn.AdaptiveQIFNode)  # diverges in a few steps without a reset
ONE = pytest.mark.parametrize("name", NEURONS)


def run_eagerly(node):
    """Outputs and last states of the neuron in a Python loop, not compiled."""

    def over_time(x, *states):
        outputs = []
        for t in range(len(x)):
            out, *states = node(x[t], *states)
            outputs.append(out)
        return ops.stack(outputs, 0), tuple(states)

    return over_time


def test_every_neuron_of_the_library_is_in_the_table():
    public = {value for value in vars(nn).values() if isinstance(value, type) and issubclass(value, Membrane)}
    without_steps = {value for value in public if issubclass(value, nn.EventNeuron)}  # see test_event_dense.py
    assert public - without_steps - {nn.Neuron, nn.Membrane} == {entry.kind for entry in NEURONS.values()}
    for entry in NEURONS.values():
        if entry.plain and entry.kind is not nn.GLIFNode:
            assert set(entry.resets) == set(entry.kind.resets)


@EACH
def test_neuron_equals_its_naive_loop(name, reset):
    entry = NEURONS[name]
    x, states = entry.drawn(steps=3 if reset is None and entry.kind in RUNAWAY else 10)
    expected, after = entry.loop(entry.world(reset), x, states)
    y, last = run_eagerly(entry.make(reset))(Tensor(x), *[Tensor(s) for s in states])
    if entry.plain:
        assert 0.02 < (expected > 0).mean() < 0.98
        np.testing.assert_array_equal(y.asnumpy(), expected)
    else:
        np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-12)
    for mine, theirs in zip(last, after, strict=True):
        tight = 1e-12 if not next(nn_parameters(entry), None) else 1e-6  # Parameters are float32
        np.testing.assert_allclose(mine.asnumpy(), theirs[-1], rtol=tight, atol=tight)


def nn_parameters(entry):
    return iter(entry.make(entry.resets[0]).get_parameters())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@ONE
def test_default_spikes_have_the_dtype_of_the_input(name, dtype):
    entry = NEURONS[name]
    node = entry.make() if "cell" in entry.constants else entry.kind()
    x = Tensor(entry.drawn(steps=3)[0], dtype)
    steps = run_eagerly(node)(x, *first(node.init_state(x[0])))[0]
    together = nn.MultiStep(node)(x)
    assert steps.dtype == together.dtype == x.dtype
    np.testing.assert_allclose(together.asnumpy(), steps.asnumpy(), rtol=2e-3 if dtype == "float16" else 2e-2)


def test_float32_constants_keep_half_precision():
    x = Tensor(np.full((3, 2, 2), 0.8), "bfloat16")
    nodes = nn.LIFNode([2.0, 3.0]), nn.LeakyNode(learnable="beta"), nn.LINode(learnable="tau"), nn.CLIFNode([2.0, 4.0])
    for node, dtype in zip(nodes, ("bfloat16", "float16") * 2, strict=True):
        assert nn.MultiStep(node)(x.astype(dtype)).dtype == Tensor(0.0, dtype).dtype


def first(states):
    return states if isinstance(states, tuple) else (states,)


# --- gradients --------------------------------------------------------------------------------------------------------


def differences(loss, arrays, eps=1e-6):
    """The gradient of `loss(*arrays)`, entry by entry."""
    found = []
    for place, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            sides = []
            for sign in (1.0, -1.0):
                moved = [a.copy() for a in arrays]
                moved[place][index] += sign * eps
                sides.append(loss(*moved))
            slope[index] = (sides[0] - sides[1]) / (2 * eps)
        found.append(slope)
    return found


@pytest.mark.sampled(159)
@EACH
@pytest.mark.parametrize("detach", [False, True])
def test_smooth_gradients_through_time_equal_the_naive_loop(name, reset, detach):
    entry = NEURONS[name]
    if not entry.plain and detach:
        assert reset is None  # nothing to detach
        return
    x, states = entry.drawn(steps=4, neurons=2)
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(x.shape), *(rng.standard_normal(2) for _ in states)]
    node = entry.make(reset, detach)
    with surrogate.smooth():
        (y, last), pull = ops.vjp(run_eagerly(node), Tensor(x), *[Tensor(s) for s in states])
        douts = [Tensor(w).astype(leaf.dtype) for w, leaf in zip(weights, (y, *last), strict=True)]
        found = pull(douts[0], tuple(douts[1:]))
    first = entry.world(reset, smooth=True, detach=detach)
    entry.loop(first, x, states)

    def loss(x, *states):
        world = entry.world(reset, smooth=True, detach=detach)
        world.recorded = first.recorded
        world.again()
        out, after = entry.loop(world, x, list(states))
        return (out * weights[0]).sum() + sum((a[-1] * w).sum() for a, w in zip(after, weights[1:], strict=True))

    exact = next(nn_parameters(entry), None) is None
    for mine, theirs in zip(found, differences(loss, [x, *states]), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=1e-6 if exact else 1e-5, atol=3e-8)


@pytest.mark.sampled(49)
@EACH
def test_smooth_gradients_agree_with_differences_to_second_order(name, reset):
    entry = NEURONS[name]
    x, states = entry.drawn(steps=3, neurons=2)
    with surrogate.smooth():
        testing.check_grads(run_eagerly(entry.make(reset)), Tensor(x), *[Tensor(s) for s in states], order=2)


@ONE
def test_detach_reset_changes_gradients_only_with_a_reset(name):
    entry = NEURONS[name]
    x, states = entry.drawn(steps=5)
    for reset in entry.resets:
        nodes = [run_eagerly(entry.make(reset, detach)) for detach in (False, True)]
        state = [Tensor(s) for s in states]
        a, b = (ops.grad(lambda x, n=node, s=state: n(x, *s)[1][0])(Tensor(x)) for node in nodes)
        same = (a.asnumpy() == b.asnumpy()).all()
        assert same == (reset is None and entry.kind is not nn.GLIFNode)


LEARNED = [
    (name, constant)
    for name, entry in NEURONS.items()
    for constant, value in entry.constants.items()
    if isinstance(value, float) and constant not in ("dt", "k", "refractory") and entry.kind is not nn.GLIFNode
    if (entry.kind, constant) != (nn.ParametricLIFNode, "tau")
]


@pytest.mark.sampled(53)
@pytest.mark.parametrize(("name", "constant"), LEARNED)
def test_constants_can_be_learned_per_layer_or_per_neuron(name, constant):
    entry = NEURONS[name]
    x, states = entry.drawn(steps=4, neurons=3)
    state = [Tensor(s) for s in states]
    value = entry.constants[constant]
    for given in (value, np.full(3, value)):
        learning = entry.constants | {constant: given, "learnable": constant}
        node = entry._replace(constants=learning).make(entry.resets[0])
        parameter = getattr(node, constant)
        assert parameter.shape == np.shape(given) and parameter.name == constant
        parameter = snncell.Parameter(np.asarray(given, np.float64), name=constant)
        node = entry._replace(constants=entry.constants | {constant: parameter}).make(entry.resets[0])

        def total(node=node):
            y, last = run_eagerly(node)(Tensor(x), *state)
            return y.sum() + sum(s.sum() for s in last)

        with surrogate.smooth():
            found = ops.grad(total, None, parameter)().asnumpy()

            def moved(at, node=node, parameter=parameter):
                parameter.set_data(Tensor(at))
                return total(node).item()

            (expected,) = differences(moved, [np.array(parameter.asnumpy())])
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("constant", ["v_threshold", "v_reset", "input_gain"])
@pytest.mark.parametrize(
    "name", ["IF", "LIF", "Leaky", "CUBA", "Alpha", "ALIF", "AdEx", "CLIF", "resonate", "multi-spike"]
)
def test_shared_constants_can_be_learned(name, constant):
    entry = NEURONS[name]
    x, states = entry.drawn(steps=4, neurons=3)
    reset = "value" if constant == "v_reset" and "value" in entry.resets else "subtract"
    value = {"v_threshold": 0.8, "v_reset": -0.2, "input_gain": 1.3}[constant]
    parameter = snncell.Parameter(np.float64(value), name=constant)
    constants = {key: value for key, value in entry.constants.items() if key != constant}
    firing = entry.firing | ({} if constant == "input_gain" else {constant: parameter})
    own = {"input_gain": parameter} if constant == "input_gain" else {}
    node = entry._replace(constants=constants | own, firing=firing).make(reset)

    def total(at=None):
        if at is not None:
            parameter.set_data(Tensor(at))
        y, last = run_eagerly(node)(Tensor(x), *[Tensor(s) for s in states])
        return ops.square(y).sum() + sum(s.sum() for s in last)

    with surrogate.smooth():
        found = ops.grad(total, None, parameter)().asnumpy()
        (expected,) = differences(lambda at: total(at).item(), [np.array(value)])
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    assert found != 0.0 or (constant == "v_reset" and reset != "value")


# --- fused ------------------------------------------------------------------------------------------------------------


def inputs32(entry, seed=2):
    x, states = entry.drawn(steps=8, neurons=5, seed=seed)
    return Tensor(x.astype(np.float32)), [Tensor(s.astype(np.float32)) for s in states]


@ONE
def test_neuron_is_one_kernel_forward_and_one_backward(name):
    entry = NEURONS[name]
    x, states = inputs32(entry)
    net = nn.MultiStep(entry.make(entry.resets[0]))
    text = snncell.explain(net, x, *states, detail="launches")
    assert "1 loop over time, 0 calls" in text and text.count("one kernel") == 1
    assert text.count("in the loop:") == 1
    squared = ops.grad(lambda *args: ops.square(net(*args)))  # the gradient of a linear neuron is a constant
    text = snncell.explain(squared, x, *states, detail="launches")
    assert "2 loops over time, 0 calls" in text and text.count("one kernel") == 2


@ONE
def test_neuron_is_one_kernel_with_each_option(name):
    entry = NEURONS[name]
    x, states = inputs32(entry)
    options = [{"reset": reset} for reset in entry.resets]
    if entry.plain and entry.kind not in (nn.GLIFNode, nn.ILIFNode):
        options += [{"compare": ">="}, *({"delay": delay} for delay in entry.kind.delays if delay)]
        counts = "max_spikes" not in entry.constants and entry.kind is not nn.IzhikevichNode  # which rejects max_spikes
        options += [{"max_spikes": None}] if counts else []
    for option in options:
        node = entry.make(**({"reset": entry.resets[0]} | option))
        text = snncell.explain(nn.MultiStep(node), x, *states, detail="launches")
        assert "1 loop over time, 0 calls" in text and text.count("one kernel") == 1


@pytest.mark.sampled(3)
@pytest.mark.compiled
@ONE
def test_compiled_neuron_equals_eager_steps(name):
    entry = NEURONS[name]
    x, states = inputs32(entry)
    node = entry.make(entry.resets[0])
    whole = nn.MultiStep(node, return_states=True)
    (y, last), pull = ops.vjp(whole, x, *states)
    (expected, after), pull_steps = ops.vjp(run_eagerly(node), x, *states)
    compare = np.testing.assert_array_equal if entry.plain else np.testing.assert_allclose
    compare(y.asnumpy(), expected.asnumpy())
    rng = np.random.default_rng(3)
    douts = [Tensor(rng.standard_normal(leaf.shape).astype(np.float32)) for leaf in (y, *last)]
    pairs = zip(
        [*last, *pull(douts[0], tuple(douts[1:]))], [*after, *pull_steps(douts[0], tuple(douts[1:]))], strict=True
    )
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=2e-4, atol=2e-5)


@ONE
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_initial_states_equal_init_state_and_have_the_input_dtype(name, dtype):
    entry = NEURONS[name]
    node = entry.make(entry.resets[0])
    x = ops.ones((2, 3), dtype)
    states = node.init_state(x)
    states = states if isinstance(states, tuple) else (states,)
    assert len(states) == len(entry.states)
    wanted = "float32" if dtype == "int64" else dtype
    _, *after = node(x, *states)
    assert {(s.shape, s.dtype.name) for s in (*states, *after)} == {((2, 3), wanted)}


@ONE
def test_neuron_runs_in_a_recurrent_layer(name):
    entry = NEURONS[name]
    net = nn.MultiStep(nn.Recurrent(entry.make(entry.resets[0]), nn.Dense(3, 3)), return_states=True)
    steps = net._run_steps  # not compiled here, because other tests cover compiled loops with products
    program = snncell.explain(lambda x: steps(x, None, True), ops.ones((4, 2, 3)), detail="launches")
    assert "1 loop over time" in program


# --- invalid states ---------------------------------------------------------------------------------------------------


def test_state_of_another_batch_size_raises_and_is_named():
    net = nn.MultiStep(nn.LIFNode())
    with pytest.raises(ShapeError, match=r"LIFNode: the state v has shape \(3, 4\), but the input has shape \(2, 4\)"):
        net(ops.ones((5, 2, 4)), ops.zeros((3, 4)))
    with pytest.raises(ShapeError, match=r"ALIFNode: the state a has shape \(1, 2, 4\).*create states by init_state"):
        nn.ALIFNode()(ops.ones((2, 4)), ops.zeros((2, 4)), ops.zeros((1, 2, 4)))


# --- spikes of several thresholds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compare", "expected"), [(">=", [0, 0, 1, 1, 2, 2, 3]), (">", [0, 0, 0, 1, 1, 2, 3])])
def test_counts_at_whole_thresholds(compare, expected):
    node = nn.LeakyNode(0.0, v_threshold=0.5, max_spikes=3, compare=compare)
    x = Tensor([-2.0, 0.25, 0.5, 0.75, 1.0, 1.25, 9.0])
    assert node(x, ops.zeros_like(x))[0].asnumpy().tolist() == expected


@pytest.mark.parametrize("compare", [">", ">="])
@ONE
def test_neuron_fires_at_the_threshold_only_if_inclusive(name, compare):
    entry = NEURONS[name]
    if entry.plain and entry.kind not in (nn.ILIFNode, nn.GLIFNode):
        node = entry._replace(firing={}).make(entry.resets[0], compare=compare)
        at = node.v_threshold if entry.kind is nn.IzhikevichNode else 1.0
        assert node.spikes(Tensor([at - 0.5, at, at + 0.5])).asnumpy().tolist() == [0.0, float(compare == ">="), 1.0]


# --- delays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", ALL)
@pytest.mark.parametrize("delay", ["reset", "reset+input", "spike"])
@pytest.mark.parametrize("detach", [False, True])
def test_delayed_reset_and_its_gradient_equal_the_naive_loop(reset, delay, detach):
    entry = NEURONS["Leaky"]._replace(
        constants={"beta": 0.7, "delay": delay},
        step=naive.delayed,
        to_loop=lambda constants: constants,
        inputs=(-0.2, 1.0),
    )
    x, states = entry.drawn()
    expected, after = entry.loop(entry.world(reset), x, states)
    y, (v,) = run_eagerly(entry.make(reset))(Tensor(x), Tensor(states[0]))
    np.testing.assert_array_equal(y.asnumpy(), expected)
    np.testing.assert_allclose(v.asnumpy(), after[0][-1], rtol=1e-12)
    x, states = entry.drawn(steps=4, neurons=2)
    with surrogate.smooth():
        found = ops.grad(lambda x: run_eagerly(entry.make(reset, detach))(x, Tensor(states[0]))[0])(Tensor(x)).asnumpy()
    first = entry.world(reset, smooth=True, detach=detach)
    entry.loop(first, x, states)

    def total(x):
        world = entry.world(reset, smooth=True, detach=detach)
        world.recorded = first.recorded
        world.again()
        return entry.loop(world, x, states)[0].sum()

    np.testing.assert_allclose(found, differences(total, [x])[0], rtol=1e-6, atol=1e-8)
