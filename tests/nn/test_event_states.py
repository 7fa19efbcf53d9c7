"""States, maxima and refractory periods of EventDense, against SciPy's `solve_ivp` and in edge cases."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_event_dense import INF, Jumping, double, layer_of, loss_of, times_of

import snncell
from snncell import grad, nn, ops
from snncell.errors import ArgumentError
from snncell.kernels.eventprop import solver, solver_adjoint

EVERY = ("times", "states", "maximum")


class Equations(NamedTuple):
    """A neuron as functions of its states y; `held` says whether it is in its refractory period."""

    slopes: object
    condition: object
    receive: object
    reset: object
    period: object = lambda n: 0.0
    readout: object = lambda y: y[0]


def leaky(y, held):
    return [0.0 if held else (y[1] - y[0]) / 20.0, -y[1] / 5.0]


DEAF = math.exp(-0.7) / 15.0
EQUATIONS = {
    "LIF": Equations(leaky, lambda y: y[0] - 1.0, lambda w, y, held: [y[0], y[1] + w], lambda y: [0.0, y[1]]),
    "refractory LIF": Equations(
        leaky, lambda y: y[0] - 1.0, lambda w, y, held: [y[0], y[1] + w], lambda y: [0.0, y[1]], lambda n: 3.3
    ),
    "refractory ALIF": Equations(
        lambda y, held: [*leaky(y, held), -y[2] / 40.0],
        lambda y: y[0] - 1.0 - y[2],
        lambda w, y, held: [y[0], y[1] + w, y[2]],
        lambda y: [0.0, y[1], y[2] + 0.5],
        lambda n: 1.3 + 0.55 * n,
    ),
    "deaf": Equations(
        lambda y, held: [0.55 * 0.7 if held else 0.1 - y[0] * DEAF],
        lambda y: y[0] - 1.0,
        lambda w, y, held: [y[0] + w * 0.7 * (0.3 if held else 1.0)],
        lambda y: [0.1 * y[0]],
        lambda n: 2.3,
        lambda y: 0.7 * y[0] ** 2,
    ),
    "LI": Equations(leaky, lambda y: -1.0, lambda w, y, held: [y[0], y[1] + w], None),
}


def solve(neuron, period, y, times, weights, end):
    """Spike times, states at the end, and the maximum of the read-out."""
    order = np.argsort(times)
    events = [(times[e], weights[e]) for e in order if times[e] < end]
    spikes, now, recovery, highest = [], 0.0, -INF, -INF
    while now < end:
        held, event = recovery > now, events[0][0] if events else INF
        stop = min(event, recovery if held else INF, end)

        def crossing(_time, y):
            return neuron.condition(y)

        crossing.terminal, crossing.direction = True, 1.0
        found = solve_ivp(
            lambda _time, y, held=held: neuron.slopes(y, held), (now, stop), y, events=None if held else crossing,
            rtol=1e-10, atol=1e-12, max_step=0.25,
        ) if stop > now else None  # fmt: skip
        if found is not None:
            y, now = found.y[:, -1], found.t[-1]
            highest = max(highest, max(neuron.readout(y) for y in found.y.T))
        spiked = found is not None and found.status == 1
        if not spiked:
            now = stop
            if stop == recovery:
                spiked = neuron.condition(y) >= 0.0
            elif stop == event:
                before = neuron.condition(y)
                y = neuron.receive(events.pop(0)[1], y, held)
                spiked = not held and before < 0.0 <= neuron.condition(y)
        if spiked and now < end:
            spikes.append(now)
            y, recovery = neuron.reset(y), now + period
        highest = max(highest, neuron.readout(y))
    return spikes, y, highest


@pytest.mark.parametrize("kind", EQUATIONS)
def test_times_states_and_maxima_equal_those_of_scipy(rng, kind):
    layer, times = layer_of(kind, rng, 5, 4, 3.0, step=0.1, t_max=40.0, output=EVERY), times_of(rng, 2)
    results = [x.asnumpy() for x in layer(times)]
    start = [0.07] if kind == "deaf" else [0.0] * (3 if "ALIF" in kind else 2)
    for sample, n in np.ndindex(2, 5):
        arrivals = times.asnumpy()[sample] + layer.delay.asnumpy()[n][:, None]
        weights = np.repeat(layer.weight.asnumpy()[n], 2)
        neuron = EQUATIONS[kind]
        spikes, y, highest = solve(neuron, neuron.period(n), start, arrivals.ravel(), weights, 40.0)
        found, states, maximum = (x[sample, n] for x in results)
        np.testing.assert_allclose(found, [*spikes, *[INF] * 4][:4], rtol=1e-6)
        np.testing.assert_allclose(states, y, atol=1e-6)
        np.testing.assert_allclose(maximum, highest, rtol=1e-3)


# --- refractory periods -----------------------------------------------------------------------------------------------


def test_zero_period_equals_none_and_has_a_gradient(rng):
    layer, times = layer_of("LIF", rng, 5, 3, output=EVERY), times_of(rng)
    without = [x.asnumpy() for x in layer(times)]
    layer.neuron.refractory_period = snncell.Parameter(double(0.0), name="period")
    for one, other in zip(layer(times), without, strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other)
    period = layer.neuron.refractory_period
    found = grad(lambda: loss_of(layer, times), None, [period])()[0].item()
    ends = []
    for value in (0.0, 1e-6):
        period.set_data(double(value))
        ends.append(loss_of(layer, times).item())
    np.testing.assert_allclose(found, (ends[1] - ends[0]) / 1e-6, rtol=1e-4)
    assert found != 0.0


def test_potential_stays_and_current_goes_on_in_a_period_beyond_the_end():
    neuron = nn.EventLIF(double(20.0), double(5.0), v_reset=0.25, refractory_period=1e6)
    layer = nn.EventDense(
        neuron, 2, 1, t_max=9.0, step=1.0, spikes=3, weight_init=double([[9.0, 1.0]]), dtype="float64",
        output=("times", "states"),
    )  # fmt: skip
    times, states = (x.asnumpy()[0, 0] for x in layer(double([[1.0, 6.0]])))
    assert 1.0 < times[0] < 6.0
    np.testing.assert_array_equal(times[1:], INF)
    np.testing.assert_allclose(states, [0.25, 9.0 * math.exp(-8.0 / 5.0) + math.exp(-3.0 / 5.0)], rtol=1e-4)
    layer.neuron.refractory_period = 6.0  # a number, which needs no new layer
    assert layer(double([[1.0, 6.0]]))[1].asnumpy()[0, 0, 0] == 0.25


def test_period_must_not_be_negative():
    with pytest.raises(ArgumentError, match="refractory_period is not negative"):
        nn.EventLIF(refractory_period=-1.0)
    with pytest.raises(ArgumentError, match="refractory_period is not negative"):
        Jumping(double(15.0), 0.7).having(refractory_period=-1.0)


# --- the end of the simulation ----------------------------------------------------------------------------------------


def test_spike_at_the_end_does_not_reset(rng):
    layer, times = layer_of("LIF", rng, 1, 1, output=EVERY), times_of(rng, 1)
    spike = layer(times)[0].item()
    for end, wanted in ((spike, [1.0, 1.0]), (spike * (1.0 + 1e-9), [0.0, 1.0])):
        layer.t_max = end
        found, states, maximum = (x.asnumpy().ravel() for x in layer(times))
        assert (found == INF) == (end == spike)
        np.testing.assert_allclose([states[0], maximum[0]], wanted, atol=1e-6)


def test_states_do_not_depend_on_the_number_of_recorded_spikes(rng):
    """With one recorded spike, the log of the backward pass is too short at first."""
    results, times = [], times_of(rng, 1)
    for output, spikes in (("states", 1), (("times", "states"), 90)):
        layer = layer_of("LIF", np.random.default_rng(0), 5, spikes, scale=90.0, output=output)

        def states(times, layer=layer, output=output):
            return layer(times) if output == "states" else layer(times)[1]

        weights = double(np.cos(np.arange(10.0)).reshape(1, 5, 2))
        gradient = grad(lambda times, states=states: (states(times) * weights).sum(), 0)  # noqa: B023
        results.append([states(times).asnumpy(), gradient(times).asnumpy()])
    assert np.isfinite(layer(times)[0].asnumpy()).sum(2).min() > 60
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_states_that_become_nan_give_nan():
    class Rooted(Jumping):
        def dynamics(self, v):
            return ops.sqrt(0.8 - v)

    layer = nn.EventDense(Rooted(9.0, 1.0), 1, 2, 9.0, 1.0, 1.0, dtype="float64", output=("states", "maximum"))
    for found in layer(double([[INF]])):
        assert np.isnan(found.asnumpy()).all()


def test_a_neuron_that_spikes_without_end_raises(monkeypatch):
    for module in (solver, solver_adjoint):
        monkeypatch.setattr(module, "MOST_STEPS", 500)
    monkeypatch.setattr(solver_adjoint, "kernel_with", solver_adjoint.kernel_with.__wrapped__)
    layer = nn.EventDense(nn.EventLIF(v_reset=1.0 - 1e-9), 1, 1, 9.0, 1.0, 9.0, output="states")
    with pytest.raises(ArgumentError, match=r"more than 500 steps.*After `reset`"):
        layer(double([[0.0]]))


def test_output_must_name_results():
    layer = layer_of("LIF", np.random.default_rng(0), 2, 3)
    for value, text in {
        "voltage": 'output is "times", "states" or "maximum"',
        (): "each once",
        ("states", "states"): "each once",
        "states": r"spikes=3 .* output=\('times', 'states'\)",
    }.items():
        with pytest.raises(ArgumentError, match=text):
            layer.output = value
    assert layer.output == "times"
