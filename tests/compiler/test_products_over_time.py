"""Products inside loops over time: every form of product, with operands that differ from step to step or do not.

A loop takes products out where it can: one for all steps before it, one on sums after it. Each is compared with the
steps one by one, values and gradients.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, grad, jit, ops
from snncell.testing import unfused

T, A, B, K, M = 3, 2, 4, 5, 6

# The axes of the left and of the right operand in a step.
FORMS = {
    "vector and matrix": ((K,), (K, M)),
    "matrix and vector": ((B, K), (K,)),
    "rows": ((B, K), (K, M)),
    "rows along two axes": ((A, B, K), (K, M)),
    "one row": ((1, K), (K, M)),
    "no rows": ((0, K), (K, M)),
    "batches": ((A, B, K), (A, K, M)),
    "one matrix for a batch": ((B, K), (A, K, M)),
}
TIMES = ("neither", "left", "right", "both")  # which operand differs from step to step
WANTED = ("sequence", "sum", "state", "gradient of the matrix")


def operands(form: str, moving: str) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    left, right = FORMS[form]
    shapes = [(T, *left) if moving in ("left", "both") else left, (T, *right) if moving in ("right", "both") else right]
    x, y = (Tensor(rng.standard_normal(shape)) for shape in shapes)
    return x, y


def looped(moving: str, wanted: str, x: Tensor, y: Tensor) -> Tensor:
    """The products of all steps, by a loop."""
    over_x, over_y = moving in ("left", "both"), moving in ("right", "both")
    xs = [ops.arange(T).astype("float64"), *([x] if over_x else []), *([y] if over_y else [])]

    def step(carry: Any, slices: list[Tensor]) -> tuple[Any, Any]:
        now = iter(slices[1:])
        a, b = next(now) if over_x else x, next(now) if over_y else y
        # The gradient is a contraction, in the loop itself.
        one = grad(lambda b: ops.tanh(a @ b).sum()) if wanted == "gradient of the matrix" else a.matmul
        out = one(b) * (1.0 + slices[0])
        return (carry * 0.5 + ops.tanh(out).sum(), out) if wanted == "state" else (carry, out)

    last, ys = ops.scan(step, ops.zeros((), "float64"), xs)
    if wanted == "sum":
        return ys.sum(0)
    return last if wanted == "state" else ys


@pytest.mark.sampled(74)
@pytest.mark.parametrize(("form", "moving", "wanted"), [*product(FORMS, TIMES, WANTED)])
def test_a_product_in_a_loop_is_that_of_each_step(form: str, moving: str, wanted: str) -> None:
    x, y = operands(form, moving)

    def values(x: Tensor, y: Tensor) -> Tensor:
        return looped(moving, wanted, x, y)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        out = values(x, y)
        return (out * out).sum()

    with unfused():
        expected = values(x, y), *grad(loss, (0, 1))(x, y)
    for compiled in (lambda f: f, jit):
        found = compiled(values)(x, y), *compiled(grad(loss, (0, 1)))(x, y)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("form", "moving"), [*product(("rows", "rows along two axes"), TIMES)])
def test_second_orders_of_a_product_in_a_loop(form: str, moving: str) -> None:
    x, y = operands(form, moving)

    def curved(x: Tensor, y: Tensor) -> Tensor:
        first = grad(lambda y: (ops.tanh(looped(moving, "sequence", x, y)) ** 2).sum())(y)
        return (first * first).sum()

    with unfused():
        expected = grad(curved, (0, 1))(x, y)
    for compiled in (lambda f: f, jit):
        for one, other in zip(compiled(grad(curved, (0, 1)))(x, y), expected, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-9, atol=1e-9)
