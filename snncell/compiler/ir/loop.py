"""A loop over time as data: its body, the parts of the body, and the operation that runs it.

    carry, xs[t], consts  ->  after, ys[t], terms of sums        one time step, traced once

All of this is frozen. A pass makes another record by `dataclasses.replace` or `_replace`.
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

    trace: BodyTrace  # of the step; that of a backward step begins with the instructions of its forward step
    carry: list[Tensor]  # the states before the step
    after: list[Tensor]  # and after it
    xs: list[Tensor]  # the step's rows of the input sequences
    ys: list[Tensor]  # and of the output sequences
    consts: list[Tensor]  # inputs that are the same at every step
    backwards: bool  # whether the steps run from the last to the first
    sums: list[Tensor] = field(default_factory=list)  # terms that are added up over all steps
    captured: list[Tensor] = field(default_factory=list)  # from outside, that the last of `consts` stand for
    fused_producers: list[Instruction] = field(default_factory=list)  # that passes have put before those of the trace
    fused_users: list[Instruction] = field(default_factory=list)  # and after them
    fused_sums: list[Instruction] = field(default_factory=list)  # over time, that a pass has made part of `sums`
    saved: list[Tensor] | None = None  # those of `ys` that are stored for the backward pass alone
    residuals: list[Tensor] = field(default_factory=list)  # those of `xs` that the forward of a backward step stores
    reverse: Any = None  # the backward step that was traced to learn what to save (`linearise.Reverse`)

    @property
    def outs(self) -> list[Tensor]:
        """All outputs: states after the step, results, and terms of sums."""
        return [*self.after, *self.ys, *self.sums]

    def program(self) -> Program:
        """The step as a Program, as it was traced."""
        inputs = [x._data for x in (*self.carry, *self.xs, *self.consts)]
        # The trace of a backward step holds the forward step too. What the forward has stored is an input now, so the
        # instruction that computed it is no part of the Program.
        outputs = [self.trace.lift(out) for out in self.outs]
        program = program_of_trace(self.trace, outputs, self.fused_producers, set(inputs))
        instructions = [*program.instructions, *self.fused_users]
        return program._replace(inputs=inputs, instructions=instructions, step=Step(self))

    def is_saved(self, y: Tensor) -> bool:
        """True for one of `ys` that is stored for the backward pass alone."""
        return any(y is saved for saved in self.saved or ())

    def saving(self, values: Sequence[Tensor]) -> Body:
        """The same step, which also collects `values` for its backward pass."""
        saved = [wrap(x._data, x._entry, x._index) for x in values]
        return replace(self, saved=saved, ys=[*self.ys, *saved])

    def saving_states(self) -> Body:
        """The same step, which also collects the states before it."""
        return self.saving(self.carry)


class LoopParts(NamedTuple):
    """The instructions of a step by the place where they run: before the loop, in it, or after it."""

    program: Program
    after: list[Value]  # its outputs
    ys: list[Value]
    sums: list[Value]
    invariant: list[Instruction]  # that depend on constants alone
    prologue: list[Instruction]  # on whole sequences before the loop
    loop: list[Instruction]
    epilogue: list[Instruction]  # on whole sequences after the loop
    reductions: list[Instruction]  # on sums after the loop
    fixed: set[Value]  # that are the same at every step
    sequences: list[Value]  # of the loop, that are wanted as sequences
    summed: list[Value]  # of the loop, whose sums over time are wanted

    @property
    def all_steps(self) -> list[Instruction]:
        """The instructions whose results differ from step to step, except those on sums."""
        return [*self.prologue, *self.loop, *self.epilogue]

    def sections(self) -> list[tuple[str, list[Instruction]]]:
        """The instructions of each place, with a title; places without instructions are left out."""
        sections = {
            "once, before the loop": self.invariant,
            "for all steps together, before the loop": self.prologue,
            "in the loop": self.loop,
            "for all steps together, after the loop": self.epilogue,
            "on sums over time, after the loop": self.reductions,
        }
        return [(title, instructions) for title, instructions in sections.items() if instructions]


class Step(NamedTuple):
    """The roles in a Program that is the step of a loop: passes over bodies read and replace them."""

    body: Body
    states: Sequence[Value] = ()  # those of its sequences that are computed again in the loop (`Recompute`)
    parts: LoopParts | None = None  # where its instructions run, when `hoist` has decided that


@dataclass(frozen=True, eq=False)
class Recompute:
    """Recomputation of the states between checkpoints: the backward pass runs the forward again, segment by segment."""

    interval: int  # steps from one checkpoint to the next
    forward: Body  # the step that runs again


@dataclass(frozen=True, eq=False)
class Loop:
    """A body, run for as many steps as its sequences have."""

    body: Body
    result_count: int  # of the body's ys; those that follow are saved for the backward pass
    who: str  # the function that runs the loop, for errors and `explain`
    interval: int | None = None  # checkpoint the states before each `interval`-th step, and save nothing else
    recompute: Recompute | None = None  # for a backward pass, how it gets the states between checkpoints


class LoopSummary(NamedTuple):
    """The form of a loop, in words."""

    form: str  # such as "one kernel, all threads, 50 steps for blocks of 512 of 8192 elements"
    slow: str  # the reason why its steps run one by one; "" for a kernel, and for all steps at once
    places: Sequence[tuple[str, Sequence[Instruction]]]  # the instructions of a step, by where they run


class LoopOperation(Primitive):
    """An operation that runs a Loop."""

    loop: Loop

    @abstractmethod
    def is_one_kernel(self) -> bool:
        """True if the loop becomes a single kernel on the CPU (`schedule.py`)."""

    @abstractmethod
    def summary(self, steps: int, space: Space) -> LoopSummary:
        """The form that the loop takes in a space, for the table of layers in `explain`."""

    @abstractmethod
    def device_kernel(self) -> tuple[str, str, tuple[Any, ...]] | None:
        """Name, source and signature of the loop's kernel on the device; None if it has no single one there."""

    @abstractmethod
    def pruned(self, instruction: Instruction, needed: set[Value]) -> Instruction:
        """The instruction without unused results, and without the inputs that only those need."""

    @abstractmethod
    def with_loop(self, loop: Loop) -> LoopOperation:
        """The same operation with another Loop."""


def loop_of(instruction: Instruction) -> Loop:
    """The Loop that an instruction runs."""
    assert isinstance(instruction.op, LoopOperation)  # the caller's choice
    return instruction.op.loop


def with_body(instruction: Instruction, body: Body, inputs: Sequence[Any], outputs: Sequence[Value]) -> Instruction:
    """Copy the instruction of a loop with another body, all of whose ys are results, and its inputs and outputs."""
    op = instruction.op
    assert isinstance(op, LoopOperation)  # the caller's choice
    return with_inputs(
        instruction, inputs, outputs, op.with_loop(replace(op.loop, body=body, result_count=len(body.ys)))
    )
