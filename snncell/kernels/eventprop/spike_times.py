"""Spike times of neurons with two exponentials, and their gradients: kernels whose samples are shared among threads."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.arrays import empty
from snncell.kernels.cpu import spike_times as cpu
from snncell.kernels.eventprop import adjoint
from snncell.kernels.numba.build import build_function
from snncell.kernels.numba.policy import PARALLEL_SIZE

PARTS = 64  # of the samples: at most so many units
ROOM = 1 << 22  # elements: the parts' own gradients of the weights have no more, if there are several
EVENT_COST = 2  # of an event to a neuron, in elements of plain arithmetic: 0.6 ns
SPIKE_COST = 500  # 200 ns

_INT32, _INT64, _FLOAT64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64)


def find(
    times: Any, weights: Any, spikes: int, tau_mem: float, tau_syn: float, v_threshold: float, t_max: float
) -> tuple[Any, Any, Any, Any]:
    """The first spikes of neurons, and what the reverse takes: the equations are those of `nn.EventPropLIF`.

    Args:
        times: (B, N_in, K_in), in any order.
        weights: (N_in, N), of the same dtype.
        spikes: K.

    Returns:
        The spike times (B, N, K), inf where there is none; the order of a sample's events (B, E); the number of the
        event in that order that a spike follows, -1 for none, and the current there (B, N, K).
    """
    samples, neurons = len(times), weights.shape[1]
    flat, weights = np.ascontiguousarray(times.reshape(samples, -1)), np.ascontiguousarray(weights)
    shape, parts, room = (samples, neurons, spikes), min(samples, PARTS), -(-neurons // 8) * 8
    found, places, currents = empty(shape, times.dtype), empty(shape, _INT32), empty(shape, _FLOAT64)
    order = empty(flat.shape, _INT64)
    constants = [tau_mem, tau_syn, v_threshold, times.dtype.type(t_max), *_peak(tau_mem, tau_syn)]
    _find_kernel(times.dtype)(
        parts,
        _grain(flat, neurons, spikes),
        *(flat, order, weights),
        *(x.reshape(samples, -1) for x in (found, places, currents)),
        empty((parts, room), np.dtype(np.uint8)),
        empty((4 * parts, neurons), _FLOAT64),
        empty((5 * parts, max(flat.shape[1], room + 8)), _INT64),
        np.array(constants, np.float64),
    )
    return found, order, places, currents


def send_back(
    times: Any,
    weights: Any,
    order: Any,
    found: Any,
    places: Any,
    currents: Any,
    gradients: Any,
    tau_mem: float,
    tau_syn: float,
    v_threshold: float,
) -> tuple[Any, Any]:
    """The gradients of the times and of the weights, from those of the spike times and what `find` gave."""
    samples, neurons = len(times), weights.shape[1]
    flat, weights = np.ascontiguousarray(times.reshape(samples, -1)), np.ascontiguousarray(weights)
    by_sample = [np.ascontiguousarray(x.reshape(samples, -1)) for x in (found, places, currents, gradients)]
    # Each part adds up its samples; the parts are joined in order.
    parts = max(1, min(samples, PARTS, ROOM // weights.size))
    of_times, of_weights = empty(flat.shape, flat.dtype), empty((parts, weights.size), _FLOAT64)
    events, of_all = flat.shape[1], by_sample[0].shape[1]
    constants = [tau_mem, tau_syn, v_threshold, least_slope(times.dtype, v_threshold, tau_mem)]
    _send_back_kernel(times.dtype)(
        parts,
        _grain(flat, neurons, of_all // neurons),
        *(flat, np.ascontiguousarray(order), weights, *by_sample, of_times, of_weights),
        empty((3 * parts, of_all), _FLOAT64),
        empty((2 * parts, max(events, of_all)), _INT64),
        np.array(constants, np.float64),
    )
    return of_times.reshape(times.shape), of_weights.sum(0).astype(times.dtype).reshape(weights.shape)


def least_slope(dtype: Any, v_threshold: float, tau_mem: float) -> float:
    """The slope that rounding makes of 0."""
    return float(np.finfo(dtype).eps) * v_threshold / tau_mem


def _peak(tau_mem: float, tau_syn: float) -> tuple[float, float]:
    """The peak of kappa: when, and what."""
    s = math.log1p((tau_mem - tau_syn) / tau_syn) * (tau_mem * tau_syn / (tau_mem - tau_syn))
    nearer = math.expm1(s * (-abs(tau_mem - tau_syn) / (tau_mem * tau_syn)))
    return s, math.exp(-s / max(tau_mem, tau_syn)) * nearer * (-tau_syn / abs(tau_mem - tau_syn))


def _grain(flat: Any, neurons: int, spikes: int) -> int:
    work = neurons * (EVENT_COST * flat.size + SPIKE_COST * len(flat) * spikes)
    return int(work >= PARALLEL_SIZE)


@functools.cache
def _find_kernel(dtype: Any) -> Any:
    kind, int64 = dtypes.BY_NUMPY[dtype], dtypes.int64
    given, filled, to_float64 = (kind, 2, False), (kind, 2, True), (dtypes.float64, 2, True)
    signature = (
        *(given, (int64, 2, True), given, filled, (dtypes.int32, 2, True), to_float64),
        *((dtypes.uint8, 2, True), to_float64, (int64, 2, True), (dtypes.float64, 1, False)),
    )
    return build_function(cpu.find_spikes, signature)


@functools.cache
def _send_back_kernel(dtype: Any) -> Any:
    kind, to_float64 = dtypes.BY_NUMPY[dtype], (dtypes.float64, 2, True)
    given, filled = (kind, 2, False), (kind, 2, True)
    int32, int64, float64 = ((each, 2, False) for each in (dtypes.int32, dtypes.int64, dtypes.float64))
    signature = (
        *(given, int64, given, given, int32, float64, given),
        *(filled, to_float64, to_float64, (dtypes.int64, 2, True), (dtypes.float64, 1, False)),
    )
    return build_function(adjoint.send_back_kernel, signature)
