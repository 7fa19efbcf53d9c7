"""Values of elementwise operations against NumPy: dtypes, arithmetic, NaN, and gradients at ties and kinks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, ops

F16, F32, F64 = ms.float16, ms.float32, ms.float64
REALS = [ms.bool_, ms.uint8, ms.int8, ms.int16, ms.int32, ms.int64, F16, F32, F64]
INTS = [d for d in REALS if d.category == 1]
INF, NAN = float("inf"), float("nan")


def same(ours: Tensor, expected: Any) -> None:
    """Equal values (NaN equals NaN), and NumPy's dtype where `expected` is an array."""
    if isinstance(expected, np.ndarray):
        assert ours.dtype == expected.dtype
        assert ours.shape == expected.shape
    np.testing.assert_array_equal(ours.asnumpy(), expected)


def array(shape: Any, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Small numbers that every dtype represents exactly, unsorted."""
    return np.random.default_rng(seed).integers(0, 4, shape).astype(dtype)


# --- dtypes -----------------------------------------------------------------------------------------------------------


def promote(a: ms.dtype.DType, b: ms.dtype.DType) -> ms.dtype.DType:
    """An independent form of the rule: the higher category; within one category, NumPy's rule."""
    categories = [ms.bool_], INTS, [F16, F32, F64]
    ranks = [next(i for i, members in enumerate(categories) if d in members) for d in (a, b)]
    if ranks[0] == ranks[1]:
        return ms.dtype.as_dtype(np.promote_types(a.dtype, b.dtype))
    return a if ranks[0] > ranks[1] else b


@pytest.mark.parametrize("b", REALS, ids=str)
@pytest.mark.parametrize("a", REALS, ids=str)
def test_two_dtypes_promote_by_category(a, b):
    x, y = Tensor([0, 1, 1], a), Tensor([1, 1, 0], b)
    expected = promote(a, b)
    assert (x + y).dtype == expected
    assert ops.maximum(x, y).dtype == ops.where(True, x, y).dtype == ops.stack([x, y]).dtype == expected
    assert (x < y).dtype == ms.bool_
    assert (x / y).dtype == (expected if expected.is_float else F32)
    same(x + y, np.asarray(x).astype(expected.dtype) + np.asarray(y).astype(expected.dtype))


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_only_float64_widens_complex64(dtype):
    total = Tensor([1, 0], dtype) + Tensor([1j, 2.0], ms.complex64)
    same(total, np.array([1 + 1j, 2], np.complex128 if dtype == F64 else np.complex64))


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (F16, 2.5, F16),
        (F32, 2.5, F32),
        (F64, 2.5, F64),
        (F32, 2, F32),
        (F32, True, F32),
        (ms.int32, 2.5, F32),
        (ms.int64, 2.5, F32),
        (ms.int8, 2, ms.int8),
        (ms.int32, True, ms.int32),
        (ms.bool_, 2, ms.int64),
        (ms.bool_, 2.5, F32),
        (ms.bool_, True, ms.bool_),
        (F32, np.float64(2.5), F32),  # np.exp(-1 / tau) must not widen a network
        (F64, np.float32(2.5), F64),
        (ms.int8, np.int64(2), ms.int8),
    ],
)
def test_python_and_numpy_scalars_have_weak_dtypes(dtype, number, expected):
    x = Tensor([1, 0], dtype)
    for result in (x + number, number + x, ops.maximum(x, number), ops.where([True, False], x, number)):
        assert result.dtype == expected


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_real_functions_keep_floats_and_convert_integers_to_float32(dtype):
    x = Tensor([1, 1], dtype)
    expected = dtype if dtype.is_float else F32
    for f in (ops.exp, ops.expm1, ops.log, ops.log1p, ops.sqrt, ops.rsqrt, ops.sin, ops.cos, ops.atan, ops.tanh):
        assert f(x).dtype == expected, f.name
    for f in (ops.erf, ops.sigmoid, ops.softplus, ops.gelu, ops.leaky_relu, ops.softmax, ops.log_softmax):
        assert f(x).dtype == expected, f
    for f in (ops.mean, ops.var, ops.std, ops.logsumexp):
        assert f(x).dtype == expected, f
    assert (x / x).dtype == (x / 2).dtype == expected


@pytest.mark.parametrize("dtype", [*INTS, F16, F32, F64], ids=str)
def test_functions_of_any_dtype_keep_the_dtype(dtype):
    x = Tensor([1, 2, 7], dtype)
    for f in (ops.abs, ops.sign, ops.square, ops.relu, ops.relu6, ops.floor, ops.ceil, ops.round, ops.neg, ops.max):
        assert f(x).dtype == dtype, f
    for f in (lambda v: ops.clip(v, 1, 5), lambda v: v**2, lambda v: v // 2, lambda v: v % 2, lambda v: v**3):
        assert f(x).dtype == dtype
    same(ops.round(x), np.asarray(x))
    same(ops.relu6(x), np.minimum(np.asarray(x), dtype.dtype.type(6)))


@pytest.mark.parametrize("dtype", [ms.bool_, *INTS], ids=str)
def test_integer_sums_are_int64(dtype):
    x = Tensor(np.ones(300), dtype)
    assert ops.sum(x).dtype == ops.cumsum(x, 0).dtype == ms.int64
    assert ops.sum(x).item() == 300
    assert ops.mean(x).dtype == F32


def test_integer_products_are_int64():
    assert ops.prod(Tensor([100, 100], ms.int8)).item() == 10000
    assert ops.prod(Tensor([100, 100], ms.int8)).dtype == ms.int64


def test_default_dtypes_of_data():
    assert Tensor([1.0, 2.0]).dtype == Tensor(1.5).dtype == F32
    assert Tensor([1, 2]).dtype == Tensor(3).dtype == ms.int64
    assert Tensor([True]).dtype == ms.bool_
    assert Tensor(np.zeros(2)).dtype == F64
    assert Tensor(np.zeros(2, np.int16)).dtype == ms.int16
    assert Tensor([1, 2], float).dtype == F32


@pytest.mark.parametrize("to", [*REALS, ms.complex64, ms.complex128], ids=str)
def test_casts_equal_numpy(to):
    x = array((2, 3))
    for result in (ops.cast(Tensor(x), to), Tensor(x).astype(to), Tensor(x).astype(to.name), Tensor(x, to)):
        same(result, x.astype(to.dtype))


def test_cast_gradient_has_the_input_dtype():
    x = Tensor([1.5, 2.5], F32)
    found = ms.grad(lambda v: (v.astype(F64) * 3).astype(F16).astype(F32) * 2)(x)
    same(found, np.array([6, 6], np.float32))


@pytest.mark.parametrize("number", [0.1, 1 / 3, 1e-30])
def test_python_numbers_keep_full_precision_in_float64_gradients(number):
    """A weak number takes the Tensor's precision, also in the backward pass.

    The gradient equals that of a float64 constant.
    """
    x, constant = Tensor([0.3, 0.7], F64), Tensor(number, F64)
    for f in (
        lambda v, c: v * c,
        lambda v, c: v / c,
        lambda v, c: c / v,
        lambda v, c: c**v,
        lambda v, c: v % c,
        lambda v, c: ops.where(v > 0.5, v * c, v),
        lambda v, c: ops.square(v * c),
    ):
        same(ms.grad(lambda v, f=f: f(v, number))(x), ms.grad(lambda v, f=f: f(v, constant))(x).asnumpy())


# --- elementwise ------------------------------------------------------------------------------------------------------

BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_div": np.floor_divide,
    "mod": np.mod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
SPECIAL = np.array([-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN], np.float32)


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_equal_numpy_on_all_floats(name):
    with np.errstate(all="ignore"):
        expected = BINARY[name](SPECIAL[:, None], SPECIAL)
    same(getattr(ops, name)(Tensor(SPECIAL[:, None]), Tensor(SPECIAL)), expected)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floor_div", "mod", "less", "bitwise_and", "bitwise_or"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_binary_operations_equal_numpy_on_integers(name, dtype):
    x, y = array((3, 4), dtype), array((4,), dtype, 1)
    function = BINARY.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        expected = function(x, y)
    same(getattr(ops, name)(Tensor(x), Tensor(y)), expected)


UNARY = {"abs": np.abs, "sign": np.sign, "square": np.square, "floor": np.floor, "ceil": np.ceil, "round": np.rint}
UNARY |= {"sqrt": np.sqrt, "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "isnan": np.isnan}
UNARY |= {"isfinite": np.isfinite, "neg": np.negative, "logical_not": np.logical_not, "tanh": np.tanh, "sin": np.sin}


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations_equal_numpy_on_all_floats(name):
    with np.errstate(all="ignore"):
        expected = UNARY[name](SPECIAL)
    same(getattr(ops, name)(Tensor(SPECIAL)), expected)


def test_isfinite_and_isnan_accept_booleans_and_integers():
    for x in (Tensor([True, False]), Tensor([1, 2])):
        same(ops.isfinite(x), np.array([True, True]))
        same(ops.isnan(x), np.array([False, False]))


def test_activations_saturate_without_overflow():
    x = Tensor([-1000.0, 0.0, 1000.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(ops.sigmoid(x), [0, 0.5, 1])
        same(ops.softplus(x), np.array([0, np.log(np.float32(2)), 1000], np.float32))
        same(ops.tanh(x), [-1, 0, 1])
        same(ops.softmax(x), [0, 0, 1])
        same(ops.log_softmax(x), [-2000, -1000, 0])
        same(ops.logsumexp(x), 1000)
        same(ops.gelu(x), [0, 0, 1000])
        for f in (ops.sigmoid, ops.softplus, ops.tanh, ops.softmax, ops.log_softmax, ops.logsumexp):
            assert np.isfinite(ms.grad(f)(x).asnumpy()).all(), f


def test_logsumexp_of_only_minus_infinity():
    same(ops.logsumexp(Tensor([-INF, -INF])), -INF)
    same(ops.logsumexp(Tensor([INF, 0.0])), INF)


@pytest.mark.parametrize(
    "f",
    [
        ops.relu,
        ops.relu6,
        ops.leaky_relu,
        ops.sigmoid,
        ops.softplus,
        ops.gelu,
        ops.abs,
        ops.sign,
        lambda x: ops.maximum(x, 0.0),
        lambda x: ops.maximum(0.0, x),
        lambda x: ops.minimum(x, 0.0),
        lambda x: ops.minimum(0.0, x),
        lambda x: ops.clip(x, -1.0, 1.0),
        ops.max,
        ops.min,
        lambda x: ops.max(x, 0),
        ops.sum,
        ops.mean,
        ops.logsumexp,
        ops.softmax,
        lambda x: ops.max_pool1d(x.reshape(1, 1, 3), 3),
    ],
)
def test_nan_propagates(f):
    found = f(Tensor([1.0, NAN, -1.0])).asnumpy()
    assert np.isnan(found.flat[1] if found.size == 3 else found.flat[0])


BOUNDS: list[Any] = [NAN, 0.5, np.array(NAN), np.array([NAN, 0.5, -2.0]), np.array([[0.0], [NAN]])]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("high", [None, *BOUNDS], ids=str)
@pytest.mark.parametrize("low", [None, *BOUNDS], ids=str)
def test_clamp_propagates_nan_bounds(low, high, compiled):
    x = np.array([1.0, NAN, -1.0])
    if (low is None and high is None) or low is high is BOUNDS[1]:
        return
    expected = x if low is None else np.maximum(x, low)
    expected = expected if high is None else np.minimum(expected, high)
    bounds = [Tensor(b) if isinstance(b, np.ndarray) else b for b in (low, high)]
    for clip in (ops.clip, ops.clamp, ops.clip_by_value):
        run = ms.jit(lambda x, clip=clip: clip(x, *bounds)) if compiled else lambda x, clip=clip: clip(x, *bounds)
        same(run(Tensor(x)), expected)


def test_operators_equal_operations():
    x, y = Tensor([3.0, -2.0]), Tensor([2.0, 5.0])
    for ours, expected in [
        (x + y, ops.add(x, y)),
        (x - y, ops.sub(x, y)),
        (x * y, ops.mul(x, y)),
        (x / y, ops.div(x, y)),
        (x // y, ops.floor_div(x, y)),
        (x % y, ops.mod(x, y)),
        (x**y, ops.pow(x, y)),
        (x @ y, ops.matmul(x, y)),
        (-x, ops.neg(x)),
        (+x, x),
        (abs(x), ops.abs(x)),
        (x < y, ops.less(x, y)),
        (x <= y, ops.less_equal(x, y)),
        (x > y, ops.greater(x, y)),
        (x >= y, ops.greater_equal(x, y)),
        (x == y, ops.equal(x, y)),
        (x != y, ops.not_equal(x, y)),
        ((x > 0) & (y > 0), ops.logical_and(x > 0, y > 0)),
        ((x > 0) | (y > 0), ops.logical_or(x > 0, y > 0)),
        ((x > 0) ^ (y > 0), ops.logical_xor(x > 0, y > 0)),
        (~(x > 0), ops.logical_not(x > 0)),
        (x.T, ops.transpose(x)),
    ]:
        same(ours, expected.asnumpy())
    for ours, expected in [(2 - x, [-1, 4]), (2 / y, [1, 0.4]), (2**y, [4, 32]), (7 // y, [3, 1]), (7 % y, [1, 2])]:
        np.testing.assert_allclose(ours.asnumpy(), expected, rtol=1e-7)
    assert (x == None) is False  # noqa: E711 (Python's own answer)
    assert (x != "x") is True


def test_array_and_tensor_give_a_tensor_with_gradient():
    a = np.array([1.0, 2.0], np.float32)
    for f in (lambda x: a * x, lambda x: x * a, lambda x: ops.mul(a, x)):
        assert isinstance(f(Tensor([3.0, 4.0])), Tensor)
        same(ms.grad(f)(Tensor([3.0, 4.0])), a)
    same(a @ Tensor([1.0, 1.0]), 3)
    assert isinstance(np.float32(2) * Tensor([1.0]), Tensor)


# --- where a derivative does not exist --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (ops.relu, 0.0, 0),
        (ops.relu6, 0.0, 0),
        (ops.relu6, 6.0, 0),
        (ops.abs, 0.0, 0),
        (ops.sign, 0.0, 0),
        (lambda x: ops.maximum(x, 1.0), 1.0, 0.5),
        (lambda x: ops.maximum(1.0, x), 1.0, 0.5),
        (lambda x: ops.minimum(x, 1.0), 1.0, 0.5),
        (lambda x: ops.maximum(x, x), 1.0, 1),
        (lambda x: ops.clip(x, -1.0, 1.0), 2.0, 0),
        (lambda x: ops.clip(x, -1.0, 1.0), -2.0, 0),
        (lambda x: ops.clip(x, -1.0, 1.0), 0.5, 1),
        (lambda x: ops.pow(x, 2.5), 0.0, 0),
        (lambda x: ops.pow(x, Tensor(0.0)), 0.0, 0),
        (lambda x: ops.pow(x, Tensor(1.0)), 0.0, 1),
    ],
)
def test_gradient_conventions_at_kinks(f, x, expected):
    assert ms.grad(f)(Tensor(x)).item() == expected


def test_ties_share_the_gradient():
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([1.0, 5.0, 0.0])
    for f, expected in [(ops.maximum, [[0.5, 0, 1], [0.5, 1, 0]]), (ops.minimum, [[0.5, 1, 0], [0.5, 0, 1]])]:
        for found, wanted in zip(ms.grad(f, (0, 1))(x, y), expected, strict=True):
            same(found, wanted)
    same(ms.grad(ops.max)(Tensor([2.0, 5.0, 5.0, 5.0])), np.array([0, 1, 1, 1], np.float32) / np.float32(3))
    same(ms.grad(lambda v: ops.min(v, 1))(Tensor([[2.0, 2.0], [3.0, 1.0]])), [[0.5, 0.5], [0, 1]])


# --- complex numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "tanh", "square", "abs", "sigmoid", "atan"])
@pytest.mark.parametrize("order", [1, 2])
def test_complex_gradients_are_exact_or_raise(name, order):
    """The gradient of a real loss by a + ib is dL/da + i dL/db. An operation without that rule must raise an error."""

    def split(a: Tensor, b: Tensor) -> Any:
        z = getattr(ops, name)(a + b * 1j)
        return ops.real(z), ops.imag(z)

    a, b = Tensor([0.3, 1.2]), Tensor([0.7, -0.4])
    try:
        split(a, b)
    except ms.errors.DTypeError:
        return
    ms.testing.check_grads(split, a, b, order=order)


COMPLEX_PAIRS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "matrices": (ops.matmul, (2, 3), (3, 4)),
    "batches": (ops.matmul, (2, 2, 3), (2, 3, 4)),
    "a batch by one matrix": (ops.matmul, (2, 2, 3), (3, 4)),
    "a matrix by a vector": (ops.matmul, (2, 3), (3,)),
    "einsum": (lambda x, y: ops.einsum("bij,bjk->ik", x, y), (2, 2, 3), (2, 3, 4)),
    "conv2d": (ops.conv2d, (1, 2, 4, 4), (3, 2, 2, 2)),
    "conv_transpose2d": (ops.conv_transpose2d, (1, 2, 3, 3), (2, 3, 2, 2)),
    "quotients": (ops.div, (2, 3), (3,)),
}


@pytest.mark.parametrize("name", COMPLEX_PAIRS)
def test_gradients_of_complex_products_agree_with_finite_differences(rng, name):
    """A missing conjugate is visible only if both factors are complex."""
    product, *shapes = COMPLEX_PAIRS[name]

    def split(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Any:
        z = product(a + b * 1j, c + d * 1j)
        return ops.real(z), ops.imag(z)

    ms.testing.check_grads(split, *(Tensor(rng.normal(size=shape)) for shape in shapes for _ in "ri"), order=2)


def test_imaginary_part_of_real_numbers_is_zero() -> None:
    x = np.array([1.0, np.inf, np.nan])
    assert ops.imag(Tensor(x)).asnumpy().tolist() == np.imag(x).tolist() == [0.0, 0.0, 0.0]
