"""Producer and consumer fusion for loops over time: elementwise producers of their sequences, sums of their results.

    before: y = add(x, b); last, s = scan[v + y](v0, y); total = sum(s, axis=0)
    after:  last, total = scan[v + (x + b), sums s](v0, x, b)

A bias added before a neuron, or a mean over time after it, would each read a whole sequence once more and write one;
inside the loop they are a few instructions on registers. A producer goes into every loop that takes its
sequence, and is then computed in each, so all users must be loops that are a single kernel: for any other the sequence
would have to be written all the same. Loops that recompute states take their sequences as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.formula import MAX_INSTRUCTIONS, Elementwise, Reduction, is_elementwise
from snncell.compiler.ir.loop import LoopOperation, with_body
from snncell.compiler.ir.program import Program, users_of, values_in
from snncell.compiler.ir.views import Reshape
from snncell.compiler.passes.simplify import eliminate_dead_code
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def fuse_into_loops(program: Program) -> Program:
    """Make elementwise producers and sums over time part of the loops that they stand next to."""
    if not any(isinstance(instruction.op, LoopOperation) for instruction in program.instructions):
        return program
    return eliminate_dead_code(_fuse_sums(_fuse_producers(_cut_into_steps_first(program))))


def _is_kernel(instruction: Instruction | None) -> bool:
    return instruction is not None and isinstance(instruction.op, LoopOperation) and instruction.op.is_one_kernel()


# --- reshapes between producers and loops -----------------------------------------------------------------------------


def _cut_into_steps_first(program: Program) -> Program:
    """Have producers that work on all steps as one batch work on sequences, where only loops take their result so."""
    users = users_of(program)
    makers = {instruction.outputs[0]: instruction for instruction in program.instructions}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        out = instruction.outputs[0]
        if _cuts_into_steps(instruction) and all(
            _takes_as_sequence(user, instruction) for user in users.get(out, [None])
        ):
            instructions += _cut_producers(
                instruction, instruction.inputs[0], {instruction.inputs[0]: out}, makers, users
            )
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _cuts_into_steps(instruction: Instruction) -> bool:
    """True for (T B, ...) -> (T, B, ...)."""
    if (
        not isinstance(instruction.op, Reshape)
        or not instruction.inputs[0].shape
        or instruction.inputs[0].shape[0] == 1
    ):
        return False
    shape, before = instruction.outputs[0].shape, instruction.inputs[0].shape
    return len(shape) == len(before) + 1 and shape[2:] == before[1:]


def _takes_as_sequence(user: Instruction | None, cut: Instruction) -> bool:
    return user is not None and _is_kernel(user) and cut.outputs[0] in _sequences_of(user)


def _sequences_of(instruction: Instruction) -> tuple[Any, ...]:
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    first = len(instruction.op.loop.body.carry)
    return instruction.inputs[first : first + len(instruction.op.loop.body.xs)]


def _cut_producers(
    cut: Instruction,
    batch: Value,
    known: dict[Value, Value],
    makers: dict[Value, Instruction],
    users: dict[Value, list[Instruction | None]],
) -> list[Instruction]:
    """Instructions that give `batch` cut into steps, from cut operands; `known` has the sequence of each batch."""
    maker, sequence = makers.get(batch), known[batch]
    if maker is None or not is_elementwise(maker) or (len(users[batch]) > 1 and not _is_cheap_to_repeat(maker)):
        new = Instruction(cut.op, (batch,), {"shape": sequence.shape}, cut.line)
        new.outputs = (sequence,)
        return [new]
    instructions: list[Instruction] = []
    for x in _batches_of(maker):
        if x not in known:
            known[x] = Value(x.trace, (*sequence.shape[:2], *x.shape[1:]), x.dtype)
            instructions += _cut_producers(cut, x, known, makers, users)
    own = _batches_of(maker)
    inputs = tuple(known[x] if isinstance(x, Value) and x in own else x for x in maker.inputs)
    new = Instruction(maker.op, inputs, maker.attrs, maker.line)
    new.outputs = (sequence,)
    return [*instructions, new]


def _is_cheap_to_repeat(maker: Instruction) -> bool:
    """True if to compute a result once more takes no more memory traffic than to read it."""
    assert isinstance(maker.op, Elementwise)  # the caller's choice
    return not maker.op.slow_calls and len(_batches_of(maker)) <= 1


def _batches_of(maker: Instruction) -> list[Value]:
    """The operands that are different for each element of the batch."""
    out = maker.outputs[0]
    return [x for x in dict.fromkeys(values_in(maker)) if _is_sequence_for(x, out)]


# --- producers --------------------------------------------------------------------------------------------------------


def _fuse_producers(program: Program) -> Program:
    """Make elementwise instructions part of all loops that take their sequence, if nothing else takes it."""
    users = users_of(program)
    producers: dict[Value, Instruction] = {}
    # From the last instruction to the first, so that chains go in whole: exp(x + b) is fused before x + b is asked.
    for instruction in reversed(program.instructions):
        out = instruction.outputs[0]
        if (
            is_elementwise(instruction)
            and _runs_per_step(instruction, out)
            and all(_takes(user, out, producers) for user in users.get(out, [None]))
        ):
            producers[out] = instruction
    order = {id(instruction): number for number, instruction in enumerate(program.instructions)}
    instructions = [
        _with_producers(instruction, producers, order) if _is_kernel(instruction) else instruction
        for instruction in program.instructions
    ]
    return program._replace(instructions=instructions)


def _takes(user: Instruction | None, sequence: Value, producers: dict[Value, Instruction]) -> bool:
    """True if a user of a sequence can hold its producer: a loop, or another producer that is fused."""
    if user is None:
        return False
    if isinstance(user.op, LoopOperation):
        return _is_kernel(user) and user.op.loop.recompute is None
    out = user.outputs[0]
    return producers.get(out) is user and _is_sequence_for(sequence, out)


def _is_sequence_for(x: Value, out: Value) -> bool:
    """True if an operand of a producer has the time axis of its result `out`, and is not broadcast along it."""
    return len(x.shape) == len(out.shape) and x.shape[0] == out.shape[0]


def _with_producers(
    instruction: Instruction, producers: dict[Value, Instruction], order: dict[int, int]
) -> Instruction:
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    if instruction.op.loop.recompute is not None:
        return instruction
    body = instruction.op.loop.body
    first, last = len(body.carry), len(body.carry) + len(body.xs)
    consts = list(zip(instruction.inputs[last:], body.consts, strict=True))
    fused: list[tuple[int, Instruction]] = []
    inner: dict[Value, Value] = {}  # for a Value of the Program, the Value of the body: of a sequence, one step
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
        inside = Instruction(producer.op, tuple(inputs), producer.attrs, producer.line)
        inside.outputs = (slot._data,)
        fused.append((order[id(producer)], inside))
    if not fused:
        return instruction
    # They were found from the loop backwards, in no order; that of the Program is one in which they can run.
    fused.sort(key=lambda numbered: numbered[0])
    larger_body = replace(
        body,
        fused_producers=[*(inside for _, inside in fused), *body.fused_producers],
        xs=[slot for _, slot in xs],
        consts=[slot for _, slot in consts],
    )
    inputs = [*instruction.inputs[:first], *(x for x, _ in xs), *(x for x, _ in consts)]
    larger = with_body(instruction, larger_body, inputs, instruction.outputs)
    return (
        larger if _is_kernel(larger) else instruction
    )  # a kernel with products has no room for operands of other rows


def _runs_per_step(producer: Instruction, out: Value) -> bool:
    """True if each operand is a sequence of as many steps, or the same at every step."""
    if not out.shape or out.shape[0] == 1:
        return False
    return all(len(x.shape) < len(out.shape) or x.shape[0] == out.shape[0] for x in values_in(producer))


# --- sums over time ---------------------------------------------------------------------------------------------------


def _fuse_sums(program: Program) -> Program:
    """Have loops add up those of their results that are summed over time."""
    users = users_of(program)
    instructions: list[Instruction] = []
    replaced: dict[int, Instruction | None] = {}  # by id of a sum: None, or the sum over other axes that is left of it
    for instruction in program.instructions:
        if id(instruction) in replaced:
            rest = replaced[id(instruction)]
            instructions += [] if rest is None else [rest]
        elif _is_kernel(instruction):
            instructions.append(_with_sums(instruction, users, replaced))
        else:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def _with_sums(
    instruction: Instruction, users: dict[Value, list[Instruction | None]], replaced: dict[int, Instruction | None]
) -> Instruction:
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    body = instruction.op.loop.body
    first, sums, fused_sums, outputs = (
        len(body.after),
        list(body.sums),
        list(body.fused_sums),
        list(instruction.outputs),
    )
    for y, value in zip(body.ys, instruction.outputs[first : first + len(body.ys)], strict=True):
        for user in users.get(value, []):
            if user is None or not _adds_up(user) or id(user) in replaced:
                continue
            axes = tuple(axis - 1 for axis in user.attrs["axis"] if axis)
            if axes and dtypes.is_storage_only(value.dtype):
                # The loop gives totals over time in the storage format: they would be rounded, or infinite, before
                # the other axes are added up.
                continue
            total = Value(value.trace, value.shape[1:], value.dtype) if axes else user.outputs[0]
            sums.append(y)
            fused_sums.append(user)
            outputs.insert(first + len(body.ys) + len(sums) - 1, total)
            replaced[id(user)] = None
            if axes:
                rest = Instruction(user.op, (total,), {**user.attrs, "axis": axes}, user.line)
                rest.outputs = user.outputs
                replaced[id(user)] = rest
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
