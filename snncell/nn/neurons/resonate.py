"""A neuron whose potential oscillates: it answers to inputs in its own rhythm."""

from __future__ import annotations

import math
from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import NEGATIVE, POSITIVE
from snncell.nn.neurons.base import Neuron
from snncell.tape.tensor import Tensor


@with_fields
class ResonateNode(Neuron):
    """Resonate and fire: a complex potential z = u + i v that turns and shrinks.

    u + i h = exp((b + i omega) dt) (u + i v) + x, the input into the real part, the current
    s = surrogate(h - v_threshold): where the imaginary part, the potential, is high
    v = the reset of h, as for every `Neuron`; u stays as it is

    The equation dz/dt = (b + i omega) z + I, solved exactly between inputs that are jumps.

    Inputs:
        x, v, u: the input, the imaginary and the real part, of one shape.

    Returns:
        (s, v, u).

    Raises:
        ArgumentError: for b not negative, or omega or dt not positive.

    Source: Izhikevich, "Resonate-and-fire neurons", Neural Networks 2001, where a spike puts z to i; the reset of v
    alone is SpikingJelly's RAFNode.

    Example:
        >>> spike, v, u = nn.ResonateNode(omega=3.14159)(Tensor([1.0]), Tensor([0.0]), Tensor([1.0]))
        >>> print(ops.round(u * 100.0) / 100.0)  # half a turn, and the input
        [0.18]
    """

    b: Any = field(-0.2, NEGATIVE, "growth of the oscillation, 1 / unit of dt")
    omega: Any = field(1.0, POSITIVE, "angular frequency, rad / unit of dt")
    dt: Annotated[float, Own()] = field(1.0, POSITIVE, "length of a step", learned="never")

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        turn, shrink = self.omega * self.dt, self.b * self.dt
        cos, sin = (ops.cos(turn), ops.sin(turn)) if isinstance(turn, Tensor) else (math.cos(turn), math.sin(turn))
        shrink = ops.exp(shrink) if isinstance(shrink, Tensor) else math.exp(shrink)
        h = shrink * (u * sin + v * cos)
        u = shrink * (u * cos - v * sin) + self.gained(x)
        return (*self.fired(h, late), u)

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """At rest: v_reset, and no current."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
