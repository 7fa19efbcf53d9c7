"""Recurrent layers of event-driven neurons, against a simulation with one queue of events and finite differences."""

import heapq
import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq

import snncell
from snncell import Tensor, jit, nn, ops
from snncell.errors import GradientError

INF = math.inf
T_MAX = 60.0


def double(value):
    return Tensor(np.asarray(value), "float64")


def simulate(times, weights, recurrent, spikes, delays=None, recurrent_delays=None, tau_mem=20.0, tau_syn=5.0):
    """The spikes (N, K), last states (N, 2) and maxima (N,) of LIF neurons for one sample (N_in, K_in).

    There is one queue of arrivals at single neurons.
    """
    neurons, queue, found = len(weights), [], [[] for _ in weights]
    v, i, now, highest = np.zeros(neurons), np.zeros(neurons), 0.0, np.zeros(neurons)

    def send(time, to_all, after):
        for n in range(neurons):
            arrival = time + (0.0 if after is None else after[n])
            if arrival < T_MAX:
                heapq.heappush(queue, (arrival, n, to_all[n]))

    def potential(s, n):
        rise = np.exp(-s / tau_mem) - np.exp(-s / tau_syn)
        return v[n] * np.exp(-s / tau_mem) + i[n] * tau_syn / (tau_mem - tau_syn) * rise

    for source, row in enumerate(times):
        for time in row:
            send(time, weights[:, source], None if delays is None else delays[:, source])
    while True:
        until = queue[0][0] if queue else T_MAX
        first, which = until - now, None
        grid = np.linspace(0.0, until - now, 400)
        for n in range(neurons):
            over = np.flatnonzero(potential(grid[1:], n) >= 1.0)
            if len(found[n]) < spikes and len(over):
                crossing = brentq(lambda s, n=n: potential(s, n) - 1.0, grid[over[0]], grid[over[0] + 1], xtol=1e-14)
                if crossing < first:
                    first, which = crossing, n
        within = np.linspace(0.0, first, 400)
        highest = np.maximum(highest, [potential(within, n).max() for n in range(neurons)])
        decay = np.exp(-first / tau_syn)
        v, i, now = np.array([potential(first, n) for n in range(neurons)]), i * decay, now + first
        if which is not None:
            v[which] = 0.0
            found[which].append(now)
            send(now, recurrent[:, which], None if recurrent_delays is None else recurrent_delays[:, which])
        elif queue:
            _, n, weight = heapq.heappop(queue)
            i[n] += weight
        else:
            return [row + [INF] * (spikes - len(row)) for row in found], np.stack([v, i], 1), highest


def closed(weights, recurrent, spikes, delayed, dtype="float64"):
    assert not delayed
    return nn.EventPropLIF(
        4, len(weights), spikes=spikes, t_max=T_MAX, weight_init=Tensor(weights, dtype), dtype=dtype,
        recurrent_init=Tensor(recurrent, dtype),
    )  # fmt: skip


def solved(weights, recurrent, spikes, delayed, dtype="float64", neuron=None, step=0.25, output="times"):
    return nn.EventDense(
        neuron or nn.EventLIF(double(20.0), double(5.0), double(1.0), learnable=("tau_mem", "tau_syn", "v_threshold")),
        4, len(weights), t_max=T_MAX, step=step, spikes=spikes, max_delay=6.0 if delayed else None,
        weight_init=Tensor(weights, dtype), recurrent_init=Tensor(recurrent, dtype), dtype=dtype, output=output,
    )  # fmt: skip


EVERY = ("times", "states", "maximum")
KINDS = {
    "closed form": (closed, False),
    "solver": (solved, False),
    "solver with delays": (solved, True),
    "exact with delays": (partial(solved, step=None), True),
}


def draw(rng, kind, spikes=None, neurons=None, **options):
    """A layer with random weights of both signs, and its input times, some of them missing."""
    make, delayed = KINDS[kind.removesuffix(" of states")]
    options |= {"step": 1.0, "output": EVERY} if kind.endswith("of states") else {}
    neurons = neurons or int(rng.integers(1, 7))
    weights, recurrent = rng.normal(2.0, 1.0, (neurons, 4)), rng.normal(0.0, 1.0, (neurons, neurons))
    layer = make(weights, recurrent, spikes or int(rng.integers(1, 9)), delayed, **options)
    times = rng.uniform(0.0, 30.0, (3, 4, 2))
    times[rng.uniform(size=times.shape) < 0.2] = INF
    return layer, times.astype(layer.weight.dtype.dtype)


def loss_of(layer, times):
    found, loss = layer(times), 0.0
    for one in found if isinstance(found, tuple) else (found,):
        weights = Tensor(np.sin(np.arange(math.prod(one.shape)) + 1.0).reshape(one.shape), one.dtype)
        loss = loss + (ops.where(one < INF, one, 0.0) * weights).sum()
    return loss


# --- spike times ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_spikes_equal_a_simulation_with_one_queue(run, kind, seed):
    layer, times = draw(np.random.default_rng(seed), kind)
    values = {name: getattr(layer, name, None) for name in ("delay", "recurrent_delay")}
    delays = [None if x is None else x.asnumpy() for x in values.values()]
    weights = layer.weight.asnumpy(), layer.recurrent_weight.asnumpy(), layer.spikes
    wanted = np.array([simulate(sample, *weights, *delays)[0] for sample in times])
    found = run(layer)(Tensor(times)).asnumpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    layer.recurrent_weight.set_data(0.0 * layer.recurrent_weight)
    assert np.isfinite(wanted).sum() > 5 and (layer(Tensor(times)).asnumpy() < found - 0.01).any()


@pytest.mark.parametrize("kind", ["solver", "solver with delays"])
def test_states_and_maxima_equal_a_simulation_with_one_queue(kind, rng):
    layer, times = draw(rng, kind, 30, 4, step=0.1, output=EVERY)
    delays = [None if x is None else x.asnumpy() for x in (layer.delay, layer.recurrent_delay)]
    weights = layer.weight.asnumpy() * [[1.0], [0.2], [1.0], [0.2]], layer.recurrent_weight.asnumpy(), layer.spikes
    layer.weight.set_data(double(weights[0]))
    found = [x.asnumpy() for x in layer(Tensor(times))]
    wanted = zip(*(simulate(sample, *weights, *delays) for sample in times), strict=True)
    for one, other, error in zip(found, wanted, (1e-5, 1e-5, 2e-3), strict=True):
        np.testing.assert_allclose(one, np.array(other), atol=error)
    assert np.isfinite(found[0]).any(2).mean() < 1.0 and (found[2] < 0.99).any()


@pytest.mark.parametrize("output", ["states", "maximum"])
def test_later_spikes_reset_a_neuron_but_are_not_sent(rng, output):
    """Without connections, a layer equals one that is not recurrent, also if it finds one of several spikes."""
    layer, times = draw(rng, "solver", 1, 5, step=0.1, output=output)
    plain = nn.EventDense(
        layer.neuron, 4, 5, t_max=T_MAX, step=0.1, weight_init=layer.weight.value(), dtype="float64", output=output
    )
    layer.recurrent_weight.set_data(0.0 * layer.recurrent_weight)
    results = []
    for one in (layer, plain):
        gradient = snncell.grad(lambda t, one=one: loss_of(one, t))(Tensor(times))
        results.append((one(Tensor(times)).asnumpy(), gradient.asnumpy()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 if output == "states" else 1e-3)  # at the ends of other steps
    assert output == "maximum" or results[0][1].any()


@pytest.mark.parametrize(("kind", "dtype"), [("closed form", "float32"), *((kind, "float64") for kind in KINDS)])
def test_results_do_not_depend_on_the_batch(rng, kind, dtype):
    layer, times = draw(rng, kind, 5, 20, dtype=dtype)

    def results(times):
        return [layer(Tensor(times)).asnumpy(), snncell.grad(lambda t: loss_of_each(layer, t))(Tensor(times)).asnumpy()]

    def loss_of_each(layer, times):
        found = layer(times)
        return (ops.where(found < INF, found, 0.0) * ops.arange(found.size // found.shape[0]).reshape((20, 5))).sum()

    for all_samples, one in zip(results(times), results(times[1:2]), strict=True):
        np.testing.assert_array_equal(all_samples[1:2], one)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("strength", [-50.0, 50.0])
@pytest.mark.parametrize("kind", ["closed form", "solver"])
def test_spikes_at_the_same_time_do_not_prevent_each_other(kind, strength, dtype):
    weights, times = np.full((3, 4), 2.0), Tensor(np.array([[0.0, 1.1, 2.3, 3.7]]), dtype)
    alone = KINDS[kind][0](weights, np.zeros((3, 3)), 4, False, dtype)(times).asnumpy()
    layer = KINDS[kind][0](weights, np.full((3, 3), strength), 4, False, dtype)
    found = layer(times).asnumpy()
    np.testing.assert_allclose(found[..., 0], alone[..., 0], rtol=1e-6)
    np.testing.assert_array_equal(np.isfinite(found[0]), [[True] + [strength > 0.0] * 3] * 3)
    gradient = snncell.grad(lambda t: layer(t)[..., 0].sum())(times).asnumpy()
    np.testing.assert_allclose(gradient.sum(), 3.0, rtol=1e-4)  # all inputs later: the first spikes as well


class Counting(nn.EventNeuron):
    """Each input spike moves the potential at once."""

    states = 1

    def dynamics(self, v):
        return -0.01 * v

    def spike_condition(self, v):
        return v - 1.0

    def input_spike(self, weight, v):
        return v + weight

    def reset(self, v):
        return 0.0


@pytest.mark.parametrize("start", [0.0, 7.3])
def test_cascade_without_delays(start):
    """A ring passes a spike on; at last, each neuron has made its K spikes."""
    ring = np.roll(2.0 * np.eye(5), 1, 0)
    layer = solved(np.eye(5, 4), ring, 3, False, "float32", Counting({}))
    layer.weight.set_data(Tensor(2.0 * np.eye(5, 4), "float32"))
    times = Tensor([[start, INF, INF, INF]])
    found = layer(times).asnumpy()
    np.testing.assert_allclose(found, np.full((1, 5, 3), start), atol=1e-4)
    assert (np.diff(found[0].T.ravel()) > 0.0).all()
    np.testing.assert_allclose(snncell.grad(lambda t: layer(t)[0, 4, 2])(times).asnumpy(), [[1.0, 0.0, 0.0, 0.0]])


def test_neuron_that_becomes_nan_leaves_others_alone():
    class Rooted(Counting):
        def dynamics(self, v):
            return ops.sqrt(1.5 - v)  # NaN after an input of 2

        def spike_condition(self, v):
            return v - 1.6

    layer = solved(np.zeros((2, 4)), [[0.0, 0.0], [1.0, 0.0]], 2, False, neuron=Rooted({}), step=1.0)
    layer.weight.set_data(double([[2.0, 0.0, 0.0, 0.0], [0.0, 1.7, 0.0, 0.0]]))
    found = layer(double([[1.0, 1.0, INF, INF]])).asnumpy()
    np.testing.assert_array_equal(np.isnan(found), [[[False, True], [False, True]]])


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [*KINDS, "solver of states", "solver with delays of states"])
def test_gradients_equal_finite_differences(kind, seed):
    rng = np.random.default_rng(seed)
    layer, times = draw(rng, kind, 3, 4)
    layer.weight.set_data(layer.weight * double([[1.0], [0.2], [1.0], [0.2]]))  # not all reach the threshold
    parameters, values = layer.trainable_params(), {"times": double(times)}
    of_times, of_all = jit(snncell.grad(lambda t: loss_of(layer, t), 0, parameters))(values["times"])

    def difference(change, direction, step=1e-6):
        ends = []
        for sign in (1.0, -1.0):
            change(sign * step * direction)
            ends.append(loss_of(layer, values["times"]).item())
        change(0.0 * direction)
        return (ends[0] - ends[1]) / (2 * step)

    directions = rng.standard_normal(times.shape)
    wanted = difference(lambda d: values.update(times=double(times + d)), directions)
    found = np.where(np.isfinite(times), directions * of_times.asnumpy(), 0.0).sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert {"weight", "recurrent_weight"} <= {p.name for p in parameters}
    for parameter, gradient in zip(parameters, of_all, strict=True):
        kept, direction = parameter.asnumpy().copy(), rng.standard_normal(parameter.shape)
        wanted = difference(lambda d, p=parameter, k=kept: p.set_data(double(k + d)), direction)
        found = (direction * gradient.asnumpy()).sum()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=parameter.name)


def test_second_order_gradient_raises(rng):
    layer, times = draw(rng, "closed form")
    with pytest.raises(GradientError, match=r"no second-order gradients.* Use vjp or jacrev"):
        snncell.jvp(layer, (Tensor(times),), (Tensor(times),))
