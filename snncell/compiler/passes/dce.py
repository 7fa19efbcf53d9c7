"""Dead code elimination: remove instructions, constants and Parameters whose Values reach no result.

    before: a = exp(x); b = sin(x); return a        last, ys, saved = scan(...); return last
    after:  a = exp(x); return a                    last            = scan(...); return last

A loop loses single results. For example, values saved for an unused backward pass are neither computed nor stored.
"""

from __future__ import annotations

from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.program import Program
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def eliminate_dead_code(program: Program) -> Program:
    """Remove the instructions, constants and Parameters that no result depends on, and such results of loops."""
    needed = set(program.results())  # writes to Parameters among them
    instructions = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs):
            if isinstance(instruction.op, LoopOperation):
                instruction = instruction.op.pruned(instruction, needed)
            instructions.append(instruction)
            needed.update(x for x in instruction.inputs if isinstance(x, Value))
    return program._replace(
        instructions=instructions[::-1],
        constants=[(array, value) for array, value in program.constants if value in needed],
        parameters={parameter: value for parameter, value in program.parameters.items() if value in needed},
    )


def leading_to(instructions: list[Instruction], results: list[Value]) -> list[Instruction]:
    """Select the instructions that `results` depend on."""
    return eliminate_dead_code(Program([], {}, [], instructions, results, {})).instructions
