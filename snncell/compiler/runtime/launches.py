"""Launches, the entries of a plan: generated loops, on CPU or device, and calls of other operations.

Neighbouring loops of a plan are batched into one launch, so that the cost of a call and of threads arises only once:

    loop 1 over (700, 256), loop 2 over (256,), loop 3 over (256, 20)   ->   one call with a table of three kernels

The kernels themselves do not change, so nothing is compiled for the table. Independent loops share threads if there is
enough work in all of them together. Otherwise they run one after the other on one thread.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.frames import Place
from snncell.compiler.backends.expressions import Operand, as_scalar, cost_of, kind_of
from snncell.compiler.backends.groups import GroupKernel, chunks_of, emit, emit_cuda
from snncell.compiler.fuse import FusionGroup
from snncell.compiler.ir.operations import Elementwise, FusibleOperation, Reduction, loop_shape_of_any
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import bytes_of
from snncell.errors import DeviceError
from snncell.kernels.cuda.build import THREADS, build as build_for_cuda
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.numba.build import KernelBatch, Segment, build, grain_of
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.space import DEVICE, HOST
from snncell.tape.state import TRACING_LOCK, Value
from snncell.tape.tracing import Instruction, Trace


class Slots(dict[Value, int]):
    """Assigns each Value a number, its slot in the list of a replay."""

    def __missing__(self, value: Value) -> int:
        return self.setdefault(value, len(self))


class PlanEntry:
    """An entry of a plan: a group of instructions, and the slots that the plan clears after it."""

    kernels: Sequence[tuple[Any, ...]] = ()  # kernels that are known in advance, as arguments for `build`

    def __init__(self, group: FusionGroup, drops: list[int]) -> None:
        self.group, self.drops = group, drops

    @property
    def launches(self) -> int:
        """The approximate number of kernel launches."""
        return 1

    def build(self) -> None:
        """Compile or load the kernels."""

    def targets(self) -> dict[Value, int]:
        """The Values whose arrays the caller can provide, with their slots."""
        return {}

    @abstractmethod
    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        """Fill the output slots; `into` has arrays to fill for some of them."""


class LoopLaunch(PlanEntry):
    """One launch of a generated loop, on CPU or device."""

    parallel = True
    outputs: list[Any]

    def __init__(self, group: FusionGroup, kernel: GroupKernel, drops: list[int]) -> None:
        super().__init__(group, drops)
        self.name, self.sizes = kernel.name, kernel.sizes
        self.kernels = [(kernel.name, kernel.source, kernel.signature)]
        self.call: Any = None

    def targets(self) -> dict[Value, int]:
        return {value: output[0] for value, output in zip(self.group.writes, self.outputs, strict=True)}


class Launch(LoopLaunch):
    """One launch of a generated loop on the CPU."""

    def __init__(self, group: FusionGroup, uniform: dict[Value, Any], slots: Slots, drops: list[int]) -> None:
        kernel = emit(group, set(uniform))
        super().__init__(group, kernel, drops)
        self.parallel = kernel.shared
        self.units = kernel.units
        self.grain = grain_of(kernel.units) if kernel.shared else 0
        self.parts = [((kernel.units * kernel.left,), kind.dtype) for kind in kernel.parts]
        self.arrays = [_Argument(operand, slots, uniform) for operand in kernel.arrays]
        self.scalars = [as_scalar(number, dtype) for number, dtype in kernel.scalars]
        self.outputs = [
            (slots[o.value], o.shape, kind_of(o.value).dtype, None if o.shape == o.value.shape else o.value.shape)
            for o in kernel.outputs  # the last item is the final shape, if it differs
        ]
        # The kernel computes float16 and bfloat16 in float32; these are narrowed after it.
        self.narrowed = {slots[o.value]: o.value for o in kernel.outputs if dtypes.is_storage_only(o.value.dtype)}

    def build(self) -> None:
        self.call = build(*self.kernels[0])

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        fresh = [  # not in the given arrays for storage formats, because the kernel fills float32
            into[slot].reshape(shape) if slot in into and slot not in self.narrowed else HOST.empty(shape, dtype)
            for slot, shape, dtype, _ in self.outputs
        ]
        operands = [*self.sizes, *[argument.take(slots) for argument in self.arrays], *self.scalars, *fresh]
        if self.parts:
            operands += [HOST.empty(*part) for part in self.parts]
        self.call(self.units, self.grain, *operands)
        if self.parts:  # a call with no units combines the partial results
            self.call(0, 0, *operands)
        for (slot, _, _, shape), array in zip(self.outputs, fresh, strict=True):
            slots[slot] = array if shape is None else array.reshape(shape)
        for slot, value in self.narrowed.items():  # the kernel has filled an array of the compute dtype
            out = into[slot] if slot in into else HOST.empty(value.shape, value.dtype)
            out[...] = slots[slot]
            slots[slot] = out

    def segment(self) -> Segment:
        """The kernel and its arguments for a batched launch."""
        _, _, signature = self.kernels[0]
        sizes = [(size, dtypes.int64) for size in self.sizes]
        numbers = zip(self.scalars, signature[len(self.sizes) + len(self.arrays) :], strict=False)
        shapes = [argument.merged_shape for argument in self.arrays]
        return Segment(self.call, self.units, [*sizes, *shapes, *numbers, *(shape for _, shape, _, _ in self.outputs)])

    def arrays_of(self, slots: list[Any], into: dict[int, Any]) -> list[Any]:
        """Input and output arrays for a launch without narrowing or partial results; outputs are put into slots."""
        arrays = [argument.whole(slots) for argument in self.arrays]
        for slot, merged, dtype, shape in self.outputs:
            array = slots[slot] = into[slot] if slot in into else HOST.empty(merged if shape is None else shape, dtype)
            arrays.append(array)
        return arrays


class DeviceLaunch(LoopLaunch):
    """One launch of a generated loop on the device, with further launches to combine partial sums."""

    def __init__(self, group: FusionGroup, uniform: dict[Value, Any], slots: Slots, drops: list[int]) -> None:
        kernel = emit_cuda(group, set(uniform))
        super().__init__(group, kernel, drops)
        self.arrays = [(slots[o.value], uniform.get(o.value)) for o in kernel.arrays]
        self.scalars = [dtype.type(as_scalar(number, dtype)) for number, dtype in kernel.scalars]
        self.outputs = [(slots[o.value], o.value.shape, o.value.dtype) for o in kernel.outputs]
        self.sums = kernel.sums
        # Partial sums of storage formats are float32 until the sum is complete.
        values = {n: kernel.outputs[n].value for n in kernel.sums}
        self.wide = {n: kind_of(value).dtype for n, value in values.items() if dtypes.is_storage_only(value.dtype)}
        self.count = kernel.results
        self.rounds = chunks_of(kernel.results, kernel.terms) if kernel.sums else [1]
        if len(self.rounds) > 1:
            self.kernels = [*self.kernels, (f"join_{kernel.name}", kernel.source, kernel.join)]

    @property
    def launches(self) -> int:
        return len(self.rounds)

    def build(self) -> None:
        self.call, *joins = [build_for_cuda(*kernel) for kernel in self.kernels]
        self.join = joins[0] if joins else None

    def run(self, slots: list[Any], into: dict[int, Any], scalars: list[Any] | None = None) -> None:
        fresh = [into[s] if s in into else DEVICE.empty(shape, dtype) for s, shape, dtype in self.outputs]
        # A uniform array is passed as a single element.
        arrays = [slots[s] if fixed is None else slots[s].reshape(-1)[:1] for s, fixed in self.arrays]
        arrays = [DEVICE.contiguous(array) for array in arrays]
        whole = list(fresh)
        for n, kind in self.wide.items():
            whole[n] = DEVICE.empty(fresh[n].shape, kind)
        results = list(whole)
        chunks, *later = self.rounds
        for n in self.sums if later else ():
            results[n] = DEVICE.empty((chunks * self.count,), whole[n].dtype)
        sizes = [*self.sizes, *([chunks] if self.sums else [])]
        operands, targets = [x.argument for x in arrays], [x.argument for x in results]
        launch, numbers = runtime().launch, self.scalars if scalars is None else scalars
        launch(self.call, -(-self.count * chunks // THREADS), THREADS, [*sizes, *operands, *numbers, *targets])
        parts = [results[n] for n in self.sums]
        while later:
            before, (chunks, *later) = chunks, later
            joined = [DEVICE.empty((chunks * self.count,), x.dtype) for x in parts] if later else []
            joined = joined or [whole[n] for n in self.sums]  # the last round stores the results
            operands = [x.argument for x in (*parts, *joined)]
            blocks = -(-self.count * chunks // THREADS)
            launch(self.join, blocks, THREADS, [self.count, before, chunks, *operands])
            parts = joined
        for n in self.wide:
            fresh[n][...] = DEVICE.cast(whole[n], fresh[n].dtype)
        for (slot, _, _), array in zip(self.outputs, fresh, strict=True):
            slots[slot] = array


class OperationCall(PlanEntry):
    """A call of an operation that is not a loop, such as a product, a view or a draw; its first run builds kernels."""

    def __init__(self, group: FusionGroup, uniform: dict[Value, Any], slots: Slots, drops: list[int]) -> None:
        super().__init__(group, drops)
        self.instruction: Instruction = group.instructions[0]
        self.operands = [(True, slots[x]) if isinstance(x, Value) else (False, x) for x in self.instruction.inputs]
        self.outputs = [slots[value] for value in self.instruction.outputs]

    @property
    def launches(self) -> int:
        return self.instruction.op.launches(self.instruction.attrs)

    def targets(self) -> dict[Value, int]:
        return {self.instruction.outputs[0]: self.outputs[0]} if isinstance(self.instruction.op, Product) else {}

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        arrays = [slots[x] if is_slot else x for is_slot, x in self.operands]
        if into and self.outputs[0] in into and isinstance(self.instruction.op, Product):
            out = into[self.outputs[0]]
            self.instruction.op.into(out, *arrays)
        else:
            out = self.instruction.op.run_here(arrays, arrays, self.instruction.attrs)
        for slot, array in zip(self.outputs, out if self.instruction.op.multiple else (out,), strict=True):
            slots[slot] = array


def bytes_moved(launch: PlanEntry) -> int:
    """The bytes that a launch reads from and writes to memory."""
    inside, written = 0, launch.group.writes
    if isinstance(launch, OperationCall):
        if launch.instruction.op.view:
            return 0
        inside, written = launch.instruction.op.moved(launch.instruction.attrs), list(launch.instruction.outputs)
    values = {*launch.group.reads, *written}
    return inside + sum(map(bytes_of, values))


class _Argument:
    """An operand of a loop: made contiguous, in the compute dtype and the shape of the merged axes."""

    def __init__(self, operand: Operand, slots: Slots, uniform: dict[Value, Any]) -> None:
        self.slot = slots[operand.value]
        self.shape = None if operand.shape == operand.value.shape else operand.shape  # the new shape, if it differs
        self.merged_shape = operand.shape
        constant = uniform.get(operand.value)
        self.kind = kind_of(operand.value).dtype
        one = None if constant is None else np.array(constant[(0,) * constant.ndim], self.kind)
        self.fixed = None if one is None else one.reshape(operand.shape)

    def take(self, slots: list[Any]) -> Any:
        array = self.whole(slots)
        return array if self.shape is None or self.fixed is not None else array.reshape(self.shape)

    def whole(self, slots: list[Any]) -> Any:
        """The array in its own shape, or the single element of a uniform constant."""
        if self.fixed is not None:
            return self.fixed
        array = slots[self.slot]
        array = array if array.dtype == self.kind else HOST.cast(array, self.kind)
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)


# --- Batched launches -------------------------------------------------------------------------------------------------


class Segments:
    """Two or more loops in one batched launch, in a legal order; only independent loops are `shared` by threads."""

    def __init__(self, launches: Sequence[Launch], shared: bool) -> None:
        self.launches = list(launches)
        self.units = sum(launch.units for launch in launches)
        self.grain = grain_of(self.units) if shared else 0
        self.drops = [slot for launch in launches for slot in launch.drops]
        self._batch: KernelBatch | None = None

    def run(self, slots: list[Any], into: dict[int, Any]) -> None:
        """Fill the output slots of all loops."""
        if not hasattr(self.launches[0].call, "linked"):  # kernels that run as Python have no address
            for launch in self.launches:
                launch.run(slots, into)
            return
        arrays = [array for launch in self.launches for array in launch.arrays_of(slots, into)]
        if self._batch is None:
            self._batch = KernelBatch([launch.segment() for launch in self.launches])
        self._batch(arrays, self.grain)


def join_loops(launches: Sequence[PlanEntry]) -> list[PlanEntry | Segments]:
    """The launches of a plan, with neighbouring loops batched."""
    runs: list[PlanEntry | Segments] = []
    loops: list[Launch] = []
    for launch in (*launches, None):
        # Batch only loops that run on one thread, and whose kernels alone compute their results: results in a storage
        # format are narrowed after the kernel, before another loop may read them.
        if isinstance(launch, Launch) and not (launch.parallel or launch.parts or launch.narrowed):
            loops.append(launch)
            continue
        shared = sum(map(_estimate_work, loops)) >= PARALLEL_SIZE
        for part in _independent(loops) if shared else [loops]:
            on_threads = shared and sum(map(_estimate_work, part)) >= PARALLEL_SIZE
            runs += [Segments(part, on_threads)] if len(part) > 1 else part
        loops = []
        if launch is not None:
            runs.append(launch)
    return runs


def _estimate_work(launch: Launch) -> int:
    return math.prod(launch.group.shape or ()) * cost_of(launch.group.instructions)


def _independent(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Partition a row of loops, so that no loop reads a result of another loop in its part."""
    parts: list[list[Launch]] = []
    written: set[Value] = set()
    for launch in launches:
        if not parts or not written.isdisjoint(launch.group.reads):
            parts.append([])
            written = set()
        parts[-1].append(launch)
        written.update(launch.group.writes)
    return parts


# --- Eager operations on the device -----------------------------------------------------------------------------------


def on_device(op: FusibleOperation, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run an elementwise operation or a reduction eagerly on the device."""
    specs = tuple([(x.shape, x.dtype) if hasattr(x, "dtype") else None for x in arrays])
    launch, numbers = _launch(op, specs, tuple(sorted(attrs.items())))
    scalars = [dtype.type(as_scalar(arrays[place], dtype)) for place, dtype in numbers]
    slots = [x for x in arrays if hasattr(x, "dtype")] + [None]
    launch.run(slots, {}, scalars)
    return slots[-1]


@functools.lru_cache(maxsize=4096)
def _launch(
    op: FusibleOperation, specs: tuple[Any, ...], options: tuple[tuple[str, Any], ...]
) -> tuple[DeviceLaunch, list[tuple[int, Any]]]:
    """A cached launch, and the position and dtype of each number; `specs`: shape and dtype of arrays, or None."""
    trace, attrs = Trace(), dict(options)
    inputs = tuple(1 if spec is None else Value(trace, *spec) for spec in specs)
    instruction = Instruction(op, inputs, attrs, Place(op.name))
    instruction.outputs = tuple(Value(trace, shape, dtype) for shape, dtype in op.abstract(inputs, attrs))
    shape = loop_shape_of_any(instruction)
    if shape is None:
        kinds = ", ".join(sorted({str(x.dtype) for x in (*inputs, *instruction.outputs) if isinstance(x, Value)}))
        raise DeviceError(f'{op.name}: the GPU does not support {kinds}. Convert the input, or move it: x.to("cpu").')
    group = FusionGroup(shape)
    group.instructions.append(instruction)
    group.axes = attrs["axis"] if isinstance(op, Reduction) else None
    group.settle({instruction.outputs[0]})
    slots = Slots()
    operands = [slots[x] for x in inputs if isinstance(x, Value)]
    # One Value per operand, even if an array is used twice, because `on_device` fills the slots in operand order.
    assert operands == list(range(len(operands)))
    launch = DeviceLaunch(group, {}, slots, [])
    with TRACING_LOCK:
        launch.build()
    places = [place for place, x in enumerate(inputs) if not isinstance(x, Value)]
    return launch, [(place, number.dtype) for place, number in zip(places, launch.scalars, strict=True)]


def _run_on_device(self: FusibleOperation, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    operands = DEVICE.operands(arrays, self.name)
    complexes = any(x.dtype.kind == "c" for x in operands if hasattr(x, "dtype"))
    if complexes and isinstance(self, Elementwise) and self.of_complex:
        return on_device(self.of_complex, operands, attrs)
    return on_device(self, operands, attrs)


FusibleOperation.on_device = _run_on_device  # type: ignore[method-assign]
