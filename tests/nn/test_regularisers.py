"""Activity regularisers against NumPy loops, their gradients, and errors."""

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.losses.spikes import _Regulariser

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (6, 4, 3, 2))  # (T, B, N...), real-valued


def units(x):
    """(T, B, N...) -> [(T, B) for each neuron]."""
    flat = x.reshape(*x.shape[:2], -1)
    return [flat[:, :, n] for n in range(flat.shape[2])]


def huber(a):
    return a * a / 2 if abs(a) <= 1 else abs(a) - 0.5


def silence(x, minimum):
    return sum(max(0.0, minimum - u.sum() / x.shape[1]) ** 2 for u in units(x))


def sparsity(x, maximum):
    return sum(huber(max(0.0, x[:, b].sum() / x[0, b].size - maximum)) for b in range(x.shape[1]))


def target_rate(x, target):
    return sum((u.mean() - target) ** 2 for u in units(x))


def bounds(x, target, upper, lower):
    total = 0.0
    for u in units(x):
        beyond = u.sum() / x.shape[1] - target
        total += (upper if beyond > 0 else lower) / 2 * beyond**2
    return total


TABLE = {
    "L1RateSparsity": (nn.L1RateSparsity, {}, lambda x: 1e-5 * x.sum()),
    "L1RateSparsity(0.3)": (nn.L1RateSparsity, {"strength": 0.3}, lambda x: 0.3 * x.sum()),
    "SilenceRegulariser": (nn.SilenceRegulariser, {"minimum": 3.0}, lambda x: silence(x, 3.0)),
    "SilenceRegulariser off": (nn.SilenceRegulariser, {"minimum": 0.0}, lambda x: 0.0),
    "SparsityRegulariser": (nn.SparsityRegulariser, {"maximum": 2.8}, lambda x: sparsity(x, 2.8)),
    "SparsityRegulariser far": (
        nn.SparsityRegulariser,
        {"maximum": 0.5, "strength": 0.2},
        lambda x: 0.2 * sparsity(x, 0.5),
    ),
    "SparsityRegulariser off": (nn.SparsityRegulariser, {"maximum": 6.0}, lambda x: 0.0),
    "TargetRateRegulariser": (nn.TargetRateRegulariser, {"target": 0.4}, lambda x: target_rate(x, 0.4)),
    "CountBoundRegulariser": (
        nn.CountBoundRegulariser,
        {"target": 3.0, "upper": 0.7, "lower": 0.2},
        lambda x: bounds(x, 3.0, 0.7, 0.2),
    ),
    "CountBoundRegulariser above": (nn.CountBoundRegulariser, {"target": 3.0}, lambda x: bounds(x, 3.0, 1.0, 0.0)),
}


def test_every_regulariser_is_in_the_table():
    found = {k for k in vars(nn).values() if isinstance(k, type) and issubclass(k, _Regulariser)}
    assert found == {kind for kind, _, _ in TABLE.values()}


@pytest.mark.parametrize("shape", [(6, 4, 6), (6, 4, 3, 2), (6, 4)], ids=str)
@pytest.mark.parametrize("name", TABLE)
def test_regularisers_equal_the_loop(run, name, shape):
    kind, arguments, naive = TABLE[name]
    x = X.reshape(shape) if len(shape) > 2 else X[:, :, 0, 0]
    found = run(kind(**arguments))(Tensor(x))
    assert found.shape == ()
    np.testing.assert_allclose(found.item(), naive(x), rtol=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_gradients_agree_with_finite_differences(name):
    kind, arguments, _ = TABLE[name]
    testing.check_grads(kind(**arguments), Tensor(X), order=2)


@pytest.mark.compiled
@pytest.mark.parametrize("name", TABLE)
def test_jitted_equals_eager_in_float32(name):
    kind, arguments, _ = TABLE[name]
    both, x = ops.value_and_grad(kind(**arguments)), Tensor(X, "float32")
    for eager, jitted in zip(both(x), snncell.jit(both)(x), strict=True):
        np.testing.assert_allclose(eager.asnumpy(), jitted.asnumpy(), rtol=2e-6, atol=1e-7)
        assert jitted.dtype == snncell.float32


def test_silence_regulariser_pushes_only_silent_neurons():
    spikes = np.zeros((5, 2, 2), np.float32)
    spikes[:, :, 1] = 1.0
    found = ops.grad(nn.SilenceRegulariser(1.0))(Tensor(spikes)).asnumpy()
    assert (found[:, :, 0] < 0).all() and not found[:, :, 1].any()
    np.testing.assert_array_equal(ops.grad(nn.L1RateSparsity(0.5))(Tensor(spikes)).asnumpy(), 0.5)


def test_training_with_a_regulariser_wakes_a_silent_layer():
    layer, neuron = nn.Dense(3, 5, weight_init="zeros", bias_init="zeros"), nn.MultiStep(nn.LIFNode())
    cost = nn.SilenceRegulariser(2.0)
    train = ops.value_and_grad(lambda x: cost(neuron(layer(x))), None, layer.trainable_params())
    optimiser = nn.SGD(layer.trainable_params(), 0.05)
    x = ops.ones((8, 2, 3))
    first, gradients = train(x)
    for _ in range(10):
        optimiser(gradients)
        last, gradients = train(x)
    assert first.item() == 5 * 2.0**2
    assert last.item() == 0.0


@pytest.mark.parametrize("name", TABLE)
def test_invalid_arguments_raise(name):
    kind, arguments, _ = TABLE[name]
    for x in (np.ones(3), np.ones((0, 2, 3)), np.ones((2, 0, 3))):
        with pytest.raises(ShapeError, match=rf"{kind.__name__}: spikes must be \(T, B, N\.\.\.\)"):
            kind(**arguments)(Tensor(x))
    for key in {"target", "minimum", "maximum", "strength", "upper", "lower"} & set(kind.__init__.__annotations__):
        for value in (-1.0, float("nan"), float("inf"), "much"):
            with pytest.raises(ArgumentError, match=rf"{kind.__name__}: {key} is a finite number of at least 0"):
                kind(**{**arguments, key: value})


@pytest.mark.peer
def test_l1_equals_snntorch(torch):
    reg = pytest.importorskip("snntorch.functional.reg", reason="snnTorch is not installed: nothing to compare with")
    theirs = reg.l1_rate_sparsity(0.01)(torch.tensor(X)).item()
    np.testing.assert_allclose(nn.L1RateSparsity(0.01)(Tensor(X)).item(), theirs, rtol=1e-12)
