"""Common subexpression elimination: keep the first of equal instructions and use its results for the later ones.

    before: a = exp(x); b = exp(x); c = mul(a, b)
    after:  a = exp(x); c = mul(a, a)

This pays because each `bprop` is written separately and computes again what the forward pass or another `bprop` has
computed. One walk in order is enough, because inputs are renamed before instructions are compared. No instruction is
exempt, because instructions have no effects: random numbers come from a state that is an input, and a write to a
Parameter is not an instruction.
"""

from __future__ import annotations

from typing import Any

from snncell.compiler.ir.program import Program, with_inputs
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def eliminate_common_subexpressions(program: Program) -> Program:
    """Replace instructions with equal operations, inputs and attributes by the first of them."""
    replaced: dict[Value, Value] = {}
    first_of: dict[Any, Instruction] = {}
    instructions = []
    for instruction in program.instructions:
        inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs)
        # Numbers by their text, because 1 == 1.0 == True and 0.0 == -0.0, but results differ.
        operands = tuple(x if isinstance(x, Value) else repr(x) for x in inputs)
        key = (instruction.op, operands, repr(sorted(instruction.attrs.items())))
        first = first_of.setdefault(key, instruction)
        if first is instruction:
            instructions.append(instruction if inputs == instruction.inputs else with_inputs(instruction, inputs))
        else:
            replaced.update(zip(instruction.outputs, first.outputs, strict=True))
    return program._replace(
        instructions=instructions,
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )
