"""Losses of spikes and potentials over time: against NumPy loops, golden values, snnTorch and SpikingJelly."""

import itertools
import math
import warnings

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.nn.losses.standard import ReducibleLoss

RNG = np.random.default_rng(0)
T, B, C = 7, 4, 3
REAL = RNG.normal(0, 1, (T, B, C))
SPIKES = (RNG.uniform(size=(T, B, C)) < 0.3).astype(float)
SPIKES[:, 1, 2] = 0.0  # silent
LABELS = np.array([2, 0, 1, 2])
WEIGHT = np.array([0.3, 1.0, 2.5])

# --- oracles: one sample at a time, in float64 -----------------------------------------------------------------------


def entropy(logits, label, smoothing=0.0):
    """-sum_c target_c log softmax_c."""
    normaliser = math.log(sum(math.exp(z - max(logits)) for z in logits)) + max(logits)
    total = 0.0
    for c, z in enumerate(logits):
        total += (smoothing / len(logits) + (1 - smoothing) * (c == label)) * (normaliser - z)
    return total


def per_sample(fn):
    """fn(x of one sample (T, C), label) for each."""
    return lambda x, labels: np.array([fn(x[:, b], labels[b]) for b in range(x.shape[1])])


def over_groups(fn, classes):
    """fn of the summed neurons of each class."""

    def of_groups(x, labels):
        size = x.shape[2] // classes
        sums = np.stack([x[:, :, c * size : (c + 1) * size].sum(2) for c in range(classes)], 2)
        return fn(sums, labels)

    return of_groups


def ce_rate(smoothing=0.0):
    return per_sample(lambda x, y: sum(entropy(now, y, smoothing) for now in x) / len(x))


def ce_count(smoothing=0.0):
    return per_sample(lambda x, y: entropy(sum(x), y, smoothing))


def tet(a, phi):
    return per_sample(
        lambda x, y: (1 - a) * sum(entropy(now, y) for now in x) / len(x) + a * sum((x.ravel() - phi) ** 2) / x.size
    )


def one_hot(label, classes, on, off):
    return np.array([on if c == label else off for c in range(classes)])


def mse_count(on, off):
    return per_sample(lambda x, y: (sum(x) - one_hot(y, x.shape[1], on, off)) ** 2 / len(x))


def mse_rate(on, off, size=1):
    return per_sample(lambda x, y: (sum(x) / len(x) / size - one_hot(y, x.shape[1], on, off)) ** 2)


def mse_membrane(on, off):
    return per_sample(lambda x, y: sum((now - one_hot(y, x.shape[1], on, off)) ** 2 for now in x) / len(x))


def first_times(x):
    """(T, ...) -> (...): the first step with a spike; the last step if there is none."""
    out = np.zeros(x.shape[1:])
    for index in np.ndindex(out.shape):
        fired = [t for t in range(len(x)) if x[(t, *index)] > 0]
        out[index] = fired[0] if fired else len(x) - 1
    return out


def spike_times(x, count):
    """(T, ...) -> (count, ...): the steps of the first spikes; the last step for missing ones."""
    out = np.full((count, *x.shape[1:]), len(x) - 1.0)
    for index in np.ndindex(x.shape[1:]):
        fired = [t for t in range(len(x)) if x[(t, *index)] > 0][:count]
        out[(slice(len(fired)), *index)] = fired
    return out


def ce_temporal(inverse):
    return per_sample(lambda x, y: entropy(-first_times(x) if inverse == "negate" else 1 / (first_times(x) + 1), y))


def mse_temporal(on, off, tolerance=0):
    def fn(x, y):
        late = first_times(x) - one_hot(y, x.shape[1], on, off)
        return np.where(np.abs(late) < tolerance, 0.0, late / len(x)) ** 2

    return per_sample(fn)


def mse_of_spikes(on, off):
    """(F, B, C) for the times of F spikes."""

    def fn(x, labels):
        late = spike_times(x, len(on))
        for f, b, c in np.ndindex(late.shape):
            late[f, b, c] -= on[f] if c == labels[b] else off[f]
        return (late / len(x)) ** 2

    return fn


def van_rossum(x, target, tau):
    blurred = np.zeros_like(x)
    for t, u in itertools.product(range(len(x)), repeat=2):
        if u <= t:
            blurred[t] += (x[u] - target[u]) * math.exp(-(t - u) / tau)
    return (blurred**2).sum(0) / tau


# name -> (Cell, its arguments, the expected result without reduction)
LOSSES = {
    "CERateLoss": (nn.CERateLoss, {}, ce_rate()),
    "CERateLoss smoothed": (nn.CERateLoss, {"label_smoothing": 0.2}, ce_rate(0.2)),
    "CERateLoss of populations": (nn.CERateLoss, {"num_classes": 3}, over_groups(ce_rate(), 3)),
    "CECountLoss": (nn.CECountLoss, {}, ce_count()),
    "CECountLoss smoothed (Spyx's integral_crossentropy)": (nn.CECountLoss, {"label_smoothing": 0.3}, ce_count(0.3)),
    "CECountLoss of populations": (nn.CECountLoss, {"num_classes": 3}, over_groups(ce_count(), 3)),
    "CEMaxMembraneLoss": (nn.CEMaxMembraneLoss, {}, per_sample(lambda x, y: entropy(x.max(0), y))),
    "TETLoss": (nn.TETLoss, {}, ce_rate()),
    "TETLoss regularised": (nn.TETLoss, {"mse_weight": 0.05, "mse_target": 0.7}, tet(0.05, 0.7)),
    "MSECountLoss": (nn.MSECountLoss, {}, mse_count(7, 0)),
    "MSECountLoss of rates": (nn.MSECountLoss, {"correct_rate": 0.8, "incorrect_rate": 0.2}, mse_count(5, 1)),
    "MSECountLoss of populations": (
        nn.MSECountLoss,
        {"correct_rate": 0.8, "incorrect_rate": 0.2, "num_classes": 3},
        over_groups(mse_count(11, 2), 3),  # floor(7 * 2 * 0.8)
    ),
    "MSERateLoss": (nn.MSERateLoss, {}, mse_rate(1, 0)),
    "MSERateLoss of rates": (nn.MSERateLoss, {"correct_rate": 0.6, "incorrect_rate": 0.1}, mse_rate(0.6, 0.1)),
    "MSERateLoss of populations": (nn.MSERateLoss, {"num_classes": 3}, over_groups(mse_rate(1, 0, 2), 3)),
    "MSEMembraneLoss": (nn.MSEMembraneLoss, {}, mse_membrane(1, 0)),
    "MSEMembraneLoss of targets": (nn.MSEMembraneLoss, {"on_target": 2.0, "off_target": -1.0}, mse_membrane(2, -1)),
    "CETemporalLoss": (nn.CETemporalLoss, {}, ce_temporal("negate")),
    "CETemporalLoss reciprocal": (nn.CETemporalLoss, {"inverse": "reciprocal"}, ce_temporal("reciprocal")),
    "MSETemporalLoss": (nn.MSETemporalLoss, {}, mse_temporal(0, T - 1)),
    "MSETemporalLoss of targets": (nn.MSETemporalLoss, {"on_target": 2, "off_target": -2}, mse_temporal(2, T - 2)),
    "MSETemporalLoss of two spikes": (
        nn.MSETemporalLoss,
        {"on_target": [0, 2], "off_target": [-2, -1]},
        mse_of_spikes([0, 2], [T - 2, T - 1]),
    ),
    "MSETemporalLoss tolerant": (nn.MSETemporalLoss, {"on_target": 1, "tolerance": 2}, mse_temporal(1, T - 1, 2)),
}
IDS = list(LOSSES)
REDUCE = {"mean": np.mean, "sum": np.sum, "none": lambda a: a}
ENTROPIES = [nn.CERateLoss, nn.CECountLoss, nn.CEMaxMembraneLoss, nn.TETLoss, nn.CETemporalLoss]
TEMPORAL = (nn.CETemporalLoss, nn.MSETemporalLoss)


def outputs_for(kind, arguments):
    """Outputs that suit a loss: spikes for temporal losses, and two neurons per class for populations."""
    x = SPIKES if issubclass(kind, TEMPORAL) else REAL
    return np.concatenate([x, x[:, :, ::-1] * 0.5], 2) if "num_classes" in arguments else x


def test_every_spike_loss_is_in_the_table():
    here = {kind for kind, _, _ in LOSSES.values()} | {nn.VanRossumLoss, nn.FirstSpikeLoss}  # see test_eventprop.py
    public = {kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, ReducibleLoss)}
    assert {kind for kind in public if kind.__module__.startswith("snncell.nn.losses.spike")} == here


@pytest.mark.parametrize("reduction", REDUCE)
@pytest.mark.parametrize("name", IDS)
def test_losses_equal_the_loop(name, reduction):
    kind, arguments, naive = LOSSES[name]
    x = outputs_for(kind, arguments)
    found = kind(**arguments, reduction=reduction)(Tensor(x), Tensor(LABELS)).asnumpy()
    expected = REDUCE[reduction](naive(x, LABELS))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reduction", REDUCE)
@pytest.mark.parametrize("name", IDS)
def test_gradients_agree_with_finite_differences(name, reduction):
    kind, arguments, _ = LOSSES[name]
    loss, x = kind(**arguments, reduction=reduction), outputs_for(kind, arguments)
    if issubclass(kind, TEMPORAL):
        more = () if kind is nn.CETemporalLoss else (T,)
        times = spike_times(x, 2) if "two spikes" in name else first_times(x)
        times = Tensor(times + 0.3)  # real-valued, and away from the edge of a tolerance
        testing.check_grads(lambda t: loss.of_times(t, Tensor(LABELS), *more), times, order=2)
    else:
        testing.check_grads(lambda z: loss(z, Tensor(LABELS)), Tensor(x), order=2)


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", IDS)
def test_jitted_equals_eager(name, dtype):
    kind, arguments, _ = LOSSES[name]
    loss, x = kind(**arguments), Tensor(outputs_for(kind, arguments), dtype)
    both = ops.value_and_grad(loss)
    for eager, jitted in zip(both(x, Tensor(LABELS)), snncell.jit(both)(x, Tensor(LABELS)), strict=True):
        assert eager.dtype == jitted.dtype == x.dtype
        tolerance = 2e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(eager.asnumpy(), jitted.asnumpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ENTROPIES)
def test_mean_divides_by_the_sum_of_label_weights(kind):
    x = outputs_for(kind, {})
    each = kind(reduction="none")(Tensor(x), Tensor(LABELS)).asnumpy()
    found = [kind(weight=WEIGHT, reduction=r)(Tensor(x), Tensor(LABELS)).asnumpy() for r in ("mean", "sum", "none")]
    weighted = each * WEIGHT[LABELS]
    for mine, expected in zip(found, (weighted.sum() / WEIGHT[LABELS].sum(), weighted.sum(), weighted), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12)


# --- golden values ---------------------------------------------------------------------------------------------------

THREE = np.zeros((5, 1, 3), np.float32)  # first spikes at 1, at 2, and never
THREE[[1, 3], 0, 0] = THREE[2, 0, 1] = 1.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("inverse", "expected"), [("negate", 1.349012), ("reciprocal", 1.117282)])
def test_temporal_cross_entropy_equals_snntorch_values(run, inverse, expected):
    value, found = run(ops.value_and_grad(nn.CETemporalLoss(inverse)))(Tensor(THREE), Tensor([1]))
    np.testing.assert_allclose(value.item(), expected, atol=1e-6)
    assert {(t, c) for t, _, c in np.argwhere(found.asnumpy())} == {(1, 0), (2, 1), (4, 2)}
    if inverse == "negate":
        golden = [0.705385, -0.740504, 0.035119]
        np.testing.assert_allclose(found.asnumpy()[[1, 2, 4], 0, [0, 1, 2]], golden, atol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("inverse", ["negate", "reciprocal"])
def test_silent_neurons_do_not_give_nan(run, inverse):
    inf = np.inf
    times, labels = np.array([[1.0, inf, 2.5], [inf, inf, 0.5], [inf, inf, inf]]), Tensor([0, 1, 2])
    loss = nn.CETemporalLoss(inverse, reduction="none")
    found, gradient = run(ops.value_and_grad(loss.of_times))(Tensor(times), labels)
    with np.errstate(over="ignore"):
        weights = np.exp(-times if inverse == "negate" else 1 / (times + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = -np.log(weights / weights.sum(1, keepdims=True))[range(3), range(3)]
    if inverse == "negate":
        expected[2] = inf  # all neurons are silent
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-12)
    assert np.isfinite(gradient.asnumpy()).all() and (gradient.asnumpy()[np.isinf(times)] == 0).all()
    clipped = loss.of_times(Tensor(np.minimum(times, 9.0)), labels).asnumpy()
    np.testing.assert_array_equal(loss.of_times(Tensor(times), labels, 9.0).asnumpy(), clipped)
    assert np.isfinite(clipped).all()
    smooth = nn.CETemporalLoss(inverse, label_smoothing=0.1).of_times(Tensor(times), labels)
    assert not np.isnan(smooth.asnumpy())


def test_gradient_wakes_a_silent_neuron():
    spikes = Tensor(np.zeros((5, 1, 2), np.float32))
    found = np.array(ops.grad(nn.MSETemporalLoss())(spikes, Tensor([0])))
    assert found[4, 0, 0] < 0  # more output makes the loss smaller
    found[4, 0, 0] = 0
    assert not found.any()


def test_ce_rate_sums_the_neurons_of_a_class():
    """snnTorch 1.0.0 slices the neurons of a class, discards the slices, and uses neuron 1 for class 1."""
    x = np.zeros((3, 1, 4))
    x[:, :, 2:] = 1.0  # both neurons of class 1 fire, those of class 0 do not
    loss = nn.CERateLoss(num_classes=2)
    np.testing.assert_allclose(loss(Tensor(x), Tensor([1])).item(), math.log(1 + math.exp(-2)), rtol=1e-12)
    np.testing.assert_allclose(loss(Tensor(x), Tensor([0])).item(), math.log(1 + math.exp(2)), rtol=1e-12)


@pytest.mark.parametrize("steps", [3, 8, 100])
def test_reached_target_rate_has_zero_loss_for_any_number_of_steps(steps):
    """Spyx compares a rate with a count, so that no spikes can reach the target for more than 4 steps."""
    x = np.zeros((steps, 1, 2))
    x[:, 0, 1] = 0.25
    assert nn.MSERateLoss(correct_rate=0.25)(Tensor(x), Tensor([1])).item() == 0.0


def test_target_count_is_robust_to_rounding():
    spikes = np.zeros((100, 1, 2))
    spikes[:29, 0, 1] = 1.0  # 100 * 0.29 is 28.999999999999996
    assert nn.MSECountLoss(0.29)(Tensor(spikes), Tensor([1])).item() == 0.0


# --- the first spike -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 2), (6,), (6, 3), (6, 2, 3), (5, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("silent", [None, 20.0, math.inf])
def test_first_spike_times_and_their_gradient(run, shape, silent):
    rng = np.random.default_rng(3)
    spikes = (rng.uniform(size=shape) < 0.2).astype(np.float32)
    spikes.reshape(shape[0], -1)[:, 0] = 0.0
    dout = rng.standard_normal(shape[1:]).astype(np.float32)
    cell = nn.FirstSpikeTime(silent)
    weighted = (lambda s: cell(s)) if silent == math.inf else lambda s: (cell(s) * Tensor(dout)).sum()
    fired, first = spikes.any(0), first_times(spikes)
    expected = np.where(fired, first, first if silent is None else silent)
    np.testing.assert_array_equal(run(cell)(Tensor(spikes)).asnumpy(), expected)
    if silent == math.inf:
        return
    found = run(ops.grad(weighted))(Tensor(spikes)).asnumpy()
    there = np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1)) == first
    np.testing.assert_array_equal(found, np.where(there, -dout, 0))


def test_default_off_target_is_the_last_step():
    """snnTorch 1.0.0 changes its default off_target, -1 for the last step, to 0, so that all should fire at once."""
    late, early = np.zeros((5, 1, 2)), np.zeros((5, 1, 2))
    late[0, 0, 0] = early[0, 0, 0] = early[0, 0, 1] = 1.0
    assert nn.MSETemporalLoss()(Tensor(late), Tensor([0])).item() == 0.0
    np.testing.assert_allclose(nn.MSETemporalLoss()(Tensor(early), Tensor([0])).item(), (4 / 5) ** 2 / 2)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("shape", [(6,), (6, 3), (7, 2, 3)], ids=str)
def test_several_spike_times_and_their_gradients(run, shape, count):
    """snnTorch 1.0.0 loses the spikes of other neurons in a step in which it has found one."""
    rng = np.random.default_rng(8)
    spikes = (rng.uniform(size=shape) < 0.4).astype(np.float32)
    dout = rng.standard_normal((count, *shape[1:])).astype(np.float32)
    cell, times = nn.SpikeTimes(count), spike_times(spikes, count)
    np.testing.assert_array_equal(run(cell)(Tensor(spikes)).asnumpy(), times)
    found = run(ops.grad(lambda s: (cell(s) * Tensor(dout)).sum()))(Tensor(spikes)).asnumpy()
    expected = np.zeros(shape)
    for index in np.ndindex(times.shape):
        expected[(int(times[index]), *index[1:])] -= dout[index]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if count == 1:
        np.testing.assert_array_equal(nn.FirstSpikeTime()(Tensor(spikes)).asnumpy(), times[0])


@pytest.mark.parametrize("count", [0, 1.0, True])
def test_spike_count_must_be_a_positive_integer(count):
    with pytest.raises(ArgumentError, match="SpikeTimes: count is an integer of at least 1"):
        nn.SpikeTimes(count)


def test_graded_spikes_have_the_same_times_as_binary_spikes():
    graded = THREE * np.array([2.0, 0.5, 1.0], np.float32)
    assert nn.FirstSpikeTime()(Tensor(graded)).tolist() == [[1.0, 2.0, 4.0]]


def test_first_spike_time_rejects_invalid_arguments():
    with pytest.raises(ArgumentError, match=r"silent=3 is before the last of 5 steps; it must be at least 4"):
        nn.FirstSpikeTime(3)(Tensor(THREE))
    with pytest.raises(ArgumentError, match="silent is a number, not 'never'"):
        nn.FirstSpikeTime("never")
    with pytest.raises(ShapeError, match=r"at least one step, but have shape \(0, 3\)"):
        nn.FirstSpikeTime()(ops.zeros((0, 3)))


def test_target_times_can_be_given_and_negative_ones_count_from_the_end():
    times = np.array([[0.0, 3.0, -1.0]])
    found = nn.MSETemporalLoss()(Tensor(THREE.astype(float)), Tensor(times)).item()
    np.testing.assert_allclose(found, ((1 / 5) ** 2 + (1 / 5) ** 2 + 0) / 3, rtol=1e-12)


@pytest.mark.parametrize("shape", [(B, C), (T, B, C)], ids=str)
def test_target_potentials_can_be_given(shape):
    target = np.random.default_rng(5).normal(size=shape)
    found = nn.MSEMembraneLoss()(Tensor(REAL), Tensor(target)).item()
    np.testing.assert_allclose(found, ((REAL - target) ** 2).mean(), rtol=1e-12)
    testing.check_grads(nn.MSEMembraneLoss(), Tensor(REAL), Tensor(target))


# --- van Rossum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCE)
@pytest.mark.parametrize("tau", [0.5, 3, 40.0])
@pytest.mark.parametrize("shape", [(1, 2), (7, 4, 3), (5, 2, 2, 3)], ids=str)
def test_van_rossum_equals_the_sum_over_pairs_of_steps(run, shape, tau, reduction):
    rng = np.random.default_rng(4)
    x, target = rng.normal(size=shape), (rng.uniform(size=shape) < 0.4).astype(float)
    found = run(nn.VanRossumLoss(tau, reduction))(Tensor(x), Tensor(target)).asnumpy()
    np.testing.assert_allclose(found, REDUCE[reduction](van_rossum(x, target, tau)), rtol=1e-11)


def test_van_rossum_gradient_agrees_with_finite_differences():
    testing.check_grads(nn.VanRossumLoss(3.0), Tensor(REAL), Tensor(SPIKES), order=2)


def train(*steps, length=400):
    spikes = np.zeros((length, 1))
    spikes[list(steps)] = 1.0
    return Tensor(spikes)


@pytest.mark.parametrize("tau", [5.0, 10.0])
def test_van_rossum_distance_equals_its_closed_form(tau):
    loss = nn.VanRossumLoss(tau)
    alone = 1 / tau / (1 - math.exp(-2 / tau))
    assert loss(train(30), train(30)).item() == 0.0
    np.testing.assert_allclose(loss(train(30), train()).item(), alone, rtol=1e-9)
    np.testing.assert_allclose(alone, 0.5 + 0.5 / tau, atol=0.2 / tau**2)
    for late in (1, 3, 20):  # two kernels minus their overlap
        found = loss(train(30), train(30 + late)).item()
        np.testing.assert_allclose(found, 2 * alone * (1 - math.exp(-late / tau)), rtol=1e-9)


@pytest.mark.compiled
def test_van_rossum_is_one_loop_in_each_direction():
    text = snncell.explain(ops.grad(nn.VanRossumLoss()), Tensor(REAL), Tensor(SPIKES), detail="launches")
    assert text.count("one kernel") == 2
    assert "0 loops, 2 loops over time, 0 calls" in text


def test_van_rossum_rejects_invalid_arguments():
    with pytest.raises(ShapeError, match=r"VanRossumLoss: .* one shape.* not \(7, 4, 3\) and \(7, 4\)"):
        nn.VanRossumLoss()(Tensor(REAL), Tensor(REAL[:, :, 0]))
    for tau in (0.0, -1, math.inf, math.nan, "long"):
        with pytest.raises(ArgumentError, match="VanRossumLoss: tau is a finite number above 0"):
            nn.VanRossumLoss(tau)


# --- errors ----------------------------------------------------------------------------------------------------------

KINDS = sorted({kind for kind, _, _ in LOSSES.values()}, key=lambda kind: kind.__name__)
WRONG_LABELS = {
    "too large": (np.array([0, 1, 3, 2]), ArgumentError, r"3 class\(es\), numbered from 0; .*Label 3 is out of range"),
    "negative": (np.array([0, -1, 2, 2]), ArgumentError, r"Label -1 is out of range.* \[0, 3\)"),
    "too few": (np.array([0, 1, 2]), ShapeError, r"labels of shape \(4,\), not \(3,\)"),
    "as many as steps": (np.zeros(T, int), ShapeError, r"labels of shape \(4,\), not \(7,\)\..* x\.swapaxes"),
    "floats": (np.array([0.0, 1.0, 2.0, 0.0]), DTypeError, r"not Float64\. Convert them by labels\.astype\('int64'\)"),
    "booleans": (np.array([True, False, True, True]), DTypeError, r"integers \(4,\), not Bool"),
    "one number": (np.array(1), ShapeError, r"labels of shape \(4,\), not \(\)"),
}


@pytest.mark.parametrize("case", WRONG_LABELS)
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_labels_raise(run, kind, case):
    labels, error, text = WRONG_LABELS[case]
    with pytest.raises(error, match=f"{kind.__name__}: .*{text}"):
        run(kind())(Tensor(SPIKES), Tensor(labels))


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_outputs_raise(kind):
    for x in (SPIKES[0], SPIKES[:0], SPIKES[..., None]):
        with pytest.raises((ShapeError, ArgumentError), match=r"at least one step"):
            kind()(Tensor(x), Tensor(LABELS))


@pytest.mark.parametrize("kind", [nn.MSEMembraneLoss, nn.MSETemporalLoss])
def test_targets_of_another_shape_raise(kind):
    with pytest.raises(ShapeError, match=rf"{kind.__name__}: .*be class numbers \(4,\), or .*shape \(3, 4\)"):
        kind()(Tensor(SPIKES), ops.zeros((3, 4)))


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_reduction_raises(kind):
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: reduction is .* not 'median'"):
        kind(reduction="median")


@pytest.mark.parametrize("kind", [nn.CERateLoss, nn.CECountLoss, nn.MSECountLoss, nn.MSERateLoss])
def test_neurons_must_divide_into_classes(kind):
    with pytest.raises(ShapeError, match=rf"{kind.__name__}: 3 output neurons.* num_classes=2"):
        kind(num_classes=2)(Tensor(SPIKES), Tensor(LABELS))
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: num_classes is an integer of at least 1, not 0"):
        kind(num_classes=0)


@pytest.mark.parametrize("kind", ENTROPIES)
def test_invalid_weights_and_smoothing_raise(kind):
    with pytest.raises(ShapeError, match=rf"{kind.__name__}: weight must .* of 3 classes, not shape \(2,\)"):
        kind(weight=[1.0, 2.0])(Tensor(SPIKES), Tensor(LABELS))
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: label_smoothing is .* in \[0, 1\), not 1\.0"):
        kind(label_smoothing=1.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.MSECountLoss(correct_rate=1.5), r"MSECountLoss: correct_rate must be in \[0, 1\].* not 1.5"),
        (lambda: nn.MSERateLoss(incorrect_rate=-0.1), r"MSERateLoss: incorrect_rate must be in \[0, 1\].* not -0.1"),
        (lambda: nn.TETLoss(mse_weight=2.0), r"TETLoss: mse_weight is a finite number in \[0, 1\], not 2.0"),
        (lambda: nn.CETemporalLoss("invert"), r'inverse is "negate" or "reciprocal", not \'invert\''),
        (lambda: nn.MSETemporalLoss([1, 2], [3]), r"two sequences of one length .*, not \[1, 2\] and \[3\]"),
        (lambda: nn.MSETemporalLoss([1, 2]), r"two sequences of one length .*, not \[1, 2\] and -1.0"),
        (lambda: nn.MSETemporalLoss([], []), r"two sequences of one length"),
        (
            lambda: nn.MSETemporalLoss(tolerance=-1.0),
            r"MSETemporalLoss: tolerance is a finite number of at least 0, not -1.0",
        ),
    ],
)
def test_invalid_arguments_raise(make, text):
    with pytest.raises(ArgumentError, match=text):
        make()


def test_repr_of_losses():
    assert repr(nn.CETemporalLoss("reciprocal")).startswith(
        "CETemporalLoss(\n  inverse='reciprocal', reduction='mean'\n"
    )
    assert repr(nn.MSERateLoss(0.5, num_classes=2)) == (
        "MSERateLoss(correct_rate=0.5, incorrect_rate=0.0, num_classes=2, reduction='mean')"
    )
    assert repr(nn.VanRossumLoss(3)).startswith("VanRossumLoss(\n  tau=3.0\n")
    assert repr(nn.SilenceRegulariser(2)) == "SilenceRegulariser(minimum=2.0, strength=1.0)"
    assert repr(nn.CountBoundRegulariser(2)) == "CountBoundRegulariser(target=2.0, upper=1.0, lower=0.0)"


# --- peers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def snntorch_losses(torch):
    pytest.importorskip("snntorch", reason="snnTorch is not installed: there is nothing to compare with")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import snntorch.functional as theirs
    return theirs


PEERS = {
    "ce_rate_loss": (nn.CERateLoss, {}, {}),
    "ce_count_loss": (nn.CECountLoss, {}, {}),
    "ce_count_loss of populations": (nn.CECountLoss, {"num_classes": 3}, {"num_classes": 3, "population_code": True}),
    "ce_max_membrane_loss": (nn.CEMaxMembraneLoss, {}, {}),
    "mse_count_loss": (
        nn.MSECountLoss,
        {"correct_rate": 0.75, "incorrect_rate": 0.25},
        {"correct_rate": 0.75, "incorrect_rate": 0.25},
    ),
    "mse_count_loss of populations": (
        nn.MSECountLoss,
        {"correct_rate": 0.8, "num_classes": 3},
        {"correct_rate": 0.8, "num_classes": 3, "population_code": True},
    ),
    "mse_membrane_loss": (nn.MSEMembraneLoss, {"on_target": 2.0}, {"on_target": 2.0}),
    "ce_temporal_loss": (nn.CETemporalLoss, {}, {}),
    "ce_temporal_loss reciprocal": (nn.CETemporalLoss, {"inverse": "reciprocal"}, {"inverse": "reciprocal"}),
    "mse_temporal_loss": (nn.MSETemporalLoss, {}, {"off_target": T - 1}),  # snnTorch uses 0 for its default of -1
    "mse_temporal_loss tolerant": (
        nn.MSETemporalLoss,
        {"on_target": 1, "off_target": 5, "tolerance": 2},
        {"on_target": 1, "off_target": 5, "tolerance": 2},
    ),
}


def assert_equal_losses(torch, mine, theirs, x, labels):
    value, found = ops.value_and_grad(mine)(Tensor(x, "float32"), Tensor(labels))
    given = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    expected = theirs(given, torch.tensor(labels))
    expected.sum().backward()
    np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.asnumpy(), given.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.peer
@pytest.mark.parametrize("name", PEERS)
def test_losses_equal_snntorch(torch, snntorch_losses, name):
    kind, arguments, theirs = PEERS[name]
    loss = getattr(snntorch_losses, name.split()[0])(**theirs)
    assert_equal_losses(torch, kind(**arguments), loss, outputs_for(kind, arguments), LABELS)


@pytest.mark.peer
def test_tet_equals_spikingjelly(torch):
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed: there is nothing to compare with")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from spikingjelly.activation_based.functional import temporal_efficient_training_cross_entropy as theirs
    assert_equal_losses(torch, nn.TETLoss(), theirs, REAL, LABELS)
