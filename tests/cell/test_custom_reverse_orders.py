"""Gradients of the second order of loops with custom reverses that lead where their forward does not.

A reverse may use what `construct` never looks at, and lead on from what the first order merely takes. Loops keep the
least that the first order needs, so the second order may need more.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest
from interpreting import interpreted

import snncell
from snncell import Parameter, Tensor, nn, ops, testing

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
    """Passes nothing on in the first order: what it is given is a factor of its Parameter's gradient."""

    def __init__(self, p):
        super().__init__()
        self.internal_params = [p]

    def construct(self, a):
        return ops.ones_like(a)

    def bprop(self, a, out, dout):
        return (None,), {self.internal_params[0]: (a * dout).sum(keepdims=True)}


def loss_of(cell, operands, p, every=None):
    """A loss of the initial state and the sequence, of a loop whose reverse takes what `cell` gives."""
    reader = Reader(p)

    def step(c, x):
        read = reader(cell(*OPERANDS[operands](c, x, p)))
        return read, read * x

    def loss(c, xs):
        c, ys = ops.scan(step, c, xs, checkpoint_every=every)
        return (c * c).sum() + (ys * Tensor(WEIGHTS)).sum()

    return loss


def slope_of(loss, p):
    """A number that all first-order gradients of a loss have a part in."""

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
def test_a_second_order_has_what_only_its_reverse_leads_to(interpreted, forward, of_first, of_second):
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
def test_second_orders_through_a_jitted_loop(interpreted, operands):
    for forward, of_first in product(FORWARDS, GRADIENTS):
        cell, p = odd(forward, of_first, "second"), Parameter(np.array([0.4]))
        loss, given = loss_of(cell, operands, p), (Tensor(STATE), Tensor(XS))
        with testing.unfused():
            expected = numbers(snncell.grad(slope_of(loss, p), (0, 1), p)(*given))
        found = numbers(snncell.grad(slope_of(snncell.jit(loss), p), (0, 1), p)(*given))
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12, err_msg=f"{forward}, {of_first}")


def assert_second_orders(loss, p, case):
    """Assert that second-order gradients of a loss are in every mode those of the loop step by step."""
    given = Tensor(STATE), Tensor(XS)
    with testing.unfused():
        expected = numbers(snncell.grad(slope_of(loss, p), (0, 1), p)(*given))
    found = {mode: second(slope_of(loss, p), p)(*given) for mode, second in MODES.items()}
    found["through jit"] = snncell.grad(slope_of(snncell.jit(loss), p), (0, 1), p)(*given)
    for mode, mine in found.items():
        for a, b in zip(numbers(mine), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=f"{case}, {mode}")


class Calling(nn.Cell):
    """Its bprop calls a Cell, whose own bprop leads on to inputs that nothing looks at before."""

    def __init__(self, cell, p):
        super().__init__()
        self.cell, self.internal_params = cell, [p]

    def construct(self, a, b):
        return ops.ones_like(a)

    def bprop(self, a, b, out, dout):
        return (None, None), {self.internal_params[0]: (self.cell(a, b) * dout).sum(keepdims=True)}


@pytest.mark.sampled(3)
@pytest.mark.uncompiled
@pytest.mark.parametrize(("of_first", "of_second"), list(product(GRADIENTS, GRADIENTS)))
@pytest.mark.parametrize("forward", FORWARDS)
def test_a_second_order_has_what_a_cell_within_a_reverse_leads_to(interpreted, forward, of_first, of_second):
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


def test_a_loop_in_a_loop_that_computes_states_again_is_the_same_whoever_runs_it(interpreted):
    """Steps that run again are traced under a tape, which keeps more inputs of an inner loop than running needs."""
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
@pytest.mark.parametrize("of_second", ["plain", "second"])  # without and with what is looked at
@pytest.mark.parametrize("off_tape", ["integers", "written"])
def test_a_second_order_has_the_states_that_are_on_no_tape(interpreted, off_tape, of_second):
    """A Cell that a bprop calls reads, in its own bprop, a state of integers, or a Parameter that the step writes."""
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
            ops.assign(written, written * 1.0)  # the same: step by step, a bprop sees the last value
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
