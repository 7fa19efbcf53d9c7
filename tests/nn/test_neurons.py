"""Neurons over time: forward against NumPy loops and published values, gradients against hand-written BPTT."""

import itertools

import naive
import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError

SLOPES = {
    "relusigmoid": (surrogate.relusigmoid, naive.relusigmoid_slope),
    "Sigmoid": (surrogate.Sigmoid, naive.sigmoid_slope),
    "ATan": (surrogate.ATan, naive.atan_slope),
}
RESETS = ["subtract", "zero", "value", None]
SETTINGS = list(itertools.product(RESETS, [False, True], [False, True]))
LIF_CASES = pytest.mark.parametrize(
    ("reset", "detach", "decay_input"), SETTINGS, ids=[f"{r}-detach={d}-decay={i}" for r, d, i in SETTINGS]
)


def random_input(steps=12, neurons=9, scale=2.0, seed=0):
    """Inputs that make some neurons fire and others not. `far` asserts that no potential is close to the threshold."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.3, scale, (steps, neurons)), rng.uniform(-0.5, 0.9, neurons)


def far(hs, spikes, threshold):
    """Check that rounding decides no spike, and that some neurons spike and others do not."""
    assert np.abs(hs - threshold).min() > 1e-5 and 0.05 < (spikes > 0).mean() < 0.95
    return True


# --- LIF -------------------------------------------------------------------------------------------------------------


def lif(reset, detach, decay_input, make=surrogate.ATan, tau=3.0, v_threshold=0.8, v_reset=-0.2):
    return nn.LIFNode(tau, v_threshold, v_reset, reset, detach, decay_input, make())


def constants(reset, decay_input):
    return {"tau": 3.0, "threshold": 0.8, "v_reset": -0.2, "reset": reset, "decay_input": decay_input}


@pytest.mark.sampled(7)
@LIF_CASES
def test_lif_forward_equals_the_loop(reset, detach, decay_input):
    x, v0 = random_input(scale=5.0 if decay_input else 1.5)
    spikes, hs, vs = naive.lif_forward(x, v0, **constants(reset, decay_input))
    assert far(hs, spikes, 0.8)
    net = nn.MultiStep(lif(reset, detach, decay_input), return_states=True)
    y, (last,) = net(Tensor(x), Tensor(v0))
    np.testing.assert_array_equal(y.asnumpy(), spikes)
    np.testing.assert_allclose(last.asnumpy(), vs[-1], rtol=1e-12, atol=1e-13)


@pytest.mark.sampled(3)
@LIF_CASES
@pytest.mark.parametrize("name", SLOPES)
def test_lif_gradients_equal_hand_written_bptt(reset, detach, decay_input, name):
    make, slope = SLOPES[name]
    x, v0 = random_input(scale=5.0 if decay_input else 1.5)
    rng = np.random.default_rng(1)
    d_spikes, d_last = rng.standard_normal(x.shape), rng.standard_normal(v0.shape)
    settings = constants(reset, decay_input)
    _, hs, _ = naive.lif_forward(x, v0, **settings)
    expected = naive.lif_backward(hs, d_spikes, d_last, slope, detach=detach, **settings)
    net = nn.MultiStep(lif(reset, detach, decay_input, make), return_states=True)
    (y, _), pull = ops.vjp(net, Tensor(x), Tensor(v0))
    # relusigmoid's spikes are float32, as documented, and so is their gradient.
    found = pull(Tensor(d_spikes).astype(y.dtype), (Tensor(d_last),))
    tight = {"rtol": 1e-10, "atol": 1e-12} if y.dtype == "float64" else {"rtol": 2e-5, "atol": 2e-6}
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs, **tight)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("decay_input", [False, True])
def test_smooth_lif_gradients_agree_with_finite_differences(reset, decay_input):
    x, v0 = random_input(steps=6, neurons=4, scale=3.0)
    net = nn.MultiStep(lif(reset, False, decay_input), return_states=True)
    with surrogate.smooth():
        testing.check_grads(net, Tensor(x), Tensor(v0), order=2)


def test_detach_reset_changes_gradients_only_with_a_reset():
    x, v0 = random_input()
    for reset in RESETS:
        a, b = (ops.grad(nn.MultiStep(lif(reset, d, False)))(Tensor(x), Tensor(v0)).asnumpy() for d in (False, True))
        assert (a == b).all() == (reset is None)


def test_learnable_time_constant_gets_its_gradient():
    x, v0 = random_input(steps=6, neurons=4)
    tau = Parameter(np.float64(2.5), name="tau")
    net = nn.MultiStep(nn.LIFNode(tau, decay_input=False, surrogate_function=surrogate.ATan()))
    assert list(net.parameters_dict()) == ["cell.tau"]
    with surrogate.smooth():
        found = ops.grad(net, None, tau)(Tensor(x), Tensor(v0)).item()
        eps, sides = 1e-6, []
        for sign in (1, -1):
            tau.set_data(Tensor(np.float64(2.5 + sign * eps)))
            sides.append(net(Tensor(x), Tensor(v0)).sum().item())
    assert found == pytest.approx((sides[0] - sides[1]) / (2 * eps), rel=1e-7)


@pytest.mark.parametrize("tau", [1.0, 0.5, 0.0, -1.0])
def test_time_constant_of_at_most_one_step_raises(tau):
    with pytest.raises(ArgumentError, match="tau is a number of steps above 1"):
        nn.LIFNode(tau)


def test_unknown_reset_raises():
    with pytest.raises(ArgumentError, match='reset is "subtract", "zero", "value" or None, not \'hard\''):
        nn.LIFNode(reset="hard")


def test_potential_at_the_threshold_does_not_fire():
    # v > v_threshold, as in NIR's definition
    spike, v = nn.IFNode()(Tensor([1.0, 1.0000001]), Tensor([0.0, 0.0]))
    assert spike.asnumpy().tolist() == [0.0, 1.0] and v.asnumpy()[0] == 1.0
    assert nn.LIFNode(decay_input=False)(Tensor([1.0]), Tensor([0.0]))[0].item() == 0.0


# --- published values ------------------------------------------------------------------------------------------------

GOLDEN_INPUT = [0.6, 0.6, 0.6, 1.2, 0.0, 0.0, 2.5, 0.3]
GOLDEN = {  # decay 0.5, threshold 1, from rest: spikes and potentials after the reset
    "SpikingJelly hard": ("zero", True, "00000010", [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21563, 0, 0.15]),
    "SpikingJelly soft": (
        "subtract",
        True,
        "00000010",
        [0.3, 0.45, 0.525, 0.8625, 0.43125, 0.21563, 0.35781, 0.32891],
    ),
    "snnTorch zero": ("zero", False, "00110010", [0.6, 0.9, 0, 0, 0, 0, 0, 0.3]),
    "SpikingJelly soft, undivided": (
        "subtract",
        False,
        "00110011",
        [0.6, 0.9, 0.05, 0.225, 0.1125, 0.05625, 1.52813, 0.06406],
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_spikes_and_potentials_equal_published_values(case):
    reset, decay_input, spikes, potentials = GOLDEN[case]
    node = nn.LIFNode(tau=2.0, reset=reset, decay_input=decay_input)
    _, (found, after) = ops.scan(
        lambda v, x: ((step := node(x, v))[1], step), Tensor(np.float64(0)), Tensor(np.array(GOLDEN_INPUT))
    )
    assert "".join(f"{s:.0f}" for s in found.asnumpy()) == spikes
    np.testing.assert_allclose(after.asnumpy(), potentials, atol=5.1e-6)


@pytest.mark.parametrize(
    ("reset", "detach", "expected"),
    [
        ("subtract", False, [0.83721, 0.8497, 0.93795, 0.61849]),
        ("subtract", True, [1.38029, 1.32666, 1.21941, 0.61849]),
        ("zero", False, [0.79004, 0.34278, 0.86982, 0.71696]),
        ("zero", True, [1.07544, 0.71696, 1.07544, 0.71696]),
    ],
)
def test_gradients_equal_published_values_of_spikingjelly(reset, detach, expected):
    node = nn.LIFNode(2.0, reset=reset, detach_reset=detach, decay_input=False, surrogate_function=surrogate.ATan(2.0))
    x = Tensor(np.full((4, 1), 0.8))
    assert nn.MultiStep(node)(x).asnumpy()[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0]
    np.testing.assert_allclose(ops.grad(nn.MultiStep(node))(x).asnumpy()[:, 0], expected, atol=5.1e-6)


# --- IF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1.0, 0.6])
@pytest.mark.parametrize("name", SLOPES)
def test_if_forward_and_gradients_equal_the_loops(threshold, name):
    make, slope = SLOPES[name]
    x, v0 = random_input(scale=1.0)
    spikes, hs, vs = naive.if_forward(x, v0, threshold)
    assert far(hs, spikes, threshold)
    rng = np.random.default_rng(1)
    d_spikes, d_last = rng.standard_normal(x.shape), rng.standard_normal(v0.shape)
    net = nn.MultiStep(nn.IFNode(threshold, surrogate_function=make()), return_states=True)
    (y, (last,)), pull = ops.vjp(net, Tensor(x), Tensor(v0))
    # relusigmoid's spikes are float32 and so lose digits of a threshold like 0.6
    exact = y.dtype == "float64"
    np.testing.assert_allclose(y.asnumpy(), spikes, rtol=0 if exact else 1e-7)
    np.testing.assert_allclose(last.asnumpy(), vs[-1], rtol=1e-12 if exact else 1e-6, atol=1e-13 if exact else 1e-6)
    tight = {"rtol": 1e-10, "atol": 1e-12} if exact else {"rtol": 2e-5, "atol": 2e-6}
    found = pull(Tensor(d_spikes).astype(y.dtype), (Tensor(d_last),))
    for mine, theirs in zip(found, naive.if_backward(hs, d_spikes, d_last, slope, threshold), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs, **tight)


def test_if_without_fire_returns_its_potential_twice():
    x, v0 = random_input()
    y, (last,) = nn.MultiStep(nn.IFNode(fire=False), return_states=True)(Tensor(x), Tensor(v0))
    np.testing.assert_allclose(y.asnumpy(), v0 + np.cumsum(x, 0), rtol=1e-12)
    np.testing.assert_array_equal(last.asnumpy(), y.asnumpy()[-1])


def test_smooth_if_gradients_agree_with_finite_differences():
    x, v0 = random_input(steps=6, neurons=4)
    with surrogate.smooth():
        testing.check_grads(nn.MultiStep(nn.IFNode(0.7), return_states=True), Tensor(x), Tensor(v0), order=2)


# --- properties ------------------------------------------------------------------------------------------------------

NODES = {
    "IF": lambda: nn.IFNode(0.7),
    "LIF subtract": lambda: nn.LIFNode(2.5, decay_input=False),
    "LIF value": lambda: nn.LIFNode(2.5, reset="value", v_reset=0.1, decay_input=False),
}


def gradient(net, x, seed=2):
    """The gradient of a random projection of the spikes."""
    out, pull = ops.vjp(net, x)
    return pull(Tensor(np.random.default_rng(seed).standard_normal(out.shape).astype(np.float32)))[0].asnumpy()


@pytest.fixture(params=NODES)
def net(request):
    return nn.MultiStep(NODES[request.param]())


@pytest.fixture
def x():
    return Tensor(np.random.default_rng(5).uniform(0, 1.2, (10, 7)).astype(np.float32))


def test_batch_of_one_equals_no_batch(net, x):
    one = x.reshape((10, 1, 7))
    np.testing.assert_array_equal(net(one).asnumpy()[:, 0], net(x).asnumpy())
    np.testing.assert_array_equal(gradient(net, one)[:, 0], gradient(net, x))


def test_permuting_neurons_commutes(net, x):
    order = np.random.default_rng(0).permutation(7)
    out, pull = ops.vjp(net, x)
    dout = np.random.default_rng(2).standard_normal(out.shape).astype(np.float32)
    shuffled, pull_shuffled = ops.vjp(net, Tensor(x.asnumpy()[:, order]))
    np.testing.assert_array_equal(shuffled.asnumpy(), out.asnumpy()[:, order])
    found = pull_shuffled(Tensor(dout[:, order]))[0].asnumpy()
    np.testing.assert_array_equal(found, pull(Tensor(dout))[0].asnumpy()[:, order])


def test_backward_pass_is_linear_in_the_incoming_gradient(net, x):
    out, pull = ops.vjp(net, x)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(out.shape).astype(np.float32) for _ in range(2))
    both = pull(Tensor(2.0 * a - b))[0].asnumpy()
    np.testing.assert_allclose(
        both, 2.0 * pull(Tensor(a))[0].asnumpy() - pull(Tensor(b))[0].asnumpy(), rtol=1e-4, atol=1e-5
    )


def test_outputs_do_not_depend_on_later_inputs(net, x):
    later = x.asnumpy().copy()
    later[6:] += 1.0
    np.testing.assert_array_equal(net(Tensor(later)).asnumpy()[:6], net(x).asnumpy()[:6])
    out, pull = ops.vjp(net, x)
    dout = np.zeros(out.shape, np.float32)
    dout[4] = 1.0
    found = pull(Tensor(dout))[0].asnumpy()
    assert not found[5:].any() and found[4].all() and found[:4].any()


@pytest.mark.compiled
def test_compiled_spikes_equal_eager_bitwise(net, x):
    compiled = snncell.jit(net)
    assert compiled(x).asnumpy().tobytes() == net(x).asnumpy().tobytes()
    np.testing.assert_allclose(gradient(compiled, x), gradient(net, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_float_dtype_runs_and_keeps_the_state_dtype(dtype):
    net = nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.ATan()), return_states=True)
    y, (v,) = net(ops.ones((3, 2), dtype) * 1.5)
    assert (y.dtype, v.dtype) == (dtype, dtype)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
@pytest.mark.parametrize("make", [nn.IFNode, nn.LIFNode, nn.CobaLIFNode], ids=["IF", "LIF", "CobaLIF"])
def test_integer_and_boolean_inputs_are_accepted(make, dtype):
    x = Tensor(np.array([[1, 0], [1, 1], [0, 1]], dtype))
    y = nn.MultiStep(make(v_threshold=0.1))(x)
    assert y.dtype == "float32"
    np.testing.assert_array_equal(y.asnumpy(), nn.MultiStep(make(v_threshold=0.1))(x.astype("float32")).asnumpy())


def test_explain_quotes_the_equations():
    text = snncell.explain(nn.MultiStep(nn.LIFNode()), ops.ones((4, 3)), detail="program")
    for equation in ("return v + (x - leak) / tau", "return h - v_threshold", "return h - s * v_threshold"):
        assert f": {equation}\n" in text
    text = snncell.explain(
        nn.MultiStep(nn.LIFNode(decay_input=False, reset="value", v_reset=0.5)), ops.ones((4, 3)), detail="program"
    )
    for equation in ("return v - leak / tau + x", "return h * (1.0 - s) + s * v_reset"):
        assert f": {equation}\n" in text


def test_balanced_resonators_equal_the_step_of_the_paper_in_its_units():
    """Higuchi et al. 2024, with dt = 0.01, omega in rad / s, and the damping b_offset in 1 / s."""
    dt, omega, offset = 0.01, np.array([5.0, 12.0, 40.0, 80.0]), np.array([0.1, 1.0, 2.0, 0.5])
    x = np.random.default_rng(0).normal(40.0, 60.0, (300, 4))
    u, q, expected = np.zeros(4, complex), np.zeros(4), []
    for now in x:
        b = (-1.0 + np.sqrt(1.0 - (dt * omega) ** 2)) / dt - offset - q
        u = u + dt * ((b + 1j * omega) * u + now)
        z = (u.real - 1.0 - q > 0.0).astype(float)
        q = 0.9 * q + z
        expected.append(z)
    node = nn.BalancedResonateNode(omega * dt, offset * dt, jump=dt, input_gain=dt)
    found = nn.MultiStep(node)(Tensor(x)).asnumpy()
    np.testing.assert_array_equal(found, expected)
    assert found.sum(0).min() > 20
