"""Plan: the list of launches over numbered slots that a Program becomes, replayed at each call.

    y = sum(exp(x) * 2)   ->   loop_exp_mul_sum: slot 1 from slot 0

A replay copies the list of slots, fills in arguments and Parameters, and runs the launches. Each launch empties the
slots whose Values are dead after it, so that their memory serves the next. A Program has a plan for each place that its
arrays are found in, made when it is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

# The import gives elementwise operations and reductions their rule for the device.
import snncell.compiler.runtime.eager_cuda  # noqa: F401
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import Program, last_uses
from snncell.compiler.pipeline import optimise
from snncell.compiler.runtime.graphs import RecordedPlan, graph_pays
from snncell.compiler.runtime.launches import (
    DeviceLaunch,
    Launch,
    OperationCall,
    Segments,
    Slots,
    bytes_moved,
    join_loops,
)
from snncell.compiler.schedule.fuse import fuse, side_by_side
from snncell.kernels.numba import segments
from snncell.kernels.numba.build import expect
from snncell.kernels.numba.progress import listening
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.parameter import commit
from snncell.tape.state import EFFECTS_LOCK, TRACING_LOCK, here, in_turn, quietly
from snncell.tape.value import Value


class Plan:
    """The launches of one Program, for arrays of one place.

    Args:
        program: the computation.
        space: where the arrays are.
        recorded: whether they may be recorded as a CUDA graph: not those of a step within a loop.
    """

    def __init__(self, program: Program, space: Space = HOST, recorded: bool = False) -> None:
        self.program = program
        self.space = space
        slots = Slots()
        # Constants that are one element, broadcast, stay so: loops take a single element of them.
        constants = {value: space.constant(array) for array, value in program.constants}
        uniform = {value: array for value, array in constants.items() if _is_uniform(array)}
        groups = side_by_side(fuse(program)) if space is HOST else fuse(program)
        self.inputs = [slots[value] for value in program.inputs]
        self.parameters = [(parameter, slots[value]) for parameter, value in program.parameters.items()]
        self.launches: list[Launch | DeviceLaunch | OperationCall] = []
        for group, dead in zip(groups, last_uses(groups, program.results()), strict=True):
            drops = [slots[value] for value in dead]
            kind = OperationCall if group.shape is None else Launch if space is HOST else DeviceLaunch
            self.launches.append(kind(group, uniform, slots, drops))
        self.runs = join_loops(self.launches)
        self.joins = any(isinstance(run, Segments) for run in self.runs)
        self.outputs = [slots[value] for value in program.outputs]
        self.written = [(parameter, slots[value]) for parameter, value in program.written.items()]
        self.multiplies = any(isinstance(instruction.op, Product) for instruction in program.instructions)
        arrays = {slots[value]: array for value, array in constants.items()}
        self._template = [arrays.get(slot) for slot in range(len(slots))]
        self.graph = self.recorded() if recorded else None

    def build(self) -> None:
        """Compile its loops, or load the compiled ones."""
        if listening():  # progress reports want the number of kernels first
            expect(self.kernels())
        for launch in self.launches:
            launch.build()
        if self.joins:
            segments.prepare()

    def kernels(self) -> Iterator[tuple[Any, ...]]:
        """The kernels that a run of it calls, as far as they are known in advance, as arguments for `build`."""
        for launch in self.launches:
            if isinstance(launch, OperationCall):
                yield from launch.instruction.op.kernels(launch.instruction.attrs, self.space)
            else:
                yield from launch.kernels
        if self.joins:
            yield from segments.sources()

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the launches on the arguments' arrays, write the Parameters, and give the outputs' arrays."""
        if self.graph is not None:
            with EFFECTS_LOCK:
                results: list[Any] = quietly(self.graph.replay, arrays)
            return results
        if self.written:
            in_turn()
            with EFFECTS_LOCK:  # nobody else reads the Parameters between its reads and its writes
                return self._replay(arrays)
        return self._replay(arrays)

    def _replay(self, arrays: Sequence[Any]) -> list[Any]:
        if self.multiplies:
            # BLAS is held to one thread around the whole replay, not at each product.
            results: list[Any] = BLAS.run(quietly, self.carry_out, arrays)
            return results
        results = quietly(self.carry_out, arrays)
        return results

    def carry_out(self, arrays: Sequence[Any], into: dict[int, Any] | None = None) -> list[Any]:
        """`replay` where floating-point warnings are off already.

        Args:
            arrays: the inputs.
            into: arrays for some of the `targets`, which are filled instead of new ones.
        """
        slots = self._filled(arrays, [parameter.value_in(self.space) for parameter, _ in self.parameters])
        self._launch(slots, into or {})
        results = [slots[slot] for slot in self.outputs]
        if self.written:
            commit([parameter.put(slots[slot]) for parameter, slot in self.written])
        return results

    def _filled(self, arrays: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The slots as a run begins with them: constants, arguments, and the values of Parameters."""
        slots = self._template.copy()
        for slot, array in zip(self.inputs, arrays, strict=True):
            slots[slot] = array
        for (_, slot), array in zip(self.parameters, values, strict=True):
            slots[slot] = array
        if IN_USE:
            self._take_along(slots)
        return slots

    def _launch(self, slots: list[Any], into: dict[int, Any]) -> None:
        for run in self.runs:
            run.run(slots, into)

    def computed(self, arrays: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs, and the new values of Parameters, from arguments and the values of Parameters."""
        slots = self._filled(arrays, values)
        self._launch(slots, {})
        return [slots[slot] for slot in self.outputs], [slots[slot] for _, slot in self.written]

    def recorded(self) -> RecordedPlan | None:
        """The plan as a CUDA graph, if that pays."""
        if self.space is HOST or any(instruction.op.outside for instruction in self.program.instructions):
            return None
        launches = sum(launch.launches for launch in self.launches)
        # A Parameter that it writes stays in the graph's own memory, and is not copied in.
        copied_in = [
            *self.program.inputs,
            *(v for p, v in self.program.parameters.items() if p not in self.program.written),
        ]
        copied = sum(math.prod(value.shape) * value.dtype.itemsize for value in copied_in)
        if not graph_pays(launches, copied):
            return None
        written = [parameter for parameter, _ in self.written]
        return RecordedPlan(self.computed, [parameter for parameter, _ in self.parameters], written)

    def _take_along(self, slots: list[Any]) -> None:
        """Bring single elements from the other place, as an optimiser's counter may be."""
        for number, slot in enumerate(self.inputs):
            slots[slot] = self.space.taken(slots[slot], f"argument {number + 1}")
        for parameter, slot in self.parameters:
            slots[slot] = self.space.taken(slots[slot], f"Parameter {parameter.name!r}")

    def moved(self) -> int:
        """Bytes that one run reads and writes, as far as they go through memory."""
        return sum(bytes_moved(launch) for launch in self.launches)

    def targets(self) -> dict[Value, int]:
        """The Values whose arrays can be given, with their slots."""
        return {value: slot for launch in self.launches for value, slot in launch.targets().items()}


def _is_uniform(array: Any) -> bool:
    """True if a constant is one element, repeated: seen by its strides, or by its size."""
    return bool(array.size == 1 or (array.size > 1 and not any(array.strides)))  # strides mean the same in both places


# --- a plan for each place --------------------------------------------------------------------------------------------


class Plans:
    """The plans of one Program, made when they are first asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plans: dict[Space, Plan] = {}

    def of(self, arrays: Sequence[Any]) -> Plan:
        """The plan for arguments that are these arrays: on the GPU, if one of them or a Parameter is there."""
        space: Space = HOST
        if IN_USE or here() is DEVICE:
            constants = [array for array, _ in self.program.constants if space_of(array) is DEVICE]
            parameters = [p._data for p in self.program.parameters if not p.follows]
            written = [p._data for p in self.program.written if not p.follows]
            space = self._place([*arrays, *parameters, *written, *constants])
        plan = self._plans.get(space)
        return self._new_plan(space) if plan is None else plan

    def _place(self, arrays: Sequence[Any]) -> Space:
        whole = [x for x in arrays if x.size > 1] or arrays  # single elements, as a counter, are moved to the others
        if not whole:
            return here()
        return DEVICE if any(space_of(x) is DEVICE for x in whole) else HOST

    def _new_plan(self, space: Space) -> Plan:
        with TRACING_LOCK:
            if space not in self._plans:  # another thread may have made it meanwhile
                plan = Plan(optimise(self.program, space), space, recorded=True)
                plan.build()
                self._plans[space] = plan
            return self._plans[space]
