"""Program: the computation of a traced function, as printable straight-line instructions in single assignment.

A loop over time is one instruction of a Program. Its operation, a `LoopOperation`, refers to a Loop, and the Loop to a
Body: one time step, traced once.

    carry, xs[t], consts  ->  after, ys[t], addends of sums      one time step

The records of loops are frozen. A pass makes new ones by `dataclasses.replace` or `_replace`.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from snncell.kernels.space import Space
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.primitive import Primitive
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, snapshot, wrap
from snncell.tape.tracing import BodyTrace, Instruction, Trace


class Program(NamedTuple):
    """Instructions in order; each Value is assigned once."""

    inputs: list[Value]  # the arguments, then the captures from parent traces
    parameters: dict[Parameter, Value]  # the Parameters that are read, each with its Value at the start
    constants: list[tuple[Any, Value]]  # arrays
    instructions: list[Instruction]
    outputs: list[Value]
    written: dict[Parameter, Value]  # the Parameters that are written at the end, each with its new Value
    step: Step | None = None  # for the step of a loop, the roles of its inputs and outputs

    def results(self) -> list[Value]:
        """All results of a run: outputs, and new values of Parameters."""
        return [*self.outputs, *self.written.values()]

    def __str__(self) -> str:
        lines = ["program(" + ", ".join(map(repr, self.inputs)) + ")"]
        lines += [f"  {value!r} = Parameter {parameter.name}" for parameter, value in self.parameters.items()]
        lines += [f"  {value!r} = constant" for _, value in self.constants]
        parts = None if self.step is None else self.step.parts
        for title, instructions in [("", self.instructions)] if parts is None else parts.sections():
            lines += [f"  # {title}:"] if title else []
            for instruction in instructions:
                lines += [f"  {_instruction_text(instruction)}", *(f"      {line}" for line in instruction.op.inside())]
        lines += [f"  Parameter {parameter.name} = %{value.number}" for parameter, value in self.written.items()]
        lines.append("  return " + ", ".join(f"%{value.number}" for value in self.outputs))
        return "\n".join(lines)


def with_inputs(
    instruction: Instruction,
    inputs: Sequence[Any],
    outputs: Sequence[Value] | None = None,
    op: Primitive | None = None,
    attrs: dict[str, Any] | None = None,
) -> Instruction:
    """Copy an instruction with other inputs, results, op or attributes, because other Programs may share it."""
    attrs = instruction.attrs if attrs is None else attrs
    new = Instruction(op or instruction.op, tuple(inputs), attrs, instruction.line)
    new.outputs = instruction.outputs if outputs is None else tuple(outputs)
    return new


def rename_inputs(instruction: Instruction, replaced: dict[Value, Value]) -> Instruction:
    """The instruction with replaced inputs; the same object if no input is replaced."""
    inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs)
    return instruction if inputs == instruction.inputs else with_inputs(instruction, inputs)


def substitute(program: Program, replaced: dict[Value, Value]) -> Program:
    """Rename Values in the inputs of instructions, in the outputs and in the writes to Parameters. `replaced` maps each
    result of a dropped instruction to the Value that replaces it. This Value must not be replaced itself.
    """
    if not replaced:
        return program
    return program._replace(
        instructions=[rename_inputs(instruction, replaced) for instruction in program.instructions],
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )


def by_line(instructions: Sequence[Instruction]) -> list[str]:
    """The names of instructions, grouped by the user's line."""
    groups = itertools.groupby(instructions, lambda instruction: instruction.line)
    return [f"{' '.join(instruction.op.name for instruction in group):<24} {line}" for line, group in groups]


def _instruction_text(instruction: Instruction) -> str:
    operands = ", ".join(f"%{x.number}" if isinstance(x, Value) else repr(x) for x in instruction.inputs)
    options = "".join(f", {key}={value!r}" for key, value in instruction.attrs.items())
    text = f"{', '.join(map(repr, instruction.outputs))} = {instruction.op.name}({operands}{options})"
    return f"{text:<64} # {instruction.line}"


def program_of_trace(
    trace: Trace, outputs: list[Value], before: Sequence[Instruction] = (), known: Collection[Value] = frozenset()
) -> Program:
    """The Program of a finished trace, after the instructions `before`; `known` Values are inputs, not computed."""
    inputs = [*trace.inputs, *(value for _, value in trace.captures.values())]
    own = [one for one in trace.instructions if not any(out in known for out in one.outputs)]
    constants = list(trace.constants.values())
    return Program(inputs, trace.parameters, constants, [*before, *own], outputs, trace.written)


def values_in(*instructions: Instruction) -> list[Value]:
    """The Values among the inputs of instructions."""
    return [x for instruction in instructions for x in instruction.inputs if isinstance(x, Value)]


def results_of(*instructions: Instruction) -> list[Value]:
    """The Values that instructions compute."""
    return [value for instruction in instructions for value in instruction.outputs]


def bytes_of(value: Value) -> int:
    """The size of a Value's array."""
    return math.prod(value.shape) * int(value.dtype.itemsize)


def operations_in(instructions: Iterable[Instruction], used: float = 1.0) -> float:
    """The number of multiplications and additions; products compute with the share `used` of their first operand."""
    return sum(one.op.operations(one.inputs, one.outputs, one.attrs, used) for one in instructions)


def makers_in(program: Program) -> dict[Value, Instruction]:
    """The instruction that computes each Value."""
    return {value: instruction for instruction in program.instructions for value in instruction.outputs}


Users: TypeAlias = dict[Value, list[Instruction | None]]


def users_of(program: Program) -> Users:
    """The instructions that use each Value, once per operand; None stands for the results."""
    users: Users = {}
    for instruction in program.instructions:
        for value in values_in(instruction):
            users.setdefault(value, []).append(instruction)
    for value in program.results():
        users.setdefault(value, []).append(None)
    return users


def find_used_values(program: Program) -> set[Value]:
    """The Values that are operands of instructions, or results."""
    return {*program.results(), *values_in(*program.instructions)}


def outside_of(instructions: Sequence[Instruction], results: Sequence[Value], own: Sequence[Value]) -> list[Value]:
    """The Values that instructions use, or that are `results`, and that neither the instructions nor `own` define."""
    inside = {*own, *results_of(*instructions)}
    return list(dict.fromkeys(x for x in (*values_in(*instructions), *results) if x not in inside))


def last_uses(instructions: list[Any], results: list[Value]) -> list[list[Value]]:
    """Liveness analysis: the Values that die after each group (an object with `reads` and `writes`)."""
    live = set(results)
    dying: list[list[Value]] = []
    for instruction in reversed(instructions):
        values = dict.fromkeys([*instruction.reads, *instruction.writes])
        dying.append([value for value in values if value not in live])
        live.update(values)
    return dying[::-1]


def interpret(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run a Program operation by operation; inside of a trace, the operations are added to that trace."""
    known: dict[Value, Tensor] = dict(zip(program.inputs, inputs, strict=True))
    known.update((value, parameter) for parameter, value in program.parameters.items())
    known.update((value, wrap(array)) for array, value in program.constants)
    for instruction in program.instructions:
        operands = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
        out = instruction.op.bind(*operands, **instruction.attrs)
        known.update(zip(instruction.outputs, out if instruction.op.multiple else (out,), strict=True))
    # Copy outputs before the writes, because a Parameter among them has its old value.
    results = [snapshot(known[value]) for value in program.outputs]
    assign_all([(parameter, known[value]) for parameter, value in program.written.items()], in_range=True)
    return results


# --- Loops over time --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Body:
    """One time step of a loop, traced once, with the roles of its inputs and outputs."""

    trace: BodyTrace  # the trace of the step; a backward step's trace begins with its forward step
    carry: list[Tensor]  # the states before the step
    after: list[Tensor]  # the states after the step
    xs: list[Tensor]  # the slices of the input sequences for this step
    ys: list[Tensor]  # the slices of the output sequences for this step
    consts: list[Tensor]  # loop-invariant inputs
    backwards: bool  # True if the steps run from the last to the first
    sums: list[Tensor] = field(default_factory=list)  # the addends of this step in sums over all steps
    captured: list[Tensor] = field(default_factory=list)  # outer Tensors, bound to the last of `consts`
    fused_producers: list[Instruction] = field(default_factory=list)  # fused before the trace by passes
    fused_users: list[Instruction] = field(default_factory=list)  # fused after the trace by passes
    fused_sums: list[Instruction] = field(default_factory=list)  # sums over time that a pass has fused into `sums`
    saved: list[Tensor] | None = None  # the `ys` that are stored only for the backward pass
    residuals: list[Tensor] = field(default_factory=list)  # the `xs` of a backward step that its forward step stores
    reverse: Any = None  # the backward step that was traced to choose the saved values (`linearise.Reverse`)

    @property
    def outs(self) -> list[Tensor]:
        """All outputs: states after the step, results, and addends of sums."""
        return [*self.after, *self.ys, *self.sums]

    def program(self) -> Program:
        """The step as a Program, as it was traced."""
        inputs = [x._data for x in (*self.carry, *self.xs, *self.consts)]
        # The trace of a backward step includes the forward step. A stored Value of the forward step is an input here,
        # so the instruction that computed it is not part of the Program.
        outputs = [self.trace.lift(out) for out in self.outs]
        program = program_of_trace(self.trace, outputs, self.fused_producers, set(inputs))
        instructions = [*program.instructions, *self.fused_users]
        return program._replace(inputs=inputs, instructions=instructions, step=Step(self))

    def is_saved(self, y: Tensor) -> bool:
        """True for a member of `ys` that is stored only for the backward pass."""
        return any(y is saved for saved in self.saved or ())

    def saving(self, values: Sequence[Tensor]) -> Body:
        """The same step, with `values` as additional results for its backward pass."""
        saved = [wrap(x._data, x._entry, x._index) for x in values]
        return replace(self, saved=saved, ys=[*self.ys, *saved])

    def saving_states(self) -> Body:
        """The same step, with the states before it as additional results."""
        return self.saving(self.carry)


class LoopParts(NamedTuple):
    """The instructions of a step, partitioned by where they run: before, in or after the loop."""

    program: Program
    after: list[Value]  # its outputs
    ys: list[Value]
    sums: list[Value]
    invariant: list[Instruction]  # loop-invariant, hoisted
    prologue: list[Instruction]  # on whole sequences, before the loop
    loop: list[Instruction]
    epilogue: list[Instruction]  # on whole sequences, after the loop
    reductions: list[Instruction]  # on sums over time, after the loop
    fixed: set[Value]  # loop-invariant Values
    sequences: list[Value]  # Values of the loop that are stored as sequences
    summed: list[Value]  # Values of the loop that are summed over time

    @property
    def all_steps(self) -> list[Instruction]:
        """The instructions with a result per step; reductions are left out."""
        return [*self.prologue, *self.loop, *self.epilogue]

    def sections(self) -> list[tuple[str, list[Instruction]]]:
        """The nonempty parts, each with a title."""
        sections = {
            "once, before the loop": self.invariant,
            "for all steps together, before the loop": self.prologue,
            "in the loop": self.loop,
            "for all steps together, after the loop": self.epilogue,
            "on sums over time, after the loop": self.reductions,
        }
        return [(title, instructions) for title, instructions in sections.items() if instructions]


class Step(NamedTuple):
    """The roles of inputs and outputs of a Program that is the step of a loop. BODY_PASSES read and replace them."""

    body: Body
    states: Sequence[Value] = ()  # the sequences that the loop rematerialises (`Recompute`)
    parts: LoopParts | None = None  # where its instructions run, set by `hoist`


@dataclass(frozen=True, eq=False)
class Recompute:
    """Rematerialisation of states between checkpoints: the backward pass reruns the forward step by segments."""

    interval: int  # the steps of a segment, from one checkpoint to the next
    forward: Body  # the step that runs again


@dataclass(frozen=True, eq=False)
class Loop:
    """A body that runs for as many steps as its sequences have."""

    body: Body
    result_count: int  # the number of results among the body's ys; the others are saved for the backward pass
    who: str  # the function that runs the loop, for errors and `explain`
    interval: int | None = None  # checkpoint the states before each `interval`-th step, and save nothing else
    recompute: Recompute | None = None  # in a backward pass, how to rematerialise the states between checkpoints


class LoopSummary(NamedTuple):
    """A description of how a loop runs."""

    form: str  # for example, "one kernel, all threads, 50 steps for blocks of 512 of 8192 elements"
    slow: str  # the reason why it runs step by step; "" for a kernel, and for all steps at once
    places: Sequence[tuple[str, Sequence[Instruction]]]  # the instructions of a step, by where they run


class LoopOperation(Primitive):
    """An operation that runs a Loop."""

    loop: Loop

    @abstractmethod
    def is_one_kernel(self) -> bool:
        """True if the loop becomes a single kernel on the CPU (`schedule.py`)."""

    @abstractmethod
    def summary(self, steps: int, space: Space) -> LoopSummary:
        """Describe how the loop runs in a space, for the table of layers in `explain`."""

    @abstractmethod
    def device_kernel(self) -> tuple[str, str, tuple[Any, ...]] | None:
        """Name, source and signature of the loop's kernel on the device; None if it is not a single kernel there."""

    @abstractmethod
    def prune(self, instruction: Instruction, needed: set[Value]) -> Instruction:
        """The instruction without unused results, and without inputs that are then unused."""

    @abstractmethod
    def with_loop(self, loop: Loop) -> LoopOperation:
        """The same operation with another Loop."""


def loop_of(instruction: Instruction) -> Loop:
    """The Loop that an instruction runs."""
    assert isinstance(instruction.op, LoopOperation)  # the callers have checked it
    return instruction.op.loop


def with_body(instruction: Instruction, body: Body, inputs: Sequence[Any], outputs: Sequence[Value]) -> Instruction:
    """Copy the instruction of a loop with another body (all of its ys are results), inputs and outputs."""
    op = instruction.op
    assert isinstance(op, LoopOperation)  # the callers have checked it
    loop = replace(op.loop, body=body, result_count=len(body.ys))
    return with_inputs(instruction, inputs, outputs, op.with_loop(loop))


def is_kernel(instruction: Instruction | None) -> bool:
    """True for a loop that becomes a single kernel."""
    return instruction is not None and isinstance(instruction.op, LoopOperation) and instruction.op.is_one_kernel()


def sequences_of(instruction: Instruction) -> tuple[Any, ...]:
    """The sequences that a loop reads."""
    body = loop_of(instruction).body
    return instruction.inputs[len(body.carry) :][: len(body.xs)]


def is_sequence_for(x: Value, out: Value) -> bool:
    """True if an operand has the time axis of the producer's result `out`, and is not broadcast along it."""
    return len(x.shape) == len(out.shape) and x.shape[0] == out.shape[0]
