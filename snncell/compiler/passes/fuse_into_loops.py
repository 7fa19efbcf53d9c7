"""Loops over time take in what is around them: elementwise steps that make their sequences, sums of their results.

A bias that is added before a neuron, or a mean over time behind it, would each read a whole sequence once more, and
write one. Inside the loop they cost next to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.formula import MAX_STEPS, Reduction, is_elementwise
from snncell.compiler.ir.loop import LoopOperation, with_body
from snncell.compiler.ir.program import Program, users_of, values_in
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Step, Value


def fuse_into_loops(program: Program) -> Program:
    """The Program with loops that have taken in their neighbours."""
    if not any(isinstance(step.op, LoopOperation) for step in program.steps):
        return program
    return eliminate_dead_code(_take_sums(_take_makers(program)))


def _is_kernel(step: Step | None) -> bool:
    return step is not None and isinstance(step.op, LoopOperation) and step.op.is_one_kernel()


# --- what makes a sequence --------------------------------------------------------------------------------------------


def _take_makers(program: Program) -> Program:
    """Elementwise steps that make a sequence which loops alone take become part of each of those loops."""
    users = users_of(program)
    makers: dict[Value, Step] = {}
    for step in reversed(program.steps):
        out = step.outputs[0]
        if (
            is_elementwise(step)
            and _fits(step, out)
            and all(_takes(user, out, makers) for user in users.get(out, [None]))
        ):
            makers[out] = step
    order = {id(step): number for number, step in enumerate(program.steps)}
    steps = [_with_makers(step, makers, order) if _is_kernel(step) else step for step in program.steps]
    return program._replace(steps=steps)


def _takes(user: Step | None, made: Value, makers: dict[Value, Step]) -> bool:
    """True if a user of a sequence takes in its maker: a loop, or a maker that is taken in itself."""
    if user is None:
        return False
    if isinstance(user.op, LoopOperation):
        return _is_kernel(user) and user.op.loop.recompute is None
    out = user.outputs[0]
    return makers.get(out) is user and _moves(made, out)


def _moves(x: Value, made: Value) -> bool:
    """True if an operand of a step that makes a sequence is a sequence too."""
    return len(x.shape) == len(made.shape) and x.shape[0] == made.shape[0]


def _with_makers(step: Step, makers: dict[Value, Step], order: dict[int, int]) -> Step:
    assert isinstance(step.op, LoopOperation)  # the caller's choice
    if step.op.loop.recompute is not None:
        return step  # the loop that computes states again takes the sequence as it is
    body = step.op.loop.body
    first, last = len(body.carry), len(body.carry) + len(body.xs)
    consts = list(zip(step.inputs[last:], body.consts, strict=True))
    ahead: list[tuple[int, Step]] = []
    known: dict[Value, Value] = {}  # what is outside, and its Value inside
    waiting = list(zip(step.inputs[first:last], body.xs, strict=True))
    kept: list[tuple[Value, Tensor]] = []
    while waiting:
        outside, inside = waiting.pop(0)
        maker = makers.get(outside)
        if maker is None or len(ahead) >= MAX_STEPS:
            kept.append((outside, inside))
            continue
        inputs: list[Any] = []
        for x in maker.inputs:
            if isinstance(x, Value) and x not in known:
                moves = _moves(x, outside)
                known[x] = Value(body.trace, x.shape[1:] if moves else x.shape, x.dtype)
                (waiting if moves else consts).append((x, wrap(known[x])))
            inputs.append(known[x] if isinstance(x, Value) else x)
        made = Step(maker.op, tuple(inputs), maker.attrs, maker.line)
        made.outputs = (inside._data,)
        ahead.append((order[id(maker)], made))
    if not ahead:
        return step
    ahead.sort(key=lambda numbered: numbered[0])
    larger_body = replace(
        body,
        ahead=[*(made for _, made in ahead), *body.ahead],
        xs=[inside for _, inside in kept],
        consts=[inside for _, inside in consts],
    )
    inputs = [*step.inputs[:first], *(x for x, _ in kept), *(x for x, _ in consts)]
    larger = with_body(step, larger_body, inputs, step.outputs)
    return larger if _is_kernel(larger) else step  # beside a product there is no place for what has other rows


def _fits(maker: Step, made: Value) -> bool:
    """True if each operand is a sequence of as many steps, or the same at every step."""
    if not made.shape or made.shape[0] == 1:
        return False
    return all(len(x.shape) < len(made.shape) or x.shape[0] == made.shape[0] for x in values_in(maker))


# --- what adds a result up --------------------------------------------------------------------------------------------


def _take_sums(program: Program) -> Program:
    """Sums over time of a loop's results are added up in the loop."""
    users = users_of(program)
    steps: list[Step] = []
    replaced: dict[int, Step | None] = {}
    for step in program.steps:
        if id(step) in replaced:
            other = replaced[id(step)]
            steps += [] if other is None else [other]
        elif _is_kernel(step):
            steps.append(_with_sums(step, users, replaced))
        else:
            steps.append(step)
    return program._replace(steps=steps)


def _with_sums(step: Step, users: dict[Value, list[Step | None]], replaced: dict[int, Step | None]) -> Step:
    assert isinstance(step.op, LoopOperation)  # the caller's choice
    body = step.op.loop.body
    first, sums, added_up, outputs = len(body.after), list(body.sums), list(body.added_up), list(step.outputs)
    for y, value in zip(body.ys, step.outputs[first : first + len(body.ys)], strict=True):
        for user in users.get(value, []):
            if user is None or not _adds_up(user) or id(user) in replaced:
                continue
            axes = tuple(axis - 1 for axis in user.attrs["axis"] if axis)
            if axes and dtypes.only_stored(value.dtype):
                continue  # the loop would give totals that are rounded, or infinite, before they are added up
            total = Value(value.trace, value.shape[1:], value.dtype) if axes else user.outputs[0]
            sums.append(y)
            added_up.append(user)
            outputs.insert(first + len(body.ys) + len(sums) - 1, total)
            replaced[id(user)] = None
            if axes:
                rest = Step(user.op, (total,), {**user.attrs, "axis": axes}, user.line)
                rest.outputs = user.outputs
                replaced[id(user)] = rest
    if len(outputs) == len(step.outputs):
        return step
    return with_body(step, replace(body, sums=sums, added_up=added_up), step.inputs, outputs)


def _adds_up(user: Step) -> bool:
    return (
        isinstance(user.op, Reduction)
        and user.op.additive
        and 0 in user.attrs["axis"]
        and not user.attrs["keepdims"]
        and dtypes.is_float(user.inputs[0].dtype)
    )
