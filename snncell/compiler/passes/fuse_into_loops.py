"""Fusion into loops over time: elementwise producers and users of sequences, and sums of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, Reduction, Sum, can_sum_early, is_elementwise
from snncell.compiler.ir.program import (
    LoopOperation,
    Program,
    Users,
    is_kernel,
    is_sequence_for,
    loop_of,
    users_of,
    values_in,
    with_body,
    with_inputs,
)
from snncell.compiler.passes.separate_steps import is_cheap
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.kernels.intrinsics.broadcast import block_sum
from snncell.kernels.loops import block_of
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction


def fuse_into_loops(program: Program) -> Program:
    """Fuse elementwise producers, elementwise users and sums over time into neighbouring loops.

        before: y = add(x, b); last, s = scan[v + y](v0, y); z = mul(s, w); total = sum(z, axis=0)
        after:  last, total = scan[v + (x + b), sums s * w](v0, x, b, w)

    For example, a bias added before a neuron, the gradient of a factor, or a mean over time would each read and write a
    whole sequence. Inside of the loop they are a few instructions on registers. A producer is fused into all loops that
    read its sequence, if each of them is a single kernel, because then the sequence is not written to memory. A cheap
    producer is also fused if other users are elementwise instructions, which compute it again. Only sums are fused into
    a backward loop of `checkpoint_every`, which recomputes states.
    """
    if not any(isinstance(instruction.op, LoopOperation) for instruction in program.instructions):
        return program
    return eliminate_dead_code(_fuse_sums(_fuse_producers(_fuse_users(program))))


# --- Producers --------------------------------------------------------------------------------------------------------


def _fuse_producers(program: Program) -> Program:
    """Fuse elementwise instructions into the loops that read their results, if each user is a kernel that recomputes no
    states, or is fused too. For a cheap instruction, one such user is enough, if the others are kernels or elementwise.
    """
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
        takes = [_can_absorb(user, out, producers) for user in users.get(out, [None])]
        if per_step and (all(takes) or (any(takes) and is_cheap(instruction) and _is_read_by_kernels(out, users))):
            producers[out] = instruction
    order = {instruction: number for number, instruction in enumerate(program.instructions)}
    instructions = [
        _with_producers(instruction, producers, order) if is_kernel(instruction) else instruction
        for instruction in program.instructions
    ]
    return program._replace(instructions=instructions)


def _is_read_by_kernels(sequence: Value, users: Users) -> bool:
    """True if all users are kernels or elementwise instructions, so that only recomputing kernels need it in memory."""
    return all(user is not None and (is_elementwise(user) or is_kernel(user)) for user in users[sequence])


def _can_absorb(user: Instruction | None, sequence: Value, producers: dict[Value, Instruction]) -> bool:
    """True if the producer of `sequence` can be fused into a user: a loop, or another producer that is fused."""
    if user is None:
        return False
    if isinstance(user.op, LoopOperation):
        return is_kernel(user) and user.op.loop.recompute is None
    out = user.outputs[0]
    return producers.get(out) is user and is_sequence_for(sequence, out)


def _with_producers(
    instruction: Instruction, producers: dict[Value, Instruction], order: dict[Instruction, int]
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
                varies = is_sequence_for(x, sequence)
                inner[x] = Value(body.trace, x.shape[1:] if varies else x.shape, x.dtype)
                (waiting if varies else consts).append((x, wrap(inner[x])))
            inputs.append(inner[x] if isinstance(x, Value) else x)
        fused.append((order[producer], with_inputs(producer, inputs, [slot._data])))
    if not fused:
        return instruction
    # The search started at the loop and found the last producer first. Restore the order of the Program.
    fused.sort(key=lambda numbered: numbered[0])
    larger = enlarge_loop(instruction, [inside for _, inside in fused], xs, consts)
    # In a kernel with products, all Values must have the same number of rows. If the fused Values have another number,
    # the enlarged loop is not a kernel: keep the original loop.
    return larger if is_kernel(larger) else instruction


def enlarge_loop(
    instruction: Instruction,
    producers: list[Instruction],
    xs: Sequence[tuple[Any, Tensor]],
    consts: Sequence[tuple[Any, Tensor]],
    outputs: Sequence[Value] | None = None,
    **changes: Any,
) -> Instruction:
    """The loop with `producers` before its step. `xs` and `consts` are pairs (outer Value, Tensor of the body).
    `outputs` replaces the results of the loop, and `changes` other fields of its body.
    """
    body = loop_of(instruction).body
    producers = [*producers, *body.fused_producers]
    larger = replace(body, fused_producers=producers, xs=[x for _, x in xs], consts=[x for _, x in consts], **changes)
    inputs = [*instruction.inputs[: len(body.carry)], *(x for x, _ in xs), *(x for x, _ in consts)]
    return with_body(instruction, larger, inputs, instruction.outputs if outputs is None else outputs)


# --- Users ------------------------------------------------------------------------------------------------------------


def _fuse_users(program: Program) -> Program:
    """Fuse elementwise instructions on the results of a loop into the loop, if less memory is then read and written. An
    instruction is fused if its result is not stored, because it is only summed over time, as in the gradient of a
    factor, or only read by fused instructions. If its result is stored, it is fused only if no value of the loop that
    it reads must be stored as well. For example, if s is only used in s * 2 and s * 3 - 1, the loop stores these two
    sequences instead of s, which was written once and read again.
    """
    users = users_of(program)
    order = {value: number for number, one in enumerate(program.instructions) for value in one.outputs}
    moved: set[Instruction] = set()
    instructions: list[Instruction] = []
    for number, instruction in enumerate(program.instructions):
        if instruction in moved:
            continue
        if is_kernel(instruction) and loop_of(instruction).recompute is None:
            own = _users_to_fuse(instruction, program.instructions[number + 1 :], users, order)
            larger = _with_users(instruction, own, users) if own else instruction
            # If the enlarged loop is not a single kernel, keep the original loop (see `_with_producers`).
            if larger is not instruction and is_kernel(larger):
                instruction = larger
                moved.update(own)
                order.update(dict.fromkeys(instruction.outputs, number))
        instructions.append(instruction)
    return program._replace(instructions=instructions)


def _results_of_loop(instruction: Instruction) -> Sequence[Value]:
    body = loop_of(instruction).body
    return instruction.outputs[len(body.after) :][: len(body.ys)]


def _users_to_fuse(
    loop: Instruction, following: Sequence[Instruction], users: Users, order: dict[Value, int]
) -> list[Instruction]:
    results, first = set(_results_of_loop(loop)), order[loop.outputs[0]]
    shapes = {value.shape for value in results if len(value.shape) > 1 and value.shape[0] > 1}
    while True:
        inside, found = set(results), list[Instruction]()
        for instruction in following:
            values, out = values_in(instruction), instruction.outputs[0]
            if not is_elementwise(instruction) or out.shape not in shapes or inside.isdisjoint(values):
                continue
            # The other operands must be computed before the loop. Each must be loop-invariant, or a sequence with as
            # many steps as the loop.
            others = [x for x in values if x not in inside]
            known = all(
                order.get(x, -1) < first and (len(x.shape) < len(out.shape) or x.shape[0] == out.shape[0])
                for x in others
            )
            if known and len(found) < MAX_INSTRUCTIONS:
                found.append(instruction)
                inside.add(out)
        stored = _values_to_store(inside, found, users)
        following = [one for one in found if one.outputs[0] not in stored or stored.isdisjoint(values_in(one))]
        if len(following) == len(found):
            return found


def _values_to_store(values: set[Value], fused: Sequence[Instruction], users: Users) -> set[Value]:
    """Select the Values that the loop must store: those with a user that is neither fused nor a sum over time."""
    own = set(fused)
    return {x for x in values if any(user is None or not (user in own or _adds_up(user)) for user in users.get(x, []))}


def _with_users(instruction: Instruction, fused: Sequence[Instruction], users: Users) -> Instruction:
    body = loop_of(instruction).body
    first, last = len(body.after), len(body.carry) + len(body.xs)
    xs = list(zip(instruction.inputs[len(body.carry) : last], body.xs, strict=True))
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    results = list(zip(_results_of_loop(instruction), body.ys, strict=True))
    inner = {x: tensor._data for x, tensor in (*xs, *consts) if isinstance(x, Value)}
    inner.update((value, body.trace.lift(y)) for value, y in results)
    inside: list[Instruction] = []
    for one in fused:
        out = one.outputs[0]
        for x in values_in(one):
            if x not in inner:
                varies = is_sequence_for(x, out)
                inner[x] = Value(body.trace, x.shape[1:] if varies else x.shape, x.dtype)
                (xs if varies else consts).append((x, wrap(inner[x])))
        inner[out] = Value(body.trace, out.shape[1:], out.dtype)
        inputs = [inner[x] if isinstance(x, Value) else x for x in one.inputs]
        inside.append(with_inputs(one, inputs, [inner[out]]))
        if any(user not in fused for user in users.get(out, [])):
            results.append((out, wrap(inner[out])))
    ys, users_inside = [y for _, y in results], [*body.fused_users, *inside]
    outputs = [*instruction.outputs[:first], *(x for x, _ in results), *instruction.outputs[first + len(body.ys) :]]
    return enlarge_loop(instruction, [], xs, consts, outputs, ys=ys, fused_users=users_inside)


# --- Sums over time ---------------------------------------------------------------------------------------------------


def _fuse_sums(program: Program) -> Program:
    users = users_of(program)
    instructions: list[Instruction] = []
    replaced: dict[Instruction, list[Instruction]] = {}  # for a fused sum, the remaining sum over other axes, if any
    for instruction in program.instructions:
        if instruction in replaced:
            instructions += replaced[instruction]
        elif is_kernel(instruction):
            instructions.append(_with_sums(instruction, users, replaced))
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _with_sums(instruction: Instruction, users: Users, replaced: dict[Instruction, list[Instruction]]) -> Instruction:
    body = loop_of(instruction).body
    first, sums, fused_sums = len(body.after), list(body.sums), list(body.fused_sums)
    outputs = list(instruction.outputs)
    for y, value in zip(body.ys, instruction.outputs[first : first + len(body.ys)], strict=True):
        for user in users.get(value, []):
            if user is None or not _adds_up(user) or user in replaced:
                continue
            axes = _other_axes(user)
            total = Value(value.trace, value.shape[1:], value.dtype) if axes else user.outputs[0]
            sums.append(y)
            fused_sums.append(user)
            outputs.insert(first + len(body.ys) + len(sums) - 1, total)
            replaced[user] = [with_inputs(user, [total], attrs={**user.attrs, "axis": axes})] if axes else []
    if len(outputs) == len(instruction.outputs):
        return instruction
    return with_body(instruction, replace(body, sums=sums, fused_sums=fused_sums), instruction.inputs, outputs)


def _other_axes(user: Instruction) -> tuple[int, ...]:
    """The axes other than time that a sum over time also reduces, as axes of a step."""
    return tuple(axis - 1 for axis in user.attrs["axis"] if axis)


def _adds_up(user: Instruction) -> bool:
    """True for a sum over time, and perhaps over other axes, if a loop can compute the sum over time."""
    return (
        isinstance(user.op, Reduction)
        and user.op.additive
        and 0 in user.attrs["axis"]
        and not user.attrs["keepdims"]
        and dtypes.is_float(user.inputs[0].dtype)
        # In float16 and bfloat16, the sums over time would be rounded, or overflow, before the sum over the other axes.
        and not (_other_axes(user) and dtypes.is_storage_only(user.inputs[0].dtype))
    )


def reduce_in_loops(program: Program) -> Program:
    """Fuse a sum over axes of the step into the loop that computes the sum over time.

        before: last, total = scan[sums d](v0, x); bias = sum(total, axis=(0, 2, 3))
        after:  last, bias = scan[sums sum(d, axis=(0, 2, 3))](v0, x)

    For example, this is the gradient of a bias or of a factor per channel. The kernel also sums over the elements of a
    block, so it does not write the sum over time of each element to memory. This pays if there are few results.
    """
    users = users_of(program)
    moved: set[Instruction] = set()
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if instruction not in moved:
            instructions.append(_with_reductions(instruction, users, moved) if is_kernel(instruction) else instruction)
    return program._replace(instructions=instructions)


def _with_reductions(instruction: Instruction, users: Users, moved: set[Instruction]) -> Instruction:
    loop = loop_of(instruction)
    body = loop.body
    if not body.carry or loop.recompute is not None:  # without states there is no loop
        return instruction
    first = len(body.after) + len(body.ys)
    own = list(zip(instruction.outputs[first:], body.sums, strict=False))
    kept: list[tuple[Value, Tensor]] = []
    inside: list[Instruction] = []
    for total, term in own:
        sums = [one for one in users.get(total, []) if one is not None and _reduces_blocks(one)]
        for one in dict.fromkeys(sums):
            out = one.outputs[0]
            inner = Value(body.trace, out.shape, out.dtype)
            inside.append(with_inputs(one, [body.trace.lift(term)], [inner]))
            kept.append((out, wrap(inner)))
            moved.add(one)
        if len(sums) < len(users.get(total, [])):
            kept.append((total, term))
    if not inside:
        return instruction
    larger = replace(body, sums=[term for _, term in kept], fused_users=[*body.fused_users, *inside])
    others = instruction.outputs[first + len(own) :]
    outputs = [*instruction.outputs[:first], *(total for total, _ in kept), *others]
    return with_body(instruction, larger, instruction.inputs, outputs)


def _reduces_blocks(user: Instruction) -> bool:
    """True for a sum of a step's axes with so few results that a loop should compute it."""
    x = user.inputs[0]
    if not isinstance(user.op, Sum) or not can_sum_early(x):
        return False
    return block_sum(x.shape, user.attrs["axis"]).is_worthwhile(block_of(math.prod(x.shape)))
