"""The loop of a fused group on the CPU: elementwise instructions and reductions as the source of one function.

The statements come from the formulas (`expressions.py`), the loop around them from a template (`kernels/cpu/loops.py`):

    no reduction                    map_loop
    the last axis is kept           reduce_columns    sums over rows, whole rows at a time
    one result, and much work       reduce_all, reduce_slices: units leave parts, which are joined in order
    channels of many images         reduce_slices: an image after the other, as they lie in memory
    otherwise                       reduce_rows       a sum along memory for each result
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import (
    Statements,
    cost_of,
    file_head,
    kind_of,
    reduction_of,
)
from snncell.compiler.backends.index_space import Operand, operands_of
from snncell.compiler.ir.formula import Elementwise, Reduction, Sum
from snncell.compiler.schedule.fuse import FusionGroup
from snncell.kernels.cpu import loops
from snncell.kernels.policy import PARALLEL_SIZE
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

LEAST_PART = 64  # elements of which there is a part, where there is one for each result and slice


class KernelSource(NamedTuple):
    """A loop, ready to be built.

    Attributes:
        name: its operations, for the file's name.
        source: the whole file.
        sizes: the lengths of the joined axes: the first arguments.
        arrays: the inputs, in the order of the arguments.
        scalars: Python numbers and the NumPy dtype each is passed as.
        outputs: the arrays that the kernel fills.
        signature: the argument types for `build`.
        units: of its work, which threads can share.
        shared: whether it pays that threads share them.
        parts: the dtypes of the arrays in which units leave parts of reductions.
        left: the number of parts that a unit leaves in each.
    """

    name: str
    source: str
    sizes: tuple[int, ...]
    arrays: list[Operand]
    scalars: list[tuple[Any, Any]]
    outputs: list[Operand]
    signature: tuple[Any, ...]
    units: int
    shared: bool
    parts: list[Any]
    left: int


def emit(group: FusionGroup, uniform: set[Value]) -> KernelSource:
    """The kernel of a fused group; `uniform` are constants whose elements are all the same."""
    assert group.shape is not None  # only loops are emitted
    reductions = [instruction for instruction in group.instructions if isinstance(instruction.op, Reduction)]
    reduced = {instruction.outputs[0] for instruction in reductions}
    space, arrays, outputs = operands_of(group, uniform)
    sizes, kept = space.sizes, space.kept
    # Decided by the sizes, not by the number of threads: the order in which a sum is taken depends on it.
    shared = math.prod(group.shape) * cost_of(group.instructions) >= PARALLEL_SIZE

    body = _Body(len(sizes))
    for number, operand in enumerate(arrays):
        body.load_from(operand, number)
    for instruction in group.instructions:
        if isinstance(instruction.op, Elementwise):
            body.compute(instruction)
    position = {operand.value: number for number, operand in enumerate(outputs)}
    for number, operand in enumerate(outputs):
        if operand.value not in reduced:
            body.lines.append(f"{body.at(f'o{number}', sizes)} = {body.names[operand.value]}")
    sums = [
        body.reduced(
            instruction,
            body.at(f"o{position[instruction.outputs[0]]}", outputs[position[instruction.outputs[0]]].shape, kept),
        )
        for instruction in reductions
        if instruction.outputs[0] in position
    ]

    name = "loop_" + "_".join(dict.fromkeys(instruction.op.name for instruction in group.instructions))[:48]
    arguments = [f"n{i}" for i in range(len(sizes))] + [f"a{i}" for i in range(len(arrays))]
    arguments += [f"s{i}" for i in range(len(body.scalars))] + [f"o{i}" for i in range(len(outputs))]
    lines, units, left = _loop(kept, sizes, body.lines, sums, shared)
    terms = [instruction.inputs[0] for instruction in reductions if isinstance(instruction.op, Sum)]
    parts = [dtypes.BY_NUMPY[np.dtype(r.far)] for r in sums] if left else []
    arguments += [f"parts{i}" for i in range(len(parts))]
    source = f"{file_head(group.instructions, summed=terms)}\n\n{loops.function(name, arguments, lines)}"
    signature = (
        *[dtypes.int64 for _ in sizes],
        *[(kind_of(o.value), len(sizes), False) for o in arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(kind_of(o.value), len(sizes), True) for o in outputs],
        *[(kind, 1, True) for kind in parts],
    )
    return KernelSource(name, source, sizes, arrays, body.scalars, outputs, signature, units, shared, parts, left)


def _loop(
    kept: tuple[bool, ...], sizes: tuple[int, ...], body: list[str], sums: list[loops.Reduced], shared: bool
) -> tuple[list[str], int, int]:
    """The lines of the template that fits, the number of its units, and of the parts that each leaves to be joined."""
    keep = [axis for axis, is_kept in enumerate(kept) if is_kept]
    along = [axis for axis, is_kept in enumerate(kept) if not is_kept]
    if not along:
        return loops.map_loop(len(kept), body), sizes[0], 0
    if kept[-1]:
        units = sizes[keep[0]] if len(keep) > 1 else -(-sizes[-1] // loops.COLUMNS)
        return loops.reduce_columns(keep, along, body, sums), units, 0
    if shared and len(along) == 1 and not keep:
        return loops.reduce_all(body, sums), -(-sizes[0] // loops.BLOCK), 1
    inner = math.prod(sizes[axis] for axis in along[1:])
    if shared and not kept[0] and len(along) > 1 and (not keep or inner >= LEAST_PART):
        return loops.reduce_slices(keep, along, body, sums), sizes[0], math.prod(sizes[axis] for axis in keep)
    return loops.reduce_rows(keep, along, body, sums), sizes[keep[0]] if keep else 1, 0


class _Body(Statements):
    """The statements of a loop over the axes of its arrays."""

    def __init__(self, ndim: int) -> None:
        super().__init__()
        self.ndim = ndim

    def at(self, array: str, shape: Sequence[int], present: Sequence[bool] | None = None) -> str:
        """The element of `array` that belongs to the loop's position."""
        full = [True] * self.ndim if present is None else present
        return f"{array}[{', '.join(f'p{axis}' if full[axis] else '0' for axis in range(len(shape)))}]"

    def load_from(self, operand: Operand, number: int) -> None:
        """Give an operand a name that holds its element."""
        present = [length != 1 for length in operand.shape]
        self.load(operand.value, self.at(f"a{number}", operand.shape, present))

    def reduced(self, instruction: Instruction, target: str) -> loops.Reduced:
        (term,) = instruction.inputs
        return reduction_of(target, self.names[term], instruction)
