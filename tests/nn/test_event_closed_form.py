"""EventDense in closed form: against EventPropLIF, small Runge-Kutta steps, finite differences, and at limits."""

import math

import numpy as np
import pytest
from test_event_dense import INF, Deaf, call, double, layer_of, loss_of, times_of

import snncell
from snncell import Parameter, Tensor, nn
from snncell.errors import ArgumentError

EVERY = ("times", "states", "maximum")
CONSTANTS = ("tau_mem", "tau_syn", "v_threshold", "v_reset", "refractory_period")


@pytest.mark.parametrize("taus", [(20.0, 5.0), (6.0, 15.0), (10.0, 10.0)])
@pytest.mark.parametrize("recurrent", [False, True])
def test_lif_equals_event_prop(rng, taus, recurrent):
    own = {"recurrent_init": double(rng.normal(0.0, 0.5, (17, 17)))} if recurrent else {}
    own |= {"spikes": 4, "t_max": 60.0, "weight_init": double(rng.normal(2.0, 1.5, (17, 4))), "dtype": "float64"}
    layers = nn.EventPropLIF(4, 17, *taus, **own), nn.EventDense(nn.EventLIF(*taus), 4, 17, **own)
    times, results = times_of(rng), []
    for layer in layers:
        of_times, of_all = snncell.grad(lambda t: loss_of(layer, t), 0, layer.trainable_params())(times)  # noqa: B023
        results.append([x.asnumpy() for x in (layer(times), of_times, *of_all)])
    assert 0.3 < np.isfinite(results[0][0]).mean() < 1.0
    error = 1e-6 if recurrent else 1e-9  # a spike arrives at its layer after a relative delay of 1e-9
    for found, wanted in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=error, atol=error)


class Dip(nn.EventNeuron):
    """The condition begins above 0, falls, and rises again between two events."""

    def init_state(self, x):
        return x + 2.0, x + 1.5

    def dynamics(self, a, b):
        return -a / 5.0, -b / self.tau

    def spike_condition(self, a, b):
        return a - b + 0.1

    def input_spike(self, weight, a, b):
        return a + weight, b

    def reset(self, a, b):
        return a - b - 1.0, b

    def readout(self, a, b):
        return b - 0.5 * a


def lif(*constants, weights, **options):
    """A layer of LIF neurons that learns all of its constants."""
    neuron = nn.EventLIF(*map(double, constants), learnable=CONSTANTS)
    options = {"t_max": 40.0, "spikes": 3, "output": EVERY} | options
    return nn.EventDense(neuron, *weights.shape[::-1], weight_init=double(weights), dtype="float64", **options)


def draw(case):
    """A layer and its input times. Numbers are seeds of LIF neurons with random constants of their own."""
    rng = np.random.default_rng(case if isinstance(case, int) else 0)
    if case == "dip":
        dip = Dip({"tau": double(20.0)}, "tau")
        layer = nn.EventDense(dip, 1, 1, 90.0, None, 0.5, 3, dtype="float64", output=EVERY)
        return rng, layer, double([[80.0], [11.0]])
    if case == "deaf":
        return rng, layer_of("deaf", rng, step=None, output=("times", "states")), times_of(rng)
    ranges = (4.0, 25.0), (4.0, 25.0), (0.5, 1.5), (-1.0, 0.4), (0.1, 4.0)
    constants = [rng.uniform(*ends, 7) for ends in ranges]
    mem, syn = constants[:2]
    syn[0], syn[1], syn[2], mem[3], mem[4] = mem[0], mem[1] * (1.0 + 1e-7), 1e12, 1e12, 1e4
    return rng, lif(*constants, weights=rng.normal(3.0, 3.0, (7, 4)), max_delay=5.0), times_of(rng)


CASES = [0, 1, 2, "deaf", "dip"]


@pytest.mark.parametrize("case", CASES)
def test_results_equal_those_of_small_steps(case):
    _, layer, times = draw(case)
    exact = [x.asnumpy() for x in layer(times)]
    layer.step = 0.02
    errors = 1e-6, 1e-6, 1e-4  # between steps, a maximum can be higher
    for found, wanted, error in zip(exact, layer(times), errors[: len(exact)], strict=True):
        np.testing.assert_allclose(found, wanted.asnumpy(), rtol=error, atol=error)
    assert np.isfinite(exact[0]).mean() > 0.3


@pytest.mark.parametrize("case", CASES)
def test_gradients_equal_finite_differences(case):
    rng, layer, times = draw(case)
    parameters = layer.trainable_params()
    of_times, of_all = snncell.grad(lambda t: loss_of(layer, t), 0, parameters)(times)
    inputs = Parameter(times, name="times")
    for parameter, gradient in zip([inputs, *parameters], [of_times, *of_all], strict=True):
        kept, ends = parameter.asnumpy().copy(), []
        direction = np.where(np.isfinite(kept), rng.standard_normal(kept.shape), 0.0)
        for step in (1e-5, -1e-5):
            parameter.set_data(double(kept + step * direction))
            ends.append(loss_of(layer, inputs.value()).item())
        parameter.set_data(double(kept))
        found, wanted = (direction * gradient.asnumpy()).sum(), (ends[0] - ends[1]) / 2e-5
        assert found != 0.0
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=parameter.name)


@pytest.mark.parametrize("t_max", [1e39, 1e300])
def test_long_intervals_do_not_overflow(t_max):
    rng = np.random.default_rng(0)
    layer, times = lif(20.0, 5.0, 1.0, 0.1, 1.0, weights=rng.normal(3.0, 3.0, (7, 4))), times_of(rng)
    early, results = np.isfinite(layer(times)[0].asnumpy()), []
    for end in (t_max, 40.0):
        layer.t_max = end
        gradient = snncell.grad(lambda t: layer(t)[0].where(early, 0.0).sum(), 0, layer.trainable_params())
        of_times, of_all = gradient(times)
        results.append([of_times, *of_all])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-9, atol=1e-12)


def test_maximum_of_a_voltage_is_exact():
    layer, times = lif(20.0, 5.0, 9.0, 0.0, 1.0, weights=np.array([[3.0]])), double([[2.0]])
    of_weight = snncell.grad(lambda: layer(times)[2].sum(), None, [layer.weight])()[0].item()
    np.testing.assert_allclose(of_weight, 4.0 ** (-1.0 / 3.0) / 4.0, rtol=1e-14)  # the maximum of kappa
    np.testing.assert_allclose(layer(times)[2].item(), 3.0 * of_weight, rtol=1e-14)


def test_neuron_that_grows_without_limit():
    class Growing(Deaf):
        def dynamics(self, v):
            return v / self.tau

    layer = nn.EventDense(Growing(double(2.0), 1.0), 1, 2, 1e5, None, double([[0.5], [0.0]]), 1, dtype="float64")
    layer.neuron.init_state = lambda x: 0.0 * x
    np.testing.assert_allclose(layer(double([[1.0]])).asnumpy().ravel(), [1.0 + 2.0 * math.log(2.0), INF], rtol=1e-12)

    class Driven(nn.EventLI):
        def dynamics(self, v, i):
            return v / 2.0 + i - 1.0, -i / self.tau_syn

        def spike_condition(self, v, i):
            return v - 100.0

    layer, results = nn.EventDense(Driven(), 1, 1, 40.0, weight_init=double([[8.0]]), dtype="float64"), []
    for layer.t_max in (40.0, 1e3, 1e5):
        results.append((layer(double([[1.0]])).item(), snncell.grad(lambda t: layer(t).sum())(double([[1.0]])).item()))
    np.testing.assert_allclose(results, results[:1] * 3, rtol=1e-12)


class Chain(nn.EventLI):
    states = 3

    def dynamics(self, *states):
        v, i, _ = states
        return *super().dynamics(v, i), v


class Divided(nn.EventLI):
    def dynamics(self, v, i):
        return v / 0.0, i


ERRORS = {
    "nonlinear": (nn.EventQIF, {}, r"dynamics of EventQIF has no closed form, because mul is not.*Give .* a step"),
    "three exponentials": (nn.EventALIF, {}, "spike_condition of EventALIF .* depends on 3 states"),
    "division by 0": (Divided, {}, r"dynamics of Divided divides by 0 .*v / 0.0.*Give the divisor another value"),
    "a chain": (Chain, {}, "dynamics of Chain .* because state 0 drives state 2, and is driven itself"),
    "read-out": (lambda: Deaf(double(15.0), 0.7), {"output": "maximum"}, "readout of Deaf .* mul is not linear"),
    "no weights": (nn.EventLIF, {"weight_init": None}, "weight_init is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_equations_without_a_closed_form_need_a_step(case):
    make, options, text = ERRORS[case]
    with pytest.raises(ArgumentError, match=text):
        call(make(), **{"step": None} | options)


def test_choice_is_shown():
    layer = nn.EventDense(nn.EventLIF(), 2, 1, 50.0, weight_init=4.0)
    times, explained = Tensor([[0.0, 3.0]]), []
    for step in (None, 0.5):
        layer.step = step
        explained.append((repr(layer), str(snncell.explain(layer, times, detail="launches"))))
    assert "closed form" in explained[0][0] and "in closed form" in explained[0][1]
    assert "step=0.5" in explained[1][0] and "Runge-Kutta steps of 0.5" in explained[1][1]
