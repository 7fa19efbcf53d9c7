"""Spikes leave a loop as bytes where all that takes them looks for events.

A neuron's spike is a comparison that has been cast to a float. Products that find the events of their operand need no
floats to find them in: the loop gives the comparison's result, a quarter of the bytes to write and to read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snncell.compiler.ir.formula import Cast
from snncell.compiler.ir.loop import LoopOperation, with_body
from snncell.compiler.ir.product import EventOperation
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.passes.canonicalise import program_of
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Step, Value


def spikes_as_bool(program: Program) -> Program:
    """The Program whose loops give bytes where they can."""
    if not any(isinstance(step.op, EventOperation) for step in program.steps):
        return program
    users = users_of(program)
    as_bool: dict[Value, Value] = {}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step.op, LoopOperation):
            steps.append(_with_bools(step, users, as_bool))
        elif step.inputs and step.inputs[0] in as_bool:
            first = as_bool[step.inputs[0]]
            new = Step(step.op, (first, *step.inputs[1:]), step.attrs, step.line)
            new.outputs = step.outputs
            if step.op.view:
                as_bool[step.outputs[0]] = Value(first.trace, step.outputs[0].shape, first.dtype)
                new.outputs = (as_bool[step.outputs[0]],)
            steps.append(new)
        else:
            steps.append(step)
    return program._replace(steps=steps)


def _with_bools(step: Step, users: dict[Value, list[Step | None]], as_bool: dict[Value, Value]) -> Step:
    """A loop with bytes for those of its results that nothing needs as floats."""
    assert isinstance(step.op, LoopOperation)  # the caller's choice
    body = step.op.loop.body
    ys, outputs, first = list(body.ys), list(step.outputs), len(body.after)
    inside = program_of(body)
    made = {inner.outputs[0]: inner for inner in inside.steps}
    for n, value in enumerate(inside.outputs[first : first + len(ys)]):
        cast, out = made.get(value), step.outputs[first + n]
        if cast is None or not isinstance(cast.op, Cast) or not _all_look_for_events(out, users):
            continue
        if inside.outputs.count(value) > 1:
            continue  # it goes out as floats in any case: as a state, or as another result
        (truth,) = cast.inputs
        if truth.dtype.kind == "b":
            ys[n] = wrap(truth)
            outputs[first + n] = as_bool[out] = Value(out.trace, out.shape, np.dtype(bool))
    return step if outputs == list(step.outputs) else with_body(step, replace(body, ys=ys), step.inputs, outputs)


def _all_look_for_events(value: Value, users: dict[Value, list[Step | None]]) -> bool:
    """True if a Value goes, by views of it, into nothing but what takes bytes."""
    found = users.get(value, [])
    return bool(found) and all(
        user is not None
        and user.inputs[0] is value
        and (isinstance(user.op, EventOperation) or (user.op.view and _all_look_for_events(user.outputs[0], users)))
        for user in found
    )
