"""STDP: against a NumPy loop over pairs of spikes, and against traces by hand."""

import itertools
import math

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate
from snncell.errors import ArgumentError, ShapeError

PAIRINGS, BOUNDS = ("all", "nearest"), (None, "soft", "hard")
CASES = pytest.mark.parametrize(("pairing", "bounds"), list(itertools.product(PAIRINGS, BOUNDS)))
SETTINGS = {"tau_plus": 7.0, "tau_minus": 4.0, "a_plus": 0.2, "a_minus": 0.25, "w_min": -0.1, "w_max": 0.9}


def trains(steps=40, batch=1, inputs=3, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    pre, post = (rng.uniform(size=(steps, batch, n)) < 0.3 for n in (inputs, outputs))
    return pre.astype(np.float64), post.astype(np.float64), rng.uniform(0.2, 0.6, (outputs, inputs))


def by_pairs(pre, post, w, pairing, bounds, tau_plus, tau_minus, a_plus, a_minus, w_min, w_max):
    """Morrison et al. 2008 without traces: each pair of spikes changes the weight by its time difference."""
    steps, batch, _ = pre.shape
    w = w.copy()
    for t in range(steps):
        for j, i in np.ndindex(w.shape):
            rise = fall = 0.0
            for b in range(batch):
                before = [t - s for s in range(t) if pre[s, b, i]] if post[t, b, j] else []
                after = [t - s for s in range(t) if post[s, b, j]] if pre[t, b, i] else []
                if pairing == "nearest":
                    before, after = before[-1:], after[-1:]
                rise += sum(math.exp(-gap / tau_plus) for gap in before) / batch
                fall += sum(math.exp(-gap / tau_minus) for gap in after) / batch
            up, down = (
                (a_plus * (w_max - w[j, i]), a_minus * (w[j, i] - w_min)) if bounds == "soft" else (a_plus, a_minus)
            )
            w[j, i] += up * rise - down * fall
            if bounds == "hard":
                w[j, i] = min(max(w[j, i], w_min), w_max)
    return w


def learn_weights(rule, pre, post, w):
    """The weights after all steps."""
    begin = (w, *rule.init_state(pre[0], post[0]))
    return ops.scan(lambda state, now: (rule(*now, *state), None), begin, (pre, post))[0][0]


@CASES
@pytest.mark.parametrize("batch", [1, 3])
def test_stdp_equals_the_rule_of_spike_pairs(pairing, bounds, batch, run):
    pre, post, w = trains(batch=batch)
    rule = nn.STDP(pairing=pairing, bounds=bounds, **SETTINGS)
    found = run(lambda *args: learn_weights(rule, *args))(Tensor(pre), Tensor(post), Tensor(w)).asnumpy()
    np.testing.assert_allclose(found, by_pairs(pre, post, w, pairing, bounds, **SETTINGS), rtol=1e-10, atol=1e-12)
    assert np.abs(found - w).max() > 0.1
    inside = (found >= -0.1).all() and (found <= 0.9).all()
    assert bounds is None or inside


def test_weight_bounds_change_the_result():
    pre, post, w = trains()
    found = {
        b: learn_weights(nn.STDP(bounds=b, **SETTINGS), Tensor(pre), Tensor(post), Tensor(w)).asnumpy() for b in BOUNDS
    }
    assert (found[None] < -0.1).any() or (found[None] > 0.9).any()
    assert (found["hard"] == -0.1).any() or (found["hard"] == 0.9).any()


def window(gap, **settings):
    """The change of a weight of 0.5 by one pair of spikes, post `gap` steps after pre."""
    pre, post = np.zeros((30, 1, 1)), np.zeros((30, 1, 1))
    pre[15], post[15 + gap] = 1, 1
    return (
        learn_weights(nn.STDP(**SETTINGS | settings), Tensor(pre), Tensor(post), Tensor([[0.5]], "float64")).item()
        - 0.5
    )


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("gap", [-10, -3, -1, 0, 1, 3, 10])
def test_stdp_window_of_one_spike_pair(gap, pairing):
    expected = 0.0 if gap == 0 else 0.2 * math.exp(-gap / 7.0) if gap > 0 else -0.25 * math.exp(gap / 4.0)
    assert window(gap, pairing=pairing, bounds=None) == pytest.approx(expected, rel=1e-10, abs=1e-15)
    factor = 0.4 if gap > 0 else 0.6  # to w_max = 0.9, to w_min = -0.1
    assert window(gap, pairing=pairing, bounds="soft") == pytest.approx(expected * factor, rel=1e-10, abs=1e-15)


def test_spikes_of_other_dtypes_are_accepted():
    pre, post, w = trains()
    rule = nn.STDP(**SETTINGS)
    floats = learn_weights(
        rule, Tensor(pre).astype("float32"), Tensor(post).astype("float32"), Tensor(w).astype("float32")
    )
    bools = learn_weights(rule, Tensor(pre.astype(bool)), Tensor(post.astype(bool)), Tensor(w).astype("float32"))
    np.testing.assert_array_equal(floats.asnumpy(), bools.asnumpy())


# --- layers with STDP -------------------------------------------------------------------------------------------------


def layer(rule=None):
    neuron = nn.LIFNode(3.0, 0.8, decay_input=False, surrogate_function=surrogate.ATan())
    return nn.PlasticDense(3, 2, neuron, rule or nn.STDP(**SETTINGS), weight_init=Tensor(trains()[2]), dtype="float64")


def by_hand(net, x):
    """The layer and its rule, step by step, in NumPy."""
    w, v = net.weight.asnumpy().copy(), np.zeros((1, 2))
    spikes = []
    for t in range(len(x)):
        h = v - v / 3.0 + x[t] @ w.T
        spikes.append((h - 0.8 > 0).astype(np.float64))
        v = h - spikes[-1] * 0.8
        w = by_pairs(x[: t + 1], np.stack(spikes), net.weight.asnumpy(), "all", "hard", **SETTINGS)
    return np.stack(spikes), w


def test_layer_learns_while_it_runs(run):
    net, x = layer(), trains(steps=25)[0]
    spikes, weight = by_hand(net, x)
    assert 0.05 < spikes.mean() < 0.95
    before = net.weight.asnumpy().copy()
    found, (after, *_) = run(nn.MultiStep(net, return_states=True))(Tensor(x))
    np.testing.assert_array_equal(found.asnumpy(), spikes)
    np.testing.assert_allclose(after.asnumpy(), weight, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(net.weight.asnumpy(), before)  # the weights change only if the caller assigns them


@pytest.mark.compiled
def test_assigned_weights_are_kept_eager_and_jitted():
    slow = SETTINGS | {"a_plus": 0.02, "a_minus": 0.01}  # the weights do not reach their bounds
    eager, jitted, x = layer(nn.STDP(**slow)), layer(nn.STDP(**slow)), Tensor(trains(steps=25)[0])

    def learn(net):
        run = nn.MultiStep(net, return_states=True)

        def once(x):
            spikes, (weight, *_) = run(x)
            ops.assign(net.weight, weight)
            return spikes

        return once

    plain, compiled = learn(eager), snncell.jit(learn(jitted))
    for _ in range(3):
        before = eager.weight.asnumpy().copy()
        np.testing.assert_array_equal(plain(x).asnumpy(), compiled(x).asnumpy())
        np.testing.assert_allclose(eager.weight.asnumpy(), jitted.weight.asnumpy(), rtol=1e-12)
        assert (eager.weight.asnumpy() != before).any()


def test_stdp_weights_are_not_trainable():
    net = nn.PlasticDense(3, 2, nn.LIFNode(), nn.STDP())
    assert net.trainable_params() == [] and list(net.parameters_dict()) == ["weight"]
    assert ((net.weight.asnumpy() >= 0) & (net.weight.asnumpy() < 1)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.STDP(tau_plus=0.0), r"STDP: tau_plus is a number in .* not 0.0"),
        (lambda: nn.STDP(tau_minus=float("nan")), "STDP: tau_minus is a finite number, not nan"),
        (lambda: nn.STDP(a_plus="much"), "STDP: a_plus is a finite number, not 'much'"),
        (lambda: nn.STDP(pairing="some"), 'STDP: pairing is "all" or "nearest", not \'some\''),
        (lambda: nn.STDP(bounds="weak"), 'STDP: bounds is None, "soft" or "hard", not \'weak\''),
        (lambda: nn.STDP(w_min=1.0, w_max=0.0), "STDP: w_min must be below w_max, but they are 1.0 and 0.0"),
        (lambda: nn.PlasticDense(3, 2, 5, nn.STDP()), "PlasticDense: cell is a Cell, not 5"),
        (lambda: nn.PlasticDense(3, 2, nn.LIFNode(), None), "PlasticDense: rule is a Cell, not None"),
        (lambda: nn.PlasticDense(3, -2, nn.LIFNode(), nn.STDP()), "PlasticDense: out_channels is an integer"),
    ],
)
def test_invalid_settings_raise(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_transposed_weight_raises():
    rule, pre, post = nn.STDP(), ops.ones((1, 3)), ops.ones((1, 2))
    with pytest.raises(ShapeError, match=r"need a weight of shape \(2, 3\), .* as in Dense, not \(3, 2\)"):
        rule(pre, post, ops.ones((3, 2)), *rule.init_state(pre, post))
