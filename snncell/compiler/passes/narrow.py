"""Narrowing: store small whole numbers, such as spikes, in bytes instead of floats.

    before: loop gives s = cast(v > 1, float32); p, places = max_pool(s); y = conv(p, w); ...; dw = conv_weight(p, dy)
    after:  loop gives b = v > 1;                q, places = max_pool(b); y = conv(q, w); ...; dw = conv_weight(q, dy)

A spike is 0 or 1, but takes four bytes as a float32. Its loop writes them, pooling reads and writes them, convolutions
read them, and the Program stores them for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from snncell.compiler.ir.operations import CAST, CONTIGUOUS, Cast, is_elementwise, loop_shape
from snncell.compiler.ir.product import BilinearOperation, EventOperation, casts_bytes
from snncell.compiler.ir.program import (
    LoopOperation,
    Program,
    is_kernel,
    loop_of,
    makers_in,
    rename_inputs,
    sequences_of,
    users_of,
    values_in,
    with_body,
    with_inputs,
)
from snncell.compiler.passes.fuse_into_loops import enlarge_loop
from snncell.compiler.passes.simplify import FOLDED_BYTES, canonical_step
from snncell.dtype import BYTES, is_float
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction

BYTE = 255  # the largest number of a byte
SIGNED = 127  # the largest number of a signed byte; max pooling reads bytes as signed, because its padding is -1
LARGEST = {np.dtype(bool): 1, np.dtype(np.uint8): BYTE}  # by dtype

# --- Value range analysis ---------------------------------------------------------------------------------------------

Bounds = Mapping[Value, int]


def upper_bounds(program: Program, known: Bounds | None = None) -> dict[Value, int]:
    """An upper bound of each Value that provably contains whole numbers from 0 to 255; `known` has bounds of inputs.
    For example, a comparison that is cast to floats has the bound 1. A selection of its elements has the same bound,
    and the sum of two such Values has the bound 2. Operations declare bounds of their results by `selects` and
    `upper_bound`. The bounds of a loop's results are those of one step, computed from the bounds of its sequences.
    """
    bounds = dict(known or {})
    bounds.update((x, 1) for array, x in program.constants if _is_zeros_or_ones(array))
    for instruction in program.instructions:
        if isinstance(instruction.op, LoopOperation):
            bounds.update(_bounds_of_results(instruction, bounds))
        elif (bound := _bound_of_result(instruction, bounds)) is not None:
            bounds[instruction.outputs[0]] = bound
    return bounds


def _bound_of(x: Any, bounds: Bounds) -> int | None:
    if isinstance(x, Value):
        return bounds.get(x, LARGEST.get(x.dtype))
    # Numbers other than 0 and 1 have no bound, so that dtypes do not depend on a constant that a user may change.
    return 1 if _is_zeros_or_ones(np.asarray(x)) else None


def _is_zeros_or_ones(array: Any) -> bool:
    """True for a host array, not too large, in which all elements are 0 or all are 1, as in `where(spikes, 1, 0)`."""
    if not isinstance(array, np.ndarray) or not 0 < array.nbytes <= FOLDED_BYTES or array.dtype.kind not in "biuf":
        return False
    first = array.flat[0]
    return first in (0, 1) and not np.signbit(first) and bool((array == first).all())


def _bound_of_result(instruction: Instruction, bounds: Bounds) -> int | None:
    op, out = instruction.op, instruction.outputs[0]
    if not op.selects and op.upper_bound is None:
        return None
    # Skip conditions and positions, which have another dtype than the elements that are selected.
    own = [x for x in instruction.inputs if isinstance(op, Cast) or not isinstance(x, Value) or x.dtype == out.dtype]
    known = [bound for x in own if (bound := _bound_of(x, bounds)) is not None]
    if not known or len(known) < len(own):
        return None
    bound = op.upper_bound(*known) if op.upper_bound is not None else max(known)
    return bound if bound <= (SIGNED if out.dtype == np.int8 else BYTE) else None


def _bounds_of_results(instruction: Instruction, bounds: Bounds) -> dict[Value, int]:
    body = loop_of(instruction).body
    operands = zip(instruction.inputs[len(body.carry) :], [*body.xs, *body.consts], strict=True)
    known = {inner._data: bound for x, inner in operands if (bound := _bound_of(x, bounds)) is not None}
    step = canonical_step(body)
    inside = upper_bounds(step, known)
    pairs = zip(instruction.outputs[len(body.after) :], step.outputs[len(body.after) :][: len(body.ys)], strict=False)
    return {out: inside[y] for out, y in pairs if y in inside}


# --- The pass ---------------------------------------------------------------------------------------------------------


def narrow_to_bytes(program: Program) -> Program:
    """Store whole numbers up to 255 in bytes if all of their users can read bytes.

        before: loop gives s = cast(v > 1, float32); e = events(s)
        after:  loop gives b = v > 1;                e = events(b)
        before: x = cast(frames, float32); y = conv(x, w)
        after:  b = contiguous(frames);    y = conv(b, w)

    Event-driven products and convolutions read bytes as their first operand. Views, slices and max pooling give bytes
    for bytes. Elementwise operations, sums and loops convert the bytes that they read to floats, in registers. A Value
    with any other user stays a float, for example a result of the Program, or an operand of a dense product.
    """
    if not any(isinstance(instruction.op, EventOperation | BilinearOperation) for instruction in program.instructions):
        return program
    chosen = _Choice(program).values()
    narrow: dict[Value, Value] = {}  # maps a Value of floats to its bytes
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction.op, LoopOperation):
            instructions.append(_with_byte_results(_with_byte_sequences(instruction, narrow), chosen, narrow))
        elif casts_bytes(instruction) and instruction.outputs[0] in chosen:
            # The result of a cast is contiguous, but its operand may not be, as for batch-first data. Only then
            # `CONTIGUOUS` makes a copy.
            (x,) = instruction.inputs
            narrow[instruction.outputs[0]] = rows = Value(x.trace, x.shape, x.dtype)
            instructions.append(with_inputs(instruction, [x], [rows], CONTIGUOUS, {}))
        elif loop_shape(instruction) is not None:
            instructions += _with_casts(instruction, chosen, narrow)
        else:
            renamed = rename_inputs(instruction, narrow)
            if instruction.outputs[0] in chosen:  # an operation that selects elements
                out, dtypes = instruction.outputs[0], [x.dtype for x in values_in(renamed)]
                narrow[out] = Value(out.trace, out.shape, np.result_type(*(x for x in dtypes if x in BYTES)))
                renamed = with_inputs(renamed, renamed.inputs, [narrow[out], *instruction.outputs[1:]])
            instructions.append(renamed)
    return program._replace(instructions=instructions)


class _Choice:
    def __init__(self, program: Program) -> None:
        self.bounds, self.users, self.makers = upper_bounds(program), users_of(program), makers_in(program)
        self.steps: dict[Instruction, Program] = {}

    def values(self) -> set[Value]:
        """The largest set of Values whose makers can give bytes and whose users can read them."""
        chosen = {x for x in self.bounds if is_float(x.dtype) and x in self.makers and x in self.users}
        while True:
            kept = {
                x
                for x in chosen
                if self._can_return_bytes(self.makers[x], x, chosen)
                and all(self._can_read_bytes(y, x, chosen) for y in self.users[x])
            }
            if kept == chosen:
                return chosen
            chosen = kept

    def _can_return_bytes(self, maker: Instruction, x: Value, chosen: set[Value]) -> bool:
        if isinstance(maker.op, LoopOperation):
            step, body = self._step_of(maker), loop_of(maker).body
            after, ys = step.outputs[: len(body.after)], step.outputs[len(body.after) :][: len(body.ys)]
            y = ys[maker.outputs.index(x) - len(after)]
            # Bytes save nothing if the loop also stores the same numbers as floats: if it returns the Value twice, or
            # if it returns the states before and after each step, because these two sequences share one array.
            states = {last for first, last in zip(step.inputs, after, strict=False) if first in ys}
            return ys.count(y) == 1 and y not in states and y in makers_in(step)
        if maker.op.selects:
            return x is maker.outputs[0] and all(
                operand in chosen for operand in values_in(maker) if is_float(operand.dtype)
            )
        # If only instructions of fused groups read x, x is probably in the same group, and never stored.
        return is_elementwise(maker) and any(y is None or loop_shape(y) is None for y in self.users[x])

    def _can_read_bytes(self, user: Instruction | None, x: Value, chosen: set[Value]) -> bool:
        if user is None:
            return False
        if isinstance(user.op, EventOperation | BilinearOperation):
            first, *others = user.inputs
            return (
                first is x and x not in others and (isinstance(user.op, EventOperation) or others[0].dtype == x.dtype)
            )
        if isinstance(user.op, LoopOperation):
            return self._loop_can_read_bytes(user, x)
        if user.op.selects:
            return user.outputs[0] in chosen and (user.op.view or self.bounds[x] <= SIGNED)
        return loop_shape(user) == x.shape  # otherwise it would not be fused with a cast

    def _loop_can_read_bytes(self, user: Instruction, x: Value) -> bool:
        """True if a loop is a kernel that reads a sequence by elementwise instructions."""
        loop, sequences = loop_of(user), sequences_of(user)
        if not is_kernel(user) or loop.recompute is not None or user.inputs.count(x) != sequences.count(x):
            return False
        users = users_of(self._step_of(user))
        slots = [slot._data for sequence, slot in zip(sequences, loop.body.xs, strict=True) if sequence is x]
        return all(y is not None and is_elementwise(y) for slot in slots for y in users.get(slot, []))

    def _step_of(self, instruction: Instruction) -> Program:
        if instruction not in self.steps:
            self.steps[instruction] = canonical_step(loop_of(instruction).body)
        return self.steps[instruction]


def _with_casts(instruction: Instruction, chosen: set[Value], narrow: dict[Value, Value]) -> list[Instruction]:
    """An instruction of a fused group, with casts of the bytes that it reads, and of its result if it is chosen."""
    floats = {x: Value(x.trace, x.shape, x.dtype) for x in values_in(instruction) if x in narrow}
    casts = [_cast(instruction, narrow[x], floats[x]) for x in floats]
    out, more = instruction.outputs[0], list[Instruction]()
    if out in chosen:
        narrow[out] = Value(out.trace, out.shape, np.dtype(np.uint8))
        more = [_cast(instruction, out, narrow[out])]
    return [*casts, rename_inputs(instruction, floats), *more]


def _cast(instruction: Instruction, x: Value, out: Value) -> Instruction:
    return with_inputs(instruction, [x], [out], CAST, {"dtype": out.dtype})


def _with_byte_sequences(instruction: Instruction, narrow: dict[Value, Value]) -> Instruction:
    """A loop that converts sequences of bytes to floats in each step."""
    sequences = sequences_of(instruction)
    if narrow.keys().isdisjoint(sequences):
        return instruction
    body = loop_of(instruction).body
    casts: list[Instruction] = []
    xs: list[tuple[Any, Tensor]] = []
    for sequence, slot in zip(sequences, body.xs, strict=True):
        if sequence in narrow:
            row = Value(body.trace, slot.shape, narrow[sequence].dtype)
            casts.append(_cast(instruction, row, slot._data))
            xs.append((narrow[sequence], wrap(row)))
        else:
            xs.append((sequence, slot))
    consts = list(zip(instruction.inputs[len(body.carry) + len(xs) :], body.consts, strict=True))
    return enlarge_loop(instruction, casts, xs, consts)


def _with_byte_results(instruction: Instruction, chosen: set[Value], narrow: dict[Value, Value]) -> Instruction:
    body, outputs = loop_of(instruction).body, list(instruction.outputs)
    if chosen.isdisjoint(outputs):
        return instruction
    step, ys, casts = canonical_step(body), list(body.ys), list[Instruction]()
    makers = makers_in(step)
    for n, place in enumerate(range(len(body.after), len(body.after) + len(ys))):
        out, maker = outputs[place], makers.get(step.outputs[place])
        if out not in chosen or maker is None:
            continue
        if casts_bytes(maker):  # a comparison
            (row,) = maker.inputs
        else:
            row = Value(body.trace, out.shape[1:], np.dtype(np.uint8))
            casts.append(_cast(maker, step.outputs[place], row))
        ys[n], outputs[place] = wrap(row), Value(out.trace, out.shape, row.dtype)
        narrow[out] = outputs[place]
    larger = replace(body, ys=ys, fused_users=[*body.fused_users, *casts])
    return with_body(instruction, larger, instruction.inputs, outputs)
