"""Layers of MindSpore and PyTorch: compared with PyTorch, eager, jitted and over time, to the second order.

A row holds a layer, PyTorch's layer, an input, and pairs of Parameters that correspond. Except for dropout, a layer
must compute the same function in training and in prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from against_torch import assert_like, filled

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ShapeError


class Row(NamedTuple):
    """A layer and PyTorch's, with the shape of an input. `names` maps PyTorch's Parameters to ours."""

    make: Callable[[], Any]
    torchs: Callable[[Any], Any]
    shape: tuple[int, ...]
    names: Mapping[str, str] = MappingProxyType({})


AFFINE = {"weight": "gamma", "bias": "beta"}
WIDE = {"dtype": "float64"}
LINEAR = {"weight": "weight", "bias": "bias"}
LINE, IMAGE = (2, 4, 7), (2, 4, 5, 6)
LAYERS: dict[str, Row] = {
    "SiLU": Row(nn.SiLU, lambda t: t.SiLU(), LINE),
    "Mish": Row(nn.Mish, lambda t: t.Mish(), LINE),
    "ELU": Row(lambda: nn.ELU(0.7), lambda t: t.ELU(0.7), LINE),
    "CELU": Row(lambda: nn.CELU(0.5), lambda t: t.CELU(0.5), LINE),
    "SeLU": Row(nn.SeLU, lambda t: t.SELU(), LINE),
    "Hardtanh": Row(lambda: nn.Hardtanh(-0.5, 0.7), lambda t: t.Hardtanh(-0.5, 0.7), LINE),
    "HSwish": Row(nn.HSwish, lambda t: t.Hardswish(), LINE),
    "HSigmoid": Row(nn.HSigmoid, lambda t: _Formula(lambda x: (x / 6 + 0.5).clamp(0, 1)), LINE),
    "HShrink": Row(lambda: nn.HShrink(0.3), lambda t: t.Hardshrink(0.3), LINE),
    "SoftShrink": Row(lambda: nn.SoftShrink(0.3), lambda t: t.Softshrink(0.3), LINE),
    "Softplus": Row(lambda: nn.Softplus(2.0, 1.0), lambda t: t.Softplus(2.0, 1.0), LINE),
    "Softsign": Row(nn.Softsign, lambda t: t.Softsign(), LINE),
    "LogSigmoid": Row(nn.LogSigmoid, lambda t: t.LogSigmoid(), LINE),
    "Tanhshrink": Row(nn.Tanhshrink, lambda t: t.Tanhshrink(), LINE),
    "Softmin": Row(lambda: nn.Softmin(1), lambda t: t.Softmin(1), LINE),
    "GLU": Row(lambda: nn.GLU(1), lambda t: t.GLU(1), LINE),
    "PReLU": Row(lambda: nn.PReLU(**WIDE), lambda t: t.PReLU(), LINE, {"weight": "w"}),
    "PReLU of channels": Row(lambda: nn.PReLU(4, **WIDE), lambda t: t.PReLU(4), IMAGE, {"weight": "w"}),
    "Linear": Row(lambda: nn.Linear(7, 3, **WIDE), lambda t: t.Linear(7, 3), LINE, LINEAR),
    "Linear without bias": Row(
        lambda: nn.Linear(7, 3, False, **WIDE), lambda t: t.Linear(7, 3, False), LINE, {"weight": "weight"}
    ),
    "GroupNorm": Row(lambda: nn.GroupNorm(2, 4, **WIDE), lambda t: t.GroupNorm(2, 4), IMAGE, AFFINE),
    "GroupNorm of one": Row(lambda: nn.GroupNorm(1, 4, 1e-3, **WIDE), lambda t: t.GroupNorm(1, 4, 1e-3), LINE, AFFINE),
    "InstanceNorm1d": Row(
        lambda: nn.InstanceNorm1d(4, **WIDE), lambda t: t.InstanceNorm1d(4, affine=True), LINE, AFFINE
    ),
    "InstanceNorm2d": Row(
        lambda: nn.InstanceNorm2d(4, **WIDE), lambda t: t.InstanceNorm2d(4, affine=True), IMAGE, AFFINE
    ),
    "AdaptiveAvgPool1d": Row(lambda: nn.AdaptiveAvgPool1d(3), lambda t: t.AdaptiveAvgPool1d(3), LINE),
    "AdaptiveAvgPool2d": Row(lambda: nn.AdaptiveAvgPool2d((3, None)), lambda t: t.AdaptiveAvgPool2d((3, None)), IMAGE),
    "AdaptiveMaxPool1d": Row(lambda: nn.AdaptiveMaxPool1d(2), lambda t: t.AdaptiveMaxPool1d(2), LINE),
    "AdaptiveMaxPool2d": Row(lambda: nn.AdaptiveMaxPool2d(2), lambda t: t.AdaptiveMaxPool2d(2), IMAGE),
    "AvgPool1d": Row(lambda: nn.AvgPool1d(3, 2), lambda t: t.AvgPool1d(3, 2), LINE),
    "AvgPool1d padded": Row(
        lambda: nn.AvgPool1d(3, 2, "pad", 1, count_include_pad=False),
        lambda t: t.AvgPool1d(3, 2, 1, count_include_pad=False),
        LINE,
    ),
    "MaxPool1d": Row(lambda: nn.MaxPool1d(3, 2, "pad", 1), lambda t: t.MaxPool1d(3, 2, 1), LINE),
    "Pad": Row(lambda: nn.Pad(((0, 0), (1, 2), (0, 3))), lambda t: t.ConstantPad2d((0, 3, 1, 2), 0.0), LINE),
    "Pad reflecting": Row(
        lambda: nn.Pad(((0, 0), (0, 0), (2, 3)), "REFLECT"), lambda t: t.ReflectionPad1d((2, 3)), LINE
    ),
    "ReflectionPad1d": Row(lambda: nn.ReflectionPad1d(3), lambda t: t.ReflectionPad1d(3), LINE),
    "ReflectionPad2d": Row(lambda: nn.ReflectionPad2d((1, 2, 3, 0)), lambda t: t.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "ReplicationPad1d": Row(lambda: nn.ReplicationPad1d((2, 1)), lambda t: t.ReplicationPad1d((2, 1)), LINE),
    "ReplicationPad2d": Row(lambda: nn.ReplicationPad2d(2), lambda t: t.ReplicationPad2d(2), IMAGE),
    "ConstantPad1d": Row(lambda: nn.ConstantPad1d((2, 1), 0.5), lambda t: t.ConstantPad1d((2, 1), 0.5), LINE),
    "ConstantPad2d": Row(lambda: nn.ConstantPad2d(1, -2.0), lambda t: t.ConstantPad2d(1, -2.0), IMAGE),
    "ZeroPad2d": Row(lambda: nn.ZeroPad2d((1, 0, 2, 1)), lambda t: t.ZeroPad2d((1, 0, 2, 1)), IMAGE),
    "Upsample": Row(lambda: nn.Upsample(scale_factor=1.5), lambda t: t.Upsample(scale_factor=1.5), LINE),
    "Upsample bilinear": Row(
        lambda: nn.Upsample((9, 4), mode="bilinear"), lambda t: t.Upsample((9, 4), mode="bilinear"), IMAGE
    ),
    "PixelShuffle": Row(lambda: nn.PixelShuffle(2), lambda t: t.PixelShuffle(2), IMAGE),
    "PixelUnshuffle": Row(lambda: nn.PixelUnshuffle(2), lambda t: t.PixelUnshuffle(2), (2, 3, 4, 6)),
    "Identity": Row(nn.Identity, lambda t: t.Identity(), LINE),
    "Unflatten": Row(lambda: nn.Unflatten(1, (2, -1)), lambda t: t.Unflatten(1, (2, -1)), LINE),
    "Dropout1d": Row(nn.Dropout1d, lambda t: t.Dropout1d().eval(), LINE),
}


def _Formula(function: Callable[[Any], Any]) -> Any:  # noqa: N802 (it stands among the names of layers)
    torch = pytest.importorskip("torch")

    class Formula(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return Formula()


def input_of(row: Row) -> np.ndarray:
    """Distinct numbers at equal distances, on both sides of every kink but not at a kink."""
    count = math.prod(row.shape)
    return np.random.default_rng(5).permutation(np.linspace(-4.03, 3.98, count)).reshape(row.shape)


@pytest.fixture(params=LAYERS)
def row(request) -> Row:
    return LAYERS[request.param]


@pytest.mark.sampled(25)
@pytest.mark.peer
def test_layers_equal_torch(torch, row, rng):
    assert_like(torch, filled(row.make(), rng), row.torchs(torch.nn), input_of(row), row.names)


def test_gradients_of_both_orders_agree_with_finite_differences(row, rng):
    layer = filled(row.make(), rng)
    parameters = [layer.parameters_dict()[name] for name in row.names.values()]
    x = Tensor(input_of(row)[:1] if "Norm" not in type(layer).__name__ else input_of(row))

    def squared(x: Tensor) -> Tensor:  # so that the second derivative is not zero
        return ops.square(layer(x)).sum() * 0.1

    testing.check_grads(squared, x, order=2)
    for parameter, found in zip(parameters, ops.grad(squared, None, parameters)(x) if parameters else ()):  # noqa: B905
        step, base = 1e-6, parameter.asnumpy().copy()
        direction = np.random.default_rng(1).standard_normal(base.shape)
        values = []
        for sign in (1, -1):
            parameter.set_data(Tensor(base + sign * step * direction))
            values.append(squared(x).item())
        parameter.set_data(Tensor(base))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx((found.asnumpy() * direction).sum(), rel=1e-6)


def test_layers_over_time_equal_each_step(row, rng):
    layer = filled(row.make(), rng)
    x = np.stack([input_of(row), 0.5 * input_of(row)[::-1]])
    steps = np.stack([layer(Tensor(step)).asnumpy() for step in x])
    np.testing.assert_allclose(nn.TimeDistributed(layer)(Tensor(x)).asnumpy(), steps, rtol=1e-12)


@pytest.mark.sampled(39)
def test_layers_keep_float16_and_float32(row):
    for dtype in (snncell.float16, snncell.float32):
        layer = row.make()
        out = layer(Tensor(input_of(row), dtype))
        exact = layer(Tensor(input_of(row), snncell.float64))
        assert out.dtype is (snncell.float64 if row.names else dtype)  # its Parameters are float64
        np.testing.assert_allclose(out.asnumpy(), exact.asnumpy(), rtol=2e-2, atol=2e-2)


def test_training_mode_affects_only_dropout(row, rng):
    layer = filled(row.make(), rng)
    if isinstance(layer, nn.Dropout):
        return
    before = layer(Tensor(input_of(row))).asnumpy()
    np.testing.assert_array_equal(layer.set_train()(Tensor(input_of(row))).asnumpy(), before)


@pytest.mark.compiled
def test_jitted_layers_equal_eager(rng):
    """One function holds all layers, so that they are compiled together."""
    layers = {name: filled(one.make(), rng) for name, one in LAYERS.items()}
    xs = {shape: Tensor(input_of(LAYERS["SiLU"]._replace(shape=shape))) for shape in {r.shape for r in LAYERS.values()}}
    shapes = list(xs)

    def everything(*given: Tensor) -> list[Tensor]:
        by_shape = dict(zip(shapes, given, strict=True))
        outs = []
        for name, layer in layers.items():
            out, pull = ops.vjp(layer, by_shape[LAYERS[name].shape])
            outs += [out, pull(ops.cos(out))]
        return outs

    plain, compiled = everything(*xs.values()), snncell.jit(everything)(*xs.values())
    for place, (a, b) in enumerate(zip(plain, compiled, strict=True)):
        a, b = (one[0] if isinstance(one, tuple) else one for one in (a, b))
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-11, atol=1e-12, err_msg=list(layers)[place // 2])


class Step(nn.Cell):
    """A time step that applies every elementwise activation to the state and the input."""

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for name in ELEMENTWISE:
            v = v * 0.7 + getattr(ops, name)(x - v)
        return ops.elu(v, 0.5) * ops.hardtanh(x), v


ELEMENTWISE = (
    "silu", "mish", "elu", "celu", "selu", "hardsigmoid", "hardswish", "hardshrink",
    "softshrink", "softsign", "tanhshrink", "logsigmoid", "softplus", "gelu",
)  # fmt: skip


@pytest.mark.compiled
def test_activations_in_a_loop_fuse_into_one_kernel_per_direction(rng):
    net, x = nn.MultiStep(Step()), Tensor(rng.standard_normal((4, 2, 3)))
    grad_fn = snncell.value_and_grad(lambda x: ops.square(net(x)).sum())
    value, gradient = grad_fn(x)
    with testing.unfused():
        expected, of_x = grad_fn(x)
    np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-12)
    np.testing.assert_allclose(gradient.asnumpy(), of_x.asnumpy(), rtol=1e-10, atol=1e-13)
    assert "one kernel" in str(snncell.explain(net, x, detail="launches"))


# --- two inputs, errors -----------------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("make", [nn.BiDense, nn.Bilinear])
def test_layers_of_two_inputs_equal_torch(torch, rng, make):
    layer = filled(make(3, 4, 2, **WIDE), rng)
    module = torch.nn.Bilinear(3, 4, 2).double()
    module.weight.data, module.bias.data = (torch.tensor(p.asnumpy().copy()) for p in (layer.weight, layer.bias))
    a, b = rng.standard_normal((5, 3)), rng.standard_normal((5, 4))
    dout = rng.standard_normal((5, 2))
    theirs = [torch.tensor(one, requires_grad=True) for one in (a, b)]
    expected = module(*theirs)
    expected.backward(torch.tensor(dout))
    out, pull = ops.vjp(layer, Tensor(a), Tensor(b), weights=[layer.weight])
    (da, db), (dw,) = pull(Tensor(dout))
    np.testing.assert_allclose(out.asnumpy(), expected.detach().numpy(), rtol=1e-11)
    for mine, grad in zip((da, db, dw), (theirs[0].grad, theirs[1].grad, module.weight.grad), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), grad.numpy(), rtol=1e-10, atol=1e-12)


def test_linear_equals_dense():
    layer = nn.Linear(3, 2, bias=False)
    assert isinstance(layer, nn.Dense) and not layer.has_bias and layer.weight.shape == (2, 3)


def test_dropout1d_drops_channels():
    out = nn.Dropout1d(0.5).set_train()(ops.ones((20, 10, 4))).asnumpy()
    assert (out == out[:, :, :1]).all() and 0.3 < (out[..., 0] == 0).mean() < 0.7
    assert set(np.unique(out).tolist()) == {0.0, 2.0}


def test_identity_returns_its_input():
    x = ops.ones(3)
    assert nn.Identity()(x) is x and nn.Identity()("a") == "a"


X = Tensor(np.ones((2, 4, 5)))
REFUSED = [
    (lambda: nn.GroupNorm(3, 4), ArgumentError, "GroupNorm: num_groups=3 must divide num_channels=4"),
    (lambda: nn.GroupNorm(2, 6)(X), ShapeError, r"GroupNorm.*must be \(N, 6, \.\.\.\)"),
    (lambda: nn.InstanceNorm2d(4)(X), ShapeError, "InstanceNorm2d.*must have 4 axes"),
    (lambda: nn.Pad(((0, 0), (1, 1)))(X), ShapeError, "Pad.*paddings has pairs for 2 axes"),
    (lambda: nn.ReflectionPad1d(5)(X), ShapeError, "mode 'reflect' allows at most 4 elements"),
    (lambda: nn.ReflectionPad1d((1, 2, 3)), ArgumentError, "ReflectionPad1d: padding must be an int, or 2 of them"),
    (lambda: nn.Upsample(), ArgumentError, "pass exactly one of size and scale_factor"),
    (lambda: nn.Upsample(3, 2.0), ArgumentError, "pass exactly one of size and scale_factor"),
    (lambda: nn.Upsample((3, 3))(X), ArgumentError, r"size is a number, or one for each of 1 axes, not \(3, 3\)"),
    (lambda: nn.Upsample(3, mode="bilinear")(X), ShapeError, r"mode 'bilinear' takes \(N, C, H, W\)"),
    (lambda: nn.Upsample(3, align_corners=True)(X), ArgumentError, 'align_corners is for the modes "linear"'),
    (lambda: nn.Upsample(scale_factor=0.1)(X), ArgumentError, r"reduces lengths \(5,\) to 0"),
    (lambda: nn.PixelShuffle(2)(X), ShapeError, r"pixel_shuffle: takes.* with channels that are a multiple of 4"),
    (lambda: nn.PixelUnshuffle(2)(X), ShapeError, "height and width that 2 divides"),
    (lambda: nn.AdaptiveAvgPool2d(2)(Tensor(np.ones((3, 4)))), ShapeError, "with 2 more axes"),
    (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), ArgumentError, "output_size must be an int or a pair"),
    (lambda: nn.PReLU(3)(X), ShapeError, r"prelu: weight has shape \(3,\) for x of shape \(2, 4, 5\)"),
    (lambda: nn.PReLU(3, [0.1, 0.2]), ShapeError, "w must be one number or channel=3 numbers, but has shape"),
    (lambda: nn.GLU(2)(X), ShapeError, "has length 5; it must be even"),
    (lambda: nn.Hardtanh(1.0, -1.0), ArgumentError, "Hardtanh: min_val=1.0 must be below max_val=-1.0"),
    (lambda: nn.CELU(0.0), ArgumentError, "CELU: alpha must not be 0"),
    (lambda: nn.BiDense(3, 4, 2)(X, X), ShapeError, r"their last axes must have lengths 3 and 4"),
    (lambda: nn.Unflatten(3, (2, 2))(X), ShapeError, "has no axis 3"),
    (lambda: nn.Dropout1d().set_train()(Tensor(np.ones((2, 3, 4, 5)))), ShapeError, r"Dropout1d.*must be \(N, C, L\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=[words[:24] for _, _, words in REFUSED])
def test_invalid_arguments_raise(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_nearest_upsampling_indices_are_exact_integers():
    for old, new in [(30, 22), (45, 33), (26, 46), (7, 49), (60, 22)]:
        line = Tensor(np.arange(float(old))[None, None])
        assert ops.interpolate(line, new).asnumpy()[0, 0].tolist() == [i * old // new for i in range(new)]
    for factor in (3, 49, 93, 98):  # 49 * (1 / 49) is below 1
        line = Tensor(np.arange(3.0)[None, None])
        assert (
            ops.interpolate(line, None, factor).asnumpy()[0, 0].tolist() == np.repeat(np.arange(3.0), factor).tolist()
        )
