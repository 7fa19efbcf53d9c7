"""Plan: a Program becomes a list of launches over numbered slots, which is replayed as often as one likes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from snncell.compiler.emit import Operand, as_scalar, emit
from snncell.compiler.fuse import Group, fuse
from snncell.compiler.program import Program, last_uses
from snncell.kernels.arrays import empty
from snncell.kernels.build import build
from snncell.kernels.threads import BLAS
from snncell.tape.state import EFFECTS, quietly
from snncell.tape.tracing import Step, Value


class Slots(dict[Value, int]):
    """The place of each Value in the list that a replay works on."""

    def __missing__(self, value: Value) -> int:
        self[value] = len(self)
        return self[value]


class Plan:
    """The launches of one Program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        slots = Slots()
        constants = {value: np.asarray(array) for array, value in program.constants}
        uniform = {value: array for value, array in constants.items() if _is_uniform(array)}
        groups = fuse(program)
        self.inputs = [slots[value] for value in program.inputs]
        self.parameters = [(parameter, slots[value]) for parameter, value in program.parameters.items()]
        self.launches: list[Launch | Call] = []
        for group, dead in zip(groups, last_uses(groups, program.results()), strict=True):
            drops = [slots[value] for value in dead]
            kind = Call if group.shape is None else Launch
            self.launches.append(kind(group, uniform, slots, drops))
        self.outputs = [slots[value] for value in program.outputs]
        self.written = [(parameter, slots[value]) for parameter, value in program.written.items()]
        self.multiplies = any(isinstance(launch, Call) and launch.step.op.into for launch in self.launches)
        places = {slots[value]: array for value, array in constants.items()}
        self._template = [places.get(slot) for slot in range(len(slots))]

    def replay(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the launches on the arguments' arrays, write the Parameters, and give the outputs' arrays."""
        if self.written:
            with EFFECTS:
                return self._replay(arrays)
        return self._replay(arrays)

    def _replay(self, arrays: Sequence[Any]) -> list[Any]:
        with BLAS if self.multiplies else nullcontext():  # once, not at each product
            results: list[Any] = quietly(self.carry_out, arrays)
        return results

    def carry_out(self, arrays: Sequence[Any], into: dict[int, Any] | None = None) -> list[Any]:
        """`replay` where floating-point warnings are off already.

        Args:
            arrays: the inputs.
            into: arrays for some of the `targets`, which are filled instead of new ones.
        """
        slots = self._template.copy()
        for slot, array in zip(self.inputs, arrays, strict=True):
            slots[slot] = array
        for parameter, slot in self.parameters:
            slots[slot] = parameter._data
        for launch in self.launches:
            launch.run(slots, into or {})
        results = [slots[slot] for slot in self.outputs]
        for parameter, slot in self.written:
            parameter._data = _of_its_own(slots[slot])
        return results

    def moved(self) -> int:
        """Bytes that one run reads and writes, as far as they go through memory."""
        return sum(moved(launch) for launch in self.launches)

    def targets(self) -> dict[Value, int]:
        """The Values whose arrays can be given, with their slots."""
        return {value: slot for launch in self.launches for value, slot in launch.targets().items()}


class Launch:
    """One call of a generated loop."""

    def __init__(self, group: Group, uniform: dict[Value, Any], slots: Slots, drops: list[int]) -> None:
        kernel = emit(group, set(uniform))
        self.group = group
        self.parallel = kernel.parallel
        self.name = kernel.name
        self.sizes = kernel.sizes
        self.call = build(kernel.name, kernel.source, kernel.signature, kernel.parallel)
        self.arrays = [_Argument(operand, slots, uniform) for operand in kernel.arrays]
        self.scalars = [as_scalar(number, dtype) for number, dtype in kernel.scalars]
        self.outputs = [(slots[o.value], o.shape, o.value.dtype, _reshaped(o)) for o in kernel.outputs]
        self.drops = drops

    def targets(self) -> dict[Value, int]:
        """The Values it computes, with their slots."""
        return {value: output[0] for value, output in zip(self.group.writes, self.outputs, strict=True)}

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        """Fill the output slots."""
        if into:
            fresh = [into[s].reshape(n) if s in into else empty(n, dtype) for s, n, dtype, _ in self.outputs]
        else:
            fresh = [empty(shape, dtype) for _, shape, dtype, _ in self.outputs]
        self.call(*self.sizes, *[argument.take(slots) for argument in self.arrays], *self.scalars, *fresh)
        for (slot, _, _, shape), array in zip(self.outputs, fresh, strict=True):
            slots[slot] = array if shape is None else array.reshape(shape)
        for slot in self.drops:
            slots[slot] = None


class Call:
    """One call of an operation that is no loop: a matrix product, a view, a random draw."""

    def __init__(self, group: Group, uniform: dict[Value, Any], slots: Slots, drops: list[int]) -> None:
        self.group = group
        (self.step,) = group.steps
        step: Step = self.step
        self.given = [(True, slots[x]) if isinstance(x, Value) else (False, x) for x in step.inputs]
        self.outputs = [slots[value] for value in step.outputs]
        self.drops = drops

    def targets(self) -> dict[Value, int]:
        """The Value it computes, with its slot, if the operation can be told where to put it."""
        return {} if self.step.op.into is None else {self.step.outputs[0]: self.outputs[0]}

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        """Fill the output slots."""
        arrays = [slots[x] if is_slot else x for is_slot, x in self.given]
        if into and self.outputs[0] in into and self.step.op.into is not None:
            out = into[self.outputs[0]]
            self.step.op.into(out, *arrays)
        else:
            out = self.step.op.run_here(arrays, arrays, self.step.attrs)
        for slot, array in zip(self.outputs, out if self.step.op.multiple else (out,), strict=True):
            slots[slot] = array
        for slot in self.drops:
            slots[slot] = None


def _of_its_own(array: Any) -> Any:
    """An array that a Parameter may keep: not a view that keeps more alive than itself."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return array if array.flags.c_contiguous and owner.nbytes <= array.nbytes else np.array(array, order="C")


def moved(launch: Launch | Call) -> int:
    """Bytes that a launch reads and writes, as far as they go through memory."""
    inside: int = 0
    if isinstance(launch, Call):
        if launch.step.op.view:
            return 0
        inside = launch.step.op.moved(launch.step.attrs)
    written = launch.step.outputs if isinstance(launch, Call) else launch.group.writes
    values = dict.fromkeys((*launch.group.reads, *written))
    total: int = inside + sum(math.prod(value.shape) * value.dtype.itemsize for value in values)
    return total


class _Argument:
    """An array on its way into a loop: contiguous, and in the shape of the joined axes."""

    def __init__(self, operand: Operand, slots: Slots, uniform: dict[Value, Any]) -> None:
        self.slot = slots[operand.value]
        self.shape = _reshaped(operand, into=True)
        constant = uniform.get(operand.value)
        self.fixed = None if constant is None else np.array(constant.flat[0]).reshape(operand.shape)

    def take(self, slots: list[Any]) -> Any:
        if self.fixed is not None:
            return self.fixed
        array = slots[self.slot]
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return array if self.shape is None else array.reshape(self.shape)


def _reshaped(operand: Operand, into: bool = False) -> tuple[int, ...] | None:
    """The shape to change to on the way in or out of a kernel, or None where it is the same."""
    if operand.shape == operand.value.shape:
        return None
    return operand.shape if into else operand.value.shape


def _is_uniform(array: Any) -> bool:
    """Whether a constant is one element, repeated: seen by its strides, or by its size."""
    return bool(array.size == 1 or (array.size > 1 and not any(array.strides)))
