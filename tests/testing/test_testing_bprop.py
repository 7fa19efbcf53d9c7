"""`check_bprop`: a custom bprop that is off by a tenth of a percent must fail, and the message must locate it."""

import numpy as np
import pytest
from cells import Wrong

from snncell import Parameter, Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, BpropError, GradientCheckError, GradientError

RNG = np.random.default_rng(0)
X, Y = Tensor(RNG.standard_normal((3, 4))), Tensor(RNG.standard_normal((3, 4)))
TENTH_OF_A_PERCENT = 1e-3


# --- check_bprop -----------------------------------------------------------------------------------------------------


def test_check_bprop_passes_correct_bprop():
    testing.check_bprop(Wrong(), X, Y)
    for kind in (surrogate.relusigmoid, surrogate.Sigmoid, surrogate.ATan):
        testing.check_bprop(kind(), X)


@pytest.mark.parametrize(("which", "number"), [("first", 0), ("of_y", 1)])
def test_check_bprop_finds_small_error_and_names_cell_input_index(which, number):
    message = rf"The bprop of Wrong gives .* for input {number} at index \(\d, \d\), the tape's gradient of construct"
    with pytest.raises(GradientCheckError, match=message):
        testing.check_bprop(Wrong(**{which: TENTH_OF_A_PERCENT}), X, Y)


class Step(nn.Cell):
    """A spike with a surrogate that is off by a fraction."""

    def __init__(self, error=0.0, has_primitive=True):
        super().__init__()
        self.error = error
        if has_primitive:
            self.primitive = lambda x: ops.sigmoid(x * 4.0)

    def construct(self, x):
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        s = ops.sigmoid(x * 4.0)
        return (dout * s * (1.0 - s) * 4.0 * (1.0 + self.error),)


def test_check_bprop_compares_surrogate_with_primitive():
    testing.check_bprop(Step(), X)
    with pytest.raises(GradientCheckError, match=r"of Step gives .* for input 0 at index .*, its primitive gives"):
        testing.check_bprop(Step(TENTH_OF_A_PERCENT), X)


def test_check_bprop_of_surrogate_without_primitive_raises_with_fix():
    with pytest.raises(GradientCheckError, match=r"derivative of construct is zero.*define a method primitive"):
        testing.check_bprop(Step(has_primitive=False), X)


def test_check_bprop_names_worst_entry():
    class OneEntry(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

        def bprop(self, x, out, dout):
            factor = np.ones(x.shape)
            factor[0, 1], factor[2, 3] = 1.001, 1.5
            return (dout * ops.cos(x) * Tensor(factor),)

    with pytest.raises(GradientCheckError, match=r"at index \(2, 3\)"):
        testing.check_bprop(OneEntry(), X)


class Scaled(nn.Cell):
    """w x + b."""

    def __init__(self, of_w=0.0, of_b=0.0):
        super().__init__()
        self.w, self.b = Parameter(Tensor([2.0]), name="w"), Parameter(Tensor([1.0]), name="b")
        self.internal_params = [self.w, self.b]
        self.of_w, self.of_b = of_w, of_b

    def construct(self, x):
        return x * self.w + self.b

    def bprop(self, x, out, dout):
        return (dout * self.w,), {self.b: dout * (1.0 + self.of_b), self.w: dout * x * (1.0 + self.of_w)}


def test_check_bprop_checks_parameter_gradients():
    testing.check_bprop(Scaled(), X)
    for which, name in (("of_w", "w"), ("of_b", "b")):
        with pytest.raises(GradientCheckError, match=rf"of Scaled gives .* for Parameter '{name}' at index \(0,\)"):
            testing.check_bprop(Scaled(**{which: TENTH_OF_A_PERCENT}), X)


class ThroughPart(nn.Cell):
    """A Cell that the tape cannot differentiate, because a part of it has no gradient for its weights."""

    def __init__(self, error):
        super().__init__()
        self.error = error
        self.part = Part()

    def construct(self, x):
        return self.part(x) * 3.0

    def bprop(self, x, out, dout):
        return (dout * 6.0 * x * (1.0 + self.error),)


class Part(nn.Cell):
    """x^2, with a `bprop` that raises."""

    def construct(self, x):
        return x * x

    def bprop(self, x, out, dout):
        raise GradientError("this part has no gradient")


def test_check_bprop_falls_back_to_finite_differences_and_says_so():
    testing.check_bprop(ThroughPart(0.0), X)
    with pytest.raises(GradientCheckError, match=r"of ThroughPart gives .*, finite differences of construct gives"):
        testing.check_bprop(ThroughPart(TENTH_OF_A_PERCENT), X)


def test_check_bprop_treats_none_as_zeros():
    class Forgets(nn.Cell):
        def construct(self, x, y):
            return x * y

        def bprop(self, x, y, out, dout):
            return dout * y, None

    with pytest.raises(GradientCheckError, match="bprop of Forgets gives 0 for input 1"):
        testing.check_bprop(Forgets(), X, Y)


def test_check_bprop_accepts_several_outputs_with_integers():
    class Two(nn.Cell):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def construct(self, x):
            return x * 2.0, x > 0.0, ops.sin(x)

        def bprop(self, x, out, dout):
            return (dout[0] * 2.0 + dout[2] * ops.cos(x) * (1.0 + self.error),)

    testing.check_bprop(Two(0.0), X)
    with pytest.raises(GradientCheckError, match="bprop of Two"):
        testing.check_bprop(Two(0.01), X)


def test_check_bprop_accepts_integer_input():
    class Picks(nn.Cell):
        def construct(self, x, rows):
            return ops.gather(x, rows, 0)

        def bprop(self, x, rows, out, dout):
            one_hot = ops.one_hot(rows, x.shape[0]).astype(x.dtype)
            return one_hot.T @ dout, None

    testing.check_bprop(Picks(), X, Tensor([0, 2, 2, 1]))


@pytest.mark.parametrize("where", ["bprop", "both"])
def test_check_bprop_accepts_nan_only_in_both_gradients(where):
    class NotANumber(nn.Cell):
        def construct(self, x):
            return x * (float("nan") if where == "both" else 2.0)

        def bprop(self, x, out, dout):
            return (dout * float("nan"),)

    if where == "both":  # NaN where NaN is right
        testing.check_bprop(NotANumber(), X)
    else:
        with pytest.raises(GradientCheckError, match="bprop of NotANumber gives nan for input 0"):
            testing.check_bprop(NotANumber(), X)


class NoisyCell(nn.Cell):
    """Channel dropout, whose `bprop` uses the mask returned by the forward pass."""

    def __init__(self, error=0.0):
        super().__init__()
        self.drop = ops.Dropout2D(0.5)
        self.error = error

    def construct(self, x):
        return self.drop(x)

    def bprop(self, x, out, dout):
        return (out[1].astype(x.dtype) * dout[0] * 2.0 * (1.0 + self.error),)


def test_check_bprop_uses_same_random_numbers_for_both_gradients():
    x = Tensor(RNG.standard_normal((4, 8, 2, 2)))
    testing.check_bprop(NoisyCell(), x)
    with pytest.raises(GradientCheckError, match="bprop of NoisyCell"):
        testing.check_bprop(NoisyCell(TENTH_OF_A_PERCENT), x)


def test_check_bprop_sums_broadcast_gradient():
    class Adds(nn.Cell):
        def construct(self, x, b):
            return x + b

        def bprop(self, x, b, out, dout):
            return dout, dout

    testing.check_bprop(Adds(), X, Tensor(RNG.standard_normal(4)))


def test_check_bprop_of_cell_without_bprop_raises():
    with pytest.raises(GradientError, match="check_bprop: cell must have a bprop to check, but a Dense has no bprop"):
        testing.check_bprop(nn.Dense(4, 4), X)


def test_check_bprop_of_class_raises():
    message = r"check_bprop: cell must be a Cell, not the class ATan; create an instance: surrogate\.ATan\("
    with pytest.raises(ArgumentError, match=message):
        testing.check_bprop(surrogate.ATan, X)


def test_both_errors_are_assertion_errors():
    with pytest.raises(AssertionError):
        testing.check_grads(Wrong(first=0.1), X, Y)
    with pytest.raises(AssertionError):
        testing.check_bprop(Wrong(first=0.1), X, Y)


# --- Parameters without gradient --------------------------------------------------------------------------------------


class Forgets(Scaled):
    """w x + b, with a `bprop` that returns no gradient of b."""

    def __init__(self, listed=False):
        super().__init__()
        self.internal_params = [self.w, self.b] if listed else [self.w]

    def bprop(self, x, out, dout):
        return (dout * self.w,), {self.w: dout * x}


def test_check_bprop_names_parameter_without_gradient():
    message = (
        r"The bprop of Forgets gives no gradient of Parameter 'b', which construct uses: the tape's gradient of .*"
    )
    with pytest.raises(GradientCheckError, match=message + r"List it in self\.internal_params and return"):
        testing.check_bprop(Forgets(), X)
    with pytest.raises(BpropError, match=r"no gradient for Parameter 'b' of self\.internal_params"):
        testing.check_bprop(Forgets(listed=True), X)


def test_check_bprop_ignores_frozen_and_unused_parameters():
    cell = Forgets()
    cell.b.requires_grad = False
    testing.check_bprop(cell, X)
    cell = Scaled()
    cell.other = Parameter(Tensor([1.0]))
    testing.check_bprop(cell, X)


def test_check_bprop_names_parameter_without_gradient_in_subcell():
    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4, 2)

        def construct(self, x):
            return self.dense(x)

        def bprop(self, x, out, dout):
            return (dout @ self.dense.weight,)

    with pytest.raises(GradientCheckError, match=r"of Outer gives no gradient of Parameter 'dense\.weight', which"):
        testing.check_bprop(Outer(), X)


def test_check_bprop_uses_differences_for_code_outside_tape():
    class Around(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Forgets()

        def construct(self, x):
            return self.inner(x)

        def bprop(self, x, out, dout):
            return (dout * self.inner.w,)

    cell = Around()
    cell.inner.w.requires_grad = False
    cell.inner.internal_params = []
    cell.inner.bprop = lambda x, out, dout: (dout * cell.inner.w,)
    with pytest.raises(GradientCheckError, match=r"'inner\.b', which construct uses: its derivative by finite differ"):
        testing.check_bprop(cell, X)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_check_bprop_states_constant_ratio():
    with pytest.raises(GradientCheckError, match=r"found / expected is 1\.01 in all entries\."):
        testing.check_bprop(Step(0.01), X)
    with pytest.raises(GradientCheckError, match=r"found / expected is 0\.999 in all entries\."):
        testing.check_bprop(Step(-TENTH_OF_A_PERCENT), X)
    with pytest.raises(GradientCheckError, match=r"found / expected is -1 in all entries\."):
        testing.check_bprop(Step(-2.0), X)


def test_check_bprop_states_number_of_differing_entries():
    class OneEntry(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

        def bprop(self, x, out, dout):
            factor = np.ones(x.shape)
            factor[0, 1] = 1.5
            return (dout * ops.cos(x) * Tensor(factor),)

    with pytest.raises(GradientCheckError, match=r"found / expected is 1\.5 there; 1 of 12 entries differ\."):
        testing.check_bprop(OneEntry(), X)


def test_check_bprop_returns_compared_values():
    cell = Scaled()
    arrays = [cell.w._data, cell.b._data]
    found = testing.check_bprop(cell, X)
    assert [row.name for row in found.rows] == ["input 0", "Parameter 'w'", "Parameter 'b'"]
    assert found.worst < 1e-12 and "check_bprop: passed" in str(found)
    assert cell.w._data is arrays[0] and cell.b._data is arrays[1]
