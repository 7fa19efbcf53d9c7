"""Gradients returned by a custom bprop: for inputs and Parameters, with hooks, in loops, of second order."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from cells import Spy
from interpreting import interpreted

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate, testing

X = Tensor([1.0, 2.0])


# --- returned gradients -----------------------------------------------------------------------------------------------


class Returns(nn.Cell):
    """x + b (broadcast), where the test sets the result of bprop."""

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
def test_larger_gradient_is_summed_to_the_shape_of_the_input(run, shape):
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


def test_gradient_of_shape_one_for_a_scalar_becomes_a_scalar(run):
    cell = Returns(lambda x, b, dout: (dout, dout.sum().reshape((1,))))
    of_b = run(ops.grad(cell, 1))(X, Tensor(0.5))
    assert of_b.shape == () and of_b.item() == 2.0


@pytest.mark.parametrize(
    ("given", "of_input"), [("float64", "float32"), ("float16", "float32"), ("float32", "float64")]
)
def test_float_gradient_is_cast_to_the_float_dtype_of_the_input(run, given, of_input):
    cell = Returns(lambda x, b, dout: (dout.astype(given), None))
    found = run(ops.grad(cell))(X.astype(of_input), X)
    assert found.dtype == of_input and found.asnumpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("watched", [False, True], ids=["of a constant", "of what has a gradient"])
def test_captured_parameter_returned_by_construct_gets_no_gradient(run, watched):
    w = Parameter(Tensor([2.0, 3.0]), name="w")

    class Lookup(nn.Cell):
        def construct(self, x):
            return w

        def bprop(self, x, out, dout):
            return (dout * 10.0,)

    lookup = Lookup()
    of_x, of_w = run(ops.grad(lambda x: lookup(x if watched else X) + x, 0, w))(X)
    assert of_w.asnumpy().tolist() == [0.0, 0.0] and of_x.asnumpy().tolist() == ([11.0] * 2 if watched else [1.0] * 2)


def test_gradients_of_all_uses_of_an_input_are_summed(run):
    spy = Spy()
    assert run(ops.grad(lambda x: spy(x) + spy(x) + x))(X).asnumpy().tolist() == [21.0, 21.0]


# --- second order -----------------------------------------------------------------------------------------------------


class Power(nn.Cell):
    """x^3, with a bprop that uses x, out and dout, so that each carries a part of the second derivative."""

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


def test_cell_called_in_a_bprop_uses_its_own_bprop_for_the_next_order(run):
    class First(nn.Cell):
        def __init__(self):
            super().__init__()
            self.second = Spy()  # forward 2 x, gradient 10

        def construct(self, x):
            return x * 1.0

        def bprop(self, x, out, dout):
            return (dout * self.second(x),)

    cell = First()
    assert run(ops.grad(cell))(X).asnumpy().tolist() == [2.0, 4.0]
    assert run(ops.grad(ops.grad(cell)))(X).asnumpy().tolist() == [10.0, 10.0]


def test_surrogate_has_a_second_derivative(run):
    x = np.array([-0.3, 0.1, 0.4])
    s = 1 / (1 + np.exp(-5 * x))
    found = run(ops.grad(ops.grad(surrogate.relusigmoid())))(Tensor(x))
    # construct gives float32, so the incoming gradient is float32; the sigmoid itself is computed in float64.
    np.testing.assert_allclose(found.asnumpy(), 25 * s * (1 - s) * (1 - 2 * s), rtol=1e-6)


# --- Parameters -------------------------------------------------------------------------------------------------------


class Affine(nn.Cell):
    """w x + b with gradients for both Parameters, in another order than internal_params."""

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


def test_gradients_of_parameters_are_summed_over_calls_and_places(run):
    cell = Affine()
    found = run(ops.grad(lambda x: cell(x) + cell(x) + cell.b, None, cell.b))(X)
    assert found.asnumpy().tolist() == [6.0]


def test_bprop_sees_the_parameter_value_of_the_call():
    cell = Affine()
    _, pull = ops.vjp(cell, X)
    assert pull(ops.ones(2))[0].asnumpy().tolist() == [2.0, 2.0]


def test_parameter_gradients_exist_without_an_input_gradient(run):
    cell = Affine()
    assert run(ops.grad(lambda: cell(X), None, cell.w))().asnumpy().tolist() == [300.0]


def test_second_order_through_parameter_gradients_is_correct(run):
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


# --- values saved for bprop -------------------------------------------------------------------------------------------


class Keeps(nn.Cell):
    """x^2, with the gradient from a value saved by construct."""

    def construct(self, x):
        doubled = x * 2.0
        self.save_for_bprop(doubled)
        return x * x

    def bprop(self, x, out, dout):
        (doubled,) = self.saved_for_bprop
        return (dout * doubled,)


def test_saved_values_belong_to_their_call(run):
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
    # As documented, both calls of bprop see the last value. This is why save_for_bprop exists.
    assert ops.grad(lambda x: cell(x) + cell(x * 10.0))(X).asnumpy().tolist() == [220.0, 440.0]


def test_saved_values_of_nested_calls_of_one_cell_are_separate():
    class Twice(Keeps):
        def __init__(self, inner=None):
            super().__init__()
            self.inner = inner

        def construct(self, x):
            y = x if self.inner is None else self.inner(x)
            self.save_for_bprop(y * 2.0)
            return y * y

    found = ops.grad(Twice(Keeps()))(Tensor(3.0))
    assert found.item() == 18.0  # the outer gradient alone, with its saved value 2 * 9


def test_nothing_is_saved_without_a_gradient():
    cell = Keeps()
    assert cell(X).asnumpy().tolist() == [1.0, 4.0] and cell.saved_for_bprop == ()


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_forward_hooks_of_a_cell_with_custom_gradient_are_called(run):
    spy, seen = Spy(), []
    before = spy.register_forward_pre_hook(lambda cell, args: (args[0] * 2.0,))
    after = spy.register_forward_hook(lambda cell, args, out: seen.append(len(args)) or out * 3.0)
    assert run(ops.grad(spy))(X).asnumpy().tolist() == [60.0, 60.0]  # 2 * 10 * 3
    assert seen == [1]
    before.remove()
    after.remove()
    assert ops.grad(spy)(X).asnumpy().tolist() == [10.0, 10.0] and seen == [1]


def test_hooks_that_return_none_change_nothing():
    spy, seen = Spy(), []
    spy.register_forward_pre_hook(lambda cell, args: seen.append(args))
    spy.register_forward_hook(lambda cell, args, out: seen.append(out))
    assert ops.grad(spy)(X).asnumpy().tolist() == [10.0, 10.0] and len(seen) == 2


# --- second-order gradients of loops with custom gradients ------------------------------------------------------------

__all__ = ["interpreted"]  # a fixture

CONSTANT = Tensor(np.array([0.7, -0.4]))
FORWARDS = {
    "constant": lambda a, b: CONSTANT,
    "first": lambda a, b: a,
    "product": lambda a, b: a * b,
}
GRADIENTS = {
    "none": lambda a, b, out, dout: None,
    "plain": lambda a, b, out, dout: dout,
    "first": lambda a, b, out, dout: a * dout,
    "second": lambda a, b, out, dout: b * b * dout,
    "output": lambda a, b, out, dout: out * dout,
}
OPERANDS = {
    "state, sequence": lambda c, x, p: (c, x),
    "parameter, state": lambda c, x, p: (p * ops.ones_like(c), c),
    "state, parameter": lambda c, x, p: (c * 0.5, p + c),
}
MODES = {
    "eager": lambda slope, p: snncell.grad(slope, (0, 1), p),
    "jit of gradient": lambda slope, p: snncell.jit(snncell.grad(slope, (0, 1), p)),
}
RNG = np.random.default_rng(5)
XS, STATE, WEIGHTS = RNG.uniform(-1, 1, (3, 2)), RNG.uniform(-1, 1, 2), RNG.uniform(-1, 1, (3, 2))


def odd(forward, of_first, of_second):
    class Odd(nn.Cell):
        def construct(self, a, b):
            return FORWARDS[forward](a, b)

        def bprop(self, a, b, out, dout):
            return GRADIENTS[of_first](a, b, out, dout), GRADIENTS[of_second](a, b, out, dout)

    return Odd()


class Reader(nn.Cell):
    """Passes no gradient in the first order: its input is a factor of the gradient of its Parameter."""

    def __init__(self, p):
        super().__init__()
        self.internal_params = [p]

    def construct(self, a):
        return ops.ones_like(a)

    def bprop(self, a, out, dout):
        return (None,), {self.internal_params[0]: (a * dout).sum(keepdims=True)}


def loss_of(cell, operands, p, every=None):
    """Return a loss of the initial state and the sequence, for a loop with a custom gradient that uses `cell`."""
    reader = Reader(p)

    def step(c, x):
        read = reader(cell(*OPERANDS[operands](c, x, p)))
        return read, read * x

    def loss(c, xs):
        c, ys = ops.scan(step, c, xs, checkpoint_every=every)
        return (c * c).sum() + (ys * Tensor(WEIGHTS)).sum()

    return loss


def slope_of(loss, p):
    """Return a number that depends on all first-order gradients of a loss."""

    def slope(c, xs):
        (of_c, of_xs), of_p = snncell.grad(loss, (0, 1), p)(c, xs)
        return (of_c * Tensor(WEIGHTS[0])).sum() + (of_xs * of_xs).sum() + of_p.sum() * 0.3

    return slope


def numbers(found):
    (of_c, of_xs), of_p = found
    return [x.asnumpy() for x in (of_c, of_xs, of_p)]


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize(("of_first", "of_second"), list(product(GRADIENTS, GRADIENTS)))
@pytest.mark.parametrize("forward", FORWARDS)
def test_second_order_includes_values_reached_only_by_a_bprop(interpreted, forward, of_first, of_second):
    cell, p = odd(forward, of_first, of_second), Parameter(np.array([0.4]))
    given = Tensor(STATE), Tensor(XS)
    for operands, every in product(OPERANDS, (None, 2)):
        slope = slope_of(loss_of(cell, operands, p, every), p)
        with testing.unfused():
            expected = numbers(snncell.grad(slope, (0, 1), p)(*given))
        for mode, second in MODES.items():
            for mine, theirs in zip(numbers(second(slope, p)(*given)), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12, err_msg=f"{operands}, {every}, {mode}")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("operands", OPERANDS)
def test_second_order_gradients_through_a_jitted_loop_are_correct(interpreted, operands):
    for forward, of_first in product(FORWARDS, GRADIENTS):
        cell, p = odd(forward, of_first, "second"), Parameter(np.array([0.4]))
        loss, given = loss_of(cell, operands, p), (Tensor(STATE), Tensor(XS))
        with testing.unfused():
            expected = numbers(snncell.grad(slope_of(loss, p), (0, 1), p)(*given))
        found = numbers(snncell.grad(slope_of(snncell.jit(loss), p), (0, 1), p)(*given))
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12, err_msg=f"{forward}, {of_first}")


def assert_second_orders(loss, p, case):
    """Assert that second-order gradients of a loss equal those of the step-by-step loop in every mode."""
    given = Tensor(STATE), Tensor(XS)
    with testing.unfused():
        expected = numbers(snncell.grad(slope_of(loss, p), (0, 1), p)(*given))
    found = {mode: second(slope_of(loss, p), p)(*given) for mode, second in MODES.items()}
    found["through jit"] = snncell.grad(slope_of(snncell.jit(loss), p), (0, 1), p)(*given)
    for mode, mine in found.items():
        for a, b in zip(numbers(mine), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=f"{case}, {mode}")


class Calling(nn.Cell):
    """Its bprop calls a Cell with a bprop that uses inputs which no earlier operation uses."""

    def __init__(self, cell, p):
        super().__init__()
        self.cell, self.internal_params = cell, [p]

    def construct(self, a, b):
        return ops.ones_like(a)

    def bprop(self, a, b, out, dout):
        return (None, None), {self.internal_params[0]: (self.cell(a, b) * dout).sum(keepdims=True)}


@pytest.mark.sampled(2)
@pytest.mark.uncompiled
@pytest.mark.parametrize(("of_first", "of_second"), list(product(GRADIENTS, GRADIENTS)))
@pytest.mark.parametrize("forward", FORWARDS)
def test_second_order_includes_values_reached_by_a_cell_inside_a_bprop(interpreted, forward, of_first, of_second):
    p = Parameter(np.array([0.4]))
    calling = Calling(odd(forward, of_first, of_second), p)
    for operands, every in product(OPERANDS, (None, 2)):

        def step(c, x, operands=operands):
            read = calling(*OPERANDS[operands](c, x, p))
            return c * 0.5 + read * 0.1, read * x

        def loss(c, xs, step=step, every=every):
            c, ys = ops.scan(step, c, xs, checkpoint_every=every)
            return (c * c).sum() + (ys * Tensor(WEIGHTS)).sum()

        assert_second_orders(loss, p, f"{operands}, {every}")


def test_nested_loop_with_recomputed_states_gives_equal_results_in_all_modes(interpreted):
    """Recomputed steps are traced under a tape, which keeps more inputs of an inner loop than a plain run needs."""
    unused = Parameter(np.array([0.53]))
    given = Tensor(XS)

    class Blind(nn.Cell):
        def construct(self, a, b):
            return a

        def bprop(self, a, b, out, dout):
            return dout, b * dout

    blind = Blind()

    def inner(c, x):
        return blind(c, unused * c), x * 0.5

    def outer(c, x):
        return c * 0.3 + ops.scan(inner, x, given)[1][-1], c

    def loss(c):
        c, ys = ops.scan(outer, c, given, checkpoint_every=1)
        return (c * c).sum() + ys.sum()

    with testing.unfused():
        expected = snncell.grad(loss, 0, unused)(Tensor(STATE))
    for transformed in (snncell.grad(snncell.jit(loss), 0, unused), snncell.jit(snncell.grad(loss, 0, unused))):
        for mine, theirs in zip(transformed(Tensor(STATE)), expected, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("of_second", ["plain", "second"])  # without and with the observed result
@pytest.mark.parametrize("off_tape", ["integers", "written"])
def test_second_order_includes_states_outside_the_tape(interpreted, off_tape, of_second):
    """A Cell called by a bprop reads, in its own bprop, an integer state or a Parameter that the step writes."""
    written = Parameter(np.array([0.3, -1.2]), requires_grad=False)
    number = {"integers": lambda n: n.astype("float64"), "written": lambda n: written * 1.0}[off_tape]

    class Factor(nn.Cell):
        def construct(self, a, n):
            return ops.ones_like(a)

        def bprop(self, a, n, out, dout):
            return number(n) * dout, None

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.factor = Factor()

        def construct(self, a, b, n):
            return a * 1.0

        def bprop(self, a, b, n, out, dout):
            return GRADIENTS["plain"](a, b, out, dout), GRADIENTS[of_second](a, self.factor(b, n), out, dout), None

    p, outer = Parameter(np.array([0.4])), Outer()

    def step(state, x):
        c, n = state
        if off_tape == "written":
            ops.assign(written, written * 1.0)  # the same value: step by step, a bprop sees the last value
        y = outer(x * p, c, n)
        return (c * 0.5 + y, n * 1), y * c

    def nested(state, x, every):
        c, n = state
        if off_tape == "written":
            ops.assign(written, written * 1.0)
        inner = lambda k, z: (k * 0.5 + outer(z * p, c, n), None)  # noqa: E731
        y, _ = ops.scan(inner, c, ops.stack([x, x * 2.0]), checkpoint_every=every)
        return (c * 0.5 + y, n * 1), y * c

    steps = [step, partial(nested, every=None), partial(nested, every=1)]
    for every, body in product((None, 2), steps):

        def loss(c, xs, every=every, body=body):
            (c, _), ys = ops.scan(body, (c, Tensor(np.array([3, -2]))), xs, checkpoint_every=every)
            return (c * c).sum() + (ys * Tensor(WEIGHTS)).sum()

        assert_second_orders(loss, p, f"{every}, {body}")
