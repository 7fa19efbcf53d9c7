"""Learning-rate finder: raise the rate from step to step until the loss diverges."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from snncell.amp import LossScaler
from snncell.base.arguments.kinds import Count, Own, Positive
from snncell.cell.cell import Cell
from snncell.cell.modes import phases
from snncell.data import Loader
from snncell.errors import ArgumentError
from snncell.nn.container import CellList
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.states import put_aside
from snncell.ops.random import read_key, restore_key
from snncell.tape.parameter import assign_all
from snncell.tape.tensor import Tensor
from snncell.train.batches import as_batch, as_batches
from snncell.train.finite import as_scaler
from snncell.train.fit import check_optimiser
from snncell.train.state import begin_pass, state_of, weights_of
from snncell.train.steps import clip_by_both, training_step

__all__ = ["RateSearch", "find_learning_rate"]

Array = np.ndarray[Any, Any]
DIVERGED = 4.0  # the search ends when the loss exceeds this multiple of the smallest loss


@dataclass(frozen=True)
class RateSearch:
    """The result of `find_learning_rate`; `plot.learning_rate_search` draws it.

    rates: the learning rate of each step, (n,), of the first group; n is less than `steps` if the loss diverged.
    losses: the loss of each step's batch, before the step, (n,).
    smoothed: the smoothed losses, (n,).
    suggestion: the rate where the loss falls most steeply; None if it never falls.
    diverged: whether the loss grew to four times its smallest value, or was not finite, before the last step.
    """

    rates: Array
    losses: Array
    smoothed: Array
    suggestion: float | None
    diverged: bool


def find_learning_rate(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Annotated[Optimizer, Own()],
    data: Any,
    lowest: Positive = 1e-6,
    highest: Positive = 1.0,
    steps: Count = 100,
    *,
    batch_size: Count = 64,
    clip_norm: Positive | None = None,
    clip_value: Positive | None = None,
    loss_scale: Annotated[LossScaler | float | None, Own()] = None,
    smoothing: Positive = 3.0,
) -> RateSearch:
    """Learning-rate range test: raise the rate exponentially, and find where the loss falls most steeply.

    rate_i = lowest (highest / lowest)^(i / (steps - 1))

    smoothed_i = sum_j k(i - j) loss_j / sum_j k(i - j),   k(n) = e^(-n^2 / (2 smoothing^2))

    The window is symmetric, because a one-sided average lags behind the loss. The suggestion is the rate with the
    steepest fall: there the derivative of the smoothed loss with respect to log(rate) is most negative. It lies after
    the initial plateau, in which the loss falls by less than a tenth of its whole fall, and before the smallest loss.
    The search ends when an average of the last losses is four times the smallest one. Use the suggestion as a starting
    point, and look at the plot if the loss falls only a little.

    Afterwards it restores everything bit for bit: weights, statistics, moments, step and rate, states of each
    `Stateful`, training mode, snncell's random numbers, and the position of a `data.Loader`.

    Args:
        net, loss, optimiser, data, batch_size, clip_norm, clip_value, loss_scale: as for `fit`. Data are repeated as
            needed. The optimiser's groups keep the ratios of their rates; a schedule counts with its present rate.
        lowest, highest: the rates of the first and of the last step.
        steps: the number of steps, at least three.
        smoothing: the width of the window, in steps.
    Source: Smith, "Cyclical learning rates for training neural networks", WACV 2017.
    Example:
        >>> snncell.set_seed(0)
        >>> x = ops.uniform((512, 2))
        >>> net, data = nn.Dense(2, 1), (x, x.sum(1, keepdims=True))
        >>> sgd = nn.SGD(net.trainable_params(), 0.1)
        >>> found = snncell.train.find_learning_rate(net, nn.MSELoss(), sgd, data, highest=10.0)
        >>> 0.01 < found.suggestion < 2.0, found.diverged, sgd.global_step.item()
        (True, True, 0)
    """
    if not lowest < highest:
        raise ArgumentError(f"find_learning_rate: lowest must be below highest, not {lowest!r} and {highest!r}.")
    if steps < 3:
        raise ArgumentError(f"find_learning_rate: steps must be at least 3, not {steps!r}.")
    check_optimiser(net, loss, optimiser, "find_learning_rate")
    batches = as_batches(data, batch_size, True, "find_learning_rate: data")
    if batches is None:
        raise ArgumentError("find_learning_rate: there are no data to train on. Pass (inputs, target), or batches.")
    probe, shares = _with_rates_to_set(optimiser)
    scaler = copy.deepcopy(as_scaler(loss_scale, "find_learning_rate"))  # so that the user's scale does not change
    step = training_step(net, loss, probe, clip_by_both(clip_norm, clip_value), None, loss_scale=scaler)
    rates = lowest * (highest / lowest) ** (np.arange(steps) / (steps - 1))
    losses: list[float] = []
    total = weight = 0.0  # of an exponential average, with bias correction for its start at 0
    least = math.inf
    with _as_before(net, loss, optimiser, batches):
        for rate, batch in zip(rates, _endless(batches, (net, loss)), strict=False):
            for number, share in enumerate(shares):
                probe.groups[number].set_learning_rate(float(rate * share), "find_learning_rate")
            losses.append(float(step(*batch)["loss"]))
            total, weight = 0.9 * total + losses[-1], 0.9 * weight + 1.0
            smooth = total / weight
            if not smooth <= DIVERGED * least:  # also true for NaN
                break
            least = min(least, smooth)
    return _result(rates, np.array(losses), steps, smoothing)


# --- the search -------------------------------------------------------------------------------------------------------


def _with_rates_to_set(optimiser: Optimizer) -> tuple[Optimizer, list[float]]:
    """A copy of the optimiser with constant rates and the same moments, and its rates relative to the first."""
    now = [float(rate) for rate in optimiser.rates()]
    if now[0] == 0.0 and any(now):
        raise ArgumentError(
            f"find_learning_rate: the learning rate of the optimiser's first group is 0, so the rates of the others, "
            f"{now[1:]}, cannot be scaled with it. Put a group that learns first."
        )
    probe, groups = copy.copy(optimiser), optimiser.groups
    # An optimiser refuses to set its groups, because jitted steps depend on them. The copy has no step yet.
    Cell.__setattr__(probe, "groups", CellList([groups[number].without_schedule() for number in range(len(groups))]))
    return probe, [rate / now[0] if now[0] else 1.0 for rate in now]


def _endless(batches: Any, parts: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    while True:
        begin_pass(parts, training=True)
        empty = True
        for batch in batches:
            empty = False
            yield as_batch(batch, "find_learning_rate: data")
        if empty:
            raise ArgumentError("find_learning_rate: data give no batch. Pass arrays or batches with samples.")


@contextmanager
def _as_before(net: Cell, loss: Any, optimiser: Optimizer, batches: Any) -> Iterator[None]:
    """Context manager: restore everything that the search trains."""
    parameters = [*weights_of(net, loss).values(), *state_of(optimiser).values()]
    values = [(p, Tensor(np.array(p.asnumpy()))) for p in parameters]
    key, place = np.array(read_key()), batches.state() if isinstance(batches, Loader) else None
    with phases(net, loss), put_aside(net, loss):
        try:
            yield
        finally:
            assign_all(values, "find_learning_rate", in_range=True)
            restore_key(key)
            if place is not None:
                batches.resume(place)


def _result(rates: Array, losses: Array, steps: int, smoothing: float) -> RateSearch:
    finite = len(losses) if np.isfinite(losses).all() else int(np.argmin(np.isfinite(losses)))
    smoothed = np.full(len(losses), np.nan)
    number = np.arange(finite)
    weights = np.exp(-0.5 * ((number[:, None] - number) / smoothing) ** 2)
    smoothed[:finite] = weights @ losses[:finite] / weights.sum(1)
    rates, suggestion = rates[: len(losses)], None
    low = int(np.argmin(smoothed[:finite])) if finite else 0
    if low > 0:
        fall = smoothed[: low + 1]
        # Ignore slopes on the plateau before the fall, which are noise of the batches.
        plateau = fall >= fall[-1] + 0.9 * (fall.max() - fall[-1])
        first = int(np.flatnonzero(plateau)[-1])
        suggestion = float(rates[first + int(np.argmin(np.gradient(fall, np.log(rates[: low + 1]))[first:]))])
    return RateSearch(rates, losses, smoothed, suggestion, len(losses) < steps or finite < len(losses))
