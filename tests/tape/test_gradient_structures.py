"""Gradients in nested structures: matched by key and position, both eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import BpropError, GradientError

# --- structures -------------------------------------------------------------------------------------------------------


def random_structure(rng: np.random.Generator, leaf: Callable[[], Any], depth: int = 3) -> Any:
    """A tuple, list or dict with `leaf()` at its positions; at depth 0 a leaf."""
    kind = rng.integers(4) if depth else 0
    if depth < 3 and kind == 0:
        return leaf()
    items = [random_structure(rng, leaf, depth - 1) for _ in range(rng.integers(1, 4))]
    return {str(n): x for n, x in enumerate(items)} if kind < 3 else (tuple if rng.integers(2) else list)(items)


def map_structures(f: Callable[..., Any], *trees: Any) -> Any:
    """Apply `f` to leaves at equal positions, with dicts by key. This is the reference for the package."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: map_structures(f, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, (tuple, list)):
        return type(first)(map_structures(f, *items) for items in zip(*trees, strict=True))
    return f(*trees)


def shuffle_keys(rng: np.random.Generator, tree: Any) -> Any:
    """The same structure with each dict's keys in another order."""
    if isinstance(tree, dict):
        return {key: shuffle_keys(rng, tree[key]) for key in rng.permutation(list(tree)).tolist()}
    return type(tree)(shuffle_keys(rng, x) for x in tree) if isinstance(tree, (tuple, list)) else tree


def leaves_of(tree: Any) -> Iterator[Any]:
    """The leaves, with those of dicts in the order of sorted keys."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, (tuple, list)):
        for x in tree:
            yield from leaves_of(x)
    else:
        yield tree


def agree(found: Any, expected: Any) -> None:
    map_structures(lambda a, b: np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-6), expected, found)


@random_cases(40)
def test_gradients_in_dicts_are_matched_by_key(seed: int) -> None:
    rng = np.random.default_rng(seed)
    compiled = snncell.jit if seed % 4 == 0 else lambda fn: fn

    def drawn() -> Tensor:
        return Tensor(rng.standard_normal(2).astype("f"))

    x = random_structure(rng, drawn)
    weight, dout, v = (map_structures(lambda _: drawn(), x) for _ in range(3))
    mixed = shuffle_keys(rng, dout)

    def scaled(x: Any) -> Any:
        return map_structures(lambda a, b: a * b, x, weight)

    expected = map_structures(lambda a, b: a * b, weight, dout)
    agree(compiled(lambda x, dout: snncell.vjp(scaled, x)[1](dout)[0])(x, mixed), expected)
    agree(compiled(snncell.grad(scaled, sens_param=True))(x, mixed), expected)
    agree(compiled(snncell.value_and_grad(scaled, sens_param=True))(x, mixed)[1], expected)
    if isinstance(x, (dict, Tensor)):  # the items of others are arguments
        agree(snncell.jvp(scaled, x, shuffle_keys(rng, v))[1], map_structures(lambda a, b: a * b, weight, v))

    class Scaled(nn.Cell):
        def construct(self, x: Any) -> Any:
            return scaled(x)

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            # A separate generator, because a trace refuses draws from a captured one.
            order = np.random.default_rng(seed)
            return (shuffle_keys(order, map_structures(lambda a, b: a * b, weight, dout)),)

    agree(compiled(snncell.grad(Scaled(), sens_param=True))(x, mixed), expected)


@random_cases(40)
def test_gradients_of_another_structure_raise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = {"a": Tensor([1.0]), "b": random_structure(rng, lambda: Tensor([2.0]))}
    good = map_structures(lambda _: Tensor([1.0]), x)
    wrong: Any = {
        0: {"a": good["a"]},
        1: {**good, "c": Tensor([1.0])},
        2: {"a": good["b"], "b": good["a"]},
        3: {"a": good["a"], "B": good["b"]},
        4: list(good.values()),
        5: {"a": [good["a"]], "b": good["b"]},
        6: {"a": 1.0, "b": good["b"]},
    }[seed % 7]
    for call in (
        lambda: snncell.vjp(lambda x: x, x)[1](wrong),
        lambda: snncell.jvp(lambda x: x, x, wrong),
        lambda: snncell.grad(lambda x: x, sens_param=True)(x, wrong),
        lambda: ops.GradOperation(sens_param=True)(lambda a: {**x, "a": a})(x["a"], wrong),
    ):
        with pytest.raises(GradientError, match=r"but belongs to a .*\. Give "):
            call()

    class Wrong(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (wrong,)

    with pytest.raises(BpropError, match="must have the structure of the input"):
        snncell.grad(Wrong())(x)


def test_several_gradients_are_accepted_separately_or_as_a_structure() -> None:
    x = Tensor([1.0])
    _, pull = snncell.vjp(lambda x: (x, {"b": x * 2.0, "c": x * 3.0}), x)
    one, ten, hundred = Tensor([1.0]), Tensor([10.0]), Tensor([100.0])
    for douts in ((one, ten, hundred), (one, {"c": hundred, "b": ten}), ((one, {"c": hundred, "b": ten}),)):
        assert pull(*douts)[0].tolist() == [321.0]
    _, pull = snncell.vjp(lambda x: ({"b": x},), x)
    assert pull({"b": ten})[0].tolist() == pull(({"b": ten},))[0].tolist() == [10.0]


# --- frozen and unfrozen Parameters -----------------------------------------------------------------------------------


def _direct(p: Parameter) -> Callable[..., Any]:
    return lambda q: snncell.grad(lambda: (q * q * p).sum(), None, weights=p)()


def _argument_alone(p: Parameter) -> Callable[..., Any]:
    return lambda q: snncell.grad(lambda: (q * q * q).sum(), None, weights=p)()


def _in_a_loop(p: Parameter) -> Callable[..., Any]:
    def step(q: Any) -> Any:
        return snncell.grad(lambda: (q * q * p).sum(), None, weights=p)()

    return lambda q: ops.scan(lambda c, x: (c, step(q) * x), Tensor(0.0), ops.ones(1))[1][0]


def _in_a_block(p: Parameter) -> Callable[..., Any]:
    def gradient(q: Any) -> Any:
        return snncell.grad(lambda: snncell.recompute(lambda a: a * a * p, q).sum(), None, weights=p)()

    return gradient


@pytest.mark.compiled
@random_cases(24)
def test_unfrozen_parameter_gets_its_whole_gradient(seed: int) -> None:
    """p ** 3 has the gradient 3 p ** 2 if p is an argument, if its value is one, or if p is captured."""
    rng = np.random.default_rng(seed)
    p, other = Parameter(Tensor(3.0), name="p"), Parameter(Tensor(3.0), name="other")
    make = [_direct, _argument_alone, _in_a_loop, _in_a_block][seed % 4]
    own = 0.0 if make is _argument_alone else 9.0  # the gradient of the captured Parameter
    fn = snncell.jit(make(p)) if seed % 3 else make(p)
    for _ in range(6):
        p.requires_grad = bool(rng.integers(3))
        if not p.requires_grad:
            with pytest.raises(GradientError, match="has requires_grad=False"):
                fn(p)
            continue
        argument, expected = [(p, 27.0), (p.value(), 27.0), (other, own), (Tensor(3.0), own)][rng.integers(4)]
        assert fn(argument).item() == pytest.approx(expected)


def test_parameter_unfrozen_inside_a_function_gets_gradients_of_all_uses() -> None:
    p = Parameter(Tensor(3.0), name="p")

    def cube() -> Tensor:
        a = p * 1.0
        p.requires_grad = False
        b = p * 1.0  # a constant
        p.requires_grad = True
        return a * b * p

    assert snncell.grad(cube, None, weights=p)().item() == 18.0
