"""Gradients of jitted functions taken from outside: they use the state of their forward pass."""

import threading

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, jit, nn, ops, surrogate, testing
from snncell.compiler.jit import Jitted
from snncell.errors import AssignError, GradientError, TraceError
from snncell.tape.state import Tape, recording_on

pytestmark = pytest.mark.compiled

X = Tensor(np.array([0.5, -1.0, 2.0]))
ONE = Tensor(np.ones(3))


def close(a, b):
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-12, atol=1e-12)


# --- gradients of any order -------------------------------------------------------------------------------------------


class Cubed(nn.Cell):
    """x^3, where `bprop` calls a Cell with a custom gradient."""

    def __init__(self):
        super().__init__()
        self.slope = Slope()

    def construct(self, x):
        return x * x * x

    def bprop(self, x, out, dout):
        return (dout * self.slope(x),)


class Slope(nn.Cell):
    """3 x^2, with a custom gradient of 7 instead of 6 x."""

    def construct(self, x):
        return x * x * 3.0

    def bprop(self, x, out, dout):
        return (dout * 7.0,)


FUNCTIONS = {
    "smooth": lambda x: ops.tanh(x * 2.0) * ops.exp(x) + ops.square(x).sum(),
    "custom gradients": lambda x: Cubed()(x) * ops.sigmoid(x),
    "stopped": lambda x: ops.stop_gradient(x * x) * x + x,
    "returns its input": lambda x: (x, x * 2.0),
    "a factor that the first order stops at": lambda x: Gated()(x, ops.sin(ops.sin(x))),
    "a factor that two orders stop at": lambda x: Gated()(x, Gated()(x, ops.sin(ops.sin(x)))),
    "two results, one used": lambda x: (ops.log(x * x) * 3.0, x)[0],
    "inner gradient": lambda x: ops.grad(lambda y: (ops.sin(y) * x).sum())(x),
    "a Cell that gives its input back": lambda x: Unchanged()(x) * x,
}


class Unchanged(nn.Cell):
    """The input, with a custom gradient of 5."""

    def construct(self, x):
        return x

    def bprop(self, x, out, dout):
        return (dout * 5.0,)


class Doubled(nn.Cell):
    """x and 2 x; `bprop` uses y for x, and passes the gradient of the second result to w."""

    def __init__(self, w):
        super().__init__()
        self.w = w
        self.internal_params = [w]

    def construct(self, x, y):
        return x * 1.0, x * 2.0

    def bprop(self, x, y, out, dout):
        return (dout[0] * y, None), {self.w: dout[1]}


def test_gradients_of_fewer_results_may_use_other_inputs():
    w = Parameter(np.array(0.7), name="w")
    frozen = Parameter(np.array([0.3, -0.2, 0.5]), name="frozen", requires_grad=False)
    doubled = Doubled(w)

    def states(x):
        def step(carry, _):
            old, kept = carry
            one, two = doubled(frozen, frozen)
            return (two + old * kept, kept), one

        return ops.scan(step, (x[0], x[1]), x)[1]

    def twice(fn):
        def slope(x):
            of_x, of_w = ops.grad(lambda x: fn(x).sum(), 0, w)(x)  # the second order does not reach the results
            return of_x.sum() + of_w

        return ops.grad(slope, 0, w)(Tensor(np.arange(12.0).reshape(4, 3)))

    for mine, theirs in zip(twice(jit(states)), twice(states), strict=True):
        close(mine, theirs)


class Halved(nn.Cell):
    """x / 2, where `bprop` reads x without a gradient and ignores it."""

    def construct(self, x):
        return x * 0.5

    def bprop(self, x, out, dout):
        _ = out + ops.stop_gradient(x)
        return (dout,)


class Second(nn.Cell):
    """y twice, where `bprop` calls a Cell with a custom gradient on a result that may be unused."""

    def __init__(self):
        super().__init__()
        self.halved = Halved()

    def construct(self, x, y):
        return y, y

    def bprop(self, x, y, out, dout):
        return dout[0], self.halved(out[0]) * dout[1]


def test_inputs_constant_to_second_order_gradients_equal_eager_mode():
    w, second = Parameter(np.array([0.7, 0.1, -0.4]), name="w"), Second()

    def twice(fn):
        def slope(x):
            of_x, of_w = ops.grad(lambda x: fn(x).sum(), 0, w)(x)
            return (of_x * of_x).sum() + of_w.sum()

        return ops.grad(slope, 0, w)(X)

    fn = lambda x: second(w, x)[0]  # noqa: E731
    for mine, theirs in zip(twice(jit(fn)), twice(fn), strict=True):
        close(mine, theirs)


class Gated(nn.Cell):
    """x y, where `bprop` has y as a factor and reports that nothing depends on it."""

    def construct(self, x, y):
        return x * y

    def bprop(self, x, y, out, dout):
        return dout * y, None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_of_every_order_equal_eager_mode(name, order):
    def nested(fn):
        for _ in range(order):
            fn = (lambda inner: ops.grad(lambda x: sum_of(inner(x))))(fn)
        return fn(X)

    close(nested(jit(FUNCTIONS[name])), nested(FUNCTIONS[name]))


def sum_of(out):
    out = out if isinstance(out, tuple) else (out,)
    return sum(((part * part).sum() for part in out), Tensor(0.0, "float64"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_caller_can_store_what_the_backward_pass_needs(name):
    """As `snncell.torch` does. All arrays have memory of their own, because the caller may write to them."""
    weight = Parameter(np.array([0.5, 2.0, -1.0]))

    def function(x):
        return (FUNCTIONS[name](x), x * weight, weight)

    with recording_on(Tape()):
        compiled, leaves = Jitted(function).lookup((X,), {})
    results, number = compiled.vjp.forward(leaves), len(compiled.vjp.outs)
    stored = [x if need else None for x, need in zip([X, weight, *results], compiled.vjp.needed(), strict=True)]
    _, pull = snncell.vjp(function, X, weights=[weight])
    seeds = [Tensor(np.array([1.0, -2.0, 0.5]) * (n + 1)) for n in range(number)]
    for missing in (None, *range(number)):
        douts = [None if n == missing else dout for n, dout in enumerate(seeds)]
        grads = compiled.vjp.backward(stored, douts)
        every = [ops.zeros_like(seed) if n == missing else seed for n, seed in enumerate(seeds)]
        (dx,), dw = pull(*every)
        for found, expected in zip(grads, (dx, *dw), strict=True):
            close(ops.zeros_like(X) if found is None else found, expected)
    arrays = [X._data, weight._data, *(x._data for x in results)]
    assert not any(np.shares_memory(a, b) for n, a in enumerate(arrays) for b in arrays[:n])


def test_weights_get_second_order_gradients():
    w = Parameter(np.array([0.3, 0.7, -0.2]), name="w")

    def fn(x):
        return ops.sin(w * x) * w

    def squared(f):
        return ops.grad(lambda x: (ops.grad(lambda x: f(x).sum(), 0, w)(x)[1] ** 2).sum(), 0, w)(X)

    for mine, theirs in zip(squared(jit(fn)), squared(fn), strict=True):
        close(mine, theirs)


class Weighted(nn.Cell):
    """sin(w x), where `bprop` is wrong on purpose and reads the Parameter."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(np.array([0.4, -0.3, 1.2]))
        self.internal_params = [self.w]

    def construct(self, x):
        return ops.sin(self.w * x)

    def bprop(self, x, out, dout):
        slope = ops.cos(self.w * x) * dout
        return (slope * self.w * 1.1,), {self.w: slope * x * 0.9}


class Around(nn.Cell):
    """Several results in a structure, one of them stopped, around a Cell with weights."""

    def __init__(self):
        super().__init__()
        self.k = Parameter(np.array([0.7, 0.1, -0.5]))
        self.inner = Weighted()

    def construct(self, x, y):
        return {"a": self.inner(x) * self.k, "b": (y * x, ops.stop_gradient(self.k) * x), "c": None}


def first_order(net, weights):
    def loss(x, y):
        out = net(x, y)
        return (out["a"] ** 2).sum() + (out["b"][0] * out["a"]).sum() + out["b"][1].sum()

    return ops.grad(loss, (0, 1), weights)


def second_order(net, weights):
    def loss(x, y):
        of_inputs, of_weights = first_order(net, weights)(x, y)
        return sum(((g * g).sum() for g in (*of_inputs, *of_weights)), Tensor(0.0, "float64"))

    return ops.grad(loss, (0, 1), weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gradients", [first_order, second_order])
@pytest.mark.parametrize("how", ["jit inside", "jit around", "GRAPH_MODE"])
def test_cells_with_weights_and_structured_results_equal_eager_mode(gradients, how):
    net = Around()
    weights = net.trainable_params()
    expected = gradients(net, weights)(X, ONE)
    if how == "GRAPH_MODE":
        snncell.set_context(mode=snncell.GRAPH_MODE)
        try:
            found = gradients(net, weights)(X, ONE)
        finally:
            snncell.set_context(mode=snncell.PYNATIVE_MODE)
    elif how == "jit inside":
        found = gradients(jit(net), weights)(X, ONE)
    else:
        found = jit(gradients(net, weights))(X, ONE)
    for mine, theirs in zip((*found[0], *found[1]), (*expected[0], *expected[1]), strict=True):
        close(mine, theirs)


def test_unused_result_is_excluded_from_the_backward_pass():
    # The gradient of log at 0 would be 0 / 0.
    fn = jit(lambda x: (x * 3.0, ops.log(x - x)))
    close(ops.grad(lambda x: fn(x)[0].sum())(X), ONE * 3.0)


def test_pullback_can_be_differentiated_and_jitted():
    _, pull = ops.vjp(jit(ops.tanh), X)
    _, eager = ops.vjp(ops.tanh, X)
    close(jit(pull)(ONE)[0], eager(ONE)[0])
    close(ops.grad(lambda u: (pull(u)[0] ** 2).sum())(X), ops.grad(lambda u: (eager(u)[0] ** 2).sum())(X))


# --- state of the forward pass ----------------------------------------------------------------------------------------


def test_parameters_written_after_the_forward_do_not_affect_gradients():
    for trained in (True, False):
        p = Parameter(np.array(2.0), requires_grad=trained)
        _, pull = ops.vjp(jit(lambda x, p=p: x * p), X)
        p.set_data(Tensor(np.array(5.0)))
        close(pull(ONE)[0], ONE * 2.0)


def test_statistics_assigned_later_do_not_affect_gradients():
    p = Parameter(np.array(2.0), requires_grad=False)
    scaled = jit(lambda x: x * p)

    def fn(x):
        y = scaled(x)
        ops.assign(p, Tensor(np.array(100.0)))
        return y.sum()

    close(ops.grad(fn)(X), ONE * 2.0)
    assert p.asnumpy() == 100.0


def test_switching_a_cell_mode_after_the_forward_does_not_affect_gradients():
    cell = nn.BatchNorm1d(3).set_train()
    x = ops.normal((5, 3))
    _, pull = ops.vjp(jit(cell), x)
    same = nn.BatchNorm1d(3).set_train()
    _, eager = ops.vjp(same, x)
    cell.set_train(False)
    seed = ops.normal((5, 3))
    np.testing.assert_allclose(pull(seed)[0].asnumpy(), eager(seed)[0].asnumpy(), rtol=2e-5, atol=1e-6)


def test_untraced_backward_of_a_changed_cell_raises():
    class Pair(nn.Cell):
        def __init__(self):
            super().__init__()
            self.k = 2.0

        def construct(self, x):
            return x * self.k, x * x

    cell = Pair()
    first = []

    def fn(x):
        a, b = jitted(x)
        first.append((a, b))
        cell.k = 3.0
        return a.sum()  # the backward pass from the first result alone is traced only now

    jitted = jit(cell)
    with pytest.raises(GradientError, match=r"jit\(Pair\): a Cell .* was changed between its forward"):
        ops.grad(fn)(X)


def test_smooth_spikes_are_fixed_by_the_forward():
    cell = surrogate.ATan()
    with surrogate.smooth():
        _, pull = ops.vjp(jit(cell), X)
        _, eager = ops.vjp(cell, X)
    close(pull(ONE)[0], eager(ONE)[0])


def test_values_and_gradients_use_the_same_captured_values():
    k = [2.0]
    fn = jit(lambda x: (x * k[0]).sum())
    value, gradient = ops.value_and_grad(fn)(X)
    k[0] = 7.0
    again, slope = ops.value_and_grad(fn)(X)
    close(value * 3.5, again)
    close(gradient * 3.5, slope)


def test_effects_happen_once_and_masks_are_those_of_the_forward():
    count = Parameter(np.array(0.0), requires_grad=False)

    def fn(x):
        ops.assign_add(count, 1.0)
        return ops.dropout(x, 0.5)

    out, pull = ops.vjp(jit(fn), ops.ones((100,)))
    for (gradient,) in (pull(ops.ones((100,))), jit(pull)(ops.ones((100,))), jit(pull)(ops.ones((100,)))):
        close(gradient, out)
    assert count.asnumpy() == 1.0


def test_differentiated_tensor_from_outside_raises():
    with pytest.raises(
        GradientError, match=r"uses a Tensor from outside,(.|\n)* Pass it as an argument(.|\n)*test_vjp"
    ):
        ops.grad(lambda w: jit(lambda x: (x * w).sum())(X))(Tensor(2.0))


def test_custom_gradient_that_captures_a_differentiated_tensor_raises():
    class Scaled(nn.Cell):
        def construct(self, x):
            return x * 1.0

        def bprop(self, x, out, dout):
            return (dout * self.scale,)

    cell = Scaled()

    def fn(w):
        cell.scale = w  # in second order, the gradient with respect to w would be lost
        return ops.grad(lambda x: (jit(cell)(x) ** 2).sum())(X).sum()

    with pytest.raises(GradientError, match=r"uses a Tensor from outside,(.|\n)* Pass it as an argument"):
        ops.grad(fn)(Tensor(2.0))


def test_differentiated_function_that_writes_a_trained_parameter_raises():
    p = Parameter(2.0)

    class Writes(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = p

        def construct(self, x):
            y = x * self.w
            self.w.set_data(Tensor(50.0))
            return y

        def bprop(self, x, out, dout):
            return (dout,)

    with pytest.raises(AssignError, match="written while a gradient is being recorded"):
        ops.grad(Writes())(X)

    def fn(x):
        ops.assign(p, Tensor(9.0))
        return x * p

    with pytest.raises(AssignError, match="written while a gradient is being recorded"):
        ops.grad(jit(fn))(X)
    assert p.asnumpy() == 2.0


# --- state ------------------------------------------------------------------------------------------------------------


def test_requires_grad_can_be_set_to_its_present_value():
    p = Parameter(2.0)
    _, pull = ops.vjp(lambda x: (x * p).sum(), Tensor([3.0]), weights=p)
    p.requires_grad = True
    assert pull(Tensor(1.0))[1].item() == 3.0
    p.requires_grad = False
    assert pull(Tensor(1.0))[1].item() == 3.0


def test_hooks_without_handles_are_all_called():
    cell, seen = nn.ReLU(), []
    for number in range(3):
        cell.register_forward_hook(lambda *_, number=number: seen.append(number))
    cell(X)
    assert seen == [0, 1, 2]


def test_masked_class_gives_a_finite_loss():
    loss = nn.CrossEntropyLoss()(Tensor([[0.0, -np.inf, 1.0]]), Tensor([0]))
    np.testing.assert_allclose(loss.item(), np.log(1 + np.e), rtol=1e-6)


def test_state_set_in_a_jitted_construct_raises():
    class Keeps(nn.Cell):
        def __init__(self):
            super().__init__()
            self.v = Tensor([0.0])

        def construct(self, x):
            self.v = self.v + x
            return self.v

    with pytest.raises(TraceError, match=r"Keeps\.v is set to a Tensor inside .* ops\.assign"):
        jit(Keeps())(Tensor([1.0]))


def test_parameter_created_inside_a_jitted_function_raises():
    def fn(x):
        total = Parameter(0.0, name="total", requires_grad=False)
        ops.assign_add(total, x)
        return total.value()

    with pytest.raises(TraceError, match=r"Parameter 'total' is created inside .* Create it outside"):
        jit(fn)(Tensor(1.0))


def test_changes_in_nested_containers_are_seen():
    class Nested(nn.Cell):
        def __init__(self):
            super().__init__()
            self.options = {"inner": [[1.0]]}

        def construct(self, x):
            return x * self.options["inner"][0][0]

    cell = Nested()
    fn = jit(cell)
    close(fn(X), X)
    cell.options["inner"][0][0] = 4.0
    close(fn(X), X * 4.0)


def test_threads_draw_different_numbers():
    drawn: list[bytes] = []
    jitted = jit(lambda: ops.uniform((2,)))

    def draw(function):
        found = [function().asnumpy().tobytes() for _ in range(300)]
        drawn.extend(found)

    threads = [threading.Thread(target=draw, args=(f,)) for f in (jitted, lambda: ops.uniform((2,))) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == len(set(drawn)) == 1200


def test_gradient_of_mod_matches_its_value():
    close(ops.grad(lambda y: Tensor(np.array(1.0)) % y)(Tensor(np.array(0.1))), Tensor(np.array(-9.0)))


def test_asnumpy_view_cannot_be_made_writable():
    view = (X * 2.0).reshape((3, 1)).asnumpy()
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        view.flags.writeable = True


def test_signed_zeros_as_fixed_arguments_are_traced_separately():
    fn = jit(lambda x, s: 1.0 / (x * s))
    one = Tensor([1.0])
    assert fn(one, 0.0).item() == np.inf
    assert fn(one, -0.0).item() == -np.inf
    assert fn(one, np.float64(-0.0)).item() == -np.inf


def test_negative_exponents_of_integer_powers_raise_when_compiled():
    with pytest.raises(snncell.errors.ArgumentError, match="negative integer powers"):
        jit(lambda x: 2**x)(Tensor([-1]))


# --- Cells called only by a custom gradient ---------------------------------------------------------------------------


class Gain(nn.Cell):
    def __init__(self):
        super().__init__()
        self.k, self.held = 1.0, [1.0]

    def construct(self, x):
        return x * (self.k * self.held[0])


GAIN = Gain()  # not an attribute of the Cell whose `bprop` calls it


class ByGain(nn.Cell):
    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (GAIN(dout),)


class Summing(nn.Cell):
    def __init__(self):
        super().__init__()
        self.slope = ByGain()

    def construct(self, x, v):
        v = self.slope(x) + v
        return v, v

    def init_state(self, x):
        return (ops.zeros_like(x),)


USERS = {
    "grad": lambda f: snncell.grad(f),
    "grad of jit": lambda f: snncell.grad(snncell.jit(f)),
    "jit of grad": lambda f: snncell.jit(snncell.grad(f)),
    "second order": lambda f: snncell.grad(lambda x: snncell.grad(snncell.jit(f))(x).sum()),
}
CHANGES = {"an attribute": lambda: setattr(GAIN, "k", 3.0), "a list of it": lambda: GAIN.held.__setitem__(0, 3.0)}


@pytest.mark.uncompiled
@pytest.mark.sampled(3)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("order", USERS)
@pytest.mark.parametrize("looped", [False, True], ids=["a Cell", "a loop"])
def test_cells_called_only_by_a_custom_gradient_are_checked(monkeypatch, looped, order, change):
    monkeypatch.setattr(GAIN, "k", 1.0)
    monkeypatch.setattr(GAIN, "held", [1.0])
    net, cell = nn.MultiStep(Summing()), ByGain()
    gradient = USERS[order](lambda x: ((net(x) if looped else cell(x)) ** 2).sum())
    x = Tensor(np.array([[0.5], [1.0], [-2.0]]))
    before = gradient(x).asnumpy()
    CHANGES[change]()
    with testing.unfused():
        expected = USERS["second order" if order == "second order" else "grad"](
            lambda x: ((net(x) if looped else cell(x)) ** 2).sum()
        )(x).asnumpy()
    np.testing.assert_allclose(gradient(x).asnumpy(), expected, rtol=1e-12)
    assert not np.allclose(before, expected)
