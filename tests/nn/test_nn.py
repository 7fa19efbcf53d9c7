"""Layers against NumPy loops, and forward and gradients against PyTorch where it is installed."""

import inspect
import math

import naive
import numpy as np
import pytest
from against_torch import assert_like, filled

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ShapeError

WEIGHTS = {"weight": "weight", "bias": "bias"}

# --- Dense -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_dense_equals_the_loop(rng, shape, has_bias):
    layer = filled(nn.Dense(3, 4, has_bias=has_bias, dtype="float64"), rng)
    x = rng.standard_normal(shape)
    expected = x @ layer.weight.asnumpy().T + (layer.bias.asnumpy() if has_bias else 0)
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), expected, rtol=1e-13, atol=1e-14)
    assert (layer.bias is not None) == has_bias


@pytest.mark.peer
@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3)], ids=str)
def test_dense_equals_torch(torch, rng, shape):
    layer = filled(nn.Dense(3, 4, dtype="float64"), rng)
    assert_like(torch, layer, torch.nn.Linear(3, 4), rng.standard_normal(shape), WEIGHTS)


def test_dense_accepts_an_activation_name_or_cell(rng):
    x = Tensor(rng.standard_normal((4, 3)).astype(np.float32))
    layer = nn.Dense(3, 4, activation="relu")
    plain = nn.Dense(3, 4, layer.weight, layer.bias)
    np.testing.assert_array_equal(layer(x).asnumpy(), np.maximum(plain(x).asnumpy(), 0))
    named = nn.Dense(3, 4, layer.weight, layer.bias, activation=nn.Tanh())
    np.testing.assert_allclose(named(x).asnumpy(), np.tanh(plain(x).asnumpy()), rtol=1e-6)
    with pytest.raises(ArgumentError, match=r"Dense: unknown activation 'magic'. The names are elu, gelu"):
        nn.Dense(3, 4, activation="magic")


def test_dense_shape_errors_name_the_layer():
    with pytest.raises(ShapeError, match=r"Dense\(in_channels=3.*shape \(2, 5\).*last axis.*in_channels = 3"):
        nn.Dense(3, 4)(ops.ones((2, 5)))
    with pytest.raises(ShapeError, match=r"Dense\(.*shape \(\)"):
        nn.Dense(3, 4)(Tensor(1.0))


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None])
def test_sizes_must_be_positive_integers(value):
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
def test_conv2d_equals_the_loop(rng, case):
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
def test_conv2d_equals_torch(torch, rng, case):
    options, kernel, stride, dilation, (top, bottom, left, right) = settings(case)
    layer = filled(nn.Conv2d(4, 4, has_bias=True, dtype="float64", **options), rng)

    class Padded(torch.nn.Conv2d):
        def forward(self, x):
            return super().forward(torch.nn.functional.pad(x, (left, right, top, bottom)))

    module = Padded(4, 4, kernel, stride, dilation=dilation, groups=options["group"])
    assert_like(torch, layer, module, rng.standard_normal((2, 4, 7, 8)), WEIGHTS)


@pytest.mark.parametrize("mode", ["valid", "same", "pad"])
@pytest.mark.parametrize(("stride", "dilation", "group"), [(1, 1, 1), (2, 1, 2), (1, 2, 1), (3, 1, 4)])
def test_conv1d_equals_conv2d_on_one_row(rng, mode, stride, dilation, group):
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
def test_conv1d_equals_torch(torch, rng, stride, dilation, group):
    layer = filled(nn.Conv1d(4, 8, 3, stride, "pad", 2, dilation, group, has_bias=True, dtype="float64"), rng)
    module = torch.nn.Conv1d(4, 8, 3, stride, padding=2, dilation=dilation, groups=group)
    assert_like(torch, layer, module, rng.standard_normal((2, 4, 9)), WEIGHTS)


def test_convolution_initialisers_equal_mindspore():
    layer = nn.Conv2d(4, 8, 3)
    assert layer.pad_mode == "same" and layer.bias is None and layer.weight.shape == (8, 4, 3, 3)
    assert np.abs(layer.weight.asnumpy()).max() <= 1 / math.sqrt(36)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (4, 8, 8), (4,), (5, 2, 4, 8, 8)], ids=str)
def test_conv2d_shape_errors_name_the_layer(shape):
    fix = {3: "expand_dims", 5: "TimeDistributed"}.get(len(shape), "")
    with pytest.raises(ShapeError, match=rf"Conv2d\(input_channels=4.*must have shape \(N, 4, H, W\).*{fix}"):
        nn.Conv2d(4, 4, 3)(ops.ones(shape))


def test_conv1d_shape_errors_name_the_layer():
    with pytest.raises(ShapeError, match=r"Conv1d\(input_channels=4.*must have shape \(N, 4, L\)"):
        nn.Conv1d(4, 4, 3)(ops.ones((2, 4, 8, 8)))


def test_invalid_convolutions_raise():
    with pytest.raises(ArgumentError, match="Conv2d: group=3 must divide in_channels=4"):
        nn.Conv2d(4, 6, 3, group=3)
    with pytest.raises(ArgumentError, match="padding=1 needs pad_mode"):
        nn.Conv2d(4, 4, 3, pad_mode="same", padding=1)(ops.ones((1, 4, 8, 8)))
    with pytest.raises(ArgumentError, match="'mirror'"):
        nn.Conv2d(4, 4, 3, pad_mode="mirror")(ops.ones((1, 4, 8, 8)))
    with pytest.raises(ShapeError, match=r"7.*5|kernel"):
        nn.Conv2d(1, 1, 7, pad_mode="valid")(ops.ones((1, 1, 5, 5)))


# --- pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), ((2, 3), (1, 2)), (1, 1)], ids=str)
@pytest.mark.parametrize(("make", "what"), [(nn.MaxPool2d, np.max), (nn.AvgPool2d, np.mean)], ids=["max", "mean"])
def test_pools_equal_the_loop(rng, make, what, kernel, stride):
    pair, steps = ((v, v) if isinstance(v, int) else v for v in (kernel, stride))
    x = rng.standard_normal((2, 3, 7, 8))
    layer = make(kernel, stride)
    np.testing.assert_allclose(layer(Tensor(x)).asnumpy(), naive.pool2d(x, pair, steps, what), rtol=1e-13)
    testing.check_grads(layer, Tensor(x))


@pytest.mark.peer
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kind", ["max", "mean", "mean without padding"])
def test_pools_equal_torch(torch, rng, kind, padding):
    options = {"pad_mode": "pad", "padding": padding}
    x = rng.standard_normal((2, 3, 7, 8))
    if kind == "max":
        layer, module = nn.MaxPool2d(3, 2, **options), torch.nn.MaxPool2d(3, 2, padding)
    else:
        included = kind == "mean"
        layer = nn.AvgPool2d(3, 2, count_include_pad=included, **options)
        module = torch.nn.AvgPool2d(3, 2, padding, count_include_pad=included)
    assert_like(torch, layer, module, x, {})


def test_same_padded_pools_cover_the_input():
    x = Tensor(np.arange(25.0, dtype=np.float32).reshape(1, 1, 5, 5))
    assert nn.MaxPool2d(2, 2, "same")(x).asnumpy().tolist() == [[[[6, 8, 9], [16, 18, 19], [21, 23, 24]]]]
    assert nn.AvgPool2d(2, 2, "same")(x).asnumpy()[0, 0, 2].tolist() == [
        20.5,
        22.5,
        24.0,
    ]  # the mean is over elements of the input only


# --- transposed convolution -------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize(("stride", "group"), [(1, 1), (2, 2), (3, 1)])
def test_transposed_convolutions_equal_torch(torch, rng, stride, group):
    cell = filled(nn.Conv2dTranspose(4, 6, 3, stride, "pad", 1, group=group, has_bias=True, dtype="float64"), rng)
    module = torch.nn.ConvTranspose2d(4, 6, 3, stride, 1, groups=group)
    assert_like(torch, cell, module, rng.standard_normal((2, 4, 5, 4)), WEIGHTS)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (2, 2), (5, 3), (2, 3)])
def test_same_transposed_convolutions_scale_length_by_stride(kernel, stride):
    cell = nn.Conv2dTranspose(1, 2, kernel, stride)
    assert cell(ops.ones((1, 1, 4, 5))).shape == (1, 2, 4 * stride, 5 * stride)


def test_transposed_convolution_is_the_adjoint_of_convolution(rng):
    w = Tensor(rng.standard_normal((3, 2, 3, 3)))
    x, y = Tensor(rng.standard_normal((1, 2, 7, 7))), Tensor(rng.standard_normal((1, 3, 3, 3)))
    forward = (ops.conv2d(x, w, stride=2) * y).sum().item()
    backward = (x * ops.conv_transpose2d(y, w, stride=2)).sum().item()
    np.testing.assert_allclose(forward, backward, rtol=1e-12)


def test_transposed_convolution_errors_name_the_layer():
    with pytest.raises(ShapeError, match=r"Conv2dTranspose\(input_channels=2.*\(N, 2, H, W\)"):
        nn.Conv2dTranspose(2, 2, 3)(ops.ones((1, 3, 4, 4)))
    with pytest.raises(ShapeError, match=r"conv_transpose2d: takes \(N, C, H, W\) and a weight"):
        ops.conv_transpose2d(ops.ones((1, 3, 4, 4)), ops.ones((2, 1, 3, 3)))


def test_repr_of_window_layers_matches_mindspore():
    conv = "input_channels=1, output_channels=2, kernel_size=(3, 3), stride=(2, 1), pad_mode=same, padding=0"
    assert repr(nn.Conv2d(1, 2, 3, (2, 1))) == f"Conv2d({conv}, dilation=(1, 1), group=1, has_bias=False)"
    for kind in (nn.MaxPool2d, nn.AvgPool2d):
        assert repr(kind(2, 2)) == f"{kind.__name__}(kernel_size=2, stride=2, pad_mode=VALID)"
        assert repr(kind(3, 2, "pad", 1)) == f"{kind.__name__}(kernel_size=3, stride=2, pad_mode=PAD, padding=1)"


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: nn.MaxPool2d(3, 2, padding=1), ArgumentError, r'MaxPool2d: padding=1 needs pad_mode="pad"'),
        (lambda: nn.AvgPool1d(2, stride=0), ArgumentError, "AvgPool1d: stride is an int or 1 ints, each at least 1"),
        (lambda: nn.SumPool2d(-2, 1), ArgumentError, "SumPool2d: kernel_size is an int or 2 ints, each at least 1"),
        (lambda: nn.MaxPool2d(2, 2)(ops.ones((3, 2, 1, 4, 4))), ShapeError, r"\(N, C, H, W\).*nn.TimeDistributed"),
        (lambda: nn.AdaptiveAvgPool2d(1)(ops.ones((3, 2, 1, 4, 4))), ShapeError, r"\(T, B, ...\).*nn.TimeDistributed"),
        (lambda: nn.Conv2d(1, 2, 3)(ops.ones((6, 8, 8))), ShapeError, r"expand_dims\(x, 1\) for one channel"),
    ],
)
def test_invalid_windows_and_layouts_raise_with_a_fix(make, error, words):
    with pytest.raises(error, match=words):
        make()


def optional():
    """The layers with optional Parameters, each with the argument that enables them."""
    found = {}
    for name, kind in vars(nn).items():
        if isinstance(kind, type) and issubclass(kind, nn.Cell):
            for flag in {"has_bias", "bias"} & inspect.signature(kind).parameters.keys():
                found[name] = flag
    return sorted((name, flag) for name, flag in found.items() if name not in ("RNN", "GRU", "LSTM"))  # names by layer


@pytest.mark.parametrize(("name", "flag"), optional())
def test_disabled_parameters_are_none(name, flag):
    kind = getattr(nn, name)
    parameters = inspect.signature(kind).parameters
    sizes = {argument: 2 for argument, p in parameters.items() if p.default is p.empty}
    sizes |= {"density": 0.5} if name == "SparseDense" else {}
    full, less = (kind(**{**sizes, flag: there}) for there in (True, False))
    missing = full.parameters_dict().keys() - less.parameters_dict().keys()
    assert missing
    for path in missing:
        assert getattr(less, path) is None
        less.insert_param_to_cell(path, snncell.Parameter(Tensor([1.0, 2.0])))
        assert getattr(less, path) is less.parameters_dict()[path]
        assert getattr(kind(**{**sizes, flag: False}), path) is None  # the Parameter of another layer is unchanged
