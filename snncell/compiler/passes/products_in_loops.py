"""Fusion of event-driven products into loops over time, as inputs (gather) and as sums over time (scatter)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snncell.compiler.ir.loop import LoopOperation, is_kernel, loop_of, sequences_of, with_body
from snncell.compiler.ir.product import Dot, ProductOfEvents, along_rows
from snncell.compiler.ir.program import Program, Users, results_of, users_of, with_inputs
from snncell.compiler.passes.fuse_into_loops import enlarge_loop
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.kernels.products.gathers import may_be_faster
from snncell.tape.state import Value
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Instruction


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
    product runs on whole sequences: x @ w before the loop, x.T @ y after it (`hoist.py`). A product is not fused if
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
    """The loop after fusion of the products x @ w that it reads. It reads x and w instead of the sequence x @ w."""
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
    """The loop after fusion of the products x.T @ y, where y is one of its results. In the loop they are sums over time
    (see `multiply_in_loops`).
    """
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
        # The other operands (the events of the layer's input) must be computed before the loop.
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
