"""Loop-invariant code motion, to both sides: what need not run step by step is done once, for all steps.

Three things leave the loop. What depends on constants alone is computed before it. What depends on the sequences
alone, and is no elementwise step, is computed for all steps before it: a product of matrices becomes one large one.
And what nothing in the loop waits for comes after it: results that are made from other results, and all that is done
to sums, as far as it may as well be done to their total. What is left of most neurons is elementwise, and one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from snncell import dtype as dtypes
from snncell.compiler.ir.body import Body
from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.program import Program, values_in
from snncell.compiler.passes.canonicalise import program_of
from snncell.tape.tracing import Step, Value


class Hoisted(NamedTuple):
    """A body's Program, taken apart.

    Attributes:
        program: the whole.
        after, ys, sums: the Values of its outputs.
        invariant: steps that depend on constants alone, in order.
        prologue: steps that are carried out on whole sequences before the loop.
        loop: the steps of the loop.
        epilogue: steps that are carried out on whole sequences after the loop.
        reductions: steps that are carried out on sums after the loop.
        fixed: Values that are the same at every step.
        sequences: Values of the loop that are wanted as sequences, by the caller or by `epilogue` and `reductions`.
        summed: Values of the loop whose sums over time are wanted.
    """

    program: Program
    after: list[Value]
    ys: list[Value]
    sums: list[Value]
    invariant: list[Step]
    prologue: list[Step]
    loop: list[Step]
    epilogue: list[Step]
    reductions: list[Step]
    fixed: set[Value]
    sequences: list[Value]
    summed: list[Value]


def hoist(body: Body, states: Sequence[Value] = ()) -> Hoisted:
    """Move out of a body what need not run step by step.

    Args:
        body: one step.
        states: those of its sequences that are not there as sequences, but computed again in the loop.
    """
    program = program_of(body)
    first, last = len(body.after), len(body.after) + len(body.ys)
    after, ys, sums = program.outputs[:first], program.outputs[first:last], program.outputs[last:]
    carried = {x._data for x in body.carry}.union(states)
    invariant, rest = _invariant(program.steps, {x._data for x in body.consts})
    fixed = {x._data for x in body.consts}.union(*(step.outputs for step in invariant))
    modes = _modes(rest, fixed, after, ys, sums)
    prologue = _prologue(rest, modes.kind, carried)
    gone = set(map(id, prologue))
    placed = {mode: [s for s in rest if modes.kind[s] == mode and id(s) not in gone] for mode in _PLACES}
    computed = carried.union(*(step.outputs for step in placed["loop"]))
    late = {value for mode in ("sequence", "sum") for step in placed[mode] for value in step.outputs}
    sequences = [value for value, wanted in modes.wanted.items() if "sequence" in wanted and value in computed]
    summed = [value for value, wanted in modes.wanted.items() if "sum" in wanted and value not in late]
    return Hoisted(
        program,
        after,
        ys,
        sums,
        invariant,
        prologue,
        placed["loop"],
        placed["sequence"],
        placed["sum"],
        fixed,
        sequences,
        summed,
    )


_PLACES = ("loop", "sequence", "sum")


def _invariant(steps: list[Step], constant: set[Value]) -> tuple[list[Step], list[Step]]:
    """The steps that depend on constants alone, and the rest."""
    fixed = set(constant)
    invariant: list[Step] = []
    rest: list[Step] = []
    for step in steps:
        values = values_in(step)
        if values and fixed.issuperset(values):
            invariant.append(step)
            fixed.update(step.outputs)
        else:
            rest.append(step)
    return invariant, rest


def _prologue(steps: list[Step], kind: dict[Step, str], carried: set[Value]) -> list[Step]:
    """Steps the loop needs that are not elementwise and depend on the sequences alone, with all that leads to them."""
    moving = set(carried)
    along: list[Step] = []
    for step in steps:
        values = values_in(step)
        if values and moving.isdisjoint(values) and step.op.over_time is not None and kind[step] == "loop":
            along.append(step)
        else:
            moving.update(step.outputs)
    # Elementwise steps are better off in the loop, unless another step ahead of it waits for them.
    needed: set[Value] = set()
    prologue: list[Step] = []
    for step in reversed(along):
        if not is_elementwise(step) or not needed.isdisjoint(step.outputs):
            prologue.append(step)
            needed.update(values_in(step))
    return prologue[::-1]


class _Modes(NamedTuple):
    """For each step whether it runs in the "loop", on a "sequence" or on a "sum"; for each Value how it is wanted."""

    kind: dict[Step, str]
    wanted: dict[Value, set[str]]


def _modes(steps: list[Step], fixed: set[Value], after: list[Value], ys: list[Value], sums: list[Value]) -> _Modes:
    wanted: dict[Value, set[str]] = {}
    for values, mode in ((after, "loop"), (ys, "sequence"), (sums, "sum")):
        for value in values:
            wanted.setdefault(value, set()).add(mode)
    reduced: set[Value] = set()  # what other than elementwise steps have a part in
    for step in steps:
        if not is_elementwise(step) or not reduced.isdisjoint(values_in(step)):
            reduced.update(step.outputs)
    kind: dict[Step, str] = {}
    for step in reversed(steps):
        modes: set[str] = set().union(*(wanted.get(value, set()) for value in step.outputs))
        kind[step], needs = _placed(step, modes, reduced, fixed)
        for x in values_in(step):
            if kind[step] != "sum" or not step.op.proportional or x not in fixed:
                wanted.setdefault(x, set()).add(needs)
    return _Modes(kind, wanted)


def _placed(step: Step, modes: set[str], reduced: set[Value], fixed: set[Value]) -> tuple[str, str]:
    """Where a step runs, and how it then wants its inputs."""
    op = step.op
    if modes == {"sum"} and not reduced.isdisjoint(step.outputs) and _passes_sums(step, fixed):
        return "sum", "sum"
    if is_elementwise(step):
        return "loop", "loop"
    if modes == {"sum"} and op.summed is not None:
        return "sum", "sequence"
    if "loop" not in modes and op.over_time is not None:
        return "sequence", "sequence"
    return "loop", "loop"


def _passes_sums(step: Step, fixed: set[Value]) -> bool:
    """True if a step may as well be carried out once, on the sums over time of its inputs."""
    if step.op.additive:
        return all(_is_float(x) for x in step.inputs)
    if step.op.proportional is None:
        return False
    moving = [isinstance(x, Value) and x not in fixed for x in step.inputs]
    floats = all(_is_float(x) for x, moves in zip(step.inputs, moving, strict=True) if moves)
    return floats and _is_float(step.outputs[0]) and step.op.proportional(step.inputs, moving)


def _is_float(x: Any) -> bool:
    return isinstance(x, Value) and dtypes.is_float(x.dtype)


def outside_of(steps: Sequence[Step], results: Sequence[Value], own: Sequence[Value]) -> list[Value]:
    """The values that steps and results take, and that neither they nor `own` give."""
    inside = set(own).union(*(step.outputs for step in steps))
    taken = [*(x for step in steps for x in values_in(step)), *results]
    return list(dict.fromkeys(x for x in taken if x not in inside))
