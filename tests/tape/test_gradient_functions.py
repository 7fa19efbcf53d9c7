"""Gradient functions: structure of results, forward-mode derivatives, Jacobians, vmap, recompute."""

from __future__ import annotations

import itertools
from typing import Any

import gradient_table
import numpy as np
import pytest
from programs.compare import InSnncell
from programs.forms import leaves, weighted_sum
from programs.generate import make

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops, surrogate, value_and_grad
from snncell.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError, ShapeError
from snncell.tape import structure

X, Y = np.array([1.0, -2.0, 3.0]), np.array([0.5, 4.0, -1.0])
P, Q = np.array([2.0, 0.25, 1.5]), np.array([-1.0, 1.0, 3.0])
SENS = np.array([1.0, 10.0, -2.0])


def f64(array: Any) -> Tensor:
    return Tensor(np.asarray(array, np.float64))


def same(found: Any, expected: Any) -> None:
    """Check the structure of a result, tuple by tuple, and its numbers."""
    if isinstance(expected, np.ndarray):
        assert type(found) is Tensor
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-9, atol=1e-12)
    elif isinstance(expected, tuple):
        assert type(found) is tuple and len(found) == len(expected), f"{found} for {expected}"
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    else:
        assert found == expected


# --- structure of results ---------------------------------------------------------------------------------------------

POSITIONS: list[Any] = [0, 1, -1, (0,), (1,), (0, 1), (1, 0), (-1, 0), None]
WEIGHTS = ["none", "one", "list of one", "both", "both, turned", "generator"]


def slopes(s: np.ndarray) -> dict[Any, np.ndarray]:
    """The gradients of x y p + q x, computed by hand."""
    return {0: s * (Y * P + Q), 1: s * X * P, "p": s * X * Y, "q": s * X}


def expected_of(position: Any, weights: str, ids: bool, s: np.ndarray) -> Any:
    """Rules: an int, a 1-tuple and a single Parameter return a bare gradient, others a tuple; both return a pair."""
    by = slopes(s)

    def entry(key: Any) -> Any:
        gradient = by[key % 2 if isinstance(key, int) else key]
        return (key, gradient) if ids else gradient

    parts: list[Any] = []
    if position is not None:
        several = position if isinstance(position, tuple) else (position,)
        parts.append(entry(several[0]) if len(several) == 1 else tuple(map(entry, several)))
    names = {"one": "p", "list of one": "p", "both": "pq", "both, turned": "qp", "generator": "pq"}.get(weights)
    if names is not None:
        parts.append(entry("p") if weights == "one" else tuple(map(entry, names)))
    return parts[0] if len(parts) == 1 else tuple(parts)


@pytest.mark.sampled(3)
@pytest.mark.uncompiled
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("position", POSITIONS, ids=str)
def test_results_have_the_documented_structure(position, weights):
    p, q = Parameter(f64(P), name="p"), Parameter(f64(Q), name="q")
    if position is None and weights == "none":
        with pytest.raises(GradientError, match="nothing to differentiate"):
            grad(lambda x, y: x, position)
        return
    for aux, ids, sens, with_value, compiled in itertools.product([False, True], repeat=5):
        given = {
            "none": None, "one": p, "list of one": [p], "both": (p, q), "both, turned": [q, p],
            "generator": (w for w in (p, q)),
        }[weights]  # fmt: skip

        def fn(x: Tensor, y: Tensor, aux: bool = aux) -> Any:
            out = x * y * p + q * x
            return (out, x * 2.0, y) if aux else out

        make = value_and_grad if with_value else grad
        of = make(fn, position, given, has_aux=aux, return_ids=ids, sens_param=sens)
        found = (jit(of) if compiled else of)(f64(X), f64(Y), *([f64(SENS)] if sens else []))
        expected = expected_of(position, weights, ids, SENS if sens else np.ones(3))
        value = (X * Y * P + Q * X, X * 2.0, Y) if aux else X * Y * P + Q * X
        same(found, (value, expected) if with_value else (expected, value[1:]) if aux else expected)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("weights", ["none", "one", "list of one", "both"])
@pytest.mark.parametrize("compiled", [False, True])
def test_vjp_returns_a_tuple_for_the_inputs(weights, several, compiled):
    p, q = Parameter(f64(P), name="p"), Parameter(f64(Q), name="q")
    given = {"none": None, "one": p, "list of one": [p], "both": (p, q)}[weights]
    inputs, by = ([f64(X), f64(Y)] if several else [f64(X)]), slopes(SENS)

    def both(*inputs: Tensor) -> Any:
        y = inputs[1] if several else f64(Y)
        out, pull = snncell.vjp(lambda x, *rest: x * (rest[0] if rest else y) * p + q * x, *inputs, weights=given)
        return out, pull(f64(SENS))

    found = (jit(both) if compiled else both)(*inputs)
    of_inputs = (by[0], by[1]) if several else (by[0],)
    of_weights = {"one": by["p"], "list of one": (by["p"],), "both": (by["p"], by["q"])}.get(weights)
    same(found, (X * Y * P + Q * X, of_inputs if of_weights is None else (of_inputs, of_weights)))
    out, pull, aux = snncell.vjp(lambda x: (x * x, "kept"), f64(X), has_aux=True)
    same((out, pull(f64(SENS)), aux), (X * X, (2 * X * SENS,), ("kept",)))


def test_get_grad_finds_a_gradient_by_position_parameter_and_name():
    p, q = Parameter(f64(P), name="p"), Parameter(f64(Q), name="q")
    for position, weights in itertools.product([0, (0, 1), None], [None, p, (p, q)]):
        if position is None and weights is None:
            continue
        found = grad(lambda x, y: x * y * p + q * x, position, weights, return_ids=True)(f64(X), f64(Y))
        there = [0] * (position is not None) + [1] * (position == (0, 1))
        there += [p] * (weights is not None) + [q, "q"] * isinstance(weights, tuple)
        for key in there:
            same(snncell.get_grad(found, key), slopes(np.ones(3))[key.name if isinstance(key, Parameter) else key])
        with pytest.raises(GradientError, match="there is no gradient of 7; the gradients belong to"):
            snncell.get_grad(found, 7)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: grad(lambda x: x, sens_param=True)(x, x.astype("float32")), DTypeError, "has dtype Float32, the"),
        (lambda x: grad(lambda x: x, sens_param=True)(x, x[:2]), ShapeError, r"has shape \(2,\), the output itself"),
        (lambda x: grad(lambda x: x, sens_param=True)(), GradientError, "with sens_param, pass the gradient to start"),
        (lambda x: ops.GradOperation(sens_param=True)(lambda x: x)(x, x.astype("float16")), TypeError, "dtype Float16"),
        (lambda x: ops.GradOperation(get_all=1), ArgumentTypeError, "get_all is True or False"),
        (lambda x: ops.GradOperation(False, "yes"), TypeError, "get_by_list is True or False"),
        (lambda x: grad(lambda x: x, return_ids=1), TypeError, "return_ids is True or False"),
        (lambda x: snncell.get_grad(x, 0), GradientError, r"gradients must come from grad\(..., return_ids=True\)"),
        (lambda x: snncell.jvp(lambda x: x, x, (x, x)), GradientError, r"v is a tuple of 2, but belongs to a Tensor"),
        (lambda x: snncell.jvp(lambda x: x, x, x[:2]), ShapeError, "direction 0 has shape"),
        (lambda x: snncell.jvp(lambda x: x, x, x.astype("float32")), DTypeError, "direction 0 has dtype Float32"),
        (lambda x: snncell.jvp(lambda x: x, Tensor([1]), Tensor([1])), GradientError, "out of inputs"),
        (lambda x: snncell.jvp(lambda x: x > 0, x, x), GradientError, "which has no gradient"),
        (lambda x: snncell.jacrev(lambda x: (x, x > 0))(x), GradientError, "Return other results as aux, with has_aux"),
        (lambda x: snncell.jacfwd(lambda x: x)([x]), GradientError, "must be a Tensor, not"),
        (lambda x: snncell.jacfwd(lambda x: x, 3)(x), GradientError, "grad_position 3, but the function got 1"),
        (lambda x: snncell.jacrev(nn.ReLU), GradientError, "the class ReLU"),
        (lambda x: grad(nn.ReLU(), [Parameter(x)]), ArgumentTypeError, r"write grad\(fn, None, parameters\)"),
        (lambda x: snncell.vmap(lambda x: x, in_axes=None)(x), ArgumentError, "in_axes are all None"),
        (lambda x: snncell.vmap(lambda x, y: x, (0, 1))(x, x), ArgumentError, "argument 1 of shape .* has no axis 1"),
        (lambda x: snncell.vmap(lambda x, y: x)(x, x[:2]), ShapeError, r"have \[3, 2\] slices"),
        (lambda x: snncell.vmap(lambda x: x, out_axes=4)(x), ArgumentError, "cannot get a new axis at position 4"),
        (lambda x: snncell.vmap(lambda x: 2.0)(x), ArgumentError, "cannot be stacked"),
        (lambda x: snncell.recompute(x, x), GradientError, "block is a function or a Cell, not a Tensor"),
        (lambda x: ops.HookBackward(3), GradientError, "hook_fn is a function of the gradients, not a int"),
        (lambda x: grad(ops.HookBackward(lambda g: (g[0], g[0])))(x), GradientError, "not 2 of them"),
        (lambda x: grad(ops.HookBackward(lambda g: 2.0))(x), GradientError, r"for each of 1 input\(s\), not a float"),
        (lambda x: ops.HyperMap(lambda a, b: a)([1, [2]], [1, 2]), ArgumentError, "of equal length"),
        (lambda x: ops.Map(lambda a: a)(x), ArgumentError, "takes tuples or lists"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call(f64(X))


def test_return_ids_requires_unique_weight_names():
    for names in (("w", "w"), (None, "w")):
        weights = [Parameter(f64(P), name=name) for name in names]
        if all(weight.name is not None for weight in weights) and names[0] is None:
            continue  # anonymous Parameters have names there
        with pytest.raises(GradientError, match="identifies the weights by their names"):
            grad(lambda x: x * weights[0] + weights[1], None, weights, return_ids=True)(f64(X))  # noqa: B023


# --- forward mode -----------------------------------------------------------------------------------------------------

ROWS = [r for r in gradient_table.TABLE if r.order]


@pytest.mark.sampled(60)
@pytest.mark.uncompiled
@pytest.mark.parametrize("r", ROWS, ids=[f"{r.name}-{n}" for n, r in enumerate(ROWS)])
def test_jvp_and_vjp_are_transposes(r):
    """sum(u J v) is equal in both modes for each operation, and both equal the slope of finite differences."""
    rng = np.random.default_rng(3)
    xs = [Tensor(a) for a in r.arrays()]
    directions = [Tensor(rng.standard_normal(x.shape).astype(x.dtype.dtype)) for x in xs]
    if not all(x.dtype.is_float for x in xs):
        return
    out, tangent = snncell.jvp(r.fn, tuple(xs), tuple(directions))
    outs, tangents = structure.flatten(out)[0], structure.flatten(tangent)[0]
    floats = [leaf for leaf in outs if leaf.dtype.is_float]
    assert [(t.shape, t.dtype) for t in tangents] == [(x.shape, x.dtype) for x in floats]
    us = {id(x): Tensor(rng.standard_normal(x.shape).astype(x.dtype.dtype)) for x in floats}
    pulled = snncell.vjp(r.fn, *xs)[1](*[us.get(id(leaf), leaf) for leaf in outs])
    left = sum(np.vdot(us[id(x)].asnumpy(), t.asnumpy()) for x, t in zip(floats, tangents, strict=True))
    right = sum(np.vdot(g.asnumpy(), v.asnumpy()) for g, v in zip(pulled, directions, strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-9)


def slope_of(fn: Any, xs: Any, vs: Any, eps: float = 1e-6) -> list[np.ndarray]:
    """The directional derivative by central differences."""
    sides = []
    for sign in (1.0, -1.0):
        moved = [Tensor(x.asnumpy() + sign * eps * v.asnumpy()) for x, v in zip(xs, vs, strict=True)]
        sides.append([leaf.asnumpy() for leaf in structure.flatten(fn(*moved))[0]])
    return [(a - b) / (2 * eps) for a, b in zip(*sides, strict=True)]


class Twisted(nn.Cell):
    """A matrix with the custom gradient of another matrix."""

    def __init__(self, forward: np.ndarray, reverse: np.ndarray) -> None:
        super().__init__()
        self.forward, self.reverse = f64(forward), f64(reverse)

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(self.forward, x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (ops.matmul(self.reverse, dout),)


@pytest.mark.parametrize("compiled", [False, True])
def test_jvp_of_a_custom_gradient_is_its_transpose(compiled):
    rng = np.random.default_rng(0)
    forward, reverse = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    cell, x, v = Twisted(forward, reverse), f64(X), f64(Y)
    wrap = jit if compiled else (lambda f: f)
    same(wrap(lambda x, v: snncell.jvp(cell, x, v))(x, v), (forward @ X, reverse.T @ Y))
    same(wrap(snncell.jacrev(cell))(x), reverse.T)
    same(wrap(snncell.jacfwd(cell))(x), reverse.T)


LOOPS = {
    "LIF": lambda: nn.MultiStep(nn.LIFNode()),
    "recurrent": lambda: nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(3, 3, weight_init="ones"))),
    "checkpoints": lambda: nn.MultiStep(nn.IFNode(), checkpoint_every=2),
    "scan": lambda: lambda x: ops.scan(lambda c, s: (ops.tanh(c * 0.5 + s), c * s), ops.zeros((2, 3), x.dtype), x)[1],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_jvp_through_a_loop_over_time_with_smooth_spikes(name, compiled):
    net, rng = LOOPS[name](), np.random.default_rng(1)
    x, v = (Tensor(rng.normal(0.5, 1.0, (5, 2, 3))) for _ in range(2))
    with surrogate.smooth():
        run = lambda x, v: snncell.jvp(net, x, v)  # noqa: E731
        out, tangent = (jit(run) if compiled else run)(x, v)
        np.testing.assert_allclose(out.asnumpy(), net(x).asnumpy(), rtol=1e-6)
        np.testing.assert_allclose(tangent.asnumpy(), slope_of(net, [x], [v])[0], rtol=2e-5, atol=1e-7)
        second = grad(lambda x: (snncell.jvp(net, x, v)[1] * v).sum())
        expected = slope_of(lambda x: snncell.vjp(net, x)[1](v)[0], [x], [v])[0]
        np.testing.assert_allclose((jit(second) if compiled else second)(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_jvp_inside_the_step_of_a_loop():
    def step(c: Tensor, x: Tensor) -> Any:
        return c * 0.5 + snncell.jvp(ops.tanh, x, c)[1], snncell.vjp(ops.sin, x)[1](c)[0]

    xs, c = Tensor(np.random.default_rng(0).normal(size=(4, 3))), np.ones(3)
    last, ys = ops.scan(step, f64(c), xs)
    for x, y in zip(xs.asnumpy(), ys.asnumpy(), strict=True):
        np.testing.assert_allclose(y, np.cos(x) * c, rtol=1e-12)
        c = c * 0.5 + (1 - np.tanh(x) ** 2) * c
    np.testing.assert_allclose(last.asnumpy(), c, rtol=1e-12)


# --- Jacobians --------------------------------------------------------------------------------------------------------


def random_function(rng: np.random.Generator, torch: Any) -> tuple[Any, Any]:
    """A random function of x (2,) and y (3,), in snncell and in PyTorch."""
    names = ["tanh", "sin", "exp", "sigmoid"]
    a, b, c = rng.normal(size=(4, 2)), rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    first, second = rng.choice(names, 2)

    def here(x: Tensor, y: Tensor) -> Any:
        h = getattr(ops, first)(ops.matmul(f64(a), x)) * ops.matmul(f64(b), y)
        return getattr(ops, second)(ops.matmul(f64(c), h) * 0.1), (h * h).sum()

    def there(x: Any, y: Any) -> Any:
        h = getattr(torch, first)(torch.tensor(a) @ x) * (torch.tensor(b) @ y)
        return getattr(torch, second)(torch.tensor(c) @ h * 0.1), (h * h).sum()

    return here, there


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(6))
def test_jacobians_equal_those_of_pytorch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    here, there = random_function(rng, torch)
    x, y = rng.normal(size=2), rng.normal(size=3)
    jacobians = torch.autograd.functional.jacobian(there, (torch.tensor(x), torch.tensor(y)))
    expected = tuple(tuple(each.numpy() for each in row) for row in jacobians)
    for jacobian, compiled in itertools.product((snncell.jacrev, snncell.jacfwd), (False, True)):
        wrap = jit if compiled else (lambda f: f)
        same(wrap(jacobian(here, (0, 1)))(f64(x), f64(y)), expected)
        same(wrap(jacobian(here, 1))(f64(x), f64(y)), tuple(row[1] for row in expected))
        same(
            wrap(jacobian(here, (0, 1), has_aux=True))(f64(x), f64(y)),
            (expected[0], (np.asarray(there(*map(torch.tensor, (x, y)))[1]),)),
        )
    hessian = torch.autograd.functional.hessian(lambda x: there(x, torch.tensor(y))[1], torch.tensor(x)).numpy()
    last = lambda x: here(x, f64(y))[1]  # noqa: E731
    v = rng.normal(size=2)
    for outer, inner in itertools.product((snncell.jacrev, snncell.jacfwd), repeat=2):
        same(outer(inner(last))(f64(x)), hessian)
    same(snncell.jvp(grad(last), f64(x), f64(v))[1], hessian @ v)
    same(grad(lambda x: snncell.jvp(last, x, f64(v))[1])(f64(x)), hessian @ v)


def test_jacobians_of_empty_arrays_and_scalars_have_correct_shapes():
    assert snncell.jacrev(lambda x: x * 2.0)(ops.ones((0, 2))).shape == (0, 2, 0, 2)
    assert snncell.jacfwd(lambda x: x.sum())(ops.ones((0,))).shape == (0,)
    assert (
        snncell.jacfwd(lambda x: x * x)(Tensor(3.0)).item() == snncell.jacrev(lambda x: x * x)(Tensor(3.0)).item() == 6
    )


# --- vmap -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_vmap_equals_the_function_of_each_slice(compiled):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 2, 3)), rng.normal(size=(3, 5))
    cell = Twisted(rng.normal(size=(2, 3)), rng.normal(size=(3, 2)))
    wrap = jit if compiled else (lambda f: f)

    def fn(x: Tensor, w: Tensor) -> Any:
        return ops.tanh(ops.matmul(x, w)), (cell(x[0]) * 2.0).sum()

    for axis, out in itertools.product((0, 1, -1), repeat=2):
        given = f64(np.moveaxis(x, 0, axis))
        first, second = wrap(snncell.vmap(fn, (axis, None), (out, 0)))(given, f64(w))
        each = [fn(f64(one), f64(w)) for one in x]
        np.testing.assert_allclose(first.asnumpy(), np.stack([a.asnumpy() for a, _ in each], out), rtol=1e-12)
        np.testing.assert_allclose(second.asnumpy(), [b.item() for _, b in each], rtol=1e-12)
    inside = wrap(snncell.vmap(grad(lambda x, w: fn(x, w)[0].sum() + fn(x, w)[1], (0, 1)), (0, None)))(f64(x), f64(w))
    outside = wrap(grad(lambda x, w: sum((y.sum() for y in snncell.vmap(fn, (0, None))(x, w)), f64(0.0)), (0, 1)))
    of_x, of_w = outside(f64(x), f64(w))
    np.testing.assert_allclose(inside[0].asnumpy(), of_x.asnumpy(), rtol=1e-10)
    np.testing.assert_allclose(inside[1].asnumpy().sum(0), of_w.asnumpy(), rtol=1e-10)


def test_vmap_draws_different_random_numbers_for_each_slice():
    snncell.set_seed(0)
    drawn = snncell.vmap(lambda x: x + ops.uniform(()))(ops.zeros(6)).asnumpy()
    assert len(set(drawn.tolist())) == 6


# --- recompute --------------------------------------------------------------------------------------------------------


class Block(nn.Cell):
    """A Cell with weights, random numbers, and a statistic that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dropout(p=0.5)
        self.last = nn.Dense(4, 3)
        self.calls: list[int] = []

    def construct(self, x: Tensor) -> Tensor:
        self.calls.append(1)
        return self.last(self.drop(ops.tanh(self.norm(self.first(x)))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_recompute_gives_equal_bits(compiled, nested):
    results = []
    for recomputed in (False, True):
        snncell.set_seed(3)
        blocks = [Block(), Block()]
        for block in blocks:
            block.set_train()
        x, outside = ops.uniform((5, 3)), Parameter([1.0, 2.0, 3.0], name="outside")
        call = snncell.recompute if recomputed else (lambda f, *args: f(*args))

        def two(x: Tensor) -> Tensor:
            return call(blocks[1], call(blocks[0], x)) * outside  # noqa: B023

        def loss(x: Tensor) -> Tensor:
            return ops.square(call(two, x) if nested else two(x)).sum()  # noqa: B023

        weights = [p for block in blocks for p in block.trainable_params()] + [outside]
        of = value_and_grad(loss, 0, weights)
        value, (of_x, of_weights) = (jit(of) if compiled else of)(x)
        kept = [p.asnumpy() for block in blocks for p in block.untrainable_params()]
        after = ops.uniform((4,))
        results.append([y.asnumpy() if isinstance(y, Tensor) else y for y in (value, of_x, *of_weights, *kept, after)])
        if not compiled:
            assert len(blocks[0].calls) == ((3 if nested else 2) if recomputed else 1)
    for plain, again in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, again)


def test_recompute_supports_second_order_and_custom_gradients():
    cell, w = surrogate.ATan(), Parameter(f64(P), name="w")

    def block(x: Tensor, y: Tensor) -> Any:
        return ops.tanh(x * w) * cell(y), {"kept": x * y}

    def loss(call: Any) -> Any:
        def of(x: Tensor, y: Tensor) -> Tensor:
            out, others = call(block, x, y)
            return (out * others["kept"]).sum()

        return of

    plain, again = loss(lambda f, *args: f(*args)), loss(snncell.recompute)
    for order in (lambda f: grad(f, (0, 1), w), lambda f: grad(lambda x, y: grad(f)(x, y).sum(), (0, 1), w)):
        found, expected = (structure.flatten(order(f)(f64(X), f64(Y)))[0] for f in (again, plain))
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-13)


def test_recompute_raises_if_the_block_has_changed():
    sizes = [3, 2]

    def block(x: Tensor) -> Tensor:
        return x[: sizes[0]] * x[: sizes[0]]

    out, pull = snncell.vjp(lambda x: snncell.recompute(block, x), f64(X))
    sizes.pop(0)
    with pytest.raises(GradientError, match=r"recompute: block returned Tensors of .* first, but of"):
        pull(ops.ones_like(out))


# --- hooks of gradients, maps over tuples -----------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_hook_sees_and_replaces_gradients(compiled):
    seen: list[Any] = []

    def hook(gradients: Any) -> Any:
        seen.append(len(gradients))
        return tuple(g * 3.0 for g in gradients)

    many, none = ops.HookBackward(hook), ops.HookBackward(lambda gradients: None)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        a, b = many(x * y, x + y)
        return none(a) + ops.stop_gradient(b)

    wrap = jit if compiled else (lambda f: f)
    same(wrap(grad(fn, (0, 1)))(f64(X), f64(Y)), (3 * Y, 3 * X))
    assert seen and set(seen) == {2}
    same(ops.HookBackward(hook)(f64(X)), X)  # without a gradient it is the identity


def test_maps_traverse_tuples_in_parallel():
    add = ops.HyperMap(lambda a, b: a + b)
    assert add(((1, 2), [3]), ((10, 20), [30])) == ((11, 22), [33])
    assert ops.HyperMap()(lambda a: a * 2, [1, (2, 3)]) == [2, (4, 6)]
    assert ops.Map()(len, ([1, 2], [3])) == (2, 1)
    same(add((f64(X),), (f64(Y),)), (X + Y,))


# --- random programs: loops, neurons, custom gradients, writes to Parameters ------------------------------------------


def moved_along(loss: Any, args: tuple[Any, ...], positions: tuple[int, ...]) -> Any:
    """Return the loss as a function of the arguments at some positions."""

    def at(*floats: Tensor) -> Tensor:
        given = list(args)
        for position, x in zip(positions, floats, strict=True):
            given[position] = x
        return loss(*given)

    return at


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize("seed", range(120))
def test_recompute_and_jvp_are_correct_for_random_programs(seed):
    program = make(seed)
    known = InSnncell(program).namespace
    args = tuple(x if p is None else p.value() for x, p in zip(known["inputs"], known["sources"], strict=True))
    positions, trained, written = tuple(known["positions"]), known["trained"], known["written"]
    if not program.linear or not all(isinstance(args[position], Tensor) for position in positions):
        return
    first = [(p, p.asnumpy().copy()) for p in (*trained, *written)]

    def from_the_start(run: Any) -> list[np.ndarray]:
        for parameter, value in first:
            parameter.set_data(value)
        return [leaf.asnumpy() for leaf in leaves([run(), *written])]

    def loss(*given: Tensor) -> Tensor:
        return weighted_sum(leaves(known["program"](*given)))

    found = from_the_start(lambda: grad(loss, positions or None, trained)(*args))
    again = from_the_start(lambda: grad(lambda *a: snncell.recompute(loss, *a), positions or None, trained)(*args))
    for mine, theirs in zip(again, found, strict=True):  # sums of a Parameter's gradients have another order
        np.testing.assert_allclose(mine, theirs, rtol=0.0, atol=1e-6 * max(1.0, float(np.abs(theirs).max(initial=0.0))))
    if not positions:
        return
    rng, xs = np.random.default_rng(seed), tuple(args[position] for position in positions)
    vs = tuple(Tensor(rng.standard_normal(x.shape).astype(x.dtype.dtype)) for x in xs)
    products = [g.astype(np.float64) * v.asnumpy() for g, v in zip(found, vs, strict=False)]
    expected, scale = sum(p.sum() for p in products), 1.0 + sum(np.abs(p).sum() for p in products)
    along = moved_along(loss, args, positions)
    for wrap in (lambda f: f, jit):
        run = wrap(lambda xs, vs: snncell.jvp(along, xs, vs)[1])
        tangent = from_the_start(lambda run=run: run(xs, vs))[0].item()
        assert abs(tangent - expected) < 3e-5 * scale
