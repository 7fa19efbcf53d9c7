"""Custom reverses: the numeric check at each call, and exceptions inside a bprop."""

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import BpropError, TraceError

X = Tensor([1.0, 2.0])


@pytest.fixture(params=["eager", pytest.param("jit", marks=pytest.mark.compiled)])
def run(request):
    """The way a function is run: as it is, or compiled (the bprop is then called while tracing)."""
    return (lambda fn: fn) if request.param == "eager" else snncell.jit


# --- bprop_debug -----------------------------------------------------------------------------------------------------


class Sine(nn.Cell):
    def __init__(self, wrong_at=None, error=0.01):
        super().__init__()
        self.wrong_at, self.error = wrong_at, error
        self.bprop_debug = True

    def construct(self, x):
        return ops.sin(x)

    def bprop(self, x, out, dout):
        if self.wrong_at is None:
            return (dout * ops.cos(x),)
        factor = np.ones(x.shape, np.float32)
        factor[self.wrong_at] += self.error
        return (dout * ops.cos(x) * Tensor(factor),)


GRID = Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))


def test_debug_lets_a_right_reverse_pass():
    np.testing.assert_allclose(ops.grad(Sine())(GRID).asnumpy(), np.cos(GRID.asnumpy()), rtol=1e-6)


def test_debug_names_the_cell_the_input_and_the_worst_index():
    with pytest.raises(BpropError, match=r"bprop of Sine gives .* for input 0 at index \(1, 2\)"):
        ops.grad(Sine(wrong_at=(1, 2)))(GRID)


def test_debug_is_off_by_default():
    cell = Sine(wrong_at=(1, 2))
    cell.bprop_debug = False
    assert ops.grad(cell)(GRID).shape == (3, 4)


def test_debug_checks_the_gradients_of_parameters():
    class Times(nn.Cell):
        def __init__(self, error):
            super().__init__()
            self.w = Parameter(Tensor([2.0]), name="w")
            self.internal_params = [self.w]
            self.error = error
            self.bprop_debug = True

        def construct(self, x):
            return x * self.w

        def bprop(self, x, out, dout):
            return (dout * self.w,), {self.w: (dout * x).sum().reshape((1,)) * (1.0 + self.error)}

    assert ops.grad(Times(0.0))(X).asnumpy().tolist() == [2.0, 2.0]
    with pytest.raises(BpropError, match=r"bprop of Times gives .* for Parameter 'w' at index \(0,\)"):
        ops.grad(Times(0.01))(X)


def test_debug_draws_the_random_numbers_of_the_call_again():
    class Noisy(nn.Cell):
        def construct(self, x):
            return ops.dropout(x, 0.5)

        def bprop(self, x, out, dout):
            return (dout * (out != 0.0).astype("float32") * 2.0,)

    snncell.set_seed(5)
    expected = Noisy()(GRID).asnumpy(), ops.uniform((3,)).asnumpy()
    cell = Noisy()
    cell.bprop_debug = True
    snncell.set_seed(5)
    found = ops.grad(cell)(GRID)
    assert (found.asnumpy() == np.where(expected[0] != 0, 2.0, 0.0)).all()
    assert (ops.uniform((3,)).asnumpy() == expected[1]).all()  # the check leaves the sequence where it was


def test_debug_of_a_step_against_its_primitive():
    class Step(nn.Cell):
        def __init__(self, slope):
            super().__init__()
            self.slope = slope
            self.bprop_debug = True

        def construct(self, x):
            return (x > 0.0).astype("float32")

        def bprop(self, x, out, dout):
            s = ops.sigmoid(x * 5.0)
            return (dout * s * (1.0 - s) * self.slope,)

        def primitive(self, x):
            return ops.sigmoid(x * 5.0)

    assert ops.grad(Step(5.0))(GRID).shape == (3, 4)
    with pytest.raises(BpropError, match=r"bprop of Step gives .* its primitive gives"):
        ops.grad(Step(4.9))(GRID)


class Adds(nn.Cell):
    """x + b, b being broadcast; what the reverse returns for b is given from outside."""

    def __init__(self, of_b):
        super().__init__()
        self.of_b = of_b
        self.bprop_debug = True

    def construct(self, x, b):
        return x + b

    def bprop(self, x, b, out, dout):
        return dout, self.of_b(dout)


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1,), ()], ids=str)
def test_debug_compares_after_the_gradient_is_summed_to_its_input(shape):
    found = ops.grad(Adds(lambda dout: dout), 1)(GRID, ops.ones(shape))
    assert found.shape == shape and found.sum().item() == 12.0


def test_debug_sees_that_none_stands_for_zeros():
    with pytest.raises(BpropError, match="bprop of Adds gives 0 for input 1"):
        ops.grad(Adds(lambda dout: None), (0, 1))(GRID, ops.ones(4))


def test_debug_may_be_switched_on_between_forward_and_reverse():
    cell = Sine(wrong_at=(0, 0))
    cell.bprop_debug = False
    _, pull = ops.vjp(cell, GRID)
    cell.bprop_debug = True
    with pytest.raises(BpropError, match="bprop of Sine"):
        pull(ops.ones((3, 4)))


@pytest.mark.compiled
def test_debug_under_jit_says_that_it_needs_values():
    with pytest.raises(TraceError, match=r"Sine\.bprop_debug.*Run eagerly"):
        snncell.jit(ops.grad(Sine()))(GRID)


# --- exceptions ------------------------------------------------------------------------------------------------------


def test_an_exception_in_a_bprop_comes_through_unchanged_with_a_note(run):
    class Breaks(nn.Cell):
        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table") as caught:
        run(ops.grad(Breaks()))(X)
    assert type(caught.value) is LookupError
    assert any("Breaks" in note for note in caught.value.__notes__)


def test_a_cell_works_after_its_bprop_has_failed():
    class Once(nn.Cell):
        failed = False

        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            if not self.failed:
                self.failed = True
                raise LookupError("the first time")
            return (dout * 2.0,)

    cell = Once()
    with pytest.raises(LookupError):
        ops.grad(cell)(X)
    assert ops.grad(cell)(X).asnumpy().tolist() == [2.0, 2.0]
