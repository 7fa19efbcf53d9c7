"""Spike codes: encoders from values to spikes, (B, ...) -> (T, B, ...), and decoders back to values.

Encoders: `rate`, `latency`, `delta`, `phase`, `population`, `field_centres`, `current`, `lif`. Unless their docstring
says otherwise, they return 0 and 1 in the dtype of x, without a gradient. They check the range of x, except in `jit`.

Decoders: `spike_count`, `firing_rate`, `first_spike_time`, `population_vector`, `last_membrane`, `mean_membrane` and
`max_membrane`. They take spikes or potentials (T, B, ...), are differentiable, and raise a ShapeError for sequences
without steps. You can pass `lengths` (B,), the number of steps of each sample, by default T. Later steps are padding
and do not count.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.kinds import Count, ExtendedReal, Numbers, Positive, Within
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.nn.losses.spike_times import times_until_end
from snncell.nn.time.axis import length_mask, mean_over_time, step_numbers, sum_over_time, zero_after_end
from snncell.ops.base import MEMORY, as_float, as_tensor
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor, on_device_of

__all__ = [
    "current", "delta", "field_centres", "firing_rate", "first_spike_time", "last_membrane", "latency", "lif",
    "max_membrane", "mean_membrane", "phase", "population", "population_vector", "rate", "spike_count",
]  # fmt: skip


def rate(
    x: Numbers, steps: Count | None = None, gain: float = 1.0, offset: float = 0.0, first_spike_time: int = 0
) -> Tensor:
    """Rate coding: a spike at each step with probability p = clip(gain x + offset, 0, 1).

    Use it as a simple default for static inputs, such as images; it needs many steps to be precise. After
    `snncell.set_seed` the spikes are the same for any number of threads, on any device, with and without `jit`.

    Args:
        x: (B, ...) in [0, 1]; with steps=None (T, B, ...), a probability for each step.
        steps: T.
        gain, offset: applied to x. For Norse's `f_max` (in 1/s) and `dt` (in s), pass gain = dt * f_max.
        first_spike_time: no spikes occur before this step.
    Source: spikegen.rate of snnTorch. With gain = 1, SpikingJelly's PoissonEncoder is almost the same: it fires if
    random <= x, snncell if random < x. So in SpikingJelly an input of 0 fires once in 2^24 draws.
    Example:
        >>> snncell.encode.rate([[0.0, 1.0]], 3).tolist()
        [[[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 1.0]]]
    """
    x = _check_within(x, "rate")
    over_time = _check_sequence(x, "rate") if steps is None else current(x, steps)
    first = first_spike_time
    if not 0 <= first < over_time.shape[0]:
        raise ArgumentError(f"rate: first_spike_time must be in [0, {over_time.shape[0]}), not {first}.")
    p = over_time if (gain, offset) == (1.0, 0.0) else ops.clip(over_time * gain + offset, 0.0, 1.0)
    spikes = ops.bernoulli(p)
    return ops.select(ops.less(step_numbers(p), first), 0.0, spikes) if first else spikes


def delta(x: Numbers, threshold: Positive = 0.1, padding: bool = False, off_spike: bool = False) -> Tensor:
    """Delta modulation: 1 at each step at which x rises by a threshold or more, x[t] - x[t-1] >= threshold.

    Use it for audio and other signals.

    Args:
        x: (T, B, ...), any values.
        threshold: the smallest change that gives a spike.
        padding: True compares the first step with itself, so that it has no spike; False compares it with 0.
        off_spike: True also gives a spike of -1 if x[t] - x[t-1] <= -threshold.
    Source: spikegen.delta of snnTorch.
    Example:
        >>> snncell.encode.delta([0.0, 1.0, 1.0, 0.2, 0.9], 0.5, off_spike=True).tolist()
        [0.0, 1.0, 0.0, -1.0, 1.0]
    """
    x = _check_sequence(x, "delta")
    change = x - ops.concat([x[:1] if padding else ops.zeros_like(x[:1]), x[:-1]], 0)
    rises = ops.greater_equal(change, threshold).astype(x.dtype)
    return rises - ops.less_equal(change, -threshold).astype(x.dtype) if off_spike else rises


def phase(x: Numbers, steps: Count, period: Count | None = None) -> Tensor:
    """Phase coding (weighted spikes): the binary digits of each value over time, the most significant digit first.

        s[t] = floor(x 2^k) mod 2,  k = t mod period + 1

    Step t has the weight 2^-k, so sum_k s 2^-k is x, rounded down to `period` digits. Use it to transmit precise values
    in few steps. x = 1 has no such digits, so it gets all ones, the digits of 1 - 2^-period.

    Args:
        x: (B, ...) in [0, 1].
        steps: T.
        period: the number of digits, after which the code repeats; None is T.
    Source: Kim et al., "Deep Neural Networks with Weighted Spikes", Neurocomputing 2018; WeightedPhaseEncoder of
    SpikingJelly, which raises an error for values above 1 - 2^-period.
    Example:
        >>> snncell.encode.phase([0.25, 0.9375, 1.0], 4).T.tolist()
        [[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """
    x, digits = _check_within(x, "phase"), steps if period is None else period
    _refuse_too_many(steps, "phase", "steps")
    with on_device_of(x):
        weight = Tensor([2.0 ** (t % digits + 1) for t in range(steps)], x.dtype)
    digit = ops.mod(ops.floor(x * weight.reshape((steps, *(1,) * x.ndim))), 2.0)
    return ops.select(ops.greater_equal(x, 1.0), 1.0, digit)


def population(
    x: Numbers,
    neurons: Count,
    steps: Count | None = None,
    low: float = 0.0,
    high: float = 1.0,
    width: Positive | None = None,
) -> Tensor:
    """Population coding: responses of Gaussian receptive fields, r_n = exp(-(x - c_n)^2 / (2 width^2)).

    Use it for scalar inputs, because several neurons resolve a value better than one. The responses are in (0, 1], so
    you can pass them to other encoders. For example, the closer x is to the centre of a neuron, the more often it fires
    with `rate(population(x, 8), steps=50)`, and the earlier with
    `latency(population(x, 8), 50, linear=True, normalize=True)`.

    Args:
        x: (B, ...) in [low, high].
        neurons: N, the number of receptive fields per value.
        steps: T, to repeat the responses over time as currents; None adds no time axis.
        low, high: the first and the last centre. The centres are equally spaced; a single neuron has (low + high) / 2.
        width: standard deviation of a field. None is the distance of two centres / 1.5; for N = 1 (high - low) / 1.5.
    Returns: (B, ..., N), or (T, B, ..., N) with steps; differentiable.
    Source: Bohte, Kok and La Poutre, "Error-Backpropagation in Temporally Encoded Networks of Spiking Neurons",
    Neurocomputing 2002, with beta = 1.5; PopEncoder of SpikingJelly, whose `std` is `width`.
    Example:
        >>> print(snncell.encode.population([0.5], 3, width=0.5).asnumpy().round(3))
        [[0.607 1.    0.607]]
    """
    if not low < high:
        raise ArgumentError(f"population: high must be a finite number above {low:g}, not {high!r}.")
    x = _check_within(x, "population", low, high)
    _refuse_too_many(neurons, "population", "neurons", x.size)
    with on_device_of(x):
        centres = Tensor(field_centres(neurons, low, high), x.dtype)
    spacing = (high - low) / max(neurons - 1, 1)
    width = spacing / 1.5 if width is None else width
    response = ops.exp(-0.5 * ops.square((x.expand_dims(-1) - centres) / width))
    return response if steps is None else current(response, steps)


def field_centres(neurons: Count, low: float = 0.0, high: float = 1.0) -> list[float]:
    """The centres of the receptive fields of `population`, to decode by `population_vector`.

    Example:
        >>> snncell.encode.field_centres(5)
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    _refuse_too_many(neurons, "population", "neurons")
    if neurons == 1:
        return [(low + high) / 2]
    return [low + (high - low) * n / (neurons - 1) for n in range(neurons)]


def current(x: Numbers, steps: Count) -> Tensor:
    """Direct coding: repeat the input at each step as a current, (B, ...) -> (T, B, ...). Differentiable.

    Use it for images: the first layer then learns the encoding, and few steps suffice.
    Source: Rueckauer et al., "Conversion of Continuous-Valued Deep Networks to Efficient Event-Driven Networks for
    Image Classification", Frontiers in Neuroscience 2017.
    Example:
        >>> snncell.encode.current([0.3, 2.0], 2).shape
        (2, 2)
    """
    tensor = as_float(x, "current")
    _refuse_too_many(steps, "current", "steps", max(tensor.size, 1))
    return ops.broadcast_to(tensor, (steps, *tensor.shape))


def lif(
    x: Numbers,
    steps: Count,
    tau: Positive = 10.0,
    v_threshold: Positive = 1.0,
    reset: str | None = "zero",
    decay_input: bool = True,
) -> Tensor:
    """LIF coding: each value is the constant current of a LIF neuron, which fires more often for larger x.

    If x <= v_threshold, there is no spike. With decay_input=True, the potential after k steps without a spike is
    x (1 - (1 - 1 / tau)^k). So for tau > 1 the first spike comes at index n - 1, where n is the smallest integer above
    ln(x / (x - v_threshold)) / -ln(1 - 1 / tau), for long tau about tau ln(x / (x - v_threshold)).

    Args:
        x: (B, ...), any values.
        steps: T.
        tau, v_threshold, reset, decay_input: see `nn.LIFNode`; tau is in steps.
    Returns: 0 and 1 in the dtype of x, (T, B, ...); differentiable by means of the neuron's surrogate.
    Source: constant_current_lif_encode of Norse.
    Example:
        >>> snncell.encode.lif([0.5, 2.0, 20.0], 8, tau=4.0).asnumpy().sum(0).tolist()
        [0.0, 2.0, 8.0]
    """
    currents = current(x, steps)
    if currents.ndim < 2:
        raise ShapeError("lif: x must be (B, ...), not a single number; write [x].")
    spikes: Tensor = _lif_encoder(tau, v_threshold, reset, decay_input)(currents)
    return spikes.astype(currents.dtype)


@lru_cache(maxsize=32)  # to trace each neuron only once
def _lif_encoder(tau: Positive, v_threshold: Positive, reset: str | None, decay_input: bool) -> nn.MultiStep:
    return nn.MultiStep(nn.LIFNode(tau=tau, v_threshold=v_threshold, reset=reset, decay_input=decay_input))


def latency(
    x: Numbers,
    steps: Count | None = None,
    linear: bool = False,
    normalize: bool = False,
    threshold: Annotated[float, Within(0.0, 1.0, open_low=True, open_high=True)] = 0.01,
    tau: Positive = 1.0,
    first_spike_time: int = 0,
    clip: bool = False,
    bypass: bool = False,
    convention: Literal["snntorch", "spikingjelly"] = "snntorch",
) -> Tensor:
    """Latency coding (time to first spike): one spike per value, at step round(t), earlier for larger values.

    convention="snntorch", with theta = threshold, t0 = first_spike_time and x' = max(x, theta + 1e-7):

        t = t0 + tau ln(x' / (x' - theta))              when a leaky integrator reaches theta
        t = t0 + min(tau (1 - x), tau (1 - theta))      linear

    With normalize, the first formula is scaled so that the last spike of the whole input comes at steps - 1; in the
    second, tau is replaced by steps - 1 - t0. convention="spikingjelly" always fills all steps:

        t = steps - 1 - ln(a x + 1), a = e^(steps - 1) - 1
        t = (steps - 1) (1 - x)                         linear

    Use it if few spikes must carry the information. Combine normalize=True with linear=True, because snnTorch's
    normalised logarithm puts most spikes early. For example, with steps=8 and x containing 0 and 0.1, 0 fires at step
    7, but 0.1 already at step 0. `round` rounds halves to the even number.

    Args:
        x: (B, ...) in [0, 1].
        steps: T. With bypass=True and normalize=False it can be None: the latest spike is then in the last step.
        linear: whether t falls linearly with x.
        normalize: whether to scale the times to all steps.
        threshold: theta, in (0, 1); values at or below it fire last.
        tau: time constant in steps.
        first_spike_time: the earliest step of a spike.
        clip: True silences values below the threshold.
        bypass: True drops spikes after the last step, as `snncell.jit` always does; False raises an ArgumentError.
    Source: spikegen.latency of snnTorch; LatencyEncoder of SpikingJelly.
    Example:
        >>> spikes = snncell.encode.latency([0.02, 0.5, 1.0], 5, linear=True, normalize=True)
        >>> ops.argmax(spikes, 0).tolist()  # when each fires
        [4, 2, 0]
    """
    x = _check_within(x, "latency")
    if convention == "spikingjelly":
        if (normalize, threshold, tau, first_spike_time, clip, bypass) != (False, 0.01, 1.0, 0, False, False):
            raise ArgumentError(
                'latency: convention="spikingjelly" takes only linear and steps, because it always fills all steps. '
                'Leave the other arguments out, or use convention="snntorch".'
            )
        count = _latency_steps(steps, optional=False)
        step = ops.round(_spikingjelly_times(x, count - 1, linear))
        return ops.equal(step, step_numbers(x, count, x.ndim + 1)).astype(x.dtype)
    count, first = _latency_steps(steps, bypass and not normalize), first_spike_time
    if first < 0 or (steps is not None and first >= count):
        raise ArgumentError(f"latency: first_spike_time must be in [0, steps) with steps = {steps}, not {first}.")
    step = ops.round(_snntorch_times(x, threshold, tau, linear, count - 1 - first if normalize else None) + first)
    count = count if bypass and steps else _check_steps(step, steps, count)
    spikes = ops.equal(step, step_numbers(x, count, x.ndim + 1)).astype(x.dtype)
    return ops.select(ops.less(x, threshold), 0.0, spikes) if clip else spikes


def _spikingjelly_times(x: Tensor, last: int, linear: bool) -> Tensor:
    """SpikingJelly's times, from 0 to `last`: -ln(r) with r = x + (1 - x) e^-last, which does not overflow."""
    if linear:
        return (1.0 - x) * float(last)
    rest = x + (1.0 - x) * math.exp(-last)
    positive = rest > 0.0  # false if x is 0 and e^-last underflows to 0
    return ops.select(positive, ops.minimum(-ops.log(ops.select(positive, rest, 1.0)), float(last)), float(last))


def _snntorch_times(x: Tensor, threshold: Positive, tau: Positive, linear: bool, last: int | None) -> Tensor:
    """snnTorch's times after first_spike_time; unless `last` is None, scaled to end at `last`."""
    if linear:
        tau = tau if last is None else last
        return ops.minimum((x - 1.0) * -tau, -tau * (threshold - 1.0))
    above = ops.maximum(x, threshold + 1e-7)  # as snnTorch does
    t = ops.log(above / (above - threshold)) * tau
    return t if last is None else t * last / ops.max(t)


def _latency_steps(steps: Count | None, optional: bool) -> int:
    """The number of steps, or 0 if the latest spike determines it."""
    if steps is None and not optional:
        raise ArgumentError(
            "latency: pass steps. You can only leave it out with bypass=True and normalize=False in snnTorch's "
            "convention; the number of steps is then chosen so that the latest spike is in the last step."
        )
    _refuse_too_many(steps or 0, "latency", "steps")
    return steps or 0


def _check_steps(step: Tensor, steps: Count | None, count: int) -> int:
    """The number of steps, after checking that each spike is in one of them; for steps=None, the latest spike + 1."""
    if TRACING.trace is not None and steps is None:
        raise ArgumentError("latency: pass steps, because a jitted function does not know the time of the last spike.")
    if TRACING.trace is not None or not step.size:
        return max(count, 1)
    with recording_on(None):
        last = int(ops.max(step).item())
    if steps is not None and last >= count:
        raise ArgumentError(
            f"latency: the latest spike would come at step {last}, but steps={count} ends at step {count - 1}. Use "
            f"normalize=True to fit the times into the steps, a smaller tau, more steps, or bypass=True to drop late "
            f"spikes."
        )
    return count or last + 1


# --- decoders ---------------------------------------------------------------------------------------------------------


def _zero_padding(x: Any, lengths: Any, who: str) -> Tensor:
    return zero_after_end(_check_sequence(x, who), lengths, who)


def spike_count(spikes: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """Spike count: (T, B, ...) -> (B, ...).

    Example:
        >>> snncell.encode.spike_count([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).tolist()
        [2.0, 1.0]
    """
    return sum_over_time(_zero_padding(spikes, lengths, "spike_count"))


def firing_rate(spikes: Numbers, dt: Positive = 1.0, *, lengths: Numbers | None = None) -> Tensor:
    """Firing rate per step, or per second if dt is the step in seconds: (T, B, ...) -> (B, ...); 0 without steps.

    Example:
        >>> snncell.encode.firing_rate([[1.0], [0.0], [1.0], [0.0]], dt=0.001).tolist()
        [500.0]
    """
    mean = mean_over_time(_check_sequence(spikes, "firing_rate"), lengths, "firing_rate")
    return mean if dt == 1.0 else mean * (1.0 / dt)


def first_spike_time(spikes: Numbers, silent: ExtendedReal | None = None, *, lengths: Numbers | None = None) -> Tensor:
    """Time to first spike of each neuron, in steps from 0: (T, B, ...) -> (B, ...).

    The gradient is that of `nn.FirstSpikeTime`, a heuristic: more output at the step of the spike makes it earlier.

    Args:
        spikes: a value above 0 is a spike.
        silent: the time of a silent neuron; None is the last step of the sample, T - 1 without lengths.
    Example:
        >>> snncell.encode.first_spike_time([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).tolist()
        [1.0, 2.0]
    """
    tensor = _zero_padding(spikes, lengths, "first_spike_time")
    first = nn.FirstSpikeTime(silent)
    if lengths is None or silent is None:
        return times_until_end(first, tensor, lengths)
    counts = as_tensor(lengths, "first_spike_time")._data
    if isinstance(counts, np.ndarray) and counts.size and not silent >= counts.max() - 1:  # not traced or on a GPU
        raise ArgumentError(
            f"first_spike_time: silent={silent!r} is before the last of {counts.max()} steps; it must be at least "
            f"{counts.max() - 1}."
        )
    time = times_until_end(nn.FirstSpikeTime(), tensor, lengths)
    # Change only the value, and keep the gradient at the last step.
    return ops.select(ops.any(ops.greater(tensor, 0.0), 0), time, time - ops.stop_gradient(time) + float(silent))


def population_vector(spikes: Numbers, centres: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """Population vector: the mean of the neurons' centres, weighted by their spike counts.

        y = sum_n k_n c_n / sum_n k_n, with k_n the number of spikes of neuron n and c_n its centre

    It decodes `population`, or preferred directions. Without spikes it is the mean of the centres, without a gradient.

    Args:
        spikes: (T, B, ..., N).
        centres: (N,), for example from `field_centres`, or (N, D) for directions in D dimensions.
    Returns: (B, ...), or (B, ..., D) for directions.
    Source: Georgopoulos, Schwartz and Kettner, "Neuronal population coding of movement direction", Science 1986.
    Example:
        >>> snncell.encode.population_vector([[[1.0, 1.0, 0.0]], [[0.0, 1.0, 1.0]]], [0.0, 0.5, 1.0]).tolist()
        [0.5]
    """
    counts = _zero_padding(spikes, lengths, "population_vector").sum(0)
    with on_device_of(counts):
        if isinstance(centres, (list, tuple)):
            centres = Tensor(centres, "float64")
        c = as_tensor(centres, "population_vector", "centres").astype(counts.dtype)
    if c.ndim not in (1, 2) or not counts.ndim or c.shape[0] != counts.shape[-1]:
        raise ShapeError(
            f"population_vector: spikes (T, B, ..., N) with {counts.shape[-1:]} neurons need centres (N,) or (N, D), "
            f"not {c.shape}."
        )
    total = counts.sum(-1, keepdims=True)
    fired = ops.greater(total, 0.0)
    share = ops.select(fired, counts, 1.0) / ops.select(fired, total, float(c.shape[0]))
    return (share * c).sum(-1) if c.ndim == 1 else ops.matmul(share, c)


def last_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The potential after the last step: (T, B, ...) -> (B, ...); 0 for a sample of length 0.

    Example:
        >>> snncell.encode.last_membrane([[1.0], [6.0], [2.0]]).tolist()
        [2.0]
    """
    tensor = _zero_padding(v, lengths, "last_membrane")
    if lengths is None:
        return tensor[-1]
    valid = length_mask(tensor, lengths, "last_membrane").astype(tensor.dtype)
    # The mask of a sample falls from 1 to 0 after its last step.
    after = ops.concat([valid[1:], ops.zeros_like(valid[:1])])
    return ops.select(ops.greater(valid, after), tensor, 0.0).sum(0)


def mean_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The mean potential over time: (T, B, ...) -> (B, ...); 0 for a sample of length 0.

    Example:
        >>> snncell.encode.mean_membrane([[1.0], [2.0], [6.0]]).tolist()
        [3.0]
    """
    return mean_over_time(_check_sequence(v, "mean_membrane"), lengths, "mean_membrane")


def max_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The maximum potential over time: (T, B, ...) -> (B, ...); -inf for a sample of length 0.

    If several steps have the same maximum, the gradient is divided equally among them.

    Example:
        >>> snncell.encode.max_membrane([[1.0], [6.0], [2.0]]).tolist()
        [6.0]
    """
    tensor = _check_sequence(v, "max_membrane")
    if lengths is not None:
        tensor = ops.select(length_mask(tensor, lengths, "max_membrane"), tensor, -np.inf)
    return ops.max(tensor, 0)


# --- checks of arguments ----------------------------------------------------------------------------------------------


def _check_within(x: Any, who: str, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Convert `x` to a Tensor of floats; check that all are in [low, high], unless it is traced."""
    tensor = as_float(x, who)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{who}: x must be real, not {tensor.dtype}. Apply ops.abs(x) first.")
    if TRACING.trace is not None or not tensor.size:
        return tensor
    with recording_on(None):  # so that the check does not appear on a tape
        least, most = ops.min(tensor).item(), ops.max(tensor).item()
    if not (low <= least and most <= high):  # also true for NaN
        raise ArgumentError(
            f"{who}: x must be in [{low:g}, {high:g}], but has values from {least:g} to {most:g}. Scale it, for "
            f"example by x / 255 for bytes or (x - x.min()) / (x.max() - x.min()), or clip it by "
            f"ops.clip(x, {low:g}, {high:g})."
        )
    return tensor


def _refuse_too_many(count: int, who: str, name: str, each: int = 1) -> None:
    """Raise if `count` times `each` float32 numbers exceed the memory of the machine."""
    if count * each * 4 > MEMORY:
        raise ArgumentError(
            f"{who}: {name}={count} needs {count * each * 4 / 2**30:.3g} GiB for one result, but this machine has "
            f"{MEMORY / 2**30:.3g} GiB. Use a smaller {name}."
        )


def _check_sequence(x: Any, who: str) -> Tensor:
    """Convert `x` to a Tensor of floats (T, ...) with at least one step."""
    tensor = as_float(x, who)
    if tensor.ndim == 0 or not tensor.shape[0]:
        raise ShapeError(f"{who}: the input must be (T, B, ...) with at least one step, but has shape {tensor.shape}.")
    return tensor


_guard(globals(), own=True)
