"""Normalisation, dropout, embeddings, activations and containers, against NumPy and PyTorch."""

import warnings

import numpy as np
import pytest
from against_torch import assert_like, filled

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ArgumentWarning, ShapeError, SnncellError, TensorIndexError

# --- normalisation ---------------------------------------------------------------------------------------------------

BATCHES = [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm1d, (4, 3, 5)), (nn.BatchNorm2d, (4, 3, 2, 5))]
BATCH_IDS = ["N C", "N C L", "N C H W"]


@pytest.mark.parametrize(("make", "shape"), BATCHES, ids=BATCH_IDS)
def test_batch_norm_equals_its_formula_in_training_and_prediction(rng, make, shape):
    layer = filled(make(3, eps=1e-3, momentum=0.8, dtype="float64"), rng)
    x = rng.normal(2, 3, shape)
    axes = (0, *range(2, len(shape)))
    per_channel = (1, 3, *(1,) * (len(shape) - 2))
    gamma, beta, mean, var = (
        p.asnumpy().copy() for p in (layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance)
    )

    def normalise(m, v):
        m, v, g, b = (a.reshape(per_channel) for a in (m, v, gamma, beta))
        return (x - m) / np.sqrt(v + 1e-3) * g + b

    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), normalise(mean, var), rtol=1e-11)
    np.testing.assert_array_equal(layer.moving_mean.asnumpy(), mean)  # prediction does not update the moving statistics
    layer.set_train()
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), normalise(x.mean(axes), x.var(axes)), rtol=1e-10)
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), 0.8 * mean + 0.2 * x.mean(axes), rtol=1e-12)
    unbiased = x.var(axes, ddof=1)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), 0.8 * var + 0.2 * unbiased, rtol=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("make", "shape"), BATCHES, ids=BATCH_IDS)
def test_batch_norm_equals_torch(torch, rng, make, shape, training):
    layer = filled(make(3, eps=1e-4, momentum=0.7, dtype="float64"), rng)
    module = (torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d)(3, eps=1e-4, momentum=0.3)
    module.running_mean = torch.tensor(layer.moving_mean.asnumpy().copy())
    module.running_var = torch.tensor(layer.moving_variance.asnumpy().copy())
    module.train(training)
    layer.set_train(training)
    x = rng.normal(1, 2, shape)
    # torch keeps float32 buffers by default, so .double() in assert_like matters
    assert_like(torch, layer, module, x, {"weight": "gamma", "bias": "beta"})
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), module.running_mean.numpy(), rtol=1e-10)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), module.running_var.numpy(), rtol=1e-10)


@pytest.mark.sampled(2)
@pytest.mark.peer
@pytest.mark.parametrize(("make", "shape"), BATCHES, ids=BATCH_IDS)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
def test_second_order_gradients_equal_torch(torch, rng, make, shape, jitted):
    """Differentiate the squares of the gradient, through the mean and variance of the batch."""
    layer = make(3, dtype="float64").set_train()
    x, weights = rng.normal(2, 3, shape), rng.normal(size=shape)

    def squares(x):
        gradient = snncell.grad(lambda x: (layer(x) * Tensor(weights)).sum())(x)
        return (gradient * gradient).sum()

    ours = snncell.grad(snncell.jit(squares) if jitted else squares)(Tensor(x)).asnumpy()
    theirs = torch.tensor(x, requires_grad=True)
    loss = (torch.nn.functional.batch_norm(theirs, None, None, training=True) * torch.tensor(weights)).sum()
    (gradient,) = torch.autograd.grad(loss, theirs, create_graph=True)
    (expected,) = torch.autograd.grad((gradient * gradient).sum(), theirs)
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-9, atol=1e-12)


def test_use_batch_statistics_overrides_training_mode(rng):
    x = Tensor(rng.normal(5, 2, (50, 2)).astype(np.float32))
    layer = nn.BatchNorm1d(2, use_batch_statistics=True)
    assert abs(layer(x).asnumpy().mean()) < 1e-5
    frozen = nn.BatchNorm1d(2, use_batch_statistics=False)
    frozen.set_train()
    np.testing.assert_allclose(frozen(x).asnumpy(), x.asnumpy(), rtol=1e-4)
    assert not frozen.moving_mean.asnumpy().any()


def test_batch_norm_without_affine_has_no_parameters():
    layer = nn.BatchNorm1d(2, affine=False)
    assert layer.trainable_params() == [] and len(nn.BatchNorm1d(2).trainable_params()) == 2


def test_batch_norm_errors_name_the_cell():
    with pytest.raises(ShapeError, match=r"BatchNorm2d\(num_features=3.*\(2, 3, 4\).*4 axes with 3 channels"):
        nn.BatchNorm2d(3)(ops.ones((2, 3, 4)))
    with pytest.raises(ShapeError, match=r"BatchNorm1d\(num_features=3.*2 or 3 axes"):
        nn.BatchNorm1d(3)(ops.ones((2, 4)))
    with pytest.raises(ShapeError, match=r"\(5, 4, 3\).* write nn\.TimeDistributed\(nn\.BatchNorm1d\(3\)\)"):
        nn.BatchNorm1d(3)(ops.ones((5, 4, 3)))
    layer = nn.BatchNorm1d(3)
    layer.set_train()
    with pytest.raises(ShapeError, match=r"BatchNorm1d\(.*\(1, 3\) has one value per channel, but a variance"):
        layer(ops.ones((1, 3)))
    with pytest.raises(ArgumentError, match=r"momentum must be in \[0, 1\], not 1\.5"):
        nn.BatchNorm1d(3, momentum=1.5)


@pytest.mark.parametrize(("size", "shape"), [(5, (4, 5)), ((3, 5), (2, 4, 3, 5)), ([5], (5,))], ids=str)
def test_layer_norm_equals_its_formula(rng, size, shape):
    layer = filled(nn.LayerNorm(size, epsilon=1e-3, dtype="float64"), rng)
    axes = tuple(range(-len(layer.gamma.shape), 0))
    x = rng.normal(2, 3, shape)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    expected = (x - mean) / np.sqrt(var + 1e-3) * layer.gamma.asnumpy() + layer.beta.asnumpy()
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected, rtol=1e-11)
    testing.check_grads(layer, Tensor(x), order=2)


@pytest.mark.peer
@pytest.mark.parametrize(("size", "shape"), [(5, (4, 5)), ((3, 5), (2, 4, 3, 5))], ids=str)
def test_layer_norm_equals_torch(torch, rng, size, shape):
    layer = filled(nn.LayerNorm(size, epsilon=1e-5, dtype="float64"), rng)
    assert_like(
        torch, layer, torch.nn.LayerNorm(size, 1e-5), rng.normal(2, 3, shape), {"weight": "gamma", "bias": "beta"}
    )


def test_layer_norm_shape_errors_name_the_layer():
    with pytest.raises(ShapeError, match=r"LayerNorm\(normalized_shape=\(3, 5\).*\(2, 5\).*last axes must be \(3, 5\)"):
        nn.LayerNorm((3, 5))(ops.ones((2, 5)))


# --- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_scales_kept_elements_and_is_off_in_prediction(p):
    layer, x = nn.Dropout(p=p), ops.ones((100, 100))
    assert layer(x) is x  # prediction
    layer.set_train()
    out, found = ops.value_and_grad(layer)(x)
    assert set(np.unique(out.asnumpy()).tolist()) <= {0.0, np.float32(1 / (1 - p)).item() if p < 1 else 0.0}
    assert (out.asnumpy() == 0).mean() == pytest.approx(p, abs=4 * 0.5 / 100)
    np.testing.assert_array_equal(found.asnumpy(), out.asnumpy())  # the mask of the forward pass
    if 0 < p < 1:
        assert (layer(x).asnumpy() != out.asnumpy()).any()


def test_dropout_accepts_keep_prob():
    assert nn.Dropout(keep_prob=0.9).p == pytest.approx(0.1) and nn.Dropout(keep_prob=0.9, p=0.3).p == 0.3
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ArgumentError, match=r"Dropout: p is a finite number in \[0, 1\]"):
            nn.Dropout(p=wrong)


def test_positional_dropout_probability_warns():
    words = r"Dropout\(0\.2\) drops 0\.8 .* Write Dropout\(p=0\.8\) .* Dropout\(p=0\.2\)"
    with pytest.warns(ArgumentWarning, match=words) as seen:
        layer = nn.Dropout(0.2)
    assert layer.p == pytest.approx(0.8) and seen[0].filename == __file__
    assert isinstance(seen[0].message, SnncellError) and isinstance(seen[0].message, UserWarning)

    class Mine(nn.Dropout):
        def __init__(self):
            super().__init__(0.9)

    with pytest.warns(ArgumentWarning):
        Mine()


def test_dropout_by_keyword_or_one_half_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for layer in (nn.Dropout(), nn.Dropout(0.5), nn.Dropout(keep_prob=0.2), nn.Dropout(p=0.2), nn.Dropout2d(0.2)):
            assert 0.0 < layer.p < 1.0
        assert nn.TimeFixedDropout(0.2).p == 0.2 and nn.TimeFixedDropout2d(0.2).p == 0.2


def test_dropout_warns_once_per_line():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            nn.Dropout(0.2)
        nn.Dropout(0.2)
    assert len(seen) == 2


@pytest.mark.parametrize("make", [nn.Conv1d, nn.Conv2d])
def test_padding_without_pad_mode_suggests_a_fix(make):
    words = r'padding=1 needs pad_mode="pad"; with \'same\' it must be 0. Write pad_mode="pad", padding=1'
    with pytest.raises(ArgumentError, match=words):
        make(1, 8, 3, padding=1)
    x = ops.ones((1, 1, 8, 8)[: 2 + make.axes])
    assert make(1, 8, 3, pad_mode="pad", padding=1)(x).shape == make(1, 8, 3)(x).shape


def test_dropout2d_drops_channels():
    layer = nn.Dropout2d(0.5)
    layer.set_train()
    out = layer(ops.ones((20, 10, 3, 4))).asnumpy()
    assert (out == out[:, :, :1, :1]).all() and 0.3 < (out[:, :, 0, 0] == 0).mean() < 0.7
    assert set(np.unique(out).tolist()) == {0.0, 2.0}


# --- Embedding and small layers ---------------------------------------------------------------------------------------


def test_embedding_gathers_rows_and_sums_their_gradients(rng):
    layer = filled(nn.Embedding(5, 3, dtype="float64"), rng)
    indices = Tensor([[0, 4], [4, 4]])
    out, pull = ops.vjp(lambda: layer(indices), weights=layer.embedding_table)
    np.testing.assert_array_equal(out.asnumpy(), layer.embedding_table.asnumpy()[indices.asnumpy()])
    dout = rng.standard_normal((2, 2, 3))
    expected = np.zeros((5, 3))
    np.add.at(expected, indices.asnumpy(), dout)
    _, found = pull(Tensor(dout))
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-13)


def test_embedding_padding_row_gets_zero_gradient(rng):
    layer = nn.Embedding(5, 3, padding_idx=2, embedding_table="ones")
    assert not layer.embedding_table.asnumpy()[2].any() and layer.embedding_table.asnumpy()[1].all()
    found = ops.grad(lambda: layer(Tensor([1, 2, 2])), None, layer.embedding_table)()
    assert found.asnumpy().tolist() == [[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3]
    layer.embedding_table.set_data(ops.ones((5, 3)))
    assert layer(Tensor([2])).asnumpy().tolist() == [[1.0, 1.0, 1.0]]  # the row is read, but its gradient is zero
    with pytest.raises(ArgumentError, match="padding_idx=5 must be from 0 to 4, the rows of the table"):
        nn.Embedding(5, 3, padding_idx=5)


@pytest.mark.parametrize("index", [5, -6])
def test_embedding_indices_out_of_range_raise(index):
    with pytest.raises(TensorIndexError, match=str(index)):
        nn.Embedding(5, 3)(Tensor([index]))


@pytest.mark.peer
def test_embedding_equals_torch(torch, rng):
    layer = filled(nn.Embedding(6, 3, padding_idx=1, dtype="float64"), rng)
    module = torch.nn.Embedding(6, 3, padding_idx=1).double()
    module.weight.data = torch.tensor(layer.embedding_table.asnumpy().copy())
    indices = rng.integers(0, 6, (4, 5))
    dout = rng.standard_normal((4, 5, 3))
    module(torch.tensor(indices)).backward(torch.tensor(dout))
    _, pull = ops.vjp(lambda: layer(Tensor(indices)), weights=layer.embedding_table)
    np.testing.assert_allclose(pull(Tensor(dout))[1].asnumpy(), module.weight.grad.numpy(), rtol=1e-12)


ACTIVATIONS = {
    "ReLU": (nn.ReLU, lambda t: t.nn.ReLU()),
    "ReLU6": (nn.ReLU6, lambda t: t.nn.ReLU6()),
    "LeakyReLU": (nn.LeakyReLU, lambda t: t.nn.LeakyReLU(0.2)),
    "GELU": (nn.GELU, lambda t: t.nn.GELU(approximate="tanh")),
    "GELU exact": (lambda: nn.GELU(approximate=False), lambda t: t.nn.GELU()),
    "Sigmoid": (nn.Sigmoid, lambda t: t.nn.Sigmoid()),
    "Tanh": (nn.Tanh, lambda t: t.nn.Tanh()),
    "Softplus": (nn.Softplus, lambda t: t.nn.Softplus(threshold=1e9)),
    "Softmax": (nn.Softmax, lambda t: t.nn.Softmax(-1)),
    "Softmax(0)": (lambda: nn.Softmax(0), lambda t: t.nn.Softmax(0)),
    "LogSoftmax": (nn.LogSoftmax, lambda t: t.nn.LogSoftmax(-1)),
    "Flatten": (nn.Flatten, lambda t: t.nn.Flatten()),
    "Threshold": (lambda: nn.Threshold(0.1, 20.0), lambda t: t.nn.Threshold(0.1, 20.0)),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_torch(torch, rng, name):
    mine, theirs = ACTIVATIONS[name]
    assert_like(torch, mine(), theirs(torch), rng.uniform(-4, 8, (3, 4, 5)), {})


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n != "Flatten"])
def test_activation_gradients_agree_with_finite_differences(rng, name):
    testing.check_grads(ACTIVATIONS[name][0](), Tensor(rng.uniform(-4, 8, (3, 5))), order=2)


# --- containers ------------------------------------------------------------------------------------------------------


def test_sequential_accepts_cells_lists_and_named_cells():
    a, b = nn.Dense(2, 3), nn.Dense(3, 1)
    x = ops.ones((4, 2))
    expected = b(a(x)).asnumpy()
    from collections import OrderedDict

    for net in (
        nn.SequentialCell(a, b),
        nn.SequentialCell([a, b]),
        nn.SequentialCell(OrderedDict(first=a, second=b)),
        nn.SequentialCell(a).append(b),
    ):
        np.testing.assert_array_equal(net(x).asnumpy(), expected)
        assert len(net) == 2 and net[1] is b and list(net) == [a, b] and len(net[:1]) == 1
    assert "first.weight" in nn.SequentialCell(OrderedDict(first=a)).parameters_dict()
    with pytest.raises(ArgumentError, match="SequentialCell: element 1 of cells must be a Cell, not a function"):
        nn.SequentialCell(a, lambda x: x)


def test_cell_list_registers_cells_and_cannot_be_called():
    cells = nn.CellList([nn.Dense(2, 2)]).extend([nn.Dense(2, 3), nn.Dense(3, 1)])
    assert len(cells) == 3 and cells[-1].out_channels == 1 and isinstance(cells[:2], nn.CellList)
    assert list(cells.parameters_dict())[:2] == ["0.weight", "0.bias"]
    with pytest.raises(snncell.errors.SnncellError, match="CellList"):
        cells(ops.ones((1, 2)))


NORMS = {
    "batch": (lambda d: nn.BatchNorm2d(6, dtype=d), lambda t: t.nn.BatchNorm2d(6)),
    "group": (lambda d: nn.GroupNorm(2, 6, dtype=d), lambda t: t.nn.GroupNorm(2, 6)),
    "instance": (lambda d: nn.InstanceNorm2d(6, dtype=d), lambda t: t.nn.InstanceNorm2d(6)),
    "layer": (lambda d: nn.LayerNorm((5,), dtype=d), lambda t: t.nn.LayerNorm(5)),
}


@pytest.mark.peer
@pytest.mark.parametrize("parameters", ["float16", "float32"])
@pytest.mark.parametrize("kind", NORMS)
def test_variance_beyond_the_float16_range_stays_finite(kind, parameters, rng, torch):
    make, theirs = NORMS[kind]
    x = Tensor(400.0 * rng.standard_normal((4, 6, 5, 5))).astype("float16")
    out = make(parameters).set_train()(x)
    expected = theirs(torch)(torch.tensor(x.astype("float32").asnumpy().copy())).detach().numpy()
    assert out.dtype.name == parameters
    np.testing.assert_allclose(out.astype("float32").asnumpy(), expected, atol=4e-3)


@pytest.mark.parametrize("kind", ["group", "instance", "layer"])
def test_normalisation_accepts_an_empty_batch(kind):
    net = NORMS[kind][0]("float32")
    assert snncell.grad(lambda x: net(x).sum())(ops.zeros((0, 6, 5, 5))).shape == (0, 6, 5, 5)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
@pytest.mark.parametrize("begins", [{}, {"begin_norm_axis": -1}, "first", "counted", "one"])
def test_layer_norm_axis_follows_normalized_shape(shape, begins):
    """The axis may be given as in MindSpore's examples: the first axis of normalized_shape."""
    x = Tensor(np.random.default_rng(0).standard_normal((5, 2, 4, 3)).astype(np.float32))
    first = 4 - len(shape)
    axes = {"first": (first, first), "counted": (-len(shape), first), "one": (-1, first)}
    words = ("begin_norm_axis", "begin_params_axis")
    given = dict(zip(words, axes[begins], strict=True)) if isinstance(begins, str) else begins
    np.testing.assert_array_equal(nn.LayerNorm(shape, **given)(x).asnumpy(), nn.LayerNorm(shape)(x).asnumpy())
    for wrong in (first - 1, first + 1):
        for name in ("begin_norm_axis", "begin_params_axis"):
            with pytest.raises(ShapeError, match=rf"begin with axis {first}, not {wrong} .*Leave both at -1"):
                nn.LayerNorm(shape, **{name: wrong})(x)
    with pytest.raises(ArgumentError, match="Leave both at -1"):
        nn.LayerNorm(shape, begin_norm_axis=-len(shape) - 1)
