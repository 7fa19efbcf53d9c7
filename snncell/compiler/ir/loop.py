"""A loop over time as data, and the operation that has one: all that passes know of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from snncell.compiler.ir.program import Program, program_of_trace
from snncell.tape.body_trace import BodyTrace
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Instruction, Value

# --- The body of a loop over time: one step, traced once, and the roles of its inputs and outputs ---------------------

# carry, xs[t], consts  ->  after, ys[t], terms of sums


@dataclass(frozen=True, eq=False)
class Body:
    """One step. It is data: passes make another by `dataclasses.replace`.

    Attributes:
        trace: the trace of the step; that of a reverse begins with the steps of its forward.
        carry, after: the states before the step, and after it.
        xs, ys: the step's rows of the input sequences, and of the output sequences.
        consts: inputs that are the same at every step.
        sums: terms that are added up over all steps.
        backwards: whether the steps run from the last to the first.
        captured: Tensors from outside that the last of `consts` stand for.
        fused_producers: steps that a pass has put before those of the trace.
        fused_users: steps that a pass has put behind those of the trace.
        fused_sums: sums over time that a pass has made part of `sums`.
        saved: the last of `ys`, if they are stored for the reverse alone.
        residuals: of a reverse, those of `xs` that its forward stores; their gradients go on to it.
        reverse: what was traced to learn what to save, for all of the outputs but `saved` (`linearise.Reverse`).
    """

    trace: BodyTrace
    carry: list[Tensor]
    after: list[Tensor]
    xs: list[Tensor]
    ys: list[Tensor]
    consts: list[Tensor]
    backwards: bool
    sums: list[Tensor] = field(default_factory=list)
    captured: list[Tensor] = field(default_factory=list)
    fused_producers: list[Instruction] = field(default_factory=list)
    fused_users: list[Instruction] = field(default_factory=list)
    fused_sums: list[Instruction] = field(default_factory=list)
    saved: list[Tensor] | None = None
    residuals: list[Tensor] = field(default_factory=list)
    reverse: Any = None

    @property
    def outs(self) -> list[Tensor]:
        """All outputs: states after the step, results, and terms of sums."""
        return [*self.after, *self.ys, *self.sums]

    def program(self) -> Program:
        """The step as a Program, as it was traced."""
        trace = self.trace
        inputs = [x._data for x in (*self.carry, *self.xs, *self.consts)]
        # The trace of a reverse holds the steps of the forward. What the forward has stored is an input now, so the
        # step that computed it is no part of the Program, and dead code elimination removes what only that needed.
        program = program_of_trace(trace, [trace.lift(out) for out in self.outs], self.fused_producers, set(inputs))
        return program._replace(inputs=inputs, instructions=[*program.instructions, *self.fused_users])

    def saving(self, values: Sequence[Tensor]) -> Body:
        """The same step, which also collects `values` for its reverse."""
        saved = [wrap(x._data, x._entry, x._index) for x in values]
        return replace(self, saved=saved, ys=[*self.ys, *saved])

    def saving_states(self) -> Body:
        """The same step, which also collects the states before it."""
        return self.saving(self.carry)


@dataclass(frozen=True, eq=False)
class Recompute:
    """The recomputation of the states between checkpoints: a reverse runs the forward again, a segment at a time.

    Attributes:
        interval: steps from one checkpoint to the next.
        forward: the step that runs again.
    """

    interval: int
    forward: Body


@dataclass(frozen=True, eq=False)
class Loop:
    """A body, run for as many steps as its sequences have. Passes make another by `dataclasses.replace`.

    Attributes:
        body: one step.
        result_count: how many of the body's ys are results; those that follow are saved for the reverse.
        who: what runs the loop, for errors and `explain`.
        interval: checkpoint the states before each `interval`-th step, as further outputs, and save nothing else.
        recompute: for a reverse, how it gets the states between checkpoints.
    """

    body: Body
    result_count: int
    who: str
    interval: int | None = None
    recompute: Recompute | None = None


class LoopOperation(Primitive):
    """An operation that runs a Loop."""

    loop: Loop

    @abstractmethod
    def is_one_kernel(self) -> bool:
        """True if the loop becomes a single kernel on the CPU (`schedule/legality.py`)."""

    @abstractmethod
    def pruned(self, instruction: Instruction, needed: set[Value]) -> Instruction:
        """The step without the results that nothing needs, and without the inputs that only those need."""

    @abstractmethod
    def with_loop(self, loop: Loop) -> LoopOperation:
        """The same operation with another Loop."""


def with_body(instruction: Instruction, body: Body, inputs: Sequence[Any], outputs: Sequence[Value]) -> Instruction:
    """Copy the step of a loop with another body, all of whose ys are results, and its inputs and outputs."""
    op = instruction.op
    assert isinstance(op, LoopOperation)  # the caller's choice
    loop = replace(op.loop, body=body, result_count=len(body.ys))
    new = Instruction(op.with_loop(loop), tuple(inputs), instruction.attrs, instruction.line)
    new.outputs = tuple(outputs)
    return new


class LoopParts(NamedTuple):
    """A body's Program, taken apart.

    Attributes:
        program: the whole.
        after, ys, sums: the Values of its outputs.
        invariant: steps that depend on constants alone, in order.
        prologue: steps that are carried out on whole sequences before the loop.
        loop: the steps of the loop.
        epilogue: steps that are carried out on whole sequences after the loop.
        reductions: steps that are carried out on sums after the loop.
        fixed: Values that are the same at every step.
        sequences: Values of the loop that are wanted as sequences, by the caller or by `epilogue` and `reductions`.
        summed: Values of the loop whose sums over time are wanted.
    """

    program: Program
    after: list[Value]
    ys: list[Value]
    sums: list[Value]
    invariant: list[Instruction]
    prologue: list[Instruction]
    loop: list[Instruction]
    epilogue: list[Instruction]
    reductions: list[Instruction]
    fixed: set[Value]
    sequences: list[Value]
    summed: list[Value]
