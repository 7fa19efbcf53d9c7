"""Layout of products: the order in memory of their operands and results.

A product computes either order of its result at the same speed, and takes the rows of its operands as a matrix. To copy
an array into another order, element by element across memory, costs time. So contractions give the order that is used,
and an operand of several products is copied once.
"""

from __future__ import annotations

from collections import Counter

from snncell.compiler.ir.product import Contraction, Dot
from snncell.compiler.ir.program import Program, users_of, with_inputs
from snncell.compiler.ir.views import CONTIGUOUS, Reshape, Transpose
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def turn_contractions(program: Program) -> Program:
    """Have a contraction whose result is only transposed give the transpose itself.

        before: c = contraction(x, dy); dw = transpose(c)
        after:  dw = contraction of the other order(x, dy)

    For example, the gradient of a layer `x @ w.T` has this form. A contraction with another user stays.
    """
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


def make_contiguous(program: Program) -> Program:
    """Copy an operand of several products once into one order in memory, if its elements may be scattered.

        before: x = transpose(z); y = dot(x, w); ...; dw = contraction(x, dy)
        after:  x = transpose(z); c = contiguous(x); y = dot(c, w); ...; dw = contraction(c, dy)

    A product copies an operand of more than two axes that has been transposed or broadcast, for example batch-first
    data that several layers take. Inputs of the Program may be scattered too, which is unknown before it runs; if they
    are not, the instruction costs nothing. An operand of one product is left to that product.
    """
    makers = {out: instruction for instruction in program.instructions for out in instruction.outputs}
    uses = Counter(x for instruction in program.instructions for x in _operands_as_rows(instruction))
    scattered = {x for x, count in uses.items() if count > 1 and _may_scatter(x, makers)}
    if not scattered:
        return program
    contiguous: dict[Value, Value] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        rows = [x for x in _operands_as_rows(instruction) if x in scattered]
        for x in dict.fromkeys(x for x in rows if x not in contiguous):
            copy = Instruction(CONTIGUOUS, (x,), {}, instruction.line)
            copy.outputs = (Value(x.trace, x.shape, x.dtype),)
            contiguous[x] = copy.outputs[0]
            instructions.append(copy)
        instructions.append(
            with_inputs(instruction, tuple(contiguous.get(x, x) for x in instruction.inputs)) if rows else instruction
        )
    return program._replace(instructions=instructions)


def _operands_as_rows(instruction: Instruction) -> list[Value]:
    """The operands of more than two axes that a product takes as matrices."""
    operands = (
        instruction.inputs[:1]
        if isinstance(instruction.op, Dot)
        else instruction.inputs
        if isinstance(instruction.op, Contraction)
        else ()
    )
    return [x for x in operands if len(x.shape) > 2]


def _may_scatter(x: Value, makers: dict[Value, Instruction]) -> bool:
    maker = makers.get(x)
    return maker is None or (maker.op.view and not isinstance(maker.op, Reshape))
