"""Any neuron behind a synapse: what comes in is a current that decays by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.common.ranges import DECAY
from snncell.errors import ArgumentError
from snncell.nn.neurons.constants import Membrane, one_of
from snncell.nn.neurons.current import ORDERS, synapse
from snncell.tape.tensor import Tensor


class WithSynapse(Membrane):
    """A neuron whose input is a synaptic current, which decays by itself and jumps by what comes in.

    i = alpha i + x
    s, *states = cell(i, *states)

    The current decays, jumps and is read in the order that `CubaLIFNode` names; CubaLIFNode(alpha, beta) has the spikes
    and potentials of WithSynapse(LeakyNode(beta), alpha). It is a Cell of one step whose first state is the current;
    run it by `MultiStep`, which makes one kernel of both.

    Args:
        cell: the neuron, a Cell of one step with `init_state`.
        alpha: what a step keeps of the current, from 0 to 1: exp(-dt / tau_syn).
        order: "decay jump read" as above, "jump read decay" (Norse), "jump decay read" (sinabs), "read decay jump"
            (Norse's LSNN).
        learnable: "alpha", if it is to be learned.

    Inputs:
        x, i: the input and the current, of one shape.
        states: the neuron's own.

    Returns:
        (s, i, *states).

    Raises:
        ArgumentError: for what is no neuron, a decay factor outside [0, 1], or an unknown order.

    Source: Neftci, Mostafa, Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE SPM 2019; the
    adaptive neurons with synapses of Norse (LSNN, LIFAdEx) and sinabs (ALIF with tau_syn).

    Example:
        >>> adaptive = nn.WithSynapse(nn.ALIFNode(alpha=0.8), alpha=0.5)
        >>> spikes, (i, v, a) = nn.MultiStep(adaptive, return_states=True)(ops.ones((4, 1)) * 0.9)
        >>> print(spikes[:, 0], i)
        [0. 1. 0. 1.] [1.6875]
    """

    alpha: Any
    ranges: ClassVar = {"alpha": DECAY}

    def __init__(
        self, cell: Any, alpha: Any = 0.9, order: str = "decay jump read", *, learnable: str | Sequence[str] = ()
    ) -> None:
        if not isinstance(cell, Cell) or not hasattr(cell, "init_state"):
            raise ArgumentError(f"WithSynapse: cell is a neuron, an object such as nn.ALIFNode(), not {show(cell)}.")
        super().__init__({"alpha": alpha}, learnable)
        self.cell = cell
        self.order = one_of(order, ORDERS, "WithSynapse", "order")

    def construct(self, x: Tensor, i: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        current, i = synapse(i, x, self.alpha, self.order)
        s, *after = self.cell(current, *states)
        return (s, i, *after)

    def _refuse_shapes(self, x: tuple[int, ...], states: list[tuple[int, ...]]) -> None:
        """Raise unless the current broadcasts to the input; the neuron looks at its own states."""
        super()._refuse_shapes(x, states[:1])

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """No current, and the neuron's own initial states."""
        first = self.cell.init_state(x)
        return (self.filled(x, 0.0), *(first if isinstance(first, tuple) else (first,)))

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, order={self.order!r}"
