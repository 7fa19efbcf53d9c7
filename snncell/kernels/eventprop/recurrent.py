"""Spikes and gradients of a recurrent layer of LIF neurons with exponential synapses, in one pass through all events.

The events are the input spikes and the spikes of the layer, which arrive at all of its neurons without a delay.
`spike_times.py` and `adjoint.py` have the computations between two events.
"""

from __future__ import annotations

from typing import Any

from numpy import exp, float64, inf

from snncell.kernels.eventprop.adjoint import LEAST, decay, received_by, run_backward
from snncell.kernels.eventprop.spike_times import (
    END,
    MEM,
    SYN,
    THRESHOLD,
    begin_sample,
    crossing,
    decays_of,
    latest,
    pass_on,
    put_in_order,
    run_forward,
    waves,
)  # fmt: skip
from snncell.kernels.intrinsics.builtins import call_once, inline
from snncell.kernels.intrinsics.elements import row, tail

TIE = 2.0**-30  # two spike times with a smaller relative difference count as the same time

# --- Spike times ------------------------------------------------------------------------------------------------------


@call_once
def next_spikes(
    near: Any, marked: Any, soon: Any, now: Any, left: Any, v: Any, i: Any, spikes: Any, constants: Any
) -> Any:
    """Find the time until the next spike among the neurons in `near`, at most `left`, or inf. `soon` gets the time
    until the next spike of each neuron, or inf if another neuron spikes before it. A neuron becomes silent if its next
    spike, rounded to its dtype, is not before the end.
    """
    times, _, _, number, wanted = spikes
    mem, syn, threshold, end = constants[MEM], constants[SYN], constants[THRESHOLD], constants[END]
    best, limit = float64(inf), left
    of_v, of_i, kappa = waves(limit, mem, syn)
    for mark in range(marked):
        n = near[mark]
        soon[mark] = inf
        v_then, i_then = v[n] * of_v + i[n] * kappa, i[n] * of_i
        late = -1.0
        if v_then >= threshold:
            late = limit
        elif i_then <= v_then:  # V had a peak
            late = latest(v[n], i[n], limit, constants)
        if late >= 0.0:
            s = crossing(v[n], i[n], late, constants)
            k = n * wanted + number[n]
            times[k] = now + s
            before_end = times[k] < end
            times[k] = inf
            if before_end:
                soon[mark] = s
                if s < best:
                    best = s
                    limit = best + TIE * abs(now + best)
                    limit = limit if limit < left else left
                    of_v, of_i, kappa = waves(limit, mem, syn)
            else:
                v[n], i[n] = -inf, -inf
    return best


@inline
def source_of(which: Any, events: Any, of_each: Any, inputs: Any, wanted: Any) -> Any:
    """The row of the weights of an event."""
    return which // of_each if which < events else inputs + (which - events) // wanted


@call_once
def spike_together(
    near: Any, marked: Any, soon: Any, best: Any, now: Any, v: Any, i: Any, spikes: Any, ordered: Any, last: Any,
    events: Any, weights: Any, constants: Any,
) -> Any:  # fmt: skip
    """Advance by the time `best`, store the spikes there as events after `last`, and return the last of these events.
    Add the weights of all new events except the last one, which the caller adds.
    """
    times, places, currents, number, wanted = spikes
    rows, neurons = weights.shape
    of_v, of_i, kappa = waves(best, constants[MEM], constants[SYN])
    before, limit = last, best + TIE * abs(now + best)
    for n in range(neurons):
        v[n] = v[n] * of_v + i[n] * kappa
        i[n] *= of_i
    for mark in range(marked):
        if soon[mark] <= limit:
            n = near[mark]
            k = n * wanted + number[n]
            times[k], places[k], currents[k] = now + soon[mark], before, i[n]
            number[n] += 1
            v[n] = 0.0
            if number[n] == wanted:
                v[n], i[n] = -inf, -inf
            last += 1
            ordered[last] = events + k
    for event in range(before + 1, last):
        weight = row(weights, rows - neurons + (ordered[event] - events) // wanted)
        for n in range(neurons):
            i[n] += weight[n]
    return last


@call_once
def find_in_sample(
    time: Any, ordered: Any, events: Any, of_each: Any, count: Any, queue: Any, weights: Any, flag: Any, near: Any,
    soon: Any, state: Any, spikes: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the spikes of one sample; `queue` has the input events in order, of which `count` are before the end. Each
    iteration begins at the time `now` of the event `last`, and goes on to the next event.
    """
    v, i, v_end, i_end = state
    rows, neurons = weights.shape
    _, _, _, _, wanted = spikes
    event, last, now = 1, 0, float64(time[queue[0]])
    ordered[0] = queue[0]
    while count > 0:
        until = float64(time[queue[event]]) if event < count else constants[END]
        left = until - now
        weight = row(weights, source_of(ordered[last], events, of_each, rows - neurons, wanted))
        marked = pass_on(v, i, v_end, i_end, weight, flag, near, neurons, decays_of(left, constants))
        best = next_spikes(near, marked, soon, now, left, v, i, spikes, constants)
        if best < inf:
            last = spike_together(
                near, marked, soon, best, now, v, i, spikes, ordered, last, events, weights, constants
            )  # fmt: skip
            now += best
        elif event < count:
            for mark in range(marked):
                if v[near[mark]] == -inf:  # its next spike is after the end
                    v_end[near[mark]], i_end[near[mark]] = -inf, -inf
            v, v_end, i, i_end = v_end, v, i_end, i
            now, last = until, last + 1
            ordered[last] = queue[event]
            event += 1
        else:
            break


def find_recurrent_spikes(
    start: Any, stop: Any, times: Any, order: Any, weights: Any, found: Any, places: Any, currents: Any, flags: Any,
    state: Any, numbers: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the first spikes of each neuron; as `find_spikes`, with two differences. `weights` (N_in + N, N) has the
    recurrent weights in its last rows. `order` (B, E + N K) has the events of a sample by time: the number of an input
    event, or E + n K + k for spike k of neuron n. After the last event, it has -1.
    """
    samples, events = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    parts, room = flags.shape
    _, most = order.shape
    wanted, inputs = wanted // neurons, inputs - neurons
    for part in range(start, stop):
        v, i = row(state, 5 * part), row(state, 5 * part + 1)
        v_end, i_end = row(state, 5 * part + 2), row(state, 5 * part + 3)
        soon = row(state, 5 * part + 4)
        number, near, queue = row(numbers, 6 * part), row(numbers, 6 * part + 1), row(numbers, 6 * part + 5)
        keys, spare, moved = row(numbers, 6 * part + 2), row(numbers, 6 * part + 3), row(numbers, 6 * part + 4)
        flag = row(flags, part)
        for n in range(neurons, room):
            flag[n] = 0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, ordered = row(times, sample), row(order, sample)
            spikes = row(found, sample), row(places, sample), row(currents, sample), number, wanted
            begin_sample(v, i, spikes, neurons)
            for event in range(most):
                ordered[event] = -1
            count = put_in_order(time, queue, events, constants[END], keys, spare, moved)
            find_in_sample(
                time, ordered, events, events // inputs, count, queue, weights, flag, near, soon,
                (v, i, v_end, i_end), spikes, constants,
            )  # fmt: skip


def find(times: Any, weights: Any, spikes: int, **constants: float) -> tuple[Any, Any, Any, Any]:
    """`spike_times.find` of a recurrent layer: `weights` are (N_in + N, N), and `order` is (B, E + N K)."""
    own_events = weights.shape[1] * spikes
    return run_forward(find_recurrent_spikes, times, weights, spikes, own_events, **constants)


# --- Gradients --------------------------------------------------------------------------------------------------------


@call_once
def send_back_sample(
    time: Any, ordered: Any, most: Any, of_each: Any, inputs: Any, weights: Any, spikes: Any, gradient: Any,
    of_time: Any, of_weights: Any, lists: Any, state: Any, constants: Any,
) -> None:  # fmt: skip
    """Sweep backwards through all events of a sample; see `adjoint.sweep` and `adjoint.sent_by`. When the sweep reaches
    a spike, its gradient is complete, because a spike only affects later events.
    """
    times, places, currents, events, wanted = spikes
    first, other = lists
    p, q, a, received, later = state
    _, neurons = weights.shape
    mem, syn, threshold = constants[MEM], constants[SYN], constants[THRESHOLD]
    for n in range(neurons):
        p[n], q[n], received[n], later[n] = 0.0, 0.0, 0.0, inf
    until = float64(inf)
    for event in range(most - 1, -1, -1):
        which = ordered[event]
        if which < 0:
            continue
        spike = which - events
        begin = float64(times[spike]) if spike >= 0 else float64(time[which])
        decay(p, q, neurons, until - begin, constants)
        k = first[event]
        while k >= 0:
            _, of_q, kappa = waves(float64(times[k]) - begin, mem, syn)
            p[k // wanted] += a[k] * kappa
            q[k // wanted] += a[k] * of_q
            k = other[k]
        source = source_of(which, events, of_each, inputs, wanted)
        own = received_by(p, q, row(weights, source), tail(of_weights, source * neurons), neurons) / mem
        if spike >= 0:
            n = spike // wanted
            received[n] *= exp((begin - later[n]) / mem)
            slope = (currents[spike] - threshold) / mem
            slope = slope if slope > constants[LEAST] else constants[LEAST]
            a[spike] = (received[n] * (threshold / mem) - float64(gradient[spike]) - own) / slope
            received[n] += a[spike]
            later[n] = begin
            other[spike] = first[places[spike]]
            first[places[spike]] = spike
        else:
            of_time[which] = own
        until = begin


def send_back_recurrent(
    start: Any, stop: Any, times: Any, order: Any, weights: Any, found: Any, places: Any, currents: Any,
    gradients: Any, of_times: Any, of_weights: Any, state: Any, numbers: Any, constants: Any,
) -> None:  # fmt: skip
    """The gradients of times and weights, as `send_back_kernel`, from the results of `find_recurrent_spikes`."""
    samples, events = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    parts, _ = of_weights.shape
    _, most = order.shape
    wanted = wanted // neurons
    for part in range(start, stop):
        p, q, a = row(state, 5 * part), row(state, 5 * part + 1), row(state, 5 * part + 2)
        received, later = row(state, 5 * part + 3), row(state, 5 * part + 4)
        first, other, sums = row(numbers, 2 * part), row(numbers, 2 * part + 1), row(of_weights, part)
        for n in range(inputs * neurons):
            sums[n] = 0.0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            of_time = row(of_times, sample)
            for event in range(events):
                of_time[event] = 0.0
            for event in range(most):
                first[event] = -1
            spikes = row(found, sample), row(places, sample), row(currents, sample), events, wanted
            send_back_sample(
                row(times, sample), row(order, sample), most, events // (inputs - neurons), inputs - neurons, weights,
                spikes, row(gradients, sample), of_time, sums, (first, other), (p, q, a, received, later), constants,
            )  # fmt: skip


def send_back(times: Any, weights: Any, *more: Any, **constants: float) -> tuple[Any, Any]:
    """`adjoint.send_back` of a recurrent layer."""
    return run_backward(send_back_recurrent, times, weights, *more, **constants)
