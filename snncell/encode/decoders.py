"""Spike decoders: values from spikes or membrane potentials over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.kinds import ExtendedReal, Numbers, Positive
from snncell.encode.encoders import check_sequence
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.losses.spike_times import times_until_end
from snncell.nn.time.axis import length_mask, mean_over_time, sum_over_time, zero_after_end
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor, on_device_of

__all__ = [
    "firing_rate", "first_spike_time", "last_membrane", "max_membrane", "mean_membrane", "population_vector",
    "spike_count",
]  # fmt: skip


def _zero_padding(x: Any, lengths: Any, who: str) -> Tensor:
    return zero_after_end(check_sequence(x, who), lengths, who)


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
    mean = mean_over_time(check_sequence(spikes, "firing_rate"), lengths, "firing_rate")
    return mean if dt == 1.0 else mean * (1.0 / dt)


def first_spike_time(spikes: Numbers, silent: ExtendedReal | None = None, *, lengths: Numbers | None = None) -> Tensor:
    """Time to first spike of each neuron, in steps from 0: (T, B, ...) -> (B, ...).

    It uses the gradient of `nn.FirstSpikeTime`: more output at the spike moves it earlier.

    Args:
        spikes: a value above 0 is a spike.
        silent: the time of a silent neuron; None is the last step of the sample, T - 1 without lengths.
    Example:
        >>> snncell.encode.first_spike_time([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).tolist()
        [1.0, 2.0]
    """
    tensor = _zero_padding(spikes, lengths, "first_spike_time")
    of_all = nn.FirstSpikeTime(silent)
    if lengths is None or silent is None:
        return times_until_end(of_all, tensor, lengths)
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

        y = sum_n n_n c_n / sum_n n_n, with n_n the number of spikes of neuron n

    It decodes `population`, or preferred directions. Without spikes it is the mean of the centres, without a gradient.

    Args:
        spikes: (T, B, ..., N).
        centres: (N,), for example from `field_centres`, or (N, D) for directions in D dimensions.
    Returns: (B, ...) or (B, ..., D).
    Source: Georgopoulos, Schwartz and Kettner, "Neuronal population coding of movement direction", Science 1986.
    Example:
        >>> snncell.encode.population_vector([[[1.0, 1.0, 0.0]], [[0.0, 1.0, 1.0]]], [0.0, 0.5, 1.0]).tolist()
        [0.5]
    """
    counts = _zero_padding(spikes, lengths, "population_vector").sum(0)
    with on_device_of(counts):
        if isinstance(centres, (list, tuple)):
            centres = Tensor(centres, "float64")
        of = as_tensor(centres, "population_vector", "centres").astype(counts.dtype)
    if of.ndim not in (1, 2) or not counts.ndim or of.shape[0] != counts.shape[-1]:
        raise ShapeError(
            f"population_vector: spikes (T, B, ..., N) with {counts.shape[-1:]} neurons need centres (N,) or (N, D), "
            f"not {of.shape}."
        )
    total = counts.sum(-1, keepdims=True)
    fired = ops.greater(total, 0.0)
    share = ops.select(fired, counts, 1.0) / ops.select(fired, total, float(of.shape[0]))
    return (share * of).sum(-1) if of.ndim == 1 else ops.matmul(share, of)


def last_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The potential after the last step: (T, B, ...) -> (B, ...); 0 for a sample of length 0.

    Example:
        >>> snncell.encode.last_membrane([[1.0], [6.0], [2.0]]).tolist()
        [2.0]
    """
    tensor = _zero_padding(v, lengths, "last_membrane")
    if lengths is None:
        return tensor[-1]
    there = length_mask(tensor, lengths, "last_membrane").astype(tensor.dtype)
    # The mask of a sample falls from 1 to 0 after its last step.
    after = ops.concat([there[1:], ops.zeros_like(there[:1])])
    return ops.select(ops.greater(there, after), tensor, 0.0).sum(0)


def mean_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The mean potential over time: (T, B, ...) -> (B, ...); 0 for a sample of length 0.

    Example:
        >>> snncell.encode.mean_membrane([[1.0], [2.0], [6.0]]).tolist()
        [3.0]
    """
    return mean_over_time(check_sequence(v, "mean_membrane"), lengths, "mean_membrane")


def max_membrane(v: Numbers, *, lengths: Numbers | None = None) -> Tensor:
    """The maximum potential over time: (T, B, ...) -> (B, ...); -inf for a sample of length 0.

    If several steps have the same maximum, the gradient is divided equally among them.

    Example:
        >>> snncell.encode.max_membrane([[1.0], [6.0], [2.0]]).tolist()
        [6.0]
    """
    tensor = check_sequence(v, "max_membrane")
    if lengths is not None:
        tensor = ops.select(length_mask(tensor, lengths, "max_membrane"), tensor, -np.inf)
    return ops.max(tensor, 0)
