"""Early beginnings: an operation that is `early` stands right behind the step that makes the last of its operands.

    before: g2 = x2.T @ d2; d1 = d2 @ w2.T; g1 = x1.T @ d1; send(g2); send(g1)
    after:  g2 = x2.T @ d2; send(g2); d1 = d2 @ w2.T; g1 = x1.T @ d1; send(g1)

It pays where what such an operation begins goes on beside the steps that follow, as an exchange with other processes
does. It costs fusion: loops before and behind it are no longer one.
"""

from __future__ import annotations

from snncell.compiler.ir.program import Program
from snncell.tape.tracing import Value


def begin_early(program: Program) -> Program:
    """Move the steps that are early to where their operands are there; all others keep their order."""
    if not any(step.op.early for step in program.steps):
        return program
    made = {value: number for number, step in enumerate(program.steps) for value in step.outputs}

    def place(number: int) -> tuple[int, bool, int]:
        step = program.steps[number]
        if not step.op.early:
            return number, False, number
        return max((made.get(x, -1) for x in step.inputs if isinstance(x, Value)), default=-1), True, number

    order = sorted(range(len(program.steps)), key=place)
    return program._replace(steps=[program.steps[number] for number in order])
