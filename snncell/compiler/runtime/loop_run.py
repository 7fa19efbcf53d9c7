"""Lowering of a loop over time to its form in each space, and one run of it.

    one kernel    all elementwise; on the CPU also products of states and loop-invariant matrices
    step by step  the launches of a plan, replayed at each step (`StepLoop`)
    no loop       without states, the launches of a plan for all steps at once (`AllStepsPlan`)

Instructions before and after the loop run on whole sequences, by the rules of their operations (`over_time`, `summed`),
or on sums over time (`additive`, `proportional`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.backends.event_products import events_by_column, gather_rows
from snncell.compiler.ir.operations import Elementwise, Reduction, Reshape, is_elementwise
from snncell.compiler.ir.program import Loop, LoopParts, Program, operations_in, outside_of, values_in, with_inputs
from snncell.compiler.ir.windows import WindowOperation, obstacle_to_parts
from snncell.compiler.passes.simplify import leading_to
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.schedule import LoopBackend, LoopResults, LoopSchedule, is_on_sums, obstacle
from snncell.dtype import compute_dtype, far, is_storage_only
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.kernels.sums import NEAR
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

# --- Step by step -----------------------------------------------------------------------------------------------------


class StepLoop(LoopBackend):
    """A loop that is not a single kernel: step by step, where each step replays the launches of a plan.

        for t in 0 .. T-1:  plan(states, x[t], constants)  ->  states, slice t of the sequences, addends of the sums

    The arrays that a step fills are allocated once: results are double-buffered, and slices of sequences filled in
    place.
    """

    def __init__(self, schedule: LoopSchedule, space: Space = HOST) -> None:
        super().__init__(schedule)
        recompute, self.space = self.recompute, space
        self.plan = _StepPlan(schedule.parts, self.carry, [*self.sequences, *self.summed], space)
        self.again = _StepPlan(recompute.parts, self.stored, [], space) if recompute else None
        self.plans = [step.plan for step in (self.plan, self.again) if step is not None]

    @property
    def moved(self) -> int:  # type: ignore[override]
        """The bytes that a step moves through memory."""
        return self.plan.plan.moved()

    def kernels(self, steps: int) -> list[tuple[Any, ...]]:
        """The kernels of a step, as arguments of `build`."""
        return [kernel for plan in self.plans for kernel in plan.kernels()]

    def launches(self, steps: int) -> int:
        return steps * sum(launch.launches for launch in self.plan.plan.launches)

    def describe(self, steps: int) -> str:
        """Describe for `explain` how the loop runs."""
        return f"{steps} steps one by one, {len(self.plan.plan.launches)} launches each"

    def run(self, known: dict[Value, Any], varying: set[Value], steps: int) -> LoopResults:
        """Run the plan step by step."""
        for plan in self.plans:
            plan.build()
        states = [known[value] for value in self.carry]
        space, every = self.space, self.every
        ys = {value: space.empty((steps, *value.shape), value.dtype) for value in self.sequences}
        totals = [_Total(value, space, self.backwards) for value in self.summed]
        segments = -(-steps // every)
        stored = [space.empty((segments, *x.shape), x.dtype) for x in self.carry if self.storing]
        between: list[list[Any]] = []  # the rematerialised states of a segment, in reverse order
        run = _StepRun(self.plan, known, varying, ys, self.stored)
        again = None if self.again is None else _StepRun(self.again, known, varying, {})
        for turn in range(steps):
            place = steps - 1 - turn if self.backwards else turn
            if self.storing and turn % every == 0:
                for rows, state in zip(stored, states, strict=True):
                    rows[turn // every] = state
            now: dict[Value, Any] = {}
            if again:
                between = between or self._states_between(again, known, steps, steps - 1 - turn)
                now = dict(zip(self.stored, between.pop(), strict=True))
            results = run.take(states, place, turn, now)
            states = results[: len(states)]
            for total, result in zip(totals, results[len(states) :], strict=True):
                total.add(result, place)
        # Copy the states, because a state that is a row of a sequence would keep the whole sequence alive.
        return [space.copy(state) for state in states], ys, {x.value: x.result() for x in totals}, stored

    def _states_between(self, run: _StepRun, known: dict[Value, Any], steps: int, last: int) -> list[list[Any]]:
        """Rematerialise the states before each step of the segment that ends with step `last` of the forward pass."""
        first = last - last % self.every
        states = [[known[value][first // self.every] for value in self.stored]]
        for turn in range(first, last):
            # `turn` counts in the direction of the forward pass, opposite to the backward pass.
            place = turn if self.backwards else steps - 1 - turn
            # Copy the states, because the plan has two arrays per state, but a segment needs all of them.
            states.append([self.space.copy(state) for state in run.take(states[-1], place, turn, {})])
        return states


class _Total:
    """A sum over time with two levels, as in generated loops (`kernels/sums.py`)."""

    def __init__(self, value: Value, space: Space, backwards: bool) -> None:
        self.value, self.space = value, space
        self.last = 0 if backwards else NEAR - 1  # the last step of a block, after which its partial sum is flushed
        self.near: Any = None
        self.far: Any = space.zeros(value.shape, far(compute_dtype(value.dtype)))

    def add(self, term: Any, place: int) -> None:
        term = self.space.widen(term)
        self.near = self.space.copy(term) if self.near is None else self.space.add(self.near, term)
        if place % NEAR == self.last:
            self._move()

    def _move(self) -> None:
        if self.near is not None:
            self.far, self.near = self.space.add(self.far, self.space.cast(self.near, self.far.dtype)), None

    def result(self) -> Any:
        self._move()
        return self.space.cast(self.far, self.value.dtype)


class _StepPlan:
    """The plan of one step of a loop, with its operands from outside and the slots of its results."""

    def __init__(self, parts: LoopParts, carry: Sequence[Value], others: list[Value], space: Space) -> None:
        results = [*parts.after, *others]
        self.outside = outside_of(parts.loop, results, carry)
        instructions = leading_to(parts.loop, results)
        self.space = space
        self.plan = Plan(Program([*carry, *self.outside], {}, [], instructions, results, {}), space)
        self.targets = self.plan.targets()
        # A state that no launch stores may be a view of an input of the step, which is overwritten two steps later.
        self.may_be_views = [value not in self.targets for value in parts.after]


class _StepRun:
    """A running loop with its own arrays, because the same loop may run on other threads. Every launch has two arrays
    for each result, one for even and one for odd steps, so that it can read the states before a step while it writes
    those after the step. Slices are written directly into their sequences.
    """

    def __init__(
        self,
        plan: _StepPlan,
        known: dict[Value, Any],
        varying: set[Value],
        ys: dict[Value, Any],
        from_forward: Collection[Value] = (),
    ) -> None:
        self.plan = plan
        self.operands: list[tuple[Any, bool]] = []  # (array, True if it is a sequence)
        for value in plan.outside:
            array = None if value in from_forward else known[value]  # None: `take` gets it at each step
            if array is not None and value not in varying:
                array = plan.space.contiguous(array)  # once, not at each step
            self.operands.append((array, value in varying))
        targets = {slot: value for value, slot in plan.targets.items() if value not in ys}
        self.buffers = [{slot: plan.space.empty(v.shape, v.dtype) for slot, v in targets.items()} for _ in range(2)]
        self.rows = [(plan.targets[value], rows) for value, rows in ys.items() if value in plan.targets]
        outputs = {value: n for n, value in enumerate(plan.plan.program.outputs)}
        self.copied = [(outputs[value], rows) for value, rows in ys.items() if value not in plan.targets]
        self.collected = len(ys)

    def take(self, states: Sequence[Any], place: int, turn: int, now: dict[Value, Any]) -> list[Any]:
        """Run step `place`; return states and addends of sums. `now`: rematerialised states."""
        taken = [array[place, ...] if varies else array for array, varies in self.operands]
        if now:
            taken = [now.get(value, array) for value, array in zip(self.plan.outside, taken, strict=True)]
        into = self.buffers[turn % 2]
        for slot, rows in self.rows:
            into[slot] = rows[place, ...]
        results = self.plan.plan.carry_out([*states, *taken], into)
        for number, rows in self.copied:
            rows[place] = results[number]
        count = len(self.plan.may_be_views)
        after = zip(results[:count], self.plan.may_be_views, strict=True)
        states = [self.plan.space.copy(state) if may_be_view else state for state, may_be_view in after]
        return [*states, *results[count + self.collected :]]


# --- One run ----------------------------------------------------------------------------------------------------------


LoopKernel = CPULoop | CUDALoop | StepLoop


class LoopRun:
    """One run of a loop, with its arrays. `arrays` are those of the inputs: states, sequences, constants."""

    def __init__(self, schedule: LoopSchedule, arrays: Sequence[Any], steps: int) -> None:
        self.schedule, self.steps = schedule, steps
        self.space: Space = DEVICE if IN_USE and any(space_of(array) is DEVICE for array in arrays) else HOST
        # The array of each Value: a sequence if the Value is in `varying`, otherwise loop-invariant.
        self.known: dict[Value, Any] = dict(zip((*schedule.carry, *schedule.xs, *schedule.consts), arrays, strict=True))
        # Checkpoints are inputs like the sequences, but have one slice per segment (`interval` steps), not per step.
        self.varying = set(schedule.xs).difference(schedule.recompute.carry if schedule.recompute else ())
        self.totals: dict[Value, Any] = {}  # sums over time
        for instruction in schedule.invariant:
            self.known.update(zip(instruction.outputs, _evaluate(instruction, self.known), strict=True))

    def run_at_once(self, plan: AllStepsPlan) -> tuple[Any, ...]:
        """The outputs of a loop without states, computed by a plan for all steps."""
        sequences, self.totals = plan.run(self.known)
        self._add_sequences(sequences)
        return tuple(self._results())

    def run_steps(self, loop: LoopKernel) -> tuple[Any, ...]:
        """The outputs of a loop: last states, sequences, sums and checkpoints."""
        schedule = self.schedule
        own = pooled_by(loop)
        self._run_over_time([*schedule.prologue, *(one for one in schedule.spreads if one not in own)])
        for instruction in schedule.products:
            rows = gather_rows(instruction, self.known) if gathers(loop, instruction) else None
            if rows is None:
                self._run_over_time([instruction])
            else:
                self._add_sequences({instruction.outputs[0]: rows})
        for instruction in schedule.product_sums:
            events = events_by_column(instruction, self.known, self.steps) if adds_up(loop, instruction) else None
            if events is not None:
                self.known[instruction.outputs[0]] = events
        if self.space is DEVICE:
            who = f"{schedule.who}: an operand"
            self.known = {value: DEVICE.require(array, who) for value, array in self.known.items()}
        last, sequences, self.totals, stored = loop.run(self.known, self.varying, self.steps)
        self._add_sequences(sequences)
        self._run_over_time([one for one in schedule.parts.epilogue if one not in own])
        return (*last, *self._results(), *stored)

    def _add_sequences(self, sequences: dict[Value, Any]) -> None:
        self.known.update(sequences)
        self.varying.update(sequences)

    def _run_over_time(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            results = self.evaluate_over_time(instruction.op.over_time, instruction)
            self._add_sequences(dict(zip(instruction.outputs, results, strict=True)))

    def evaluate_over_time(self, rule: Any, instruction: Instruction) -> Sequence[Any]:
        """Evaluate an instruction by one of its operation's rules for whole sequences; the profiler overrides this."""
        arrays = [self.known[x] if isinstance(x, Value) else x for x in instruction.inputs]
        return over_all_steps(rule, instruction, arrays, [x in self.varying for x in instruction.inputs])

    def _results(self) -> list[Any]:
        parts = self.schedule.parts
        if parts.sums or parts.reductions:
            self._reduce()
        ys = [
            self.known[y] if y in self.varying else np.broadcast_to(self.known[y], (self.steps, *y.shape))
            for y in parts.ys
        ]
        return [*ys, *(self.space.cast(self.totals[value], value.dtype) for value in parts.sums)]

    def _reduce(self) -> None:
        """Compute the sums over time that the loop has not computed, and run the instructions on sums."""
        parts, space, totals = self.schedule.parts, self.space, self.totals
        on_sums = [one for one in parts.reductions if is_on_sums(one) and one.outputs[0] not in totals]
        operands = [x for one in on_sums for x in values_in(one) if one.op.additive or x not in parts.fixed]
        for value in (*parts.sums, *operands):
            if value not in totals and value in self.known:
                array = self.known[value]
                totals[value] = space.sum(array) if value in self.varying else space.times(array, self.steps)
        for instruction in parts.reductions:
            if instruction.outputs[0] in totals:
                continue  # the loop has summed it
            if instruction.op.additive:
                results = _evaluate(instruction, totals)
            elif instruction.op.proportional:
                constants = {x: self.known[x] for x in values_in(instruction) if x in parts.fixed}
                results = _evaluate(instruction, totals | constants)
            else:
                results = self.evaluate_over_time(instruction.op.summed, instruction)
            totals.update(zip(instruction.outputs, results, strict=True))


def gathers(loop: LoopKernel, instruction: Instruction) -> bool:
    """True for a product before the loop that the loop's kernel may gather itself."""
    return isinstance(loop, CPULoop) and instruction.outputs[0] in loop.gather


def adds_up(loop: LoopKernel, instruction: Instruction) -> bool:
    """True for a product after the loop that the loop's kernel may scatter itself."""
    return isinstance(loop, CPULoop) and instruction in loop.scatter


def pooled_by(loop: LoopKernel) -> Sequence[Instruction]:
    """The pooling, and the gradients of pooling, that the loop's kernel computes."""
    return loop.pooled if isinstance(loop, CPULoop) else ()


def _evaluate(instruction: Instruction, known: dict[Value, Any]) -> Sequence[Any]:
    arrays = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
    out = instruction.op.run_here(arrays, arrays, instruction.attrs)
    return out if instruction.op.multiple else (out,)


# --- All steps at once ------------------------------------------------------------------------------------------------


_RESHAPE = Reshape()


def over_all_steps(
    rule: Any, instruction: Instruction, arrays: Sequence[Any], varying: Sequence[bool]
) -> Sequence[Any]:
    """The results of an instruction by one of its operation's rules for whole sequences."""
    if not instruction.op.view:  # storage formats are computed in float32, but views keep them
        arrays = [HOST.widen(x) if isinstance(x, np.ndarray) else x for x in arrays]
    out = rule(arrays, varying, instruction.attrs)
    outs = out if instruction.op.multiple else (out,)
    pairs = zip(outs, instruction.outputs, strict=True)
    return [part if space_of(part) is DEVICE else np.asarray(part, value.dtype) for part, value in pairs]


class _OfAllSteps(Primitive):
    """The operation of an instruction, for all time steps at once."""

    as_stored = EVERYWHERE

    def __init__(self, instruction: Instruction, varying: Sequence[bool]) -> None:
        super().__init__(instruction.op.name, self._all, multiple=True)
        self.instruction, self.varying = instruction, varying
        self.view = instruction.op.view

    def _all(self, *arrays: Any) -> Sequence[Any]:
        return over_all_steps(self.instruction.op.over_time, self.instruction, arrays, self.varying)

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(outputs[0].shape[0]) * operations_in([self.instruction], used)

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        return self.instruction.op.event_density(arrays, self.instruction.attrs)

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return self._all(*arrays)


class AllStepsPlan:
    """The plan of a loop without states, for `count` steps at once: no step depends on the previous one.

        each step:  y = sum(x * w, axis=0)      x (3, 4), w (4,), of T steps
        at once:    y = sum(x * w, axis=1)      x (T, 3, 4)

    Elementwise operations and reductions are fused as in any plan. Other operations run by their rule `over_time`.
    """

    def __init__(self, schedule: LoopSchedule, count: int, space: Space) -> None:
        self.count, parts = count, schedule.parts
        instructions = parts.all_steps
        on_sums = [instruction for instruction in parts.reductions if is_on_sums(instruction)]
        on_sequences = [instruction for instruction in parts.reductions if instruction not in on_sums]
        self._lines = {value: instruction.line for instruction in instructions for value in instruction.outputs}
        results = [x for x in (*parts.ys, *values_in(*on_sequences)) if x in self._lines]
        summed = [x for x in (*parts.summed, *parts.sums, *values_in(*on_sums)) if x in self._lines]
        # Sums of storage formats are computed later, because here they would be rounded to that format.
        rounded = [value for value in summed if is_storage_only(value.dtype)]
        self.summed = list(dict.fromkeys(value for value in summed if value not in rounded))
        self.results = list(dict.fromkeys([*results, *rounded]))
        self.whole: dict[Value, Value] = {}
        self.instructions: list[Instruction] = []
        self.inputs = outside_of(instructions, [], [])
        inputs = [self._sequence(value) if value in schedule.xs else value for value in self.inputs]
        for instruction in instructions:
            self._add(instruction)
        outputs = [*(self.whole[value] for value in self.results), *map(self._total, self.summed)]
        self.plan = Plan(Program(inputs, {}, [], self.instructions, outputs, {}), space)

    def _sequence(self, value: Value) -> Value:
        self.whole[value] = Value(value.trace, (self.count, *value.shape), value.dtype)
        return self.whole[value]

    def _add(self, instruction: Instruction) -> None:
        op, attrs = instruction.op, instruction.attrs
        varying = [isinstance(x, Value) and x in self.whole for x in instruction.inputs]
        inputs = [self.whole[x] if varies else x for x, varies in zip(instruction.inputs, varying, strict=True)]
        if isinstance(op, Elementwise):
            ndim = max(len(x.shape) for x in values_in(instruction))
            inputs = [self._align(x, ndim, instruction) if v else x for x, v in zip(inputs, varying, strict=True)]
        elif isinstance(op, Reduction):
            attrs = {**attrs, "axis": tuple(axis + 1 for axis in attrs["axis"])}
        else:
            op, attrs = _OfAllSteps(instruction, varying), {}
        outputs = [self._sequence(value) for value in instruction.outputs]
        self.instructions.append(with_inputs(instruction, inputs, outputs, op, attrs))

    def _align(self, x: Value, ndim: int, instruction: Instruction) -> Value:
        """Insert axes of length 1 after the time axis, so that the axes of a step still broadcast from the right."""
        shape = (x.shape[0], *(1,) * (ndim + 1 - len(x.shape)), *x.shape[1:])
        if shape == x.shape:
            return x
        aligned = Value(x.trace, shape, x.dtype)
        self.instructions.append(with_inputs(instruction, [x], [aligned], _RESHAPE, {"shape": shape}))
        return aligned

    def _total(self, value: Value) -> Value:
        attrs = {"axis": (0,), "keepdims": False}
        instruction = Instruction(DEVICE.arithmetic["sum"], (self.whole[value],), attrs, self._lines[value])
        instruction.outputs = (Value(value.trace, value.shape, value.dtype),)
        self.instructions.append(instruction)
        return instruction.outputs[0]

    def run(self, known: dict[Value, Any]) -> tuple[dict[Value, Any], dict[Value, Any]]:
        """The required sequences and sums, from the arrays of the inputs."""
        self.plan.build()
        arrays = self.plan.carry_out([known[value] for value in self.inputs])
        count = len(self.results)
        sequences = dict(zip(self.results, arrays[:count], strict=True))
        return sequences, dict(zip(self.summed, arrays[count:], strict=True))

    def describe(self) -> str:
        """Describe for `explain` how it runs."""
        launches = sum(launch.launches for launch in self.plan.launches)
        return f"no loop: all {self.count} steps at once, {launches} launch{'es' * (launches != 1)}"


class Lowered:
    """The code of a loop in each space."""

    def __init__(self, loop: Loop, schedule: LoopSchedule) -> None:
        self.loop, self.schedule = loop, schedule
        self.reason = obstacle(schedule)  # the reason why the loop is not a single kernel on the CPU
        # True if the steps must run one after the other.
        self.has_loop = bool(schedule.carry) or not all(x.op.over_time for x in schedule.parts.all_steps)
        self._loops: dict[Space, LoopKernel] = {}
        self._plans: dict[tuple[Space, int], AllStepsPlan] = {}

    def loop_in(self, space: Space) -> LoopKernel:
        """The code that runs the steps in a space."""
        if space not in self._loops:
            # On the device cuBLAS computes products, so a loop with products is not a single kernel.
            is_kernel = self.reason is None and (space is HOST or all(map(is_elementwise, self.schedule.instructions)))
            kernel = CPULoop if space is HOST else CUDALoop
            self._loops[space] = kernel(self.schedule) if is_kernel else StepLoop(self.schedule, space)
        return self._loops[space]

    def plan_in(self, space: Space, steps: int) -> AllStepsPlan:
        """The plan that runs all steps at once in a space, for a loop without states."""
        if (space, steps) not in self._plans:
            self._plans[space, steps] = AllStepsPlan(self.schedule, steps, space)
        return self._plans[space, steps]

    def run(self, arrays: Sequence[Any], steps: int) -> tuple[Any, ...]:
        """All outputs, from the arrays of all inputs."""
        run = LoopRun(self.schedule, arrays, steps)
        if self.has_loop:
            return run.run_steps(self.loop_in(run.space))
        return run.run_at_once(self.plan_in(run.space, steps))

    def obstacles_to_pooling(self, space: Space) -> list[tuple[Instruction, str]]:
        """The pooling of each step, and its gradient, that the loop's kernel does not compute, each with the reason."""
        schedule, own = self.schedule, pooled_by(self.loop_in(space))
        found = []
        for one in (*schedule.prologue, *schedule.spreads, *schedule.parts.epilogue):
            if one in own or not isinstance(one.op, WindowOperation):
                continue
            if self.reason is not None or space is not HOST:
                reason = "the loop is not a single kernel on the CPU"
            elif one in schedule.spreads or one in schedule.pools:
                reason = "the kernel also multiplies, or sums over neurons, in blocks that are not rows of windows"
            else:
                reason = (
                    obstacle_to_parts(one)
                    or "the kernel does not compute its operand, or broadcasts or shares its result"
                )
            found.append((one, reason))
        return found
