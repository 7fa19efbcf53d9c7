"""Dead code elimination."""

from __future__ import annotations

from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.program import Program
from snncell.tape.tracing import Step, Value


def eliminate_dead_code(program: Program) -> Program:
    """Remove the steps, constants and Parameters that no result depends on.

    A loop goes on with the results that are needed.
    """
    needed = set(program.results())
    steps = []
    for step in reversed(program.steps):
        if not needed.isdisjoint(step.outputs):
            if isinstance(step.op, LoopOperation):
                step = step.op.pruned(step, needed)
            steps.append(step)
            needed.update(x for x in step.inputs if isinstance(x, Value))
    return program._replace(
        steps=steps[::-1],
        constants=[(array, value) for array, value in program.constants if value in needed],
        parameters={parameter: value for parameter, value in program.parameters.items() if value in needed},
    )


def leading_to(steps: list[Step], results: list[Value]) -> list[Step]:
    """Select the steps that `results` depend on."""
    return eliminate_dead_code(Program([], {}, [], steps, results, {})).steps
