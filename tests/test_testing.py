"""Tests of the tester: a reverse that is wrong by a tenth of a percent must fail, and the message must say where."""

import numpy as np
import pytest
from cells import Wrong

from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import GradientCheckError, GradientError

RNG = np.random.default_rng(0)
X, Y = Tensor(RNG.standard_normal((3, 4))), Tensor(RNG.standard_normal((3, 4)))
TENTH_OF_A_PERCENT = 1e-3


# --- check_grads -----------------------------------------------------------------------------------------------------


def test_check_grads_passes_what_is_right():
    testing.check_grads(Wrong(), X, Y, order=2)
    testing.check_grads(lambda x: ops.tanh(x) / (1.0 + x * x), X, order=3, rtol=1e-4)


@pytest.mark.parametrize("which", ["first", "of_y"])
@pytest.mark.parametrize("seed", range(5))
def test_check_grads_finds_a_first_order_off_by_a_tenth_of_a_percent(which, seed):
    with pytest.raises(GradientCheckError, match=r"check_grads, order 1: the reverse gives .* finite differences"):
        testing.check_grads(Wrong(**{which: TENTH_OF_A_PERCENT}), X, Y, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_check_grads_finds_a_wrong_second_order_when_asked_for_it(seed):
    cell = Wrong(second=TENTH_OF_A_PERCENT)
    testing.check_grads(cell, X, Y, order=1, seed=seed)
    with pytest.raises(GradientCheckError, match="order 2"):
        testing.check_grads(cell, X, Y, order=2, seed=seed)


def test_check_grads_finds_one_wrong_entry_in_a_thousand():
    class OneEntry(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

        def bprop(self, x, out, dout):
            factor = np.ones(x.shape)
            factor[617] = 1.01
            return (dout * ops.cos(x) * Tensor(factor),)

    with pytest.raises(GradientCheckError):
        testing.check_grads(OneEntry(), Tensor(np.linspace(0, 1, 1000)))


def test_check_grads_finds_a_sign_a_factor_and_a_transposition():
    class Reverse(nn.Cell):
        def __init__(self, reverse):
            super().__init__()
            self.reverse = reverse

        def construct(self, x):
            return x @ x

        def bprop(self, x, out, dout):
            return (self.reverse(x, dout),)

    square = Tensor(RNG.standard_normal((3, 3)))
    testing.check_grads(Reverse(lambda x, d: d @ x.T + x.T @ d), square)
    for wrong in (
        lambda x, d: -(d @ x.T + x.T @ d),
        lambda x, d: d @ x.T,
        lambda x, d: d @ x + x @ d,
        lambda x, d: d * 0.0,
    ):
        with pytest.raises(GradientCheckError):
            testing.check_grads(Reverse(wrong), square)


def test_check_grads_computes_in_float64():
    testing.check_grads(Wrong(), X.astype("float32"), Y.astype("float16"))
    with pytest.raises(GradientCheckError):
        testing.check_grads(Wrong(first=1e-3), X.astype("float32"), Y.astype("float16"))


def test_check_grads_takes_integers_and_options_along():
    indices = Tensor([0, 2, 2])
    testing.check_grads(lambda x, i, scale: ops.gather(x, i, 0) * scale, X, indices, 3.0)


def test_check_grads_looks_at_all_outputs():
    class Second(nn.Cell):
        def construct(self, x):
            return x * 2.0, {"b": x * 3.0, "n": x > 0}

        def bprop(self, x, out, dout):
            return (dout[0] * 2.0 + dout[1]["b"] * 3.003,)

    with pytest.raises(GradientCheckError):
        testing.check_grads(Second(), X)
    testing.check_grads(lambda x: Second()(x)[0], X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_check_grads_does_not_pass_nan():
    class NotANumber(nn.Cell):
        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            return (dout * float("nan"),)

    with pytest.raises(GradientCheckError, match="nan"):
        testing.check_grads(NotANumber(), X)
    with pytest.raises(GradientCheckError, match="nan"):
        testing.check_grads(lambda x: ops.log(x - 100.0), X)


def test_check_grads_does_not_pass_a_step():
    with pytest.raises(GradientCheckError):
        testing.check_grads(surrogate.ATan(), X)


def test_check_grads_refuses_to_check_nothing():
    with pytest.raises(GradientError, match="no float Tensor among the inputs"):
        testing.check_grads(lambda n: n, Tensor([1, 2]))
    with pytest.raises(GradientError, match="returned no float Tensor"):
        testing.check_grads(lambda x: x > 0, X)


def test_check_grads_leaves_its_inputs_alone():
    before = X.asnumpy().copy()
    testing.check_grads(Wrong(), X, Y)
    np.testing.assert_array_equal(X.asnumpy(), before)


def test_check_grads_draws_the_same_random_numbers_at_every_point():
    testing.check_grads(lambda x: ops.dropout(x, 0.5) * x, X)
