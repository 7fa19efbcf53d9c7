"""Custom gradients: the arguments of bprop, when it is called, and for which outputs.

Cases that compile quickly run both eagerly and under jit. For the returned gradients, see
test_custom_gradient_values.py.
"""

import pytest
from cells import Spy, values

import snncell
from snncell import Parameter, Tensor, nn, ops

X = Tensor([1.0, 2.0])


# --- arguments --------------------------------------------------------------------------------------------------------


def test_bprop_receives_inputs_output_and_incoming_gradient():
    spy = Spy()
    found = ops.grad(lambda x: spy(x) * 3.0)(X)
    assert found.asnumpy().tolist() == [30.0, 30.0]
    assert values(spy.calls[0]) == [[1.0, 2.0], [2.0, 4.0], [3.0, 3.0]]


def test_custom_gradient_replaces_the_true_derivative(run):
    assert run(ops.grad(Spy()))(X).asnumpy().tolist() == [10.0, 10.0]


class Weighted(nn.Cell):
    """a + 10 b + 100 c, with a custom gradient that marks each argument."""

    def construct(self, a, b, c=None, *, scale=1.0):
        self.seen = None
        return (a + b * 10.0) * scale

    def bprop(self, a, b, c, scale, out, dout):
        self.__dict__["seen"] = (a, b, c, scale)
        return dout * 1.0, dout * 2.0, None, None


def test_keywords_are_ordered_and_defaults_appended():
    cell = Weighted()
    of_a, of_b = ops.grad(lambda a, b: cell(b=b, a=a), (0, 1))(Tensor(1.0), Tensor(2.0))
    assert (of_a.item(), of_b.item()) == (1.0, 2.0)
    a, b, c, scale = cell.__dict__["seen"]
    assert (a.item(), b.item(), c, scale) == (1.0, 2.0, None, 1.0)


def test_keywords_in_any_order_have_equal_gradients(run):
    cell = Weighted()
    found = run(ops.grad(lambda a, b: cell(scale=2.0, b=b, a=a), (0, 1)))(Tensor(1.0), Tensor(2.0))
    assert [g.item() for g in found] == [1.0, 2.0]


def test_variadic_arguments_are_separate_inputs(run):
    class Sum(nn.Cell):
        def construct(self, *xs):
            return xs[0] + xs[1] + xs[2]

        def bprop(self, *args):
            *xs, _out, dout = args
            return tuple(dout * float(i) for i, _ in enumerate(xs))

    found = run(ops.grad(Sum(), (0, 1, 2)))(Tensor(1.0), Tensor(1.0), Tensor(1.0))
    assert [g.item() for g in found] == [0.0, 1.0, 2.0]


def test_non_tensor_inputs_have_a_gradient_of_none(run):
    class Mixed(nn.Cell):
        def construct(self, x, factor, flag, mode, nothing):
            return x * factor if flag and mode == "times" and nothing is None else x

        def bprop(self, x, factor, flag, mode, nothing, out, dout):
            assert (factor, flag, mode, nothing) == (2.0, True, "times", None)
            return dout * factor * 100.0, None, None, None, None

    assert run(ops.grad(lambda x: Mixed()(x, 2.0, True, "times", None)))(Tensor(1.0)).item() == 200.0


def test_structured_inputs_have_structured_gradients(run):
    class Pair(nn.Cell):
        def construct(self, pair, named):
            return pair[0] * named["k"] + pair[1]

        def bprop(self, pair, named, out, dout):
            return [dout * 1.0, dout * 2.0], {"k": dout * 3.0}

    def fn(a, b, c):
        return Pair()([a, b], {"k": c})

    found = run(ops.grad(fn, (0, 1, 2)))(Tensor(1.0), Tensor(1.0), Tensor(1.0))
    assert [g.item() for g in found] == [1.0, 2.0, 3.0]


def test_gradients_of_tuple_and_dict_inputs_are_not_parameter_gradients():
    class TupleAndDict(nn.Cell):
        def construct(self, pair, named):
            return pair[0] * named["k"] + pair[1]

        def bprop(self, pair, named, out, dout):
            return (dout * 1.0, dout * 2.0), {"k": dout * 3.0}

    found = ops.grad(lambda a, b, c: TupleAndDict()((a, b), {"k": c}), (0, 1, 2))(Tensor(1.0), Tensor(1.0), Tensor(1.0))
    assert [g.item() for g in found] == [1.0, 2.0, 3.0]


# --- several outputs --------------------------------------------------------------------------------------------------


class TwoOutputs(nn.Cell):
    def construct(self, x):
        return x * 2.0, x * 3.0

    def bprop(self, x, out, dout):
        assert isinstance(out, tuple) and isinstance(dout, tuple)
        return (dout[0] * 100.0 + dout[1],)


def test_out_and_dout_of_several_outputs_are_tuples(run):
    assert run(ops.grad(TwoOutputs()))(X).asnumpy().tolist() == [101.0, 101.0]


@pytest.mark.parametrize(("chosen", "gradient"), [(0, 100.0), (1, 1.0)])
def test_dout_of_an_unused_output_is_zeros(run, chosen, gradient):
    cell = TwoOutputs()
    assert run(ops.grad(lambda x: cell(x)[chosen]))(X).asnumpy().tolist() == [gradient, gradient]


class Nested(nn.Cell):
    """One output in a tuple, others in a dict and a list, so that dout has the same nesting."""

    def construct(self, x):
        return ((x * 1.0,), {"a": x * 2.0, "b": [x * 3.0, x > 0.0]})

    def bprop(self, x, out, dout):
        (first,), rest = dout
        assert list(rest) == ["a", "b"] and isinstance(rest["b"], list) and len(rest["b"]) == 2
        assert out[0][0].shape == first.shape == rest["b"][1].shape
        return (first + rest["a"] * 10.0 + rest["b"][0] * 100.0,)


def test_dout_has_the_nesting_of_the_outputs(run):
    cell = Nested()
    assert run(ops.grad(cell))(X).asnumpy().tolist() == [111.0, 111.0]
    assert run(ops.grad(lambda x: cell(x)[1]["b"][0]))(X).asnumpy().tolist() == [100.0, 100.0]


def test_tuple_of_one_output_stays_a_tuple(run):
    class One(nn.Cell):
        def construct(self, x):
            return (x * 2.0,)

        def bprop(self, x, out, dout):
            assert isinstance(dout, tuple) and len(dout) == 1 and isinstance(out, tuple)
            return (dout[0] * 7.0,)

    assert run(ops.grad(One()))(Tensor(1.0)).item() == 7.0


# --- when it is called ------------------------------------------------------------------------------------------------


def test_bprop_is_called_once_with_the_gradient_summed_over_all_uses():
    spy = Spy()

    def fn(x):
        y = spy(x)
        return y * 3.0 + y * 4.0 + ops.sin(y) * 0.0

    assert ops.grad(fn)(X).asnumpy().tolist() == [70.0, 70.0]
    assert len(spy.calls) == 1 and values(spy.calls[0])[2] == [7.0, 7.0]


def test_bprop_is_called_once_per_call_in_reverse_order():
    spy = Spy()
    ops.grad(lambda x: spy(x) + spy(x * 10.0) + spy(x * 100.0))(X)
    assert [x.asnumpy()[0] for x, _, _ in spy.calls] == [100.0, 10.0, 1.0]


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda spy, x: (spy(x), x)[1], X),
        (lambda spy, x: ops.stop_gradient(spy(x)) + x, X),
        (lambda spy, x: spy(ops.stop_gradient(x)) + x, X),
        (lambda spy, x: spy(Tensor([5.0])) * x, X),
        (lambda spy, x: (spy(x) > 0.0).astype("float32") + x, X),
    ],
    ids=["unused", "stopped behind", "stopped before", "constant input", "through a comparison"],
)
def test_bprop_is_not_called_where_no_gradient_is_needed(fn, x):
    spy = Spy()
    assert ops.grad(lambda a: fn(spy, a))(x).shape == (2,)
    assert spy.calls == []


def test_bprop_is_not_called_for_the_gradient_of_another_argument():
    spy = Spy()
    ops.grad(lambda a, b: spy(a) * b, 1)(X, X)
    assert spy.calls == []


def test_bprop_is_not_called_without_a_gradient():
    spy = Spy()
    assert spy(X).asnumpy().tolist() == [2.0, 4.0] and spy.calls == []


def test_outer_custom_gradient_overrides_an_inner_one(run):
    inner = Spy()

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def construct(self, x):
            return self.inner(x) + 1.0

        def bprop(self, x, out, dout):
            return (dout * 5.0,)

    assert run(ops.grad(Outer()))(X).asnumpy().tolist() == [5.0, 5.0]
    assert inner.calls == []


# --- identities, repeated inputs, and hidden Parameters ---------------------------------------------------------------


def test_cell_that_returns_its_input_uses_its_custom_gradient(run):
    class Identity(nn.Cell):
        def construct(self, x):
            return x

        def bprop(self, x, out, dout):
            return (dout * 5.0,)

    assert run(ops.grad(Identity()))(X).asnumpy().tolist() == [5.0, 5.0]


def test_one_tensor_as_two_inputs_gets_both_gradients(run):
    class Adds(nn.Cell):
        def construct(self, a, b):
            return a + b

        def bprop(self, a, b, out, dout):
            return dout * 2.0, dout * 3.0

    assert run(ops.grad(lambda x: Adds()(x, x)))(X).asnumpy().tolist() == [5.0, 5.0]


def test_internal_params_without_an_attribute_get_their_gradient():
    class Stored(nn.Cell):
        def __init__(self):
            super().__init__()
            self.store = {"w": Parameter(Tensor([2.0]), name="w")}  # a dict is not registered
            self.internal_params = [self.store["w"]]

        def construct(self, x):
            return x * self.store["w"]

        def bprop(self, x, out, dout):
            return (dout * self.store["w"],), {self.store["w"]: dout * x}

    cell = Stored()
    assert ops.grad(cell, None, cell.store["w"])(X).asnumpy().tolist() == [3.0]


@pytest.mark.compiled
def test_hook_registered_later_is_called_by_compiled_code():
    spy = Spy()
    compiled = snncell.jit(spy)
    assert compiled(X).asnumpy().tolist() == [2.0, 4.0]
    handle = spy.register_forward_hook(lambda cell, args, out: out * 100.0)
    assert compiled(X).asnumpy().tolist() == [200.0, 400.0]
    handle.remove()
    assert compiled(X).asnumpy().tolist() == [2.0, 4.0]
