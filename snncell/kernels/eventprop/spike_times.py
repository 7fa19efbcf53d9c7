"""Spike times of LIF neurons with exponential synapses (two exponentials), computed from event to event.

An event is an input spike: its weight is added to the current I. The potential V responds to a jump of I by 1 with the
function kappa; `nn/rules/eventprop.py` has the equations. The decay between two events is the same for all neurons. So
an event costs a few additions per neuron, and exponentials are necessary only once per event and per spike. All
computations are in float64. `find_spikes` is the kernel. A unit is a part of the samples.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import exp, expm1, float64, inf, int64, log1p

from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.builtins import bitcast, call_once, inline
from snncell.kernels.intrinsics.elements import copy, row, strip, words_of
from snncell.kernels.numba.build import kernel_for
from snncell.kernels.numba.policy import PARALLEL_SIZE

# --- Sort of events by time -------------------------------------------------------------------------------------------

FEW = 24  # up to this number of events, insertion sort is used
MAGNITUDE = 0x7FFFFFFFFFFFFFFF  # all bits of a float64 except its sign


@call_once
def put_in_order(time: Any, ordered: Any, events: Any, end: Any, keys: Any, spare: Any, moved: Any) -> Any:
    """Sort the events before `end` by time (stable), and put the others after them; return the number before `end`.
    `keys`, `spare` and `moved` are scratch memory for all events.
    """
    count, last = 0, events
    for event in range(events):
        if time[event] < end:
            ordered[count] = event
            count += 1
        else:
            last -= 1
            ordered[last] = event
    if count > FEW:
        sort_by_digits(time, ordered, count, keys, spare, moved)
        return count
    for first in range(1, count):
        event, place = ordered[first], first
        while place > 0 and time[ordered[place - 1]] > time[event]:
            ordered[place] = ordered[place - 1]
            place -= 1
        ordered[place] = event
    return count


@call_once
def sort_by_digits(time: Any, ordered: Any, count: Any, keys: Any, spare: Any, moved: Any) -> None:
    """Radix sort of events by the bits of their times, eight bits per pass."""
    firsts, differ = strip(256, int64), int64(0)
    for place in range(count):
        bits = bitcast(float64(float64(time[ordered[place]]) + 0.0), int64)  # + 0.0 turns -0 into 0
        keys[place] = bits if bits >= 0 else bits ^ MAGNITUDE  # the order of negative numbers is reversed
        differ |= keys[place] ^ keys[0]
    own, other, now, later, turned = keys, spare, ordered, moved, False
    for shift in range(0, 64, 8):
        if (differ >> shift) & 255 != 0:
            flip = 128 if shift == 56 else 0  # negative numbers, with their sign bit set, come first
            for digit in range(256):
                firsts[digit] = 0
            for place in range(count):
                firsts[((own[place] >> shift) & 255) ^ flip] += 1
            total = 0
            for digit in range(256):
                many = firsts[digit]
                firsts[digit] = total
                total += many
            for place in range(count):
                digit = ((own[place] >> shift) & 255) ^ flip
                to = firsts[digit]
                firsts[digit] = to + 1
                other[to] = own[place]
                later[to] = now[place]
            own, other, now, later, turned = other, own, later, now, not turned
    if turned:
        copy(ordered, now, count)


STEPS = 64  # the maximum number of iterations: three or four are usual, one per bit if V only touches the threshold
# Indices into the array of constants: the time constants, the threshold, the end of the simulation, and the time and
# the value of the peak of kappa.
MEM, SYN, THRESHOLD, END, PEAK, HIGHEST = range(6)


@inline
def waves(s: Any, mem: Any, syn: Any) -> Any:
    """The decay of V and of I over a time, and kappa. They are accurate for close time constants and for long times."""
    of_v, of_i = exp(-s / mem), exp(-s / syn)
    nearer = expm1(s * (-abs(mem - syn) / (mem * syn)))
    return of_v, of_i, (of_v if mem > syn else of_i) * nearer * (-syn / abs(mem - syn))


@call_once
def latest(v: Any, i: Any, longest: Any, constants: Any) -> Any:
    """The time of the peak of V, or `longest` if earlier; -1 without a peak, or if V is below the threshold then."""
    mem, syn, peak = constants[MEM], constants[SYN], constants[PEAK]
    if v == 0.0 and peak <= longest:  # V is proportional to kappa
        return peak if i * constants[HIGHEST] >= constants[THRESHOLD] else -1.0
    scale = (mem - syn) * v + syn * i  # positive if V has a peak after time 0
    if not scale > 0.0:
        return -1.0
    peak = log1p((i - v) / scale * (mem - syn)) * (mem * syn / (mem - syn))
    late = peak if peak < longest else longest
    of_v, _, kappa = waves(late, mem, syn)
    return late if v * of_v + i * kappa >= constants[THRESHOLD] else -1.0


@inline
def approach(s: Any, early: Any, late: Any, missing: Any, slope: Any, curve: Any) -> Any:
    """A step of Halley's method for the time at which a value is reached: the next time, and whether it is the last.

    At s the value is too small by `missing`, and has the derivatives `slope` and `curve`. The method cubes the error in
    each step. If the value only touches the threshold, a step could go far away. Therefore each step stays between
    `early`, the last time that was too early, and `late`, the last time that was late enough. Where the slope is near
    0, the method is slow, and the step is a bisection instead.
    """
    below = 2.0 * slope * slope + missing * curve
    step = 2.0 * missing * slope / below if 0.0 < below <= 3.0 * slope * slope else inf
    later = s + step
    if abs(step) < 1e-15 * s:
        later = s
    elif not (early < later < late):
        later, step = 0.5 * (early + late), inf
    last = abs(step) < 1e-15 * s or abs(step) * (step * curve) * (step * curve) <= 1e-17 * later * (slope * slope)
    return later, last


@call_once
def crossing(v: Any, i: Any, late: Any, constants: Any) -> Any:
    """The time at which V reaches the threshold, given V and I at time 0; V is above it at the time `late`."""
    mem, syn, threshold = constants[MEM], constants[SYN], constants[THRESHOLD]
    slow, apart, scale = -1.0 / (mem if mem > syn else syn), -abs(mem - syn) / (mem * syn), -syn / abs(mem - syn)
    s, early, missing, slope, current = 0.0, 0.0, threshold - v, (i - v) / mem, i
    if missing <= 0.0:
        return s
    for _ in range(STEPS):
        curve = -(current / syn + slope) / mem
        s, last = approach(s, early, late, missing, slope, curve)
        if last:
            break
        # `waves` with one exponential less; the additional rounding error is small compared with V.
        slower, nearer = exp(s * slow), expm1(s * apart)
        faster = slower + slower * nearer
        of_v, of_i = (slower, faster) if mem > syn else (faster, slower)
        missing = threshold - (v * of_v + i * (slower * nearer * scale))
        current = i * of_i
        slope = (current - (threshold - missing)) / mem
        if missing > 0.0:
            early = s
        else:
            late = s
        if not late - early > 1e-16 * late:
            break
    return s


@inline
def pass_on(
    v: Any, i: Any, v_end: Any, i_end: Any, weight: Any, flags: Any, near: Any, neurons: Any, decays: Any
) -> Any:
    """Add an event's weights to I, and compute V and I at the next event, assuming that no neuron spikes.

    Store the neurons that may spike in `near`, and return their number. `decays` has the decays of V and I until the
    next event, kappa, the maximum of kappa until then, and the threshold. The length of `flags` is a multiple of 8, and
    its elements after the neurons are 0.
    """
    of_v, of_i, kappa, reach, threshold = decays
    for n in range(neurons):
        i_now = i[n] + weight[n]
        v_then, i_then = v[n] * of_v + i_now * kappa, i_now * of_i
        # V can cross the threshold only if it rises at first, and if it is above the threshold at the end or has an
        # earlier peak. The bound excludes nearly all neurons without such a peak.
        bound = (v[n] if v[n] > 0.0 else 0.0) + i_now * reach
        crosses = (v_then >= threshold) | ((i_then <= v_then) & (bound >= threshold))
        flags[n] = (i_now > v[n]) & (i_now > 0.0) & crosses
        i[n] = i_now
        v_end[n] = v_then
        i_end[n] = i_then
    words = words_of(flags)
    marked = 0
    for word in range((neurons + 7) // 8):
        if words[word] != 0:
            for n in range(8 * word, 8 * word + 8):  # branch-free, so `near` needs room for 8 more elements
                near[marked] = n
                marked += flags[n] != 0
    return marked


@call_once
def spike_until(
    n: Any, event: Any, begin: Any, left: Any, v: Any, i: Any, v_end: Any, i_end: Any, spikes: Any, constants: Any
) -> Any:
    """Find the spikes of a neuron until the next event, a time `left` from now; return True if they were its last ones.
    `spikes` has the spike times, the events before them, the currents, the numbers of spikes, and their maximum.
    """
    times, places, currents, number, wanted = spikes
    mem, syn, end = constants[MEM], constants[SYN], constants[END]
    v_now, i_now, now, spiked = v[n], i[n], begin, False
    late = left if v_end[n] >= constants[THRESHOLD] else latest(v_now, i_now, left, constants)
    while late >= 0.0:
        s = crossing(v_now, i_now, late, constants)
        now += s
        left -= s
        v_now, i_now, spiked = 0.0, i_now * exp(-s / syn), True
        k = n * wanted + number[n]
        times[k] = now
        if times[k] < end:  # the time as rounded to its dtype
            places[k] = event
            currents[k] = i_now
            number[n] += 1
        else:
            times[k] = inf
            number[n] = wanted
        late = latest(v_now, i_now, left, constants) if number[n] < wanted and i_now > 0.0 else -1.0
    if number[n] == wanted:
        v_end[n] = -inf  # -inf, so that this neuron never becomes a candidate again
        i_end[n] = -inf
        return True
    if spiked:
        _, of_i, kappa = waves(left, mem, syn)
        v_end[n] = i_now * kappa
        i_end[n] = i_now * of_i
    return False


@inline
def decays_of(length: Any, constants: Any) -> Any:
    """The `decays` for `pass_on` over a time without spikes."""
    of_v, of_i, kappa = waves(length, constants[MEM], constants[SYN])
    reach = kappa if length < constants[PEAK] else constants[HIGHEST]
    return of_v, of_i, kappa, reach * (1.0 + 1e-9), constants[THRESHOLD]  # so that the bound holds despite rounding


@inline
def begin_sample(v: Any, i: Any, spikes: Any, neurons: Any) -> None:
    """Reset the neurons and their spikes."""
    times, places, currents, number, wanted = spikes
    for n in range(neurons):
        v[n] = 0.0
        i[n] = 0.0
        number[n] = 0
    for k in range(neurons * wanted):
        times[k] = inf
        places[k] = -1
        currents[k] = 0.0


def find_spikes(
    start: Any, stop: Any, times: Any, order: Any, weights: Any, found: Any, places: Any, currents: Any, flags: Any,
    state: Any, numbers: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the first spikes of each neuron, the number of the event before each spike, and the current there.

    `times` (B, E) lists the events of each sample input by input; `weights` is (N_in, N). Outputs are `order` (B, E),
    the events sorted by time, and `found`, `places` and `currents` (B, N K), which are inf, -1 and 0 for missing
    spikes. `flags` (parts, N rounded up to a multiple of 8), `state` (at least 4 parts, N) and `numbers` (at least 5
    parts, at least E and N + 16) are overwritten.
    """
    samples, events = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    parts, room = flags.shape
    wanted = wanted // neurons
    for part in range(start, stop):
        v, i = row(state, 4 * part), row(state, 4 * part + 1)
        v_end, i_end = row(state, 4 * part + 2), row(state, 4 * part + 3)
        number, near = row(numbers, 5 * part), row(numbers, 5 * part + 1)
        keys, spare, moved = row(numbers, 5 * part + 2), row(numbers, 5 * part + 3), row(numbers, 5 * part + 4)
        flag = row(flags, part)
        for n in range(neurons, room):
            flag[n] = 0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, ordered = row(times, sample), row(order, sample)
            spikes = row(found, sample), row(places, sample), row(currents, sample), number, wanted
            begin_sample(v, i, spikes, neurons)
            count = put_in_order(time, ordered, events, constants[END], keys, spare, moved)
            event, waiting = 0, neurons
            while event < count and waiting > 0:
                begin = float64(time[ordered[event]])
                until = float64(time[ordered[event + 1]]) if event + 1 < count else constants[END]
                weight = row(weights, ordered[event] // (events // inputs))
                left = until - begin
                marked = pass_on(v, i, v_end, i_end, weight, flag, near, neurons, decays_of(left, constants))
                for mark in range(marked):
                    waiting -= spike_until(near[mark], event, begin, left, v, i, v_end, i_end, spikes, constants)
                v, v_end, i, i_end = v_end, v, i_end, i
                event += 1


PARTS = 64  # the maximum number of units
EVENT_COST = 2  # the time per event and neuron, in elementwise additions (`PARALLEL_SIZE`): 0.6 ns
SPIKE_COST = 500  # the time per spike: 200 ns

_INT32, _INT64, _FLOAT64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64)


def find(
    times: Any, weights: Any, spikes: int, tau_mem: float, tau_syn: float, v_threshold: float, t_max: float
) -> tuple[Any, Any, Any, Any]:
    """Find the first spikes of neurons, and the values that the backward pass needs; see `nn.EventPropLIF`.

    Args:
        times: (B, N_in, K_in), in any order.
        weights: (N_in, N), of the same dtype.
        spikes: K, the maximum number of spikes per neuron.

    Returns the spike times (B, N, K), inf for missing spikes; the order of a sample's events (B, E); the number, in
    that order, of the event before each spike, -1 if missing; and the current there (B, N, K).
    """
    return run_forward(find_spikes, times, weights, spikes, 0, tau_mem, tau_syn, v_threshold, t_max)


def run_forward(
    kernel: Any, times: Any, weights: Any, spikes: int, own_events: int, tau_mem: float, tau_syn: float,
    v_threshold: float, t_max: float,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """Run the kernel of `find`, with `own_events` events per sample in addition to those of the inputs."""
    samples, neurons = len(times), weights.shape[1]
    flat, weights = np.ascontiguousarray(times.reshape(samples, -1)), np.ascontiguousarray(weights)
    shape, parts, room = (samples, neurons, spikes), min(samples, PARTS), -(-neurons // 8) * 8
    found, places, currents = empty(shape, times.dtype), empty(shape, _INT32), empty(shape, _FLOAT64)
    order = empty((samples, flat.shape[1] + own_events), _INT64)
    constants = [tau_mem, tau_syn, v_threshold, times.dtype.type(t_max), *_peak(tau_mem, tau_syn)]
    kinds = "T[2] int64[2]* T[2] T[2]* int32[2]* float64[2]* uint8[2]* float64[2]* int64[2]* float64[1]"
    kernel_for(kernel, kinds, times.dtype)(
        parts,
        _grain(order, neurons, spikes),
        *(flat, order, weights),
        *(x.reshape(samples, -1) for x in (found, places, currents)),
        empty((parts, room), np.dtype(np.uint8)),
        empty((5 * parts, room + 8), _FLOAT64),
        empty((6 * parts, max(flat.shape[1], room + 8)), _INT64),
        np.array(constants, np.float64),
    )
    return found, order, places, currents


def _peak(tau_mem: float, tau_syn: float) -> tuple[float, float]:
    s = math.log1p((tau_mem - tau_syn) / tau_syn) * (tau_mem * tau_syn / (tau_mem - tau_syn))
    nearer = math.expm1(s * (-abs(tau_mem - tau_syn) / (tau_mem * tau_syn)))
    return s, math.exp(-s / max(tau_mem, tau_syn)) * nearer * (-tau_syn / abs(tau_mem - tau_syn))


def _grain(flat: Any, neurons: int, spikes: int) -> int:
    work = neurons * (EVENT_COST * flat.size + SPIKE_COST * len(flat) * spikes)
    return int(work >= PARALLEL_SIZE)
