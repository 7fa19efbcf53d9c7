"""Layers against loops in plain NumPy, and forward and gradients against PyTorch where it is installed."""

import math

import naive
import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ShapeError, TensorIndexError


@pytest.fixture(scope="module")
def torch():
    module = pytest.importorskip("torch", reason="PyTorch is not installed: layers are compared with it")
    module.set_num_threads(1)
    return module


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def filled(cell, rng):
    """The Cell with random float64 Parameters, so that no default hides a mistake."""
    for path, p in cell.parameters_dict().items():
        low = 0.5 if "variance" in path or "gamma" in path else -1.0
        p.set_data(Tensor(rng.uniform(low, 1.5, p.shape)))
    return cell


def assert_like(torch, cell, module, x, names):
    """Forward, and gradients of the input and of the Parameters `names` = {theirs: ours}, against a torch module."""
    module = module.double()
    for theirs, ours in names.items():
        getattr(module, theirs).data = torch.tensor(np.array(getattr(cell, ours).asnumpy()))
    theirs_x = torch.tensor(x, requires_grad=True)
    theirs_out = module(theirs_x)
    dout = np.random.default_rng(9).standard_normal(theirs_out.shape)
    theirs_out.backward(torch.tensor(dout))
    weights = [getattr(cell, ours) for ours in names.values()]
    out, pull = ops.vjp(cell, Tensor(x), weights=weights)
    of_x, of_weights = pull(Tensor(dout))
    np.testing.assert_allclose(out.asnumpy(), theirs_out.detach().numpy(), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(of_x.asnumpy(), theirs_x.grad.numpy(), rtol=1e-9, atol=1e-10)
    for theirs, found in zip(names, of_weights, strict=True):
        expected = getattr(module, theirs).grad.numpy()
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-9, atol=1e-10, err_msg=theirs)


WEIGHTS = {"weight": "weight", "bias": "bias"}

# --- Dense -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_dense(rng, shape, has_bias):
    layer = filled(nn.Dense(3, 4, has_bias=has_bias, dtype="float64"), rng)
    x = rng.standard_normal(shape)
    expected = x @ layer.weight.asnumpy().T + (layer.bias.asnumpy() if has_bias else 0)
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected, rtol=1e-13, atol=1e-14)
    assert hasattr(layer, "bias") == has_bias


@pytest.mark.peer
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)], ids=str)
def test_dense_like_torch(torch, rng, shape):
    layer = filled(nn.Dense(3, 4, dtype="float64"), rng)
    assert_like(torch, layer, torch.nn.Linear(3, 4), rng.standard_normal(shape), WEIGHTS)


def test_dense_with_an_activation_by_name_or_cell(rng):
    x = Tensor(rng.standard_normal((4, 3)).astype(np.float32))
    layer = nn.Dense(3, 4, activation="relu")
    plain = nn.Dense(3, 4, layer.weight, layer.bias)
    np.testing.assert_array_equal(layer(x).asnumpy(), np.maximum(plain(x).asnumpy(), 0))
    named = nn.Dense(3, 4, layer.weight, layer.bias, activation=nn.Tanh())
    np.testing.assert_allclose(named(x).asnumpy(), np.tanh(plain(x).asnumpy()), rtol=1e-6)
    with pytest.raises(ArgumentError, match="Dense: no activation 'magic'; there are gelu"):
        nn.Dense(3, 4, activation="magic")


def test_dense_names_itself_when_the_shape_is_wrong():
    with pytest.raises(ShapeError, match=r"Dense<in_channels=3.*shape \(2, 5\).*last axis.*in_channels = 3"):
        nn.Dense(3, 4)(ops.ones((2, 5)))
    with pytest.raises(ShapeError, match=r"Dense<.*shape \(\)"):
        nn.Dense(3, 4)(Tensor(1.0))


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None])
def test_sizes_are_positive_integers(value):
    with pytest.raises(ArgumentError, match="Dense: in_channels is an integer of at least 1"):
        nn.Dense(value, 4)
    with pytest.raises(ArgumentError, match="Conv2d: out_channels is an integer of at least 1"):
        nn.Conv2d(4, value, 3)


# --- convolutions ----------------------------------------------------------------------------------------------------

CONV2D = {
    "valid": {"pad_mode": "valid"},
    "same": {"pad_mode": "same"},
    "same with stride": {"pad_mode": "same", "stride": 2},
    "same with dilation": {"pad_mode": "same", "dilation": 2},
    "same, uneven": {"pad_mode": "same", "stride": (2, 3), "kernel_size": (2, 3)},
    "pad": {"pad_mode": "pad", "padding": 1},
    "pad four ways": {"pad_mode": "pad", "padding": (0, 2, 1, 3), "stride": (1, 2)},
    "groups": {"pad_mode": "valid", "group": 2},
    "depthwise": {"pad_mode": "same", "group": 4},
    "a point": {"pad_mode": "valid", "kernel_size": 1, "stride": 2},
}


def settings(case):
    options = {"kernel_size": 3, "stride": 1, "dilation": 1, "group": 1, "padding": 0, **CONV2D[case]}
    kernel, stride, dilation = (
        (v, v) if isinstance(v, int) else v for v in (options["kernel_size"], options["stride"], options["dilation"])
    )
    given = options["padding"]
    padding = (given,) * 4 if isinstance(given, int) else given
    if options["pad_mode"] == "same":
        padding = tuple(
            n for i, size in enumerate((7, 8)) for n in naive.same_padding(size, kernel[i], stride[i], dilation[i])
        )
    return options, kernel, stride, dilation, padding


@pytest.mark.parametrize("case", CONV2D)
def test_conv2d(rng, case):
    options, _, stride, dilation, padding = settings(case)
    layer = filled(nn.Conv2d(4, 4, has_bias=True, dtype="float64", **options), rng)
    x = rng.standard_normal((2, 4, 7, 8))
    expected = naive.conv2d(
        x, layer.weight.asnumpy(), layer.bias.asnumpy(), stride, padding, dilation, options["group"]
    )
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected, rtol=1e-11, atol=1e-12)
    testing.check_grads(layer, Tensor(x))


@pytest.mark.peer
@pytest.mark.parametrize("case", CONV2D)
def test_conv2d_like_torch(torch, rng, case):
    options, kernel, stride, dilation, (top, bottom, left, right) = settings(case)
    layer = filled(nn.Conv2d(4, 4, has_bias=True, dtype="float64", **options), rng)

    class Padded(torch.nn.Conv2d):
        def forward(self, x):
            return super().forward(torch.nn.functional.pad(x, (left, right, top, bottom)))

    module = Padded(4, 4, kernel, stride, dilation=dilation, groups=options["group"])
    assert_like(torch, layer, module, rng.standard_normal((2, 4, 7, 8)), WEIGHTS)


@pytest.mark.parametrize("mode", ["valid", "same", "pad"])
@pytest.mark.parametrize(("stride", "dilation", "group"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (3, 1, 4)])
def test_conv1d_is_conv2d_on_one_row(rng, mode, stride, dilation, group):
    padding = 2 if mode == "pad" else 0
    layer = filled(nn.Conv1d(4, 8, 3, stride, mode, padding, dilation, group, dtype="float64"), rng)
    x = rng.standard_normal((2, 4, 9))
    around = naive.same_padding(9, 3, stride, dilation) if mode == "same" else (padding, padding)
    expected = naive.conv2d(
        x[:, :, None], layer.weight.asnumpy()[:, :, None], None, (1, stride), (0, 0, *around), (1, dilation), group
    )
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected[:, :, 0], rtol=1e-11, atol=1e-12)
    testing.check_grads(layer, Tensor(x))


@pytest.mark.peer
@pytest.mark.parametrize(("stride", "dilation", "group"), [(1, 1, 1), (2, 2, 2)])
def test_conv1d_like_torch(torch, rng, stride, dilation, group):
    layer = filled(nn.Conv1d(4, 8, 3, stride, "pad", 2, dilation, group, has_bias=True, dtype="float64"), rng)
    module = torch.nn.Conv1d(4, 8, 3, stride, padding=2, dilation=dilation, groups=group)
    assert_like(torch, layer, module, rng.standard_normal((2, 4, 9)), WEIGHTS)


def test_convolutions_begin_as_in_mindspore():
    layer = nn.Conv2d(4, 8, 3)
    assert layer.pad_mode == "same" and not hasattr(layer, "bias") and layer.weight.shape == (8, 4, 3, 3)
    assert np.abs(layer.weight.asnumpy()).max() <= 1 / math.sqrt(36)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (4, 8, 8), (4,), (5, 2, 4, 8, 8)], ids=str)
def test_conv2d_names_itself_when_the_shape_is_wrong(shape):
    with pytest.raises(ShapeError, match=r"Conv2d<in_channels=4.*takes \(N, 4, H, W\).*TimeDistributed"):
        nn.Conv2d(4, 4, 3)(ops.ones(shape))


def test_conv1d_names_itself_when_the_shape_is_wrong():
    with pytest.raises(ShapeError, match=r"Conv1d<in_channels=4.*takes \(N, 4, L\)"):
        nn.Conv1d(4, 4, 3)(ops.ones((2, 4, 8, 8)))


def test_convolutions_that_cannot_be():
    with pytest.raises(ArgumentError, match="Conv2d: group=3 must divide in_channels=4"):
        nn.Conv2d(4, 6, 3, group=3)
    with pytest.raises(ArgumentError, match="padding=1 needs pad_mode"):
        nn.Conv2d(4, 4, 3, pad_mode="same", padding=1)(ops.ones((1, 4, 8, 8)))
    with pytest.raises(ArgumentError, match="'mirror'"):
        nn.Conv2d(4, 4, 3, pad_mode="mirror")(ops.ones((1, 4, 8, 8)))
    with pytest.raises(ShapeError, match=r"7.*5|kernel"):
        nn.Conv2d(1, 1, 7, pad_mode="valid")(ops.ones((1, 1, 5, 5)))


# --- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), ((2, 3), (1, 2)), (1, 1)], ids=str)
@pytest.mark.parametrize(("make", "what"), [(nn.MaxPool2d, np.max), (nn.AvgPool2d, np.mean)], ids=["max", "mean"])
def test_pools(rng, make, what, kernel, stride):
    pair, steps = ((v, v) if isinstance(v, int) else v for v in (kernel, stride))
    x = rng.standard_normal((2, 3, 7, 8))
    layer = make(kernel, stride)
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), naive.pool2d(x, pair, steps, what), rtol=1e-13)
    testing.check_grads(layer, Tensor(x))


@pytest.mark.peer
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kind", ["max", "mean", "mean without padding"])
def test_pools_like_torch(torch, rng, kind, padding):
    options = {"pad_mode": "pad", "padding": padding}
    x = rng.standard_normal((2, 3, 7, 8))
    if kind == "max":
        layer, module = nn.MaxPool2d(3, 2, **options), torch.nn.MaxPool2d(3, 2, padding)
    else:
        included = kind == "mean"
        layer = nn.AvgPool2d(3, 2, count_include_pad=included, **options)
        module = torch.nn.AvgPool2d(3, 2, padding, count_include_pad=included)
    assert_like(torch, layer, module, x, {})


def test_pools_with_same_padding_cover_the_input():
    x = Tensor(np.arange(25.0, dtype=np.float32).reshape(1, 1, 5, 5))
    assert nn.MaxPool2d(2, 2, "same")(x).asnumpy().tolist() == [[[[6, 8, 9], [16, 18, 19], [21, 23, 24]]]]
    assert nn.AvgPool2d(2, 2, "same")(x).asnumpy()[0, 0, 2].tolist() == [20.5, 22.5, 24.0]  # of real elements only


# --- normalisation ---------------------------------------------------------------------------------------------------

BATCHES = [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm1d, (4, 3, 5)), (nn.BatchNorm2d, (4, 3, 2, 5))]
BATCH_IDS = ["N C", "N C L", "N C H W"]


@pytest.mark.parametrize(("make", "shape"), BATCHES, ids=BATCH_IDS)
def test_batch_norm_in_training_and_prediction(rng, make, shape):
    layer = filled(make(3, eps=1e-3, momentum=0.8, dtype="float64"), rng)
    x = rng.normal(2, 3, shape)
    axes = (0, *range(2, len(shape)))
    per_channel = (1, 3, *(1,) * (len(shape) - 2))
    gamma, beta, mean, var = (
        p.asnumpy().copy() for p in (layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance)
    )

    def normalised(m, v):
        m, v, g, b = (a.reshape(per_channel) for a in (m, v, gamma, beta))
        return (x - m) / np.sqrt(v + 1e-3) * g + b

    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), normalised(mean, var), rtol=1e-11)
    np.testing.assert_array_equal(layer.moving_mean.asnumpy(), mean)  # prediction moves nothing
    layer.set_train()
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), normalised(x.mean(axes), x.var(axes)), rtol=1e-10)
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), 0.8 * mean + 0.2 * x.mean(axes), rtol=1e-12)
    unbiased = x.var(axes, ddof=1)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), 0.8 * var + 0.2 * unbiased, rtol=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("make", "shape"), BATCHES, ids=BATCH_IDS)
def test_batch_norm_like_torch(torch, rng, make, shape, training):
    layer = filled(make(3, eps=1e-4, momentum=0.7, dtype="float64"), rng)
    module = (torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d)(3, eps=1e-4, momentum=0.3)
    module.running_mean = torch.tensor(layer.moving_mean.asnumpy().copy())
    module.running_var = torch.tensor(layer.moving_variance.asnumpy().copy())
    module.train(training)
    layer.set_train(training)
    x = rng.normal(1, 2, shape)
    # torch keeps float32 buffers unless told otherwise, so .double() in assert_like matters
    assert_like(torch, layer, module, x, {"weight": "gamma", "bias": "beta"})
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), module.running_mean.numpy(), rtol=1e-10)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), module.running_var.numpy(), rtol=1e-10)


def test_batch_statistics_can_be_chosen_regardless_of_training(rng):
    x = Tensor(rng.normal(5, 2, (50, 2)).astype(np.float32))
    layer = nn.BatchNorm1d(2, use_batch_statistics=True)
    assert abs(layer(x).asnumpy().mean()) < 1e-5
    frozen = nn.BatchNorm1d(2, use_batch_statistics=False)
    frozen.set_train()
    np.testing.assert_allclose(frozen(x).asnumpy(), x.asnumpy(), rtol=1e-4)
    assert not frozen.moving_mean.asnumpy().any()


def test_batch_norm_without_affine_trains_nothing():
    layer = nn.BatchNorm1d(2, affine=False)
    assert layer.trainable_params() == [] and len(nn.BatchNorm1d(2).trainable_params()) == 2


def test_batch_norm_errors_name_the_cell():
    with pytest.raises(ShapeError, match=r"BatchNorm2d<num_features=3.*\(2, 3, 4\).*4 axes with 3 channels"):
        nn.BatchNorm2d(3)(ops.ones((2, 3, 4)))
    with pytest.raises(ShapeError, match=r"BatchNorm1d<num_features=3.*2 or 3 axes"):
        nn.BatchNorm1d(3)(ops.ones((2, 4)))
    layer = nn.BatchNorm1d(3)
    layer.set_train()
    with pytest.raises(ShapeError, match=r"BatchNorm1d<.*\(1, 3\) has one value per channel, so no variance"):
        layer(ops.ones((1, 3)))
    with pytest.raises(ArgumentError, match=r"momentum lies in \[0, 1\], not 1\.5"):
        nn.BatchNorm1d(3, momentum=1.5)


@pytest.mark.parametrize(("size", "shape"), [(5, (4, 5)), ((3, 5), (2, 4, 3, 5)), ([5], (5,))], ids=str)
def test_layer_norm(rng, size, shape):
    layer = filled(nn.LayerNorm(size, epsilon=1e-3, dtype="float64"), rng)
    axes = tuple(range(-len(layer.gamma.shape), 0))
    x = rng.normal(2, 3, shape)
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    expected = (x - mean) / np.sqrt(var + 1e-3) * layer.gamma.asnumpy() + layer.beta.asnumpy()
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected, rtol=1e-11)
    testing.check_grads(layer, Tensor(x), order=2)


@pytest.mark.peer
@pytest.mark.parametrize(("size", "shape"), [(5, (4, 5)), ((3, 5), (2, 4, 3, 5))], ids=str)
def test_layer_norm_like_torch(torch, rng, size, shape):
    layer = filled(nn.LayerNorm(size, epsilon=1e-5, dtype="float64"), rng)
    assert_like(
        torch, layer, torch.nn.LayerNorm(size, 1e-5), rng.normal(2, 3, shape), {"weight": "gamma", "bias": "beta"}
    )


def test_layer_norm_names_itself_when_the_shape_is_wrong():
    with pytest.raises(ShapeError, match=r"LayerNorm<normalized_shape=\(3, 5\).*\(2, 5\).*last axes must be \(3, 5\)"):
        nn.LayerNorm((3, 5))(ops.ones((2, 5)))


# --- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout(p):
    layer, x = nn.Dropout(p=p), ops.ones((100, 100))
    assert layer(x) is x  # prediction
    layer.set_train()
    out, found = ops.value_and_grad(layer)(x)
    assert set(np.unique(out.asnumpy()).tolist()) <= {0.0, np.float32(1 / (1 - p)).item() if p < 1 else 0.0}
    assert (out.asnumpy() == 0).mean() == pytest.approx(p, abs=4 * 0.5 / 100)
    np.testing.assert_array_equal(found.asnumpy(), out.asnumpy())  # the mask of the forward
    if 0 < p < 1:
        assert (layer(x).asnumpy() != out.asnumpy()).any()


def test_dropout_takes_the_probability_of_keeping_too():
    assert nn.Dropout(0.9).p == pytest.approx(0.1) and nn.Dropout(keep_prob=0.9, p=0.3).p == 0.3
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ArgumentError, match=r"Dropout: the probability of dropping lies in \[0, 1\]"):
            nn.Dropout(p=wrong)


def test_dropout2d_drops_channels():
    layer = nn.Dropout2d(0.5)
    layer.set_train()
    out = layer(ops.ones((20, 10, 3, 4))).asnumpy()
    assert (out == out[:, :, :1, :1]).all() and 0.3 < (out[:, :, 0, 0] == 0).mean() < 0.7
    assert set(np.unique(out).tolist()) == {0.0, 2.0}


# --- Embedding and the small ones ------------------------------------------------------------------------------------


def test_embedding_gathers_rows_and_adds_up_their_gradients(rng):
    layer = filled(nn.Embedding(5, 3, dtype="float64"), rng)
    indices = Tensor([[0, 4], [4, 4]])
    out, pull = ops.vjp(lambda: layer(indices), weights=layer.embedding_table)
    np.testing.assert_array_equal(out.asnumpy(), layer.embedding_table.asnumpy()[indices.asnumpy()])
    dout = rng.standard_normal((2, 2, 3))
    expected = np.zeros((5, 3))
    np.add.at(expected, indices.asnumpy(), dout)
    _, found = pull(Tensor(dout))
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-13)


def test_embedding_with_padding(rng):
    layer = nn.Embedding(5, 3, padding_idx=2, embedding_table="ones")
    assert not layer.embedding_table.asnumpy()[2].any() and layer.embedding_table.asnumpy()[1].all()
    found = ops.grad(lambda: layer(Tensor([1, 2, 2])), None, layer.embedding_table)()
    assert found.asnumpy().tolist() == [[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3]
    layer.embedding_table.set_data(ops.ones((5, 3)))
    assert layer(Tensor([2])).asnumpy().tolist() == [[1.0, 1.0, 1.0]]  # the row is read, its gradient is what is zero
    with pytest.raises(ArgumentError, match="padding_idx=5 is no row of a table of 5"):
        nn.Embedding(5, 3, padding_idx=5)


@pytest.mark.parametrize("index", [5, -6])
def test_embedding_refuses_rows_that_are_not_there(index):
    with pytest.raises(TensorIndexError, match=str(index)):
        nn.Embedding(5, 3)(Tensor([index]))


@pytest.mark.peer
def test_embedding_like_torch(torch, rng):
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
def test_activations_like_torch(torch, rng, name):
    mine, theirs = ACTIVATIONS[name]
    assert_like(torch, mine(), theirs(torch), rng.uniform(-4, 8, (3, 4, 5)), {})


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n != "Flatten"])
def test_activations_have_true_gradients(rng, name):
    testing.check_grads(ACTIVATIONS[name][0](), Tensor(rng.uniform(-4, 8, (3, 5))), order=2)


# --- containers ------------------------------------------------------------------------------------------------------


def test_sequential_takes_cells_lists_and_names():
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
    with pytest.raises(ArgumentError, match="SequentialCell: element 1 is a function, not a Cell"):
        nn.SequentialCell(a, lambda x: x)


def test_cell_list_registers_and_leaves_calling_to_others():
    cells = nn.CellList([nn.Dense(2, 2)]).extend([nn.Dense(2, 3), nn.Dense(3, 1)])
    assert len(cells) == 3 and cells[-1].out_channels == 1 and isinstance(cells[:2], nn.CellList)
    assert list(cells.parameters_dict())[:2] == ["0.weight", "0.bias"]
    with pytest.raises(snncell.errors.SnncellError, match="CellList"):
        cells(ops.ones((1, 2)))
