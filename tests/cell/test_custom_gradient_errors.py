"""Errors of a custom bprop: invalid results, exceptions, and the numeric check of `bprop_debug`."""

import threading

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import BpropError, GradientError, TraceError

X = Tensor([1.0, 2.0])


@pytest.fixture(params=["eager", pytest.param("jit", marks=pytest.mark.compiled)])
def run(request):
    """Run a function eagerly, or compiled (which calls bprop while tracing)."""
    return (lambda fn: fn) if request.param == "eager" else snncell.jit


class Scales(nn.Cell):
    """factor * x + n, where the test sets the result of bprop."""

    def __init__(self, returned):
        super().__init__()
        self.returned = returned

    def construct(self, x, factor=2.0):
        return x * factor

    def bprop(self, x, factor, out, dout):
        return self.returned(dout)


WRONG = {
    "one gradient bare": (lambda d: d, r"Scales.*returned a Tensor.*a tuple.*return \(dx,\)"),
    "a list": (lambda d: [d, None], r"Scales.*returned a list.*tuple"),
    "nothing": (lambda d: None, r"Scales.*returned a NoneType.*tuple"),
    "too few": (lambda d: (d,), r"Scales.*returned 1 gradient\(s\) for 2 input\(s\) \(x, factor\)"),
    "too many": (lambda d: (d, None, d), r"Scales.*returned 3 gradient\(s\) for 2 input\(s\) \(x, factor\)"),
    "smaller": (lambda d: (d[:1], None), r"Scales.*shape \(1,\) for input 'x' of shape \(2,\)"),
    "longer": (lambda d: (ops.ones(3), None), r"Scales.*shape \(3,\) for input 'x' of shape \(2,\)"),
    "a scalar": (lambda d: (d.sum(), None), r"Scales.*shape \(\) for input 'x' of shape \(2,\)"),
    "transposed": (lambda d: (ops.ones((2, 1)), None), r"Scales.*shape \(2, 1\) for input 'x' of shape \(2,\)"),
    "integers": (lambda d: (d.astype("int32"), None), r"Scales.*dtype Int32 for input 'x' of dtype Float32"),
    "booleans": (lambda d: (d > 0, None), r"Scales.*dtype Bool for input 'x'.*return floats"),
    "NumPy": (lambda d: (np.ones(2, np.float32), None), r"Scales.*returned a ndarray for input 'x'"),
    "a number": (lambda d: (1.0, None), r"Scales.*returned a float for input 'x'"),
    "for a number": (lambda d: (d, d), r"Scales.*input 'factor', which is a float.*return None"),
    "a pair without internal_params": (
        lambda d: ((d, None), {Parameter(1.0, "stray"): d}),
        r"Scales.*gradient for stray, which is not in self\.internal_params",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_return_raises_with_a_fix(run, case):
    returned, message = WRONG[case]
    with pytest.raises(BpropError, match=message):
        run(ops.grad(Scales(returned)))(X)


def test_bprop_errors_are_type_errors_and_value_errors():
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="Scales"):
            ops.grad(Scales(lambda d: d))(X)


def test_gradient_of_an_integer_input_must_be_none():
    class Picks(nn.Cell):
        def construct(self, x, n):
            return x * n

        def bprop(self, x, n, out, dout):
            return dout, dout

    with pytest.raises(BpropError, match=r"Picks.*dtype Float32 for input 'n' of dtype Int64.*return None"):
        ops.grad(Picks())(X, Tensor([1, 2]))


def test_structured_gradient_must_have_the_structure_of_the_input():
    class Pair(nn.Cell):
        def construct(self, pair):
            return pair[0] + pair[1]

        def bprop(self, pair, out, dout):
            return ((dout,),)

    with pytest.raises(BpropError, match=r"Pair.*input 'pair'.*structure"):
        ops.grad(Pair())((X, X))


# --- the signature ----------------------------------------------------------------------------------------------------


def test_wrong_signature_raises_at_the_first_call_without_a_gradient(run):
    class Short(nn.Cell):
        def construct(self, x, y):
            return x + y

        def bprop(self, x, dout):
            return (dout,)

    with pytest.raises(BpropError, match=r"Short\.bprop.*must take \(self, x, y, out, dout\)"):
        run(Short())(X, X)


@pytest.mark.parametrize("base", [nn.Cell, snncell.surrogate.ATan], ids=["Cell", "ATan"])
@pytest.mark.parametrize("name", ["backward", "grad", "vjp", "bporp", "brop", "bprob", "b_prop", "backprop"])
def test_backward_method_of_another_name_raises_at_class_definition(name, base):
    def method(self, *values):
        return values[-1:]

    text = (
        rf"Spike has a method {name}, which nothing calls: .*bprop\(self, \*inputs, out, dout\).*Rename {name} to bprop"
    )
    for value in (method, staticmethod(method)):
        with pytest.raises(BpropError, match=text):
            type("Spike", (base,), {name: value})
    with pytest.raises(BpropError, match=text):
        type("Spike", (type("Mixin", (), {name: method}), base), {})
    type("Spike", (base,), {name: method, "bprop": method})  # a helper of its bprop
    type("Spike", (base,), {name: 0.5, "prop": method, "drop": method, "bias": method})


def test_bprop_with_too_many_arguments_raises():
    class Long(nn.Cell):
        def construct(self, x):
            return x

        def bprop(self, x, y, out, dout):
            return (dout,)

    with pytest.raises(BpropError, match=r"Long\.bprop.*must take \(self, x, out, dout\).*missing"):
        Long()(X)


# --- Parameters -------------------------------------------------------------------------------------------------------


class Linear(nn.Cell):
    """w x + b with internal_params, where the test sets the dict that bprop returns."""

    def __init__(self, gradients, listed=True):
        super().__init__()
        self.w = Parameter(Tensor([2.0]), name="w")
        self.b = Parameter(Tensor([3.0]), name="b")
        self.gradients = gradients
        if listed:
            self.internal_params = [self.w, self.b]

    def construct(self, x):
        return x * self.w + self.b

    def bprop(self, x, out, dout):
        given = self.gradients(self, x, dout)
        return (dout * self.w,) if given is None else ((dout * self.w,), given)


STRAY = Parameter(1.0, "stray")
WRONG_DICTS = {
    "an unknown key": (lambda c, x, d: {c.w: d * x, c.b: d, STRAY: d}, r"Linear.*for stray, which is not in"),
    "a name as key": (lambda c, x, d: {"w": d * x, c.b: d}, r"Linear.*'w', which is not in self\.internal_params"),
    "a missing key": (lambda c, x, d: {c.w: d * x}, r"Linear.*no gradient for Parameter 'b'"),
    "no dict": (lambda c, x, d: None, r"Linear.*no gradient for Parameter 'w'.*return \(gradients, \{self\.w"),
    "a wrong shape": (lambda c, x, d: {c.w: d.sum(), c.b: d}, r"Linear.*shape \(\) for Parameter 'w' of"),
    "a wrong dtype": (lambda c, x, d: {c.w: (d * x).astype("int64"), c.b: d}, r"Linear.*Int64 for Parameter 'w'"),
    "no Tensor": (lambda c, x, d: {c.w: 1.0, c.b: d}, r"Linear.*float for Parameter 'w'"),
}


@pytest.mark.parametrize("case", WRONG_DICTS)
def test_invalid_dict_of_parameter_gradients_raises(case):
    gradients, message = WRONG_DICTS[case]
    with pytest.raises(BpropError, match=message):
        ops.grad(Linear(gradients))(X)


def test_none_for_a_parameter_counts_as_zeros():
    cell = Linear(lambda c, x, d: {c.w: None, c.b: d})
    of_w, of_b = ops.grad(cell, None, [cell.w, cell.b])(X)
    assert of_w.asnumpy().tolist() == [0.0] and of_b.asnumpy().tolist() == [2.0]


def test_unlisted_parameters_raise_only_if_their_gradient_is_requested(run):
    cell = Linear(lambda c, x, d: None, listed=False)
    assert run(ops.grad(cell))(X).asnumpy().tolist() == [2.0, 2.0]
    with pytest.raises(BpropError, match=r"Linear.*Parameter 'w'.*self\.internal_params.*requires_grad=False"):
        run(ops.grad(cell, None, cell.w))(X)


def test_unlisted_parameters_of_children_raise_too():
    class Wraps(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = nn.Dense(2, 2)

        def construct(self, x):
            return self.inner(x)

        def bprop(self, x, out, dout):
            return (dout,)

    cell = Wraps()
    with pytest.raises(BpropError, match=r"Wraps.*Parameter 'inner.weight' is needed"):
        ops.grad(cell, None, cell.trainable_params())(X)


def test_frozen_parameters_need_no_gradient():
    cell = Linear(lambda c, x, d: None, listed=False)
    cell.set_grad(False)
    other = Parameter(Tensor([1.0]), name="other")
    assert ops.grad(lambda x: cell(x) * other, None, other)(X).asnumpy().tolist() == [12.0]


# --- save_for_bprop ---------------------------------------------------------------------------------------------------


class Keeps(nn.Cell):
    """x^2; `inside`, if set, is called in the middle of construct."""

    def __init__(self, inside=None):
        super().__init__()
        self.inside = inside

    def construct(self, x):
        self.save_for_bprop(x * 2.0)
        if self.inside is not None:
            self.inside()
        return x * x

    def bprop(self, x, out, dout):
        return (dout * self.saved_for_bprop[0],)


def test_second_order_through_saved_values_raises(run):
    with pytest.raises(BpropError, match=r"Keeps.*second-order.*save_for_bprop"):
        run(ops.grad(ops.grad(Keeps())))(X)


def test_saved_values_are_constants_if_no_second_order_reaches_them():
    cell = Keeps()
    found = ops.grad(lambda x: ops.grad(lambda y: cell(ops.stop_gradient(x)) * y)(x))(X)
    assert found.asnumpy().tolist() == [0.0, 0.0]


def test_saved_values_of_two_threads_are_separate():
    first_kept, second_kept, first_done = (threading.Event() for _ in range(3))
    found, waited = {}, []

    def inside():
        """The first thread leaves construct while the second is still inside it, after both saved their values."""
        if threading.current_thread().name == "first":
            first_kept.set()
            waited.append(second_kept.wait(60))
        else:
            second_kept.set()
            waited.append(first_done.wait(60))

    cell = Keeps(inside)

    def work(value):
        found[value] = ops.grad(cell)(Tensor(value)).item()
        first_done.set()

    first = threading.Thread(target=work, args=(1.0,), name="first")
    second = threading.Thread(target=work, args=(10.0,), name="second")
    first.start()
    assert first_kept.wait(60)
    second.start()
    first.join()
    second.join()
    assert waited == [True, True] and found == {1.0: 2.0, 10.0: 20.0}


def count_calls(out, dout):
    ops.assign(COUNT, COUNT + 1.0)
    return dout


COUNT = Parameter([0.0], name="count", requires_grad=False)
EFFECTS_OF_REVERSES = {
    "a write": (count_calls, "writes Parameter 'count'"),
    "random numbers": (lambda out, dout: dout * ops.uniform(dout.shape), "a random draw writes"),
}


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("name", EFFECTS_OF_REVERSES)
def test_custom_gradient_with_effects_raises_in_a_loop_but_runs_outside(run, name, every):
    reverse, message = EFFECTS_OF_REVERSES[name]

    class Effective(nn.Cell):
        def construct(self, x):
            return x * 1.0

        def bprop(self, x, out, dout):
            return (reverse(out, dout),)

    cell, before = Effective(), COUNT.asnumpy().copy()

    def loss(x):
        return ops.scan(lambda c, x: (c + cell(x), None), ops.zeros_like(x[0]), x, checkpoint_every=every)[0].sum()

    with pytest.raises(GradientError, match=message):
        run(snncell.grad(loss))(Tensor([[1.0], [2.0], [3.0]]))
    np.testing.assert_array_equal(COUNT.asnumpy(), before)
    run(snncell.grad(lambda x: cell(x).sum()))(X)
    assert COUNT.asnumpy() - before == (name == "a write")


# --- order of the arguments -------------------------------------------------------------------------------------------


class Swapped(nn.Cell):
    """2 x, with dout before out in bprop."""

    def construct(self, x):
        return x * 2.0

    def bprop(self, x, dout, out):
        return (dout * 2.0,)


class SwappedOfTwo(nn.Cell):
    """w x + y, with a Parameter."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(2.0), name="w")
        self.internal_params = [self.w]

    def construct(self, x, y):
        return self.w * x + y

    def bprop(self, x, y, dout, out):
        return (dout * self.w, dout), {self.w: (dout * x).sum()}


class SwappedSurrogate(snncell.surrogate.Surrogate):
    """A spike function."""

    def primitive(self, x):
        return ops.sigmoid(x)

    def bprop(self, x, dout, out):
        return (dout * 0.5,)


@pytest.mark.parametrize(
    ("cell", "inputs", "order"),
    [
        (Swapped, (X,), "self, x, out, dout"),
        (SwappedOfTwo, (X, X), "self, x, y, out, dout"),
        (SwappedSurrogate, (X,), "self, x, out, dout"),
        (lambda: nn.MultiStep(nn.IFNode(surrogate_function=SwappedSurrogate())), (ops.ones((3, 2)),), "x, out, dout"),
    ],
)
def test_bprop_with_dout_before_out_raises_with_the_correct_order(cell, inputs, order, run):
    with pytest.raises(BpropError, match=rf"bprop takes dout before out; .*{order}\)"):
        run(snncell.grad(lambda *xs: cell()(*xs).sum()))(*inputs)


class NamedLikeIt(nn.Cell):
    """A Cell with inputs named dout and out."""

    def construct(self, dout, out):
        return dout * out

    def bprop(self, dout, out, y, dy):
        return dy * out, dy * dout


def test_inputs_can_be_named_dout_and_out():
    found = snncell.grad(lambda a, b: NamedLikeIt()(a, b).sum(), (0, 1))(X, X + 1.0)
    np.testing.assert_array_equal(found[0].asnumpy(), [2.0, 3.0])
    np.testing.assert_array_equal(found[1].asnumpy(), [1.0, 2.0])


# --- bprop_debug ------------------------------------------------------------------------------------------------------


class Sine(nn.Cell):
    def __init__(self, wrong_at=None, error=0.01):
        super().__init__()
        self.wrong_at, self.error = wrong_at, error
        self.bprop_debug = True

    def construct(self, x):
        return ops.sin(x)

    def bprop(self, x, out, dout):
        if self.wrong_at is None:
            return (dout * ops.cos(x),)
        factor = np.ones(x.shape, np.float32)
        factor[self.wrong_at] += self.error
        return (dout * ops.cos(x) * Tensor(factor),)


GRID = Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))


def test_debug_accepts_a_correct_gradient():
    np.testing.assert_allclose(ops.grad(Sine())(GRID).asnumpy(), np.cos(GRID.asnumpy()), rtol=1e-6)


def test_debug_names_the_cell_the_input_and_the_worst_index():
    with pytest.raises(BpropError, match=r"bprop of Sine gives .* for input 0 at index \(1, 2\)"):
        ops.grad(Sine(wrong_at=(1, 2)))(GRID)


def test_debug_is_off_by_default():
    cell = Sine(wrong_at=(1, 2))
    cell.bprop_debug = False
    assert ops.grad(cell)(GRID).shape == (3, 4)


def test_debug_checks_the_gradients_of_parameters():
    class Times(nn.Cell):
        def __init__(self, error):
            super().__init__()
            self.w = Parameter(Tensor([2.0]), name="w")
            self.internal_params = [self.w]
            self.error = error
            self.bprop_debug = True

        def construct(self, x):
            return x * self.w

        def bprop(self, x, out, dout):
            return (dout * self.w,), {self.w: (dout * x).sum().reshape((1,)) * (1.0 + self.error)}

    assert ops.grad(Times(0.0))(X).asnumpy().tolist() == [2.0, 2.0]
    with pytest.raises(BpropError, match=r"bprop of Times gives .* for Parameter 'w' at index \(0,\)"):
        ops.grad(Times(0.01))(X)


def test_debug_repeats_the_random_numbers_of_the_call():
    class Noisy(nn.Cell):
        def construct(self, x):
            return ops.dropout(x, 0.5)

        def bprop(self, x, out, dout):
            return (dout * (out != 0.0).astype("float32") * 2.0,)

    snncell.set_seed(5)
    expected = Noisy()(GRID).asnumpy(), ops.uniform((3,)).asnumpy()
    cell = Noisy()
    cell.bprop_debug = True
    snncell.set_seed(5)
    found = ops.grad(cell)(GRID)
    assert (found.asnumpy() == np.where(expected[0] != 0, 2.0, 0.0)).all()
    assert (ops.uniform((3,)).asnumpy() == expected[1]).all()  # the check does not advance the random state


def test_debug_compares_a_step_with_its_primitive():
    class Step(nn.Cell):
        def __init__(self, slope):
            super().__init__()
            self.slope = slope
            self.bprop_debug = True

        def construct(self, x):
            return (x > 0.0).astype("float32")

        def bprop(self, x, out, dout):
            s = ops.sigmoid(x * 5.0)
            return (dout * s * (1.0 - s) * self.slope,)

        def primitive(self, x):
            return ops.sigmoid(x * 5.0)

    assert ops.grad(Step(5.0))(GRID).shape == (3, 4)
    with pytest.raises(BpropError, match=r"bprop of Step gives .* its primitive gives"):
        ops.grad(Step(4.9))(GRID)


class Adds(nn.Cell):
    """x + b with b broadcast, where the test sets the gradient of b."""

    def __init__(self, of_b):
        super().__init__()
        self.of_b = of_b
        self.bprop_debug = True

    def construct(self, x, b):
        return x + b

    def bprop(self, x, b, out, dout):
        return dout, self.of_b(dout)


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1,), ()], ids=str)
def test_debug_compares_after_the_gradient_is_summed_to_its_input(shape):
    found = ops.grad(Adds(lambda dout: dout), 1)(GRID, ops.ones(shape))
    assert found.shape == shape and found.sum().item() == 12.0


def test_debug_treats_none_as_zeros():
    with pytest.raises(BpropError, match="bprop of Adds gives 0 for input 1"):
        ops.grad(Adds(lambda dout: None), (0, 1))(GRID, ops.ones(4))


def test_debug_can_be_switched_on_between_forward_and_backward():
    cell = Sine(wrong_at=(0, 0))
    cell.bprop_debug = False
    _, pull = ops.vjp(cell, GRID)
    cell.bprop_debug = True
    with pytest.raises(BpropError, match="bprop of Sine"):
        pull(ops.ones((3, 4)))


@pytest.mark.compiled
def test_debug_under_jit_raises_because_it_needs_values():
    with pytest.raises(TraceError, match=r"Sine\.bprop_debug.*Run eagerly"):
        snncell.jit(ops.grad(Sine()))(GRID)


# --- exceptions -------------------------------------------------------------------------------------------------------


def test_exception_in_a_bprop_propagates_unchanged_with_a_note(run):
    class Breaks(nn.Cell):
        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table") as caught:
        run(ops.grad(Breaks()))(X)
    assert type(caught.value) is LookupError
    assert any("Breaks" in note for note in caught.value.__notes__)


def test_cell_works_after_its_bprop_has_failed():
    class Once(nn.Cell):
        failed = False

        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            if not self.failed:
                self.failed = True
                raise LookupError("the first time")
            return (dout * 2.0,)

    cell = Once()
    with pytest.raises(LookupError):
        ops.grad(cell)(X)
    assert ops.grad(cell)(X).asnumpy().tolist() == [2.0, 2.0]
