"""scan, a loop over time as one operation: values and first gradients equal those of a Python loop."""

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from interpreting import plainly

from snncell import Parameter, Tensor, explain, grad, jit, nn, ops
from snncell.tape import structure

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float64):
    return Tensor(RNG.normal(size=shape).astype(dtype))


def leaves(tree):
    return structure.flatten(tree)[0]


def python_loop(f, init, xs, reverse=False):
    """The reference of a scan: a Python loop over operations on the tape."""
    sequences, tree = structure.flatten(xs)
    steps = range(sequences[0].shape[0])
    carry, collected = init, []
    for t in reversed(steps) if reverse else steps:
        carry, y = f(carry, structure.unflatten(tree, [x[t] for x in sequences]))
        collected.append(structure.flatten(y))
    columns = [list(column) for column in zip(*[ys for ys, _ in collected], strict=True)]
    stacked = [ops.stack(column[::-1] if reverse else column) for column in columns]
    return carry, structure.unflatten(collected[0][1], stacked)


@pytest.fixture
def plain():
    with plainly():
        yield


def close(found, expected, rtol=1e-10, atol=1e-12):
    """Assert equal shapes and dtypes, and values within a tolerance (bit for bit with rtol=0)."""
    for mine, theirs in zip(leaves(found), leaves(expected), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=rtol, atol=atol if rtol else 0)


class Case(NamedTuple):
    """A loop body: `step(*consts)` returns f(carry, x)."""

    step: Any
    init: Any
    xs: Any
    consts: tuple[Any, ...] = ()


def gradients(run, case, order=1, of="both"):
    """Return a function (init, xs, consts) -> gradients of a scalar computed from the float results."""
    args = (case.init, case.xs, case.consts)
    positions = tuple(n for n, arg in enumerate(args) if leaves(arg) and all(x.dtype.is_float for x in leaves(arg)))

    def total(init, xs, consts):
        carry, ys = run(case.step(*consts), init, xs)
        chosen = {"both": (carry, ys), "states": carry, "ys": ys}[of]
        return sum((ops.tanh(x) * x).sum() for x in leaves(chosen) if x.dtype.is_float)

    fn = grad(total, positions)
    for _ in range(order - 1):
        fn = grad(lambda *args, fn=fn: sum((ops.sin(g) * g).sum() for g in leaves(fn(*args))), positions)
    return lambda: fn(*args)


def scanning(**options):
    return lambda f, init, xs: ops.scan(f, init, xs, **options)


def both(n):
    return n, n


def loop_of(cell):
    """Return the loop over a Cell of one state, starting with zeros."""
    return lambda x: python_loop(lambda v, now: cell(now, v)[::-1], ops.zeros_like(x[0]), x)[1]


class Leaky(nn.Cell):
    """A leaky integrator with one leak per neuron."""

    def __init__(self):
        super().__init__()
        self.leak = Parameter(np.array([0.5, 0.6, 0.7]))
        self.gain = 2.0

    def construct(self, x, v):
        v = v * self.leak + x * (self.gain if self.training else 1.5)
        return ops.tanh(v), v


W, FULL, NEURON, CHANNEL = normal(3, 3), normal(2, 3), normal(3), normal(2, 1, 1)
C, XS = normal(2, 3), normal(4, 2, 3)
FIVE, FIVES = normal(5, 3), normal(4, 5, 3)  # rows that do not divide into even groups
UP, DOWN = normal(3, 4), normal(4, 3)

CASES = {
    "no state": Case(lambda w: lambda c, x: ((), ops.tanh(x) * w), (), XS, (NEURON,)),
    "one state": Case(lambda w: lambda c, x: both(ops.tanh(c * w + x)), C, XS, (NEURON,)),
    "two states": Case(lambda w: lambda c, x: ((c[1] + x, c[0] * w), c[0] * c[1]), (C, FULL), XS, (NEURON,)),
    "three states": Case(
        lambda w: lambda c, x: ((c[1] * x, c[2] + c[0] * w, ops.tanh(c[0])), c), (C, FULL, XS[0]), XS, (normal(),)
    ),
    "no result": Case(lambda w: lambda c, x: (c * w + x, None), C, XS, (NEURON,)),
    "nested results": Case(lambda w: lambda c, x: (c * w + x, {"a": (c, None), "b": [x * w]}), C, XS, (NEURON,)),
    "structures": Case(
        lambda w: lambda c, x: ({"v": c["v"] * w + x["i"][0] * x["g"]}, (c["v"],)),
        {"v": C},
        {"i": [XS], "g": normal(4, 2, 1)},
        (NEURON,),
    ),
    "a number as constant": Case(lambda: lambda c, x: both(c * 0.5 + x / 3.0), C, XS),
    "constants": Case(
        lambda a, b, d: lambda c, x: both(ops.tanh(c * a + b * x) + d * c), C, XS, (normal(), NEURON, FULL)
    ),
    "by channel": Case(
        lambda w: lambda c, x: both(ops.tanh(c * w + x)), normal(1, 2, 2, 3), normal(3, 1, 2, 2, 3), (CHANNEL,)
    ),
    "one constant, many uses": Case(lambda w: lambda c, x: (c * w + x * w - w, w * c * w), C, XS, (NEURON,)),
    "work on constants": Case(
        lambda w, u: lambda c, x: both(c * ops.sigmoid(-w) + x * (u @ u.T).sum(0)), C, XS, (NEURON, W)
    ),
    "x per batch": Case(lambda w: lambda c, x: both(c * w + x), C, normal(4, 2, 1), (NEURON,)),
    "x per step, kept axis": Case(lambda w: lambda c, x: both(c * w + x), C, normal(4, 1), (NEURON,)),
    "x per step": Case(lambda w: lambda c, x: both(c * w + x), C, normal(4), (NEURON,)),
    "x not used": Case(lambda w: lambda c, x: both(c * w + x[0]), C, (XS, normal(4, 7)), (NEURON,)),
    "y is x": Case(lambda w: lambda c, x: (c * w, x), C, XS, (NEURON,)),
    "y is a constant": Case(lambda w: lambda c, x: (c * 0.5 + x, (w, w * 2.0)), C, XS, (NEURON,)),
    "state becomes a constant": Case(lambda w: lambda c, x: (w, c + x), C, XS, (FULL,)),
    "state is handed on": Case(lambda w: lambda c, x: (c, x * c * w), C, XS, (NEURON,)),
    "delay line": Case(lambda w: lambda c, x: ((x, c[0], c[1]), c[2] * w), (C, FULL, XS[1]), XS, (NEURON,)),
    "swapped states": Case(lambda w: lambda c, x: ((c[1], c[0] * w + x), c[0]), (C, FULL), XS, (NEURON,)),
    "delay line of products": Case(lambda w: lambda c, x: ((x, c[0] @ w, c[1]), c[2]), (C, FULL, XS[1]), XS, (W,)),
    "swapped states of products": Case(lambda w: lambda c, x: ((c[1], c[0] @ w + x), c[0]), (C, FULL), XS, (W,)),
    "a view of a state as a state": Case(
        lambda w: lambda c, x: ((ops.tanh(c[0] @ w + x), c[0].T), c[1] * 2.0), (C, normal(3, 2)), XS, (W,)
    ),
    "a slice of a state as a state": Case(
        lambda w: lambda c, x: ((ops.tanh(c[0] * w + x), c[0][:, 1:]), c[1] * 2.0), (C, normal(2, 2)), XS, (NEURON,)
    ),
    "states of two shapes": Case(
        lambda w: lambda c, x: ((c[0] + x.sum(), c[1] * w + ops.tanh(x * c[0])), c[1]), (normal(), C), XS, (NEURON,)
    ),
    "a scalar state as a result": Case(
        lambda w: lambda c, x: ((c[0] * 0.5 + c[1].sum(), ops.tanh(c[1] @ w + x)), c[0] * 2.0), (normal(), C), XS, (W,)
    ),
    "a counter": Case(
        lambda w: lambda c, x: ((c[0] + 1, c[1] * w + ops.where(c[0] % 2 == 0, x, -x)), (c[0], c[1] > 0.0, c[1])),
        (ops.zeros((2, 3), "int64"), C),
        XS,
        (NEURON,),
    ),
    "a scalar counter": Case(
        lambda w: lambda c, x: ((c[0] + 1, c[1] * w + x * c[0]), c[1]), (Tensor(0), C), XS, (W[0],)
    ),
    "a boolean state": Case(
        lambda w: lambda c, x: ((ops.logical_not(c[0]), ops.where(c[0], c[1] * w, x)), c[0]),
        (Tensor([[True, False, True]] * 2), C),
        XS,
        (NEURON,),
    ),
    "stopped": Case(
        lambda w: lambda c, x: (ops.stop_gradient(c * w) * x + c * w, ops.stop_gradient(c) * w), C, XS, (NEURON,)
    ),
    "recurrent weights": Case(lambda w: lambda c, x: both(ops.tanh(c @ w + x)), C, XS, (W,)),
    "gated": Case(
        lambda w, u, b: lambda c, x: both((lambda z: z * c + (1.0 - z) * ops.tanh(x))(ops.sigmoid(x @ w + c @ u + b))),
        C,
        XS,
        (W, normal(3, 3), NEURON),
    ),
    "readout": Case(lambda w, b: lambda c, x: (c * 0.9 + x, (c * 0.9 + x) @ w + b), C, XS, (normal(3, 4), normal(4))),
    "normalised": Case(
        lambda g, b: (
            lambda c, x: both(
                (lambda h: (h - h.mean(-1, keepdims=True)) / ops.sqrt(h.var(-1, keepdims=True) + 0.1) * g + b)(
                    c * 0.5 + x
                )
            )
        ),
        C,
        XS,
        (NEURON, normal(3)),
    ),
    "five rows": Case(lambda w, b: lambda c, x: both(ops.tanh(c @ w + x + b)), FIVE, FIVES, (W, NEURON)),
    "a product of a product": Case(lambda u, d: lambda c, x: both(ops.tanh((c @ u) @ d + x)), C, XS, (UP, DOWN)),
    "two layers": Case(
        lambda w, u, d: (
            lambda c, x: (
                lambda a: (lambda b: ((a, b), (b, b @ d)))(ops.tanh(c[1] * 0.5 + a @ u))  # the old a is unused
            )(ops.tanh(c[0] @ w + x))
        ),
        (FIVE, normal(5, 4)),
        FIVES,
        (W, UP, DOWN),
    ),
    "a product as a state": Case(lambda w: lambda c, x: ((c[0] @ w, c[1] * c[0] + x), c), (C, FULL), XS, (W,)),
    "a product as a result": Case(
        lambda w: lambda c, x: (lambda p: (ops.tanh(p + x), (p, c)))(c @ w), FIVE, FIVES, (W,)
    ),
    "swapped products": Case(
        lambda w, u: lambda c, x: ((c[1] @ w, c[0] @ u + x), c[0] * c[1]), (C, FULL), XS, (W, normal(3, 3))
    ),
    "an old state needed late": Case(
        lambda w, u: lambda c, x: (lambda a: ((a, c[0] * (a @ u) + c[1] * 0.5), c[1]))(ops.tanh(c[0] @ w + c[1] + x)),
        (C, FULL),
        XS,
        (W, normal(3, 3)),
    ),
    "reset gate": Case(
        lambda w, u, v: (
            lambda c, x: (lambda z, r: both(z * c + (1.0 - z) * ops.tanh(x + (r * c) @ v)))(
                ops.sigmoid(x + c @ w), ops.sigmoid(c @ u)
            )
        ),
        FIVE,
        FIVES,
        (W, normal(3, 3), normal(3, 3)),
    ),
    "constants of many shapes beside a product": Case(
        lambda w, a, b, d: lambda c, x: both(ops.tanh((c @ w) * a + b * x[0] - d * x[1] * c)),
        FIVE,
        (FIVES, normal(4, 5, 1)),
        (W, normal(5, 3), normal(5, 1), normal()),
    ),
    "a counter beside a product": Case(
        lambda w: lambda c, x: ((c[0] + 1, ops.tanh(c[1] @ w) + ops.where(c[0] % 2 == 0, x, -x)), (c[0], c[1])),
        (ops.zeros((2, 3), "int64"), C),
        XS,
        (W,),
    ),
    "two states of one value": Case(
        lambda w: lambda c, x: (lambda n: ((n, n), n))(c[0] * c[1] * w + x), (C, FULL), XS, (NEURON,)
    ),
    "states of one product": Case(
        lambda w: lambda c, x: (lambda n: ((n, n), n))((c[0] * c[1]) @ w + x), (C, FULL), XS, (W,)
    ),
    "a product that no state waits for": Case(
        lambda u: lambda c, x: ((c[0], c[1]), (c[0] @ u) * x), (C, normal(2, 1)), normal(4, 1), (normal(3, 3),)
    ),
    "states handed on beside a product": Case(
        lambda u: lambda c, x: (x, ops.tanh(ops.tanh(c) @ u)), FIVE, FIVES, (normal(3, 1),)
    ),
    "a wide product of weights": Case(
        lambda w: lambda c, x: both(ops.tanh(ops.tanh(c @ w) @ ops.stop_gradient(DOWN)) + x), FIVE, FIVES, (UP,)
    ),
    "written twice": Case(
        lambda w: lambda c, x: (ops.tanh(c * w + x) * (c * w + x), ops.sigmoid(c * w + x)), C, XS, (NEURON,)
    ),
    "one step": Case(lambda w: lambda c, x: both(ops.tanh(c * w + x)), C, XS[:1], (NEURON,)),
    "one step, product": Case(lambda w: lambda c, x: both(ops.tanh(c @ w + x)), C, XS[:1], (W,)),
}
WITHOUT_YS = ("no result", "a boolean state")  # cases whose results ys have no gradient


# --- values and gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values_equal_the_python_loop(plain, name, reverse):
    case = CASES[name]
    expected = python_loop(case.step(*case.consts), case.init, case.xs, reverse)
    close(scanning(reverse=reverse)(case.step(*case.consts), case.init, case.xs), expected)
    close(jit(lambda xs: ops.scan(case.step(*case.consts), case.init, xs, reverse=reverse))(case.xs), expected)


@pytest.mark.sampled(25)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_the_python_loop(plain, name, reverse):
    case = CASES[name]
    for of in ("both", *["states"] * (name != "no state"), *["ys"] * (name not in WITHOUT_YS)):
        expected = gradients(lambda *args: python_loop(*args, reverse), case, of=of)()
        close(gradients(scanning(reverse=reverse), case, of=of)(), expected)
        close(jit(gradients(scanning(reverse=reverse), case, of=of))(), expected)


@pytest.mark.sampled(7)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 31, 33, 1025])
def test_arithmetic_equals_the_python_loop_bit_for_bit_at_any_size(size, dtype):
    case = Case(
        lambda w: lambda c, x: (ops.where(c > x, c * w - x, c + w), (c * x, c > 0.0)),
        normal(size, dtype=dtype),
        normal(5, size, dtype=dtype),
        (normal(size, dtype=dtype),),
    )
    values = [run(case.step(*case.consts), case.init, case.xs) for run in (ops.scan, python_loop)]
    close(*values, rtol=0)
    close(*[gradients(run, case)() for run in (ops.scan, python_loop)], rtol=1e-4 if dtype is np.float32 else 1e-12)


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("name", ["by channel", "a counter", "x per batch", "a boolean state", "gated", "constants"])
def test_compiled_loops_agree_with_the_python_loop(name):
    case = CASES[name]
    close(
        ops.scan(case.step(*case.consts), case.init, case.xs), python_loop(case.step(*case.consts), case.init, case.xs)
    )
    close(gradients(ops.scan, case)(), gradients(python_loop, case)())


@pytest.mark.compiled
def test_all_threads_and_one_thread_agree():
    init, xs, w = (
        normal(40_000, dtype=np.float32),
        normal(8, 40_000, dtype=np.float32),
        normal(40_000, dtype=np.float32),
    )
    case = Case(lambda w: lambda c, x: both(c * w + x), init, xs, (w,))
    close(ops.scan(case.step(w), init, xs), python_loop(case.step(w), init, xs), rtol=0)
    close(gradients(ops.scan, case)(), gradients(python_loop, case)(), rtol=1e-4, atol=1e-4)


LAYOUTS = {
    "the same at every step": lambda x: ops.broadcast_to(x[:1], (4, 2, 3)),
    "the same for every neuron": lambda x: ops.broadcast_to(x[:, :, :1], (4, 2, 3)),
    "one number": lambda x: ops.broadcast_to(x[0, 0, 0], (4, 2, 3)),
    "flipped": lambda x: x[::-1, :, ::-1],
    "transposed": lambda x: ops.transpose(ops.reshape(x, (3, 2, 4)), (2, 1, 0)),
    "strided": lambda x: ops.concat([x, x])[::2],
}


@pytest.mark.parametrize("name", ["one state", "recurrent weights"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sequences_of_any_layout_agree_with_the_python_loop(plain, layout, name):
    case = CASES[name]

    def over(run):
        return lambda x: run(case.step(*case.consts), case.init, LAYOUTS[layout](x))

    for how in (lambda fn: fn, jit):
        close(how(over(ops.scan))(XS), over(python_loop)(XS))
        close(how(grad(over(ops.scan)))(XS), grad(over(python_loop))(XS))


def test_captured_parameters_get_their_gradients(plain):
    p, q = Parameter(np.array([0.5, -0.3, 0.8])), Parameter(W.asnumpy() * 1.0)

    def over(run):
        return lambda x: run(lambda c, x: both(ops.tanh(c @ q * p + x)), C, x)[1]

    expected = grad(over(python_loop), 0, [p, q])(XS)
    close(grad(over(ops.scan), 0, [p, q])(XS), expected)
    close(jit(grad(over(ops.scan), 0, [p, q]))(XS), expected)


def test_concurrent_threads_keep_their_steps_apart(plain):
    fn = jit(lambda x: ops.scan(CASES["recurrent weights"].step(W), C, x)[1])
    inputs = [normal(30, 2, 3) for _ in range(4)]
    expected = [fn(x).asnumpy() for x in inputs]
    wrong = []

    def work(number):
        for _ in range(40):
            try:
                wrong.extend([number] * (not np.array_equal(fn(inputs[number]).asnumpy(), expected[number])))
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- storage formats --------------------------------------------------------------------------------------------------


class HalfSpike(nn.Cell):
    """A surrogate gradient defined by the test."""

    def construct(self, x):
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)


class HalfAdaptive(nn.Cell):
    """A neuron with two states and a threshold that no multiple of 1/64 comes near."""

    def __init__(self):
        super().__init__()
        self.spike = HalfSpike()

    def construct(self, x, v, a):
        v = 0.5 * v + x - 0.25 * a
        s = self.spike(v - 0.603)
        return s, v * (1.0 - s), 0.5 * a + s


ERRORS = {"float16": 0.01, "bfloat16": 0.08}


def check_stored(dtype, device, every):
    """float16 and bfloat16 are storage formats; a loop computes in float32 and has one kernel in each direction."""
    net = nn.MultiStep(HalfAdaptive(), return_states=True, checkpoint_every=every)
    x = np.random.default_rng(0).integers(-20, 90, (9, 3, 4)).astype(np.float32) / 64

    def loss(x):
        y, (v, a) = net(x)
        return (y * ops.cos(x)).astype("float32").sum() + (v * a).astype("float32").sum()

    half, wide = Tensor(x, dtype).to(device), Tensor(x)
    (y, states), (expected, wide_states) = net(half), net(wide)
    assert 0 < expected.asnumpy().mean() < 1 and {t.dtype.name for t in (y, *states)} == {dtype}
    np.testing.assert_array_equal(y.asnumpy().astype(np.float32), expected.asnumpy())
    for state, other in zip(states, wide_states, strict=True):
        np.testing.assert_array_equal(state.tolist(), other.astype(dtype).tolist())  # rounded once, at the end
    found, truth = ops.grad(loss)(half), ops.grad(loss)(wide).asnumpy()
    assert found.dtype == dtype
    # The backward pass reads stored values, rounded to 11 or 8 bits, with a slope of at most 20 per unit.
    np.testing.assert_allclose(found.asnumpy().astype(np.float32), truth, atol=ERRORS[dtype] * np.abs(truth).max())
    assert str(explain(ops.grad(loss), half, detail="launches")).count("one kernel") == 2


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("every", [None, 4])
def test_storage_formats_are_computed_as_float32(dtype, every):
    check_stored(dtype, "cpu", every)
