"""Presets of other frameworks: published values, and spikes and gradients of the installed frameworks."""

import gc
import inspect
import math
import weakref

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate
from snncell.errors import ArgumentError
from snncell.nn.neurons.convert import PRESETS, make_like
from snncell.nn.neurons.variants import GATES

INPUT = [0.6, 0.6, 0.6, 1.2, 0.0, 0.0, 2.5, 0.3]
LIKE = nn.LIFNode.like
HALF = 1.0 / math.log(2.0)  # steps: exp(-1 / tau) is a half
NORMAL = [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21563, 0.0, 0.15]
SOFT = [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21563, 0.35781, 0.32891]
ZERO = [0.6, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3]
UNDIVIDED = [0.6, 0.9, 0.05, 0.225, 0.1125, 0.05625, 1.52813, 0.06406]
LATE = [0.6, 0.9, 1.05, 0.725, 0.3625, 0.18125, 2.59063, 0.59531]
TORCH = {"beta": 0.5}
GOLDEN = {  # decay 0.5, threshold 1, from rest: the neuron, its spikes, its potentials, and its currents if it has any
    "SpikingJelly, hard": (lambda: LIKE("spikingjelly", tau=2.0), "00000010", NORMAL),
    "Norse, LIFBox": (lambda: LIKE("norse.LIFBox", tau_mem_inv=500.0, dt=0.001), "00000010", NORMAL),
    "sinabs, MembraneReset": (lambda: LIKE("sinabs", tau_mem=HALF, reset_fn="MembraneReset"), "00000010", NORMAL),
    "NIR": (lambda: LIKE("nir", tau=2e-4, r=1.0, v_leak=0.0, v_threshold=1.0), "00000010", NORMAL),
    "SpikingJelly, soft": (lambda: LIKE("spikingjelly", tau=2.0, v_reset=None), "00000010", SOFT),
    "sinabs": (lambda: LIKE("sinabs", tau_mem=HALF), "00000010", SOFT),
    "SpikingJelly, undivided": (lambda: LIKE("spikingjelly", decay_input=False), "00110010", ZERO),
    "snnTorch, zero": (lambda: LIKE("snntorch", **TORCH, reset_mechanism="zero", reset_delay=False), "00110010", ZERO),
    "SpikingJelly, undivided, soft": (
        lambda: LIKE("spikingjelly", decay_input=False, v_reset=None),
        "00110011",
        UNDIVIDED,
    ),
    "sinabs, norm_input=False": (
        lambda: LIKE("sinabs", tau_mem=HALF, norm_input=False),
        "00110020",
        [*UNDIVIDED[:6], 0.52813, 0.56406],
    ),
    "snnTorch": (lambda: LIKE("snntorch", **TORCH), "00100010", LATE),
    "snnTorch, subtract at once": (lambda: LIKE("snntorch", **TORCH, reset_delay=False), "00110011", UNDIVIDED),
    "snnTorch, subtract at once, as shipped": (
        lambda: LIKE("snntorch", **TORCH, reset_delay=False, as_shipped=True),
        "00110010",
        [*UNDIVIDED[:7], 1.06406],
    ),
    "Spyx": (lambda: LIKE("spyx", beta=0.5), "00010001", LATE),
    "Norse": (
        lambda: LIKE("norse", tau_syn_inv=500.0, tau_mem_inv=500.0, dt=0.001),
        "00010010",
        [0.3, 0.6, 0.825, 0.0, 0.43125, 0.43125, 0.0, 0.82891],
        [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21563, 1.35781, 0.82891],
    ),
}


def record_states(node, x):
    """Outputs and all states after each step."""
    x = x if isinstance(x, Tensor) else Tensor(x)
    first = node.init_state(x[0])
    states = first if isinstance(first, tuple) else (first,)
    outputs, after = [], []
    for t in range(len(x)):
        out, *states = node(x[t], *states)
        outputs.append(out)
        after.append(states)
    return ops.stack(outputs, 0), [ops.stack(list(values), 0) for values in zip(*after, strict=True)]


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_spikes_and_states_equal_published_values(case, dtype):
    make, spikes, *expected = GOLDEN[case]
    out, states = record_states(make(), np.array(INPUT, dtype))
    assert "".join(f"{s:.0f}" for s in out.asnumpy()) == spikes
    assert len(states) == len(expected)
    for found, wanted in zip(states, expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("v_reset", "detach", "expected"),
    [
        (None, False, [0.83721, 0.8497, 0.93795, 0.61849]),
        (None, True, [1.38029, 1.32666, 1.21941, 0.61849]),
        (0.0, False, [0.79004, 0.34278, 0.86982, 0.71696]),
        (0.0, True, [1.07544, 0.71696, 1.07544, 0.71696]),
    ],
)
def test_gradients_equal_published_values_of_spikingjelly(v_reset, detach, expected):
    settings = {"tau": 2.0, "decay_input": False, "v_reset": v_reset, "detach_reset": detach}
    node = LIKE("spikingjelly", **settings, surrogate_function=surrogate.ATan(2.0))
    found = ops.grad(lambda x: record_states(node, x)[0])(Tensor(np.full(4, 0.8)))
    np.testing.assert_allclose(found.asnumpy(), expected, atol=1e-5)


# --- defects of other libraries ---------------------------------------------------------------------------------------


def test_immediate_soft_reset_loses_no_spike():
    node = LIKE("snntorch", beta=1.0, reset_delay=False)
    out, (mem,) = record_states(node, np.array([3.5, 0.0, 0.0, 0.0]))
    assert out.asnumpy().tolist() == [1.0, 1.0, 1.0, 0.0] and mem.asnumpy().tolist() == [2.5, 1.5, 0.5, 0.5]
    out, _ = record_states(
        LIKE("snntorch", beta=1.0, reset_delay=False, as_shipped=True), np.array([3.5, 0.0, 0.0, 0.0])
    )
    assert out.asnumpy().tolist() == [1.0, 1.0, 0.0, 0.0]


def test_norse_alpha_is_used():
    slopes = [
        ops.grad(LIKE("norse", **given).surrogate_function)(Tensor(0.5)).item() for given in ({}, {"alpha": 100.0})
    ]
    assert slopes == pytest.approx([1 / 1.5**2, 1 / 51.0**2])


def test_norse_and_nir_time_constants_are_in_seconds():
    norse = LIKE("norse.LIFBox", tau_mem_inv=50.0, dt=0.001)
    nir = LIKE("nir", tau=0.02, r=1.0, v_leak=0.0, v_threshold=1.0, dt=0.001)
    assert norse.tau == pytest.approx(20.0) and nir.tau == pytest.approx(20.0)


def test_neurons_can_be_garbage_collected():
    node = LIKE("snntorch", beta=0.5)
    nn.MultiStep(node)  # not called, because compiled functions are kept for the next call
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None


def test_init_state_is_zero_after_any_step():
    node = nn.CubaLIFNode()
    spike, *states = node(ops.ones((2,)), *(s + 1.0 for s in node.init_state(ops.ones((2,)))))
    again = node.init_state(spike)
    assert all(not s.asnumpy().any() for s in again) and all(s.asnumpy().any() for s in states)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_unknown_framework_error_lists_known_ones():
    with pytest.raises(ArgumentError, match=r"LIFNode.like: no preset 'brian2'.*'nir'.*'snntorch'.*'spikingjelly'"):
        LIKE("brian2")
    with pytest.raises(ArgumentError, match=r"EIFNode.like: no preset 'norse' .* presets are 'spikingjelly'"):
        nn.EIFNode.like("norse")
    with pytest.raises(ArgumentError, match=r"PSN.like: no preset 'norse' .* presets are none"):
        make_like("PSN", "norse", {})


@pytest.mark.parametrize("framework", sorted({framework for _, framework in PRESETS}))
def test_framework_names_ignore_case(framework):
    neuron = next(neuron for neuron, known in PRESETS if known == framework)
    for written in (framework.upper(), framework.title()):
        with pytest.raises(ArgumentError, match=f"{neuron}.like: unknown setting 'volts' of {framework}. It takes"):
            getattr(nn, neuron).like(written, volts=1.0)
    assert type(LIKE("snnTorch", beta=0.5)) is type(LIKE("snntorch", beta=0.5))


@pytest.mark.parametrize("framework", [None, 3, ("snntorch",)])
def test_framework_must_be_a_string(framework):
    with pytest.raises(ArgumentError, match=r"LIFNode.like: no preset .* for this neuron. Its presets are"):
        LIKE(framework)


def test_unknown_parameter_error_lists_known_ones():
    with pytest.raises(
        ArgumentError, match=r"LIFNode.like: unknown setting 'tau' of snntorch. It takes beta, threshold, "
    ):
        LIKE("snntorch", tau=2.0)
    with pytest.raises(ArgumentError, match=r"LIFNode.like: snntorch needs beta=..., because it has no default"):
        LIKE("snntorch")


# Presets with a setting that decides if a constant is learned.
SAID_TWICE = [
    (neuron, framework, word)
    for (neuron, framework), preset in PRESETS.items()
    for word in inspect.signature(preset).parameters
    if f"learn_{word}" in inspect.signature(preset).parameters
]


@pytest.mark.parametrize(("neuron", "framework", "word"), SAID_TWICE)
def test_parameter_that_contradicts_a_setting_raises(neuron, framework, word):
    needed = inspect.signature(PRESETS[neuron, framework]).parameters.values()
    settings = {p.name: 0.5 + 0.2 * (p.name == "alpha") for p in needed if p.default is p.empty}
    settings |= {"beta": 0.5} if framework == "snntorch.Lapicque" else {}
    value = settings.get(word, 0.8)
    for learned in (True, False):
        given = snncell.Parameter(value, name=word, requires_grad=learned)
        message = f"{word} is a Parameter with requires_grad={learned}, which contradicts learn_{word}={not learned}"
        with pytest.raises(ArgumentError, match=message):
            make_like(neuron, framework, {**settings, word: given, f"learn_{word}": not learned})
        for said in ({}, {f"learn_{word}": learned}):
            node = make_like(neuron, framework, {**settings, word: given, **said})
            assert [p is given for p in node.trainable_params()] == [True] * learned
    node = make_like(neuron, framework, {**settings, word: value, f"learn_{word}": False})
    assert node.trainable_params() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"framework": "snntorch", "beta": 0.5, "reset_mechanism": "hard"}, 'reset_mechanism is "subtract", "zero" or'),
        ({"framework": "snntorch", "beta": 1.5}, "LeakyNode: beta is a number from 0 to 1.*, not 1.5"),
        ({"framework": "spikingjelly", "tau": 1.0}, "LIFNode: tau is a number of steps above 1.*, not 1.0"),
        ({"framework": "spikingjelly", "v_threshold": 0.0}, "LIFNode: v_threshold is above v_reset, which is 0.0, not"),
        ({"framework": "spikingjelly", "v_threshold": -1.0, "v_reset": None}, "LIFNode: v_threshold is positive"),
        (
            {"framework": "norse", "tau_mem_inv": 2000.0},
            "decay_from_rate: dt tau_inv is above 0 and at most 1, not 2.0",
        ),
        ({"framework": "sinabs", "tau_mem": 0.0}, "decay_from_tau: tau is positive, not 0.0"),
        (
            {"framework": "sinabs", "tau_mem": 2.0, "spike_fn": "x"},
            '"MultiSpike" or "SingleSpike" or an integer of at least 1, not \'x\'',
        ),
        (
            {"framework": "nir", "tau": 1e-4, "r": 1.0, "v_leak": 0.0, "v_threshold": 1.0},
            r"steps_from_seconds: tau is above dt, which is 0.0001 s, not 0.0001; use a shorter dt",
        ),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ArgumentError, match=message):
        LIKE(**settings)


# --- parity -----------------------------------------------------------------------------------------------------------

SHAPE = (14, 3, 5)  # (T, B, N)
JELLY = {  # preset, settings, the framework's class, its arguments if they differ, scale of the input
    "LIF": (nn.LIFNode, {"tau": 3.0}, "LIFNode", {}, 4.0),
    "LIF, soft": (nn.LIFNode, {"tau": 3.0, "v_reset": None, "v_threshold": 0.8}, "LIFNode", {}, 3.0),
    "LIF, undivided, detached": (
        nn.LIFNode,
        {"tau": 2.0, "decay_input": False, "v_reset": -0.1, "detach_reset": True},
        "LIFNode",
        {},
        1.5,
    ),
    "IF": (nn.IFNode, {"v_threshold": 0.9}, "IFNode", {}, 1.2),
    "PLIF": (nn.ParametricLIFNode, {"init_tau": 2.5}, "ParametricLIFNode", {}, 4.0),
    "CUBA": (nn.CubaLIFNode, {}, "CUBALIFNode", {}, 0.6),
    "QIF": (nn.QIFNode, {}, "QIFNode", {}, 2.0),
    "EIF": (nn.EIFNode, {}, "EIFNode", {}, 2.0),
    "Izhikevich": (nn.IzhikevichNode, {"a": 0.1, "b": 0.2}, "IzhikevichNode", {}, 3.0),
    "KLIF": (nn.KLIFNode, {"tau": 3.0}, "KLIFNode", {}, 4.0),
    "KLIF, scaled": (nn.KLIFNode, {"tau": 3.0, "scale_reset": True, "v_reset": None}, "KLIFNode", {}, 4.0),
    "CLIF": (nn.CLIFNode, {"tau": 2.5}, "ComplementaryLIFNode", {}, 1.5),
    "ILIF": (nn.ILIFNode, {}, "ILIFNode", {}, 4.0),
    "RAF": (nn.ResonateNode, {}, "RAFNode", {}, 1.5),
}


def random_input(scale, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.2 * scale, scale, SHAPE), rng.standard_normal(SHAPE)


def compare(node, theirs, torch, scale, states_of):
    """Compare spikes exactly, and states and gradients to 1e-5, in float64 so that no spike depends on rounding."""
    x, weights = random_input(scale)
    given = torch.tensor(x, requires_grad=True)
    outputs, after = [], []
    for t in range(len(x)):
        out = theirs(given[t])
        outputs.append(out)
        after.append([s.detach().numpy() for s in states_of()])
    y = torch.stack(outputs)
    (y * torch.tensor(weights)).sum().backward()
    mine, states = record_states(node, x)
    np.testing.assert_allclose(mine.asnumpy(), y.detach().numpy(), rtol=0, atol=1e-12)
    for found, wanted in zip(states, zip(*after, strict=True), strict=False):
        np.testing.assert_allclose(found.asnumpy(), np.stack(wanted), atol=1e-5)
    gradient = ops.grad(lambda x: (record_states(node, x)[0] * Tensor(weights)).sum())(Tensor(x))
    np.testing.assert_allclose(gradient.asnumpy(), given.grad.numpy(), rtol=1e-5, atol=1e-5)
    return y.detach().numpy()


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", JELLY)
def test_spikes_states_and_gradients_equal_spikingjelly(case, torch):
    reason = "SpikingJelly is not installed: there is nothing to compare with"
    there = pytest.importorskip("spikingjelly.activation_based.neuron", reason=reason)
    kind, settings, name, other, scale = JELLY[case]
    node, theirs = kind.like("spikingjelly", **settings), getattr(there, name)(**settings | other).double().train()
    y = compare(node, theirs, torch, scale, lambda: [theirs.v])
    assert 0.02 < (y > 0).mean() < 0.98


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("decode", "how"), [(None, None), ("max-mem", "max"), ("mean-mem", "mean"), ("last_mem", "last")]
)
def test_readouts_equal_spikingjelly(decode, how, torch):
    reason = "SpikingJelly is not installed: there is nothing to compare with"
    there = pytest.importorskip("spikingjelly.activation_based.neuron", reason=reason)
    x, weights = random_input(2.0)
    given = torch.tensor(x, requires_grad=True)
    y = there.NonSpikingLIFNode(tau=3.0, decode=decode)(given)
    y = torch.stack(y) if decode is None else y
    weights = weights if decode is None else weights[0]
    (y * torch.tensor(weights)).sum().backward()
    node = nn.LINode.like("spikingjelly", tau=3.0)

    def mine(x):
        potentials = record_states(node, x)[0]
        return potentials if how is None else nn.Readout(how)(potentials)

    np.testing.assert_allclose(mine(Tensor(x)).asnumpy(), y.detach().numpy(), atol=1e-12)
    gradient = ops.grad(lambda x: (mine(x) * Tensor(weights)).sum())(Tensor(x))
    np.testing.assert_allclose(gradient.asnumpy(), given.grad.numpy(), rtol=1e-5, atol=1e-8)


TORCHES = {
    "Leaky": (nn.LIFNode, "snntorch", {"beta": 0.8}, "Leaky", 0.8),
    "Leaky, zero": (nn.LIFNode, "snntorch", {"beta": 0.8, "reset_mechanism": "zero"}, "Leaky", 0.8),
    "Leaky, none": (nn.LIFNode, "snntorch", {"beta": 0.3, "reset_mechanism": "none"}, "Leaky", 1.5),
    "Leaky, threshold": (nn.LIFNode, "snntorch", {"beta": 0.9, "threshold": 0.6}, "Leaky", 0.5),
    "Leaky, zero at once": (
        nn.LIFNode,
        "snntorch",
        {"beta": 0.8, "reset_mechanism": "zero", "reset_delay": False},
        "Leaky",
        1.0,
    ),
    "Leaky, subtract at once": (nn.LIFNode, "snntorch", {"beta": 0.8, "reset_delay": False}, "Leaky", 0.9),
    "Synaptic": (nn.CubaLIFNode, "snntorch", {"alpha": 0.6, "beta": 0.8}, "Synaptic", 0.5),
    "Synaptic, zero": (
        nn.CubaLIFNode,
        "snntorch",
        {"alpha": 0.6, "beta": 0.8, "reset_mechanism": "zero"},
        "Synaptic",
        0.5,
    ),
    "Synaptic, at once": (
        nn.CubaLIFNode,
        "snntorch",
        {"alpha": 0.3, "beta": 0.7, "reset_delay": False},
        "Synaptic",
        0.5,
    ),
    "Alpha": (nn.AlphaNode, "snntorch", {"alpha": 0.9, "beta": 0.8}, "Alpha", 1.0),
    "Alpha, none": (nn.AlphaNode, "snntorch", {"alpha": 0.9, "beta": 0.8, "reset_mechanism": "none"}, "Alpha", 0.4),
    "Lapicque": (nn.LIFNode, "snntorch.Lapicque", {"R": 5.0, "C": 1.0}, "Lapicque", 0.6),
    "Lapicque, zero": (
        nn.LIFNode,
        "snntorch.Lapicque",
        {"R": 5.0, "C": 2.0, "reset_mechanism": "zero"},
        "Lapicque",
        1.5,
    ),
}


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", TORCHES)
def test_spikes_states_and_gradients_equal_snntorch(case, torch):
    there = pytest.importorskip("snntorch", reason="snnTorch is not installed: there is nothing to compare with")
    kind, framework, settings, name, scale = TORCHES[case]
    cell = getattr(there, name)(**settings).double()
    state = []

    def theirs(x):
        if not state:
            state.append(None)
            out = cell(x)
        else:
            out = cell(x, *state[0])
        # snnTorch returns (spk, syn, mem), we return the potential first
        state[0] = out[1:]
        return out[0]

    order = (lambda: state[0][::-1]) if kind is nn.CubaLIFNode else (lambda: state[0])
    y = compare(kind.like(framework, **settings), theirs, torch, scale, order)
    assert 0.02 < (y > 0).mean() < 0.98


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_beta_and_threshold_equal_snntorch(torch):
    there = pytest.importorskip("snntorch", reason="snnTorch is not installed: there is nothing to compare with")
    cell = there.Leaky(beta=0.8, learn_beta=True, learn_threshold=True)
    node = LIKE("snntorch", beta=0.8, learn_beta=True, learn_threshold=True)
    x, weights = (a.astype(np.float32) for a in random_input(0.8))
    mem, outputs = cell.reset_mem(), []
    for t in range(len(x)):
        spike, mem = cell(torch.tensor(x[t]), mem)
        outputs.append(spike)
    (torch.stack(outputs) * torch.tensor(weights)).sum().backward()

    def loss():
        return (record_states(node, x)[0] * Tensor(weights)).sum()

    found = ops.grad(loss, None, (node.beta, node.v_threshold))()
    for mine, theirs in zip(found, (cell.beta, cell.threshold), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.grad.numpy(), rtol=1e-4)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_psn_equals_spikingjelly(torch):
    reason = "SpikingJelly is not installed: there is nothing to compare with"
    there = pytest.importorskip("spikingjelly.activation_based.neuron", reason=reason)
    theirs, mine = there.PSN(T=6), nn.PSN(6, compare=">=")
    mine.weight.set_data(theirs.weight.detach().numpy())
    mine.bias.set_data(theirs.bias.detach().numpy())
    x = np.random.default_rng(0).normal(1.0, 2.0, (6, 2, 3)).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    y = theirs(given)
    y.sum().backward()
    np.testing.assert_array_equal(mine(Tensor(x)).asnumpy(), y.detach().numpy())
    found, (weight, bias) = ops.grad(lambda x: mine(x).sum(), 0, (mine.weight, mine.bias))(Tensor(x))
    np.testing.assert_allclose(found.asnumpy(), given.grad.numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(weight.asnumpy(), theirs.weight.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias.asnumpy(), theirs.bias.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_gated_neuron_equals_spikingjelly(torch):
    reason = "SpikingJelly is not installed: there is nothing to compare with"
    there = pytest.importorskip("spikingjelly.activation_based.neuron", reason=reason)
    theirs = there.GatedLIFNode(T=8, inplane=3, init_linear_decay=0.06, init_v_subreset=0.4)
    logits = {name: getattr(theirs, name).detach().numpy().reshape(-1, 1, 1) for name in GATES if name != "conduct"}
    logits["conduct"] = theirs.conduct.detach().numpy()[0].reshape(-1, 1, 1)  # equal at all steps initially
    gates = {name: snncell.Parameter(value, name=name) for name, value in logits.items()}
    node = nn.GLIFNode(**gates, surrogate_function=surrogate.Sigmoid(4.0), compare=">=")
    x = np.random.default_rng(0).uniform(0.0, 1.2, (8, 2, 3, 2, 2)).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    y = theirs(given)
    y.sum().backward()
    mine = record_states(node, x)[0].asnumpy()
    np.testing.assert_array_equal(mine, y.detach().numpy())
    assert 0.05 < mine.mean() < 0.95
    found, (alpha, gamma) = ops.grad(lambda x: record_states(node, x)[0].sum(), 0, (node.alpha, node.gamma))(Tensor(x))
    np.testing.assert_allclose(found.asnumpy(), given.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alpha.asnumpy().reshape(-1), theirs.alpha.grad.numpy(), rtol=1e-4)
    np.testing.assert_allclose(gamma.asnumpy().reshape(-1), theirs.gamma.grad.numpy(), rtol=1e-4)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_recurrent_layer_equals_snntorch(torch):
    there = pytest.importorskip("snntorch", reason="snnTorch is not installed: there is nothing to compare with")
    theirs = there.RLeaky(beta=0.8, linear_features=5)
    weight, bias = (p.detach().numpy() for p in (theirs.recurrent.weight, theirs.recurrent.bias))
    layer = nn.Recurrent(LIKE("snntorch", beta=0.8), nn.Dense(5, 5, Tensor(weight), Tensor(bias)))
    x, weights = (a.astype(np.float32) for a in random_input(1.0))
    given, outputs = torch.tensor(x, requires_grad=True), []
    spike, mem = theirs.reset_mem()
    for t in range(len(x)):
        spike, mem = theirs(given[t], spike, mem)
        outputs.append(spike)
    y = torch.stack(outputs)
    (y * torch.tensor(weights)).sum().backward()
    np.testing.assert_array_equal(record_states(layer, x)[0].asnumpy(), y.detach().numpy())
    found = ops.grad(lambda x: (record_states(layer, x)[0] * Tensor(weights)).sum())(Tensor(x))
    np.testing.assert_allclose(found.asnumpy(), given.grad.numpy(), rtol=1e-4, atol=1e-5)


# --- the others, by their equations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "settings", "spikes", "potentials"),
    [
        ("spikingjelly", {}, [0, 0, 1, 0, 1], [0.5, 0.75, 0.0, 0.5, 0.0]),
        ("norse", {}, [0, 0, 1, 0, 1], [0.5, 0.75, 0.0, 0.5, 0.0]),
        ("nir", {"r": 10.0, "v_threshold": 1.0, "dt": 0.1}, [0, 0, 1, 0, 1], [0.5, 0.75, 0.0, 0.5, 0.0]),
        ("sinabs", {}, [0, 0, 1, 0, 2], [0.5, 0.75, 0.25, 0.75, 0.25]),
        ("spyx", {}, [0, 0, 0, 1, 0], [0.5, 0.75, 1.25, 0.75, 2.25]),
    ],
)
def test_neurons_without_a_leak_integrate_their_input(framework, settings, spikes, potentials):
    y, (v,) = record_states(nn.IFNode.like(framework, **settings), np.array([0.5, 0.25, 0.5, 0.5, 1.5]))
    assert y.asnumpy().tolist() == spikes and v.asnumpy().tolist() == pytest.approx(potentials)


def test_norse_recurrent_step_detaches_its_reset():
    assert LIKE("norse", recurrent=True).detach_reset and not LIKE("norse").detach_reset


def test_sinabs_surrogate_scales_with_the_threshold():
    """SingleExponential: 1 / (w th) exp(-|v - th| / (w th)), for one spike and for many."""
    for spike_fn in ("SingleSpike", "MultiSpike", 2):
        node = LIKE("sinabs", tau_mem=5.0, spike_threshold=2.0, spike_fn=spike_fn, grad_width=0.5)
        found = ops.grad(lambda h, n=node: n.spikes(h))(Tensor(np.array([1.0, 2.0, 2.5]))).asnumpy()
        np.testing.assert_allclose(found, np.exp([-1.0, 0.0, -0.5]), rtol=1e-6)


def test_sinabs_current_decays_before_it_is_read():
    node = LIKE("sinabs", tau_mem=HALF, tau_syn=HALF, norm_input=False, spike_threshold=10.0)
    _, (v, i) = record_states(node, np.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(i.asnumpy(), [0.5, 0.25, 0.625])
    np.testing.assert_allclose(v.asnumpy(), [0.5, 0.5, 0.875])


def test_adaptive_neuron_equals_spyx_and_sinabs_equations():
    def loop(beta, gamma, gain, scale, late, x):
        v = t = 0.0
        spikes = []
        for now in x:
            if late:
                threshold = 1.0 + scale * t
                s = float(v > threshold)
                v = beta * v + gain * now - s * threshold
            else:
                v = beta * v + gain * now
                threshold = 1.0 + scale * t
                s = float(max(0.0, math.floor(v / threshold)))
                v -= s * threshold
            t = gamma * t + (1.0 - gamma) * s
            spikes.append(s)
        return spikes, v, t

    x = np.random.default_rng(0).uniform(0.0, 2.0, 30)
    for node, expected in (
        (nn.ALIFNode.like("spyx", beta=0.8, gamma=0.7), loop(0.8, 0.7, 1.0, 1.0, True, x)),
        (
            nn.ALIFNode.like("sinabs", tau_mem=HALF, tau_adapt=HALF, norm_input=False),
            loop(0.5, 0.5, 1.0, 1.8, False, x),
        ),
    ):
        y, (v, a) = record_states(node, x)
        assert y.asnumpy().tolist() == expected[0] and sum(expected[0]) > 3
        np.testing.assert_allclose([v.asnumpy()[-1], a.asnumpy()[-1]], expected[1:], rtol=1e-9)


def test_izhikevich_neuron_equals_norse_equations():
    node = nn.IzhikevichNode.like("norse", a=0.02, b=0.2, c=-65.0, d=6.0)
    x, v, u, spikes = np.full(400, 14.0), -65.0, -13.0, []
    for now in x:
        v, u = (
            v + 0.25 * (0.04 * v**2 + 5.0 * v + 140.0 - u + now),
            u + 0.25 * 0.02 * (0.2 * v - u),
        )
        spikes.append(float(v > 30.0))
        v, u = (-65.0, u + 6.0) if v > 30.0 else (v, u)
    y, (last, recovery) = record_states(node, x)
    assert y.asnumpy().tolist() == spikes and sum(spikes) > 1
    np.testing.assert_allclose([last.asnumpy()[-1], recovery.asnumpy()[-1]], [v, u], rtol=1e-8)


def test_nir_equations_with_arrays_of_constants():
    tau = np.array([2e-3, 4e-3])
    node = LIKE("nir", tau=tau, r=np.array([1.0, 2.0]), v_leak=np.array([0.1, 0.0]), v_threshold=1.0, dt=1e-3)
    x = np.random.default_rng(0).uniform(0.0, 3.0, (12, 2)).astype(np.float32)
    v, spikes = np.array([0.0, 0.0]), []
    for now in x:
        v = v + (np.array([0.1, 0.0]) - v + np.array([1.0, 2.0]) * now) * 1e-3 / tau
        spikes.append(v > 1.0)
        v = np.where(v > 1.0, 0.0, v)
    y, _ = record_states(node, x)
    np.testing.assert_array_equal(y.asnumpy(), np.stack(spikes))


@pytest.mark.parametrize(("neuron", "framework"), PRESETS)
def test_presets_compile_to_one_kernel(neuron, framework):
    needed = {
        "beta": 0.8, "alpha": 0.9, "gamma": 0.9, "R": 5.0, "C": 1.0, "tau_mem": 5.0, "tau_adapt": 9.0, "tau_syn": 3.0,
        "tau": 0.01, "r": 1.0, "v_leak": 0.0, "v_threshold": 1.0, "a": 0.02, "b": 0.2, "c": -65.0, "d": 8.0,
    }  # fmt: skip
    parameters = inspect.signature(PRESETS[neuron, framework]).parameters.values()
    settings = {p.name: needed[p.name] for p in parameters if p.default is p.empty}
    if framework.startswith("nir"):
        settings |= {name: 0.01 for name in ("tau_mem", "tau_syn") if name in settings}
    if framework == "snntorch.Lapicque":
        settings = {"R": 5.0, "C": 1.0}
    node = getattr(nn, neuron).like(framework, **settings)
    text = snncell.explain(nn.MultiStep(node), ops.ones((4, 2, 3)), detail="launches")
    assert "1 loop over time, 0 calls" in text and text.count("one kernel") == 1


NORSES = {
    "LIF": (nn.LIFNode, "norse", {}, "LIF", 12.0),
    "LIF, all set": (
        nn.LIFNode,
        "norse",
        {"tau_syn_inv": 300.0, "tau_mem_inv": 60.0, "v_leak": 0.1, "v_th": 0.7, "v_reset": -0.2},
        "LIF",
        12.0,
    ),
    "LIFBox": (nn.LIFNode, "norse.LIFBox", {"tau_mem_inv": 400.0}, "LIFBox", 3.0),
    "LIFBox, all set": (
        nn.LIFNode,
        "norse.LIFBox",
        {"tau_mem_inv": 300.0, "v_leak": 0.1, "v_th": 0.7, "v_reset": -0.2},
        "LIFBox",
        3.0,
    ),
    "IAF": (nn.IFNode, "norse", {"v_th": 0.8, "v_reset": -0.1}, "IAF", 0.6),
}


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", NORSES)
def test_spikes_states_and_gradients_equal_norse(case, torch):
    reason = "Norse is not installed: there is nothing to compare with"
    there = pytest.importorskip("norse.torch", reason=reason)
    kind, framework, settings, name, scale = NORSES[case]
    given = {key: torch.tensor(value, dtype=torch.float64) for key, value in settings.items()}
    module = pytest.importorskip(f"norse.torch.functional.{name.lower().replace('lifbox', 'lif_box')}", reason=reason)
    cell = getattr(there, f"{name}Cell")(getattr(module, f"{name}Parameters")(**given))
    state = [None]

    def theirs(x):
        out, state[0] = cell(x, state[0])
        return out

    y = compare(kind.like(framework, **settings), theirs, torch, scale, lambda: list(state[0])[:2])
    assert 0.02 < (y > 0).mean() < 0.98
