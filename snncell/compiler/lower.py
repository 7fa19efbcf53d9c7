"""Lowering of a loop over time: steps before it, the loop in one of three forms, steps after it.

    one kernel    all elementwise, or with products of rows and constant matrices (on the CPU)
    step by step  the launches of a plan, replayed at each step
    no loop       without states, the launches of a plan for all steps at once

The steps before and after it run on whole sequences, by the `over_time` rules of their operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.backends.gathered import rows_of_events
from snncell.compiler.backends.scattered import events_by_column
from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.loop import Loop
from snncell.compiler.ir.product import choice_in_loop
from snncell.compiler.ir.program import by_line, values_in
from snncell.compiler.runtime.stepwise import StepLoop
from snncell.compiler.runtime.together import AllStepsPlan, over_all_steps
from snncell.compiler.schedule.legality import obstacle
from snncell.compiler.schedule.loop import LoopSchedule
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


class Lowered:
    """The code that runs a loop, in each space that its arrays are found in.

    Args:
        loop: as data.
        schedule: its parts.
    """

    def __init__(self, loop: Loop, schedule: LoopSchedule) -> None:
        self.loop = loop
        self.schedule = schedule
        self.reason = obstacle(self.schedule)
        self._loops: dict[Space, CPULoop | CUDALoop | StepLoop] = {}
        parts = schedule.parts
        self.at_once = [*parts.prologue, *parts.loop, *parts.epilogue]
        self.has_loop = bool(schedule.carry) or not all(instruction.op.over_time for instruction in self.at_once)
        self._plans: dict[tuple[Space, int], AllStepsPlan] = {}

    def loop_in(self, space: Space) -> CPULoop | CUDALoop | StepLoop:
        """The loop that runs the steps where the arrays are."""
        if space not in self._loops:
            self._loops[space] = self._new_loop(space)
        return self._loops[space]

    def plan_in(self, space: Space, steps: int) -> AllStepsPlan:
        """The plan that runs all steps at once where the arrays are, if there is no loop."""
        if (space, steps) not in self._plans:
            parts = self.schedule.parts
            made = {value for instruction in self.at_once for value in instruction.outputs}
            on_sums = [instruction for instruction in parts.reductions if _on_sums(instruction)]
            whole = [
                *parts.ys,
                *(x for instruction in parts.reductions if instruction not in on_sums for x in values_in(instruction)),
            ]
            totals = [*parts.summed, *parts.sums, *(x for instruction in on_sums for x in values_in(instruction))]
            results, summed = ([x for x in dict.fromkeys(kind) if x in made] for kind in (whole, totals))
            sequences = set(self.schedule.xs)
            self._plans[space, steps] = AllStepsPlan(self.at_once, sequences, results, summed, steps, space)
        return self._plans[space, steps]

    def kernels(self, steps: int, space: Space) -> list[tuple[Any, ...]]:
        """The kernels to be built."""
        return self.loop_in(space).kernels(steps) if self.has_loop else list(self.plan_in(space, steps).plan.kernels())

    def launches(self, steps: int) -> int:
        """Kernels that it launches on the device."""
        if self.has_loop:
            return self.loop_in(DEVICE).launches(steps)
        return sum(launch.launches for launch in self.plan_in(DEVICE, steps).plan.launches)

    def _new_loop(self, space: Space) -> CPULoop | CUDALoop | StepLoop:
        if self.reason is not None:
            return StepLoop(self.schedule, space)
        if space is HOST:
            return CPULoop(self.schedule)
        if all(is_elementwise(instruction) for instruction in self.schedule.instructions):
            return CUDALoop(self.schedule)
        return StepLoop(self.schedule, space)  # on the device products are cuBLAS's, so they end a kernel

    def explained(self, steps: int, space: Space) -> list[str]:
        """The form it took in a place, and why."""
        if not self.has_loop:
            return self._explained_at_once(steps, space)
        parts, body, loop = self.schedule.parts, self.loop.body, self.loop_in(space)
        lines = [f"{self.schedule.who}: {loop.explained(steps)}"]
        if self.reason is not None:
            lines.append(f"no single kernel, because {self.reason}")
        saved = set(map(id, body.saved or ()))
        stored = [y._data for y in body.ys if id(y) in saved]
        if self.loop.interval is not None:
            states = _specs(self.schedule.carry)
            lines.append(f"stores the state every {self.loop.interval} steps for the reverse: {states}")
        elif stored:
            lines.append("stores for the reverse, of each step, and nothing else:")
            origin = {
                out: f"{instruction.op.name}, {instruction.line}"
                for instruction in parts.program.instructions
                for out in instruction.outputs
            }
            origin |= {value: f"state {n} before it" for n, value in enumerate(self.schedule.carry, 1)}
            lines += [f"    {_specs([value])}: {origin[value]}" for value in stored]
        if self.loop.recompute is not None:
            interval = self.loop.recompute.interval
            lines.append(f"computes the states between the stored ones again, {interval} steps at a time")
        products = [*self.schedule.prologue, *self.schedule.products]
        gathered = _by_rule(
            [instruction for instruction in self.schedule.products if _gathers(loop, instruction)], steps
        )
        added = _by_rule([instruction for instruction in parts.reductions if _adds_up(loop, instruction)], steps)
        outside = [instruction for instruction in products if not any(instruction in own for own in gathered.values())]
        after = [
            instruction for instruction in parts.reductions if not any(instruction in own for own in added.values())
        ]
        for title, placed in (
            ("once before the loop", self.schedule.invariant),
            *((f"{rule}, else for all steps together, before it", own) for rule, own in gathered.items()),
            ("for all steps together, before the loop", outside),
            ("in the loop", parts.loop),
            ("for all steps together, after the loop", parts.epilogue),
            ("on sums over time, after the loop", after),
            *((f"{rule}, else after it", own) for rule, own in added.items()),
            ("taken into the loop, added up over time", body.fused_sums),
        ):
            lines += _list_reasons(title, placed)
        return lines

    def _explained_at_once(self, steps: int, space: Space) -> list[str]:
        parts = self.schedule.parts
        return [
            f"{self.schedule.who}: {self.plan_in(space, steps).explained()}",
            *_list_reasons("once", self.schedule.invariant),
            *_list_reasons("for all steps together", self.at_once),
            *_list_reasons("on sums over all steps", [*parts.reductions, *self.loop.body.fused_sums]),
        ]

    def moved(self, steps: int) -> int:
        """Bytes that go through memory inside of it, beside its inputs and outputs."""
        return steps * self.loop_in(HOST).moved if self.has_loop else self.plan_in(HOST, steps).plan.moved()

    def run(self, arrays: Sequence[Any], steps: int) -> tuple[Any, ...]:
        """All outputs, from the arrays of all inputs."""
        schedule = self.schedule
        parts = schedule.parts
        known = dict(zip((*schedule.carry, *schedule.xs, *schedule.consts), arrays, strict=True))
        # The sequences. Checkpoints come in among them, but have a row for each segment, not for each step.
        varying = set(schedule.xs).difference(schedule.recompute.carry if schedule.recompute else ())
        for instruction in schedule.invariant:
            known.update(zip(instruction.outputs, _evaluate_step(instruction, known), strict=True))
        space: Space = HOST
        if IN_USE and any(space_of(array) is DEVICE for array in arrays):
            space = DEVICE
        if not self.has_loop:
            sequences, totals = self.plan_in(space, steps).run(known)
            known.update(sequences)
            varying.update(sequences)
            return tuple(self._results(known, totals, varying, steps, space))
        for instruction in schedule.prologue:
            known.update(
                zip(instruction.outputs, _over_time(instruction.op.over_time, instruction, known, varying), strict=True)
            )
            varying.update(instruction.outputs)
        loop = self.loop_in(space)
        for instruction in schedule.products:
            (out,) = instruction.outputs
            rows = rows_of_events(instruction, known) if _gathers(loop, instruction) else None
            known[out] = _over_time(instruction.op.over_time, instruction, known, varying)[0] if rows is None else rows
            varying.add(out)
        for instruction in schedule.terms:
            sorted_events = events_by_column(instruction, known, steps) if _adds_up(loop, instruction) else None
            if sorted_events is not None:
                known[instruction.outputs[0]] = sorted_events
        if space is DEVICE:
            known = {value: DEVICE.taken(array, f"{schedule.who}: an operand") for value, array in known.items()}
        last, sequences, totals, stored = loop.run(known, varying, steps)
        known.update(sequences)
        varying.update(sequences)
        for instruction in parts.epilogue:
            known.update(
                zip(instruction.outputs, _over_time(instruction.op.over_time, instruction, known, varying), strict=True)
            )
            varying.update(instruction.outputs)
        return (*last, *self._results(known, totals, varying, steps, space), *stored)

    def _results(
        self, known: dict[Value, Any], totals: dict[Value, Any], varying: set[Value], steps: int, space: Space
    ) -> list[Any]:
        """The sequences and the sums."""
        parts = self.schedule.parts
        if parts.sums or parts.reductions:
            self._reduce(known, totals, varying, steps, space)
        ys = [known[y] if y in varying else np.broadcast_to(known[y], (steps, *y.shape)) for y in parts.ys]
        return [*ys, *(space.cast(totals[value], value.dtype) for value in parts.sums)]

    def _reduce(
        self, known: dict[Value, Any], totals: dict[Value, Any], varying: set[Value], steps: int, space: Space
    ) -> None:
        """Complete the totals over time that the loop has not added up itself, and run the steps on totals."""
        parts = self.schedule.parts
        on_sums = [instruction for instruction in parts.reductions if _on_sums(instruction)]
        operands = [
            x
            for instruction in on_sums
            for x in values_in(instruction)
            if instruction.op.additive or x not in parts.fixed
        ]
        for value in (*parts.summed, *parts.sums, *operands):
            if value not in totals and value in known:
                totals[value] = space.sum(known[value]) if value in varying else space.times(known[value], steps)
        for instruction in parts.reductions:
            if instruction.outputs[0] in totals:
                continue  # the loop has added it up
            if instruction.op.additive:
                totals.update(zip(instruction.outputs, _evaluate_step(instruction, totals), strict=True))
            elif instruction.op.proportional:
                constants = {x: known[x] for x in values_in(instruction) if x in parts.fixed}
                totals.update(zip(instruction.outputs, _evaluate_step(instruction, totals | constants), strict=True))
            else:
                totals.update(
                    zip(
                        instruction.outputs, _over_time(instruction.op.summed, instruction, known, varying), strict=True
                    )
                )


def _on_sums(instruction: Instruction) -> bool:
    return instruction.op.additive or instruction.op.proportional is not None


def _list_reasons(title: str, placed: Sequence[Instruction]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in by_line(placed))] if placed else []


def _by_rule(products: Sequence[Instruction], steps: int) -> dict[str, list[Instruction]]:
    """The products that the loop may carry out, by the rule for when it does."""
    found: dict[str, list[Instruction]] = {}
    for step in products:
        if rule := choice_in_loop(step, steps):
            found.setdefault(rule, []).append(step)
    return found


def _gathers(loop: CPULoop | CUDALoop | StepLoop, instruction: Instruction) -> bool:
    return isinstance(loop, CPULoop) and instruction.outputs[0] in loop.gathered


def _adds_up(loop: CPULoop | CUDALoop | StepLoop, instruction: Instruction) -> bool:
    return isinstance(loop, CPULoop) and instruction in loop.scattered


def _evaluate_step(instruction: Instruction, known: dict[Value, Any]) -> Sequence[Any]:
    arrays = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
    out = instruction.op.run_here(arrays, arrays, instruction.attrs)
    return out if instruction.op.multiple else (out,)


def _over_time(rule: Any, instruction: Instruction, known: dict[Value, Any], varying: set[Value]) -> Sequence[Any]:
    """A step by one of its operation's rules for whole sequences."""
    arrays = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
    return over_all_steps(rule, instruction, arrays, [x in varying for x in instruction.inputs])


def _specs(values: Sequence[Value]) -> str:
    return ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)
