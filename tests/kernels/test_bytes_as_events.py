"""Byte and boolean frames enter products as events, without conversion to floats."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops
from snncell.kernels.arrays import POOL
from snncell.kernels.products import matmul

DTYPES = (np.uint8, np.bool_)


def frames(dtype: Any, shape: tuple[int, ...], density: float, seed: int = 0) -> Any:
    """Event counts, with the given fraction of nonzero pixels."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 256, shape) * (rng.random(shape) < density)
    return counts.astype(dtype)


def steps_of(function: Any, *inputs: Any) -> str:
    """Return the launches of the compiled `function`."""
    return str(snncell.explain(function, *inputs, detail="launches"))


class Net(nn.Cell):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first = nn.Dense(inputs, 96)
        self.neurons = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.5))
        self.last = nn.Dense(96, 5)

    def construct(self, x: Any) -> Any:
        return self.last(self.neurons(self.first(x) * 0.01))


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.0, 0.03, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(7, 60, 300), (1, 1, 400), (3, 5, 64), (2, 300, 2100)])
@pytest.mark.parametrize("jit", [snncell.jit, lambda function: function], ids=["jitted", "eager"])
def test_byte_frames_have_the_results_and_gradients_of_floats(
    jit: Any, dtype: Any, density: float, shape: tuple[int, ...]
) -> None:
    snncell.set_seed(0)
    net, x = Net(shape[-1]), frames(dtype, shape, density)

    def loss(inputs: Any) -> Any:
        return ops.square(net(inputs)).sum()

    taken = jit(snncell.value_and_grad(loss, None, net.trainable_params()))
    value, gradients = taken(Tensor(x))
    expected, others = taken(Tensor(x.astype(np.float32)))
    np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
    for found, other in zip(gradients, others, strict=True):
        scale = np.abs(other.asnumpy()).max()
        np.testing.assert_allclose(found.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5 * max(scale, 1.0))
    only = jit(net)
    np.testing.assert_allclose(
        only(Tensor(x)).asnumpy(), only(Tensor(x.astype(np.float32))).asnumpy(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("jit", [snncell.jit, lambda function: function], ids=["jitted", "eager"])
def test_sparse_frames_allocate_no_float_copy(jit: Any, dtype: Any) -> None:
    dense, x = nn.Dense(2312, 8), Tensor(frames(dtype, (80, 64, 2312), 0.02))
    gradient = jit(snncell.grad(lambda x: ops.square(dense(x)).sum(), None, dense.trainable_params()))
    gradient(x)  # compiles, and leaves memory in the pool
    POOL.clear()
    gc.collect()
    tracemalloc.start()
    gradient(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * x.size  # a float32 copy takes 4 bytes per pixel, and space for events in all pixels takes 6


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_frames_used_only_as_events_are_not_cast(dtype: Any) -> None:
    dense, x = nn.Dense(300, 96), Tensor(frames(dtype, (400, 300), 0.02))
    trained = snncell.value_and_grad(lambda inputs: ops.square(dense(inputs)).sum(), None, dense.trainable_params())
    for function in (dense, trained):
        told = steps_of(snncell.jit(function), x)
        assert "finds the events" in told
        assert "loop_cast" not in told
    views = steps_of(snncell.jit(lambda inputs: dense(inputs.reshape(20, 20, 300))), x)
    assert "loop_cast" not in views


@pytest.mark.compiled
@pytest.mark.parametrize("outside", [False, True])
def test_batch_first_frames_are_transposed_and_used_as_events(outside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, x = nn.Dense(300, 96), frames(np.uint8, (20, 30, 300), 0.02)
    turn = (lambda each: each) if outside else (lambda each: each.transpose((1, 0, 2)))
    given = Tensor(x).transpose((1, 0, 2)) if outside else Tensor(x)
    found, seen = [], matmul.events_of

    def kept(given: Any, **options: Any) -> Any:
        found.append(seen(given, **options))
        return found[-1]

    monkeypatch.setattr(matmul, "events_of", kept)
    y = snncell.jit(lambda each: dense(turn(each)))(given).asnumpy()
    expected = dense(Tensor(x.transpose(1, 0, 2).astype(np.float32))).asnumpy()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)
    assert found[-1].counts.sum() == np.count_nonzero(x)  # earlier calls are for shapes alone


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_frames_with_other_consumers_are_cast_to_floats(dtype: Any) -> None:
    dense, x = nn.Dense(300, 96), frames(dtype, (400, 300), 0.02)

    def both(inputs: Any) -> Any:
        floats = ops.cast(inputs, snncell.float32)
        return dense(floats).sum(1) + floats.sum(1)

    expected = both(Tensor(x.astype(np.float32))).asnumpy()
    np.testing.assert_allclose(snncell.jit(both)(Tensor(x)).asnumpy(), expected, rtol=1e-4, atol=1e-3)

    def squared(inputs: Any) -> Any:  # the second operand is multiplied without a search for events
        floats = ops.cast(inputs, snncell.float32)
        return ops.matmul(floats.T, floats)

    expected = x.astype(np.float32).T @ x.astype(np.float32)
    np.testing.assert_allclose(snncell.jit(squared)(Tensor(x)).asnumpy(), expected, rtol=1e-5)


@pytest.mark.compiled
def test_small_matrices_are_cast_for_blas() -> None:
    dense, x = nn.Dense(4, 3), frames(np.uint8, (5, 4), 0.3)
    np.testing.assert_allclose(
        snncell.jit(dense)(Tensor(x)).asnumpy(), dense(Tensor(x.astype(np.float32))).asnumpy(), rtol=1e-6
    )


@pytest.mark.compiled
def test_second_order_gradients_equal_those_of_floats() -> None:
    x = frames(np.uint8, (300, 200), 0.03)
    w = Tensor(np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32))

    def penalty(weight: Any, inputs: Any) -> Any:
        inner = snncell.grad(lambda each: ops.sin(ops.matmul(inputs, each) * 0.01).sum())(weight)
        return ops.square(inner).sum()

    second = snncell.jit(snncell.grad(penalty))
    found, expected = second(w, Tensor(x)).asnumpy(), second(w, Tensor(x.astype(np.float32))).asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.0, 0.02, 0.2, 1.0])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((6, 2, 20, 24), {"out_channels": 32, "kernel_size": 5}),
        ((3, 8, 11, 9), {"out_channels": 16, "kernel_size": 3, "stride": 2, "pad_mode": "valid"}),
        ((2, 4, 12, 12), {"out_channels": 8, "kernel_size": 3, "dilation": 2, "group": 2}),
        ((0, 2, 9, 9), {"out_channels": 8, "kernel_size": 3}),
        ((5, 16, 13, 70), {"out_channels": 16, "kernel_size": 3}),
        ((2, 9, 12, 13), {"out_channels": 24, "kernel_size": 5, "stride": 2}),
        ((3, 4, 14, 19), {"out_channels": 9, "kernel_size": 4, "stride": 3}),
    ],
)
def test_convolutions_of_bytes_equal_those_of_floats(
    dtype: Any, density: float, shape: tuple[int, ...], settings: dict[str, Any]
) -> None:
    snncell.set_seed(0)
    conv, x = nn.Conv2d(shape[1], **settings), frames(dtype, shape, density)
    function = snncell.jit(
        snncell.value_and_grad(lambda inputs: ops.square(conv(inputs) * 0.01).sum(), None, conv.trainable_params())
    )
    value, gradients = function(Tensor(x))
    expected, others = function(Tensor(x.astype(np.float32)))
    np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-5)
    for found, other in zip(gradients, others, strict=True):
        scale = max(float(np.abs(other.asnumpy()).max(initial=0)), 1.0)
        np.testing.assert_allclose(found.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5 * scale)
    only = snncell.jit(conv)
    one, other = only(Tensor(x)).asnumpy(), only(Tensor(x.astype(np.float32))).asnumpy()
    assert one.dtype == np.float32
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4 * max(float(np.abs(other).max(initial=0)), 1.0))


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", DTYPES)
def test_byte_images_are_not_cast_for_event_convolutions(dtype: Any) -> None:
    conv, x = nn.Conv2d(2, 32, 5), Tensor(frames(dtype, (10, 4, 2, 20, 24), 0.02))
    net = nn.TimeDistributed(nn.SequentialCell(conv, nn.Flatten()))
    trained = snncell.value_and_grad(lambda inputs: ops.square(net(inputs)).sum(), None, net.trainable_params())
    for function in (net, trained):
        told = steps_of(snncell.jit(function), x)
        assert "event-driven below" in told
        assert "loop_cast" not in told


@pytest.mark.compiled
def test_byte_images_with_other_consumers_are_cast_to_floats() -> None:
    conv, x = nn.Conv2d(2, 32, 5), frames(np.uint8, (4, 2, 20, 24), 0.02)

    def both(inputs: Any) -> Any:
        floats = ops.cast(inputs, snncell.float32)
        return conv(floats).sum() + ops.square(floats).sum()

    expected = both(Tensor(x.astype(np.float32))).asnumpy()
    np.testing.assert_allclose(snncell.jit(both)(Tensor(x)).asnumpy(), expected, rtol=1e-4)
