"""Surrogate gradients: bprop is the derivative of the primitive, the tape uses it, and smooth networks are exact."""

import copy
import inspect
import pickle
from functools import partial
from typing import Any, NamedTuple

import naive
import numpy as np
import pytest
from interpreting import as_python
from test_scan import loop_of, plain

import snncell
from snncell import Parameter, Tensor, explain, grad, nn, ops, surrogate, testing
from snncell.compiler.backends import cpu_loop
from snncell.errors import ArgumentError

__all__ = ["plain"]  # a fixture


class UsersTriangle(nn.Cell):
    """A user-defined surrogate: max(0, 1 -
    x
    ), the derivative of its piecewise quadratic primitive.
    """

    def construct(self, x):
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout * ops.relu(1.0 - ops.abs(x)),)

    def primitive(self, x):
        inside = ops.clip(x, -1.0, 1.0)
        return 0.5 + inside - 0.5 * inside * ops.abs(inside)


class UsersCosine(surrogate.Surrogate):
    """A user-defined surrogate with the library's base class and two learnable constants."""

    def __init__(self, depth=0.5, speed=1.5):
        super().__init__(depth=depth, speed=speed)

    def bprop(self, x, out, dout):
        return self.gradients(x, dout, dout * ops.cos(x * self.speed) * self.depth)

    def primitive(self, x):
        return ops.sin(x * self.speed) * self.depth / self.speed + 0.5


def users_cosine_slope(x, depth=0.5, speed=1.5):
    return depth * np.cos(speed * x)


class Row(NamedTuple):
    """A surrogate, an independent formula of its derivative, and its limits."""

    make: Any
    slope: Any
    limits: Any = (0.0, 1.0)  # limits of the primitive far below and far above the threshold; None if it has none
    far: tuple[float, float] = (0.0, 0.0)  # the derivative far below and far above the threshold
    at_zero: float = 0.5  # the primitive at the threshold
    step: bool = True  # whether it fires exactly where x > 0


def limits_of(area):
    return 0.5 - area / 2, 0.5 + area / 2


S = surrogate
ROWS = {
    "relusigmoid": Row(S.relusigmoid, naive.relusigmoid_slope),
    "Sigmoid": Row(S.Sigmoid, naive.sigmoid_slope),
    "Sigmoid(1.5)": Row(partial(S.Sigmoid, 1.5), partial(naive.sigmoid_slope, alpha=1.5)),
    "ATan": Row(S.ATan, naive.atan_slope),
    "ATan(0.7)": Row(partial(S.ATan, 0.7), partial(naive.atan_slope, alpha=0.7)),
    "Tanh": Row(S.Tanh, naive.tanh_slope, limits_of(2.0)),
    "Tanh(3)": Row(partial(S.Tanh, 3), partial(naive.tanh_slope, alpha=3.0), limits_of(2 / 3)),
    "Erf": Row(S.Erf, naive.erf_slope),
    "Erf(0.8)": Row(partial(S.Erf, 0.8), partial(naive.erf_slope, alpha=0.8)),
    "Gaussian": Row(S.Gaussian, naive.gaussian_slope),
    "Gaussian(1.2)": Row(partial(S.Gaussian, 1.2), partial(naive.gaussian_slope, sigma=1.2)),
    "MultiGaussian": Row(S.MultiGaussian, naive.multi_gaussian_slope, limits_of(0.85)),
    "MultiGaussian(0.7, 0.3, 2)": Row(
        partial(S.MultiGaussian, 0.7, 0.3, 2.0),
        partial(naive.multi_gaussian_slope, sigma=0.7, h=0.3, s=2.0),
        limits_of(0.7),
    ),
    "MultiGaussian(h=0)": Row(partial(S.MultiGaussian, h=0.0), naive.gaussian_slope),
    "FastSigmoid": Row(S.FastSigmoid, naive.fast_sigmoid_slope, limits_of(2 / 25)),
    "FastSigmoid(4)": Row(partial(S.FastSigmoid, 4), partial(naive.fast_sigmoid_slope, slope=4.0), limits_of(0.5)),
    "SparseFastSigmoid": Row(S.SparseFastSigmoid, naive.sparse_fast_sigmoid_slope, limits_of(2 / 26)),
    "SparseFastSigmoid(2, 0.6)": Row(
        partial(S.SparseFastSigmoid, 2.0, 0.6),
        partial(naive.sparse_fast_sigmoid_slope, slope=2, bound=0.6),
        limits_of(1.2 / 2.2),
    ),
    "SuperSpike": Row(S.SuperSpike, naive.super_spike_slope, limits_of(2.0)),
    "SuperSpike(0.4)": Row(partial(S.SuperSpike, 0.4), partial(naive.super_spike_slope, alpha=0.4), limits_of(0.8)),
    "SoftSign": Row(S.SoftSign, naive.soft_sign_slope),
    "SoftSign(5)": Row(partial(S.SoftSign, 5.0), partial(naive.soft_sign_slope, alpha=5.0)),
    "NonzeroSignLogAbs": Row(S.NonzeroSignLogAbs, naive.nonzero_sign_log_abs_slope, None),
    "NonzeroSignLogAbs(2)": Row(
        partial(S.NonzeroSignLogAbs, 2.0), partial(naive.nonzero_sign_log_abs_slope, alpha=2.0), None
    ),
    "Algebraic": Row(S.Algebraic, naive.algebraic_slope, limits_of(2.0)),
    "Algebraic(0.4)": Row(partial(S.Algebraic, 0.4), partial(naive.algebraic_slope, alpha=0.4), limits_of(0.8)),
    "QPseudoSpike": Row(S.QPseudoSpike, naive.q_pseudo_spike_slope),
    "QPseudoSpike(3.5)": Row(partial(S.QPseudoSpike, 3.5), partial(naive.q_pseudo_spike_slope, alpha=3.5)),
    "PiecewiseExp": Row(S.PiecewiseExp, naive.piecewise_exp_slope),
    "PiecewiseExp(3)": Row(partial(S.PiecewiseExp, 3.0), partial(naive.piecewise_exp_slope, alpha=3.0)),
    "SpikeRateEscape": Row(
        S.SpikeRateEscape, naive.spike_rate_escape_slope, (0.5 - 25 * np.exp(-1), 0.5 + 25 * (2 - np.exp(-1)))
    ),
    "SpikeRateEscape(2, 0.5)": Row(
        partial(S.SpikeRateEscape, 2.0, 0.5),
        partial(naive.spike_rate_escape_slope, beta=2.0, slope=0.5),
        (0.5 - 0.25 * np.exp(-2), 0.5 + 0.25 * (2 - np.exp(-2))),
    ),
    "EscapeRate": Row(S.EscapeRate, naive.escape_rate_slope, at_zero=1 - np.exp(-1)),
    "EscapeRate(0.1, 0.3)": Row(
        partial(S.EscapeRate, 0.1, 0.3), partial(naive.escape_rate_slope, rate=0.1, width=0.3), at_zero=1 - np.exp(-0.1)
    ),
    "Triangle": Row(S.Triangle, naive.triangle_slope),
    "Triangle(0.3, 0.7)": Row(
        partial(S.Triangle, 0.3, 0.7), partial(naive.triangle_slope, height=0.3, width=0.7), limits_of(0.21)
    ),
    "PiecewiseQuadratic": Row(S.PiecewiseQuadratic, naive.piecewise_quadratic_slope),
    "PiecewiseQuadratic(2)": Row(partial(S.PiecewiseQuadratic, 2), partial(naive.piecewise_quadratic_slope, alpha=2.0)),
    "Rect": Row(S.Rect, naive.rect_slope),
    "Rect(0.4)": Row(partial(S.Rect, 0.4), partial(naive.rect_slope, alpha=0.4)),
    "Boxcar": Row(S.Boxcar, naive.boxcar_slope),
    "Boxcar(1.5, 2)": Row(
        partial(S.Boxcar, 1.5, 2.0), partial(naive.boxcar_slope, width=1.5, height=2.0), limits_of(3.0)
    ),
    "StraightThrough": Row(S.StraightThrough, np.ones_like, None, (1.0, 1.0)),
    "LeakyReLU": Row(S.LeakyReLU, naive.leaky_relu_slope, None, (0.1, 1.0)),
    "LeakyReLU(0, 0.7)": Row(
        partial(S.LeakyReLU, 0, 0.7), partial(naive.leaky_relu_slope, leak=0.0, k=0.7), None, (0.0, 0.7)
    ),
    "PiecewiseLeakyReLU": Row(S.PiecewiseLeakyReLU, naive.piecewise_leaky_relu_slope, None, (0.01, 0.01)),
    "PiecewiseLeakyReLU(0.4, 0)": Row(
        partial(S.PiecewiseLeakyReLU, 0.4, 0.0), partial(naive.piecewise_leaky_relu_slope, w=0.4, c=0.0)
    ),
    "LogTailedReLU": Row(S.LogTailedReLU, naive.log_tailed_relu_slope, None),
    "LogTailedReLU(0.2)": Row(
        partial(S.LogTailedReLU, 0.2), partial(naive.log_tailed_relu_slope, alpha=0.2), None, (0.2, 0.0)
    ),
    "S2NN": Row(S.S2NN, naive.s2nn_slope, None),
    "S2NN(2, 0.6)": Row(partial(S.S2NN, 2.0, 0.6), partial(naive.s2nn_slope, alpha=2.0, beta=0.6), None),
    "Inclusive": Row(lambda: S.Inclusive(S.ATan()), naive.atan_slope, step=False),
    "Scaled": Row(lambda: S.Scaled(S.ATan(), 0.3), lambda x: 0.3 * naive.atan_slope(x), limits_of(0.3)),
    "StochasticSpike": Row(S.StochasticSpike, naive.sigmoid_slope, step=False),
    "StochasticSpike(Gaussian)": Row(lambda: S.StochasticSpike(S.Gaussian()), naive.gaussian_slope, step=False),
    "user's": Row(UsersTriangle, naive.triangle_slope),
    "user's Surrogate": Row(UsersCosine, users_cosine_slope, None, None),
}
POINTS = np.linspace(-2, 2, 41) + 0.013  # away from the corners of primitives: 0, 0.4, 0.5, 0.6, 0.7, 0.75, 1, 1.25


def test_every_surrogate_is_in_the_table():
    public = {name for name in surrogate.__all__ if isinstance(getattr(surrogate, name), type)} - {"Surrogate"}
    assert public == {name for name in ROWS if name in public}


@pytest.fixture(params=ROWS)
def row(request):
    return ROWS[request.param]


@pytest.fixture
def cell(row):
    return row.make()


def call_bprop(cell, x, dout):
    """Call the bprop of a surrogate without Parameters."""
    (found,) = cell.bprop(x, None, dout)
    return found


def slope_of(cell, x):
    x = Tensor(x)
    return call_bprop(cell, x, ops.ones_like(x)).asnumpy()


def test_bprop_is_the_derivative_of_the_primitive(cell):
    testing.check_bprop(cell, Tensor(POINTS))
    eps = 1e-6
    ahead, behind = (cell.primitive(Tensor(POINTS + sign * eps)).asnumpy() for sign in (1, -1))
    np.testing.assert_allclose(slope_of(cell, POINTS), (ahead - behind) / (2 * eps), rtol=1e-7, atol=1e-8)


def test_bprop_equals_the_published_formula(row, cell):
    np.testing.assert_allclose(slope_of(cell, POINTS), row.slope(POINTS), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tape_gradient_equals_bprop_bitwise(cell, dtype):
    x = Tensor(POINTS.astype(dtype))
    out, pull = ops.vjp(cell, x)
    dout = Tensor(np.random.default_rng(0).standard_normal(41)).astype(out.dtype)
    expected = call_bprop(cell, x, dout)
    assert pull(dout)[0].asnumpy().tobytes() == expected.astype(dtype).asnumpy().tobytes()


@pytest.mark.sampled(32)
@pytest.mark.usefixtures("plain")
def test_smooth_network_gradient_agrees_with_finite_differences(cell):
    rng = np.random.default_rng(1)
    x = Tensor(rng.uniform(0, 1.5, (5, 2, 3)))
    dense = nn.TimeDistributed(nn.Dense(3, 4, Tensor(rng.normal(0, 1, (4, 3))), "zeros", dtype="float64"))
    net = nn.SequentialCell(dense, nn.MultiStep(nn.LIFNode(2.0, surrogate_function=cell)))
    with surrogate.smooth():
        testing.check_grads(net, x)


def test_second_derivative_equals_the_formula(row, cell):
    found = grad(lambda x: grad(cell)(x).sum())(Tensor(POINTS)).asnumpy()
    eps = 1e-6
    expected = (row.slope(POINTS + eps) - row.slope(POINTS - eps)) / (2 * eps)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


EDGES = np.array([-np.inf, -1.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, np.inf], np.float32)


@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.step])
def test_surrogate_fires_above_zero_and_not_at_zero(row):
    assert row.make()(Tensor(EDGES)).asnumpy().tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row", [row for row in ROWS.values() if row.step])
def test_inclusive_fires_at_zero_with_the_same_gradient(row, dtype):
    cell, given = surrogate.Inclusive(row.make()), row.make()
    fired = cell(Tensor(EDGES.astype(dtype)))
    assert str(fired.dtype).lower() == dtype
    assert fired.asnumpy().tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    x = Tensor(POINTS.astype(dtype))
    np.testing.assert_array_equal(grad(cell)(x).asnumpy(), grad(given)(x).asnumpy())
    np.testing.assert_array_equal(cell.primitive(x).asnumpy(), given.primitive(x).asnumpy())


def test_primitive_limits_equal_the_table(row, cell):
    below, at_zero, above = cell.primitive(Tensor(np.array([-1e8, 0.0, 1e8]))).asnumpy()
    assert at_zero == pytest.approx(row.at_zero, abs=1e-12)
    if row.limits is not None:
        assert (below, above) == pytest.approx(row.limits, abs=1e-6)


FAR = np.array([1e2, 1e4, 1e8, 1e16, 1e19, 1e20, 1e30])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_slopes_far_from_the_threshold_are_finite(row, cell, dtype):
    x = Tensor(np.concatenate([-FAR[::-1], FAR]).astype(dtype))
    found, primitive = grad(cell)(x).asnumpy(), cell.primitive(x).asnumpy()
    with surrogate.smooth():
        smooth = grad(cell)(x).asnumpy()
    assert np.isfinite([found, primitive, smooth]).all()
    if row.far is not None:
        left, right = row.far
        assert found[:6] == pytest.approx(left, abs=2e-4)  # from 1e4 on
        assert found[-6:] == pytest.approx(right, abs=2e-4)


@pytest.mark.sampled(42)
@pytest.mark.usefixtures("plain")
def test_surrogates_in_a_loop_are_fused_and_equal_single_steps(row, cell):
    node = nn.LIFNode(2.0, v_threshold=0.5, surrogate_function=cell)
    x = Tensor(np.random.default_rng(2).uniform(0, 1.5, (5, 2, 3)))

    def loss(run):
        return lambda x: (run(x) * ops.sin(x)).sum()

    text = explain(grad(loss(nn.MultiStep(node))), x, detail="launches")
    assert "backward of MultiStep(LIFNode): one kernel" in text
    random = isinstance(cell, surrogate.StochasticSpike)
    assert ("MultiStep(LIFNode): 5 steps one by one" in text) == random
    assert (text.count("one kernel"), "no single kernel" in text) == ((1, True) if random else (2, False))
    found = []
    for run in (nn.MultiStep(node), loop_of(node)):
        snncell.set_seed(7)
        found.append(grad(loss(run))(x).asnumpy())
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)


@pytest.mark.compiled
def test_compiled_surrogates_equal_eager():
    # Other tests compile the gradients of all surrogates in loops, in float64. Each surrogate takes a kernel here.
    rows = [row for row in ROWS.items() if not isinstance(row[1].make(), surrogate.StochasticSpike)]
    cells = {kind: row.make() for kind, row in rows[::3]}

    def all_of_them(x):
        return [(cell(x), grad(cell)(x), cell.primitive(x)) for cell in cells.values()]

    x = Tensor(np.concatenate([POINTS, [0.0], EDGES[1:-1], FAR, -FAR]).astype(np.float32))
    for kind, mine, theirs in zip(cells, snncell.jit(all_of_them)(x), all_of_them(x), strict=True):
        np.testing.assert_array_equal(mine[0].asnumpy(), theirs[0].asnumpy(), err_msg=kind)
        for a, b in zip(mine[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=2e-6, atol=1e-6, err_msg=kind)


# --- constants --------------------------------------------------------------------------------------------------------


def constants_of(make):
    """The constants of a surrogate."""
    made = make()
    return {name: getattr(made, name) for name in getattr(made, "constants", ()) if name != "scale"}


LEARNED = [
    pytest.param(row.make, name, id=f"{kind}-{name}") for kind, row in ROWS.items() for name in constants_of(row.make)
]


def with_constants(make, **values):
    """A surrogate of the same class with other constants."""
    return type(make())(**constants_of(make) | values)


@pytest.mark.parametrize(("make", "name"), LEARNED)
def test_learnable_constant_gradient_equals_that_of_the_primitive(make, name):
    value, eps = constants_of(make)[name], 1e-6
    learned = Parameter(np.array(float(value)), name=name)
    cell = with_constants(make, **{name: learned})
    dout = np.random.default_rng(3).standard_normal(41)
    testing.check_bprop(cell, Tensor(POINTS))
    found = grad(lambda x: (cell(x) * Tensor(dout)).sum(), None, learned)(Tensor(POINTS)).item()
    shifts = (eps, -eps) if value else (eps, 0.0)
    ahead, behind = (with_constants(make, **{name: value + e}).primitive(Tensor(POINTS)).asnumpy() for e in shifts)
    expected = ((ahead - behind) * dout).sum() / (shifts[0] - shifts[1])
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(grad(cell)(Tensor(POINTS)).asnumpy(), slope_of(make(), POINTS), rtol=1e-12)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("kind", [surrogate.ATan, surrogate.Triangle, surrogate.MultiGaussian, UsersCosine])
def test_constants_are_learned_in_one_kernel_per_direction(kind, shape, inclusive):
    names = inspect.signature(kind).parameters
    weights = [Parameter(np.full(shape, p.default), name=name) for name, p in names.items()]
    cell = kind(*weights)
    cell = surrogate.Inclusive(cell) if inclusive else cell
    node = nn.LIFNode(2.0, v_threshold=0.5, surrogate_function=cell)
    x = Tensor(np.random.default_rng(2).uniform(0, 1.5, (5, 2, 3)))

    def gradients(run):
        return snncell.grad(lambda x: (run(x) * ops.sin(x)).sum(), 0, weights)

    text = explain(gradients(nn.MultiStep(node)), x, detail="launches")
    assert text.count("one kernel") == 2 and "no single kernel" not in text
    (of_x, of_weights), (x_by_steps, weights_by_steps) = (
        gradients(run)(x) for run in (nn.MultiStep(node), loop_of(node))
    )
    for mine, theirs in zip((of_x, *of_weights), (x_by_steps, *weights_by_steps), strict=True):
        assert mine.shape == theirs.shape and theirs.asnumpy().any()
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-11, atol=1e-13)


def test_learnable_constant_gradients_are_exact_to_second_order():
    def loss(alpha):
        learned.set_data(Tensor(np.array(alpha)))
        return (net(Tensor(x)) * Tensor(weight)).sum().item()

    learned = Parameter(np.array(1.5), name="alpha")
    net = nn.MultiStep(nn.LIFNode(2.0, surrogate_function=surrogate.ATan(learned)))
    rng, eps = np.random.default_rng(4), 1e-6
    x, weight = rng.uniform(0, 1.5, (5, 2, 3)), rng.standard_normal((5, 2, 3))
    with surrogate.smooth():
        found = grad(lambda x: (net(x) * Tensor(weight)).sum(), None, learned)(Tensor(x)).item()
        assert found == pytest.approx((loss(1.5 + eps) - loss(1.5 - eps)) / (2 * eps), rel=1e-7)

    def slope(alpha):
        learned.set_data(Tensor(np.array(alpha)))
        return grad(cell, None, learned)(Tensor(np.array(0.3))).item()

    cell = surrogate.ATan(learned)
    learned.set_data(Tensor(np.array(1.5)))
    found = grad(lambda x: grad(cell, None, learned)(x), None, learned)(Tensor(np.array(0.3))).item()
    assert found == pytest.approx((slope(1.5 + eps) - slope(1.5 - eps)) / (2 * eps), rel=1e-6)


def test_optimiser_updates_learnable_but_not_frozen_constants():
    alpha, frozen = Parameter(2.0, name="alpha"), Parameter(1.0, name="height", requires_grad=False)
    net = nn.SequentialCell(surrogate.ATan(alpha), surrogate.Triangle(frozen))
    assert net.trainable_params() == [alpha]
    opt = nn.SGD(net.trainable_params(), learning_rate=0.1)
    opt(grad(lambda x: net(x).sum(), None, net.trainable_params())(Tensor([0.3, -0.2])))
    assert alpha.item() != 2.0 and frozen.item() == 1.0


def test_shared_parameter_gets_the_sum_of_gradients():
    both = Parameter(np.array(1.5), name="both")
    cell = surrogate.Boxcar(both, both)
    assert cell.trainable_params() == cell.internal_params == [both]
    x = Tensor(POINTS)
    testing.check_bprop(cell, x)
    apart = [Parameter(np.array(1.5), name=name) for name in ("width", "height")]
    found = grad(surrogate.Boxcar(*apart), None, apart)(x)
    assert grad(cell, None, both)(x).item() == pytest.approx(sum(g.item() for g in found))


class UsersScale(surrogate.Surrogate):
    """A user-defined surrogate that lists its internal_params and computes their gradients."""

    def __init__(self):
        super().__init__()
        self.scale, self.kept = Parameter(2.0, name="scale"), Parameter(3.0, name="kept")
        self.internal_params = [self.scale]

    def bprop(self, x, out, dout):
        return (dout * self.scale * self.kept,), {self.scale: dout * x * self.kept}

    def primitive(self, x):
        return x * self.scale * self.kept


def test_only_listed_internal_params_get_gradients():
    cell = UsersScale()
    with pytest.raises(
        snncell.errors.GradientCheckError, match="no gradient of Parameter 'kept', which primitive uses"
    ):
        testing.check_bprop(cell, Tensor(POINTS))
    cell.kept.requires_grad = False
    testing.check_bprop(cell, Tensor(POINTS))
    cell.kept.requires_grad = True
    assert cell.internal_params == [cell.scale] and cell.trainable_params() == [cell.scale, cell.kept]
    with pytest.raises(snncell.errors.BpropError, match="'kept' is needed, but bprop returns none"):
        grad(cell, None, cell.kept)(Tensor([0.5]))


@pytest.mark.compiled
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))])
def test_jitted_step_updates_the_constant_of_a_copy_only(duplicate):
    x = Tensor(np.random.default_rng(2).uniform(0, 1.5, (5, 2, 3)))
    original = surrogate.Inclusive(surrogate.ATan(Parameter(np.array(2.0), name="alpha")))
    found = []
    for how in (lambda fn: fn, snncell.jit):
        cell = duplicate(original)
        net = nn.MultiStep(nn.LIFNode(v_threshold=0.5, surrogate_function=cell))
        opt = nn.SGD(net.trainable_params(), 0.01)

        def step(x, net=net, opt=opt):
            opt(grad(lambda x: (net(x) * ops.sin(x)).sum(), None, net.trainable_params())(x))

        for _ in range(3):
            how(step)(x)
        found.append(net.trainable_params()[0].item())
    assert found[0] == pytest.approx(found[1], rel=1e-12) and found[0] != 2.0
    assert original.trainable_params()[0].item() == 2.0


def test_tensor_constant_holds_one_value_per_neuron():
    cell = surrogate.Sigmoid(Tensor([1.0, 2.0, 4.0]))
    x = np.full((2, 3), 0.3, np.float32)
    expected = np.stack([naive.sigmoid_slope(x[:, n], alpha) for n, alpha in enumerate((1.0, 2.0, 4.0))], axis=1)
    np.testing.assert_allclose(grad(cell)(Tensor(x)).asnumpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["ATan", "Triangle", "MultiGaussian", "QPseudoSpike"])
def test_changed_number_does_not_recompile(kind, monkeypatch):
    built = []
    monkeypatch.setattr(cpu_loop, "build", lambda name, source, *_: built.append(name) or as_python(name, source))
    cell = getattr(surrogate, kind)()
    name = cell.constants[0]
    net = nn.MultiStep(nn.LIFNode(surrogate_function=cell))
    found, counts = [], []
    for value in (1.25, 3.5):
        setattr(cell, name, value)
        found.append(grad(lambda x: (net(x) * ops.sin(x)).sum())(ops.ones((3, 1, 2))).asnumpy())
        counts.append(len(set(built)))
    assert counts == [2, 2] and (found[0] != found[1]).any()


def test_repr_shows_the_constants():
    assert repr(surrogate.Triangle(0.3, 2)) == "Triangle(height=0.3, width=2)"
    assert (
        repr(surrogate.Scaled(surrogate.ATan(), 0.3))
        == "Scaled(\n  scale=0.3\n  (surrogate_function): ATan(alpha=2.0)\n)"
    )


# --- firing at random -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [surrogate.Sigmoid, surrogate.Gaussian, surrogate.EscapeRate])
@pytest.mark.parametrize("x", [-0.4, 0.0, 0.3])
def test_stochastic_spike_probability_equals_the_primitive(kind, x):
    count = 40000
    spikes = surrogate.StochasticSpike(kind())(ops.full((count,), x))
    p = kind().primitive(Tensor(x)).item()
    assert set(np.unique(spikes.asnumpy())) <= {0.0, 1.0}
    assert abs(spikes.mean().item() - p) < 4.5 * np.sqrt(p * (1 - p) / count)


def test_stochastic_spike_is_certain_at_probability_0_and_1():
    fires = surrogate.StochasticSpike()
    assert fires(Tensor([-1e30, 1e30])).asnumpy().tolist() == [0.0, 1.0]
    assert surrogate.StochasticSpike(surrogate.StraightThrough())(Tensor([-9.0, 9.0])).asnumpy().tolist() == [0.0, 1.0]


@pytest.mark.compiled
def test_random_spikes_differ_per_step_and_call_and_follow_the_seed():
    node = nn.LIFNode(surrogate_function=surrogate.StochasticSpike(), reset=None)
    x = ops.ones((4, 1, 64)) * 1.5
    runs = {"multi": nn.MultiStep(node), "jit": snncell.jit(nn.MultiStep(node)), "steps": loop_of(node)}
    found = {}
    for name, run in runs.items():
        snncell.set_seed(5)
        found[name] = [run(x).asnumpy() for _ in range(2)]
    first, second = found["multi"]
    assert (first != second).any() and all((first[t] != first[t + 1]).any() for t in range(3))
    for name in ("jit", "steps"):
        np.testing.assert_array_equal(found[name], found["multi"])


@pytest.mark.compiled
def test_recomputed_forward_pass_reuses_random_spikes():
    x, found = ops.ones((6, 1, 8)) * 1.5, []
    for every in (None, 2):
        net = nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.StochasticSpike()), checkpoint_every=every)
        snncell.set_seed(5)
        found.append(grad(lambda x, net=net: (net(x) * ops.sin(x)).sum())(x).asnumpy())
    np.testing.assert_array_equal(*found)


def test_random_spike_gradient_equals_that_of_the_expected_spike():
    x, count = 0.2, 200
    expected = naive.sigmoid_slope(np.array(x))
    found = grad(surrogate.StochasticSpike())(ops.full((count,), x)).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# --- smooth ----------------------------------------------------------------------------------------------------------


def test_smooth_runs_the_primitive_inside_the_context_only(cell):
    x = Tensor(POINTS)
    with surrogate.smooth():
        np.testing.assert_array_equal(cell(x).asnumpy(), cell.primitive(x).asnumpy())
        with surrogate.smooth():
            pass
        assert cell(Tensor(0.1)).item() == cell.primitive(Tensor(0.1)).item() not in (0.0, 1.0)
    assert cell(Tensor(9.0)).item() == 1.0


def test_smooth_ends_after_an_exception():
    def fails():
        with surrogate.smooth():
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert surrogate.ATan()(Tensor(0.1)).item() == 1.0


@pytest.mark.compiled
def test_smooth_and_sharp_versions_are_compiled_separately():
    compiled, x = snncell.jit(surrogate.ATan()), Tensor([0.1])
    assert compiled(x).item() == 1.0
    with surrogate.smooth():
        assert 0.5 < compiled(x).item() < 1.0
        smooth_slope = ops.grad(compiled)(x).item()
    assert compiled(x).item() == 1.0
    assert ops.grad(compiled)(x).item() == pytest.approx(smooth_slope, rel=1e-6)  # bprop is its derivative


# --- errors -----------------------------------------------------------------------------------------------------------

NOT_NEGATIVE = {"h", "leak", "c"}  # like the alpha of LogTailedReLU
KINDS = [kind for name in surrogate.__all__ if inspect.signature(kind := getattr(surrogate, name)).parameters]
CONSTANTS = [
    (kind, name)
    for kind in KINDS
    for name, p in inspect.signature(kind).parameters.items()
    if type(p.default) in (int, float)
]


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan"), 0.0])
@pytest.mark.parametrize(("kind", "name"), CONSTANTS)
def test_invalid_constants_raise(kind, name, value):
    arguments = {"surrogate_function": surrogate.ATan()} if kind is surrogate.Scaled else {}
    may_be_zero = name in NOT_NEGATIVE or kind is surrogate.LogTailedReLU
    wanted = "not negative and finite" if may_be_zero else "above 1" if kind is surrogate.QPseudoSpike else "positive"
    if value == 0.0 and may_be_zero:
        for zero in (value, Tensor(value), np.float32(value)):
            kind(**arguments, **{name: zero})
        return
    default = inspect.signature(kind).parameters[name].default
    message = rf"{kind.__name__}: {name} is {wanted}.*, not {value}; leave it out for {default}"
    with pytest.raises(ArgumentError, match=message):
        kind(**arguments, **{name: value})
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: {name} is {wanted}.* in every element, not"):
        kind(**arguments, **{name: Tensor([1.5, value])})


@pytest.mark.parametrize("value", ["2", None, True, [2.0], 1j])
@pytest.mark.parametrize(("kind", "name"), CONSTANTS)
def test_constants_of_the_wrong_type_raise(kind, name, value):
    arguments = {"surrogate_function": surrogate.ATan()} if kind is surrogate.Scaled else {}
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: {name} is a number, a Tensor or a Parameter, not"):
        kind(**arguments, **{name: value})


def test_traced_tensor_as_constant_raises_if_its_gradient_would_be_lost():
    with pytest.raises(ArgumentError, match=r"ATan: alpha is a Tensor that is being differentiated.*stop_gradient"):
        grad(lambda alpha: surrogate.ATan(alpha)(Tensor([0.3])).sum())(Tensor(2.0))
    found = grad(lambda alpha: surrogate.ATan(ops.stop_gradient(alpha))(alpha * 0.0).sum())(Tensor(2.0))
    assert found.item() == 0.0


def test_scale_cannot_be_a_parameter():
    with pytest.raises(ArgumentError, match=r"Scaled: scale must be a number, because it is not learned, not Param"):
        surrogate.Scaled(surrogate.ATan(), Parameter(2.0))


@pytest.mark.parametrize("kind", [surrogate.Inclusive, surrogate.Scaled, surrogate.StochasticSpike])
@pytest.mark.parametrize("given", [2.0, surrogate.ATan, nn.ReLU(), ops.sigmoid])
def test_wrappers_accept_only_spike_functions(kind, given):
    message = rf"{kind.__name__}: surrogate_function must be a spike function.* surrogate\.ATan\(\), not"
    with pytest.raises(ArgumentError, match=message):
        kind(given)


def test_inclusive_rejects_custom_firing_rules():
    for given in (surrogate.StochasticSpike(), surrogate.Scaled(surrogate.StochasticSpike(), 0.5)):
        with pytest.raises(ArgumentError, match="Inclusive: a StochasticSpike has its own firing rule"):
            surrogate.Inclusive(given)
    twice = surrogate.Inclusive(surrogate.Scaled(surrogate.Inclusive(surrogate.ATan()), 0.5))
    assert twice(Tensor(0.0)).item() == 1.0 and grad(twice)(Tensor(0.0)).item() == 0.5


def test_surrogate_without_bprop_raises():
    class Forgotten(surrogate.Surrogate):
        pass

    with pytest.raises(NotImplementedError, match="Forgotten has no method bprop"):
        grad(Forgotten())(Tensor(0.5))


def test_missing_gradient_of_a_parameter_raises():
    class Forgets(surrogate.ATan):
        def bprop(self, x, out, dout):
            return (dout,)

    with pytest.raises(snncell.errors.BpropError, match="Forgets: returned no gradient for Parameter 'alpha'"):
        grad(Forgets(Parameter(2.0, name="alpha")))(Tensor(0.5))


# --- a Cell around a rule of two inputs -------------------------------------------------------------------------------


class Fires(nn.Cell):
    """A rule with two inputs: the potential and the threshold."""

    def construct(self, v, threshold):
        return (v > threshold).astype(v.dtype)

    def bprop(self, v, threshold, out, dout):
        dv = dout / ops.square(1.0 + ops.abs(v - threshold))
        return dv, -dv

    def primitive(self, v, threshold):
        x = v - threshold
        return 0.5 + x / (1.0 + ops.abs(x))


class AroundFires(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rule = Fires()

    def construct(self, x):
        return self.rule(x + 1.0, ops.ones_like(x))


class OneInput(surrogate.Surrogate):
    def bprop(self, x, out, dout):
        return (dout / ops.square(1.0 + ops.abs(x)),)

    def primitive(self, x):
        return 0.5 + x / (1.0 + ops.abs(x))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", ["LIFNode", "ALIFNode", "Recurrent"])
def test_cell_around_a_two_input_rule_is_a_spike_function(kind, jitted):
    x = Tensor(np.random.default_rng(0).normal(size=(6, 3, 4)).astype("f") * 2)

    def gradient(function):
        snncell.set_seed(1)
        node = (nn.ALIFNode if kind == "ALIFNode" else nn.LIFNode)(surrogate_function=function)
        net = nn.MultiStep(nn.Recurrent(node, nn.Dense(4, 4)) if kind == "Recurrent" else node)
        take = snncell.value_and_grad(lambda x: (net(x) * ops.cos(x)).sum())
        return (snncell.jit(take) if jitted else take)(x)

    with testing.unfused():
        all_expected = gradient(OneInput())
    for found, expected in zip(gradient(AroundFires()), all_expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


def test_monitors_and_checks_support_a_cell_around_a_rule():
    function = AroundFires()
    net = nn.SequentialCell(nn.TimeDistributed(nn.Dense(4, 5)), nn.MultiStep(nn.LIFNode(surrogate_function=function)))
    x = Tensor(np.random.default_rng(0).normal(size=(6, 3, 4)).astype("f") * 2)
    testing.check_through_time(net, x)
    with snncell.monitor(net, above=True) as seen:
        net(x)
    assert seen.spike_function("1") is function
    for other in (nn.ReLU(), nn.SequentialCell(nn.Sigmoid())):
        with pytest.raises(ArgumentError, match=r"or a Cell that contains one"):
            nn.LIFNode(surrogate_function=other)
