"""Operands of products: one memory layout and one event list for all products that share a matrix.

A copy into another layout is slow, so an operand of several products is copied only once. Spikes are an operand of the
next layer's product and, in the backward pass, of the gradient of its weights, each of which would search the whole
matrix for events (nonzero elements). A search in booleans or bytes reads a quarter of the memory of one in floats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from snncell.compiler.ir.loop import LoopOperation, loop_of, with_body
from snncell.compiler.ir.operations import CONTIGUOUS, Cast, Reshape
from snncell.compiler.ir.product import (
    EVENTS,
    PRODUCT_OF_EVENTS,
    BilinearOperation,
    Contraction,
    Dot,
    EventOperation,
    casts_bytes,
)
from snncell.compiler.ir.program import Program, Users, makers_in, rename_inputs, results_of, users_of, with_inputs
from snncell.compiler.passes.simplify import canonical_step
from snncell.tape.state import Value
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Instruction


def make_contiguous(program: Program) -> Program:
    """Copy an operand of several products once, if it may not be contiguous.

        before: x = transpose(z); y = dot(x, w); ...; dw = contraction(x, dy)
        after:  x = transpose(z); c = contiguous(x); y = dot(c, w); ...; dw = contraction(c, dy)

    A product copies an operand of more than two axes that has been transposed or broadcast, for example batch-first
    data. Inputs of the Program may be non-contiguous too; if they are contiguous, the instruction costs nothing.
    """
    makers = makers_in(program)
    uses = Counter(x for instruction in program.instructions for x in _operands_as_rows(instruction))
    scattered = set()
    for x, count in uses.items():
        maker = makers.get(x)
        if count > 1 and (maker is None or (maker.op.view and not isinstance(maker.op, Reshape))):
            scattered.add(x)
    if not scattered:
        return program
    contiguous: dict[Value, Value] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        rows = [x for x in _operands_as_rows(instruction) if x in scattered]
        for x in dict.fromkeys(x for x in rows if x not in contiguous):
            contiguous[x] = Value(x.trace, x.shape, x.dtype)
            instructions.append(with_inputs(instruction, [x], [contiguous[x]], CONTIGUOUS, {}))
        instructions.append(rename_inputs(instruction, contiguous) if rows else instruction)
    return program._replace(instructions=instructions)


def _operands_as_rows(instruction: Instruction) -> list[Value]:
    """The operands of a product that have more than two axes and are used as matrices."""
    if not isinstance(instruction.op, (Dot, Contraction)):
        return []
    operands = instruction.inputs[:1] if isinstance(instruction.op, Dot) else instruction.inputs
    return [x for x in operands if len(x.shape) > 2]


# --- Event lists ------------------------------------------------------------------------------------------------------


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once, if it is the first operand of several products.

        before: y = dot(s, w); ...; dw = contraction(s, dy)
        after:  e = events(s); y = product_of_events(s, e, w); ...; dw = product_of_events(s, e, dy, turned)

    A matrix with a single product has nothing to share, and BLAS multiplies matrices that are too small for
    event-driven products (`kernels/products/matmul.py`). However, a matrix cast from bytes gets a list even for a
    single product. With it, `spikes_as_bool` finds the events in the bytes and removes the cast.
    """
    limits: dict[Value, list[float]] = {}
    for instruction in program.instructions:
        if (below := _limit_of(instruction)) > 0:
            limits.setdefault(instruction.inputs[0], []).append(below)
    if not limits:
        return program
    users = users_of(program)
    casts = results_of(*filter(casts_bytes, program.instructions))
    cast = {value for value in casts if len(users.get(value, [])) == 1}
    events: dict[Value, tuple[Value, ...]] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        below = _limit_of(instruction)
        if not below or (len(limits[instruction.inputs[0]]) == 1 and instruction.inputs[0] not in cast):
            instructions.append(instruction)
            continue
        x, y = instruction.inputs
        if x not in events:  # before the first product that uses them
            attrs = {"dtype": x.dtype, "below": max(limits[x])}
            events[x] = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            instructions.append(with_inputs(instruction, [x], events[x], EVENTS, attrs))
        by_columns = isinstance(instruction.op, Contraction)  # x.T @ y, from the same list
        turned = isinstance(instruction.op, Contraction) and instruction.op.turned
        attrs = {"by_columns": by_columns, "turned": turned, "below": below}
        instructions.append(with_inputs(instruction, [x, *events[x], y], op=PRODUCT_OF_EVENTS, attrs=attrs))
    return program._replace(instructions=instructions)


def _limit_of(instruction: Instruction) -> float:
    return instruction.op.limit(*instruction.inputs) if isinstance(instruction.op, (Dot, Contraction)) else 0.0


def spikes_as_bool(program: Program) -> Program:
    """Return booleans from loops for spikes that only event-driven products use, and remove casts of bytes.

        before: loop gives s = cast(v > 1, float32); e = events(s)
        after:  loop gives b = v > 1;                e = events(b)
        before: x = cast(frames, float32); e = events(x); y = product_of_events(x, e, w)
        after:  b = contiguous(frames);    e = events(b); y = product_of_events(b, e, w)

    The comparison before the cast has the same events in a quarter of the bytes. Spikes with another user, also through
    a view, stay floats, as do spikes that the loop returns twice, because booleans would then be additional bytes.
    """
    if not any(isinstance(instruction.op, EventOperation | BilinearOperation) for instruction in program.instructions):
        return program
    users = users_of(program)
    as_bool: dict[Value, Value] = {}  # maps spikes as floats to spikes as booleans or bytes
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction.op, LoopOperation):
            instructions.append(_with_bools(instruction, users, as_bool))
        elif casts_bytes(instruction) and _all_look_for_events(instruction.outputs[0], users, images=True):
            # The cast also made them contiguous, for example batch-first data. If they are contiguous, this is free.
            (x,) = instruction.inputs
            as_bool[instruction.outputs[0]] = rows = Value(x.trace, x.shape, x.dtype)
            instructions.append(with_inputs(instruction, [x], [rows], CONTIGUOUS, {}))
        elif instruction.inputs and instruction.inputs[0] in as_bool:
            first, outputs = as_bool[instruction.inputs[0]], instruction.outputs
            if instruction.op.view:
                as_bool[outputs[0]] = Value(first.trace, outputs[0].shape, first.dtype)
                outputs = (as_bool[outputs[0]],)
            instructions.append(with_inputs(instruction, [first, *instruction.inputs[1:]], outputs))
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _with_bools(instruction: Instruction, users: Users, as_bool: dict[Value, Value]) -> Instruction:
    """A loop that returns booleans for the spikes that no user needs as floats."""
    body = loop_of(instruction).body
    ys, outputs, first = list(body.ys), list(instruction.outputs), len(body.after)
    inside = canonical_step(body)
    makers = makers_in(inside)
    for n, value in enumerate(inside.outputs[first : first + len(ys)]):
        cast, out = makers.get(value), instruction.outputs[first + n]
        if cast is None or not isinstance(cast.op, Cast) or not _all_look_for_events(out, users):
            continue
        (comparison,) = cast.inputs
        # If it is an output twice, the loop also returns it as floats: as a state, or as another result.
        if comparison.dtype.kind == "b" and inside.outputs.count(value) == 1:
            ys[n] = wrap(comparison)
            outputs[first + n] = as_bool[out] = Value(out.trace, out.shape, np.dtype(bool))
    if outputs == list(instruction.outputs):
        return instruction
    return with_body(instruction, replace(body, ys=ys), instruction.inputs, outputs)


def _all_look_for_events(value: Value, users: Users, images: bool = False) -> bool:
    """True if only event-driven products (`images`: and convolutions) read a Value or its views, as first operand."""

    def looks(user: Instruction | None) -> bool:
        # In s.T @ s, for example, the second operand must be floats.
        if user is None or user.inputs[0] is not value or value in user.inputs[1:]:
            return False
        if images and isinstance(user.op, BilinearOperation):
            return user.op.limit(value, user.inputs[1], user.attrs) > 0
        of_view = user.op.view and _all_look_for_events(user.outputs[0], users, images)
        return isinstance(user.op, EventOperation) or of_view

    return value in users and all(map(looks, users[value]))
