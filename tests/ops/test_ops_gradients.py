"""The table of operations: finite differences, compiled against eager, and PyTorch forward and backward."""

from __future__ import annotations

from collections import Counter
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gradient_table import NOT_A_ROW, TABLE, Row

import snncell as ms
from snncell import ops
from snncell.errors import GradientCheckError
from snncell.tape import structure
from snncell.testing import check_grads

SMOOTH = [r for r in TABLE if r.order]
STEPS = [r for r in TABLE if not r.order]
COMPILED = [r for r in TABLE if r.jit]
WITH_TORCH = [r for r in TABLE if r.torch]


def tensors(r: Row) -> list[ms.Tensor]:
    return [ms.Tensor(x) for x in r.arrays()]


def leaves(out: Any) -> list[ms.Tensor]:
    return structure.flatten(out)[0]


def seeds_for(outs: list[Any]) -> list[np.ndarray]:
    """A gradient for each output. Rows with outputs of the same shape use the same one."""
    return [np.random.default_rng(i).standard_normal(tuple(out.shape)) for i, out in enumerate(outs)]


# --- the table itself -------------------------------------------------------------------------------------------------


def test_every_public_operation_is_in_the_table():
    functions = {
        name: value
        for name, value in vars(ops).items()
        if not name.startswith("_") and callable(value) and not isinstance(value, (type, ModuleType))
    }
    covered = {id(functions[r.name]) for r in TABLE if r.name != "__getitem__"}
    missing = [name for name, value in functions.items() if id(value) not in covered and name not in NOT_A_ROW]
    assert not missing, f"no row in tests/tables/gradient_table.py for {missing}"
    assert set(NOT_A_ROW) <= set(functions), "NOT_A_ROW names what is not there"


def test_row_names_are_unique():
    assert [name for name, count in Counter(map(repr, TABLE)).items() if count > 1] == []


def test_gradient_check_detects_an_error_of_one_thousandth():
    def bent(x: ms.Tensor) -> ms.Tensor:
        return ops.sin(x) * 0.999 + ops.stop_gradient(ops.sin(x) * 0.001)

    with pytest.raises(GradientCheckError, match=r"order 1.*finite differences"):
        check_grads(bent, ms.Tensor([0.3, -0.8, 1.1]))


def test_gradient_check_detects_a_wrong_second_order():
    def bent(x: ms.Tensor) -> ms.Tensor:
        return x * ops.stop_gradient(x) + ops.square(x) * 0.0 + ops.stop_gradient(x * x) * -0.5

    # The value is x^2 / 2 and the first derivative x is right, but the second derivative is 0.
    with pytest.raises(GradientCheckError, match="order"):
        check_grads(bent, ms.Tensor([0.3, -0.8, 1.1]), order=2)


# --- finite differences -----------------------------------------------------------------------------------------------


@pytest.mark.sampled(81)
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_gradients_agree_with_finite_differences(r: Row):
    check_grads(r.fn, *tensors(r), order=r.order)


@pytest.mark.parametrize("r", STEPS, ids=repr)
def test_step_functions_have_zero_gradient(r: Row):
    def beside_a_sum(*xs: ms.Tensor) -> ms.Tensor:
        return ops.cast(r.fn(*xs), ms.float64).sum() + sum(x.sum() for x in xs)

    xs = tensors(r)
    for found in leaves(ms.grad(beside_a_sum, tuple(range(len(xs))))(*xs)):
        np.testing.assert_array_equal(found.asnumpy(), np.ones(found.shape))


@pytest.mark.sampled(98)
@pytest.mark.parametrize("dtype", [ms.float16, ms.float32], ids=str)
@pytest.mark.parametrize("r", SMOOTH, ids=repr)
def test_gradients_have_the_dtype_and_shape_of_inputs(r: Row, dtype: Any):
    xs = [x.astype(dtype) for x in tensors(r)]
    found = leaves(ms.grad(r.fn, tuple(range(len(xs))))(*xs))
    assert [(g.shape, g.dtype) for g in found] == [(x.shape, dtype) for x in xs]


# --- compiled ---------------------------------------------------------------------------------------------------------


def values_and_gradients(r: Row, xs: list[ms.Tensor], douts: list[ms.Tensor]) -> list[ms.Tensor]:
    if not r.order:
        return leaves(r.fn(*xs))
    out, pull = ops.vjp(r.fn, *xs)
    return [*leaves(out), *leaves(pull(*douts))]


def several(rows: list[Row]) -> tuple[Any, list[ms.Tensor]]:
    """One function for all rows, so that rows with common inputs fuse into one loop; and its arguments."""
    arrays: dict[int, ms.Tensor] = {}
    places: list[tuple[Row, list[int], list[int]]] = []
    made = {}  # gradients of the same shape are also one argument

    def place(array: np.ndarray) -> int:
        arrays.setdefault(id(array), ms.Tensor(array))
        return list(arrays).index(id(array))

    for r in rows:
        douts = [made.setdefault((x.shape, i), x) for i, x in enumerate(seeds_for(leaves(r.fn(*tensors(r)))))]
        places.append((r, [place(x) for x in r.arrays()], [place(x) for x in douts] if r.order else []))

    def together(*given: ms.Tensor) -> list[list[ms.Tensor]]:
        return [values_and_gradients(r, [given[i] for i in xs], [given[i] for i in ds]) for r, xs, ds in places]

    return together, list(arrays.values())


# Rows that are compiled together, grouped by the first letter of the module of their operation.
BATCHES = [COMPILED[start : start + 40] for start in range(0, len(COMPILED), 40)]


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("rows", BATCHES, ids=lambda rows: f"{rows[0]} to {rows[-1]}")
def test_compiled_equals_eager(rows: list[Row]):
    together, given = several(rows)
    eager, compiled = together(*given), ms.jit(together)(*given)
    for r, ours, theirs in zip(rows, eager, compiled, strict=True):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{r}, result {i}"
            np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-12, atol=1e-13, err_msg=f"{r}, result {i}")


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(312)
@pytest.mark.peer
@pytest.mark.parametrize("r", WITH_TORCH, ids=repr)
def test_values_and_gradients_equal_torch(r: Row):
    torch = pytest.importorskip("torch", reason="torch is not installed: no comparison with it")
    torch.set_num_threads(1)
    theirs = [torch.tensor(np.array(x), requires_grad=bool(r.order)) for x in r.arrays()]
    their_out = r.torch(torch, *theirs)
    their_out = list(their_out) if isinstance(their_out, (tuple, list)) else [their_out]
    douts = seeds_for(their_out)
    if not r.order:
        ours = leaves(r.fn(*tensors(r)))
        their_grads = our_grads = []
    else:
        out, pull = ops.vjp(r.fn, *tensors(r))
        ours, our_grads = leaves(out), leaves(pull(*[ms.Tensor(d) for d in douts]))
        # At the power 0 torch's graph does not reach the input, which counts as a zero gradient.
        their_grads = torch.autograd.grad(
            their_out, theirs, [torch.tensor(d) for d in douts], allow_unused=True, materialize_grads=True
        )
    for kind, a, b in [("output", ours, their_out), ("gradient", our_grads, their_grads)]:
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            expected = y.detach().resolve_conj().numpy()
            np.testing.assert_allclose(x.asnumpy(), expected, rtol=1e-10, atol=1e-12, err_msg=f"{r}, {kind} {i}")
