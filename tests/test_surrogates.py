"""Surrogates: the bprop is the derivative of the primitive, the tape uses it as it is, and a smooth network is true."""

import naive
import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError


class Triangle(nn.Cell):
    """A user's own: max(0, 1 - |x|), the derivative of its piecewise quadratic primitive."""

    def construct(self, x):
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout * ops.relu(1.0 - ops.abs(x)),)

    def primitive(self, x):
        inside = ops.clip(x, -1.0, 1.0)
        return 0.5 + inside - 0.5 * inside * ops.abs(inside)


SURROGATES = {
    "relusigmoid": (surrogate.relusigmoid, naive.relusigmoid_slope),
    "Sigmoid": (surrogate.Sigmoid, naive.sigmoid_slope),
    "Sigmoid(1.5)": (lambda: surrogate.Sigmoid(1.5), lambda x: naive.sigmoid_slope(x, 1.5)),
    "ATan": (surrogate.ATan, naive.atan_slope),
    "ATan(0.7)": (lambda: surrogate.ATan(0.7), lambda x: naive.atan_slope(x, 0.7)),
    "user's": (Triangle, lambda x: np.maximum(0, 1 - np.abs(x))),
}
POINTS = np.linspace(-2, 2, 41) + 0.013  # not at 0, +1 or -1, where a primitive may have a corner


def test_every_surrogate_of_the_library_is_here():
    public = {name for name in surrogate.__all__ if isinstance(getattr(surrogate, name), type)}
    assert public == {name for name in SURROGATES if name in public}


@pytest.fixture(params=SURROGATES)
def pair(request):
    make, slope = SURROGATES[request.param]
    return make(), slope


def test_the_bprop_is_the_derivative_of_the_primitive(pair):
    cell, _ = pair
    testing.check_bprop(cell, Tensor(POINTS))
    eps = 1e-6
    ahead, behind = (cell.primitive(Tensor(POINTS + sign * eps)).asnumpy() for sign in (1, -1))
    (found,) = cell.bprop(Tensor(POINTS), None, Tensor(np.ones_like(POINTS)))
    np.testing.assert_allclose(found.asnumpy(), (ahead - behind) / (2 * eps), rtol=1e-7, atol=1e-9)


def test_the_bprop_has_the_published_formula(pair):
    cell, slope = pair
    (found,) = cell.bprop(Tensor(POINTS), None, Tensor(np.ones_like(POINTS)))
    np.testing.assert_allclose(found.asnumpy(), slope(POINTS), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tape_gives_the_bprop_to_the_bit(pair, dtype):
    cell, _ = pair
    x = Tensor(POINTS.astype(dtype))
    out, pull = ops.vjp(cell, x)
    dout = Tensor(np.random.default_rng(0).standard_normal(41)).astype(out.dtype)
    (expected,) = cell.bprop(x, out, dout)
    assert pull(dout).asnumpy().tobytes() == expected.astype(dtype).asnumpy().tobytes()


def test_the_derivative_of_a_smooth_network_is_true(pair):
    cell, _ = pair
    rng = np.random.default_rng(1)
    x = Tensor(rng.uniform(0, 1.5, (5, 2, 3)))
    dense = nn.TimeDistributed(nn.Dense(3, 4, Tensor(rng.normal(0, 1, (4, 3))), "zeros", dtype="float64"))
    net = nn.SequentialCell(dense, nn.MultiStep(nn.LIFNode(2.0, surrogate_function=cell)))
    with surrogate.smooth():
        testing.check_grads(net, x)


def test_it_fires_above_zero_and_not_at_it(pair):
    cell, _ = pair
    x = np.array([-np.inf, -1.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, np.inf], np.float32)
    assert cell(Tensor(x)).asnumpy().tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_the_primitive_rises_from_zero_to_one(pair):
    cell, _ = pair
    values = cell.primitive(Tensor(np.array([-1e6, 0.0, 1e6]))).asnumpy()
    np.testing.assert_allclose(values, [0, 0.5, 1], atol=1e-6)
    assert (np.diff(cell.primitive(Tensor(POINTS)).asnumpy()) >= 0).all()


def test_the_slope_far_away_is_finite_and_small(pair):
    cell, _ = pair
    x = Tensor(np.array([-1e30, -1e4, 1e4, 1e30], np.float32))
    found = ops.grad(cell)(x).asnumpy()
    assert np.isfinite(found).all() and (np.abs(found) < 1e-3).all()


# --- smooth ----------------------------------------------------------------------------------------------------------


def test_smooth_runs_the_primitive_and_ends_with_the_context(pair):
    cell, _ = pair
    x = Tensor(POINTS)
    with surrogate.smooth():
        np.testing.assert_array_equal(cell(x).asnumpy(), cell.primitive(x).asnumpy())
        with surrogate.smooth():
            pass
        assert 0 < cell(Tensor(0.1)).item() < 1
    assert cell(Tensor(0.1)).item() == 1.0


def test_smooth_ends_with_an_exception():
    def fails():
        with surrogate.smooth():
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert surrogate.ATan()(Tensor(0.1)).item() == 1.0


@pytest.mark.compiled
def test_smooth_and_sharp_are_compiled_apart():
    compiled, x = snncell.jit(surrogate.ATan()), Tensor([0.1])
    assert compiled(x).item() == 1.0
    with surrogate.smooth():
        assert 0.5 < compiled(x).item() < 1.0
        smooth_slope = ops.grad(compiled)(x).item()
    assert compiled(x).item() == 1.0
    assert ops.grad(compiled)(x).item() == pytest.approx(smooth_slope, rel=1e-6)  # the bprop is its derivative


@pytest.mark.parametrize("kind", [surrogate.Sigmoid, surrogate.ATan])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan")])
def test_a_width_that_makes_no_sense_is_refused(kind, alpha):
    with pytest.raises(ArgumentError, match=f"{kind.__name__}: alpha is positive and finite"):
        kind(alpha)
