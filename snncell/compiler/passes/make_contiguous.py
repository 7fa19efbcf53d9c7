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
from snncell.tape.tracing import Instruction, Value


def make_contiguous(program: Program) -> Program:
    """Put what several products take as rows into one order first, where it may be scattered."""
    makers = {out: step for step in program.steps for out in step.outputs}
    uses = Counter(x for step in program.steps for x in _operands_as_rows(step))
    scattered = {x for x, count in uses.items() if count > 1 and _may_scatter(x, makers)}
    if not scattered:
        return program
    contiguous: dict[Value, Value] = {}
    steps: list[Instruction] = []
    for step in program.steps:
        rows = [x for x in _operands_as_rows(step) if x in scattered]
        for x in dict.fromkeys(x for x in rows if x not in contiguous):
            copy = Instruction(CONTIGUOUS, (x,), {}, step.line)
            copy.outputs = (Value(x.trace, x.shape, x.dtype),)
            contiguous[x] = copy.outputs[0]
            steps.append(copy)
        steps.append(with_inputs(step, tuple(contiguous.get(x, x) for x in step.inputs)) if rows else step)
    return program._replace(steps=steps)


def _operands_as_rows(step: Instruction) -> list[Value]:
    """The operands of more than two axes that a product takes as matrices."""
    operands = step.inputs[:1] if isinstance(step.op, Dot) else step.inputs if isinstance(step.op, Contraction) else ()
    return [x for x in operands if len(x.shape) > 2]


def _may_scatter(x: Value, makers: dict[Value, Instruction]) -> bool:
    maker = makers.get(x)
    return maker is None or (maker.op.view and not isinstance(maker.op, Reshape))
