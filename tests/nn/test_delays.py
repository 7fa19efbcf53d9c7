"""Learned synaptic delays: values of plain loops, gradients by finite differences, rounding, widths and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, CallError, ShapeError

T, B, N_IN, N_OUT = 9, 2, 3, 4
KERNELS = {"gaussian": lambda s: math.exp(-s * s / 2), "triangular": lambda s: max(0.0, 1 - abs(s))}


def by_loop(x, layer):
    """The sums of the equation, term by term."""
    w, p, longest, width = layer.weight.asnumpy(), layer.delay.asnumpy(), layer.max_delay, layer.width.item()
    y = np.zeros((*x.shape[:2], len(w))) + (layer.bias.asnumpy() if layer.has_bias else 0.0)
    for j, i in np.ndindex(w.shape):
        if layer.training:
            heights = [KERNELS[layer.kernel]((d - p[j, i]) / width) for d in range(longest + 1)]
        else:
            heights = [float(d == round(p[j, i])) for d in range(longest + 1)]
        for d, height in enumerate(heights):
            for t in range(d, len(x)):
                y[t, :, j] += w[j, i] * height / sum(heights) * x[t - d, :, i]
    return y


def made(longest=4, kernel="gaussian", width=1.1, bias=True, train=True):
    snncell.set_seed(3)
    layer = nn.DelayedDense(N_IN, N_OUT, longest, kernel, width, has_bias=bias, dtype="float64")
    return layer.set_train(train)


@pytest.fixture
def x(rng):
    return rng.normal(size=(T, B, N_IN)) * (rng.random((T, B, N_IN)) < 0.5)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [0.6, 1.3, 8.0])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("longest", [0, 1, 4, 12])
def test_layer_equals_loop_and_gradients_agree_with_differences(run, x, longest, kernel, width, bias, train):
    layer = made(longest, kernel, width, bias, train)
    np.testing.assert_allclose(run(layer)(Tensor(x)).asnumpy(), by_loop(x, layer), rtol=1e-9, atol=1e-12)
    learned = [p for p in layer.trainable_params() if train or p is not layer.delay]
    testing.check_grads(run(layer), Tensor(x), weights=learned)


@pytest.mark.parametrize(
    ("kernel", "width"), [*(("gaussian", w) for w in (1e-3, 0.51, 1e6)), ("triangular", 0.51), ("triangular", 1e6)]
)
def test_extreme_widths_give_finite_taps_and_gradients(kernel, width):
    layer = made(6, kernel, width)
    out, grads = ops.value_and_grad(lambda x: layer(x).sum(), 0, layer.trainable_params())(ops.ones((T, B, N_IN)))
    assert all(np.isfinite(g.asnumpy()).all() for g in (out, grads[0], *grads[1]))


@pytest.mark.parametrize("train", [True, False])
def test_second_derivatives_agree_with_differences(run, x, train):
    layer = made(4, train=train)

    def penalty(x, w):
        with_gradient = ops.grad(lambda x, w: ops.square(layer_of(x, w)).sum(), (0, 1))
        return sum(ops.square(g).sum() for g in with_gradient(x, w))

    def layer_of(x, w):
        return layer(x * w)

    testing.check_grads(run(penalty), Tensor(x), ops.ones((N_IN,)).astype("float64") * 1.5, weights=[layer.weight])


def test_network_of_smooth_spikes_agrees_with_differences(run, x):
    neurons = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.2))
    net = nn.SequentialCell(made(3), neurons, nn.DelayedDense(N_OUT, 2, 2, width=0.9, dtype="float64"), neurons)
    net.set_train()
    with surrogate.smooth():
        testing.check_grads(run(net), Tensor(x * 2.0), weights=net.trainable_params())


@pytest.mark.sampled(10)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("pad_mode", "padding"), [("same", 0), ("valid", 0), ("pad", 2)])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_convolution_equals_sum_of_convolutions_of_delayed_inputs(
    run, rng, window, stride, pad_mode, padding, dilation, train
):
    snncell.set_seed(5)
    places = {"stride": stride, "pad_mode": pad_mode, "padding": padding, "dilation": dilation}
    layer = nn.DelayedConv1d(2, 3, window, 4, **places, width=1.1, dtype="float64").set_train(train)
    x = Tensor(rng.normal(size=(6, B, 2, 9)))
    expected = layer.synapses.bias.reshape((-1, 1))
    for d, taps in enumerate(layer.synapses.taps()):  # (C K, O)
        late = ops.concat([ops.zeros_like(x[:d]), x[: 6 - d]], 0).reshape((6 * B, 2, 9))
        each = ops.conv1d(late, taps.T.reshape((3, 2, window)), **places)
        expected = expected + each.reshape((6, B, *each.shape[1:]))
    np.testing.assert_allclose(run(layer)(x).asnumpy(), expected.asnumpy(), atol=1e-12)
    learned = [p for p in layer.trainable_params() if train or p is not layer.synapses.delay]
    testing.check_grads(run(layer), x, weights=learned)


def looped(longest=3, train=True, bias=True):
    snncell.set_seed(4)
    feedback = nn.DelayedDense(N_IN, N_IN, longest, width=1.2, weight_init="normal", has_bias=bias, dtype="float64")
    feedback.weight[...] = feedback.weight * 60.0
    return nn.MultiStep(nn.RecurrentDelay(nn.LIFNode(tau=2.0, v_threshold=0.3), feedback)).set_train(train)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("longest", [0, 3, 12])
def test_feedback_equals_a_layer_that_gets_the_spikes_one_step_later(run, rng, longest, train):
    net, x = looped(longest, train), rng.normal(size=(12, B, N_IN))
    spikes = run(net)(Tensor(x)).asnumpy()
    before = np.concatenate([np.zeros_like(spikes[:1]), spikes[:-1]])
    alone = nn.MultiStep(net.cell.cell)
    assert 0.1 < spikes.mean() < 0.9 and (alone(Tensor(x)).asnumpy() != spikes).any()
    np.testing.assert_array_equal(alone(Tensor(x) + net.cell.feedback(Tensor(before))).asnumpy(), spikes)


def test_feedback_of_smooth_spikes_agrees_with_differences(run, rng):
    net = looped()
    with surrogate.smooth():
        testing.check_grads(run(net), Tensor(rng.normal(size=(8, B, N_IN))), weights=net.trainable_params())


def test_feedback_continues_over_chunks_and_starts_again(rng):
    net, x = looped(), Tensor(rng.normal(size=(10, B, N_IN)))
    stream = nn.Stateful(net)
    for _ in range(2):
        chunks = [stream(x[:4]), stream(x[4:])]
        np.testing.assert_array_equal(ops.concat(chunks, 0).asnumpy(), net(x).asnumpy())
        stream.reset()


def test_width_of_a_triangle_of_one_step_interpolates_between_steps():
    delays = Tensor([[1.25]])
    layer = nn.DelayedDense(1, 1, 3, "triangular", 1.0, 1.0, delays, has_bias=False).set_train()
    x = Tensor([1.0, 0.0, 0.0, 0.0]).reshape((4, 1, 1))
    np.testing.assert_allclose(layer(x)[:, 0, 0].asnumpy(), [0.0, 0.75, 0.25, 0.0], atol=1e-6)


def test_new_width_is_used_by_jitted_functions(x):
    layer = made(6)
    fast = snncell.jit(layer)
    for width in (5.0, 2.0, 0.4):
        layer.width = width
        np.testing.assert_allclose(fast(Tensor(x)).asnumpy(), by_loop(x, layer), atol=1e-12)
    np.testing.assert_allclose(fast(Tensor(x)).asnumpy(), layer(Tensor(x)).asnumpy(), atol=1e-12)


def test_learned_delays_find_a_target_and_stay_in_range():
    snncell.set_seed(0)
    x = (ops.uniform((60, 8, 2)) < 0.15).astype("float32")
    target = nn.DelayedDense(2, 1, 8, weight_init=1.0, delay_init=Tensor([[7.0, 0.0]]), has_bias=False)
    layer = nn.DelayedDense(2, 1, 8, "gaussian", 4.0, 1.0, 4.0, has_bias=False).set_train()
    optimiser = nn.Adam([{"params": [layer.delay], "lr": 0.2}])
    y = target(x)
    step = snncell.jit(lambda: optimiser(ops.grad(lambda: ops.square(layer(x) - y).mean(), None, [layer.delay])()))
    for width in np.geomspace(4.0, 0.5, 60):
        layer.width = float(width)
        step()
        assert layer.delay.asnumpy().min() >= 0 and layer.delay.asnumpy().max() <= 8
    np.testing.assert_allclose(layer.delay.asnumpy(), [[7.0, 0.0]], atol=0.3)


@pytest.mark.compiled
def test_explain_says_how_products_are_computed():
    layer, x = nn.DelayedDense(100, 128, 25).set_train(), ops.ones((100, 16, 100))
    gradient = snncell.jit(snncell.value_and_grad(lambda x: layer(x).sum(), 0, layer.trainable_params()))
    words = " ".join(snncell.explain(gradient, x).split())
    assert "delayed_product event-driven below 4" in words and "non-zero elements, else by BLAS" in words
    assert "delayed_product by Fourier transforms of time; delayed_weight_gradient event-driven below" in words
    assert "product_per_synapse event-driven" in snncell.explain(snncell.jit(layer.set_train(False)), x)
    assert "delayed_product by BLAS" in snncell.explain(snncell.jit(made(2)), X)


def test_delays_start_uniformly_in_range_and_writes_are_clipped():
    layer = nn.DelayedDense(100, 50, 20)
    start = layer.delay.asnumpy()
    assert start.shape == (50, 100) and 0 <= start.min() < 0.5 and 19.5 < start.max() <= 20
    assert abs(start.mean() - 10) < 0.5 and layer.width.item() == 10.0
    layer.delay[...] = Tensor(np.linspace(-5, 30, 5000, dtype=np.float32).reshape(50, 100))
    assert (layer.delay.asnumpy().min(), layer.delay.asnumpy().max()) == (0.0, 20.0)


@pytest.mark.parametrize("shape", [(0, 2, 2, 9), (4, 0, 2, 9)])
def test_convolution_of_an_empty_batch_is_empty(shape):
    layer, x = nn.DelayedConv1d(2, 3, 3, 4, stride=2).set_train(), ops.zeros(shape)
    assert layer(x).shape == (*shape[:2], 3, 5) and ops.grad(lambda x: layer(x).sum())(x).shape == shape


def test_batch_has_results_of_single_samples_and_spikes_may_be_bytes(x):
    layer = made(5)
    spikes = (x != 0).astype(np.uint8)
    whole = layer(Tensor(spikes)).asnumpy()
    assert whole.dtype == np.float64
    for n in range(B):
        np.testing.assert_allclose(whole[:, n : n + 1], layer(Tensor(spikes[:, n : n + 1])).asnumpy(), atol=1e-12)


def test_copies_and_state_dicts_keep_delays(x):
    layer, other = made(5), nn.DelayedDense(N_IN, N_OUT, 5, width=1.1, dtype="float64").set_train()
    assert "max_delay=5, kernel='gaussian'" in repr(layer)
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other(Tensor(x)).asnumpy(), layer(Tensor(x)).asnumpy())


X = ops.ones((T, B, N_IN))
REFUSED = [
    (
        lambda: nn.DelayedConv1d(3, 2, 3, 1)(X),
        ShapeError,
        r"must be a sequence \(T, B, 3, L\), but has shape \(9, 2, 3\)",
    ),
    (lambda: nn.DelayedConv1d(2, 2, 5, 1, pad_mode="valid")(ops.ones((T, B, 2, 4))), ShapeError, "fewer places than a"),
    (lambda: nn.DelayedConv1d(2, 2, 3, 1, padding=1), ArgumentError, 'padding=1 needs pad_mode="pad"'),
    (lambda: nn.DelayedConv1d(2, 2, 3, 1, widht=1.0), CallError, "no argument widht. Did you mean width"),
    (lambda: made()(X[0]), ShapeError, r"must be a sequence \(T, B, 3\), but has shape \(2, 3\)"),
    (lambda: made()(X[:, :, :2]), ShapeError, r"must be a sequence \(T, B, 3\), but has shape \(9, 2, 2\)"),
    (lambda: nn.DelayedDense(2, 2, -1), ArgumentError, "max_delay is an integer of at least 0, not -1"),
    (lambda: nn.DelayedDense(2, 0, 1), ArgumentError, "out_channels is an integer of at least 1, not 0"),
    (lambda: nn.DelayedDense(2, 2, 3, width=0.0), ArgumentError, "DelayedDense: width is positive, not 0.0"),
    (lambda: nn.DelayedDense(2, 2, 3, width=[1.0] * 3), ShapeError, r"width must be one number, but has shape \(3,\)"),
    (lambda: nn.DelayedDense(2, 2, 3, "triangular", 0.5), ArgumentError, "width is a number above 0.5, not 0.5"),
    (lambda: setattr(made(), "width", math.nan), ArgumentError, "width is .* not nan"),
    (lambda: nn.DelayedDense(2, 2, 3, "square"), ArgumentError, 'kernel is "gaussian" or "triangular", not \'square\''),
    (
        lambda: looped()(X[:, :, :2]),
        ShapeError,
        r"RecurrentDelay: the input of a step must be \(B, 3\) for Del.*\(2, 2\)",
    ),
    (
        lambda: nn.RecurrentDelay(abs, made()),
        ArgumentError,
        "cell must be a Cell, an object such as nn.LIFNode\\(\\), not",
    ),
    (
        lambda: nn.RecurrentDelay(nn.IFNode(), nn.Dense(2, 2)),
        ArgumentError,
        "feedback must be a DelayedDense .* a Dense",
    ),
    (lambda: nn.RecurrentDelay(nn.IFNode(), made()), ArgumentError, "as many inputs as outputs"),
    (lambda: nn.DelayedDense(2, 2, 3, delay_init=3.5), ArgumentError, r"delay is a number from 0.0 up to 3.0"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_invalid_arguments_raise(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
