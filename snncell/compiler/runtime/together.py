"""Loops without states: no step waits for the step before, so all steps run at once, as a plan of whole sequences.

    each step:  y = sum(x * w, axis=0)      x (3, 4), w (4,), of T steps
    at once:    y = sum(x * w, axis=1)      x (T, 3, 4)

Elementwise operations and reductions are fused as in any plan. Other operations run by their rule `over_time`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from snncell.compiler.ir.formula import Elementwise, Reduction
from snncell.compiler.ir.program import Program, values_in
from snncell.compiler.ir.views import Reshape
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.schedule.loop import LoopSchedule, is_on_sums
from snncell.dtype import is_storage_only
from snncell.kernels.space import DEVICE, HOST, Space, space_of
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

_RESHAPE = Reshape()


def over_all_steps(
    rule: Any, instruction: Instruction, arrays: Sequence[Any], varying: Sequence[bool]
) -> Sequence[Any]:
    """The results of an instruction by one of its operation's rules for whole sequences."""
    if not instruction.op.view:  # storage formats are computed in float32; a view moves them as they are
        arrays = [HOST.widened(x) if isinstance(x, np.ndarray) else x for x in arrays]
    out = rule(arrays, varying, instruction.attrs)
    outs = out if instruction.op.multiple else (out,)
    return [
        part if space_of(part) is DEVICE else np.asarray(part, value.dtype)
        for part, value in zip(outs, instruction.outputs, strict=True)
    ]


class _OfAllSteps(Primitive):
    """The operation of an instruction on whole sequences."""

    as_stored = EVERYWHERE

    def __init__(self, instruction: Instruction, varying: Sequence[bool]) -> None:
        super().__init__(instruction.op.name, self._all, multiple=True)
        self.instruction, self.varying = instruction, varying
        self.view = instruction.op.view

    def _all(self, *arrays: Any) -> Sequence[Any]:
        return over_all_steps(self.instruction.op.over_time, self.instruction, arrays, self.varying)

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """The rule, which finds the operation's own there."""
        return self._all(*arrays)


def plan_all_steps(schedule: LoopSchedule, steps: int, space: Space) -> AllStepsPlan:
    """The plan of a loop without states, for so many steps."""
    parts = schedule.parts
    made = {value for instruction in parts.all_steps for value in instruction.outputs}
    on_sums = [instruction for instruction in parts.reductions if is_on_sums(instruction)]
    on_sequences = [instruction for instruction in parts.reductions if instruction not in on_sums]
    whole = [*parts.ys, *(x for instruction in on_sequences for x in values_in(instruction))]
    totals = [*parts.summed, *parts.sums, *(x for instruction in on_sums for x in values_in(instruction))]
    results, summed = ([x for x in dict.fromkeys(kind) if x in made] for kind in (whole, totals))
    return AllStepsPlan(parts.all_steps, set(schedule.xs), results, summed, steps, space)


class AllStepsPlan:
    """The plan of all steps.

    Args:
        instructions: those of one step of the loop, in order; each depends on a sequence, and has a rule for whole
            ones.
        sequences: the Values that are sequences before them.
        results: the Values of these instructions that are wanted.
        summed: those whose sums over all steps are.
        count: the number of steps of the loop.
        space: where the arrays are.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        sequences: Collection[Value],
        results: Sequence[Value],
        summed: Sequence[Value],
        count: int,
        space: Space,
    ) -> None:
        self.count = count
        # In a storage format a sum would be rounded before it is added to others.
        self.summed = [value for value in summed if not is_storage_only(value.dtype)]
        self.results = list(dict.fromkeys([*results, *(value for value in summed if value not in self.summed)]))
        self.whole: dict[Value, Value] = {}
        self.instructions: list[Instruction] = []
        self.inputs = list(dict.fromkeys(x for instruction in instructions for x in values_in(instruction)))
        self._lines = {value: instruction.line for instruction in instructions for value in instruction.outputs}
        self.inputs = [value for value in self.inputs if value not in self._lines]
        inputs = [self._sequence(value) if value in sequences else value for value in self.inputs]
        for instruction in instructions:
            self._add(instruction)
        outputs = [*(self.whole[value] for value in self.results), *map(self._total, self.summed)]
        self.plan = Plan(Program(inputs, {}, [], self.instructions, outputs, {}), space)
        self._built = False

    def _sequence(self, value: Value) -> Value:
        self.whole[value] = Value(value.trace, (self.count, *value.shape), value.dtype)
        return self.whole[value]

    def _add(self, instruction: Instruction) -> None:
        op, attrs = instruction.op, instruction.attrs
        varying = [isinstance(x, Value) and x in self.whole for x in instruction.inputs]
        inputs = [self.whole[x] if varies else x for x, varies in zip(instruction.inputs, varying, strict=True)]
        if isinstance(op, Elementwise):
            ndim = max(len(x.shape) for x in values_in(instruction))
            inputs = [self._aligned(x, ndim, instruction) if v else x for x, v in zip(inputs, varying, strict=True)]
        elif isinstance(op, Reduction):
            attrs = {**attrs, "axis": tuple(axis + 1 for axis in attrs["axis"])}
        else:
            op, attrs = _OfAllSteps(instruction, varying), {}
        new = Instruction(op, tuple(inputs), attrs, instruction.line)
        new.outputs = tuple(self._sequence(value) for value in instruction.outputs)
        self.instructions.append(new)

    def _aligned(self, x: Value, ndim: int, instruction: Instruction) -> Value:
        """A sequence with axes of length 1 after that of the steps: within a step shapes broadcast from the right."""
        shape = (x.shape[0], *(1,) * (ndim + 1 - len(x.shape)), *x.shape[1:])
        if shape == x.shape:
            return x
        new = Instruction(_RESHAPE, (x,), {"shape": shape}, instruction.line)
        new.outputs = (Value(x.trace, shape, x.dtype),)
        self.instructions.append(new)
        return new.outputs[0]

    def _total(self, value: Value) -> Value:
        attrs = {"axis": (0,), "keepdims": False}
        instruction = Instruction(DEVICE.arithmetic["sum"], (self.whole[value],), attrs, self._lines[value])
        instruction.outputs = (Value(value.trace, value.shape, value.dtype),)
        self.instructions.append(instruction)
        return instruction.outputs[0]

    def run(self, known: dict[Value, Any]) -> tuple[dict[Value, Any], dict[Value, Any]]:
        """The sequences and the sums that are wanted, from the arrays of the inputs."""
        if not self._built:
            self.plan.build()
            self._built = True
        arrays = self.plan.carry_out([known[value] for value in self.inputs])
        count = len(self.results)
        sequences = dict(zip(self.results, arrays[:count], strict=True))
        return sequences, dict(zip(self.summed, arrays[count:], strict=True))

    def explained(self) -> str:
        """The way it runs, in words."""
        launches = sum(launch.launches for launch in self.plan.launches)
        return f"no loop: all {self.count} steps at once, {launches} launch{'es' * (launches != 1)}"
