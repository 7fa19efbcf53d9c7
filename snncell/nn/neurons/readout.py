"""Readouts: a membrane that does not spike, and what is made of a recording of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import ops
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, Range
from snncell.errors import ShapeError
from snncell.nn.losses.spike_times import FirstSpikeTime
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.integrate import DECAY_INPUT, MEMBRANE_TAU, euler_step
from snncell.nn.time.axis import check_time_axis
from snncell.tape.tensor import Tensor, beside

DECODERS = ("last", "max", "mean", "sum", "exp", "first")


@with_fields
class LINode(Membrane):
    """A leaky integrator that does not spike: a readout of potentials.

    v = v + (x - (v - v_rest)) / tau         with decay_input
    v = v - (v - v_rest) / tau + x           without

    With decay_input a longer tau weakens the input, too; a memory is learned better with decay_input=False.

    Inputs:
        x, v: the input and the state, of one shape.

    Returns:
        (v, v).

    Raises:
        ArgumentError: for tau not above 1.

    Source: Gerstner et al., Neuronal Dynamics, section 1.3; SpikingJelly, NonSpikingLIFNode.

    Example:
        >>> readout = nn.SequentialCell(nn.MultiStep(nn.LINode(tau=2.0)), nn.Readout("max"))
        >>> print(readout(Tensor([[1.0], [0.0], [0.0]])))  # (T, N) -> (N)
        [0.5]
    """

    tau: Any = MEMBRANE_TAU
    decay_input: bool = DECAY_INPUT
    v_rest: Any = field(0.0, FINITE, "resting potential")
    input_gain: Any = field(1.0, FINITE, "factor of the input")
    learnable: Any = field((), None, "names of the constants to learn", keep=False)
    charge = euler_step

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = self.on_grid("v", self.charge(x, v))
        return v, v

    def init_state(self, x: Tensor) -> Tensor:
        """The resting potential."""
        return self.filled(x, self.v_rest)


STEPS = Range(0.0, text="is a positive number of steps")


@with_fields
class Readout(Cell):
    """One number for each output, from its recording over time: (T, B, ...) -> (B, ...).

    "last"    v[T - 1]
    "max"     max over t of v[t]
    "mean"    1 / T sum over t of v[t]
    "sum"     sum over t of v[t]; of spikes: their count
    "exp"     1 / T sum over t of exp(-t / tau) v[t]: what comes early counts more
    "first"   the step of the first spike, T - 1 if there is none; in the reverse, one unit more at that step makes it
              one step earlier

    Inputs:
        x: (T, B, ...), potentials, or spikes for "first".

    Returns:
        (B, ...).

    Raises:
        ArgumentError: for an unknown readout, or a tau that is not positive.
        ShapeError: for an input without steps.

    Source: SpikingJelly's decoders of non-spiking neurons; "exp": Nowotny, Turner, Knight, "Loss shaping enhances exact
    gradient learning with EventProp in spiking neural networks", 2025; "first": snnTorch's temporal losses.

    Example:
        >>> print(nn.Readout("first")(Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])))
        [1. 2.]
    """

    how: str = field("last", DECODERS, "which of them")
    tau: float | None = field(None, STEPS, 'time constant of "exp"; the number of steps if it is left out', quiet=True)

    def _complete(self, given: dict[str, Any]) -> None:
        """Make the decoder of first spikes."""
        self.first = FirstSpikeTime()

    def construct(self, x: Tensor) -> Any:
        if x.ndim == 0 or x.shape[0] == 0:
            raise ShapeError(f"Readout: x is (T, B, ...) with at least one step, its shape is {x.shape}.")
        check_time_axis(x, type(self).__name__)
        if self.how == "last":
            return x[-1]
        if self.how == "first":
            return self.first(x)
        if self.how == "exp":
            return ops.mean(x * over_time(np.exp(-np.arange(len(x)) / (self.tau or len(x))), x), 0)
        return getattr(ops, self.how)(x, 0)


def over_time(values: Any, x: Tensor) -> Tensor:
    """One number for each step, where x (T, ...) is, and in a shape that broadcasts to it."""
    with beside(x):
        return Tensor(values.reshape(-1, *(1,) * (x.ndim - 1)), x.dtype)
