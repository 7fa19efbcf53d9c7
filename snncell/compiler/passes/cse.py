"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from snncell.compiler.ir.program import Program, with_inputs
from snncell.tape.tracing import Step, Value


def eliminate_common_subexpressions(program: Program) -> Program:
    """Replace steps that do the same to the same inputs by the first of them."""
    replaced: dict[Value, Value] = {}
    seen: dict[Any, Step] = {}
    steps = []
    for step in program.steps:
        inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in step.inputs)
        # Numbers by their text: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they do not do the same.
        operands = tuple(x if isinstance(x, Value) else repr(x) for x in inputs)
        key = (step.op, operands, repr(sorted(step.attrs.items())))
        first = seen.setdefault(key, step)
        if first is step:
            steps.append(step if inputs == step.inputs else with_inputs(step, inputs))
        else:
            replaced.update(zip(step.outputs, first.outputs, strict=True))
    return program._replace(
        steps=steps,
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )
