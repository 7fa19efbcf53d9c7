"""Conversions between time constants and decay factors of different frameworks: see docs/coming-from/index.md.

snncell's neurons take a time constant tau in steps (Euler), or the decay factor, which is the factor kept per step.
Each function takes a number, a NumPy array or a Tensor. A Parameter that is passed to `like` arrives as a `Derived`,
and the result is a `Derived` too, so that it can be learned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import ops
from snncell.base.arguments.kinds import Constant, Positive
from snncell.cell.ranges import POSITIVE, Derived, Range, is_traced, numbers_of, quote_value
from snncell.errors import ArgumentError
from snncell.tape.tensor import Tensor


def positive(value: Any, who: str, name: str) -> Any:
    """Return a number or Derived after checking that it is positive."""
    return _checked(who, name, value, POSITIVE)


def _checked(who: str, name: str, value: Any, domain: Range, hint: str = "", by: Any = 1.0) -> Any:
    """Return a value after checking that `by` times it is in the domain; a Parameter is limited to that domain."""
    now = value.value() if isinstance(value, Derived) else value
    if not is_traced(now) and not domain.holds(numbers_of(now) * by):
        raise ArgumentError(f"{who}: {name} {domain.text}, not {quote_value(now if by == 1.0 else now * by)}{hint}.")
    if isinstance(value, Derived):
        return value.restrict(Range(domain.low / by, domain.high / by, domain.closed))
    return value


def _exp(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.apply(_exp)
    return ops.exp(x) if isinstance(x, Tensor) else np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def _log(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.apply(_log)
    return ops.log(x) if isinstance(x, Tensor) else np.log(x) if isinstance(x, np.ndarray) else math.log(x)


_BETWEEN = Range(0.0, 1.0, text="is a number between 0 and 1")


def steps_from_seconds(tau: Constant, dt: Positive) -> Any:
    """Convert a time constant from seconds to steps: tau / dt.

    Args:
        tau: the time constant in seconds, above dt; a number, an array or a Tensor.
        dt: the length of a step in seconds.
    Example:
        >>> nn.steps_from_seconds(0.02, dt=0.001)
        20.0
    """
    who, hint = "steps_from_seconds", "; use a shorter dt and more steps"
    if not dt > 0:
        raise ArgumentError(f"{who}: dt must be a positive number of seconds, not {quote_value(dt)}.")
    return _checked(who, "tau", tau, Range(dt, text=f"is above dt, which is {dt!r} s"), hint) / dt


def decay_from_tau(tau: Constant, dt: Positive = 1.0) -> Any:
    """The decay factor of a time constant by the exact solution: exp(-dt / tau).

    Args:
        tau: the time constant, positive, in the unit of dt; a number, an array or a Tensor.
        dt: the length of a step. With the default 1, tau is in steps.
    Example:
        >>> round(nn.decay_from_tau(10.0), 4)
        0.9048
    """
    step = positive(dt, "decay_from_tau", "dt")
    domain = Range(0.0, closed="high", text="is positive")  # an infinite tau keeps everything
    return _exp(-step / _checked("decay_from_tau", "tau", tau, domain))


def tau_from_decay(decay: Constant, dt: Positive = 1.0) -> Any:
    """The time constant of a decay factor by the exact solution: -dt / ln(decay), in the unit of dt.

    Raises: ArgumentError unless the decay factor is between 0 and 1.
    Example:
        >>> round(nn.tau_from_decay(nn.decay_from_tau(10.0)), 4)
        10.0
    """
    return -dt / _log(_checked("tau_from_decay", "decay", decay, _BETWEEN))


def euler_from_decay(decay: Constant) -> Any:
    """The tau of `LIFNode` that has this decay factor: 1 / (1 - decay) steps.

    Raises: ArgumentError unless the decay factor is between 0 and 1.
    Example:
        >>> nn.euler_from_decay(0.5)
        2.0
    """
    return 1.0 / (1.0 - _checked("euler_from_decay", "decay", decay, _BETWEEN))


def decay_from_euler(tau: Constant) -> Any:
    """The decay factor of an Euler step with a time constant of tau steps: 1 - 1 / tau.

    Raises: ArgumentError unless tau is above 1.
    Example:
        >>> nn.decay_from_euler(4.0)
        0.75
    """
    domain = Range(1.0, closed="high", text="is a number of steps above 1")
    return 1.0 - 1.0 / _checked("decay_from_euler", "tau", tau, domain)


def decay_from_rate(tau_inv: Constant, dt: Positive) -> Any:
    """The decay factor of Norse's neurons: 1 - dt tau_inv.

    Args:
        tau_inv: the inverse time constant in 1 / s; a number, an array or a Tensor.
        dt: the length of a step in seconds.
    Raises: ArgumentError unless dt tau_inv lies in (0, 1], because the time constant must be at least dt.
    Example:
        >>> nn.decay_from_rate(500.0, dt=0.001)
        0.5
    """
    domain = Range(0.0, 1.0, "high", "is above 0 and at most 1")
    hint = f": the time constant 1 / tau_inv must be at least dt={dt!r} s. Use a shorter dt"
    return 1.0 - dt * _checked("decay_from_rate", "dt tau_inv", tau_inv, domain, hint, dt)


def decay_from_lava(decay: Constant) -> Any:
    """The decay factor of lava's neurons from an integer decay of 12 bits: 1 - decay / 4096.

    Raises: ArgumentError for a number outside 0 to 4096.
    Example:
        >>> nn.decay_from_lava(1024)
        0.75
    """
    domain = Range(0.0, 4096.0, "both", "is an integer from 0 to 4096")
    return 1.0 - _checked("decay_from_lava", "decay", decay, domain) / 4096
