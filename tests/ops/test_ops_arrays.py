"""Reductions, shapes, indexing, and Tensors as arrays: values against NumPy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, ops
from snncell.errors import AssignError, ShapeError

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
COUNTS = np.random.default_rng(1).integers(0, 5, (2, 3, 4))


def same(ours: Any, expected: Any) -> None:
    assert ours.shape == np.shape(expected)
    np.testing.assert_array_equal(ours.asnumpy(), expected)


def close(ours: Any, expected: Any) -> None:
    assert ours.shape == np.shape(expected)
    np.testing.assert_allclose(ours.asnumpy(), expected, rtol=2e-6, atol=1e-6)


# --- reductions -------------------------------------------------------------------------------------------------------

AXES = [None, 0, 1, -1, (0, 2), (-1, 0), (2, 1, 0), [0, 1]]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std", "any", "all"])
def test_reductions_equal_numpy(name, axis, keepdims):
    own = tuple(axis) if isinstance(axis, list) else axis
    for x in (X, X > 0) if name in ("any", "all") else (X,):
        expected = getattr(np, name)(x, axis=own, keepdims=keepdims)
        close(getattr(ops, name)(Tensor(x), axis, keepdims=keepdims), expected)
        close(getattr(Tensor(x), name)(axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reductions_of_integers_are_exact(name):
    same(getattr(ops, name)(Tensor(COUNTS), 1), getattr(np, name)(COUNTS, 1))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "any", "all"])
def test_empty_tuple_of_axes_reduces_all_axes(name):
    """MindSpore's rule, not NumPy's: `ReduceSum()(x)` has `axis=()` and sums all elements."""
    close(getattr(ops, name)(Tensor(X), ()), getattr(np, name)(X))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "any", "all", "logsumexp", "cumsum", "var"])
def test_reductions_of_a_number(name):
    found = ops.cumsum(Tensor([3.0]), 0)[0] if name == "cumsum" else getattr(ops, name)(Tensor(3.0))
    same(found, {"any": True, "all": True, "var": 0}.get(name, 3))


def test_reductions_of_empty_arrays():
    empty = Tensor(np.zeros((0, 3), np.float32))
    same(ops.sum(empty), 0)
    same(ops.sum(empty, 0), [0, 0, 0])
    same(ops.prod(empty, 0), [1, 1, 1])
    same(ops.any(empty), False)
    same(ops.all(empty, 0, keepdims=True), [[True, True, True]])
    same(ops.mean(empty, 0), [np.nan] * 3)
    for f in (ops.sum, ops.prod, ops.max, ops.mean, ops.logsumexp, ops.argmax):
        assert f(empty, 1).shape == (0,), f
    assert ops.softmax(empty, 1).shape == ops.cumsum(empty, 0).shape == (0, 3)
    for f in (ops.max, ops.min, ops.argmax, ops.argmin):
        with pytest.raises(ShapeError, match=f"{f.__name__}: there is nothing along axis 0 of a Tensor of shape"):
            f(empty, 0)
    same(ms.grad(ops.sum)(empty), np.zeros((0, 3)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum_softmax_and_argmax_equal_numpy(axis):
    close(ops.cumsum(Tensor(X), axis), np.cumsum(X, axis))
    same(ops.cumsum(Tensor(COUNTS), axis), np.cumsum(COUNTS, axis))
    raised = np.exp(X)
    close(ops.softmax(Tensor(X), axis), raised / raised.sum(axis, keepdims=True))
    close(ops.log_softmax(Tensor(X), axis), np.log(raised / raised.sum(axis, keepdims=True)))
    close(ops.logsumexp(Tensor(X), axis), np.log(raised.sum(axis)))
    same(ops.argmax(Tensor(COUNTS), axis), np.argmax(COUNTS, axis))  # with ties: the first one
    same(ops.argmin(Tensor(COUNTS), axis, keepdims=True), np.argmin(COUNTS, axis, keepdims=True))


def test_argmax_of_the_flattened_array():
    same(ops.argmax(Tensor(X)), np.argmax(X))
    same(ops.argmin(Tensor(X), keepdims=True), np.argmin(X, keepdims=True))
    assert ops.argmax(Tensor([1.0, np.nan, 3.0])).item() == 1
    assert ops.argmax(Tensor(X)).dtype == ms.int64


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float32", "float64"])
def test_sort_equals_numpy_and_is_stable(dtype):
    x = (COUNTS - 2 * (dtype != "uint8")).astype(dtype)
    for axis in (0, 1, -1):
        same(ops.argsort(Tensor(x), axis), np.argsort(x, axis, kind="stable"))
        same(Tensor(x).sort(axis)[0], np.sort(x, axis))
    assert ops.argsort(Tensor(x)).dtype == ms.int64
    assert ops.sort(Tensor(x))[0].dtype == x.dtype


def test_nan_is_sorted_to_the_end():
    x = np.array([np.nan, 0.0, np.inf, -0.0, -np.inf, np.nan, -1.0], np.float32)
    same(Tensor(x).argsort(), [4, 6, 1, 3, 2, 0, 5])
    same(ops.sort(Tensor(x))[0], np.sort(x))
    same(ops.sort(Tensor(np.zeros((2, 0))))[0], np.zeros((2, 0)))


def test_gradient_of_sort_returns_to_the_original_positions():
    x = Tensor([[3.0, 1.0, 1.0], [0.0, -1.0, 5.0]])
    weights = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    same(ms.grad(lambda v: (ops.sort(v)[0] * weights).sum())(x), [[3, 1, 2], [5, 4, 6]])
    same(ms.grad(lambda v: (v.sort(0)[0] * weights).sum())(x), [[4, 5, 3], [1, 2, 6]])


def test_variance_with_and_without_bessel_correction():
    close(ops.var(Tensor(X), 1, 1), np.var(X, 1, ddof=1))
    close(ops.std(Tensor(X), 1, 1), np.std(X, 1, ddof=1))
    same(ops.std(Tensor([1, 3])), 1)


def test_long_sums_of_float32_do_not_drift():
    """Sums are pairwise or blocked. The error of one running sum would be a thousand times larger."""
    x = np.full(1 << 20, 0.1, np.float32)
    assert abs(ops.sum(Tensor(x)).item() / x.astype(np.float64).sum() - 1) < 1e-6


def test_mean_of_float16_accumulates_in_float32():
    """As in NumPy: a sum of 70000 ones exceeds 65504, the largest float16 number."""
    for f in (ops.mean, ops.std, ops.var):
        same(f(Tensor(np.ones(70_000, np.float16))), 1 if f is ops.mean else 0)


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        (lambda x: ops.reshape(x, (4, -1)), lambda x: x.reshape(4, -1)),
        (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
        (lambda x: x.reshape(2, 3, 4), lambda x: x),
        (lambda x: ops.flatten(x, 1, 2), lambda x: x.reshape(2, 12)),
        (lambda x: ops.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
        (lambda x: x.transpose(0, -1, 1), lambda x: x.transpose(0, 2, 1)),
        (lambda x: x.T, lambda x: x.T),
        (lambda x: ops.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1)),
        (lambda x: ops.expand_dims(x, 1), lambda x: x[:, None]),
        (lambda x: ops.expand_dims(x, (0, -1)), lambda x: x[None, ..., None]),
        (lambda x: ops.squeeze(x[:1, :, :1]), lambda x: x[0, :, 0]),
        (lambda x: x[:1].squeeze(0), lambda x: x[0]),
        (lambda x: ops.broadcast_to(x[:, :1], (5, 2, 3, -1)), lambda x: np.broadcast_to(x[:, :1], (5, 2, 3, 4))),
        (lambda x: ops.flip(x, 1), lambda x: np.flip(x, 1)),
        (lambda x: ops.flip(x, (0, -1)), lambda x: np.flip(x, (0, -1))),
        (lambda x: ops.concat([x, x[:, :2]], 1), lambda x: np.concatenate([x, x[:, :2]], 1)),
        (lambda x: ops.concat((x,)), lambda x: x),
        (lambda x: ops.stack([x, x + 1], -1), lambda x: np.stack([x, x + 1], -1)),
        (lambda x: ops.split(x, 3, 2)[1], lambda x: x[..., 3:]),
        (lambda x: ops.split(x, [1, 0, 2], 1)[2], lambda x: x[:, 1:]),
        (lambda x: ops.unstack(x, -1)[3], lambda x: x[..., 3]),
        (lambda x: ops.pad(x, (1, 2)), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)))),
        (
            lambda x: ops.pad(x, [0, 0, 1, 0], value=-1),
            lambda x: np.pad(x, ((0, 0), (1, 0), (0, 0)), constant_values=-1),
        ),
        (lambda x: ops.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
        (lambda x: ops.tile(x, 2), lambda x: np.tile(x, 2)),
        (lambda x: ops.tile(x, (2, 1, 1, 1)), lambda x: np.tile(x, (2, 1, 1, 1))),
        (lambda x: ops.gather(x, Tensor([[0, -1]]), 1), lambda x: np.take(x, [[0, -1]], 1)),
    ],
)
def test_shape_operations_equal_numpy(ours, numpys):
    same(ours(Tensor(X)), numpys(X))
    assert ours(Tensor(COUNTS)).dtype == ms.int64


def test_creation_functions_equal_numpy():
    for ours, expected in [
        (ops.zeros((2, 3)), np.zeros((2, 3), np.float32)),
        (ops.ones(3, ms.int32), np.ones(3, np.int32)),
        (ops.full((2,), 2.5), np.full(2, 2.5, np.float32)),
        (ops.full((2,), 3), np.full(2, 3)),
        (ops.fill(ms.float64, (2, 1), 7), np.full((2, 1), 7.0)),
        (ops.zeros_like(Tensor(COUNTS)), np.zeros_like(COUNTS)),
        (ops.ones_like(Tensor(X), ms.bool_), np.ones_like(X, bool)),
        (ops.arange(4), np.arange(4)),
        (ops.arange(1, 2, 0.25), np.arange(1, 2, 0.25, np.float32)),
        (ops.arange(5, 0, -2), np.arange(5, 0, -2)),
        (ops.eye(2), np.eye(2, dtype=np.float32)),
        (ops.eye(2, 3, ms.int8), np.eye(2, 3, dtype=np.int8)),
        (ops.zeros(()), np.float32(0)),
        (ops.zeros((0, 2)), np.zeros((0, 2), np.float32)),
    ]:
        assert ours.dtype == expected.dtype
        same(ours, expected)


def test_one_hot_encoding():
    indices = np.array([[0, 2], [1, 0]])
    same(ops.one_hot(Tensor(indices), 3), np.eye(3, dtype=np.float32)[indices])
    same(ops.one_hot(Tensor(indices), 3, axis=0), np.moveaxis(np.eye(3)[indices], -1, 0))
    same(ops.one_hot(Tensor(indices), 3, 5.0, -1.0), np.where(np.eye(3)[indices] == 1, 5, -1))
    same(ops.one_hot(Tensor(1), 2), [0, 1])
    assert ops.one_hot(Tensor(indices), 3).dtype == ms.float32


def test_matrix_products_equal_numpy():
    a, b = X, X.transpose(0, 2, 1)
    for x, y in [(a, b), (a, b[0]), (a[0], b), (a[0, 0], b), (a, b[0, :, 0]), (a[0, 0], a[0, 0]), (a[:, :0], b)]:
        close(Tensor(x) @ Tensor(y), x @ y)
    same(Tensor(COUNTS[0]) @ Tensor(COUNTS[1].T), COUNTS[0] @ COUNTS[1].T)
    assert (Tensor(np.zeros((2, 0))) @ Tensor(np.zeros((0, 3)))).asnumpy().tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("equation", ["...ij,...jk", "a...b,...bc->c...a", "...j,jk", "...j,...j->..."])
def test_einsum_ellipsis_equals_numpy(equation):
    x, y = X[0][None, None], X[1].T if "k" in equation or "c" in equation else X
    close(ops.einsum(equation, Tensor(x), Tensor(y)), np.einsum(equation, x, y))


def test_einsum_ellipsis_aligns_axes_from_the_right():
    """The axes have equal lengths, so that only values reveal a wrong order."""
    x, y = X[0, 0, :3], X[0, :, :3]
    close(ops.einsum("...,...->...", Tensor(x), Tensor(y)), x * y)
    close(ops.einsum("...,...->...", Tensor(y), Tensor(x)), x * y)


@pytest.mark.parametrize("there", [None, np.inf, np.nan], ids=str)
@pytest.mark.parametrize(
    "equation", ["ii->i", "ii", "ii,ij->j", "iij->ji", "iji->j", "iii->i", "iijj->ij", "i...i->..."]
)
def test_einsum_diagonal_ignores_other_elements(equation, there):
    """NaN outside the diagonal does not reach the result, and gets no gradient."""
    letters = equation.split("->")[0].split(",")[0].replace("...", "k")
    shape = (3,) * len(letters)
    x = np.random.default_rng(0).standard_normal(shape)
    more = [np.ones((3, 3))] if "," in equation else []
    if there is not None:
        second = letters.index("i", 1)
        x[tuple(int(axis == second) for axis in range(len(letters)))] = there
    expected = np.array(np.einsum(equation, x, *more))
    assert there is None or np.isfinite(expected).all()
    close(ops.einsum(equation, Tensor(x), *map(Tensor, more)), expected)
    slope = ms.grad(lambda x: ops.einsum(equation, x, *map(Tensor, more)).sum())(Tensor(x))
    probe = np.array([[np.einsum(equation, one.reshape(shape), *more).sum() for one in np.eye(x.size)]])
    close(slope, probe.reshape(shape))


# --- indexing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (1, 2, 3),
        (0, -1),
        slice(None),
        slice(1, None),
        slice(-3, -1),
        slice(None, None, -1),
        slice(5, 9),
        (slice(None), slice(2, 0, -1), slice(None, None, 3)),
        ...,
        (..., 0),
        (0, ..., 1),
        (None, 1),
        (slice(None), None, ..., None, 2),
        (),
        np.int64(1),
        (np.int32(0), slice(np.int8(1), None)),
        [0, 1, 1, -1],
    ],
    ids=repr,
)
def test_indexing_equals_numpy(index):
    same(Tensor(X)[index], X[index])


def test_tensors_and_arrays_can_be_indices():
    x = Tensor(X)
    same(x[Tensor(1)], X[1])
    same(x[Tensor(1), Tensor(0) :], X[1])
    same(x[Tensor([1, 0, 1])], X[[1, 0, 1]])
    same(x[np.array([[1], [0]])], X[np.array([[1], [0]])])


def test_empty_list_selects_no_elements():
    same(Tensor(X)[[]], X[[]])


def test_iteration_and_length():
    assert [row.asnumpy().tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert len(Tensor(X)) == 2
    a, b = Tensor([1.0, 2.0])
    assert (a.item(), b.item()) == (1, 2)


# --- Tensors as arrays ------------------------------------------------------------------------------------------------


def test_tensor_copies_its_data():
    source = np.zeros(3)
    x = Tensor(source)
    source[0] = 1
    same(x, [0, 0, 0])


def test_conversion_of_a_tensor_to_arrays():
    x = Tensor(X)
    view = x.asnumpy()
    assert np.shares_memory(view, x.asnumpy())
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    own = np.array(x)
    own[0] = 1
    same(x, X)
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, np.float64).dtype == np.float64


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool", "complex64"])
def test_dlpack_round_trip(dtype):
    source = COUNTS.astype(dtype)
    there = np.from_dlpack(Tensor(source))
    np.testing.assert_array_equal(there, source)
    assert there.dtype == source.dtype
    same(Tensor(there), source)
    np.testing.assert_array_equal(np.from_dlpack(Tensor(source).T[::-1]), source.T[::-1])


@pytest.mark.peer
def test_dlpack_with_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed: no exchange with it")
    x = Tensor(X)
    np.testing.assert_array_equal(torch.from_dlpack(x).numpy(), X)
    same(Tensor(torch.arange(3)), [0, 1, 2])


def test_tensors_are_immutable():
    x = Tensor([1.0, 2.0])
    with pytest.raises(AssignError, match=r"You cannot write to a Tensor.*Parameter"):
        x[0] = 5.0
    y = x
    y += 1
    y *= 2
    same(x, [1, 2])
    same(y, [4, 6])
    with pytest.raises(TypeError, match="cannot write to a Tensor"):
        x[:] = 0


def test_tensor_attributes():
    x = Tensor(X)
    assert (x.shape, x.ndim, x.size, x.dtype, x.device) == ((2, 3, 4), 3, 24, ms.float32, "cpu")
    assert x.to("cpu") is x
    assert Tensor(2.5).item() == float(Tensor(2.5)) == 2.5
    assert int(Tensor(3)) == 3 and list(range(5))[Tensor(3)] == 3
    assert bool(Tensor([[True]])) and not Tensor(0.0)
    assert f"{Tensor(2.5):.2f}" == "2.50"
    assert Tensor([[1, 2]]).tolist() == [[1, 2]]
    assert (x.dtype, str(x.dtype), x.dtype.name) == ("float32", "Float32", "float32")


def test_tensors_can_be_copied_and_pickled():
    x = Tensor(X, ms.float64)
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.dtype == ms.float64
        same(other, X)


def test_functions_are_pickled_by_name():
    functions = [one for name in ms.ops.__all__ if callable(one := getattr(ops, name))]
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (
            [20, 0.2, 0.3],
            "Tensor(shape=[3], dtype=Float32, value= [ 2.00000000e+01,  2.00000003e-01,  3.00000012e-01])",
        ),
        (3.0, "Tensor(shape=[], dtype=Float32, value= 3)"),
        ([[1, 2], [3, 4]], "Tensor(shape=[2, 2], dtype=Int64, value=\n[[1, 2],\n [3, 4]])"),
        ([True, False], "Tensor(shape=[2], dtype=Bool, value= [ True, False])"),
        ([[-1.5]], "Tensor(shape=[1, 1], dtype=Float32, value=\n[[-1.50000000e+00]])"),
        (np.array([0.1]), "Tensor(shape=[1], dtype=Float64, value= [ 1.00000000e-01])"),
        (np.zeros(0), "Tensor(shape=[0], dtype=Float64, value= )"),
        (np.array([0.1, -2.0], np.float16), "Tensor(shape=[2], dtype=Float16, value= [ 9.9976e-02, -2.0000e+00])"),
        (
            Tensor([1.5, -3e38], "bfloat16"),
            "Tensor(shape=[2], dtype=BFloat16, value= [ 1.50000000e+00, -3.00405527e+38])",
        ),
        (np.array([1, 20], np.uint8), "Tensor(shape=[2], dtype=UInt8, value= [ 1, 20])"),
        (np.array([np.nan, np.inf]), "Tensor(shape=[2], dtype=Float64, value= [            nan,             inf])"),
        (np.float16(1.5), "Tensor(shape=[], dtype=Float16, value= 1.5)"),
        (np.array(True), "Tensor(shape=[], dtype=Bool, value= True)"),
        (
            np.arange(2000, dtype=np.int32),
            "Tensor(shape=[2000], dtype=Int32, value= [   0,    1,    2, ..., 1997, 1998, 1999])",
        ),
        (
            np.arange(2000.0).reshape(2, 1000),
            "Tensor(shape=[2, 1000], dtype=Float64, value=\n"
            "[[ 0.00000000e+00,  1.00000000e+00,  2.00000000e+00, ...,  9.97000000e+02,\n"
            "   9.98000000e+02,  9.99000000e+02],\n"
            " [ 1.00000000e+03,  1.00100000e+03,  1.00200000e+03, ...,  1.99700000e+03,\n"
            "   1.99800000e+03,  1.99900000e+03]])",
        ),
        (np.zeros((0, 2), np.float32), "Tensor(shape=[0, 2], dtype=Float32, value= )"),
    ],
)
def test_repr_of_a_tensor(x, text):
    assert repr(Tensor(x)) == text


def test_str_equals_numpy():
    for x in (X, COUNTS, np.float32(2.5), np.array([True])):
        assert str(Tensor(x)) == f"{Tensor(x)}" == str(x)


def test_repr_of_a_parameter():
    parameter = ms.Parameter(Tensor(np.zeros((5, 3), np.float32)), name="w")
    assert repr(parameter) == "Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True)"
