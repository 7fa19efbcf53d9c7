"""Spike times of any neuron with continuous dynamics, and their exact gradients, by a Runge-Kutta solver.

The functions `flow`, `condition`, `receive` and `jump`, and their vector-Jacobian products, are generated from the
user's neuron (`compiler/backends/event_neuron.py`). A group of LANES neurons is simulated together, so that a step is
computed in vectors (LLVM does not vectorise loops over fewer than 16 elements). Each neuron (lane) has its own time:
its next step ends at its next input spike, or after `STEP`. Only spikes are computed lane by lane.

`solver_adjoint.py` repeats the simulation of a group, and goes back through its steps.
"""

from __future__ import annotations

from typing import Any

from numpy import float64, inf, nan

from snncell.kernels.eventprop.spike_times import put_in_order
from snncell.kernels.intrinsics.builtins import call_once, inline, least
from snncell.kernels.intrinsics.elements import copy, row, tail
from snncell.kernels.loops import LANES

# Generated functions. Arrays have a row of LANES elements per quantity: y and z have the states, p the constants. Those
# with `one` in their names compute a single lane.
flow: Any = None  # (y, length, p, z): z becomes the states after a time
flow_one: Any = None  # (y, length, p, z, lane)
condition: Any = None  # (y, p, out): at least 0 where a neuron spikes
condition_one: Any = None
receive_one: Any = None  # (y, weight, p, z, lane): the states after an input spike
jump_one: Any = None  # (y, p, z, lane): the states after a spike

# The end of a lane's step: after the time STEP, at a spike, at an input spike, at an input spike with a spike at once,
# or at the end of the simulation. IDLE lanes have ended before.
IDLE, FULL, SPIKE, INPUT, INPUT_AND_SPIKE, LAST = range(6)
STEP, END, LEAST = range(3)  # indices into the constants of the simulation
ITERATIONS = 120
REGULAR = 12  # bisection makes every second iteration after these, so at least 54


@call_once
def crossing(y: Any, longest: Any, p: Any, z: Any, length: Any, above: Any, below: Any, lane: Any) -> Any:
    """The time until the condition reaches 0, at most `longest`; the lane of z becomes the states there.

    `below` and `above` are the conditions at both ends. False position with the Illinois rule: the value at an end that
    stays is halved, so that both ends move. Bisection helps if a value is so huge that the other end hardly moves.

    A NaN counts as above, because a state that grows fast, for example by exp(v), overflows in a step that ends after
    the crossing. The result is NaN if the condition becomes NaN without a crossing.
    """
    low, high, side, least_move = 0.0, longest, 0, 4e-16 * longest
    first, second = below[lane], above[lane]
    for number in range(ITERATIONS):
        if high - low <= least_move:
            break
        s = (low * second - high * first) / (second - first)
        if s < low + least_move:
            s = low + least_move
        elif s > high - least_move:
            s = high - least_move
        if not (low < s < high) or (number >= REGULAR and number & 1 == 1):
            s = 0.5 * (low + high)
        length[lane] = s
        flow_one(y, length, p, z, lane)
        condition_one(z, p, above, lane)
        value = above[lane]
        if value < 0.0:
            low, first = s, value
            second = 0.5 * second if side == -1 else second
            side = -1
        else:
            high, second = s, value
            first = 0.5 * first if side == 1 else first
            side = 1
            if value == 0.0:
                break
    length[lane] = high
    flow_one(y, length, p, z, lane)
    return high if second >= 0.0 else nan


@inline
def begin_steps(kind: Any, events: Any, now: Any, length: Any, places: Any, constants: Any) -> None:
    """Choose the length of each lane's next step: until its next input spike or the end, at most STEP."""
    when, _which, apart, counts, _of_each = events
    for lane in range(LANES):
        length[lane] = 0.0
        if kind[lane] != IDLE:
            event = places[lane]
            left = (when[apart * lane + event] if event < counts[lane] else constants[END]) - now[lane]
            length[lane] = constants[STEP] if left > constants[STEP] else left if left > 0.0 else 0.0


@call_once
def end_step(
    lane: Any, n: Any, events: Any, weights: Any, start: Any, p: Any, y: Any, z: Any, spikes: Any, kind: Any,
    lane_values: Any, constants: Any,
) -> Any:  # fmt: skip
    """End the step of a lane from the states `start` to z; return True if the simulation of the neuron ends.

    If the states have become NaN, so does the time of the next spike.
    """
    when, which, apart, counts, of_each = events
    found, wanted, numbers = spikes
    now, length, weight, above, below, places = lane_values
    event, number, own, spiked = places[lane], numbers[lane], tail(found, lane * wanted), False
    until = when[apart * lane + event] if event < counts[lane] else constants[END]
    if below[lane] < 0.0 and not above[lane] < 0.0:
        now[lane] += crossing(start, length[lane], p, z, length, above, below, lane)
        kind[lane], own[number] = SPIKE, now[lane]
        spiked = own[number] < constants[END]  # the time as rounded to its dtype
        if not spiked:
            kind[lane] = LAST
            own[number] = inf if now[lane] >= 0.0 else nan
            return True
    elif until - now[lane] > constants[STEP]:
        now[lane] += constants[STEP]
    elif event < counts[lane]:
        now[lane] = until
        places[lane] = event + 1
        weight[lane] = float64(row(weights, which[apart * lane + event] // of_each)[n])
        condition_one(z, p, below, lane)
        receive_one(z, weight, p, y, lane)
        condition_one(y, p, above, lane)
        spiked = below[lane] < 0.0 and above[lane] >= 0.0
        kind[lane] = INPUT_AND_SPIKE if spiked else INPUT
        if spiked:
            own[number] = now[lane]
    else:
        kind[lane] = LAST
        own[number] = inf if above[lane] == above[lane] else nan
        return True
    if spiked:
        numbers[lane] = number + 1
        jump_one(z if kind[lane] == SPIKE else y, p, y, lane)
    return numbers[lane] == wanted


@call_once
def simulate(
    events: Any, n0: Any, lanes: Any, weights: Any, p: Any, y: Any, z: Any, states: Any, spikes: Any, log: Any,
    lane_values: Any, constants: Any,
) -> Any:  # fmt: skip
    """Simulate a group of neurons from `n0` on, store their spikes, and log their steps; return the number of steps.

    `events` has the sorted times of the input spikes, their numbers, the distance between lanes in both (0 if all lanes
    share them), the number of each lane's, and of each input's. `y` has the initial states.
    """
    _found, _wanted, numbers = spikes
    log_y, log_z, log_length, kinds = log
    now, length, _weight, above, below, places = lane_values
    size, active, m = states * LANES, lanes, 0
    for lane in range(LANES):
        now[lane], places[lane], numbers[lane] = 0.0, 0, 0
        kinds[lane] = FULL if lane < lanes else IDLE
    while active > 0:
        kind, after, start = tail(kinds, m * LANES), tail(kinds, m * LANES + LANES), tail(log_y, m * size)
        begin_steps(kind, events, now, length, places, constants)
        copy(start, y, size)
        flow(y, length, p, z)
        condition(y, p, below)
        condition(z, p, above)
        copy(y, z, size)
        for lane in range(LANES):
            after[lane] = IDLE
            if kind[lane] != IDLE:
                if end_step(lane, n0 + lane, events, weights, start, p, y, z, spikes, kind, lane_values, constants):
                    active -= 1
                else:
                    after[lane] = FULL
        copy(tail(log_length, m * LANES), length, LANES)
        copy(tail(log_z, m * size), z, size)
        m += 1
    return m


@call_once
def events_of_neuron(
    time: Any, delays: Any, delayed: Any, n: Any, of_each: Any, count: Any, end: Any, when: Any, which: Any,
    scratch: Any,
) -> Any:  # fmt: skip
    """Sort the events of a sample by the times at which they reach neuron n; return the number before the end."""
    shifted, keys, spare, moved = scratch
    for event in range(count):
        shifted[event] = float64(time[event])
        if delayed != 0:
            shifted[event] += float64(row(delays, event // of_each)[n])
    number = put_in_order(shifted, which, count, end, keys, spare, moved)
    for place in range(number):
        when[place] = shifted[which[place]]
    return number


@call_once
def prepare(
    time: Any, delays: Any, delayed: Any, n0: Any, lanes: Any, events: Any, count: Any, end: Any, scratch: Any,
    initial: Any, values: Any, p: Any, y: Any,
) -> None:  # fmt: skip
    """Sort the events of a group of neurons, and load its constants and initial states."""
    when, which, apart, counts, of_each = events
    if delayed != 0 or n0 == 0:
        for lane in range(lanes if delayed != 0 else 1):
            own, places = tail(when, apart * lane), tail(which, apart * lane)
            counts[lane] = events_of_neuron(time, delays, delayed, n0 + lane, of_each, count, end, own, places, scratch)
        for lane in range(lanes if delayed != 0 else 1, LANES):
            counts[lane] = counts[0]
    states, _ = initial.shape
    params, _ = values.shape
    for k in range(states):
        copy(tail(y, k * LANES), tail(row(initial, k), n0), LANES)
    for k in range(params):
        copy(tail(p, k * LANES), tail(row(values, k), n0), LANES)


@inline
def memory_of_part(
    floats: Any, integers: Any, part: Any, count: Any, of_each: Any, delayed: Any, states: Any, rows: Any, most: Any
) -> Any:
    """Divide the scratch memory of a part: states, constants, events, log, values of lanes, memory to sort, the rest.

    `Simulation._memory` computes its size. The log has room for `most` steps.
    """
    memory, ints = row(floats, part), row(integers, part)
    size, room = states * LANES, count * (LANES if delayed != 0 else 1)
    p = tail(memory, 2 * size)
    now = tail(p, rows * LANES)
    when = tail(now, 5 * LANES)
    log_y = tail(when, room + count)
    log_length = tail(log_y, 2 * most * size)
    counts = tail(ints, room)
    keys = tail(counts, 3 * LANES)
    events = when, ints, count * delayed, counts, of_each
    log = log_y, tail(log_y, most * size), log_length, tail(keys, 3 * count)
    more = tail(now, LANES), tail(now, 2 * LANES), tail(now, 3 * LANES), tail(now, 4 * LANES)
    lane_values = now, more[0], more[1], more[2], more[3], tail(counts, LANES)
    scratch = tail(when, room), keys, tail(keys, count), tail(keys, 2 * count)
    return memory, tail(memory, size), p, events, log, lane_values, scratch, tail(log_length, most * LANES)


def find_with_solver(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, floats: Any,
    integers: Any, most: Any, delayed: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the first spikes of each neuron.

    `times` (B, E) lists the events of each sample input by input; `weights` and `delays` are (N_in, N). `initial` (S,
    N) and `values` (P, N), with N rounded up to a multiple of LANES, are the initial states and the constants. The
    output is `found` (B, N K). `floats` and `integers` are scratch memory with a row per part.
    """
    samples, count = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = floats.shape
    wanted = wanted // neurons
    for part in range(start, stop):
        y, z, p, events, log, lane_values, scratch, _rest = memory_of_part(
            floats, integers, part, count, count // inputs, delayed, states, rows, most
        )
        _when, _which, _apart, counts, _of_each = events
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, own = row(times, sample), row(found, sample)
            for k in range(neurons * wanted):
                own[k] = inf
            for n0 in range(0, neurons, LANES):
                lanes = least(LANES, neurons - n0)
                prepare(time, delays, delayed, n0, lanes, events, count, constants[END], scratch, initial, values, p, y)
                spikes = tail(own, n0 * wanted), wanted, tail(counts, 2 * LANES)
                simulate(events, n0, lanes, weights, p, y, z, states, spikes, log, lane_values, constants)
