"""Tasks of single pulses: which line was first, do two delays differ, what is the sum of the marked numbers.

All give arrays with time first. A step is as long as the network takes it for.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import MOST, Count, Size, Within
from snncell.data.made.patterns import Jitter
from snncell.data.random_numbers import generator, seed_or_draw
from snncell.errors import ArgumentError

Array = np.ndarray[Any, Any]
Several = Annotated[int, Within(2, MOST)]


def pulse_order(
    samples: Count = 1000, steps: Count = 100, lines: Several = 2, seed: int | None = None
) -> tuple[Array, Array]:
    """Pulses, one on each line and no two at once: which line was first?

    Args:
        samples: N.
        steps: T, at least as many as lines; all times are equally probable.
        lines: how many.
        seed: of everything; without it `snncell.set_seed` decides.

    Returns:
        `(spikes, labels)`: 0 and 1 as float32 (T, N, lines), and int64 (N,), the line.

    Raises:
        ArgumentError: for fewer steps than lines.

    Source: after the temporal order problem of Hochreiter and Schmidhuber, "Long short-term memory", Neural
    Computation 1997.

    Example:
        >>> spikes, labels = snncell.data.pulse_order(samples=4, steps=20, seed=0)
        >>> spikes.argmax(0).tolist(), labels.tolist()
        ([[11, 3], [0, 1], [19, 13], [2, 9]], [1, 0, 1, 0])
    """
    if steps < lines:
        raise ArgumentError(f"pulse_order: steps is at least the number of lines, {lines}, not {steps}.")
    times = generator(seed_or_draw("pulse_order", seed)).random((samples, steps)).argsort(1)[:, :lines]
    return _pulses(times, steps), times.argmin(1)


def delay_xor(
    samples: Count = 1000,
    steps: Count = 30,
    early: Size = 5,
    late: Count = 15,
    jitter: Jitter = 0.0,
    seed: int | None = None,
) -> tuple[Array, Array]:
    """Two pulses, each early or late after a reference: XOR, is it one of each?

    Args:
        samples: N; the four cases are equally probable.
        steps: T.
        early, late: steps at which a pulse comes; the reference, on line 0, is always early.
        jitter: standard deviation of the times of the two pulses, in steps; they stay within the T steps.
        seed: of everything; without it `snncell.set_seed` decides.

    Returns:
        `(spikes, labels)`: 0 and 1 as float32 (T, N, 3), and int64 (N,): 1 if the two differ.

    Raises:
        ArgumentError: if not early < late < steps.

    Source: Bohte, Kok and La Poutré, "Error-backpropagation in temporally encoded networks of spiking neurons",
    Neurocomputing 2002.

    Example:
        >>> spikes, labels = snncell.data.delay_xor(samples=3, seed=0)
        >>> spikes.argmax(0).tolist(), labels.tolist()
        ([[5, 15, 15], [5, 15, 5], [5, 5, 5]], [0, 1, 0])
    """
    if not early < late < steps:
        raise ArgumentError(f"delay_xor: needs early < late < steps, not {early}, {late} and {steps}.")
    rng = generator(seed_or_draw("delay_xor", seed))
    is_late = rng.integers(2, size=(samples, 2))
    moved = np.rint(early + (late - early) * is_late + jitter * rng.standard_normal((samples, 2)))
    times = np.concatenate([np.full((samples, 1), early), np.clip(moved, 0, steps - 1).astype(np.int64)], 1)
    return _pulses(times, steps), is_late[:, 0] ^ is_late[:, 1]


def adding_problem(samples: Count = 1000, steps: Several = 100, seed: int | None = None) -> tuple[Array, Array]:
    """A line of random numbers, and a line that marks two of them, one in each half of the time: what is their sum?

    Answering 1 always has a mean squared error of 1 / 6.

    Args:
        samples: N.
        steps: T.
        seed: of everything; without it `snncell.set_seed` decides.

    Returns:
        `(x, sums)`: float32 (T, N, 2), numbers even in [0, 1) and markers 0 and 1, and float32 (N,).

    Raises:
        ArgumentError: for fewer than two steps.

    Source: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with a length of all
    sequences as in Le, Jaitly and Hinton, "A simple way to initialize recurrent networks of rectified linear units",
    arXiv 1504.00941, 2015.

    Example:
        >>> x, sums = snncell.data.adding_problem(samples=2, steps=10, seed=0)
        >>> x[:, 0, 1].tolist(), float((x[:, 0, 0] * x[:, 0, 1]).sum() - sums[0])
        ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0], 0.0)
    """
    rng = generator(seed_or_draw("adding_problem", seed))
    x = np.zeros((steps, samples, 2), np.float32)
    x[:, :, 0] = rng.random((steps, samples), np.float32)
    half, each = steps // 2, np.arange(samples)
    for marked in (rng.integers(half, size=samples), rng.integers(half, steps, size=samples)):
        x[marked, each, 1] = 1.0
    return x, (x[:, :, 0] * x[:, :, 1]).sum(0)


def _pulses(times: Array, steps: int) -> Array:
    """One spike of each line at its step of (N, lines), as (T, N, lines)."""
    spikes = np.zeros((steps, *times.shape), np.float32)
    spikes[times, np.arange(len(times))[:, None], np.arange(times.shape[1])] = 1.0
    return spikes
