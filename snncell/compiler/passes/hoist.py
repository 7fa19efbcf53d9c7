"""Loop-invariant code motion in both directions: instructions that need not run step by step run for all steps at once.

    each step:  w2 = w * 2;  i = dot(x, w2);  v' = v * a + i;  y = dot(v', u);  g += sum(v', axis=0)
    before:     w2 = w * 2                        invariant: depends on constants alone
                i = dot(x, w2), all steps         prologue: depends on sequences alone, and is not elementwise
    loop:       v' = v * a + i;  total += v'
    after:      y = dot(v', u), all steps         epilogue: the loop does not depend on it
                g = sum(total, axis=0)            reductions: of sums, where f(sum of v') = sum of f(v')

A product over a whole sequence is one large product, and the remaining loop of most neurons is one kernel. Elementwise
instructions stay in the loop, where they cost no memory traffic, unless an instruction before the loop needs them. An
instruction runs once on sums over time, instead of at each step, under three conditions. Its operation is `additive` or
`proportional`. Its operands are floats. It depends on an instruction that is not elementwise. Without the last
condition, elementwise instructions would be moved, although they cost little in the loop.
"""

from __future__ import annotations

from itertools import compress

from snncell.compiler.ir.operations import is_elementwise, is_float_value
from snncell.compiler.ir.program import LoopParts, Program, results_of, values_in
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


def hoist(program: Program) -> Program:
    """Decide where each instruction of a step runs: the Program with `step.parts`."""
    step = program.step
    assert step is not None  # only the steps of loops come here
    body = step.body
    first, last = len(body.after), len(body.after) + len(body.ys)
    after, ys, sums = program.outputs[:first], program.outputs[first:last], program.outputs[last:]
    carried = {x._data for x in body.carry}.union(step.states)
    invariant, rest = _invariant(program.instructions, {x._data for x in body.consts})
    fixed = {*(x._data for x in body.consts), *results_of(*invariant)}
    kind, uses = _modes(rest, fixed, after, ys, sums)
    prologue = _prologue(rest, kind, carried)
    # The other instructions run in the loop, on whole sequences after it, or on sums after it.
    placed: dict[str, list[Instruction]] = {"loop": [], "sequence": [], "sum": []}
    hoisted = set(prologue)
    for instruction in rest:
        if instruction not in hoisted:
            placed[kind[instruction]].append(instruction)
    computed, late = carried.union(results_of(*placed["loop"])), {*results_of(*placed["sequence"], *placed["sum"])}
    sequences = [value for value, modes in uses.items() if "sequence" in modes and value in computed]
    summed = [value for value, modes in uses.items() if "sum" in modes and value not in late]
    places = invariant, prologue, placed["loop"], placed["sequence"], placed["sum"]
    parts = LoopParts(program, after, ys, sums, *places, fixed, sequences, summed)
    return program._replace(step=step._replace(parts=parts))


def _invariant(instructions: list[Instruction], constant: set[Value]) -> tuple[list[Instruction], list[Instruction]]:
    fixed, invariant, rest = set(constant), list[Instruction](), list[Instruction]()
    for instruction in instructions:
        values = values_in(instruction)
        if values and fixed.issuperset(values):
            invariant.append(instruction)
            fixed.update(instruction.outputs)
        else:
            rest.append(instruction)
    return invariant, rest


def _prologue(instructions: list[Instruction], kind: dict[Instruction, str], carried: set[Value]) -> list[Instruction]:
    """Select the instructions that the loop needs and that do not depend on states: they run before it, for all steps.
    Elementwise instructions are among them only if they compute operands of the others.
    """
    stateful = set(carried)  # Values that depend on a state, or on an instruction without a rule for sequences
    candidates: list[Instruction] = []
    for instruction in instructions:
        values = values_in(instruction)
        has_rule = instruction.op.over_time is not None and kind[instruction] == "loop"
        if values and stateful.isdisjoint(values) and has_rule:
            candidates.append(instruction)
        else:
            stateful.update(instruction.outputs)
    # Elementwise instructions are cheaper in the loop. Hoist them only if another hoisted instruction needs them.
    needed: set[Value] = set()
    prologue: list[Instruction] = []
    for instruction in reversed(candidates):
        if not is_elementwise(instruction) or not needed.isdisjoint(instruction.outputs):
            prologue.append(instruction)
            needed.update(values_in(instruction))
    return prologue[::-1]


def _modes(
    instructions: list[Instruction], fixed: set[Value], after: list[Value], ys: list[Value], sums: list[Value]
) -> tuple[dict[Instruction, str], dict[Value, set[str]]]:
    """The mode of each instruction ("loop", "sequence" or "sum"), and the modes of the users of each Value."""
    uses: dict[Value, set[str]] = {}
    for values, mode in ((after, "loop"), (ys, "sequence"), (sums, "sum")):
        for value in values:
            uses.setdefault(value, set()).add(mode)
    reduced: set[Value] = set()  # Values that depend on an instruction that is not elementwise
    for instruction in instructions:
        if not is_elementwise(instruction) or not reduced.isdisjoint(values_in(instruction)):
            reduced.update(instruction.outputs)
    kind: dict[Instruction, str] = {}
    for instruction in reversed(instructions):  # users first, because they decide how an instruction may run
        modes: set[str] = set().union(*(uses.get(value, set()) for value in instruction.outputs))
        kind[instruction], needs = _mode_of(instruction, modes, reduced, fixed)
        for x in values_in(instruction):
            # In sum(x * c) = sum(x) * c, the constant itself is an operand, not its sum.
            if kind[instruction] != "sum" or not instruction.op.proportional or x not in fixed:
                uses.setdefault(x, set()).add(needs)
    return kind, uses


def _mode_of(instruction: Instruction, modes: set[str], reduced: set[Value], fixed: set[Value]) -> tuple[str, str]:
    """The mode of an instruction, and the mode in which it needs its inputs."""
    op = instruction.op
    if modes == {"sum"} and not reduced.isdisjoint(instruction.outputs) and _passes_sums(instruction, fixed):
        return "sum", "sum"
    if is_elementwise(instruction):
        return "loop", "loop"
    if modes == {"sum"} and op.summed is not None:
        return "sum", "sequence"
    if "loop" not in modes and op.over_time is not None:
        return "sequence", "sequence"
    return "loop", "loop"


def _passes_sums(instruction: Instruction, fixed: set[Value]) -> bool:
    """True if an instruction may run once, on the sums over time of its inputs."""
    if instruction.op.additive:
        return all(map(is_float_value, instruction.inputs))
    if instruction.op.proportional is None:
        return False
    varying = [isinstance(x, Value) and x not in fixed for x in instruction.inputs]
    floats = all(map(is_float_value, (*compress(instruction.inputs, varying), instruction.outputs[0])))
    return floats and instruction.op.proportional(instruction.inputs, varying)
