"""Lowering of a loop over time: the form it takes in each space.

one kernel    all elementwise, or with products of rows and constant matrices (on the CPU)
step by step  the launches of a plan, replayed at each step
no loop       without states, the launches of a plan for all steps at once
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.loop import Loop
from snncell.compiler.runtime.loop_run import LoopKernel, LoopRun
from snncell.compiler.runtime.stepwise import StepLoop
from snncell.compiler.runtime.together import AllStepsPlan, plan_all_steps
from snncell.compiler.schedule.loop import LoopSchedule, obstacle
from snncell.kernels.space import DEVICE, HOST, Space


class Lowered:
    """The code that runs a loop, in each space that its arrays are found in.

    Args:
        loop: as data.
        schedule: its parts.

    Attributes:
        reason: why the loop is no single kernel on the CPU; None if it is one.
        has_loop: whether the steps run one after the other.
    """

    def __init__(self, loop: Loop, schedule: LoopSchedule) -> None:
        self.loop = loop
        self.schedule = schedule
        self.reason = obstacle(schedule)
        self.has_loop = bool(schedule.carry) or not all(x.op.over_time for x in schedule.parts.all_steps)
        self._loops: dict[Space, LoopKernel] = {}
        self._plans: dict[tuple[Space, int], AllStepsPlan] = {}

    def loop_in(self, space: Space) -> LoopKernel:
        """The loop that runs the steps where the arrays are."""
        if space not in self._loops:
            self._loops[space] = self._new_loop(space)
        return self._loops[space]

    def _new_loop(self, space: Space) -> LoopKernel:
        if self.reason is not None:
            return StepLoop(self.schedule, space)
        if space is HOST:
            return CPULoop(self.schedule)
        if all(is_elementwise(instruction) for instruction in self.schedule.instructions):
            return CUDALoop(self.schedule)
        return StepLoop(self.schedule, space)  # on the device products are cuBLAS's, so they end a kernel

    def plan_in(self, space: Space, steps: int) -> AllStepsPlan:
        """The plan that runs all steps at once where the arrays are, if there is no loop."""
        if (space, steps) not in self._plans:
            self._plans[space, steps] = plan_all_steps(self.schedule, steps, space)
        return self._plans[space, steps]

    def kernels(self, steps: int, space: Space) -> list[tuple[Any, ...]]:
        """The kernels to be built."""
        return self.loop_in(space).kernels(steps) if self.has_loop else list(self.plan_in(space, steps).plan.kernels())

    def launches(self, steps: int) -> int:
        """Kernels that it launches on the device."""
        if self.has_loop:
            return self.loop_in(DEVICE).launches(steps)
        return sum(launch.launches for launch in self.plan_in(DEVICE, steps).plan.launches)

    def moved(self, steps: int) -> int:
        """Bytes that go through memory inside of it, beside its inputs and outputs."""
        return steps * self.loop_in(HOST).moved if self.has_loop else self.plan_in(HOST, steps).plan.moved()

    def run(self, arrays: Sequence[Any], steps: int) -> tuple[Any, ...]:
        """All outputs, from the arrays of all inputs."""
        run = LoopRun(self.schedule, arrays, steps)
        if self.has_loop:
            return run.run_steps(self.loop_in(run.space))
        return run.run_at_once(self.plan_in(run.space, steps))
