"""Fusion of pooling into loops over time: of the results of a loop, and of the gradients that a loop reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from snncell.compiler.ir.operations import Reduction, Reshape
from snncell.compiler.ir.program import (
    Program,
    Users,
    is_kernel,
    loop_of,
    makers_in,
    sequences_of,
    users_of,
    with_body,
    with_inputs,
)
from snncell.compiler.ir.windows import is_reduction_of_windows, is_spread, obstacle_to_parts
from snncell.compiler.passes.fuse_into_loops import enlarge_loop
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction

Makers = dict[Value, Instruction]


def pool_in_loops(program: Program) -> Program:
    """Fuse pooling of a loop's results into the loop, and the gradient of pooling into the loop that reads it.

        before: last, s = scan(v0, x); p, places = max_pool(reshape(s)); y = conv(p, w)
        after:  last, q, places = scan[max_pool](v0, x); p = reshape(q); y = conv(p, w)
        before: ds = reshape(unpool(dp, places)); dv, dx = scan(dv0, ds)
        after:  dv, dx = scan[unpool](dv0, dp, places)

    Without this pass, memory traffic is several times as large: the loop writes all spikes, and pooling reads them. In
    the backward pass, `unpool` writes a gradient as large as the spikes, and the loop reads it. After this pass, the
    loop pools the spikes of a block at each step, while they are in cache, and writes spikes only if something else
    needs them. The backward loop lays out the gradients of a block's windows at each step.

    Windows must tile the images, so that a block needs only its own windows (`obstacle_to_parts`). Bits do not change:
    the same functions pool in the loop and outside of it (`kernels/windows.py`).
    """
    users, makers = users_of(program), makers_in(program)
    pools: dict[Instruction, list[Instruction]] = {}  # for each loop, the pooling of its results
    spreads: dict[Value, Instruction] = {}  # for each sequence that a loop reads, the instruction that computes it
    for one in program.instructions:
        if is_reduction_of_windows(one) and _obstacle_to_pool(one, makers) is None:
            pools.setdefault(makers[makers[one.inputs[0]].inputs[0]], []).append(one)
        elif is_spread(one) and _obstacle_to_spread(one, users, makers) is None:
            (cut,) = users[one.outputs[0]]
            assert cut is not None  # `_obstacle_to_spread` has checked it
            spreads[cut.outputs[0]] = one
    if not pools and not spreads:
        return program
    moved = {one for own in pools.values() for one in own}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if instruction in moved:
            continue
        own = pools.get(instruction, [])
        if is_kernel(instruction) and not spreads.keys().isdisjoint(sequences_of(instruction)):
            before, instruction = _with_spreads(instruction, spreads, makers)
            instructions += before
        larger, after = _with_pools(instruction, own, makers) if own else (instruction, [])
        instructions += [larger, *after]
    return eliminate_dead_code(program._replace(instructions=instructions))


def obstacle_to_fusion(instruction: Instruction, program: Program) -> str | None:
    """The reason why pooling or its gradient is not fused into a loop over time, for `explain`; None if it is legal."""
    users, makers = users_of(program), makers_in(program)
    if is_reduction_of_windows(instruction):
        return _obstacle_to_pool(instruction, makers)
    if is_spread(instruction):
        return _obstacle_to_spread(instruction, users, makers)
    return None


def _separates(sequence: Value, batch: Value) -> bool:
    """True if a reshape between two Values only separates or merges the axes of time and batch."""
    return len(sequence.shape) == len(batch.shape) + 1 and sequence.shape[2:] == batch.shape[1:]


# --- Pooling of results -----------------------------------------------------------------------------------------------


def _obstacle_to_pool(instruction: Instruction, makers: Makers) -> str | None:
    """The reason why pooling cannot be fused into the loop that computes its operand; None if it can."""
    merge = makers.get(instruction.inputs[0])
    loop = makers.get(merge.inputs[0]) if merge is not None and isinstance(merge.op, Reshape) else None
    if merge is None or loop is None or not is_kernel(loop) or not _separates(merge.inputs[0], merge.outputs[0]):
        return "its operand is not the result of a loop over time that is one kernel"
    body = loop_of(loop).body
    place = loop.outputs.index(merge.inputs[0]) - len(body.after)
    if not 0 <= place < len(body.ys):
        return "its operand is not a result per step of the loop"
    if any(isinstance(one.op, Reduction) for one in body.fused_users):
        return "the loop also sums over neurons, in blocks that are not rows of windows"
    return _obstacle_to_loop(loop) or obstacle_to_parts(instruction)


def _obstacle_to_loop(loop: Instruction) -> str | None:
    if not loop_of(loop).body.carry:
        return "the loop has no states, so all of its steps are computed at once"
    if loop_of(loop).recompute is not None:
        return "the loop recomputes the states between checkpoints"
    return None


def _with_pools(
    instruction: Instruction, pools: Sequence[Instruction], makers: Makers
) -> tuple[Instruction, list[Instruction]]:
    """The loop after fusion of pooling, and the reshapes of the pooled sequences to batches (T B, ...)."""
    body = loop_of(instruction).body
    first = len(body.after)
    results = list(zip(instruction.outputs[first:], body.ys, strict=False))
    inside, more, after = list[Instruction](), list[tuple[Value, Tensor]](), list[Instruction]()
    for pool in pools:
        merge = makers[pool.inputs[0]]
        image = next(y for value, y in results if value is merge.inputs[0])
        own = [Value(body.trace, (image.shape[0], *out.shape[1:]), out.dtype) for out in pool.outputs]
        inside.append(with_inputs(pool, [body.trace.lift(image)], own))
        for inner, out in zip(own, pool.outputs, strict=True):
            sequence = Value(out.trace, (*merge.inputs[0].shape[:2], *out.shape[1:]), out.dtype)
            more.append((sequence, wrap(inner)))
            after.append(with_inputs(merge, [sequence], [out], attrs={"shape": out.shape}))
    ys = [*body.ys, *(y for _, y in more)]
    larger = replace(body, ys=ys, fused_users=[*body.fused_users, *inside])
    others = instruction.outputs[first + len(body.ys) :]
    outputs = [*instruction.outputs[:first], *(x for x, _ in results), *(x for x, _ in more), *others]
    return with_body(instruction, larger, instruction.inputs, outputs), after


# --- Gradients of pooling ---------------------------------------------------------------------------------------------


def _obstacle_to_spread(instruction: Instruction, users: Users, makers: Makers) -> str | None:
    """The reason why a gradient of pooling cannot be fused into the loop that reads it; None if it can."""
    out = instruction.outputs[0]
    cut, *others = users.get(out, [None])
    sequence = None if cut is None or others else cut.outputs[0]
    if cut is None or sequence is None or not isinstance(cut.op, Reshape) or not _separates(sequence, out):
        return "not only a loop over time reads its result"
    for loop in users.get(sequence, [None]):
        if loop is None or not is_kernel(loop) or sequence not in sequences_of(loop):
            return "not only loops over time that are one kernel read its result"
        if loop.inputs.count(sequence) > 1:
            return "the loop reads its result twice"
        if any(state._data.shape != sequence.shape[1:] for state in loop_of(loop).body.carry):
            return "the loop broadcasts its result"
        if (reason := _obstacle_to_loop(loop)) is not None:
            return reason
    return obstacle_to_parts(instruction)


def _with_spreads(
    instruction: Instruction, spreads: dict[Value, Instruction], makers: Makers
) -> tuple[list[Instruction], Instruction]:
    """The loop after fusion of the gradients of pooling that it reads, and before it the sequences it reads instead."""
    body = loop_of(instruction).body
    last = len(body.carry) + len(body.xs)
    before, inside, xs = list[Instruction](), list[Instruction](), list[tuple[Any, Tensor]]()
    for sequence, slot in zip(sequences_of(instruction), body.xs, strict=True):
        spread = spreads.get(sequence)
        if spread is None:
            xs.append((sequence, slot))
            continue
        cut = makers[sequence]
        for x in spread.inputs:
            own = Value(x.trace, (*sequence.shape[:2], *x.shape[1:]), x.dtype)
            before.append(with_inputs(cut, [x], [own], attrs={"shape": own.shape}))
            xs.append((own, wrap(Value(body.trace, own.shape[1:], own.dtype))))
        operands = [tensor._data for _, tensor in xs[len(xs) - len(spread.inputs) :]]
        inside.append(with_inputs(spread, operands, [slot._data]))
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    return before, enlarge_loop(instruction, inside, xs, consts)
