"""Operands of products: one order in memory, and one list of events, for all products that take a matrix.

To copy an array into another order, element by element across memory, costs time, so an operand of several products is
copied once. Spikes go into the product of the next layer and, in the backward pass, into the gradient of its weights:
each of these products would search the whole matrix for events, the elements that are not zero. A search in booleans or
bytes reads a quarter of what it reads in floats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from snncell.compiler.ir.loop import LoopOperation, with_body
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
from snncell.compiler.ir.program import Program, makers_in, rename_inputs, results_of, users_of, with_inputs
from snncell.compiler.passes.simplify import canonical_step
from snncell.tape.state import Value
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Instruction


def make_contiguous(program: Program) -> Program:
    """Copy an operand of several products once into one order in memory, if its elements may be scattered.

        before: x = transpose(z); y = dot(x, w); ...; dw = contraction(x, dy)
        after:  x = transpose(z); c = contiguous(x); y = dot(c, w); ...; dw = contraction(c, dy)

    A product copies an operand of more than two axes that has been transposed or broadcast, for example batch-first
    data. Inputs of the Program may be scattered too; if they are not, the instruction costs nothing. An operand of one
    product is left to that product.
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
    """The operands of more than two axes that a product takes as matrices."""
    if not isinstance(instruction.op, (Dot, Contraction)):
        return []
    operands = instruction.inputs[:1] if isinstance(instruction.op, Dot) else instruction.inputs
    return [x for x in operands if len(x.shape) > 2]


# --- event lists ------------------------------------------------------------------------------------------------------


def share_event_lists(program: Program) -> Program:
    """Find the events of a matrix once if several products have it as their first operand.

        before: y = dot(s, w); ...; dw = contraction(s, dy)
        after:  e = events(s); y = product_of_events(s, e, w); ...; dw = product_of_events(s, e, dy, turned)

    A matrix with a single product has nothing to share, and matrices that are too small for events to pay
    (`kernels/products/matmul.py`) are left to BLAS. But a matrix that was cast from bytes for a single product gets a
    list too: `spikes_as_bool` then finds the events in the bytes, and nothing is cast.
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
        if x not in events:  # before the first product that takes them
            attrs = {"dtype": x.dtype, "below": max(limits[x])}
            events[x] = tuple(Value(x.trace, *spec) for spec in EVENTS.abstract((x,), attrs))
            instructions.append(with_inputs(instruction, [x], events[x], EVENTS, attrs))
        by_columns = isinstance(instruction.op, Contraction)  # x.T @ y, from the same list
        turned = isinstance(instruction.op, Contraction) and instruction.op.turned
        attrs = {"by_columns": by_columns, "turned": turned, "below": below}
        instructions.append(with_inputs(instruction, [x, *events[x], y], op=PRODUCT_OF_EVENTS, attrs=attrs))
    return program._replace(instructions=instructions)


def _limit_of(instruction: Instruction) -> float:
    """The density below which an instruction multiplies events; 0 if it does not."""
    return instruction.op.limit(*instruction.inputs) if isinstance(instruction.op, (Dot, Contraction)) else 0.0


def spikes_as_bool(program: Program) -> Program:
    """Have loops give booleans for spikes that only products of events take, and cast no bytes for such products.

        before: loop gives s = cast(v > 1, float32); e = events(s)
        after:  loop gives b = v > 1;                e = events(b)

        before: x = cast(frames, float32); e = events(x); y = product_of_events(x, e, w)
        after:  b = contiguous(frames);    e = events(b); y = product_of_events(b, e, w)

    The comparison that has been cast to a float has the event as well, in a quarter of the bytes. Spikes with another
    user stay floats, also if the user takes a view of them, or if they leave the loop as floats anyway, as a state or a
    second result: booleans would be additional bytes.
    """
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


def _with_bools(
    instruction: Instruction, users: dict[Value, list[Instruction | None]], as_bool: dict[Value, Value]
) -> Instruction:
    """A loop with booleans for those of its results that nothing needs as floats."""
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    body = instruction.op.loop.body
    ys, outputs, first = list(body.ys), list(instruction.outputs), len(body.after)
    inside = canonical_step(body)
    makers = makers_in(inside)
    for n, value in enumerate(inside.outputs[first : first + len(ys)]):
        cast, out = makers.get(value), instruction.outputs[first + n]
        if cast is None or not isinstance(cast.op, Cast) or not _all_look_for_events(out, users):
            continue
        (comparison,) = cast.inputs
        # Twice among the outputs, it goes out as floats in any case: as a state, or as another result.
        if comparison.dtype.kind == "b" and inside.outputs.count(value) == 1:
            ys[n] = wrap(comparison)
            outputs[first + n] = as_bool[out] = Value(out.trace, out.shape, np.dtype(bool))
    if outputs == list(instruction.outputs):
        return instruction
    return with_body(instruction, replace(body, ys=ys), instruction.inputs, outputs)


def _all_look_for_events(value: Value, users: dict[Value, list[Instruction | None]], images: bool = False) -> bool:
    """True if a Value goes, by views of it too, into nothing but products of events, as their first operand.

    With `images`, or convolutions that may look for events in it.
    """

    def looks(user: Instruction | None) -> bool:
        # As in s.T @ s, whose second operand is multiplied as it is.
        if user is None or user.inputs[0] is not value or value in user.inputs[1:]:
            return False
        if images and isinstance(user.op, BilinearOperation):
            return user.op.limit(value, user.inputs[1], user.attrs) > 0
        of_view = user.op.view and _all_look_for_events(user.outputs[0], users, images)
        return isinstance(user.op, EventOperation) or of_view

    return value in users and all(map(looks, users[value]))
