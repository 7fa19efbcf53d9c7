"""Simplification: common subexpressions, identities, constants and dead code; and canonical Programs.

    before: a = exp(x); b = exp(x); c = neg(neg(a)); d = sin(x); return mul(c, b)
    after:  a = exp(x);                                          return mul(a, a)

All of these passes keep the bits of every result. In a canonical Program, exactly one instruction computes an
expression, so the users of its Value are all the users of the expression. Other passes rely on this property. The order
of the canonical passes matters: dead code is eliminated last, because a merged instruction leaves a dead result, and
`turn_contractions` must see only one of several equal transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.compiler.ir.operations import Broadcast, Cast, Elementwise, Reshape, Transpose
from snncell.compiler.ir.product import Contraction
from snncell.compiler.ir.program import (
    Body,
    LoopOperation,
    Program,
    bytes_of,
    program_of_trace,
    rename_inputs,
    substitute,
    users_of,
    values_in,
    with_inputs,
)
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction, Trace

FOLDED_BYTES = 1 << 20  # larger results are computed again at each run, to save memory


def eliminate_common_subexpressions(program: Program) -> Program:
    """Keep the first of equal instructions and use its results for the later ones.

        before: a = exp(x); b = exp(x); c = mul(a, b)
        after:  a = exp(x); c = mul(a, a)

    This pays because a `bprop` often repeats instructions of the forward pass or of another `bprop`. It is legal for
    all instructions, because they have no effects. For example, random numbers come from a state that is an input, and
    a write to a Parameter is not an instruction.
    """
    replaced: dict[Value, Value] = {}
    first_of: dict[Any, Instruction] = {}
    instructions = []
    for instruction in program.instructions:
        # Compare numbers by their text, because 1 == 1.0 == True and 0.0 == -0.0, but the results differ.
        operands = tuple(replaced.get(x, x) if isinstance(x, Value) else repr(x) for x in instruction.inputs)
        key = (instruction.op, operands, repr(sorted(instruction.attrs.items())))
        first = first_of.setdefault(key, instruction)
        if first is instruction:
            instructions.append(instruction)
        else:
            replaced.update(zip(instruction.outputs, first.outputs, strict=True))
    return substitute(program._replace(instructions=instructions), replaced)


def drop_identities(program: Program) -> Program:
    """Drop instructions whose result has the bits of an existing Value.

        before: a = reshape(x, x.shape); b = neg(neg(a)); c = transpose(transpose(b)); y = exp(c)
        after:  y = exp(x)

    For example, one `bprop` negates a gradient, and the next one negates it again. Identities of numbers, such as
    `x * 1.0` and `x - 0.0`, are kept. The number can be a constant that a user changes later, for example a scale that
    decays from 1.0. Without the instruction, the next value would need another kernel; with it, the value is only
    another argument.
    """
    replaced: dict[Value, Value] = {}
    makers: dict[Value, Instruction] = {}
    instructions = []
    for instruction in program.instructions:
        renamed = rename_inputs(instruction, replaced)
        source = _identical_value(renamed, makers)
        if source is None:
            instructions.append(renamed)
            makers.update(dict.fromkeys(renamed.outputs, renamed))
        else:
            replaced[instruction.outputs[0]] = source
    return substitute(program._replace(instructions=instructions), replaced)


def _identical_value(instruction: Instruction, makers: dict[Value, Instruction]) -> Value | None:
    """The existing Value with the same bits as an instruction's result, or None."""
    op, x = instruction.op, instruction.inputs[0] if instruction.inputs else None
    if not isinstance(x, Value) or len(instruction.outputs) != 1:
        return None
    (out,) = instruction.outputs
    maker = makers.get(x)
    if isinstance(op, Transpose):
        axes = instruction.attrs["axes"]
        if _in_order(axes):
            return x
        back = maker is not None and isinstance(maker.op, Transpose)
        return _operand(maker) if maker and back and _in_order([maker.attrs["axes"][axis] for axis in axes]) else None
    if isinstance(op, (Reshape, Broadcast, Cast)) and x.spec == out.spec:
        return x
    if maker is not None and maker.op is op and isinstance(op, Elementwise) and op.is_involution:
        return _operand(maker) if _operand(maker).spec == out.spec else None
    while isinstance(op, Reshape) and maker is not None and isinstance(maker.op, Reshape):
        if _operand(maker).shape == out.shape:
            return _operand(maker)
        maker = makers.get(_operand(maker))
    return None


def drop_broadcasts(program: Program) -> Program:
    """Let elementwise instructions read the operands of broadcasts. If the result is then too small, broadcast it.

        before: m = broadcast_to(mean, x.shape); y = sub(x, m)           m = broadcast_to(a, shape); y = exp(m)
        after:  y = sub(x, mean)                                         y = broadcast_to(exp(a), shape)

    The `bprop` of a sum broadcasts the gradient to the shape of the operand. A generated loop would copy this view to
    memory, element by element. A loop over time that contains the broadcast makes no copy, so this pass runs after
    fusion into loops, and drops only the broadcasts that remain.
    """
    makers: dict[Value, Instruction] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        for one in without_broadcasts(instruction, makers):
            instructions.append(one)
            makers.update(dict.fromkeys(one.outputs, one))
    return program._replace(instructions=instructions)


def without_broadcasts(instruction: Instruction, makers: dict[Value, Instruction]) -> list[Instruction]:
    """An elementwise instruction on the sources of its broadcasts; a broadcast follows if the result is too small."""
    if not isinstance(instruction.op, Elementwise):
        return [instruction]
    makers_of_inputs = [makers.get(x) if isinstance(x, Value) else None for x in instruction.inputs]
    broadcast = next((one for one in makers_of_inputs if one is not None and isinstance(one.op, Broadcast)), None)
    if broadcast is None:
        return [instruction]
    inputs = [
        x if maker is None or not isinstance(maker.op, Broadcast) else _operand(maker)
        for x, maker in zip(instruction.inputs, makers_of_inputs, strict=True)
    ]
    (out,) = instruction.outputs
    shape = np.broadcast_shapes(*(x.shape for x in inputs if isinstance(x, Value)))
    if shape == out.shape:
        return [with_inputs(instruction, inputs)]
    small = Value(out.trace, shape, out.dtype)
    return [
        with_inputs(instruction, inputs, [small]),
        with_inputs(broadcast, [small], [out], attrs={"shape": out.shape}),
    ]


def _in_order(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(len(axes)))


def _operand(instruction: Instruction) -> Value:
    x = instruction.inputs[0]
    assert isinstance(x, Value)  # of a view or an operation of one operand
    return x


def fold_constants(program: Program) -> Program:
    """Evaluate instructions that depend only on constants and numbers once, when the Program is built.

        before: c = constant; d = exp(c); y = mul(x, d)
        after:  d = constant; y = mul(x, d)

    Not folded are: instructions with more than FOLDED_BYTES of results, because these stay in memory as long as the
    Program; constants on the device, because compilation should not run there; instructions without a constant
    operand, such as `zeros(shape)`, because they read no memory; and communication with other processes.
    """
    known = {value: array for array, value in program.constants}
    instructions, constants = [], list(program.constants)
    for instruction in program.instructions:
        inputs = [known.get(x) if isinstance(x, Value) else x for x in instruction.inputs]
        size = sum(map(bytes_of, instruction.outputs))
        if instruction.op.outside or not _is_foldable(inputs) or size > FOLDED_BYTES:
            instructions.append(instruction)
            continue
        out = instruction.op.run(inputs, inputs, instruction.attrs)
        for value, array in zip(instruction.outputs, out if instruction.op.multiple else (out,), strict=True):
            known[value] = array
            constants.append((array, value))
    return eliminate_dead_code(program._replace(instructions=instructions, constants=constants))


def _is_foldable(inputs: Sequence[Any]) -> bool:
    """True for known host arrays and numbers, with at least one array; None stands for an unknown Value."""
    others = [x for x in inputs if not isinstance(x, np.ndarray)]
    return len(others) < len(inputs) and not any(x is None or hasattr(x, "shape") for x in others)


def turn_contractions(program: Program) -> Program:
    """Replace a contraction and a transpose of its result by a contraction with the transposed result.

        before: c = contraction(x, dy); dw = transpose(c)
        after:  dw = transposed contraction(x, dy)

    For example, the weight gradient of a layer `x @ w.T` has this form. Both contractions take the same time, so the
    transpose is saved. A contraction with another user is kept.
    """
    if not any(isinstance(instruction.op, Contraction) for instruction in program.instructions):
        return program
    users = users_of(program)
    dropped: set[Instruction] = set()
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if isinstance(instruction.op, Contraction):
            match users.get(instruction.outputs[0]):
                case [Instruction() as user] if isinstance(user.op, Transpose) and user.attrs["axes"] == (1, 0):
                    dropped.add(user)
                    instruction = with_inputs(instruction, instruction.inputs, user.outputs, instruction.op.other)
        if instruction not in dropped:
            instructions.append(instruction)
    return program._replace(instructions=instructions)


def eliminate_dead_code(program: Program) -> Program:
    """Remove instructions, constants and Parameters whose Values reach no result, and unused results of loops.

        before: a = exp(x); b = sin(x); return a        last, ys, saved = scan(...); return last
        after:  a = exp(x); return a                    last            = scan(...); return last

    For example, values saved for an unused backward pass are neither computed nor stored.
    """
    needed = set(program.results())  # including writes to Parameters
    instructions = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs):
            if isinstance(instruction.op, LoopOperation):
                instruction = instruction.op.prune(instruction, needed)
            instructions.append(instruction)
            needed.update(values_in(instruction))
    return program._replace(
        instructions=instructions[::-1],
        constants=[constant for constant in program.constants if constant[1] in needed],
        parameters={parameter: value for parameter, value in program.parameters.items() if value in needed},
    )


def leading_to(instructions: list[Instruction], results: list[Value]) -> list[Instruction]:
    """Select the instructions that `results` depend on."""
    return eliminate_dead_code(Program([], {}, [], instructions, results, {})).instructions


def begin_early(program: Program) -> Program:
    """Move an `early` operation, with the instructions that it needs, before all others.

        before: d1 = d2 @ w2.T; g2 = x2.T @ d2; g1 = x1.T @ d1; send(g2); send(g1)
        after:  g2 = x2.T @ d2; send(g2); d1 = d2 @ w2.T; g1 = x1.T @ d1; send(g1)

    This pays if the operation runs in the background, for example an exchange with other processes. It has two costs:
    instructions before and after the operation are no longer fused, and values for later instructions stay in memory
    longer.
    """
    maker = {value: number for number, instruction in enumerate(program.instructions) for value in instruction.outputs}
    order: dict[int, None] = {}  # numbers of instructions
    for number, instruction in enumerate(program.instructions):
        if instruction.op.early:
            leading, found = [number], {number}
            while leading:
                makers = {maker[x] for x in values_in(program.instructions[leading.pop()]) if x in maker}
                leading += makers - found - order.keys()
                found |= makers
            order |= dict.fromkeys(sorted(found - order.keys()))
    order |= dict.fromkeys(range(len(program.instructions)))
    return program._replace(instructions=[program.instructions[number] for number in order])


# --- Canonical Programs -----------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """A function Program -> Program, which does not modify its argument."""

    run: Callable[[Program], Program]
    needs: str  # the properties that it requires of a Program, as a text for readers; no code checks them
    leaves: str  # the properties that it guarantees, in the same form
    spaces: tuple[Space, ...] = (HOST, DEVICE)  # the spaces of arrays for which it runs

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__


def run_passes(passes: Sequence[Pass], program: Program, space: Space = HOST) -> Iterator[tuple[str, Program]]:
    """Run the passes for arrays in `space`; yield each pass's name and its result."""
    for each in passes:
        if space in each.spaces:
            program = each.run(program)
            yield each.name, program


def transform(passes: Sequence[Pass], program: Program, space: Space = HOST) -> Program:
    """Run the passes and return the last Program."""
    *_, (_, last) = [("", program), *run_passes(passes, program, space)]
    return last


CANONICAL = (
    Pass(eliminate_common_subexpressions, "", "no two instructions compute the same"),
    Pass(drop_identities, "", "no instruction returns a copy of its operand"),
    Pass(turn_contractions, "equal transposes are merged", "no contraction is used only by a transpose"),
    Pass(eliminate_dead_code, "", "each instruction is needed for a result"),
)


def canonicalise(program: Program) -> Program:
    """Run the CANONICAL passes on a Program."""
    return transform(CANONICAL, program)


def canonical_program(trace: Trace, outputs: list[Value], known: Collection[Value] = frozenset()) -> Program:
    """The canonical Program of a finished trace, without instructions that compute `known` Values."""
    return canonicalise(program_of_trace(trace, outputs, known=known))


def canonical_step(body: Body) -> Program:
    """The canonical Program of a loop's step."""
    return canonicalise(body.program())
