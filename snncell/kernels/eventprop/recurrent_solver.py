"""Recurrent layers of any event-driven neuron: the solver runs in windows of time, so that one pass is enough.

A window is at most a step long, and ends when the first spike that occurs in it arrives at a neuron. So no spike
arrives in the window in which it occurs, and the neurons are independent within a window. If a window contains a spike
that arrives before the end of the window, it is simulated again up to this arrival. The backward pass goes back through
the windows. When it reaches a spike, it has passed all arrivals of this spike, so that its gradient is complete.

The steps of all neurons end with a window. This time depends on the spike that arrives there, or, without an arrival,
on the start of the window. So the backward pass first computes the gradient of the time, from the steps that end and
begin there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import float64, inf, int64

from snncell.kernels.arrays import empty
from snncell.kernels.eventprop.solver import (
    END,
    FINAL,
    FULL,
    IDLE,
    LAST,
    MOST_STEPS,
    STEP,
    begin_group,
    memory_of_part,
    prepare,
    simulate,
    store_ends,
)
from snncell.kernels.eventprop.solver_adjoint import (
    Simulation,
    add_lane,
    add_readout,
    begin_back,
    clear,
    flow_back,
    kernel_with,
    sweep_back,
)
from snncell.kernels.intrinsics.builtins import call_once, inline, least
from snncell.kernels.intrinsics.elements import copy, row, tail
from snncell.kernels.loops import LANES

# Indices of constants: the relative delay of a spike, which arrives after it occurs, although its time is rounded; and
# the longest window. STEP is inf here, because steps end with the window.
LATE, WINDOW = 4, 5
AT_STEP, AT_FINAL = -1, -2  # ends of windows after the time WINDOW, and at the end of the simulation
ROWS_BEFORE = 2  # of floats before a window, after the states: times and maxima


@inline
def group_of(space: Any, place: Any) -> Any:
    """The memory of a group, as `memory_of_part`, and integers: places and numbers before a window, events, steps."""
    floats, integers, count, of_each, states, rows, most = space
    y, z, p, events, log, lane_values, last, highest, scratch, rest = memory_of_part(
        floats, integers, place, count, of_each, 1, states, rows, most
    )
    _log_y, _log_z, _log_length, kinds, _most = log
    return y, z, p, events, log, lane_values, last, highest, scratch, rest, tail(kinds, most * LANES)


@inline
def memory_of_gradients(rest: Any, count: Any, states: Any, params: Any) -> Any:
    """The gradients of a group's events, and the memory of `sweep_back`."""
    of_events, outs = tail(rest, (states + ROWS_BEFORE) * LANES), (states + 1 + params) * LANES
    lam = tail(of_events, count * LANES)
    out = tail(lam, 2 * states * LANES)
    return of_events, (lam, tail(lam, states * LANES), out, tail(out, outs), tail(out, 2 * outs))


@inline
def arrival_of(time: Any, constants: Any) -> Any:
    """The time at which a spike arrives without a delay."""
    return time + (abs(time) + 1e-30) * constants[LATE]


@call_once
def run_group(
    space: Any, place: Any, n0: Any, neurons: Any, limits: Any, weights: Any, found: Any, again: Any, logged: Any,
    constants: Any,
) -> Any:  # fmt: skip
    """Simulate a group until the end of the window; return its number of steps. With `again`, repeat the window."""
    _floats, _integers, _count, _of_each, states, _rows, _most = space
    y, z, p, events, log, lane_values, last, highest, _scratch, rest, numbers_before = group_of(space, place)
    when, which, apart, counts, of_each = events
    now, _length, _weight, _above, _below, places = lane_values
    wanted, limit, watched = limits
    _value, maximum, point = highest
    numbers, size = tail(counts, 2 * LANES), states * LANES
    now_before, maximum_before = tail(rest, size), tail(rest, size + LANES)
    places_before, totals = tail(numbers_before, LANES), tail(numbers_before, 2 * LANES)
    steps, point_before = tail(numbers_before, 3 * LANES), tail(numbers_before, 4 * LANES)
    first = steps[0] if logged != 0 else 0
    _log_y, _log_z, _log_length, kinds, _most = log
    if again != 0:
        copy(y, rest, size)
    else:
        copy(rest, y, size)
    for lane in range(LANES):
        if again != 0:
            now[lane], places[lane], numbers[lane] = now_before[lane], places_before[lane], numbers_before[lane]
            maximum[lane], point[lane] = maximum_before[lane], point_before[lane]
        else:
            now_before[lane], places_before[lane], numbers_before[lane] = now[lane], places[lane], numbers[lane]
            maximum_before[lane], point_before[lane] = maximum[lane], point[lane]
        running = n0 + lane < neurons and numbers[lane] < limit and now[lane] == now[lane]
        kinds[first * LANES + lane] = FULL if running else IDLE
        counts[lane] = places[lane]
        if running:
            for k in range(numbers[lane], wanted):
                found[(n0 + lane) * wanted + k] = inf
            while counts[lane] < totals[lane] and when[apart * lane + counts[lane]] < constants[END]:
                counts[lane] += 1
    spikes = tail(found, n0 * wanted), wanted, limit, numbers
    lanes = least(LANES, neurons - n0)
    events, ends = (when, which, apart, counts, of_each), (last, watched, highest)
    steps_after = simulate(
        events, n0, lanes, weights, p, y, z, states, spikes, ends, log, lane_values, constants, first
    )
    for lane in range(LANES):
        now[lane] = constants[END] if now[lane] == now[lane] else now[lane]
    return steps_after


@call_once
def insert_event(space: Any, place: Any, lane: Any, time: Any, number: Any) -> None:
    """Insert an arrival into the events of a neuron, which are sorted by time."""
    _y, _z, _p, events, _log, lane_values, _last, _highest, _scratch, _rest, integers = group_of(space, place)
    when, which, apart, _counts, _of_each = events
    _now, _length, _weight, _above, _below, places = lane_values
    event = integers[2 * LANES + lane]
    while event > places[lane] and when[apart * lane + event - 1] > time:
        when[apart * lane + event] = when[apart * lane + event - 1]
        which[apart * lane + event] = which[apart * lane + event - 1]
        event -= 1
    when[apart * lane + event] = time
    which[apart * lane + event] = number
    integers[2 * LANES + lane] += 1


@call_once
def find_arrivals(
    space: Any, base: Any, neurons: Any, inputs: Any, wanted: Any, delays: Any, found: Any, insert: Any, constants: Any
) -> Any:
    """The time of the first arrival of a spike of the present window, or inf, and the number of spike and target. The
    number is (index of the spike in `found`) N + (index of the target). With `insert`, all arrivals become events of
    their targets.
    """
    best, which = float64(inf), 0
    for n in range(neurons):
        memory = group_of(space, base + n // LANES)
        _when, _which, _apart, counts, of_each = memory[3]
        for k in range(memory[10][n % LANES], least(counts[2 * LANES + n % LANES], wanted)):
            time, delay = arrival_of(float64(found[n * wanted + k]), constants), row(delays, inputs + n)
            for target in range(neurons):
                arrival = time + float64(delay[target])
                if arrival < best:
                    best, which = arrival, (n * wanted + k) * neurons + target
                if insert != 0 and arrival < constants[FINAL]:
                    insert_event(space, base + target // LANES, target % LANES, arrival, (inputs + n) * of_each + k)
    return best, which


@call_once
def run_window(
    space: Any, base: Any, begin: Any, weights: Any, delays: Any, found: Any, limits: Any, logged: Any, constants: Any
) -> Any:
    """Simulate all groups in the window from `begin` on; return its end, and the arrival there, AT_STEP or AT_FINAL."""
    rows, neurons = weights.shape
    wanted, _limit, _watched = limits
    end, source, again, done = begin + constants[WINDOW], int64(AT_STEP), 0, 0
    if end >= constants[FINAL]:
        end, source = constants[FINAL], int64(AT_FINAL)
    while done == 0:
        constants[END] = end
        for group in range((neurons + LANES - 1) // LANES):
            integers = group_of(space, base + group)[10]
            integers[3 * LANES + 1] = run_group(
                space, base + group, group * LANES, neurons, limits, weights, found, again, logged, constants
            )
        arrival, which = find_arrivals(space, base, neurons, rows - neurons, wanted, delays, found, again, constants)
        done = 1
        if again == 0 and arrival < end:
            end, source, again, done = arrival, which, 1, 0
    if again == 0:
        find_arrivals(space, base, neurons, rows - neurons, wanted, delays, found, 1, constants)
    return end, source


@call_once
def run_sample(
    space: Any, base: Any, time: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, limits: Any,
    marks: Any, logged: Any, constants: Any,
) -> Any:  # fmt: skip
    """Find the spikes of a sample; return the number of windows.

    `limits` has the number of spike times per neuron, the number of spikes that ends a simulation, and whether to find
    the maximum of `readout`. With `logged`, the log keeps all steps, and `marks` has a row of zeros and one for each
    window: the number of steps of each group at its end, and the arrival there, AT_STEP or AT_FINAL.
    """
    _floats, _integers, count, _of_each, _states, _rows, _most = space
    _, neurons = weights.shape
    wanted, _limit, _watched = limits
    groups, windows, begin = (neurons + LANES - 1) // LANES, 0, float64(0.0)
    for k in range(neurons * wanted):
        found[k] = inf
    for group in range(groups):
        y, _z, p, events, log, lane_values, last, highest, scratch, _rest, integers = group_of(space, base + group)
        _when, _which, _apart, counts, _ = events
        n0 = group * LANES
        lanes = least(LANES, neurons - n0)
        begin_group(lanes, tail(counts, 2 * LANES), (last, 0, highest), log, lane_values)
        prepare(time, delays, 1, n0, lanes, events, count, constants[FINAL], scratch, initial, values, p, y)
        for lane in range(LANES):
            integers[2 * LANES + lane] = counts[lane]
        integers[3 * LANES] = 0
    while begin < constants[FINAL]:
        begin, source = run_window(space, base, begin, weights, delays, found, limits, logged, constants)
        windows += 1
        for group in range(groups):
            integers = group_of(space, base + group)[10]
            steps = integers[3 * LANES + 1]
            integers[3 * LANES] = steps if logged != 0 else integers[3 * LANES] + steps
            if logged != 0:
                marks[windows * (groups + 1) + group] = steps
                marks[windows * (groups + 1) + groups] = source
            if steps >= MOST_STEPS:
                begin = constants[FINAL]
    return windows


def find_in_windows(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, last: Any,
    maximum: Any, sizes: Any, floats: Any, integers: Any, own_constants: Any, marks: Any, of_each: Any, most: Any,
    limit: Any, constants: Any,
) -> None:  # fmt: skip
    """Find the first spikes of each neuron, `found` (B, N K), its last states and its maximum, as `find_with_solver`.
    `times` (B, (N_in + N) K) has inf for the spikes of the layer; `weights` and `delays` are (N_in + N, N). For each
    part, `sizes` has the largest numbers of windows and of steps of a group.
    """
    samples, count = times.shape
    _, neurons = weights.shape
    _, wanted = found.shape
    _, of_last = last.shape
    _, watched = maximum.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = sizes.shape
    groups = (neurons + LANES - 1) // LANES
    space = floats, integers, count, of_each, states, rows, most
    limits = wanted // neurons, limit, watched
    for part in range(start, stop):
        own, size = row(own_constants, part), row(sizes, part)
        for k in range(WINDOW + 1):
            own[k] = constants[k]
        size[0], size[1] = 0, 0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            windows = run_sample(
                space, part * groups, row(times, sample), weights, delays, initial, values, row(found, sample), limits,
                row(marks, part), 0, own,
            )  # fmt: skip
            size[0] = windows if windows > size[0] else size[0]
            for group in range(groups):
                memory, n0 = group_of(space, part * groups + group), group * LANES
                steps, ends = memory[10][3 * LANES], (memory[6], watched, memory[7])
                size[1] = steps if steps > size[1] else size[1]
                lanes = least(LANES, neurons - n0)
                store_ends(n0, lanes, of_last // neurons, neurons, ends, row(last, sample), row(maximum, sample))


@call_once
def back_through_end(
    space: Any, place: Any, n0: Any, neurons: Any, window: Any, marks: Any, maximum: Any, watched: Any,
    of_values: Any, params: Any,
) -> Any:  # fmt: skip
    """The gradient of the end of a window: of a group's steps that end and begin there, and of maxima there."""
    _floats, _integers, count, _of_each, states, _rows, _most = space
    _y, _z, p, _events, log, lane_values, _last, highest, _scratch, rest, _before = group_of(space, place)
    log_y, log_z, log_length, kinds, _most = log
    _value, _maximum, point = highest
    _of_events, memory = memory_of_gradients(rest, count, states, params)
    lam, _seed, out, _other, _third = memory
    of_time, lanes, every = lane_values[0], least(LANES, neurons - n0), (neurons + LANES - 1) // LANES + 1
    size, total = states * LANES, float64(0.0)
    for m in range(marks[window * every + n0 // LANES], marks[(window + 1) * every + n0 // LANES]):
        y, z, length = tail(log_y, m * size), tail(log_z, m * size), tail(log_length, m * LANES)
        ending = 0
        for lane in range(lanes):
            if kinds[m * LANES + lane] == LAST:
                ending += 1
                if watched != 0 and point[lane] == 2 * m + 1:
                    given = float64(maximum[n0 + lane])
                    add_readout(lane, n0 + lane, z, p, states, params, given, memory, of_values, neurons)
                    point[lane] = -1  # so that `sweep_back` does not add it again
        if ending > 0:
            flow_back(y, length, p, lam, out)
            for lane in range(lanes):
                if kinds[m * LANES + lane] == LAST:
                    total += of_time[lane] + out[size + lane]
    return total


@call_once
def back_through_window(
    space: Any, place: Any, n0: Any, window: Any, marks: Any, weights: Any, found: Any, limits: Any, gradient: Any,
    maximum: Any, of_time: Any, of_weights: Any, of_delays: Any, of_values: Any, params: Any, constants: Any,
) -> None:  # fmt: skip
    """Go back through a window of a group, and add the gradients of its events to those of their sources."""
    _floats, _integers, count, _of_each, states, _rows, _most = space
    _y, _z, p, events, log, lane_values, last, highest, _scratch, rest, before = group_of(space, place)
    _when, which, apart, counts, of_each = events
    _now, _length, _weight, _above, _below, places = lane_values
    wanted, limit, watched = limits
    rows, neurons = weights.shape
    inputs, lanes, every = rows - neurons, least(LANES, neurons - n0), (neurons + LANES - 1) // LANES + 1
    of_events, memory = memory_of_gradients(rest, count, states, params)
    for lane in range(lanes):
        before[lane] = places[lane]
    spikes = tail(found, n0 * wanted), wanted, limit, tail(counts, 2 * LANES)
    gradients = tail(gradient, n0 * wanted), tail(maximum, n0 if watched != 0 else 0)
    sweep_back(
        marks[(window + 1) * every + n0 // LANES], events, n0, lanes, weights, p, states, params, gradients, spikes,
        (last, watched, highest), log, lane_values, memory, of_events, of_weights, of_values, constants,
        marks[window * every + n0 // LANES],
    )  # fmt: skip
    for lane in range(lanes):
        for event in range(places[lane], before[lane]):
            number, own = which[apart * lane + event], of_events[apart * lane + event]
            source = number // of_each
            of_delays[source * neurons + n0 + lane] += own
            if source >= inputs:
                gradient[(source - inputs) * wanted + number % of_each] += own
            else:
                of_time[number] += own


@call_once
def back_through_sample(
    space: Any, base: Any, windows: Any, marks: Any, weights: Any, found: Any, limits: Any, gradient: Any,
    maximum: Any, of_time: Any, of_weights: Any, of_delays: Any, of_values: Any, params: Any, constants: Any,
) -> None:  # fmt: skip
    """Go back through all windows of a sample."""
    wanted, _limit, watched = limits
    rows, neurons = weights.shape
    groups, of_end = (neurons + LANES - 1) // LANES, float64(0.0)
    for window in range(windows - 1, -1, -1):
        source = marks[(window + 1) * (groups + 1) + groups]
        for group in range(groups if source != AT_FINAL else 0):
            of_end += back_through_end(
                space, base + group, group * LANES, neurons, window, marks, maximum, watched, of_values, params
            )
        if source >= 0:  # otherwise, the end moves with the start, which is the end of the window before
            spike, target = source // neurons, source % neurons
            gradient[spike] += of_end
            of_delays[(rows - neurons + spike // wanted) * neurons + target] += of_end
            of_end = float64(0.0)
        for group in range(groups):
            back_through_window(
                space, base + group, group * LANES, window, marks, weights, found, limits, gradient, maximum,
                of_time, of_weights, of_delays, of_values, params, constants,
            )  # fmt: skip


def send_back_in_windows(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any,
    gradients: Any, last: Any, maximum: Any, of_times: Any, of_weights: Any, of_delays: Any, of_initial: Any,
    of_values: Any, of_spikes: Any, floats: Any, integers: Any, own_constants: Any, marks: Any, of_each: Any,
    most: Any, params: Any, limit: Any, constants: Any,
) -> None:  # fmt: skip
    """Compute the gradients of the inputs of `find_in_windows` from those of its outputs."""
    samples, count = times.shape
    _, neurons = weights.shape
    _, wanted = found.shape
    _, of_last = last.shape
    _, watched = maximum.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = of_spikes.shape
    groups = (neurons + LANES - 1) // LANES
    space = floats, integers, count, of_each, states, rows, most
    limits = wanted // neurons, limit, watched
    for part in range(start, stop):
        own, mark, gradient = row(own_constants, part), row(marks, part), row(of_spikes, part)
        for k in range(WINDOW + 1):
            own[k] = constants[k]
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            spikes, of_time, given = row(found, sample), row(of_times, sample), row(gradients, sample)
            windows = run_sample(
                space, part * groups, row(times, sample), weights, delays, initial, values, spikes, limits, mark, 1,
                own,
            )  # fmt: skip
            clear(of_time, count)
            for k in range(wanted):
                gradient[k] = float64(given[k])
            for group in range(groups):
                memory, n0 = group_of(space, part * groups + group), group * LANES
                of_events, more = memory_of_gradients(memory[9], count, states, params)
                clear(of_events, count * LANES)
                begin_back(n0, neurons, states, row(last, sample), of_last // neurons, more[0], memory[5][0])
            back_through_sample(
                space, part * groups, windows, mark, weights, spikes, limits, gradient, row(maximum, sample), of_time,
                row(of_weights, part), row(of_delays, part), row(of_values, part), params, own,
            )  # fmt: skip
            for group in range(groups):
                memory, n0 = group_of(space, part * groups + group), group * LANES
                _of_events, more = memory_of_gradients(memory[9], count, states, params)
                for lane in range(least(LANES, neurons - n0)):
                    add_lane(row(of_initial, part), n0 + lane, neurons, more[0], 1.0, lane, states)


# --- Running the kernels ----------------------------------------------------------------------------------------------

PARTS = 16  # the maximum number of units, because the backward pass keeps all steps of a sample per unit


class RecurrentSimulation(Simulation):
    """`Simulation` of a recurrent layer, with weights and delays (N_in + N, N). No other neuron gets the spikes of a
    neuron after its K-th; they end its simulation, or reset it.
    """

    def __init__(self, functions: str, arrays: Any, params: int, spikes: int, step: float, **more: Any) -> None:
        times, weights, delays, *others = arrays
        self.outside, self.spikes = times.shape, spikes
        room = (0, 0), (0, weights.shape[1]), (0, max(spikes - times.shape[2], 0))
        times = np.pad(times, room, constant_values=np.inf)
        self.with_delays = delays.size > 0
        delays = delays if self.with_delays else np.zeros_like(weights)
        super().__init__(functions, [times, weights, delays, *others], params, spikes, step, **more)
        self.of_each, self.groups = times.shape[2], -(-self.neurons // LANES)
        self.constants = np.append(self.constants, [max(2.0 * float(np.finfo(self.dtype).eps), 2.0**-30), step])
        self.constants[STEP] = np.inf
        self.parts = max(1, min(self.samples, PARTS))
        self.grain = int(self.grain and self.parts > 1)

    def _scratch(self, most: int, more: int, windows: int) -> tuple[Any, ...]:
        parts, self.parts = self.parts, self.parts * self.groups
        floats, integers = self._memory(most, more + (self.states + ROWS_BEFORE) * LANES)
        self.parts = parts
        integers = empty((len(integers), integers.shape[1] + 5 * LANES), integers.dtype)
        marks = np.zeros((parts, (windows + 1) * (self.groups + 1)), np.int64)
        return floats, integers, empty((parts, WINDOW + 1), np.dtype(float)), marks

    def _run(self) -> tuple[list[Any], int, int]:
        widths = self.spikes, *self.widths[1:]
        outs = [empty((self.samples, self.neurons * width), self.dtype) for width in widths]
        sizes = empty((self.parts, 2), np.dtype(np.int64))
        kinds = "T[2] T[2] T[2] float64[2] float64[2] T[2]* T[2]* T[2]* int64[2]* float64[2]* int64[2]* float64[2]* "
        kinds += "int64[2]* int64 int64 int64 float64[1]"
        kernel = kernel_with(self.functions, find_in_windows, kinds, self.dtype)
        options = self.of_each, 2, self.limit, self.constants
        kernel(self.parts, self.grain, *self.arrays, *outs, sizes, *self._scratch(2, 0, 0), *options)
        self._rows_of_log(sizes[:, 1])
        return outs, int(sizes[:, 0].max()), int(sizes[:, 1].max())

    def find(self) -> list[Any]:
        """As `Simulation.find`; the spike times are always found."""
        return self._results(self._run()[0])

    def send_back(self, gradients: Any, last: Any = None, maximum: Any = None) -> tuple[Any, ...]:
        (found, *_), windows, steps = self._run()
        given = self._gradients(gradients, last, maximum)
        given[0] = np.zeros_like(found) if gradients is None else given[0]
        of_times = empty(self.arrays[0].shape, self.dtype)
        shapes = [(self.inputs, self.neurons)] * 2 + [(self.states, self.neurons), (self.params, self.neurons)]
        totals = [np.zeros((self.parts, max(math.prod(shape), 1))) for shape in shapes]
        kinds = "T[2] T[2] T[2] float64[2] float64[2] T[2]* T[2] T[2] T[2] T[2]* float64[2]* float64[2]* float64[2]* "
        kinds += (
            "float64[2]* float64[2]* float64[2]* int64[2]* float64[2]* int64[2]* int64 int64 int64 int64 float64[1]"
        )
        more = self.events * LANES + (2 * self.states + 3 * (self.states + 1 + self.params)) * LANES
        options = self.of_each, steps + 2, self.params, self.limit, self.constants
        kernel_with(self.functions, send_back_in_windows, kinds, self.dtype)(
            self.parts, self.grain, *self.arrays, found, *given, of_times, *totals,
            empty((self.parts, found.shape[1]), np.dtype(float)),
            *self._scratch(steps + 2, more, windows), *options,
        )  # fmt: skip
        sums = [x.sum(0)[: math.prod(shape)].reshape(shape) for x, shape in zip(totals, shapes, strict=True)]
        sums[1] = sums[1] if self.with_delays else sums[1][:0]
        _, inputs, of_each = self.outside
        of_times = of_times.reshape(self.samples, self.inputs, self.of_each)[:, :inputs, :of_each]
        return np.ascontiguousarray(of_times), *sums
