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
from snncell.tape.tracing import Instruction, Value


def obstacle(schedule: LoopSchedule) -> str | None:
    """Say why a loop is no single kernel on the CPU; None if it is one."""
    parts, recompute, steps = schedule.parts, schedule.recompute, schedule.steps
    for step in steps:
        if not is_elementwise(step) and not isinstance(step.op, Dot):
            return f"{step.op.name} is no elementwise operation: {step.line}"
    computed = {value for step in schedule.loop for value in step.outputs}
    outgoing = [*schedule.carry, *parts.after, *parts.sequences, *(x for x in parts.summed if x in computed)]
    outgoing += [*recompute.carry, *recompute.parts.after] if recompute else []
    products = [step for step in steps if not is_elementwise(step)]
    if products:
        return _obstacle_to_rows(schedule, steps, products, outgoing)
    try:
        space = space_of([*outgoing, *(x for step in steps for x in (*values_in(step), *step.outputs))])
    except ValueError:
        return "its states have different shapes"
    # Steps inside may broadcast; but each result and each state is an array with all elements of the kernel.
    small = next((value for value in outgoing if value.shape != space), None)
    return None if small is None else _not_one_shape(small, space, parts.loop)


def _not_one_shape(value: Value, shape: Shape, steps: Sequence[Instruction]) -> str:
    origin = next((step.line for step in steps if value in step.outputs), "a state")
    return f"not all has one shape: {value.shape} and {shape}, {origin}"


def _obstacle_to_rows(
    schedule: LoopSchedule, steps: Sequence[Instruction], products: Sequence[Instruction], outgoing: Sequence[Value]
) -> str | None:
    """Say why a body with products is no kernel over blocks of rows."""
    inside = {*outgoing, *(value for step in steps for value in step.outputs)}
    varying = inside.union(schedule.rows)
    rows = products[0].outputs[0].shape[:1]
    for step in products:
        x, y = step.inputs
        # The block has rows of x at hand, and the whole of y only if that is the same at every step.
        if y in varying or x not in inside or len(x.shape) != 2 or len(y.shape) != 2:
            return f"{step.op.name} of anything but the rows of a state and a matrix of weights: {step.line}"
    for value in inside:
        if value.shape[:1] != rows:
            return _not_one_shape(value, products[0].outputs[0].shape, steps)
    for step in steps:
        small = next((x for x in values_in(step) if x in inside and x.shape != step.outputs[0].shape), None)
        if small is not None and step not in products:
            return f"{small.shape} is broadcast to {step.outputs[0].shape}: {step.line}"
    return None
