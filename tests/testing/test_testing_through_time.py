"""`check_through_time`: planted faults are found with layer, time step, entry, cause and fix; healthy nets pass."""

import numpy as np
import pytest
from neuron_table import NEURONS

from snncell import Parameter, Tensor, grad, jit, nn, ops, surrogate, testing
from snncell.compiler.runtime.loop_run import Lowered
from snncell.errors import ArgumentError, GradientCheckError
from snncell.testing import through_time

RNG = np.random.default_rng(0)
X = Tensor(RNG.uniform(0.0, 3.0, (4, 2, 4)).astype(np.float32))  # (T, B, N)


class Off(surrogate.ATan):
    """A surrogate with a `bprop` that is off by a fraction."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def bprop(self, x, out, dout):
        return (super().bprop(x, out, dout)[0] * (1.0 + self.error),)


def lif(spikes=None, **options):
    return nn.MultiStep(nn.LIFNode(surrogate_function=spikes or surrogate.ATan(), **options))


class Net(nn.Cell):
    """Three layers of neurons, with a Cell before the second one."""

    def __init__(self, middle=None, first=None, second=None, third=None):
        super().__init__()
        self.dense1, self.lif1 = nn.Dense(4, 5), first or lif()
        self.middle = middle or nn.Dense(5, 5)
        self.lif2 = second or lif()
        self.dense3, self.lif3 = nn.Dense(5, 3), third or lif()
        for dense in (self.dense1, self.middle, self.dense3):
            if isinstance(dense, nn.Dense):
                dense.weight.set_data(dense.weight * 2.0 + 0.3)  # so that all layers fire

    def construct(self, x):
        hidden = self.lif2(self.middle(self.lif1(self.dense1(x))))
        return self.lif3(self.dense3(hidden))


class Linear(nn.Cell):
    """w x, with a custom `bprop` that can be off by fractions, or omit w."""

    def __init__(self, size, of_x=0.0, of_w=0.0, forgets=False):
        super().__init__()
        self.w = Parameter(Tensor(np.eye(size, dtype=np.float32) + 0.1))
        self.internal_params = [] if forgets else [self.w]
        self.of_x, self.of_w = of_x, of_w

    def construct(self, x):
        return x @ self.w

    def bprop(self, x, out, dout):
        dx = dout @ self.w.T * (1.0 + self.of_x)
        if not self.internal_params:
            return (dx,)
        rows, douts = x.reshape((-1, x.shape[-1])), dout.reshape((-1, dout.shape[-1]))
        return (dx,), {self.w: rows.T @ douts * (1.0 + self.of_w)}


# --- planted faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "ratio"), [(0.01, "1.01"), (-0.001, "0.999")])
def test_wrong_surrogate_is_named_with_layer_step_and_entry(error, ratio):
    message = (
        rf"the surrogate lif2\.cell\.surrogate_function \(Off\), the spike function of layer lif2\.cell \(LIFNode\), "
        rf"at time step \d: The bprop of Off gives .* for input 0 at index \(\d, \d\), its primitive gives .*; found / "
        rf"expected is {ratio} in all entries\. Fix its bprop or its primitive"
    )
    with pytest.raises(GradientCheckError, match=message):
        testing.check_through_time(Net(second=lif(Off(error))), X)


def test_wrong_surrogate_far_below_threshold_is_found():
    with pytest.raises(GradientCheckError, match=r"the surrogate lif2\.cell\.surrogate_function \(Off\).*1\.01 in all"):
        testing.check_through_time(Net(second=lif(Off(0.01), v_threshold=1e4)), X)


def test_surrogate_without_primitive_raises_with_fix():
    class Bare(nn.Cell):
        def construct(self, x):
            return (x > 0).astype(x.dtype)

        def bprop(self, x, out, dout):
            return (dout * ops.sigmoid(x),)

    message = r"the surrogate lif2\.cell\.surrogate_function \(Bare\).*define a method primitive"
    with pytest.raises(GradientCheckError, match=message):
        testing.check_through_time(Net(second=lif(Bare())), X)


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ({"of_x": 0.01}, r"for input 0 at index .*; found / expected is 1\.01 in all entries"),
        ({"of_w": 0.01}, r"for Parameter 'middle\.w' at index .*; found / expected is 1\.01 in all entries"),
        ({"forgets": True}, r"no gradient of Parameter 'w', which construct uses: .* List it in self\.internal"),
    ],
    ids=["x", "w", "forgotten"],
)
def test_wrong_custom_bprop_in_middle_layer_is_named(cell, what):
    message = (
        r"The cause is the custom bprop of layer middle \(Linear\), which takes all time steps at once.*: The bprop of "
    )
    with pytest.raises(GradientCheckError, match=message + f"Linear .*{what}"):
        testing.check_through_time(Net(middle=Linear(5, **cell)), X)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layer", ["lif1", "lif2", "lif3"])
def test_unintended_detached_reset_is_named_with_fix(layer):
    place = {"lif1": "first", "lif2": "second", "lif3": "third"}[layer]
    message = (
        rf"with smooth spikes the backward pass gives .* finite differences .*is worst, .*at time step \d, "
        rf"index .*Without "
        rf"any ops\.stop_gradient the gradient is correct, .*layer {layer}\.cell \(LIFNode\): its reset "
        rf"is detached \(detach_reset=True\).*set detach_reset=False\. If you want .* pass detached=True"
    )
    with pytest.raises(GradientCheckError, match=message) as caught:
        testing.check_through_time(Net(**{place: lif(detach_reset=True)}), X)
    assert str(caught.value).count("its reset is detached") == 1


def test_two_detached_resets_are_both_named():
    net = Net(first=lif(detach_reset=True), third=lif(detach_reset=True))
    with pytest.raises(GradientCheckError, match=r"layer lif1\.cell .*; layer lif3\.cell .*If you want"):
        testing.check_through_time(net, X)
    assert net.lif1.cell.detach_reset and net.lif3.cell.detach_reset


def test_intentionally_detached_values_are_held_constant():
    net = Net(second=lif(detach_reset=True))
    with testing.unfused():
        assert testing.check_through_time(net, X, detached=True).worst < 1e-6
    net = Net(middle=Linear(5, of_x=0.01), second=lif(detach_reset=True))
    with pytest.raises(GradientCheckError, match="custom bprop of layer middle"):
        testing.check_through_time(net, X, detached=True)


def test_user_line_that_stops_gradient_is_quoted():
    class Stops(nn.Cell):
        def construct(self, x):
            return x * ops.stop_gradient(x)

    message = (
        r"layer middle \(Stops\): ops\.stop_gradient at test_.*\.py:\d+: return x \* ops\.stop_gradient\(x\); remove"
    )
    with pytest.raises(GradientCheckError, match=message):
        testing.check_through_time(Net(middle=Stops()), X)
    with testing.unfused():
        assert testing.check_through_time(Net(middle=Stops()), X, detached=True).worst < 1e-6


def test_values_that_leave_the_tape_are_attributed_to_their_layer():
    class Leaves(nn.Cell):
        def construct(self, x):
            return x * 2.0 + Tensor(x.asnumpy() * 0.5)

    message = r"The cause is in layer middle \(Leaves\): called alone.*at time step \d, .*, 0\.8 times as much in all"
    with pytest.raises(GradientCheckError, match=message):
        testing.check_through_time(Net(middle=Leaves()), X)


def test_wrong_feedback_of_recurrent_layer_is_named():
    def recurrent(error):
        return nn.MultiStep(nn.Recurrent(nn.LIFNode(surrogate_function=surrogate.ATan()), Linear(5, of_w=error)))

    with testing.unfused():
        assert testing.check_through_time(Net(second=recurrent(0.0)), X).worst < 1e-6
    message = (
        r"custom bprop of layer lif2\.cell\.feedback \(Linear\), at time step \d: The bprop of Linear .*feedback\.w'"
    )
    with pytest.raises(GradientCheckError, match=message):
        testing.check_through_time(Net(second=recurrent(0.01)), X)


# --- kernels ----------------------------------------------------------------------------------------------------------


def planted(monkeypatch, who, factor, of_inputs=False):
    """Loops run by `who` multiply their results or their inputs by a factor."""
    right = Lowered.run

    def wrong(self, arrays, steps):
        if who not in self.loop.who or self.loop.who.startswith("backward") != who.startswith("backward"):
            return right(self, arrays, steps)
        if of_inputs:
            return right(self, [x * factor for x in arrays], steps)
        return tuple(x * factor for x in right(self, arrays, steps))

    monkeypatch.setattr(Lowered, "run", wrong)


@pytest.mark.parametrize(
    ("who", "what"),
    [
        (
            "MultiStep(LIFNode)",
            r"differs: output 0 at time step \d, index .* is 1\.01 from the kernel and 1 from the tape",
        ),
        (
            "backward of MultiStep(LIFNode)",
            r"differs: gradient of input 0 at time step \d, .*; found / expected is 1\.01 in all",
        ),
    ],
)
def test_wrong_kernel_is_distinguished_from_wrong_net(monkeypatch, who, what):
    planted(monkeypatch, who, 1.01)
    message = rf"the fused kernels differ from the tape.*Alone, layer .* \(MultiStep\) {what}.*"
    with pytest.raises(
        GradientCheckError, match=message + r"Rounding does not decide any spike.*The kernel is wrong, not your net"
    ):
        testing.check_through_time(Net(), X)


AT_THRESHOLD = ops.full((6, 2, 4), 0.25, "float64")  # four steps are 1.0, the threshold, and no more


def test_spike_decided_by_rounding_does_not_blame_kernel(monkeypatch):
    planted(monkeypatch, "MultiStep(IFNode)", 1.0 + 4e-16, of_inputs=True)
    net = nn.MultiStep(nn.IFNode(surrogate_function=surrogate.ATan()))
    assert not np.array_equal(net(AT_THRESHOLD).asnumpy(), fused_off(net, AT_THRESHOLD))
    rows = testing.check_through_time(net, AT_THRESHOLD).rows
    note = "rounding decides a spike: cell.surrogate_function (ATan) at time step 3, index (0, 0), 0.0e+00 from"
    assert all(note in row.note for row in rows if row.part == "fused")


def test_spikes_decided_by_rounding_do_not_blame_kernel(monkeypatch):
    planted(monkeypatch, "MultiStep(MultiSpikeLIFNode)", 1.0 - 4e-16, of_inputs=True)
    net = nn.MultiStep(nn.MultiSpikeLIFNode(beta=0.0, max_spikes=3, surrogate_function=surrogate.ATan()))
    rows = testing.check_through_time(net, ops.full((2, 1, 2), 2.0, "float64")).rows
    assert all("rounding decides a spike" in row.note for row in rows if row.part == "fused")


def test_spike_decided_by_rounding_does_not_hide_wrong_kernel(monkeypatch):
    planted(monkeypatch, "MultiStep(IFNode)", 1.01)
    net = nn.MultiStep(nn.IFNode(surrogate_function=surrogate.ATan()))
    with pytest.raises(GradientCheckError, match=r"A spike that rounding decides .* is not the reason"):
        testing.check_through_time(net, AT_THRESHOLD)


def fused_off(net, x):
    with testing.unfused():
        return net(x).asnumpy()


# --- healthy nets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEURONS)
def test_every_library_neuron_passes(name):
    entry = NEURONS[name]
    x, _ = entry.drawn(steps=4, neurons=3)
    with testing.unfused():
        found = testing.check_through_time(nn.MultiStep(entry.make(entry.resets[0])), Tensor(x[:, None]))
    assert found.worst < 1e-6
    assert found.rows[-1].note == "not compared: within unfused()"


class Loop(nn.Cell):
    """A custom loop over time."""

    def __init__(self, **options):
        super().__init__()
        self.dense, self.node = nn.Dense(4, 3), nn.LIFNode(surrogate_function=surrogate.ATan(), **options)

    def construct(self, x):
        v, spikes = ops.zeros((x.shape[1], 3), x.dtype), []
        for now in x:
            spike, v = self.node(self.dense(now), v)
            spikes.append(spike)
        return ops.stack(spikes)


class Narrow(nn.Cell):
    """A neuron written for float32."""

    def __init__(self):
        super().__init__()
        self.spikes = surrogate.relusigmoid()

    def init_state(self, x):
        return ops.zeros(x.shape), ops.full(x.shape, 0.1, "float32")

    def construct(self, x, v, threshold):
        v = 0.9 * v + x
        spike = self.spikes(v - threshold).astype("float32")
        return spike, v - spike * threshold, threshold * 0.9 + (spike > 0).astype("float32")


class Cubic(nn.Neuron):
    """A custom neuron."""

    def construct(self, x, v):
        v, late = self.recall(v)
        return self.fired(v - self.steepness * v * v * v + x, late)


def convolutional():
    return nn.SequentialCell(
        nn.TimeDistributed(nn.SequentialCell(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))),
        lif(),
        nn.TimeDistributed(nn.SequentialCell(nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(8, 3))),
        lif(),
    )


def normed():
    """A bias before a normalisation, which cancels it."""
    norm = nn.TimeDistributed(nn.BatchNorm1d(5))
    return nn.SequentialCell(nn.Dense(4, 5), norm, lif(), nn.Dense(5, 3), lif()).set_train()


def loss():
    net, entropy = Net(), nn.CrossEntropyLoss()
    return lambda x: entropy(net(x).sum(0), Tensor([0, 2]))


IMAGES = Tensor(RNG.uniform(0.0, 2.0, (3, 2, 1, 4, 4)).astype(np.float32))  # (T, B, C, H, W)
HEALTHY = {
    "three layers": (Net, X),
    "recurrent": (lambda: nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(4, 4))), X),
    "convolutional": (convolutional, IMAGES),
    "convolutional, in training": (lambda: convolutional().set_train(), IMAGES),
    "dropout": (lambda: nn.SequentialCell(nn.Dropout(p=0.4), lif()).set_train(), X),
    "stateful": (lambda: nn.Stateful(lif()), X),
    "own neuron": (lambda: nn.MultiStep(Cubic({"steepness": 0.5}, reset="zero", learnable="steepness")), X),
    "a gradient that is zero but for rounding": (normed, X),
    "own loop": (Loop, X),
    "written for float32": (lambda: nn.MultiStep(nn.Recurrent(Narrow(), nn.Dense(4, 4))), X),
    "own reverse": (lambda: Net(middle=Linear(5)), X),
    "a loss": (loss, X),
    "jitted": (lambda: jit(lif(detach_reset=False)), X),
    "silent, at kinks": (lambda: nn.SequentialCell(nn.Dense(4, 3), nn.ReLU(), lif(surrogate.Rect())), X * 0.0),
    "learned surrogate": (lambda: lif(surrogate.Sigmoid(Parameter(Tensor([2.0]), name="alpha"))), X),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_nets_pass(name):
    make, x = HEALTHY[name]
    assert testing.check_through_time(make(), x).worst < 1e-6


def test_calls_in_custom_loop_count_as_steps():
    with pytest.raises(
        GradientCheckError, match=r"at time step \d, index \(\d, \d, \d\).*layer node \(LIFNode\): its re"
    ):
        testing.check_through_time(Loop(detach_reset=True), X, weights=())


def test_calls_of_long_run_are_sampled():
    x = ops.ones((41, 1, 2)) * 0.6
    with testing.unfused():
        rows = testing.check_through_time(lif(), x).rows
        with pytest.raises(GradientCheckError, match=r"at time step \d+: The bprop of Off"):
            testing.check_through_time(lif(Off(0.01)), x)
    assert rows[0].step is not None and rows[0].step < 41


def test_kink_at_inputs_is_noted():
    class Hard(surrogate.Surrogate):
        """A hard sigmoid, whose derivative is 1 at its kinks."""

        def primitive(self, x):
            return ops.clip(x + 0.5, 0.0, 1.0)

        def bprop(self, x, out, dout):
            return (dout * (ops.abs(x) <= 0.5).astype(x.dtype),)

    class Other(Hard):
        """The same, whose derivative is 0 at its kinks."""

        def bprop(self, x, out, dout):
            return (dout * (ops.abs(x) < 0.5).astype(x.dtype),)

    notes = []
    for kind in (Hard, Other):
        net = nn.MultiStep(nn.LeakyNode(beta=0.0, surrogate_function=kind()))
        notes += [row.note for row in testing.check_through_time(net, ops.full((3, 1, 2), 1.5)).rows]
    assert "near the inputs that it got, because they are at a kink" in notes
    assert "near the inputs, because they are at a kink" in notes


def test_shared_surrogate_is_named_once_with_all_places():
    shared = Off(0.0)
    names = [row.name for row in testing.check_through_time(Net(first=lif(shared), third=lif(shared)), X).rows]
    assert names[0] == "lif1.cell.surrogate_function (Off, shared with lif3.cell.surrogate_function), input 0"
    assert names[1] == "lif2.cell.surrogate_function (ATan), input 0"


def test_worst_time_step_is_named():
    class Later(Off):
        """Wrong where the potential is just above the threshold."""

        def bprop(self, x, out, dout):
            worse = ops.select(ops.logical_and(x > 0.2, x < 0.3), 1.5, 1.01)
            return (surrogate.ATan.bprop(self, x, out, dout)[0] * worse,)

    x = ops.stack([ops.full((2, 4), level) for level in (0.1, 0.2, 1.25, 0.3)])  # no state is left of a step
    net = nn.MultiStep(nn.LeakyNode(beta=0.0, surrogate_function=Later(0.0)))
    with pytest.raises(GradientCheckError, match=r"\(LeakyNode\), at time step 2: .*; found / expected is 1\.5 in all"):
        testing.check_through_time(net, x)


def test_cell_that_cannot_be_replayed_is_listed_as_unchecked():
    class Keyword(nn.Cell):
        def __init__(self):
            super().__init__()
            self.linear = Linear(4)

        def construct(self, x):
            return self.linear(x=x)

    checked = testing.check_through_time(Keyword(), X)
    row = checked.rows[0]
    assert row.name == "linear (Linear)" and row.note.startswith("not checked: Linear.construct takes (x)")
    assert not row.checked and checked.worst < 1e-6
    assert str(checked).startswith("check_through_time: passed, except 1 that could not be checked\n")


# --- results and side effects -----------------------------------------------------------------------------------------


def test_result_is_table_of_comparisons():
    found = testing.check_through_time(Net(), X)
    assert [row.part for row in found.rows] == ["bprop"] * 3 + ["smooth"] * 7 + ["fused"] * 8
    text = str(found)
    assert text.splitlines()[0] == "check_through_time: passed"
    assert text.splitlines()[1].split() == ["part", "of", "worst", "relative", "difference", "step", "entry"]
    for part in ("lif2.cell.surrogate_function (ATan), input 0", "Parameter 'dense3.weight'", "equal to the bit"):
        assert part in text
    assert repr(found).startswith("<check_through_time: passed, 18 comparison(s), worst relative difference")


@pytest.mark.parametrize("second", [None, Off(0.01)], ids=["passes", "fails"])
def test_net_is_restored_bit_for_bit(second):
    net = Net(second=lif(second), middle=Linear(5)).set_train()
    before = net(X)
    compiled = net.lif1._loop, dict(net.lif1._loop.compiled)
    arrays = [(p, p._data, p._data.copy(), p._entry) for p in net.get_parameters()]
    attributes = {path: dict(vars(cell)) for path, cell in net.cells_and_names()}
    try:
        testing.check_through_time(net, X)
    except GradientCheckError:
        assert second is not None
    for parameter, array, values, entry in arrays:
        assert parameter._data is array and parameter._entry is entry
        np.testing.assert_array_equal(array, values)
    assert {path: dict(vars(cell)) for path, cell in net.cells_and_names()} == attributes
    np.testing.assert_array_equal(net(X).asnumpy(), before.asnumpy())
    assert (net.lif1._loop, net.lif1._loop.compiled) == compiled  # nothing was traced again


def test_function_without_cells_raises():
    with pytest.raises(ArgumentError, match="takes a Cell, or a function that calls Cells by their names"):
        testing.check_through_time(lambda x: x * 2.0, X)


class Step(nn.Cell):
    """A spike function without `bprop`."""

    def construct(self, x):
        return (x > 0.0).astype(x.dtype)


class Inline(nn.Cell):
    """A neuron with a comparison, and optionally a spike function."""

    def __init__(self, spike=None):
        super().__init__()
        self.spike = spike or (lambda x: (x > 0.0).astype(x.dtype))

    def construct(self, x, v):
        v = 0.5 * v + x
        s = self.spike(v - 0.5)
        return s, v - s


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("neuron", "where"),
    [(lambda: Inline(), r"layer lif2\.cell \(Inline\)"), (lambda: Inline(Step()), r"lif2\.cell\.spike \(Step\)")],
    ids=["inline", "Cell"],
)
def test_parameters_used_only_in_comparisons_are_named(neuron, where):
    net = Net(second=nn.MultiStep(neuron()))
    with pytest.raises(GradientCheckError, match=rf"'dense1\.weight'.* is exactly zero.*a comparison.*{where}.*bprop"):
        testing.check_through_time(net, X)
    for parameter in [*net.dense1.get_parameters(), *net.middle.get_parameters()]:
        parameter.requires_grad = False
    testing.check_through_time(net, X)
    with testing.unfused():
        testing.check_through_time(Net(second=nn.MultiStep(Inline(surrogate.ATan()))), X)


def test_zero_gradient_is_noted():
    rows = testing.check_through_time(nn.SequentialCell(nn.Dense(4, 3), lif(surrogate.Rect())), X * 0.0).rows
    assert {row.note for row in rows if row.part == "smooth"} == {"the gradient is zero"}


# --- unfused ----------------------------------------------------------------------------------------------------------


def test_unfused_runs_step_by_step_without_compiled_loops():
    net, seen = lif(), []

    def fn(x):
        seen.append(type(x._data))
        return ops.scan(lambda c, now: (c + now, c * now), ops.zeros((2, 4), x.dtype), net(x), reverse=True)[1]

    jitted = jit(fn)
    fused = jitted(X).asnumpy()
    gradient = grad(jitted)(X).asnumpy()
    loop = net._loop
    seen.clear()
    with testing.unfused():
        np.testing.assert_allclose(jitted(X).asnumpy(), fused, rtol=1e-6)
        np.testing.assert_allclose(grad(jitted)(X).asnumpy(), gradient, rtol=1e-4, atol=1e-6)
    assert seen == [np.ndarray, np.ndarray]
    assert net._loop is loop
    np.testing.assert_array_equal(jitted(X).asnumpy(), fused)
    assert len(seen) == 2


def test_wrong_kernel_is_named_before_custom_bprop(monkeypatch):
    class Bare(nn.Cell):
        """A spike function that finite differences have nothing to say about."""

        def construct(self, x):
            return (x > 0).astype(x.dtype)

        def bprop(self, x, out, dout):
            return (dout * ops.sigmoid(x),)

    def differs(problem, net):
        raise GradientCheckError("the fused kernels differ")

    monkeypatch.setattr(through_time, "check_kernels", differs)
    with pytest.raises(GradientCheckError, match="the fused kernels differ"):
        testing.check_through_time(Net(second=lif(Bare())), X)
