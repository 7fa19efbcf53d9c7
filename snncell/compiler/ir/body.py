"""The body of a loop over time: one step, traced once, and the roles of its inputs and outputs.

carry, xs[t], consts  ->  after, ys[t], terms of sums
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from snncell.compiler.ir.program import Program, program_of_trace
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import BodyTrace, Instruction


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
