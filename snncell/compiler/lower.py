"""A body becomes what runs it: steps before the loop, the loop, steps after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.loop import Loop
from snncell.compiler.ir.program import by_line, values_in
from snncell.compiler.runtime.stepwise import StepLoop
from snncell.compiler.schedule.legality import obstacle
from snncell.compiler.schedule.loop import LoopSchedule
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.tracing import Step, Value


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

    def loop_in(self, space: Space) -> CPULoop | CUDALoop | StepLoop:
        """The loop that runs the steps where the arrays are."""
        if space not in self._loops:
            self._loops[space] = self._made(space)
        return self._loops[space]

    def _made(self, space: Space) -> CPULoop | CUDALoop | StepLoop:
        if self.reason is not None:
            return StepLoop(self.schedule, space)
        if space is HOST:
            return CPULoop(self.schedule)
        if all(is_elementwise(step) for step in self.schedule.steps):
            return CUDALoop(self.schedule)
        return StepLoop(self.schedule, space)  # a product is the library's

    def explained(self, steps: int, space: Space) -> list[str]:
        """The form it took in a place, and why."""
        parts, body = self.schedule.parts, self.loop.body
        lines = [f"{self.schedule.who}: {self.loop_in(space).explained(steps)}"]
        if self.reason is not None:
            lines.append(f"no single kernel, because {self.reason}")
        saved = set(map(id, body.saved or ()))
        stored = [y._data for y in body.ys if id(y) in saved]
        if self.loop.interval is not None:
            states = _specs(self.schedule.carry)
            lines.append(f"stores the state every {self.loop.interval} steps for the reverse: {states}")
        elif stored:
            lines.append("stores for the reverse, of each step, and nothing else:")
            made = {out: f"{step.op.name}, {step.line}" for step in parts.program.steps for out in step.outputs}
            made |= {value: f"state {n} before it" for n, value in enumerate(self.schedule.carry, 1)}
            lines += [f"    {_specs([value])}: {made[value]}" for value in stored]
        if self.loop.recompute is not None:
            interval = self.loop.recompute.interval
            lines.append(f"computes the states between the stored ones again, {interval} steps at a time")
        for title, steps_there in (
            ("once before the loop", self.schedule.invariant),
            ("for all steps together, before the loop", self.schedule.prologue),
            ("in the loop", parts.loop),
            ("for all steps together, after the loop", parts.epilogue),
            ("on sums over time, after the loop", parts.reductions),
            ("taken into the loop, added up over time", body.added_up),
        ):
            lines += [f"  {title}:"] * bool(steps_there)
            lines += [f"    {line}" for line in by_line(steps_there)]
        return lines

    def moved(self, steps: int) -> int:
        """Bytes that go through memory inside of it, beside its inputs and outputs."""
        return steps * self.loop_in(HOST).moved

    def run(self, arrays: Sequence[Any], steps: int) -> tuple[Any, ...]:
        """All outputs, from the arrays of all inputs."""
        plan = self.schedule
        parts = plan.parts
        known = dict(zip((*plan.carry, *plan.xs, *plan.consts), arrays, strict=True))
        moving = set(plan.xs).difference(plan.recompute.carry if plan.recompute else ())
        for step in plan.invariant:
            known.update(zip(step.outputs, _evaluated(step, known), strict=True))
        for step in plan.prologue:
            known.update(zip(step.outputs, _over_time(step.op.over_time, step, known, moving), strict=True))
            moving.update(step.outputs)
        space: Space = HOST
        if IN_USE and any(space_of(array) is DEVICE for array in arrays):
            known = {value: DEVICE.taken(array, f"{plan.who}: an operand") for value, array in known.items()}
            space = DEVICE
        last, sequences, totals, stored = self.loop_in(space).run(known, moving, steps)
        known.update(sequences)
        moving.update(sequences)
        for step in parts.epilogue:
            known.update(zip(step.outputs, _over_time(step.op.over_time, step, known, moving), strict=True))
            moving.update(step.outputs)
        if parts.sums or parts.reductions:
            self._reduce(known, totals, moving, steps, space)
        ys = [known[y] if y in moving else np.broadcast_to(known[y], (steps, *y.shape)) for y in parts.ys]
        sums = [space.cast(totals[value], value.dtype) for value in parts.sums]
        return (*last, *ys, *sums, *stored)

    def _reduce(
        self, known: dict[Value, Any], totals: dict[Value, Any], moving: set[Value], steps: int, space: Space
    ) -> None:
        """Add up over time what is wanted as a sum, and carry out on the sums what follows from them."""
        parts = self.schedule.parts
        on_sums = [step for step in parts.reductions if step.op.additive or step.op.proportional]
        added_up = [x for step in on_sums for x in values_in(step) if step.op.additive or x not in parts.fixed]
        for value in (*parts.summed, *parts.sums, *added_up):
            if value not in totals and value in known:
                totals[value] = space.sum(known[value]) if value in moving else space.times(known[value], steps)
        for step in parts.reductions:
            if step.op.additive:
                totals.update(zip(step.outputs, _evaluated(step, totals), strict=True))
            elif step.op.proportional:
                held = {x: known[x] for x in values_in(step) if x in parts.fixed}
                totals.update(zip(step.outputs, _evaluated(step, totals | held), strict=True))
            else:
                totals.update(zip(step.outputs, _over_time(step.op.summed, step, known, moving), strict=True))


def _evaluated(step: Step, known: dict[Value, Any]) -> Sequence[Any]:
    arrays = [known[x] if isinstance(x, Value) else x for x in step.inputs]
    out = step.op.run_here(arrays, arrays, step.attrs)
    return out if step.op.multiple else (out,)


def _over_time(rule: Any, step: Step, known: dict[Value, Any], moving: set[Value]) -> Sequence[Any]:
    """A step by one of its operation's rules for whole sequences."""
    arrays = [known[x] if isinstance(x, Value) else x for x in step.inputs]
    if not step.op.view:
        arrays = [HOST.widened(x) if isinstance(x, np.ndarray) else x for x in arrays]
    out = rule(arrays, [x in moving for x in step.inputs], step.attrs)
    return (out if space_of(out) is DEVICE else np.asarray(out, step.outputs[0].dtype),)


def _specs(values: Sequence[Value]) -> str:
    return ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)
