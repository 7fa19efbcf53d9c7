"""Spikes leave a loop as booleans where all that takes them looks for events, and bytes are not cast for it.

    before: loop gives s = cast(v > 1, float32); e = events(s)
    after:  loop gives b = v > 1;                e = events(b)

    before: x = cast(frames, float32); e = events(x); y = product_of_events(x, e, w)
    after:  b = contiguous(frames);    e = events(b); y = product_of_events(b, e, w)

A neuron's spike is a comparison that has been cast to a float, and an event is found in the comparison as well: a
quarter of the bytes to write and to read. So it is in the bytes that frames of events are. Not where anything else
takes the spikes, by a view too, or where they go out as floats in any case, as a state or a second result: then
booleans would be bytes on top.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snncell.compiler.ir.convolution import BilinearOperation
from snncell.compiler.ir.formula import Cast
from snncell.compiler.ir.loop import LoopOperation, with_body
from snncell.compiler.ir.product import EventOperation, casts_bytes
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.ir.views import CONTIGUOUS
from snncell.compiler.passes.canonicalise import program_of
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def spikes_as_bool(program: Program) -> Program:
    """Have loops give booleans for spikes that only products of events take, and leave bytes as they are for them."""
    if not any(isinstance(instruction.op, EventOperation | BilinearOperation) for instruction in program.instructions):
        return program
    users = users_of(program)
    as_bool: dict[Value, Value] = {}  # a Value has one dtype: spikes as booleans or bytes are another Value
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction.op, LoopOperation):
            instructions.append(_with_bools(instruction, users, as_bool))
        elif casts_bytes(instruction) and _all_look_for_events(instruction.outputs[0], users, images=True):
            # A cast puts them in order too, batch-first data for one; where they are so already, this costs nothing.
            rows = Instruction(CONTIGUOUS, instruction.inputs, {}, instruction.line)
            rows.outputs = (
                Value(instruction.inputs[0].trace, instruction.inputs[0].shape, instruction.inputs[0].dtype),
            )
            as_bool[instruction.outputs[0]] = rows.outputs[0]
            instructions.append(rows)
        elif instruction.inputs and instruction.inputs[0] in as_bool:
            first = as_bool[instruction.inputs[0]]
            new = Instruction(instruction.op, (first, *instruction.inputs[1:]), instruction.attrs, instruction.line)
            new.outputs = instruction.outputs
            if instruction.op.view:
                as_bool[instruction.outputs[0]] = Value(first.trace, instruction.outputs[0].shape, first.dtype)
                new.outputs = (as_bool[instruction.outputs[0]],)
            instructions.append(new)
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _with_bools(
    instruction: Instruction, users: dict[Value, list[Instruction | None]], as_bool: dict[Value, Value]
) -> Instruction:
    """A loop with booleans for those of its results that nothing needs as floats."""
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    body = instruction.op.loop.body
    ys, outputs, first = list(body.ys), list(instruction.outputs), len(body.after)
    inside = program_of(body)
    makers = {inner.outputs[0]: inner for inner in inside.instructions}
    for n, value in enumerate(inside.outputs[first : first + len(ys)]):
        cast, out = makers.get(value), instruction.outputs[first + n]
        if cast is None or not isinstance(cast.op, Cast) or not _all_look_for_events(out, users):
            continue
        if inside.outputs.count(value) > 1:
            continue  # it goes out as floats in any case: as a state, or as another result
        (comparison,) = cast.inputs
        if comparison.dtype.kind == "b":
            ys[n] = wrap(comparison)
            outputs[first + n] = as_bool[out] = Value(out.trace, out.shape, np.dtype(bool))
    return (
        instruction
        if outputs == list(instruction.outputs)
        else with_body(instruction, replace(body, ys=ys), instruction.inputs, outputs)
    )


def _all_look_for_events(value: Value, users: dict[Value, list[Instruction | None]], images: bool = False) -> bool:
    """True if a Value goes, by views of it too, into nothing but products of events, as their first operand.

    With `images`, or convolutions that may look for events in it.
    """
    own_users = users.get(value, [])
    return bool(own_users) and all(
        user is not None
        and user.inputs[0] is value
        and value not in user.inputs[1:]  # as in s.T @ s, whose second operand is multiplied as it is
        and (
            isinstance(user.op, EventOperation)
            or (
                images
                and isinstance(user.op, BilinearOperation)
                and user.op.limit(user.inputs[0], user.inputs[1], user.attrs) > 0
            )
            or (user.op.view and _all_look_for_events(user.outputs[0], users, images))
        )
        for user in own_users
    )
