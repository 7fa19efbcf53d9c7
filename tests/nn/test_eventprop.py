"""EventProp: spike times against a grid simulation, and gradients against finite differences of spike times."""

import math
from functools import partial

import numpy as np
import pytest

import snncell
from snncell import Tensor, explain, grad, jit, nn, ops, value_and_grad
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.eventprop import spike_times
from snncell.kernels.numba import build
from snncell.nn.rules import eventprop
from snncell.testing import check_grads

INF = math.inf
TAUS = {"membrane slower": (20.0, 5.0), "synapse slower": (4.0, 9.0), "equal": (7.0, 7.0), "close": (7.0, 7.0000001)}


def layer_of(weights, **options):
    """A layer in float64 with the weights (N_out, N_in)."""
    weights = np.asarray(weights, float)
    return nn.EventPropLIF(*weights.shape[::-1], weight_init=Tensor(weights), dtype="float64", **options)


def test_older_pickles_have_private_settings():
    layer = nn.EventPropLIF(2, 1, tau_mem=3.0)
    older = {f"_{name}" if name in layer._once_private else name: value for name, value in vars(layer).items()}
    again = nn.EventPropLIF.__new__(nn.EventPropLIF)
    again.__setstate__(older)
    assert repr(again) == repr(layer)
    assert again.tau_mem == 3.0


def kernel(s, tau_mem, tau_syn):
    """The potential after a spike of weight 1, 0 before it."""
    s = np.maximum(s, 0.0)
    if abs(tau_mem - tau_syn) < 1e-5 * tau_mem:
        return s / tau_mem * np.exp(-s / tau_mem)  # accurate enough: a relative error of 1e-8
    return tau_syn / (tau_mem - tau_syn) * (np.exp(-s / tau_mem) - np.exp(-s / tau_syn))


def simulate_neuron(times, weights, tau_mem, tau_syn, spikes=1, v_threshold=1.0, t_max=INF):
    """The spikes of one neuron: a grid between events, then bisection after a threshold crossing."""
    given = np.isfinite(times)
    times, weights, found = times[given], weights[given], []

    def potential(t):
        t = np.atleast_1d(t)[:, None]
        after = np.array([[*found, INF]])
        reset = np.where(t > after, np.exp(-np.maximum(t - after, 0.0) / tau_mem), 0.0)
        return kernel(t - times, tau_mem, tau_syn) @ weights - v_threshold * reset.sum(1)

    events = np.unique(times)
    for first, last in zip(events, [*events, INF][1:], strict=True):
        last = min(last, first + 30 * max(tau_mem, tau_syn))
        while len(found) < spikes:
            begin = max([first, *found])
            if last - begin < 1e-12 * abs(last):
                break
            grid = begin + (last - begin) * np.linspace(0.0, 1.0, 20_001)[1:]
            over = np.flatnonzero(potential(grid) >= v_threshold)
            if not len(over):
                break
            high = grid[over[0]]
            low = high - (last - begin) / 20_000
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (low, middle) if potential(middle) >= v_threshold else (middle, high)
            found.append(high)
    found = [t for t in found if t < t_max]
    return found + [INF] * (spikes - len(found))


def simulate_layer(times, weights, **options):
    """(B, N_in[, K_in]) -> (B, N_out, K)."""
    times = times.reshape(*times.shape[:2], -1)
    spread = np.repeat(weights, times.shape[2], 1)
    return np.array([[simulate_neuron(row.ravel(), w, **options) for w in spread] for row in times])


def problem(rng, tau_mem, tau_syn, shape=(3, 6, 2), neurons=5, strength=1.5):
    """Input times, a fifth of them inf, and weights of both signs that make many neurons spike."""
    times = rng.uniform(0.0, 3 * tau_mem, shape)
    times[rng.uniform(size=shape) < 0.2] = INF
    top = kernel(np.linspace(0, 5 * tau_mem, 500), tau_mem, tau_syn).max()
    return times, rng.normal(0.3, 0.5, (neurons, shape[1])) * strength / top


# --- forward ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("taus", TAUS.values(), ids=TAUS)
@pytest.mark.parametrize("spikes", [1, 4])
def test_spike_times_equal_a_simulation(rng, run, taus, spikes):
    times, weights = problem(rng, *taus)
    weights *= np.linspace(0.1, 1.0, 5)[:, None]  # the first neuron is silent
    options = {"tau_mem": taus[0], "tau_syn": taus[1], "spikes": spikes}
    found = run(layer_of(weights, **options))(Tensor(times)).asnumpy()
    theirs = simulate_layer(times, weights, **options)
    assert 0.2 < np.isfinite(theirs).mean() < 1.0
    np.testing.assert_allclose(found, theirs, rtol=1e-7 if taus[1] == 7.0000001 else 1e-9)
    assert (np.diff(found[np.isfinite(found).all(2)]) > 0).all()


CASES = {
    "many spikes between two events": ([[0.0, 50.0]], [[7.0, 20.0]], {"spikes": 4}),
    "more spikes than are asked for": ([[0.0, 50.0]], [[40.0, 10.0]], {"spikes": 1}),
    "a burst behind the last event": ([[0.0, 0.1]], [[1.0, 30.0]], {"spikes": 4}),
    "silent": ([[0.0, 3.0]], [[1.0, 1.0], [-9.0, -9.0], [0.0, 0.0]], {"spikes": 4}),
    "the same time": ([[5.0, 5.0, 5.0, 9.0, 9.0]], [[3.0, 3.0, 3.0, -9.0, 20.0]], {"spikes": 4}),
    "no input at all": ([[INF, INF], [INF, 1.0]], [[9.0, 9.0]], {"spikes": 4}),
    "before zero": ([[-50.0, -49.0]], [[9.0, 9.0]], {"spikes": 4}),
    "a late end": ([[0.0, 50.0]], [[40.0, 10.0]], {"spikes": 4, "t_max": 9.0}),
    "an end before the first": ([[4.0, 5.0]], [[40.0, 10.0]], {"spikes": 4, "t_max": 4.5}),
    "inhibition that is overcome": ([[0.0, 1.0, 30.0]], [[-90.0, 60.0, 80.0]], {"spikes": 4}),
    "another threshold": ([[0.0, 1.0]], [[9.0, 9.0]], {"v_threshold": 0.3, "spikes": 4}),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("taus", [(20.0, 5.0), (5.0, 20.0)], ids=["membrane slower", "synapse slower"])
@pytest.mark.parametrize("case", CASES)
def test_edge_case_inputs_equal_a_simulation(case, taus):
    times, weights, options = CASES[case]
    options = {"tau_mem": taus[0], "tau_syn": taus[1], **options}
    found = layer_of(weights, **options)(Tensor(np.array(times))).asnumpy()
    np.testing.assert_allclose(found, simulate_layer(np.array(times), np.array(weights), **options), rtol=1e-9)


def test_spike_occurs_only_if_the_peak_reaches_the_threshold():
    top = kernel(np.log(4.0) * 20 / 3, 20.0, 5.0)  # at its peak
    found = layer_of(np.array([[1 + 1e-12], [1 - 1e-12]]) / top, spikes=2)(Tensor([[1.0]], "float64")).asnumpy()
    np.testing.assert_allclose(found[0], [[1 + np.log(4.0) * 20 / 3, INF], [INF, INF]], rtol=1e-5)


def test_event_at_a_spike_time_affects_only_later_spikes():
    layer = layer_of([[9.0, 0.0], [9.0, 30.0]], spikes=4)
    first = layer(Tensor([[0.0, INF]], "float64")).asnumpy()[0, 0, 0]
    found = layer(Tensor([[0.0, first]], "float64")).asnumpy()[0]
    np.testing.assert_allclose(found[:, 0], first, rtol=1e-15)
    theirs = simulate_neuron(np.array([0.0, first]), np.array([9.0, 30.0]), 20.0, 5.0, 2)
    np.testing.assert_allclose(found[1, :2], theirs, rtol=1e-9)


def test_time_unit_is_arbitrary_and_float32_is_accurate(rng):
    times, weights = problem(rng, 20.0, 5.0)
    exact = layer_of(weights, spikes=3)(Tensor(times)).asnumpy()
    for unit in (1e-3, 1e3):
        scaled = layer_of(weights, tau_mem=20.0 * unit, tau_syn=5.0 * unit, spikes=3)(Tensor(times * unit)).asnumpy()
        np.testing.assert_allclose(scaled, exact * unit, rtol=1e-9)
    single = nn.EventPropLIF(6, 5, spikes=3, weight_init=Tensor(weights))(Tensor(times)).asnumpy()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-3)


def test_permuting_inputs_and_batch_commutes(rng):
    times, weights = problem(rng, 20.0, 5.0)
    found = layer_of(weights, spikes=2)(Tensor(times)).asnumpy()
    order = rng.permutation(6)
    mixed = layer_of(weights[:, order], spikes=2)(Tensor(times[::-1, order, ::-1].copy())).asnumpy()
    np.testing.assert_allclose(mixed[::-1], found, rtol=1e-12)


# --- gradients --------------------------------------------------------------------------------------------------------


def loss_of(layer, times, wave=1.0):
    """A loss of the spike times. Missing spikes add a constant."""
    found = layer(times)
    weights = Tensor(np.sin(wave * (np.arange(math.prod(found.shape)) + 1.0)).reshape(found.shape))
    return (ops.where(found < INF, found, 0.0) * weights).sum()


def loss_with(layer, times, weights):
    """The loss as a number, for other weights."""
    kept = layer.weight.asnumpy().copy()
    layer.weight.set_data(Tensor(weights))
    loss = loss_of(layer, Tensor(times)).item()
    layer.weight.set_data(Tensor(kept))
    return loss


def differences(f, x, step):
    """The gradient of f at an array, by central differences of the fourth order."""
    found = np.zeros_like(x)
    for place in zip(*np.nonzero(np.isfinite(x)), strict=True):
        ends = []
        for distance in (1, -1, 2, -2):
            moved = x.copy()
            moved[place] += distance * step
            ends.append(f(moved))
        found[place] = (8 * (ends[0] - ends[1]) - (ends[2] - ends[3])) / (12 * step)
    return found


def assert_close(found, wanted):
    np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-6, atol=1e-6 * abs(wanted).max())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("taus", TAUS.values(), ids=TAUS)
@pytest.mark.parametrize("spikes", [1, 4])
def test_gradients_equal_finite_differences(rng, run, taus, spikes):
    times, weights = problem(rng, *taus, shape=(2, 4, 2), neurons=3)
    layer = layer_of(weights, tau_mem=taus[0], tau_syn=taus[1], spikes=spikes)
    assert np.isfinite(layer(Tensor(times)).asnumpy()).mean() > 0.3
    of_loss = run(value_and_grad(partial(loss_of, layer), 0, layer.trainable_params()))
    loss, (of_times, (of_weights,)) = of_loss(Tensor(times))
    np.testing.assert_allclose(loss.item(), loss_with(layer, times, weights), rtol=1e-12)
    assert abs(of_weights.asnumpy()).max() > 0.1
    assert_close(of_weights, differences(lambda w: loss_with(layer, times, w), weights, 1e-4))
    assert_close(of_times, differences(lambda t: loss_with(layer, t, weights), times, 1e-3))


def test_two_layer_gradients_equal_finite_differences(rng):
    times, first = problem(rng, 20.0, 5.0, shape=(2, 4), neurons=6, strength=4.0)
    net = nn.SequentialCell(
        layer_of(first, spikes=3), layer_of(rng.normal(1.0, 1.0, (2, 6)), spikes=2, tau_mem=9.0, t_max=300.0)
    )
    assert np.isfinite(net(Tensor(times)).asnumpy()).mean() > 0.6
    check_grads(partial(loss_of, net), Tensor(times), rtol=1e-6)
    _, (of_first, of_second) = value_and_grad(partial(loss_of, net), None, net.trainable_params())(Tensor(times))
    for layer, found in zip(net, (of_first, of_second), strict=True):

        def loss(weights, layer=layer):
            kept = layer.weight.asnumpy().copy()
            layer.weight.set_data(Tensor(weights))
            found = loss_of(net, Tensor(times)).item()
            layer.weight.set_data(Tensor(kept))
            return found

        assert_close(found, differences(loss, layer.weight.asnumpy().copy(), 1e-4))


def test_gradients_of_several_spikes_per_neuron(rng):
    times, weights = rng.uniform(0.0, 30.0, (2, 3)), rng.uniform(5.0, 30.0, (1, 3))
    layer = layer_of(weights, spikes=9)
    assert np.isfinite(layer(Tensor(times)).asnumpy()).mean() > 0.7
    of_times, (of_weights,) = grad(partial(loss_of, layer), 0, layer.trainable_params())(Tensor(times))
    assert_close(of_weights, differences(lambda w: loss_with(layer, times, w), weights, 1e-4))
    assert_close(of_times, differences(lambda t: loss_with(layer, t, weights), times, 1e-4))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_special_inputs_are_finite(case):
    times, weights, options = CASES[case]
    layer = layer_of(weights, **options)
    of_times, (of_weights,) = grad(lambda t: layer(t).sum(), 0, layer.trainable_params())(Tensor(np.array(times)))
    assert np.isfinite(of_times.asnumpy()).all() and np.isfinite(of_weights.asnumpy()).all()
    silent = np.isinf(layer(Tensor(np.array(times))).asnumpy()).all((0, 2))
    assert (of_weights.asnumpy()[silent] == 0).all()
    assert (of_times.asnumpy()[np.isinf(times)] == 0).all()


def test_nan_gradient_of_a_missing_spike_is_ignored():
    layer = layer_of([[9.0], [0.1]])
    (found,) = grad(lambda t: ops.square(layer(t)).sum(), None, layer.trainable_params())(Tensor([[0.0]], "float64"))
    assert np.isfinite(found.asnumpy()).all() and found.asnumpy()[0] < 0 and found.asnumpy()[1] == 0


@pytest.mark.slow
def test_second_order_gradients_are_exact(rng):
    times, weights = problem(rng, 20.0, 5.0, shape=(2, 3), neurons=2, strength=4.0)
    times = np.where(np.isinf(times), 7.0, times)
    layer = layer_of(weights, spikes=4)
    check_grads(partial(loss_of, layer), Tensor(times), order=2)


def test_gradients_equal_the_adjoint_equations_of_the_paper(rng):
    """Integrate lambda_V and lambda_I backwards in time from jump to jump to get the gradient of the weights."""
    times, weights = rng.uniform(0.0, 30.0, (1, 5)), rng.uniform(5.0, 15.0, (1, 5))
    layer = layer_of(weights, spikes=3)
    (found,) = grad(lambda t: layer(t).sum(), None, layer.trainable_params())(Tensor(times))
    spikes = layer(Tensor(times)).asnumpy().ravel()
    assert np.isfinite(spikes).all()
    moments = sorted([*((t, -1) for t in spikes), *((t, e) for e, t in enumerate(times[0]))], reverse=True)
    of_v = of_i = 0.0
    now, wanted = moments[0][0], np.zeros(5)
    for t, event in moments:
        s, now = now - t, t
        of_i = of_i * np.exp(-s / 5.0) + of_v * 20.0 / 15.0 * (np.exp(-s / 20.0) - np.exp(-s / 5.0))
        of_v = of_v * np.exp(-s / 20.0)
        if event >= 0:
            wanted[event] = -5.0 * of_i
        else:
            current = sum(w * np.exp(-(t - u) / 5.0) for w, u in zip(weights[0], times[0], strict=True) if u < t)
            of_v += (of_v + 1.0) / (20.0 * (current - 1.0) / 20.0)
    np.testing.assert_allclose(found.asnumpy()[0], wanted, rtol=1e-9)


def test_bumps_raise_weights_of_neurons_that_are_silent_in_all_samples(run):
    layer = layer_of([[9.0], [7.0], [0.1]])
    times = Tensor([[0.0], [INF]], "float64")
    run(lambda t: nn.bump_weights(layer, layer(t), 0.5))(times)
    np.testing.assert_allclose(layer.weight.asnumpy(), [[9.0], [7.0], [0.6]])
    for cell, found in ((layer, times), (nn.Dense(1, 3), layer(times)), (layer, layer(times)[:, :2])):
        with pytest.raises(ArgumentError, match=r"bump_weights: found must be the spike times \(B, N_out, K\)"):
            nn.bump_weights(cell, found, 0.5)


# --- kernels ----------------------------------------------------------------------------------------------------------


def random_layer(rng, dtype):
    """A layer with random sizes, constants and weights, and its input times (some equal, some inf)."""
    batch, inputs, of_each, neurons, spikes = (int(rng.integers(1, most)) for most in (7, 9, 6, 40, 5))
    mem, syn = list(TAUS.values())[int(rng.integers(3))]
    times = rng.uniform(-mem, 3 * mem, (batch, inputs, of_each))
    times = np.round(times / mem * 8) / 8 * mem if rng.uniform() < 0.3 else times
    times[rng.uniform(size=times.shape) < 0.2] = INF
    weights = Tensor(rng.normal(0.3, 0.6, (neurons, inputs)) * 1.5 / kernel(np.linspace(0, 60, 500), mem, syn).max())
    t_max = INF if rng.uniform() < 0.5 else 2.0 * mem
    layer = nn.EventPropLIF(inputs, neurons, mem, syn, spikes=spikes, t_max=t_max, weight_init=weights, dtype=dtype)
    return layer, Tensor(times.astype(dtype))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(20))
def test_gradient_kernel_equals_the_differentiable_expression(seed, dtype):
    layer, times = random_layer(np.random.default_rng(seed), dtype)
    constants = dict(zip(("tau_mem", "tau_syn"), layer._time_constants(), strict=True), v_threshold=layer.v_threshold)
    found, order, places, currents = eventprop.spike_times.bind(
        times, layer.weight.T, spikes=layer.spikes, t_max=layer.t_max, silent=INF, **constants
    )
    gradients = Tensor(np.random.default_rng(seed + 1).normal(size=found.shape).astype(dtype))
    operands = times, layer.weight.T, order, found, places, currents, gradients
    ours = eventprop.sent_back.bind(*operands, **constants)
    theirs = eventprop._sent_back_by_operations(times, layer.weight.T, found, gradients, order, places, **constants)
    for one, other in zip(ours, theirs, strict=True):
        one, other = one.asnumpy(), other.asnumpy()
        assert one.dtype == other.dtype == np.dtype(dtype) and one.shape == other.shape
        tolerance = {"float32": 2e-2, "float64": 1e-9}[
            dtype
        ]  # the slope at the threshold is a difference of nearly equal numbers
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * abs(other).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("events", [1, 24, 25, 400])
def test_events_are_sorted_by_time_and_ties_keep_their_order(rng, events, dtype):
    times = np.concatenate([rng.normal(size=(3, events)), np.round(rng.normal(size=(3, events)))]).astype(dtype)
    times[1::2] *= np.array(1e-30 if dtype is np.float32 else 1e-300, dtype)
    times[2, ::3], times[3, ::2], times[4, ::5] = INF, -0.0, 1e30
    for t_max in (INF, 0.5):
        _, order, _, _ = spike_times.find(times[..., None], np.zeros((events, 1), dtype), 1, 20.0, 5.0, 1.0, t_max)
        for row, found in zip(times, order, strict=True):
            wanted = np.argsort(row, kind="stable")
            count = (row < t_max).sum()
            np.testing.assert_array_equal(found[:count], wanted[:count])
            np.testing.assert_array_equal(np.sort(found), np.arange(events))


@pytest.mark.compiled
@pytest.mark.parametrize("batch", [1, 3, 130])
def test_results_do_not_depend_on_the_number_of_threads(rng, monkeypatch, batch):
    times, weights = problem(rng, 20.0, 5.0, shape=(batch, 6, 2), neurons=37)
    layer = layer_of(weights, spikes=3)
    found = []
    for size in (1, 1 << 40):  # on all threads, and on one
        monkeypatch.setattr(spike_times, "PARALLEL_SIZE", size)
        loss, (of_times, (of_weights,)) = value_and_grad(partial(loss_of, layer), 0, [layer.weight])(Tensor(times))
        found.append([layer(Tensor(times)), loss, of_times, of_weights])
    for shared, alone in zip(*found, strict=True):
        np.testing.assert_array_equal(shared.asnumpy(), alone.asnumpy())


def test_strided_times_equal_a_contiguous_copy(rng):
    times, weights = problem(rng, 20.0, 5.0, shape=(6, 4, 3))
    layer = layer_of(weights[:, :3])
    strided = Tensor(times).transpose(1, 2, 0)  # (N_in, ...) comes last
    for t in (Tensor(times)[::2, ::-1][:, :3], strided[:, :3]):
        copied = Tensor(np.ascontiguousarray(t.asnumpy()))
        np.testing.assert_array_equal(layer(t).asnumpy(), layer(copied).asnumpy())


def test_missing_spikes_pass_the_check_for_infinities():
    layer = layer_of([[9.0], [0.1]], t_max=40.0)
    snncell.set_context(check_finite=True)
    try:
        (found,) = grad(lambda t: ops.minimum(layer(t), 50.0).sum(), None, [layer.weight])(Tensor([[0.0]], "float64"))
    finally:
        snncell.set_context(check_finite=False)
    assert found.asnumpy()[0] < 0 == found.asnumpy()[1]


def test_forward_and_backward_are_one_operation_each():
    """The operation sorts, computes all spikes and sums over samples, so that no buffer has a row for each event."""
    layer = nn.EventPropLIF(4, 3, spikes=4)
    x = ops.ones((2, 4))
    loss = lambda t: ops.minimum(layer(t), 99.0).sum()  # noqa: E731
    text = explain(value_and_grad(loss, 0, layer.trainable_params()), x, detail="launches")
    names = [line.split(" call ")[1].split()[0] for line in text.splitlines() if ". call " in line]
    assert [name for name in names if name not in ("reshape", "transpose")] == [
        "checked_times",
        "spike_times",
        "sent_back",
    ]


@pytest.mark.compiled
def test_changed_constants_do_not_recompile(monkeypatch):
    def work(layer, batch):
        return grad(lambda t: ops.minimum(layer(t), 9.0).sum())(ops.ones((batch, layer.in_channels)))

    names, build_kernel = [], build.build
    build.kernel_for.cache_clear()
    monkeypatch.setattr(build, "build", lambda name, *given: names.append(name) or build_kernel(name, *given))
    layer = nn.EventPropLIF(3, 2)
    work(layer, 2)
    assert names == ["find_spikes", "send_back_kernel"]
    layer.tau_mem, layer.v_threshold, layer.t_max = 17.0, 0.7, 80.0
    work(layer, 2)
    work(nn.EventPropLIF(5, 4, tau_mem=17.0, tau_syn=3.0, v_threshold=0.7, spikes=2, t_max=80.0), 3)
    assert names == ["find_spikes", "send_back_kernel"]


def test_constants_can_be_changed():
    layer = layer_of([[9.0, 9.0]], spikes=2)
    times = Tensor([[1.0, 2.0]], "float64")
    layer(times)
    for name, value in {"tau_mem": 13.0, "tau_syn": 3.0, "v_threshold": 0.5, "t_max": 4.0, "spikes": 3}.items():
        setattr(layer, name, value)
        options = {key: getattr(layer, key) for key in ("tau_mem", "tau_syn", "v_threshold", "spikes", "t_max")}
        assert options[name] == value
        np.testing.assert_array_equal(layer(times).asnumpy(), layer_of([[9.0, 9.0]], **options)(times).asnumpy())
    with pytest.raises(ArgumentError, match="EventPropLIF: tau_mem is a finite number above 0, not 0"):
        layer.tau_mem = 0


def test_training_moves_spikes_to_their_targets(run):
    snncell.set_seed(1)
    net = nn.SequentialCell(nn.EventPropLIF(4, 10, spikes=2), nn.EventPropLIF(10, 2))
    times = Tensor([[0.0, 3.0, 6.0, 9.0], [9.0, 6.0, 3.0, 0.0]])
    wanted = Tensor([[8.0, 11.0], [11.0, 8.0]])
    weights = net.trainable_params()
    adam = nn.Adam(weights, 0.1)
    step = run(value_and_grad(lambda t: ops.square(ops.minimum(net(t)[..., 0], 60.0) - wanted).mean(), None, weights))
    losses = []
    for _ in range(100):
        loss, grads = step(times)
        adam(grads)
        losses.append(loss.item())
    assert losses[0] > 5.0 and losses[-1] < 0.05


def test_new_layers_spike(rng):
    for n in (3, 300):
        for taus in ((20.0, 5.0), (7.0, 7.0)):
            layer = nn.EventPropLIF(n, 200, *taus, v_threshold=0.5)
            assert np.isfinite(layer(ops.zeros((1, n))).asnumpy()).mean() > 0.9


def test_repr_of_a_layer():
    text = "EventPropLIF(input_channels=2, output_channels=3, tau_mem=20.0, tau_syn=5.0, v_threshold=1.0, spikes=1"
    assert text in repr(nn.EventPropLIF(2, 3))


# --- errors -----------------------------------------------------------------------------------------------------------

X = ops.ones((2, 3))
ERRORS = [
    (lambda: nn.EventPropLIF(0, 1), ArgumentError, r"EventPropLIF: in_channels is an integer of at least 1, not 0"),
    (lambda: nn.EventPropLIF(1, 1.5), ArgumentError, r"EventPropLIF: out_channels is an integer .* not 1.5"),
    (lambda: nn.EventPropLIF(1, 1, spikes=0), ArgumentError, r"EventPropLIF: spikes is an integer of at least 1"),
    (
        lambda: nn.EventPropLIF(1, 1, tau_mem=0.0),
        ArgumentError,
        r"EventPropLIF: tau_mem is a finite number above 0, not 0",
    ),
    (lambda: nn.EventPropLIF(1, 1, tau_syn=-5), ArgumentError, r"tau_syn is a finite number above 0, not -5"),
    (lambda: nn.EventPropLIF(1, 1, tau_syn=INF), ArgumentError, r"tau_syn is a finite number above 0, not inf"),
    (
        lambda: nn.EventPropLIF(1, 1, tau_mem="2"),
        ArgumentError,
        r"EventPropLIF: tau_mem is a finite number above 0, not '2'",
    ),
    (lambda: nn.EventPropLIF(1, 1, v_threshold=0), ArgumentError, r"v_threshold is a finite number above 0, not 0"),
    (lambda: nn.EventPropLIF(1, 1, t_max=math.nan), ArgumentError, r"EventPropLIF: t_max is a number, not nan"),
    (lambda: nn.EventPropLIF(1, 1, dtype="float16"), DTypeError, r"dtype must be float32 or float64, not Float16"),
    (lambda: nn.EventPropLIF(4, 1)(X), ShapeError, r"times must be \(B, 4\) or \(B, 4, K\).*\(2, 3\)"),
    (lambda: nn.EventPropLIF(3, 1)(X[0]), ShapeError, r"times must be \(B, 3\) or \(B, 3, K\).*\(3,\)"),
    (lambda: nn.EventPropLIF(3, 1)(X[:0]), ShapeError, r"times must be .*, without empty axes, .*\(0, 3\)"),
    (lambda: nn.EventPropLIF(1, 1)(Tensor([[1j]])), DTypeError, r"times must be real numbers, not Complex"),
    (
        lambda: nn.EventPropLIF(3, 1)(X * math.nan),
        ArgumentError,
        r"times contains NaN or -inf. A time must be a number, or inf",
    ),
    (lambda: nn.EventPropLIF(3, 1)(X - INF), ArgumentError, r"times contains NaN or -inf"),
    (lambda: jit(nn.EventPropLIF(3, 1))(X - INF), ArgumentError, r"times contains NaN or -inf"),
]


@pytest.mark.parametrize(("call", "kind", "text"), ERRORS, ids=[text[:60] for *_, text in ERRORS])
def test_errors_suggest_a_fix(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


# --- first-spike loss -------------------------------------------------------------------------------------------------


def naive_first_spike_loss(times, labels, tau, early, tau_early):
    """The losses of the samples whose label neuron spikes."""
    losses = []
    for row, label in zip(times, labels, strict=True):
        if row[label] < INF:
            others = sum(math.exp(-(t - row[label]) / tau) for t in row if t < INF)
            losses.append(math.log(others) + early * (math.exp(row[label] / tau_early) - 1.0))
    return losses


@pytest.mark.parametrize("each", [1, 3])
def test_first_spike_loss_skips_silent_label_neurons(rng, run, each):
    times = np.sort(rng.uniform(0.0, 30.0, (40, 3, each)), 2)
    times[rng.uniform(size=(40, 3)) < 0.3] = INF
    labels = rng.integers(0, 3, 40).astype(np.int32)
    given = Tensor(times[..., 0] if each == 1 else times)
    constants = {"tau": 2.0, "early": 0.01, "tau_early": 9.0}
    losses = naive_first_spike_loss(times[..., 0], labels, **constants)
    assert 10 < len(losses) < 40
    loss = nn.FirstSpikeLoss(**constants)
    value, gradient = run(value_and_grad(lambda t: loss(t, Tensor(labels))))(given)
    np.testing.assert_allclose(value.item(), np.mean(losses), rtol=1e-6)
    silent = np.isinf(times[np.arange(40), labels, 0])
    gradient = gradient.asnumpy().reshape(40, 3, each)
    assert (gradient[silent] == 0.0).all() and np.isfinite(gradient).all()
    assert (gradient[~silent, labels[~silent], 0] != 0.0).all() and (gradient[..., 1:] == 0.0).all()
    separate = nn.FirstSpikeLoss(**constants, reduction="none")(given, Tensor(labels)).asnumpy()
    np.testing.assert_allclose(separate[~silent], losses, rtol=1e-6)
    assert (separate[silent] == 0.0).all()
    check_grads(lambda t: loss(t, Tensor(labels[~silent])), Tensor(np.where(times < INF, times, 50.0)[~silent][..., 0]))


def test_first_spike_loss_of_a_silent_batch_is_inf_without_gradient():
    value, gradient = value_and_grad(lambda t: nn.FirstSpikeLoss()(t, Tensor([0])))(Tensor([[INF, 3.0]]))
    assert value.item() == INF and gradient.tolist() == [[0.0, 0.0]]


def test_nan_is_not_a_silent_neuron():
    loss = nn.FirstSpikeLoss()
    for times in ([[INF, 1.0], [math.nan, 1.0]], [[2.0, 1.0], [1.0, math.nan]]):
        assert math.isnan(loss(Tensor(times), Tensor([0, 0])).item())


def test_first_spike_loss_of_late_spikes_does_not_overflow():
    value, gradient = value_and_grad(lambda t: nn.FirstSpikeLoss()(t, Tensor([0])))(Tensor([[1000.0, 1e6]]))
    assert 0.0 < value.item() < 1e6 and np.isfinite(gradient.asnumpy()).all() and gradient[0, 0].item() > 0.0


def test_first_spike_loss_names_labels_of_another_batch():
    with pytest.raises(ShapeError, match=r"times of a batch of 2 need labels of shape \(2,\).*not of shape \(3,\)"):
        nn.FirstSpikeLoss()(ops.ones((2, 3)), Tensor([0, 1, 2]))
