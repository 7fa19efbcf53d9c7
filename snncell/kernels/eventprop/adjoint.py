"""EventProp: gradients of event times and weights from those of spike times, computed backwards from event to event.

Source: T. Wunderlich and C. Pehle, "Event-based backpropagation can compute exact gradients for spiking neural
networks", Scientific Reports 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import exp, float64, inf

from snncell.kernels.arrays import empty
from snncell.kernels.eventprop.spike_times import _FLOAT64, _INT64, MEM, PARTS, SYN, THRESHOLD, _grain, waves
from snncell.kernels.intrinsics.builtins import call_once, inline
from snncell.kernels.intrinsics.elements import lanes, row, tail
from snncell.kernels.loops import LANES
from snncell.kernels.numba.build import kernel_for

LEAST = 3  # index of the smallest slope of V at a spike, after the constants of `spike_times.py` up to the threshold


@call_once
def sent_by(spikes: Any, gradient: Any, neurons: Any, a: Any, first: Any, other: Any, constants: Any) -> Any:
    """Compute the gradient a_k that each spike of a sample sends back; return the last event before a spike. `spikes`
    has the spike times, the events before them, the currents, and the number of spikes per neuron. The spikes after
    each event become a linked list: `first`, initially -1, gets its first spike, and `other` the next spike.
    """
    times, places, currents, wanted = spikes
    mem, threshold, last = constants[MEM], constants[THRESHOLD], -1
    for n in range(neurons):
        received, later = 0.0, float64(inf)
        for k in range(n * wanted + wanted - 1, n * wanted - 1, -1):
            if places[k] >= 0:
                now, event = float64(times[k]), places[k]
                received *= exp((now - later) / mem)
                slope = (currents[k] - threshold) / mem
                slope = slope if slope > constants[LEAST] else constants[LEAST]
                a[k] = (received * (threshold / mem) - gradient[k]) / slope
                received += a[k]
                later = now
                other[k] = first[event]
                first[event] = k
                last = event if event > last else last
    return last


@inline
def decay(p: Any, q: Any, neurons: Any, length: Any, constants: Any) -> None:
    """Propagate the adjoint variables p and q backwards in time by `length`."""
    of_p, of_q, kappa = waves(length, constants[MEM], constants[SYN])
    for n in range(neurons):
        p[n] = p[n] * of_p + q[n] * kappa
        q[n] *= of_q


@inline
def received_by(p: Any, q: Any, weight: Any, total: Any, neurons: Any) -> Any:
    """Add p, the gradients of an event's weights, to `total`; return the sum of w (p - q)."""
    partial = lanes(0.0)
    for base in range(0, neurons - neurons % LANES, LANES):
        for lane in range(LANES):
            n = base + lane
            total[n] += p[n]
            partial[lane] += weight[n] * (p[n] - q[n])
    base = neurons - neurons % LANES
    for lane in range(neurons % LANES):
        n = base + lane
        total[n] += p[n]
        partial[lane] += weight[n] * (p[n] - q[n])
    of_all = 0.0
    for lane in range(LANES):
        of_all += partial[lane]
    return of_all


@call_once
def sweep(events: Any, spikes: Any, p: Any, q: Any, a: Any, first: Any, other: Any, event: Any, constants: Any) -> None:
    """Sweep backwards through the events of a sample, from `event` on, with the adjoint variables p and q. `events` has
    the times of the events, their order, their number per input, the weights, and the gradients of times and weights.
    """
    time, ordered, of_each, weights, of_time, of_weights = events
    times, _, _, wanted = spikes
    _, neurons = weights.shape
    for n in range(neurons):
        p[n] = 0.0
        q[n] = 0.0
    until = float64(inf)
    while event >= 0:
        begin, number = float64(time[ordered[event]]), ordered[event]
        decay(p, q, neurons, until - begin, constants)
        k = first[event]
        while k >= 0:
            _, of_q, kappa = waves(float64(times[k]) - begin, constants[MEM], constants[SYN])
            p[k // wanted] += a[k] * kappa
            q[k // wanted] += a[k] * of_q
            k = other[k]
        weight, total = row(weights, number // of_each), tail(of_weights, number // of_each * neurons)
        of_time[number] = received_by(p, q, weight, total, neurons) / constants[MEM]
        until = begin
        event -= 1


def send_back_kernel(
    start: Any, stop: Any, times: Any, order: Any, weights: Any, found: Any, places: Any, currents: Any,
    gradients: Any, of_times: Any, of_weights: Any, state: Any, numbers: Any, constants: Any,
) -> None:  # fmt: skip
    """Compute the gradients of times and weights from the gradients of the spikes, `gradients` (B, N K).

    The adjoint variables of a neuron at an event at time t are sums over its later spikes, at T_k. p = sum_k a_k
    kappa(T_k - t) is the gradient of the weight of the event, and q = sum_k a_k exp(-(T_k - t) / tau_syn). The gradient
    of t is w (p - q) / tau_mem, because -kappa'(s) = (kappa(s) - exp(-s / tau_syn)) / tau_mem.

    The first six arrays are as in `find_spikes`. Outputs are `of_times` (B, E), and `of_weights` (parts, N_in N), the
    sums over the samples of each part. `state` (at least 3 parts, N K) and `numbers` (2 parts, at least E and N K) are
    overwritten.
    """
    samples, events = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    parts, _ = of_weights.shape
    wanted = wanted // neurons
    for part in range(start, stop):
        p, q, a = row(state, 3 * part), row(state, 3 * part + 1), row(state, 3 * part + 2)
        first, other, sums = row(numbers, 2 * part), row(numbers, 2 * part + 1), row(of_weights, part)
        for n in range(inputs * neurons):
            sums[n] = 0.0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            of_time = row(of_times, sample)
            for event in range(events):
                first[event] = -1
                of_time[event] = 0.0
            spikes = row(found, sample), row(places, sample), row(currents, sample), wanted
            last = sent_by(spikes, row(gradients, sample), neurons, a, first, other, constants)
            given = row(times, sample), row(order, sample), events // inputs, weights, of_time, sums
            sweep(given, spikes, p, q, a, first, other, last, constants)


ROOM = 1 << 22  # the maximum number of elements of the partial weight gradients, if there are several parts


def send_back(times: Any, weights: Any, *more: Any, **constants: float) -> tuple[Any, Any]:
    """Gradients of times and weights. `more`: order, times, places and currents of `find`; gradients of the spikes."""
    return run_backward(send_back_kernel, times, weights, *more, **constants)


def run_backward(
    kernel: Any, times: Any, weights: Any, order: Any, found: Any, places: Any, currents: Any, gradients: Any,
    tau_mem: float, tau_syn: float, v_threshold: float,
) -> tuple[Any, Any]:  # fmt: skip
    """Run the kernel of `send_back`."""
    samples, neurons = len(times), weights.shape[1]
    flat, weights = np.ascontiguousarray(times.reshape(samples, -1)), np.ascontiguousarray(weights)
    by_sample = [np.ascontiguousarray(x.reshape(samples, -1)) for x in (found, places, currents, gradients)]
    # Each part sums over its samples; the parts are then summed in order.
    parts = max(1, min(samples, PARTS, ROOM // weights.size))
    of_times, of_weights = empty(flat.shape, flat.dtype), empty((parts, weights.size), _FLOAT64)
    events, of_all = order.shape[1], by_sample[0].shape[1]
    constants = [tau_mem, tau_syn, v_threshold, least_slope(times.dtype, v_threshold, tau_mem)]
    kinds = "T[2] int64[2] T[2] T[2] int32[2] float64[2] T[2] T[2]* float64[2]* float64[2]* int64[2]* float64[1]"
    kernel_for(kernel, kinds, times.dtype)(
        parts,
        _grain(order, neurons, of_all // neurons),
        *(flat, np.ascontiguousarray(order), weights, *by_sample, of_times, of_weights),
        empty((5 * parts, of_all), _FLOAT64),
        empty((2 * parts, max(events, of_all)), _INT64),
        np.array(constants, np.float64),
    )
    return of_times.reshape(times.shape), of_weights.sum(0).astype(times.dtype).reshape(weights.shape)


def least_slope(dtype: Any, v_threshold: float, tau_mem: float) -> float:
    """The smallest slope that is distinguishable from 0 after rounding."""
    return float(np.finfo(dtype).eps) * v_threshold / tau_mem
