"""Custom gradients of values that are constant over a loop: every kind of operand, Cell, position and mode."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.testing import unfused

STEPS, SIZE = 4, 3


class Straight(nn.Cell):
    """A step function with a straight-through gradient."""

    def construct(self, w):
        return ops.sign(w)

    def bprop(self, w, out, dout):
        return (dout,)


class Clipped(nn.Cell):
    """A straight-through gradient where the weight is small: a product with a constant over time."""

    def construct(self, w):
        return ops.sign(w)

    def bprop(self, w, out, dout):
        return (ops.select(ops.abs(w) < 1.5, dout / 2.0, 0.0) * w,)


class Limited(nn.Cell):
    """A custom gradient that is nonlinear in dout, so it has to run at each step."""

    def construct(self, w):
        return w * 1.0

    def bprop(self, w, out, dout):
        return (ops.clip(dout, -0.5, 0.5),)


class Unchanged(nn.Cell):
    """A forward pass that returns its input."""

    def construct(self, w):
        return w

    def bprop(self, w, out, dout):
        return (dout * 3.0,)


class Pair(nn.Cell):
    """A Cell with two inputs and two outputs."""

    def construct(self, w, u):
        return ops.sign(w) * u, ops.abs(u)

    def bprop(self, w, u, out, dout):
        return dout[0] * u + w * u * dout[1], dout[0] * out[0] - dout[1]


class Saving(Pair):
    """The same Cell, with a value saved for bprop."""

    def construct(self, w, u):
        self.save_for_bprop(w * u)
        return super().construct(w, u)

    def bprop(self, w, u, out, dout):
        (product,) = self.saved_for_bprop
        return dout[0] * u + product * dout[1], dout[0] * out[0] - dout[1]


class Owner(nn.Cell):
    """A Cell with a Parameter and its gradient in bprop."""

    def __init__(self):
        super().__init__()
        self.scale = Parameter(np.linspace(0.5, 1.5, SIZE).astype(np.float32), name="scale")
        self.internal_params = [self.scale]

    def construct(self, w):
        return ops.sign(w) * self.scale

    def bprop(self, w, out, dout):
        return (dout * self.scale,), {self.scale: dout * out}


class Unary(nn.Cell):
    """`cell` as a function of one operand. If the Cell has two inputs, both are the operand, and both outputs count."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def construct(self, w):
        if not isinstance(self.cell, Pair):
            return self.cell(w)
        first, second = self.cell(w, w * 0.5)
        return first * second + first


CELLS = [Straight, Clipped, Limited, Unchanged, Pair, Saving, Owner]
# Second order is excluded for saved values, which pass no gradient, and for nonlinear custom gradients. A loop and its
# backward pass each call those with a part of the gradient, but the tape calls them once with the sum.
ONCE = [Saving, Limited]

# How the operand of the custom gradient is computed from a Parameter p and a captured Tensor t.
OPERANDS = {
    "a Parameter": lambda p, t: p,
    "its value": lambda p, t: p.value(),
    "computed from it in the step": lambda p, t: ops.sin(p) + 0.1,
    "a captured Tensor": lambda p, t: t,
    "both": lambda p, t: p * t,
    "a reverse of another": lambda p, t: Straight()(Clipped()(p) * t),
    "with a constant": lambda p, t: p * t + Straight()(Tensor(np.full(SIZE, 0.25, np.float32))),
}


def by_scan(cell, operand, every):
    def run(p, t, x):
        def step(c, now):
            return c * 0.5 + cell(operand(p, t)) * now, ops.tanh(c) * cell(operand(p, t))

        last, ys = ops.scan(step, ops.zeros_like(x[0]), x, checkpoint_every=every)
        return (last * last).sum() + ys.sum()

    return run


class Step(nn.Cell):
    """A neuron with weights quantised inside the step, elementwise or by a product."""

    def __init__(self, cell, operand, product):
        super().__init__()
        self.cell, self.operand, self.product = cell, operand, product
        self.lif = nn.LIFNode(surrogate_function=snncell.surrogate.ATan())
        self.given = None

    def construct(self, x, v):
        weights = self.cell(self.operand(*self.given))
        current = ops.matmul(x, ops.expand_dims(weights, 0) * ops.ones((SIZE, 1))) if self.product else x * weights
        return self.lif(current * 2.0, v)


def by_multi_step(product):
    def place(cell, operand, every):
        def run(p, t, x):
            step = Step(cell, operand, product)
            step.given = (p, t)
            return (nn.MultiStep(step, checkpoint_every=every)(x) * (1.0 + x)).sum()

        return run

    return place


PLACES = {"scan": by_scan, "MultiStep": by_multi_step(False), "a product in a MultiStep": by_multi_step(True)}


def gradients(run, cell, p, t, x, mode):
    """Return the gradients of p, t, x and of the Cell's Parameter, computed in one of the available ways."""
    weights = [p, *cell.trainable_params()]

    def scaled(t, x):
        return run(p, t, x)

    if mode == "inside of jit":
        return snncell.jit(snncell.grad(scaled, (0, 1), weights))(t, x)
    if mode == "through jit":
        return snncell.grad(snncell.jit(scaled), (0, 1), weights)(t, x)
    if mode == "second order":

        def norm(t, x):
            (of_t, of_x), of_weights = snncell.grad(scaled, (0, 1), weights)(t, x)
            return sum((g * g).sum() for g in (of_t, of_x, *of_weights))

        return snncell.grad(norm, (0, 1), weights)(t, x)
    return snncell.grad(scaled, (0, 1), weights)(t, x)


def flat(found):
    (of_t, of_x), of_weights = found
    return [g.asnumpy() for g in (of_t, of_x, *of_weights)]


MODES = ["eager", "inside of jit", "through jit", "second order"]
CASES = [case for case in itertools.product(CELLS, PLACES, MODES) if case[2] != "second order" or case[0] not in ONCE]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("made", "place", "mode"), CASES)
def test_gradients_equal_the_step_by_step_loop(made, place, mode):
    number = CASES.index((made, place, mode))
    rng = np.random.default_rng(number)
    compiling = os.environ.get("NUMBA_DISABLE_JIT") != "1"  # without the compiler, every operand is cheap
    for operand in itertools.islice(itertools.cycle(OPERANDS), number, number + (2 if compiling else len(OPERANDS))):
        cell = Unary(made())
        p = Parameter(rng.uniform(-0.9, 0.9, SIZE).astype(np.float32), name="p")
        t = Tensor(rng.uniform(-0.9, 0.9, SIZE).astype(np.float32))
        x = Tensor(rng.normal(0.5, 1.0, (STEPS, 2, SIZE)).astype(np.float32))
        run = PLACES[place](cell, OPERANDS[operand], (None, 2)[list(OPERANDS).index(operand) % 2])
        found = flat(gradients(run, cell, p, t, x, mode))
        with unfused():
            expected = flat(gradients(run, cell, p, t, x, "second order" if mode == "second order" else "eager"))
        assert any(np.abs(g).max() > 0 for g in (expected[0], expected[2])), operand
        for name, mine, theirs in zip(["t", "x", "p", "scale"], found, expected, strict=False):
            bound = 2e-5 * max(1.0, float(np.abs(theirs).max()))
            np.testing.assert_allclose(mine, theirs, atol=bound, rtol=2e-5, err_msg=f"{operand}: gradient of {name}")


def test_straight_through_gradient_of_a_captured_parameter_is_summed_over_steps():
    ste, p = Straight(), Parameter([0.5])

    def loss(x):
        return ops.scan(lambda c, x: (c + ste(p) * x, None), ops.zeros_like(x[0]), x)[0].sum()

    x = Tensor([[1.0], [2.0], [3.0]])
    for gradient in (snncell.grad(loss, None, p), snncell.jit(snncell.grad(loss, None, p))):
        assert gradient(x).asnumpy() == [6.0]


def test_gradient_inside_the_body_uses_the_custom_gradient():
    ste, p = Straight(), Parameter([0.5])

    def loss(x):
        def step(c, now):
            slope = snncell.grad(lambda w: (ste(w) * w).sum())(p)  # out + dout * w: 1 + 0.5
            return c + slope * now, None

        return ops.scan(step, ops.zeros_like(x[0]), x)[0].sum()

    x = Tensor([[1.0], [2.0], [3.0]])
    with unfused():
        expected = loss(x), snncell.grad(loss, None, p)(x)
    assert float(loss(x)) == float(expected[0]) == 9.0
    np.testing.assert_allclose(snncell.grad(loss, None, p)(x), expected[1])
    np.testing.assert_allclose(snncell.jit(snncell.grad(loss, None, p))(x), expected[1])


def test_effects_of_the_forward_happen_at_each_step():
    class Counting(nn.Cell):
        def __init__(self):
            super().__init__()
            self.calls = Parameter([0.0], name="calls", requires_grad=False)

        def construct(self, w):
            ops.assign_add(self.calls, 1.0)
            return ops.sign(w)

        def bprop(self, w, out, dout):
            return (dout,)

    counting, p = Counting(), Parameter([0.5])

    def loss(x):
        return ops.scan(lambda c, x: (c + counting(p) * x, None), ops.zeros_like(x[0]), x)[0].sum()

    found = snncell.grad(loss, None, p)(Tensor([[1.0], [2.0], [3.0]]))
    assert found.asnumpy() == [6.0] and counting.calls.asnumpy() == [3.0]


@pytest.mark.parametrize("made", [Straight, Clipped])
def test_quantised_weights_compile_to_one_kernel_in_each_direction(made):
    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32), name="weight")
            self.quantised, self.lif = made(), nn.LIFNode()

        def construct(self, x, v):
            return self.lif(ops.matmul(x, self.quantised(self.weight)), v)

        def init_state(self, x):
            return ops.zeros((x.shape[0], 6))

    net = nn.MultiStep(Layer())
    report = snncell.explain(
        snncell.grad(lambda x: net(x).sum(), None, net.trainable_params()), ops.ones((7, 2, 5)), detail="launches"
    )
    assert report.count("one kernel") == 2, report


def test_monitoring_does_not_change_gradients_of_constants():
    class Scaled(nn.Cell):
        """A layer with a factor that is constant over time."""

        def __init__(self):
            super().__init__()
            self.gain = Parameter(np.ones(SIZE, np.float32), name="gain")
            self.spike = Straight()

        def construct(self, x, v):
            return x * self.spike(self.gain * 0.5), v

    net = nn.MultiStep(Scaled())
    x = Tensor(np.random.default_rng(0).normal(size=(STEPS, 2, SIZE)).astype(np.float32))
    gradient = snncell.grad(lambda x: (net(x) * x).sum(), None, net.trainable_params())
    plain = gradient(x)[0].asnumpy()
    with snncell.monitor(net, grad=True):
        watched = gradient(x)[0].asnumpy()
    np.testing.assert_array_equal(plain, watched)
    assert np.abs(plain).min() > 0


@pytest.mark.parametrize("name", ["minimum", "logaddexp", "mul"])
def test_bprop_that_computes_a_gradient_has_its_constants_in_second_order(name):
    """The constant is not an operand of bprop at first, but becomes one when bprop is differentiated."""
    weight, bound = (
        Parameter(Tensor([[1.3, -0.2], [0.9, -1.4]], "float64"), name="w"),
        Tensor([[0.4], [-0.4]], "float64"),
    )

    class Sloped(nn.Cell):
        def construct(self, x):
            return x

        def bprop(self, x, out, dout):
            slope = snncell.grad(lambda y: getattr(ops, name)(y, bound))(x)
            return (out * slope * dout,)

    cell = Sloped()

    def first(rows):
        def loss():
            _, ys = ops.scan(lambda carry, row: ((), cell(weight) * 1.0), (), rows)
            return ys.sum()

        return snncell.grad(loss, None, weight)()

    rows = ops.ones((3,), "float64")
    second = snncell.grad(lambda rows: (first(rows) ** 2).sum(), None, weight)
    with unfused():
        expected = second(rows).asnumpy()
    for found in (second, snncell.jit(second)):
        np.testing.assert_allclose(found(rows).asnumpy(), expected, rtol=1e-12)
