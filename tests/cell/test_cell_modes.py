"""Execution modes and initial values: equal results compiled or not, and initialisers."""

import numpy as np
import pytest
from scipy import stats

import snncell
from snncell import Tensor, nn, ops
from snncell.common import initializer as rules
from snncell.common.initializer import initializer
from snncell.errors import ArgumentError, ShapeError


@pytest.fixture
def graph_mode():
    snncell.set_context(mode=snncell.GRAPH_MODE)
    yield
    snncell.set_context(mode=snncell.PYNATIVE_MODE)


# --- modes ------------------------------------------------------------------------------------------------------------


def test_default_mode_runs_each_operation():
    assert snncell.get_context("mode") == snncell.PYNATIVE_MODE
    with pytest.raises(ArgumentError, match="mode is GRAPH_MODE"):
        snncell.set_context(mode=7)
    with pytest.raises(ArgumentError, match=r'"CPU" or "GPU", not .CUDA.\. For an NVIDIA card, pass "GPU"'):
        snncell.set_context(device_target="CUDA")
    with pytest.raises(ArgumentError, match="no setting 'colour'"):
        snncell.get_context("colour")


def train(steps=3):
    """Return losses, statistics and weights of a small network after a few steps."""
    snncell.set_seed(1)
    net = nn.SequentialCell(nn.Dense(4, 8, activation="relu"), nn.BatchNorm1d(8), nn.Dropout(p=0.3), nn.Dense(8, 3))
    net.set_train()
    loss = nn.CrossEntropyLoss()
    optimiser = nn.Adam(net.trainable_params(), 0.01)
    rng = np.random.default_rng(0)
    x, labels = Tensor(rng.standard_normal((16, 4)).astype(np.float32)), Tensor(rng.integers(0, 3, 16))
    step = ops.value_and_grad(lambda a, b: loss(net(a), b), None, net.trainable_params())
    losses = []
    for _ in range(steps):
        value, grads = step(x, labels)
        optimiser(grads)
        losses.append(value.item())
    net.set_train(False)
    return losses, {path: p.asnumpy() for path, p in net.parameters_dict().items()}, net(x).asnumpy()


@pytest.mark.compiled
def test_graph_mode_equals_pynative_mode():
    losses, weights, out = train()
    snncell.set_context(mode=snncell.GRAPH_MODE)
    try:
        graph_losses, graph_weights, graph_out = train()
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    np.testing.assert_allclose(graph_losses, losses, rtol=1e-5)
    assert losses[0] > losses[-1]
    for path, value in weights.items():
        np.testing.assert_allclose(graph_weights[path], value, rtol=1e-4, atol=1e-6, err_msg=path)
    np.testing.assert_allclose(graph_out, out, rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
def test_gradient_of_compiled_dropout_uses_the_mask_of_its_forward():
    layer = nn.Dropout(p=0.5)
    layer.set_train()
    out, found = ops.value_and_grad(snncell.jit(layer))(ops.ones(64))
    assert 0 < out.asnumpy().sum() < 128
    np.testing.assert_array_equal(found.asnumpy(), out.asnumpy())


@pytest.mark.compiled
def test_gradient_of_a_compiled_function_runs_its_effects_once():
    layer = nn.BatchNorm1d(2, momentum=0.5)
    layer.set_train()
    x = Tensor([[1.0, 2.0], [3.0, 6.0]])
    ops.grad(snncell.jit(layer))(x)
    assert layer.moving_mean.asnumpy().tolist() == [1.0, 2.0]

    counter = snncell.Parameter(Tensor(0), name="counter", requires_grad=False)

    @snncell.jit
    def counting(x):
        ops.assign_add(counter, 1)
        return x * x

    ops.grad(counting)(Tensor(2.0))
    assert counter.item() == 1


@pytest.mark.compiled
def test_graph_mode_follows_changed_attributes_and_parameters(graph_mode):
    class Scale(nn.Cell):
        def __init__(self):
            super().__init__()
            self.factor = 2.0
            self.shift = snncell.Parameter(Tensor([0.0]))

        def construct(self, x):
            return x * self.factor + self.shift

    net, x = Scale(), Tensor([1.0])
    assert net(x).item() == 2.0
    net.factor = 5.0
    assert net(x).item() == 5.0
    net.shift[0] = 1.0
    assert net(x).item() == 6.0


@pytest.mark.compiled
def test_graph_mode_runs_spiking_networks(graph_mode):
    x = Tensor(np.random.default_rng(0).uniform(0, 1, (6, 2, 5)).astype(np.float32))
    net = nn.MultiStep(nn.LIFNode(tau=2.0, decay_input=False))
    compiled = net(x).asnumpy(), ops.grad(net)(x).asnumpy()
    snncell.set_context(mode=snncell.PYNATIVE_MODE)
    np.testing.assert_array_equal(net(x).asnumpy(), compiled[0])
    assert compiled[0].any()
    np.testing.assert_allclose(ops.grad(net)(x).asnumpy(), compiled[1], rtol=1e-5, atol=1e-7)


# --- initial values ---------------------------------------------------------------------------------------------------

SHAPE = (400, 300)  # in = 300, out = 400
KERNEL = (64, 32, 3, 3)  # in = 288, out = 576
UNIFORM = {
    "uniform": (SHAPE, 0.07),
    "xavier_uniform": (SHAPE, np.sqrt(6 / 700)),
    "he_uniform": (SHAPE, np.sqrt(6 / 300)),
    "xavier_uniform of a kernel": (KERNEL, np.sqrt(6 / (288 + 576))),
    "he_uniform of a kernel": (KERNEL, np.sqrt(6 / 288)),
}
NORMAL = {
    "normal": (SHAPE, 0.01),
    "xavier_normal": (SHAPE, np.sqrt(2 / 700)),
    "he_normal": (SHAPE, np.sqrt(2 / 300)),
    "he_normal of a kernel": (KERNEL, np.sqrt(2 / 288)),
}
# The Kolmogorov-Smirnov distance of n draws from their distribution exceeds 1.95 / sqrt(n) with probability 0.001. The
# seed is fixed, so the tests are deterministic, and a bound wrong by 1.5 % fails.
CRITICAL = 1.95


@pytest.fixture(autouse=True)
def seed():
    snncell.set_seed(11)


@pytest.mark.parametrize("case", UNIFORM)
def test_uniform_initialisers_have_their_distribution(case):
    shape, bound = UNIFORM[case]
    values = initializer(case.split()[0], shape).asnumpy().ravel().astype(float)
    assert np.abs(values).max() <= bound * (1 + 1e-6)
    assert stats.kstest(values, stats.uniform(-bound, 2 * bound).cdf).statistic < CRITICAL / np.sqrt(values.size)


@pytest.mark.parametrize("case", NORMAL)
def test_normal_initialisers_have_their_distribution(case):
    shape, sigma = NORMAL[case]
    values = initializer(case.split()[0], shape).asnumpy().ravel().astype(float)
    assert stats.kstest(values, stats.norm(0, sigma).cdf).statistic < CRITICAL / np.sqrt(values.size)
    assert values.std() == pytest.approx(sigma, rel=0.01)


@pytest.mark.parametrize("name", ["truncatedNormal", "truncated_normal"])
def test_truncated_normal_has_its_distribution(name):
    values = initializer(name, SHAPE).asnumpy().ravel().astype(float)
    assert np.abs(values).max() <= 0.02 * (1 + 1e-6)
    assert stats.kstest(values / 0.01, stats.truncnorm(-2, 2).cdf).statistic < CRITICAL / np.sqrt(values.size)


def test_constant_initialisers_have_their_values():
    assert initializer("zeros", (2, 3)).asnumpy().tolist() == [[0.0] * 3] * 2
    assert initializer("ones", [2]).asnumpy().tolist() == [1.0, 1.0]
    assert initializer(0.25, 3).asnumpy().tolist() == [0.25] * 3
    assert initializer(rules.Constant(7), (1,), snncell.int32).dtype == snncell.int32


def test_identity_and_orthogonal_have_their_properties():
    assert initializer("identity", (2, 3)).asnumpy().tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(ShapeError, match="'identity' needs a matrix"):
        initializer("identity", (2, 2, 2))
    for shape in ((6, 4), (4, 6), (4, 2, 3)):
        q = initializer("orthogonal", shape).asnumpy().reshape(shape[0], -1).astype(float)
        product = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-6)


def test_initialisers_accept_settings():
    assert initializer(rules.Normal(2.0, 5.0), SHAPE).asnumpy().mean() == pytest.approx(5.0, abs=0.03)
    bound = np.sqrt(3) * np.sqrt(2 / (1 + 0.2**2)) / np.sqrt(400)
    fan_out = initializer(rules.HeUniform(0.2, mode="fan_out"), SHAPE).asnumpy()
    assert np.abs(fan_out).max() == pytest.approx(bound, rel=1e-3)


def test_seed_determines_the_values():
    snncell.set_seed(3)
    first, second = initializer("normal", (5,)).asnumpy(), initializer("normal", (5,)).asnumpy()
    snncell.set_seed(3)
    np.testing.assert_array_equal(initializer("normal", (5,)).asnumpy(), first)
    assert (first != second).all()


def test_initial_tensor_is_copied_and_must_have_the_shape():
    given = Tensor([1.0, 2.0])
    assert nn.Dense(1, 2, bias_init=given).bias.asnumpy().tolist() == [1.0, 2.0]
    with pytest.raises(ShapeError, match=r"shape \(2,\), not \(3,\)"):
        nn.Dense(1, 3, bias_init=given)


def test_unknown_initialisers_raise():
    with pytest.raises(ArgumentError, match=r"init is a number, a Tensor, an Initializer, or its name \(.*he_normal"):
        initializer("magic", (2,))
    with pytest.raises(ArgumentError, match="init is a number, a Tensor, an Initializer"):
        initializer(object(), (2,))


def test_dense_weights_are_uniform_within_one_over_the_root_of_the_inputs():
    layer = nn.Dense(300, 400)
    assert layer.weight.shape == (400, 300)
    for values in (layer.weight.asnumpy().ravel(), layer.bias.asnumpy()):
        bound = 1 / np.sqrt(300)
        assert np.abs(values).max() <= bound * (1 + 1e-6)
        law = stats.uniform(-bound, 2 * bound).cdf
        assert stats.kstest(values.astype(float), law).statistic < CRITICAL / np.sqrt(values.size)


@pytest.mark.compiled
def test_cell_appended_to_a_list_is_used_by_compiled_code():
    class Chain(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = [nn.ReLU()]

        def construct(self, x):
            for layer in self.layers:
                x = layer(x) + 1.0
            return x

    chain = Chain()
    compiled = snncell.jit(chain)
    assert compiled(Tensor([1.0])).item() == 2.0
    chain.layers.append(nn.ReLU())
    assert chain(Tensor([1.0])).item() == 3.0
    assert compiled(Tensor([1.0])).item() == 3.0
