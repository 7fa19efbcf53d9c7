"""Rewrites of operations over time: sums before products, equal rows once, elementwise producers inside the loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreting import traced

import snncell
from snncell import Tensor, explain, grad, jit, nn, ops
from snncell.compiler.ir.operations import Broadcast, Reshape
from snncell.compiler.ir.program import makers_in
from snncell.compiler.passes import optimise

T, B, N = 7, 3, 5


def array(*shape: int, seed: int = 0) -> Any:
    return Tensor(np.random.default_rng(seed).normal(size=shape))


def rows_multiplied(f: Callable[..., Any], *inputs: Any) -> list[int]:
    """For each product of the compiled `f`, return its multiplications per element of the weight matrix."""
    shape = r"%\d+:float64\[([\d,]+)\] = "
    text = explain(f, *inputs, detail="program")
    sizes = dict(re.findall(r"%(\d+):float64\[([\d,]+)\]", text))
    found = re.findall(shape + r"matmul\(%(\d+), %\d+\)", text)
    return [int(np.prod([int(n) for n in sizes[x].split(",")])) * int(out.split(",")[-1]) for out, x in found]


W, V, BIAS = array(N, 4, seed=1), array(4, 2, seed=2), array(4, seed=3)

EARLY: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "mean": (lambda x, w, v, b: ops.matmul(x, w).mean(0), [B * N * 4]),
    "sum": (lambda x, w, v, b: ops.matmul(x, w).sum(0), [B * N * 4]),
    "bias": (lambda x, w, v, b: (ops.matmul(x, w) + b).mean(0), [B * N * 4]),
    "bias before": (lambda x, w, v, b: (b - ops.matmul(x, w)).mean(0), [B * N * 4]),
    "negative": (lambda x, w, v, b: ops.neg(ops.matmul(x, w)).sum(0), [B * N * 4]),
    "two layers": (lambda x, w, v, b: ops.matmul(ops.matmul(x, w) + b, v).mean(0), [B * N * 4, B * 4 * 2]),
    "all axes": (lambda x, w, v, b: (ops.matmul(x, w) + b).sum(), [N * 4]),
    "time and batch": (lambda x, w, v, b: (ops.matmul(x, w) + b).mean((0, 1)), [N * 4]),
    "a bias for each of the batch": (lambda x, w, v, b: (ops.matmul(x, w) + b[:3, None]).sum(0), [B * N * 4]),
}
LATE: dict[str, Callable[..., Any]] = {
    "another axis": lambda x, w, v, b: ops.matmul(x, w).sum(1),
    "kept": lambda x, w, v, b: ops.matmul(x, w).sum(0, keepdims=True),
    "wanted itself": lambda x, w, v, b: (ops.matmul(x, w).sum(0), ops.matmul(x, w).max(0)),
    "not linear": lambda x, w, v, b: ops.tanh(ops.matmul(x, w)).sum(0),
    "squared": lambda x, w, v, b: ops.square(ops.matmul(x, w)).sum(0),
    "two products": lambda x, w, v, b: (ops.matmul(x, w) + ops.matmul(x * 2.0, w)).sum(0),
    "a bias for each step": lambda x, w, v, b: (ops.matmul(x, w) + x[:, :, :1]).sum(0),
    "largest": lambda x, w, v, b: ops.matmul(x, w).max(0),
    "other rows": lambda x, w, v, b: ops.matmul(x, w).reshape(B, T, 4).sum(0),
    "folded": lambda x, w, v, b: ops.matmul(x, w).reshape(T, B * 4).sum(0),
}


def check(f: Callable[..., Any]) -> None:
    """Compare values and gradients of the jitted function with eager mode."""
    inputs = (array(T, B, N), W, V, BIAS)

    def loss(*xs: Any) -> Any:
        outs = f(*xs)
        return sum(((out * out).sum() + out.sum() for out in (outs if isinstance(outs, tuple) else (outs,))), 0.0)

    for g in (f, loss, grad(loss, (0, 1, 2, 3)), grad(lambda *xs: (grad(loss, 1)(*xs) ** 2).sum(), (0, 1))):
        found, expected = jit(g)(*inputs), g(*inputs)
        pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
        for one, other in pairs:
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EARLY)
def test_sum_over_time_moves_before_the_product(name: str) -> None:
    f, expected = EARLY[name]
    assert rows_multiplied(f, array(T, B, N), W, V, BIAS) == expected
    check(f)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LATE)
def test_other_reductions_stay_after_the_product(name: str) -> None:
    found = rows_multiplied(LATE[name], array(T, B, N), W, V, BIAS)
    assert found and set(found) == {T * B * N * 4}
    check(LATE[name])


def test_backward_multiplies_equal_gradients_once() -> None:
    inputs = (array(T, B, N), W, V, BIAS)

    def loss(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Any:
        return ops.square((ops.matmul(ops.matmul(x, w) + b, v)).mean(0)).sum()

    found = rows_multiplied(grad(loss, (0, 1, 2, 3)), *inputs)
    first, second = B * N * 4, B * 4 * 2
    assert sorted(found) == sorted([first, second] * 3)  # forward, gradients of the input, gradients of the weights
    check(loss)


def test_loss_of_each_step_is_multiplied_per_step() -> None:
    found = rows_multiplied(grad(lambda x, w: ops.square(ops.matmul(x, w)).sum(0).sum(), (0, 1)), array(T, B, N), W)
    assert set(found) == {T * B * N * 4}


def test_float16_sums_are_not_moved() -> None:
    x, w = (Tensor(np.full(shape, value, np.float16)) for shape, value in (((1000, 2, 3), 100.0), ((3, 2), 1e-4)))
    total = jit(lambda x, w: ops.matmul(x, w).sum(0))(x, w).asnumpy()
    assert np.isfinite(total).all()
    np.testing.assert_allclose(total, 30.0, rtol=0.1)


def test_deep_chain_does_not_exceed_the_recursion_limit() -> None:
    def deep(x: Tensor, w: Tensor) -> Any:
        for _ in range(400):
            x = ops.matmul(x, w)
        return x.sum(0)

    x, w = array(3, 2, 4) * 1e-3, Tensor(np.eye(4) * 1.001)
    np.testing.assert_allclose(jit(deep)(x, w).asnumpy(), deep(x, w).asnumpy(), rtol=1e-9)


def test_single_step_is_not_rewritten() -> None:
    f = EARLY["bias"][0]
    assert rows_multiplied(f, array(1, B, N), W, V, BIAS) == [B * N * 4]
    np.testing.assert_allclose(
        jit(f)(array(1, B, N), W, V, BIAS).asnumpy(), f(array(1, B, N), W, V, BIAS).asnumpy(), rtol=1e-12
    )


@pytest.mark.compiled
def test_rate_readout_does_not_store_spikes_of_each_step() -> None:
    layer, readout = nn.MultiStep(nn.LIFNode()), nn.Dense(N, 2)

    def rate(x: Tensor) -> Any:
        return readout(layer(x)).mean(0)

    x = Tensor(np.random.default_rng(0).normal(size=(T, B, N)).astype(np.float32) * 2)
    spikes = f"float32[{T},{B},{N}]"
    assert explain(rate, x, detail="program").count(spikes) == 1  # the input
    assert explain(lambda x: readout(layer(x)).max(0), x, detail="program").count(spikes) > 1
    np.testing.assert_allclose(jit(rate)(x).asnumpy(), rate(x).asnumpy(), rtol=1e-5, atol=1e-6)


# --- elementwise operations over all steps as one batch, before a reshape into time steps -----------------------------

STEPS, BATCH, CHANNELS, SIDE = 4, 3, 2, 5
WHOLE = (STEPS * BATCH, CHANNELS, SIDE, SIDE)
SHAPES = [
    WHOLE,
    (STEPS * BATCH, 1, 1, 1),
    (1, CHANNELS, 1, 1),
    (CHANNELS, 1, 1),
    (SIDE,),
    (),
    (STEPS * BATCH, CHANNELS, 1, 1),
]
OPERATIONS = [ops.add, ops.sub, ops.mul, ops.maximum, lambda x, y: ops.exp(-(x * x)) + y]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.sampled(2)
def test_chains_of_producers_equal_single_operations(seed: int) -> None:
    """Chains with operands of all kinds, where some results have other consumers."""
    rng = np.random.default_rng(seed)
    chain = [
        (OPERATIONS[rng.integers(len(OPERATIONS))], int(rng.integers(len(SHAPES)))) for _ in range(rng.integers(1, 5))
    ]
    also = int(rng.integers(-1, len(chain)))  # the operation that is also a result of the function
    dtype = rng.choice(["float32", "float64"])  # storage formats are rounded at other places in a loop
    operands = [Tensor(rng.normal(size=SHAPES[kind])).astype(dtype) for _, kind in chain]
    x = Tensor(rng.normal(size=WHOLE)).astype(dtype)
    layer = nn.MultiStep(nn.LIFNode(tau=2.0))

    def run(x: Tensor, *operands: Tensor) -> Any:
        aside = None
        for number, ((operation, _), operand) in enumerate(zip(chain, operands, strict=True)):
            x = operation(x, operand)
            aside = x if number == also else aside
        spikes = layer(ops.reshape(x, (STEPS, BATCH, *WHOLE[1:])))
        return (spikes, aside) if aside is not None else (spikes,)

    def loss(x: Tensor, *operands: Tensor) -> Tensor:
        weights = Tensor(np.linspace(-1, 1, spikes_size := STEPS * BATCH * CHANNELS * SIDE * SIDE, dtype=np.float32))
        parts = run(x, *operands)
        assert parts[0].size == spikes_size
        return sum(((part.reshape(-1) * weights).sum() for part in parts), Tensor(0.0))

    for a, b in zip(run(x, *operands), jit(run)(x, *operands), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)
    places = tuple(range(1 + len(operands)))
    tolerance = {"float32": 2e-5, "float64": 1e-12}[str(dtype)]
    for a, b in zip(grad(loss, places)(x, *operands), jit(grad(loss, places))(x, *operands), strict=True):
        scale = float(np.abs(a.asnumpy()).max(initial=1.0))
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=tolerance, atol=tolerance * scale)


def test_image_normalisation_is_fused_into_the_neuron_loop() -> None:
    net = nn.SequentialCell([nn.TimeDistributed(nn.BatchNorm2d(CHANNELS)), nn.MultiStep(nn.LIFNode(tau=2.0))])
    net.set_train()
    x = ops.normal((STEPS, BATCH, *WHOLE[1:]))
    step = jit(snncell.value_and_grad(lambda x: (net(x) ** 2).mean(), None, weights=net.trainable_params()))
    text = snncell.explain(step, x, detail="launches")
    loop = text[text.index("in the loop:") : text.index("backward of")]
    assert "return (x - mean) * scale + beta" in loop and "sub mul add" in " ".join(loop.split()), text


def test_a_training_step_with_normalisation_copies_no_broadcast() -> None:
    norm = nn.TimeDistributed(nn.BatchNorm2d(CHANNELS)).set_train()
    net = nn.SequentialCell([nn.MultiStep(nn.LIFNode()), norm, nn.MultiStep(nn.LIFNode())])
    x = ops.normal((STEPS, BATCH, *WHOLE[1:]))
    program = optimise(traced(snncell.grad(lambda x: (net(x) ** 2).mean()), x))
    makers = makers_in(program)
    reshaped = [makers.get(one.inputs[0]) for one in program.instructions if isinstance(one.op, Reshape)]
    assert reshaped and not any(maker is not None and isinstance(maker.op, Broadcast) for maker in reshaped)


def test_producers_with_other_consumers_are_not_moved() -> None:
    """An expensive result with another consumer is computed once, as is one that two operands use."""
    layer = nn.MultiStep(nn.LIFNode(tau=2.0))

    @jit
    def shared(x: Tensor, y: Tensor) -> Any:
        a = ops.exp(x) * y
        return layer(ops.reshape(a, (STEPS, BATCH, *WHOLE[1:]))), a

    x = ops.normal(WHOLE)
    text = snncell.explain(shared, x, x, detail="launches")
    assert text.count("exp") == str(text).count("exp") and "in the loop:" in text
    loop = text[text.index("in the loop:") :]
    assert "exp" not in loop
