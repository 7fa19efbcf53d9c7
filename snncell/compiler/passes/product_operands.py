"""Operands of products: one memory layout and one event list for all products that share a matrix.

A copy into another layout is slow, so an operand of several products is copied only once. Spikes are an operand of two
products: that of the next layer, and in the backward pass that of its weight gradient. Each would search the whole
matrix for events (nonzero elements). A search in booleans or bytes reads a quarter of the memory of one in floats.
"""

from __future__ import annotations

from collections import Counter

from snncell.compiler.ir.operations import CONTIGUOUS, Reshape
from snncell.compiler.ir.product import (
    EVENTS,
    PRODUCT_OF_EVENTS,
    Contraction,
    Dot,
    casts_bytes,
)
from snncell.compiler.ir.program import Program, makers_in, rename_inputs, results_of, users_of, with_inputs
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


def make_contiguous(program: Program) -> Program:
    """Copy an operand of several products once, if it may not be contiguous.

        before: x = transpose(z); y = dot(x, w); ...; dw = contraction(x, dy)
        after:  x = transpose(z); c = contiguous(x); y = dot(c, w); ...; dw = contraction(c, dy)

    A product copies an operand of more than two axes that has been transposed or broadcast, for example batch-first
    data. Inputs of the Program may be non-contiguous too; if they are contiguous, the instruction costs nothing.
    """
    makers = makers_in(program)
    uses = Counter(x for instruction in program.instructions for x in _operands_as_rows(instruction))
    scattered = set()
    for x, count in uses.items():
        maker = makers.get(x)
        if count > 1 and (maker is None or (maker.op.view and not isinstance(maker.op, Reshape))):
            scattered.add(x)
    if not scattered:
        return program
    contiguous: dict[Value, Value] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        rows = [x for x in _operands_as_rows(instruction) if x in scattered]
        for x in dict.fromkeys(x for x in rows if x not in contiguous):
            contiguous[x] = Value(x.trace, x.shape, x.dtype)
            instructions.append(with_inputs(instruction, [x], [contiguous[x]], CONTIGUOUS, {}))
        instructions.append(rename_inputs(instruction, contiguous) if rows else instruction)
    return program._replace(instructions=instructions)


def _operands_as_rows(instruction: Instruction) -> list[Value]:
    """The operands of a product that have more than two axes and are used as matrices."""
    if not isinstance(instruction.op, (Dot, Contraction)):
        return []
    operands = instruction.inputs[:1] if isinstance(instruction.op, Dot) else instruction.inputs
    return [x for x in operands if len(x.shape) > 2]


# --- Event lists ------------------------------------------------------------------------------------------------------


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once, if it is the first operand of several products.

        before: y = dot(s, w); ...; dw = contraction(s, dy)
        after:  e = events(s); y = product_of_events(s, e, w); ...; dw = product_of_events(s, e, dy, turned)

    A matrix with a single product has nothing to share, and BLAS multiplies matrices that are too small for
    event-driven products (`kernels/products/matmul.py`). However, a matrix cast from bytes gets a list even for a
    single product. With it, `narrow_to_bytes` finds the events in the bytes and removes the cast.
    """
    limits: dict[Value, list[float]] = {}
    for instruction in program.instructions:
        if (below := _limit_of(instruction)) > 0:
            limits.setdefault(instruction.inputs[0], []).append(below)
    if not limits:
        return program
    users = users_of(program)
    casts = results_of(*filter(casts_bytes, program.instructions))
    cast = {value for value in casts if len(users.get(value, [])) == 1}
    events: dict[Value, tuple[Value, ...]] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        below = _limit_of(instruction)
        if not below or (len(limits[instruction.inputs[0]]) == 1 and instruction.inputs[0] not in cast):
            instructions.append(instruction)
            continue
        x, y = instruction.inputs
        if x not in events:  # before the first product that uses them
            attrs = {"dtype": x.dtype, "below": max(limits[x])}
            events[x] = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            instructions.append(with_inputs(instruction, [x], events[x], EVENTS, attrs))
        by_columns = isinstance(instruction.op, Contraction)  # x.T @ y, from the same list
        turned = isinstance(instruction.op, Contraction) and instruction.op.turned
        attrs = {"by_columns": by_columns, "turned": turned, "below": below}
        instructions.append(with_inputs(instruction, [x, *events[x], y], op=PRODUCT_OF_EVENTS, attrs=attrs))
    return program._replace(instructions=instructions)


def _limit_of(instruction: Instruction) -> float:
    return instruction.op.limit(*instruction.inputs) if isinstance(instruction.op, (Dot, Contraction)) else 0.0
