"""Hooks on Tensors and Parameters: called with the whole gradient, for every way to compute gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell as ms
from snncell import Parameter, Tensor, nn, ops, testing
from snncell.errors import SnncellError, TraceError


class Seen(list[Any]):
    """A hook that records its gradients and returns them times a factor, or returns None."""

    def __init__(self, factor: float | None = None) -> None:
        super().__init__()
        self.factor = factor

    def __call__(self, gradient: Tensor) -> Tensor | None:
        self.append(gradient)
        return None if self.factor is None else gradient * self.factor


X = Tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("factor", [None, 2.0, 0.0])
def test_hook_receives_the_sum_over_all_uses_and_can_replace_it(factor):
    seen = Seen(factor)

    def fn(x: Tensor) -> Tensor:
        y = x * x
        y.register_hook(seen)
        return (y * 3.0 + y * y).sum() + x.sum()

    found = ms.grad(fn)(X)
    whole = 3.0 + 2 * X * X
    np.testing.assert_array_equal(seen[0].asnumpy(), whole.asnumpy())
    assert len(seen) == 1
    expected = whole * (1.0 if factor is None else factor) * 2 * X + 1.0
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)


def test_example_of_mindspore_gives_the_documented_gradient():
    def fn(x, y):
        z = x * y
        z.register_hook(lambda gradient: gradient * 2)
        z = z * y
        return z

    dx, dy = ms.grad(fn, (0, 1))(Tensor(1.0), Tensor(2.0))
    assert (dx.item(), dy.item()) == (8.0, 6.0)


@pytest.mark.parametrize("way", ["eager", "jit", "of jit"])
def test_hooks_on_an_argument_and_on_a_result_are_called(way):
    def fn(x: Tensor) -> Tensor:
        x.register_hook(lambda g: g * 10.0)
        y = ops.sin(x)
        y.register_hook(lambda g: g + 1.0)
        return y

    take = {"eager": ms.grad(fn), "jit": ms.jit(ms.grad(fn)), "of jit": ms.grad(ms.jit(fn))}[way]
    for _ in range(2):
        np.testing.assert_allclose(take(X).asnumpy(), 20 * np.cos(X.asnumpy()), rtol=1e-5)


def test_several_hooks_are_called_in_order_and_removed_separately():
    p = Parameter(X, name="p")
    first = p.register_hook(lambda g: g + 1.0)
    second = p.register_hook(lambda g: g * 10.0)
    take = ms.grad(lambda: (p * 2.0).sum(), None, p)
    assert take().tolist() == [30.0] * 3
    first.remove()
    first.remove()
    assert take().tolist() == [20.0] * 3
    second.remove()
    assert take().tolist() == [2.0] * 3


@pytest.mark.parametrize("jitted", [False, True])
def test_hooks_on_parameters_can_be_added_and_removed_under_jit(jitted):
    p, q = Parameter(X, name="p"), Parameter(X, name="q")
    take = ms.grad(lambda x: (p * q * x).sum(), None, [p, q])
    take = ms.jit(take) if jitted else take
    plain = [g.tolist() for g in take(X)]
    handle = p.register_hook(lambda g: g * 0.0)
    assert [g.tolist() for g in take(X)] == [[0.0] * 3, plain[1]]
    p.requires_grad = False
    p.requires_grad = True  # the hooks stay registered
    assert [g.tolist() for g in take(X)] == [[0.0] * 3, plain[1]]
    handle.remove()
    assert [g.tolist() for g in take(X)] == plain


@pytest.mark.parametrize("unfused", [False, True])
def test_hook_in_a_loop_over_time_is_called_at_each_step(unfused):
    w = Parameter(Tensor(0.5), name="w")

    def step(v: Tensor, x: Tensor) -> Any:
        v = v * w + x
        v.register_hook(lambda g: ops.clip(g, -1.2, 1.2))
        return v, v

    def run(x: Tensor) -> Tensor:
        return ops.scan(step, Tensor(0.0), x)[1].sum()

    if unfused:
        with testing.unfused():
            dx, dw = ms.grad(run, 0, w)(X)
    else:
        dx, dw = ms.grad(run, 0, w)(X)
    assert dx.tolist() == pytest.approx([1.2, 1.2, 1.0])
    assert dw.item() == pytest.approx(1.2 * 1.0 + 1.0 * 2.5)


@pytest.mark.parametrize("unfused", [False, True])
def test_hook_on_a_captured_tensor_of_a_loop_is_called_once_with_the_sum(unfused):
    w, seen = Parameter(Tensor(2.0), name="w"), Seen(3.0)
    w.register_hook(seen)

    def run(x: Tensor) -> Tensor:
        return ops.scan(lambda v, xt: (v + w * xt, v), Tensor(0.0), x)[0]

    take = ms.grad(run, None, w)
    if unfused:
        with testing.unfused():
            found = take(X)
    else:
        found = take(X)
    assert found.item() == 18.0 and [g.item() for g in seen] == [6.0]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_hooks_in_recomputed_blocks_are_called_once(depth):
    seen, inside, at_input = Seen(5.0), Seen(2.0), Seen(7.0)
    w = Parameter(Tensor([2.0, 3.0, 4.0]))
    w.register_hook(seen)

    def fn(x: Tensor) -> Tensor:
        y = ops.sin(x)

        def block(a: Tensor) -> Tensor:
            a.register_hook(at_input)
            y.register_hook(inside)
            return a * a * y * w

        def again(block):
            return lambda a: ms.recompute(block, a)

        for _ in range(depth):
            block = again(block)
        return (block(x * 1.0) * w).sum()

    dx, dw = ms.grad(fn, 0, (w,))(X)
    x, s = X.asnumpy(), np.sin(X.asnumpy())
    v = w.asnumpy()
    np.testing.assert_allclose(dw[0].asnumpy(), 5.0 * 2.0 * v * x * x * s, rtol=1e-5)
    np.testing.assert_allclose(dx.asnumpy(), 7.0 * 2.0 * x * s * v * v + 2.0 * x * x * v * v * np.cos(x), rtol=1e-5)
    assert len(seen) == len(inside) == len(at_input) == 1


def test_second_order_gradients_include_the_hook():
    def fn(x: Tensor) -> Tensor:
        y = x * x * x
        y.register_hook(lambda g: g * 2.0)
        return y

    # Both backward passes call the hook: d/dx (2 * 3 x^2), where y gets no gradient of its own.
    assert ms.grad(ms.grad(fn))(Tensor(2.0)).item() == pytest.approx(24.0)


def test_hook_on_an_output_of_a_cell_with_custom_gradient_is_called():
    class Twice(nn.Cell):
        def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2.0, x * 3.0

        def bprop(self, x: Tensor, out: Any, dout: Any) -> Any:
            return (dout[0] * 2.0 + dout[1] * 3.0,)

    cell = Twice()

    def fn(x: Tensor) -> Tensor:
        a, b = cell(x)
        b.register_hook(lambda g: g * 100.0)
        return (a + b).sum()

    assert ms.grad(fn)(X).tolist() == [302.0] * 3


def test_hook_is_called_only_where_a_gradient_arrives():
    seen = Seen()

    def fn(x: Tensor) -> Tensor:
        unused = x * 2.0
        unused.register_hook(seen)
        stopped = ops.stop_gradient(x) * 2.0
        stopped.register_hook(seen)
        return (x * stopped).sum()

    fn(X)  # without a gradient, no hook is called
    ms.grad(fn)(X)
    assert seen == []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: X.register_hook(3), "register_hook: hook is a function, not 3"),
        (lambda: Tensor([1]).register_hook(lambda g: g), "dtype Int64 has no gradient"),
        (lambda: hooked_with(lambda g: 3.0), r"must return a new gradient \(a Tensor\) or None, not a float"),
        (lambda: hooked_with(lambda g: g.sum()), r"of shape \(3,\) returned a gradient of shape \(\)"),
        (
            lambda: hooked_with(lambda g: g.int()),
            r"dtype Int32; it must have the shape of the Tensor and a float dtype",
        ),
    ],
)
def test_invalid_hooks_raise(call, text):
    with pytest.raises(SnncellError, match=text):
        call()


def hooked_with(hook: Any) -> Tensor:
    def fn(x: Tensor) -> Tensor:
        y = x * 1.0
        y.register_hook(hook)
        return y

    return ms.grad(fn)(X)


def test_hook_can_return_a_wider_float():
    assert hooked_with(lambda g: g.double() * 2).dtype == "float32"


def half_more(x: Tensor) -> Tensor:
    x.register_hook(lambda g: g * 1.5)
    return x


IN_A_STEP = {
    "a result": lambda x: half_more(ops.tanh(x)),
    "what a result is made of": lambda x: ops.sigmoid(half_more(ops.tanh(x)) * 2.0),
    "used twice": lambda x: half_more(ops.tanh(x)) * x,
    "of exp": lambda x: half_more(ops.exp(x)),
    "the input": lambda x: ops.sin(half_more(x * 1.0)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", IN_A_STEP)
@pytest.mark.parametrize("states", [False, True], ids=["of rows", "of states"])
def test_second_order_of_hooks_in_a_loop_equals_the_unrolled_steps(name, states):
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y = IN_A_STEP[name](h * 0.5 + x if states else x)
        return y, y * 2.0

    def looped(h: Tensor, xs: Tensor) -> Tensor:
        return ops.sin(ops.scan(step, h, xs)[1]).sum()

    def unrolled(h: Tensor, xs: Tensor) -> Tensor:
        total = 0.0
        for x in xs:
            h, y = step(h, x)
            total = total + ops.sin(y).sum()
        return total

    h, xs = Tensor([0.3, -0.6], "float64"), Tensor([[0.4, 0.1], [-0.2, 0.5], [0.7, -0.3]], "float64")

    def second(fn: Any) -> Any:
        return ms.grad(lambda h, xs: sum(ops.sin(g).sum() for g in ms.grad(fn, (0, 1))(h, xs)), (0, 1))

    for mine, theirs in zip(second(looped)(h, xs), second(unrolled)(h, xs), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-12)


# --- hooks on the arguments of blocks ---------------------------------------------------------------------------------

BLOCKS = {
    "recompute": lambda block: lambda *args: ms.recompute(block, *args),
    "jit": ms.jit,
    "call": lambda block: lambda *args: block(*args),
}


@random_cases(24)
def test_hook_on_an_argument_of_a_block_receives_the_whole_gradient(seed: int) -> None:
    """Nested blocks are transparent: hooks on their arguments receive the same gradients as in a plain call."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(BLOCKS), rng.integers(1, 4)).tolist()
    factors, weights = rng.choice([1.0, 0.5, 3.0], (2, 2)), rng.integers(1, 5, (4, 2)).astype("f")
    hooked, order = rng.integers(2, size=2).astype(bool), 1 + seed % 2
    passing = bool(rng.integers(2))

    def gradient(kinds: list[str]) -> tuple[list[float], float]:
        seen: list[float] = []

        def hook(factor: float) -> Any:
            return lambda g: (seen.append(g.item()), g * factor)[1]

        def block(a: Tensor, b: Tensor) -> Any:
            for x, factor, wanted in zip((a, b), factors[0], hooked, strict=True):
                if wanted:
                    x.register_hook(hook(float(factor)))
            return (a if passing else a * weights[0, 0]), a * b * weights[0, 1]

        for kind in kinds:
            block = BLOCKS[kind](block)

        def fn(x: Tensor) -> Tensor:
            a, b = ops.split(ops.stack([x * x, x * weights[1, 0]]), 1)
            a.register_hook(hook(float(factors[1, 0])))
            y, z = block(a, b)
            return (y * weights[2, 0] * a + z * b * weights[2, 1]).sum()

        for _ in range(order - 1):
            fn = ms.grad(fn)
        return seen, ms.grad(fn)(Tensor(2.0)).item()

    seen, found = gradient(kinds)
    expected_seen, expected = gradient([])
    assert sorted(seen) == pytest.approx(sorted(expected_seen)) and found == pytest.approx(expected)


def test_hook_on_an_argument_of_a_jitted_function_cannot_use_inner_tensors():
    def block(x: Tensor) -> Tensor:
        y = x * 2.0
        x.register_hook(lambda g: g * y)
        return y

    with pytest.raises(TraceError, match=r"cannot use Tensors from inside .* \(x \* 1.0\).register_hook\(hook\)"):
        ms.grad(ms.jit(block))(X)


def test_hook_registered_by_a_block_can_be_removed():
    kept: list[Any] = []

    def block(x: Tensor) -> Tensor:
        kept.append(x.register_hook(lambda g: g * 2.0))
        return x * 3.0

    def fn(x: Tensor) -> Tensor:
        y = ms.recompute(block, x * 1.0)
        kept[0].remove()
        return y

    assert ms.grad(fn)(Tensor(1.0)).item() == 3.0
