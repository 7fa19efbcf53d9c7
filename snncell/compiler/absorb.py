"""Loops over time take in what is around them: elementwise steps that make their sequences, sums of their results.

A bias that is added before a neuron, or a mean over time behind it, would each read a whole sequence once more, and
write one. Inside the loop they cost next to nothing.
"""

from __future__ import annotations

import copy
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.body import Body
from snncell.compiler.formula import Reduction
from snncell.compiler.fuse import MAX_STEPS
from snncell.compiler.narrow import narrow
from snncell.compiler.program import Program, drop_dead, fold, users_of, values_in
from snncell.compiler.scan import Scan, with_body
from snncell.compiler.sharing import share
from snncell.compiler.split import is_elementwise
from snncell.compiler.totals import early
from snncell.kernels.space import HOST, Space
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Step, Value


def optimised(program: Program, space: Space = HOST) -> Program:
    """The Program to plan: constants folded, and loops and products that share with neighbours."""
    whole = absorb(early(fold(program)))
    return narrow(drop_dead(share(whole))) if space is HOST else whole  # on the device products are dense


def absorb(program: Program) -> Program:
    """The Program with loops that have taken in their neighbours."""
    if not any(isinstance(step.op, Scan) for step in program.steps):
        return program
    return drop_dead(_take_sums(_take_makers(program)))


def _is_kernel(step: Step | None) -> bool:
    return step is not None and isinstance(step.op, Scan) and step.op.lowered.reason is None


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
    if isinstance(user.op, Scan):
        return _is_kernel(user) and user.op.segments is None
    out = user.outputs[0]
    return makers.get(out) is user and _moves(made, out)


def _moves(x: Value, made: Value) -> bool:
    """True if an operand of a step that makes a sequence is a sequence too."""
    return len(x.shape) == len(made.shape) and x.shape[0] == made.shape[0]


def _with_makers(step: Step, makers: dict[Value, Step], order: dict[int, int]) -> Step:
    scan: Any = step.op
    if scan.segments is not None:
        return step  # the loop that computes states again takes the sequence as it is
    body: Body = copy.copy(scan.body)
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
    body.ahead = [*(made for _, made in ahead), *body.ahead]
    body.xs, body.consts = [inside for _, inside in kept], [inside for _, inside in consts]
    inputs = [*step.inputs[:first], *(x for x, _ in kept), *(x for x, _ in consts)]
    larger = with_body(step, body, inputs, step.outputs)
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
    scan: Any = step.op
    body: Body = copy.copy(scan.body)
    first = len(body.after)
    body.sums, outputs = list(body.sums), list(step.outputs)
    for y, value in zip(body.ys, step.outputs[first : first + len(body.ys)], strict=True):
        for user in users.get(value, []):
            if user is None or not _adds_up(user) or id(user) in replaced:
                continue
            axes = tuple(axis - 1 for axis in user.attrs["axis"] if axis)
            if axes and dtypes.only_stored(value.dtype):
                continue  # the loop would give totals that are rounded, or infinite, before they are added up
            total = Value(value.trace, value.shape[1:], value.dtype) if axes else user.outputs[0]
            body.sums.append(y)
            body.added_up = [*body.added_up, user]
            outputs.insert(len(body.outs) - 1, total)
            replaced[id(user)] = None
            if axes:
                rest = Step(user.op, (total,), {**user.attrs, "axis": axes}, user.line)
                rest.outputs = user.outputs
                replaced[id(user)] = rest
    return step if len(outputs) == len(step.outputs) else with_body(step, body, list(step.inputs), tuple(outputs))


def _adds_up(user: Step) -> bool:
    return (
        isinstance(user.op, Reduction)
        and user.op.additive
        and 0 in user.attrs["axis"]
        and not user.attrs["keepdims"]
        and dtypes.is_float(user.inputs[0].dtype)
    )
