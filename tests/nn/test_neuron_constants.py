"""Constants of neurons: validity when they are made, set and learned, and the precision of the input."""

import copy
import gc
import inspect
import pickle
from itertools import product

import numpy as np
import pytest
from neuron_table import NEURONS

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError
from snncell.nn.neurons.convert import PRESETS
from snncell.nn.neurons.variants import GATES
from snncell.tape.parameter import assign_all

NODES = {name: entry for name, entry in NEURONS.items() if entry.plain}
# Invalid values of the constants with a name, in addition to NaN and infinities.
OUTSIDE = {
    "alpha": (-0.1, 1.1),
    "beta": (-0.1, 1.1),
    "rho": (-0.1, 1.1),
    "alpha_e": (-0.1, 1.1),
    "alpha_i": (-0.1, 1.1),
    "beta1": (-1.0, 0.0),
    "beta2": (0.0, 1.0),
    "U": (0.0, 1.1),
    "tau_f": (0.0, -1.0),
    "tau_d": (0.0, -1.0),
    "tau": (1.0, -3.0),
    "tau_w": (1.0, 0.0),
    "delta_t": (0.0, -1.0),
    "a0": (0.0, -1.0),
    "k": (0.0, -1.0),
    "omega": (0.0, -1.0),
    "dt": (0.0, -1.0),
    "scale": (0.0, -1.0),
    "refractory": (0.0, -1.0),
    "v_threshold": (-1e3,),
}
FREE = {
    ("ALIFNode", "beta"),
    *((kind, "b") for kind in ("IzhikevichNode", "AdExNode", "AdaptiveQIFNode")),
}  # constants without a range


def make_neuron(name, **options):
    entry = NEURONS[name]
    return entry.make(entry.resets[0], **options)


def outside(node, name):
    """Invalid values of a constant."""
    if (type(node).__name__, name) in FREE:
        return ()
    if name == "b":
        return (0.0, 0.5)
    return OUTSIDE.get(name, ())


ALL = [
    (name, constant.name)
    for name in NEURONS
    for constant in make_neuron(name).constants_and_ranges
    if NEURONS[name].kind is not nn.GLIFNode and (NEURONS[name].kind, constant.name) != (nn.ParametricLIFNode, "tau")
]


# --- errors -----------------------------------------------------------------------------------------------------------


def make_with(name, constant, value):
    """The neuron with another value of a constant, set in the constructor."""
    entry = NEURONS[name]
    shared = {} if not entry.plain else {**entry.spike_function, "reset": entry.resets[0], **entry.firing}
    shared |= (
        {"v_reset": value} if constant == "v_reset" else {"v_threshold": value} if constant == "v_threshold" else {}
    )
    if entry.kind is nn.IzhikevichNode and constant == "v_reset":
        shared["c"] = shared.pop("v_reset")
    own = entry.constants | ({} if constant in ("v_reset", "v_threshold") else {constant: value})
    return entry.kind(**own, **shared)


@pytest.mark.sampled(101)
@pytest.mark.parametrize(("name", "constant"), ALL)
def test_invalid_constants_raise_in_constructor_and_assignment(name, constant):
    node = make_neuron(name)
    before = getattr(node, constant)
    for wrong in (np.nan, np.inf, -np.inf, 10**400, *outside(node, constant)):
        for value in (
            wrong,
            [wrong, before],
            Tensor([float(before), wrong]) if abs(wrong) < 10**300 or wrong != wrong else wrong,
        ):
            if constant == "substeps" and not isinstance(value, (int, float)):
                continue
            with pytest.raises(ArgumentError, match=type(node).__name__) as by_constructor:
                make_with(name, constant, value)
            with pytest.raises(ArgumentError) as by_hand:
                setattr(node, constant, value)
            # If v_reset has another name in the neuron, the constructor's message also names the argument.
            assert str(by_constructor.value).partition(" Arguments:")[0] == str(by_hand.value)
            assert constant in str(by_hand.value) or constant == "v_reset"
            assert getattr(node, constant) is before and len(str(by_hand.value)) < 600


@pytest.mark.parametrize(("name", "constant"), ALL)
def test_parameters_out_of_range_raise(name, constant):
    node = make_neuron(name)
    for wrong in (np.nan, *outside(node, constant)):
        with pytest.raises(ArgumentError):
            make_with(name, constant, Parameter(np.float64(wrong)))
        with pytest.raises(ArgumentError):
            setattr(node, constant, Parameter(np.float64(wrong)))


@pytest.mark.parametrize("value", ["1", None, True, b"1", 1j, [], ["a"], [[1.0], [1.0, 2.0]], object()])
def test_values_that_are_not_numbers_raise(value):
    for make in (lambda v: nn.LIFNode(v), lambda v: nn.LIFNode(v_rest=v) if v is not None else nn.LIFNode(v)):
        with pytest.raises(ArgumentError, match=r"LIFNode: (tau|v_rest) is"):
            make(value if not (isinstance(value, list) and not value) else ["x"])


def test_huge_counts_raise_before_allocation():
    for make in (
        lambda: nn.IzhikevichNode(substeps=2**40),
        lambda: nn.ILIFNode(most=2**40),
        lambda: nn.LIFNode(max_spikes=10**400),
        lambda: nn.IzhikevichNode(substeps=2.0),
        lambda: nn.PSN(2**40),
        lambda: nn.SlidingPSN(2**40),
    ):
        with pytest.raises(ArgumentError, match=r"whole number of at least 1"):
            make()
    with pytest.raises(
        ArgumentError, match=r"substeps is a whole number of at least 1, and at most 1000, not 1099511627776"
    ):
        nn.IzhikevichNode(substeps=2**40)


def test_assigned_options_are_checked():
    node = nn.LIFNode(v_threshold=-0.5, v_reset=-1.0, reset="value")
    with pytest.raises(ArgumentError, match=r"LIFNode: v_threshold is positive .*, not -0.5"):
        node.reset = "subtract"
    assert node.reset == "value"
    with pytest.raises(ArgumentError, match=r"v_threshold is above v_reset, which is 2.0, not -0.5"):
        node.v_reset = 2.0
    with pytest.raises(ArgumentError, match='reset is "subtract"'):
        node.reset = "hard"
    with pytest.raises(ArgumentError, match="delay is None"):
        node.delay = "late"
    node.v_threshold = 1.0
    node.reset = "zero"
    with pytest.raises(ArgumentError, match=r"AlphaNode needs 0 < beta < alpha < 1, but alpha is 0.5 and beta 0.8"):
        nn.AlphaNode(0.9, 0.8).alpha = 0.5


# --- learned constants stay in their ranges ---------------------------------------------------------------------------


def learnable(name):
    entry = NEURONS[name]
    fixed = {"dt", "scale", "substeps", "refractory"}
    always = {nn.KLIFNode: {"k"}, nn.GLIFNode: set(GATES), nn.ParametricLIFNode: {"tau"}}.get(entry.kind, set())
    return [c.name for c in make_neuron(name).constants_and_ranges if c.name not in fixed | always]


def make_learnable(name, reset=None):
    """The neuron with every possible constant learnable."""
    entry = NEURONS[name]
    reset = reset or entry.resets[0]
    if not entry.plain:
        return entry.kind(**entry.constants, learnable=learnable(name))
    if entry.kind is nn.GLIFNode:
        return entry.make(reset)
    return entry.make(reset, learnable=learnable(name))


def assert_in_range(node):
    for constant in node.constants_and_ranges:
        assert not constant.outside, (type(node).__name__, constant)
        assert constant.range.holds(getattr(node, constant.name)) or type(node) is nn.GLIFNode
    inner = [cell for _, cell in node.cells_and_names() if cell is not node]
    sharpness = [c for cell in inner for c in getattr(cell, "constants_and_ranges", ())]
    assert not any(c.outside for c in sharpness)
    assert any(c.learned for c in (*node.constants_and_ranges, *sharpness))


STEPS = [1e30, -1e30, 3.0, -3.0, np.inf, -np.inf]


@pytest.mark.uncompiled
@pytest.mark.sampled(9)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize(
    ("name", "reset"), [(name, r) for name in NEURONS for r in (None, "value") if r in (None, *NEURONS[name].resets)]
)
def test_optimiser_steps_keep_constants_in_range(name, reset, jitted):
    node = make_learnable(name, reset)
    parameters = node.trainable_params()
    optimiser = nn.SGD(parameters, learning_rate=1.0)
    run = snncell.jit(lambda *grads: optimiser(grads)) if jitted else lambda *grads: optimiser(grads)
    rng = np.random.default_rng(0)
    for size in STEPS:
        signs = rng.choice([-1.0, 1.0], len(parameters))
        run(*[Tensor(np.full(p.shape, s * size, p.dtype.dtype)) for p, s in zip(parameters, signs, strict=True)])
        assert_in_range(node)
        for p in parameters:
            assert np.isfinite(p.asnumpy()).all()


WRITES = {
    "set_data": lambda p, v: p.set_data(Tensor(v)),
    "assign": lambda p, v: ops.assign(p, Tensor(v)),
    "item": lambda p, v: p.__setitem__(..., v),
    "jitted": lambda p, v: snncell.jit(lambda x: ops.assign(p, x).sum())(Tensor(v)),
}


@pytest.mark.sampled(50)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", NEURONS)
def test_writes_keep_constants_in_range(name, write):
    node = make_learnable(name)
    for number in (1e9, -1e9, 0.0, 1.0, 0.5):
        for parameter in node.trainable_params():
            WRITES[write](parameter, np.full(parameter.shape, number, np.float32))
            assert_in_range(node)


@pytest.mark.parametrize("name", NEURONS)
def test_copies_and_pickles_keep_their_constants_in_range(name):
    for again in (copy.deepcopy, copy.copy, lambda node: pickle.loads(pickle.dumps(node))):
        node = make_learnable(name)
        other = again(node)
        before = [p.asnumpy().copy() for p in node.trainable_params()]
        for parameter in other.trainable_params():
            parameter.set_data(np.full(parameter.shape, -1e9, np.float32))
        assert_in_range(other)
        if again is not copy.copy:
            assert all((p.asnumpy() == b).all() for p, b in zip(node.trainable_params(), before, strict=True))


def test_checkpoint_values_are_clamped_to_the_range():
    node = make_learnable("ALIF")
    snncell.load_param_into_net(node, {"alpha": Parameter(np.float32(1.0095)), "rho": Parameter(np.float32(0.5))})
    assert node.alpha.item() == 1.0 and node.rho.item() == 0.5


def test_per_neuron_constants_keep_their_shape():
    node = nn.CubaLIFNode(alpha=[0.2, 0.5, 0.9], learnable="alpha")
    node.alpha.set_data(np.array([-1.0, 0.7, 4.0], np.float32))
    np.testing.assert_array_equal(node.alpha.asnumpy(), np.float32([0.0, 0.7, 1.0]))


def test_constants_at_their_bound_keep_the_exact_gradient():
    x = Tensor(np.random.default_rng(0).uniform(0.1, 0.3, (6, 3)).astype(np.float32))
    node = nn.LeakyNode(0.9, learnable="beta", reset=None, surrogate_function=surrogate.ATan())
    node.beta.set_data(np.float32(7.0))
    loss = nn.MultiStep(node)
    gradient = ops.grad(
        lambda x: loss(x).sum() + nn.MultiStep(node, return_states=True)(x)[1][0].sum(), None, node.beta
    )
    assert node.beta.item() == 1.0
    assert gradient(x).item() > 0.1  # so that gradient descent moves the constant back into its range


def test_shared_parameters_satisfy_the_ranges_of_both_neurons():
    shared = Parameter(np.float32(0.6))
    leaky, alpha = nn.LeakyNode(shared), nn.AlphaNode(shared, 0.5)
    shared.set_data(np.float32(0.1))
    assert_in_range(leaky)
    assert_in_range(alpha)
    del leaky, alpha
    gc.collect()
    shared.set_data(np.float32(-3.0))  # no neuron uses the Parameter any more
    assert shared.item() == -3.0


def test_diverged_constants_stay_nan():
    node = nn.LIFNode(learnable="tau")
    node.tau.set_data(np.float32(np.nan))
    (tau,) = [c for c in node.constants_and_ranges if c.name == "tau"]
    assert tau.outside and tau.learned and np.isnan(tau.value)


class Tired(nn.Neuron):
    """A user-defined neuron with its own range."""

    ranges = {"rho": nn.Range(0.0, 1.0, "both")}  # noqa: RUF012

    def __init__(self, rho=0.9, jump=0.2, **options):
        super().__init__({"rho": rho, "jump": jump}, **options)

    def construct(self, x, v):
        v, late = self.recall(v)
        return self.fired(self.rho * v + self.gained(x) - self.jump, late)


def test_user_defined_neurons_have_ranges():
    with pytest.raises(ArgumentError, match=r"Tired: rho is a number from 0.0 up to 1.0, not 1.5"):
        Tired(1.5)
    with pytest.raises(ArgumentError, match="Tired: jump is a finite number, not nan"):
        Tired(jump=np.nan)
    node = Tired(learnable=("rho", "v_threshold"))
    node.rho.set_data(np.float32(9.0))
    node.v_threshold.set_data(np.float32(-9.0))
    assert_in_range(node)
    assert [c.name for c in node.constants_and_ranges] == ["rho", "jump", "v_threshold", "v_reset", "input_gain"]


# --- spike functions --------------------------------------------------------------------------------------------------

SPIKES = [k for k in vars(surrogate).values() if isinstance(k, type) and issubclass(k, surrogate.Surrogate)]
LEARNED = [
    (k, name)
    for k in SPIKES
    if k is not surrogate.Scaled
    for name in getattr(k, "__annotations__", {})
    if name in inspect.signature(k).parameters
]


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, n in LEARNED if n != "surrogate_function"])
def test_learned_surrogate_constants_stay_in_range(kind, name):
    first = inspect.signature(kind).parameters[name].default
    cell = kind(**{name: Parameter(np.float32(first))})
    for value in (-1e9, 1e30, 0.0):
        getattr(cell, name).set_data(np.float32(value))
        assert not any(c.outside for c in cell.constants_and_ranges)
    wrong = kind()
    with pytest.raises(ArgumentError) as by_hand:
        setattr(wrong, name, -2.0)
    with pytest.raises(ArgumentError) as by_constructor:
        kind(**{name: -2.0})
    assert str(by_hand.value) == str(by_constructor.value)


@pytest.mark.parametrize(
    ("make", "name", "wrong"),
    [
        (lambda **given: nn.EProp(2, 2, **given), "decay", (1.0, -0.1, np.nan)),
        (lambda **given: nn.EProp(2, 2, **given), "adaptation_decay", (1.0, np.inf)),
        (lambda **given: nn.EProp(2, 2, **given), "adaptation", (-1.0, np.nan)),
        (lambda **given: nn.EProp(2, 2, **given), "v_threshold", (0.0, -1.0)),
        (lambda **given: nn.OTTTDense(2, 2, **given), "decay", (1.0, -0.1)),
        (lambda **given: nn.OTTTDense(2, 2, **given), "v_threshold", (0.0,)),
    ],
)
def test_online_layers_check_assigned_constants(make, name, wrong):
    for value in wrong:
        with pytest.raises(ArgumentError) as by_constructor:
            make(**{name: value})
        with pytest.raises(ArgumentError) as by_hand:
            setattr(make(), name, value)
        if np.isfinite(value):
            # If v_reset has another name in the neuron, the constructor's message also names the argument.
            assert str(by_constructor.value).partition(" Arguments:")[0] == str(by_hand.value)


@pytest.mark.parametrize("convention", ["exact", "spikingjelly"])
def test_learned_synapse_constants_stay_in_range(convention):
    layer = nn.SynapseFilter(3.0, learnable=True, convention=convention)
    x = Tensor(np.zeros((2, 3), np.float32))
    for value in (1e30, -1e30, 0.0):
        layer.w.set_data(np.float32(value))
        kept = layer.kept().item()
        assert 0.0 <= kept <= 1.0 and np.isfinite(layer.w.item())
        gradient = ops.grad(lambda i: layer(x, i)[0].sum(), None, layer.w)(ops.ones((2, 3)))
        assert np.isfinite(gradient.item())
    fixed = nn.SynapseFilter(3.0, convention=convention)
    with pytest.raises(ArgumentError, match="SynapseFilter: decay is a number from 0 to 1"):
        fixed.decay = 1.5


def test_encoders_reject_huge_counts():
    for make in (
        lambda: snncell.encode.population([0.5], 2**40),
        lambda: snncell.encode.field_centres(2**40),
        lambda: snncell.encode.rate([[0.5]], 2**40),
        lambda: snncell.encode.latency([0.5], 2**40),
        lambda: snncell.encode.phase([0.5], 2**40),
        lambda: snncell.encode.lif([0.5], 2**40),
    ):
        with pytest.raises(
            ArgumentError,
            match=r"(neurons|steps)(=| is an integer of at least 1, not )1099511627776",
        ):
            make()


# --- presets ----------------------------------------------------------------------------------------------------------

NEEDED = {
    "beta": 0.8, "alpha": 0.9, "gamma": 0.9, "R": 5.0, "C": 1.0, "tau_mem": 5.0, "tau_adapt": 9.0, "tau_syn": 3.0,
    "tau": 0.01, "r": 1.0, "v_leak": 0.0, "v_threshold": 1.0, "a": 0.02, "b": 0.2, "c": -65.0, "d": 8.0,
}  # fmt: skip


def settings_of(neuron, framework):
    parameters = inspect.signature(PRESETS[neuron, framework]).parameters.values()
    needed = {p.name: NEEDED.get(p.name, 1.0) for p in parameters if p.default is p.empty}
    if framework.startswith("nir"):
        needed |= {name: 0.01 for name in ("tau_mem", "tau_syn") if name in needed}
    if framework == "snntorch.Lapicque":
        needed |= {"R": 5.0, "C": 1.0}
    return needed, list(parameters)


SETTINGS = [(*key, p.name) for key in PRESETS for p in settings_of(*key)[1]]


def with_parameter(neuron, framework, setting):
    """The preset with a Parameter for a setting, and the Parameter; None if the preset rejects it."""
    needed, parameters = settings_of(neuron, framework)
    (default,) = [p.default for p in parameters if p.name == setting]
    value = needed.get(setting, default)
    value = 3.0 if value is None or isinstance(value, (bool, str)) else value
    parameter = Parameter(np.float64(value))
    try:
        return getattr(nn, neuron).like(framework, **needed | {setting: parameter}), parameter
    except ArgumentError as error:  # the error names the argument or the constant that it would set
        return None if any(word in str(error) for word in (setting, "tau", "scale")) else pytest.fail(str(error))


def drive(neuron, framework):
    scale = (
        40.0 if neuron == "IzhikevichNode" and framework == "norse" else 12.0 if framework.startswith("norse") else 3.0
    )
    return Tensor(np.random.default_rng(0).uniform(0.3, 1.0, (12, 4)) * scale)


LEARNED_SETTINGS = {  # settings that were not learned in an earlier version, and some that always were
    ("LIFNode", "sinabs", "tau_mem"), ("LIFNode", "sinabs", "tau_syn"), ("ALIFNode", "sinabs", "tau_adapt"),
    ("LIFNode", "norse", "tau_mem_inv"), ("LIFNode", "norse", "tau_syn_inv"),
    ("LIFNode", "norse.LIFBox", "tau_mem_inv"),
    ("LIFNode", "nir", "tau"), ("LIFNode", "nir.CubaLIF", "tau_mem"), ("LIFNode", "nir.CubaLIF", "r"),
    ("IFNode", "nir", "r"), ("LINode", "nir", "tau"), ("LIFNode", "snntorch.Lapicque", "C"),
    ("LIFNode", "snntorch.Lapicque", "R"), ("LINode", "spyx", "beta"), ("ALIFNode", "spyx", "gamma"),
    ("LIFNode", "snntorch", "beta"), ("LIFNode", "spikingjelly", "tau"), ("LIFNode", "norse", "alpha"),
}  # fmt: skip


def test_presets_learn_these_settings():
    for key in LEARNED_SETTINGS:
        assert with_parameter(*key) is not None, key


@pytest.mark.sampled(108)
@pytest.mark.parametrize(("neuron", "framework", "setting"), SETTINGS)
def test_presets_learn_a_parameter_or_reject_it(neuron, framework, setting):
    found = with_parameter(neuron, framework, setting)
    if found is None:
        return
    node, parameter = found
    assert sum(p is parameter for p in node.trainable_params()) == 1
    needed, _ = settings_of(neuron, framework)
    number = getattr(nn, neuron).like(framework, **needed | {setting: parameter.item()})
    x = drive(neuron, framework)
    for a, b in zip(
        record_outputs(node, x), record_outputs(number, x), strict=True
    ):  # the result equals that of the number
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-9, atol=1e-12)
    if setting == "alpha" and framework.startswith("norse"):
        return  # surrogate constants do not affect the smooth loss below
    if getattr(node, "detach_reset", False) or (neuron, framework) == ("ALIFNode", "sinabs"):
        return  # finite differences include the reset and the threshold
    with surrogate.smooth():

        def loss():
            return sum(ops.square(part).sum() for part in record_outputs(node, x))

        gradient = ops.grad(loss, None, parameter)().item()
        first, step = parameter.item(), 1e-6 * max(1e-3, abs(parameter.item()))
        sides = []
        for sign in (1.0, -1.0):
            parameter._data = np.asarray(first + sign * step)
            sides.append(loss().item())
        parameter._data = np.asarray(first)
    expected = (sides[0] - sides[1]) / (2.0 * step)
    assert gradient == pytest.approx(expected, rel=1e-3, abs=1e-4 * max(1.0, abs(sides[0])))


def record_outputs(node, x):
    states = node.init_state(x[0])
    states = states if isinstance(states, tuple) else (states,)
    outputs = []
    for t in range(len(x)):
        out, *states = node(x[t], *states)
        outputs.append(out)
    return [ops.stack(outputs, 0), *states]


@pytest.mark.sampled(97)
@pytest.mark.parametrize(("neuron", "framework", "setting"), SETTINGS)
def test_optimiser_steps_keep_preset_constants_in_range(neuron, framework, setting):
    found = with_parameter(neuron, framework, setting)
    if found is None or (framework.startswith("snntorch") and setting in ("alpha", "beta") and neuron != "AlphaNode"):
        return  # snnTorch's own clamp: tested below
    node, parameter = found
    optimiser = nn.SGD([parameter], learning_rate=1.0)
    for size in STEPS:
        optimiser((Tensor(np.full(parameter.shape, size)),))
        assert_in_range(node)
        assert all(
            np.isfinite(part.asnumpy()).all() for part in record_outputs(node, drive(neuron, framework) * 0.0)
        ) or (
            "AdEx" in neuron + framework
            or neuron in ("EIFNode", "QIFNode", "AdaptiveQIFNode", "IzhikevichNode")  # their potentials diverge
        )


@pytest.mark.parametrize(("neuron", "framework", "setting"), sorted(LEARNED_SETTINGS))
def test_presets_with_parameters_can_be_copied_and_pickled(neuron, framework, setting):
    node, parameter = with_parameter(neuron, framework, setting)
    for again in (copy.deepcopy, lambda node: pickle.loads(pickle.dumps(node))):
        other = again(node)
        (mine,) = other.trainable_params()
        assert mine is not parameter
        mine.set_data(mine * 1.01)
        assert parameter.item() != mine.item()
        assert_in_range(other)


def test_snntorch_clamps_constants_in_the_forward_pass():
    node = nn.LIFNode.like("snntorch", beta=0.9, learn_beta=True)
    node.beta.set_data(np.float32(1.5))
    assert node.beta.item() == 1.5  # as in snnTorch
    assert node(Tensor([0.0]), Tensor([0.5]))[1].item() == 0.5
    assert ops.grad(lambda v: node(Tensor([0.0]), v)[1].sum(), None, node.beta)(Tensor([0.5])).item() == 0.0
    (beta,) = [c for c in node.constants_and_ranges if c.name == "beta"]
    assert beta.value == 1.0 and not beta.outside


def test_traced_conversions_of_a_tensor_are_differentiable():
    found = ops.grad(
        lambda tau: nn.LeakyNode(nn.decay_from_tau(tau), reset=None)(Tensor([0.0]), Tensor([0.5]))[1].sum()
    )(Tensor(2.0))
    assert found.item() == pytest.approx(0.5 * np.exp(-0.5) / 4.0, rel=1e-5)
    jitted = snncell.jit(lambda tau: nn.decay_from_tau(tau) + nn.decay_from_euler(tau) + nn.decay_from_rate(tau, 0.1))
    assert jitted(Tensor(2.0)).item() == pytest.approx(np.exp(-0.5) + 0.5 + 0.8)


# --- precision --------------------------------------------------------------------------------------------------------


def default_of(name):
    kind = NEURONS[name].kind
    return kind(nn.ALIFNode()) if kind is nn.WithSynapse else kind()


@pytest.mark.uncompiled
@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NEURONS)
def test_default_neurons_run_in_the_precision_of_the_input(name, dtype):
    node = default_of(name)
    x = Tensor(np.random.default_rng(0).uniform(0.0, 1.0, (4, 2, 3)).astype(dtype))
    assert {part.dtype.name for part in record_outputs(node, x)} == {dtype}
    y, (states) = nn.MultiStep(node, return_states=True)(x)
    assert {part.dtype.name for part in (y, *states)} == {dtype}
    layer = nn.Recurrent(default_of(name), nn.Dense(3, 3, dtype=dtype))

    def loss(x):
        y = nn.MultiStep(layer)(x)
        return y.sum(), y

    (_, y), gradient = ops.value_and_grad(loss, has_aux=True)(x)
    assert y.dtype.name == gradient.dtype.name == dtype


@pytest.mark.parametrize(("name", "kind"), list(product(NEURONS, ["array", "list", "Tensor", "learned", "Parameter"])))
def test_constants_are_cast_to_the_precision_of_the_input(name, kind):
    entry = NEURONS[name]
    numbers = {
        k: v for k, v in entry.constants.items() if isinstance(v, float) and k not in ("dt", "scale", "refractory")
    }
    if entry.kind is nn.GLIFNode or not numbers:
        return
    make = {
        "array": lambda v: np.full(3, v),
        "list": lambda v: [v] * 3,
        "Tensor": lambda v: Tensor(np.full(3, v)),
        "learned": lambda v: Tensor(v, "float64"),
        "Parameter": lambda v: Parameter(np.float64(v)),
    }[kind]
    own = (entry.kind is nn.ParametricLIFNode, "tau")
    changed = {k: make(v) for k, v in numbers.items() if not (own == (True, k) and kind == "Parameter")}
    options = {"learnable": [k for k in changed if own != (True, k) and k != "k"]} if kind == "learned" else {}
    node = entry._replace(constants=entry.constants | changed | (options if not entry.plain else {})).make(
        entry.resets[0], **(options if entry.plain else {})
    )
    exact = make_neuron(name)
    x, _ = entry.drawn(steps=6, neurons=3)
    for dtype, tight in (("float64", 1e-12), ("float32", 1e-5)):
        mine, theirs = record_outputs(node, Tensor(x.astype(dtype))), record_outputs(exact, Tensor(x.astype(dtype)))
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype.name == dtype
            if entry.kind not in (nn.ParametricLIFNode, nn.KLIFNode) or kind in ("Tensor", "learned", "Parameter"):
                float32_w = entry.kind is nn.ParametricLIFNode or (entry.kind is nn.KLIFNode and dtype == "float64")
                np.testing.assert_allclose(
                    a.asnumpy(), b.asnumpy(), rtol=1e-5 if float32_w else tight, atol=1e-5 if float32_w else tight
                )


def test_fixed_arrays_need_no_cast_in_float32():
    node = nn.LIFNode(tau=[2.1, 3.3, 4.7])
    assert node.tau.dtype == snncell.float64
    text = snncell.explain(nn.MultiStep(node), ops.ones((4, 2, 3)), detail="launches")
    assert text.startswith("MultiStep: 0 loops, 1 loop over time, 0 calls, 0 views")


# --- Parameters whose ranges depend on each other ---------------------------------------------------------------------


def alpha_node():
    return nn.AlphaNode(alpha=0.9, beta=0.8, learnable=("alpha", "beta"))


def resetting():
    return nn.LIFNode(reset="value", v_threshold=1.0, v_reset=0.0, learnable=("v_threshold", "v_reset"))


# A neuron, and values that are valid together, but invalid with the other's initial value.
COUPLED = {
    "alpha and beta": (alpha_node, {"beta": 0.5, "alpha": 0.7}),
    "threshold and reset": (resetting, {"v_threshold": 3.0, "v_reset": 2.0}),
    "reset and threshold": (resetting, {"v_reset": -5.0, "v_threshold": -3.0}),
}


def make_coupled(name):
    """A neuron with these values."""
    make, values = COUPLED[name]
    node = make()
    order = list(values) if name != "reset and threshold" else ["v_reset", "v_threshold"]
    for constant in order:
        vars(node)[constant].set_data(values[constant])
    assert {constant: getattr(node, constant).item() for constant in values} == pytest.approx(values)
    return node


def constants(node, name):
    return {constant: getattr(node, constant).item() for constant in COUPLED[name][1]}


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_constants_load_as_they_were_saved(tmp_path, name):
    node, other = make_coupled(name), COUPLED[name][0]()
    snncell.save_checkpoint(node, tmp_path / "node")
    snncell.load_checkpoint(tmp_path / "node", other)
    assert constants(other, name) == constants(node, name)
    third = COUPLED[name][0]()
    snncell.load_param_into_net(third, dict(reversed(list(snncell.load_checkpoint(tmp_path / "node").items()))))
    assert constants(third, name) == constants(node, name)


@pytest.mark.parametrize("how", [lambda f: f, snncell.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_constants_assigned_together_are_in_range(how, order):
    node = resetting()
    pairs = [(vars(node)["v_threshold"], Tensor(0.1)), (vars(node)["v_reset"], Tensor(0.9))]
    how(lambda: assign_all([pairs[n] for n in order]))()
    threshold, reset = node.v_threshold.item(), node.v_reset.item()
    assert reset < threshold and (reset == pytest.approx(0.9) or threshold == pytest.approx(0.1))


def test_loops_leave_coupled_constants_as_single_steps_do():
    x = Tensor((np.random.default_rng(0).normal(size=(5, 2, 3)) * 1.5).astype(np.float32))

    def after(run):
        threshold = Parameter(Tensor(1.0), requires_grad=False, name="threshold")
        reset = Parameter(Tensor(0.0), requires_grad=False, name="reset")
        node = nn.LIFNode(v_threshold=threshold, v_reset=reset, reset="value")

        def step(v, now):
            ops.assign(threshold, threshold - now.sum() * 0.3)
            ops.assign(reset, reset + now.max() * 0.5)
            s, v = node(now, v)
            return v, s * threshold + reset

        run(lambda x: ops.scan(step, ops.zeros((2, 3)), x))(x)
        return threshold.item(), reset.item()

    def unfused(f):
        def run(x):
            with testing.unfused():
                return f(x)

        return run

    expected = after(unfused)
    assert expected[1] > 1.0  # beyond the first threshold
    for run in (lambda f: f, snncell.jit):
        assert after(run) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("how", [lambda f: f, snncell.jit], ids=["eager", "jit"])
def test_new_ranges_apply_to_compiled_functions(how):
    p = Parameter(Tensor(1.0), name="threshold")
    first = nn.LIFNode(v_threshold=p)
    lower = how(lambda by: p.assign(p - by))
    lower(Tensor(0.1))
    second = nn.LIFNode(v_threshold=p, reset="value", v_reset=0.5)
    lower(Tensor(5.0))
    assert 0.5 < p.item() < 0.51 and first.v_threshold is second.v_threshold is p
