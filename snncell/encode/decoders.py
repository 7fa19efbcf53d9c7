"""From spikes or membrane potentials over time back to values: time is the first axis, and goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import nn, ops
from snncell.encode.checks import number, sequence
from snncell.errors import ShapeError
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor, beside


def spike_count(spikes: Any) -> Tensor:
    """How many spikes there were: (T, B, ...) -> (B, ...). Differentiable.

    Raises:
        ShapeError: for a sequence without steps.

    Example:
        >>> snncell.encode.spike_count([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).tolist()
        [2.0, 1.0]
    """
    return sequence(spikes, "spike_count").sum(0)


def firing_rate(spikes: Any, dt: float = 1.0) -> Tensor:
    """Spikes per step, or per second with a step of `dt` seconds: (T, B, ...) -> (B, ...). Differentiable.

    Raises:
        ShapeError: for a sequence without steps.
        ArgumentError: for a dt that is not positive.

    Example:
        >>> snncell.encode.firing_rate([[1.0], [0.0], [1.0], [0.0]], dt=0.001).tolist()
        [500.0]
    """
    mean = sequence(spikes, "firing_rate").mean(0)
    dt = number(dt, "firing_rate", "dt", 0.0)
    return mean if dt == 1.0 else mean * (1.0 / dt)


def first_spike_time(spikes: Any, silent: float | None = None) -> Tensor:
    """When each neuron first fired, in steps from 0: (T, B, ...) -> (B, ...).

    Differentiable as `nn.FirstSpikeTime` is: more output at that step makes the spike earlier.

    Args:
        spikes: a spike is what is above 0.
        silent: the time of a neuron without spikes; by default the last step, T - 1.

    Raises:
        ShapeError: for a sequence without steps.
        ArgumentError: for a silent below T - 1.

    Example:
        >>> snncell.encode.first_spike_time([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).tolist()
        [1.0, 2.0]
    """
    time: Tensor = nn.FirstSpikeTime(silent)(sequence(spikes, "first_spike_time"))
    return time


def population_vector(spikes: Any, centres: Any) -> Tensor:
    """The mean of the neurons' centres, or preferred directions, each as often as the neuron fired.

    y = sum_n n_n c_n / sum_n n_n, with n_n the number of spikes of neuron n. A population without spikes says nothing:
    it gives the mean of the centres, and has no gradient.

    Args:
        spikes: (T, B, ..., N).
        centres: (N,), as `field_centres` gives them, or (N, D) for directions in D dimensions.

    Returns:
        (B, ...) or (B, ..., D). Differentiable.

    Raises:
        ShapeError: if there are not as many centres as neurons.

    Source: Georgopoulos, Schwartz and Kettner, "Neuronal population coding of movement direction", Science 1986.

    Example:
        >>> snncell.encode.population_vector([[[1.0, 1.0, 0.0]], [[0.0, 1.0, 1.0]]], [0.0, 0.5, 1.0]).tolist()
        [0.5]
    """
    counts = sequence(spikes, "population_vector").sum(0)
    with beside(counts):
        of = as_tensor(np.asarray(centres) if isinstance(centres, (list, tuple)) else centres, "population_vector")
        of = of.astype(counts.dtype)
    if of.ndim not in (1, 2) or not counts.ndim or of.shape[0] != counts.shape[-1]:
        raise ShapeError(
            f"population_vector: spikes (T, B, ..., N) with {counts.shape[-1:]} neurons need centres (N,) or (N, D), "
            f"not {of.shape}."
        )
    total = counts.sum(-1, keepdims=True)
    fired = ops.greater(total, 0.0)
    share = ops.select(fired, counts, 1.0) / ops.select(fired, total, float(of.shape[0]))
    return (share * of).sum(-1) if of.ndim == 1 else ops.matmul(share, of)


def last_membrane(v: Any) -> Tensor:
    """The potential after the last step: (T, B, ...) -> (B, ...). Differentiable.

    Example:
        >>> snncell.encode.last_membrane([[1.0], [6.0], [2.0]]).tolist()
        [2.0]
    """
    return sequence(v, "last_membrane")[-1]


def mean_membrane(v: Any) -> Tensor:
    """The mean potential over time: (T, B, ...) -> (B, ...). Differentiable.

    Example:
        >>> snncell.encode.mean_membrane([[1.0], [2.0], [6.0]]).tolist()
        [3.0]
    """
    return sequence(v, "mean_membrane").mean(0)


def max_membrane(v: Any) -> Tensor:
    """The highest potential over time: (T, B, ...) -> (B, ...). Differentiable; steps of equal height share equally.

    Example:
        >>> snncell.encode.max_membrane([[1.0], [6.0], [2.0]]).tolist()
        [6.0]
    """
    return ops.max(sequence(v, "max_membrane"), 0)
