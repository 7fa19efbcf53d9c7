"""vmap of every operation: it equals the stack of the results of each slice; operations that need a loop.

Each row of the table of operations runs under `vmap`, along random axes, with a shared argument if it has several,
nested twice, with gradients inside and outside, and in a loop with a state. The loop uses the same rules to move its
operations before and after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row

import snncell
from snncell import Tensor, grad, jit, ops, vmap
from snncell.compiler.ir.program import LoopOperation
from snncell.compiler.runtime.loop_run import Lowered
from snncell.compiler.scan import Scan
from snncell.errors import TensorIndexError
from snncell.tape import structure
from snncell.testing import unfused

SLICES = 3
# Operations that set a seed draw different numbers in each slice, and `unique_consecutive` needs values.
ROWS = [r for r in TABLE if r.jit]
SMOOTH = [r for r in ROWS if r.order]


def leaves(out: Any) -> list[Tensor]:
    return structure.flatten(out)[0]


def of(r: Row) -> Callable[..., tuple[Tensor, ...]]:
    return lambda *xs: tuple(leaves(r.fn(*xs)))


def numbers(outs: Sequence[Tensor]) -> list[np.ndarray]:
    return [x.asnumpy() for x in outs]


def same(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        if b.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        else:
            np.testing.assert_array_equal(a, b)


def stack_slices(rows: Sequence[Sequence[np.ndarray]], axes: Sequence[int] | None = None) -> list[np.ndarray]:
    columns = list(zip(*rows, strict=True))
    return [np.stack(column, 0 if axes is None else axes[n]) for n, column in enumerate(columns)]


def weighted(outs: Sequence[Tensor]) -> Tensor:
    """A scalar to differentiate, with a different weight for each element of each float."""
    total = Tensor(0.0, snncell.float64)
    for n, out in enumerate(outs):
        if out.dtype.is_float:
            weights = np.random.default_rng(n).standard_normal(out.shape)
            total = total + (out * Tensor(weights)).sum()
    return total


class RandomCase:
    """The arguments of a row for each slice, and the axes along which they are stacked."""

    def __init__(self, r: Row, slices: int = SLICES) -> None:
        rng = np.random.default_rng(zlib.crc32(repr(r).encode()))
        given = [r.arrays(number) for number in range(slices)]
        self.shared = [len(given[0]) > 1 and bool(rng.integers(2)) for _ in given[0]]
        self.shared[rng.integers(len(self.shared))] = False  # at least one argument has slices
        self.each = [
            [given[0][n] if shared else given[k][n] for n, shared in enumerate(self.shared)] for k in range(slices)
        ]
        ndims = [x.ndim + 1 for x in given[0]]
        self.in_axes = tuple(
            None if shared else int(rng.integers(-n, n)) for shared, n in zip(self.shared, ndims, strict=True)
        )
        self.inputs = [
            Tensor(given[0][n] if axis is None else np.stack([one[n] for one in self.each], axis))
            for n, axis in enumerate(self.in_axes)
        ]
        outs = of(r)(*map(Tensor, given[0]))
        self.out_axes = tuple(int(rng.integers(-x.ndim - 1, x.ndim + 1)) for x in outs)


def wraps(compiled: bool) -> Callable[..., Any]:
    return jit if compiled else lambda fn: fn


@pytest.mark.sampled(9)
@pytest.mark.uncompiled
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("r", ROWS, ids=repr)
def test_vmap_equals_each_slice(r: Row, compiled: bool) -> None:
    drawn, fn = RandomCase(r), of(r)
    each = [numbers(fn(*map(Tensor, one))) for one in drawn.each]
    found = wraps(compiled)(vmap(fn, drawn.in_axes, drawn.out_axes))(*drawn.inputs)
    same(numbers(found), stack_slices(each, drawn.out_axes))

    twice = [[r.arrays(4 * k + n) for n in range(2)] for k in range(SLICES)]
    rows = [[numbers(fn(*map(Tensor, one))) for one in row] for row in twice]
    inputs = [Tensor(x) for x in stack_slices([stack_slices(row) for row in twice])]
    same(numbers(wraps(compiled)(vmap(vmap(fn)))(*inputs)), stack_slices([stack_slices(row) for row in rows]))


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_gradients_inside_and_outside_of_vmap(r: Row, compiled: bool) -> None:
    """Each argument gets an added term that all slices share, whose gradient is a sum over slices."""
    drawn, count = RandomCase(r), len(r.inputs)
    shifts = [Tensor(np.zeros_like(x)) for x in drawn.each[0]]
    every = tuple(range(2 * count))

    def fn(*given: Tensor) -> tuple[Tensor, ...]:
        return of(r)(*(x + shift for x, shift in zip(given[:count], given[count:], strict=True)))

    axes = (*drawn.in_axes, *(None for _ in shifts))
    of_each = [leaves(grad(lambda *xs: weighted(fn(*xs)), every)(*map(Tensor, one), *shifts)) for one in drawn.each]
    inside = wraps(compiled)(vmap(grad(lambda *xs: weighted(fn(*xs)), every), axes))(*drawn.inputs, *shifts)
    same(numbers(leaves(inside)), stack_slices([numbers(one) for one in of_each]))

    def by_slices(*xs: Tensor) -> Tensor:
        rows = [
            fn(*(x if axis is None else ops.unstack(x, axis)[k] for x, axis in zip(xs, axes, strict=True)))
            for k in range(SLICES)
        ]
        return weighted([ops.stack(column) for column in zip(*rows, strict=True)])

    expected = numbers(leaves(grad(by_slices, every)(*drawn.inputs, *shifts)))
    # Of all terms, and of the shared ones only, because then the backward pass may sum first.
    for asked in (every, every[count:]):
        outside = wraps(compiled)(grad(lambda *xs: weighted(vmap(fn, axes)(*xs)), asked))(*drawn.inputs, *shifts)
        same(numbers(leaves(outside)), expected[asked[0] :])


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_vmap_rules_hold_in_a_loop_with_a_state(r: Row) -> None:
    """An operation of sequences runs before or after the loop, and the gradient of a constant is computed on sums."""
    given = [Tensor(x) for x in stack_slices([r.arrays(number) for number in range(SLICES)])]
    shifts, count = [Tensor(np.zeros(x.shape[1:])) for x in given], len(given)

    def step(v: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        outs = of(r)(*xs)
        return ops.tanh(0.9 * v + 0.1 * weighted(outs)), (v, *outs)

    def loss(v: Tensor, *xs: Tensor) -> Tensor:
        shifted = lambda v, own: step(v, tuple(x + c for x, c in zip(own, xs[count:], strict=True)))  # noqa: E731
        last, outs = ops.scan(shifted, v, xs[:count])
        return last + weighted(outs)

    arguments = (Tensor(0.3, snncell.float64), *given, *shifts)
    every = tuple(range(len(arguments)))
    for asked in (every, every[1 + count :]):
        gradients = snncell.value_and_grad(loss, asked)
        with unfused():
            expected = numbers(leaves(gradients(*arguments)))
        same(numbers(leaves(gradients(*arguments))), expected)


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_nested_vmap_over_all_pairs(r: Row, compiled: bool) -> None:
    """The inner vmap maps over the arguments, the outer one over an added term, with its gradient between the two."""
    count, wrap = len(r.inputs), wraps(compiled)
    given, others = ([Tensor(x) for x in stack_slices([r.arrays(n) for n in range(k)])] for k in (2, 3))
    shifts = [Tensor(np.zeros(x.shape)) for x in others]
    of_given, of_shift = (0,) * count + (None,) * count, (None,) * count + (0,) * count

    def fn(*xs: Tensor) -> tuple[Tensor, ...]:
        return of(r)(*(x + shift for x, shift in zip(xs[:count], xs[count:], strict=True)))

    def of_inner(*xs: Tensor) -> Any:
        return grad(lambda *xs: weighted(vmap(fn, of_given)(*xs)), tuple(range(2 * count)))(*xs)

    def alone(rows: Sequence[Tensor], number: int) -> list[Tensor]:
        return [x[number] for x in rows]

    pairs = [[numbers(fn(*alone(given, a), *alone(shifts, b))) for a in range(2)] for b in range(3)]
    same(
        numbers(wrap(vmap(vmap(fn, of_given), of_shift))(*given, *shifts)),
        stack_slices([stack_slices(row) for row in pairs]),
    )
    gradients = [numbers(leaves(of_inner(*given, *alone(shifts, b)))) for b in range(3)]
    same(numbers(leaves(wrap(vmap(of_inner, of_shift))(*given, *shifts))), stack_slices(gradients))


INDICES = np.array([[[2, 0], [1, -1]], [[0, 0], [2, 1]], [[-3, 2], [1, 1]]])  # of each slice
LOOKUPS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    **{f"gather {axis}": (lambda x, i, a=axis: ops.gather(x, i, a), (3, 3, 3)) for axis in (0, 1, 2)},
    "gather_elements": (lambda x, i: ops.gather_elements(x, 1, i), (2, 4)),
    "gather_nd": (ops.gather_nd, (3, 3, 2)),
    "index_select": (lambda x, i: ops.index_select(x, 1, i[0] % 3), (2, 3)),
    "scatter": (lambda x, i: ops.scatter(x, 0, i, x[:2] * 2.0), (3, 2)),
    "scatter_add": (lambda x, i: ops.scatter_add(x, 0, i, x[:2] * 2.0), (3, 2)),
    "index_put": (lambda x, i: ops.index_put(x, (i[0], i[1]), x[0, :2] * 2.0), (3, 4, 2)),
    "one_hot": (lambda x, i: ops.one_hot(i % 3, 3, axis=0).astype(x.dtype) * x, (3, 2, 2)),
    "permuted": (lambda x, i: ops.sort(x + i, 0)[0], (2, 2)),
    "searchsorted": (lambda x, i: ops.searchsorted(ops.sort(x)[0], i * 0.5) + x.sum(), (4,)),
    "searchsorted rows": (lambda x, i: ops.searchsorted(ops.sort(x)[0], i * 0.5) + x.sum(), (2, 4)),
}


@pytest.mark.sampled(17)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("varying", [(0, 0), (0, None), (None, 0)], ids=["both", "values", "positions"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_indices_that_differ_between_slices(name: str, varying: tuple[Any, Any], compiled: bool) -> None:
    fn, shape = LOOKUPS[name]
    rng = np.random.default_rng(len(name))
    xs = rng.standard_normal((SLICES, *shape) if varying[0] == 0 else shape)
    places = INDICES if varying[1] == 0 else INDICES[0]

    def by_slices(x: Tensor) -> Tensor:
        each = [(x if varying[0] is None else x[k], Tensor(places[k] if varying[1] == 0 else places)) for k in range(3)]
        return ops.stack([fn(*one) for one in each])

    x, indices, wrap = Tensor(xs), Tensor(places), wraps(compiled)
    same(numbers([wrap(vmap(fn, varying))(x, indices)]), numbers([by_slices(x)]))
    outside = wrap(grad(lambda x, i: weighted([vmap(fn, varying)(x, i)])))(x, indices)
    same(numbers([outside]), numbers([grad(lambda x: weighted([by_slices(x)]))(x)]))


def test_index_out_of_range_in_one_slice_raises() -> None:
    x = ops.ones((2, 3))
    for axes in ((0, 0), (None, 0)):
        given = x if axes[0] == 0 else x[0]
        with pytest.raises(TensorIndexError, match=r"3"):
            vmap(lambda x, i: ops.gather(x, i), axes)(given, Tensor([[0, 1], [2, 3]]))


# --- operations that run slice by slice -------------------------------------------------------------------------------


def loops_of(fn: Callable[..., Any], inputs: Sequence[Tensor], monkeypatch: pytest.MonkeyPatch) -> list[Lowered]:
    """The loops of a function, without running it."""
    found: list[Lowered] = []

    def look(scan: Scan, *arrays: Any, steps: int) -> tuple[Any, ...]:
        pending = [scan]
        while pending:
            one = pending.pop()
            found.append(one.lowered)
            parts = one.lowered.schedule.parts
            inside = (*parts.prologue, *parts.loop, *parts.epilogue)
            pending += [step.op for step in inside if isinstance(step.op, LoopOperation)]
        return tuple(np.ones(shape, dtype) for shape, dtype in scan.abstract(arrays, {"steps": steps}))

    with monkeypatch.context() as patch:
        patch.setattr(Scan, "_run", look)
        fn(*inputs)
    assert found
    return found


# Random numbers depend on a state, the number of the draw. A loop with a state stays a loop.
STEP_BY_STEP = {"scan", "uniform", "normal", "dropout", "dropout2d", "bernoulli"}


@pytest.mark.slow
def test_only_listed_operations_run_slice_by_slice(monkeypatch) -> None:
    """A new operation needs a rule for all steps of a loop (`over_time`, `tape/primitive.py`), or an entry above."""
    found = set()
    for r in TABLE:
        if r.name == "unique_consecutive":  # which needs values
            continue
        xs = [Tensor(x) for x in stack_slices([r.arrays(number) for number in range(2)])]
        every = tuple(range(len(xs)))
        functions = [vmap(of(r))]
        if r.order:
            gradient = grad(lambda *xs, r=r: weighted(of(r)(*xs)), every)
            functions += [vmap(gradient), grad(lambda *xs, r=r: weighted(vmap(of(r))(*xs)), every)]
        if r.order > 1:
            functions.append(grad(lambda *xs, g=gradient: weighted(leaves(vmap(g)(*xs))), every))
        if any(loop.has_loop for fn in functions for loop in loops_of(fn, xs, monkeypatch)):
            found.add(r.name)
    assert found == STEP_BY_STEP


def test_explain_names_operations_that_run_slice_by_slice() -> None:
    x = ops.ones((4, 3))
    at_once = snncell.explain(vmap(lambda x: ops.cumsum(x, 0) * 2.0), x, detail="launches")
    assert "vmap: no loop: all 4 steps at once, 2 launches" in at_once
    assert "for all steps together:" in at_once
    by_step = snncell.explain(vmap(lambda x: ops.cumsum(x, 0) * ops.uniform(())), x, detail="launches")
    assert "4 steps one by one" in by_step
