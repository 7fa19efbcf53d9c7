"""Published documents as tests: MindSpore guides to Cells, Parameters and custom layers, and a chapter of D2L.

Where a guide prints output, snncell prints the same characters.
"""

import types

import numpy as np
import pytest

import snncell as ms
from snncell import Parameter, ParameterTuple, Tensor, dtype as mstype, nn, ops
from snncell.common.initializer import initializer
from snncell.errors import BpropError

# --- guide to custom bprop --------------------------------------------------------------------------------------------


class Product(nn.Cell):
    """A matrix product with an arbitrary `bprop`, so that the test can see its use."""

    def __init__(self):
        super().__init__()
        self.product = ops.MatMul()

    def construct(self, x, y):
        return self.product(x, y)

    def bprop(self, x, y, out, dout):
        return x + 1, y + 1


class GradientsOf(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.operation = ops.GradOperation(get_all=True)

    def construct(self, x, y):
        return self.operation(self.net)(x, y)


PRODUCT_GRADIENTS = """\
(Tensor(shape=[2, 3], dtype=Float32, value=
[[ 1.50000000e+00,  1.60000002e+00,  1.39999998e+00],
 [ 2.20000005e+00,  2.29999995e+00,  2.09999990e+00]]), Tensor(shape=[3, 3], dtype=Float32, value=
[[ 1.00999999e+00,  1.29999995e+00,  2.09999990e+00],
 [ 1.10000002e+00,  1.20000005e+00,  2.29999995e+00],
 [ 3.09999990e+00,  2.20000005e+00,  4.30000019e+00]]))
"""


@pytest.mark.parametrize("mode", ["pynative", pytest.param("graph", marks=pytest.mark.compiled)])
def test_custom_bprop_of_product_prints_as_in_guide(capsys, mode):
    x = Tensor([[0.5, 0.6, 0.4], [1.2, 1.3, 1.1]], dtype=ms.float32)
    y = Tensor([[0.01, 0.3, 1.1], [0.1, 0.2, 1.3], [2.1, 1.2, 3.3]], dtype=ms.float32)
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    try:
        print(GradientsOf(Product())(x, y))  # noqa: T201
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert capsys.readouterr().out == PRODUCT_GRADIENTS


def test_second_order_gradient_of_relu6_by_nested_bprop(capsys):
    class Rectified(nn.Cell):
        def construct(self, x):
            return ops.ReLU()(x)

    class Limited(nn.Cell):
        def __init__(self):
            super().__init__()
            self.slope = Rectified()

        def construct(self, x):
            return ops.ReLU6()(x)

        def bprop(self, x, out, dout):
            return (self.slope(x),)

    x = Tensor([[0.5, 0.6, 0.4], [1.2, 1.3, 1.1]], dtype=mstype.float32)
    print(ops.grad(ops.grad(Limited()))(x))  # noqa: T201
    assert capsys.readouterr().out == "[[1. 1. 1.]\n [1. 1. 1.]]\n"


class UserSpike(nn.Cell):
    """A custom surrogate, by the primitive classes."""

    def __init__(self):
        super().__init__()
        self.squash, self.above = ops.Sigmoid(), ops.Greater()

    def construct(self, x):
        return self.above(x, 0).astype(ms.float32)

    def bprop(self, x, out, dout):
        s = self.squash(x * 5.0)
        return (dout * (1 - s) * s * 5.0,)


class UserNeuron(nn.Cell):
    def __init__(self, v_threshold=1.0, fire=True):
        super().__init__()
        self.v_threshold, self.fire, self.spike = v_threshold, fire, UserSpike()

    def construct(self, x, v):
        v = v + x
        if self.fire:
            spike = self.spike(v - self.v_threshold) * self.v_threshold
            v -= spike
            return spike, v
        return v, v


NEURON_INPUT = Tensor([0.6, 0.4, 1.5, -1.0]), Tensor([0.6, 0.5, 1.0, 0.0])


@pytest.mark.parametrize("v_threshold", [1.0, 0.5])
@pytest.mark.parametrize("fire", [True, False])
def test_custom_neuron_equals_library_neuron_bit_for_bit(v_threshold, fire):
    mine, theirs = UserNeuron(v_threshold, fire), nn.IFNode(v_threshold, fire)
    for a, b in zip(mine(*NEURON_INPUT), theirs(*NEURON_INPUT), strict=True):
        assert a.asnumpy().tobytes() == b.asnumpy().tobytes()
    for output in (0, 1):
        a, b = (
            ops.grad(lambda x, v, net=net, output=output: net(x, v)[output], (0, 1))(*NEURON_INPUT)
            for net in (mine, theirs)
        )
        for one, other in zip(a, b, strict=True):
            assert one.asnumpy().tobytes() == other.asnumpy().tobytes()


def test_custom_neuron_subtracts_spikes_of_threshold_size():
    spike, v = UserNeuron(0.5)(*NEURON_INPUT)
    assert spike.asnumpy().tolist() == [0.5, 0.5, 0.5, 0.0]
    np.testing.assert_allclose(v.asnumpy(), [0.7, 0.4, 2.0, -1.0], rtol=1e-6)


def test_custom_neuron_gradient_equals_surrogate():
    x, v = (t.astype("float64") for t in NEURON_INPUT)  # in float32 the document's 1 - s loses digits near s = 1
    s = 1 / (1 + np.exp(-5 * (x.asnumpy() + v.asnumpy() - 1)))
    found = ops.grad(lambda x, v: UserNeuron()(x, v)[0])(x, v)
    np.testing.assert_allclose(found.asnumpy(), 5 * s * (1 - s), rtol=1e-12)


def test_gradient_of_spike_plus_potential_is_one():
    # spike + v is v + x whatever the surrogate says, so the sum over both outputs shows nothing of it.
    np.testing.assert_allclose(ops.grad(UserNeuron())(*NEURON_INPUT).asnumpy(), 1.0, rtol=1e-6)


def test_bprop_must_return_single_gradient_as_tuple():
    class Bare(nn.Cell):
        def construct(self, x):
            return x

        def bprop(self, x, out, dout):
            return dout

    with pytest.raises(BpropError, match=r"return \(dx,\)"):
        ops.grad(Bare())(Tensor(1.0))


# --- guide to custom layers -------------------------------------------------------------------------------------------


class Above(nn.Cell):
    """The part above a threshold, and a constant for other values."""

    def __init__(self, threshold, value):
        super().__init__()
        self.threshold, self.value = threshold, value

    def construct(self, inputs):
        replacement = ops.fill(inputs.dtype, inputs.shape, self.value)
        return ops.select(ops.gt(inputs, self.threshold), inputs, replacement)


@pytest.mark.parametrize("layer", [Above(0.1, 20), nn.Threshold(0.1, 20)], ids=["user", "library"])
def test_threshold_replaces_equal_values(layer):
    out = layer(Tensor([0.1, 0.2, 0.3], ms.float32))
    assert repr(out) == "Tensor(shape=[3], dtype=Float32, value= [ 2.00000000e+01,  2.00000003e-01,  3.00000012e-01])"
    assert ops.grad(layer)(Tensor([0.1, 0.2, 0.3])).asnumpy().tolist() == [0.0, 1.0, 1.0]


class ChannelDropout(nn.Cell):
    def __init__(self, keep_prob):
        super().__init__()
        self.keep_prob = keep_prob
        self.drop = ops.Dropout2D(keep_prob)

    def construct(self, x):
        return self.drop(x)

    def bprop(self, x, out, dout):
        (_, mask), (dy, _) = out, dout
        if self.keep_prob != 0:
            dy = dy * (1 / self.keep_prob)
        return ((mask.astype(ms.float32) * dy).astype(x.dtype),)


@pytest.mark.parametrize("keep_prob", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channel_dropout_passes_check_bprop(keep_prob, dtype):
    ms.set_seed(3)
    layer = ChannelDropout(keep_prob)
    layer.bprop_debug = True
    x = Tensor(np.random.default_rng(0).uniform(1, 2, (8, 16, 3, 3)).astype(dtype))
    (out, mask), pull = ops.vjp(layer, x)
    kept = mask.asnumpy()
    assert kept.shape == x.shape and mask.dtype == ms.bool_
    assert (kept == kept[:, :, :1, :1]).all()  # whole channels
    scale = 1 / keep_prob if keep_prob else 0.0
    np.testing.assert_allclose(out.asnumpy(), x.asnumpy() * kept * scale, rtol=1e-6)
    (found,) = pull(ops.ones(x.shape, dtype), mask)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.asnumpy(), kept * scale, rtol=1e-6)
    assert kept[:, :, 0, 0].mean() == pytest.approx(keep_prob, abs=4 * np.sqrt(0.25 / 128))


def test_channel_dropout_with_wrong_bprop_fails_check_bprop():
    class Unscaled(ChannelDropout):
        def bprop(self, x, out, dout):
            return (out[1].astype(ms.float32) * dout[0],)

    layer = Unscaled(0.8)
    layer.bprop_debug = True
    with pytest.raises(BpropError, match="bprop of Unscaled gives 1 for input 0"):
        ops.grad(lambda x: layer(x)[0])(ops.ones((4, 8, 2, 2)))


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.array([2.0], dtype=np.float32)), name="weight")
        self.internal_params = [self.w]

    def construct(self, x):
        return self.w * x

    def bprop(self, *args):
        return (self.w * args[-1],), {self.w: args[0] * args[-1]}


def test_bprop_can_return_gradient_of_weight():
    net = Scaled()
    of_x, of_w = ops.grad(net, 0, net.w)(Tensor([1.0, 2.0, 4.0]))
    assert of_x.asnumpy().tolist() == [2.0, 2.0, 2.0]
    assert of_w.asnumpy().tolist() == [7.0]  # the larger gradient is summed to the weight's shape
    optimiser = nn.SGD(net.trainable_params(), 0.5)
    optimiser(of_w)
    assert net.w.asnumpy().tolist() == [2.0 - 3.5]


# --- guide to Cells and Parameters ------------------------------------------------------------------------------------


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(1)
        self.w = Parameter(Tensor(rng.standard_normal((5, 3)), ms.float32), name="w")
        self.b = Parameter(Tensor(rng.standard_normal(3), ms.float32), name="b")

    def construct(self, x):
        return ops.matmul(x, self.w) + self.b


def test_network_parameters_print_as_in_guide():
    net = Network()
    assert str(net.trainable_params()) == (
        "[Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True), "
        "Parameter (name=b, shape=(3,), dtype=Float32, requires_grad=True)]"
    )
    assert isinstance(net.get_parameters(), types.GeneratorType)
    assert [name for name, _ in net.parameters_and_names()] == ["w", "b"]


def test_parameter_is_assigned_by_index_and_as_a_whole():
    net = Network()
    rest = net.b.asnumpy()[1:].tolist()
    net.b[0] = 1.0
    assert net.b.asnumpy().tolist() == [1.0, *rest]
    net.b.set_data(Tensor([3, 4, 5]))  # integers into float32
    assert str(net.b.asnumpy()) == "[3. 4. 5.]" and net.b.dtype == ms.float32


@pytest.mark.compiled
def test_jitted_function_assigns_parameter():
    net = Network()

    @ms.jit
    def modify():
        ops.assign(net.b, Tensor([7, 8, 9]))
        return True

    assert modify() is True
    assert str(net.b.asnumpy()) == "[7. 8. 9.]"
    net.b.set_data(Tensor([0, 0, 0]))
    modify()  # and again when it is replayed
    assert str(net.b.asnumpy()) == "[7. 8. 9.]"


def test_parameter_tuple_and_clone_print_as_in_guide():
    x = Parameter(default_input=Tensor(np.arange(6).reshape((2, 3))), name="x")
    y = Parameter(default_input=initializer("ones", [1, 2, 3], ms.float32), name="y")
    z = Parameter(default_input=2.0, name="z")
    params = ParameterTuple((x, y, z))
    text = (
        "(Parameter (name={0}x, shape=(2, 3), dtype=Int64, requires_grad=True), "
        "Parameter (name={0}y, shape=(1, 2, 3), dtype=Float32, requires_grad=True), "
        "Parameter (name={0}z, shape=(), dtype=Float32, requires_grad=True))"
    )
    copies = params.clone("copy")
    assert str(params) == text.format("") and str(copies) == text.format("copy.")
    copies[1].set_data(ops.zeros((1, 2, 3)))
    assert y.asnumpy().all()  # the copy has a value of its own


def test_cell_phases_are_set_recursively():
    net = Network()
    assert net.phase == "predict"
    net.set_train()
    assert net.phase == "train"
    net.set_train(False)
    assert net.phase == "predict"


# --- the chapter on custom layers of dive into deep learning, its exercises included, in progra -----------------------

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
    """The first half of the Fourier coefficients."""

    def construct(self, x):
        return ops.fft(x)[..., : x.shape[-1] // 2]


def test_layer_without_parameters_centres_values():
    assert CenteredLayer()(Tensor([1.0, 2, 3, 4, 5])).asnumpy().tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    net = nn.SequentialCell(nn.Dense(8, 128), CenteredLayer())
    assert abs(net(ops.uniform((4, 8))).mean().item()) < 1e-6
    # Adding to all inputs changes nothing, so the gradient of the sum of squares adds up to zero.
    assert abs(ops.grad(lambda x: ops.square(CenteredLayer()(x)))(Tensor([1.0, 2, 4])).sum().item()) < 1e-6


def test_layer_with_parameters_equals_numpy():
    linear = MyLinear(5, 3)
    assert linear.weight.shape == (5, 3) and [p.name for p in linear.trainable_params()] == ["weight", "bias"]
    x = ops.uniform((2, 5))
    expected = np.maximum(x.asnumpy() @ linear.weight.asnumpy() + linear.bias.asnumpy(), 0)
    np.testing.assert_allclose(linear(x).asnumpy(), expected, rtol=1e-6)
    net = nn.SequentialCell(MyLinear(64, 8), MyLinear(8, 1))
    assert net(ops.uniform((2, 64))).shape == (2, 1)
    assert list(net.parameters_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_tensor_reduction_layer_and_gradients_equal_numpy():
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
def test_half_fourier_layer_and_gradient_equal_numpy(n):
    x = np.random.default_rng(2).standard_normal((3, n))
    out = HalfOfFourier()(Tensor(x))
    np.testing.assert_allclose(out.asnumpy(), np.fft.fft(x)[:, : n // 2], rtol=1e-12, atol=1e-12)
    # The energy of the half: sum over k of |X_k|^2, whose gradient is 2 Re sum_k X_k exp(2 pi i k t / n).
    found = ops.grad(lambda v: ops.square(HalfOfFourier()(v).abs()).sum())(Tensor(x))
    kernel = np.exp(2j * np.pi * np.outer(np.arange(n // 2), np.arange(n)) / n)
    np.testing.assert_allclose(found.asnumpy(), 2 * (np.fft.fft(x)[:, : n // 2] @ kernel).real, rtol=1e-10, atol=1e-10)
