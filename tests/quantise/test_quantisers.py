"""Quantisers: values compared with plain Python loops, gradients, learned and moving scales, special inputs, errors."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, grad, nn, ops, quantise, surrogate, testing
from snncell.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError
from snncell.quantise.prepare import OnStep
from snncell.quantise.quantiser import round_scale

RNG = np.random.default_rng(5)
W = RNG.normal(0, 0.3, (4, 3, 5)).astype(np.float32)


# --- reference: one channel, number by number, in exact fractions -----------------------------------------------------


def shortened(value: float, bits: int, up: bool = False) -> Fraction:
    """A positive number with the given number of significant bits."""
    exact = Fraction(value)
    exponent = math.frexp(value)[1] - bits
    unit = Fraction(2) ** exponent
    whole = round(exact / unit)
    return unit * (whole + 1 if up and whole * unit < exact else whole)


def half_even(value: Fraction, low: int, high: int) -> int:
    return min(max(round(value), low), high)  # Python's round is half to even


def f32(value: Any) -> float:
    return float(np.float32(value))


def uniform(values: list[float], bits: int, magnitude: float, scale_bits: int, up: bool = False) -> list[float]:
    high = 2 ** (bits - 1) - 1
    step = shortened(f32(np.float32(magnitude) / np.float32(high)), scale_bits, up)
    return [
        float(step * half_even(Fraction(f32(np.float32(x) / np.float32(float(step)))), -high, high)) for x in values
    ]


def by_max(values: list[float]) -> list[float]:
    return uniform(values, 4, max(map(abs, values)), 8, up=True)


def by_percentile(values: list[float]) -> list[float]:
    ordered = sorted(map(abs, values))
    return uniform(values, 4, ordered[math.ceil(0.7 * len(values)) - 1], 4)


def by_error(values: list[float]) -> list[float]:
    top, best, least = max(map(abs, values)), values, math.inf
    for i in range(17):
        share = np.float32(1.0 - 0.05 * i)
        found = uniform(values, 3, f32(np.float32(top) * share), 8)
        error = sum((a - b) ** 2 for a, b in zip(found, values, strict=True))
        if error < least * (1 - 1e-6):
            best, least = found, error
    return best


def affine(values: list[float]) -> list[float]:
    low, high = min(0.0, *values), max(0.0, *values)
    step = shortened(f32((np.float32(high) - np.float32(low)) / np.float32(15)), 8, up=True)
    zero = round(Fraction(f32(np.float32(-low) / np.float32(float(step)))))
    return [
        float(step * half_even(Fraction(f32(np.float32(x) / np.float32(float(step)))), -zero, 15 - zero))
        for x in values
    ]


def ternary(values: list[float]) -> list[float]:
    edge = 0.7 * sum(map(abs, values)) / len(values)
    large = [abs(x) for x in values if abs(x) > edge]
    step = float(shortened(f32(sum(large) / len(large)), 8))
    return [math.copysign(step, x) if abs(x) > edge else 0.0 for x in values]


def binary(values: list[float]) -> list[float]:
    step = float(shortened(f32(sum(map(abs, values)) / len(values)), 8))
    return [step if x >= 0 else -step for x in values]


def powers(values: list[float]) -> list[float]:
    top = max(abs(x) for x in values)
    largest = min((2.0**k for k in range(-40, 40)), key=lambda p: abs(p - top))
    grid = [0.0, *(largest * 2.0**-k for k in range(7))]
    return [math.copysign(min(grid, key=lambda g: abs(g - abs(x))), x) for x in values]


def fixed(values: list[float]) -> list[float]:
    return [float(Fraction(half_even(Fraction(x) * 8, -8, 7), 8)) for x in values]


Q = quantise
QUANTISERS: dict[str, tuple[Callable[..., Any], Callable[[list[float]], list[float]] | None]] = {
    "max": (lambda **o: Q.Uniform(4, **o), by_max),
    "percentile": (lambda **o: Q.Uniform(4, "percentile", percent=70.0, scale_bits=4, **o), by_percentile),
    "mse": (lambda **o: Q.Uniform(3, "mse", **o), by_error),
    "affine": (lambda **o: Q.Uniform(4, symmetric=False, **o), affine),
    "learned": (lambda **o: Q.Uniform(4, "learned", **o).begin(Tensor(W)), None),
    "moving": (lambda **o: Q.Uniform(4, "moving", **o).begin(Tensor(W)), None),
    "ternary": (Q.Ternary, ternary),
    "binary": (Q.Binary, binary),
    "power of two": (Q.PowerOfTwo, powers),
    "fixed": (lambda **o: Q.FixedPoint(4, 3), fixed),
}
NAMES = pytest.mark.parametrize("name", QUANTISERS)


def made(name: str, **options: Any) -> Any:
    return QUANTISERS[name][0](**options)


def test_table_has_all_quantisers() -> None:
    kinds = {one for one in vars(Q).values() if isinstance(one, type) and issubclass(one, Q.Quantiser)}
    assert {type(made(name)) for name in QUANTISERS} == kinds - {Q.Quantiser}


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@NAMES
def test_values_equal_plain_loops(name: str, axis: int | None) -> None:
    oracle = QUANTISERS[name][1]
    if oracle is None:
        pytest.skip("it begins by values: see below")
    quantiser = made(name, **({} if axis is None else {"per_channel": True, "axis": axis}))
    found = quantiser(Tensor(W)).asnumpy()
    channels = np.moveaxis(W if axis is not None else W[None], axis or 0, 0)
    expected = np.stack([np.reshape(oracle(channel.ravel().tolist()), channel.shape) for channel in channels])
    np.testing.assert_array_equal(np.moveaxis(found if axis is not None else found[None], axis or 0, 0), expected)


@pytest.mark.parametrize("scale_bits", [1, 2, 8, 16])
@NAMES
def test_values_are_exact_multiples_of_step(name: str, scale_bits: int) -> None:
    own = {} if name in ("fixed", "power of two", "percentile") else {"scale_bits": scale_bits}
    quantiser = made(name, **own).set_train(name == "moving")
    x = Tensor(W)
    out = quantiser(x).asnumpy()
    levels, step = quantiser.integers(x)
    np.testing.assert_array_equal((levels * step).astype(np.float32), out)
    digits = np.frexp(step)[0] * 2.0 ** own.get("scale_bits", 8)
    assert np.all(digits == np.rint(digits)) and out.shape == x.shape
    np.testing.assert_array_equal(quantiser(Tensor(W)).asnumpy(), quantiser(x).asnumpy())


@pytest.mark.sampled(4)
@pytest.mark.compiled
@NAMES
def test_compiled_quantiser_gives_same_bits(name: str) -> None:
    for mode in (False, True):
        eager, jitted = made(name, per_channel=name != "fixed").set_train(mode), made(name, per_channel=name != "fixed")
        jitted.set_train(mode)
        of = ms.jit(lambda x, q=jitted: (q(x), grad(lambda x: ops.sum(ops.square(q(x))))(x)))
        for _ in range(2):  # a moving scale goes on
            out, slope = of(Tensor(W))
            np.testing.assert_array_equal(out.asnumpy(), eager(Tensor(W)).asnumpy())
            assert np.isfinite(slope.asnumpy()).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@NAMES
def test_dtype_of_input_is_kept(name: str, dtype: str) -> None:
    x = Tensor(W).astype(dtype)
    quantiser = made(name).set_train(name == "moving")
    out = quantiser(x)
    slope = grad(lambda x: ops.sum(quantiser(x).astype("float32")))(x)
    assert out.dtype == x.dtype and slope.dtype == x.dtype
    if dtype != "float64":  # rounded in float32, and then to its own bits
        again = made(name).set_train(name == "moving")
        np.testing.assert_array_equal(out.asnumpy(), again(x.astype("float32")).astype(dtype).asnumpy())


@pytest.mark.parametrize("bits", [1, 2, 5, 8, 16])
def test_short_scales_round_to_nearest_or_up(bits: int) -> None:
    # The last lies near the upper end of the scales of 16 bits.
    values = np.append(np.exp(RNG.uniform(-20, 20, 500)), 16768033 * 2.0**-41).astype(np.float32)
    near, above = round_scale(Tensor(values), bits).asnumpy(), round_scale(Tensor(values), bits, up=True).asnumpy()
    for x, low, high in zip(values.tolist(), near.tolist(), above.tolist(), strict=True):
        unit = Fraction(2) ** (math.frexp(x)[1] - bits)
        assert abs(Fraction(low) - Fraction(x)) <= unit / 2 and Fraction(low) / unit == int(Fraction(low) / unit)
        assert 0 <= Fraction(high) - Fraction(x) < unit and Fraction(high) / unit == int(Fraction(high) / unit)
    assert grad(lambda x: ops.sum(round_scale(x, bits)))(Tensor(values)).asnumpy().tolist() == [1.0] * len(values)


def test_number_of_levels_follows_bits() -> None:
    x = Tensor(np.linspace(-1, 1, 200001, dtype=np.float32))
    for bits in (2, 3, 8, 12, 16):
        levels = Q.Uniform(bits, scale_bits=None).integers(x)[0]
        assert (levels.min(), levels.max()) == (-(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1)
        assert len(np.unique(levels)) == 2**bits - 1
        both = Q.Uniform(bits, symmetric=False, scale_bits=None).integers(x + 1.0)[0]
        assert both.max() - both.min() == 2**bits - 1
        wide = Q.FixedPoint(bits, 0).integers(x * 1e6)[0]
        assert (wide.min(), wide.max()) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"per_channel": True, "axis": 1}], ids=["one scale", "per channel"])
@NAMES
def test_bprop_equals_derivative_of_primitive(name: str, options: dict[str, Any], training: bool) -> None:
    quantiser = made(name, **options)
    quantiser.begin(Tensor(W))
    testing.check_bprop(quantiser.set_train(training), Tensor(W))
    testing.check_bprop(quantiser, Tensor(W * 3))  # beyond a scale that has begun


@pytest.mark.parametrize("quantiser", [Q.FixedPoint(4, 3), Q.Uniform(4, 0.1), Q.Binary(0.4)], ids=repr)
def test_smooth_quantiser_passes_finite_differences(quantiser: Any) -> None:
    x = Tensor(W.astype(np.float64))
    with surrogate.smooth():
        testing.check_grads(lambda x: ops.square(quantiser(x)), x)


@NAMES
def test_second_order_gradient_is_straight_through(name: str) -> None:
    quantiser = made(name).set_train(name == "moving")
    x = Tensor(W)
    q = quantiser(x).asnumpy()
    inside = grad(lambda x: ops.sum(quantiser(x)))(x).asnumpy()
    first = grad(lambda x: ops.sum(quantiser(x) * quantiser(x) * quantiser(x)))
    np.testing.assert_allclose(first(x).asnumpy(), 3 * q**2 * inside, rtol=1e-6)
    second = grad(lambda x: ops.sum(first(x)))(x).asnumpy()
    np.testing.assert_allclose(second, 6 * q * inside, rtol=1e-6, atol=1e-7)
    assert set(np.unique(inside)) <= {0.0, 1.0}


def test_learned_step_has_lsq_gradient() -> None:
    quantiser = Q.Uniform(3, "learned", scale_bits=None).begin(Tensor(W))
    quantiser.step_size.set_data(quantiser.step_size * 0.5)  # some are clipped
    (found,) = ms.grad(lambda x: ops.sum(quantiser(x)), None, [quantiser.step_size])(Tensor(W))
    step, expected = quantiser.step_size.item(), 0.0
    for x in W.ravel().tolist():
        level = x / step
        expected += -3.0 if level <= -3 else 3.0 if level >= 3 else round(level) - level
    assert found.asnumpy().ravel() == pytest.approx([expected / math.sqrt(3 * W.size)], rel=1e-3)
    assert Q.Uniform(3, "learned").begin(Tensor(W)).step_size.item() == pytest.approx(
        2 * np.abs(W).mean() / math.sqrt(3), rel=1e-5
    )


def test_learned_step_stays_positive() -> None:
    quantiser = Q.Uniform(4, "learned").begin(Tensor(W))
    quantiser.step_size.set_data(quantiser.step_size * -1.0)
    assert 0.0 < quantiser.step_size.item() < 1e-3


def test_biases_round_to_step_with_straight_through_gradient() -> None:
    step = Tensor([0.5, 0.25, 0.125])
    testing.check_bprop(OnStep(), Tensor([0.3, -7.1, 0.2]), step)
    assert OnStep()(Tensor([0.3, -7.1, 0.1875]), step).asnumpy().tolist() == [0.5, -7.0, 0.25]


# --- moving scales and stochastic rounding ----------------------------------------------------------------------------


def test_moving_scale_updates_in_training_only() -> None:
    quantiser = Q.Uniform(8, "moving", momentum=0.75).begin(ops.zeros(()))
    quantiser.set_train()
    for x in (4.0, 8.0):
        quantiser(Tensor([x, -1.0]))
    assert quantiser.maximum.item() == 4.0 * 0.75 + 8.0 * 0.25
    quantiser.set_train(False)(Tensor([100.0]))
    assert quantiser.maximum.item() == 5.0
    assert quantiser(Tensor([100.0])).item() == pytest.approx(5.0, rel=0.01)


def test_backward_uses_moving_scale_of_its_call() -> None:
    quantiser = Q.Uniform(8, "moving", momentum=0.0).begin(ops.zeros(())).set_train()
    both = grad(lambda x: ops.sum(quantiser(x)) + ops.sum(quantiser(x * 0.01)))
    assert both(Tensor([1.0, 2.0])).asnumpy().tolist() == pytest.approx([1.01, 1.01])


def test_stochastic_rounding_is_unbiased_and_reproducible() -> None:
    quantiser = Q.Uniform(4, 0.25, rounding="stochastic").set_train()
    x = ops.ones(20000) * 0.3
    ms.set_seed(3)
    first = quantiser(x).asnumpy()
    ms.set_seed(3)
    np.testing.assert_array_equal(quantiser(x).asnumpy(), first)
    assert set(first.tolist()) == {0.25, 0.5}
    assert abs(first.mean() - 0.3) < 6 * 0.25 * math.sqrt(0.2 * 0.8 / 20000)
    assert set(quantiser.set_train(False)(x).asnumpy().tolist()) == {0.25}
    testing.check_bprop(quantiser.set_train(), Tensor(W))


# --- special inputs ---------------------------------------------------------------------------------------------------


@NAMES
def test_zeros_stay_zeros(name: str) -> None:
    quantiser = made(name).begin(ops.zeros((2, 3)))
    for mode in (True, False):
        out = quantiser.set_train(mode)(ops.zeros((2, 3)))
        assert out.asnumpy().tolist() == np.zeros((2, 3)).tolist()
        assert np.isfinite(grad(lambda x: ops.sum(quantiser(x)))(ops.zeros((2, 3))).asnumpy()).all()


@NAMES
def test_constants_keep_sign(name: str) -> None:
    quantiser = made(name).begin(Tensor([0.5, 0.5])).set_train()
    assert (quantiser(Tensor([0.5, 0.5])).asnumpy() > 0).all()
    negative = quantiser(Tensor([-0.5, -0.5])).asnumpy()
    assert (negative < 0).all() and negative[0] == negative[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@NAMES
def test_nan_and_infinity_are_not_hidden(name: str, bad: float) -> None:
    x = W.copy()
    x[0, 0, 0] = bad
    with np.errstate(all="ignore"):
        out = made(name).set_train()(Tensor(x)).asnumpy()
    saturates = math.isinf(bad) and name in ("fixed", "learned", "percentile")
    assert np.isfinite(out[0, 0, 0]) == saturates


@NAMES
def test_empty_tensors_stay_empty(name: str) -> None:
    quantiser = made(name).begin(ops.zeros((0, 3)))
    for mode in (True, False):
        assert quantiser.set_train(mode)(ops.zeros((0, 3))).shape == (0, 3)
        assert grad(lambda x: ops.sum(quantiser(x)))(ops.zeros((0, 3))).shape == (0, 3)


@NAMES
def test_quantisers_can_be_copied_and_pickled(name: str) -> None:
    quantiser = made(name)
    for other in (copy.deepcopy(quantiser), pickle.loads(pickle.dumps(quantiser))):
        np.testing.assert_array_equal(other(Tensor(W)).asnumpy(), quantiser(Tensor(W)).asnumpy())
        assert repr(other) == repr(quantiser)


ERRORS: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "bits": (ArgumentError, r"bits is an integer in \[2, 16\], not 1", lambda: Q.Uniform(1)),
    "scale": (ArgumentError, 'scale must be "max", "mse", .* or a number above 0, not', lambda: Q.Uniform(4, "min")),
    "negative scale": (ArgumentError, "a number above 0, not", lambda: Q.Uniform(4, -1.0)),
    "affine mse": (
        ArgumentError,
        'symmetric=False requires scale="max"',
        lambda: Q.Uniform(4, "mse", symmetric=False),
    ),
    "not begun": (
        ArgumentError,
        r"is not initialised\. Call begin\(x\)",
        lambda: Q.Uniform(4, "learned")(Tensor([1.0])),
    ),
    "axis": (
        ArgumentError,
        r"per_channel=True: axis is 2, but the values have the shape \(2, 3\)",
        lambda: Q.Uniform(4, per_channel=True, axis=2)(ops.ones((2, 3))),
    ),
    "integers": (DTypeError, r"takes floats, not int64.*x.astype", lambda: Q.Ternary()(Tensor([1, 2]))),
    "fraction": (ArgumentError, "fraction is an integer in", lambda: Q.FixedPoint(8, 17)),
    "rounding": (ArgumentError, '"nearest" or "stochastic"', lambda: Q.Uniform(4, rounding="up")),
    "momentum": (ArgumentError, "momentum", lambda: Q.Uniform(4, momentum=2.0)),
    "power bits": (ArgumentError, r"bits is an integer in \[2, 5\]", lambda: Q.PowerOfTwo(6)),
    "words": (ArgumentTypeError, "threshold", lambda: Q.Ternary("0.7")),
    "base": (NotImplementedError, r"has no method grid\(self, x\)", lambda: Q.Quantiser()(Tensor([1.0]))),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_fix(case: str) -> None:
    kind, text, wrong = ERRORS[case]
    with pytest.raises(kind, match=text):
        wrong()


def test_custom_quantiser_rounds_to_its_grid() -> None:
    class Sixteenths(Q.Quantiser):
        def grid(self, x: Tensor) -> Any:
            return (0.0625,)

        def rounded(self, x: Tensor, *grid: Any) -> Any:
            return ops.round(x / grid[0]) * grid[0]

    assert isinstance(Sixteenths(), nn.Cell) and GradientError
    testing.check_bprop(Sixteenths(), Tensor(W))
    assert Sixteenths().integers(Tensor([0.5, -0.1]))[0].tolist() == [8, -2]
