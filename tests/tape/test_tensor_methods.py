"""Tensor methods against NumPy, by a table; dtypes, sizes, memory, random methods, and errors."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensor_table import ELSEWHERE, TABLE, Row

import snncell as ms
from snncell import Parameter, Tensor, ops
from snncell.errors import CallError, SnncellError, TraceError


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def given(values: Any) -> Any:
    """Convert an argument of the table for the methods: arrays become Tensors."""
    if isinstance(values, tuple):
        return tuple(map(given, values))
    return Tensor(values) if isinstance(values, np.ndarray) else values


def same(result: Any, expected: Any, exact: bool, what: str) -> None:
    ours, theirs = leaves(result), leaves(expected)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs, strict=True):
        assert isinstance(a, Tensor) and a.shape == np.shape(b), f"{what}: {a.shape}, {np.shape(b)}"
        assert a.dtype == np.asarray(b).dtype, f"{what}: {a.dtype}, {np.asarray(b).dtype}"
        if exact:
            np.testing.assert_array_equal(a.asnumpy(), b, err_msg=what)
        else:
            rtol = 1e-5 if a.dtype == "float32" else 1e-12
            np.testing.assert_allclose(a.asnumpy(), b, rtol=rtol, atol=rtol, err_msg=what)


@pytest.mark.sampled(540)
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero", "ignore:overflow", "ignore:Mean of empty")
@pytest.mark.parametrize("r", TABLE, ids=repr)
def test_methods_and_functions_equal_numpy(r: Row):
    with np.errstate(all="ignore"):
        expected = r.oracle(r.array)
    args = [given(x) for x in r.args]
    same(getattr(Tensor(r.array), r.name)(*args, **r.options), expected, r.exact, f"x.{r!r}")
    if r.as_function:
        same(getattr(ops, r.name)(Tensor(r.array), *args, **r.options), expected, r.exact, f"ops.{r!r}")


def public(owner: Any) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]


def test_every_method_is_in_the_table_and_has_a_docstring():
    methods = [n for n in public(Tensor) if callable(inspect.getattr_static(Tensor, n)) or n == "from_numpy"]
    covered = {r.name for r in TABLE} | set(ELSEWHERE)
    assert [n for n in methods if n not in covered] == []
    assert sorted(covered - set(methods)) == []
    assert [n for n in public(Tensor) if not inspect.getdoc(inspect.getattr_static(Tensor, n))] == []


# --- sizes and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 2), (1, 5)])
def test_sizes_equal_those_of_numpy(shape, dtype):
    x = Tensor(np.ones(shape), dtype)
    array = x.asnumpy()
    assert (x.itemsize, x.nbytes, x.strides) == (array.itemsize, array.nbytes, array.strides)
    assert x.numel() == x.nelement() == x.size == array.size and x.dim() == x.ndimension() == array.ndim
    assert x.stride() == tuple(n // array.itemsize for n in array.strides)
    assert x.is_contiguous() and x.numpy() is not None and x.numpy().tolist() == array.tolist()
    assert x.is_floating_point() == ("float" in dtype) and x.is_complex() == (dtype == "complex64")
    if shape == (2, 3, 4):
        assert (
            x.stride(1) == 4 and x.stride(-1) == 1 and not x.T.is_contiguous() and x.T.contiguous().shape == (4, 3, 2)
        )
    assert x.type() == str(x.dtype) and x.bfloat16().dtype == "bfloat16"


def test_sizes_are_known_while_tracing():
    found = []

    def fn(x: Tensor) -> Tensor:
        found.append((x.strides, x.nbytes, x.itemsize, x.numel(), x.dim(), x.stride(), x.is_contiguous()))
        return x * 2.0

    ms.jit(fn)(ops.ones((2, 3)))
    assert found == [((12, 4), 24, 4, 6, 2, (3, 1), True)]


def test_from_numpy_copies_its_argument():
    array = np.ones(3)
    x = Tensor.from_numpy(array)
    array[0] = 5.0
    assert x.tolist() == [1.0, 1.0, 1.0] and x.dtype == "float64"
    with pytest.raises(SnncellError, match=r"from_numpy: array must be a NumPy array, not \[1, 2\]"):
        Tensor.from_numpy([1, 2])


def test_matrix_properties_equal_numpy():
    z = np.arange(6.0).reshape(2, 3) + 1j
    assert Tensor(z).mT.tolist() == z.T.tolist() and Tensor(z).H.tolist() == z.conj().T.tolist()
    for name in ("mT", "H"):
        with pytest.raises(SnncellError, match=f"{name}: .*the shape is"):
            getattr(Tensor([1.0]), name)


@pytest.mark.parametrize(
    "options", [{"axis": 1, "keepdims": True}, {"dim": 1, "keepdim": True}, {"keep_dims": True, "dim": 1}]
)
def test_arguments_have_the_names_of_numpy_and_pytorch(options):
    x = Tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.sum(**options).tolist() == [[3.0], [8.0]] and x.amax(**options).tolist() == [[2.0], [5.0]]
    assert x.softmax(dim=0).tolist() == x.softmax(axis=0).tolist()
    assert x.narrow(dim=1, start=0, length=1).tolist() == [[1.0], [3.0]]
    assert x.topk(1, dim=0)[0].tolist() == [[3.0, 5.0]] and x.cumprod(axis=1).tolist() == [[1.0, 2.0], [3.0, 15.0]]


@pytest.mark.parametrize(
    ("name", "word", "value"),
    [
        ("view", "shape", (3, 2)),
        ("reshape", "shape", (3, 2)),
        ("new_zeros", "size", (4,)),
        ("new_ones", "size", (1, 4)),
        ("expand", "size", (2, 2, 3)),
        ("repeat", "repeats", (2, 1)),
        ("permute", "axis", (1, 0)),
        ("permute", "dims", (1, 0)),
        ("permute", "axes", (1, 0)),
        ("atan2", "other", 2.0),
    ],
)
def test_variadic_arguments_can_be_passed_by_name(name, word, value):
    method = getattr(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), name)
    assert method(**{word: value}).tolist() == method(value).tolist()
    if isinstance(value, tuple):
        assert method(*value).tolist() == method(value).tolist()
        with pytest.raises(TypeError):
            method(*value, **{word: value})


@pytest.mark.parametrize("by_name", range(4))
def test_both_forms_of_scatter_add_accept_names(by_name):
    x, index, source = ops.zeros(2), Tensor([0, 0]), Tensor([1.0, 2.0])
    for words in (("axis", "index", "src"), ("dim", "index", "src")):
        given = (0, index, source)
        named = dict(zip(words[3 - by_name :], given[3 - by_name :], strict=True))
        assert x.scatter_add(*given[: 3 - by_name], **named).tolist() == [3.0, 0.0]
    if by_name < 3:
        given = (Tensor([[1]]), Tensor([5.0]))
        named = dict(zip(("indices", "updates")[2 - by_name :], given[2 - by_name :], strict=True))
        assert x.scatter_add(*given[: 2 - by_name], **named).tolist() == [0.0, 5.0]
    with pytest.raises(CallError, match=r"scatter_add: takes \(indices, updates\) or \(dim, index, src\), not"):
        x.scatter_add(index, src=source)


def test_values_are_immutable():
    x = Tensor([1.0])
    with pytest.raises(
        SnncellError, match=r"assign_value: a Tensor of shape \(1,\) cannot be modified. Make it a Parameter"
    ):
        x.assign_value(2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (1, 2, 2)])
def test_item_accepts_the_indices_of_numpy(shape, dtype):
    array = (np.arange(math.prod(shape)).reshape(shape) % 3).astype(dtype)
    indices: list[Any] = [*np.ndindex(*shape), *range(-array.size, array.size)]
    for kind in (Tensor, Parameter):
        x = kind(array)
        if array.size == 1:
            assert x.item() == x.item(None) == array.item()
        for index in indices:
            found = [x.item(index), x.item(index=index)] + (
                [x.item(*index), x.item(list(index))] if isinstance(index, tuple) else []
            )
            assert all(type(each) is type(array.item(index)) and each == array.item(index) for each in found)


# --- random methods ---------------------------------------------------------------------------------------------------


def test_random_methods_return_the_requested_shape_and_dtype():
    for dtype in ("float32", "float64", "float16"):
        x = ops.zeros((400, 50), dtype)
        assert {x.uniform().dtype, x.normal().dtype, x.bernoulli(0.3).dtype} == {x.dtype}
    assert abs(x.uniform(2.0, 4.0).float().mean().item() - 3.0) < 6 * (4 / 12 / x.size) ** 0.5
    assert abs(x.double().normal(1.0, 2.0).std().item() - 2.0) < 6 * 2.0 / (2 * x.size) ** 0.5
    assert abs(x.double().bernoulli(0.3).mean().item() - 0.3) < 6 * (0.21 / x.size) ** 0.5
    assert x.bernoulli(ops.ones(50)).min().item() == 1.0
    assert ops.rand(2, 3).shape == ops.randn((2, 3)).shape == ops.rand_like(ops.zeros((2, 3))).shape == (2, 3)
    assert ops.randn_like(Tensor(np.zeros(2))).dtype == "float64" and ops.rand(3, dtype="float64").dtype == "float64"


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_in_proportion_to_the_weights(replacement):
    weights = np.array([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    n = 4000
    drawn = ops.multinomial(np.tile(weights, (n, 1)), 2, replacement).asnumpy()
    assert drawn.shape == (n, 2) and drawn.dtype == np.int64
    first = np.bincount(drawn[:, 0], minlength=6) / n
    for share, found in zip(weights / 8, first, strict=True):
        assert abs(share - found) <= 6 * (share * (1 - share) / n) ** 0.5
    same_twice = (drawn[:, 0] == drawn[:, 1]).mean()
    assert same_twice == 0.0 if not replacement else abs(same_twice - 26 / 64) < 6 * (0.25 / n) ** 0.5
    ms.set_seed(3)
    a = Tensor(weights).multinomial(3, replacement)
    ms.set_seed(3)
    assert a.tolist() == Tensor(weights).multinomial(3, replacement).tolist() and a.shape == (3,)


# --- masks ------------------------------------------------------------------------------------------------------------

INDICES: dict[str, Any] = {
    "mask": lambda a: a > 0,
    "mask of rows": lambda a: np.array([True, False]),
    "mask of rows and columns": lambda a: a[..., 0] > 0,
    "none of it": lambda a: np.zeros(a.shape, bool),
    "list of truths": lambda a: [True, False],
    "mask beside an integer": lambda a: (slice(None), np.array([True, False, True]), 1),
    "mask behind a slice": lambda a: (slice(None), np.array([True, False, True])),
    "mask and new axis": lambda a: (None, np.array([False, True])),
    "lists": lambda a: ([0, 1, -1], [2, 0, 1]),
    "lists that broadcast": lambda a: ([[0], [1]], [[2, 0]]),
    "lists around a slice": lambda a: ([0, 1], slice(1, 3), [3, 0]),
    "list and integer": lambda a: ([0, 1], 2),
    "array and ellipsis": lambda a: (..., np.array([3, 3])),
}


@pytest.mark.parametrize("name", INDICES)
def test_indexing_by_positions_and_masks_equals_numpy(name):
    array = np.random.default_rng(5).normal(size=(2, 3, 4))
    index = INDICES[name](array)
    expected = array[index]
    for given_as in (index, as_tensors(index)):
        np.testing.assert_array_equal(Tensor(array)[given_as].asnumpy(), expected)
        # An element that is selected several times gets all of its gradients.
        taken = np.zeros_like(array)
        np.add.at(taken, index, np.ones_like(expected))
        found = ms.grad(lambda x, i=given_as: x[i].sum())(Tensor(array))
        np.testing.assert_array_equal(found.asnumpy(), taken)


def as_tensors(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(as_tensors, index))
    return Tensor(index) if isinstance(index, (list, np.ndarray)) else index


@pytest.mark.parametrize("name", INDICES)
def test_parameters_are_written_by_positions_and_masks(name):
    array = np.random.default_rng(5).normal(size=(2, 3, 4))
    index = INDICES[name](array)
    for given_as in (index, as_tensors(index)):
        p, expected = ms.Parameter(array, name="p"), array.copy()
        p[given_as] = 7.0
        expected[index] = 7.0
        np.testing.assert_array_equal(p.asnumpy(), expected)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x > 0],
        lambda x: x[:, x[0] > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.nonzero(),
        lambda x: x.argwhere(),
        lambda x: x.unique_consecutive(),
    ],
)
def test_value_dependent_shapes_raise_while_tracing(fn):
    x = Tensor([[1.0, -1.0], [0.0, 2.0]])
    fn(x)
    with pytest.raises(TraceError, match=r"depends on values.*ops\.where\(mask, x, 0\)") as caught:
        ms.jit(fn)(x)
    assert "at test_tensor_methods.py:" in str(caught.value)


def test_constant_mask_indexes_while_tracing():
    mask, x = np.array([True, False, True]), Tensor([1.0, 2.0, 3.0])
    fn = ms.jit(ms.value_and_grad(lambda x: (x[mask] * x[Tensor(mask)]).sum()))
    value, slope = fn(x)
    assert value.item() == 10.0 and slope.tolist() == [2.0, 0.0, 6.0]


def test_computed_positions_index_while_tracing():
    x, i, j = Tensor(np.arange(12.0).reshape(3, 4)), Tensor([0, 2]), Tensor([1, -1])
    for fn in (lambda x, i, j: x[i, j], lambda x, i, j: x[i], lambda x, i, j: x.gather_elements(1, i.reshape(2, 1))):
        assert ms.jit(fn)(x, i, j).tolist() == fn(x, i, j).tolist()


# --- errors -----------------------------------------------------------------------------------------------------------

X = Tensor([[1.0, 2.0], [3.0, 4.0]])
REFUSED: list[tuple[Any, str]] = [
    (lambda: X.permute(0), r"permute: \(0,\) is not a permutation of the 2 axes"),
    (lambda: X.moveaxis((0, 1), 0), "moveaxis: source .* must have equally many axes"),
    (lambda: X.roll((1, 2), 0), r"roll: 2 shift\(s\) for 1 axes"),
    (lambda: X.narrow(0, 1, 2), "narrow: 2 slices from 1 on do not fit axis 0 of x, of length 2"),
    (lambda: X.repeat(2), r"repeat: 1 number\(s\) for a Tensor of shape \(2, 2\)"),
    (lambda: X.diff(-1), "diff: n is at least 0, not -1"),
    (lambda: X.diagonal(0, 1, 1), "diagonal: axis1 and axis2 must be different axes, not 1 twice"),
    (lambda: X.mm(Tensor([1.0])), r"mm: takes matrices \(N, M\), but the shape of mat2 is \(1,\)"),
    (lambda: X.outer(X), r"outer: takes two vectors, not shapes \(2, 2\)"),
    (lambda: X.mv(X), "mv: vec is a vector"),
    (lambda: X.matrix_power(-1), r"matrix_power: n must be at least 0, not -1\. Invert first"),
    (lambda: X.inner(Tensor([1.0])), r"inner: the last axes of shapes \(2, 2\) and \(1,\) differ"),
    (lambda: X.topk(3), r"topk: k=3 does not fit axis 1 of x, of shape \(2, 2\)"),
    (lambda: X.quantile(1.5), r"quantile: q is a number in \[0, 1\], or a list of them, not 1.5"),
    (lambda: ops.zeros((0,)).median(), "median: there is nothing"),
    (
        lambda: X.norm(2, (0, 1)),
        r'for matrices, ord must be "fro", 1, -1 or an infinity, not 2; for norms by singular values',
    ),
    (lambda: X.norm("nuc"), 'ord must be a number or "fro", for one or two axes, not .nuc.'),
    (lambda: X.norm(3), r"norm: ord=3 of a Tensor of shape \(2, 2\); pass the axis as dim"),
    (lambda: X.gather_elements(0, Tensor([0])), "the index has shape .*they must have equally many axes"),
    (lambda: X.gather_elements(0, Tensor([[0, 2]])), r"index 2 is out of range; it must lie in \[-2, 2\)"),
    (lambda: X.gather_elements(0, X), "index holds integers, not Float32"),
    (lambda: X.gather_nd([[0, 1, 1]]), r"indices have shape \(1, 3\); the last axis names positions along 1 to 2"),
    (lambda: X.scatter(0, [[0]], 1j), "values of dtype Complex64 do not fit a Tensor of dtype Float32"),
    (lambda: X.scatter(0, [[0]], [1.0, 2.0]), r"scatter: values of shape \(2,\) for positions of shape \(1, 1\)"),
    (lambda: X.scatter_add(1), "scatter_add: takes .indices, updates. or .dim, index, src."),
    (lambda: X.index_put([], 1.0), r"index_put: indices must be a tuple of 1 to 2 Tensors"),
    (lambda: X.masked_fill(X, 0.0), "masked_fill: mask must be boolean, not Float32; compare first: mask > 0"),
    (lambda: X.masked_scatter(X > 0, [1.0]), r"masked_scatter: source has 1 element\(s\), but the mask selects 4"),
    (lambda: X.masked_select(ops.ones(3) > 0), r"masked_select: shapes \(2, 2\) and \(3,\) do not broadcast"),
    (lambda: X.searchsorted(X[0]), r"searchsorted: rows of shape \(2, 2\) and values of shape \(2,\) do not fit"),
    (lambda: X.multinomial(3, False), r"cannot draw 3 different position\(s\) from a row with 2 positive weight\(s\)"),
    (lambda: (-X).multinomial(1), "weights must be finite and not negative"),
    (lambda: ops.unfold(X, 2), r"unfold: takes images \(N, C, H, W\), but the shape is \(2, 2\)"),
    (lambda: ops.unfold(ops.ones((1, 1, 2, 2)), 3), r"windows of \(3, 3\) do not fit an image of \(2, 2\)"),
    (lambda: ops.fold(ops.ones((1, 4, 3)), 3, 2), r"fold: takes columns \(N, C \* 4, 4\) for these windows"),
    (lambda: ops.clip_by_global_norm([]), "x must be a tuple or list of at least one Tensor"),
    (lambda: ops.meshgrid(X, indexing="ji"), 'indexing is "xy" or "ij", not .ji.'),
    (lambda: X.bitwise_not(), "bitwise_not: takes integers or booleans, not Float32"),
    (lambda: X.cummax(2), "cummax: axis 2 of a Tensor with 2 axes"),
    (lambda: X.item(), r"item: needs exactly one element, this Tensor has shape \(2, 2\)"),
    (lambda: X.item(0, 0, 0), r"item: 3 indices for a Tensor of shape \(2, 2\); .* x\.item\(0, 1\)"),
    (lambda: X.item(4), r"there is no element 4 in a Tensor of shape \(2, 2\)"),
    (lambda: X.item((0, 2)), r"there is no element \(0, 2\)"),
    (lambda: X.item(0.5), "item: index is an int, or one for each axis, not 0.5"),
    (lambda: X.itemset(0, 1.0), r"A Tensor never changes; write to a Parameter by .*p\[\.\.\.\] = value"),
    (lambda: ms.jit(lambda x: x.item(0))(X), r"item\(index\) needs a value, but"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_invalid_arguments_raise(call, text):
    with pytest.raises(SnncellError, match=text):
        call()


def test_tuple_of_tensors_as_operand_under_a_gradient_raises():
    with pytest.raises(
        SnncellError, match=r"mul: .* is a tuple of Tensors\. A new Tensor made of them would have no gradient.*stack"
    ):
        ms.grad(lambda x: (x.sort() * x).sum())(X)


# --- dtypes, other functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_adopt_the_precision_of_tensors(dtype):
    x = Tensor([0.5, 1.5], dtype)
    results = [
        ops.atan2(x, 2.0), ops.atan2(2.0, x), ops.hypot(x, 1.0), ops.fmod(x, 0.4), ops.copysign(0.1, x),
        ops.heaviside(x, 0.5), ops.heaviside(0.0, x), ops.logaddexp(x, 0.0), ops.lerp(x, 1.0, 0.3), ops.fmax(x, 1.0),
        ops.addcmul(x, x, 2.0, 0.5), x.clamp(0.1, 0.2), x.masked_fill(x > 1, 0.1), x.norm(), x.quantile(0.5),
        x.logcumsumexp(0), x.logit(0.1), ops.reciprocal(x), x.asinh(), ops.grad(ops.asinh)(x), x.diag(), x.nanmean(),
    ]  # fmt: skip
    assert {r.dtype for r in results} == {x.dtype}


def test_global_norm_is_computed_over_all_tensors():
    a, b = Tensor([3.0]), Tensor([[4.0]])
    assert [x.tolist() for x in ops.clip_by_global_norm((a, b), 10.0)] == [[3.0], [[4.0]]]
    assert [x.tolist() for x in ops.clip_by_global_norm((a, b), 1.0, use_norm=10.0)] == [
        [pytest.approx(0.3)],
        [[pytest.approx(0.4)]],
    ]
    assert ops.clip_by_norm(Tensor([3.0, 4.0]), 3.5, 1.0).tolist() == [pytest.approx(1.5), pytest.approx(2.0)]
    assert [x.tolist() for x in ops.clip_by_value([a, b], clip_value_max=3.5)] == [[3.0], [[3.5]]]


def test_meshgrid_stacking_linspace_and_assign_sub_are_correct():
    a, b = np.arange(3.0), np.ones(2)
    for indexing in ("xy", "ij"):
        for ours, theirs in zip(
            ops.meshgrid(a, b, indexing=indexing), np.meshgrid(a, b, indexing=indexing), strict=True
        ):
            np.testing.assert_array_equal(ours.asnumpy(), theirs)
    np.testing.assert_array_equal(ops.hstack([a, b]).asnumpy(), np.hstack([a, b]))
    np.testing.assert_array_equal(ops.vstack([a, a[None]]).asnumpy(), np.vstack([a, a]))
    assert ops.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0] and ops.cat is ops.concat
    p = ms.Parameter([3.0], name="p")
    assert ops.assign_sub(p, 1.0) is p and p.tolist() == [2.0]
    jitted = ms.jit(lambda: ops.assign_sub(p, 0.5) * 1.0)
    assert jitted().tolist() == [1.5] and p.tolist() == [1.5]


def test_gradient_of_a_norm_is_0_at_0():
    for p in (None, 1, 1.5, 3, float("inf")):
        found = ms.grad(lambda x, p=p: x.norm(p))(ops.zeros(3))
        assert np.isfinite(found.asnumpy()).all() and (p == float("inf") or found.tolist() == [0.0] * 3)


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("fn", [
    lambda x: (x.sort(-1, True)[0] * x.cumprod(1)).sum(),
    lambda x: x.norm(3, 1).sum() + ops.hypot(x, 1.0).sum() + x.logcumsumexp(0).sum(),
    lambda x: x.index_put((Tensor([0, 0]), Tensor([1, 1])), x[0, :2], True).square().sum() * x[:, 0].sum(),
])  # fmt: skip
def test_second_order_gradients_through_jit_are_correct(fn):
    x = Tensor(np.random.default_rng(1).normal(size=(2, 3)))
    second = ms.grad(lambda x: (ms.grad(fn)(x) ** 2).sum())
    np.testing.assert_allclose(ms.jit(second)(x).asnumpy(), second(x).asnumpy(), rtol=1e-10)


def test_reference_lists_every_method_and_property():
    page = Path(__file__).parents[2] / "docs" / "reference" / "snncell.md"
    named = set(re.findall(r"`(?:t\.)?(\w+)(?:\(.*?\))?`", page.read_text(encoding="utf-8")))
    assert [name for name in public(Tensor) if name not in named] == []
