"""A contraction whose result is only transposed gives the transpose itself.

    before: c = contraction(x, dy); dw = transpose(c)
    after:  dw = contraction of the other order(x, dy)

The gradient of a layer `x @ w.T` comes so. Products write either order at the same speed, and a transpose that an
optimiser's loop takes is copied, element by element across memory. A contraction that something else takes stays.
"""

from __future__ import annotations

from snncell.compiler.ir.product import Contraction
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.ir.views import Transpose
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def turn_contractions(program: Program) -> Program:
    """Have contractions give the transposes that are taken of them."""
    made_by = {
        instruction.outputs[0]: instruction
        for instruction in program.instructions
        if isinstance(instruction.op, Contraction)
    }
    if not made_by:
        return program
    users = users_of(program)
    transposes: dict[Value, Instruction] = {}
    for value in made_by:
        match users.get(value):
            case [Instruction() as user] if isinstance(user.op, Transpose) and user.attrs["axes"] == (1, 0):
                transposes[value] = user
    dropped = set(map(id, transposes.values()))
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if id(instruction) in dropped:
            continue
        transpose = transposes.get(instruction.outputs[0]) if instruction.outputs else None  # a loop may give nothing
        if transpose is not None and isinstance(instruction.op, Contraction):
            instruction = Instruction(instruction.op.other, instruction.inputs, instruction.attrs, instruction.line)
            instruction.outputs = transpose.outputs
        instructions.append(instruction)
    return program._replace(instructions=instructions)
