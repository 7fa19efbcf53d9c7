"""Plan: the list of launches over numbered slots that a Program becomes, replayed at each call.

    y = sum(exp(x) * 2)   ->   loop_exp_mul_sum: slot 1 from slot 0

A replay copies the list of slots, fills in arguments and Parameters, and runs the launches. Each launch empties the
slots whose Values are dead after it, so that their memory serves the next. A Program has a plan for each place that its
arrays are found in, made when it is first needed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from snncell.compiler.fuse import fuse, side_by_side
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import Program, last_uses
from snncell.compiler.pipeline import optimise
from snncell.compiler.runtime.launches import (
    DeviceLaunch,
    Launch,
    OperationCall,
    PlanEntry,
    Segments,
    Slots,
    bytes_moved,
    join_loops,
)
from snncell.errors import DeviceError
from snncell.kernels.cuda.arrays import DeviceArray, Memory
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.numba.build import batch_sources, expect, prepare_batches
from snncell.kernels.numba.progress import listening
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.parameter import Parameter, commit
from snncell.tape.state import EFFECTS_LOCK, TRACING_LOCK, Value, here, in_turn, quietly


class Plan:
    """The launches of one Program, for arrays that are in `space`.

    They may be `recorded` as a CUDA graph, but not those of a step within a loop.
    """

    def __init__(self, program: Program, space: Space = HOST, recorded: bool = False) -> None:
        self.program = program
        self.space = space
        slots = Slots()
        # Constants that are one element, broadcast, stay so: loops take a single element of them.
        constants = {value: space.constant(array) for array, value in program.constants}
        # Seen by the size, or by the strides, which mean the same in both places.
        uniform = {
            value: array
            for value, array in constants.items()
            if array.size == 1 or (array.size and not any(array.strides))
        }
        groups = side_by_side(fuse(program)) if space is HOST else fuse(program)
        self.inputs = [slots[value] for value in program.inputs]
        self.parameters = [(parameter, slots[value]) for parameter, value in program.parameters.items()]
        self.launches: list[PlanEntry] = []
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
            prepare_batches()

    def kernels(self) -> Iterator[tuple[Any, ...]]:
        """The kernels that a run of it calls, as far as they are known in advance, as arguments for `build`."""
        for launch in self.launches:
            if isinstance(launch, OperationCall):
                yield from launch.instruction.op.kernels(launch.instruction.attrs, self.space)
            else:
                yield from launch.kernels
        if self.joins:
            yield from batch_sources()

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
        if not self.multiplies:
            results: list[Any] = quietly(self.carry_out, arrays)
        else:  # BLAS is held to one thread around the whole replay, not at each product
            results = BLAS.run(quietly, self.carry_out, arrays)
        return results

    def carry_out(self, arrays: Sequence[Any], into: dict[int, Any] | None = None) -> list[Any]:
        """`replay` where floating-point warnings are off already.

        Arrays for some of the `targets`, `into`, are filled instead of new ones.
        """
        values = [parameter.value_in(self.space) for parameter, _ in self.parameters]
        results, written = self.computed(arrays, values, into)
        if self.written:
            commit([parameter.put(value) for (parameter, _), value in zip(self.written, written, strict=True)])
        return results

    def computed(
        self, arrays: Sequence[Any], values: Sequence[Any], into: dict[int, Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the new values of Parameters, from arguments and the values of Parameters."""
        slots = self._template.copy()
        for slot, array in zip(self.inputs, arrays, strict=True):
            slots[slot] = array
        for (_, slot), array in zip(self.parameters, values, strict=True):
            slots[slot] = array
        if IN_USE:
            self._take_along(slots)
        into = into or {}
        for run in self.runs:
            run.run(slots, into)
        return [slots[slot] for slot in self.outputs], [slots[slot] for _, slot in self.written]

    def recorded(self) -> RecordedPlan | None:
        """The plan as a CUDA graph, if that pays."""
        if self.space is HOST or any(instruction.op.outside for instruction in self.program.instructions):
            return None
        launches = sum(launch.launches for launch in self.launches)
        # A Parameter that it writes stays in the graph's own memory, and is not copied in.
        read = [value for p, value in self.program.parameters.items() if p not in self.program.written]
        copied_in = [*self.program.inputs, *read]
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
            every = [*arrays, *parameters, *written, *constants]
            whole = [x for x in every if x.size > 1] or every  # single elements, as a counter, are moved to the others
            space = DEVICE if any(space_of(x) is DEVICE for x in whole) else HOST if whole else here()
        plan = self._plans.get(space)
        return self._new_plan(space) if plan is None else plan

    def _new_plan(self, space: Space) -> Plan:
        with TRACING_LOCK:
            if space not in self._plans:  # another thread may have made it meanwhile
                plan = Plan(optimise(self.program, space), space, recorded=True)
                plan.build()
                self._plans[space] = plan
            return self._plans[space]


# --- CUDA graphs ------------------------------------------------------------------------------------------------------


LAUNCH = 3e-6  # seconds that a launch takes the host, about
COPIED = 5e11  # bytes per second that a copy on the card moves, about


class Lent:
    """Memory of a graph, lent to whoever holds a result; a stand-in for `Memory`."""

    __slots__ = ("__weakref__", "block", "own")

    def __init__(self, block: Any) -> None:
        self.block = block
        self.own: Memory | None = None

    def part(self) -> None:
        """Replace the graph's memory by a copy, for all arrays that refer to this."""
        if self.own is not None:
            return
        self.own = Memory(self.block.size)
        runtime().copy(self.block, 0, self.own.block, 0, self.block.size)
        self.block = self.own.block


class RecordedPlan:
    """A plan as one CUDA graph: the host asks once for all its launches.

    The first run launches as any plan does, the second records, and plays what it has recorded. A graph reads and
    writes the same memory each time it is played. So arguments and Parameters are copied into places of its own, unless
    they are there already: a Parameter that the graph writes stays in its place, and is not copied. Results and
    Parameters that are handed out are that memory, lent: before it is overwritten, whoever still holds it gets a copy
    of its own. So what users hold never changes, and copies are made only for those who hold on.
    """

    def __init__(self, run: Callable[..., Any], read: Sequence[Parameter], written: Sequence[Parameter]) -> None:
        self._run = run  # (arguments, arrays of Parameters) -> (results, arrays of the written Parameters)
        self.read, self.written = list(read), list(written)
        self.runs = 0
        self.reason: str | None = None  # why there is no graph
        self._graph: Any = None
        self._inputs: list[DeviceArray] = []  # the graph's own arrays: of the arguments,
        self._values: dict[Parameter, DeviceArray] = {}  # of the Parameters,
        self._results: list[DeviceArray] = []  # and of the results
        self._lent: list[Lent] = []

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the plan: write the Parameters, and give the results."""
        self.runs += 1
        if self.reason is None and self._graph is None and self.runs > 1:
            try:
                self._record(arrays)
            except DeviceError as error:
                self._drop(str(error))
        if self._graph is not None and runtime().shared:
            # Another thread may be about to read memory that is lent: without a graph, arrays never change.
            self._drop("several threads use the device")
        if self._graph is None:
            results, values = self._run(arrays, [p.value_in(DEVICE) for p in self.read])
            commit([parameter.put(value) for parameter, value in zip(self.written, values, strict=True)])
            return list(results)
        return self._play(arrays)

    def _drop(self, reason: str) -> None:
        """Launch one by one from now on."""
        self.reason, self._graph = reason, None
        self._inputs, self._values, self._results = [], {}, []

    def _record(self, arrays: Sequence[Any]) -> None:
        """Run once in an arena of its own, so that it has enough memory, and once more to be recorded."""
        device = runtime()
        arguments = [_argument(n, x) for n, x in enumerate(arrays)]
        read = [_value(p) for p in self.read]
        arena = device.new_arena()
        with device.allocating_from(arena):
            self._inputs = [x.copy() for x in arguments]
            self._values = {p: x.copy() for p, x in zip(self.read, read, strict=True)}
            self._values |= {p: _value(p).copy() for p in self.written if p not in self._values}
            # Where the present contents of the graph's arrays come from: what is the same object is not copied again.
            self._copied_from: list[Any] = list(arguments)
            self._copied_value: dict[Parameter, Any] = dict.fromkeys(self._values)

            def run() -> None:
                self._results, values = self._run(self._inputs, [self._values[p] for p in self.read])
                # A result may be the old value of a Parameter, and so may be the new value of another Parameter, as
                # in a, b = b, a: those are copied before the old values are overwritten.
                overwritten = {id(self._values[parameter].memory) for parameter in self.written}
                self._results, values = (
                    [x.copy() if id(x.memory) in overwritten else DEVICE.contiguous(x) for x in outputs]
                    for outputs in (self._results, values)
                )
                for parameter, value in zip(self.written, values, strict=True):
                    self._values[parameter][...] = value

            # This run overwrites the Parameters' arrays. They are filled again before the graph is played, for
            # `_copied_value` holds None for each.
            run()
            self._results = []
            self._graph = device.record(run)
        self._copied_from = [None] * len(arguments)

    def _play(self, arrays: Sequence[Any]) -> list[Any]:
        # Arguments that are refused are so before anything is changed. Arrays of Tensors do not change, so the same
        # object has the same elements.
        arguments = {n: _argument(n, x) for n, x in enumerate(arrays) if x is not self._copied_from[n]}
        values = {p: _value(p) for p in self._values if p._data is not self._copied_value[p]}
        self._part()
        for n, array in arguments.items():
            self._inputs[n][...] = array
            self._copied_from[n] = arrays[n]
        for parameter, value in values.items():
            self._values[parameter][...] = value
            self._copied_value[parameter] = parameter._data
        # The Parameters are given the graph's arrays before it is played, which hold the values that they have: so the
        # graph alone changes any of them, and all at once, wherever an interruption comes.
        lent: dict[int, Lent] = {}
        results = [self._hand_out(x, lent) for x in self._results]
        handed_out = {parameter: self._hand_out(self._values[parameter], lent) for parameter in self.written}
        self._lent = [*self._lent, *lent.values()]
        commit([parameter.write_of(array) for parameter, array in handed_out.items()])
        self._copied_value.update(handed_out)
        runtime().play(self._graph)
        self._lent = list(lent.values())
        return results

    def _hand_out(self, array: DeviceArray, lent: dict[int, Lent]) -> DeviceArray:
        memory = lent.setdefault(id(array.memory), Lent(array.memory.block))
        return DeviceArray(memory, array.offset, array.shape, array.strides, array.dtype)

    def _part(self) -> None:
        """Give copies to those who hold memory that the graph is about to overwrite, as reference counts tell."""
        unchanged = {id(p._data): p for p in self.written if p._data is self._copied_value[p]}
        private: dict[int, int] = {}  # for memory, the number of arrays on it that only Parameters and the graph hold
        for parameter in unchanged.values():
            # 3 references: the Parameter's, `_copied_value`'s, and the argument of this call.
            if sys.getrefcount(parameter._data) <= 3:
                key = id(parameter._data.memory)
                private[key] = private.get(key, 0) + 1
        for lent in list(self._lent):
            # 4 references: the list, its copy, the loop, and this call; and one from each private array.
            if sys.getrefcount(lent) > 4 + private.get(id(lent), 0):
                lent.part()


def _argument(n: int, array: Any) -> Any:
    return DEVICE.taken(array, f"argument {n + 1}")


def _value(parameter: Parameter) -> Any:
    return DEVICE.taken(parameter.value_in(DEVICE), f"Parameter {parameter.name!r}")


def graph_pays(launches: int, copied: int) -> bool:
    """True if one request for so many launches saves more time than copying the inputs takes."""
    return launches * LAUNCH > 2 * copied / COPIED + LAUNCH
