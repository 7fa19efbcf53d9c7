"""Custom reverses: what becomes of the gradients a bprop returns, to the second order, for Parameters and by hooks."""

import numpy as np
import pytest
from cells import Spy

from snncell import Parameter, Tensor, nn, ops, surrogate

X = Tensor([1.0, 2.0])


# --- what it returns -------------------------------------------------------------------------------------------------


class Returns(nn.Cell):
    """x + b (broadcast), whose reverse is given from outside."""

    def __init__(self, reverse):
        super().__init__()
        self.reverse = reverse

    def construct(self, x, b):
        return x + b

    def bprop(self, x, b, out, dout):
        return self.reverse(x, b, dout)


def test_none_counts_as_zeros(run):
    cell = Returns(lambda x, b, dout: (None, dout))
    of_x, of_b = run(ops.grad(cell, (0, 1)))(X, X)
    assert of_x.asnumpy().tolist() == [0.0, 0.0] and of_b.asnumpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (1, 1, 1)], ids=str)
def test_a_larger_gradient_is_summed_to_exactly_the_inputs_shape(run, shape):
    cell = Returns(lambda x, b, dout: (dout, dout))
    weights = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    of_b = run(ops.grad(lambda x, b: cell(x, b) * weights, 1))(ops.zeros((2, 3)), ops.zeros(shape))
    full = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {
        (): 15.0,
        (1,): [15.0],
        (3,): [3.0, 5.0, 7.0],
        (1, 3): [[3.0, 5.0, 7.0]],
        (2, 1): full.sum(1, keepdims=True).tolist(),
        (1, 1, 1): [[[15.0]]],
    }[shape]
    assert of_b.shape == shape and of_b.asnumpy().tolist() == expected


def test_a_gradient_of_shape_one_for_a_scalar_becomes_a_scalar(run):
    cell = Returns(lambda x, b, dout: (dout, dout.sum().reshape((1,))))
    of_b = run(ops.grad(cell, 1))(X, Tensor(0.5))
    assert of_b.shape == () and of_b.item() == 2.0


@pytest.mark.parametrize(
    ("given", "of_input"), [("float64", "float32"), ("float16", "float32"), ("float32", "float64")]
)
def test_a_float_gradient_is_cast_to_the_inputs_float_type(run, given, of_input):
    cell = Returns(lambda x, b, dout: (dout.astype(given), None))
    found = run(ops.grad(cell))(X.astype(of_input), X)
    assert found.dtype == of_input and found.asnumpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("watched", [False, True], ids=["of a constant", "of what has a gradient"])
def test_what_construct_gives_back_from_outside_gets_no_gradient(run, watched):
    w = Parameter(Tensor([2.0, 3.0]), name="w")

    class Lookup(nn.Cell):
        def construct(self, x):
            return w

        def bprop(self, x, out, dout):
            return (dout * 10.0,)

    lookup = Lookup()
    of_x, of_w = run(ops.grad(lambda x: lookup(x if watched else X) + x, 0, w))(X)
    assert of_w.asnumpy().tolist() == [0.0, 0.0] and of_x.asnumpy().tolist() == ([11.0] * 2 if watched else [1.0] * 2)


def test_gradients_of_all_uses_of_an_input_add_up(run):
    spy = Spy()
    assert run(ops.grad(lambda x: spy(x) + spy(x) + x))(X).asnumpy().tolist() == [21.0, 21.0]


# --- second order ----------------------------------------------------------------------------------------------------


class Power(nn.Cell):
    """x^3, whose reverse uses x, out and dout, so that each of them carries a part of the second derivative."""

    def construct(self, x):
        return x * x * x

    def bprop(self, x, out, dout):
        return (dout * out * 3.0 / x,)


@pytest.mark.parametrize(("order", "expected"), [(1, 12.0), (2, 12.0), (3, 6.0)])
def test_higher_orders_flow_through_inputs_outputs_and_douts(run, order, expected):
    fn = Power()
    for _ in range(order):
        fn = ops.grad(fn)
    found = run(fn)(Tensor(np.float64(2.0))).item()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_cell_called_in_a_bprop_uses_its_own_bprop_for_the_next_order(run):
    class First(nn.Cell):
        def __init__(self):
            super().__init__()
            self.second = Spy()  # forward 2 x, reverse 10

        def construct(self, x):
            return x * 1.0

        def bprop(self, x, out, dout):
            return (dout * self.second(x),)

    cell = First()
    assert run(ops.grad(cell))(X).asnumpy().tolist() == [2.0, 4.0]
    assert run(ops.grad(ops.grad(cell)))(X).asnumpy().tolist() == [10.0, 10.0]


def test_a_surrogate_is_differentiated_twice(run):
    x = np.array([-0.3, 0.1, 0.4])
    s = 1 / (1 + np.exp(-5 * x))
    found = run(ops.grad(ops.grad(surrogate.relusigmoid())))(Tensor(x))
    # construct gives float32, so the incoming gradient is float32; the sigmoid itself is computed in float64.
    np.testing.assert_allclose(found.asnumpy(), 25 * s * (1 - s) * (1 - 2 * s), rtol=1e-6)


# --- Parameters ------------------------------------------------------------------------------------------------------


class Affine(nn.Cell):
    """w x + b with gradients for both Parameters, the dict in the other order than internal_params."""

    def __init__(self, w=2.0, b=3.0):
        super().__init__()
        self.w = Parameter(Tensor([w]), name="w")
        self.b = Parameter(Tensor([b]), name="b")
        self.internal_params = [self.w, self.b]

    def construct(self, x):
        return x * self.w + self.b

    def bprop(self, x, out, dout):
        return (dout * self.w,), {self.b: dout, self.w: dout * x * 100.0}


def test_gradients_of_parameters_are_matched_by_identity_not_by_order(run):
    cell = Affine()
    of_x, (of_w, of_b) = run(ops.grad(cell, 0, [cell.w, cell.b]))(X)
    assert of_x.asnumpy().tolist() == [2.0, 2.0]
    assert of_w.asnumpy().tolist() == [300.0] and of_b.asnumpy().tolist() == [2.0]  # summed to shape (1,)


def test_gradients_of_parameters_of_several_calls_and_places_add_up(run):
    cell = Affine()
    found = run(ops.grad(lambda x: cell(x) + cell(x) + cell.b, None, cell.b))(X)
    assert found.asnumpy().tolist() == [6.0]


def test_the_bprop_sees_the_value_the_parameter_had_in_the_call():
    cell = Affine()
    _, pull = ops.vjp(cell, X)
    assert pull(ops.ones(2))[0].asnumpy().tolist() == [2.0, 2.0]


def test_parameter_gradients_are_there_without_an_input_gradient(run):
    cell = Affine()
    assert run(ops.grad(lambda: cell(X), None, cell.w))().asnumpy().tolist() == [300.0]


def test_second_order_through_parameter_gradients(run):
    class Square(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor(3.0), name="w")
            self.internal_params = [self.w]

        def construct(self, x):
            return self.w * self.w * x

        def bprop(self, x, out, dout):
            return (dout * self.w * self.w,), {self.w: dout * self.w * x * 2.0}

    cell = Square()
    # d/dw of the gradient 2 w x is 2 x, and d/dx of it 2 w.
    of_x, of_w = run(ops.grad(ops.grad(cell, None, cell.w), 0, cell.w))(Tensor(5.0))
    assert (of_x.item(), of_w.item()) == (6.0, 10.0)


# --- values kept for the reverse -------------------------------------------------------------------------------------


class Keeps(nn.Cell):
    """x^2 by a value that construct kept."""

    def construct(self, x):
        doubled = x * 2.0
        self.save_for_bprop(doubled)
        return x * x

    def bprop(self, x, out, dout):
        (doubled,) = self.saved_for_bprop
        return (dout * doubled,)


def test_kept_values_belong_to_their_call(run):
    cell = Keeps()
    assert run(ops.grad(lambda x: cell(x) + cell(x * 10.0)))(X).asnumpy().tolist() == [202.0, 404.0]


def test_values_on_self_are_those_of_the_last_call():
    class Careless(nn.Cell):
        def construct(self, x):
            self.last = x * 2.0
            return x * x

        def bprop(self, x, out, dout):
            return (dout * self.last,)

    cell = Careless()
    assert ops.grad(lambda x: cell(x))(X).asnumpy().tolist() == [2.0, 4.0]
    # As documented: both reverses see the last value, hence save_for_bprop.
    assert ops.grad(lambda x: cell(x) + cell(x * 10.0))(X).asnumpy().tolist() == [220.0, 440.0]


def test_kept_values_of_a_cell_inside_itself():
    class Twice(Keeps):
        def __init__(self, inner=None):
            super().__init__()
            self.inner = inner

        def construct(self, x):
            y = x if self.inner is None else self.inner(x)
            self.save_for_bprop(y * 2.0)
            return y * y

    found = ops.grad(Twice(Keeps()))(Tensor(3.0))
    assert found.item() == 18.0  # the outer reverse alone, with its own value 2 * 9


def test_nothing_is_kept_outside_of_a_gradient():
    cell = Keeps()
    assert cell(X).asnumpy().tolist() == [1.0, 4.0] and cell.saved_for_bprop == ()


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_forward_hooks_of_a_cell_with_a_reverse_are_called(run):
    spy, seen = Spy(), []
    before = spy.register_forward_pre_hook(lambda cell, args: (args[0] * 2.0,))
    after = spy.register_forward_hook(lambda cell, args, out: seen.append(len(args)) or out * 3.0)
    assert run(ops.grad(spy))(X).asnumpy().tolist() == [60.0, 60.0]  # 2 * 10 * 3
    assert seen == [1]
    before.remove()
    after.remove()
    assert ops.grad(spy)(X).asnumpy().tolist() == [10.0, 10.0] and seen == [1]


def test_hooks_that_return_nothing_change_nothing():
    spy, seen = Spy(), []
    spy.register_forward_pre_hook(lambda cell, args: seen.append(args))
    spy.register_forward_hook(lambda cell, args, out: seen.append(out))
    assert ops.grad(spy)(X).asnumpy().tolist() == [10.0, 10.0] and len(seen) == 2
