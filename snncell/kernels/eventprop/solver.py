"""Spike times of any neuron with continuous dynamics, and their exact gradients, by Runge-Kutta steps or closed forms.

The functions `flow`, `condition`, `receive` and `jump`, and their vector-Jacobian products, are generated from the
user's neuron (`compiler/backends/event_neuron.py`). A group of LANES neurons is simulated together, so that a step is
computed in vectors (LLVM does not vectorise loops over fewer than 16 elements). Each neuron has a lane of the vectors,
and its own time: its next step ends at its next input spike, or after the time `STEP`. Only spikes are computed lane by
lane.

Neurons with linear equations have steps in closed form (`EXACT`), of any length. Such a step ends at an input spike.
Before it, the condition and `readout` have at most one extremum. The step ends at this extremum instead if the
condition changes its sign before it, or if the read-out has a new maximum there. So no crossing is missed, and spikes
and maxima are exact. As the flow is exact, gradients do not depend on the ends of steps.

`solver_adjoint.py` repeats the simulation of a group, and goes back through its steps.

If neurons have a refractory period (`REFRACTORY`), the last state in the kernels is the time that is left of it. While
it is positive, the generated functions keep the user's states and the condition constant.
"""

from __future__ import annotations

from typing import Any

from numpy import float64, inf, nan

from snncell.kernels.eventprop.spike_times import approach, put_in_order
from snncell.kernels.intrinsics.builtins import call_once, inline, least
from snncell.kernels.intrinsics.elements import copy, row, tail
from snncell.kernels.loops import LANES

# Generated functions. Arrays have a row of LANES elements per quantity: y and z have the states, p the constants. Those
# with `one` in their names compute a single lane.
flow: Any = None  # (y, length, p, z): z becomes the states after a time
flow_one: Any = None  # (y, length, p, z, lane)
condition: Any = None  # (y, p, out): at least 0 where a neuron spikes
condition_one: Any = None
readout: Any = None  # (y, p, out): the number whose maximum over time is an output
readout_one: Any = None
receive_one: Any = None  # (y, weight, p, z, lane): the states after an input spike
jump_one: Any = None  # (y, p, z, lane): the states after a spike
# For closed forms only. The rows of `course` are the slopes of the condition and of `readout`, and the second
# derivative of the condition, at z in the dynamics of y. The rows of `turn` are the times above 0 at which the slopes
# are 0.
course: Any = None  # (y, z, p, out)
probe_one: Any = None  # (y, length, p, out, lane): the condition after a time, and its derivatives
turn_one: Any = None  # (y, p, out, lane)

REFRACTORY: Any = None  # 1 if the last state is the time that is left of the refractory period, otherwise 0
EXACT: Any = None  # 1 if steps are in closed form, otherwise 0

# The end of a lane's step: FULL after the time STEP, RECOVERY at the end of a refractory period, SPIKE at a spike,
# INPUT at an input spike, LAST at the end of the simulation. A recovery and an input can cause a spike at once. The
# simulation of IDLE lanes has ended before.
IDLE, FULL, RECOVERY, RECOVERY_AND_SPIKE, SPIKE, INPUT, INPUT_AND_SPIKE, LAST = range(8)
# Indices into the constants of the simulation. Recurrent layers are simulated in windows; END is the end of a window.
STEP, END, LEAST, FINAL = range(4)
ITERATIONS = 120
MOST_STEPS = 10_000_000  # of a neuron
REGULAR = 12  # bisection makes every second iteration after these, so at least 54
CONDITION, READOUT, CURVE = range(3)  # rows of `course` and `turn`
STEEPEST = 1e100
BISECTIONS = 1100  # as many as there are exponents and digits of a float64


@call_once
def crossing(y: Any, longest: Any, p: Any, z: Any, length: Any, above: Any, below: Any, lane: Any) -> Any:
    """The time until the condition reaches 0, at most `longest`; the lane of z becomes the states there.

    `below` and `above` are the values of the condition at the start and at the end. The method is false position with
    the Illinois rule: the value at an end that stays is halved, so that both ends move. If a value is so huge that the
    other end hardly moves, bisection helps.

    A NaN counts as above 0, because a state that grows fast, for example by exp(v), overflows in a step that ends after
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


@call_once
def exact_crossing(y: Any, longest: Any, p: Any, z: Any, length: Any, below: Any, courses: Any, lane: Any) -> Any:
    """As `crossing`, by Halley's method in an interval; `courses` has the rows of `course` at the start, and memory."""
    s, early, late, missing = 0.0, 0.0, longest, -below[lane]
    slope, curve, out = courses[lane], courses[CURVE * LANES + lane], tail(courses, 3 * LANES)
    for _ in range(BISECTIONS):
        s, done = approach(s, early, late, missing, slope, curve)
        if done:
            break
        length[lane] = s
        probe_one(y, length, p, out, lane)
        missing, slope, curve = -out[lane], out[LANES + lane], out[2 * LANES + lane]
        if not abs(slope) < STEEPEST:
            slope = 0.0  # bisect, because the squares of the method would overflow
        if missing > 0.0:
            early = s
        else:
            late = s
        if not late - early > 1e-16 * late:
            break
    length[lane] = s
    flow_one(y, length, p, z, lane)
    return s if missing == missing else nan


@call_once
def end_at_extremum(
    which: Any, lane: Any, y: Any, z: Any, x: Any, p: Any, states: Any, kind: Any, lane_values: Any, highest: Any
) -> None:
    """End a lane's step at the extremum of the condition or the read-out, if it matters; x is memory for states."""
    value, maximum, _place = highest
    _now, length, _weight, above, below, _places = lane_values
    last, turns, whole = tail(value, 4 * LANES), tail(value, 7 * LANES), length[lane]
    turn_one(y, p, turns, lane)
    s = turns[which * LANES + lane]
    if 0.0 < s < whole:
        length[lane] = s
        flow_one(y, length, p, x, lane)
        if which == READOUT:
            readout_one(x, p, value, lane)
            matters = value[lane] > maximum[lane]
        else:
            condition_one(x, p, value, lane)
            matters = (value[lane] < 0.0) != (below[lane] < 0.0)
        if matters:
            kind[lane] = FULL
            for k in range(states):
                z[k * LANES + lane] = x[k * LANES + lane]
            condition_one(z, p, above, lane)
            probe_one(y, length, p, turns, lane)
            last[lane] = turns[LANES + lane]
        else:
            length[lane] = whole


@inline
def may_reach(lane: Any, length: Any, above: Any, below: Any, first: Any, last: Any) -> Any:
    """True if the condition may have a maximum of at least 0 within a step. If it curves down at both ends, it is below
    both tangents; if only at the first end, it is below the tangent there.
    """
    rise, fall = first[lane], last[lane]
    if not rise > 0.0 >= fall:
        return False
    if first[CURVE * LANES + lane] > 0.0:
        return True
    until = length
    if last[CURVE * LANES + lane] < 0.0:
        until = (above[lane] - below[lane] - fall * length) / (rise - fall)
    return below[lane] + rise * until >= 0.0


@inline
def end_at_extrema(
    lanes: Any, y: Any, z: Any, x: Any, p: Any, states: Any, kind: Any, lane_values: Any, watched: Any, highest: Any
) -> None:
    """End the steps of lanes at extrema that matter; the signs of the slopes exclude extrema in most steps."""
    value, _maximum, _place = highest
    _now, length, _weight, above, below, _places = lane_values
    first, last = tail(value, LANES), tail(value, 4 * LANES)
    course(y, y, p, first)
    course(y, z, p, last)
    for lane in range(lanes):
        if kind[lane] != IDLE:
            if watched != 0 and first[READOUT * LANES + lane] > 0.0 >= last[READOUT * LANES + lane]:
                end_at_extremum(READOUT, lane, y, z, x, p, states, kind, lane_values, highest)
            under = below[lane] < 0.0
            if (above[lane] < 0.0) == under and (
                may_reach(lane, length[lane], above, below, first, last) if under else first[lane] < 0.0 <= last[lane]
            ):
                end_at_extremum(CONDITION, lane, y, z, x, p, states, kind, lane_values, highest)


@inline
def begin_steps(
    lanes: Any, kind: Any, events: Any, now: Any, length: Any, places: Any, y: Any, rest: Any, constants: Any
) -> None:
    """Choose the length of each lane's next step: until its next input spike or the end, at most STEP. Row `rest` of y
    is the time that is left of a refractory period; a step also ends with this period. The kind becomes FULL for the
    length STEP, otherwise LAST, which `end_step` replaces.
    """
    when, _which, apart, counts, _of_each = events
    for lane in range(lanes):
        length[lane] = 0.0
        if kind[lane] != IDLE:
            event = places[lane]
            left = (when[apart * lane + event] if event < counts[lane] else constants[END]) - now[lane]
            kind[lane] = FULL if left > constants[STEP] else LAST
            length[lane] = constants[STEP] if left > constants[STEP] else left if left > 0.0 else 0.0
            if REFRACTORY != 0 and 0.0 < y[rest * LANES + lane] <= length[lane]:
                kind[lane], length[lane] = LAST, y[rest * LANES + lane]


@call_once
def end_step(
    lane: Any, n: Any, events: Any, weights: Any, start: Any, p: Any, y: Any, z: Any, rest: Any, spikes: Any,
    kind: Any, lane_values: Any, courses: Any, constants: Any,
) -> Any:  # fmt: skip
    """End the step of a lane from the states `start` to z; return True if the simulation of the neuron ends. A full
    step needs this function only if a spike ends it. If the states have become NaN, the time of the next spike is NaN.
    """
    when, which, apart, counts, of_each = events
    found, wanted, limit, numbers = spikes
    now, length, weight, above, below, places = lane_values
    event, number, own, spiked = places[lane], numbers[lane], tail(found, lane * wanted), False
    if REFRACTORY != 0 and 0.0 < start[rest * LANES + lane] <= length[lane]:
        now[lane] += length[lane]
        spiked = above[lane] >= 0.0
        kind[lane] = RECOVERY_AND_SPIKE if spiked else RECOVERY
    elif below[lane] < 0.0 and not above[lane] < 0.0:
        if EXACT != 0:
            now[lane] += exact_crossing(start, length[lane], p, z, length, below, courses, lane)
        else:
            now[lane] += crossing(start, length[lane], p, z, length, above, below, lane)
        kind[lane], spiked = SPIKE, True
    elif event < counts[lane]:
        now[lane] = when[apart * lane + event]
        places[lane] = event + 1
        weight[lane] = float64(row(weights, which[apart * lane + event] // of_each)[n])
        below[lane] = above[lane]
        receive_one(z, weight, p, y, lane)
        condition_one(y, p, above, lane)
        spiked = below[lane] < 0.0 and above[lane] >= 0.0
        kind[lane] = INPUT_AND_SPIKE if spiked else INPUT
    else:
        kind[lane] = LAST
        if number < wanted:
            own[number] = inf if above[lane] == above[lane] else nan
        return True
    if spiked:
        spiked = now[lane] < constants[FINAL]
        if number < wanted:
            own[number] = now[lane]
            spiked = spiked and own[number] < constants[FINAL]  # the time as rounded to its dtype
        if not spiked:
            kind[lane] = LAST
            if number < wanted:
                own[number] = inf if now[lane] >= 0.0 else nan
            return True
        numbers[lane] = number + 1
        jump_one(y if kind[lane] == INPUT_AND_SPIKE else z, p, y, lane)
    return numbers[lane] == limit


@inline
def watch(kind: Any, y: Any, p: Any, point: Any, highest: Any) -> None:
    """Update the maximum of `readout` of each lane, and the number of its point in time. NaN counts as the highest."""
    value, maximum, place = highest
    readout(y, p, value)
    for lane in range(LANES):
        if kind[lane] != IDLE and not value[lane] <= maximum[lane] and maximum[lane] == maximum[lane]:
            maximum[lane] = value[lane]
            place[lane] = point


@call_once
def begin_group(lanes: Any, numbers: Any, ends: Any, log: Any, lane_values: Any) -> None:
    """Begin the simulation of a group at time 0."""
    _last, _watched, highest = ends
    _value, maximum, place = highest
    _log_y, _log_z, _log_length, kinds, _most = log
    now, length, _weight, _above, _below, places = lane_values
    for lane in range(LANES):
        length[lane] = 0.0  # the steps of lanes that are not simulated have no length
        now[lane], places[lane], numbers[lane], maximum[lane], place[lane] = 0.0, 0, 0, -inf, 0
        kinds[lane] = FULL if lane < lanes else IDLE


@call_once
def simulate(
    events: Any, n0: Any, lanes: Any, weights: Any, p: Any, y: Any, z: Any, states: Any, spikes: Any, ends: Any,
    log: Any, lane_values: Any, constants: Any, first: Any,
) -> Any:  # fmt: skip
    """Simulate a group of neurons from `n0` on, store their spikes, and log their steps; return the number of steps.

    The first step has the number `first`, and its lanes that are not IDLE are simulated. `events` has five entries: the
    sorted times of the input spikes, their numbers, the distance between lanes in both (0 if all lanes share them), the
    number of input spikes of each lane, and their number per input. `y` has the initial states. `spikes` has the spike
    times, their number per neuron, the number of spikes that ends a simulation, and the number of spikes of each lane.
    `ends` has the last states, whether to find the maximum of `readout`, and memory for it. A maximum at the start of
    step m has the number 2 m, and at the end of it 2 m + 1. The log keeps the last `most` steps.
    """
    last, watched, highest = ends
    log_y, log_z, log_length, kinds, most = log
    now, length, _weight, above, below, places = lane_values
    size, active, m, here = states * LANES, 0, first, first
    for lane in range(lanes):
        active += kinds[first * LANES + lane] != IDLE
    while active > 0 and m < MOST_STEPS:
        there = here + 1 if here + 1 < most else 0
        kind, after, start = tail(kinds, here * LANES), tail(kinds, there * LANES), tail(log_y, here * size)
        begin_steps(lanes, kind, events, now, length, places, y, states - 1, constants)
        copy(start, y, size)
        flow(y, length, p, z)
        condition(y, p, below)
        condition(z, p, above)
        if watched != 0:
            watch(kind, y, p, 2 * m, highest)
        if EXACT != 0:
            end_at_extrema(lanes, start, z, last, p, states, kind, lane_values, watched, highest)
        copy(y, z, size)
        for lane in range(lanes):
            after[lane] = kind[lane]
            if kind[lane] == FULL and (not below[lane] < 0.0 or above[lane] < 0.0):
                now[lane] += length[lane]
            elif kind[lane] != IDLE and end_step(
                lane, n0 + lane, events, weights, start, p, y, z, states - 1, spikes, kind, lane_values,
                tail(highest[0], LANES), constants,
            ):  # fmt: skip
                active -= 1
                after[lane] = IDLE
                for k in range(states):
                    last[k * LANES + lane] = z[k * LANES + lane] if now[lane] == now[lane] else nan
        if watched != 0:
            watch(kind, z, p, 2 * m + 1, highest)
        copy(tail(log_length, here * LANES), length, LANES)
        copy(tail(log_z, here * size), z, size)
        m, here = m + 1, there
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
    """Divide the scratch memory of a part: states, constants, events, log, values of lanes, ends, memory to sort, rest.
    `Simulation._memory` computes its size. The log has room for `most` steps.
    """
    memory, ints = row(floats, part), row(integers, part)
    size, room = states * LANES, count * (LANES if delayed != 0 else 1)
    p = tail(memory, 2 * size)
    now = tail(p, rows * LANES)
    last = tail(now, 16 * LANES)
    when = tail(last, size)
    log_y = tail(when, room + count)
    log_length = tail(log_y, 2 * most * size)
    counts = tail(ints, room)
    keys = tail(counts, 4 * LANES)
    events = when, ints, count * delayed, counts, of_each
    log = log_y, tail(log_y, most * size), log_length, tail(keys, 3 * count), most
    more = tail(now, LANES), tail(now, 2 * LANES), tail(now, 3 * LANES), tail(now, 4 * LANES)
    lane_values = now, more[0], more[1], more[2], more[3], tail(counts, LANES)
    highest = tail(now, 6 * LANES), tail(now, 5 * LANES), tail(counts, 3 * LANES)
    scratch = tail(when, room), keys, tail(keys, count), tail(keys, 2 * count)
    rest = tail(log_length, most * LANES)
    return memory, tail(memory, size), p, events, log, lane_values, last, highest, scratch, rest


@call_once
def store_ends(n0: Any, lanes: Any, rows: Any, neurons: Any, ends: Any, last: Any, maximum: Any) -> None:
    """Copy `rows` of the last states of a group, and its maxima, to the arrays of all neurons of a sample."""
    of_group, watched, highest = ends
    _value, largest, _place = highest
    for lane in range(lanes):
        if watched != 0:
            maximum[n0 + lane] = largest[lane]
        for k in range(rows):
            last[k * neurons + n0 + lane] = of_group[k * LANES + lane]


def find_with_solver(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, last: Any,
    maximum: Any, steps: Any, floats: Any, integers: Any, most: Any, delayed: Any, limit: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the first spikes of each neuron, its last states, and the maximum of `readout`.

    `times` (B, E) lists the events of each sample input by input; `weights` and `delays` are (N_in, N). `initial` (S,
    N) and `values` (P, N), with N rounded up to a multiple of LANES, are the initial states and the constants. A
    simulation ends after `limit` spikes. The outputs are `found` (B, N K), the states at the end `last` (B, S N), and
    `maximum` (B, N); each can be (B, 0) instead. For each part, `steps` is the largest number of steps of a group.
    `floats` and `integers` are scratch memory with a row per part.
    """
    samples, count = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    _, of_last = last.shape
    _, watched = maximum.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = floats.shape
    wanted = wanted // neurons
    for part in range(start, stop):
        y, z, p, events, log, lane_values, of_group, highest, scratch, _rest = memory_of_part(
            floats, integers, part, count, count // inputs, delayed, states, rows, most
        )
        _when, _which, _apart, counts, _of_each = events
        ends = of_group, watched, highest
        steps[part] = 0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, own = row(times, sample), row(found, sample)
            for k in range(neurons * wanted):
                own[k] = inf
            for n0 in range(0, neurons, LANES):
                lanes = least(LANES, neurons - n0)
                prepare(time, delays, delayed, n0, lanes, events, count, constants[END], scratch, initial, values, p, y)
                spikes = tail(own, n0 * wanted), wanted, limit, tail(counts, 2 * LANES)
                begin_group(lanes, tail(counts, 2 * LANES), ends, log, lane_values)
                m = simulate(events, n0, lanes, weights, p, y, z, states, spikes, ends, log, lane_values, constants, 0)
                steps[part] = m if m > steps[part] else steps[part]
                store_ends(n0, lanes, of_last // neurons, neurons, ends, row(last, sample), row(maximum, sample))
