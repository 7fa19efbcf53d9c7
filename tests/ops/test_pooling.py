"""Pooling with random windows, against loops over windows and their elements."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, nn, ops
from snncell.errors import ArgumentError
from snncell.kernels import pooling
from snncell.kernels.numba import policy
from snncell.kernels.windows import LANES, UNROLLED, Windows
from snncell.ops import pool

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


class Case(NamedTuple):
    """Images and windows over them."""

    shape: tuple[int, ...]
    windows: Windows

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `max_pool` except the dilation."""
        flat = tuple(n for pair in self.windows.padding for n in pair)
        even = tuple(before for before, _ in self.windows.padding)
        # A single axis takes no pairs.
        padding = flat if len(even) > 1 else even
        return {
            "count": len(even),
            "kernel_size": self.windows.size,
            "stride": self.windows.stride,
            "pad_mode": "pad",
            "padding": padding,
        }


def random_pool(seed: int, dilated: bool = True) -> Case:
    """Valid windows, none of them only in the padding; see `random_windows`."""
    rng = np.random.default_rng(seed)
    cases = (random_windows(rng, dilated) for _ in itertools.count())
    return next(case for case in cases if not has_padding_alone(case))


def has_padding_alone(case: Case) -> bool:
    """True if a window contains only padding, found by trying all windows."""
    return any(not any(members(case, where)) for where in np.ndindex(*naive_counts(case)))


def random_windows(rng: np.random.Generator, dilated: bool) -> Case:
    """Valid windows. Some tile the image, are longer than LANES, or cover the whole image."""
    count = int(rng.choice([1, 2, 2, 2, 3]))
    longest = {1: 80, 2: 24, 3: 8}[count]
    if not policy.compiles():
        longest = {1: 30, 2: 9, 3: 5}[count]
    lengths = [int(n) for n in rng.integers(1, longest, count)]
    size, stride, dilation, padding = [], [], [], []
    tiles = rng.random() < 0.4
    for n in lengths:
        k = int(rng.integers(1, min(n, 7) + 1)) if rng.random() < 0.9 else n
        s = k if tiles else int(rng.integers(1, 5))
        d = int(rng.integers(1, 3)) if dilated and not tiles and (k - 1) * 2 < n else 1
        before = int(rng.integers(0, 4)) if rng.random() < 0.5 else 0
        after = before if count == 1 or rng.random() < 0.7 else int(rng.integers(0, 4))
        for values, value in ((size, k), (stride, s), (dilation, d), (padding, (before, after))):
            values.append(value)
    windows = Windows(tuple(size), tuple(stride), tuple(dilation), tuple(padding))
    return Case((*(int(n) for n in rng.integers(1, 4, 2)), *lengths), windows)


def members(case: Case, where: tuple[int, ...]) -> list[tuple[int, ...] | None]:
    """The positions of a window's elements in the image, in order; None for padding."""
    axes = [
        [p * s + i * d - before for i in range(k)]
        for p, k, s, d, (before, _) in zip(where, *case.windows[:3], case.windows.padding, strict=True)
    ]
    inside = [[0 <= r < n for r in rows] for rows, n in zip(axes, case.shape[2:], strict=True)]
    return [
        place if all(within) else None
        for place, within in zip(itertools.product(*axes), itertools.product(*inside), strict=True)
    ]


def naive_counts(case: Case) -> tuple[int, ...]:
    """The number of windows along each axis, by counting."""
    found = []
    for n, k, s, d, (before, after) in zip(case.shape[2:], *case.windows, strict=True):
        found.append(sum(p * s + (k - 1) * d < n + before + after for p in range(n + before + after)))
    return tuple(found)


def naive_max(case: Case, x: Any, dout: Any) -> tuple[Any, Any]:
    """The largest elements, and the gradient of the images."""
    out, grad = np.empty((*case.shape[:2], *naive_counts(case)), x.dtype), np.zeros(x.shape, x.dtype)
    for index in np.ndindex(*out.shape):
        plane, places = index[:2], members(case, index[2:])
        values = np.array([-np.inf if place is None else x[(*plane, *place)] for place in places], x.dtype)
        best = int(np.argmax(values))
        out[index] = values[best]
        if places[best] is not None:
            grad[(*plane, *places[best])] += dout[index]
    return out, grad


def naive_sum(case: Case, x: Any, dout: Any, divide: str = "no") -> tuple[Any, Any]:
    """Sums or means, and the gradient of the images."""
    out, grad = np.empty((*case.shape[:2], *naive_counts(case)), x.dtype), np.zeros(x.shape, x.dtype)
    for index in np.ndindex(*out.shape):
        plane, places = index[:2], members(case, index[2:])
        own = [place for place in places if place is not None]
        by = {"no": 1, "all": len(places), "inside": len(own)}[divide]
        with np.errstate(invalid="ignore"):
            out[index] = sum((x[(*plane, *place)] for place in own), x.dtype.type(0)) / x.dtype.type(by)
        for place in own:
            grad[(*plane, *place)] += dout[index] / by
    return out, grad


def values(case: Case, dtype: Any, seed: int, special: bool = False) -> Any:
    """Images with few different numbers, so that many elements are equal."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, case.shape).astype(np.float64)
    if special:
        x = np.where(rng.random(case.shape) < 0.3, rng.choice(SPECIAL, case.shape), x)
    return x.astype(dtype)


def with_gradient(function: Any, x: Any, weights: Any) -> tuple[Any, Any]:
    """The result, and the gradient of its weighted sum."""
    gradient = snncell.grad(lambda x: (function(x) * weights).sum())
    return function(Tensor(x)).asnumpy(), gradient(Tensor(x)).asnumpy()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_max_pool_of_bytes_has_the_elements_and_places_of_floats(seed: int) -> None:
    case, rng = random_pool(seed), np.random.default_rng(seed)
    largest, dtype = [(1, np.bool_), (1, np.uint8), (127, np.uint8)][seed % 3]
    x = (rng.integers(0, largest + 1, case.shape) * (rng.random(case.shape) < 0.4)).astype(dtype)
    if seed % 5 == 0:
        x = np.asarray(x.swapaxes(0, -1).copy().swapaxes(0, -1))  # not contiguous
    found, places = pooling.max_pool(x, case.windows)
    expected, others = pooling.max_pool(x.astype(np.float32), case.windows)
    assert found.dtype == pooling.largest(x, case.windows).dtype == dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(places, others)
    np.testing.assert_array_equal(pooling.largest(x, case.windows), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(120))
def test_max_pool_equals_loops(seed: int) -> None:
    case = random_pool(seed)
    x = values(case, np.float32 if seed % 3 else np.float64, seed, special=seed % 2 == 0)
    if seed % 5 == 0:
        x = np.asarray(x.swapaxes(0, -1).copy().swapaxes(0, -1))  # not contiguous
    weights = np.random.default_rng(seed).normal(size=(*case.shape[:2], *naive_counts(case))).astype(x.dtype)
    out, grad = naive_max(case, x, weights)
    pooled = lambda x: pool.max_pool(x, dilation=case.windows.dilation, **case.options)  # noqa: E731
    np.testing.assert_array_equal(pooled(Tensor(x)).asnumpy(), out)
    # 0 * inf gives NaN in the loss, but the gradient does not depend on it.
    for how in (lambda f: f, snncell.jit):
        ours, gradient = with_gradient(how(pooled), x, weights)
        np.testing.assert_array_equal(ours, out)
        np.testing.assert_allclose(gradient, grad, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("what", ["no", "all", "inside"])
def test_sum_and_mean_pools_equal_loops(seed: int, what: str) -> None:
    case = random_pool(1000 + seed, dilated=False)
    x = values(case, np.float64, seed) / 7
    weights = np.random.default_rng(seed).normal(size=(*case.shape[:2], *naive_counts(case)))
    out, grad = naive_sum(case, x, weights, what)
    options = {} if what == "no" else {"count_include_pad": what == "all"}
    function = pool.sum_pool if what == "no" else pool.avg_pool
    for how in (lambda f: f, snncell.jit):
        ours, gradient = with_gradient(how(lambda x: function(x, **case.options, **options)), x, weights)
        np.testing.assert_allclose(ours, out, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(gradient, grad, rtol=1e-12, atol=1e-13)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("what", ["largest", "mean"])
def test_pool_gradients_are_adjoint_to_any_order(seed: int, what: str) -> None:
    """<pool'(x) u, w> = <u, pool'(x)* w>, and the gradient of the gradient is again the pool of the winners."""
    case = random_pool(2000 + seed, dilated=what == "largest")
    rng = np.random.default_rng(seed)
    x, u = Tensor(rng.normal(size=case.shape)), Tensor(rng.normal(size=case.shape))
    w = Tensor(rng.normal(size=(*case.shape[:2], *naive_counts(case))))

    def pooled(x: Tensor) -> Tensor:
        if what == "mean":
            return pool.avg_pool(x, **case.options)
        return pool.max_pool(x, dilation=case.windows.dilation, **case.options)

    def back(w: Tensor) -> Tensor:
        return snncell.grad(lambda x: (pooled(x) * w).sum())(x)

    # The gradient of <back(w), u> by w is the derivative of the pool along u.
    along = snncell.grad(lambda w: (back(w) * u).sum())
    np.testing.assert_allclose((along(w) * w).sum().item(), (back(w) * u).sum().item(), rtol=1e-9, atol=1e-12)
    there, here = pooled(x + 1e-6 * u).asnumpy(), pooled(x - 1e-6 * u).asnumpy()
    np.testing.assert_allclose(along(w).asnumpy(), (there - here) / 2e-6, rtol=1e-4, atol=1e-6)
    # A third order: the gradient by u of what is linear in u and w.
    again = snncell.grad(lambda u: (snncell.grad(lambda w: (back(w) * u).sum())(w) * w).sum())(u)
    np.testing.assert_allclose(again.asnumpy(), back(w).asnumpy(), rtol=1e-9, atol=1e-12)


def with_ceil_mode(case: Case) -> Case:
    """The case with a last window along each axis that may reach past the end, if it begins before the padding."""
    padding = []
    for n, k, s, d, (before, after) in zip(case.shape[2:], *case.windows, strict=True):
        reach, count = (k - 1) * d + 1, 0
        while count * s + reach <= n + before + after:
            count += 1
        if (count - 1) * s + reach < n + before + after and count * s < n + before:
            count += 1
        padding.append((before, max((count - 1) * s + reach - n - before, after)))
    return Case(case.shape, case.windows._replace(padding=tuple(padding)))


@pytest.mark.sampled(2)
@random_cases(6)
def test_ceil_mode_and_divisor_override_equal_loops_and_torch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    while True:
        case = random_windows(rng, True)
        even = tuple((max(pair), max(pair)) for pair in case.windows.padding)
        case = Case(case.shape, case.windows._replace(padding=even))
        wider = with_ceil_mode(case)
        if len(case.shape) < 5 and not has_padding_alone(case) and not has_padding_alone(wider):
            break
    x = values(case, np.float64, seed) / 7
    dout = np.zeros((*case.shape[:2], *naive_counts(wider)))
    options = {**case.options, "ceil_mode": True}
    found = pool.max_pool(x, dilation=case.windows.dilation, **options).asnumpy()
    np.testing.assert_array_equal(found, naive_max(wider, x, dout)[0])
    means: dict[Any, Any] = {}
    for included, divisor in itertools.product((True, False), (None, 3)):
        straight = Case(case.shape, case.windows._replace(dilation=(1,) * len(even)))
        ceiled = with_ceil_mode(straight)
        if has_padding_alone(straight) or has_padding_alone(ceiled):
            break
        mean = pool.avg_pool(x, **options, count_include_pad=included, divisor_override=divisor).asnumpy()
        total = naive_sum(ceiled, x, np.zeros(mean.shape))[0]
        padded = Case(
            (*case.shape[:2], *(n + 2 * p for n, (p, _) in zip(case.shape[2:], even, strict=True))), ceiled[1]
        )
        beyond = tuple((0, after - own) for (_, after), (_, own) in zip(ceiled.windows.padding, even, strict=True))
        area = padded._replace(windows=ceiled.windows._replace(padding=beyond)) if included else ceiled
        by = divisor or naive_sum(area, np.ones(area.shape), np.zeros(mean.shape))[0]
        np.testing.assert_allclose(mean, total / by, rtol=1e-12, atol=1e-15)
        means[included, divisor] = mean
    try:
        import torch
    except ImportError:
        return
    size, stride, dilation, padding = case.windows
    each = [p for p, _ in padding]
    if all(2 * p <= k for p, k in zip(each, size, strict=True)):  # PyTorch rejects more settings
        count, image = len(each), torch.tensor(x)
        theirs = getattr(torch, f"max_pool{count}d")(image, size, stride, each, dilation, True)
        np.testing.assert_array_equal(found, theirs.numpy())
        for (included, divisor), mean in means.items():
            if count == 2 or divisor is None:
                pooled = getattr(torch.nn.functional, f"avg_pool{count}d")
                more = {"divisor_override": divisor} if count == 2 else {}
                theirs = pooled(image, size, stride, each, True, included, **more)
                np.testing.assert_allclose(mean, theirs.numpy(), rtol=1e-12, atol=1e-15)


@random_cases(40)
def test_windows_only_in_the_padding_raise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for case in itertools.islice((random_windows(rng, True) for _ in itertools.count()), 40):
        if has_padding_alone(case):
            with pytest.raises(ArgumentError, match=r"lies wholly in the padding .* Pad by at most half"):
                pool.max_pool(np.zeros(case.shape), dilation=case.windows.dilation, **case.options)
            return


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.avg_pool2d(x, 2, pad_mode="pad", padding=2), "avg_pool2d: a window of 2 elements"),
        (lambda x: ops.max_pool2d(x, 2, pad_mode="same", ceil_mode=True), '"same" sets the output size'),
        (lambda x: nn.AvgPool2d(2, divisor_override=0)(x), "divisor_override"),
    ],
)
def test_invalid_options_raise(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(ops.ones((1, 1, 4, 4)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "sum_pool2d"])
@pytest.mark.parametrize("options", [(2,), (3, 2), (3, 1), (2, 3), (5,)])
def test_pools_keep_every_dtype(dtype: str, name: str, options: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = Tensor(rng.normal(size=(2, 3, 11, 10))).astype(dtype)
    if dtype.startswith("complex"):
        x = x + Tensor(1j * rng.normal(size=x.shape)).astype(dtype)
    function = getattr(ops, name)
    out = function(x, *options)
    assert out.dtype == dtype
    parts = x.asnumpy().astype(np.complex128 if dtype.startswith("complex") else np.float64)
    view = np.lib.stride_tricks.sliding_window_view(parts, (options[0],) * 2, (2, 3))
    view = view[:, :, :: options[-1], :: options[-1]].reshape(*out.shape, -1)
    expected = {"max_pool2d": np.max, "avg_pool2d": np.mean, "sum_pool2d": np.sum}[name](view, -1)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "complex64": 1e-5}.get(dtype, 1e-13)
    np.testing.assert_allclose(out.asnumpy().astype(parts.dtype), expected, rtol=tolerance, atol=tolerance)
    if not dtype.startswith("complex"):
        gradient = snncell.grad(lambda x: function(x, *options).sum())(x)
        assert gradient.dtype == dtype and np.isfinite(gradient.asnumpy().astype(np.float64)).all()


def test_complex_nan_in_either_part_is_the_maximum() -> None:
    x = np.array([[[1 + 2j, complex(0.0, np.nan), 5 + 0j, 3 + 1j, 3 + 2j, -1 + 9j, 2 - 1j, 2 - 3j]]])
    ours = pool.max_pool(Tensor(x), 1, 2).asnumpy()
    np.testing.assert_array_equal(ours[0, 0], [np.max(x[0, 0, i : i + 2]) for i in range(0, 8, 2)])


def test_pools_convert_booleans_and_integers_to_floats() -> None:
    spikes = np.random.default_rng(0).random((2, 3, 8, 8)) < 0.3
    for x in (spikes, spikes.astype(np.uint8), spikes.astype(np.int64)):
        for function in (ops.max_pool2d, ops.sum_pool2d, ops.avg_pool2d):
            result = function(Tensor(x), 2)
            assert result.dtype == snncell.float32
            np.testing.assert_array_equal(result.asnumpy(), function(Tensor(spikes.astype(np.float32)), 2).asnumpy())


@pytest.mark.parametrize("shape", [(0, 3, 6, 6), (2, 0, 6, 6)])
def test_empty_batch_gives_an_empty_batch(shape: tuple[int, ...]) -> None:
    for function in (ops.max_pool2d, ops.avg_pool2d, ops.sum_pool2d):
        for options in ((2,), (3, 1)):
            out, grad = with_gradient(lambda x: function(x, *options), np.zeros(shape, np.float32), 1.0)  # noqa: B023
            assert out.shape[:2] == shape[:2] and out.size == 0 and grad.shape == shape


def test_stored_positions_are_bytes_if_possible() -> None:
    def places(size: int, length: int) -> Any:
        windows = Windows((size, size), (1, 1), (1, 1), ((0, 0), (0, 0)))
        return pooling.max_pool(np.arange(length**2, dtype=np.float32).reshape(1, 1, length, length), windows)[1]

    assert places(16, 16).dtype == np.uint8 and places(16, 16).item() == 255
    assert places(17, 17).dtype == np.int32 and places(17, 17).item() == 288
    large = np.zeros((1, 1, 20, 20), np.float32)
    large[0, 0, 17, 18] = 1.0
    np.testing.assert_array_equal(snncell.grad(lambda x: ops.max_pool2d(x, 20).sum())(Tensor(large)).asnumpy(), large)


@pytest.mark.slow
def test_row_lengths_around_the_vector_width() -> None:
    for windows in (2, 3, 6):
        for count in sorted({n + by for n in (*LANES, 2 * LANES[0]) for by in (-1, 0, 1)}):
            x = np.random.default_rng(count).normal(size=(2, 1, 2 * windows, windows * count)).astype(np.float32)
            out, grad = with_gradient(lambda x: ops.max_pool2d(x, windows), x, 1.0)  # noqa: B023
            blocks = x.reshape(2, 1, 2, windows, count, windows)
            np.testing.assert_array_equal(out, blocks.max((3, 5)))
            np.testing.assert_array_equal(grad.reshape(blocks.shape), blocks == blocks.max((3, 5), keepdims=True))
    assert max(windows**2 for windows in (2, 3, 6)) > UNROLLED


# --- in loops over time, and on threads -------------------------------------------------------------------------------


POOLS = {
    "max": lambda x: ops.max_pool2d(x, 2),
    "max, overlapping": lambda x: ops.max_pool2d(x, 3, 2, pad_mode="pad", padding=1),
    "mean": lambda x: ops.avg_pool2d(x, 2),
    "mean, same": lambda x: ops.avg_pool2d(x, 3, 2, pad_mode="same"),
    "sum": lambda x: ops.sum_pool2d(x, 2, 1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", POOLS)
def test_pools_in_a_loop_are_batched_over_time(name: str) -> None:
    """Pools before, in and after the loop, with gradients, equal single steps."""
    function = POOLS[name]
    rng = np.random.default_rng(3)
    xs = Tensor(rng.normal(size=(4, 2, 3, 6, 8)).astype(np.float32))
    bias = Tensor(rng.normal(size=(2, 3, 6, 8)).astype(np.float32))

    def step(image: Any, small: Any, x: Any, bias: Any) -> tuple[Any, Any, Any]:
        image = ops.tanh(image * 0.9 + x)
        small = small * 0.5 + function(x + bias) + function(image * bias)
        return image, small, function(ops.sin(image)) * 2.0

    def looped(xs: Any, bias: Any) -> Any:
        def both(carry: Any, x: Any) -> Any:
            image, small, y = step(*carry, x, bias)
            return (image, small), y

        (_, small), ys = ops.scan(both, (bias * 0.0, function(bias * 0.0)), xs)
        return small.sum() + (ys * ys).sum()

    def unrolled(xs: Any, bias: Any) -> Any:
        image, small, loss = bias * 0.0, function(bias * 0.0), 0.0
        for t in range(len(xs)):
            image, small, y = step(image, small, xs[t], bias)
            loss = loss + (y * y).sum()
        return small.sum() + loss

    for wrapped in (looped, snncell.jit(looped)):
        np.testing.assert_allclose(wrapped(xs, bias).item(), unrolled(xs, bias).item(), rtol=1e-5)
        pairs = zip(snncell.grad(wrapped, (0, 1))(xs, bias), snncell.grad(unrolled, (0, 1))(xs, bias), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-4, atol=1e-5)


def test_pools_of_only_the_input_are_hoisted_before_the_loop_and_pools_of_results_are_in_its_kernel() -> None:
    def loop(xs: Any) -> Any:
        def step(v: Any, x: Any) -> Any:
            v = v * 0.5 + ops.max_pool2d(x, 2)
            return v, ops.avg_pool2d(v, 2)

        return ops.scan(step, ops.zeros((2, 1, 4, 4)), xs)[1]

    report = snncell.explain(loop, ops.ones((3, 2, 1, 8, 8)), detail="launches")
    before, rest = report.split("for all steps together, before the loop:")[1].split("in the loop:")
    inside, after = rest.split("in the loop, block by block:")
    after = after.split("\n\n")[0]
    assert ["largest" in part for part in (before, inside, after)] == [True, False, False]
    assert ["sum_pool" in part for part in (before, inside, after)] == [False, False, True]


@pytest.mark.compiled
@pytest.mark.slow
def test_any_number_of_threads_gives_the_same_bits() -> None:
    script = """
import hashlib
import numpy as np
import snncell
from snncell import Tensor, ops
x = Tensor(np.random.default_rng(0).normal(size=(32, 16, 40, 41)).astype(np.float32))
for f in (lambda x: ops.max_pool2d(x, 2), lambda x: ops.max_pool2d(x, 3, 2, pad_mode="pad", padding=1),
          lambda x: ops.avg_pool2d(x, 3, 1)):
    weights = Tensor(np.random.default_rng(1).normal(size=f(x).shape).astype(np.float32))
    for y in (f(x), snncell.grad(lambda x: (f(x) * weights).sum())(x)):
        print(hashlib.sha256(y.asnumpy().tobytes()).hexdigest())
"""
    outputs = set()
    for threads in (1, 2, 5):
        environment = {**os.environ, "NUMBA_NUM_THREADS": str(threads)}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout)
    assert len(outputs) == 1
