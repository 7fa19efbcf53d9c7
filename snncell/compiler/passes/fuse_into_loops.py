"""Fusion into loops over time: elementwise producers of sequences, sums of results, and event-driven products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.loop import LoopOperation, loop_of, with_body
from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, Elementwise, Reduction, Reshape, is_elementwise
from snncell.compiler.ir.product import Dot, ProductOfEvents, along_rows
from snncell.compiler.ir.program import Program, Users, makers_in, results_of, users_of, values_in, with_inputs
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.kernels.products.gathers import may_pay
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction


def fuse_into_loops(program: Program) -> Program:
    """Fuse elementwise producers and sums over time into neighbouring loops.

        before: y = add(x, b); last, s = scan[v + y](v0, y); total = sum(s, axis=0)
        after:  last, total = scan[v + (x + b), sums s](v0, x, b)

    For example, a bias added before a neuron, or a mean over time after it, would each read and write a whole sequence.
    Inside of the loop they are a few instructions on registers. A producer is fused into every loop that reads its
    sequence. Therefore all users must be loops that are single kernels, because any other user needs the sequence in
    memory anyway. Loops that rematerialise states are left unchanged.
    """
    if not any(isinstance(instruction.op, LoopOperation) for instruction in program.instructions):
        return program
    return eliminate_dead_code(_fuse_sums(_fuse_producers(_cut_into_steps_first(program))))


def _is_kernel(instruction: Instruction | None) -> bool:
    return instruction is not None and isinstance(instruction.op, LoopOperation) and instruction.op.is_one_kernel()


# --- Reshapes between producers and loops -----------------------------------------------------------------------------


def _cut_into_steps_first(program: Program) -> Program:
    """Move a reshape (T B, ...) -> (T, B, ...) before its elementwise producers if only loops read the sequence."""
    users = users_of(program)
    makers = makers_in(program)
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        out = instruction.outputs[0]
        if _cuts_into_steps(instruction) and all(
            user is not None and _is_kernel(user) and out in _sequences_of(user) for user in users.get(out, [None])
        ):
            (batch,) = instruction.inputs
            instructions += _cut_producers(instruction, batch, {batch: out}, makers, users)
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _cuts_into_steps(instruction: Instruction) -> bool:
    """True for a reshape (T B, ...) -> (T, B, ...)."""
    if not isinstance(instruction.op, Reshape):
        return False
    shape, before = instruction.outputs[0].shape, instruction.inputs[0].shape
    return before[:1] not in ((), (1,)) and len(shape) == len(before) + 1 and shape[2:] == before[1:]


def _sequences_of(instruction: Instruction) -> tuple[Any, ...]:
    body = loop_of(instruction).body
    return instruction.inputs[len(body.carry) :][: len(body.xs)]


def _cut_producers(
    cut: Instruction, batch: Value, known: dict[Value, Value], makers: dict[Value, Instruction], users: Users
) -> list[Instruction]:
    """Recompute `batch` as a sequence, from reshaped operands; `known` maps each batch (T B, ...) to its sequence."""
    maker, sequence = makers.get(batch), known[batch]
    # The operands with a batch axis.
    own = [x for x in dict.fromkeys(values_in(maker)) if _is_sequence_for(x, batch)] if maker else []
    if (
        maker is None
        or not isinstance(maker.op, Elementwise)
        or not is_elementwise(maker)
        # If the result has other users, recomputing it must not need more memory traffic than reading it.
        or (len(users[batch]) > 1 and (maker.op.slow_calls or len(own) > 1))
    ):
        return [with_inputs(cut, [batch], [sequence], attrs={"shape": sequence.shape})]
    instructions: list[Instruction] = []
    for x in own:
        if x not in known:
            known[x] = Value(x.trace, (*sequence.shape[:2], *x.shape[1:]), x.dtype)
            instructions += _cut_producers(cut, x, known, makers, users)
    inputs = [known[x] if isinstance(x, Value) and x in own else x for x in maker.inputs]
    return [*instructions, with_inputs(maker, inputs, [sequence])]


# --- Producers --------------------------------------------------------------------------------------------------------


def _fuse_producers(program: Program) -> Program:
    """Fuse elementwise instructions into all loops that read their sequence, if it has no other users."""
    users = users_of(program)
    producers: dict[Value, Instruction] = {}
    # In reverse order, so that whole chains are fused: for exp(x + b), exp is fused before x + b is considered.
    for instruction in reversed(program.instructions):
        out = instruction.outputs[0]
        if not is_elementwise(instruction) or out.shape[:1] in ((), (1,)):
            continue
        # Each operand must be a sequence with the same number of steps, or loop-invariant.
        ndim, steps = len(out.shape), out.shape[0]
        per_step = all(len(x.shape) < ndim or x.shape[0] == steps for x in values_in(instruction))
        if per_step and all(_takes(user, out, producers) for user in users.get(out, [None])):
            producers[out] = instruction
    order = {id(instruction): number for number, instruction in enumerate(program.instructions)}
    instructions = [
        _with_producers(instruction, producers, order) if _is_kernel(instruction) else instruction
        for instruction in program.instructions
    ]
    return program._replace(instructions=instructions)


def _takes(user: Instruction | None, sequence: Value, producers: dict[Value, Instruction]) -> bool:
    """True if a user of a sequence can absorb its producer: a loop, or another producer that is fused."""
    if user is None:
        return False
    if isinstance(user.op, LoopOperation):
        return _is_kernel(user) and user.op.loop.recompute is None
    out = user.outputs[0]
    return producers.get(out) is user and _is_sequence_for(sequence, out)


def _is_sequence_for(x: Value, out: Value) -> bool:
    """True if an operand has the time axis of the producer's result `out`, and is not broadcast along it."""
    return len(x.shape) == len(out.shape) and x.shape[0] == out.shape[0]


def _with_producers(
    instruction: Instruction, producers: dict[Value, Instruction], order: dict[int, int]
) -> Instruction:
    body = loop_of(instruction).body
    if loop_of(instruction).recompute is not None:
        return instruction
    first, last = len(body.carry), len(body.carry) + len(body.xs)
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    fused: list[tuple[int, Instruction]] = []
    inner: dict[Value, Value] = {}  # maps a Value of the Program to a Value of the body; a sequence to one step
    waiting = list(zip(instruction.inputs[first:last], body.xs, strict=True))
    xs: list[tuple[Value, Tensor]] = []
    while waiting:
        sequence, slot = waiting.pop(0)
        producer = producers.get(sequence)
        if producer is None or len(fused) >= MAX_INSTRUCTIONS:
            xs.append((sequence, slot))
            continue
        inputs: list[Any] = []
        for x in producer.inputs:
            if isinstance(x, Value) and x not in inner:
                varies = _is_sequence_for(x, sequence)
                inner[x] = Value(body.trace, x.shape[1:] if varies else x.shape, x.dtype)
                (waiting if varies else consts).append((x, wrap(inner[x])))
            inputs.append(inner[x] if isinstance(x, Value) else x)
        fused.append((order[id(producer)], with_inputs(producer, inputs, [slot._data])))
    if not fused:
        return instruction
    # The walk above found the producers backwards. Sort them by their order in the Program, which respects their
    # dependencies.
    fused.sort(key=lambda numbered: numbered[0])
    larger = _enlarged(instruction, [inside for _, inside in fused], xs, consts)
    # A kernel with products cannot read operands with other rows. If fusion has added one, keep the original loop.
    return larger if _is_kernel(larger) else instruction


def _enlarged(
    instruction: Instruction,
    producers: list[Instruction],
    xs: Sequence[tuple[Any, Tensor]],
    consts: Sequence[tuple[Any, Tensor]],
) -> Instruction:
    """The loop with `producers` before its step; `xs` and `consts` are pairs (outer Value, Tensor of the body)."""
    body = loop_of(instruction).body
    producers = [*producers, *body.fused_producers]
    larger = replace(body, fused_producers=producers, xs=[x for _, x in xs], consts=[x for _, x in consts])
    inputs = [*instruction.inputs[: len(body.carry)], *(x for x, _ in xs), *(x for x, _ in consts)]
    return with_body(instruction, larger, inputs, instruction.outputs)


# --- Sums over time ---------------------------------------------------------------------------------------------------


def _fuse_sums(program: Program) -> Program:
    users = users_of(program)
    instructions: list[Instruction] = []
    replaced: dict[int, Instruction | None] = {}  # by id of a sum: the remaining sum over other axes, or None
    for instruction in program.instructions:
        if id(instruction) in replaced:
            rest = replaced[id(instruction)]
            instructions += [] if rest is None else [rest]
        elif _is_kernel(instruction):
            instructions.append(_with_sums(instruction, users, replaced))
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _with_sums(instruction: Instruction, users: Users, replaced: dict[int, Instruction | None]) -> Instruction:
    body = loop_of(instruction).body
    first, sums, fused_sums = len(body.after), list(body.sums), list(body.fused_sums)
    outputs = list(instruction.outputs)
    for y, value in zip(body.ys, instruction.outputs[first : first + len(body.ys)], strict=True):
        for user in users.get(value, []):
            if user is None or not _adds_up(user) or id(user) in replaced:
                continue
            axes = tuple(axis - 1 for axis in user.attrs["axis"] if axis)
            if axes and dtypes.is_storage_only(value.dtype):
                continue  # totals over time could be rounded or overflow before the sum over the other axes
            total = Value(value.trace, value.shape[1:], value.dtype) if axes else user.outputs[0]
            sums.append(y)
            fused_sums.append(user)
            outputs.insert(first + len(body.ys) + len(sums) - 1, total)
            rest = with_inputs(user, [total], attrs={**user.attrs, "axis": axes})
            replaced[id(user)] = rest if axes else None
    if len(outputs) == len(instruction.outputs):
        return instruction
    return with_body(instruction, replace(body, sums=sums, fused_sums=fused_sums), instruction.inputs, outputs)


def _adds_up(user: Instruction) -> bool:
    return (
        isinstance(user.op, Reduction)
        and user.op.additive
        and 0 in user.attrs["axis"]
        and not user.attrs["keepdims"]
        and dtypes.is_float(user.inputs[0].dtype)
    )


def multiply_in_loops(program: Program) -> Program:
    """Fuse event-driven products into loops: into the only loop that reads the product, or that computes its operand.

        before: e = events(x); i = product_of_events(x, e, w); last, s = scan[v + i](v0, i)
        after:  e = events(x); last, s = scan[v + product_of_events(x, e, w)](v0, x, e, w)

    Without this pass, the product writes the input current of all neurons and steps to memory, and the loop reads it.
    This is more memory traffic than everything else in a spiking layer. The fused loop instead adds the matrix rows of
    a step's events, for one block of neurons at a time. The columns of this block are a strip of the matrix that stays
    in cache. The number of events is known only at run time. If there are many, or if the loop is not a single kernel,
    the product runs as a whole before the loop (`hoist.py`). A product with other users is not fused, because it must
    be written to memory anyway.
    """
    users = users_of(program)
    taken = {one.outputs[0]: one for one in program.instructions if _may_move(one, users)}
    terms = {one.inputs[-1]: one for one in program.instructions if _may_be_term(one, users)}
    if not taken and not terms:
        return program
    order = {value: number for number, one in enumerate(program.instructions) for value in one.outputs}
    instructions: list[Instruction] = []
    moved: set[Instruction] = set()
    for instruction in program.instructions:
        if instruction in moved:
            continue
        if isinstance(instruction.op, LoopOperation):
            instruction = _with_terms(_with_products(instruction, taken), terms, moved, order)
        instructions.append(instruction)
    return eliminate_dead_code(program._replace(instructions=instructions))


def _may_move(instruction: Instruction, users: Users) -> bool:
    known = isinstance(instruction.op, ProductOfEvents) and not along_rows(instruction)
    if not known and not (isinstance(instruction.op, Dot) and instruction.op.limit(*instruction.inputs) > 0):
        return False
    inner, width = instruction.inputs[-1].shape
    if not may_pay(inner, width, instruction.inputs[-1].dtype, False):
        return False
    own_users = users.get(instruction.outputs[0], [])
    user = own_users[0] if len(own_users) == 1 else None
    if user is None or not _is_kernel(user) or loop_of(user).recompute is not None:
        return False
    return instruction.outputs[0] in _sequences_of(user) and len(instruction.outputs[0].shape) > 1


def _with_products(instruction: Instruction, products: dict[Value, Instruction]) -> Instruction:
    """The loop with products fused into it, in place of their sequences."""
    body = loop_of(instruction).body
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
        inside.append(with_inputs(product, own, [slot._data]))
    return _enlarged(instruction, inside, xs, consts) if inside else instruction


def _may_be_term(instruction: Instruction, users: Users) -> bool:
    """True for an event-driven product x.T @ y, such as a weight gradient, if the sequence y has no other users."""
    if not isinstance(instruction.op, ProductOfEvents) or not along_rows(instruction):
        return False
    x, y = instruction.inputs[0], instruction.inputs[-1]
    return len(y.shape) > 1 and users[y] == [instruction] and may_pay(x.shape[-1], y.shape[-1], y.dtype, True)


def _with_terms(
    instruction: Instruction, terms: dict[Value, Instruction], moved: set[Instruction], order: dict[Value, int]
) -> Instruction:
    """The loop with the products x.T @ y of its results y fused into it as sums over time (see `_may_be_term`)."""
    body = loop_of(instruction).body
    if loop_of(instruction).recompute is not None or not _is_kernel(instruction):
        return instruction
    first, last, own = len(body.carry), len(body.carry) + len(body.xs), order[instruction.outputs[0]]
    xs, consts = list(body.xs), list(body.consts)
    sequences, fixed = list(instruction.inputs[first:last]), list(instruction.inputs[last:])
    after, results = instruction.outputs[: len(body.after)], instruction.outputs[len(body.after) :]
    rows, sums = list(zip(results, body.ys, strict=False)), list(results[len(body.ys) :])
    inside: list[Instruction] = []
    for value, y in list(rows):
        term = terms.get(value)
        # The other operands (the events of the layer's input) must be computed before the loop.
        if term is None or any(order.get(x, -1) > own for x in term.inputs[:-1]) or value.shape[1:] != y.shape:
            continue
        x, *lists, _ = term.inputs
        sequences.append(x)
        xs.append(wrap(Value(body.trace, x.shape[1:], x.dtype)))
        fixed += lists
        consts += [wrap(Value(body.trace, other.shape, other.dtype)) for other in lists]
        operands = [tensor._data for tensor in (xs[-1], *consts[len(consts) - len(lists) :])]
        total = Value(body.trace, term.outputs[0].shape, term.outputs[0].dtype)
        inside.append(with_inputs(term, [*operands, body.trace.lift(y)], [total]))
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
        sums=[*body.sums, *map(wrap, results_of(*inside))],
        fused_users=[*body.fused_users, *inside],
    )
    inputs = [*instruction.inputs[:first], *sequences, *fixed]
    return with_body(instruction, larger, inputs, [*after, *(value for value, _ in rows), *sums])
