"""A loop over time as data, and the operation that has one: all that passes know of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from snncell.compiler.ir.body import Body
from snncell.tape.primitive import Primitive
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


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
