"""Common subexpression elimination: of equal steps the first is kept, and later ones become other names for it.

    before: a = exp(x); b = exp(x); c = mul(a, b)
    after:  a = exp(x); c = mul(a, a)

It pays because each bprop of a sweep is written by itself, and computes again what the forward or another one has
computed. A single walk in order is enough: inputs are renamed before steps are compared. Steps have no effects (random
numbers are drawn from a state that is an input, and writes to Parameters are no steps), so no step is exempt.
"""

from __future__ import annotations

from typing import Any

from snncell.compiler.ir.program import Program, with_inputs
from snncell.tape.tracing import Instruction, Value


def eliminate_common_subexpressions(program: Program) -> Program:
    """Replace steps with equal operations, inputs and attributes by the first of them."""
    replaced: dict[Value, Value] = {}
    first_of: dict[Any, Instruction] = {}
    steps = []
    for instruction in program.instructions:
        inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs)
        # Numbers by their text: 1 == 1.0 == True and 0.0 == -0.0, but a step gives other results with one or the other.
        operands = tuple(x if isinstance(x, Value) else repr(x) for x in inputs)
        key = (instruction.op, operands, repr(sorted(instruction.attrs.items())))
        first = first_of.setdefault(key, instruction)
        if first is instruction:
            steps.append(instruction if inputs == instruction.inputs else with_inputs(instruction, inputs))
        else:
            replaced.update(zip(instruction.outputs, first.outputs, strict=True))
    return program._replace(
        instructions=steps,
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )
