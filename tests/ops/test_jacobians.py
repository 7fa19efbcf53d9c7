"""Jacobians with more elements than are computed one by one: rows of the table, Cells, loops, higher orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row
from test_vmap import leaves, numbers, of, same, weighted, wraps

import snncell
from snncell import Tensor, grad, jacfwd, jacrev, jit, nn, ops, surrogate, vmap
from snncell.ops.jacobians import FEW

SMOOTH = [r for r in TABLE if r.jit and r.order and r.name != "unique_consecutive"]
BOTH = pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
COMPILED = pytest.mark.parametrize("compiled", [False, True])


def row_by_row(fn: Callable[..., Any], *xs: Tensor) -> list[list[np.ndarray]]:
    """The definition: one backward pass for each element of each output."""
    outs, pull = snncell.vjp(lambda *xs: leaves(fn(*xs)), *xs)
    rows = []
    for number, out in enumerate(outs):
        found = []
        for place in np.ndindex(*out.shape):
            seeds = [np.zeros(o.shape, o.dtype.dtype) for o in outs]
            seeds[number][place] = 1.0
            found.append(numbers(leaves(pull(*map(Tensor, seeds)))))
        columns = zip(*found, strict=True) if found else [()] * len(xs)
        rows.append([np.array(c, x.dtype.dtype).reshape(out.shape + x.shape) for c, x in zip(columns, xs, strict=True)])
    return rows


@pytest.mark.sampled(7)
@pytest.mark.uncompiled
@COMPILED
@BOTH
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_jacobians_of_every_operation(r: Row, jacobian: Any, compiled: bool) -> None:
    xs = [Tensor(x) for x in r.arrays()]
    floats = [n for n, out in enumerate(of(r)(*xs)) if out.dtype.is_float]
    fn = lambda *xs: [of(r)(*xs)[n] for n in floats]  # noqa: E731
    found = wraps(compiled)(jacobian(fn, tuple(range(len(xs)))))(*xs)
    same(numbers(leaves(found)), [x for row in row_by_row(fn, *xs) for x in row])


def network(size: int, dtype: Any = np.float64) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    rng = np.random.default_rng(size)
    w, x = (Tensor(rng.standard_normal(shape).astype(dtype)) for shape in ((size, size), (size,)))
    return lambda x: ops.softmax(ops.tanh(x @ w) @ w), x


@BOTH
def test_jitted_jacobian_contains_one_vectorised_backward_pass(jacobian: Any) -> None:
    def lines(size: int) -> int:
        fn, x = network(size)
        return len(snncell.explain_passes(jacobian(fn), x).splitlines())

    assert lines(3) == lines(40)


@pytest.mark.sampled(5)
@COMPILED
@pytest.mark.parametrize("size", [FEW - 1, FEW, FEW + 1, 2 * FEW])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@BOTH
def test_sizes_around_the_switch_to_the_vectorised_pass(jacobian: Any, dtype: Any, size: int, compiled: bool) -> None:
    fn, x = network(size, dtype)
    found = wraps(compiled)(jacobian(fn))(x)
    assert found.dtype == x.dtype
    ((expected,),) = row_by_row(fn, x)
    np.testing.assert_allclose(
        found.asnumpy(), expected, *{2: (0.02, 0.02), 4: (1e-4, 1e-6), 8: (1e-10, 1e-12)}[x.itemsize]
    )


@pytest.mark.sampled(2)
@COMPILED
@pytest.mark.parametrize("outer", [jacrev, jacfwd])
@pytest.mark.parametrize("inner", [jacrev, jacfwd])
def test_jacobians_of_higher_orders(outer: Any, inner: Any, compiled: bool) -> None:
    fn, x = network(FEW + 2)
    wrap, last = wraps(compiled), lambda x: weighted([fn(x)])
    gradient = grad(last)
    ((hessian,),) = row_by_row(gradient, x)
    same(numbers([wrap(outer(inner(last)))(x)]), [hessian])
    through = lambda x: weighted([inner(fn)(x)])  # noqa: E731
    each = weighted_rows(fn, x)
    same(numbers([wrap(grad(through))(x)]), [each])
    xs = ops.stack([x, x * 0.5])
    expected = [numbers([outer(inner(last))(one)])[0] for one in (x, x * 0.5)]
    same(numbers([wrap(vmap(outer(inner(last))))(xs)]), [np.stack(expected)])


def weighted_rows(fn: Callable[[Tensor], Tensor], x: Tensor) -> np.ndarray:
    """The gradient of the weighted sum of a Jacobian whose rows are gradients."""
    size = fn(x).size
    weights = np.random.default_rng(0).standard_normal((size, x.size))
    total = np.zeros(x.shape)
    for n in range(size):
        row = lambda x, n=n: (grad(lambda x: fn(x)[n])(x) * Tensor(weights[n])).sum()  # noqa: E731
        total += grad(row)(x).asnumpy()
    return total


class Clipped(nn.Cell):
    """A custom gradient that is not the derivative. It may read values."""

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.looks = looks

    def construct(self, x: Tensor) -> Tensor:
        return ops.clip(x, -0.5, 0.5)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        if self.looks and not np.isfinite(dout.asnumpy()).all():
            raise ArithmeticError
        return (dout * (2.0 + x * x),)


@COMPILED
@BOTH
def test_jacobians_of_custom_gradients(jacobian: Any, compiled: bool) -> None:
    """In eager mode a custom gradient and a hook may read values."""
    x = Tensor(np.linspace(-1.0, 1.0, FEW + 3))
    cell = Clipped(looks=not compiled)
    expected = np.diag(3.0 * (2.0 + x.asnumpy() ** 2))
    same(numbers([wraps(compiled)(jacobian(lambda x: cell(x) * 3.0))(x)]), [expected])
    seen = []
    hook = ops.HookBackward(lambda gradients: seen.append(gradients[0]))
    same(numbers([wraps(compiled)(jacobian(lambda x: hook(x) * 3.0))(x)]), [np.eye(x.size) * 3.0])
    assert seen


@pytest.mark.sampled(2)
@COMPILED
@BOTH
def test_jacobians_through_loops_and_spikes(jacobian: Any, compiled: bool) -> None:
    net = nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.ATan()))
    w = Tensor(np.random.default_rng(1).standard_normal((FEW + 2, 3)))

    def fn(x: Tensor) -> Any:
        current = ops.stack([x @ w, x @ w * 0.5, x @ w * 2.0]).reshape(3, 1, 3)
        return net(current.astype("float64")), ops.scan(
            lambda v, i: (0.9 * v + ops.tanh(i), v), x * 0.1, ops.stack([x] * 4)
        )[1]

    x = Tensor(np.linspace(-1.0, 1.5, FEW + 2))
    found = wraps(compiled)(jacobian(fn))(x)
    same(numbers(leaves(found)), [x for row in row_by_row(fn, x) for x in row])


@pytest.mark.sampled(3)
@COMPILED
@BOTH
def test_jacobians_with_aux_several_arguments_and_constants(jacobian: Any, compiled: bool) -> None:
    x, y = Tensor(np.linspace(0.5, 1.5, 10)), Tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4))

    def fn(x: Tensor, y: Tensor) -> Any:
        return {"a": x * y.sum(), "b": (y * y, ops.ones((2,)).astype("float64"))}, x.sum()

    of_dict, (aux,) = wraps(compiled)(jacobian(fn, (1, 0), has_aux=True))(x, y)
    assert aux.item() == pytest.approx(10.0)
    expected = row_by_row(lambda x, y: leaves(fn(x, y)[0]), x, y)
    same(numbers([*of_dict["a"], *of_dict["b"][0], *of_dict["b"][1]]), [row[n] for row in expected for n in (1, 0)])


@pytest.mark.parametrize("size", [2, FEW + 1])
def test_jacobians_in_a_step_of_a_loop(size: int) -> None:
    """A small Jacobian is unrolled in the step, and a large one is an inner loop. Both give the same result."""
    fn, x = network(size)
    xs = ops.stack([x, x * 0.5, x * 2.0])
    looped = lambda xs: ops.scan(lambda v, x: (0.5 * v + jacrev(fn)(v + x) @ x, v), xs[0] * 0.0, xs)  # noqa: E731
    v, rows = xs[0] * 0.0, []
    for one in xs:
        rows.append(v.asnumpy())
        v = 0.5 * v + jacrev(fn)(v + one) @ one
    for run in (looped, jit(looped)):
        same(numbers(leaves(run(xs))), [v.asnumpy(), np.stack(rows)])


@COMPILED
@BOTH
def test_jacobians_of_empty_arrays(jacobian: Any, compiled: bool) -> None:
    wrap = wraps(compiled)
    assert wrap(jacobian(lambda x: x * 2.0))(ops.ones((0, 2))).shape == (0, 2, 0, 2)
    assert wrap(jacobian(lambda x: x.sum()))(ops.ones((0,))).shape == (0,)
    assert wrap(jacobian(lambda x: x[:0]))(ops.ones((12,))).shape == (0, 12)
    assert wrap(jacobian(lambda x: ops.concat([x, ops.ones((12,))])))(ops.ones((0,))).shape == (12, 0)
