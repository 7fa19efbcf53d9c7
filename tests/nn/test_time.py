"""Time steps: ops.scan, nn.MultiStep, nn.Recurrent and nn.TimeDistributed."""

from itertools import accumulate

import naive
import numpy as np
import pytest
from random_cases import random_cases

from snncell import Tensor, explain, jit, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.tape import structure


@pytest.fixture
def xs():
    return Tensor(np.random.default_rng(0).standard_normal((5, 3)))


# --- scan ------------------------------------------------------------------------------------------------------------


def test_scan_carries_states_and_collects_results(xs):
    carry, ys = ops.scan(lambda c, x: (c + x, c * 2.0), ops.zeros(3, "float64"), xs)
    sums = np.cumsum(xs.asnumpy(), 0)
    np.testing.assert_allclose(carry.asnumpy(), sums[-1], rtol=1e-12)
    np.testing.assert_allclose(ys.asnumpy(), 2 * np.vstack([np.zeros(3), sums[:-1]]), rtol=1e-12)


def test_reverse_scan_keeps_the_order_of_results(xs):
    carry, ys = ops.scan(lambda c, x: (c + x, c + x), ops.zeros(3, "float64"), xs, reverse=True)
    sums = np.cumsum(xs.asnumpy()[::-1], 0)[::-1]
    np.testing.assert_allclose(ys.asnumpy(), sums, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(carry.asnumpy(), sums[0], rtol=1e-12)


def test_scan_accepts_and_returns_nested_structures(xs):
    def step(carry, x):
        total, (count,) = carry["total"] + x["a"], carry["rest"]
        return {"total": total, "rest": [count + 1]}, (total, {"double": x["b"][0] * 2.0, "none": None})

    init = {"total": ops.zeros(3, "float64"), "rest": [Tensor(0)]}
    carry, (totals, named) = ops.scan(step, init, {"a": xs, "b": (xs + 1.0,)})
    assert carry["rest"][0].item() == 5 and carry["rest"][0].dtype == "int64"
    np.testing.assert_allclose(totals.asnumpy(), np.cumsum(xs.asnumpy(), 0), rtol=1e-12)
    np.testing.assert_allclose(named["double"].asnumpy(), 2 * (xs.asnumpy() + 1), rtol=1e-12)
    assert named["none"] is None


def test_scan_without_results(xs):
    carry, ys = ops.scan(lambda c, x: (c + x, None), ops.zeros(3, "float64"), xs)
    assert ys is None and carry.shape == (3,)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("checkpoint_every", [None, 1, 2, 100])
def test_scan_gradients_equal_a_python_loop(xs, reverse, checkpoint_every):
    w = Tensor(np.array([0.3, -0.8, 1.1]))

    def step(c, x):
        new = ops.tanh(c * w + x)
        return new, new * x

    def scanned(init, xs):
        return ops.scan(step, init, xs, reverse=reverse, checkpoint_every=checkpoint_every)

    def looped(init, xs):
        c, ys = init, [None] * 5
        for t in reversed(range(5)) if reverse else range(5):
            c, ys[t] = step(c, xs[t])
        return c, ops.stack(ys)

    init = Tensor(np.array([0.1, 0.2, 0.3]))
    for mine, theirs in zip(scanned(init, xs), looped(init, xs), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-13)
    for mine, theirs in zip(ops.grad(scanned, (0, 1))(init, xs), ops.grad(looped, (0, 1))(init, xs), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-12)
    testing.check_grads(scanned, init, xs, order=2)


def test_closed_over_values_get_gradients(xs):
    def total(w):
        return ops.scan(lambda c, x: (c * w + x, c), ops.zeros(3, "float64"), xs)

    testing.check_grads(total, Tensor(np.array([0.5, 0.9, -0.4])))


def test_changed_state_shape_raises_and_names_the_state(xs):
    init = (ops.zeros(3, "float64"), ops.zeros((), "float64"))
    with pytest.raises(ShapeError, match=r"state 1 has shape \(\) before .* \(3,\) after it.*ops\.zeros\(\(3,\)\)"):
        ops.scan(lambda c, x: ((c[0], c[1] + x), None), init, xs)


def test_changed_state_dtype_raises_and_names_the_state(xs):
    init = (ops.zeros(3, "float64"), ops.zeros(3, "float32"))
    with pytest.raises(DTypeError, match="state 1 has dtype Float32 before a step and Float64 after it"):
        ops.scan(lambda c, x: ((c[0], c[1] + x), None), init, xs)


def test_changed_carry_structure_raises(xs):
    with pytest.raises(ShapeError, match=r"came in as Float64\[3\] and went out as \(Float64\[3\], Float64\[3\]\)"):
        ops.scan(lambda c, x: ((c, x), None), ops.zeros(3, "float64"), xs)


@pytest.mark.parametrize(
    ("f", "xs", "options", "kind", "message"),
    [
        (lambda c, x: c, ops.ones((2, 1)), {}, ArgumentError, r"f returns \(carry, y\), not Tensor"),
        (lambda c, x: (c, x, x), ops.ones((2, 1)), {}, ArgumentError, r"f returns \(carry, y\)"),
        (lambda c, x: (c, x), (ops.ones((2, 1)), ops.ones((3, 1))), {}, ShapeError, r"one common first axis.*\(3, 1\)"),
        (lambda c, x: (c, x), Tensor(1.0), {}, ShapeError, "one common first axis"),
        (lambda c, x: (c, x), ops.ones((0, 1)), {}, ArgumentError, "no steps"),
        (lambda c, x: (c, x), [], {}, ArgumentError, "xs contains no Tensor"),
        (
            lambda c, x: (c, x),
            ops.ones((2, 1)),
            {"checkpoint_every": 0},
            ArgumentError,
            "checkpoint_every is an integer of at least 1",
        ),
        (lambda c, x: (c, x), ops.ones((2, 1)), {"checkpoint_every": 1.5}, ArgumentError, "checkpoint_every is an int"),
    ],
    ids=["no pair", "three values", "lengths", "no axis", "no steps", "no tensors", "every 0", "every 1.5"],
)
def test_invalid_scans_raise(f, xs, options, kind, message):
    with pytest.raises(kind, match=message):
        ops.scan(f, ops.ones(1), xs, **options)


def test_numbers_as_results_are_collected_or_raise():
    try:
        _, ys = ops.scan(lambda c, x: (c, 1.5), ops.ones(1), ops.ones((3, 1)))
    except ArgumentError:
        return
    assert np.asarray(ys).tolist() == [1.5, 1.5, 1.5]


# --- associative_scan -------------------------------------------------------------------------------------------------

# Associative functions, and their elements: `draw` gives a vector for each step, or an array of another shape.
ASSOCIATIVE = [
    (lambda a, b: a + b, lambda draw: draw()),
    (lambda a, b: [ops.maximum(a[0], b[0])], lambda draw: [draw(3, 1)]),
    (lambda a, b: {"m": a["m"] @ b["m"], "none": None}, lambda draw: {"m": draw(2, 2), "none": None}),
    (lambda a, b: (a[0] * b[0], {"h": b[0] * a[1]["h"] + b[1]["h"]}), lambda draw: (draw(), {"h": draw()})),
    (lambda a, b: ((a[0][0] * b[0][0],), a[1] + b[1]), lambda draw: ((draw(),), draw(2, 2))),
]


@random_cases(24)
def test_associative_scan_equals_a_loop(seed):
    rng = np.random.default_rng(seed)
    fn, make = ASSOCIATIVE[seed % len(ASSOCIATIVE)]
    steps, dtype = int(rng.choice([0, 1, 2, 3, 4, 6, 7, 9, 16])), str(rng.choice(["float64", "float32", "int32"]))
    batch = (int(rng.choice([0, 1, 2])),) if seed % 3 else ()
    axis, reverse = len(batch), bool(rng.integers(2))

    def draw(*shape):
        drawn = rng.uniform(-1.5, 1.5, (*batch, steps, *(shape or (3,))))
        return Tensor(drawn.round() if dtype == "int32" else drawn, dtype)

    def looped(*leaves):
        order = list(range(steps))[:: -1 if reverse else 1]
        slices = [structure.unflatten(tree, [ops.narrow(x, axis, t, 1) for x in leaves]) for t in order]
        totals = [structure.flatten(total)[0] for total in accumulate(slices, fn)]
        return [ops.concat(column[:: -1 if reverse else 1], axis) for column in zip(*totals, strict=True)]

    def scanned(*leaves):
        found = ops.associative_scan(fn, structure.unflatten(tree, leaves), axis, reverse)
        assert structure.flatten(found)[1] == tree
        return structure.flatten(found)[0]

    places, tree = structure.flatten(make(draw))
    expected = looped(*places) if steps else places
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-12}
    for mine, theirs, compiled in zip(scanned(*places), expected, jit(scanned)(*places), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), **near)
        np.testing.assert_array_equal(mine.asnumpy(), compiled.asnumpy())
    if steps and dtype == "float64":
        every = tuple(range(len(places)))
        for mine, theirs in zip(ops.grad(scanned, every)(*places), ops.grad(looped, every)(*places), strict=True):
            np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), **near)


@pytest.mark.parametrize(
    ("fn", "elements", "axis", "kind", "message"),
    [
        (ops.add, (), 0, ArgumentError, "elements must contain a Tensor, but a tuple has none"),
        (ops.add, Tensor(1.0), 0, ShapeError, "axis 0 of a Tensor with 0 axes"),
        (ops.add, ops.ones((2, 3)), 2, ShapeError, "axis 2 of a Tensor with 2 axes"),
        (ops.add, (ops.ones((2, 3)), ops.ones((3, 3))), 0, ShapeError, r"one common length along axis 0.*\(3, 3\)"),
        (
            lambda a, b: (a, b),
            ops.ones(4),
            0,
            ArgumentError,
            r"returned \(Float32\[2\], Float32\[2\]\) for slices Float3",
        ),
        (lambda a, b: 1.0, ops.ones(4), 0, ArgumentError, "returned float for slices.*Return the structure"),
        (lambda a, b: a.sum(0), ops.ones((4, 2)), 0, ShapeError, r"shape \(2,\) for slices of shape \(2, 2\).*axis 0"),
        (lambda a, b: a > b, ops.ones(4), 0, DTypeError, r"returned Bool for slices of Float32.*astype\('float32'\)"),
    ],
)
def test_invalid_associative_scans_raise(fn, elements, axis, kind, message):
    with pytest.raises(kind, match=f"associative_scan: .*{message}"):
        ops.associative_scan(fn, elements, axis)


def test_associative_scan_of_long_sequences_has_a_short_program():
    x = ops.ones((16384,))
    program = explain(lambda x: ops.associative_scan(ops.add, x), x, detail="program")
    assert len(str(program).splitlines()) < 200


# --- MultiStep -------------------------------------------------------------------------------------------------------


def currents(steps=8, batch=2, neurons=4):
    return Tensor(np.random.default_rng(1).uniform(0, 1.5, (steps, batch, neurons)).astype(np.float32))


def node():
    return nn.LIFNode(2.5, decay_input=False, v_reset=0.1, reset="value")


def test_multi_step_equals_single_steps():
    x, cell = currents(), node()
    v, spikes = cell.init_state(x[0]), []
    for t in range(8):
        s, v = cell(x[t], v)
        spikes.append(s.asnumpy())
    y, (last,) = nn.MultiStep(cell, return_states=True)(x)
    np.testing.assert_array_equal(y.asnumpy(), np.stack(spikes))
    np.testing.assert_array_equal(last.asnumpy(), v.asnumpy())
    assert np.stack(spikes).any()


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_passed_states_continue_a_sequence(cut):
    x, net = currents(), nn.MultiStep(node(), return_states=True)
    whole, (last,) = net(x)
    first, states = net(x[:cut])
    second, (last_of_parts,) = net(x[cut:], *states)
    np.testing.assert_array_equal(np.concatenate([first.asnumpy(), second.asnumpy()]), whole.asnumpy())
    np.testing.assert_array_equal(last_of_parts.asnumpy(), last.asnumpy())


def test_gradient_flows_through_passed_states():
    x, net = currents(), nn.MultiStep(node(), return_states=True)

    def in_parts(x):
        first, states = net(x[:3])
        second, _ = net(x[3:], *states)
        return ops.concat((first, second))

    np.testing.assert_array_equal(ops.grad(in_parts)(x).asnumpy(), ops.grad(lambda x: net(x)[0])(x).asnumpy())


def test_default_states_come_from_init_state_or_are_zeros():
    class Two(nn.Cell):
        """A user-defined neuron with two states and no init_state."""

        def construct(self, x, v, u, gain=1.0):
            return v + u, v + x * gain, u * 0.5 + 1.0

    x = currents()
    y, states = nn.MultiStep(Two(), return_states=True)(x)
    assert len(states) == 2 and not y.asnumpy()[0].any()
    given, _ = nn.MultiStep(node(), return_states=True)(x)
    explicit, _ = nn.MultiStep(node(), return_states=True)(x, ops.full((2, 4), 0.1))
    np.testing.assert_array_equal(given.asnumpy(), explicit.asnumpy())


def test_multi_step_keeps_no_states_between_calls():
    net, x = nn.MultiStep(node()), currents()
    np.testing.assert_array_equal(net(x).asnumpy(), net(x).asnumpy())


def test_wrong_number_of_returned_states_raises():
    class Loses(nn.Cell):
        def construct(self, x, v):
            return x

    class Gains(nn.Cell):
        def construct(self, x, v):
            return x, v, v

    class Defaults(nn.Cell):
        def construct(self, x, v=0.0):
            return x, v

    with pytest.raises(ArgumentError, match=r"Loses\.construct took 1 state.*\(output, v\).*it returned Tensor"):
        nn.MultiStep(Loses())(currents())
    with pytest.raises(ArgumentError, match=r"Gains\.construct took 1 state.*returned 3 values"):
        nn.MultiStep(Gains())(currents())
    with pytest.raises(
        ArgumentError, match=r"\(output,\); it returned 2 values\. An argument with a default, here v, is"
    ):
        nn.MultiStep(Defaults())(currents())


def test_states_must_be_given_if_the_signature_is_unclear():
    class Any(nn.Cell):
        def construct(self, x, *states):
            return (x, *states)

    with pytest.raises(ArgumentError, match=r"Any: construct takes \*args.*init_state"):
        nn.MultiStep(Any())(currents())
    x = currents()
    y, states = nn.MultiStep(Any(), return_states=True)(x, x[0], x[1])
    assert len(states) == 2 and y.shape == x.shape


def test_state_that_broadcasts_in_the_first_step_raises():
    net = nn.MultiStep(nn.IFNode())
    with pytest.raises(
        ShapeError, match=r"MultiStep\(IFNode\): state v has shape \(4,\) before a step and \(2, 4\) after it"
    ):
        net(currents(), ops.zeros(4))


class Forgets(nn.Cell):
    """A neuron whose time step removes or adds axes of the state."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def construct(self, x, v):
        return x, self.after(v + x)


@pytest.mark.parametrize(
    ("before", "after", "mend"),
    [
        (
            (2, 4),
            lambda v: v.sum(),
            r"\(2, 4\) before a step and \(\) after it. Return it with its original shape \(2, 4\)",
        ),
        (
            (2, 4),
            lambda v: v.mean(1),
            r"and \(2,\) after it. Return it with its original shape \(2, 4\).* \(keepdims=True",
        ),
        ((2, 4), lambda v: v[:, :2], r"and \(2, 2\) after it. Return it with its original shape \(2, 4\)"),
        ((2, 4), lambda v: v.T, r"and \(4, 2\) after it. Return it with its original shape \(2, 4\)"),
        ((), lambda v: v, r"\(\) before a step and \(2, 4\) after it. Give it its full shape .* ops.zeros\(\(2, 4\)\)"),
        ((2, 1), lambda v: v, r"\(2, 1\) before a step and \(2, 4\) after it. Give it its full shape from the start"),
    ],
)
def test_suggested_fix_of_a_changed_state_shape_works(before, after, mend):
    with pytest.raises(ShapeError, match=rf"MultiStep\(Forgets\): state v has shape .*{mend}"):
        nn.MultiStep(Forgets(after))(currents(), ops.zeros(before))


def test_inputs_without_steps_or_axes_raise():
    for shape in ((), (0, 2, 3)):
        with pytest.raises(ArgumentError, match=r"MultiStep: x must be .* at least one step"):
            nn.MultiStep(node())(ops.ones(shape))


def test_multi_step_accepts_only_cells():
    with pytest.raises(ArgumentError, match="MultiStep: cell is a Cell, not the function"):
        nn.MultiStep(lambda x: x)


# --- Recurrent -------------------------------------------------------------------------------------------------------


@pytest.fixture
def recurrent():
    rng = np.random.default_rng(4)
    feedback = nn.Dense(5, 5, Tensor(rng.normal(0, 0.6, (5, 5))), Tensor(rng.normal(0, 0.1, 5)), dtype="float64")
    neuron = nn.LIFNode(2.0, decay_input=False, surrogate_function=surrogate.ATan())
    return nn.MultiStep(nn.Recurrent(neuron, feedback)), feedback, Tensor(rng.uniform(0, 1.2, (9, 1, 5)))


def test_recurrent_forward_equals_the_loop(recurrent):
    net, feedback, x = recurrent
    spikes, hs = naive.recurrent_forward(x.asnumpy()[:, 0], feedback.weight.asnumpy(), feedback.bias.asnumpy())
    assert np.abs(hs - 1).min() > 1e-5 and 0.1 < spikes.mean() < 0.9
    np.testing.assert_array_equal(net(x).asnumpy()[:, 0], spikes)


def test_recurrent_gradients_equal_hand_written_bptt(recurrent):
    net, feedback, x = recurrent
    weight = feedback.weight.asnumpy()
    spikes, hs = naive.recurrent_forward(x.asnumpy()[:, 0], weight, feedback.bias.asnumpy())
    d_spikes = np.random.default_rng(5).standard_normal(spikes.shape)
    expected = naive.recurrent_backward(spikes, hs, weight, d_spikes, naive.atan_slope)
    _, pull = ops.vjp(net, x, weights=[feedback.weight, feedback.bias])
    (of_x,), (of_weight, of_bias) = pull(Tensor(d_spikes[:, None]))
    for mine, theirs in zip((of_x[:, 0], of_weight, of_bias), expected, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_smooth_recurrent_gradients_agree_with_finite_differences(recurrent):
    net, _, x = recurrent
    with surrogate.smooth():
        testing.check_grads(net, x, order=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((nn.LIFNode(), lambda s: s), "Recurrent: feedback must be a Cell, an object such as .*, not a function"),
        ((nn.LIFNode(), nn.Dense), "Recurrent: feedback must be a Cell, .*, not the class Dense"),
        ((nn.LIFNode, nn.Dense(2, 2)), r"Recurrent: cell must be a Cell, .* nn\.LIFNode\(\), not the class LIFNode"),
    ],
)
def test_recurrent_accepts_only_cells(given, message):
    with pytest.raises(ArgumentError, match=message):
        nn.Recurrent(*given)


def test_feedback_of_another_width_raises_with_its_layer(recurrent):
    net, _, x = recurrent
    net.cell.feedback = nn.Dense(5, 4)
    with pytest.raises(ShapeError, match=r"feedback Dense\(input_channels=5, output_channels=4, .* returns \(1, 4\)"):
        net(x)


def test_recurrent_states_are_the_output_and_the_neuron_states(recurrent):
    net, _, x = recurrent
    net.return_states = True
    y, (out, v) = net(x)
    np.testing.assert_array_equal(out.asnumpy(), y.asnumpy()[-1])
    again, _ = net(x[4:], *net(x[:4])[1])
    np.testing.assert_array_equal(again.asnumpy(), y.asnumpy()[4:])
    assert v.shape == (1, 5)


# --- TimeDistributed -------------------------------------------------------------------------------------------------


def test_time_distributed_equals_single_steps():
    layer, x = nn.Dense(4, 3), currents()
    out = nn.TimeDistributed(layer)(x)
    assert out.shape == (8, 2, 3)
    for t in range(8):
        np.testing.assert_allclose(out[t].asnumpy(), layer(x[t]).asnumpy(), rtol=1e-6, atol=1e-7)
    mine = ops.grad(nn.TimeDistributed(layer), 0, layer.weight)(x)
    theirs = ops.grad(lambda x: ops.stack([layer(x[t]) for t in range(8)]), 0, layer.weight)(x)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


def test_time_distributed_normalises_over_time_and_batch():
    layer = nn.BatchNorm1d(4)
    layer.set_train()
    out = nn.TimeDistributed(layer)(currents()).asnumpy().reshape(16, 4)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)


def test_time_distributed_needs_a_time_axis_and_keeps_the_batch_axis():
    with pytest.raises(ShapeError, match=r"TimeDistributed: x must be \(T, B, \.\.\.\), but has shape \(4,\)"):
        nn.TimeDistributed(nn.ReLU())(ops.ones(4))

    class Sums(nn.Cell):
        def construct(self, x):
            return x.sum(0)

    with pytest.raises(ShapeError, match=r"Sums returned shape \(4,\) for 8 steps of a batch of 2; .* stay 16"):
        nn.TimeDistributed(Sums())(currents())


OVER_TIME = {
    "MultiStep": (lambda: nn.MultiStep(nn.LIFNode()), (5, 2, 3)),
    "AxonalDelay": (lambda: nn.AxonalDelay(3, 2), (5, 2, 3, 3)),
    "DelayedDense": (lambda: nn.DelayedDense(3, 3, 2), (5, 2, 3)),
    "TimeFixedDropout": (lambda: nn.TimeFixedDropout(p=0.5), (5, 2, 3)),
    "ThresholdBatchNorm": (lambda: nn.ThresholdBatchNorm(3), (5, 2, 4, 3)),
    "GRU": (lambda: nn.GRU(3, 3), (5, 2, 4, 3)),
    "Stateful": (lambda: nn.Stateful(nn.LIFNode()), (5, 2, 3)),
    "SlidingPSN": (lambda: nn.SlidingPSN(2), (5, 2, 3)),
    "Readout": (lambda: nn.Readout("sum"), (5, 2, 3)),
}


@pytest.mark.parametrize("name", OVER_TIME)
def test_time_distributed_rejects_layers_over_time(name):
    make, shape = OVER_TIME[name]

    class Holder(nn.Cell):
        """A Cell that hides its layer from the TimeDistributed around it."""

        def __init__(self):
            super().__init__()
            self.layer = make()

        def construct(self, x):
            return self.layer(x)

    text = rf"TimeDistributed: {name}\S* runs over time.*Put it after the TimeDistributed"
    for make_inner in (make, Holder, lambda: nn.SequentialCell(make())):
        with pytest.raises(ArgumentError, match=text):
            nn.TimeDistributed(make_inner()).set_train()(ops.ones(shape))


def test_time_distributed_rejects_a_multi_step_in_the_constructor():
    for cell in (nn.MultiStep(nn.LIFNode()), nn.SequentialCell(nn.Dense(3, 3), nn.MultiStep(nn.LIFNode()))):
        with pytest.raises(ArgumentError, match=r"TimeDistributed: MultiStep runs over time"):
            nn.TimeDistributed(cell)


def test_time_distributed_accepts_a_cell_with_its_own_time_steps():
    class Repeating(nn.Cell):
        """Three steps of a neuron for each frame."""

        def __init__(self):
            super().__init__()
            self.steps = nn.MultiStep(nn.LIFNode())

        def construct(self, x):
            return self.steps(ops.stack([x, x, x])).sum(0)

    x = ops.uniform((5, 2, 3)) * 3.0
    cell = Repeating()
    expected = np.stack([cell(frame).asnumpy() for frame in x])
    np.testing.assert_array_equal(nn.TimeDistributed(cell)(x).asnumpy(), expected)


def test_stateful_put_rejects_states_of_another_dtype():
    stream = nn.Stateful(nn.LIFNode())
    stream(ops.ones((1, 2)))
    kept = stream.kept()
    with pytest.raises(DTypeError, match=r"Stateful.put: .* do not fit Parameter 'state\.0'"):
        stream.put(kept._replace(states=[one.astype(np.complex64) for one in kept.states]))
    stream.put(kept)


@pytest.mark.compiled
def test_compiled_cell_follows_a_changed_initial_state():
    node = nn.LIFNode(v_rest=0.5, v_reset=0.1)

    @jit
    def first(x):
        return node.init_state(x)

    x = ops.zeros((1, 1))
    assert first(x).item() == np.float32(0.1)
    node.starting_at("v_rest")
    assert first(x).item() == 0.5
