"""Gradients through jitted functions: of inputs and weights, of any order, with effects and random numbers inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreting import interpreted

from snncell import Parameter, Tensor, grad, jit, nn, ops, value_and_grad
from snncell.testing import check_grads

__all__ = ["interpreted"]  # a fixture

pytestmark = pytest.mark.usefixtures("interpreted")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape))


W = Parameter(np.random.default_rng(3).normal(size=(4, 3)), name="w")
B = Parameter(np.random.default_rng(4).normal(size=(3,)), name="b")


def layer(x: Tensor) -> Tensor:
    return ops.square(ops.tanh(x @ W + B)).sum()


jitted = jit(layer)


def same(found: Any, expected: Any) -> None:
    assert found.dtype is expected.dtype
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-12, atol=1e-14)


def test_gradient_of_inputs_and_weights_equals_eager_mode() -> None:
    x = normal(2, 4)
    value, (of_x, of_weights) = value_and_grad(jitted, 0, weights=[W, B])(x)
    expected, (eager_x, eager_weights) = value_and_grad(layer, 0, weights=[W, B])(x)
    for a, b in zip((value, of_x, *of_weights), (expected, eager_x, *eager_weights), strict=True):
        same(a, b)


def test_gradients_match_finite_differences_to_the_second_order() -> None:
    check_grads(jitted, normal(2, 4), order=2)
    check_grads(
        jit(lambda x, y: (ops.softmax(x) * y, ops.exp(x.sum(axis=0)))), normal(2, 3), normal(3, seed=1), order=2
    )


@pytest.mark.parametrize("outer", [lambda f: f, jit], ids=["eager", "jit"])
@pytest.mark.parametrize("inner", [layer, jitted], ids=["eager", "jit"])
def test_second_order_gradients_work_in_every_nesting(inner: Any, outer: Any) -> None:
    x = normal(2, 4)

    def penalty(x: Tensor) -> Tensor:
        return ops.square(grad(inner)(x)).sum()

    expected = grad(lambda x: ops.square(grad(layer)(x)).sum())(x)
    same(outer(grad(penalty))(x), expected)
    same(grad(outer(penalty))(x), expected)


def test_second_order_gradients_of_weights_equal_eager_mode() -> None:
    x = normal(2, 4)

    def penalty(f: Any) -> Any:
        return lambda x: ops.square(grad(f, None, weights=W)(x)).sum()

    expected_w, expected_b = grad(penalty(layer), None, weights=[W, B])(x)
    found_w, found_b = grad(penalty(jitted), None, weights=[W, B])(x)
    same(found_w, expected_w)
    same(found_b, expected_b)


def test_third_order_gradients_equal_eager_mode() -> None:
    f = jit(lambda x: (x * x * x * x).sum())

    def derivative(g: Any) -> Any:
        return lambda x: grad(g)(x).sum()

    same(grad(derivative(derivative(f)))(Tensor([2.0])), Tensor([48.0]))


def test_nested_jit_compiles_to_one_program() -> None:
    inner = jit(lambda x: ops.exp(x))
    outer = jit(lambda x: inner(x) * 2.0)
    x = normal(3)
    same(outer(x), ops.exp(x) * 2.0)
    assert outer.explain(x, detail="launches").count("loop loop_exp_mul") == 1
    same(grad(lambda x: outer(x).sum())(x), ops.exp(x) * 2.0)


def test_inputs_without_gradient_and_structures_are_supported() -> None:
    f = jit(lambda pair, index: {"out": ops.gather(pair["a"], index) * pair["b"], "index": index})
    pair = {"a": normal(3), "b": Tensor(2.0, dtype="float64")}
    index = Tensor([0, 2, 2])
    grads = grad(lambda pair: f(pair, index)["out"].sum())(pair)
    same(grads["a"], Tensor(np.array([2.0, 0.0, 4.0])))
    same(grads["b"], ops.gather(pair["a"], index).sum())


def test_unused_inputs_and_outputs_have_zero_gradients() -> None:
    f = jit(lambda x, y: (x * 2.0, y * 3.0))
    of_x, of_y = grad(lambda x, y: f(x, y)[0].sum(), (0, 1))(normal(3), normal(2))
    assert of_x.tolist() == [2.0] * 3
    assert of_y.tolist() == [0.0] * 2


def test_parameter_as_argument_and_weight_gets_both_gradients() -> None:
    p = Parameter([2.0], name="p")
    f = jit(lambda x: (x * x * p).sum())
    of_x, of_p = grad(f, 0, weights=p)(p)
    assert (of_x.item(), of_p.item()) == (8.0, 4.0)


def test_custom_gradient_inside_is_called() -> None:
    class Straight(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return ops.round(x)

        def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
            return (dout * 7.0,)

    f = jit(Straight())
    assert grad(lambda x: f(x).sum())(Tensor([0.2, 1.7])).tolist() == [7.0, 7.0]
    assert jit(grad(lambda x: Straight()(x).sum()))(Tensor([0.2, 1.7])).tolist() == [7.0, 7.0]


# --- the backward pass uses the state of the forward pass -------------------------------------------------------------


def test_backward_uses_the_weights_of_the_forward() -> None:
    p = Parameter([2.0], name="p")
    for f in (lambda x: x * p, jit(lambda x: x * p)):
        p.set_data([2.0])
        _, pull = ops.vjp(f, Tensor([1.0]))
        p.set_data([7.0])
        assert pull(Tensor([1.0]))[0].item() == 2.0


def test_backward_of_dropout_uses_the_mask_of_the_forward() -> None:
    f = jit(lambda x: ops.dropout(x, 0.5))
    masks = set()
    for _ in range(4):
        out, pull = ops.vjp(f, ops.ones((64,)))
        assert pull(ops.ones((64,)))[0].tolist() == out.tolist()
        masks.add(out.asnumpy().tobytes())
    assert len(masks) == 4


def test_two_backward_passes_of_dropout_use_their_own_masks() -> None:
    f = jit(lambda x: ops.dropout(x, 0.5))
    first, pull_first = ops.vjp(f, ops.ones((64,)))
    second, pull_second = ops.vjp(f, ops.ones((64,)))
    assert pull_second(ops.ones((64,)))[0].tolist() == second.tolist()
    assert pull_first(ops.ones((64,)))[0].tolist() == first.tolist()


def test_gradient_advances_the_random_state_once() -> None:
    def following(f: Any) -> list[float]:
        from snncell import set_seed

        set_seed(5)
        grad(lambda x: f(x).sum())(ops.ones((8,)))
        return ops.uniform((4,)).tolist()

    def f(x: Tensor) -> Tensor:
        return ops.dropout(x, 0.5)

    assert following(jit(f)) == following(f)


def test_effects_happen_once_under_a_gradient() -> None:
    count = Parameter([0.0], name="count", requires_grad=False)

    def f(x: Tensor) -> Tensor:
        ops.assign(count, count + 1.0)
        return x * count

    for g in (f, jit(f)):
        count.set_data([0.0])
        assert grad(g)(Tensor([1.0])).item() == 1.0
        assert count.item() == 1.0


def test_normalisation_statistics_update_once_under_a_gradient() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32))

    def statistics(wrapper: Any) -> list[Any]:
        net = nn.BatchNorm1d(2)
        net.set_train()
        f = wrapper(net)
        grad(lambda x: ops.square(f(x)).sum())(x)
        return [parameter.asnumpy() for parameter in net.untrainable_params()]

    for found, expected in zip(statistics(jit), statistics(lambda f: f), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_discarded_pullback_leaves_no_effects() -> None:
    x = normal(2, 4)
    before = grad(jitted)(x)
    ops.vjp(jitted, x)
    same(grad(jitted)(x), before)
    same(jitted(x), layer(x))
