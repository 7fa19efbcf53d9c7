"""The adjoint of the solver: gradients of spike times with respect to all inputs, and the calls of both kernels.

The backward pass repeats the simulation of a group of neurons, keeps its steps in scratch memory, and goes back through
them. So from the forward pass, only the spikes are kept in memory, not the steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import float64, inf

from snncell.errors import ArgumentError
from snncell.kernels.arrays import empty
from snncell.kernels.eventprop.solver import (
    END,
    FULL,
    IDLE,
    INPUT,
    INPUT_AND_SPIKE,
    LEAST,
    MOST_STEPS,
    RECOVERY,
    RECOVERY_AND_SPIKE,
    REFRACTORY,
    SPIKE,
    begin_group,
    condition_one,
    find_with_solver,
    memory_of_part,
    prepare,
    receive_one,
    simulate,
)  # fmt: skip
from snncell.kernels.eventprop.spike_times import PARTS
from snncell.kernels.intrinsics.builtins import call_once, inline, least
from snncell.kernels.intrinsics.elements import row, tail
from snncell.kernels.loops import LANES
from snncell.kernels.numba.build import build, signature_of
from snncell.kernels.numba.code import source_of
from snncell.kernels.numba.policy import PARALLEL_SIZE

# Generated vector-Jacobian products. `out` has the gradients of the states, of the length or weight, and of the
# constants.
flow_back: Any = None  # (y, length, p, gradient, out)
flow_back_one: Any = None  # (y, length, p, gradient, out, lane)
condition_back_one: Any = None  # (y, p, out, lane)
readout_back_one: Any = None
receive_back_one: Any = None  # (y, weight, p, gradient, out, lane)
jump_back_one: Any = None  # (y, p, gradient, out, lane)


@call_once
def add_lane(target: Any, first: Any, every: Any, source: Any, factor: Any, lane: Any, count: Any) -> None:
    """Add `factor` times a lane of `count` rows to every `every`-th element of the target."""
    for k in range(count):
        target[first + k * every] += factor * source[k * LANES + lane]


@call_once
def put_lane(target: Any, source: Any, lane: Any, count: Any) -> None:
    """Copy a lane of `count` rows."""
    for k in range(count):
        target[k * LANES + lane] = source[k * LANES + lane]


@call_once
def before_flow(
    lane: Any, n: Any, events: Any, weights: Any, p: Any, z: Any, states: Any, params: Any, gradient: Any, spikes: Any,
    own: Any, lane_values: Any, memory: Any, of_events: Any, of_weights: Any, of_values: Any,
) -> None:  # fmt: skip
    """Go back through the spike or input at the end of a step: turn the gradients after it into those before it."""
    _when, which, apart, _counts, of_each = events
    _found, wanted, _limit, numbers = spikes
    of_time, _length, weight, _above, _below, places = lane_values
    lam, seed, out, _other, _third = memory
    _, neurons = weights.shape
    of_params = tail(out, (states + 1) * LANES)
    if own == INPUT_AND_SPIKE or own == INPUT:  # noqa: SIM109 (Numba)
        places[lane] -= 1
        source = which[apart * lane + places[lane]] // of_each
        weight[lane] = float64(row(weights, source)[n])
        if own == INPUT_AND_SPIKE:
            numbers[lane] -= 1
            if numbers[lane] < wanted:
                of_time[lane] += float64(gradient[lane * wanted + numbers[lane]])
            receive_one(z, weight, p, seed, lane)
            jump_back_one(seed, p, lam, out, lane)
            add_lane(of_values, n, neurons, of_params, 1.0, lane, params)
            put_lane(lam, out, lane, states)
        of_events[apart * lane + places[lane]] += of_time[lane]
        of_time[lane] = 0.0
        receive_back_one(z, weight, p, lam, out, lane)
        of_weights[source * neurons + n] += out[states * LANES + lane]
    else:
        numbers[lane] -= 1
        if numbers[lane] < wanted:
            of_time[lane] += float64(gradient[lane * wanted + numbers[lane]])
        jump_back_one(z, p, lam, out, lane)
    add_lane(of_values, n, neurons, of_params, 1.0, lane, params)
    put_lane(lam, out, lane, states)


@call_once
def through_spike(
    lane: Any, y: Any, z: Any, length: Any, p: Any, states: Any, params: Any, given: Any, memory: Any, below: Any,
    least_share: Any,
) -> None:  # fmt: skip
    """Add to `out` the gradient of a lane's step through the time of the spike that ends it.

    The condition c is 0 there. So a change of the states changes the time by ds = -(change of c) / (slope of c in
    time). `given` is the gradient of that time. The slope counts as at least a small share of its mean in the step, so
    that the gradient is finite if c only just reaches 0.
    """
    _lam, seed, out, other, third = memory
    size = states * LANES
    condition_back_one(z, p, third, lane)
    put_lane(seed, third, lane, states)
    flow_back_one(y, length, p, seed, other, lane)
    add_lane(tail(other, size + LANES), lane, LANES, tail(third, size + LANES), 1.0, lane, params)
    condition_one(y, p, below, lane)
    mean = -below[lane] / length[lane]
    least_slope = least_share * (mean if mean < inf else 1.0)
    slope = other[size + lane] if other[size + lane] > least_slope else least_slope
    add_lane(out, lane, LANES, other, -(given + out[size + lane]) / slope, lane, states + 1 + params)


@call_once
def after_flow(
    lane: Any, y: Any, z: Any, length: Any, p: Any, states: Any, params: Any, own: Any, lane_values: Any, memory: Any,
    apart: Any, of_events: Any, constants: Any,
) -> None:  # fmt: skip
    """Complete the gradients `out` of a lane's step that is not full, so that its length can vary."""
    of_time, _length, _weight, _above, below, places = lane_values
    _lam, _seed, out, _other, _third = memory
    size = states * LANES
    if own == SPIKE:
        through_spike(lane, y, z, length, p, states, params, of_time[lane], memory, below, constants[LEAST])
    elif INPUT <= own <= INPUT_AND_SPIKE:
        of_events[apart * lane + places[lane]] += out[size + lane]
    elif REFRACTORY != 0 and RECOVERY <= own <= RECOVERY_AND_SPIKE:
        out[size - LANES + lane] += of_time[lane] + out[size + lane]  # the length is the last state
    # As full steps do, recoveries end a time after their start that does not depend on the start.
    of_time[lane] = of_time[lane] if own <= RECOVERY_AND_SPIKE else -out[size + lane]


@call_once
def add_readout(
    lane: Any, n: Any, y: Any, p: Any, states: Any, params: Any, given: Any, memory: Any, of_values: Any, neurons: Any
) -> None:  # fmt: skip
    """Add `given` times the gradient of `readout` at the states y to the gradients of the states and the constants."""
    lam, _seed, _out, _other, third = memory
    readout_back_one(y, p, third, lane)
    add_lane(lam, lane, LANES, third, given, lane, states)
    add_lane(of_values, n, neurons, tail(third, (states + 1) * LANES), given, lane, params)


@call_once
def sweep_back(
    steps: Any, events: Any, n0: Any, lanes: Any, weights: Any, p: Any, states: Any, params: Any, gradients: Any,
    spikes: Any, ends: Any, log: Any, lane_values: Any, memory: Any, of_events: Any, of_weights: Any, of_values: Any,
    constants: Any, first: Any,
) -> None:  # fmt: skip
    """Go back through the log of a group to step `first`, and add the gradients of its events, weights and constants.

    The first row of `lane_values` has the gradients of the times at which the later steps begin. `gradients` has
    those of the spikes and of the maxima. `memory` has the gradient of the last states, on return that of the initial
    states. It also has room for a cotangent, and for gradients of states, length and constants.
    """
    _when, _which, apart, _counts, _of_each = events
    _last, watched, highest = ends
    _value, _maximum, point = highest
    log_y, log_z, log_length, kinds, _most = log
    lam, _seed, out, _other, _third = memory
    gradient, of_maximum = gradients
    _, neurons = weights.shape
    size = states * LANES
    for m in range(steps - 1, first - 1, -1):
        y, z, length = tail(log_y, m * size), tail(log_z, m * size), tail(log_length, m * LANES)
        kind = tail(kinds, m * LANES)
        for lane in range(lanes):
            if RECOVERY_AND_SPIKE <= kind[lane] <= INPUT_AND_SPIKE:
                before_flow(
                    lane, n0 + lane, events, weights, p, z, states, params, gradient, spikes, kind[lane], lane_values,
                    memory, of_events, of_weights, of_values,
                )  # fmt: skip
            if watched != 0 and point[lane] == 2 * m + 1:
                given = float64(of_maximum[lane])
                add_readout(lane, n0 + lane, z, p, states, params, given, memory, of_values, neurons)
        flow_back(y, length, p, lam, out)
        for lane in range(lanes):
            if kind[lane] > FULL:
                after_flow(
                    lane, y, z, length, p, states, params, kind[lane], lane_values, memory, apart, of_events, constants
                )
            if kind[lane] != IDLE:
                add_lane(of_values, n0 + lane, neurons, tail(out, size + LANES), 1.0, lane, params)
                put_lane(lam, out, lane, states)
            if watched != 0 and point[lane] == 2 * m:
                given = float64(of_maximum[lane])
                add_readout(lane, n0 + lane, y, p, states, params, given, memory, of_values, neurons)


@inline
def clear(x: Any, count: Any) -> None:
    """Set the first `count` elements to 0."""
    for k in range(count):
        x[k] = 0.0


@call_once
def begin_back(n0: Any, neurons: Any, states: Any, of_last: Any, rows: Any, lam: Any, of_time: Any) -> None:
    """Begin the backward pass of a group, with the gradients of `rows` of its last states."""
    clear(lam, states * LANES)
    clear(of_time, LANES)
    for k in range(rows):
        for lane in range(least(LANES, neurons - n0)):
            lam[k * LANES + lane] = float64(of_last[k * neurons + n0 + lane])


@call_once
def send_back_group(
    time: Any, of_time: Any, found: Any, gradients: Any, wanted: Any, limit: Any, delays: Any, delayed: Any, n0: Any,
    count: Any, events: Any, weights: Any, initial: Any, values: Any, p: Any, y: Any, z: Any, ends: Any, log: Any,
    lane_values: Any, scratch: Any, memory: Any, of_events: Any, of_weights: Any, of_delays: Any, of_initial: Any,
    of_values: Any, params: Any, constants: Any,
) -> Any:  # fmt: skip
    """Add the gradients of a group of neurons in one sample; return the number of steps. `gradients` has those of the
    spikes, the last states, their rows, and the maxima. If the log is too short for the steps, nothing is added;
    `send_back_with_solver` must be called again.
    """
    _when, which, _apart, counts, of_each = events
    _log_y, _log_z, _log_length, _kinds, most = log
    gradient, of_last, rows, of_maximum = gradients
    _, neurons = weights.shape
    states, _ = initial.shape
    lam, _seed, _out, _other, _third = memory
    lanes = least(LANES, neurons - n0)
    prepare(time, delays, delayed, n0, lanes, events, count, constants[END], scratch, initial, values, p, y)
    spikes = found, wanted, limit, tail(counts, 2 * LANES)
    begin_group(lanes, tail(counts, 2 * LANES), ends, log, lane_values)
    steps = simulate(events, n0, lanes, weights, p, y, z, states, spikes, ends, log, lane_values, constants, 0)
    if steps >= most:
        return steps
    clear(of_events, count * (LANES if delayed != 0 else 1))
    begin_back(n0, neurons, states, of_last, rows, lam, lane_values[0])
    sweep_back(
        steps, events, n0, lanes, weights, p, states, params, (gradient, of_maximum), spikes, ends, log, lane_values,
        memory, of_events, of_weights, of_values, constants, 0,
    )  # fmt: skip
    for lane in range(lanes):
        add_lane(of_initial, n0 + lane, neurons, lam, 1.0, lane, states)
    for lane in range(lanes if delayed != 0 else 1):
        for place in range(counts[lane]):
            event, own = which[count * lane + place], of_events[count * lane + place]
            of_time[event] += own
            if delayed != 0:
                of_delays[event // of_each * neurons + n0 + lane] += own
    return steps


def send_back_with_solver(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, gradients: Any,
    last: Any, maximum: Any, of_times: Any, of_weights: Any, of_delays: Any, of_initial: Any, of_values: Any,
    steps: Any, floats: Any, integers: Any, most: Any, delayed: Any, limit: Any, params: Any, constants: Any,
) -> None:  # fmt: skip
    """Compute the gradients of all inputs of `find_with_solver` from those of its outputs.

    `gradients` (B, N K), `last` (B, S N) and `maximum` (B, N) are the gradients of the spikes, the last states and the
    maxima. Outputs are `of_times` (B, E), and for each part the sums over its samples, initially 0: `of_weights` and
    `of_delays` (parts, N_in N), `of_initial` (parts, S N), and `of_values` (parts, P N) for P = `params` constants.
    `found` is overwritten by the same spikes. If `steps` is not below `most`, the gradients are invalid.
    """
    samples, count = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    _, of_last = last.shape
    _, watched = maximum.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = floats.shape
    wanted, room, outs = wanted // neurons, count * (LANES if delayed != 0 else 1), (states + 1 + params) * LANES
    for part in range(start, stop):
        y, z, p, events, log, lane_values, of_group, highest, scratch, of_events = memory_of_part(
            floats, integers, part, count, count // inputs, delayed, states, rows, most
        )
        lam = tail(of_events, room)
        out = tail(lam, 2 * states * LANES)
        memory = lam, tail(lam, states * LANES), out, tail(out, outs), tail(out, 2 * outs)
        ends = of_group, watched, highest
        own_weights, own_delays = row(of_weights, part), row(of_delays, part)
        own_initial, own_values = row(of_initial, part), row(of_values, part)
        steps[part] = 0
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, of_time, own = row(times, sample), row(of_times, sample), row(found, sample)
            of_spikes = row(gradients, sample)
            for event in range(count):
                of_time[event] = 0.0
            for k in range(neurons * wanted):
                own[k] = inf
            for n0 in range(0, neurons, LANES):
                of_maximum = tail(row(maximum, sample), n0 if watched != 0 else 0)
                given = tail(of_spikes, n0 * wanted), row(last, sample), of_last // neurons, of_maximum
                m = send_back_group(
                    time, of_time, tail(own, n0 * wanted), given, wanted, limit, delays, delayed, n0, count, events,
                    weights, initial, values, p, y, z, ends, log, lane_values, scratch, memory, of_events, own_weights,
                    own_delays, own_initial, own_values, params, constants,
                )  # fmt: skip
                steps[part] = m if m > steps[part] else steps[part]


# --- Running the kernels ----------------------------------------------------------------------------------------------

STEP_COST = 50  # the time of a step of a neuron, in elementwise additions (`PARALLEL_SIZE`)


@functools.cache
def kernel_with(functions: str, function: Callable[..., Any], kinds: str, dtype: Any) -> Callable[..., Any]:
    """Build, and cache, the kernel `function` with generated functions, because collecting its source takes 15 ms."""
    return build(function.__name__, f"{functions}\n\n{source_of(function)}", signature_of(kinds, dtype))


class Simulation:
    """A call of the kernels: generated functions, and the sizes and scratch memory of a batch.

    Args:
        functions: the source of the generated functions.
        arrays: times (B, N_in, K_in); weights (N_in, N); delays of the same shape, or of size 0; initial states (S, N);
            constants and numbers of the equations, (P, N).
        params: the number of constants, which have gradients.
        spikes, step, t_max: the number of spikes per neuron, the length of a step, and the end of the simulation.
        outputs: which of "times", "states" and "maximum" to compute; see `EventDense`.
    """

    def __init__(
        self,
        functions: str,
        arrays: Any,
        params: int,
        spikes: int,
        step: float,
        t_max: float,
        outputs: tuple[str, ...] = ("times",),
    ) -> None:
        times, weights, delays, initial, values = arrays
        self.functions, self.samples, self.dtype = functions, len(times), times.dtype
        self.inputs, self.neurons = weights.shape
        self.delayed, self.params, self.states = int(delays.size > 0), params, len(initial)
        flat = np.ascontiguousarray(times.reshape(self.samples, -1))
        self.events = flat.shape[1]
        padding = (0, 0), (0, -self.neurons % LANES)  # a copy of the last neuron, so that no lane divides by 0
        given = [np.pad(np.asarray(x, float), padding, "edge") if len(x) else x for x in (initial, values)]
        self.arrays = (flat, np.ascontiguousarray(weights), np.ascontiguousarray(delays), *given)
        self.parts = max(1, min(self.samples, PARTS))
        # The number of steps of a neuron. Without a limit of spikes, there can be more.
        self.most = math.ceil(t_max / step) + 2 * self.events + 3 * spikes + 4
        self.limit = spikes if outputs == ("times",) else 2**62
        end = self.dtype.type(min(t_max, float(np.finfo(self.dtype).max)))
        self.constants = np.array([step, end, np.finfo(self.dtype).eps, end], np.float64)
        work = self.samples * self.neurons * (t_max / step + self.events) * STEP_COST
        self.grain = int(work >= PARALLEL_SIZE and self.parts > 1)
        widths = {"times": spikes, "states": self.states, "maximum": 1}  # per neuron
        self.widths = [widths[name] if name in outputs else 0 for name in widths]

    def _memory(self, most: int, more: int) -> tuple[Any, Any]:
        """Scratch memory for each part, with a log of `most` steps, and `more` floats."""
        room = self.events * (LANES if self.delayed else 1)
        rows = 3 * self.states + len(self.arrays[4]) + 16 + most * (2 * self.states + 1)
        numbers = room + 3 * self.events + (most + 4) * LANES
        floats = rows * LANES + room + self.events + more
        return empty((self.parts, floats), np.dtype(float)), empty((self.parts, numbers), np.dtype(np.int64))

    def _rows_of_log(self, steps: Any) -> int:
        """The rows of the log that all steps of a group need: one more than its steps."""
        found = int(steps.max())
        if found >= MOST_STEPS:
            raise ArgumentError(
                f"EventDense: a neuron needs more than {MOST_STEPS:,} steps, because it spikes again and again. After "
                f"`reset`, the spike condition must be well below 0."
            )
        return found + 1

    def find(self) -> list[Any]:
        """Spike times (B, N, K), last states (B, N, S), and maxima of `readout` (B, N); empty unless in `outputs`."""
        outs = [empty((self.samples, self.neurons * width), self.dtype) for width in self.widths]
        kinds = "T[2] T[2] T[2] float64[2] float64[2] T[2]* T[2]* T[2]* int64[1]* float64[2]* int64[2]* "
        kinds += "int64 int64 int64 float64[1]"
        kernel = kernel_with(self.functions, find_with_solver, kinds, self.dtype)
        steps = empty((self.parts,), np.dtype(np.int64))
        memory = self._memory(2, 0)  # each step needs the previous one only
        sizes = self.delayed, self.limit, self.constants
        kernel(self.parts, self.grain, *self.arrays, *outs, steps, *memory, 2, *sizes)
        self._rows_of_log(steps)
        return self._results(outs)

    def _results(self, outs: list[Any]) -> list[Any]:
        last = outs[1].reshape(self.samples, -1, self.neurons).swapaxes(1, 2)
        return [outs[0].reshape(self.samples, self.neurons, -1), np.ascontiguousarray(last), outs[2]]

    def _gradients(self, found: Any, last: Any, maximum: Any) -> list[Any]:
        """The gradients of the results as `find` stores them; None becomes an array without elements."""
        given = found, None if last is None else last.swapaxes(1, 2), maximum
        nothing = empty((self.samples, 0), self.dtype)
        return [nothing if x is None else np.ascontiguousarray(x).reshape(self.samples, -1) for x in given]

    def send_back(self, gradients: Any, last: Any = None, maximum: Any = None) -> tuple[Any, ...]:
        """The gradients of all arrays, from those of the results of `find`; None for results not in `outputs`."""
        flat, given = self.arrays[0], self._gradients(gradients, last, maximum)
        found, of_times = empty(given[0].shape, self.dtype), empty(flat.shape, self.dtype)
        shapes = [(self.inputs, self.neurons), (self.inputs * self.delayed, self.neurons)]
        shapes += [(self.states, self.neurons), (self.params, self.neurons)]
        kinds = "T[2] T[2] T[2] float64[2] float64[2] T[2]* T[2] T[2] T[2] T[2]* float64[2]* float64[2]* "
        kinds += "float64[2]* float64[2]* int64[1]* float64[2]* int64[2]* int64 int64 int64 int64 float64[1]"
        kernel = kernel_with(self.functions, send_back_with_solver, kinds, self.dtype)
        more = self.events * LANES + (2 * self.states + 3 * (self.states + 1 + self.params)) * LANES
        most, needed = 0, self.most
        while needed > most:  # at most twice
            most, steps = needed, empty((self.parts,), np.dtype(np.int64))
            totals = [np.zeros((self.parts, max(math.prod(shape), 1))) for shape in shapes]
            sizes = most, self.delayed, self.limit, self.params, self.constants
            outs = found, *given, of_times, *totals, steps
            kernel(self.parts, self.grain, *self.arrays, *outs, *self._memory(most, more), *sizes)
            needed = self._rows_of_log(steps)
        sums = [x.sum(0)[: math.prod(shape)].reshape(shape) for x, shape in zip(totals, shapes, strict=True)]
        return of_times, *sums
