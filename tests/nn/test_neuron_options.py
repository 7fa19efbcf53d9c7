"""Options of neurons in the constructor and by assignment; time constants, readouts, PSN: values, gradients, errors."""

import copy
import math

import numpy as np
import pytest
from neuron_table import NEURONS

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, CallError, ShapeError, SnncellError
from snncell.nn.neurons.base import Counting, Rounding

# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.LIFNode(reset="hard"), 'LIFNode: reset is "subtract", "zero", "value" or None, not \'hard\''),
        (lambda: nn.IzhikevichNode(reset="zero"), "IzhikevichNode: reset is \"value\", not 'zero'"),
        (lambda: nn.LIFNode(compare="=="), 'LIFNode: compare is ">" or ">=", not \'==\''),
        (lambda: nn.LIFNode(delay="late"), 'LIFNode: delay is None, "reset", "reset\\+input" or "spike", not \'late\''),
        (
            lambda: nn.ALIFNode(delay="reset+input"),
            'ALIFNode: delay is None, "reset" or "spike", not \'reset\\+input\'',
        ),
        (lambda: nn.LIFNode(v_threshold=0.0), "LIFNode: v_threshold is positive .*, not 0.0"),
        (lambda: nn.IFNode(-1.0), "IFNode: v_threshold is positive .*, not -1.0"),
        (lambda: nn.LIFNode(v_threshold=[1.0, -1.0]), "LIFNode: v_threshold is positive"),
        (lambda: nn.LIFNode(v_threshold=0.0, v_reset=0.5, reset="value"), "v_threshold is above v_reset, which is 0.5"),
        (lambda: nn.LIFNode(v_threshold="1"), "LIFNode: v_threshold is a number, a Tensor or a Parameter, not '1'"),
        (lambda: nn.LIFNode(True), "LIFNode: tau is a number, a Tensor or a Parameter, not True"),
        (
            lambda: nn.LIFNode(surrogate_function=surrogate.ATan),
            r"LIFNode: surrogate_function must be a spike function \(a Cell",
        ),
        (
            lambda: nn.LIFNode(max_spikes=0),
            "LIFNode: max_spikes must be a whole number of at least 1, or None for no limit, not 0",
        ),
        (
            lambda: nn.LIFNode(max_spikes=2.5),
            "LIFNode: max_spikes must be a whole number of at least 1, or None for no limit, not 2.5",
        ),
        (lambda: nn.IzhikevichNode(max_spikes=3), "IzhikevichNode: max_spikes is 1, not 3"),
        (lambda: nn.EIFNode(v_threshold=-0.05, max_spikes=2), "EIFNode: v_threshold is positive if a step can ha"),
        (lambda: nn.ILIFNode(v_threshold=0.0, v_reset=-1.0, reset="value"), "ILIFNode: v_threshold is positive if a"),
        (lambda: nn.LIFNode(v_threshold=[1.0, 0.4], v_reset=0.5, reset="value"), "v_threshold is above v_reset, which"),
        (lambda: nn.LIFNode(v_reset=[0.5, 1.0], reset="value"), "v_threshold is above v_reset, which"),
        (
            lambda: nn.LIFNode(learnable="beta"),
            "LIFNode: cannot learn 'beta', .* The constants are tau, v_rest, v_thresh",
        ),
        (lambda: nn.LIFNode(np.array([2.0, 1.0])), "LIFNode: tau is a number of steps above 1"),
        (lambda: nn.ParametricLIFNode(1.0), "ParametricLIFNode: tau is a number of steps above 1 .*nn.steps_from_sec"),
        (lambda: nn.KLIFNode(0.5), "KLIFNode: tau is a number of steps above 1"),
        (lambda: nn.KLIFNode(k=-1.0), "KLIFNode: k is positive, not -1.0"),
        (lambda: nn.LINode(1.0), "LINode: tau is a number of steps above 1"),
        (lambda: nn.AdExNode(tau_w=1.0), "AdExNode: tau_w is a number of steps above 1"),
        (lambda: nn.EIFNode(delta_t=0.0), "EIFNode: delta_t is positive, not 0.0"),
        (lambda: nn.QIFNode(a0=-1.0), "QIFNode: a0 is positive, not -1.0"),
        (lambda: nn.LeakyNode(1.1), "LeakyNode: beta is a number from 0 to 1 .*nn.decay_from_tau.*, not 1.1"),
        (lambda: nn.CubaLIFNode(alpha=-0.1), "CubaLIFNode: alpha is a number from 0 to 1"),
        (lambda: nn.CubaLIFNode(order="read"), 'CubaLIFNode: order is "decay jump read", "jump read decay", '),
        (lambda: nn.AlphaNode(0.8, 0.9), "AlphaNode needs 0 < beta < alpha < 1, but alpha is 0.8 and beta 0.9"),
        (lambda: nn.ALIFNode(subtracts="all"), 'ALIFNode: subtracts is "v_threshold" or "threshold", not \'all\''),
        (lambda: nn.GLIFNode(tau=1.0), "GLIFNode: tau is the sigmoid of a Parameter, between 0 and 1, not 1.0"),
        (lambda: nn.ResonateNode(b=0.1), "ResonateNode: b is negative, not 0.1"),
        (lambda: nn.ResonateNode(dt=0.0), "ResonateNode: dt is positive, not 0.0"),
        (lambda: nn.ILIFNode(compare=">="), "ILIFNode has a fixed spike function and does not take compare. Leave it"),
        (lambda: nn.ILIFNode(surrogate_function=surrogate.ATan()), "ILIFNode has .* does not take surrogate_function"),
        (lambda: nn.ILIFNode(max_spikes=3), "not take max_spikes. Leave it out; most=... sets the largest number of"),
        (lambda: nn.ILIFNode(most=0), "ILIFNode: most is a whole number of at least 1, .*not 0"),
        (lambda: nn.RefractoryLIFNode(refractory=0.0), "RefractoryLIFNode: refractory is positive, not 0.0"),
        (lambda: nn.IzhikevichNode(substeps=0), "IzhikevichNode: substeps is a whole number of at least 1, .*not 0"),
        (lambda: nn.IzhikevichNode.named("PS"), "unknown kind 'PS'. The kinds are RS, IB, CH, FS, TC, RZ, LTS"),
        (lambda: nn.PSN(0), "PSN: steps is a whole number of at least 1, .*not 0"),
        (lambda: nn.PSN(4, order=1.5), "PSN: order is an integer, not 1.5"),
        (
            lambda: nn.Readout("median"),
            'Readout: how is "last", "max", "mean", "sum", "exp" or "first", not',
        ),
        (lambda: nn.Readout("exp", tau=0.0), "Readout: tau is a positive number of steps, not 0.0"),
        (
            lambda: nn.steps_from_seconds(0.001, 0.001),
            "tau is above dt, which is 0.001 s, not 0.001; use a",
        ),
        (lambda: nn.steps_from_seconds(0.1, 0.0), "dt is a finite number above 0, not 0.0"),
        (lambda: nn.decay_from_tau(-1.0), "decay_from_tau: tau is positive, not -1.0"),
        (lambda: nn.tau_from_decay(1.0), "tau_from_decay: decay is a number between 0 and 1, not 1.0"),
        (lambda: nn.decay_from_euler(1.0), "decay_from_euler: tau is a number of steps above 1, not 1.0"),
        (lambda: nn.euler_from_decay(0.0), "euler_from_decay: decay is a number between 0 and 1, not 0.0"),
        (lambda: nn.decay_from_rate(2000.0, 0.001), "decay_from_rate: dt tau_inv is above 0 and at most 1, not 2.0"),
        (lambda: nn.decay_from_lava(5000), "decay_from_lava: decay is an integer from 0 to 4096, not 5000"),
    ],
)
def test_invalid_options_raise(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


class Halved(nn.LIFNode):
    """A user-defined neuron that passes unknown options to its base class."""

    def __init__(self, half=0.5, **options):
        super().__init__(**options)
        self.half = half


OTHERS_WORDS = [
    (
        nn.LIFNode,
        {"beta": 0.9},
        r'For the names of snntorch or spyx, call nn\.LIFNode\.like\("snntorch", beta=\.\.\.\)\.$',
    ),
    (nn.LIFNode, {"threshold": 0.5}, r'nn\.LIFNode\.like\("snntorch", threshold=\.\.\.\)'),
    (nn.LeakyNode, {"reset_mechanism": "zero"}, r'nn\.LeakyNode\.like\("snntorch", reset_mechanism=\.\.\.\)'),
    (nn.QIFNode, {"beta": 0.5, "threshold": 1.0}, r'nn\.LIFNode\.like\("snntorch", beta=\.\.\., threshold=\.\.\.\)'),
    (Halved, {"tau_mem": 1.0}, r'For the names of sinabs, call nn\.LIFNode\.like\("sinabs", tau_mem=\.\.\.\)'),
    (nn.LIFNode, {"thresh": 0.5}, r"max_spikes, learnable\.$"),
    (Halved, {"thresh": 0.5}, r"Its options are half, tau, v_threshold, .*, v_rest, .*, learnable\.$"),
]


@pytest.mark.parametrize(("kind", "given", "message"), OTHERS_WORDS)
def test_unknown_options_name_the_valid_ones_and_neurons_that_have_them(kind, given, message):
    with pytest.raises(CallError, match=message) as caught:
        kind(**given)
    assert str(caught.value).startswith(f"{kind.__name__} has no option '{next(iter(given))}'. Its options are ")


@pytest.mark.parametrize("kind", [row[0] for row in OTHERS_WORDS if row[0] is not Halved])
def test_options_listed_in_errors_exist(kind):
    with pytest.raises(CallError) as caught:
        kind(nothing=1)
    listed = str(caught.value).split("Its options are ")[1].split(".")[0].split(", ")
    assert len(set(listed)) == len(listed) > 9
    default = kind()
    kind(**{name: getattr(default, name) for name in listed if name not in ("learnable", "v_rest")})


@pytest.mark.parametrize("name", NEURONS)
def test_neurons_do_not_share_spike_functions(name):
    entry = NEURONS[name]
    one, other = entry.kind(**entry.constants), entry.kind(**entry.constants)
    function = getattr(one, "surrogate_function", None)
    assert function is None or function is not other.surrogate_function
    cells = [value for value in entry.constants.values() if isinstance(value, nn.Cell)]
    given = {id(below) for cell in cells for _, below in cell.cells_and_names()}
    parts = [{id(cell) for _, cell in node.cells_and_names()} - given for node in (one, other)]
    assert not parts[0] & parts[1]


def test_spike_function_hooks_affect_one_neuron():
    seen = []
    one, other = nn.IFNode(), nn.IFNode()
    one.surrogate_function.register_forward_hook(lambda *_: seen.append("one"))
    for node in (one, other):
        node(ops.ones(2), ops.zeros(2))
    assert seen == ["one"]
    given = surrogate.ATan()
    assert nn.IFNode(surrogate_function=given).surrogate_function is given


def test_thresholds_in_millivolts_are_valid_with_a_lower_reset():
    assert nn.EIFNode(theta_rh=-50.0, v_rest=-70.0, v_threshold=-40.0, v_reset=-70.0).v_threshold == -40.0


@pytest.mark.parametrize("name", NEURONS)
def test_repr_names_constants(name):
    entry = NEURONS[name]
    text = repr(entry.make(entry.resets[0]))
    assert text.startswith(entry.kind.__name__)
    if entry.kind not in (nn.GLIFNode, nn.ParametricLIFNode, nn.KLIFNode):
        numbers = [key for key, value in entry.constants.items() if isinstance(value, float)]
        assert all(f"{key}=" in text for key in numbers if key not in ("dt", "refractory"))


@pytest.mark.parametrize(
    ("make", "first"),
    [
        (lambda: nn.CubaLIFNode.like("spikingjelly", v_reset=-0.5), -0.5),
        (lambda: nn.CubaLIFNode.like("spikingjelly", v_reset=None), 0.0),
        (lambda: nn.CubaLIFNode.like("norse", v_leak=0.25, v_reset=-0.5), 0.25),
        (lambda: nn.LIFNode.like("norse.LIFBox", v_leak=0.25, v_reset=-0.5), 0.25),
        (lambda: nn.LIFNode.like("nir", tau=0.01, r=1.0, v_leak=0.25, v_threshold=1.0, v_reset=-0.5), 0.25),
        (lambda: nn.LIFNode(v_rest=0.25, v_reset=-0.5), -0.5),
    ],
)
def test_initial_potential_equals_the_framework(make, first):
    state = make().init_state(ops.zeros((2,)))
    assert (state[0] if isinstance(state, tuple) else state).asnumpy().tolist() == [first] * 2


# --- user-defined charge equations ------------------------------------------------------------------------------------


class Charging(nn.Neuron):
    """A user-defined neuron, given by its charge equation."""

    def charge(self, x, v):
        return 0.9 * v + self.gained(x)


class Constructed(nn.Neuron):
    """The same neuron, given by its whole time step."""

    def construct(self, x, v):
        v, late = self.recall(v)
        return self.fired(0.9 * v + self.gained(x), late)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delay", nn.Neuron.delays)
@pytest.mark.parametrize("reset", nn.Neuron.resets)
def test_charge_runs_between_recall_and_fired(reset, delay):
    x = Tensor(np.random.default_rng(0).uniform(-0.5, 2.0, (9, 5)).astype(np.float32))
    results = []
    for kind in (Charging, Constructed):
        run = nn.MultiStep(kind({}, reset=reset, delay=delay, v_reset=-0.2, input_gain=0.7), return_states=True)

        def loss(x, run=run):
            spikes, (v,) = run(x)
            return spikes.sum() + v.sum(), spikes, v

        (_, spikes, v), gradient = snncell.value_and_grad(loss, has_aux=True)(x)
        results.append([one.asnumpy().tobytes() for one in (spikes, v, gradient)])
    assert results[0] == results[1]
    assert spikes.sum().item() > 0.0


def test_neurons_without_charge_and_construct_raise():
    with pytest.raises(SnncellError, match=r"Neuron must define charge\(self, x, v\), .* or its own construct"):
        nn.Neuron({})(ops.ones(2), ops.zeros(2))


def test_charge_without_the_state_raises():
    class Stateless(nn.Neuron):
        def charge(self, x):
            return x

    with pytest.raises(SnncellError, match=r"must define charge\(self, x, v\).*Its charge takes \(x\)"):
        Stateless({})(ops.ones(2), ops.zeros(2))


def test_constants_can_be_named_charge():
    class Charged(Constructed):
        def construct(self, x, v):
            return self.fired(v + x * self.charge, None)

    node = Charged({"charge": 0.5}, learnable="charge")
    assert node.constants_and_ranges[0].name == "charge"
    assert node(Tensor([4.0]), Tensor([0.0]))[1].item() == 1.0


# --- adaptation -------------------------------------------------------------------------------------------------------


def test_delayed_alif_equals_e_prop():
    x = Tensor(np.array([1.5, 0.8, 0.8, 0.3, 1.2, 0.1, 0.9, 0.9]).reshape(8, 1, 1))
    layer = nn.EProp(1, 1, decay=0.5, adaptation=0.4, adaptation_decay=0.8, dtype="float64")
    layer.weight.set_data(ops.ones((1, 1), "float64"))
    paper = layer(x)[:, 0, 0].asnumpy().tolist()
    spikes = {
        delay: nn.MultiStep(nn.ALIFNode(0.5, 0.8, 0.4, delay=delay))(x)[:, 0, 0].asnumpy().tolist()
        for delay in (None, "reset")
    }
    assert spikes["reset"] == paper == [1, 0, 0, 0, 1, 0, 0, 0]
    assert spikes[None] == [1, 0, 1, 0, 0, 0, 0, 1]


# --- constants --------------------------------------------------------------------------------------------------------


def test_per_neuron_constants_equal_separate_neurons():
    x = np.random.default_rng(0).uniform(0.0, 1.5, (9, 2, 3))
    betas, thresholds = [0.3, 0.6, 0.9], [0.5, 1.0, 1.5]
    together = nn.LeakyNode(betas, v_threshold=thresholds, surrogate_function=surrogate.ATan())
    states = ops.zeros((2, 3), "float64")
    for n in range(3):
        beta, threshold = float(np.float32(betas[n])), thresholds[n]
        alone = nn.LeakyNode(beta, v_threshold=threshold, surrogate_function=surrogate.ATan())
        v, w = states, states[:, n]
        for t in range(9):
            s, v = together(Tensor(x[t]), v)
            spike, w = alone(Tensor(x[t, :, n]), w)
            np.testing.assert_array_equal(s.asnumpy()[:, n], spike.asnumpy())


def test_learned_decay_stays_within_its_bounds():
    node = nn.LeakyNode(0.9, learnable=("beta", "v_threshold"), surrogate_function=surrogate.ATan())
    assert [p.name for p in node.trainable_params()] == ["beta", "v_threshold"]
    node.beta.set_data(Tensor(1.5, "float32"))
    assert node(Tensor([0.0]), Tensor([0.5]))[1].item() == 0.5


@pytest.mark.parametrize("kind", [nn.LIFNode, nn.ParametricLIFNode, nn.CLIFNode])
def test_learnable_v_reset_also_sets_v_rest_unless_v_rest_is_learnable(kind):
    shared = kind(v_reset=0.25, reset="value", learnable="v_reset")
    assert shared.v_rest is shared.v_reset and shared.v_reset.item() == 0.25
    own = kind(v_reset=0.25, reset="value", learnable="v_rest")
    assert own.v_rest.item() == own.v_reset == 0.25 and "v_rest" in [p.name for p in own.trainable_params()]
    both = kind(learnable=("v_rest", "v_reset"))
    assert both.v_rest is not both.v_reset and both.v_rest.item() == both.v_reset.item() == 0.0


def test_parametric_lif_learns_tau_through_a_sigmoid():
    node = nn.ParametricLIFNode(tau=4.0)
    assert node.tau.item() == pytest.approx(4.0) and node.w.item() == pytest.approx(-math.log(3.0))
    assert nn.ParametricLIFNode(tau=np.array([2.0, 3.0])).w.shape == (2,)


def test_glif_gates_are_learned():
    node = nn.GLIFNode()
    names = {"alpha", "beta", "gamma", "tau", "v_threshold", "linear_decay", "v_subreset", "conduct"}
    assert {p.name for p in node.trainable_params()} == names
    x = Tensor(np.random.default_rng(0).uniform(0.0, 1.0, (5, 4)).astype(np.float32))

    def total():
        s, v = ops.zeros((4,)), ops.zeros((4,))
        for t in range(5):
            _, v, s = node(x[t], v, s)
        return v.sum() + s.sum()

    with surrogate.smooth():
        assert all(g.item() != 0.0 for g in ops.grad(total, None, tuple(node.trainable_params()))())


# --- conversions ------------------------------------------------------------------------------------------------------


def test_conversions_are_inverse_to_each_other():
    for tau in (1.5, 3.0, 20.0):
        assert nn.tau_from_decay(nn.decay_from_tau(tau, dt=0.5), dt=0.5) == pytest.approx(tau)
        assert nn.euler_from_decay(nn.decay_from_euler(tau)) == pytest.approx(tau)
        assert nn.decay_from_rate(1.0 / tau, dt=1.0) == pytest.approx(nn.decay_from_euler(tau))
    assert nn.decay_from_euler(nn.steps_from_seconds(0.02, 0.001)) == pytest.approx(nn.decay_from_rate(50.0, 0.001))
    assert nn.decay_from_tau(0.01, 0.001) == math.exp(-0.1) and nn.decay_from_lava(2048) == 0.5


@pytest.mark.parametrize(
    ("convert", "values"),
    [
        (lambda v: nn.decay_from_tau(v, 0.5), [2.0, 3.0]),
        (lambda v: nn.tau_from_decay(v, 0.5), [0.2, 0.7]),
        (nn.euler_from_decay, [0.2, 0.7]),
        (nn.decay_from_euler, [2.0, 3.0]),
        (lambda v: nn.steps_from_seconds(v, 0.5), [2.0, 3.0]),
        (lambda v: nn.decay_from_rate(v, 0.1), [2.0, 3.0]),
        (nn.decay_from_lava, [1024, 2048]),
    ],
)
def test_conversions_accept_arrays(convert, values):
    np.testing.assert_allclose(convert(np.array(values)), [convert(value) for value in values], rtol=1e-15)
    with pytest.raises(ArgumentError, match="not array"):
        convert(np.array([values[0], -1.0]))


def test_presets_accept_per_neuron_time_constants():
    betas = np.exp([-1 / 2, -1 / 3])
    found = nn.LIFNode.like("sinabs", tau_mem=np.array([2.0, 3.0])).beta
    np.testing.assert_allclose(found.asnumpy(), betas, rtol=1e-6)


def test_parameters_made_of_integers_are_float32():
    assert nn.LIFNode(tau=Tensor([2, 3]), learnable="tau").tau.dtype == snncell.float32
    assert nn.LIFNode(tau=Tensor([2.0, 3.0], "float64"), learnable="tau").tau.dtype == snncell.float64


# --- Izhikevich -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RS", "IB", "CH", "FS", "TC", "RZ", "LTS"])
def test_izhikevich_cell_types_equal_the_paper(kind):
    """Input 10 for 200 ms after 20 ms of rest, by the program printed in the paper, which resets before the step."""
    a, b, c, d = {
        "RS": (0.02, 0.2, -65, 8),
        "IB": (0.02, 0.2, -55, 4),
        "CH": (0.02, 0.2, -50, 2),
        "FS": (0.1, 0.2, -65, 2),
        "TC": (0.02, 0.25, -65, 0.05),
        "RZ": (0.1, 0.26, -65, 2),
        "LTS": (0.02, 0.25, -65, 2),
    }[kind]
    current = np.where(np.arange(220) < 20, 0.0, 10.0)
    v, u, times = -65.0, -65.0 * b, []
    for t in range(221):
        if v >= 30.0:
            times.append(t - 1)
            v, u = c, u + d
        if t < 220:
            for _ in range(2):
                v = v + 0.5 * (0.04 * v * v + 5 * v + 140 - u + current[t])
            u = u + a * (b * v - u)
    node = nn.IzhikevichNode.named(kind)
    v, u = node.init_state(ops.zeros((1,), "float64"))
    found = []
    for t in range(220):
        s, v, u = node(Tensor([current[t]], "float64"), v, u)
        found += [t] * int(s.item())
    assert found == times and len(times) >= 4


# --- spike functions --------------------------------------------------------------------------------------------------


def test_multi_spike_gradients_are_the_derivatives_of_their_primitives():
    x = Tensor(np.linspace(-2.0, 5.0, 29) + 0.013)
    testing.check_bprop(Counting(surrogate.ATan()), x)
    testing.check_bprop(Rounding(3), x)
    found = ops.grad(Rounding(3))(Tensor(np.array([-0.1, 0.0, 1.5, 3.0, 3.1]))).asnumpy()
    assert found.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_spike_counts_round_half_to_even():
    x = Tensor(np.array([-1.0, 0.49, 0.5, 1.5, 2.5, 2.51, 9.0]))
    assert Rounding(3)(x).asnumpy().tolist() == [0.0, 0.0, 0.0, 2.0, 2.0, 3.0, 3.0]


# --- readouts ---------------------------------------------------------------------------------------------------------

RECORDING = np.random.default_rng(4).normal(0.0, 1.0, (5, 2, 3))
READOUTS = {
    "last": lambda x: x[4],
    "max": lambda x: x.max(0),
    "mean": lambda x: x.sum(0) / 5.0,
    "sum": lambda x: x[0] + x[1] + x[2] + x[3] + x[4],
    "exp": lambda x: sum(math.exp(-t / 5.0) * x[t] for t in range(5)) / 5.0,
}


@pytest.mark.parametrize("how", READOUTS)
def test_readouts_equal_their_formulas(how):
    readout = nn.Readout(how)
    np.testing.assert_allclose(readout(Tensor(RECORDING)).asnumpy(), READOUTS[how](RECORDING), rtol=1e-12)
    testing.check_grads(readout, Tensor(RECORDING))


def test_exponential_readout_with_a_custom_time_constant():
    expected = sum(math.exp(-t / 2.0) * RECORDING[t] for t in range(5)) / 5.0
    np.testing.assert_allclose(nn.Readout("exp", tau=2.0)(Tensor(RECORDING)).asnumpy(), expected, rtol=1e-12)


def test_first_spike_time_and_gradient():
    spikes = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], np.float32)
    readout = nn.Readout("first")
    assert readout(Tensor(spikes)).asnumpy().tolist() == [1.0, 2.0, 4.0]
    found = ops.grad(lambda x: (readout(x) * Tensor([1.0, 2.0, 3.0])).sum())(Tensor(spikes)).asnumpy()
    expected = np.zeros((5, 3))
    expected[1, 0], expected[2, 1], expected[4, 2] = -1.0, -2.0, -3.0  # for the silent neuron: the last step
    np.testing.assert_array_equal(found, expected)


def test_readouts_of_empty_sequences_raise():
    with pytest.raises(
        ShapeError, match=r"Readout: x must have the shape \(T, B, ...\) with at least one step, not \(0, 2\)"
    ):
        nn.Readout()(ops.zeros((0, 2)))


# --- PSN --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, 1, 3])
def test_psn_equals_its_sum(order):
    x = np.random.default_rng(0).normal(1.0, 2.0, (5, 2, 3)).astype(np.float32)
    layer = nn.PSN(5, order)
    weight, bias = layer.weight.asnumpy(), layer.bias.asnumpy()
    assert np.abs(weight).max() <= 1 / math.sqrt(5) and (bias == -1.0).all()
    expected = np.zeros_like(x)
    for t in range(5):
        h = np.full((2, 3), bias[t, 0], np.float64)
        for u in range(5):
            if order is None or t - order < u <= t:
                h += weight[t, u] * x[u]
        expected[t] = h > 0
    np.testing.assert_array_equal(layer(Tensor(x)).asnumpy(), expected)


def test_masked_psn_is_causal_and_its_gradient_is_exact():
    layer = nn.PSN(4, order=2)
    x = Tensor(np.random.default_rng(1).normal(0.0, 1.0, (4, 3)))
    with surrogate.smooth():
        testing.check_grads(layer, x, order=2)
        found = ops.grad(lambda x: layer(x)[1].sum())(x).asnumpy()
    assert found[:2].all() and not found[2:].any()


def test_psn_errors_name_the_number_of_steps():
    with pytest.raises(ShapeError, match=r"PSN: with steps=4, x must have the shape \(4, B, ...\), not \(5, 2\)"):
        nn.PSN(4)(ops.ones((5, 2)))


@pytest.mark.parametrize(
    "given", [lambda x: x, nn.Sigmoid(), surrogate.ATan, "ATan"], ids=["lambda", "Cell", "class", "str"]
)
def test_invalid_spike_functions_raise(given):
    with pytest.raises(
        ArgumentError, match=r"LIFNode: surrogate_function must be a spike function \(a Cell with a bprop"
    ):
        nn.LIFNode(surrogate_function=given)


# --- compare, max_spikes and the spike function, in the constructor and assigned --------------------------------------

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


def supports(kind, options):
    one = kind in (nn.IzhikevichNode, nn.GLIFNode)
    return not one or options.get("max_spikes", 1) == 1


def make_neuron(kind, options):
    return kind(**{name: value for name, value in options.items() if kind is not nn.GLIFNode or name != "max_spikes"})


def spikes_and_gradient(node):
    """The spikes and the gradient of the spike function around and exactly at the first three thresholds."""
    x = Tensor(np.array([-1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 2.0, 5.0], np.float32))
    found = snncell.grad(lambda x: node.fire_at(x).sum())(x).asnumpy()
    return node.fire_at(x).asnumpy().tolist(), found.tolist(), node.compare, node.max_spikes


@pytest.mark.sampled(11)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OWN], ids=lambda kind: kind.__name__)
def test_assigned_options_equal_constructor_options(kind):
    for before in BEFORE:
        for name, values in CHANGES.items():
            for value in values:
                if not supports(kind, before) or not supports(kind, {**before, name: value}):
                    continue
                later = make_neuron(kind, before)
                setattr(later, name, value)
                assert spikes_and_gradient(later) == spikes_and_gradient(make_neuron(kind, {**before, name: value})), (
                    before,
                    name,
                    value,
                )


@pytest.mark.compiled
def test_compiled_neurons_follow_assigned_options():
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
    (nn.LIFNode, "surrogate_function", surrogate.ATan, "LIFNode: surrogate_function must be a spike function"),
    (nn.IzhikevichNode, "max_spikes", 3, "IzhikevichNode: max_spikes is 1, not 3"),
    (nn.GLIFNode, "max_spikes", None, "GLIFNode: max_spikes is 1, not None"),
    (nn.ILIFNode, "compare", ">=", "ILIFNode has a fixed spike function, so compare cannot change. Create a new"),
    (nn.ILIFNode, "max_spikes", 2, "ILIFNode has a fixed spike function, so max_spikes"),
    (nn.ILIFNode, "surrogate_function", surrogate.ATan(), "ILIFNode has a fixed spike function, so surrogate"),
]


@pytest.mark.parametrize(("kind", "name", "value", "message"), REFUSED)
def test_invalid_assignments_raise_and_change_nothing(kind, name, value, message):
    node = kind()
    before = spikes_and_gradient(node)
    with pytest.raises(ArgumentError, match=message):
        setattr(node, name, value)
    assert spikes_and_gradient(node) == before


def test_assigning_several_spikes_needs_a_positive_threshold():
    node = nn.EIFNode(v_threshold=-0.05, v_reset=-0.1, reset="value")
    before = spikes_and_gradient(node)
    with pytest.raises(ArgumentError, match="EIFNode: v_threshold is positive if a step can ha"):
        node.max_spikes = 2
    assert spikes_and_gradient(node) == before


def test_given_spike_function_keeps_learning():
    given = surrogate.ATan(snncell.Parameter(2.0, name="alpha"))
    node = nn.LIFNode(surrogate_function=given)
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.alpha"]
    node.compare = ">="  # the given spike function is wrapped by another one
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.surrogate_function.alpha"]
    node.max_spikes = 4
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.surrogate_function.alpha"]
    node.max_spikes, node.compare = 1, ">"
    assert [p.name for p in node.trainable_params()] == ["surrogate_function.alpha"]
    assert node.surrogate_function is given


def test_changing_a_copy_keeps_the_original():
    node = nn.LIFNode()
    other = copy.deepcopy(node)
    other.compare = ">="
    assert node.compare == ">" and spikes_and_gradient(node)[0] != spikes_and_gradient(other)[0]
