"""Layers of other frameworks: random settings against the framework, golden values, and errors."""

import numpy as np
import pytest
from random_cases import seeds
from test_neurons_like import record_states
from test_peer_draws import close

from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.multistep import initial_states

REASON = "SpikingJelly is not installed: there is nothing to compare with"


@pytest.fixture
def jelly(torch):
    """SpikingJelly's layers and neurons."""
    layer = pytest.importorskip("spikingjelly.activation_based.layer", reason=REASON)
    return layer, pytest.importorskip("spikingjelly.activation_based.neuron", reason=REASON)


def compare(torch, theirs, mine, x, parameters, case):
    """Compare outputs, and gradients of the input and of pairs (ours, theirs) of Parameters."""
    weights = np.random.default_rng(1).standard_normal(x.shape)
    given = torch.tensor(x, requires_grad=True)
    y = theirs(given)
    (y * torch.tensor(weights)).sum().backward()
    close(mine(Tensor(x)).asnumpy(), y.detach().numpy(), case)
    loss, here = lambda x: (mine(x) * Tensor(weights)).sum(), tuple(p for p, _ in parameters)
    found, learned = ops.grad(loss, 0, here)(Tensor(x)) if here else (ops.grad(loss)(Tensor(x)), ())
    close(found.asnumpy(), given.grad.numpy(), case)
    for gradient, (_, there) in zip(learned, parameters, strict=True):
        close(gradient.asnumpy(), there.grad.numpy(), f"a Parameter of {case}")


def stepwise(cell):
    """A function of (T, ...) that calls a Cell for each step."""

    def steps(x):
        outputs, states = [], initial_states(cell, x[0])
        for t in range(len(x)):
            out, *states = cell(x[t], *states)
            outputs.append(out)
        return ops.stack(outputs, 0)

    return steps


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_synapse_filter_equals_spikingjelly(jelly, torch):
    for draw in seeds(5):
        rng = np.random.default_rng(draw)
        tau, learnable = float(np.float32(rng.uniform(1.05, 9.0))), bool(draw % 2)
        theirs = jelly[0].SynapseFilter(tau=tau, learnable=learnable, step_mode="m").double()
        mine = nn.SynapseFilter(tau, learnable, dtype="float64", convention="spikingjelly")
        assert mine.tau == pytest.approx(tau, rel=1e-6)
        x = (rng.random((int(rng.integers(1, 12)), 2, 3)) < 0.4).astype(np.float64)
        pairs = [(mine.w, theirs.w)] if learnable else []
        compare(torch, theirs, stepwise(mine), x, pairs, f"tau={tau}, learnable={learnable}")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_sliding_psn_equals_spikingjelly(jelly, torch):
    for draw in seeds(5):
        rng = np.random.default_rng(draw)
        order, steps = int(rng.integers(1, 6)), int(rng.integers(1, 9))
        theirs = jelly[1].SlidingPSN(k=order, exp_init=bool(draw % 2), step_mode="m")
        mine = nn.SlidingPSN(order, bool(draw % 2), compare=">=")
        if draw % 2:
            np.testing.assert_array_equal(mine.weight.asnumpy(), theirs.weight.detach().numpy())
        mine.weight.set_data(theirs.weight.detach().numpy())
        theirs.double()
        x = rng.normal(0.7, 1.0, (steps, 2, 3))
        pairs = [(mine.weight, theirs.weight), (mine.bias, theirs.bias)]
        compare(torch, theirs, mine, x, pairs, f"order {order} of {steps}")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
def test_temporal_effective_batch_norm_equals_spikingjelly(jelly, torch, training):
    for draw in seeds(5):
        rng = np.random.default_rng(draw)
        steps, features, places = int(rng.integers(2, 6)), int(rng.integers(1, 4)), [(), (3,), (2, 3)][draw % 3]
        kind = ("1d", "1d", "2d")[draw % 3]
        theirs = getattr(jelly[0], f"TemporalEffectiveBatchNorm{kind}")(steps, features, momentum=0.3).double()
        mine = nn.TemporalEffectiveBatchNorm(features, steps, momentum=0.7, dtype="float64")
        values = {name: rng.uniform(0.5, 1.5, shape) for name, shape in (("scale", steps), ("weight", features))}
        mine.scale.set_data(values["scale"])
        mine.gamma.set_data(values["weight"])
        with torch.no_grad():
            theirs.scale.copy_(torch.tensor(values["scale"]))
            theirs.weight.copy_(torch.tensor(values["weight"]))
        theirs.train(training)
        mine.set_train(training)
        x = rng.normal(0.5, 2.0, (steps, 3, features, *places))
        theirs(torch.tensor(x))  # so that the moving statistics differ from their initial values
        mine(Tensor(x))
        close(mine.moving_variance.asnumpy(), theirs.running_var.numpy(), f"moving variance, {x.shape}")
        pairs = [(mine.scale, theirs.scale), (mine.gamma, theirs.weight), (mine.beta, theirs.bias)]
        compare(torch, theirs, mine, x, pairs, f"{x.shape}")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_neu_norm_equals_spikingjelly(jelly, torch):
    for draw in seeds(5):
        rng = np.random.default_rng(draw)
        features, k, shared = int(rng.integers(1, 4)), float(np.float32(rng.uniform(0.1, 0.95))), bool(draw % 2)
        theirs = jelly[0].NeuNorm(features, 2, 3, k, shared, step_mode="m").double()
        mine = nn.NeuNorm(features, 2, 3, k, shared, Tensor(theirs.w.detach().numpy()), dtype="float64")
        x = (rng.random((4, 2, features, 2, 3)) < 0.4).astype(np.float64)
        compare(torch, theirs, stepwise(mine), x, [(mine.weight, theirs.w)], f"k={k}")


@pytest.mark.compiled
def test_layers_over_time_equal_single_steps(rng):
    spikes = Tensor((rng.random((5, 2, 3, 2, 2)) < 0.5).astype(np.float32))
    for cell in (nn.NeuNorm(3, 2, 2), nn.SynapseFilter(3.0, True, convention="spikingjelly")):
        layer = nn.MultiStep(cell)
        np.testing.assert_allclose(layer(spikes).asnumpy(), stepwise(cell)(spikes).asnumpy(), atol=1e-6)
        (weight,) = cell.trainable_params()
        mine = ops.grad(lambda x, f=layer: (f(x) * f(x)).sum(), 0, weight)(spikes)
        steps = stepwise(cell)
        other = ops.grad(lambda x, f=steps: (f(x) * f(x)).sum(), 0, weight)(spikes)
        for found, expected in zip(mine, other, strict=True):
            np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


# --- golden values ----------------------------------------------------------------------------------------------------


def test_synapse_does_not_decay_during_a_spike():
    """i = i - (1 - x) i / tau + x: 1 / 2 after a spike and a pause; after two spikes the first has not decayed."""
    layer = nn.SynapseFilter(2.0, convention="spikingjelly")
    out = stepwise(layer)(Tensor(np.array([1.0, 1.0, 0.0, 0.0, 1.0])))
    assert out.asnumpy().tolist() == [1.0, 2.0, 1.0, 0.5, 1.5]
    assert stepwise(nn.SynapseFilter(2.0))(Tensor(np.array([1.0, 1.0])))[1].item() == pytest.approx(1 + np.exp(-0.5))


def test_sliding_window_does_not_see_later_steps():
    layer = nn.SlidingPSN(order=3)
    x = np.array([0.9, 0.3, 0.1, 0.9, 0.0])
    h = np.convolve(x, [1.0, 0.5, 0.25])[:5] - 1.0
    assert layer(Tensor(x)).asnumpy().tolist() == (h > 0).astype(float).tolist()


@pytest.mark.parametrize("order", [3, 70])
def test_blocks_of_a_sliding_window_equal_one_convolution(rng, order):
    """Long sequences are computed in blocks of 64 steps, or of `order` steps if that is more."""
    layer, x = nn.SlidingPSN(order, exp_init=False), rng.normal(1.0, 1.0, (150, 2))
    with surrogate.smooth():
        primitive = layer.surrogate_function.primitive
        h = [np.convolve(x[:, n], layer.weight.asnumpy()[::-1])[:150] - 1.0 for n in range(2)]
        np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), primitive(Tensor(np.stack(h, 1))).asnumpy(), atol=1e-6)
        testing.check_grads(layer, Tensor(x))
    assert layer(Tensor(x[:, :0])).shape == (150, 0)


def test_neu_norm_equals_its_equations(rng):
    layer = nn.NeuNorm(2, 1, 1, k=0.5, weight_init=Tensor(np.array([[[1.0]], [[2.0]]])), dtype="float64")
    x = np.array([[1.0, 1.0], [0.0, 1.0]]).reshape((2, 1, 2, 1, 1))  # (T, B, C, H, W)
    out, (a,) = record_states(layer, x)
    assert a.asnumpy().ravel().tolist() == [0.25, 0.25]  # 0.5 / 4 of 2; then half of it, and 0.5 / 4 of 1
    assert out.asnumpy().reshape((2, 2)).tolist() == [[0.75, 0.5], [-0.25, 0.5]]


# --- errors -----------------------------------------------------------------------------------------------------------

WRONG = [
    (lambda: nn.SlidingPSN(0), ArgumentError, "SlidingPSN: order is a whole number of at least 1, .*not 0"),
    (lambda: nn.SlidingPSN(2)(ops.zeros((0, 2))), ShapeError, "SlidingPSN: x must have .* at least one step"),
    (lambda: nn.SynapseFilter(1.0, convention="spikingjelly"), ArgumentError, "needs tau above 1, not 1.0"),
    (
        lambda: nn.SynapseFilter(2.0, convention="x"),
        ArgumentError,
        'convention is "exact" or "spikingjelly", not \'x\'',
    ),
    (
        lambda: nn.SynapseFilter(2.0, scale_input=True, convention="spikingjelly"),
        ArgumentError,
        "does not support scale_input",
    ),
    (lambda: nn.NeuNorm(0, 2, 2), ArgumentError, "NeuNorm: num_features is an integer of at least 1, not 0"),
    (lambda: nn.NeuNorm(2, 2, 2, k=1.0), ArgumentError, r"NeuNorm: k is a finite number in \[0, 1\), not 1.0"),
    (
        lambda: nn.NeuNorm(2, 2, 2)(ops.zeros((1, 3, 2, 2)), ops.zeros((1, 1, 2, 2))),
        ShapeError,
        r"NeuNorm\(.*a step must be \(B, C, H, W\), but has shape \(1, 3, 2, 2\)",
    ),
    (lambda: nn.TemporalEffectiveBatchNorm(3, 0), ArgumentError, "steps is an integer of at least 1, not 0"),
    (
        lambda: nn.TemporalEffectiveBatchNorm(3, 4)(ops.zeros((5, 2, 3))),
        ShapeError,
        "the input has 5 steps, but the layer has scales for 4",
    ),
    (
        lambda: nn.WithSynapse(3),
        ArgumentError,
        r"WithSynapse: cell must be a neuron, an object such as nn.ALIFNode\(\)",
    ),
    (lambda: nn.WithSynapse(nn.ALIFNode(), 1.5), ArgumentError, "WithSynapse: alpha .*, not 1.5"),
    (lambda: nn.WithSynapse(nn.ALIFNode(), order="x"), ArgumentError, 'WithSynapse: order is "decay jump read", '),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()
