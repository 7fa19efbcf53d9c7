"""Separate the time axis from the batch next to loops, so that the instructions around a loop can be fused into it.

`nn.TimeDistributed` merges the two axes, (T, B, ...) -> (T B, ...), for example around a normalisation between a
convolution and a neuron. These reshapes are views and cost nothing, but without a time axis, the instructions between
them cannot be fused into a loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from snncell.compiler.ir.operations import (
    Broadcast,
    Elementwise,
    Reshape,
    Sum,
    can_sum_early,
    is_elementwise,
    merges_steps,
)
from snncell.compiler.ir.program import (
    LoopOperation,
    Program,
    Users,
    is_kernel,
    is_sequence_for,
    makers_in,
    sequences_of,
    users_of,
    values_in,
    with_inputs,
)
from snncell.compiler.passes.simplify import eliminate_dead_code, without_broadcasts
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


def separate_steps(program: Program) -> Program:
    """Compute on (T, B, ...) instead of (T B, ...) in elementwise instructions and sums next to loops.

        before: y = add(x, b); last, s = scan(v0, reshape(y, (T, B, C))); total = sum(reshape(s, (T B, C)), axis=(0,))
        after:  y = add(reshape(x, (T, B, C)), b); last, s = scan(v0, y); total = sum(s, axis=(0, 1))

    Here a batch is an array (T B, ...), and its sequence is the array (T, B, ...) of the same elements. A reshape is
    inserted where another instruction needs the batch. Elements keep their order, and elementwise results their bits.
    """
    if not any(isinstance(instruction.op, LoopOperation) for instruction in program.instructions):
        return program
    return _separate_before_loops(eliminate_dead_code(_separate_after_loops(program)))


def _separate_after_loops(program: Program) -> Program:
    """Move reshapes (T, B, ...) -> (T B, ...) of loop results after the elementwise instructions and sums on them."""
    users = users_of(program)
    makers = makers_in(program)
    separate: dict[Value, Value] = {}  # maps a batch (T B, ...) to its sequence (T, B, ...)
    place: dict[Value, int] = {}  # for each Value, the number of the old instruction in whose place it is now computed
    numbered: list[tuple[int, Instruction]] = []
    merge: Instruction | None = None

    def add(number: int, instruction: Instruction, early: bool = False) -> None:
        # Views and `early` instructions come directly after their operands, because a loop that reads their results may
        # follow.
        if early or instruction.op.view:
            number = max([place.get(x, -1) for x in values_in(instruction)], default=-1)
        numbered.append((number, instruction))
        place.update(dict.fromkeys(instruction.outputs, number))

    for number, instruction in enumerate(program.instructions):
        if merges_steps(instruction) and is_kernel(makers.get(instruction.inputs[0])):
            merge = instruction
            separate[instruction.outputs[0]] = instruction.inputs[0]
        batches = [x for x in dict.fromkeys(values_in(instruction)) if x in separate]
        out = instruction.outputs[0]
        if merge is None or not batches or instruction is merge:
            add(number, instruction)
            continue
        instruction = _read_small_operands(instruction, makers)
        steps = separate[batches[0]].shape[:2]
        if len({separate[x].shape[:2] for x in batches}) > 1:
            add(number, instruction)
        elif is_elementwise(instruction) and out.shape[:1] == batches[0].shape[:1]:
            for x in dict.fromkeys(values_in(instruction)):
                if x not in separate and is_sequence_for(x, out):
                    separate[x] = Value(x.trace, (*steps, *x.shape[1:]), x.dtype)
                    for one in _cut_producers(merge, x, separate, makers, users):
                        add(number, one, early=True)
            separate[out] = Value(out.trace, (*steps, *out.shape[1:]), out.dtype)
            inputs = [separate.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs]
            add(number, with_inputs(instruction, inputs, [separate[out]]))
            add(number, with_inputs(merge, [separate[out]], [out], attrs={"shape": out.shape}))
        elif isinstance(instruction.op, Sum) and 0 in instruction.attrs["axis"]:
            for one in _sum_with_steps(instruction, merge, separate, makers):
                add(number, one)
        else:
            add(number, instruction)
    numbered.sort(key=lambda one: one[0])
    return program._replace(instructions=[one for _, one in numbered])


def _sum_with_steps(
    instruction: Instruction, merge: Instruction, separate: dict[Value, Value], makers: dict[Value, Instruction]
) -> list[Instruction]:
    """A sum of a batch as a sum of its sequence; factors that are constant along the summed axes multiply the sum.

    For example, the gradients of a normalisation contain sum(d) and sum(-d * scale), which are one sum in the loop.
    """
    (x,), (out,), axes = instruction.inputs, instruction.outputs, instruction.attrs["axis"]
    factors: list[Instruction] = []
    while (factor := makers.get(x)) is not None and _commutes_with_sum(factor, axes):
        source = next(y for y in values_in(factor) if y.shape == x.shape)
        if source not in separate:
            break
        factors.append(factor)
        x = source
    attrs = {"axis": (0, *(axis + 1 for axis in axes)), "keepdims": False}
    shape = _without_axes(x.shape, axes, len(x.shape))
    total = Value(x.trace, shape, x.dtype)
    instructions = [with_inputs(instruction, [separate[x]], [total], attrs=attrs)]
    for factor in reversed(factors):
        inputs = list(factor.inputs)
        for place, y in enumerate(inputs):
            if isinstance(y, Value) and y.shape == x.shape:
                inputs[place] = total
            elif isinstance(y, Value):
                own = _without_axes(y.shape, axes, len(x.shape))
                inputs[place] = Value(y.trace, own, y.dtype)
                instructions.append(with_inputs(merge, [y], [inputs[place]], attrs={"shape": own}))
        total = Value(x.trace, shape, x.dtype)
        instructions.append(with_inputs(factor, inputs, [total]))
    if instruction.attrs["keepdims"]:
        return [*instructions, with_inputs(merge, [total], [out], attrs={"shape": out.shape})]
    last = instructions.pop()
    return [*instructions, with_inputs(last, last.inputs, [out])]


def _without_axes(shape: tuple[int, ...], axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """The shape of an operand of an array with `ndim` axes, without some of these axes."""
    return tuple(n for axis, n in enumerate(shape, ndim - len(shape)) if axis not in axes)


def _commutes_with_sum(instruction: Instruction, axes: Sequence[int]) -> bool:
    """True for -x, and for x times or divided by operands that are constant along the summed axes."""
    op, out, values = instruction.op, instruction.outputs[0], values_in(instruction)
    if not is_elementwise(instruction) or any(x.dtype != out.dtype for x in values):
        return False
    if not can_sum_early(out):  # without its factor, a sum that is stored as float16 could overflow
        return False
    varying = [isinstance(x, Value) and x.shape == out.shape for x in instruction.inputs]
    others = [x for x in values if x.shape != out.shape]
    ndim = len(out.shape)
    if sum(varying) != 1 or any(math.prod(x.shape) != math.prod(_without_axes(x.shape, axes, ndim)) for x in others):
        return False
    if op.proportional is None:
        return op.additive and len(varying) == 1
    return op.proportional(instruction.inputs, varying)


def _separate_before_loops(program: Program) -> Program:
    """Move a reshape (T B, ...) -> (T, B, ...) before its elementwise producers if only loops read the sequence."""
    users = users_of(program)
    makers = makers_in(program)
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        out = instruction.outputs[0]
        if _cuts_into_steps(instruction) and all(
            user is not None and is_kernel(user) and out in sequences_of(user) for user in users.get(out, [None])
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


def _cut_producers(
    cut: Instruction, batch: Value, known: dict[Value, Value], makers: dict[Value, Instruction], users: Users
) -> list[Instruction]:
    """Recompute `batch` as a sequence, from reshaped operands; `known` maps each batch (T B, ...) to its sequence."""
    maker, sequence = makers.get(batch), known[batch]
    if maker is not None and isinstance(maker.op, Broadcast) and not is_sequence_for(maker.inputs[0], batch):
        return [with_inputs(maker, maker.inputs, [sequence], attrs={"shape": sequence.shape})]
    maker = _read_small_operands(maker, makers) if maker else None
    if maker is None or not is_elementwise(maker) or (len(users[batch]) > 1 and not is_cheap(maker)):
        return [with_inputs(cut, [batch], [sequence], attrs={"shape": sequence.shape})]
    own = [x for x in dict.fromkeys(values_in(maker)) if is_sequence_for(x, batch)]  # the operands with a batch axis
    instructions: list[Instruction] = []
    for x in own:
        if x not in known:
            known[x] = Value(x.trace, (*sequence.shape[:2], *x.shape[1:]), x.dtype)
            instructions += _cut_producers(cut, x, known, makers, users)
    inputs = [known[x] if isinstance(x, Value) and x in own else x for x in maker.inputs]
    return [*instructions, with_inputs(maker, inputs, [sequence])]


def _read_small_operands(instruction: Instruction, makers: dict[Value, Instruction]) -> Instruction:
    """The instruction without broadcasts of its operands, because the reshape of a broadcast would be a copy."""
    first, *rest = without_broadcasts(instruction, makers)
    return instruction if rest else first


def is_cheap(instruction: Instruction) -> bool:
    """True if recomputing an elementwise result needs no more memory traffic than reading it, and no slow function."""
    assert isinstance(instruction.op, Elementwise)
    (out,) = instruction.outputs
    return not instruction.op.slow_calls and sum(is_sequence_for(x, out) for x in values_in(instruction)) <= 1
