"""Conversions between the ways in which frameworks say how fast a potential decays.

framework            what a step keeps          gain of the input
SpikingJelly         1 - 1 / tau                1 / tau (decay_input) or 1; tau in steps
snnTorch, Spyx       beta                       1
sinabs               exp(-1 / tau)              1 - exp(-1 / tau) (norm_input) or 1; tau in steps
mlGeNN, rockpool     exp(-dt / tau)             1
Norse                1 - dt tau_inv             dt tau_inv; tau_inv in 1 / s
lava                 1 - d / 4096               1
NIR                  tau dv/dt = -v + R x       R; tau in s, the step is up to who runs it

Each function takes a number, a NumPy array, or a Tensor, whose values are unknown while it is traced. A Parameter given
to `like` comes here as a `Derived`, and leaves as one. snncell's neurons take time constants in steps (tau, by Euler's
step) or the factor that a step keeps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Constant, Positive
from snncell.cell.ranges import POSITIVE, Derived, Range, numbers_of, quote_value, unknown
from snncell.errors import ArgumentError
from snncell.tape.tensor import Tensor


def positive(value: Any, who: str, name: str) -> Any:
    """A number, or what is computed from Parameters, as it is, after checking that it is positive."""
    return _checked(who, name, value, POSITIVE)


def _checked(who: str, name: str, value: Any, domain: Range, mend: str = "", by: Any = 1.0) -> Any:
    """A value as it is, after checking that `by` times it is in the domain; a Parameter is to stay there."""
    now = value.value() if isinstance(value, Derived) else value
    if not unknown(now) and not domain.holds(numbers_of(now) * by):
        raise ArgumentError(f"{who}: {name} {domain.text}, not {quote_value(now if by == 1.0 else now * by)}{mend}.")
    if isinstance(value, Derived):
        return value.staying(Range(domain.low / by, domain.high / by, domain.closed))
    return value


def _exp(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.through(_exp)
    return ops.exp(x) if isinstance(x, Tensor) else np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def _log(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.through(_log)
    return ops.log(x) if isinstance(x, Tensor) else np.log(x) if isinstance(x, np.ndarray) else math.log(x)


_BETWEEN = Range(0.0, 1.0, text="is what a step keeps, between 0 and 1")


def steps_from_seconds(tau: Constant, dt: Positive) -> Any:
    """A time constant in steps from one in seconds: tau / dt.

    Args:
        tau: seconds, above dt; a number, a NumPy array of them, or a Tensor.
        dt: seconds of a step.

    Raises:
        ArgumentError: unless dt is positive and tau above it.

    Example:
        >>> nn.steps_from_seconds(0.02, dt=0.001)
        20.0
    """
    who, mend = "steps_from_seconds", "; take a shorter dt, and more steps"
    if not dt > 0:
        raise ArgumentError(f"{who}: dt is a positive number of seconds, not {quote_value(dt)}.")
    return _checked(who, "tau", tau, Range(dt, text=f"is above dt, which is {dt!r} s"), mend) / dt


def decay_from_tau(tau: Constant, dt: Positive = 1.0) -> Any:
    """The factor that a step keeps, by the exact solution: exp(-dt / tau).

    Args:
        tau: in the unit of dt, positive; a number, a NumPy array of them, or a Tensor.
        dt: of a step.

    Raises:
        ArgumentError: for tau or dt that are not positive.

    Example:
        >>> round(nn.decay_from_tau(10.0), 4)
        0.9048
    """
    step = positive(dt, "decay_from_tau", "dt")
    domain = Range(0.0, closed="high", text="is positive")  # all is kept where tau is infinite
    return _exp(-step / _checked("decay_from_tau", "tau", tau, domain))


def tau_from_decay(decay: Constant, dt: Positive = 1.0) -> Any:
    """The time constant whose exact solution keeps `decay` in a step: -dt / ln(decay), in the unit of dt.

    Raises:
        ArgumentError: for a decay factor that is not between 0 and 1.

    Example:
        >>> round(nn.tau_from_decay(nn.decay_from_tau(10.0)), 4)
        10.0
    """
    return -dt / _log(_checked("tau_from_decay", "decay", decay, _BETWEEN))


def euler_from_decay(decay: Constant) -> Any:
    """The tau of `LIFNode` whose Euler step keeps `decay`: 1 / (1 - decay) steps.

    Raises:
        ArgumentError: for a decay factor that is not between 0 and 1.

    Example:
        >>> nn.euler_from_decay(0.5)
        2.0
    """
    return 1.0 / (1.0 - _checked("euler_from_decay", "decay", decay, _BETWEEN))


def decay_from_euler(tau: Constant) -> Any:
    """The factor that an Euler step keeps with a time constant of tau steps: 1 - 1 / tau.

    Raises:
        ArgumentError: for tau not above 1.

    Example:
        >>> nn.decay_from_euler(4.0)
        0.75
    """
    domain = Range(1.0, closed="high", text="is a number of steps above 1")
    return 1.0 - 1.0 / _checked("decay_from_euler", "tau", tau, domain)


def decay_from_rate(tau_inv: Constant, dt: Positive) -> Any:
    """The factor that a step keeps in Norse: 1 - dt tau_inv.

    Args:
        tau_inv: 1 / s; a number, a NumPy array of them, or a Tensor.
        dt: s.

    Raises:
        ArgumentError: unless dt tau_inv lies in (0, 1]: the time constant is to be at least dt.

    Example:
        >>> nn.decay_from_rate(500.0, dt=0.001)
        0.5
    """
    domain = Range(0.0, 1.0, "high", "is above 0 and at most 1")
    mend = f": the time constant 1 / tau_inv is no shorter than a step of dt={dt!r} s. Take a shorter dt"
    return 1.0 - dt * _checked("decay_from_rate", "dt tau_inv", tau_inv, domain, mend, dt)


def decay_from_lava(decay: Constant) -> Any:
    """The factor that a step keeps in lava, whose decays are integers of 12 bits: 1 - decay / 4096.

    Raises:
        ArgumentError: for a number outside 0 to 4096.

    Example:
        >>> nn.decay_from_lava(1024)
        0.75
    """
    domain = Range(0.0, 4096.0, "both", "is an integer from 0 to 4096")
    return 1.0 - _checked("decay_from_lava", "decay", decay, domain) / 4096
