"""Products inside loops: a product that only a loop over time takes becomes part of it, and is never written.

    before: e = events(x); i = product_of_events(x, e, w); last, s = scan[v + i](v0, i)
    after:  e = events(x); last, s = scan[v + product_of_events(x, e, w)](v0, x, e, w)

A neuron's input of all steps would be written by the product and read by the loop, more bytes than all else together
that moves in a layer of spikes. In the loop the rows of the matrix that belong to a step's events are added up where
the neurons of the block are, from a strip of the matrix that stays in the cache. Whether there are few events is known
when it runs; with many of them the product is carried out before the loop, as a whole (`passes/hoist.py`), and so it
is where the loop is no single kernel. Products with other users stay: they are written in any case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snncell.compiler.ir.loop import LoopOperation, with_body
from snncell.compiler.ir.product import Dot, ProductOfEvents, along_rows
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.kernels.gathers import may_pay
from snncell.tape.tensor import wrap
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def multiply_in_loops(program: Program) -> Program:
    """Make products of rows and a matrix part of the loop that takes their sequence, or that alone gives it."""
    users = users_of(program)
    taken = {
        instruction.outputs[0]: instruction for instruction in program.instructions if _may_move(instruction, users)
    }
    terms = {
        instruction.inputs[-1]: instruction for instruction in program.instructions if _may_be_term(instruction, users)
    }
    if not taken and not terms:
        return program
    order = {value: number for number, instruction in enumerate(program.instructions) for value in instruction.outputs}
    instructions: list[Instruction] = []
    moved: set[Instruction] = set()
    for instruction in program.instructions:
        if instruction in moved:
            continue
        if isinstance(instruction.op, LoopOperation):
            instruction = _with_products(instruction, taken)
            instruction = _with_terms(instruction, terms, moved, order)
        instructions.append(instruction)
    return eliminate_dead_code(program._replace(instructions=instructions))


def _may_move(instruction: Instruction, users: dict[Value, list[Instruction | None]]) -> bool:
    known = isinstance(instruction.op, ProductOfEvents) and not along_rows(instruction)
    if not known and not (isinstance(instruction.op, Dot) and instruction.op.limit(*instruction.inputs) > 0):
        return False
    inner, width = instruction.inputs[-1].shape
    if not may_pay(inner, width, instruction.inputs[-1].dtype, False):
        return False
    own_users = users.get(instruction.outputs[0], [])
    user = own_users[0] if len(own_users) == 1 else None
    if user is None or not isinstance(user.op, LoopOperation) or user.op.loop.recompute is not None:
        return False
    body = user.op.loop.body
    sequences = user.inputs[len(body.carry) : len(body.carry) + len(body.xs)]
    return user.op.is_one_kernel() and instruction.outputs[0] in sequences and len(instruction.outputs[0].shape) > 1


def _with_products(instruction: Instruction, products: dict[Value, Instruction]) -> Instruction:
    """The loop, with those of its sequences computed inside that are products."""
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    body = instruction.op.loop.body
    first, last = len(body.carry), len(body.carry) + len(body.xs)
    xs: list[tuple[Value, Any]] = []
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    inside: list[Instruction] = []
    for sequence, slot in zip(instruction.inputs[first:last], body.xs, strict=True):
        product = products.get(sequence)
        if product is None:
            xs.append((sequence, slot))
            continue
        x, *others = product.inputs
        xs.append((x, wrap(Value(body.trace, x.shape[1:], x.dtype))))
        consts += [(other, wrap(Value(body.trace, other.shape, other.dtype))) for other in others]
        own = [tensor._data for _, tensor in (xs[-1], *consts[len(consts) - len(others) :])]
        inside.append(Instruction(product.op, tuple(own), product.attrs, product.line))
        inside[-1].outputs = (slot._data,)
    if not inside:
        return instruction
    larger = replace(
        body,
        fused_producers=[*inside, *body.fused_producers],
        xs=[slot for _, slot in xs],
        consts=[slot for _, slot in consts],
    )
    inputs = [*instruction.inputs[:first], *(x for x, _ in xs), *(x for x, _ in consts)]
    return with_body(instruction, larger, inputs, instruction.outputs)


def _may_be_term(instruction: Instruction, users: dict[Value, list[Instruction | None]]) -> bool:
    """True for the product of events and a sequence that nothing else takes."""
    if not isinstance(instruction.op, ProductOfEvents) or not along_rows(instruction):
        return False
    x, y = instruction.inputs[0], instruction.inputs[-1]
    return len(y.shape) > 1 and users[y] == [instruction] and may_pay(x.shape[-1], y.shape[-1], y.dtype, True)


def _with_terms(
    instruction: Instruction, terms: dict[Value, Instruction], moved: set[Instruction], order: dict[Value, int]
) -> Instruction:
    """The loop, with products of those of its results that only they take as sums over its steps."""
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    body = instruction.op.loop.body
    if instruction.op.loop.recompute is not None or not instruction.op.is_one_kernel():
        return instruction
    first, last, own = len(body.carry), len(body.carry) + len(body.xs), order[instruction.outputs[0]]
    xs, consts = list(body.xs), list(body.consts)
    sequences, fixed = list(instruction.inputs[first:last]), list(instruction.inputs[last:])
    after, rows, sums = (
        list(instruction.outputs[: len(body.after)]),
        list(zip(instruction.outputs[len(body.after) :], body.ys, strict=False)),
        list(instruction.outputs[len(body.after) + len(body.ys) :]),
    )
    inside: list[Instruction] = []
    results: list[Any] = []
    for value, y in list(rows):
        term = terms.get(value)
        # Its other operand exists before the loop: the events of the layer's input.
        if term is None or any(order.get(x, -1) > own for x in term.inputs[:-1]) or value.shape[1:] != y.shape:
            continue
        x, *lists, _ = term.inputs
        sequences.append(x)
        xs.append(wrap(Value(body.trace, x.shape[1:], x.dtype)))
        fixed += lists
        consts += [wrap(Value(body.trace, other.shape, other.dtype)) for other in lists]
        operands = [tensor._data for tensor in (xs[-1], *consts[len(consts) - len(lists) :])]
        inside.append(Instruction(term.op, (*operands, body.trace.lift(y)), term.attrs, term.line))
        inside[-1].outputs = (Value(body.trace, term.outputs[0].shape, term.outputs[0].dtype),)
        results.append(wrap(inside[-1].outputs[0]))
        sums.append(term.outputs[0])
        moved.add(term)
        rows.remove((value, y))
    if not inside:
        return instruction
    larger = replace(
        body,
        xs=xs,
        consts=consts,
        ys=[y for _, y in rows],
        sums=[*body.sums, *results],
        fused_users=[*body.fused_users, *inside],
    )
    inputs = [*instruction.inputs[:first], *sequences, *fixed]
    return with_body(instruction, larger, inputs, [*after, *(value for value, _ in rows), *sums])
