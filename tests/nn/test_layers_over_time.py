"""Layers over time and layers of spikes, against NumPy loops: values, gradients, eager and jitted, errors."""

import itertools

import numpy as np
import pytest
from against_torch import filled

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.common.initializer import Initializer
from snncell.errors import ArgumentError, CallError, DTypeError, ShapeError

T, B, C = 6, 4, 3

# --- the oracle: float64, one number after the other -----------------------------------------------------------------


def normalise(x, layer, per_step):
    """tdBN (or BNTT, with per_step) of (T, B, C, ...) in training, and the updated moving statistics."""
    gain = 1.0 if per_step else layer.alpha * layer.v_threshold
    gamma, beta = layer.gamma.asnumpy(), layer.beta.asnumpy()
    mean, var = layer.moving_mean.asnumpy().copy(), layer.moving_variance.asnumpy().copy()
    y = np.zeros_like(x)
    for c in range(x.shape[2]):
        for steps in [[t] for t in range(len(x))] if per_step else [list(range(len(x)))]:
            place = (steps[0], c) if per_step else c
            values = x[steps, :, c].ravel()
            m = sum(values) / len(values)
            v = sum((values - m) ** 2) / len(values)
            y[steps, :, c] = gain * gamma[place] * (x[steps, :, c] - m) / np.sqrt(v + layer.eps) + beta[place]
            mean[place] = layer.momentum * mean[place] + (1 - layer.momentum) * m
            unbiased = v * len(values) / (len(values) - 1)
            var[place] = layer.momentum * var[place] + (1 - layer.momentum) * unbiased
    return y, mean, var


def delay_by_loop(x, delays):
    y = np.zeros_like(x)
    for t, c in np.ndindex(len(x), x.shape[2]):
        whole = int(np.floor(delays[c]))
        share = delays[c] - whole
        if t - whole >= 0:
            y[t, :, c] += (1 - share) * x[t - whole, :, c]
        if t - whole - 1 >= 0:
            y[t, :, c] += share * x[t - whole - 1, :, c]
    return y


def filter_by_loop(x, tau, scale):
    y, i = np.zeros_like(x), np.zeros_like(x[0])
    d = np.exp(-1 / np.asarray(tau))
    for t in range(len(x)):
        i = d * i + (x[t] * (1 - d) if scale else x[t])
        y[t] = i
    return y


def winners_by_loop(x, k):
    """The k largest elements of the last axis. Ties go to the first one."""
    y = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        for n in sorted(range(x.shape[-1]), key=lambda n: (-x[place][n], n))[:k]:
            y[(*place, n)] = x[(*place, n)]
    return y


def join_by_loop(connect):
    return {"ADD": lambda a, s: a + s, "AND": lambda a, s: a * s, "IAND": lambda a, s: (1 - a) * s}[connect]


# --- values and gradients --------------------------------------------------------------------------------------------

SHAPES = {"N": (T, B, C), "C L": (T, B, C, 5), "C H W": (T, B, C, 2, 2)}


def case(name, make, expected, shape="N", differentiable=True):
    return pytest.param(make, expected, SHAPES[shape], differentiable, id=f"{name} {shape}")


def delay(values=(0.3, 1.75, 2.5)):
    return nn.AxonalDelay(C, 3, Tensor(np.array(values)), dtype="float64")


TAUS = np.array([0.5, 2.0, 30.0])
SQUARE = Tensor(np.random.default_rng(5).normal(size=(C, C)))


def sew(connect):
    return nn.SEWBlock(nn.Dense(C, C, SQUARE, "zeros", dtype="float64"), connect)


CASES = [
    *[case("AxonalDelay", delay, lambda x: delay_by_loop(x, [0.3, 1.75, 2.5]), shape) for shape in SHAPES],
    case("AxonalDelay whole", lambda: delay((0.0, 2.0, 3.0)), lambda x: delay_by_loop(x, [0.0, 2.0, 3.0])),
    *[
        case(
            f"SynapseFilter learnable={learnable} scale={scale} tau={tau}",
            lambda t=tau, w=learnable, s=scale: nn.MultiStep(nn.SynapseFilter(t, w, s, dtype="float64")),
            lambda x, t=tau, s=scale: filter_by_loop(x, t, s),
        )
        for learnable in (False, True)
        for scale in (False, True)
        for tau in (2.0, TAUS)
    ],
    *[
        case(f"WinnerTakeAll({k})", lambda k=k: nn.WinnerTakeAll(k), lambda x, k=k: winners_by_loop(x, k))
        for k in (1, 2, 3)
    ],
    case("WinnerTakeAll of channels", lambda: nn.WinnerTakeAll(1, 2), lambda x: channels(x), "C H W"),
    *[
        case(f"SEWBlock {g}", lambda g=g: sew(g), lambda x, g=g: join_by_loop(g)(x @ SQUARE.asnumpy().T, x))
        for g in ("ADD", "AND", "IAND")
    ],
    case(
        "SEWBlock shortcut",
        lambda: nn.SEWBlock(nn.ReLU(), "AND", nn.Threshold(0.5, 0.0)),
        lambda x: np.maximum(x, 0) * np.where(x > 0.5, x, 0),
    ),
]


def channels(x):
    return np.moveaxis(winners_by_loop(np.moveaxis(x, 2, -1), 1), -1, 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("make", "expected", "shape", "differentiable"), CASES)
def test_layers_equal_loops_and_gradients_agree_with_differences(rng, run, make, expected, shape, differentiable):
    layer, x = make(), rng.normal(size=shape)
    np.testing.assert_allclose(run(layer)(Tensor(x)).asnumpy(), expected(x), rtol=1e-12, atol=1e-14)
    # Outside of its range the gradient of a delay is 1 by design, unlike finite differences.
    testing.check_grads(run(layer), Tensor(x), weights=() if isinstance(layer, nn.AxonalDelay) else None)


NORMS = {
    "tdBN": lambda: nn.ThresholdBatchNorm(C, 0.5, 0.7, eps=1e-3, momentum=0.8, dtype="float64"),
    "BNTT": lambda: nn.BatchNormThroughTime(C, T, eps=1e-3, momentum=0.8, dtype="float64"),
    "BNTT with beta": lambda: nn.BatchNormThroughTime(C, T, True, eps=1e-3, momentum=0.8, dtype="float64"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NORMS)
def test_normalisation_equals_loops_in_training_and_prediction(rng, run, name, shape):
    layer, x = filled(NORMS[name](), rng), rng.normal(2, 3, SHAPES[shape])
    per_step = "BNTT" in name
    expected, mean, var = normalise(x, layer, per_step)
    layer.set_train()
    np.testing.assert_allclose(run(layer)(Tensor(x)).asnumpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), var, rtol=1e-12)
    layer.set_train(False)
    spread = (slice(None) if per_step else None, None, slice(None), *(None,) * (x.ndim - 3))
    gain = 1.0 if per_step else 0.35
    gamma, beta = layer.gamma.asnumpy()[spread], layer.beta.asnumpy()[spread]
    predicted = gain * gamma * (x - mean[spread]) / np.sqrt(var[spread] + 1e-3) + beta
    np.testing.assert_allclose(run(layer)(Tensor(x)).asnumpy(), predicted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        layer.moving_mean.asnumpy(), mean, rtol=1e-12
    )  # prediction does not update the moving statistics


@pytest.mark.parametrize("name", NORMS)
def test_normalisation_gradients_agree_with_finite_differences(rng, name):
    layer, x = filled(NORMS[name](), rng), Tensor(rng.normal(2, 3, SHAPES["N"]))
    layer.set_train()
    testing.check_grads(layer, x)
    weights = layer.trainable_params()
    assert [p.name for p in weights] == (["gamma"] if name == "BNTT" else ["gamma", "beta"])
    dout = rng.normal(size=x.shape)
    _, pull = ops.vjp(layer, x, weights=weights)
    for parameter, found in zip(weights, pull(Tensor(dout))[1], strict=True):
        start, direction = parameter.asnumpy().copy(), rng.normal(size=parameter.shape)
        sides = []
        for sign in (1, -1):
            parameter.set_data(Tensor(start + sign * 1e-6 * direction))
            sides.append((layer(x).asnumpy() * dout).sum())
        parameter.set_data(Tensor(start))
        assert (found.asnumpy() * direction).sum() == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6)


def test_tdbn_scales_currents_to_the_threshold(rng):
    layer = nn.ThresholdBatchNorm(C, v_threshold=0.5)
    layer.set_train()
    out = layer(Tensor(rng.normal(7, 20, (20, 30, C)).astype(np.float32))).asnumpy()
    np.testing.assert_allclose(out.std((0, 1)), 0.5, rtol=1e-4)


def test_bntt_accepts_shorter_sequences_only_in_prediction(rng):
    layer, x = filled(NORMS["BNTT"](), rng), Tensor(rng.normal(size=(T, B, C)))
    np.testing.assert_array_equal(layer(x[:2]).asnumpy(), layer(x).asnumpy()[:2])
    layer.set_train()
    own = nn.BatchNormThroughTime(C, T, use_batch_statistics=True)
    for normalises in (layer, own):
        with pytest.raises(ShapeError, match=r"has 2 steps, but the layer has statistics for 6.*steps=2"):
            normalises(x[:2])


@pytest.mark.peer
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["tdBN", "BNTT"])
def test_normalisation_equals_spikingjelly(torch, rng, kind, training):
    reason = "SpikingJelly is not installed: there is nothing to compare with"
    layers = pytest.importorskip("spikingjelly.activation_based.layer", reason=reason)
    x, dout = rng.normal(1, 2, SHAPES["C H W"]), rng.normal(size=SHAPES["C H W"])
    if kind == "tdBN":
        mine = nn.ThresholdBatchNorm(C, 0.5, 0.7, momentum=0.9, dtype="float64")
        theirs = layers.ThresholdDependentBatchNorm2d(0.7, 0.5, C).double()
        torch.nn.init.constant_(theirs.weight, 0.35)  # which it has in float32: alpha times the threshold
        parts = [(theirs, ...)]
    else:
        mine = nn.BatchNormThroughTime(C, T, momentum=0.9, dtype="float64")
        theirs = layers.BatchNormThroughTime2d(T, C, step_mode="m").double()
        parts = [(part, t) for t, part in enumerate(theirs.bn_list)]
    mine.set_train(training)
    theirs.train(training)
    for _ in range(2):  # the second call uses the statistics that the first one updated
        given = torch.tensor(x, requires_grad=True)
        out = theirs(given)
        out.backward(torch.tensor(dout))
        if kind == "BNTT":
            theirs.reset()
        found, pull = ops.vjp(mine, Tensor(x))
        np.testing.assert_allclose(found.asnumpy(), out.detach().numpy(), rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(pull(Tensor(dout))[0].asnumpy(), given.grad.numpy(), rtol=1e-9, atol=1e-10)
    for part, place in parts:
        np.testing.assert_allclose(mine.moving_mean.asnumpy()[place], part.running_mean.numpy(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mine.moving_variance.asnumpy()[place], part.running_var.numpy(), rtol=1e-9)


# --- delays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delays", [(0.3, 1.75, 2.5), (0.0, 1.0, 2.0)], ids=["between", "whole"])
def test_delay_gradient_is_the_difference_of_neighbouring_steps(rng, run, delays):
    layer, x, dout = delay(delays), rng.normal(size=(T, B, C)), rng.normal(size=(T, B, C))
    found = run(lambda x: ops.vjp(layer, x, weights=layer.delay)[1](Tensor(dout))[1])(Tensor(x))
    ahead = [d + 1e-6 for d in delays]  # the right-hand derivative, at whole steps
    expected = [
        ((delay_by_loop(x, ahead) - delay_by_loop(x, delays)) * dout)[:, :, c].sum() / 1e-6 for c in range(C)
    ]  # linear in between, so one side is exact
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-7)


def test_integer_delay_shifts_spikes_unchanged(rng):
    spikes = (rng.uniform(size=(T, B, C)) < 0.3).astype(np.float32)
    out = nn.AxonalDelay(C, 3, Tensor([0.0, 1.0, 3.0]))(Tensor(spikes)).asnumpy()
    for c, d in enumerate((0, 1, 3)):
        np.testing.assert_array_equal(out[d:, :, c], spikes[: T - d, :, c])
        assert not out[:d, :, c].any()


@pytest.mark.parametrize(("out_of_range", "edge"), [(-0.75, 0.0), (4.5, 3.0)])
def test_delay_out_of_range_is_clamped_and_can_return(rng, out_of_range, edge):
    layer, x = delay((edge,) * C), Tensor(rng.normal(size=(T, B, C)))
    at_edge = ops.value_and_grad(layer, None, layer.delay)(x)
    layer.delay.set_data(Tensor(np.full(C, out_of_range)))
    beyond = ops.value_and_grad(layer, None, layer.delay)(x)
    for a, b in zip(at_edge, beyond, strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    assert at_edge[1].asnumpy().all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64"])
@pytest.mark.parametrize("name", ["delay", "winners"])
def test_integer_and_boolean_spikes_are_accepted(rng, run, name, dtype):
    layer = nn.AxonalDelay(C, 3, Tensor([0.5, 1.25, 3.0])) if name == "delay" else nn.WinnerTakeAll(2)
    spikes = (rng.uniform(size=(T, B, C)) < 0.6).astype(dtype)
    expected = run(layer)(Tensor(spikes.astype(np.float32))).asnumpy()
    np.testing.assert_array_equal(run(layer)(Tensor(spikes)).asnumpy(), expected)


def test_initial_delays_cover_the_range_and_can_be_fixed():
    start = nn.AxonalDelay(200, 5).delay.asnumpy()
    assert start.min() >= 0 and start.max() <= 5 and 2 < start.mean() < 3 and start.dtype == np.float32
    assert nn.AxonalDelay(2, 5, 1.0, learnable=False).trainable_params() == []


def test_delays_learn_the_target_spike_time():
    layer = nn.AxonalDelay(2, 6, 1.0)
    x, y = np.zeros((8, 1, 2), np.float32), np.zeros((8, 1, 2), np.float32)
    x[:3], y[2:5, :, 0], y[3:6, :, 1] = 1, 1, 1
    optimiser = nn.Adam([layer.delay], 0.1)
    step = ops.grad(lambda: nn.MSELoss()(layer(Tensor(x)), Tensor(y)), None, layer.delay)
    for _ in range(100):
        optimiser(step())
    np.testing.assert_allclose(layer.delay.asnumpy(), [2, 3], atol=0.1)


# --- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["elements", "channels"])
def test_dropout_mask_is_shared_by_all_steps(run, kind):
    layer = nn.TimeFixedDropout(p=0.25) if kind == "elements" else nn.TimeFixedDropout2d(0.25)
    x = ops.ones((T, 40, 20, 3, 2))
    np.testing.assert_array_equal(layer(x).asnumpy(), 1)  # prediction
    layer.set_train()
    out, found = run(lambda x: ops.value_and_grad(layer)(x))(x)
    mask = out.asnumpy()
    np.testing.assert_array_equal(found.asnumpy(), mask)
    assert (mask == mask[0]).all() and set(np.unique(mask)) == {0.0, np.float32(1 / 0.75)}
    same_in_a_channel = (mask == mask[..., :1, :1]).all()
    assert same_in_a_channel == (kind == "channels")
    assert (mask[0, :, :, 0, 0] == 0).mean() == pytest.approx(0.25, abs=4 * 0.433 / np.sqrt(800))
    assert (run(layer)(x).asnumpy() != mask).any()  # a new mask in each call


# --- kernels and learning --------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("learnable", [False, True])
def test_synapse_compiles_to_one_kernel(learnable):
    net = nn.MultiStep(nn.SynapseFilter(3.0, learnable))
    x = ops.ones((T, B, C))
    assert "1 loop over time" in snncell.explain(net, x, detail="launches")
    gradients = ops.grad(lambda x: ops.square(net(x)), 0, net.trainable_params() or None)
    report = snncell.explain(gradients, x, detail="launches")
    assert "2 loops over time" in report and report.count("one kernel") == 2, report


@pytest.mark.parametrize("tau", [0.05, 1.0, 20.0, 1e6, np.array([3.0, 700.0])], ids=str)
def test_learnable_time_constant_has_its_initial_value(tau):
    for dtype, rtol in (("float32", 1e-4), ("float64", 1e-9)):
        np.testing.assert_allclose(
            nn.SynapseFilter(tau, False, dtype=dtype).tau, tau, rtol=max(rtol, 3e-3 * (dtype == "float32"))
        )
        if dtype == "float64":
            np.testing.assert_allclose(nn.SynapseFilter(tau, True, dtype=dtype).tau, tau, rtol=1e-7)


def test_time_constant_converges_to_the_target():
    spikes = (np.random.default_rng(2).uniform(size=(30, 8, 1)) < 0.3).astype(np.float32)
    target = Tensor(filter_by_loop(spikes, 5.0, False).astype(np.float32))
    layer = nn.SynapseFilter(2.0, learnable=True)
    net, optimiser = nn.MultiStep(layer), nn.Adam(layer.trainable_params(), 0.1)
    step = ops.grad(lambda: nn.MSELoss()(net(Tensor(spikes)), target), None, [layer.w])
    for _ in range(150):
        optimiser(step())
    assert layer.tau == pytest.approx(5.0, rel=0.01)


def test_exactly_k_winners_among_equal_inputs():
    out = nn.WinnerTakeAll(2)(ops.ones((T, B, 5))).asnumpy()
    np.testing.assert_array_equal(out, np.broadcast_to([1, 1, 0, 0, 0], out.shape))


@pytest.mark.parametrize("straight_through", [False, True])
def test_infinite_inputs_can_win(run, straight_through):
    inf = np.inf
    x = Tensor([[-inf, 2.0, -inf, -inf], [-inf, -inf, -inf, -inf], [1.0, inf, -inf, 3.0]])
    out, found = run(ops.value_and_grad(nn.WinnerTakeAll(2, straight_through=straight_through)))(x)
    expected = [[-inf, 2.0, 0.0, 0.0], [-inf, -inf, 0.0, 0.0], [0.0, inf, 0.0, 3.0]]
    np.testing.assert_array_equal(out.asnumpy(), expected)
    assert np.isfinite(found.asnumpy()).all()


def test_straight_through_winners_pass_the_whole_gradient(rng, run):
    x = Tensor(rng.normal(size=(T, B, 5)))
    layer = nn.WinnerTakeAll(2, straight_through=True)
    out, found = run(lambda x: ops.value_and_grad(layer)(x))(x)
    np.testing.assert_array_equal(out.asnumpy(), winners_by_loop(x.asnumpy(), 2))
    np.testing.assert_array_equal(found.asnumpy(), 1)


@pytest.mark.parametrize("connect", ["ADD", "IAND"])
def test_silent_residual_branch_is_the_identity(rng, connect):
    spikes = Tensor((rng.uniform(size=(T, B, C)) < 0.5).astype(np.float32))
    block = nn.SEWBlock(nn.SequentialCell(nn.Dense(C, C, "zeros", "zeros"), nn.MultiStep(nn.LIFNode())), connect)
    np.testing.assert_array_equal(block(spikes).asnumpy(), spikes.asnumpy())


def test_sum_pooling_keeps_every_spike(rng, run):
    events = rng.integers(0, 3, (2, 3, 4, 6)).astype(np.float32)
    out = run(nn.SumPool2d(2, 2))(Tensor(events)).asnumpy()
    np.testing.assert_array_equal(out, events.reshape(2, 3, 2, 2, 3, 2).sum((3, 5)))
    assert nn.SumPool2d(3, 2, "same")(Tensor(events)).shape == (2, 3, 2, 3)
    padded = nn.SumPool2d(2, 2, "pad", 1)(Tensor(events)).asnumpy()
    assert padded.shape == (2, 3, 3, 4) and padded.sum() == events.sum()
    np.testing.assert_array_equal(padded[:, :, 0, 0], events[:, :, 0, 0])


class Bad(Initializer):
    def __call__(self, shape):
        return np.full(shape, 9.0)


X = ops.ones((T, B, C))
REFUSED = [
    (lambda: nn.ThresholdBatchNorm(C)(ops.ones((B, C))), ShapeError, r"ThresholdBatchNorm\(num_f.*\(4, 3\).*axis 2"),
    (lambda: nn.ThresholdBatchNorm(2)(X), ShapeError, "2 channels on axis 2"),
    (lambda: nn.ThresholdBatchNorm(C, 0.0), ArgumentError, "v_threshold is a finite number above 0, not 0.0"),
    (lambda: nn.ThresholdBatchNorm(C, alpha=-1), ArgumentError, "alpha is a finite number above 0, not -1"),
    (lambda: nn.BatchNormThroughTime(C, 0), ArgumentError, "steps is an integer of at least 1, not 0"),
    (lambda: nn.BatchNormThroughTime(C, 2)(X), ShapeError, "has 6 steps, but the layer has statistics for 2.*steps=6"),
    (lambda: nn.BatchNormThroughTime(C, T).set_train()(X[:, :1]), ShapeError, "one value per channel, but a variance"),
    (lambda: nn.TimeFixedDropout(p=0.5).set_train()(ops.ones(3)), ShapeError, r"x must be \(T, B, \.\.\.\), but"),
    (
        lambda: nn.TimeFixedDropout2d().set_train()(X[0]),
        ShapeError,
        r"x must be \(T, B, C, \.\.\.\), but has shape \(4, 3\)",
    ),
    (lambda: nn.TimeFixedDropout2d(1.5), ArgumentError, r"TimeFixedDropout2d: p is a finite number in \[0, 1\]"),
    (lambda: nn.AxonalDelay(C, 0), ArgumentError, "max_delay is an integer of at least 1"),
    (lambda: nn.AxonalDelay(C, 3, 3.5), ArgumentError, r"delays must be in \[0, max_delay=3\].*3.5 to 3.5"),
    (lambda: nn.AxonalDelay(C, 3, Bad()), ArgumentError, "delay_init has values from 9 to 9"),
    (
        lambda: nn.AxonalDelay(C, 3, float("nan")),
        ArgumentError,
        "AxonalDelay: delay_init is a number, a Tensor, an Initializer or its name .* not nan",
    ),
    (
        lambda: nn.AxonalDelay(C, 3)(ops.ones((T, B, 2))),
        ShapeError,
        r"must be \(T, B, 3, \.\.\.\), with the channels on axis 2",
    ),
    (lambda: nn.SynapseFilter(0.0), ArgumentError, "tau must be a time constant above 0, in steps, not 0.0"),
    (lambda: nn.SynapseFilter([1.0, -2.0]), ArgumentError, "time constant above 0"),
    (lambda: nn.SynapseFilter(float("inf")), ArgumentError, "time constant above 0"),
    (lambda: nn.SynapseFilter("fast"), ArgumentError, "tau is a number, a Tensor, .* not 'fast'"),
    (lambda: nn.WinnerTakeAll(0), ArgumentError, "k is an integer of at least 1"),
    (lambda: nn.WinnerTakeAll(4)(X), ShapeError, r"input of shape \(6, 4, 3\) has fewer than 4 elements along axis -1"),
    (lambda: nn.WinnerTakeAll(1, 3)(X), ShapeError, "along axis 3"),
    (lambda: nn.SEWBlock(nn.ReLU(), "XOR"), ArgumentError, 'connect is "ADD", "AND" or "IAND", not \'XOR\''),
    (lambda: nn.SEWBlock(abs), ArgumentError, "branch is a Cell, not <built-in"),
    (lambda: nn.SEWBlock(nn.ReLU(), "ADD", 1), ArgumentError, "shortcut is a Cell, not 1"),
    (lambda: nn.SEWBlock(nn.Dense(3, 2))(X), ShapeError, r"\(6, 4, 2\), which does not fit \(6, 4, 3\) of x; pass a"),
    (lambda: nn.SEWBlock(nn.ReLU(), shortcut=nn.Dense(3, 2))(X), ShapeError, r"\(6, 4, 2\) of the shortcut"),
    (lambda: nn.SumPool2d(2, 1)(X), ShapeError, r"SumPool2d.*not \(6, 4, 3\). Add the missing axis"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_invalid_arguments_raise(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# --- Stateful --------------------------------------------------------------------------------------------------------


def currents(steps=8, batch=2):
    return Tensor(np.random.default_rng(1).uniform(0, 1.2, (steps, batch, 4)).astype(np.float32))


def lif():
    return nn.LIFNode(2.5, decay_input=False, v_reset=0.1, reset="value")


def adaptive():
    class Adaptive(nn.Cell):
        """Two states, and no init_state."""

        def construct(self, x, v, a):
            h = v * 0.5 + x
            s = (h > 1.0 + a).astype(x.dtype)
            return s, h - s, a * 0.9 + s * 0.1

    return Adaptive()


@pytest.mark.parametrize("make", [lif, adaptive])
@pytest.mark.parametrize("cuts", [(3, 5), (1, 1, 6), "steps"], ids=str)
def test_chunked_stream_equals_the_whole_sequence(run, make, cuts):
    x = currents()
    whole, states = nn.MultiStep(make(), return_states=True)(x)
    if cuts == "steps":
        net = nn.Stateful(make())
        call = run(net)
        out = np.stack([call(now).asnumpy() for now in x])
    else:
        net = nn.Stateful(nn.MultiStep(make()))
        call, ends = run(net), np.cumsum((0, *cuts))
        out = np.concatenate([call(x[a:b]).asnumpy() for a, b in itertools.pairwise(ends)])
    np.testing.assert_array_equal(out, whole.asnumpy())
    assert out.any() and not out.all()
    for kept, last in zip(net.states, states, strict=True):
        np.testing.assert_array_equal(kept.asnumpy(), last.asnumpy())


@pytest.mark.parametrize("returns", [False, True])
def test_stateful_runs_a_subclass_of_multi_step(run, returns):
    class Halved(nn.MultiStep):
        """A MultiStep that returns half."""

        def construct(self, x, *states):
            out = super().construct(x, *states)
            return (out[0] * 0.5, out[1]) if self.return_states else out * 0.5

    inner, heard = Halved(lif(), return_states=returns), []
    inner.register_forward_hook(lambda cell, inputs, out: heard.append(type(out)))
    inner.recompute()
    inner.set_train()
    net = nn.Stateful(inner)
    assert net.cell is inner and inner.training
    x = currents()
    whole = nn.MultiStep(lif())(x).asnumpy() * 0.5
    call = run(net)
    np.testing.assert_array_equal(np.concatenate([call(x[:3]).asnumpy(), call(x[3:]).asnumpy()]), whole)
    assert set(heard) == {tuple if returns else Tensor}


def test_stateful_rejects_a_multi_step_with_hidden_states():
    class Other(nn.MultiStep):
        """A MultiStep that does not run its neuron."""

        def construct(self, x, *states):
            return x

    with pytest.raises(ArgumentError, match=r"Stateful: the construct of Other does not call MultiStep's"):
        nn.Stateful(Other(lif()))(currents())


def test_reset_restores_the_initial_states(run):
    x, net = currents(), nn.Stateful(nn.MultiStep(nn.IFNode(v_reset=0.1)))
    assert net.states == ()
    net.reset()  # no states yet
    call = run(net)
    first = call(x).asnumpy()
    assert (call(x).asnumpy() != first).any()
    net.reset()
    np.testing.assert_array_equal(net.states[0].asnumpy(), np.float32(0.1))
    np.testing.assert_array_equal(call(x).asnumpy(), first)


@pytest.mark.compiled
def test_steps_states_and_reset_inside_one_jitted_function():
    x, net = currents(), nn.Stateful(lif())

    def twice(x):
        net.reset()
        first = ops.stack([net(now) for now in x])
        net.reset()
        return first, ops.stack([net(now) for now in x])

    expected, again = twice(x)
    np.testing.assert_array_equal(again.asnumpy(), expected.asnumpy())
    last = net.states[0].asnumpy()
    net.reset()
    for found in snncell.jit(twice)(x):
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())
    np.testing.assert_array_equal(net.states[0].asnumpy(), last)


def test_reset_of_a_jitted_stream_does_not_retrace():
    net, traced = nn.Stateful(nn.MultiStep(lif())), []
    call = snncell.jit(lambda x: (traced.append(1), net(x))[1])
    for _ in range(12):
        call(currents())
        net.reset()
    assert len(traced) == 1


def test_gradients_stop_between_calls(run):
    x, net = currents(), nn.Stateful(nn.MultiStep(nn.IFNode(fire=False)))

    def last_of_two(x):
        net.reset()
        net(x[:4])
        return net(x[4:])[-1]

    found = run(lambda x: ops.grad(last_of_two)(x))(x).asnumpy()
    np.testing.assert_array_equal(found, np.broadcast_to(np.repeat([0, 1], 4)[:, None, None], (8, 2, 4)))


@pytest.mark.compiled
def test_tape_does_not_grow_over_calls():
    import tracemalloc

    net = nn.Stateful(nn.MultiStep(nn.LIFNode()))
    gradient, x = ops.grad(net), currents(50, 20)
    sizes = []
    tracemalloc.start()
    for _ in range(4):
        for _ in range(5):
            gradient(x)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] - sizes[0] < x.asnumpy().nbytes


def test_states_are_not_saved_or_copied(tmp_path):
    import copy

    net = nn.SequentialCell(nn.Dense(4, 4), nn.Stateful(nn.MultiStep(lif())))
    net(currents())
    assert list(net.parameters_dict()) == ["0.weight", "0.bias"] and len(net[1].states) == 1
    snncell.save_checkpoint(net, tmp_path / "net")
    assert list(snncell.load_checkpoint(tmp_path / "net", net)) == ["0.bias", "0.weight"]
    assert copy.deepcopy(net)[1].states == () and len(net[1].states) == 1


def test_two_stateful_cells_have_separate_states():
    a, b, x = nn.Stateful(nn.MultiStep(lif())), nn.Stateful(nn.MultiStep(lif())), currents()
    a(x)
    b(x)
    kept = a.states[0].asnumpy().copy()
    b.reset()
    np.testing.assert_array_equal(a.states[0].asnumpy(), kept)


def test_changed_batch_size_raises_until_reset(run):
    net = nn.Stateful(nn.MultiStep(lif()))
    call = run(net)
    call(currents(batch=2))
    message = r"Stateful\(LIFNode\): has states for steps of shape \(2, 4\).*gets \(3, 4\).*reset\(\).*drop_last=True"
    with pytest.raises(ShapeError, match=message):
        call(currents(batch=3))
    with pytest.raises(ShapeError, match=r"Float32, but gets .* Float64"):
        call(currents().astype("float64"))
    net.reset()
    fresh = call(currents(batch=3)).asnumpy()
    np.testing.assert_array_equal(fresh, nn.MultiStep(lif())(currents(batch=3)).asnumpy())
    with pytest.raises(ShapeError, match="has states for steps of shape"):
        call(currents(batch=2))  # compiled earlier, for states that no longer exist


def test_changed_batch_size_in_a_jitted_function_raises():
    net = nn.Stateful(nn.MultiStep(lif()))
    with pytest.raises(ShapeError, match="has states for steps of shape"):
        snncell.jit(lambda a, b: (net(a), net(b)))(currents(batch=2), currents(batch=3))


def test_stateful_rejects_cells_that_are_not_neurons():
    for wrong in (lambda x: x, nn.Stateful(lif()), 3):
        with pytest.raises(ArgumentError, match="Stateful: cell must be a neuron, or a MultiStep of one, not a"):
            nn.Stateful(wrong)
    with pytest.raises(CallError, match="Stateful: x is a Tensor, not 3"):
        nn.Stateful(lif())(3)

    class NoState(nn.Cell):
        def construct(self, x, v):
            return x

    with pytest.raises(
        ArgumentError, match=r"NoState.construct takes 1 .* return \(output, \*states\).*returned a Tensor"
    ):
        nn.Stateful(NoState())(currents()[0])

    class Widens(nn.Cell):
        def construct(self, x, v):
            return x, v.astype("float64")

    with pytest.raises(DTypeError, match="Stateful: state 0 of Widens"):
        nn.Stateful(Widens())(currents()[0])


# --- the phase of a Cell ---------------------------------------------------------------------------------------------


def test_returning_to_a_training_phase_does_not_retrace():
    layer, traced = nn.BatchNorm1d(3), []
    train = snncell.jit(lambda x: (traced.append("train"), layer(x))[1])
    test = snncell.jit(lambda x: (traced.append("test"), layer(x))[1])
    x = Tensor(np.random.default_rng(0).normal(5, 1, (8, 3)).astype(np.float32))
    for _ in range(3):
        layer.set_train()
        assert abs(train(x).asnumpy().mean()) < 1e-5
        layer.set_train(False)
        assert test(x).asnumpy().mean() > 1
    assert traced == ["train", "test"]
    assert train(x).asnumpy().mean() > 1  # the Cell computes another function in prediction
    layer.eps = 1e-3
    layer.set_train()
    train(x)
    assert traced == ["train", "test", "train", "train"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
)
@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_recurrent_accepts_every_dtype(dtype, weights):
    """The result has the dtype of input plus feedback, as in a loop written out."""
    snncell.set_seed(0)
    x = Tensor(np.random.default_rng(0).integers(0, 2, (5, 2, 3))).astype(dtype)
    node, feedback = nn.LIFNode(), nn.Dense(3, 3, dtype=weights)
    net = nn.MultiStep(nn.Recurrent(node, feedback))
    expected, kind = [], (x[0] + feedback(x[0].astype(dtype if x.dtype.is_float else "float32"))).dtype
    out = v = ops.zeros((2, 3), kind)
    for row in x:
        out, v = node(row + feedback(out), v)
        expected.append(out)

    def loss():
        found = net(x)
        return found.astype("float32").sum(), found

    (_, found), gradients = snncell.value_and_grad(loss, None, net.trainable_params(), has_aux=True)()
    assert found.dtype == kind
    np.testing.assert_array_equal(found.astype("float32").asnumpy(), ops.stack(expected).astype("float32").asnumpy())
    assert all(np.isfinite(g.astype("float32").asnumpy()).all() for g in gradients)
