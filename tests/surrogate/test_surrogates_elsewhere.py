"""Surrogates against other frameworks: golden values, installed frameworks, and their known bugs."""

import numpy as np
import pytest

from snncell import Tensor, grad, nn, ops, surrogate
from snncell.errors import ArgumentError

S = surrogate

# --- golden values: the derivative at x = -0.1, 0 and 1, by the formulas of the frameworks named ----------------------

GOLDEN = {
    "SpikingJelly Sigmoid(4)": (S.Sigmoid(4.0), (0.9610430, 1.0, 0.0706508)),
    "SpikingJelly, snnTorch ATan(2)": (S.ATan(2.0), (0.9101699, 1.0, 0.0919997)),
    "SpikingJelly Erf(2)": (S.Erf(2.0), (1.0841347, 1.1283792, 0.0206670)),
    "snnTorch fast_sigmoid(25)": (S.FastSigmoid(25.0), (0.0816327, 1.0, 0.0014793)),
    "Norse super, any alpha": (S.SuperSpike(), (0.8264463, 1.0, 0.25)),
    "Norse heavi_erfc(1)": (S.Scaled(S.Erf(1.0), 2.0), (1.1171516, 1.1283792, 0.4151075)),
    "Norse tanh(1)": (S.Tanh(1.0), (0.9900663, 1.0, 0.4199743)),
    "Norse triangle(0.3)": (S.Triangle(0.3), (0.27, 0.3, 0.0)),
    "Spyx arctan(2)": (S.Scaled(S.ATan(4.0), 1 / (2 * np.pi)), (0.2282144, 0.3183099, 0.0078637)),
    "Spyx triangular(2)": (S.Triangle(1.0, 0.5), (0.8, 1.0, 0.0)),
    "Spyx boxcar(2, 0.5)": (S.Boxcar(2.0, 0.5), (0.5, 0.5, 0.0)),
    "sinabs SingleExponential(0.5), threshold 1": (S.Scaled(S.PiecewiseExp(2.0), 2.0), (1.6374615, 2.0, 0.2706706)),
    "sinabs Gaussian(sigma=0.5)": (S.Gaussian(0.5), (0.7820854, 0.7978846, 0.1079819)),
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_slopes_equal_golden_values(kind):
    cell, expected = GOLDEN[kind]
    assert grad(cell)(Tensor(np.array([-0.1, 0.0, 1.0]))).asnumpy() == pytest.approx(expected, abs=1e-7)


def test_three_functions_known_as_super_spike():
    x = Tensor(np.array([-0.5, 0.3, 2.0]))
    norse = 1 / (1 + np.abs(x.asnumpy())) ** 2
    np.testing.assert_allclose(grad(S.SuperSpike(3.0))(x).asnumpy(), 3.0 * norse)  # SpikingJelly's
    np.testing.assert_allclose(grad(S.FastSigmoid(1.0))(x).asnumpy(), norse)
    np.testing.assert_allclose(
        grad(S.FastSigmoid(25.0))(x).asnumpy(), 1 / (1 + 25 * np.abs(x.asnumpy())) ** 2
    )  # Spyx's


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (S.relusigmoid(), S.Sigmoid(5.0)),
        (S.SoftSign(3.0), S.Scaled(S.FastSigmoid(3.0), 1.5)),
        (S.Gaussian(0.4), S.Erf(1 / (0.4 * np.sqrt(2)))),
        (S.PiecewiseQuadratic(2.0), S.Triangle(2.0, 0.5)),
        (S.Rect(2.0), S.Boxcar(0.5, 2.0)),
        (S.PiecewiseLeakyReLU(0.5, 0.0), S.Rect(1.0)),
    ],
)
def test_surrogates_documented_as_equal_are_equal(one, other):
    x = Tensor(np.linspace(-2, 2, 41) + 0.013)
    np.testing.assert_allclose(grad(one)(x).asnumpy(), grad(other)(x).asnumpy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.primitive(x).asnumpy(), other.primitive(x).asnumpy(), rtol=1e-12, atol=1e-15)


# --- parity: their backward against ours, on random inputs ------------------------------------------------------------

SPIKINGJELLY = {
    "Sigmoid": [(4.0,), (1.5,)],
    "ATan": [(2.0,), (0.7,)],
    "PiecewiseQuadratic": [(1.0,), (2.5,)],
    "PiecewiseExp": [(1.0,), (3.0,)],
    "SoftSign": [(2.0,), (0.5,)],
    "SuperSpike": [(1.0,), (0.4,)],
    "Erf": [(2.0,), (0.8,)],
    "Rect": [(1.0,), (0.4,)],
    "PiecewiseLeakyReLU": [(1.0, 0.01), (0.4, 0.2)],
    "NonzeroSignLogAbs": [(1.0,), (2.0,)],
    "S2NN": [(4.0, 1.0), (2.0, 0.6)],
    "QPseudoSpike": [(2.0,), (3.5,)],
    "LogTailedReLU": [(0.0,), (0.2,)],
    "LeakyKReLU": [(0.0, 1.0), (0.1, 0.7)],
    "DeterministicPass": [()],
}
OURS = {"LeakyKReLU": "LeakyReLU", "DeterministicPass": "StraightThrough"}  # different names

SNNTORCH = {
    "atan": (S.ATan, [(2.0,), (0.7,)]),
    "fast_sigmoid": (S.FastSigmoid, [(25.0,), (4.0,)]),
    "sigmoid": (S.Sigmoid, [(25.0,), (4.0,)]),
    "straight_through_estimator": (S.StraightThrough, [()]),
    "spike_rate_escape": (S.SpikeRateEscape, [(1.0, 25.0), (2.0, 0.5)]),
    "heaviside": (lambda: S.LeakyReLU(leak=0.0), [()]),
}


@pytest.fixture
def compare_surrogates(torch, rng):
    """Compare spikes and gradients of a framework's spike function and ours."""

    def compare(theirs, ours):
        for dtype in (np.float32, np.float64):
            values, dout = 1.5 * rng.standard_normal(500).astype(dtype), rng.standard_normal(500).astype(dtype)
            x = torch.tensor(values, requires_grad=True)
            spikes = theirs(x)
            dout = dout.astype(spikes.detach().numpy().dtype)  # snnTorch's spikes are always float32
            spikes.backward(torch.tensor(dout))
            out, pull = ops.vjp(ours, Tensor(values))
            found, expected = pull(Tensor(dout.astype(dtype)))[0].asnumpy(), x.grad.numpy()
            known = np.isfinite(expected)  # the gradient of snnTorch's sigmoid is not finite everywhere
            np.testing.assert_array_equal(out.asnumpy(), spikes.detach().numpy())
            scale = max(1.0, np.abs(expected[known]).max())
            np.testing.assert_allclose(found[known], expected[known], rtol=1e-6, atol=1e-6 * scale)
            assert known.mean() > 0.9 and expected[known].any() and np.isfinite(found).all()

    return compare


@pytest.fixture
def spikingjelly(torch):
    return pytest.importorskip(
        "spikingjelly.activation_based.surrogate", reason="SpikingJelly is not installed: nothing to compare with"
    )


@pytest.fixture
def snntorch(torch):
    return pytest.importorskip("snntorch.surrogate", reason="snnTorch is not installed: nothing to compare with")


@pytest.mark.peer
@pytest.mark.parametrize(("name", "args"), [(name, args) for name, rows in SPIKINGJELLY.items() for args in rows])
def test_gradients_equal_spikingjelly(spikingjelly, compare_surrogates, name, args):
    compare_surrogates(getattr(spikingjelly, name)(*args), S.Inclusive(getattr(S, OURS.get(name, name))(*args)))


@pytest.mark.peer
def test_primitives_from_0_to_1_equal_spikingjelly(spikingjelly, torch):
    x = np.linspace(-2, 2, 41, dtype=np.float32) + np.float32(0.013)
    for name in ("Sigmoid", "ATan", "PiecewiseQuadratic", "PiecewiseExp", "SoftSign", "Erf", "Rect", "QPseudoSpike"):
        theirs = getattr(spikingjelly, name)(spiking=False)(torch.tensor(x)).numpy()
        np.testing.assert_allclose(getattr(S, name)().primitive(Tensor(x)).asnumpy(), theirs, atol=1e-6, err_msg=name)


@pytest.mark.peer
@pytest.mark.parametrize(("name", "args"), [(name, args) for name, (_, rows) in SNNTORCH.items() for args in rows])
def test_gradients_equal_snntorch(snntorch, compare_surrogates, name, args):
    compare_surrogates(getattr(snntorch, name)(*args), SNNTORCH[name][0](*args))


# --- bugs of other frameworks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_steep_sigmoid_is_finite_far_below_the_threshold(dtype):
    found = grad(S.Sigmoid(25.0))(Tensor(np.array([-5.0, -3.0, -1.0, 5.0], dtype))).asnumpy()
    k = np.exp(np.array([-125.0, -75.0, -25.0, -125.0]))
    np.testing.assert_allclose(found, 25.0 * k / (1 + k) ** 2, rtol=1e-5, atol=1e-10)


def test_leaky_relu_surrogate_has_its_gradient():
    found = grad(S.LeakyReLU(leak=0.1))(Tensor([-2.0, 0.0, 0.5])).asnumpy()
    np.testing.assert_array_equal(found, np.array([0.1, 0.1, 1.0], np.float32))


def test_sparse_fast_sigmoid_has_a_gradient_near_the_threshold():
    x = np.array([-1.5, -0.9, -0.01, 0.0, 0.01, 0.9, 1.5])
    found = grad(S.SparseFastSigmoid())(Tensor(x)).asnumpy()
    np.testing.assert_allclose(found, np.where(np.abs(x) < 1, 1 / (1 + 25 * np.abs(x)) ** 2, 0.0), rtol=1e-12)
    assert found[1:6].all()


def test_every_constant_changes_the_gradient():
    x = Tensor(np.linspace(-2, 2, 400))
    for name in S.__all__:
        kind = getattr(S, name)
        if not isinstance(kind, type) or name in ("Surrogate", "Scaled"):
            continue
        for constant in getattr(made := _make(kind), "constants", ()):
            other = kind(**{c: getattr(made, c) for c in made.constants} | {constant: getattr(made, constant) + 0.37})
            assert (grad(other)(x).asnumpy() != grad(made)(x).asnumpy()).any(), (name, constant)


def _make(kind):
    try:
        return kind()
    except TypeError:
        return kind(S.ATan())


def test_heaviside_without_gradient_is_not_a_surrogate():
    with pytest.raises(ArgumentError, match="surrogate_function must be a spike function"):
        S.Scaled(nn.ReLU())


def test_atan_peak_is_half_of_alpha():
    for alpha in (0.5, 2.0, 7.0):  # not 1 / pi of it, as documented in other frameworks
        assert grad(S.ATan(alpha))(Tensor(np.array(0.0))).item() == alpha / 2
