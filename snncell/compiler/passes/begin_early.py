"""Early start: move the instructions that an `early` operation needs before all others.

    before: d1 = d2 @ w2.T; g2 = x2.T @ d2; g1 = x1.T @ d1; send(g2); send(g1)
    after:  g2 = x2.T @ d2; send(g2); d1 = d2 @ w2.T; g1 = x1.T @ d1; send(g1)

This pays if the operation runs in the background while later instructions run, for example an exchange with other
processes. It costs fusion, because loops before and after the operation can no longer be one loop. It also costs
memory, because all other instructions come last.
"""

from __future__ import annotations

from snncell.compiler.ir.program import Program, values_in


def begin_early(program: Program) -> Program:
    """Put the instructions that lead to the first early one in front, then those that lead to the next, and so on."""
    maker = {value: number for number, instruction in enumerate(program.instructions) for value in instruction.outputs}
    order: dict[int, None] = {}  # numbers of instructions
    for number, instruction in enumerate(program.instructions):
        if instruction.op.early:
            leading, found = [number], {number}
            while leading:
                makers = {maker[x] for x in values_in(program.instructions[leading.pop()]) if x in maker}
                leading += makers - found - order.keys()
                found |= makers
            order |= dict.fromkeys(sorted(found - order.keys()))
    order |= dict.fromkeys(range(len(program.instructions)))
    return program._replace(instructions=[program.instructions[number] for number in order])
