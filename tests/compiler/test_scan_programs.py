"""Random loop bodies over time: checkpoints, outputs unused by the loss, second-order gradients.

A step is a list of operations on earlier values. The reference calls the same step once per time step on the tape;
if PyTorch is installed, its unrolled loop is a second reference.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, ops

SHAPE = (4, 3)
UNARY = {  # full shape -> full shape
    "sin": lambda xp, a: xp.sin(a),
    "tanh": lambda xp, a: xp.tanh(a),
    "square": lambda xp, a: a * a,
    "times": lambda xp, a: a * 0.7,
    "softmax": lambda xp, a: xp.exp(a) / xp.exp(a).sum(1, keepdims=True),
    "centred": lambda xp, a: a - a.mean(0, keepdims=True),
    "turned": lambda xp, a: a[::-1] if xp is ops else xp.flip(a, (0,)),
    "cumsum": lambda xp, a: xp.cumsum(a, 1),
}
BINARY = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "sub": lambda a, b: a - 0.5 * b}
REDUCED = {  # without the full shape: results of a step, and broadcast operands
    "mean": lambda a: a.mean(1),
    "sum": lambda a: a.sum(0),
    "total": lambda a: a.sum(),
    "kept": lambda a: a.mean(1, keepdims=True),
}


class Plan(NamedTuple):
    """A step: its operations by name and operands, the new carry, the outputs, and the outputs used by the loss."""

    operations: list[tuple[str, tuple[int, ...]]]
    after: tuple[int, int]
    results: list[tuple[str, int]]
    used: list[bool]
    states: bool


def random_plan(rng: np.random.Generator) -> Plan:
    operations: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(rng.integers(1, 6)):
        known = len(operations) + 3  # the carry, the row, and a matrix constant over time
        if rng.integers(2):
            operations.append((str(rng.choice(list(UNARY))), (int(rng.integers(known)),)))
        else:
            pair = rng.integers(known, size=2)
            operations.append((str(rng.choice(list(BINARY))), (int(pair[0]), int(pair[1]))))
    known = len(operations) + 3
    picks = rng.integers(known, size=2)
    names = ["same", *REDUCED]
    results = [(str(rng.choice(names)), int(rng.integers(known))) for _ in range(rng.integers(1, 4))]
    used = [bool(rng.integers(2)) for _ in results]
    return Plan(operations, (int(picks[0]), int(picks[1])), results, used, not any(used) or bool(rng.integers(2)))


def step_of(plan: Plan, xp: Any, matrix: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        values = [carry, x, matrix]
        for name, operands in plan.operations:
            chosen = [values[n] for n in operands]
            values.append(UNARY[name](xp, *chosen) if name in UNARY else BINARY[name](*chosen))
        after = xp.tanh(values[plan.after[0]] + 0.5 * values[plan.after[1]] + 0.3 * carry)
        return after, tuple(values[n] if name == "same" else REDUCED[name](values[n]) for name, n in plan.results)

    return step


def loss_of(plan: Plan, carry: Any, ys: Any, xp: Any) -> Any:
    outputs = [y for y, used in zip(ys, plan.used, strict=True) if used] + [carry] * plan.states
    return functools.reduce(operator.add, [xp.sin(y).sum() for y in outputs])


def unrolled(step: Any, carry: Any, xs: Any, stack: Any, backwards: bool) -> tuple[Any, Any]:
    rows = []
    for t in reversed(range(len(xs))) if backwards else range(len(xs)):
        carry, y = step(carry, xs[t])
        rows.append(y)
    if backwards:
        rows.reverse()
    return carry, tuple(stack(list(column)) for column in zip(*rows, strict=True))


@pytest.mark.sampled(1)
@pytest.mark.compiled
@random_cases(6)
def test_second_order_gradients_through_checkpoints_equal_the_unrolled_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plan = random_plan(rng)
    compare(plan, rng, [None, 1, 2, 3, 100][rng.integers(5)], bool(rng.integers(4) == 0), bool(seed % 2))


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("name", REDUCED)
def test_unused_output_that_is_not_elementwise_keeps_second_order_correct(name: str) -> None:
    """The loop computes `times` step by step, and the recomputed forward takes it from before the loop."""
    plan = Plan([("times", (1,)), ("sin", (3,))], (4, 0), [(name, 3)], [False], True)
    compare(plan, np.random.default_rng(0), 2, False, False)


def compare(plan: Plan, rng: np.random.Generator, every: int | None, backwards: bool, compiled: bool) -> None:
    steps = int(rng.integers(2, 7))
    data = [rng.standard_normal(shape) for shape in ((steps, *SHAPE), SHAPE, SHAPE)]
    inputs = [Tensor(x) for x in data]

    def second(run: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Callable[..., Any]:
        def loss(xs: Tensor, carry: Tensor, matrix: Tensor) -> Tensor:
            return loss_of(plan, *run(step_of(plan, ops, matrix), carry, xs), ops)

        def slopes(*inputs: Tensor) -> Tensor:
            return sum((ops.square(g).sum() for g in snncell.grad(loss, (0, 1, 2))(*inputs)), Tensor(0.0))

        return snncell.grad(slopes, (0, 1, 2))

    scanned = second(lambda f, c, xs: ops.scan(f, c, xs, reverse=backwards, checkpoint_every=every))
    found = (snncell.jit(scanned) if compiled else scanned)(*inputs)
    expected = [x.asnumpy() for x in second(lambda f, c, xs: unrolled(f, c, xs, ops.stack, backwards))(*inputs)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b, rtol=1e-8, atol=1e-10, err_msg=str((plan, every)))
    try:
        import torch
    except ImportError:
        return
    xs, carry, matrix = (torch.tensor(x, requires_grad=True) for x in data)
    loss = loss_of(plan, *unrolled(step_of(plan, torch, matrix), carry, xs, torch.stack, backwards), torch)
    options: Any = {"create_graph": True, "allow_unused": True}
    total = sum((g * g).sum() for g in torch.autograd.grad(loss, (xs, carry, matrix), **options) if g is not None)
    if total.requires_grad:
        theirs = torch.autograd.grad(total, (xs, carry, matrix), allow_unused=True)
        for mine, other in zip(expected, theirs, strict=True):
            np.testing.assert_allclose(mine, 0.0 if other is None else other.numpy(), rtol=1e-8, atol=1e-10)
