"""Operations return Tensors, never the Parameter itself: a result keeps the value that the Parameter had.

The tests call every public operation with Parameters of many shapes and dtypes, and with arguments that may make it an
identity. They read each result again after an assignment, eagerly and compiled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import operator

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, grad, nn, ops, testing, value_and_grad
from snncell.errors import SnncellError
from snncell.tape import structure

SHAPES = [(), (1,), (3,), (1, 1), (2, 3), (1, 2, 1, 1)]
DTYPES = ["float32", "float64", "int64", "bool", "complex64"]


def values_for(name: str, p: Parameter) -> list:
    """Arguments of a given name that may leave a Tensor like `p` unchanged, or nearly."""
    axes = tuple(range(p.ndim))
    sizes = [0, 1, -1, 2]
    return {
        "axis": [None, *sizes, (), axes], "axes": [None, (), axes, *sizes], "axis0": sizes, "axis1": sizes,
        "dim": sizes, "dims": [*sizes, ()], "shape": [p.shape, (-1,), -1], "dtype": [p.dtype, "float32", None],
        "perm": [axes], "reps": [(1,) * p.ndim], "repeats": [1], "multiples": [(1,) * p.ndim],
        "padding": [(), (0, 0), 0], "pad_width": [0], "min": [None], "max": [None], "p": [0.0], "k": [0, 1],
        "n": [None, 1], "y": [1, 0, p], "other": [1, 0, p], "x": [p], "device": ["cpu"], "indices": [0],
        "index": [0], "start_dim": sizes, "end_dim": sizes, "split_size_or_sections": [1, max(p.shape, default=1)],
        "keepdims": [True], "shifts": [0], "shift": [0], "exponent": [1], "decimals": [0], "ddof": [0],
        "kernel_size": [1], "stride": [1], "condition": [True, Tensor(True)], "size": [1], "offset": [0],
        "diagonal": [0, 9], "fill_value": [1.0], "value": [0.0], "tensors": [(p,), [p]], "inputs": [(p,), [p]],
    }.get(name, [])  # fmt: skip


def calls_of(function, p: Parameter):
    """Return ways to call a function with `p`, by its signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for first in (p, (p,)):
        yield (first,), {}
    rest = [q for q in parameters[1:] if q.kind in (q.POSITIONAL_OR_KEYWORD, q.KEYWORD_ONLY)]
    required = [q for q in rest if q.default is q.empty]
    optional = [q for q in rest if q.default is not q.empty]
    spread = any(q.kind is q.VAR_POSITIONAL for q in parameters)
    choices = [values_for(q.name, p) or [p, 1] for q in required]
    for first in (p, (p,)):
        for given in itertools.islice(itertools.product(*choices), 12):
            yield (first, *given), {}
            for q in optional:
                for value in values_for(q.name, p):
                    yield (first, *given), {q.name: value}
        if spread:
            yield (first, *p.shape), {}
            yield (first, *range(p.ndim)), {}
            yield (first, first), {}


# Operations that return the Parameter they write to, and operations on functions.
NOT_CALLED = {
    "assign",
    "assign_add",
    "assign_sub",
    "Assign",
    "scan",
    "grad",
    "value_and_grad",
    "vjp",
    "jit",
    "while_loop",
}


def operations():
    """Every public operation, method and operator: a name, and a function with the Parameter as first argument."""
    found = {}
    for name in sorted(n for n in dir(ops) if not n.startswith("_") and not inspect.ismodule(getattr(ops, n))):
        thing = getattr(ops, name)
        if name in NOT_CALLED or not callable(thing):
            continue
        if inspect.isclass(thing):
            try:
                found[f"ops.{name}()"] = thing()
            except (TypeError, SnncellError):
                continue  # this one cannot be created without arguments
        else:
            found[f"ops.{name}"] = thing
    for name in sorted(dir(Tensor)):
        if not name.startswith("_") and callable(getattr(Tensor, name)) and name not in ("item", "tolist", "asnumpy"):
            found[f"Tensor.{name}"] = getattr(Tensor, name)
    found["T"] = lambda p: Tensor.T.fget(p)
    for sign in ("pos", "neg", "abs", "add", "mul", "sub", "truediv", "pow", "matmul", "floordiv", "mod"):
        found[f"operator.{sign}"] = getattr(operator, sign)
    for index in (..., slice(None), (), (None, ...), (slice(None), ...)):
        found[f"p[{index}]"] = functools.partial(_indexed, where=index)
    for name in sorted(dir(nn)):
        layer = getattr(nn, name)
        if inspect.isclass(layer) and issubclass(layer, nn.Cell) and name not in ("Cell", "SequentialCell"):
            with contextlib.suppress(TypeError, SnncellError):  # this one cannot be created without arguments
                found[f"nn.{name}()"] = layer()
    return found


def _indexed(p, where):
    return Tensor.__getitem__(p, where)


OPERATIONS = operations()


def parameter(shape, dtype) -> Parameter:
    numbers = np.random.default_rng(len(shape)).integers(0, 2, shape) + (0.25 if dtype[0] in "fc" else 0)
    floats = dtype.startswith("float")
    return Parameter(np.asarray(numbers, dtype), name="p", requires_grad=floats)


@pytest.mark.sampled(74)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_return_tensors_not_parameters(name):
    function = OPERATIONS[name]
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        p = parameter(shape, dtype)
        for args, options in calls_of(function, p):
            if isinstance(function, nn.Cell) and type(args[0]) is tuple:
                continue  # passed through unchanged
            try:
                out = function(*args, **options)
                leaves, _ = structure.flatten(out)
            except (SnncellError, TypeError, ValueError, AttributeError):
                continue  # not a valid argument
            for leaf in leaves:
                assert leaf is not p, f"{name}(*{args!r}, **{options!r})"
                assert not isinstance(leaf, Parameter), f"{name}(*{args!r}, **{options!r})"


# Ways to read a Parameter that do not change its value, for a float array of one element.
READINGS = {
    "astype": lambda p: p.astype(p.dtype), "reshape": lambda p: p.reshape(p.shape),
    "broadcast_to": lambda p: ops.broadcast_to(p, p.shape), "squeeze": lambda p: ops.squeeze(p.reshape((1,))),
    "transpose": lambda p: ops.transpose(p, tuple(range(p.ndim))), "T": lambda p: p.T,
    "swapaxes": lambda p: p.swapaxes(0, 0), "concat": lambda p: ops.concat([p]), "pad": lambda p: ops.pad(p, (0, 0)),
    "power": lambda p: p**1, "pos": operator.pos, "conj": ops.conj, "real": ops.real,
    "dropout": lambda p: ops.dropout(p, 0.0), "value": lambda p: p.value(), "to": lambda p: p * 1.0,
    "stop_gradient": ops.stop_gradient, "a layer": nn.Dropout(), "getitem": lambda p: p[...],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["eager", "jit", "in a loop"])
@pytest.mark.parametrize("reading", READINGS)
def test_values_read_before_an_assignment_do_not_change(reading, mode):
    p = Parameter(np.array([2.0], np.float32), name="p", requires_grad=False)

    def change(x):
        old = READINGS[reading](p)
        ops.assign(p, x)
        return p - old

    if mode == "in a loop":
        _, found = ops.scan(lambda c, x: (c, change(x)), ops.zeros(1), Tensor([[5.0], [1.0]]))
        np.testing.assert_array_equal(found.asnumpy(), [[3.0], [-4.0]])
    else:
        found = (snncell.jit(change) if mode == "jit" else change)(Tensor([5.0]))
        np.testing.assert_array_equal(found.asnumpy(), [3.0])


@pytest.mark.parametrize("reading", [name for name in READINGS if name != "stop_gradient"])
def test_gradients_flow_through_identity_operations(reading):
    p = Parameter(np.array([2.0], np.float32), name="p")
    x = Tensor([[1.0], [2.0], [3.0]])

    def loss(x):
        return ops.scan(lambda c, x: (c + READINGS[reading](p) * x, None), ops.zeros(1), x)[0].sum()

    for gradient in (snncell.grad(loss, None, p), snncell.jit(snncell.grad(loss, None, p))):
        np.testing.assert_array_equal(gradient(x).asnumpy(), [6.0])


class Showing(nn.Cell):
    """Return the Parameter, with a custom gradient."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def construct(self, x):
        return self.p

    def bprop(self, x, out, dout):
        return (dout,)


ANSWERS = {
    "a Cell with a reverse": (lambda p, x: Showing(p)(x), [2.0]),
    "of such a Cell, under a tape": (
        lambda p, x: grad(lambda x: (x.sum(), Showing(p)(x)), has_aux=True)(x)[1][0],
        [2.0],
    ),
    "a value beside its gradient": (lambda p, x: value_and_grad(lambda x: p)(x)[0], [2.0]),
    "aux": (lambda p, x: grad(lambda x: (x.sum(), p), has_aux=True)(x)[1][0], [2.0]),
    "vjp": (lambda p, x: ops.vjp(lambda x: p, x)[0], [2.0]),
    "the state that a loop begins with": (lambda p, x: ops.scan(lambda c, x: (c, assign_to(p, x)), p, x)[0], [2.0]),
    "a state": (lambda p, x: ops.scan(lambda c, x: (p, assign_to(p, x + c)), ops.zeros(1), x)[0], [15.0]),
    "results": (lambda p, x: ops.scan(lambda c, x: (assign_to(p, x), p), ops.zeros(1), x)[1], [[7.0], [8.0]]),
}


def assign_to(p, x):
    """Write to `p`, and return a value."""
    ops.assign(p, p + x)
    return p * 1.0


@pytest.mark.parametrize("answer", ANSWERS)
def test_returned_values_do_not_change_with_a_later_assignment(answer):
    """In one function a result is read after a later write: eagerly, step by step, and compiled."""
    ask, expected = ANSWERS[answer]

    def found(run):
        p = Parameter([2.0], name="p", requires_grad=False)

        def read(x):
            old = ask(p, x)
            ops.assign(p, p * 10.0)
            return old * 1.0

        return run(read)(Tensor([[5.0], [1.0]])).asnumpy().tolist()

    assert found(snncell.jit) == expected
    assert found(lambda fn: fn) == expected
    with testing.unfused():
        assert found(lambda fn: fn) == expected


# --- a Parameter among the arguments of a compiled function -----------------------------------------------------------


def _twice(f, p):
    return lambda x: snncell.grad(lambda x: (snncell.grad(f, None, p)(x) * x).sum(), None, p)(x)


GRADIENTS = {
    "of the Parameter": lambda f, p, jit: jit(snncell.grad(f, None, p)),
    "of a compiled function": lambda f, p, jit: snncell.grad(jit(f), None, p),
    "of argument and Parameter": lambda f, p, jit: jit(snncell.grad(f, 0, p)),
    "of both, of a compiled function": lambda f, p, jit: snncell.grad(jit(f), 0, p),
    "of a gradient": lambda f, p, jit: jit(_twice(f, p)),
    "of a compiled gradient": lambda f, p, jit: snncell.grad(
        lambda x: (jit(snncell.grad(f, None, p))(x) * 3.0).sum(), None, p
    ),
}


@pytest.mark.parametrize("kind", GRADIENTS)
def test_parameter_argument_is_identified_as_the_parameter(kind):
    p, q = Parameter([2.0], name="p"), Parameter([3.0], name="q")

    def f(x):
        return (x * x * p).sum()

    arguments = [p.value(), p, Tensor([2.0]), q, q.value(), p.value() * 1.0]
    compiled = GRADIENTS[kind](f, p, snncell.jit)  # one function, called with all arguments in turn
    for argument in [*arguments, *reversed(arguments)]:
        expected = structure.flatten(GRADIENTS[kind](f, p, lambda fn: fn)(argument))[0]
        found = structure.flatten(compiled(argument))[0]
        np.testing.assert_allclose([x.asnumpy() for x in found], [x.asnumpy() for x in expected], rtol=1e-6)
