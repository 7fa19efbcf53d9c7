"""Spike encoders: rate, delta, phase, population, current, LIF and latency codes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from snncell import nn, ops
from snncell.base.arguments.kinds import Count, Numbers, Positive
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import MEMORY, as_float, as_int
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor, beside

__all__ = ["current", "delta", "field_centres", "latency", "lif", "phase", "population", "rate"]


def rate(
    x: Numbers, steps: Count | None = None, gain: float = 1.0, offset: float = 0.0, first_spike_time: int = 0
) -> Tensor:
    """Spikes with a probability: at each step 1 with probability p = clip(gain x + offset, 0, 1), else 0.

    After `snncell.set_seed` the spikes are the same on any number of threads, on any device, eagerly and jitted. p = 0
    never fires and p = 1 always does.

    Args:
        x: (B, ...) in [0, 1]; with steps=None (T, B, ...), a probability for each step.
        steps: T.
        gain, offset: Norse's `f_max` (in 1/s) and `dt` (in s) are gain = dt f_max.
        first_spike_time: before this step there are no spikes.

    Raises:
        ArgumentError: for values outside of [0, 1], steps below 1, or a first_spike_time after the last step.

    Source: spikegen.rate of snnTorch; with gain = 1 PoissonEncoder of SpikingJelly, which also fires where its random
    number equals x, so 0 does once in 2^24 draws.

    Example:
        >>> snncell.encode.rate([[0.0, 1.0]], 3).tolist()
        [[[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 1.0]]]
    """
    x = check_within(x, "rate")
    over_time = check_sequence(x, "rate") if steps is None else current(x, steps)
    gain, offset = check_number(gain, "rate", "gain"), check_number(offset, "rate", "offset")
    first = as_int(first_spike_time, "rate", "first_spike_time")
    if not 0 <= first < over_time.shape[0]:
        raise ArgumentError(f"rate: first_spike_time lies in [0, {over_time.shape[0]}), not {first}.")
    p = over_time if (gain, offset) == (1.0, 0.0) else ops.clip(over_time * gain + offset, 0.0, 1.0)
    spikes = ops.bernoulli(p)
    return ops.select(ops.less(step_numbers(p.shape[0], p[0]), first), 0.0, spikes) if first else spikes


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
    x = check_sequence(x, "delta")
    threshold = check_number(threshold, "delta", "threshold", 0.0)
    change = x - ops.concat([x[:1] if padding else ops.zeros_like(x[:1]), x[:-1]], 0)
    rises = ops.greater_equal(change, threshold).astype(x.dtype)
    return rises - ops.less_equal(change, -threshold).astype(x.dtype) if off_spike else rises


def phase(x: Numbers, steps: Count, period: Count | None = None) -> Tensor:
    """The binary digits of each value, the largest first: step t has digit k = t mod period + 1, worth 2^-k.

    s[t] = floor(x 2^k) mod 2, so that sum_k s 2^-k is x cut off after `period` digits. 1 has no such digits: it gets
    all ones, worth 1 - 2^-period.

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
    x, length = check_within(x, "phase"), check_count(steps, "phase", "steps")
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
    low = check_number(low, "population", "low")
    high = check_number(high, "population", "high", low)
    x = check_within(x, "population", low, high)
    refuse_too_many(as_int(neurons, "population", "neurons"), "population", "neurons", x.size)
    with beside(x):
        centres = Tensor(field_centres(neurons, low, high), x.dtype)
    spacing = (high - low) / max(neurons - 1, 1)
    width = spacing / 1.5 if width is None else check_number(width, "population", "width", 0.0)
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
    if check_count(neurons, "population", "neurons") == 1:
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
    tensor, length = as_float(x, "current"), check_count(steps, "current", "steps")
    refuse_too_many(length, "current", "steps", tensor.size)
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


@lru_cache(maxsize=32)  # so that it is traced once
def _driven(tau: Positive, v_threshold: Positive, reset: str | None, decay_input: bool) -> nn.MultiStep:
    return nn.MultiStep(nn.LIFNode(tau=tau, v_threshold=v_threshold, reset=reset, decay_input=decay_input))


# --- latency codes ----------------------------------------------------------------------------------------------------

EPSILON = 1e-7  # how far above the threshold snnTorch's logarithm is cut off


def latency(
    x: Numbers,
    steps: Count | None = None,
    linear: bool = False,
    normalize: bool = False,
    threshold: float = 0.01,
    tau: Positive = 1.0,
    first_spike_time: int = 0,
    clip: bool = False,
    bypass: bool = False,
    convention: str = "snntorch",
) -> Tensor:
    """One spike for each value, at step round(t), halves to even: the larger the value, the earlier.

    convention="snntorch", with theta = threshold, t0 = first_spike_time and x' = max(x, theta + 1e-7):

        t = t0 + tau ln(x' / (x' - theta))              when a leaky integrator reaches theta
        t = t0 + min(tau (1 - x), tau (1 - theta))      linear

    With normalize, the first is stretched so that the last spike of the whole input comes at steps - 1, and the second
    has tau = steps - 1 - t0. convention="spikingjelly" fills all steps, and has no constants:

        t = steps - 1 - ln(a x + 1), a = e^(steps - 1) - 1
        t = (steps - 1) (1 - x)                         linear

    snnTorch's logarithm, normalized, puts most spikes early: over 8 steps, with a value below the threshold in the
    input, 0.1 already fires at step 0.

    Args:
        x: (B, ...) in [0, 1]. Under `snncell.jit`, what would fire after the last step does not fire.
        steps: T; with `bypass` it may be left out, and the last spike comes at the last step.
        linear: t falls linearly with x.
        normalize: stretch the times over all steps.
        threshold: in (0, 1); what is not above it fires last.
        tau: time constant in steps.
        first_spike_time: the step at which t begins.
        clip: values below the threshold do not fire.
        bypass: spikes after the last step are dropped; without it they are an error.
        convention: "snntorch" or "spikingjelly".

    Raises:
        ArgumentError: for values outside of [0, 1], spikes after the last step, or arguments that make no sense.

    Source: spikegen.latency of snnTorch; LatencyEncoder of SpikingJelly.

    Example:
        >>> spikes = snncell.encode.latency([0.02, 0.5, 1.0], 5, linear=True, normalize=True)
        >>> ops.argmax(spikes, 0).tolist()  # when each fires
        [4, 2, 0]
    """
    x = check_within(x, "latency")
    if convention == "spikingjelly":
        if (normalize, threshold, tau, first_spike_time, clip, bypass) != (False, 0.01, 1.0, 0, False, False):
            raise ArgumentError(
                'latency: convention="spikingjelly" has linear and steps alone, and fills all steps. Leave the other '
                'arguments out, or use convention="snntorch".'
            )
        count = _latency_steps(steps, bypass=False)
        return _fires_at(ops.round(_filling(x, count - 1, linear)), count, x)
    if convention != "snntorch":
        raise ArgumentError(f'latency: convention is "snntorch" or "spikingjelly", not {convention!r}.')
    count = _latency_steps(steps, bypass and not normalize)
    first = as_int(first_spike_time, "latency", "first_spike_time")
    if first < 0 or (steps is not None and first >= count):
        raise ArgumentError(f"latency: first_spike_time lies in [0, steps), steps = {steps}, not {first}.")
    threshold = check_number(threshold, "latency", "threshold", 0.0, 1.0)
    tau = check_number(tau, "latency", "tau", 0.0)
    step = ops.round(_charging(x, threshold, tau, linear, count - 1 - first if normalize else None) + first)
    spikes = _fires_at(step, count if bypass and steps else _check_steps(step, steps, count), x)
    return ops.select(ops.less(x, threshold), 0.0, spikes) if clip else spikes


def _fires_at(step: Tensor, steps: Count, x: Tensor) -> Tensor:
    return ops.equal(step, step_numbers(steps, x)).astype(x.dtype)


def _filling(x: Tensor, last: int, linear: bool) -> Tensor:
    """SpikingJelly's times, from 0 to `last`. a x + 1 = e^last (x + (1 - x) e^-last), which does not overflow."""
    if linear:
        return (1.0 - x) * float(last)
    rest = x + (1.0 - x) * math.exp(-last)
    positive = rest > 0.0  # but where x is 0 and so is e^-last
    return ops.select(positive, ops.minimum(-ops.log(ops.select(positive, rest, 1.0)), float(last)), float(last))


def _charging(x: Tensor, threshold: Positive, tau: Positive, linear: bool, last: int | None) -> Tensor:
    """snnTorch's times; with `last`, stretched to it."""
    if linear:
        tau = tau if last is None else last
        return ops.minimum((x - 1.0) * -tau, -tau * (threshold - 1.0))
    above = ops.maximum(x, threshold + EPSILON)
    t = ops.log(above / (above - threshold)) * tau
    return t if last is None else t * last / ops.max(t)


def _latency_steps(steps: Count | None, bypass: bool) -> int:
    """The number of steps, or 0 where the spikes are to set it."""
    if steps is None and not bypass:
        raise ArgumentError(
            "latency: give steps. Only snnTorch's times that are not normalized can do without, with bypass=True: then "
            "the last spike comes at the last step."
        )
    return 0 if steps is None else check_count(steps, "latency", "steps")


def _check_steps(step: Tensor, steps: Count | None, count: int) -> int:
    """The number of steps, from the last spike if it was left out."""
    if TRACING.trace is not None and steps is None:
        raise ArgumentError("latency: inside a jitted function the time of the last spike is not known: give steps.")
    if TRACING.trace is not None or not step.size:
        return max(count, 1)
    with recording_on(None):
        last = int(ops.max(step).item())
    if steps is not None and last >= count:
        raise ArgumentError(
            f"latency: the last spike would come at step {last}, after the last of steps={count}. Use normalize=True "
            f"to fit the times into the steps, a smaller tau, more steps, or bypass=True to drop those spikes."
        )
    return count or last + 1


# --- checks of arguments, of decoders too -----------------------------------------------------------------------------


def check_within(x: Any, who: str, low: float = 0.0, high: float = 1.0) -> Tensor:
    """`x` as a Tensor of floats, all in [low, high]. A traced Tensor has no values yet: it is taken as it is."""
    tensor = as_float(x, who)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{who}: x is made of real numbers, not of {tensor.dtype}. Take ops.abs(x) first.")
    if TRACING.trace is not None or not tensor.size:
        return tensor
    # To look at values leaves no entries on a tape.
    with recording_on(None):
        least, most = ops.min(tensor).item(), ops.max(tensor).item()
    if not (low <= least and most <= high):  # nor if one is NaN
        raise ArgumentError(
            f"{who}: the input lies in [{low:g}, {high:g}], this one has values from {least:g} to {most:g}. Scale it, "
            f"for instance x / 255 for bytes or (x - x.min()) / (x.max() - x.min()), or cut it: ops.clip(x, {low:g}, "
            f"{high:g})."
        )
    return tensor


def check_count(count: Any, who: str, name: str) -> int:
    """A number of steps, digits or neurons, at least 1 and for which there is memory."""
    if as_int(count, who, name) < 1:
        raise ArgumentError(f"{who}: {name} is an integer of at least 1, not {count!r}.")
    refuse_too_many(int(count), who, name)
    return int(count)


def refuse_too_many(count: int, who: str, name: str, each: int = 1) -> None:
    """Refuse a count of so many float32 for each of it that they are more than the machine has memory for."""
    if count * each * 4 > MEMORY:
        raise ArgumentError(
            f"{who}: {name}={count} needs {count * each * 4 / 2**30:.3g} GiB for one result; this machine has "
            f"{MEMORY / 2**30:.3g} GiB. Give fewer."
        )


def check_number(value: Any, who: str, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number strictly between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
        between = f"between {low:g} and {high:g}" if high < math.inf else f"above {low:g}" if low > -math.inf else ""
        raise ArgumentError(f"{who}: {name} is a finite number {between}".rstrip() + f", not {value!r}.")
    return value


def check_sequence(x: Any, who: str) -> Tensor:
    """`x` as a Tensor of floats (T, ...) with at least one step."""
    tensor = as_float(x, who)
    if tensor.ndim == 0 or not tensor.shape[0]:
        raise ShapeError(f"{who}: takes (T, B, ...) with at least one step; the shape is {tensor.shape}.")
    return tensor


def step_numbers(steps: int, like: Tensor) -> Tensor:
    """0, 1, ..., steps - 1 along a first axis before those of `like`, in its dtype and place."""
    with beside(like):
        return ops.arange(steps, dtype=like.dtype).reshape((steps, *(1,) * like.ndim))
