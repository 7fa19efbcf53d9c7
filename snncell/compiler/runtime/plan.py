"""Plan: the list of launches over numbered slots that a Program is lowered to, replayed at each call.

    y = sum(exp(x) * 2)   ->   loop_exp_mul_sum: slot 1 from slot 0

A replay copies the list of slots, fills in arguments and Parameters, and runs the launches. Each launch clears the
slots of Values that die with it, so that their memory can be reused. A Program has one plan per space of its arrays,
made on first use.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from snncell.compiler.fuse import fuse, side_by_side
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import Program, bytes_of, last_uses
from snncell.compiler.passes import optimise
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
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.parameter import Parameter, commit
from snncell.tape.state import EFFECTS_LOCK, TRACING_LOCK, Value, current_space, in_turn, quietly


class Plan:
    """The launches of one Program for arrays in `space`. If `recorded`, a plan on the device becomes a CUDA graph where
    this is faster. Plans that a loop runs are not recorded.
    """

    def __init__(self, program: Program, space: Space = HOST, recorded: bool = False) -> None:
        self.program = program
        self.space = space
        slots = Slots()
        # Broadcast constants stay broadcast, so that loops read only one element of them.
        constants = {value: space.constant(array) for array, value in program.constants}
        # All elements are equal if there is only one, or if all strides are 0.
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
        self.graph = self.record() if recorded else None
        self._built = False

    def build(self) -> None:
        """Compile or load its kernels, once."""
        if self._built:
            return
        expect(self.kernels())  # for progress reports, which begin with the number of kernels
        for launch in self.launches:
            launch.build()
        if self.joins:
            prepare_batches()
        self._built = True

    def kernels(self) -> Iterator[tuple[Any, ...]]:
        """The kernels of a run that are known in advance, as arguments for `build`."""
        for launch in self.launches:
            if isinstance(launch, OperationCall):
                yield from launch.instruction.op.kernels(launch.instruction.attrs, self.space)
            else:
                yield from launch.kernels
        if self.joins:
            yield from batch_sources()

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the launches on the arguments' arrays, write the Parameters, and return the outputs' arrays."""
        if self.graph is not None:
            with EFFECTS_LOCK:
                results: list[Any] = quietly(self.graph.replay, arrays)
            return results
        if self.written:
            in_turn()
            with EFFECTS_LOCK:  # no other thread may use the Parameters between its reads and its writes
                return self._replay(arrays)
        return self._replay(arrays)

    def replay_unshared(self, arrays: Sequence[Any]) -> list[Any]:
        """`replay` for a caller that writes to the results: copy results that share memory with other arrays."""
        results = self.replay(arrays)
        parameters = [parameter._data for parameter in (*self.program.parameters, *self.program.written)]
        used = {owner_of(x) for x in (*arrays, *parameters, *self._template) if x is not None}
        for number, result in enumerate(results):
            if owner_of(result) in used or not (result.flags.c_contiguous and result.flags.writeable):
                results[number] = result.copy()
            used.add(owner_of(results[number]))
        return results

    def _replay(self, arrays: Sequence[Any]) -> list[Any]:
        if not self.multiplies:
            results: list[Any] = quietly(self.carry_out, arrays)
        else:  # limit BLAS to one thread around the whole replay, because doing so at each product is slower
            results = BLAS.run(quietly, self.carry_out, arrays)
        return results

    def carry_out(self, arrays: Sequence[Any], into: dict[int, Any] | None = None) -> list[Any]:
        """`replay` with floating-point warnings already off; `into` maps some slots of `targets` to arrays to fill."""
        values = [parameter.value_in(self.space) for parameter, _ in self.parameters]
        results, written = self.compute(arrays, values, into)
        if self.written:
            commit([parameter.put(value) for (parameter, _), value in zip(self.written, written, strict=True)])
        return results

    def compute(
        self, arrays: Sequence[Any], values: Sequence[Any], into: dict[int, Any] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the new values of Parameters, from arguments and the values of Parameters."""
        slots = self._template.copy()
        for slot, array in zip(self.inputs, arrays, strict=True):
            slots[slot] = array
        for (_, slot), array in zip(self.parameters, values, strict=True):
            slots[slot] = array
        if IN_USE:
            self._move_elements(slots)
        into = into or {}
        for run in self.runs:
            run.run(slots, into)
            for slot in run.drops:
                slots[slot] = None
        return [slots[slot] for slot in self.outputs], [slots[slot] for _, slot in self.written]

    def record(self) -> RecordedPlan | None:
        """Record the plan as a CUDA graph, if that is faster."""
        if self.space is HOST or any(instruction.op.outside for instruction in self.program.instructions):
            return None
        launches = sum(launch.launches for launch in self.launches)
        # A Parameter that the plan writes stays in the graph's memory, so it is not copied in.
        read = [value for p, value in self.program.parameters.items() if p not in self.program.written]
        copied = sum(map(bytes_of, (*self.program.inputs, *read)))
        if not is_graph_faster(launches, copied):
            return None
        written = [parameter for parameter, _ in self.written]
        return RecordedPlan(self.compute, [parameter for parameter, _ in self.parameters], written)

    def _move_elements(self, slots: list[Any]) -> None:
        """Move single elements from the other space, for example an optimiser's counter."""
        for number, slot in enumerate(self.inputs):
            slots[slot] = self.space.require(slots[slot], f"argument {number + 1}")
        for parameter, slot in self.parameters:
            slots[slot] = self.space.require(slots[slot], f"Parameter {parameter.name!r}")

    def moved(self) -> int:
        """The bytes that one run reads from and writes to memory."""
        return sum(bytes_moved(launch) for launch in self.launches)

    def targets(self) -> dict[Value, int]:
        """The Values whose arrays the caller can provide, with their slots."""
        return {value: slot for launch in self.launches for value, slot in launch.targets().items()}


def owner_of(array: np.ndarray[Any, Any]) -> int:
    """The id of the array that owns the memory of a view."""
    while type(array.base) is np.ndarray:
        array = array.base
    return id(array)


class Plans:
    """The plans of one Program, one per space, made on first use."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plans: dict[Space, Plan] = {}

    def of(self, arrays: Sequence[Any]) -> Plan:
        """The plan for these arguments: on the GPU, if an argument, a constant or a Parameter is there."""
        space: Space = HOST
        if IN_USE or current_space() is DEVICE:
            constants = [array for array, _ in self.program.constants if space_of(array) is DEVICE]
            parameters = [p._data for p in self.program.parameters if not p.follows]
            written = [p._data for p in self.program.written if not p.follows]
            every = [*arrays, *parameters, *written, *constants]
            whole = [x for x in every if x.size > 1] or every  # without single elements, such as counters
            space = DEVICE if any(space_of(x) is DEVICE for x in whole) else HOST if whole else current_space()
        plan = self._plans.get(space)
        return self._new_plan(space) if plan is None else plan

    def _new_plan(self, space: Space) -> Plan:
        with TRACING_LOCK:
            if space not in self._plans:  # another thread may have made it while this one waited for the lock
                plan = Plan(optimise(self.program, space), space, recorded=True)
                plan.build()
                self._plans[space] = plan
            return self._plans[space]


# --- CUDA graphs ------------------------------------------------------------------------------------------------------


LAUNCH = 3e-6  # the approximate time of a launch on the host, in seconds
COPIED = 5e11  # the approximate bandwidth of a copy on the card, in bytes per second


class GraphMemory:
    """Memory of a graph that is lent to the holders of a result; their arrays refer to it instead of a `Memory`."""

    __slots__ = ("__weakref__", "block", "own")

    def __init__(self, block: Any) -> None:
        self.block = block
        self.own: Memory | None = None

    def detach(self) -> None:
        """Replace the graph's memory by a copy, for all arrays that refer to this object."""
        if self.own is not None:
            return
        self.own = Memory(self.block.size)
        runtime().copy(self.block, 0, self.own.block, 0, self.block.size)
        self.block = self.own.block


class RecordedPlan:
    """A plan as one CUDA graph: a single request from the host for all its launches. The first run launches as any plan
    does; the second one records, and plays the recording. A graph uses the same memory each time, so arguments and
    Parameters are copied into this memory, except for Parameters that the graph writes, which stay there. Returned
    results and Parameters are arrays in this memory, too. Before the graph overwrites it, each of these arrays that is
    still in use gets a copy. So a user's arrays never change, and copies are made only if they are needed.
    """

    def __init__(self, run: Callable[..., Any], read: Sequence[Parameter], written: Sequence[Parameter]) -> None:
        self._run = run  # (arguments, arrays of Parameters) -> (results, arrays of the written Parameters)
        self.read, self.written = list(read), list(written)
        self.runs = 0
        self.reason: str | None = None  # the reason why there is no graph
        self._graph: Any = None
        self._inputs: list[DeviceArray] = []  # the graph's arrays of the arguments
        self._values: dict[Parameter, DeviceArray] = {}  # the graph's arrays of the Parameters
        self._results: list[DeviceArray] = []  # the graph's arrays of the results
        self._lent: list[GraphMemory] = []

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the plan: write the Parameters, and return the results."""
        self.runs += 1
        if self.reason is None and self._graph is None and self.runs > 1:
            try:
                self._record(arrays)
            except DeviceError as error:
                self._drop(str(error))
        if self._graph is not None and runtime().shared:
            # Another thread may be about to read lent memory. Without a graph, arrays never change.
            self._drop("several threads use the device")
        if self._graph is None:
            results, values = self._run(arrays, [p.value_in(DEVICE) for p in self.read])
            commit([parameter.put(value) for parameter, value in zip(self.written, values, strict=True)])
            return list(results)
        return self._play(arrays)

    def _drop(self, reason: str) -> None:
        self.reason, self._graph = reason, None
        self._inputs, self._values, self._results = [], {}, []

    def _record(self, arrays: Sequence[Any]) -> None:
        """Run once to fill a new arena (a pool of device memory), then record a second run, which must not allocate."""
        device = runtime()
        arguments = [_argument(n, x) for n, x in enumerate(arrays)]
        read = [_value(p) for p in self.read]
        arena = device.new_arena()
        with device.allocating_from(arena):
            self._inputs = [x.copy() for x in arguments]
            self._values = {p: x.copy() for p, x in zip(self.read, read, strict=True)}
            self._values |= {p: _value(p).copy() for p in self.written if p not in self._values}
            # The objects from which the graph's arrays were copied; the same object is not copied again.
            self._copied_from: list[Any] = list(arguments)
            self._copied_value: dict[Parameter, Any] = dict.fromkeys(self._values)

            def run() -> None:
                self._results, values = self._run(self._inputs, [self._values[p] for p in self.read])
                # A result, or the new value of another Parameter, may be the old value of a Parameter, as in
                # a, b = b, a. These are copied before the old values are overwritten.
                overwritten = {id(self._values[parameter].memory) for parameter in self.written}
                self._results, values = (
                    [x.copy() if id(x.memory) in overwritten else DEVICE.contiguous(x) for x in outputs]
                    for outputs in (self._results, values)
                )
                for parameter, value in zip(self.written, values, strict=True):
                    self._values[parameter][...] = value

            # This run overwrites the Parameters' arrays. They are filled again before the graph is played, because
            # `_copied_value` has None for each.
            run()
            self._results = []
            self._graph = device.record(run)
        self._copied_from = [None] * len(arguments)

    def _play(self, arrays: Sequence[Any]) -> list[Any]:
        # Check the arguments before anything is changed. Arrays of Tensors never change, so compare only identities.
        arguments = {n: _argument(n, x) for n, x in enumerate(arrays) if x is not self._copied_from[n]}
        values = {p: _value(p) for p in self._values if p._data is not self._copied_value[p]}
        self._detach_holders()
        for n, array in arguments.items():
            self._inputs[n][...] = array
            self._copied_from[n] = arrays[n]
        for parameter, value in values.items():
            self._values[parameter][...] = value
            self._copied_value[parameter] = parameter._data
        # Assign the graph's arrays to the Parameters before the graph is played, while they have the old values. Then
        # the graph changes all values at once, and an interruption cannot leave only some of them new.
        lent: dict[int, GraphMemory] = {}
        results = [self._hand_out(x, lent) for x in self._results]
        handed_out = {parameter: self._hand_out(self._values[parameter], lent) for parameter in self.written}
        self._lent = [*self._lent, *lent.values()]
        commit([parameter.write_of(array) for parameter, array in handed_out.items()])
        self._copied_value.update(handed_out)
        runtime().play(self._graph)
        self._lent = list(lent.values())
        return results

    def _hand_out(self, array: DeviceArray, lent: dict[int, GraphMemory]) -> DeviceArray:
        memory = lent.setdefault(id(array.memory), GraphMemory(array.memory.block))
        return DeviceArray(memory, array.offset, array.shape, array.strides, array.dtype)

    def _detach_holders(self) -> None:
        """Give the holders of lent memory a copy before the graph overwrites it; reference counts find the holders."""
        unchanged = {id(p._data): p for p in self.written if p._data is self._copied_value[p]}
        # For each memory, the number of its arrays that only Parameters and the graph hold.
        private: Counter[int] = Counter()
        for parameter in unchanged.values():
            # 3 references: the Parameter's, `_copied_value`'s, and the argument of this call.
            if sys.getrefcount(parameter._data) <= 3:
                private[id(parameter._data.memory)] += 1
        for lent in list(self._lent):
            # 4 references: the list, its copy, the loop, and this call; plus one per private array.
            if sys.getrefcount(lent) > 4 + private[id(lent)]:
                lent.detach()


def _argument(n: int, array: Any) -> Any:
    return DEVICE.require(array, f"argument {n + 1}")


def _value(parameter: Parameter) -> Any:
    return DEVICE.require(parameter.value_in(DEVICE), f"Parameter {parameter.name!r}")


def is_graph_faster(launches: int, copied: int) -> bool:
    """True if one request for all launches saves more time than the copies of the inputs take."""
    return launches * LAUNCH > 2 * copied / COPIED + LAUNCH
