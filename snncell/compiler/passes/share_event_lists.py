"""Products that take the same matrix of spikes share one list of its events (its elements that are not zero).

    before: y = dot(s, w); ...; dw = contraction(s, dy)
    after:  e = events(s); y = product_of_events(s, e, w); ...; dw = product_of_events(s, e, dy, turned)

Spikes go into the product of the next layer, and in the reverse into the gradient of its weights, and each of them
would look through the whole matrix. For a matrix with a single product there is nothing to share, and matrices that
are too small for events to pay (`kernels.products.may_pay`) are left to BLAS.
"""

from __future__ import annotations

from collections import Counter

from snncell.compiler.ir.product import EVENTS, PRODUCT_OF_EVENTS, Contraction, Dot
from snncell.compiler.ir.program import Program
from snncell.kernels.products import may_pay
from snncell.tape.tracing import Step, Value


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once, where several products have it as their first operand."""
    products_of = Counter(step.inputs[0] for step in program.steps if _may_look_for_events(step))
    events: dict[Value, tuple[Value, ...]] = {}
    steps: list[Step] = []
    for step in program.steps:
        if not _may_look_for_events(step) or products_of[step.inputs[0]] == 1:
            steps.append(step)
            continue
        x, y = step.inputs
        if x not in events:  # in front of the first product that takes them
            attrs = {"dtype": x.dtype}
            search = Step(EVENTS, (x,), attrs, step.line)
            search.outputs = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            events[x] = search.outputs
            steps.append(search)
        turned = isinstance(step.op, Contraction)  # x.T @ y, from the same list
        product = Step(PRODUCT_OF_EVENTS, (x, *events[x], y), {"turned": turned}, step.line)
        product.outputs = step.outputs
        steps.append(product)
    return program._replace(steps=steps)


def _may_look_for_events(step: Step) -> bool:
    return isinstance(step.op, (Dot, Contraction)) and may_pay(*step.inputs)
