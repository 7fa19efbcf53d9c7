"""A leaky neuron whose threshold rises with its own spikes."""

from __future__ import annotations

from typing import Any

from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import DECAY, FINITE
from snncell.nn.neurons.base import Neuron
from snncell.tape.tensor import Tensor


@with_fields
class ALIFNode(Neuron):
    """Adaptive leaky integrate and fire (the neuron of LSNNs).

    A = v_threshold + beta a
    h = alpha v + x
    s = surrogate(h - A)
    a = rho a + jump s
    v = h - s v_threshold                    reset="subtract"; the others as for every `Neuron`

    By default the reset comes at the end of the step, as in sinabs, and decays with the potential. In the papers it
    comes in the next step and has not decayed, v = alpha v - s v_threshold + x, and so does the jump: delay="reset".

    Inputs:
        x, v, a: the input, the potential and the adaptation, of one shape.

    Returns:
        (s, v, a).

    Raises:
        ArgumentError: for a decay factor outside [0, 1], or an unknown option.

    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020; "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018.

    Example:
        >>> spike, v, a = nn.ALIFNode(alpha=0.5, rho=0.5)(Tensor([2.0]), Tensor([0.0]), Tensor([0.2]))
        >>> print(spike, v, a)
        [1.] [1.] [1.1]
    """

    alpha: Any = field(0.9, DECAY, "decay of the potential, exp(-dt / tau_m)")
    rho: Any = field(0.97, DECAY, "decay of the adaptation, exp(-dt / tau_a)")
    beta: Any = field(1.8, FINITE, "rise of the threshold with the adaptation")
    jump: Any = field(
        1.0, FINITE, "rise of the adaptation with a spike: 1 (e-prop 2020), or 1 - rho (LSNN 2018, sinabs, Spyx)"
    )
    subtracts: str = field(
        "v_threshold",
        ("v_threshold", "threshold"),
        'what "subtract" takes off: e-prop 2020 has v_threshold, LSNN 2018, sinabs and Spyx have A',
    )
    delays = (None, "reset", "spike")

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        threshold = self.v_threshold + self.beta * a
        v, late = self.recall(v, threshold)
        h, drop = self.alpha * v + self.gained(x), threshold if self.subtracts == "threshold" else None
        if self.delay == "reset":
            a = self.adapted(a, late)
            return (*self.fired(h, late, self.v_threshold + self.beta * a, drop), a)
        s, v = self.fired(h, late, threshold, drop)
        return s, v, self.adapted(a, s)

    def adapted(self, a: Any, s: Any) -> Any:
        """The adaptation after a step with the spikes s."""
        return self.rho * a + self.jump * s

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """v_reset, and no adaptation."""
        return self.filled(x, self.v_reset), self.filled(x, 0.0)
