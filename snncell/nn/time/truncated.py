"""Truncated backpropagation through time: a Cell of one step that cuts the gradient through its states."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.kinds import Count
from snncell.cell.cell import Cell
from snncell.dtype import int16
from snncell.errors import ArgumentError
from snncell.nn.time.multistep import MultiStep, initial_states
from snncell.tape.tensor import Tensor

__all__ = ["Truncated"]

LONGEST = 2**15 - 1  # what int16 counts to: the backward pass stores the count with each state


class Truncated(Cell):
    """Truncated backpropagation through time: cuts the gradient through a neuron's states every `every` steps.

    out[t], *states[t] = cell(x[t], *states[t - 1])            where t is no multiple of `every`, and at t = 0
    out[t], *states[t] = cell(x[t], *stop(states[t - 1]))      where t = every, 2 every, ...

    stop has the value of its argument and no derivative, so the values are those of the neuron alone, to the bit, and
    the gradient is that of chunks of `every` steps, one after the other, with `ops.stop_gradient` on the states between
    them. It is a Cell of one step itself; run it by `MultiStep`. The first state counts the steps since the last cut;
    a run that is continued with the states of another one is cut where one long run would be.

    The memory of the backward pass still grows with the length of x. For a stream that does not fit in memory run its
    chunks one by one: `MultiStep(cell, return_states=True)` gives the states after a chunk, and the next chunk begins
    with `ops.stop_gradient` of them. Each chunk has its own gradient and its own step of the optimiser, and nothing of
    it is kept.

    Args:
        cell: a Cell of one step, `construct(x, *states) -> (output, *states)`; also `Recurrent`.
        every: the number of steps, from 1 to 32767, that a gradient goes back at most. Changing it compiles nothing.

    Inputs:
        x: the input of the neuron, (B, ...).
        count: int16, the steps since the last cut, of the states' shape if they have one, else ().
        states: those of the neuron.

    Returns:
        (output, count, *states).

    Raises:
        ArgumentError: for what is no Cell, or an `every` out of range.

    Source: Williams and Peng, "An Efficient Gradient-Based Algorithm for On-Line Training of Recurrent Network
    Trajectories", Neural Computation 1990.

    Example:
        >>> net = nn.MultiStep(nn.Truncated(nn.LIFNode(decay_input=False), every=2))
        >>> x = ops.ones((6, 1)) * 0.1
        >>> snncell.grad(lambda x: net(x)[3].sum())(x).asnumpy().ravel() != 0  # the last of six steps is cut off too
        array([False, False,  True,  True, False, False])

        A stream in chunks, whose states go on while the gradient does not:

        >>> run = nn.MultiStep(nn.LIFNode(), return_states=True)
        >>> states = (ops.zeros((1, 3)),)
        >>> for chunk in ops.ones((4, 10, 1, 3)):
        ...     spikes, states = run(chunk, *ops.stop_gradient(states))
    """

    def __init__(self, cell: Cell, every: Count) -> None:
        super().__init__()
        if isinstance(cell, MultiStep):
            raise ArgumentError("Truncated: takes the Cell of one time step; write MultiStep(Truncated(cell, every)).")
        self.cell = cell
        self.every = every
        if every > LONGEST:
            raise ArgumentError(f"Truncated: every is at most {LONGEST}, not {every}; a longer gradient needs no cut.")

    def construct(self, x: Tensor, count: Tensor, *states: Tensor) -> tuple[Any, ...]:
        cut = ops.greater_equal(count, self.every)
        begun = [ops.select(cut, ops.stop_gradient(state), state) for state in states]
        out, *after = self.cell(x, *begun)
        return (out, ops.select(cut, 0, count) + 1, *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """No step since the last cut, and the neuron's own initial states."""
        states = initial_states(self.cell, x)
        shapes = {state.shape for state in states}
        return (ops.zeros(shapes.pop() if len(shapes) == 1 else (), int16), *states)

    def extend_repr(self) -> str:
        return f"every={self.every}"
