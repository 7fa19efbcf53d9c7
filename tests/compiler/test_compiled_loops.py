"""Generated loops under Numba agree with NumPy for every elementwise operation and kind of reduction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreting import call_kernel, emitted, whole_numbers

from snncell import Tensor, jit, ops
from snncell.kernels.numba import build as builder
from snncell.kernels.numba.policy import PARALLEL_SIZE

pytestmark = pytest.mark.compiled

# Arithmetic and comparisons agree bit for bit. Functions of libm may differ by 2 units in the last place, and formulas
# that combine one with a quotient or a sum by 4.
EXACT_1 = ["neg", "square", "abs", "sign", "floor", "ceil", "round", "sqrt", "relu", "relu6", "isnan", "isfinite"]
EXACT_2 = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
]
CLOSE = {
    **dict.fromkeys(["exp", "expm1", "log", "log1p", "sin", "cos", "atan", "tanh", "erf"], 2),
    **dict.fromkeys(["sigmoid", "rsqrt", "softplus"], 4),
}
INTEGER_2 = "add sub mul floor_div mod maximum minimum bitwise_and bitwise_or bitwise_xor equal less greater_equal"
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-40, np.inf, -np.inf, np.nan, 1e30, -1e30, 3.0, 7.25]


def sample(dtype: Any) -> tuple[Any, Any]:
    """All pairs of special values, and ordinary numbers of both signs."""
    rng = np.random.default_rng(0)
    left, right = np.meshgrid(SPECIAL, SPECIAL)
    plain = rng.normal(scale=4.0, size=(2, 400))
    return tuple(np.concatenate([s.ravel(), p]).astype(dtype) for s, p in zip((left, right), plain, strict=True))


def ulps(found: Any, expected: Any) -> float:
    """Return the largest distance in units in the last place, or infinity if only one of the two is NaN or infinite."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    difference = np.abs(found[finite].astype(np.longdouble) - expected[finite].astype(np.longdouble))
    return float((difference / np.spacing(np.abs(expected[finite]))).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arithmetic_and_comparisons_equal_eager_mode(dtype: Any) -> None:
    def f(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {name: getattr(ops, name)(x) for name in EXACT_1} | {name: getattr(ops, name)(x, y) for name in EXACT_2}

    x, y = map(Tensor, sample(dtype))
    expected = f(x, y)
    for name, found in jit(f)(x, y).items():
        np.testing.assert_array_equal(found.asnumpy(), expected[name].asnumpy(), err_msg=name, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_integer_division_and_remainder_equal_eager_mode(dtype: Any) -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x // y, x % y

    x, y = map(Tensor, sample(dtype))
    for name, found, expected in zip(("//", "%"), jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy(), err_msg=name, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transcendental_functions_agree_with_eager_mode_within_ulps(dtype: Any) -> None:
    def f(x: Tensor) -> dict[str, Tensor]:
        return {name: getattr(ops, name)(x) for name in CLOSE} | {"gelu": ops.gelu(ops.abs(x)), "power": x**1.5}

    x = Tensor(np.concatenate([SPECIAL, np.linspace(-12.0, 12.0, 1001)]).astype(dtype))
    expected = f(x)
    for name, found in jit(f)(x).items():
        assert ulps(found.asnumpy(), expected[name].asnumpy()) <= {"gelu": 8, "power": 2}.get(name, CLOSE.get(name)), (
            name
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_agree_with_eager_mode(dtype: Any) -> None:
    x, y = map(Tensor, sample(dtype))
    found, expected = jit(ops.pow)(x, y), ops.pow(x, y)
    assert ulps(found.asnumpy(), expected.asnumpy()) <= 2


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integer_operations_agree_with_eager_mode(dtype: Any) -> None:
    def f(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        unary = {name: getattr(ops, name)(x) for name in ("neg", "abs", "sign", "square", "relu", "relu6", "floor")}
        return unary | {name: getattr(ops, name)(x, y) for name in INTEGER_2.split()} | {"scaled": x * 3 - 1}

    ends = np.iinfo(dtype)
    line = np.array([ends.min, ends.max, 0, 1, 2, 3, 7, 100, ends.max - 1], dtype)
    x, y = (Tensor(part.ravel()) for part in np.meshgrid(line, line))
    expected = f(x, y)
    for name, found in jit(f)(x, y).items():
        np.testing.assert_array_equal(found.asnumpy(), expected[name].asnumpy(), err_msg=name, strict=True)


def test_logic_and_casts_agree_with_eager_mode() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        p, q = x > 0, y > 0
        logic = [ops.logical_and(p, q), ops.logical_or(p, q), ops.logical_xor(p, q), ops.logical_not(p), p == q]
        return [*logic, ops.where(p, x, y), x.astype("int32"), x.astype("int8"), p.astype("float32"), p.astype("int64")]

    x, y = (Tensor(whole_numbers((40,), np.float32, seed)) for seed in (0, 1))
    for found, expected in zip(jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy(), strict=True)


def test_narrow_integers_over_two_axes_agree_with_numpy() -> None:
    a, b = whole_numbers((3, 4), np.int8), whole_numbers((4,), np.int8, 1)
    found = jit(lambda x, y: x + y)(Tensor(a), Tensor(b))
    np.testing.assert_array_equal(found.asnumpy(), a + b, strict=True)


# --- reductions -------------------------------------------------------------------------------------------------------


def three(axis: tuple[int, ...]) -> Callable[[Tensor], Any]:
    return lambda x: (ops.sum(x * 2.0, axis), ops.max(x, axis), ops.min(x, axis))


LAYOUTS = [((0,), (33,)), ((1,), (5, 33)), ((0,), (33, 5)), ((0, 2), (3, 5, 33)), ((0, 2), (3, 5, 4, 3))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("axis", "shape"), LAYOUTS)
def test_compiled_reductions_propagate_nan(axis: tuple[int, ...], shape: tuple[int, ...]) -> None:
    a = whole_numbers(shape, np.float32)
    f = jit(three(axis))
    for value in (1.0, np.nan, np.inf):
        a[tuple(n // 2 for n in shape)] = value
        total, top, low = (out.asnumpy() for out in f(Tensor(a)))
        np.testing.assert_array_equal(total, (a * 2).sum(axis), strict=True)
        np.testing.assert_array_equal(top, a.max(axis), strict=True)
        np.testing.assert_array_equal(low, a.min(axis), strict=True)


def test_booleans_and_integers_reduce_as_in_eager_mode() -> None:
    a = whole_numbers((5, 33), np.int32)

    def f(x: Tensor) -> list[Tensor]:
        return [x.sum(1), (x > 0).sum(1), ops.max(x, 1), ops.min(x, 1), ops.any(x > 2, 1), ops.all(x > -3, 1)]

    expected = [a.sum(1), (a > 0).sum(1), a.max(1), a.min(1), (a > 2).any(1), (a > -3).all(1)]
    for found, wanted in zip(jit(f)(Tensor(a)), expected, strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted, strict=True)


def test_one_kernel_serves_every_length() -> None:
    f = jit(lambda x: (x * 2.0 + 1.0, (x * 2.0 + 1.0).sum(axis=1)))
    kernels = []
    for length in (0, 15, 16, 17, 31, 33, 1025):
        a = whole_numbers((3, length), np.float32)
        image, total = f(Tensor(a))
        np.testing.assert_array_equal(image.asnumpy(), a * 2 + 1, strict=True)
        np.testing.assert_array_equal(total.asnumpy(), (a * 2 + 1).sum(1), strict=True)
        kernels.append(len(builder._built))
    assert len(set(kernels)) == 1


# --- all threads ------------------------------------------------------------------------------------------------------

LARGE = PARALLEL_SIZE + 1025
PARALLEL: list[tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = [
    ("map", lambda x: ops.exp(x) * 1.7 - x, [(LARGE,)]),
    ("broadcast map", lambda x, y: x * y + 0.3, [(733, 731), (731,)]),
    ("whole", lambda x: (ops.sum(x * x), ops.max(x)), [(LARGE,)]),
    ("rows", lambda x: (ops.sum(x * x, 1), ops.max(x, 1)), [(733, 731)]),
    ("columns", lambda x: (ops.sum(x * x, 0), ops.max(x, 0)), [(533, 1000)]),
    ("outer and inner", lambda x: ops.sum(x * x, (0, 2)), [(67, 91, 93)]),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fn", "shapes"), [row[1:] for row in PARALLEL], ids=[row[0] for row in PARALLEL])
def test_results_have_equal_bits_on_one_and_all_threads(fn: Any, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    kernel = emitted(fn, *map(Tensor, arrays))
    assert kernel.shared
    function = builder.build(kernel.name, kernel.source, kernel.signature)
    shared, serial = (call_kernel(function, replace(kernel, shared=shared), arrays) for shared in (True, False))
    for a, b in zip(shared, serial, strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def test_large_sums_are_within_the_error_bound() -> None:
    a = np.random.default_rng(0).normal(size=(LARGE,)).astype(np.float32)
    total = jit(lambda x: x.sum())(Tensor(a)).item()
    exact = a.astype(np.float64).sum()
    # Error bound of a sum by 16 lanes in blocks of 4096, and of the sum over blocks: 256 + 16 + 5 additions deep.
    assert abs(total - exact) <= 280 * 2.0**-24 * np.abs(a).sum(dtype=np.float64)


@pytest.mark.parametrize("other", [(800,), (800, 1)])
def test_large_full_sum_with_broadcast_operand_compiles_without_warning(other: tuple[int, ...]) -> None:
    a, b = whole_numbers((800, 800), np.float32), whole_numbers(other, np.float32, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = jit(lambda x, y: (x * y).sum())(Tensor(a), Tensor(b))
    assert total.item() == (a * b).sum()
