"""The chapter on custom layers of Dive into Deep Learning, its exercises included, in programs of our own."""

import numpy as np
import pytest

from snncell import Parameter, Tensor, nn, ops

# --- custom layers of Dive into Deep Learning ------------------------------------------------------------------------


class CenteredLayer(nn.Cell):
    def construct(self, x):
        return x - x.mean()


class MyLinear(nn.Cell):
    """A dense layer with ReLU built in."""

    def __init__(self, in_units, units):
        super().__init__()
        self.weight = Parameter(ops.normal((in_units, units)))
        self.bias = Parameter(ops.normal((units,)))

    def construct(self, x):
        return ops.relu(ops.matmul(x, self.weight) + self.bias)


class TensorReduction(nn.Cell):
    """y_k = sum over i, j of W_ijk x_i x_j."""

    def __init__(self, n, outputs):
        super().__init__()
        self.weight = Parameter(ops.normal((n, n, outputs)))

    def construct(self, x):
        return ops.einsum("bi,bj,ijk->bk", x, x, self.weight)


class HalfOfFourier(nn.Cell):
    """The leading half of the Fourier coefficients."""

    def construct(self, x):
        return ops.fft(x)[..., : x.shape[-1] // 2]


def test_a_layer_without_parameters():
    assert CenteredLayer()(Tensor([1.0, 2, 3, 4, 5])).asnumpy().tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    net = nn.SequentialCell(nn.Dense(8, 128), CenteredLayer())
    assert abs(net(ops.uniform((4, 8))).mean().item()) < 1e-6
    # Adding to all inputs changes nothing, so the gradient of the sum of squares adds up to zero.
    assert abs(ops.grad(lambda x: ops.square(CenteredLayer()(x)))(Tensor([1.0, 2, 4])).sum().item()) < 1e-6


def test_a_layer_with_parameters():
    linear = MyLinear(5, 3)
    assert linear.weight.shape == (5, 3) and [p.name for p in linear.trainable_params()] == ["weight", "bias"]
    x = ops.uniform((2, 5))
    expected = np.maximum(x.asnumpy() @ linear.weight.asnumpy() + linear.bias.asnumpy(), 0)
    np.testing.assert_allclose(linear(x).asnumpy(), expected, rtol=1e-6)
    net = nn.SequentialCell(MyLinear(64, 8), MyLinear(8, 1))
    assert net(ops.uniform((2, 64))).shape == (2, 1)
    assert list(net.parameters_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_the_tensor_reduction_layer_and_its_gradients():
    layer = TensorReduction(4, 3)
    x = ops.normal((5, 4))
    w, v = layer.weight.asnumpy().astype(float), x.asnumpy().astype(float)
    expected = np.zeros((5, 3))
    of_x, of_w = np.zeros_like(v), np.zeros_like(w)
    for b in range(5):
        for i in range(4):
            for j in range(4):
                expected[b] += w[i, j] * v[b, i] * v[b, j]
                of_w[i, j] += v[b, i] * v[b, j]
                of_x[b, i] += w[i, j].sum() * v[b, j]
                of_x[b, j] += w[i, j].sum() * v[b, i]
    np.testing.assert_allclose(layer(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    found_x, found_w = ops.grad(layer, 0, layer.weight)(x)
    np.testing.assert_allclose(found_x.asnumpy(), of_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found_w.asnumpy(), of_w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [8, 7])
def test_the_leading_half_of_the_fourier_coefficients_and_its_gradient(n):
    x = np.random.default_rng(2).standard_normal((3, n))
    out = HalfOfFourier()(Tensor(x))
    np.testing.assert_allclose(out.asnumpy(), np.fft.fft(x)[:, : n // 2], rtol=1e-12, atol=1e-12)
    # The energy of the half: sum over k of |X_k|^2, whose gradient is 2 Re sum_k X_k exp(2 pi i k t / n).
    found = ops.grad(lambda v: ops.square(HalfOfFourier()(v).abs()).sum())(Tensor(x))
    kernel = np.exp(2j * np.pi * np.outer(np.arange(n // 2), np.arange(n)) / n)
    np.testing.assert_allclose(found.asnumpy(), 2 * (np.fft.fft(x)[:, : n // 2] @ kernel).real, rtol=1e-10, atol=1e-10)
