"""Spiking self-attention and Spikformer's block: against loops, SpikingJelly and finite differences."""

from functools import partial

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, ShapeError

T, B, N, D, HEADS = 4, 2, 3, 16, 2


def spread(layers, rng, gain=4.0):
    """Random weights, and scales of the normalisation at which queries, keys and values fire."""
    for layer in layers:
        shape = layer.dense.weight.shape
        layer.dense.weight.set_data(rng.standard_normal(shape).astype(np.float32))
        layer.norm.gamma.set_data(rng.uniform(0.8 * gain, 1.2 * gain, shape[0]).astype(np.float32))
        layer.norm.beta.set_data(rng.uniform(0.5, 1.5, shape[0]).astype(np.float32))


def parts(block):
    return [block.attention.qkv, block.attention.projection, *block.mlp.cells()]


def spikes(rng, tokens=N):
    return (rng.random((T, B, tokens, D)) < 0.5).astype(np.float32)


# --- the oracle: NumPy loops ------------------------------------------------------------------------------------------


def fire(currents, threshold):
    """The LIF neuron of the paper over (T, ...): tau 2, reset to 0, spikes at the threshold."""
    v, out = np.zeros(currents.shape[1:]), []
    for x in currents:
        v = v + (x - v) / 2.0
        out.append((v >= threshold).astype(float))
        v = v * (1.0 - out[-1])
    return np.array(out)


def project(layer, x):
    current = x @ layer.dense.weight.asnumpy().astype(float).T
    flat = current.reshape(-1, current.shape[-1])
    normal = (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5)
    scaled = normal * layer.norm.gamma.asnumpy().astype(float) + layer.norm.beta.asnumpy().astype(float)
    return fire(scaled.reshape(current.shape), 1.0)


def attend(layer, x):
    """Attention head by head and token by token."""
    rows, d, out = project(layer.qkv, x), D // HEADS, np.zeros(x.shape)
    for t, b, head, i, j in np.ndindex(T, B, HEADS, x.shape[2], x.shape[2]):
        q, k, v = (rows[t, b, token, n * D + head * d :][:d] for n, token in ((0, i), (1, j), (2, j)))
        out[t, b, i, head * d :][:d] += 0.125 * (q @ k) * v
    return project(layer.projection, fire(out, 0.5))


@pytest.mark.parametrize("tokens", [N, 11])  # fewer and more than the 8 features of a head
def test_block_equals_loops_over_heads_and_tokens(rng, tokens):
    block = nn.SpikformerBlock(D, HEADS, mlp_ratio=1.5).set_train()
    spread(parts(block), rng)
    x = spikes(rng, tokens)
    attended = attend(block.attention, x)
    assert 0.05 < attended.mean() < 0.8
    expected = x + attended
    expected = expected + project(block.mlp[1], project(block.mlp[0], expected))
    np.testing.assert_array_equal(block(Tensor(x)).asnumpy(), expected)


def test_the_cheaper_order_of_products_gives_the_same_bits(rng):
    layer = nn.SpikingSelfAttention(D, HEADS).set_train()
    spread([layer.qkv, layer.projection], rng)
    for tokens, scores in ((7, True), (9, False)):
        x = Tensor(spikes(rng, tokens))
        q, k, v = layer.heads(x)
        last = (0, 1, 2, 4, 3)
        both = (q @ k.transpose(last)) @ v, q @ (k.transpose(last) @ v)
        assert both[0].asnumpy().max() > 8.0
        np.testing.assert_array_equal(both[0].asnumpy(), both[1].asnumpy())
        text = snncell.explain(layer, x, detail="program")
        assert (f"{tokens},{tokens}]" in text) == scores  # the matrix of scores


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
def test_block_equals_spikingjelly(torch, rng, training):
    model = pytest.importorskip("spikingjelly.activation_based.model.spikformer")
    theirs, mine = model.SpikformerBlock(D, HEADS).double(), nn.SpikformerBlock(D, HEADS)
    pairs = [theirs.attn.qkv_conv_bn, theirs.attn.proj_conv_bn, theirs.mlp.fc1, theirs.mlp.fc2]
    spread(parts(mine), rng)
    for layer, (conv, norm) in zip(parts(mine), pairs, strict=True):
        statistics = {"moving_mean": (norm.running_mean, 0.3), "moving_variance": (norm.running_var, 0.1)}
        for name, (other, more) in ({"gamma": (norm.weight, 0.0), "beta": (norm.bias, 0.0)} | statistics).items():
            value = getattr(layer.norm, name).asnumpy().astype(np.float64) + more
            other.data = torch.tensor(value)
            setattr(layer.norm, name, snncell.Parameter(Tensor(value), name, name not in statistics))
        conv.weight.data = torch.tensor(layer.dense.weight.asnumpy()[:, :, None], dtype=torch.float64)
        layer.dense.weight = snncell.Parameter(Tensor(layer.dense.weight.asnumpy().astype(np.float64)), name="weight")
    theirs.train(training)
    mine.set_train(training)
    x, weights = rng.uniform(0.0, 2.0, (T, B, 4, D)), rng.standard_normal((T, B, 4, D))
    images = torch.tensor(x.transpose(0, 1, 3, 2).reshape(T, B, D, 2, 2), requires_grad=True)
    y = theirs(images)
    (y * torch.tensor(weights.transpose(0, 1, 3, 2).reshape(y.shape))).sum().backward()
    out, pull = ops.vjp(mine, Tensor(x), weights=[layer.dense.weight for layer in parts(mine)])
    (of_x,), of_weights = pull(Tensor(weights))

    def tokens(z):
        return z.detach().numpy().reshape(T, B, D, 4).transpose(0, 1, 3, 2)

    np.testing.assert_array_equal(out.asnumpy() - x, tokens(y) - x)
    assert (out.asnumpy() - x).mean() > 0.1
    np.testing.assert_allclose(of_x.asnumpy(), tokens(images.grad), rtol=1e-9, atol=1e-11)
    for found, (conv, _) in zip(of_weights, pairs, strict=True):
        np.testing.assert_allclose(found.asnumpy(), conv.weight.grad[:, :, 0].numpy(), rtol=1e-8, atol=1e-10)


# --- gradients, kernels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [3, 6])  # both orders of the products, with 4 features of a head
def test_gradients_equal_finite_differences_of_smooth_spikes(rng, tokens):
    neuron = partial(nn.LIFNode, 2.0, surrogate_function=surrogate.ATan())
    block = nn.SpikformerBlock(8, 2, 1.0, neuron).set_train()
    spread(parts(block), rng)
    checked = testing.check_through_time(block, Tensor(rng.uniform(0.0, 1.0, (3, 2, tokens, 8))))
    assert checked.worst < 1e-5


@pytest.mark.compiled
def test_each_group_of_neurons_is_one_kernel_forward_and_one_backward(rng):
    layer = nn.SpikingSelfAttention(64, 4).set_train()
    spread([layer.qkv, layer.projection], rng, 8.0)
    x, weights = Tensor((rng.random((T, B, 16, 64)) < 0.5).astype(np.float32)), layer.trainable_params()

    def pull_back(x):
        out, pull = ops.vjp(layer, x, weights=weights)
        (of_x,), of_weights = pull(ops.cos(x))
        return out, of_x, *of_weights

    gradient = snncell.jit(pull_back)
    text = snncell.explain(gradient, x)
    assert text.count("fused: one kernel") == 6 and "6 loops over time" in text
    assert text.count("matmul event-driven below") == 2  # forward and backward of the product of the input
    with testing.unfused():
        steps = pull_back(x)
    assert steps[0].asnumpy().mean() > 0.05
    for found, expected in zip(gradient(x), steps, strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-3, atol=1e-4)


# --- neurons, errors --------------------------------------------------------------------------------------------------


def test_any_neuron_can_be_used_and_half_the_threshold_follows_attention(rng):
    thresholds = []

    class Own(nn.Cell):
        def __init__(self, v_threshold):
            super().__init__()
            thresholds.append(v_threshold)
            self.at = v_threshold

        def construct(self, x, v):
            h = 0.5 * v + x
            return surrogate.ATan()(h - self.at), h

    block = nn.SpikformerBlock(D, HEADS, neuron=Own).set_train()
    assert thresholds == [1.0, 0.5, 1.0, 1.0, 1.0]
    assert block(Tensor(spikes(rng))).shape == (T, B, N, D)
    adaptive = nn.SpikingSelfAttention(D, HEADS, partial(nn.ALIFNode, 0.8))
    nodes = [cell for _, cell in adaptive.cells_and_names() if isinstance(cell, nn.ALIFNode)]
    assert [node.v_threshold for node in nodes] == [1.0, 0.5, 1.0] and len({id(node) for node in nodes}) == 3


WRONG = [
    (lambda: nn.SpikingSelfAttention(16, 3), ArgumentError, "num_heads must divide dim.*dim is 16 and num_heads is 3"),
    (lambda: nn.SpikformerBlock(16, 3), ArgumentError, "SpikingSelfAttention: num_heads must divide dim"),
    (lambda: nn.SpikformerBlock(4, 2, 0.1), ArgumentError, "mlp_ratio 0.1 gives no hidden neuron for dim 4"),
    (lambda: nn.SpikingSelfAttention(16, 2, scale=0.0), ArgumentError, "SpikingSelfAttention: scale .*not 0.0"),
    (
        lambda: nn.SpikingSelfAttention(16, 2, nn.LIFNode()),
        ArgumentError,
        r"SpikingSelfAttention: neuron must be a function .*not .*LIFNode.*partial\(nn.LIFNode, 2.0\)",
    ),
    (
        lambda: nn.SpikformerBlock(16, 2, neuron=lambda v_threshold: v_threshold),
        ArgumentError,
        "neuron must be a function of v_threshold .*, not one that returns 1.0",
    ),
    (
        lambda: nn.SpikingSelfAttention(16, 2)(ops.ones((4, 2, 16))),
        ShapeError,
        r"SpikingSelfAttention: x must be \(T, B, N, 16\) with N tokens, not \(4, 2, 16\)",
    ),
    (lambda: nn.SpikformerBlock(16, 2)(ops.ones((4, 2, 16, 5))), ShapeError, r"x must be \(T, B, N, 16\)"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()
