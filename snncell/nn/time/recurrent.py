"""Recurrent connections: a neuron whose output comes back to its input."""

from __future__ import annotations

from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Own
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.time.multistep import initial_states
from snncell.tape.tensor import Tensor

__all__ = ["Recurrent"]


class Recurrent(Cell):
    """Recurrent connections: the neuron's last output comes back through a Cell with weights.

    out, *states = cell(x + feedback(out_before), *states)

    It is a Cell of one step itself, whose first state is the output; run it by `MultiStep`.

    Args:
        cell: the neuron.
        feedback: from an output to an input of the neuron, for example `Dense(n, n)`.

    Raises:
        ArgumentError: for a neuron or a feedback that is no Cell.
    """

    def __init__(self, cell: Annotated[Cell, Own()], feedback: Annotated[Cell, Own()]) -> None:
        super().__init__()
        _refuse_others("cell", cell, "nn.LIFNode()")
        _refuse_others("feedback", feedback, "nn.Dense(n, n)")
        self.cell = cell
        self.feedback = feedback

    def construct(self, x: Tensor, out: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        after: tuple[Tensor, ...] = self.cell(x + self.feedback(out), *states)
        return (after[0], *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Zeros for the output before the first step, and the neuron's own initial states.

        They have the dtype of the neuron's input, the sum of x and the feedback: float32 for spikes of bool or bytes,
        and for x of float16 where the feedback has weights of float32.
        """
        dtype = x.dtype if x.dtype.is_float else dtypes.float32
        for parameter in self.feedback.get_parameters():
            if parameter.dtype.is_float:
                dtype = dtypes.promote(dtype, parameter.dtype)
        first = ops.zeros_like(x, dtype)
        return (first, *initial_states(self.cell, first))


def _refuse_others(name: str, value: Any, example: str) -> None:
    """Raise an ArgumentError unless the value is a Cell."""
    if not isinstance(value, Cell):
        kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise ArgumentError(f"Recurrent: {name} is a Cell, an object such as {example}, not {kind}.")
