"""Random numbers and dropout: seeds, masks shared by forward and backward pass, one generator per thread."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
import snncell as ms
from snncell import Tensor, nn, ops
from snncell.errors import ArgumentError, ShapeError

DRAWS = {
    "uniform": lambda: ops.uniform((3, 4)),
    "normal": lambda: ops.normal((3, 4)),
    "randint": lambda: ops.randint(0, 1000, (3, 4)),
    "randperm": lambda: ops.randperm(50),
    "bernoulli": lambda: ops.bernoulli(Tensor(np.full((8, 8), 0.5))),
    "dropout": lambda: ops.dropout(Tensor(np.ones((8, 8)))),
    "dropout2d": lambda: ops.dropout2d(Tensor(np.ones((8, 8, 1))))[0],
}
each_draw = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def three(draw) -> list[np.ndarray]:
    return [draw().asnumpy() for _ in range(3)]


@each_draw
def test_same_seed_repeats_numbers_and_each_call_differs(draw):
    ops.set_seed(5)
    first = three(draw)
    ops.set_seed(5)
    np.testing.assert_array_equal(three(draw), first)
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[1], first[2])
    ops.set_seed(6)
    assert not np.array_equal(draw().asnumpy(), first[0])


@pytest.mark.compiled
@each_draw
def test_jitted_draws_equal_eager_draws(draw):
    ops.set_seed(5)
    eager = three(draw)
    ops.set_seed(5)
    np.testing.assert_array_equal(three(ms.jit(draw)), eager)


@pytest.mark.compiled
def test_two_draws_in_one_jitted_function_differ():
    a, b = ms.jit(lambda: (ops.uniform((8,)), ops.uniform((8,))))()
    assert not np.array_equal(a.asnumpy(), b.asnumpy())


def test_distributions_have_their_means_and_bounds():
    n = 40_000  # with these seeds, means are within 4 standard deviations
    x = ops.uniform((n,), -1.0, 3.0).asnumpy()
    assert x.dtype == np.float32 and -1 <= x.min() < -0.99 and 2.99 < x.max() < 3 and abs(x.mean() - 1) < 0.025
    x = ops.normal((n,), 2.0, 0.5, ms.float64).asnumpy()
    assert x.dtype == np.float64 and abs(x.mean() - 2) < 0.01 and abs(x.std() - 0.5) < 0.01
    x = ops.bernoulli(Tensor(np.full(n, 0.3))).asnumpy()
    assert x.dtype == np.float64 and set(x) == {0, 1} and abs(x.mean() - 0.3) < 0.01
    x = ops.randint(-2, 3, (n,)).asnumpy()
    assert x.dtype == np.int64 and set(x) == {-2, -1, 0, 1, 2}
    np.testing.assert_array_equal(np.sort(ops.randperm(100).asnumpy()), np.arange(100))


def test_bernoulli_with_probability_zero_or_one():
    np.testing.assert_array_equal(ops.bernoulli(Tensor([0.0, 1.0] * 50)).asnumpy(), [0, 1] * 50)


def test_longer_uniform_draw_begins_with_the_shorter_one():
    """An element is a function of (seed, call, position)."""
    ops.set_seed(1)
    short = ops.uniform((100,)).asnumpy()
    ops.set_seed(1)
    np.testing.assert_array_equal(ops.uniform((1000,)).asnumpy()[:100], short)


@pytest.mark.parametrize(("low", "high"), [(0, 7), (-5, 2**33), (-(2**63), 2**63), (2**62, 2**63)])
def test_integers_are_the_upper_half_of_a_random_product(low: int, high: int) -> None:
    ops.set_seed(4)
    key = np.array([4, 0], np.uint64)
    words = np.random.Philox(key=key).random_raw(50)
    wanted = [low + (int(word) * (high - low) >> 64) for word in words]
    assert ops.randint(low, high, (50,)).tolist() == wanted


def test_normal_numbers_have_the_right_moments_and_tails() -> None:
    ops.set_seed(1)
    x = ops.normal((200_001,)).asnumpy().astype(np.float64)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs((x**power).mean() - moment) < 4 * math.sqrt(math.prod(range(1, 2 * power, 2)) / len(x))
    assert 4 < np.abs(x).max() < 6
    assert abs((np.abs(x) > 1.959964).mean() - 0.05) < 0.002
    assert abs(np.corrcoef(x[:-1:2], x[1::2])[0, 1]) < 0.01


# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, pytest.param(ms.jit, marks=pytest.mark.compiled)], ids=["eager", "jit"])
def test_dropout_gradient_uses_the_mask_of_the_forward_pass(wrap):
    @wrap
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        out, pull = ops.vjp(lambda v: ops.dropout(v, 0.25), x)
        return out, pull(ops.ones_like(out))[0]

    for _ in range(2):
        out, slope = (part.asnumpy() for part in run(Tensor(np.full((40, 40), 2.0))))
        assert set(np.unique(slope)) == {0, 1 / 0.75}
        np.testing.assert_array_equal(out, 2 * slope)
        assert 0.7 < (out > 0).mean() < 0.8


@pytest.mark.compiled
def test_jitted_dropout_gradient_uses_the_mask_of_the_forward_pass():
    """The backward pass of a jitted call recomputes the forward pass. It must not draw a new mask or use up a key."""
    x = Tensor(np.full((40, 40), 2.0))
    jitted = ms.jit(lambda v: ops.dropout(v, 0.25))
    out, pull = ops.vjp(jitted, x)
    np.testing.assert_array_equal(pull(ops.ones_like(out))[0].asnumpy() * 2, out.asnumpy())


def test_dropout_mask_broadcasts_along_shared_axes():
    out = ops.dropout(Tensor(np.ones((20, 30))), 0.5, (1,)).asnumpy()
    assert set(out[:, 0]) == {0, 2}
    np.testing.assert_array_equal(out, np.broadcast_to(out[:, :1], out.shape))
    ops.set_seed(3)
    last = ops.dropout(Tensor(np.ones((20, 30))), 0.5, (-1,)).asnumpy()
    ops.set_seed(3)
    np.testing.assert_array_equal(last, ops.dropout(Tensor(np.ones((20, 30))), 0.5, (1,)).asnumpy())
    with pytest.raises(ShapeError, match="dropout: axis 2 of a Tensor with 2 axes"):
        ops.dropout(ops.ones((20, 30)), 0.5, (2,))


def test_dropout2d_drops_whole_channels_and_returns_its_mask():
    x = Tensor(np.full((10, 10, 3, 2), 3.0, np.float32))
    out, mask = ops.dropout2d(x, 0.75)
    assert mask.dtype == ms.bool_ and mask.shape == x.shape
    np.testing.assert_array_equal(out.asnumpy(), np.where(mask.asnumpy(), 4.0, 0.0).astype(np.float32))
    kept = mask.asnumpy().reshape(100, 6)
    assert set(kept.sum(1)) == {0, 6}
    assert 60 < kept[:, 0].sum() < 90


@pytest.mark.parametrize("x", [[[[1.0, np.inf]]], [[[-2.0, 3.0]]]])
def test_keep_probability_zero_and_one(x):
    x = Tensor(x)
    for nothing in (ops.dropout(x, 1.0), ops.dropout(x, 1), ops.dropout2d(x, 0.0)[0], ops.Dropout2D(0.0)(x)[0]):
        np.testing.assert_array_equal(nothing.asnumpy(), np.zeros(x.shape))
    for everything in (ops.dropout(x, 0.0), ops.dropout2d(x, 1.0)[0], ops.Dropout(1.0)(x), ops.dropout2d(x, 1)[0]):
        np.testing.assert_array_equal(everything.asnumpy(), x.asnumpy())
    for f in (lambda v: ops.dropout(v, 1.0), lambda v: ops.dropout2d(v, 0.0)[0]):
        np.testing.assert_array_equal(ms.grad(f)(x).asnumpy(), np.zeros(x.shape))


@pytest.mark.parametrize("dtype", [ms.float16, ms.float32, ms.float64], ids=str)
def test_dropout_keeps_the_dtype(dtype):
    x = Tensor(np.ones((2, 3, 4)), dtype)
    assert ops.dropout(x).dtype == ops.dropout2d(x)[0].dtype == dtype
    assert ms.grad(ops.dropout)(x).dtype == dtype
    assert ops.bernoulli(Tensor(0.5, dtype)).dtype == dtype


# --- errors -----------------------------------------------------------------------------------------------------------

BAD = [-0.1, 1.1, float("nan"), True, "0.5", None]


@pytest.mark.parametrize("p", BAD, ids=repr)
def test_probability_must_be_between_0_and_1(p):
    x = Tensor(np.ones((2, 3, 4)))
    with pytest.raises(ArgumentError, match=r"dropout: p is a finite number in \[0, 1\], not"):
        ops.dropout(x, p)
    with pytest.raises(ArgumentError, match=r"(D|d)ropout2(D|d): keep_prob is a (finite )?number in \[0, 1\], not"):
        ops.dropout2d(x, p)
    with pytest.raises(ArgumentError, match=r"(D|d)ropout2(D|d): keep_prob is a (finite )?number in \[0, 1\], not"):
        ops.Dropout2D(p)
    with pytest.raises(ArgumentError, match=r"Dropout: keep_prob is a finite number in \[0, 1\], not"):
        ops.Dropout(p)


def test_invalid_bernoulli_probabilities_raise():
    for p in (-0.1, 1.5):
        with pytest.raises(ArgumentError, match=r"bernoulli: p is a number in \[0, 1\], not"):
            ops.bernoulli(p)


def test_invalid_arguments_of_random_operations_raise():
    with pytest.raises(ArgumentError, match=r"randint: high=2 must be above low=2"):
        ops.randint(2, 2, (3,))
    with pytest.raises(ArgumentError, match=r"randint: numbers from low=0 up to high=18446744073709551616 do not fit"):
        ops.randint(0, 2**64, (3,))
    with pytest.raises(ArgumentError, match="uniform: draws float32 or float64, not Float16"):
        ops.uniform((2,), dtype=ms.float16)
    with pytest.raises(ArgumentError, match=r"normal: shape is an integer or a list of integers, not 2\.5"):
        ops.normal(2.5)
    with pytest.raises(ShapeError, match=r"uniform: shape \(-1,\) has a negative length"):
        ops.uniform((-1,))
    with pytest.raises(ShapeError, match=r"Dropout2D: takes \(N, C, ...\), but the shape is \(2, 3\)"):
        ops.dropout2d(ops.ones((2, 3)))
    with pytest.raises(ArgumentError, match=r"randperm: n .*-1"):
        ops.randperm(-1)


@pytest.mark.parametrize("number", [-1, 2**63, 1.5, "7", None])
def test_seed_and_calls_must_be_non_negative_integers(number):
    with pytest.raises(ArgumentError, match=r"set_seed: (the )?seed "):
        ops.set_seed(number)
    with pytest.raises(ArgumentError, match="set_seed: calls "):
        ops.set_seed(0, number)


def test_calls_skip_that_many_draws() -> None:
    snncell.set_seed(3)
    draws = [ops.uniform((4,)).tolist() for _ in range(3)]
    snncell.set_seed(3, calls=2)
    assert ops.uniform((4,)).tolist() == draws[2]


# --- one generator per thread -----------------------------------------------------------------------------------------

HOW: dict[str, Callable[[], Callable[[], Any]]] = {
    "eager": lambda: lambda: ops.uniform((3,)),
    "jitted": lambda: snncell.jit(lambda: ops.normal((3,))),
    "dropout": lambda: snncell.jit(lambda: ops.dropout(ops.ones(8), 0.5)),
    "loop": lambda: lambda: ops.scan(lambda c, x: (c + x * ops.uniform(()), c), ops.zeros(()), ops.ones((4,)))[0],
}


def on_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.compiled
@pytest.mark.parametrize("how", HOW)
def test_threads_with_a_seed_do_not_affect_each_other(how: str) -> None:
    draw = HOW[how]()

    def sequence(seed: int) -> list[Any]:
        snncell.set_seed(seed)
        return [np.array(draw().asnumpy()) for _ in range(30)]

    alone = [sequence(seed) for seed in range(3)]
    snncell.set_seed(9)
    first = draw().asnumpy()
    found: dict[int, Any] = {}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=lambda n=n: found.update({n: sequence(n)})) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for seed in range(3):
        np.testing.assert_array_equal(found[seed], alone[seed])
    second = draw().asnumpy()
    snncell.set_seed(9)
    np.testing.assert_array_equal([draw().asnumpy(), draw().asnumpy()], [first, second])


def test_threads_without_a_seed_use_the_main_seed_and_their_number() -> None:
    def two_threads() -> list[Any]:
        return [on_thread(lambda: ops.uniform((4,)).tolist()) for _ in range(2)]

    snncell.set_seed(3)
    before = two_threads()
    snncell.set_seed(3)
    main = ops.uniform((4,)).tolist()
    assert two_threads() == before
    assert before[0] != before[1] and main not in before
    snncell.set_seed(4)
    assert two_threads() != before


def test_seed_set_in_a_thread_is_local() -> None:
    snncell.set_seed(3)
    expected = ops.uniform((4,)).tolist()
    snncell.set_seed(3)
    on_thread(lambda: snncell.set_seed(5))
    assert ops.uniform((4,)).tolist() == expected


@pytest.mark.parametrize("arguments", [(-1,), (2**63,), (0, -1), (0, 2**63)])
def test_seeds_out_of_range_raise(arguments: Any) -> None:
    snncell.set_seed(3)
    expected = ops.uniform((4,)).tolist()
    snncell.set_seed(3)
    with pytest.raises(ValueError, match=r"set_seed: .* must lie in \[0, 2\^63\)"):
        snncell.set_seed(*arguments)
    assert ops.uniform((4,)).tolist() == expected


def test_initial_weights_in_a_thread_depend_only_on_its_seed() -> None:
    def make_weights() -> Any:
        snncell.set_seed(7)
        return nn.Dense(3, 2).weight.asnumpy().tolist()

    assert on_thread(make_weights) == make_weights()
