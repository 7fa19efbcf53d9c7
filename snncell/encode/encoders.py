"""Codes other than latency: rates, changes, phases, populations, currents."""

from __future__ import annotations

from functools import lru_cache

from snncell import nn, ops
from snncell.base.arguments.kinds import Count, Numbers, Positive
from snncell.encode.checks import fitting, number, sequence, step_count, times, within
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.base import as_float, as_int
from snncell.tape.tensor import Tensor, beside


def rate(
    x: Numbers, steps: Count | None = None, gain: float = 1.0, offset: float = 0.0, first_spike_time: int = 0
) -> Tensor:
    """Spikes with a probability: at each step 1 with probability p = clip(gain x + offset, 0, 1), else 0.

    The random numbers are counter-based: after `snncell.set_seed` the same spikes come out on any number of threads, on
    any device, eagerly and jitted. p = 0 never fires and p = 1 always does.

    Args:
        x: (B, ...) in [0, 1]; with steps=None (T, B, ...), a probability for each step.
        steps: T.
        gain, offset: Norse's `f_max` (in 1/s) and `dt` (in s) are gain = dt f_max.
        first_spike_time: before this step there are no spikes.

    Raises:
        ArgumentError: for values outside of [0, 1], and steps or first_spike_time that make no sense.

    Source: spikegen.rate of snnTorch; with gain = 1 PoissonEncoder of SpikingJelly, which also fires where its random
    number equals x, so 0 does once in 2^24 draws.

    Example:
        >>> snncell.encode.rate([[0.0, 1.0]], 3).tolist()
        [[[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 1.0]]]
    """
    x = within(x, "rate")
    over_time = sequence(x, "rate") if steps is None else current(x, steps)
    gain, offset = number(gain, "rate", "gain"), number(offset, "rate", "offset")
    first = as_int(first_spike_time, "rate", "first_spike_time")
    if not 0 <= first < over_time.shape[0]:
        raise ArgumentError(f"rate: first_spike_time lies in [0, {over_time.shape[0]}), not {first}.")
    p = over_time if (gain, offset) == (1.0, 0.0) else ops.clip(over_time * gain + offset, 0.0, 1.0)
    spikes = ops.bernoulli(p)
    return ops.select(ops.less(times(p.shape[0], p[0]), first), 0.0, spikes) if first else spikes


def delta(x: Numbers, threshold: Positive = 0.1, padding: bool = False, off_spike: bool = False) -> Tensor:
    """Spikes where a sequence changes: 1 if x[t] - x[t-1] >= threshold, and -1 if it is <= -threshold (`off_spike`).

    Args:
        x: (T, B, ...), of any size; its first axis is time.
        threshold: positive.
        padding: the first step is compared with itself, so it has no spike; without it, with 0.
        off_spike: whether a fall gives a spike of -1.

    Raises:
        ArgumentError: for a threshold that is not positive.
        ShapeError: for a sequence without steps.

    Source: spikegen.delta of snnTorch.

    Example:
        >>> snncell.encode.delta([0.0, 1.0, 1.0, 0.2, 0.9], 0.5, off_spike=True).tolist()
        [0.0, 1.0, 0.0, -1.0, 1.0]
    """
    x = sequence(x, "delta")
    threshold = number(threshold, "delta", "threshold", 0.0)
    change = x - ops.concat([x[:1] if padding else ops.zeros_like(x[:1]), x[:-1]], 0)
    rises = ops.greater_equal(change, threshold).astype(x.dtype)
    return rises - ops.less_equal(change, -threshold).astype(x.dtype) if off_spike else rises


def phase(x: Numbers, steps: Count, period: Count | None = None) -> Tensor:
    """The binary digits of each value, the largest first: step t has digit k = t mod period + 1, worth 2^-k.

    s[t] = floor(x 2^k) mod 2, so that sum_k s 2^-k is x cut off after `period` digits. 1 has no such digits: it gets
    all ones, worth 1 - 2^-period, which is as far off as any other value may be.

    Args:
        x: (B, ...) in [0, 1].
        steps: T.
        period: the number of digits; the code is repeated. By default T.

    Raises:
        ArgumentError: for values outside of [0, 1], or counts below 1.

    Source: Kim et al., "Deep Neural Networks with Weighted Spikes", Neurocomputing 2018; WeightedPhaseEncoder of
    SpikingJelly, which refuses values above 1 - 2^-period.

    Example:
        >>> snncell.encode.phase([0.25, 0.9375, 1.0], 4).T.tolist()
        [[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    x, length = within(x, "phase"), step_count(steps, "phase")
    digits = length if period is None else as_int(period, "phase", "period")
    if digits < 1:
        raise ArgumentError(f"phase: period is an integer of at least 1, not {period!r}.")
    with beside(x):
        weight = Tensor([2.0 ** (t % digits + 1) for t in range(length)], x.dtype)
    digit = ops.mod(ops.floor(x * weight.reshape((length, *(1,) * x.ndim))), 2.0)
    return ops.select(ops.greater_equal(x, 1.0), 1.0, digit)


def population(
    x: Numbers,
    neurons: Count,
    steps: Count | None = None,
    low: float = 0.0,
    high: float = 1.0,
    width: Positive | None = None,
) -> Tensor:
    """Responses of Gaussian receptive fields: r_n = exp(-(x - c_n)^2 / (2 width^2)).

    The centres c_n lie evenly from `low` to `high`, both included; one neuron has the middle. The default width is
    1 / 1.5 of the distance between centres (of the range, for one neuron), so that neighbours overlap.

    The responses lie in (0, 1], as other encoders take them: `rate(population(x, 8), steps=50)` fires in proportion,
    `latency(population(x, 8), 50, linear=True, normalize=True)` the earlier the better a neuron's centre fits.

    Args:
        x: (B, ...) in [low, high].
        neurons: N, how many receptive fields each value has.
        steps: T, to repeat the responses as currents; without it there is no time axis.
        low, high: the range of the centres.
        width: the standard deviation of a field.

    Returns:
        (B, ..., N), or (T, B, ..., N) with steps; differentiable.

    Raises:
        ArgumentError: for values outside of [low, high], and for a count or width that is not positive.

    Source: Bohte, Kok and La Poutre, "Error-Backpropagation in Temporally Encoded Networks of Spiking Neurons",
    Neurocomputing 2002 (beta = 1.5); PopEncoder of SpikingJelly has these centres, and its `std` is `width`.

    Example:
        >>> print(snncell.encode.population([0.5], 3, width=0.5).asnumpy().round(3))
        [[0.607 1.    0.607]]
    """
    low = number(low, "population", "low")
    high = number(high, "population", "high", low)
    x = within(x, "population", low, high)
    fitting(as_int(neurons, "population", "neurons"), "population", "neurons", x.size)
    with beside(x):
        centres = Tensor(field_centres(neurons, low, high), x.dtype)
    spacing = (high - low) / max(neurons - 1, 1)
    width = spacing / 1.5 if width is None else number(width, "population", "width", 0.0)
    response = ops.exp(-0.5 * ops.square((x.expand_dims(-1) - centres) / width))
    return response if steps is None else current(response, steps)


def field_centres(neurons: Count, low: float = 0.0, high: float = 1.0) -> list[float]:
    """The centres of the receptive fields of `population`, for `population_vector`.

    Raises:
        ArgumentError: for fewer than one neuron.

    Example:
        >>> snncell.encode.field_centres(5)
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if as_int(neurons, "population", "neurons") < 1:
        raise ArgumentError(f"population: neurons is an integer of at least 1, not {neurons!r}.")
    fitting(int(neurons), "population", "neurons")
    if neurons == 1:
        return [(low + high) / 2]
    return [low + (high - low) * n / (neurons - 1) for n in range(neurons)]


def current(x: Numbers, steps: Count) -> Tensor:
    """The input itself at each step, as a current: (B, ...) -> (T, B, ...). Differentiable.

    Raises:
        ArgumentError: for steps below 1.

    Source: direct coding, as in Rueckauer et al., "Conversion of Continuous-Valued Deep Networks to Efficient
    Event-Driven Networks for Image Classification", Frontiers in Neuroscience 2017.

    Example:
        >>> snncell.encode.current([0.3, 2.0], 2).shape
        (2, 2)
    """
    tensor, length = as_float(x, "current"), step_count(steps, "current")
    fitting(length, "current", "steps", tensor.size)
    return ops.broadcast_to(tensor, (length, *tensor.shape))


def lif(
    x: Numbers,
    steps: Count,
    tau: Positive = 10.0,
    v_threshold: Positive = 1.0,
    reset: str | None = "zero",
    decay_input: bool = True,
) -> Tensor:
    """Spikes of a leaky integrate-and-fire neuron for each value, which drives it as a constant current.

    Without noise, and the more often the larger x is: with decay_input and reset="zero" a neuron fires first after
    tau ln(x / (x - v_threshold)) steps, and never if x <= v_threshold.

    Args:
        x: (B, ...), of any size.
        steps: T.
        tau, v_threshold, reset, decay_input: of `nn.LIFNode`; tau in steps.

    Returns:
        0 and 1 in the dtype of x, (T, B, ...); differentiable by the neuron's surrogate.

    Raises:
        ArgumentError: for steps below 1, and what LIFNode refuses.
        ShapeError: for a number without an axis.

    Source: constant_current_lif_encode of Norse.

    Example:
        >>> snncell.encode.lif([0.5, 2.0, 20.0], 8, tau=4.0).asnumpy().sum(0).tolist()
        [0.0, 2.0, 8.0]
    """
    currents = current(x, steps)
    if currents.ndim < 2:
        raise ShapeError("lif: takes (B, ...), not a single number; write [x].")
    spikes: Tensor = _driven(tau, v_threshold, reset, decay_input)(currents)
    return spikes.astype(currents.dtype)


@lru_cache(maxsize=32)
def _driven(tau: Positive, v_threshold: Positive, reset: str | None, decay_input: bool) -> nn.MultiStep:
    """The neuron over time; kept, so that it is traced once."""
    return nn.MultiStep(nn.LIFNode(tau=tau, v_threshold=v_threshold, reset=reset, decay_input=decay_input))
