"""The cause that `fit` names for a loss or weights that are not finite: the learning rate, or an infinite gradient."""

import numpy as np
import pytest
from random_cases import random_cases

from snncell import Parameter, Tensor, nn, ops, train
from snncell.errors import TrainingError


class Growing(nn.Cell):
    """A recurrence whose values stay small, while its gradient grows by `factor` at each step back in time."""

    def __init__(self, factor):
        super().__init__()
        self.factor, self.weight = factor, Parameter(Tensor(np.ones(3, np.float32)), name="weight")

    def construct(self, x):
        def step(state, now):
            state = self.factor * (state - ops.stop_gradient(state)) + now * self.weight
            return state, state

        return ops.scan(step, ops.zeros(x.shape[1:]), x)[1].sum(0)


def first_sum(out, target):
    return out.sum()


def last_infinite_step(steps, factor):
    """The last time step whose gradient, counted backwards in float32, is infinite; -1 for none."""
    gradient = np.float32(0)
    for step in reversed(range(steps)):
        with np.errstate(over="ignore"):
            gradient = np.float32(1) + np.float32(factor) * gradient
        if not np.isfinite(gradient):
            return step
    return -1


def message_of(net, loss, data, rate, epochs=2, **options):
    optimiser = nn.SGD(net.trainable_params(), rate)
    with pytest.raises(TrainingError) as caught:
        train.fit(net, loss, optimiser, data, epochs, accuracy=None, progress=False, **options)
    return str(caught.value)


@pytest.mark.sampled(3)
@random_cases(6)
def test_the_time_step_is_named_at_which_the_backward_pass_overflows(seed):
    rng = np.random.default_rng(seed)
    factor, batch = float(2.0 ** rng.integers(8, 30)), int(rng.integers(2, 6))
    steps = int(rng.integers(150 // np.log2(factor) + 2, 40))
    step = last_infinite_step(steps, factor)
    assert step >= 0  # or this would be another test
    count = batch * int(rng.integers(1, 4))  # of one batch an epoch has a finite loss, and its weights are refused
    x, y = np.ones((steps, count, 3), np.float32), np.zeros(count, np.int32)
    data = train.Batches(x, y, batch_size=batch, time_first=True)
    options = {"clip_norm": 1.0} if rng.random() < 0.5 else {}
    message = message_of(Growing(factor), first_sum, data, 1e-8, **options)
    assert f"before any clipping: the backward pass overflows at time step {step} of {steps}." in message
    assert "Lower the learning rate" not in message


def test_an_infinite_gradient_without_a_time_axis_is_named_without_a_step():
    def steep(out, target):
        return ops.sqrt(out.sum())  # its gradient at 0 is infinite

    net = nn.Dense(3, 1, weight_init="zeros", has_bias=False)
    data = (np.ones((8, 3), np.float32), np.zeros((8, 1), np.float32))
    message = message_of(net, steep, data, 1e-8)
    assert "its gradient is infinite or NaN for batch 0, before any clipping. A lower learning rate" in message
    assert not np.isfinite(net.weight.asnumpy()).all()  # the search leaves the weights as the training did


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_rate_that_is_too_large_is_still_blamed_for_a_loss_that_is_not_finite(clip):
    net = nn.SequentialCell(nn.Dense(3, 4, weight_init="ones"), nn.Dense(4, 1, weight_init="ones"))
    x, y = np.ones((32, 3), np.float32), np.zeros((32, 1), np.float32)
    message = message_of(net, nn.MSELoss(), (x, y), 1e30, batch_size=4, clip_norm=clip)
    limit = "" if clip else ", or limit the gradients (clip_norm=1.0)"
    assert f". Lower the learning rate{limit}." in message
