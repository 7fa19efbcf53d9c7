"""Preparations that several products of one matrix share: of spikes, the places of the events.

Spikes go into the product of the next layer, and in the reverse, transposed, into the gradient of its weights.
"""

from __future__ import annotations

from snncell.compiler.ir.program import Program
from snncell.tape.tracing import Step, Value


def share_event_lists(program: Program) -> Program:
    """The Program in which matrices that several products take first are prepared for them once."""
    turned = {
        step.outputs[0]: step.inputs[0]
        for step in program.steps
        if step.op.turns is not None and step.op.turns(step.attrs)
    }
    users: dict[Value, list[Step]] = {}
    for step in program.steps:
        if step.op.shares is not None and step.op.shares[2](*step.inputs):
            first = step.inputs[0]
            users.setdefault(turned.get(first, first), []).append(step)
    shared = {id(step): matrix for matrix, found in users.items() if len(found) > 1 for step in found}
    prepared: dict[Value, tuple[Value, ...]] = {}
    steps: list[Step] = []
    for step in program.steps:
        matrix = shared.get(id(step))
        if matrix is None:
            steps.append(step)
            continue
        assert step.op.shares is not None  # they were chosen by it
        prepare, product, _ = step.op.shares
        if matrix not in prepared:
            attrs = {"dtype": matrix.dtype}
            before = Step(prepare, (matrix,), attrs, step.line)
            before.outputs = tuple(Value(matrix.trace, *spec) for spec in prepare.abstract((matrix,), attrs))
            prepared[matrix] = before.outputs
            steps.append(before)
        inputs = (matrix, *prepared[matrix], step.inputs[1])
        after = Step(product, inputs, {"turned": step.inputs[0] is not matrix}, step.line)
        after.outputs = step.outputs
        steps.append(after)
    return program._replace(steps=steps)
