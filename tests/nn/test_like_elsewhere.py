"""Presets with their own time step: values printed by the frameworks, their known defects, and errors."""

import inspect

import numpy as np
import pytest
from test_neurons_like import INPUT, record_states

from snncell import Tensor, nn, ops, surrogate
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.neurons.convert import ABSENT, PRESETS, make_like

HALF = {"tau_syn_inv": 500.0, "tau_mem_inv": 500.0}  # 1 / s: both decay by a half in each step
CURRENT = [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21562, 1.35781, 0.82891]
GOLDEN = {  # printed by the frameworks for INPUT: preset, settings, outputs, states, d sum(outputs) / d input
    "Norse LSNN": (
        (nn.ALIFNode, "Norse", {**HALF, "tau_adapt_inv": 250.0, "beta": 0.5}),
        [0, 0, 0, 0, 1, 0, 0, 1],
        [
            [0.6, 0.9, 1.05, 1.725, 0.8625, 0.43125, 2.71562, 1.65781],
            [0.0, 0.3, 0.6, 0.825, 0.0, 0.43125, 0.43125, 0.0],
            [0.0, 0.0, 0.0, 0.0, 0.5, 0.375, 0.28125, 0.71094],
        ],
        [0.46966, 0.48936, 0.46176, 0.34933, 0.39065, 0.36895, 0.26934, 0.0],
    ),
    "Norse LIFAdEx": (
        (nn.AdExNode, "Norse", {**HALF, "tau_ada_inv": 250.0, "adaptation_current": 0.5, "adaptation_spike": 0.2}),
        [0, 0, 0, 1, 0, 0, 1, 0],
        [
            CURRENT,
            [0.33383, 0.68288, 0.97816, 0.0, 0.2602, 0.249, 0.0, 0.64855],
            [0.0, 0.04173, 0.11666, 0.40976, 0.30732, 0.26302, 0.42839, 0.32129],
        ],
        [0.68446, 0.71366, 0.59201, 0.32384, 0.41864, 0.34126, 0.26531, 0.27376],
    ),
    "Norse LIFRefrac": (
        (nn.RefractoryLIFNode, "Norse", {**HALF, "rho_reset": 1.0}),
        [0, 0, 0, 1, 0, 0, 1, 0],
        [CURRENT, [0.3, 0.6, 0.825, 0.0, 0.0, 0.21562, 0.0, 0.0], [0, 0, 0, 1, 0, 0, 1, 0]],
        [0.48739, 0.39511, 0.24808, 0.31765, 0.11244, 0.22489, 0.23277, 0.0],
    ),
    "sinabs ALIF": (
        (nn.ALIFNode, "sinabs", {"tau_mem": 2.0, "tau_adapt": 4.0, "norm_input": False}),
        [0, 0, 1, 0, 0, 0, 1, 0],
        [
            [0.6, 0.96392, 0.18465, 1.31199, 0.79576, 0.48266, 1.60467, 1.27328],
            [0.0, 0.0, 0.2212, 0.17227, 0.13416, 0.10449, 0.30257, 0.23564],
        ],
        [0.75333, 0.79614, 1.04988, 0.81419, 0.60448, 0.51748, 0.59147, 0.9112],
    ),
    "sinabs ALIF, tau_syn, as shipped": (
        (nn.ALIFNode, "sinabs", {"tau_mem": 2.0, "tau_adapt": 4.0, "tau_syn": 2.0, "as_shipped": True}),
        [0] * 8,
        [
            [0.14319, 0.17736, 0.18552, 0.33066, 0.07891, 0.01883, 0.60112, 0.21505],
            [0.14319, 0.26421, 0.34577, 0.54038, 0.40667, 0.26549, 0.76215, 0.67732],
            [0.0] * 8,
        ],
        [0.20792, 0.23212, 0.25425, 0.27509, 0.25643, 0.27112, 0.31948, 0.25033],
    ),
    "sinabs LIF, MembraneReset, as shipped": (
        (
            nn.LIFNode,
            "sinabs",
            {"tau_mem": 2.0, "norm_input": False, "min_v_mem": -0.1, "reset_fn": "MembraneReset", "reset_value": -0.2}
            | {"as_shipped": True},
        ),
        [0, 0, 0, 1, 0, 0, 2, 0],
        [[0.4, 0.64261, 0.78976, -0.1, -0.1, -0.1, -0.1, 0.03935]],
        [2.61975, 2.8376, 2.27143, 0.51433, 0.23975, 0.23975, 0.11242, 0.43685],
    ),
    "snnTorch Synaptic, as shipped": (
        (nn.CubaLIFNode, "snnTorch", {"alpha": 0.5, "beta": 0.5, "reset_delay": False, "as_shipped": True}),
        [0, 1, 1, 1, 1, 0, 1, 1],
        [
            [0.6, 0.2, 0.15, 0.8, 0.2625, 0.5625, 1.99688, 1.65625],
            [0.6, 0.9, 1.05, 1.725, 0.8625, 0.43125, 2.71562, 1.65781],
        ],
        [1.38856, 1.48843, 1.30035, 0.88649, 0.91857, 0.49103, 0.21288, 0.19046],
    ),
    "snnTorch Alpha, as shipped": (
        (
            nn.AlphaNode,
            "snnTorch",
            {"alpha": 0.8, "beta": 0.3, "threshold": 0.3, "reset_mechanism": "subtract", "as_shipped": True},
        ),
        [0, 1, 0, 1, 1, 1, 1, 1],
        [
            [0.6, 1.08, 1.164, 2.1312, 1.40496, 0.82397, 2.85917, 2.28734],
            [-0.6, -0.78, 0.0, -1.2, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.36825, -0.00667, 1.14305, 0.45095, 1.37968, 0.80914, 2.80772],
        ],
        [1.39689, 0.56915, 0.96183, -0.06792, 0.30927, 0.28842, 0.01557, 0.0],
    ),
    "snnTorch Lapicque, by its beta": (
        (nn.LIFNode, "snnTorch.Lapicque", {"beta": 0.8}),
        [0] * 8,
        [[0.13389, 0.2379, 0.3187, 0.51535, 0.40036, 0.31102, 0.79948, 0.68802]],
        [0.19148, 0.2123, 0.23062, 0.24539, 0.22932, 0.23204, 0.24816, 0.11381],
    ),
    "snnTorch Leaky, graded": (
        (nn.LIFNode, "snnTorch", {"beta": 0.5, "graded_spikes_factor": 0.5}),
        [0, 0, 0.5, 0, 0, 0, 0.5, 0],
        [[0.6, 0.9, 1.05, 0.725, 0.3625, 0.18125, 2.59063, 0.59531]],
        [0.58927, 0.7908, 0.67144, 0.36696, 0.16131, 0.12305, 0.1148, 0.1911],
    ),
    "Spyx CuBaLIF": (
        (nn.CubaLIFNode, "Spyx", {"alpha": 0.5, "beta": 0.5}),
        [0, 0, 1, 1, 1, 1, 0, 1],
        [
            [0.6, 1.2, 1.15, 1.8, 1.2625, 0.5625, 2.99688, 2.65625],
            [0.6, 0.9, 1.05, 1.725, 0.8625, 0.43125, 2.71562, 1.65781],
        ],
        [0.07608, 0.08377, 0.06298, 0.02512, 0.02473, 0.0074, 0.00039, 0.0],
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_values_and_gradients_equal_the_frameworks(case):
    (kind, framework, settings), outputs, states, gradient = GOLDEN[case]
    node = kind.like(framework, **settings)
    x = np.array(INPUT).reshape((8, 1, 1))
    out, after = record_states(node, x)
    assert out.asnumpy().ravel().tolist() == outputs
    assert len(after) == len(states)
    for found, wanted in zip(after, states, strict=True):
        np.testing.assert_allclose(found.asnumpy().ravel(), wanted, atol=1.1e-5)
    found = ops.grad(lambda x: record_states(node, x)[0].sum())(Tensor(x))
    np.testing.assert_allclose(found.asnumpy().ravel(), gradient, atol=1.1e-5)


# --- known defects: fixed by default, reproduced by as_shipped --------------------------------------------------------


def test_synaptic_neuron_emits_every_spike():
    drive = np.array([3.5, 0.0, 0.0, 0.0])
    settings = {"alpha": 0.0, "beta": 1.0, "reset_delay": False}
    out, (mem, _) = record_states(nn.CubaLIFNode.like("snntorch", **settings), drive)
    assert out.asnumpy().tolist() == [1.0, 1.0, 1.0, 0.0] and mem.asnumpy().tolist() == [2.5, 1.5, 0.5, 0.5]
    out, _ = record_states(nn.CubaLIFNode.like("snntorch", **settings, as_shipped=True), drive)
    assert out.asnumpy().tolist() == [1.0, 1.0, 0.0, 0.0]


def test_alpha_soft_reset_subtracts_the_threshold():
    settings = {"alpha": 0.8, "beta": 0.3, "threshold": 0.3, "reset_mechanism": "subtract"}
    x = np.array(INPUT)
    free = record_states(nn.AlphaNode.like("snntorch", **settings | {"reset_mechanism": "none"}), x)[1][2].asnumpy()
    out, (_, _, mem) = record_states(nn.AlphaNode.like("snntorch", **settings), x)
    first = int(np.argmax(out.asnumpy()))
    assert mem.asnumpy()[first] == pytest.approx(free[first])
    assert mem.asnumpy()[first + 1] == pytest.approx(free[first + 1] - 0.3)


def test_sinabs_reset_affects_only_spiking_neurons():
    settings = {"tau_mem": 2.0, "norm_input": False, "reset_fn": "MembraneReset", "reset_value": -0.2}
    out, (v,) = record_states(nn.LIFNode.like("sinabs", **settings), np.array([0.5, 1.0, 0.0]))
    kept = np.exp(-0.5)
    assert out.asnumpy().tolist() == [0.0, 1.0, 0.0]
    np.testing.assert_allclose(v.asnumpy(), [0.5, -0.2, -0.2 * kept])


def test_sinabs_current_decays_with_tau_syn():
    node = nn.ALIFNode.like("sinabs", tau_mem=2.0, tau_adapt=4.0, tau_syn=2.0)
    _, (i, v, _) = record_states(node, np.array([1.0, 0.0, 0.0]))
    kept = np.exp(-0.5)
    np.testing.assert_allclose(i.asnumpy(), kept ** np.arange(1, 4))
    assert v.asnumpy()[0] == pytest.approx((1.0 - kept) * kept)


# --- sinabs's ALIF, which passes no gradient through the comparison with its threshold --------------------------------


def test_sinabs_alif_fires_at_most_once_per_step_by_default():
    settings = {"tau_mem": 2.0, "tau_adapt": 4.0, "norm_input": False}
    strong = np.array([7.0])
    for spike_fn, count in (({}, 1.0), ({"spike_fn": "MultiSpike"}, 7.0), ({"spike_fn": 3}, 3.0)):
        out, _ = record_states(nn.ALIFNode.like("sinabs", **settings, **spike_fn), strong)
        assert out.asnumpy().tolist() == [count]


@pytest.mark.parametrize("spike_fn", ["SingleSpike", "MultiSpike", 2])
def test_adaptive_threshold_gets_no_gradient_from_the_comparison(spike_fn):
    """d s / d a is 0, and d s / d v is the surrogate with the width of the threshold. The reset is differentiated."""
    node = nn.ALIFNode.like("sinabs", tau_mem=2.0, tau_adapt=4.0, adapt_scale=1.5, spike_fn=spike_fn)
    v, a = Tensor(np.array([1.6])), Tensor(np.array([0.4]))  # h = 0.9704, threshold 1.6
    of_v, of_a = ops.grad(lambda v, a: node(Tensor(np.array([0.0])), v, a)[0].sum(), (0, 1))(v, a)
    kept, threshold = np.exp(-0.5), 1.0 + 1.5 * 0.4
    slope = np.exp(-abs(1.6 * kept - threshold) / (0.5 * threshold)) / (0.5 * threshold)
    assert of_v.item() == pytest.approx(kept * slope) and of_a.item() == 0.0
    fires = Tensor(np.array([3.0]))
    (of_a,) = ops.grad(lambda a: node(fires, fires, a)[1].sum(), (0,))(a)
    count = node(fires, fires, a)[0].item()
    assert of_a.item() == pytest.approx(-1.5 * count)  # v = h - s (1 + 1.5 a)


# --- unsupported parameters and neurons -------------------------------------------------------------------------------


@pytest.mark.parametrize(("framework", "name"), ABSENT)
def test_unsupported_parameters_name_an_alternative(framework, name):
    """For every preset without the parameter, and for neurons under the name of the framework or the library."""
    refusals = []
    for (neuron, known), function in PRESETS.items():
        if known.partition(".")[0] == framework and name not in inspect.signature(function).parameters:
            with pytest.raises(ArgumentError, match="but `like` does not take it") as refused:
                make_like(neuron, known, {name: 1})
            refusals.append(str(refused.value))
    with pytest.raises(ArgumentError) as refused:
        make_like("LIFNode", f"{framework}.{name}", {})
    assert f"there is no preset for {framework}'s {name}: " in str(refused.value)
    assert refusals and all(ABSENT[framework, name] in text for text in [*refusals, str(refused.value)])


def test_neuron_missing_in_a_framework_lists_available_ones():
    with pytest.raises(ArgumentError, match=r"LIFNode.like: no preset 'sinabs.ExpLeak' .* 'sinabs' has "):
        nn.LIFNode.like("sinabs.ExpLeak", tau_mem=2.0)
    with pytest.raises(ArgumentError, match=r"KLIFNode.like: .* 'spikingjelly'. 'norse' has .*, LINode.like"):
        nn.KLIFNode.like("Norse")


def test_neurons_without_a_single_step_form_raise():
    with pytest.raises(
        ArgumentError, match=r"GLIFNode.like: there is no preset for spikingjelly's GLIFNode: GatedLIFNode"
    ):
        nn.GLIFNode.like("SpikingJelly")
    with pytest.raises(ArgumentError, match=r"nn.SlidingPSN\(order, compare='>='\)"):
        nn.LIFNode.like("SpikingJelly.SlidingPSN")


WRONG = [
    ((nn.LIFNode, "norse"), {"method": "heaviside"}, 'method "heaviside" has no gradient in Norse either'),
    ((nn.LIFNode, "norse"), {"method": "logistic"}, 'method is "super", "triangle", "tanh", "circ" or "heavi_erfc"'),
    ((nn.LIFNode, "norse.LIFBox"), {"reset_method": "x"}, 'reset_method is "reset_value" or "reset_subtract"'),
    ((nn.LIFNode, "snntorch.Lapicque"), {}, "needs beta=..., or R=... and C=..."),
    ((nn.LIFNode, "snntorch.Lapicque"), {"R": 1.0}, "needs beta=..., or R=... and C=..."),
    ((nn.LIFNode, "snntorch.Lapicque"), {"beta": 0.9, "R": 1.0, "C": 1.0}, "pass at most two of the three"),
    ((nn.LIFNode, "snntorch.Lapicque"), {"beta": 0.2}, r"beta must be a number from 1 / e = 0.368 to 1, not 0.2"),
    ((nn.LIFNode, "snntorch"), {"beta": 0.9, "inhibition": True, "reset_delay": False}, "losers above the threshold"),
    ((nn.LIFNode, "snntorch"), {"beta": 0.9, "inhibition": True, "graded_spikes_factor": 2.0}, "snnTorch ignores"),
    (
        (nn.ALIFNode, "sinabs"),
        {"tau_mem": 2.0, "tau_adapt": 2.0, "spike_fn": 2, "surrogate_grad_fn": surrogate.Gaussian()},
        "surrogate_grad_fn needs spike_fn='SingleSpike'",
    ),
    (
        (nn.ALIFNode, "sinabs"),
        {"tau_mem": 2.0, "tau_adapt": 2.0, "tau_syn": 2.0, "as_shipped": True, "train_alphas": True},
        "cannot be combined with train_alphas",
    ),
    (
        (nn.LIFNode, "sinabs"),
        {"tau_mem": 2.0, "spike_threshold": np.array([1.0, 2.0]), "surrogate_grad_fn": surrogate.Gaussian()},
        "spike_threshold must be one number",
    ),
    ((nn.LIFNode, "sinabs"), {"tau_mem": 2.0, "min_v_mem": 2.0}, "min_v_mem is below spike_threshold, not 2.0"),
    ((nn.LIFNode, "sinabs"), {"tau_mem": 2.0, "min_v_mem": "low"}, "min_v_mem is a number"),
]


@pytest.mark.parametrize(("of", "settings", "message"), WRONG)
def test_invalid_settings_raise(of, settings, message):
    kind, framework = of
    with pytest.raises(ArgumentError, match=message):
        kind.like(framework, **settings)


def test_inhibition_acts_within_a_sample():
    node = nn.LIFNode.like("snntorch", beta=0.5, inhibition=True)
    x = np.array([[[1.5, 3.0, 0.2], [0.5, 0.4, 0.3]], [[0.9, 0.0, 0.2], [0.5, 2.0, 2.5]]])
    out, (mem,) = record_states(node, x)
    assert out.asnumpy().tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]]
    np.testing.assert_allclose(mem.asnumpy()[1, 0], [0.65, 0.5, 0.3])  # the inhibited neuron is reset too
    with pytest.raises(ShapeError, match=r"needs an input of shape \(B, N\), not \(3,\)"):
        record_states(node, x[0, :1])
