"""One run of a loop over time: instructions before it, the loop itself, instructions and totals after it.

The instructions before and after the loop run on whole sequences, by the rules of their operations (`over_time`,
`summed`), or on totals (`additive`, `proportional`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.backends.event_products import events_by_column, gather_rows
from snncell.compiler.ir.program import values_in
from snncell.compiler.runtime.stepwise import StepLoop
from snncell.compiler.runtime.together import AllStepsPlan, over_all_steps
from snncell.compiler.schedule.loop import LoopSchedule, is_on_sums
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

LoopKernel = CPULoop | CUDALoop | StepLoop


class LoopRun:
    """The arrays of one run.

    Args:
        schedule: of the loop.
        arrays: of all inputs: states, sequences, constants.
        steps: their number.

    Attributes:
        space: where the arrays are.
        known: the array of each Value: a sequence, or an array that is the same at every step.
        varying: the Values that are sequences.
        totals: the sums over time of Values.
    """

    def __init__(self, schedule: LoopSchedule, arrays: Sequence[Any], steps: int) -> None:
        self.schedule, self.steps = schedule, steps
        self.space: Space = HOST
        if IN_USE and any(space_of(array) is DEVICE for array in arrays):
            self.space = DEVICE
        self.known: dict[Value, Any] = dict(zip((*schedule.carry, *schedule.xs, *schedule.consts), arrays, strict=True))
        # Checkpoints come in among the sequences, but have a row for each segment, not for each step.
        self.varying = set(schedule.xs).difference(schedule.recompute.carry if schedule.recompute else ())
        self.totals: dict[Value, Any] = {}
        for instruction in schedule.invariant:
            self.known.update(zip(instruction.outputs, _evaluate(instruction, self.known), strict=True))

    def run_at_once(self, plan: AllStepsPlan) -> tuple[Any, ...]:
        """The outputs of a loop without states, from a plan of all steps."""
        sequences, self.totals = plan.run(self.known)
        self._add_sequences(sequences)
        return tuple(self._results())

    def run_steps(self, loop: LoopKernel) -> tuple[Any, ...]:
        """The outputs of a loop: last states, sequences, sums and checkpoints."""
        schedule = self.schedule
        self._run_over_time(schedule.prologue)
        for instruction in schedule.products:
            rows = gather_rows(instruction, self.known) if gathers(loop, instruction) else None
            if rows is None:
                self._run_over_time([instruction])
            else:
                self._add_sequences({instruction.outputs[0]: rows})
        for instruction in schedule.terms:
            events = events_by_column(instruction, self.known, self.steps) if adds_up(loop, instruction) else None
            if events is not None:
                self.known[instruction.outputs[0]] = events
        known = self.known
        if self.space is DEVICE:
            known = {value: DEVICE.taken(array, f"{schedule.who}: an operand") for value, array in known.items()}
        self.known = known
        last, sequences, self.totals, stored = loop.run(known, self.varying, self.steps)
        self._add_sequences(sequences)
        self._run_over_time(schedule.parts.epilogue)
        return (*last, *self._results(), *stored)

    def _add_sequences(self, sequences: dict[Value, Any]) -> None:
        self.known.update(sequences)
        self.varying.update(sequences)

    def _run_over_time(self, instructions: Sequence[Instruction]) -> None:
        """Run instructions on whole sequences."""
        for instruction in instructions:
            results = self._evaluate_over_time(instruction.op.over_time, instruction)
            self._add_sequences(dict(zip(instruction.outputs, results, strict=True)))

    def _evaluate_over_time(self, rule: Any, instruction: Instruction) -> Sequence[Any]:
        """The results by one of the operation's rules for whole sequences."""
        arrays = [self.known[x] if isinstance(x, Value) else x for x in instruction.inputs]
        return over_all_steps(rule, instruction, arrays, [x in self.varying for x in instruction.inputs])

    def _results(self) -> list[Any]:
        """The sequences and the sums."""
        parts = self.schedule.parts
        if parts.sums or parts.reductions:
            self._reduce()
        ys = [
            self.known[y] if y in self.varying else np.broadcast_to(self.known[y], (self.steps, *y.shape))
            for y in parts.ys
        ]
        return [*ys, *(self.space.cast(self.totals[value], value.dtype) for value in parts.sums)]

    def _reduce(self) -> None:
        """Complete the totals that the loop has not added up itself, and run the instructions on totals."""
        parts, space, totals = self.schedule.parts, self.space, self.totals
        operands = [
            x
            for instruction in parts.reductions
            if is_on_sums(instruction)
            for x in values_in(instruction)
            if instruction.op.additive or x not in parts.fixed
        ]
        for value in (*parts.summed, *parts.sums, *operands):
            if value not in totals and value in self.known:
                array = self.known[value]
                totals[value] = space.sum(array) if value in self.varying else space.times(array, self.steps)
        for instruction in parts.reductions:
            if instruction.outputs[0] in totals:
                continue  # the loop has added it up
            if instruction.op.additive:
                results = _evaluate(instruction, totals)
            elif instruction.op.proportional:
                constants = {x: self.known[x] for x in values_in(instruction) if x in parts.fixed}
                results = _evaluate(instruction, totals | constants)
            else:
                results = self._evaluate_over_time(instruction.op.summed, instruction)
            totals.update(zip(instruction.outputs, results, strict=True))


def gathers(loop: LoopKernel, instruction: Instruction) -> bool:
    """True for a product that the loop may compute itself, instead of reading its result."""
    return isinstance(loop, CPULoop) and instruction.outputs[0] in loop.gathered


def adds_up(loop: LoopKernel, instruction: Instruction) -> bool:
    """True for a product over all steps that the loop may add up itself."""
    return isinstance(loop, CPULoop) and instruction in loop.scattered


def _evaluate(instruction: Instruction, known: dict[Value, Any]) -> Sequence[Any]:
    arrays = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
    out = instruction.op.run_here(arrays, arrays, instruction.attrs)
    return out if instruction.op.multiple else (out,)
