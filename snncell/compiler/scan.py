"""Scan: a loop over time as one operation. Its backward pass is the Scan of the body's backward step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from snncell.base.config import FINITE
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.explain import explain_loop, summarise_loop
from snncell.compiler.ir.program import (
    Body,
    Loop,
    LoopOperation,
    LoopSummary,
    Recompute,
    find_used_values,
    operations_in,
    results_of,
    with_inputs,
)
from snncell.compiler.linearise import (
    Reverse,
    StepFunction,
    find_needed_inputs,
    lacks_states,
    linearise,
    save_for_backward,
    trace_body,
)
from snncell.compiler.nan_replay import ReplayedSteps, check_gradients, check_results
from snncell.compiler.passes.simplify import canonical_step
from snncell.compiler.runtime.loop_run import Lowered
from snncell.compiler.schedule import LoopSchedule, obstacle, schedule
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape.backward import or_zeros
from snncell.tape.hooks import Events
from snncell.tape.parameter import assign_all, commit
from snncell.tape.primitive import EVERYWHERE, one_after_another, rebuilt, repeat_over_time, steps_of
from snncell.tape.state import CHECKING, EFFECTS_LOCK, RECORDING, TRACING, Entry, Value, in_turn
from snncell.tape.tensor import Tensor, on_device_of
from snncell.tape.tracing import Instruction
from snncell.tape.transforms import vjp


def run_scan(
    f: StepFunction,
    carry: Sequence[Tensor],
    xs: Sequence[Tensor],
    *,
    backwards: bool,
    every: int | None,
    who: str,
    names: Sequence[str] = (),
    events: Events | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Trace `f`, run it over the sequences, and return last states and results; `events` are those for monitors."""
    with on_device_of(*carry, *xs):  # new arrays of the body are created in the space of its operands
        body, written = trace_body(f, carry, xs, backwards, who)
    every = every if body.carry else None  # a loop without states has no checkpoints
    effects = bool(written) and TRACING.trace is None
    if effects:
        in_turn()
    with EFFECTS_LOCK if effects else nullcontext():  # so that no other thread draws the same random numbers
        if TRACING.trace is None:
            place = "gpu" if any(x.device == "gpu" for x in (*carry, *xs)) else "cpu"
            commit([parameter.moving(place) for parameter in written if parameter.follows])
        states = [*carry, *(p.value() for p in written)]
        loop = Loop(body, len(body.ys), who, every)
        scan, outs = _bind_loop(loop, [*states, *xs, *body.captured], xs[0].shape[0])
        scan.events = {} if events is None else events
        for watch in FINITE if TRACING.trace is None else ():
            scan.observed = ReplayedSteps(f, written, backwards, who, names, CHECKING.smooth, watch.place())
            pairs = zip(body.ys, outs[len(states) :], strict=False)
            results = [out for y, out in pairs if id(y._data) not in body.trace.noted]  # without records of monitors
            check_results(scan.observed, states, xs, [*outs[: len(states)], *results])
        assign_all(list(zip(written, outs[len(carry) : len(states)], strict=True)), in_range=True)
    return list(outs[: len(carry)]), list(outs[len(states) : len(states) + scan.loop.result_count])


def _bind_loop(loop: Loop, inputs: list[Tensor], steps: int) -> tuple[Scan, tuple[Tensor, ...]]:
    """The scan of a loop, and its results. On a tape, it also stores the values that its backward pass needs."""
    body = loop.body
    taped = RECORDING.tape is not None and body.trace.tape is not None and any(x._entry is not None for x in inputs)
    if taped and loop.interval is None and loop.recompute is None:
        loop = replace(loop, body=save_for_backward(body))
    scan = Scan(loop if taped else replace(loop, interval=None))
    return scan, scan.bind_all(*inputs, steps=steps)


class Scan(LoopOperation):
    """A Loop that runs for `steps` steps. The inputs are the states before the first step, the sequences (steps, ...),
    and the constants. The outputs are the states after the last step, the results of each step (steps, ...), the sums
    over all steps, and the checkpoints.
    """

    multiple = True
    as_stored = EVERYWHERE
    watched = False  # `bind` does not search the results for NaN, because `run_scan` does, and finds the step
    observed: ReplayedSteps | None = None  # the function of its steps, while `check_finite` is on

    def __init__(self, loop: Loop) -> None:
        super().__init__("scan", self._run, multiple=True)
        self.loop = loop
        body = loop.body
        self.saves = (True,) * (len(body.carry) + len(body.xs) + len(body.consts))
        self.saves_out = True
        self.events: Events = {}  # records of its run, for monitors
        self._schedule: LoopSchedule | None = None
        self._lowered: Lowered | None = None
        self.over_time = None if body.carry else Nested(loop)

    @property
    def schedule(self) -> LoopSchedule:
        """The schedule of the loop, made on first use."""
        # Not a `cached_property`, because its lock in Python 3.11 could stay locked after a fork. If two threads get
        # here at once, they make equal schedules.
        if self._schedule is None:
            self._schedule = schedule(self.loop)
        return self._schedule

    @property
    def lowered(self) -> Lowered:
        """The code of the loop, made on first use."""
        if self._lowered is None:
            self._lowered = Lowered(self.loop, self.schedule)
        return self._lowered

    def is_one_kernel(self) -> bool:
        return obstacle(self.schedule) is None

    def device_kernel(self) -> tuple[str, str, tuple[Any, ...]] | None:
        loop = self.lowered.loop_in(DEVICE)
        return (loop.name, loop.source, loop.signature) if isinstance(loop, CUDALoop) else None

    def with_loop(self, loop: Loop) -> Scan:
        return Scan(loop)

    def _run(self, *arrays: Any, steps: int) -> tuple[Any, ...]:
        return self.lowered.run(arrays, steps)

    def inside(self) -> list[str]:
        return str(canonical_step(self.loop.body)).splitlines()

    def describe(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        return explain_loop(self.lowered, attrs["steps"], space)

    def summary(self, steps: int, space: Space) -> LoopSummary:
        return summarise_loop(self.lowered, steps, space)

    def kernels(self, attrs: dict[str, Any], space: Space = HOST) -> list[tuple[Any, ...]]:
        lowered, steps = self.lowered, attrs["steps"]
        if lowered.has_loop:
            return lowered.loop_in(space).kernels(steps)
        return list(lowered.plan_in(space, steps).plan.kernels())

    def launches(self, attrs: dict[str, Any]) -> int:
        lowered, steps = self.lowered, attrs["steps"]
        if lowered.has_loop:
            return lowered.loop_in(DEVICE).launches(steps)
        return sum(launch.launches for launch in lowered.plan_in(DEVICE, steps).plan.launches)

    def moved(self, attrs: dict[str, Any]) -> int:
        lowered, steps = self.lowered, attrs["steps"]
        return steps * lowered.loop_in(HOST).moved if lowered.has_loop else lowered.plan_in(HOST, steps).plan.moved()

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        bodies = [self.loop.body, *([self.loop.recompute.forward] if self.loop.recompute else [])]
        return float(attrs["steps"]) * sum(operations_in(canonical_step(body).instructions, used) for body in bodies)

    def prune(self, instruction: Instruction, needed: set[Value]) -> Instruction:
        body = self.loop.body
        first, last = len(body.after), len(body.after) + len(body.ys)
        flags = [n < first or n >= len(body.outs) or value in needed for n, value in enumerate(instruction.outputs)]
        if all(flags):
            return instruction
        ys, sums = compress(body.ys, flags[first:last]), compress(body.sums, flags[last:])
        body = replace(body, ys=list(ys), sums=list(sums))
        # Keep no inputs for higher orders, because the result must not depend on whether a tape is active.
        body, inputs = _drop_unused(body, instruction.inputs, self.loop.recompute, set())
        scan = Scan(replace(self.loop, body=body, result_count=len(body.ys)))
        return with_inputs(instruction, inputs, list(compress(instruction.outputs, flags)), scan)

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        body, steps = self.loop.body, attrs["steps"]
        specs = [(out.shape, out._data.dtype) for out in body.after]
        specs += [((steps, *out.shape), out._data.dtype) for out in body.ys]
        specs += [(out.shape, out._data.dtype) for out in body.sums]
        if self.loop.interval is not None:
            specs += [((-(-steps // self.loop.interval), *x.shape), x._data.dtype) for x in body.carry]
        return specs

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients of the inputs: a scan of the body's backward step, in the other direction of time."""
        grads = self._pull(entry, douts)
        for watch in FINITE if TRACING.trace is None else ():
            if self.observed is None:  # the gradient of a backward pass
                for n, grad in enumerate(grads):
                    watch.gradient(f"the backward of {self.loop.who}", f"operand {n}", grad)
            else:
                body, inputs = self.loop.body, entry.inputs
                results = douts[: len(body.after) + self.loop.result_count]
                sizes = len(body.carry), len(body.xs)
                check_gradients(self.observed, inputs, *sizes, body.captured, results, grads)
        return grads

    def _pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        body, interval, who = self.loop.body, self.loop.interval, self.loop.who
        steps, outs, results = entry.attrs["steps"], rebuilt(entry), len(body.outs)
        if self.loop.recompute is not None:
            return self._pull_without_checkpoints(entry, douts)
        with on_device_of(*entry.inputs):
            reverse = linearise(body, [dout is not None for dout in douts[:results]])
            if interval is None and lacks_states(body, reverse):
                # The saved values are sufficient for gradients of first order. In higher orders, the saved values
                # themselves receive gradients, which may need Values that were not saved. So run the loop again and
                # collect the states, from which all Values can be computed.
                sums = len(body.after) + len(body.ys)
                body = body.saving_states()
                outs = Scan(Loop(body, self.loop.result_count, who)).bind_all(*entry.inputs, steps=steps)
                douts = [*douts[:sums], *(None for _ in body.carry), *douts[sums:]]
                reverse = linearise(body, [dout is not None for dout in douts])
        first, last = len(body.carry), len(body.carry) + len(body.xs)
        saved = first + len(body.ys) - len(body.saved or ())
        stored = outs[results:] if interval else outs[saved : first + len(body.ys)]
        later = first + len(body.ys)  # the index of the first sum among the outputs
        inputs = [
            *(or_zeros(douts[n], entry.specs[n]) for n in reverse.float_states),
            *(*entry.inputs[first:last], *stored, *(douts[n] for n in reverse.seeded if n < later)),
            *(*entry.inputs[last:], *(douts[n] for n in reverse.seeded if n >= later), *reverse.body.captured),
        ]
        recompute = Recompute(interval, body) if interval else None
        operands = [*reverse.body.xs, *reverse.body.consts]
        needed = find_needed_inputs(reverse.body.trace, reverse.body.outs, operands)
        if recompute is not None:
            needed |= find_needed_inputs(body.trace, body.outs, operands)
        own, inputs = _drop_unused(reverse.body, inputs, recompute, needed)
        loop = Loop(own, len(own.ys), f"backward of {who}", recompute=recompute)
        scan, outputs = _bind_loop(loop, inputs, steps)
        scan.events = self.events
        own = scan.loop.body
        after, sums = len(own.after), len(own.after) + len(own.ys)
        ys = reverse.noted.pass_on(outputs[after : after + scan.loop.result_count], self.events, (steps,))
        grads = _expand_gradients(reverse, [*outputs[:after], *ys, *outputs[sums:]], first)
        if interval:  # checkpoint 0 is a copy of the initial states, so in higher orders its gradient is part of theirs
            for n, dout in enumerate(douts[results:]):
                if dout is not None and grads[n] is not None:
                    grads[n] = grads[n] + dout[0]
        return grads

    def _pull_without_checkpoints(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients of a backward pass with checkpoints, computed by the same pass with all states stored.
        Checkpoints would save no memory here, because each rematerialised state receives a gradient.
        """
        assert self.loop.recompute is not None  # the callers have checked it
        forward, body, who = self.loop.recompute.forward, self.loop.body, self.loop.who
        steps = entry.attrs["steps"]
        position = {x._data: n for n, x in enumerate((*body.carry, *body.xs, *body.consts))}
        states = [position[x._data] for x in forward.carry]
        live = [n for n, x in enumerate(entry.inputs) if x._entry is not None]

        def whole(*watched: Tensor) -> Any:
            inputs = list(entry.inputs)
            for n, x in zip(live, watched, strict=True):
                inputs[n] = x

            def input_of(x: Tensor, *first: int) -> Tensor:  # zeros for unused inputs, which were dropped
                known = inputs[position[x._data]] if x._data in position else None
                return or_zeros(known, ((*first, *x.shape), x._data.dtype))

            xs, consts = [input_of(x, steps) for x in forward.xs], [input_of(x) for x in forward.consts]
            recomputed = Scan(Loop(forward.saving_states(), len(forward.ys), who))
            recomputed.events = self.events
            outputs = recomputed.bind_all(*(inputs[n][0] for n in states), *xs, *consts, steps=steps)
            for n, rows in zip(states, outputs[len(states) + len(forward.ys) :], strict=False):
                inputs[n] = rows
            scan, outputs = _bind_loop(Loop(body, len(body.ys), who), inputs, steps)
            scan.events = self.events
            collected = len(body.after) + len(body.ys)
            return [*outputs[:collected], *outputs[len(body.after) + len(scan.loop.body.ys) :]]

        outs, pull = vjp(whole, *(entry.inputs[n] for n in live))[:2]
        grads = pull(*(or_zeros(dout, (out.shape, out._data.dtype)) for dout, out in zip(douts, outs, strict=True)))
        spread = dict(zip(live, grads, strict=True))
        return [spread.get(n) for n in range(len(entry.inputs))]


def _drop_unused(
    body: Body, inputs: Sequence[Any], recompute: Recompute | None, needed: set[Value]
) -> tuple[Body, list[Any]]:
    """Drop sequences and constants that are neither used nor `needed`, so that the tape does not keep them alive."""
    used = find_used_values(canonical_step(body)) | needed
    if recompute is not None:
        forward = recompute.forward
        used |= find_used_values(canonical_step(forward)) | {x._data for x in forward.carry}
    flags = [True] * len(body.carry) + [x._data in used for x in (*body.xs, *body.consts)]
    xs, consts = ([x for x in kind if x._data in used] for kind in (body.xs, body.consts))
    return replace(body, xs=xs, consts=consts), list(compress(inputs, flags))


def _expand_gradients(reverse: Reverse, results: Sequence[Tensor], states: int) -> list[Any]:
    """A gradient or None for each input of the forward pass, of which the first `states` are states."""
    grads = iter(results)
    of_states = {n: next(grads) for n in reverse.float_states}
    others = [next(grads) if has_gradient else None for has_gradient in reverse.has_gradient[states:]]
    return [*(of_states.get(n) for n in range(states)), *others]


class Nested:
    """The rule `over_time` of a loop without states: inside of an outer loop, both become one loop.

    outer loop of T steps, in each of them M      one loop of T M steps
    sequence (M, ...) of each outer step          sequence (T M, ...)
    constant (...)                                the same constant
    constant of each outer step, (T, ...)         sequence (T M, ...), each row M times
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._lowered: dict[tuple[bool, ...], Lowered] = {}
        self._widest: int | None = None

    def __call__(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> tuple[Any, ...]:
        many, steps, first = steps_of(arrays, varying), attrs["steps"], len(self.loop.body.xs)
        constants = list(zip(arrays[first:], varying[first:], strict=True))
        # Run the inner loops one after another if there are sums, which go over inner steps only, or if a large
        # constant, such as a matrix, would be repeated for each inner step.
        if self.loop.body.sums or any(x.size > many * self._most() for x, varies in constants if varies):
            alone = self._lower_for_outer_loop((False,) * len(constants))
            each: tuple[Any, ...] = one_after_another(lambda *step: alone.run(step, steps), arrays, varying, {})
            return each
        rows = repeat_over_time(arrays, varying)[:first]
        for x, varies in constants:
            if varies:
                rows.append(np.broadcast_to(x.reshape(many, 1, *x.shape[1:]), (many, steps, *x.shape[1:])))
        rows = [x.reshape(many * steps, *x.shape[2:]) for x in rows]
        joined = self._lower_for_outer_loop(tuple(varying[first:]))
        outs = joined.run([*rows, *(x for x, varies in constants if not varies)], many * steps)
        return tuple(out.reshape(many, steps, *out.shape[1:]) for out in outs)

    def _most(self) -> int:
        if self._widest is None:
            results = results_of(*canonical_step(self.loop.body).instructions)
            self._widest = max((math.prod(x.shape) for x in results), default=0)
        return self._widest

    def _lower_for_outer_loop(self, of_each: tuple[bool, ...]) -> Lowered:
        """The loop with the constants that vary in the outer loop (`of_each`) as sequences."""
        if of_each not in self._lowered:
            body, alike = self.loop.body, [not differs for differs in of_each]
            xs, consts = [*body.xs, *compress(body.consts, of_each)], list(compress(body.consts, alike))
            loop = replace(self.loop, body=replace(body, xs=xs, consts=consts))
            self._lowered[of_each] = Lowered(loop, schedule(loop))
        return self._lowered[of_each]
