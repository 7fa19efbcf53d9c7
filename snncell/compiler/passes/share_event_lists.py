"""Lists of events that several products of one matrix share.

Spikes go into the product of the next layer, and in the reverse into the gradient of its weights. Both find the
events of the same matrix: here that becomes a step of its own, which is carried out once.
"""

from __future__ import annotations

from snncell.compiler.ir.product import EVENTS, PRODUCT_OF_EVENTS, Contraction, Dot
from snncell.compiler.ir.program import Program
from snncell.kernels.products import may_pay
from snncell.tape.tracing import Step, Value


def share_event_lists(program: Program) -> Program:
    """The Program in which the events of matrices that several products take first are found once."""
    users: dict[Value, int] = {}
    for step in program.steps:
        if _may_look_for_events(step):
            users[step.inputs[0]] = users.get(step.inputs[0], 0) + 1
    events: dict[Value, tuple[Value, ...]] = {}
    steps: list[Step] = []
    for step in program.steps:
        if not _may_look_for_events(step) or users[step.inputs[0]] == 1:
            steps.append(step)
            continue
        x, y = step.inputs
        if x not in events:
            attrs = {"dtype": x.dtype}
            finding = Step(EVENTS, (x,), attrs, step.line)
            finding.outputs = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            events[x] = finding.outputs
            steps.append(finding)
        turned = isinstance(step.op, Contraction)
        product = Step(PRODUCT_OF_EVENTS, (x, *events[x], y), {"turned": turned}, step.line)
        product.outputs = step.outputs
        steps.append(product)
    return program._replace(steps=steps)


def _may_look_for_events(step: Step) -> bool:
    return isinstance(step.op, (Dot, Contraction)) and may_pay(*step.inputs)
