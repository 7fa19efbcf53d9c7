"""The schedule of a loop over time: what runs before it, in it and after it, decided before any text is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snncell.compiler.ir.loop import Loop
from snncell.compiler.passes.hoist import Hoisted, hoist
from snncell.tape.tracing import Step, Value


@dataclass(frozen=True, eq=False)
class RecomputeSchedule:
    """The forward that a reverse runs again, `interval` steps at a time.

    Attributes:
        interval: steps from one checkpoint to the next.
        carry: the states, which the reverse takes as sequences.
        parts: the forward, taken apart.
    """

    interval: int
    carry: list[Value]
    parts: Hoisted


@dataclass(frozen=True, eq=False)
class LoopSchedule:
    """A loop, as a backend takes it.

    Attributes:
        who: what runs it.
        backwards: whether the last step is taken first.
        carry, xs, consts: the inputs of a step.
        parts: the body, taken apart: its steps in the loop, and what is there for them.
        invariant: steps that depend on constants alone, those of a forward that runs again too.
        prologue: steps on whole sequences before the loop, in the same way.
        summed: what the loop itself adds up; sums of what is there before it need no loop.
        interval: checkpoint the states before each `interval`-th step, as further outputs.
        recompute: for a reverse, the forward between checkpoints.
    """

    who: str
    backwards: bool
    carry: list[Value]
    xs: list[Value]
    consts: list[Value]
    parts: Hoisted
    invariant: list[Step]
    prologue: list[Step]
    summed: list[Value]
    interval: int | None
    recompute: RecomputeSchedule | None

    @property
    def moving(self) -> set[Value]:
        """The sequences that the loop may take a row of."""
        return {*self.xs, *(value for step in self.prologue for value in step.outputs)}

    @property
    def steps(self) -> list[Step]:
        """All steps in the loop, those that run again too."""
        return [*self.parts.loop, *(self.recompute.parts.loop if self.recompute else [])]


def schedule(loop: Loop) -> LoopSchedule:
    """Take a loop apart."""
    body, recompute = loop.body, None
    if loop.recompute is not None:
        forward = loop.recompute.forward
        recompute = RecomputeSchedule(loop.recompute.interval, [x._data for x in forward.carry], hoist(forward))
    states = recompute.carry if recompute else []
    parts = hoist(body, states)
    recomputed = [recompute.parts] if recompute else []  # what is computed again has things to be done before it too
    carry = [x._data for x in body.carry]
    computed = {*carry, *states}.union(*(step.outputs for step in parts.loop))
    return LoopSchedule(
        who=loop.who,
        backwards=body.backwards,
        carry=carry,
        xs=[x._data for x in body.xs],
        consts=[x._data for x in body.consts],
        parts=parts,
        invariant=_united([part.invariant for part in (parts, *recomputed)]),
        prologue=_united([part.prologue for part in (parts, *recomputed)]),
        summed=[value for value in parts.summed if value in computed],
        interval=loop.interval,
        recompute=recompute,
    )


def _united(parts: Sequence[Sequence[Step]]) -> list[Step]:
    """The steps of all, each once."""
    found = {id(step): step for part in parts for step in part}
    return list(found.values())
