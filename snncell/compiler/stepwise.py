"""A loop over time whose body is more than elementwise: step by step, each step the launches of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from snncell.compiler.plan import Plan
from snncell.compiler.program import Program, drop_dead
from snncell.compiler.split import Split, values_in
from snncell.kernels.arrays import empty
from snncell.tape.tracing import Value

if TYPE_CHECKING:
    from snncell.compiler.lower import Lowered, Segments


class StepLoop:
    """The plan of a step, replayed.

    Args:
        owner: the body's values and parts.
        every: store the states before each `every`-th step.
        segments: compute the states between the stored ones again.
    """

    def __init__(self, owner: Lowered, every: int | None, segments: Segments | None) -> None:
        parts = owner.parts
        self.every = segments.every if segments else every
        self.storing = every is not None
        self.segments = segments
        self.backwards = owner.body.backwards
        self.carry, self.sequences = owner.carry, parts.sequences
        computed = set(owner.carry).union(*(step.outputs for step in parts.loop))
        self.summed = [value for value in parts.summed if value in computed]
        self.plan = _StepPlan(parts, self.carry, [*parts.after, *self.sequences, *self.summed])
        self.again = _StepPlan(segments.forward, segments.carry, segments.forward.after) if segments else None

    def explained(self, steps: int) -> str:
        """How it runs."""
        return f"{steps} steps one by one, {len(self.plan.plan.launches)} launches each"

    def run(
        self, known: dict[Value, Any], moving: set[Value], steps: int
    ) -> tuple[list[Any], dict[Value, Any], dict[Value, Any], list[Any]]:
        """The states after the last step, the sequences, the sums, and the stored states."""
        states = [known[value] for value in self.carry]
        ys = {value: empty((steps, *value.shape), value.dtype) for value in self.sequences}
        totals = {value: np.zeros(value.shape, value.dtype) for value in self.summed}
        stored: list[Any] = []
        if self.storing:
            count = -(-steps // (self.every or 1))
            stored = [empty((count, *value.shape), value.dtype) for value in self.carry]
        kept: list[list[Any]] = []
        for turn in range(steps):
            place = steps - 1 - turn if self.backwards else turn
            if self.storing and turn % (self.every or 1) == 0:
                for rows, state in zip(stored, states, strict=True):
                    rows[turn // (self.every or 1)] = state
            now: dict[Value, Any] = {}
            if self.segments:
                if not kept:
                    kept = self._segment(known, moving, steps, steps - 1 - turn)
                now = dict(zip(self.segments.carry, kept.pop(), strict=True))
            results = self.plan.take(states, known, moving, place, now)
            states = results[: len(states)]
            for rows, result in zip(ys.values(), results[len(states) :], strict=False):
                rows[place] = result
            for value, result in zip(totals, results[len(states) + len(ys) :], strict=True):
                totals[value] += result
        return states, ys, totals, stored

    def _segment(self, known: dict[Value, Any], moving: set[Value], steps: int, last: int) -> list[list[Any]]:
        """The states before each step of the segment that ends with step `last` of the forward."""
        assert self.segments is not None and self.again is not None  # the caller's choice
        first = last - last % self.segments.every
        kept = [[known[value][first // self.segments.every] for value in self.segments.carry]]
        for turn in range(first, last):
            place = turn if self.backwards else steps - 1 - turn
            kept.append(self.again.take(kept[-1], known, moving, place, {}))
        return kept


class _StepPlan:
    """The plan of one step of a loop."""

    def __init__(self, parts: Split, carry: Sequence[Value], results: list[Value]) -> None:
        inside = set(carry).union(*(step.outputs for step in parts.loop))
        taken = [*(x for step in parts.loop for x in values_in(step)), *results]
        program = Program([], {}, [], parts.loop, results, {})
        program = drop_dead(program)
        self.outside = list(dict.fromkeys(x for x in taken if x not in inside))
        self.plan = Plan(program._replace(inputs=[*carry, *self.outside]))

    def take(
        self,
        states: Sequence[Any],
        known: dict[Value, Any],
        moving: set[Value],
        place: int,
        now: dict[Value, Any],
    ) -> list[Any]:
        """One step from `states`, at `place` of the sequences; `now` are the states of another loop at this step."""
        taken = []
        for value in self.outside:
            found = now.get(value)
            if found is None:
                found = known[value][place] if value in moving else known[value]
            taken.append(found)
        return self.plan.carry_out([*states, *taken])
