"""Loops over time in the IR: the body, its parts, and the operation that runs it.

    carry, xs[t], consts  ->  after, ys[t], addends of sums      one time step, traced once

All records are frozen. A pass makes new ones by `dataclasses.replace` or `_replace`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from snncell.compiler.ir.program import Program, program_of_trace, with_inputs
from snncell.kernels.space import Space
from snncell.tape.primitive import Primitive
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import BodyTrace, Instruction


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
        # The trace of a backward step includes the forward step. A Value that the forward step has stored is an input
        # here, so the instruction that computed it is not part of the Program.
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
    """Rematerialisation of states between checkpoints: the backward pass reruns the forward step, one segment (the
    steps from one checkpoint to the next) at a time.
    """

    interval: int  # steps from one checkpoint to the next
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
