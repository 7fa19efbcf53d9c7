"""Passes for matrix products: share the memory layout and the events of an operand, and fuse products into loops.

A copy into another layout is slow, so an operand of several products is copied only once. Spikes are an operand of two
products: that of the next layer, and in the backward pass that of its weight gradient. Each would search the whole
matrix for events (nonzero elements). A search in booleans or bytes reads a quarter of the memory of one in floats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from snncell.compiler.ir.operations import CONTIGUOUS, Reshape
from snncell.compiler.ir.product import (
    EVENTS,
    PRODUCT_OF_EVENTS,
    Contraction,
    Dot,
    ProductOfEvents,
    along_rows,
    casts_bytes,
)
from snncell.compiler.ir.program import (
    LoopOperation,
    Program,
    Users,
    is_kernel,
    loop_of,
    makers_in,
    rename_inputs,
    results_of,
    sequences_of,
    users_of,
    with_body,
    with_inputs,
)
from snncell.compiler.passes.fuse_into_loops import enlarge_loop
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.kernels.products.gathers import may_be_faster
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

    A matrix with a single product needs no shared list. However, if it was cast from bytes, it gets one: then
    `narrow_to_bytes` finds the events in the bytes and removes the cast. BLAS multiplies matrices that are too small
    for event-driven products (`kernels/products/matmul.py`).
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


# --- Products in loops ------------------------------------------------------------------------------------------------


def multiply_in_loops(program: Program) -> Program:
    """Fuse event-driven products into loops. A product x @ w is fused into the loop that reads it (gather). A product
    x.T @ y is fused into the loop that computes y (scatter).

        before: e = events(x); i = product_of_events(x, e, w); last, s = scan[v + i](v0, i)
        after:  e = events(x); last, s = scan[v + product_of_events(x, e, w)](v0, x, e, w)

    Without this pass, the product writes the input current of all neurons and steps to memory, and the loop reads it.
    This is more memory traffic than everything else in a spiking layer. The fused loop instead adds the matrix rows of
    a step's events, for one block of neurons at a time. The columns of this block are a strip of the matrix that stays
    in cache. For x.T @ y, such as a weight gradient, the loop does not write y. At each step it adds x_t.T @ y_t to the
    result.

    The number of events is known only at run time. If there are many, or if the loop is not a single kernel, the
    product runs on whole sequences: x @ w before the loop, x.T @ y after it (`hoist`). A product is not fused if
    another instruction also uses the sequence that fusion would save (the result of x @ w, or the operand y of
    x.T @ y), because it must then be written anyway.
    """
    users = users_of(program)
    gathers = {one.outputs[0]: one for one in program.instructions if _may_gather(one, users)}
    scatters = {one.inputs[-1]: one for one in program.instructions if _may_scatter(one, users)}
    if not gathers and not scatters:
        return program
    order = {value: number for number, one in enumerate(program.instructions) for value in one.outputs}
    instructions: list[Instruction] = []
    moved: set[Instruction] = set()
    for instruction in program.instructions:
        if instruction in moved:
            continue
        if isinstance(instruction.op, LoopOperation):
            instruction = _with_scatters(_with_gathers(instruction, gathers), scatters, moved, order)
        instructions.append(instruction)
    return eliminate_dead_code(program._replace(instructions=instructions))


def _may_gather(instruction: Instruction, users: Users) -> bool:
    known = isinstance(instruction.op, ProductOfEvents) and not along_rows(instruction)
    if not known and not (isinstance(instruction.op, Dot) and instruction.op.limit(*instruction.inputs) > 0):
        return False
    inner, width = instruction.inputs[-1].shape
    if not may_be_faster(inner, width, instruction.inputs[-1].dtype, False):
        return False
    own_users = users.get(instruction.outputs[0], [])
    user = own_users[0] if len(own_users) == 1 else None
    if user is None or not is_kernel(user) or loop_of(user).recompute is not None:
        return False
    return instruction.outputs[0] in sequences_of(user) and len(instruction.outputs[0].shape) > 1


def _with_gathers(instruction: Instruction, gathers: dict[Value, Instruction]) -> Instruction:
    """The loop with the products x @ w that it reads. It reads x and w instead of the sequence x @ w."""
    body = loop_of(instruction).body
    first, last = len(body.carry), len(body.carry) + len(body.xs)
    xs: list[tuple[Value, Any]] = []
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    inside: list[Instruction] = []
    for sequence, slot in zip(instruction.inputs[first:last], body.xs, strict=True):
        product = gathers.get(sequence)
        if product is None:
            xs.append((sequence, slot))
            continue
        x, *others = product.inputs
        xs.append((x, wrap(Value(body.trace, x.shape[1:], x.dtype))))
        consts += [(other, wrap(Value(body.trace, other.shape, other.dtype))) for other in others]
        own = [tensor._data for _, tensor in (xs[-1], *consts[len(consts) - len(others) :])]
        inside.append(with_inputs(product, own, [slot._data]))
    return enlarge_loop(instruction, inside, xs, consts) if inside else instruction


def _may_scatter(instruction: Instruction, users: Users) -> bool:
    """True for an event-driven product x.T @ y, such as a weight gradient, if the sequence y has no other users."""
    if not isinstance(instruction.op, ProductOfEvents) or not along_rows(instruction):
        return False
    x, y = instruction.inputs[0], instruction.inputs[-1]
    return len(y.shape) > 1 and users[y] == [instruction] and may_be_faster(x.shape[-1], y.shape[-1], y.dtype, True)


def _with_scatters(
    instruction: Instruction, scatters: dict[Value, Instruction], moved: set[Instruction], order: dict[Value, int]
) -> Instruction:
    """The loop with the products x.T @ y of its results y, as sums over time (see `multiply_in_loops`)."""
    body = loop_of(instruction).body
    if loop_of(instruction).recompute is not None or not is_kernel(instruction):
        return instruction
    first, last, own = len(body.carry), len(body.carry) + len(body.xs), order[instruction.outputs[0]]
    xs, consts = list(body.xs), list(body.consts)
    sequences, fixed = list(instruction.inputs[first:last]), list(instruction.inputs[last:])
    after, results = instruction.outputs[: len(body.after)], instruction.outputs[len(body.after) :]
    stored, sums = list(zip(results, body.ys, strict=False)), list(results[len(body.ys) :])
    inside: list[Instruction] = []
    for value, y in list(stored):
        product = scatters.get(value)
        # The other operands, the events of the layer's input, must be computed before the loop.
        if product is None or any(order.get(x, -1) > own for x in product.inputs[:-1]) or value.shape[1:] != y.shape:
            continue
        x, *lists, _ = product.inputs
        sequences.append(x)
        xs.append(wrap(Value(body.trace, x.shape[1:], x.dtype)))
        fixed += lists
        consts += [wrap(Value(body.trace, other.shape, other.dtype)) for other in lists]
        operands = [tensor._data for tensor in (xs[-1], *consts[len(consts) - len(lists) :])]
        total = Value(body.trace, product.outputs[0].shape, product.outputs[0].dtype)
        inside.append(with_inputs(product, [*operands, body.trace.lift(y)], [total]))
        sums.append(product.outputs[0])
        moved.add(product)
        stored.remove((value, y))
    if not inside:
        return instruction
    larger = replace(
        body,
        xs=xs,
        consts=consts,
        ys=[y for _, y in stored],
        sums=[*body.sums, *map(wrap, results_of(*inside))],
        fused_users=[*body.fused_users, *inside],
    )
    inputs = [*instruction.inputs[:first], *sequences, *fixed]
    return with_body(instruction, larger, inputs, [*after, *(value for value, _ in stored), *sums])
