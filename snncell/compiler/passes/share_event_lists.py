"""Products that take the same matrix of spikes share one list of its events (its elements that are not zero).

    before: y = dot(s, w); ...; dw = contraction(s, dy)
    after:  e = events(s); y = product_of_events(s, e, w); ...; dw = product_of_events(s, e, dy, turned)

Spikes go into the product of the next layer, and in the reverse into the gradient of its weights, and each of them
would look through the whole matrix. For a matrix with a single product there is nothing to share, and matrices that
are too small for events to pay (`kernels/event_costs.py`) are left to BLAS. But of a matrix that was cast from bytes
for a single product the events are listed too: `spikes_as_bool` finds them in the bytes then, and nothing is cast.
"""

from __future__ import annotations

from snncell.compiler.ir.product import EVENTS, PRODUCT_OF_EVENTS, Contraction, Dot, casts_bytes
from snncell.compiler.ir.program import Program, users_of
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once, where several products have it as their first operand."""
    limits: dict[Value, list[float]] = {}
    for instruction in program.instructions:
        if (below := _limit_of(instruction)) > 0:
            limits.setdefault(instruction.inputs[0], []).append(below)
    if not limits:
        return program
    users = users_of(program)
    cast = {
        instruction.outputs[0]
        for instruction in program.instructions
        if casts_bytes(instruction) and len(users.get(instruction.outputs[0], [])) == 1
    }
    events: dict[Value, tuple[Value, ...]] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        below = _limit_of(instruction)
        if not below or (len(limits[instruction.inputs[0]]) == 1 and instruction.inputs[0] not in cast):
            instructions.append(instruction)
            continue
        x, y = instruction.inputs
        if x not in events:  # in front of the first product that takes them
            attrs = {"dtype": x.dtype, "below": max(limits[x])}
            search = Instruction(EVENTS, (x,), attrs, instruction.line)
            search.outputs = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            events[x] = search.outputs
            instructions.append(search)
        by_columns = isinstance(instruction.op, Contraction)  # x.T @ y, from the same list
        turned = isinstance(instruction.op, Contraction) and instruction.op.turned
        attrs = {"by_columns": by_columns, "turned": turned, "below": below}
        product = Instruction(PRODUCT_OF_EVENTS, (x, *events[x], y), attrs, instruction.line)
        product.outputs = instruction.outputs
        instructions.append(product)
    return program._replace(instructions=instructions)


def _limit_of(instruction: Instruction) -> float:
    """The density below which a step multiplies events; 0 if it does not."""
    return instruction.op.limit(*instruction.inputs) if isinstance(instruction.op, (Dot, Contraction)) else 0.0
