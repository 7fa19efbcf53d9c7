"""Compiled operations against eager ones, to the bit for arithmetic and comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_scalar_mathematics import all_of_them

import snncell as ms
from snncell import Tensor, ops
from snncell.errors import ArgumentError, TensorIndexError

pytestmark = pytest.mark.compiled

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, 0.1, 7.0, -7.3]


def arithmetic(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x + y, x - y, x * y, x / y, -x, x * y + x, x * 0.1 - y / 3, 1.5 - x, 2 / y, ops.square(x), x**3,
        ops.abs(x), ops.clip(x, -1.0, 2.0), ops.relu(x),
        ops.relu6(x), ops.leaky_relu(x, 0.1), ops.floor(x), ops.ceil(x), ops.round(x), ops.sqrt(x), ops.rsqrt(y),
        ops.where(x > y, x, y), ops.where(x > 0, 0.1, y), ops.select(ops.logical_not(x < y), x * 2, x),
    ]  # fmt: skip


def divisions(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x // y, x % y, x // 0.7, x % -0.7, 2.5 % y]


def extremes(x: Tensor, y: Tensor) -> list[Tensor]:
    """NumPy may return 0 or -0, depending on vector instructions, so that this function accepts either."""
    return [ops.maximum(x, y) + 0.0, ops.minimum(x, y) + 0.0, ops.maximum(x, 0.5), ops.minimum(0.5, y)]


def comparisons(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x == y, x != y, x < y, x <= y, x > y, x >= y, x > 0.1, x == 0, ops.isnan(x), ops.isfinite(x),
        ops.logical_and(x, y), ops.logical_or(x, y), ops.logical_xor(x, y), ops.logical_not(x), (x > 0) & (y > 0),
    ]  # fmt: skip


def integers(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x + y, x - y, x * y, -x, x & y, x | y, x ^ y, x * 3 + 1, ops.maximum(x, y), ops.minimum(x, y), ops.abs(x),
        ops.relu(x), ops.sign(x), x == y, x < y, x / y, ops.where(x > y, x, y), ops.square(x), ops.clip(x, 1, 50),
        x.astype(ms.float32) * 0.1, x + 2.5, x > 0.5, ops.relu6(x), ops.floor(x), ops.ceil(x),
    ]  # fmt: skip


def identical(fn: Any, *xs: Tensor) -> None:
    eager, compiled = fn(*xs), ms.jit(fn)(*xs)
    for i, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"result {i}"
        a, b = a.asnumpy(), b.asnumpy()
        np.testing.assert_array_equal(b, a, err_msg=f"result {i}")
        if a.dtype.kind == "f":
            signs = np.signbit(a) == np.signbit(b)
            assert (signs | np.isnan(a)).all(), f"result {i}: 0 with another sign at {np.argwhere(~signs).tolist()}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", [arithmetic, divisions, extremes, comparisons])
def test_float_arithmetic_equals_eager_bitwise(fn, dtype):
    special = np.array(SPECIAL, dtype)
    pairs = [p.reshape(-1) for p in np.meshgrid(special, special)]
    drawn = np.random.default_rng(0).standard_normal((2, 1025 - pairs[0].size)).astype(dtype)
    identical(fn, *[Tensor(np.concatenate([a, b])) for a, b in zip(pairs, drawn, strict=True)])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_integer_arithmetic_equals_eager_bitwise(dtype):
    info = np.iinfo(dtype)
    given = np.array([0, 1, 2, 3, 5, 100, info.max, info.min, info.max - 1], dtype)
    identical(integers, *[Tensor(x.reshape(-1)) for x in np.meshgrid(given, given)])


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integer_division_equals_eager_bitwise(dtype):
    given = np.array([0, 1, 2, 3, 7, 100], dtype)
    given = np.concatenate([given, -given]) if dtype == "int32" else given
    identical(lambda x, y: [x // y, x % y, x // 3, x % 3], *[Tensor(x.reshape(-1)) for x in np.meshgrid(given, given)])


def test_out_of_range_numbers_behave_as_in_eager_mode():
    """Comparisons use the number itself. An operation that must store it raises an error, compiled or not."""
    x = Tensor([0, 200], ms.uint8)
    identical(lambda v: [v > 300, v == -1, v >= -5, v < 256], x)
    for fn in (lambda v: v + 300, lambda v: ops.maximum(v, -2), lambda v: ops.clip(v, -2, 300)):
        outcomes = []
        for f in (fn, ms.jit(fn)):
            try:
                outcomes.append(f(x).tolist())
            except ArgumentError:
                outcomes.append(ArgumentError)
        assert outcomes[0] == outcomes[1]


def test_rounding_of_integers_equals_eager():
    identical(lambda x: [ops.round(x)], Tensor(np.arange(5, dtype=np.int32)))


def test_boolean_operations_equal_eager_bitwise():
    x, y = Tensor([True, True, False, False]), Tensor([True, False, True, False])
    identical(lambda x, y: [x & y, x | y, x ^ y, ~x, x == y, x < y, x + y, x * 2, x / y, x * 0.1, ops.sum(x)], x, y)


def test_extreme_arguments_equal_eager():
    x = Tensor(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1000, -1000, 1e-38, -1, -2], np.float32))
    for a, b in zip(all_of_them(x), ms.jit(all_of_them)(x), strict=True):
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=3e-7)


@pytest.mark.parametrize("shape", [(0,), (1,), (31,), (33,), (1025,), (0, 3), (3, 0), ()])
def test_all_shapes_equal_eager(shape):
    def fn(x: Tensor) -> list[Tensor]:
        return [x * 2 + 1, ops.sum(x), ops.sum(x, 0) if x.ndim else x, ops.cumsum(x, 0) if x.ndim else x]

    identical(fn, Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)))


def test_compiled_reductions_propagate_nan():
    def fn(x: Tensor) -> list[Tensor]:
        return [ops.max(x), ops.min(x), ops.max(x, 1), ops.min(x, 0), ops.sum(x, 1), ops.mean(x, 0), ops.softmax(x, 1)]

    for place in np.ndindex(3, 3):
        x = np.arange(9, dtype=np.float64).reshape(3, 3)
        x[place] = np.nan
        for a, b in zip(fn(Tensor(x)), ms.jit(fn)(Tensor(x)), strict=True):
            np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sign_equals_eager_bitwise(dtype):
    identical(lambda x: [ops.sign(x)], Tensor(np.array(SPECIAL, dtype)))


def test_half_precision_equals_eager_bitwise():
    identical(lambda x: [x * 2 + 1, ops.relu(x), ops.exp(x), ops.sum(x), x > 0], Tensor([1.5, -2.5], ms.float16))


def test_complex_numbers_equal_eager():
    identical(lambda x: [ops.real(ops.fft(x)), ops.abs(ops.fft(x) * 2j)], Tensor(np.arange(4.0)))


def test_strided_inputs_equal_eager():
    x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    identical(lambda v: [v.T * 2, v[:, ::-1] + v, ops.sum(v.T, 0), v[..., 1::2] * v[..., ::2], v.swapaxes(0, 2) + 1], x)
    identical(lambda v: [v * 2 + v, ops.sum(v, 1)], x.T[::-1])


def test_invalid_indices_raise_the_same_errors_compiled():
    """The Program raises them at run time, because the values are unknown during tracing."""
    x, far = Tensor([1.0, 2.0]), Tensor([5])
    for f in (lambda a, i: ops.gather(a, i), ms.jit(lambda a, i: ops.gather(a, i))):
        with pytest.raises(TensorIndexError, match=r"gather.*out of bounds"):
            f(x, far)
    for f in (lambda i: ops.one_hot(i, 3), ms.jit(lambda i: ops.one_hot(i, 3))):
        with pytest.raises(ArgumentError, match=r"one_hot: index 5 is out of range for depth 3"):
            f(far)
