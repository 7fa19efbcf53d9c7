"""Forward and backward hooks of Cells: eager, jitted, in loops over time, with custom gradients, of second order."""

import numpy as np
import pytest
from cells import Leaf, Spy

import snncell
from snncell import Tensor, nn
from snncell.errors import ArgumentTypeError, GradientError, ShapeError

X = Tensor([1.0, 2.0])


class Scaled(nn.Cell):
    """x * w + extra."""

    def __init__(self):
        super().__init__()
        self.leaf = Leaf()

    def construct(self, x, extra=0.0):
        return self.leaf(x) + extra


def as_list(x):
    return None if x is None else x.asnumpy().tolist()


# --- forward ----------------------------------------------------------------------------------------------------------


def test_hooks_before_and_after_a_call_see_and_replace_values():
    cell, seen = Leaf(), []
    before = cell.register_forward_pre_hook(lambda c, inputs: seen.append((c, as_list(inputs[0]))))
    change = cell.register_forward_pre_hook(lambda c, inputs: inputs[0] * 2.0)
    after = cell.register_forward_hook(lambda c, inputs, out: seen.append((as_list(inputs[0]), as_list(out))))
    double = cell.register_forward_hook(lambda c, inputs, out: out * 10.0)
    assert as_list(cell(X)) == [20.0, 80.0]
    assert seen == [(cell, [1.0, 2.0]), ([2.0, 4.0], [2.0, 8.0])]
    for handle in (before, change, after, double):
        handle.remove()
        handle.remove()
    assert as_list(cell(X)) == [1.0, 4.0] and len(seen) == 2 and not cell.is_hooked


def test_prepend_puts_a_hook_first():
    cell, order = Leaf(), []
    for name, first in [("a", False), ("b", False), ("c", True)]:
        cell.register_forward_pre_hook(lambda c, i, name=name: order.append(name), prepend=first)
        cell.register_forward_hook(lambda c, i, o, name=name: order.append(name.upper()), prepend=first)
    cell(X)
    assert order == ["c", "a", "b", "C", "A", "B"]


def test_hooks_with_kwargs_receive_them():
    cell, seen = Scaled(), []
    cell.register_forward_pre_hook(lambda c, args, kwargs: (args, {"extra": kwargs["extra"] * 2.0}), with_kwargs=True)
    cell.register_forward_hook(lambda c, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    assert as_list(cell(X, extra=1.0)) == [3.0, 6.0] and seen == [{"extra": 2.0}]
    cell.register_forward_pre_hook(lambda c, args, kwargs: args, with_kwargs=True)
    with pytest.raises(ArgumentTypeError, match=r"Scaled: a forward pre hook with kwargs returns None or \(args, kwar"):
        cell(X, extra=1.0)


def test_always_call_hook_runs_after_a_failure():
    cell, seen = Scaled(), []
    cell.register_forward_hook(lambda c, args, out: seen.append("never"))
    cell.register_forward_hook(lambda c, args, out: seen.append(out), always_call=True)
    with pytest.raises(ShapeError):
        cell(Tensor([1.0, 2.0, 3.0]))
    assert seen == [None]
    broken = nn.Cell()
    broken.construct = lambda x: 1 // 0
    broken.register_forward_hook(lambda c, args, out: seen.append("divided"), always_call=True)
    with pytest.raises(ZeroDivisionError):
        broken(X)
    assert seen == [None, "divided"]


def test_hook_that_removes_itself_does_not_skip_the_others():
    cell, seen = Leaf(), []
    once = cell.register_forward_hook(lambda c, i, o: (seen.append("once"), once.remove())[2:] or None)
    cell.register_forward_hook(lambda c, i, o: seen.append("ever"))
    cell(X)
    cell(X)
    assert seen == ["once", "ever", "ever"]


@pytest.mark.parametrize(
    "register",
    ["register_forward_pre_hook", "register_forward_hook", "register_backward_hook", "register_backward_pre_hook"],
)
def test_hook_that_is_not_callable_raises(register):
    with pytest.raises(ArgumentTypeError, match=r"Leaf.*hook.* is a function, not"):
        getattr(Leaf(), register)(3)


# --- backward ---------------------------------------------------------------------------------------------------------


def run_eager(fn, *args):
    return fn(*args)


def run_jitted(fn, *args):
    return snncell.jit(fn)(*args)


MODES = [run_eager, pytest.param(run_jitted, marks=pytest.mark.compiled)]


@pytest.mark.parametrize("run", MODES)
def test_backward_hooks_replace_gradients(run):
    net = nn.SequentialCell(Leaf(), Leaf())
    loss = lambda x: net(x).sum()  # noqa: E731
    taken = lambda x: snncell.grad(loss, 0, net.trainable_params())(x)  # noqa: E731
    dx, (first, second) = run(taken, X)
    handles = [
        net[1].register_backward_pre_hook(lambda c, grads: (grads[0] * 2.0,)),
        net[1].register_backward_hook(lambda c, grads, of_out: grads[0] * 5.0),
    ]
    changed, (first_changed, second_changed) = run(taken, X)
    assert as_list(changed) == as_list(dx * 10.0) and as_list(first_changed) == as_list(first * 10.0)
    assert as_list(second_changed) == as_list(second * 2.0)
    for handle in handles:
        handle.remove()
    assert as_list(run(taken, X)[0]) == as_list(dx)


def test_backward_hooks_see_gradients_of_inputs_and_outputs():
    class Two(nn.Cell):
        def construct(self, x, y, n):
            return x * y, x + n

    cell, seen = Two(), []
    cell.register_backward_pre_hook(lambda c, of_out: seen.append([as_list(g) for g in of_out]))
    cell.register_backward_hook(
        lambda c, of_in, of_out: seen.append(([as_list(g) for g in of_in], [as_list(g) for g in of_out]))
    )
    n = Tensor([1, 1])
    snncell.grad(lambda x, y: cell(x, y, n)[0].sum() * 3.0, (0, 1))(X, Tensor([5.0, 7.0]))
    assert seen == [
        [[3.0, 3.0], [0.0, 0.0]],
        ([[15.0, 21.0], [3.0, 6.0]], [[3.0, 3.0], [0.0, 0.0]]),
    ]
    assert as_list(cell(X, X, n)[0]) == [1.0, 4.0] and len(seen) == 2  # no gradient is computed


def test_first_layer_has_no_gradients_of_inputs():
    net, seen = nn.SequentialCell(Leaf(), Leaf()), []
    net[0].register_backward_hook(lambda c, of_in, of_out: seen.append((of_in, as_list(of_out[0]))))
    snncell.grad(lambda: net(X).sum(), None, net.trainable_params())()
    assert seen == [((None,), [1.0, 2.0])]


def test_backward_hooks_of_a_cell_with_bprop_are_called_but_not_of_inner_cells():
    spy, seen = Spy(), []
    spy.register_backward_hook(lambda c, of_in, of_out: seen.append((as_list(of_in[0]), as_list(of_out[0]))))
    assert as_list(snncell.grad(lambda x: spy(x).sum())(X)) == [10.0, 10.0]
    assert seen == [([10.0, 10.0], [1.0, 1.0])]

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Spy()
            self.inner.register_backward_hook(lambda c, of_in, of_out: seen.append("inner"))

        def construct(self, x):
            return self.inner(x)

        def bprop(self, x, out, dout):
            return (dout,)

    assert as_list(snncell.grad(lambda x: Outer()(x).sum())(X)) == [1.0, 1.0] and len(seen) == 1


def test_each_call_has_separate_gradients():
    leaf, seen = Leaf(), []
    leaf.register_backward_hook(lambda c, of_in, of_out: seen.append((as_list(of_in[0]), as_list(of_out[0]))))
    snncell.grad(lambda x: leaf(leaf(x)).sum())(X)
    assert seen == [([1.0, 2.0], [1.0, 1.0]), ([1.0, 4.0], [1.0, 2.0])]


@pytest.mark.parametrize("run", MODES)
def test_second_order_gradients_include_the_hook(run):
    cube = nn.Cell()
    cube.construct = lambda x: x * x * x
    cube.register_backward_hook(lambda c, of_in, of_out: of_in[0] * 2.0)
    second = snncell.grad(lambda x: snncell.grad(lambda y: cube(y).sum())(x).sum())
    # d/dx (2 * 3 x^2), and the gradient that the second pass passes to the inputs of the Cell is doubled too
    assert as_list(run(second, X)) == [24.0, 48.0]


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        ((), r"Leaf: its backward hook returned 0 gradient\(s\) for 1 input\(s\)"),
        ((3.0,), "its backward hook returned .* for input 0; a gradient is a Tensor of floats"),
        ((Tensor([1]),), "a gradient is a Tensor of floats"),
        ((Tensor([1.0, 2.0, 3.0]),), r"a gradient of shape \(3,\) for input 0 of shape \(2,\)"),
    ],
)
def test_invalid_results_of_a_backward_hook_raise(returned, match):
    leaf = Leaf()
    leaf.register_backward_hook(lambda c, of_in, of_out: returned)
    with pytest.raises(GradientError, match=match):
        snncell.grad(lambda x: leaf(x).sum())(X)


@pytest.mark.parametrize("run", MODES)
@pytest.mark.parametrize("kind", ["forward", "backward"])
def test_hooks_in_loops_over_time_are_called(run, kind):
    neuron, calls = nn.LIFNode(), []
    net = nn.MultiStep(neuron)
    x = Tensor(np.linspace(0.0, 2.0, 12, dtype=np.float32).reshape(4, 1, 3))
    before = run(snncell.grad(lambda x: net(x).sum()), x)
    if kind == "forward":
        neuron.register_forward_hook(lambda c, i, out: calls.append(out))
        factor = 1.0
    else:
        neuron.register_backward_hook(lambda c, of_in, of_out: (calls.append(of_in), (of_in[0] * 3.0, *of_in[1:]))[1])
        factor = 3.0
    after = run(snncell.grad(lambda x: net(x).sum()), x)
    np.testing.assert_allclose(after.asnumpy(), before.asnumpy() * factor, rtol=1e-6)
    assert len(calls) == (4 if run is run_eager else len(calls)) and calls  # step by step, or once when traced


@pytest.mark.compiled
def test_graph_mode_follows_added_and_removed_hooks():
    leaf = Leaf()
    snncell.set_context(mode=snncell.GRAPH_MODE)
    try:
        assert as_list(leaf(X)) == [1.0, 4.0]
        handle = leaf.register_forward_hook(lambda c, i, out: out * 2.0)
        assert as_list(leaf(X)) == [2.0, 8.0]
        handle.remove()
        assert as_list(leaf(X)) == [1.0, 4.0]
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)


WRONG_HOOKS = [
    ("register_forward_pre_hook", lambda inputs: None, {}, r"hook\(cell, inputs\), which the function <lambda>"),
    ("register_forward_hook", lambda cell, out: None, {}, r"hook\(cell, inputs, out\), which"),
    ("register_forward_hook", lambda cell, x, out: None, {"with_kwargs": True}, r"hook\(cell, inputs, kwargs, out\)"),
    ("register_backward_pre_hook", lambda cell, a, b: None, {}, r"hook\(cell, grad_output\), which"),
    ("register_backward_hook", lambda grad: None, {}, r"hook\(cell, grad_input, grad_output\), which"),
]


@pytest.mark.parametrize(("register", "hook", "options", "words"), WRONG_HOOKS)
def test_hook_with_a_wrong_signature_raises_when_it_is_registered(register, hook, options, words):
    cell = nn.Dense(2, 2)
    with pytest.raises(ArgumentTypeError, match=words):
        getattr(cell, register)(hook, **options)
    assert not cell.is_hooked
    cell.register_forward_hook(lambda *given: None)
    cell(Tensor([[1.0, 1.0]]))
