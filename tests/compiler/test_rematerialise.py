"""Rematerialisation: values that a loop stores for its backward pass, shared events, and spikes as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreting import traced
from test_scan import XS, C, W, close, normal, plain, python_loop

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops, value_and_grad
from snncell.compiler.passes import optimise
from snncell.compiler.passes.simplify import canonical_step
from snncell.kernels.products import matmul

__all__ = ["plain"]  # a fixture


def kept_step(step: Any, init: Any = C, xs: Any = XS) -> Any:
    """Return the forward of a differentiated scan in a Program."""
    found = traced(value_and_grad(lambda xs: ops.scan(step, init, xs)[1].sum()), xs)
    (forward,) = [s for s in found.instructions if s.op.name == "scan" and s.op.loop.who == "scan"]
    return forward


def stored_values(step: Any, init: Any = C, xs: Any = XS) -> list[tuple[str, tuple[int, ...]]]:
    """For each value that a scan stores for its backward pass, return the operation and the shape for one time step."""
    forward = kept_step(step, init, xs)
    program = canonical_step(forward.op.loop.body)
    made = {out: s.op.name for s in program.instructions for out in s.outputs}
    values = program.outputs[len(forward.op.loop.body.after) :]
    last = {id(y) for y in forward.op.loop.body.saved}
    flags = [id(y) in last for y in forward.op.loop.body.ys]
    return [(made.get(value, "state"), value.shape) for value, flag in zip(values, flags, strict=True) if flag]


class Spike(nn.Cell):
    """A step function with a surrogate slope."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout / ops.square(1.0 + ops.abs(x)),)


def fires(c: Any, x: Any, decay: float = 0.5) -> Any:
    h = c * decay + x
    s = Spike()(h - 0.4)
    return h * (1.0 - s), s


# --- minimum cut ------------------------------------------------------------------------------------------------------


def test_neuron_stores_only_its_membrane() -> None:
    assert stored_values(fires) == [("add", (2, 3))]


def test_linear_step_stores_nothing() -> None:
    assert stored_values(lambda c, x: (c * 0.5 + x, c * 2.0)) == []


def test_values_of_the_input_are_not_stored() -> None:
    assert stored_values(lambda c, x: (c * 0.5 + ops.tanh(x), c)) == []


def test_two_states_with_one_use_are_stored_as_their_combination() -> None:
    assert stored_values(lambda c, x: ((c[0] * 0.5 + x, c[1] + c[0]), ops.tanh(c[0] + c[1])), (C, C)) == [
        ("tanh", (2, 3))
    ]


def test_products_are_stored_for_every_shape() -> None:
    u, d = normal(3, 5), normal(5, 3)
    names = stored_values(lambda c, x: (lambda n: (n, n))(ops.tanh(ops.sigmoid(c @ u) @ d + x)))
    assert ("matmul", (2, 5)) in names


def test_result_is_not_stored_twice() -> None:
    step = kept_step(lambda c, x: (lambda n: (c * 0.5 + n, n))(ops.tanh(x + c)))
    values = canonical_step(step.op.loop.body).outputs[1:]
    assert len(values) == 2 and values[0] is values[1]  # the result, and the same value stored for the backward pass


class Both(nn.Cell):
    """Two results and a custom gradient, which the tape treats as one operation."""

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.tanh(x), x * x

    def bprop(self, x: Tensor, out: Any, dout: Any) -> tuple[Tensor]:
        return (dout[0] * x * out[0] + dout[1] * ops.sin(x) * out[1],)


class Ignores(nn.Cell):
    """A forward pass without its second input, and a custom gradient that uses it."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.tanh(x)

    def bprop(self, x: Tensor, y: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        return dout * out * y, dout * x * x * out


class Same(nn.Cell):
    """Return the input, with a custom gradient."""

    def construct(self, x: Tensor) -> Tensor:
        return x

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * x * x,)


def twice(c: Any, x: Any) -> Any:
    return ops.tanh(c * 0.5 + x) * (c * 0.5 + x), ops.sigmoid(c * 0.5 + x)


def merged(c: Any, x: Any) -> Any:
    z = c + x
    z = c + x  # a duplicate, so that the first is unused
    return ops.tanh(z), z


def dropped(c: Any, x: Any) -> Any:
    p = (c @ W) * 0.5
    Same()(p)
    return c, (ops.tanh(c @ W) * p) * x


STEPS = {
    "written again": merged,
    "a result that is dropped": dropped,
    "a neuron": fires,
    "two results": lambda c, x: (lambda a, b: (a * c + b, a * b))(*Both()(c * 0.7 + x)),
    "an input that only the reverse uses": lambda c, x: (lambda n: (n, n * c))(Ignores()(c + x, c * x)),
    "an input given back": lambda c, x: (lambda n: (ops.tanh(n * c), n * x))(Same()(c * 0.5 + x)),
    "a state given back": lambda c, x: (lambda n: (ops.tanh(n + x), n * n))(Same()(c)),
    "stopped and not": lambda c, x: (lambda h: (ops.tanh(h * ops.stop_gradient(h) + c), h))(c * 0.5 + x),
    "the same twice": twice,
    "a product in a reverse": lambda c, x: (lambda p: (ops.tanh(p * p + x), p * c))(c @ W),
    "a product twice": lambda c, x: (ops.tanh(c @ W + x), ops.sigmoid(c @ W)),
}


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", STEPS)
def test_gradients_of_all_orders_from_stored_values_are_correct(name: str) -> None:
    def total(run: Any) -> Any:
        return lambda c, x: (lambda last, ys: (last * 0.3).sum() + (ys * ys).sum())(*run(STEPS[name], c, x))

    def second(run: Any) -> Any:
        first = grad(total(run), (0, 1))
        return grad(lambda c, x: sum((g * g).sum() for g in first(c, x)), (0, 1))

    for of in (lambda run: grad(total(run), (0, 1)), second):
        expected = of(python_loop)(C, XS)
        for run in (ops.scan, lambda f, c, x: ops.scan(f, c, x, checkpoint_every=2)):
            close(of(run)(C, XS), expected, rtol=1e-9)
        close(jit(of(ops.scan))(C, XS), expected, rtol=1e-9)


def test_failing_custom_gradient_raises_at_the_pullback() -> None:
    class Fails(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return x * 2.0

        def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
            raise ValueError("not written yet")

    fails = Fails()
    value, pull = ops.vjp(lambda x: ops.scan(lambda c, x: (fails(c + x), c), C, x)[0], XS)
    assert value.shape == (2, 3)
    with pytest.raises(ValueError, match="not written yet"):
        pull(ops.ones_like(value))


# --- shared events, and spikes as bytes -------------------------------------------------------------------------------


class Layers(nn.Cell):
    """Two layers of neurons and a readout."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.w0, self.w1, self.w2 = (Parameter(rng.normal(size=(20, 20)).astype(np.float32)) for _ in range(3))
        self.first, self.second = (nn.MultiStep(nn.LIFNode(tau=2.0)) for _ in range(2))

    def construct(self, x: Tensor) -> Tensor:
        spikes = self.second(self.first(x @ self.w0) @ self.w1)
        # Weights each step, because a plain mean would be taken before the product.
        return ops.square(spikes @ self.w2).mean(0)


@pytest.fixture
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small products count as worth a search for events."""
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 0.5)


@pytest.mark.parametrize("density", [0.1, 0.9])
def test_shared_events_give_correct_gradients_of_products(small_too: None, density: float) -> None:
    net = Layers()
    x = Tensor((np.random.default_rng(1).random((6, 4, 20)) < density).astype(np.float32))
    weights = [net.w0, net.w1, net.w2]
    both = value_and_grad(lambda x: ops.square(net(x)).sum(), 0, weights)
    close(jit(both)(x), both(x), rtol=2e-5, atol=1e-5)
    names = [step.op.name for step in optimise(traced(both, x)).instructions]
    assert names.count("events") == 3 and names.count("product_of_events") == 6


def test_spikes_used_only_by_products_are_bytes(small_too: None) -> None:
    net = Layers()
    x = ops.ones((6, 4, 20))
    program = optimise(traced(value_and_grad(lambda x: ops.square(net(x)).sum(), 0, [net.w0, net.w1, net.w2]), x))
    given = [[str(out.dtype) for out in step.outputs] for step in program.instructions if step.op.name == "scan"]
    assert [kinds.count("bool") for kinds in given] == [1, 1, 0, 0]
    (shown,) = {str(step.inputs[0].dtype) for step in program.instructions if step.op.name == "events"} - {"float32"}
    assert shown == "bool"


def test_spikes_with_other_consumers_are_floats(small_too: None) -> None:
    net = Layers()

    def total(x: Tensor) -> Any:
        spikes = net.first(x @ net.w0)
        return (spikes @ net.w1).sum(), spikes

    program = optimise(traced(value_and_grad(total, 0, [net.w0, net.w1], has_aux=True), ops.ones((6, 4, 20))))
    assert not any(out.dtype == bool for step in program.instructions for out in step.outputs)


@pytest.mark.parametrize("recurrent", [True, False])
def test_spikes_that_are_stored_as_states_are_floats(small_too: None, recurrent: bool) -> None:
    net = nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=2.0), nn.Dense(20, 20)))
    w = Parameter(np.ones((20, 20), np.float32))
    weights = [*net.trainable_params(), w] if recurrent else [w]  # the former need the states before each step
    program = optimise(traced(value_and_grad(lambda x: ops.square(net(x) @ w).sum(), 0, weights), ops.ones((6, 4, 20))))
    assert [step.op.name for step in program.instructions].count("events") == 1
    assert any(out.dtype == bool for step in program.instructions for out in step.outputs) != recurrent


def test_small_products_are_not_prepared() -> None:
    net = Layers()
    program = optimise(
        traced(value_and_grad(lambda x: net(x).sum(), 0, [net.w0, net.w1, net.w2]), ops.ones((6, 4, 20)))
    )
    assert not {"events", "product_of_events"}.intersection(step.op.name for step in program.instructions)


def test_matrix_with_one_consumer_is_not_prepared(small_too: None) -> None:
    w = Tensor(np.ones((20, 20), np.float32))
    program = optimise(traced(lambda x: x @ w, ops.ones((4, 20))))
    assert [step.op.name for step in program.instructions] == ["matmul"]
    assert snncell.jit(lambda x: x @ w)(ops.ones((4, 20))).asnumpy().sum() == 1600
