"""An elementwise operation or a reduction of device arrays outside of a Program: the launch of a group of one
instruction.

Launches are kept by the operation, the shapes and dtypes. Python numbers are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import as_scalar
from snncell.compiler.ir.formula import Elementwise, Reduction, loop_shape_of_any
from snncell.compiler.runtime.launches import DeviceLaunch, Slots
from snncell.compiler.schedule.fuse import FusionGroup
from snncell.errors import DeviceError
from snncell.kernels.space import DEVICE
from snncell.tape.state import TRACING_LOCK
from snncell.tape.tracing import Instruction, Trace
from snncell.tape.value import Value

_BOOL = np.dtype(bool)
MOST = 4096  # launches that are kept
_launches: dict[Any, tuple[DeviceLaunch, list[tuple[int, Any]]]] = {}


def on_device(op: Elementwise | Reduction, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run one operation on device arrays, and give its result."""
    specs = [(x.shape, x.dtype) if hasattr(x, "dtype") else type(x) for x in arrays]
    key = (op, *specs, *sorted(attrs.items()))
    entry = _launches.get(key)
    if entry is None:
        with TRACING_LOCK:
            entry = _launches[key] = _launch(op, arrays, attrs)
            while len(_launches) > MOST:
                del _launches[next(iter(_launches))]
    launch, numbers = entry
    scalars = [dtype.type(as_scalar(arrays[place], dtype)) for place, dtype in numbers]
    slots = [x for x in arrays if hasattr(x, "dtype")] + [None]
    launch.run(slots, {}, scalars)
    return slots[-1]


def _launch(
    op: Elementwise | Reduction, arrays: Sequence[Any], attrs: dict[str, Any]
) -> tuple[DeviceLaunch, list[tuple[int, Any]]]:
    """The launch, and the places of the numbers among the inputs, each with the dtype that the launch takes it in."""
    trace = Trace()
    inputs = tuple(Value(trace, x.shape, x.dtype) if hasattr(x, "dtype") else x for x in arrays)
    instruction = Instruction(op, inputs, attrs, op.name)
    instruction.outputs = tuple(Value(trace, shape, dtype) for shape, dtype in op.abstract(inputs, attrs))
    shape = loop_shape_of_any(instruction)
    if shape is None:
        kinds = ", ".join(sorted({str(x.dtype) for x in (*inputs, *instruction.outputs) if isinstance(x, Value)}))
        raise DeviceError(f'{op.name}: has no rule for {kinds} on the GPU. Convert it, or move it: x.to("cpu").')
    group = FusionGroup(shape)
    group.instructions.append(instruction)
    group.axes = attrs["axis"] if isinstance(op, Reduction) else None
    group.settle({instruction.outputs[0]})
    slots = Slots()
    operands = [slots[x] for x in inputs if isinstance(x, Value)]
    # One Value for each operand, even for the same array twice: `on_device` fills the slots in the order of operands.
    assert operands == list(range(len(operands)))
    launch = DeviceLaunch(group, {}, slots, [])
    launch.build()
    dtype = dtypes.compute_dtype(op.operand_dtype(inputs)) if isinstance(op, Elementwise) else None
    condition = getattr(op, "rule", "") == "select"
    numbers = [
        (place, _BOOL if condition and place == 0 else dtype)
        for place, x in enumerate(inputs)
        if not isinstance(x, Value)
    ]
    return launch, numbers


def _run(self: Elementwise | Reduction, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    operands = DEVICE.operands(arrays, self.name)
    complexes = any(x.dtype.kind == "c" for x in operands if hasattr(x, "dtype"))
    if complexes and isinstance(self, Elementwise) and self.of_complex:
        return on_device(self.of_complex, operands, attrs)
    return on_device(self, operands, attrs)


Elementwise.on_device = _run  # type: ignore[method-assign]
Reduction.on_device = _run  # type: ignore[method-assign]
