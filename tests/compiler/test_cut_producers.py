"""Elementwise steps over all steps as one batch, in front of a reshape into steps: part of the loop, same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, grad, jit, nn, ops

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
def test_chains_of_producers_give_the_values_of_single_operations(seed: int) -> None:
    """Chains with operands of all kinds, some of whose results are taken by others too."""
    rng = np.random.default_rng(seed)
    chain = [
        (OPERATIONS[rng.integers(len(OPERATIONS))], int(rng.integers(len(SHAPES)))) for _ in range(rng.integers(1, 5))
    ]
    also = int(rng.integers(-1, len(chain)))  # the step whose result is a result of the function as well
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


def test_normalisation_of_images_is_part_of_the_loop_of_the_neurons() -> None:
    net = nn.SequentialCell([nn.TimeDistributed(nn.BatchNorm2d(CHANNELS)), nn.MultiStep(nn.LIFNode(tau=2.0))])
    net.set_train()
    x = ops.normal((STEPS, BATCH, *WHOLE[1:]))
    step = jit(snncell.value_and_grad(lambda x: (net(x) ** 2).mean(), None, weights=net.trainable_params()))
    text = snncell.explain(step, x, detail="launches")
    loop = text[text.index("in the loop:") : text.index("backward of")]
    assert "return (x - mean) * scale + beta" in loop and "sub mul add" in " ".join(loop.split()), text


def test_what_others_take_stays_where_it_is() -> None:
    """A result with a slow call that is wanted elsewhere is computed once; so is what two operands go into."""
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
