"""The schedule of a loop over time: what runs before it, in it and after it, decided before any text is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snncell.compiler.ir.loop import Loop
from snncell.compiler.passes.dce import leading_to
from snncell.compiler.passes.hoist import Hoisted, hoist, outside_of
from snncell.tape.tracing import Step, Value


@dataclass(frozen=True, eq=False)
class RecomputeSchedule:
    """The forward that a reverse runs again, `interval` steps at a time.

    Attributes:
        interval: steps from one checkpoint to the next.
        carry: the states, which the reverse takes as sequences.
        parts: the forward, taken apart.
        loop: its steps that the states depend on, in order.
    """

    interval: int
    carry: list[Value]
    parts: Hoisted
    loop: list[Step]


@dataclass(frozen=True, eq=False)
class LoopSchedule:
    """A loop, as a backend takes it.

    Attributes:
        who: what runs it.
        backwards: whether the last step is taken first.
        carry, xs, consts: the inputs of a step.
        parts: the body, taken apart.
        loop: the steps in the loop that its results depend on, in order.
        invariant: steps that depend on constants alone, those of a forward that runs again too.
        prologue: steps on whole sequences before the loop, in the same way.
        summed: what the loop itself adds up; sums of what is there before it need no loop.
        rows: the sequences that the loop loads a row of at each step, those of a forward that runs again too.
        fixed: what it loads that is the same at every step.
        interval: checkpoint the states before each `interval`-th step, as further outputs.
        recompute: for a reverse, the forward between checkpoints.
    """

    who: str
    backwards: bool
    carry: list[Value]
    xs: list[Value]
    consts: list[Value]
    parts: Hoisted
    loop: list[Step]
    invariant: list[Step]
    prologue: list[Step]
    summed: list[Value]
    rows: list[Value]
    fixed: list[Value]
    interval: int | None
    recompute: RecomputeSchedule | None

    @property
    def steps(self) -> list[Step]:
        """All steps in the loop, those that run again too."""
        return [*self.loop, *(self.recompute.loop if self.recompute else [])]


def schedule(loop: Loop) -> LoopSchedule:
    """Take a loop apart."""
    body, recompute = loop.body, None
    if loop.recompute is not None:
        forward = loop.recompute.forward
        own = hoist(forward)
        states, needed = [x._data for x in forward.carry], leading_to(own.loop, own.after)
        recompute = RecomputeSchedule(loop.recompute.interval, states, own, needed)
    states = recompute.carry if recompute else []
    parts = hoist(body, states)
    recomputed = [recompute.parts] if recompute else []  # what is computed again has things to be done before it too
    carry = [x._data for x in body.carry]
    computed = {*carry, *states}.union(*(step.outputs for step in parts.loop))
    summed = [value for value in parts.summed if value in computed]
    results = [*parts.sequences, *summed, *parts.after]
    steps = leading_to(parts.loop, results)
    prologue = _united([part.prologue for part in (parts, *recomputed)])
    moving = {*(x._data for x in body.xs), *(value for step in prologue for value in step.outputs)}
    again, results_again = (recompute.loop, recompute.parts.after) if recompute else ([], [])
    loads = outside_of([*steps, *again], [*results, *results_again], [*carry, *states])
    return LoopSchedule(
        who=loop.who,
        backwards=body.backwards,
        carry=carry,
        xs=[x._data for x in body.xs],
        consts=[x._data for x in body.consts],
        parts=parts,
        loop=steps,
        invariant=_united([part.invariant for part in (parts, *recomputed)]),
        prologue=prologue,
        summed=summed,
        rows=[value for value in loads if value in moving],
        fixed=[value for value in loads if value not in moving],
        interval=loop.interval,
        recompute=recompute,
    )


def _united(parts: Sequence[Sequence[Step]]) -> list[Step]:
    """The steps of all, each once."""
    found = {id(step): step for part in parts for step in part}
    return list(found.values())
