"""EventDense: any event-driven neuron against closed forms, finite differences and a plain simulation."""

import math

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops
from snncell.errors import ArgumentError, CallError, DTypeError, GradientError, ShapeError, SnncellError
from snncell.kernels.eventprop import solver_adjoint

INF = math.inf


class Jumping(nn.EventNeuron):
    """A neuron of the user's own: input spikes move the potential at once, and a learned factor scales its leak."""

    states = 1

    def __init__(self, tau, gain, scale=1.0):
        super().__init__({"tau": tau, "scale": double(scale)})
        self.gain = Parameter(Tensor(gain, "float64"), name="gain")

    def init_state(self, x):
        return x + 0.1 * self.gain

    def dynamics(self, v):
        return (1.5 - v * ops.exp(-self.gain)) / self.tau

    def spike_condition(self, v):
        return (v - 1.0) * self.scale

    def input_spike(self, weight, v):
        return v + weight * self.gain

    def reset(self, v):
        return 0.1 * v


class Exponential(nn.EventNeuron):
    """Exponential integrate and fire: within most steps that end above the threshold, v overflows to NaN."""

    def dynamics(self, v, i):
        return (2.0 * ops.exp(2.0 * (v - 1.0)) - v + i) / self.tau, -0.2 * i

    def spike_condition(self, v, i):
        return v - 10.0

    def input_spike(self, weight, v, i):
        return v, i + weight

    def reset(self, v, i):
        return 0.0, i

    def readout(self, v, i):
        return i - v


class Deaf(Jumping):
    """A neuron that charges and hears only a part of its inputs in its refractory period, and often spikes after it."""

    def refractory_dynamics(self, v):
        return 0.55 * self.gain

    def refractory_input_spike(self, weight, v):
        return v + weight * 0.3 * self.gain

    def readout(self, v):
        return v * v * self.gain


def double(value):
    return Tensor(np.asarray(value), "float64")


ALL = ("tau_mem", "tau_syn")
NEURONS = {
    "LIF": lambda: nn.EventLIF(double(20.0), double(5.0), double(1.0), learnable=(*ALL, "v_threshold")),
    "LIF, reset above 0": lambda: nn.EventLIF(double(9.0), double(12.0), v_reset=double(0.3), learnable="v_reset"),
    "ALIF": lambda: nn.EventALIF(double(20.0), double(5.0), double(40.0), double(0.4), learnable=("tau_adapt", "beta")),
    "QIF": lambda: nn.EventQIF(double(8.0), double(5.0), double(1.0), v_peak=double(4.0), learnable=("v_c", "v_peak")),
    "constants per neuron": lambda: nn.EventLIF(double(np.linspace(10.0, 25.0, 5)), learnable="tau_mem"),
    "exponential": lambda: Exponential({"tau": double(20.0)}, "tau"),
    "LI": lambda: nn.EventLI(double(20.0), double(5.0), learnable=ALL),
    "refractory LIF": lambda: nn.EventLIF(
        double(20.0), double(5.0), refractory_period=double(3.3), learnable=("tau_syn", "refractory_period")
    ),
    "refractory ALIF": lambda: nn.EventALIF(
        tau_adapt=double(40.0),
        refractory_period=double(np.linspace(1.3, 3.5, 5)),
        learnable=("tau_adapt", "refractory_period"),
    ),
    "refractory QIF": lambda: nn.EventQIF(
        double(8.0), double(5.0), v_peak=4.0, refractory_period=1.7, learnable="tau_syn"
    ),
    "deaf": lambda: Deaf(double(15.0), 0.7).having(refractory_period=Parameter(double(2.3), name="period")),
    "jumping": lambda: Jumping(double(15.0), 0.7),
}


def layer_of(kind, rng, neurons=5, spikes=2, max_delay=None, scale=1.0, **options):
    """A layer of 4 inputs in float64, whose neurons mostly spike."""
    means = {"jumping": 0.15, "deaf": 0.15, "QIF": 3.0, "exponential": 5.0}
    mean = next((mean for name, mean in means.items() if name in kind), 5.0 if "refractory" in kind else 2.5)
    weights = double(scale * rng.normal(mean, 0.5 * mean, (neurons, 4)))
    options = {"t_max": 60.0, "step": 1.0} | options
    layer = nn.EventDense(
        NEURONS[kind](), 4, neurons, spikes=spikes, max_delay=max_delay, weight_init=weights, dtype="float64", **options
    )
    if max_delay:
        layer.delay.set_data(double(rng.uniform(0.1, 0.9, (neurons, 4)) * max_delay))
    return layer


def times_of(rng, batch=3, each=2):
    times = rng.uniform(0.0, 30.0, (batch, 4, each))
    times[rng.uniform(size=times.shape) < 0.15] = INF
    return double(times)


def loss_of(layer, times):
    """A loss of all outputs. Missing spikes add a constant."""
    found, loss = layer(times), 0.0
    for place, one in enumerate(found if isinstance(found, tuple) else [found]):
        weights = double(np.sin(np.arange(one.size) + 1.0 + place).reshape(one.shape))
        loss = loss + (ops.where(one < INF, one, 0.0) * weights).sum()
    return loss


def test_every_event_driven_neuron_is_in_the_table():
    public = {kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.EventNeuron)}
    assert public - {nn.EventNeuron} == {type(make()) for make in NEURONS.values()} - {Jumping, Exponential, Deaf}


# --- forward ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spikes", [1, 4])
@pytest.mark.parametrize("neurons", [3, 17])
def test_lif_equals_closed_form(rng, run, spikes, neurons):
    layer = layer_of("LIF", rng, neurons, spikes, step=0.2)
    exact = nn.EventPropLIF(4, neurons, spikes=spikes, t_max=60.0, weight_init=layer.weight.value(), dtype="float64")
    times = times_of(rng)
    found, wanted = run(layer)(times).asnumpy(), exact(times).asnumpy()
    assert 0.3 < np.isfinite(wanted).mean() < 1.0 or spikes == 1
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    of_found = run(grad(lambda times: loss_of(layer, times)))(times).asnumpy()
    of_wanted = grad(lambda times: loss_of(exact, times))(times).asnumpy()
    np.testing.assert_allclose(of_found, of_wanted, atol=1e-4 * abs(of_wanted).max())


def test_error_is_of_fourth_order_in_the_step(rng):
    layer, times = layer_of("QIF", rng, spikes=1), times_of(rng)
    found = {}
    for step in (1.0, 0.5, 0.02):
        layer.step = step
        found[step] = layer(times).asnumpy()
    there = np.isfinite(found[0.02])
    assert there.sum() > 5
    coarse, fine = (abs(found[step] - found[0.02])[there].max() for step in (1.0, 0.5))
    assert 8.0 < coarse / fine < 40.0


@pytest.mark.compiled  # 12,000 steps of 300 neurons take a minute without the compiler
@pytest.mark.parametrize("step", [2.0, 0.5, 0.02])
def test_no_spike_of_a_neuron_that_overflows_after_it_is_missed(rng, step):
    layer, times = layer_of("exponential", rng, 33, 1, step=step), double(rng.uniform(0.0, 20.0, (9, 4)))
    found = layer(times).asnumpy()
    layer.step = 0.005
    np.testing.assert_allclose(found, layer(times).asnumpy(), atol=step)
    assert np.isfinite(found).all()


def test_init_state_can_be_a_number_and_states_that_become_nan_without_a_spike_give_nan():
    class Rooted(Jumping):
        def init_state(self, x):
            return 0.6

        def dynamics(self, v):
            return ops.sqrt(0.8 - v)

    # The first input spike crosses the threshold only from this initial state.
    layer = nn.EventDense(Rooted(9.0, 1.0), 1, 2, t_max=9.0, step=1.0, spikes=2, weight_init=0.5, dtype="float64")
    np.testing.assert_array_equal(
        layer(double([[INF], [0.0]])).asnumpy(), [[[math.nan, INF]] * 2, [[0.0, math.nan]] * 2]
    )


AFTER = {"spike": 0.0}


class Reset(nn.EventLIF):
    def reset(self, v, i):
        return AFTER["spike"], i


def test_jit_traces_again_if_a_global_that_the_equations_read_changes(monkeypatch):
    layer = nn.EventDense(Reset(), 1, 2, t_max=60.0, step=1.0, spikes=3, weight_init=20.0)
    compiled, times, found = jit(layer), Tensor([[1.0]]), []
    for value in (0.0, 0.5):
        monkeypatch.setitem(AFTER, "spike", value)
        found.append(compiled(times).asnumpy())
        np.testing.assert_array_equal(found[-1], layer(times).asnumpy())
    assert (found[1][..., 1] < found[0][..., 1]).all()


def test_end_beyond_the_largest_float32():
    found = nn.EventDense(nn.EventLIF(), 1, 2, t_max=1e39, step=1e38, weight_init=1.0)(Tensor([[1.0]])).asnumpy()
    assert found.shape == (1, 2, 1)


@pytest.mark.parametrize(("kind", "step"), [("ALIF", 1.0), ("LIF", None)])
def test_neurons_of_a_layer_do_not_affect_each_other(rng, kind, step):
    layer, times = layer_of(kind, rng, 19, 3, step=step), times_of(rng)
    found = layer(times).asnumpy()
    few = nn.EventDense(
        layer.neuron, 4, 2, t_max=60.0, step=step, spikes=3, weight_init=layer.weight[17:], dtype="float64"
    )
    np.testing.assert_array_equal(few(times[1:]).asnumpy(), found[1:, 17:])


def test_input_spike_that_crosses_the_threshold_causes_a_spike_at_its_time():
    neuron = Jumping(double(15.0), 1.0)
    layer = nn.EventDense(neuron, 2, 1, t_max=9.0, step=1.0, weight_init=double([[2.0, 0.0]]), dtype="float64")
    times = double([[7.25, 3.0], [INF, 3.0]])
    np.testing.assert_array_equal(layer(times).asnumpy()[:, 0, 0], [7.25, INF])
    of_times, (of_weight, *_) = snncell.grad(lambda t: layer(t)[0].sum(), 0, layer.trainable_params())(times)
    np.testing.assert_array_equal(of_times.asnumpy(), [[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_array_equal(of_weight.asnumpy(), 0.0)


def test_delay_equals_later_inputs(rng):
    layer = layer_of("LIF", rng, 5, 3, max_delay=4.0)
    layer.delay.set_data(double(np.full((5, 4), 2.5)))
    plain = nn.EventDense(
        layer.neuron, 4, 5, t_max=60.0, step=1.0, spikes=3, weight_init=layer.weight.value(), dtype="float64"
    )
    times = times_of(rng)
    np.testing.assert_array_equal(layer(times).asnumpy(), plain(times + 2.5).asnumpy())


def test_spikes_after_t_max_and_inputs_after_it_are_ignored(rng):
    layer, times = layer_of("LIF", rng, 8, 3), times_of(rng)
    found = layer(times).asnumpy()
    layer.t_max = 17.0
    early = layer(times).asnumpy()
    np.testing.assert_allclose(early, np.where(found < 17.0, found, INF), rtol=1e-4)
    assert (early < INF).any() and (found[early == INF] < INF).any()
    np.testing.assert_array_equal(layer(ops.where(times < 17.0, times, INF)).asnumpy(), early)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("max_delay", [None, 3.0], ids=["", "delays"])
@pytest.mark.parametrize(
    "output", ["times", "maximum", ("states", "times", "maximum")], ids=["times", "maximum", "all"]
)
@pytest.mark.parametrize("kind", NEURONS)
def test_gradients_equal_finite_differences(rng, kind, output, max_delay):
    # The maximum of a neuron that spikes is its threshold, so weights are small here.
    spikes, scale = (1, 0.1) if output == "maximum" else (3, 1.0)
    layer, times = layer_of(kind, rng, 5, spikes, max_delay, scale, output=output), times_of(rng)
    parameters = layer.trainable_params()
    of_times, of_all = jit(snncell.grad(lambda times: loss_of(layer, times), 0, parameters))(times)
    assert output != "times" or kind == "LI" or np.isfinite(layer(times).asnumpy()).sum() > 8

    def difference(change, direction, step=1e-5):
        ends = []
        for sign in (1.0, -1.0):
            change(sign * step * direction)
            ends.append(loss_of(layer, values["times"]).item())
        change(0.0 * direction)
        return (ends[0] - ends[1]) / (2 * step)

    values = {"times": times}
    directions = rng.standard_normal(times.shape)
    found = np.where(np.isfinite(times.asnumpy()), directions * of_times.asnumpy(), 0.0).sum()
    wanted = difference(lambda d: values.update(times=times + double(d)), directions)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    for parameter, gradient in zip(parameters, of_all, strict=True):
        kept, direction = parameter.asnumpy().copy(), rng.standard_normal(parameter.shape)
        wanted = difference(lambda d, p=parameter, k=kept: p.set_data(double(k + d)), direction)
        assert wanted != 0.0 or output == "maximum" or kind == "LI", parameter.name
        found = (direction * gradient.asnumpy()).sum()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-9, err_msg=parameter.name)


def test_gradient_of_a_constant_that_is_computed_outside(rng):
    times, weights = times_of(rng), double(rng.normal(0.15, 0.07, (5, 4)))

    def loss(tau):
        neuron = Jumping(tau * 1.5, 0.7)
        layer = nn.EventDense(neuron, 4, 5, spikes=3, t_max=60.0, step=1.0, weight_init=weights, dtype="float64")
        return loss_of(layer, times)

    found = grad(loss)(double(10.0)).item()
    np.testing.assert_allclose(found, (loss(double(10.001)) - loss(double(9.999))).item() / 0.002, rtol=1e-5)


def test_gradients_of_a_deep_net_equal_finite_differences(rng):
    first, last = layer_of("QIF", rng, 4), layer_of("LIF", rng, 3, 1, max_delay=2.0)
    times, weight = times_of(rng), first.weight.asnumpy().copy()
    gradient = snncell.grad(lambda: loss_of(nn.SequentialCell(first, last), times), None, [first.weight])()[0].asnumpy()
    direction, ends = rng.standard_normal(weight.shape), []
    for step in (1e-6, -1e-6):
        first.weight.set_data(double(weight + step * direction))
        ends.append(loss_of(nn.SequentialCell(first, last), times).item())
    assert abs(gradient).max() > 0.0
    np.testing.assert_allclose((gradient * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4)


def test_gradient_does_not_depend_on_the_scale_of_the_condition(rng):
    times, weights, found = times_of(rng), double(rng.normal(0.15, 0.07, (5, 4))), []
    for scale in (1.0, 2.0**-600):
        neuron = Jumping(double(15.0), 0.7, scale)
        layer = nn.EventDense(neuron, 4, 5, spikes=3, t_max=60.0, step=1.0, weight_init=weights, dtype="float64")
        found.append(grad(lambda times, layer=layer: loss_of(layer, times))(times).asnumpy())
    np.testing.assert_array_equal(*found)
    assert found[0].any()


@pytest.mark.compiled
@pytest.mark.parametrize(("batch", "kind", "step"), [(3, "ALIF", 0.5), (70, "ALIF", 0.5), (70, "LIF", None)])
def test_results_do_not_depend_on_the_number_of_threads(rng, monkeypatch, batch, kind, step):
    layer, times = layer_of(kind, rng, 40, 3, max_delay=3.0, step=step), times_of(rng, batch)
    results = []
    for threads in (False, True):
        monkeypatch.setattr(solver_adjoint, "PARALLEL_SIZE", 1 if threads else 1 << 60)
        of_times, of_all = snncell.grad(lambda times: loss_of(layer, times), 0, layer.trainable_params())(times)
        results.append([x.asnumpy() for x in (layer(times), of_times, *of_all)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_second_call_collects_no_source(rng, monkeypatch):
    layer, times = layer_of("LIF", rng), times_of(rng)
    gradient = jit(grad(lambda times: loss_of(layer, times)))
    first = gradient(times).asnumpy()
    monkeypatch.setattr(solver_adjoint, "source_of", None)
    np.testing.assert_array_equal(gradient(times).asnumpy(), first)


# --- errors -----------------------------------------------------------------------------------------------------------


class Mixing(nn.EventLIF):
    def dynamics(self, v, i):
        return v - v.sum(), i


class Short(nn.EventLIF):
    def reset(self, v, i):
        return 0.0


class Boolean(nn.EventLIF):
    def spike_condition(self, v, i):
        return v > self.v_threshold


class Alone(nn.EventNeuron):
    def dynamics(self, v):
        return -v


class Forgetful(nn.EventLIF):
    def reset(self, v, i):
        v, i = 0.0, None
        return v, i


ERRORS = {
    "a condition without a value": (lambda: call(Boolean()), ArgumentError, "spike_condition of Boolean.* not bool"),
    "no value": (lambda: call(Forgetful()), ArgumentError, "reset of Forgetful must return numbers, not NoneType"),
    "states": (
        lambda: call(Alone({})),
        ArgumentError,
        r"Alone must take 2 argument\(s\), because .* states is 2\. Set",
    ),
    "too many steps": (lambda: call(nn.EventLIF(), step=1e-9), ArgumentError, "t_max=9.0 has more than .* step=1e-09"),
    "a neuron of time steps": (
        lambda: call(nn.LIFNode()),
        ArgumentError,
        r"an EventNeuron such as nn\.EventLIF\(\), not a LIFNode",
    ),
    "no end": (lambda: call(nn.EventLIF(), t_max=INF), ArgumentError, "t_max"),
    "no delay": (lambda: call(nn.EventLIF(), max_delay=0.0), ArgumentError, "max_delay"),
    "equations that mix neurons": (lambda: call(Mixing()), ArgumentError, "Mixing uses sum.*elementwise"),
    "a state too few": (lambda: call(Short()), ArgumentError, r"reset of Short must return 2 value\(s\), not 1"),
    "undefined": (lambda: call(nn.EventNeuron({})), SnncellError, "must define dynamics"),
    "a called neuron": (lambda: nn.EventLIF()(ops.ones(3)), CallError, r"EventLIF: .* nn.EventDense\(EventLIF\(\)"),
    "negative times": (lambda: call(nn.EventLIF(), -1.0), ArgumentError, "at least 0"),
    "NaN": (lambda: call(nn.EventLIF(), math.nan), ArgumentError, "NaN"),
    "shape": (lambda: call(nn.EventLIF(), shape=(2, 3)), ShapeError, r"\(B, 4\)"),
    "dtype": (lambda: call(nn.EventLIF(), dtype="float16"), DTypeError, "float32 or float64"),
}


def call(neuron, time=1.0, shape=(2, 4), **options):
    options = {"t_max": 9.0, "step": 1.0, "weight_init": 1.0} | options
    return nn.EventDense(neuron, 4, 2, **options)(ops.full(shape, time, "float32"))


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_fix(case):
    make, kind, text = ERRORS[case]
    with pytest.raises(kind, match=text):
        make()


def test_delays_stay_in_range_and_keep_their_gradient():
    layer, times = nn.EventDense(nn.EventLIF(), 2, 1, 50.0, 0.5, 4.0, max_delay=2.0), Tensor([[0.0, 3.0]])

    def slopes():
        return ops.value_and_grad(lambda: layer(times).sum(), None, [layer.delay])()[1][0].asnumpy()

    layer.delay.set_data(Tensor([[-1.0, 9.0]]))
    assert layer.delay.tolist() == [[0.0, 2.0]] and (slopes() > 0.1).all()
    layer.max_delay = 1.0
    assert layer.delay.tolist() == [[0.0, 1.0]] and (slopes() > 0.1).all()


def test_sizes_and_use_of_delays_cannot_change():
    layer = nn.EventDense(nn.EventLIF(), 2, 1, 50.0, 0.5, 4.0, max_delay=2.0)
    for name, value in {"in_channels": 3, "out_channels": 2, "max_delay": None}.items():
        before = getattr(layer, name)
        with pytest.raises(ArgumentError, match=f"{name} .*a new EventDense"):
            setattr(layer, name, value)
        assert getattr(layer, name) == before
    layer.max_delay = 3.0
    with pytest.raises(ArgumentError, match=r"max_delay cannot become 3\.0, because the layer was created without"):
        nn.EventDense(nn.EventLIF(), 2, 1, 50.0, 0.5, 4.0).max_delay = 3.0


def test_second_order_gradient_raises(rng):
    layer, times = layer_of("LIF", rng), times_of(rng)
    with pytest.raises(GradientError, match=r"no jvp and jacfwd\. Use vjp or jacrev"):
        snncell.jvp(layer, (times,), (times,))
    with pytest.raises(GradientError, match="no second-order gradients"):
        grad(lambda t: grad(lambda t: loss_of(layer, t))(t).sum())(times)
