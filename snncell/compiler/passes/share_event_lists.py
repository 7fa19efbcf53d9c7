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
from snncell.tape.tracing import Instruction, Value


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once, where several products have it as their first operand."""
    limits: dict[Value, list[float]] = {}
    for step in program.steps:
        if (below := _limit_of(step)) > 0:
            limits.setdefault(step.inputs[0], []).append(below)
    if not limits:
        return program
    users = users_of(program)
    cast = {step.outputs[0] for step in program.steps if casts_bytes(step) and len(users.get(step.outputs[0], [])) == 1}
    events: dict[Value, tuple[Value, ...]] = {}
    steps: list[Instruction] = []
    for step in program.steps:
        below = _limit_of(step)
        if not below or (len(limits[step.inputs[0]]) == 1 and step.inputs[0] not in cast):
            steps.append(step)
            continue
        x, y = step.inputs
        if x not in events:  # in front of the first product that takes them
            attrs = {"dtype": x.dtype, "below": max(limits[x])}
            search = Instruction(EVENTS, (x,), attrs, step.line)
            search.outputs = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            events[x] = search.outputs
            steps.append(search)
        by_columns = isinstance(step.op, Contraction)  # x.T @ y, from the same list
        turned = isinstance(step.op, Contraction) and step.op.turned
        attrs = {"by_columns": by_columns, "turned": turned, "below": below}
        product = Instruction(PRODUCT_OF_EVENTS, (x, *events[x], y), attrs, step.line)
        product.outputs = step.outputs
        steps.append(product)
    return program._replace(steps=steps)


def _limit_of(step: Instruction) -> float:
    """The density below which a step multiplies events; 0 if it does not."""
    return step.op.limit(*step.inputs) if isinstance(step.op, (Dot, Contraction)) else 0.0
