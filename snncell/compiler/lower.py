"""A body becomes what runs it: steps before the loop, the loop, steps after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.body import Body
from snncell.compiler.device_loop import DeviceLoop
from snncell.compiler.fused import FusedLoop
from snncell.compiler.obstacles import obstacle
from snncell.compiler.program import by_line, values_in
from snncell.compiler.split import is_elementwise, split
from snncell.compiler.stepwise import StepLoop
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.tracing import Step, Value


class Segments:
    """The states between those that were stored: `forward` runs again from every `every`-th."""

    def __init__(self, every: int, forward: Body) -> None:
        self.every = every
        self.body = forward
        self.forward = split(forward)
        self.carry = [x._data for x in forward.carry]


class Lowered:
    """The loops of one body.

    Args:
        body: one step.
        who: what runs it.
        every: store the states before each `every`-th step, as further outputs.
        segments: for a reverse: the stored states are every so many steps apart.
    """

    def __init__(self, body: Body, who: str, every: int | None, segments: Segments | None) -> None:
        self.body = body
        self.who = who
        self.every, self.segments = every, segments
        self.parts = split(body, segments.carry if segments else ())
        self.carry = [x._data for x in body.carry]
        self.xs = [x._data for x in body.xs]
        self.consts = [x._data for x in body.consts]
        forward = [segments.forward] if segments else []  # what is computed again has things to be done before it too
        self.before = _united([part.before for part in (self.parts, *forward)])
        self.ahead = _united([part.ahead for part in (self.parts, *forward)])
        # What the loop itself adds up; sums of what is there before it need no loop.
        computed = {*self.carry, *(segments.carry if segments else ())}.union(*(s.outputs for s in self.parts.loop))
        self.summed = [value for value in self.parts.summed if value in computed]
        self.reason = obstacle(self, segments)
        self._loops: dict[Space, FusedLoop | DeviceLoop | StepLoop] = {}
        self.loop = self.loop_in(HOST)

    def loop_in(self, space: Space) -> FusedLoop | DeviceLoop | StepLoop:
        """The loop that runs the steps where the arrays are."""
        if space not in self._loops:
            self._loops[space] = self._made(space)
        return self._loops[space]

    def _made(self, space: Space) -> FusedLoop | DeviceLoop | StepLoop:
        if self.reason is not None:
            return StepLoop(self, self.every, self.segments, space)
        if space is HOST:
            return FusedLoop(self, self.every, self.segments)
        if all(is_elementwise(step) for step in self._steps()):
            return DeviceLoop(self, self.every, self.segments)
        return StepLoop(self, self.every, self.segments, space)  # a product is the library's

    def _steps(self) -> list[Step]:
        return [*self.parts.loop, *(self.segments.forward.loop if self.segments else [])]

    def explained(self, steps: int, space: Space) -> list[str]:
        """The form it took in a place, and why."""
        parts = self.parts
        lines = [f"{self.who}: {self.loop_in(space).explained(steps)}"]
        if self.reason is not None:
            lines.append(f"no single kernel, because {self.reason}")
        kept = set(map(id, self.body.kept or ()))
        stored = [y._data for y in self.body.ys if id(y) in kept]
        if self.every is not None:
            lines.append(f"stores the state every {self.every} steps for the reverse: {_specs(self.carry)}")
        elif stored:
            lines.append("stores for the reverse, of each step, and nothing else:")
            made = {out: f"{step.op.name}, {step.line}" for step in parts.program.steps for out in step.outputs}
            made |= {value: f"state {n} before it" for n, value in enumerate(self.carry, 1)}
            lines += [f"    {_specs([value])}: {made[value]}" for value in stored]
        if self.segments is not None:
            lines.append(f"computes the states between the stored ones again, {self.segments.every} steps at a time")
        for title, steps_there in (
            ("once before the loop", self.before),
            ("for all steps together, before the loop", self.ahead),
            ("in the loop", parts.loop),
            ("for all steps together, after the loop", parts.behind),
            ("on sums over time, after the loop", parts.totals),
            ("taken into the loop, added up over time", self.body.added_up),
        ):
            lines += [f"  {title}:"] * bool(steps_there)
            lines += [f"    {line}" for line in by_line(steps_there)]
        return lines

    def moved(self, steps: int) -> int:
        """Bytes that go through memory inside of it, beside its inputs and outputs."""
        return steps * self.loop.moved

    def run(self, arrays: Sequence[Any], steps: int) -> tuple[Any, ...]:
        """All outputs, from the arrays of all inputs."""
        parts = self.parts
        known = dict(zip((*self.carry, *self.xs, *self.consts), arrays, strict=True))
        moving = set(self.xs).difference(self.segments.carry if self.segments else ())
        for step in self.before:
            known.update(zip(step.outputs, _evaluated(step, known), strict=True))
        for step in self.ahead:
            known.update(zip(step.outputs, _over_time(step.op.over_time, step, known, moving), strict=True))
            moving.update(step.outputs)
        loop = self.loop
        space: Space = HOST
        if IN_USE and any(space_of(array) is DEVICE for array in arrays):
            known = {value: DEVICE.taken(array, f"{self.who}: an operand") for value, array in known.items()}
            loop, space = self.loop_in(DEVICE), DEVICE
        last, sequences, totals, stored = loop.run(known, moving, steps)
        known.update(sequences)
        moving.update(sequences)
        for step in parts.behind:
            known.update(zip(step.outputs, _over_time(step.op.over_time, step, known, moving), strict=True))
            moving.update(step.outputs)
        on_sums = [step for step in parts.totals if step.op.additive or step.op.proportional]
        added_up = [x for step in on_sums for x in values_in(step) if step.op.additive or x not in parts.fixed]
        for value in (*parts.summed, *parts.sums, *added_up):
            if value not in totals and value in known:
                totals[value] = space.sum(known[value]) if value in moving else space.times(known[value], steps)
        for step in parts.totals:
            if step.op.additive:
                totals.update(zip(step.outputs, _evaluated(step, totals), strict=True))
            elif step.op.proportional:
                held = {x: known[x] for x in values_in(step) if x in parts.fixed}
                totals.update(zip(step.outputs, _evaluated(step, totals | held), strict=True))
            else:
                totals.update(zip(step.outputs, _over_time(step.op.summed, step, known, moving), strict=True))
        ys = [known[y] if y in moving else np.broadcast_to(known[y], (steps, *y.shape)) for y in parts.ys]
        sums = [space.cast(totals[value], value.dtype) for value in parts.sums]
        return (*last, *ys, *sums, *stored)


def _united(parts: Sequence[Sequence[Step]]) -> list[Step]:
    """The steps of all, each once."""
    found = {id(step): step for part in parts for step in part}
    return list(found.values())


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
