"""Operands of several products are copied once into one order in memory, where their elements lie scattered.

    before: x = transpose(z); y = dot(x, w); ...; dw = contraction(x, dy)
    after:  x = transpose(z); c = contiguous(x); y = dot(c, w); ...; dw = contraction(c, dy)

A product takes the rows of its operand as a matrix, and where an operand of more than two axes has been transposed or
broadcast, that is a copy: batch-first data, say, that several layers take. Inputs of the Program may lie so too, which
is not known before it runs; where they do not, the step costs nothing. An operand of one product is left to it.
"""

from __future__ import annotations

from collections import Counter

from snncell.compiler.ir.product import Contraction, Dot
from snncell.compiler.ir.program import Program, with_inputs
from snncell.compiler.ir.views import CONTIGUOUS, Reshape
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def make_contiguous(program: Program) -> Program:
    """Put what several products take as rows into one order first, where it may be scattered."""
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
