"""How frameworks say how fast a potential decays, and functions from each way to the others.

framework            what a step keeps          gain of the input
SpikingJelly         1 - 1 / tau                1 / tau (decay_input) or 1; tau in steps
snnTorch, Spyx       beta                       1
sinabs               exp(-1 / tau)              1 - exp(-1 / tau) (norm_input) or 1; tau in steps
mlGeNN, rockpool     exp(-dt / tau)             1
Norse                1 - dt tau_inv             dt tau_inv; tau_inv in 1 / s
lava                 1 - d / 4096               1
NIR                  tau dv/dt = -v + R x       R; tau in s, the step is up to who runs it

Each function takes a number, or a NumPy array of them. snncell's neurons take time constants in steps (tau, by Euler's
step) or the factor that a step keeps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.errors import ArgumentError


def steps_from_seconds(tau: Any, dt: float) -> Any:
    """A time constant in steps from one in seconds: tau / dt.

    Args:
        tau: seconds, above dt; a number, or a NumPy array of them.
        dt: seconds of a step.

    Raises:
        ArgumentError: unless dt is positive and tau above it.

    Example:
        >>> nn.steps_from_seconds(0.02, dt=0.001)
        20.0
    """
    if not dt > 0:
        raise ArgumentError(f"steps_from_seconds: dt is a positive number of seconds, not {dt!r}.")
    if not np.all(np.asarray(tau) > dt):
        raise ArgumentError(
            f"steps_from_seconds: tau is above dt, which is {dt!r} s, not {tau!r}; take a shorter dt, and more steps."
        )
    return tau / dt


def decay_from_tau(tau: Any, dt: float = 1.0) -> Any:
    """What a step keeps, by the exact solution: exp(-dt / tau).

    Args:
        tau: in the unit of dt, positive; a number, or a NumPy array of them.
        dt: of a step.

    Raises:
        ArgumentError: for tau or dt that are not positive.

    Example:
        >>> round(nn.decay_from_tau(10.0), 4)
        0.9048
    """
    for name, value in (("tau", tau), ("dt", dt)):
        if not np.all(np.asarray(value) > 0):
            raise ArgumentError(f"decay_from_tau: {name} is positive, not {value!r}.")
    return np.exp(-dt / tau) if isinstance(tau, np.ndarray) else math.exp(-dt / tau)


def tau_from_decay(decay: Any, dt: float = 1.0) -> Any:
    """The time constant whose exact solution keeps `decay` in a step: -dt / ln(decay), in the unit of dt.

    Raises:
        ArgumentError: for a decay factor that is not between 0 and 1.

    Example:
        >>> round(nn.tau_from_decay(nn.decay_from_tau(10.0)), 4)
        10.0
    """
    _between(decay, "tau_from_decay")
    return -dt / (np.log(decay) if isinstance(decay, np.ndarray) else math.log(decay))


def euler_from_decay(decay: Any) -> Any:
    """The tau of `LIFNode` whose Euler step keeps `decay`: 1 / (1 - decay) steps.

    Raises:
        ArgumentError: for a decay factor that is not between 0 and 1.

    Example:
        >>> nn.euler_from_decay(0.5)
        2.0
    """
    return 1.0 / (1.0 - _between(decay, "euler_from_decay"))


def decay_from_euler(tau: Any) -> Any:
    """What an Euler step keeps with a time constant of tau steps: 1 - 1 / tau.

    Raises:
        ArgumentError: for tau not above 1.

    Example:
        >>> nn.decay_from_euler(4.0)
        0.75
    """
    if not np.all(np.asarray(tau) > 1.0):
        raise ArgumentError(f"decay_from_euler: tau is a number of steps above 1, not {tau!r}.")
    return 1.0 - 1.0 / tau


def decay_from_rate(tau_inv: Any, dt: float) -> Any:
    """What a step keeps in Norse: 1 - dt tau_inv.

    Args:
        tau_inv: 1 / s; a number, or a NumPy array of them.
        dt: s.

    Raises:
        ArgumentError: unless dt tau_inv lies in (0, 1]: the time constant is to be at least dt.

    Example:
        >>> nn.decay_from_rate(500.0, dt=0.001)
        0.5
    """
    share = np.asarray(dt * tau_inv)
    if not np.all((share > 0.0) & (share <= 1.0)):
        raise ArgumentError(
            f"decay_from_rate: dt tau_inv is above 0 and at most 1, not {dt * tau_inv!r}: the time constant "
            f"1 / tau_inv is no shorter than a step of dt={dt!r} s. Take a shorter dt."
        )
    return 1.0 - dt * tau_inv


def decay_from_lava(decay: Any) -> Any:
    """What a step keeps in lava, whose decays are integers of 12 bits: 1 - decay / 4096.

    Raises:
        ArgumentError: for a number outside 0 to 4096.

    Example:
        >>> nn.decay_from_lava(1024)
        0.75
    """
    given = np.asarray(decay)
    if not np.all((given >= 0) & (given <= 4096)):
        raise ArgumentError(f"decay_from_lava: decay is an integer from 0 to 4096, not {decay!r}.")
    return 1.0 - decay / 4096


def _between(decay: Any, who: str) -> Any:
    given = np.asarray(decay)
    if not np.all((given > 0.0) & (given < 1.0)):
        raise ArgumentError(f"{who}: decay is what a step keeps, between 0 and 1, not {decay!r}.")
    return decay
