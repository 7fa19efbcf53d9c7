"""Gradients of loops over time: higher orders, checkpoints, nested gradients and loops, effects, random bodies."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from test_scan import (
    CASES,
    FULL,
    NEURON,
    WITHOUT_YS,
    XS,
    C,
    Case,
    W,
    both,
    close,
    gradients,
    leaves,
    loop_of,
    normal,
    plain,
    plainly,
    python_loop,
    scanning,
)

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops, surrogate, testing, value_and_grad

__all__ = ["plain"]  # a fixture


@pytest.mark.parametrize("every", [None, 2])
def test_empty_batches_have_gradients_of_their_shapes(every):
    w = ops.ones((3, 3), "float64")
    total = lambda s, x: ops.scan(lambda v, x: (ops.tanh(v @ w) + x,) * 2, s, x, checkpoint_every=every)[0].sum()  # noqa: E731
    found = grad(total, (0, 1))(ops.zeros((0, 3), "float64"), ops.zeros((4, 0, 3), "float64"))
    assert [g.shape for g in found] == [(0, 3), (4, 0, 3)]


# --- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", CASES)
def test_second_order_gradients_equal_the_python_loop(plain, name):
    case = CASES[name]
    for of in ("both", *["states"] * (name != "no state"), *["ys"] * (name not in WITHOUT_YS)):
        expected = gradients(python_loop, case, 2, of)()
        close(gradients(ops.scan, case, 2, of)(), expected, rtol=1e-9)
        close(jit(gradients(ops.scan, case, 2, of))(), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["one state", "recurrent weights", "constants"])
def test_third_order_gradients_equal_the_python_loop(plain, name):
    case = CASES[name]
    expected = gradients(python_loop, case, 3)()
    close(gradients(ops.scan, case, 3)(), expected, rtol=1e-8)
    close(jit(gradients(ops.scan, case, 3))(), expected, rtol=1e-8)


@pytest.mark.parametrize("every", [None, 3], ids=["stored", "again"])
def test_second_order_gradients_of_a_custom_gradient_equal_the_python_loop(plain, every):
    weighting = normal(4, 2, 3)

    def twice(run):
        return grad(lambda x: (grad(lambda x: (run(x) * weighting * x).sum())(x) ** 2).sum())

    cell = nn.LIFNode(2.0, v_threshold=0.5, reset="zero", surrogate_function=surrogate.ATan())
    net, expected = nn.MultiStep(cell, checkpoint_every=every), twice(loop_of(cell))(XS)
    assert expected.asnumpy().any()
    close(jit(twice(net))(XS), expected)
    close(twice(net)(XS), expected)


class Instead(nn.Cell):
    """Return another Tensor instead of x, with a custom gradient that treats it as x."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def construct(self, x):
        return self.other

    def bprop(self, x, out, dout):
        return (dout,)


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("between", [lambda x: x, lambda x: x + C, ops.sin], ids=["at once", "shifted", "computed"])
def test_second_order_gradients_reach_results_from_outside_the_loop(plain, between, every):
    other = Parameter(normal(2, 3), name="other", requires_grad=False)
    instead, weights = Instead(other), normal(2, 3)

    def twice(run, **options):
        def total(x, factor):
            return run(lambda c, x: (instead(between(c)) * factor + x, None), x, XS, **options)[0].sum()

        return grad(lambda x: (grad(total, 1)(x, FULL) * weights).sum())  # by its factor in the backward pass

    expected = twice(python_loop)(C)
    assert expected.asnumpy().any()
    close(twice(ops.scan, checkpoint_every=every)(C), expected)


# --- checkpoints ------------------------------------------------------------------------------------------------------

KEPT = [name for name in CASES if "one step" not in name]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_recomputed_states_equal_stored_ones_bit_for_bit(plain, name, reverse):
    case = CASES[name]
    stored = scanning(reverse=reverse)
    values, expected = stored(case.step(*case.consts), case.init, case.xs), gradients(stored, case)()
    for every in (1, 2, 3, 4, 9):
        again = scanning(reverse=reverse, checkpoint_every=every)
        close(again(case.step(*case.consts), case.init, case.xs), values, rtol=0)
        close(gradients(again, case)(), expected, rtol=0)
        close(jit(gradients(again, case))(), expected)


@pytest.mark.uncompiled
@pytest.mark.sampled(6)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_recomputed_states_have_second_order_gradients(plain, name, reverse):
    case = CASES[name]
    expected = gradients(scanning(reverse=reverse), case, 2)()
    for every in (1, 3, 9):
        again = scanning(reverse=reverse, checkpoint_every=every)
        close(gradients(again, case, 2)(), expected, rtol=1e-9)
    close(jit(gradients(again, case, 2))(), expected, rtol=1e-9)


def test_recomputed_states_include_inputs_used_only_by_the_forward(plain):
    def total(run):
        return grad(lambda c: run(lambda c, x: (c * c * 0.1 + x.mean(-1, keepdims=True), None), c, XS)[0])

    close(total(scanning(checkpoint_every=2))(C), total(python_loop)(C))


# --- gradients and loops inside a body --------------------------------------------------------------------------------

INNER = {
    "of a state": lambda w: lambda c, x: (c * 0.5 + grad(lambda z: (ops.sin(z * w) * x).sum())(c), c),
    "of a constant": lambda w: lambda c, x: (c * 0.5 + grad(lambda z: (ops.sin(z * c) * x).sum())(w), c),
    "of a gradient": lambda w: (
        lambda c, x: both(c * 0.5 + grad(lambda u: (grad(lambda z: (ops.sin(z * w) * x).sum())(u) ** 2).sum())(c))
    ),
    "of a product": lambda w: lambda c, x: both(c * 0.5 + grad(lambda z: (ops.tanh(z @ W) * x * w).sum())(c)),
    "pulled": lambda w: lambda c, x: (c * 0.5 + ops.vjp(lambda z: ops.tanh(z * w), c)[1](x)[0], c),
    "a loop": lambda w: lambda c, x: ops.scan(lambda d, z: (ops.tanh(d * w + z), d * z), c, ops.stack([x, c, x])),
    "a loop of products": lambda w: (
        lambda c, x: ops.scan(lambda d, z: (ops.tanh(d @ W * w + z), d * z), c, ops.stack([x, c, x]), reverse=True)
    ),
    "a loop over a constant": lambda w: (
        lambda c, x: (
            ops.scan(lambda d, z: (ops.tanh(d * z) + x, None), c, ops.stack([w, w * 2.0]))[0],
            c,
        )
    ),
    "a loop beside it": lambda w: (
        lambda c, x: both(
            c * 0.5 + x * ops.scan(lambda d, z: (ops.tanh(d * z) + 1.0, None), w, ops.stack([w, w * 2.0]))[0]
        )
    ),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", INNER)
def test_nested_gradients_and_loops_in_a_body_equal_the_python_loop(plain, name, order):
    case = Case(INNER[name], C, XS, (NEURON,))
    close(ops.scan(INNER[name](NEURON), C, XS), python_loop(INNER[name](NEURON), C, XS))
    expected = gradients(python_loop, case, order)()
    close(gradients(ops.scan, case, order)(), expected, rtol=1e-9)
    close(jit(gradients(ops.scan, case, order))(), expected, rtol=1e-9)


# --- effects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 2}, {"reverse": True}], ids=str)
@pytest.mark.parametrize("how", [lambda fn: fn, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("product", [False, True], ids=["elementwise", "product"])
def test_parameters_written_in_a_body_become_states(plain, options, how, product):
    found = []
    for run in (python_loop, scanning(**options)):
        p = Parameter(np.array([1.0, 2.0, 3.0]), requires_grad=False)

        def step(c, x, p=p):
            before = p + 0.0
            ops.assign(p, p * 0.5 + x.mean(0))
            c = ops.tanh((c @ W if product else c * 0.5) + x * p)
            ops.assign_add(p, 1.0)
            return c, (c + before, p.value())

        def total(x, step=step, run=run):
            c, (a, b) = run(step, C, x, options.get("reverse", False)) if run is python_loop else run(step, C, x)
            return (a * a).sum() + b.sum() + c.sum()

        fn = total if run is python_loop else how(total)
        found.append([*value_and_grad(fn)(XS), fn(XS), p.value()])
    close(*found)


class Normed(nn.Cell):
    """A neuron that writes statistics of its batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def construct(self, x, v):
        v = self.norm(v * 0.5 + x)
        return v, v


@pytest.mark.parametrize("wrap", [nn.MultiStep, lambda cell: jit(nn.MultiStep(cell))], ids=["eager", "jit"])
def test_batch_statistics_are_written_step_by_step(plain, wrap):
    x = normal(4, 5, 3, dtype=np.float32)
    found = []
    for make in (loop_of, wrap):
        cell = Normed().set_train()
        net = make(cell)
        values = [net(x), net(x), grad(lambda x, net=net: (net(x) ** 2).sum(), 0, cell.trainable_params())(x)]
        found.append([*leaves(values), *(p.value() for p in cell.untrainable_params())])
    close(*found, rtol=1e-3, atol=1e-4)


class Dropping(nn.Cell):
    """A leaky integrator with dropout."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(p=0.5)

    def construct(self, x, v):
        return self.drop(x) + v, v * 0.5


@pytest.mark.parametrize("every", [None, 2])
def test_dropout_draws_equal_the_python_loop_in_both_directions(plain, every):
    cell, x = Dropping().set_train(), ops.ones((4, 2, 20))
    net = nn.MultiStep(cell, checkpoint_every=every)
    snncell.set_seed(3)
    expected = [loop_of(cell)(x) for _ in range(3)]
    drawn = np.stack([out.asnumpy() for out in expected])
    assert 0.2 < (drawn == 0).mean() < 0.8 and len({step.tobytes() for run in drawn for step in run}) == 12
    for how in (lambda fn: fn, jit):
        snncell.set_seed(3)
        close([how(net)(x) for _ in range(3)], expected, rtol=0)
        snncell.set_seed(3)
        _, pull = ops.vjp(how(net), x)
        close(net(x), expected[1], rtol=0)
        for _ in range(2):
            close(pull(ops.ones_like(x))[0], expected[0], rtol=0)  # the mask of the forward


@pytest.mark.parametrize("how", [lambda fn: fn, jit], ids=["eager", "jit"])
def test_second_order_gradients_draw_equal_random_numbers(plain, how):
    def total(w):
        def step(c, x):
            return both(ops.tanh(c * w + x * ops.uniform((2, 3)).astype("float64")))

        return ops.scan(step, C, XS)[1]

    testing.check_grads(how(total), NEURON, order=2)


# --- random bodies ----------------------------------------------------------------------------------------------------

NAMES = ["c0", "c1", "x", "k0", "k1"]
UNARY = {"neg": lambda a: -a, "abs": ops.abs, "half": lambda a: a * 0.5, "ratio": lambda a: a / (1.0 + ops.square(a))}
FUNCTIONS = {"sigmoid": ops.sigmoid, "tanh": ops.tanh}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": ops.minimum,
    "where": lambda a, b: ops.where(a > b, a, b * 0.5),
    "less": lambda a, b: (a < b).astype("float64") * a,
}
TABLE = {**UNARY, **FUNCTIONS, **BINARY}
few = settings(max_examples=40, deadline=None, derandomize=True)


def expressions(unary):
    """Trees of names and operations."""

    def larger(inner):
        one = st.tuples(st.sampled_from(unary), inner)
        return st.one_of(one, st.tuples(st.sampled_from(sorted(BINARY)), inner, inner))

    return st.recursive(st.sampled_from(NAMES), larger, max_leaves=5)


def evaluate(tree, known):
    if isinstance(tree, str):
        return known[tree]
    return TABLE[tree[0]](*(evaluate(operand, known) for operand in tree[1:]))


@st.composite
def bodies(draw, unary=(*UNARY, *FUNCTIONS), batch=2):
    """A Case of two states and two constants of random shapes, over three neurons."""
    trees = [draw(expressions(unary)) for _ in range(3)]
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    shapes = [draw(st.sampled_from([(), (3,), (1,), (batch, 1), (batch, 3), (1, 3)])) for _ in range(2)]
    init, xs, *consts = (Tensor(rng.normal(size=shape)) for shape in ((2, batch, 3), (4, batch, 3), *shapes))

    def step(k0, k1):
        def f(carry, x):
            known = {"c0": carry[0], "c1": carry[1], "x": x, "k0": k0, "k1": k1}
            *states, y = (evaluate(tree, known) + 0.0 * x for tree in trees)
            return tuple(ops.minimum(ops.maximum(v, -2.0), 2.0) for v in states), y

        return f

    return Case(step, (init[0], init[1]), xs, tuple(consts))


@given(bodies(unary=tuple(UNARY)))
@few
def test_random_arithmetic_equals_the_python_loop_bit_for_bit(case):
    with plainly():
        close(*[run(case.step(*case.consts), case.init, case.xs) for run in (ops.scan, python_loop)], rtol=0)


@given(bodies(), st.sampled_from([None, 1, 3]))
@few
def test_random_bodies_agree_with_the_python_loop(case, every):
    with plainly():
        run = scanning(checkpoint_every=every)
        close(
            run(case.step(*case.consts), case.init, case.xs), python_loop(case.step(*case.consts), case.init, case.xs)
        )
        close(gradients(run, case)(), gradients(python_loop, case)())


@given(bodies())
@few
def test_pullback_is_reusable_and_linear(case):
    with plainly():
        (_, pull), (_, other) = (
            ops.vjp(lambda x, run=run: run(case.step(*case.consts), case.init, x)[1], XS)
            for run in (ops.scan, python_loop)
        )
        u, v = normal(4, 2, 3), normal(4, 2, 3)
        close([pull(u)[0], pull(v)[0]], [other(u)[0], other(v)[0]])
        close(pull(u * 2.0 - v * 3.0)[0], pull(u)[0] * 2.0 - pull(v)[0] * 3.0, atol=1e-9)


@given(bodies(batch=1))
@few
def test_batch_of_one_equals_no_batch_and_scan_equals_repeated_steps(case):
    def dropped(x, axis):
        return ops.squeeze(x, axis) if x.ndim > 1 else x

    with plainly():
        carry, ys = ops.scan(case.step(*case.consts), case.init, case.xs)
        bare = case.step(*[dropped(k, 0) for k in case.consts])
        found = ops.scan(bare, tuple(v[0] for v in case.init), case.xs[:, 0])
        close(found, (tuple(v[0] for v in carry), ys[:, 0]), rtol=0)
        state, singles = case.init, []
        for t in range(4):
            state, y = ops.scan(case.step(*case.consts), state, case.xs[t : t + 1])
            singles.append(y)
        close((state, ops.concat(singles)), (carry, ys), rtol=0)


@given(bodies(), st.permutations(range(3)))
@few
def test_permuting_neurons_permutes_results(case, order):
    def moved(tree):
        return [ops.gather(x, np.array(order), -1) if x.ndim and x.shape[-1] == 3 else x for x in leaves(tree)]

    with plainly():
        found = ops.scan(case.step(*moved(case.consts)), tuple(moved(case.init)), moved(case.xs)[0])
        close(leaves(found), moved(ops.scan(case.step(*case.consts), case.init, case.xs)), rtol=0)


# --- regressions ------------------------------------------------------------------------------------------------------


class Noisy(nn.Cell):
    def construct(self, w):
        return w + ops.normal(w.shape)

    def bprop(self, w, out, dout):
        return (dout,)


def test_cell_with_custom_gradient_draws_at_each_step(plain):
    noisy = Noisy()

    def total(w):
        return ops.scan(lambda c, x: (c + noisy(w), noisy(w)), ops.zeros(3), ops.zeros((4, 3)))[1]

    snncell.set_seed(1)
    expected = total(ops.zeros(3)).asnumpy()
    snncell.set_seed(1)
    out, pull = ops.vjp(total, ops.zeros(3))
    np.testing.assert_array_equal(out.asnumpy(), expected)
    assert len(np.unique(expected)) == expected.size
    np.testing.assert_array_equal(pull(ops.ones((4, 3)))[0].asnumpy(), [4.0] * 3)


def test_scalar_states_keep_their_shape_in_step_by_step_loops(plain):
    k = Tensor(2.0)
    last, _ = ops.scan(lambda c, x: ((ops.tanh(c[0] @ W + x), k), c[0]), (C, ops.zeros(())), XS)
    assert last[1].shape == ()

    def total(xs, s):
        return ops.scan(lambda c, x: ((ops.tanh(c[0] * 0.9 + x.sum()), x.mean()), c[0]), (C, s), xs)[1].sum()

    assert jit(grad(total, (0, 1)))(XS, Tensor(np.array(0.3)))[1].shape == ()


def test_producers_of_a_sequence_are_available_to_recomputed_states(plain):
    def total(run):
        def of(xs):
            def step(v, x):
                new = ops.tanh(v * 0.9 + x)
                return new, new * new

            return run(step, C, xs * 2.0 + 1.0)[1].sum()

        return grad(of)

    close(jit(total(scanning(checkpoint_every=2)))(XS), total(python_loop)(XS))


class Widest(nn.Cell):
    def construct(self, v, p):
        return v + p

    def bprop(self, v, p, out, dout):
        return dout, dout.max(-1).reshape(2, 1)


def test_custom_gradient_that_is_not_a_sum_is_reduced_correctly(plain):
    widest = Widest()

    def total(run):
        def step(p):
            def one(v, x):
                new = ops.tanh(widest(v * 0.9 + x, p))
                return new, new

            return one

        return grad(lambda p: run(step(p), C, XS)[1].sum())

    p = normal(2, 1)
    close(total(ops.scan)(p), total(python_loop)(p))


@pytest.mark.parametrize(("batch", "inputs", "outputs"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_products_have_gradients_of_their_shapes(plain, batch, inputs, outputs):
    w, xs, start = normal(inputs, outputs), normal(5, batch, inputs), ops.zeros((batch, outputs), "float64")

    def total(w, xs):
        return ops.scan(lambda v, x: (v + x @ w, v * 2.0), start, xs)[1].sum()

    found = grad(total, (0, 1))(w, xs)
    assert [g.shape for g in found] == [w.shape, xs.shape]


def test_gradients_at_a_constant_inside_a_differentiated_function_are_correct():
    inner = jit(lambda x: grad(lambda q: (q * q * x[0]).sum())(ops.ones((2, 3))).sum())
    close(grad(inner)(Tensor(np.array([2.0, 3.0]))), Tensor(np.array([12.0, 0.0])))


def test_initialised_device_changes_nothing_on_the_cpu(plain, monkeypatch):
    """With a device in the process, the array type is checked, also for a scalar state that is a NumPy scalar."""
    monkeypatch.setattr("snncell.kernels.cuda.runtime.IN_USE", [True])
    for module in ("compiler.runtime.plan", "compiler.runtime.loop_run", "tape.primitive"):
        monkeypatch.setattr(f"snncell.{module}.IN_USE", [True])
    for name in ("a scalar counter", "states of two shapes", "a scalar state as a result", "one state"):
        case = CASES[name]
        close(gradients(scanning(checkpoint_every=2), case)(), gradients(python_loop, case)())
        close(jit(gradients(scanning(checkpoint_every=3), case))(), gradients(python_loop, case)())
