"""Clocks around the launches of a plan: a copy of the plan that notes when each launch begins and ends.

The plan itself stays as it is, so a step that is not profiled runs no code of this file. Inside of a loop over time,
there are clocks around the products of all steps before and after its kernel, or around the launches of each step.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from snncell.base.frames import Place
from snncell.compiler.explain import is_view, layer_of
from snncell.compiler.ir.program import operations_in
from snncell.compiler.runtime.launches import LoopLaunch, OperationCall, PlanEntry, Segments, bytes_moved
from snncell.compiler.runtime.loop_run import LoopRun, StepLoop
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.scan import Scan
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.space import HOST
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


@dataclass
class TimedLaunch:
    """A launch with a clock: the instructions that it runs, and the densities of events in its operands."""

    name: str
    instructions: Sequence[Instruction]
    bytes: int
    shape: tuple[int, ...]
    parent: int | None  # the number of the loop over time that it runs in
    times: int  # how often a step runs the instructions
    densities: list[float] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)  # "events", "dense"

    @property
    def place(self) -> Place:
        """The line of the first instruction of its layer."""
        layer = layer_of(self.instructions)
        return next(x.line for x in self.instructions if (x.line.layer, x.line.backward) == layer)

    @property
    def density(self) -> float | None:
        """The share of nonzero elements of an operand in which the CPU looks for events, or None."""
        return sum(self.densities) / len(self.densities) if self.densities else None

    @property
    def used(self) -> float:
        """The share of the operands' elements that its products use."""
        return self.density or 0.0 if self.paths == {"events"} else 1.0

    def operations(self, used: float) -> float:
        """The multiplications and additions, if products use this share of their first operands."""
        return self.times * operations_in(self.instructions, used)

    def look(self, density: float, events: bool) -> None:
        """Note the density of an operand, and whether only its nonzero elements are used."""
        self.densities.append(density)
        self.paths.add("events" if events else "dense")


class LaunchEvent(NamedTuple):
    """One run of the launch with this number, in seconds of `time.perf_counter`."""

    number: int
    start: float
    end: float


class TimedPlan:
    """A plan whose launches note their times in `log`, and while `looking` is true, also densities of events."""

    def __init__(self, plan: Plan) -> None:
        self.launches: list[TimedLaunch] = []
        self.log: list[LaunchEvent] = []
        self.looking = False
        self.on_host = plan.space is HOST
        self._numbers: dict[tuple[int, int], int] = {}  # of instructions that loops over time run, by their ids
        self.plan = self._copy_with_clocks(plan, None, 1)

    def wait(self) -> None:
        """Wait for the launches on the device; those on the host are complete."""
        if not self.on_host:
            runtime().synchronize()

    def time_call(self, function: Callable[..., Any], *args: Any) -> tuple[Any, float, float]:
        """Call a function. Return its result, and the times of its begin and end."""
        start = time.perf_counter()
        result = function(*args)
        self.wait()
        return result, start, time.perf_counter()

    def look(self, number: int, instruction: Instruction, arrays: Sequence[Any]) -> None:
        """Note the density of an instruction's first operand, if the CPU looks for events in it."""
        if not (self.looking and self.on_host):  # on the device all are dense
            return
        if (found := instruction.op.event_density(arrays, instruction.attrs)) is not None:
            self.launches[number].look(*found)

    def number_of(
        self, instruction: Instruction, parent: int, times: int, arrays: Sequence[Any], results: Sequence[Any]
    ) -> int:
        """The number of an instruction that a loop over time runs for all steps together."""
        key = (parent, id(instruction))
        if key not in self._numbers:
            self._numbers[key] = len(self.launches)
            moved = sum(x.nbytes for x in (*arrays, *results) if hasattr(x, "nbytes"))
            shape = tuple(results[0].shape)
            self.launches.append(TimedLaunch(instruction.op.name, [instruction], moved, shape, parent, times))
        return self._numbers[key]

    def _copy_with_clocks(self, plan: Plan, parent: int | None, times: int) -> Plan:
        """Copy a plan, which a step runs `times` times, with a clock around each launch."""
        copied = copy.copy(plan)
        copied.runs = [self._put_clock(run, parent, times) for run in plan.runs]
        copied.graph = None  # a CUDA graph has no launches that could be timed
        return copied

    def _put_clock(self, run: PlanEntry | Segments, parent: int | None, times: int) -> Any:
        if isinstance(run, PlanEntry) and is_view(run):
            return run
        entries: Sequence[PlanEntry] = run.launches if isinstance(run, Segments) else [run]
        instructions = [x for entry in entries for x in entry.group.instructions]
        op, first = instructions[0].op, entries[0]
        name = first.name if isinstance(first, LoopLaunch) else op.loop.who if isinstance(op, Scan) else op.name
        name = f"{len(entries)} loops, {name}" if len(entries) > 1 else name
        shape = first.group.shape or instructions[0].outputs[0].shape
        moved = times * sum(map(bytes_moved, entries))
        number = len(self.launches)
        self.launches.append(TimedLaunch(name, instructions, moved, shape, parent, times))
        if isinstance(run, OperationCall) and isinstance(op, Scan):
            run = self._time_scan(run, op, number)
        return _TimedRun(self, number, run)

    def _time_scan(self, run: OperationCall, scan: Scan, number: int) -> OperationCall:
        lowered, known, own = scan.lowered, dict[int, Any](), self.launches[number]

        def evaluate(*arrays: Any, steps: int) -> tuple[Any, ...]:
            loop = _TimedLoop(self, number, lowered.schedule, arrays, steps)
            if steps not in known:
                in_steps, space = lowered.has_loop, loop.space
                known[steps] = form = lowered.loop_in(space) if in_steps else lowered.plan_in(space, steps)
                if not in_steps or isinstance(form, StepLoop):  # launches of their own, with their own bytes
                    own.bytes -= own.times * scan.moved({"steps": steps})
                    times = own.times * (steps if in_steps else 1)
                    known[steps] = self._copy_loop_with_clocks(form, number, times)
            if not lowered.has_loop:
                return loop.run_at_once(known[steps])
            results = loop.run_steps(known[steps])
            loop.look_at_events()
            return results

        copied, old = copy.copy(run), run.instruction
        copied.instruction = Instruction(copy.copy(scan), old.inputs, old.attrs, old.line)
        copied.instruction.outputs = old.outputs
        copied.instruction.op.evaluate = evaluate
        return copied

    def _copy_loop_with_clocks(self, form: Any, number: int, times: int) -> Any:
        copied = copy.copy(form)
        if isinstance(form, StepLoop):
            copied.plan = copy.copy(form.plan)
            copied.plan.plan = self._copy_with_clocks(form.plan.plan, number, times)
        else:
            copied.plan = self._copy_with_clocks(form.plan, number, times)
        return copied


class _TimedRun:
    def __init__(self, timed: TimedPlan, number: int, entry: PlanEntry | Segments) -> None:
        self.timed, self.number, self.entry, self.drops = timed, number, entry, entry.drops

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        timed, entry = self.timed, self.entry
        if timed.looking and isinstance(entry, OperationCall):
            timed.look(self.number, entry.instruction, [slots[x] if is_slot else x for is_slot, x in entry.operands])
        _, start, end = timed.time_call(entry.run, slots, into)
        timed.log.append(LaunchEvent(self.number, start, end))


class _TimedLoop(LoopRun):
    """A run of a loop over time with a clock around each instruction for all steps together."""

    def __init__(self, timed: TimedPlan, number: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.timed, self.number = timed, number

    def evaluate_over_time(self, rule: Any, instruction: Instruction) -> Sequence[Any]:
        timed, times = self.timed, self.steps * self.timed.launches[self.number].times
        arrays = [self.known[x] if isinstance(x, Value) else x for x in instruction.inputs]
        results, start, end = timed.time_call(super().evaluate_over_time, rule, instruction)
        number = timed.number_of(instruction, self.number, times, arrays, results)
        timed.log.append(LaunchEvent(number, start, end))
        timed.look(number, instruction, arrays)
        return list(results)

    def look_at_events(self) -> None:
        """Note the densities of the products that the kernel computes from events itself."""
        for instruction in (*self.schedule.products, *self.schedule.product_sums) if self.timed.looking else ():
            used = self.known.get(instruction.outputs[0])
            if used is not None and not hasattr(used, "ndim"):  # events instead of an array
                x = self.known[instruction.inputs[0]]
                self.timed.launches[self.number].look(np.count_nonzero(x) / max(x.size, 1), True)
