"""`check_grads`: a gradient that is off by a tenth of a percent must fail, and the message must locate the fault."""

import numpy as np
import pytest
from cells import Wrong

from snncell import Parameter, Tensor, nn, ops, surrogate, testing
from snncell.errors import GradientCheckError, GradientError

RNG = np.random.default_rng(0)
X, Y = Tensor(RNG.standard_normal((3, 4))), Tensor(RNG.standard_normal((3, 4)))
TENTH_OF_A_PERCENT = 1e-3


# --- check_grads -----------------------------------------------------------------------------------------------------


def test_check_grads_passes_correct_gradients():
    testing.check_grads(Wrong(), X, Y, order=2)
    testing.check_grads(lambda x: ops.tanh(x) / (1.0 + x * x), X, order=3, rtol=1e-4)


@pytest.mark.parametrize("which", ["first", "of_y"])
@pytest.mark.parametrize("seed", range(5))
def test_check_grads_finds_gradient_off_by_a_tenth_of_a_percent(which, seed):
    with pytest.raises(
        GradientCheckError, match=r"check_grads, order 1: the backward pass gives .* finite differences"
    ):
        testing.check_grads(Wrong(**{which: TENTH_OF_A_PERCENT}), X, Y, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_check_grads_finds_wrong_second_order_on_request(seed):
    cell = Wrong(second=TENTH_OF_A_PERCENT)
    testing.check_grads(cell, X, Y, order=1, seed=seed)
    with pytest.raises(GradientCheckError, match="order 2"):
        testing.check_grads(cell, X, Y, order=2, seed=seed)


def test_check_grads_finds_one_wrong_entry_in_a_thousand():
    class OneEntry(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

        def bprop(self, x, out, dout):
            factor = np.ones(x.shape)
            factor[617] = 1.01
            return (dout * ops.cos(x) * Tensor(factor),)

    with pytest.raises(GradientCheckError):
        testing.check_grads(OneEntry(), Tensor(np.linspace(0, 1, 1000)))


def test_check_grads_finds_wrong_sign_factor_and_transposition():
    class Reverse(nn.Cell):
        def __init__(self, reverse):
            super().__init__()
            self.reverse = reverse

        def construct(self, x):
            return x @ x

        def bprop(self, x, out, dout):
            return (self.reverse(x, dout),)

    square = Tensor(RNG.standard_normal((3, 3)))
    testing.check_grads(Reverse(lambda x, d: d @ x.T + x.T @ d), square)
    for wrong in (
        lambda x, d: -(d @ x.T + x.T @ d),
        lambda x, d: d @ x.T,
        lambda x, d: d @ x + x @ d,
        lambda x, d: d * 0.0,
    ):
        with pytest.raises(GradientCheckError):
            testing.check_grads(Reverse(wrong), square)


def test_check_grads_computes_in_float64():
    testing.check_grads(Wrong(), X.astype("float32"), Y.astype("float16"))
    with pytest.raises(GradientCheckError):
        testing.check_grads(Wrong(first=1e-3), X.astype("float32"), Y.astype("float16"))


def test_check_grads_accepts_integer_inputs_and_options():
    indices = Tensor([0, 2, 2])
    testing.check_grads(lambda x, i, scale: ops.gather(x, i, 0) * scale, X, indices, 3.0)


def test_check_grads_checks_all_outputs():
    class Second(nn.Cell):
        def construct(self, x):
            return x * 2.0, {"b": x * 3.0, "n": x > 0}

        def bprop(self, x, out, dout):
            return (dout[0] * 2.0 + dout[1]["b"] * 3.003,)

    with pytest.raises(GradientCheckError):
        testing.check_grads(Second(), X)
    testing.check_grads(lambda x: Second()(x)[0], X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_check_grads_fails_for_nan():
    class NotANumber(nn.Cell):
        def construct(self, x):
            return x * 2.0

        def bprop(self, x, out, dout):
            return (dout * float("nan"),)

    with pytest.raises(GradientCheckError, match="nan"):
        testing.check_grads(NotANumber(), X)
    with pytest.raises(GradientCheckError, match="nan"):
        testing.check_grads(lambda x: ops.log(x - 100.0), X)


def test_check_grads_fails_for_step_function():
    with pytest.raises(GradientCheckError):
        testing.check_grads(surrogate.ATan(), X)


def test_check_grads_without_differentiable_input_raises():
    with pytest.raises(GradientError, match="no float Tensor among the inputs"):
        testing.check_grads(lambda n: n, Tensor([1, 2]))
    with pytest.raises(GradientError, match="returned no float Tensor"):
        testing.check_grads(lambda x: x > 0, X)


def test_check_grads_does_not_change_inputs():
    before = X.asnumpy().copy()
    testing.check_grads(Wrong(), X, Y)
    np.testing.assert_array_equal(X.asnumpy(), before)


def test_check_grads_uses_same_random_numbers_at_every_point():
    testing.check_grads(lambda x: ops.dropout(x, 0.5) * x, X)


# --- Parameters and error messages ------------------------------------------------------------------------------------


class Scaled(nn.Cell):
    """w x + b, with a gradient of w that is off by a fraction, in all entries or in one."""

    def __init__(self, of_w=0.0, entry=None):
        super().__init__()
        self.w, self.b = Parameter(Tensor([2.0, 1.0, 3.0, 4.0])), Parameter(Tensor([1.0]))
        self.internal_params = [self.w, self.b]
        factor = np.ones(4)
        factor[slice(None) if entry is None else entry] += of_w
        self.factor = Tensor(factor)

    def construct(self, x):
        return x * self.w + self.b

    def bprop(self, x, out, dout):
        return (dout * self.w,), {self.b: dout, self.w: dout * x * self.factor}


def test_check_grads_checks_cell_parameters_in_float64_and_restores_them():
    cell = Scaled()
    arrays = [p._data for p in cell.get_parameters()]
    found = testing.check_grads(cell, X.astype("float32"))
    assert [row.name for row in found.rows] == ["input 0", "Parameter 'w'", "Parameter 'b'"] and found.worst < 1e-7
    assert [p._data for p in cell.get_parameters()] == arrays
    for error in (0.01, 0.001):
        cell = Scaled(error)
        arrays = [p._data for p in cell.get_parameters()]
        with pytest.raises(
            GradientCheckError, match=r"Parameter 'w' is worst, at index \(\d,\): the backward pass gives"
        ):
            testing.check_grads(cell, X.astype("float32"))
        assert all(p._data is array for p, array in zip(cell.get_parameters(), arrays, strict=True))


def test_check_grads_checks_selected_weights():
    cell = Scaled(0.01)
    assert [row.name for row in testing.check_grads(cell, X, weights=()).rows] == ["input 0"]
    assert len(testing.check_grads(cell, X, weights=cell.b).rows) == 2
    with pytest.raises(GradientCheckError, match="Parameter 'w' is worst"):
        testing.check_grads(lambda x: cell(x) * 2.0, X, weights=[cell.w])
    assert len(testing.check_grads(lambda n: cell(Tensor([1.0])) * n, 3, weights=cell.b).rows) == 1


def test_check_grads_finds_wrong_small_parameter_among_large_inputs():
    class Small(Scaled):
        def construct(self, x):
            return x * 1e4 + super().construct(x)

        def bprop(self, x, out, dout):
            (dx,), of_weights = super().bprop(x, out, dout)
            return (dx + dout * 1e4,), of_weights

    testing.check_grads(Small(), X)
    with pytest.raises(GradientCheckError, match=r"along a random direction of Parameter 'w'.*Parameter 'w' is worst"):
        testing.check_grads(Small(0.001), X)


def test_check_grads_names_worst_entry_its_error_and_bprop():
    message = (
        r"order 1: the backward pass gives .*Parameter 'w' is worst, at index \(2,\): the backward pass gives "
        r".*, finite "
        r"differences .*\. The cause is the custom bprop of the net itself \(Scaled\): The bprop of Scaled gives "
        r".* for Parameter 'w' at index \(2,\).*; found / expected is 1\.01 there; 1 of 4 entries differ"
    )
    with pytest.raises(GradientCheckError, match=message):
        testing.check_grads(Scaled(0.01, entry=2), X)
    with pytest.raises(GradientCheckError, match=r"finite differences .*, 1\.01 times as much in all entries\."):
        testing.check_grads(Scaled(0.01), X)


def test_check_grads_limits_number_of_entries_and_says_so():
    class OneEntry(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

        def bprop(self, x, out, dout):
            factor = np.ones(x.shape)
            factor[5, 17] = 1.01
            return (dout * ops.cos(x) * Tensor(factor),)

    message = r"input 0 is worst, at index \(5, 17\): .* \(\d+ of 1000 entries were compared, found by bisection\)"
    with pytest.raises(GradientCheckError, match=message):
        testing.check_grads(OneEntry(), Tensor(np.linspace(0, 1, 1000).reshape(10, 100)))


def test_check_grads_names_step_function_that_differences_cannot_follow():
    cell = surrogate.ATan()
    with pytest.raises(
        GradientCheckError, match=r"cell \(ATan\) ran as a step function, so finite.*surrogate\.smooth\(\)"
    ):
        testing.check_grads(lambda x: cell(x) * x, X)


def test_check_grads_quotes_line_that_stops_gradient():
    def fn(x):
        return x * ops.stop_gradient(ops.sin(x))

    message = r"a stopped path is the cause: ops\.stop_gradient at test_testing\.py:\d+: return x \* ops\.stop_gr"
    with pytest.raises(GradientCheckError, match=message):
        testing.check_grads(fn, X)
    testing.check_grads(fn, X, detached=True, order=2)


def test_check_grads_with_detached_values_finds_faults():
    cell = Scaled(0.001)
    with pytest.raises(GradientCheckError, match="order 1"):
        testing.check_grads(lambda x: cell(x) * ops.stop_gradient(x), X, weights=cell.w, detached=True)


def test_check_grads_reports_detached_calls_in_changing_order():
    def fn(x):
        parts = [ops.stop_gradient(x)] if x.sum().item() > X.sum().item() else []
        return x * 2.0 + sum(parts)

    with pytest.raises(GradientCheckError, match="is called in another order"):
        testing.check_grads(fn, X, detached=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("smooth", [True, False])
def test_check_grads_names_layer_and_time_step(smooth):
    dense, node = nn.Dense(4, 3), nn.MultiStep(nn.LIFNode(detach_reset=True, surrogate_function=surrogate.ATan()))
    net = nn.SequentialCell(dense, node)
    x = Tensor(RNG.uniform(0, 3, (6, 2, 4)))
    cause = (
        r"layer 1\.cell \(LIFNode\): its reset is detached"
        if smooth
        else r"1\.cell\.surrogate_function \(ATan\) ran as"
    )
    context = surrogate.smooth() if smooth else testing.unfused()
    with context, pytest.raises(GradientCheckError, match=r"at time step \d, index \(\d, \d, \d\).*" + cause):
        testing.check_grads(net, x)


def test_check_grads_starts_each_run_from_same_states():
    cell = nn.Stateful(nn.LIFNode())
    with surrogate.smooth():
        testing.check_grads(cell, X)
    assert not cell.states


def test_check_grads_prints_table():
    found = testing.check_grads(Wrong(), X, Y, order=2)
    lines = [line.split() for line in str(found).splitlines()]
    assert [line[:4] for line in lines[2:]] == [
        ["order", "1", "input", "0"],
        ["order", "1", "input", "1"],
        ["order", "2", "input", "0,"],
    ]


def test_check_grads_at_a_kink_checks_nearby_point():
    found = testing.check_grads(lambda x: ops.relu(x) * 2.0, X * 0.0)
    assert found.rows[0].note == "near the inputs, because they are at a kink"

    class Wrongly(nn.Cell):
        def construct(self, x):
            return ops.relu(x)

        def bprop(self, x, out, dout):
            return (dout * (x > 0).astype(x.dtype) * 1.001,)

    with pytest.raises(GradientCheckError, match=r"1\.001 times as much|Wrongly gives"):
        testing.check_grads(Wrongly(), X * 0.0)
