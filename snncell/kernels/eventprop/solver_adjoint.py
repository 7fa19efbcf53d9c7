"""The adjoint of the solver: gradients of spike times with respect to all inputs, and the calls of both kernels.

The backward pass repeats the simulation of a group of neurons, keeps its steps in scratch memory, and goes back through
them. So the memory is proportional to the number of spikes, not to the number of steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import float64, inf

from snncell.kernels.arrays import empty
from snncell.kernels.eventprop.solver import (
    END,
    FULL,
    IDLE,
    INPUT,
    INPUT_AND_SPIKE,
    LAST,
    LEAST,
    SPIKE,
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

# Generated functions, vector-Jacobian products. `out` has the gradients of the states, of the length or weight, and of
# the constants.
flow_back: Any = None  # (y, length, p, gradient, out)
flow_back_one: Any = None  # (y, length, p, gradient, out, lane)
condition_back_one: Any = None  # (y, p, out, lane)
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
    """Go back through the end of a lane's step, a spike or an input: from the states after it to those before it."""
    _when, which, apart, _counts, of_each = events
    _found, wanted, numbers = spikes
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
def sweep_back(
    steps: Any, events: Any, n0: Any, lanes: Any, weights: Any, p: Any, states: Any, params: Any, gradient: Any,
    spikes: Any, log: Any, lane_values: Any, memory: Any, of_events: Any, of_weights: Any, of_values: Any,
    constants: Any,
) -> None:  # fmt: skip
    """Go back through the log of a group, and add the gradients of its events, weights and constants.

    `memory` has the gradient of the states, which is that of the initial states on return, a cotangent, and gradients
    of states, length and constants.
    """
    _when, _which, apart, _counts, _of_each = events
    _found, wanted, numbers = spikes
    log_y, log_z, log_length, kinds = log
    # of_time: the gradient of the time at which the later steps begin
    of_time, _length, _weight, _above, below, places = lane_values
    lam, _seed, out, _other, _third = memory
    _, neurons = weights.shape
    size = states * LANES
    for k in range(size):
        lam[k] = 0.0
    for lane in range(LANES):
        of_time[lane] = 0.0
    for m in range(steps - 1, -1, -1):
        y, z, length = tail(log_y, m * size), tail(log_z, m * size), tail(log_length, m * LANES)
        kind = tail(kinds, m * LANES)
        for lane in range(lanes):
            if SPIKE <= kind[lane] <= INPUT_AND_SPIKE:
                before_flow(
                    lane, n0 + lane, events, weights, p, z, states, params, gradient, spikes, kind[lane], lane_values,
                    memory, of_events, of_weights, of_values,
                )  # fmt: skip
        flow_back(y, length, p, lam, out)
        for lane in range(lanes):
            own = kind[lane]
            if own == SPIKE:
                given = of_time[lane] + float64(gradient[lane * wanted + numbers[lane]])
                through_spike(lane, y, z, length, p, states, params, given, memory, below, constants[LEAST])
            elif SPIKE < own < LAST:
                of_events[apart * lane + places[lane]] += out[size + lane]
            if own != IDLE:
                # A full step has a fixed length, so the gradient of its end is that of its start.
                of_time[lane] = of_time[lane] if own == FULL else -out[size + lane]
                add_lane(of_values, n0 + lane, neurons, tail(out, size + LANES), 1.0, lane, params)
                put_lane(lam, out, lane, states)


@inline
def clear(x: Any, count: Any) -> None:
    """Set the first `count` elements to 0."""
    for k in range(count):
        x[k] = 0.0


@call_once
def send_back_group(
    time: Any, of_time: Any, found: Any, gradient: Any, wanted: Any, delays: Any, delayed: Any, n0: Any, count: Any,
    events: Any, weights: Any, initial: Any, values: Any, p: Any, y: Any, z: Any, log: Any, lane_values: Any,
    scratch: Any, memory: Any, of_events: Any, of_weights: Any, of_delays: Any, of_initial: Any, of_values: Any,
    params: Any, constants: Any,
) -> None:  # fmt: skip
    """Add the gradients of a group of neurons in one sample; see `send_back_with_solver`."""
    _when, which, _apart, counts, of_each = events
    _, neurons = weights.shape
    states, _ = initial.shape
    lam, _seed, _out, _other, _third = memory
    lanes = least(LANES, neurons - n0)
    prepare(time, delays, delayed, n0, lanes, events, count, constants[END], scratch, initial, values, p, y)
    spikes = found, wanted, tail(counts, 2 * LANES)
    steps = simulate(events, n0, lanes, weights, p, y, z, states, spikes, log, lane_values, constants)
    clear(of_events, count * (LANES if delayed != 0 else 1))
    sweep_back(
        steps, events, n0, lanes, weights, p, states, params, gradient, spikes, log, lane_values, memory, of_events,
        of_weights, of_values, constants,
    )  # fmt: skip
    for lane in range(lanes):
        add_lane(of_initial, n0 + lane, neurons, lam, 1.0, lane, states)
    for lane in range(lanes if delayed != 0 else 1):
        for place in range(counts[lane]):
            event, own = which[count * lane + place], of_events[count * lane + place]
            of_time[event] += own
            if delayed != 0:
                of_delays[event // of_each * neurons + n0 + lane] += own


def send_back_with_solver(
    start: Any, stop: Any, times: Any, weights: Any, delays: Any, initial: Any, values: Any, found: Any, gradients: Any,
    of_times: Any, of_weights: Any, of_delays: Any, of_initial: Any, of_values: Any, floats: Any, integers: Any,
    most: Any, delayed: Any, params: Any, constants: Any,
) -> None:  # fmt: skip
    """Compute the gradients of all inputs of `find_with_solver` from the gradients of the spikes (B, N K).

    Outputs are `of_times` (B, E), and for each part the sums over its samples: `of_weights` and `of_delays` (parts,
    N_in N), `of_initial` (parts, S N), and `of_values` (parts, P N) for the first P = `params` constants. `found` is
    overwritten by the same spikes.
    """
    samples, count = times.shape
    inputs, neurons = weights.shape
    _, wanted = found.shape
    states, _ = initial.shape
    rows, _ = values.shape
    parts, _ = floats.shape
    wanted, room, outs = wanted // neurons, count * (LANES if delayed != 0 else 1), (states + 1 + params) * LANES
    for part in range(start, stop):
        y, z, p, events, log, lane_values, scratch, of_events = memory_of_part(
            floats, integers, part, count, count // inputs, delayed, states, rows, most
        )
        lam = tail(of_events, room)
        out = tail(lam, 2 * states * LANES)
        memory = lam, tail(lam, states * LANES), out, tail(out, outs), tail(out, 2 * outs)
        own_weights, own_delays = row(of_weights, part), row(of_delays, part)
        own_initial, own_values = row(of_initial, part), row(of_values, part)
        clear(own_weights, inputs * neurons)
        clear(own_delays, inputs * neurons * delayed)
        clear(own_initial, states * neurons)
        clear(own_values, params * neurons)
        for sample in range(part * samples // parts, (part + 1) * samples // parts):
            time, of_time, own = row(times, sample), row(of_times, sample), row(found, sample)
            for event in range(count):
                of_time[event] = 0.0
            for k in range(neurons * wanted):
                own[k] = inf
            for n0 in range(0, neurons, LANES):
                send_back_group(
                    time, of_time, tail(own, n0 * wanted), tail(row(gradients, sample), n0 * wanted), wanted, delays,
                    delayed, n0, count, events, weights, initial, values, p, y, z, log, lane_values, scratch, memory,
                    of_events, own_weights, own_delays, own_initial, own_values, params, constants,
                )  # fmt: skip


# --- Running the kernels ----------------------------------------------------------------------------------------------

STEP_COST = 50  # cost of a step of a neuron, in elements of plain arithmetic


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
    """

    def __init__(self, functions: str, arrays: Any, params: int, spikes: int, step: float, t_max: float) -> None:
        times, weights, delays, initial, values = arrays
        self.functions, self.samples, self.dtype = functions, len(times), times.dtype
        self.inputs, self.neurons = weights.shape
        self.delayed, self.params, self.states = int(delays.size > 0), params, len(initial)
        flat = np.ascontiguousarray(times.reshape(self.samples, -1))
        self.events, self.spikes = flat.shape[1], spikes
        padding = (0, 0), (0, -self.neurons % LANES)  # a copy of the last neuron, so that no lane divides by 0
        given = [np.pad(np.asarray(x, float), padding, "edge") if len(x) else x for x in (initial, values)]
        self.arrays = (flat, np.ascontiguousarray(weights), np.ascontiguousarray(delays), *given)
        self.parts = max(1, min(self.samples, PARTS))
        self.most = math.ceil(t_max / step) + 2 * self.events + 2 * spikes + 4  # steps of a neuron
        end = self.dtype.type(min(t_max, float(np.finfo(self.dtype).max)))
        self.constants = np.array([step, end, np.finfo(self.dtype).eps], np.float64)
        work = self.samples * self.neurons * (t_max / step + self.events) * STEP_COST
        self.grain = int(work >= PARALLEL_SIZE and self.parts > 1)

    def _memory(self, more: int) -> tuple[Any, Any]:
        """Scratch memory for each part, with `more` floats."""
        room = self.events * (LANES if self.delayed else 1)
        rows = 2 * self.states + len(self.arrays[4]) + 5 + self.most * (2 * self.states + 1)
        numbers = room + 3 * self.events + (self.most + 4) * LANES
        floats = rows * LANES + room + self.events + more
        return empty((self.parts, floats), np.dtype(float)), empty((self.parts, numbers), np.dtype(np.int64))

    def find(self) -> Any:
        """The first spikes of each neuron, (B, N, K)."""
        found = empty((self.samples, self.neurons * self.spikes), self.dtype)
        kinds = "T[2] T[2] T[2] float64[2] float64[2] T[2]* float64[2]* int64[2]* int64 int64 float64[1]"
        kernel = kernel_with(self.functions, find_with_solver, kinds, self.dtype)
        memory = self._memory(0)
        kernel(self.parts, self.grain, *self.arrays, found, *memory, self.most, self.delayed, self.constants)
        return found.reshape(self.samples, self.neurons, self.spikes)

    def send_back(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients of times, weights, delays, initial states and constants, from those of the spikes."""
        shape, flat = (self.samples, self.neurons * self.spikes), self.arrays[0]
        found, of_times = empty(shape, self.dtype), empty(flat.shape, self.dtype)
        shapes = [(self.inputs, self.neurons), (self.inputs * self.delayed, self.neurons)]
        shapes += [(self.states, self.neurons), (self.params, self.neurons)]
        totals = [empty((self.parts, max(math.prod(shape), 1)), np.dtype(float)) for shape in shapes]
        kinds = (
            "T[2] T[2] T[2] float64[2] float64[2] T[2]* T[2] T[2]* float64[2]* float64[2]* float64[2]* float64[2]* "
            "float64[2]* int64[2]* int64 int64 int64 float64[1]"
        )
        rows = 2 * self.states + 3 * (self.states + 1 + self.params)
        kernel_with(self.functions, send_back_with_solver, kinds, self.dtype)(
            self.parts,
            self.grain,
            *self.arrays,
            found,
            np.ascontiguousarray(gradients.reshape(shape)),
            of_times,
            *totals,
            *self._memory(self.events * LANES + rows * LANES),
            self.most,
            self.delayed,
            self.params,
            self.constants,
        )
        sums = [x.sum(0)[: math.prod(shape)].reshape(shape) for x, shape in zip(totals, shapes, strict=True)]
        return of_times, *sums
