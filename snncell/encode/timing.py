"""Latency codes: one spike for each value, the earlier the larger it is."""

from __future__ import annotations

import math

from snncell import ops
from snncell.base.arguments.kinds import Count, Numbers, Positive
from snncell.encode.checks import number, step_count, times, within
from snncell.errors import ArgumentError
from snncell.ops.base import as_int
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor

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

    snnTorch's logarithm, normalized, leaves little between first and last: over 8 steps, with a value below the
    threshold in the input, 0.1 already fires at step 0.

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
    x = within(x, "latency")
    if convention == "spikingjelly":
        if (normalize, threshold, tau, first_spike_time, clip, bypass) != (False, 0.01, 1.0, 0, False, False):
            raise ArgumentError(
                'latency: convention="spikingjelly" has linear and steps alone, and fills all steps. Leave the other '
                'arguments out, or use convention="snntorch".'
            )
        count = _length(steps, bypass=False)
        return _fires_at(ops.round(_filling(x, count - 1, linear)), count, x)
    if convention != "snntorch":
        raise ArgumentError(f'latency: convention is "snntorch" or "spikingjelly", not {convention!r}.')
    count = _length(steps, bypass and not normalize)
    first = as_int(first_spike_time, "latency", "first_spike_time")
    if first < 0 or (steps is not None and first >= count):
        raise ArgumentError(f"latency: first_spike_time lies in [0, steps), steps = {steps}, not {first}.")
    threshold = number(threshold, "latency", "threshold", 0.0, 1.0)
    tau = number(tau, "latency", "tau", 0.0)
    step = ops.round(_charging(x, threshold, tau, linear, count - 1 - first if normalize else None) + first)
    spikes = _fires_at(step, count if bypass and steps else _check_steps(step, steps, count), x)
    return ops.select(ops.less(x, threshold), 0.0, spikes) if clip else spikes


def _fires_at(step: Tensor, steps: Count, x: Tensor) -> Tensor:
    return ops.equal(step, times(steps, x)).astype(x.dtype)


def _filling(x: Tensor, last: int, linear: bool) -> Tensor:
    """SpikingJelly's times, from 0 to `last`. a x + 1 = e^last (x + (1 - x) e^-last), which does not overflow."""
    if linear:
        t: Tensor = (1.0 - x) * float(last)
        return t
    rest = x + (1.0 - x) * math.exp(-last)
    positive = rest > 0.0  # but where x is 0 and so is e^-last
    return ops.select(positive, ops.minimum(-ops.log(ops.select(positive, rest, 1.0)), float(last)), float(last))


def _charging(x: Tensor, threshold: Positive, tau: Positive, linear: bool, last: int | None) -> Tensor:
    """snnTorch's times; with `last`, stretched to it."""
    if linear:
        tau = tau if last is None else last
        return ops.minimum((x - 1.0) * -tau, -tau * (threshold - 1.0))
    above = ops.maximum(x, threshold + EPSILON)
    t: Tensor = ops.log(above / (above - threshold)) * tau
    return t if last is None else t * last / ops.max(t)


def _length(steps: Count | None, bypass: bool) -> int:
    """The number of steps, or 0 where the spikes are to set it."""
    if steps is None and not bypass:
        raise ArgumentError(
            "latency: give steps. Only snnTorch's times that are not normalized can do without, with bypass=True: then "
            "the last spike comes at the last step."
        )
    return 0 if steps is None else step_count(steps, "latency")


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
