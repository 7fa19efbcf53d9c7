"""Smooth spike counts of event-driven layers: values, finite differences through random networks, and training."""

import itertools
import math

import numpy as np
import pytest
from test_event_dense import NEURONS

from snncell import Tensor, grad, jit, nn, ops
from snncell.errors import ShapeError

INF = math.inf
WINDOW, WIDTH = 20.0, 4.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_of_a_narrow_width_are_those_of_spikes_and_missing_spikes_have_no_gradient(rng, run, dtype):
    times = rng.uniform(0.0, 40.0, (5, 3, 4)).astype(dtype)
    times[rng.uniform(size=times.shape) < 0.3] = INF
    times[:, 0] = INF
    for width in (1e-4, 2.0, 1e4):
        count = nn.SmoothSpikeCount(WINDOW, width)
        found, gradient = run(ops.value_and_grad(lambda t: count(t).sum()))(Tensor(times))  # noqa: B023
        with np.errstate(over="ignore"):
            shares = 1.0 / (1.0 + np.exp((times.astype(float) - WINDOW) / width))
        np.testing.assert_allclose(found.item(), shares.sum(), rtol=1e-5)
        wanted = -shares * (1.0 - shares) / width
        np.testing.assert_allclose(gradient.asnumpy(), wanted, rtol=1e-3, atol=1e-6 * abs(wanted).max())
        assert (gradient.asnumpy()[times == INF] == 0.0).all()
    exact = nn.SmoothSpikeCount(WINDOW, 1e-4)(Tensor(times)).asnumpy()
    np.testing.assert_allclose(exact, (times < WINDOW).sum(2), atol=1e-3)


def test_times_need_an_axis_of_spikes():
    with pytest.raises(ShapeError, match=r"SmoothSpikeCount: times must be \(B, N, K\).*\(2, 3\).*spike_count"):
        nn.SmoothSpikeCount(1.0, 1.0)(ops.ones((2, 3)))


# --- through networks -------------------------------------------------------------------------------------------------


def draw(rng, dtype):
    """A network of one or two random layers, with a silent neuron in each, and input times."""
    layers, sizes = [], [4, *rng.integers(3, 7, int(rng.integers(1, 3)))]
    for fan_in, fan_out in itertools.pairwise(sizes):
        weights = rng.normal(12.0, 6.0, (fan_out, fan_in)) / fan_in
        weights[0] = -1.0
        recurrent = rng.normal(0.0, 1.0, (fan_out, fan_out))
        recurrent[0] = 0.0
        options = {
            "weight_init": Tensor(weights, dtype), "dtype": dtype, "spikes": int(rng.integers(2, 7)), "t_max": 90.0,
            "recurrent_init": Tensor(recurrent, dtype) if rng.uniform() < 0.5 else None,
        }  # fmt: skip
        if rng.uniform() < 0.5:
            layers.append(nn.EventPropLIF(fan_in, fan_out, **options))
        else:
            layers.append(nn.EventDense(NEURONS["LIF"](), fan_in, fan_out, step=1.0, **options))
    times = rng.uniform(0.0, 25.0, (3, 4, 2))
    times[rng.uniform(size=times.shape) < 0.15] = INF
    return nn.SequentialCell(*layers), times.astype(dtype)


def loss_of(net, times):
    """The cross entropy of the counts of the last layer, and a regulariser of the counts of the first."""
    count, first = nn.SmoothSpikeCount(WINDOW, WIDTH), net[0](times)
    scores = first
    for layer in list(net)[1:]:
        scores = layer(scores)
    regulariser = nn.CountBoundRegulariser(1.3, upper=0.5, lower=0.7)
    loss = nn.CrossEntropyLoss()(count(scores), Tensor([0, 1, 2]))
    return loss + regulariser(count(first).expand_dims(0))


def gradients_of(net, times):
    of_times, of_all = jit(grad(lambda t: loss_of(net, t), 0, net.trainable_params()))(Tensor(times))
    return [x.asnumpy() for x in (of_times, *of_all)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_counts_equal_finite_differences(seed):
    """Gradients in float64 equal finite differences, and those in float32 equal these."""
    net, times = draw(np.random.default_rng(seed), "float64")
    gradients, parameters = gradients_of(net, times), net.trainable_params()
    assert all(np.isfinite(x).all() for x in gradients) and (gradients[1][0] == 0.0).all()
    rng, kept = np.random.default_rng(seed), [p.asnumpy().copy() for p in parameters]
    for place, gradient in enumerate(gradients):
        direction, ends = rng.standard_normal(gradient.shape), []
        for step in (1e-6, -1e-6):
            if place:
                parameters[place - 1].set_data(Tensor(kept[place - 1] + step * direction))
            ends.append(loss_of(net, Tensor(times if place else times + step * direction)).item())
        if place:
            parameters[place - 1].set_data(Tensor(kept[place - 1]))
        found = np.where(np.isfinite(times), direction * gradient, 0.0) if not place else direction * gradient
        np.testing.assert_allclose(found.sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-7)
    single, times = draw(np.random.default_rng(seed), "float32")
    for one, other in zip(gradients_of(single, times), gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-2 * abs(other).max() + 1e-5)
