"""A loop over time that is not a single kernel: step by step, where each step replays the launches of a plan.

    for t in 0 .. T-1:  plan(states, x[t], constants)  ->  states, slice t of the sequences, addends of the sums

The arrays that a step fills are allocated once: results are double-buffered, and slices of sequences filled in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from snncell.compiler.ir.loop import LoopParts
from snncell.compiler.ir.program import Program, outside_of
from snncell.compiler.passes.simplify import leading_to
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.schedule import LoopBackend, LoopSchedule
from snncell.dtype import compute_dtype, far
from snncell.kernels.space import HOST, Space
from snncell.kernels.sums import NEAR
from snncell.tape.state import Value


class StepLoop(LoopBackend):
    """The plan of a step, replayed."""

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

    def run(
        self, known: dict[Value, Any], varying: set[Value], steps: int
    ) -> tuple[list[Any], dict[Value, Any], dict[Value, Any], list[Any]]:
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
        """Add the term of the step at index `place`."""
        term = self.space.widen(term)
        self.near = self.space.copy(term) if self.near is None else self.space.add(self.near, term)
        if place % NEAR == self.last:
            self._move()

    def _move(self) -> None:
        if self.near is not None:
            self.far, self.near = self.space.add(self.far, self.space.cast(self.near, self.far.dtype)), None

    def result(self) -> Any:
        """The sum."""
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
    """A running loop with its own arrays, because the same loop may run on other threads.
    Every launch has two arrays for each result, one for even and one for odd steps. So a launch can read the states
    before a step while it writes the states after the step. Slices are written directly into their sequences.
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
