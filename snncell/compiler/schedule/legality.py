"""Legality: why a loop is no single kernel, asked of its schedule before any text is written.

A kernel gives each thread a block of elements, and runs it through all steps: so every Value in the loop has to be
elementwise over one shape, and element n of it may depend on elements n of others only. With products the blocks are of
rows: row n may depend on rows n, and a product has to be of the rows of a Value in the loop with a constant matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.product import Dot
from snncell.compiler.ir.program import values_in
from snncell.compiler.schedule.loop import LoopSchedule
from snncell.compiler.schedule.phases import Shape, space_of
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def obstacle(schedule: LoopSchedule) -> str | None:
    """Say why a loop is no single kernel on the CPU; None if it is one."""
    parts, recompute, instructions = schedule.parts, schedule.recompute, schedule.instructions
    for instruction in instructions:
        if not is_elementwise(instruction) and not isinstance(instruction.op, Dot):
            return f"{instruction.op.name} is no elementwise operation: {instruction.line}"
    computed = {value for instruction in schedule.loop for value in instruction.outputs}
    outgoing = [*schedule.carry, *parts.after, *parts.sequences, *(x for x in parts.summed if x in computed)]
    outgoing += [*recompute.carry, *recompute.parts.after] if recompute else []
    products = [instruction for instruction in instructions if not is_elementwise(instruction)]
    if products:
        return _obstacle_to_rows(schedule, instructions, products, outgoing)
    try:
        space = space_of(
            [*outgoing, *(x for instruction in instructions for x in (*values_in(instruction), *instruction.outputs))]
        )
    except ValueError:
        return "its states have different shapes"
    # Steps inside may broadcast; but each result and each state is an array with all elements of the kernel.
    small = next((value for value in outgoing if value.shape != space), None)
    return None if small is None else _not_one_shape(small, space, parts.loop)


def _not_one_shape(value: Value, shape: Shape, instructions: Sequence[Instruction]) -> str:
    origin = next((instruction.line for instruction in instructions if value in instruction.outputs), "a state")
    return f"not all has one shape: {value.shape} and {shape}, {origin}"


def _obstacle_to_rows(
    schedule: LoopSchedule,
    instructions: Sequence[Instruction],
    products: Sequence[Instruction],
    outgoing: Sequence[Value],
) -> str | None:
    """Say why a body with products is no kernel over blocks of rows."""
    inside = {*outgoing, *(value for instruction in instructions for value in instruction.outputs)}
    varying = inside.union(schedule.rows)
    rows = products[0].outputs[0].shape[:1]
    for instruction in products:
        x, y = instruction.inputs
        # The block has rows of x at hand, and the whole of y only if that is the same at every step.
        if y in varying or x not in inside or len(x.shape) != 2 or len(y.shape) != 2:
            return (
                f"{instruction.op.name} of anything but the rows of a state and a matrix of weights: {instruction.line}"
            )
    for value in inside:
        if value.shape[:1] != rows:
            return _not_one_shape(value, products[0].outputs[0].shape, instructions)
    for instruction in instructions:
        small = next(
            (x for x in values_in(instruction) if x in inside and x.shape != instruction.outputs[0].shape), None
        )
        if small is not None and instruction not in products:
            return f"{small.shape} is broadcast to {instruction.outputs[0].shape}: {instruction.line}"
    return None
